//! What is to be solved, and the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rattler_conda_types::{
    GenericVirtualPackage, MatchSpec, PackageName as CondaName, RepoDataRecord, Subdir as Platform,
};
use uv_normalize::{ExtraName, PackageName as DistName};
use uv_pep440::{Version, VersionSpecifiers};
use uv_pep508::MarkerTree;

use super::provider::{WheelFile, WheelOrigin};
use crate::driver::Driver;
use crate::hash::Sha256;
use crate::manifest::{DependencyOverride, ExcludeNewer, IndexName, Prereleases, Span};

/// One solve: one platform, one set of root requirements.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Target.
    pub platform: Platform,
    /// Virtual packages of the target, `__glibc` among them.
    pub virtual_packages: Vec<GenericVirtualPackage>,
    /// Oldest glibc of the target (for manylinux tags); `None` where the platform has none.
    pub glibc: Option<(u16, u16)>,
    /// Interpreter of the machine: then Python is a given, and no conda `python` may be chosen.
    /// Where all three parts of a version count, `3.11` is 3.11.0; to conda packages its build is
    /// `0_cp311`.
    pub host_python: Option<Version>,
    /// Names of the channels, by priority, for messages.
    pub channels: Vec<String>,
    /// `[dependencies]`.
    pub conda: Vec<CondaRequirement>,
    /// `[pypi-dependencies]`, and what gpuenv adds.
    pub wheels: Vec<WheelRequirement>,
    /// The explicit indexes of env.toml; each serves only what names it.
    pub indexes: Vec<IndexName>,
    /// Bounds that add no package.
    pub constraints: BTreeMap<DistName, VersionSpecifiers>,
    /// What replaces requirements, whoever asks.
    pub overrides: BTreeMap<DistName, DependencyOverride>,
    /// Pre-release policy.
    pub prereleases: Prereleases,
    /// Conda name → distributions it provides, where the user says so; else the shipped data.
    pub conda_pypi_map: BTreeMap<CondaName, Vec<DistName>>,
    /// `[gpu]`; `None`: for CPUs.
    pub gpu: Option<GpuTarget>,
    /// What is left out as not there yet.
    pub exclude_newer: ExcludeNewer,
    /// What the old lock holds: kept where it still fits.
    pub keep: Keep,
}

/// The GPUs and the driver that an environment is for.
#[derive(Clone, Debug)]
pub struct GpuTarget {
    /// The CUDA runtime line.
    pub cuda: (u16, u16),
    /// The oldest driver that must run it; `None`: no bound.
    pub driver: Option<Driver>,
    /// Compute capabilities that must find kernels.
    pub archs: Vec<(u16, u16)>,
    /// Whether packages of other CUDA majors may be beside it.
    pub mixed: bool,
    /// Who asked.
    pub asker: Asker,
}

/// The old lock's choices.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    /// conda name → (version, build).
    pub conda: BTreeMap<CondaName, (String, String)>,
    /// distribution → file.
    pub wheels: BTreeMap<DistName, KeptWheel>,
    /// What is to be as new as it can be, even if something kept has to move for it.
    pub newest: BTreeSet<Key>,
}

/// A wheel file that the old lock holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptWheel {
    /// Version.
    pub version: Version,
    /// File name; empty where it is not known.
    pub file: String,
    /// Digest, where it is known.
    pub sha256: Option<Sha256>,
}

/// Who asked, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A line of env.toml.
    Manifest(Span),
    /// gpuenv itself, with the reason in words (`so that pip list works in the view`).
    Gpuenv(String),
}

/// A root requirement on a conda package.
#[derive(Clone, Debug)]
pub struct CondaRequirement {
    /// The full spec; `channel` may be set.
    pub spec: MatchSpec,
    /// Who asked.
    pub asker: Asker,
}

/// A root requirement on a distribution.
#[derive(Clone, Debug)]
pub struct WheelRequirement {
    /// Name.
    pub name: DistName,
    /// Extras.
    pub extras: Vec<ExtraName>,
    /// Version bound (empty for a direct reference).
    pub specifiers: VersionSpecifiers,
    /// Where to look.
    pub origin: WheelOrigin,
    /// Marker.
    pub marker: MarkerTree,
    /// Who asked.
    pub asker: Asker,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Solution {
    /// Chosen packages in link order: each after all it requires (cycles broken by name).
    pub packages: Vec<Chosen>,
    /// Warnings in the user's words (a yanked file taken, say).
    pub warnings: Vec<String>,
    /// What was added that nobody asked for, and why.
    pub notes: Vec<String>,
}

/// One chosen package.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// What it is.
    pub what: ChosenKind,
    /// Requirements that led to packages of the solution, as their world writes them, sorted.
    pub requires: Vec<String>,
    /// Keys of the packages those resolved to.
    pub edges: BTreeSet<Key>,
    /// Whether a root requirement names it.
    pub root: bool,
}

/// The two worlds.
#[derive(Clone, Debug)]
pub enum ChosenKind {
    /// A conda record.
    Conda(Arc<RepoDataRecord>),
    /// A wheel.
    Wheel {
        /// The file.
        file: Arc<WheelFile>,
        /// Extras in force.
        extras: BTreeSet<ExtraName>,
    },
}

/// Names a package in a solution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A conda package.
    Conda(CondaName),
    /// A wheel.
    Wheel(DistName),
}
