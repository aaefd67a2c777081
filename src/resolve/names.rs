//! What the SAT problem is made of: names, sets of candidates, candidates.

use std::fmt;
use std::sync::Arc;

use rattler_conda_types::{GenericVirtualPackage, NamelessMatchSpec, RepoDataRecord};
use resolvo::SolvableId;
use uv_normalize::{ExtraName, PackageName as DistName};
use uv_pep440::{Version, VersionSpecifiers};

use super::provider::WheelFile;
use super::target::PyMask;

/// A name of the problem: at most one candidate of each is chosen.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Name {
    /// A conda package, `python` (also the host's) and virtual packages among them; normalized.
    Conda(Arc<str>),
    /// A distribution: its wheels, and the conda records that provide it.
    Dist(DistName),
    /// What one wheel file needs, apart from itself: chosen with it, so that its metadata is
    /// asked for no earlier than that. The id is the file's candidate. Likewise what extras need
    /// of what conda provides.
    Metadata(SolvableId),
    /// An extra of a distribution: a flag that is chosen or not.
    Extra(DistName, ExtraName),
    /// Which world a distribution comes from, where both can provide it.
    World(DistName),
    /// What cannot be, with the reason: a name without candidates.
    Refused(Arc<str>),
    /// The CUDA major of the environment: every candidate whose line is known requires its own.
    Cuda,
    /// The cuDNN major, required by what brings cuDNN.
    Cudnn,
}

/// The worlds of [`Name::World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum World {
    Conda,
    Wheel,
}

/// A subset of a name's candidates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Set {
    /// All of them.
    Any,
    /// Conda records and virtual packages that match.
    Spec(Arc<NamelessMatchSpec>),
    /// Interpreters, on the name `python`.
    Pythons(PyMask),
    /// Files and conda versions that match, on a distribution.
    Specifiers(VersionSpecifiers),
    /// The records of one [`Candidate::Provided`], by its number.
    Records(usize),
    /// One world.
    World(World),
    /// With an extra, or without it.
    Extra(bool),
    /// One major, on [`Name::Cuda`] and [`Name::Cudnn`].
    Major(u16),
}

/// A candidate.
#[derive(Clone, Debug)]
pub(super) enum Candidate {
    Record {
        record: Arc<RepoDataRecord>,
        /// Distributions it provides.
        provides: Arc<[DistName]>,
    },
    Virtual(GenericVirtualPackage),
    /// The declared interpreter of the machine.
    HostPython(Version),
    Wheel {
        file: Arc<WheelFile>,
        /// Pythons it runs on, as far as its name and its index entry say.
        pythons: PyMask,
        /// Position among the candidates of its distribution, best first.
        rank: u32,
    },
    /// A distribution, provided by conda records of one name and version.
    Provided {
        /// Index into the solve's list.
        number: usize,
        conda: Arc<str>,
        /// As conda writes it.
        shown: String,
        /// As PEP 440 reads it, if it can.
        version: Option<Version>,
        /// As for wheels.
        rank: u32,
    },
    /// [`Name::Metadata`].
    Metadata(Arc<WheelFile>),
    /// [`Name::Extra`]: with it or without it.
    Extra(bool),
    /// [`Name::World`].
    World(World),
    /// [`Name::Cuda`], [`Name::Cudnn`].
    Major(u16),
}

impl fmt::Display for Candidate {
    /// The version, or what stands for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Candidate::Record { record, .. } => {
                write!(f, "{}", record.package_record.version)
            }
            Candidate::Virtual(package) => write!(f, "{}", package.version),
            Candidate::HostPython(version) => write!(f, "{version}"),
            Candidate::Wheel { file, .. } | Candidate::Metadata(file) => {
                write!(f, "{}", file.filename.version)
            }
            Candidate::Provided { shown, .. } => f.write_str(shown),
            Candidate::Extra(on) => f.write_str(if *on { "on" } else { "off" }),
            Candidate::Major(major) => write!(f, "{major}"),
            Candidate::World(World::Conda) => f.write_str("from conda"),
            Candidate::World(World::Wheel) => f.write_str("from a wheel"),
        }
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Set::Any => Ok(()),
            Set::Spec(spec) => write!(f, "{spec}"),
            Set::Pythons(mask) => write!(f, "{mask:?}"),
            Set::Specifiers(specifiers) => write!(f, "{specifiers}"),
            Set::Records(number) => write!(f, "#{number}"),
            Set::World(world) => write!(f, "{world:?}"),
            Set::Extra(on) => write!(f, "{on}"),
            Set::Major(major) => write!(f, "{major}"),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Conda(name) => f.write_str(name),
            Name::Dist(name) => write!(f, "{name}"),
            Name::Metadata(_) => f.write_str("metadata"),
            Name::Extra(name, extra) => write!(f, "{name}[{extra}]"),
            Name::World(name) => write!(f, "{name}"),
            Name::Refused(reason) => f.write_str(reason),
            Name::Cuda => f.write_str("CUDA"),
            Name::Cudnn => f.write_str("cuDNN"),
        }
    }
}

impl resolvo::utils::VersionSet for Set {
    type V = Candidate;
}
