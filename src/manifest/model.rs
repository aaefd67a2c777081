//! What an `env.toml` says, after reading: every name, version and platform in its own type.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use rattler_conda_types::{NamelessMatchSpec, PackageName as CondaName, Subdir as Platform};
use uv_normalize::{ExtraName, PackageName as DistName};
use uv_pep440::{Version, VersionSpecifiers};
use uv_pep508::MarkerTree;

use super::moment::ExcludeNewer;
use super::variants::{Variant, VariantName};
use crate::driver::Driver;
use crate::relpath::RelPath;

/// Byte range in the text of `env.toml`.
pub type Span = Range<usize>;

/// A value with the place it was written at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: Span,
}

/// A whole `env.toml`.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The text it was read from, for messages; credentials in comments are masked.
    pub text: String,
    /// `[env]`.
    pub env: Env,
    /// `[dependencies]`, in file order.
    pub dependencies: Vec<CondaDependency>,
    /// `[pypi-dependencies]`, in file order.
    pub pypi_dependencies: Vec<WheelDependency>,
    /// `[pypi-options]`.
    pub pypi_options: PypiOptions,
    /// `[conda-pypi-map]`: conda name to the distributions it provides (empty: none).
    pub conda_pypi_map: BTreeMap<CondaName, Vec<DistName>>,
    /// `[gpu]`; `None` is a CPU environment.
    pub gpu: Option<Gpu>,
    /// `[host]`: the marked impure way out, an interpreter of the machine.
    pub host: Option<Host>,
    /// `[system-requirements]`: the oldest system that must run the environment.
    pub system: SystemRequirements,
    /// Virtual packages that something other than env.toml says; empty in what is read from it.
    pub virtual_overrides: VirtualOverrides,
    /// `[activation]`.
    pub activation: Activation,
    /// `[view]`: who wins where two packages give one path, and what is allowed.
    pub view: ViewOptions,
    /// `[verify]`.
    pub verify: Verify,
    /// `[variants]`; empty in a view of one ([`Manifest::closures`]).
    pub variants: BTreeMap<VariantName, Variant>,
}

/// Virtual package to its version (of `__archspec` its build); `None`: the target has none.
pub type VirtualOverrides = BTreeMap<String, Option<String>>;

/// How the keys of [`crate::manifest::inputs`] start that are of [`VirtualOverrides`].
pub const OVERRIDE_INPUT: &str = "override.";

/// `[env]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Env {
    /// Name of the environment: 1 to 64 of `a-z A-Z 0-9 . _ -`, starting with a letter or digit.
    pub name: String,
    /// Target platforms (conda subdirs), sorted, without repeats; never empty.
    pub platforms: Vec<Platform>,
    /// Channels in strict priority order: a name, a URL or a path, as written.
    pub channels: Vec<Spanned<String>>,
    /// `exclude-newer` and `exclude-newer-package`: what was not there yet is left out.
    pub exclude_newer: ExcludeNewer,
}

/// One line of `[dependencies]`.
#[derive(Clone, Debug)]
pub struct CondaDependency {
    /// Package name.
    pub name: CondaName,
    /// Version, build, channel and the rest of a MatchSpec.
    pub spec: NamelessMatchSpec,
    /// The whole line.
    pub span: Span,
}

/// One line of `[pypi-dependencies]`.
#[derive(Clone, Debug)]
pub struct WheelDependency {
    /// Distribution name, normalized (PEP 503).
    pub name: DistName,
    /// Extras asked for, sorted.
    pub extras: Vec<ExtraName>,
    /// Where it may come from.
    pub source: WheelRequirementSource,
    /// PEP 508 marker; true when none is given.
    pub marker: MarkerTree,
    /// The whole line.
    pub span: Span,
    /// Its number among all lines of this kind in env.toml, those of variants too, from 0.
    pub number: usize,
}

/// Where a wheel requirement is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WheelRequirementSource {
    /// An index (the default one unless named) and a PEP 440 specifier set.
    Index {
        /// Version specifiers; empty means any.
        specifiers: VersionSpecifiers,
        /// A name in `[pypi-options.indexes]`.
        index: Option<IndexName>,
    },
    /// One wheel file by URL, optionally with its hash in the fragment or in `sha256`.
    Url {
        /// `http`, `https` or `file`.
        url: url::Url,
        /// Expected digest.
        sha256: Option<crate::hash::Sha256>,
    },
    /// One wheel file by path, relative to the directory of `env.toml`.
    Path(PathBuf),
}

/// The name of an index in env.toml: `[a-z0-9][a-z0-9._-]*`. `pypi` is the default index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexName(pub String);

impl fmt::Display for IndexName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `[pypi-options]`.
#[derive(Clone, Debug, Default)]
pub struct PypiOptions {
    /// `index = URL`: replaces the default index. `None`: the default of the libraries.
    pub index: Option<Spanned<url::Url>>,
    /// `[pypi-options.indexes]`: serve only who names them.
    pub indexes: BTreeMap<IndexName, IndexSource>,
    /// `find-links = [...]`: pages or directories that serve every name, before the default index.
    pub find_links: Vec<Spanned<String>>,
    /// `pip = false`: gpuenv does not add pip to an environment that holds wheels.
    pub without_pip: bool,
    /// `prereleases`.
    pub prereleases: Prereleases,
    /// `[pypi-options.dependency-overrides]`.
    pub overrides: BTreeMap<DistName, DependencyOverride>,
    /// `[pypi-options.constraints]`: bounds that add no package.
    pub constraints: BTreeMap<DistName, VersionSpecifiers>,
}

/// One of `[pypi-options.indexes]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexSource {
    /// `{ url = "…" }`: a simple index (PEP 503, PEP 691); `http`, `https` or `file`.
    Simple(url::Url),
    /// `{ find-links = "…" }`: a page of links (URL) or a directory (path as written).
    FindLinks(String),
}

/// Whether pre-releases are looked at (PEP 440, "Handling of pre-releases").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prereleases {
    /// `"if-necessary-or-explicit"`: where a specifier names one, or nothing else exists.
    #[default]
    IfNecessaryOrExplicit,
    /// `"allow"`.
    Allow,
    /// `"disallow"`.
    Disallow,
}

/// What replaces every requirement on a distribution, whoever asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DependencyOverride {
    /// `name = false`: requirements on it are dropped.
    Drop,
    /// `name = ">=1.4"`: any requirement on it becomes this one.
    Specifiers(VersionSpecifiers),
    /// `name = { replace = "scikit-learn", version = ">=1" }`: another distribution.
    Replace(DistName, VersionSpecifiers),
}

/// `[gpu]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The CUDA runtime line (`major.minor`).
    pub cuda: (u16, u16),
    /// The oldest driver that must run it; `None`: no bound.
    pub driver: Option<Driver>,
    /// Compute capabilities that must find kernels, sorted.
    pub archs: Vec<(u16, u16)>,
    /// `allow-mixed-cuda = true`: packages of other CUDA or cuDNN majors may be beside it.
    pub mixed: bool,
    /// Where the line is written.
    pub span: Span,
}

/// `[host]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// CPython version: `3.11`, or in full `3.11.7`.
    pub python: Version,
    /// Where it is written.
    pub span: Span,
}

/// `[system-requirements]`: declared, never taken from the machine that locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemRequirements {
    /// `libc = "2.28"`: the oldest glibc. Default 2.28.
    pub glibc: (u16, u16),
    /// `linux = "4.18"`: the oldest kernel. Default 4.18.
    pub linux: Version,
    /// `macos = "13.0"`: the oldest macOS; `None`: 11.0 on arm64, 10.13 on x86-64, the oldest that
    /// current conda packages are built for.
    pub macos: Option<(u16, u16)>,
    /// `archspec = "x86_64_v3"`: the `__archspec` virtual package of the platforms of its family;
    /// default: the platform's baseline.
    pub archspec: Option<String>,
}

/// The oldest glibc where `libc` is not given: that of manylinux_2_28.
pub const DEFAULT_GLIBC: (u16, u16) = (2, 28);

impl Default for SystemRequirements {
    fn default() -> Self {
        SystemRequirements {
            glibc: DEFAULT_GLIBC,
            linux: Version::new([4, 18]),
            macos: None,
            archspec: None,
        }
    }
}

/// `[activation]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    /// `[activation.env]`: variables set in the environment, in name order.
    pub env: BTreeMap<String, String>,
}

/// `[view]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewOptions {
    /// `[view.winners]`: path in the view → name of the package whose file is taken.
    pub winners: BTreeMap<RelPath, String>,
    /// `allow-external-links = ["package"]`: packages whose links may leave the tree.
    pub allow_external_links: Vec<String>,
    /// `skip-link-scripts = ["package"]`: packages whose link script is knowingly not run.
    pub skip_link_scripts: Vec<String>,
    /// `allow-duplicate-sonames`: sonames that two packages may both provide.
    pub allow_duplicate_sonames: Vec<String>,
}

/// `[verify]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verify {
    /// `framework = "torch"`: whose built-in checks run; `None`: what the environment holds.
    pub framework: Option<Framework>,
    /// `script = "verify.py"`: run in the view after the build, relative to `env.toml`.
    pub script: Option<Spanned<RelPath>>,
    /// `timeout = 600`: seconds; default 1800.
    pub timeout: Option<u64>,
}

/// Frameworks that have built-in checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framework {
    /// PaddlePaddle.
    Paddle,
    /// PyTorch.
    Torch,
    /// TensorFlow.
    Tensorflow,
    /// JAX.
    Jax,
    /// `"none"`: no built-in check.
    None,
}

impl Framework {
    /// All, as env.toml may name them.
    pub const ALL: [Framework; 5] = [
        Framework::Paddle,
        Framework::Torch,
        Framework::Tensorflow,
        Framework::Jax,
        Framework::None,
    ];

    /// As env.toml writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Framework::Paddle => "paddle",
            Framework::Torch => "torch",
            Framework::Tensorflow => "tensorflow",
            Framework::Jax => "jax",
            Framework::None => "none",
        }
    }

    /// The one called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Framework::ALL.into_iter().find(|framework| framework.as_str() == name)
    }
}
