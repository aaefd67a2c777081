//! What a lock says: no time stamp, no user name, no absolute path, no mirror.

use std::collections::BTreeMap;
use std::fmt;

use rattler_conda_types::Subdir as Platform;

use crate::hash::{Sha256, ShortHash};

/// The lock format this program writes.
pub const VERSION: u32 = 1;

/// A whole `gpuenv.lock`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// What of env.toml mattered, one normalized fact a key (`dependencies.python` → `3.9.*`),
    /// so that "stale because" can name what changed and how.
    pub inputs: BTreeMap<String, String>,
    /// Where artifacts come from, sorted by name.
    pub sources: Vec<Source>,
    /// One closure a platform, sorted by platform name.
    pub environments: Vec<LockedEnvironment>,
    /// All artifacts of all environments, sorted by id.
    pub packages: Vec<LockedPackage>,
    /// Where the environments were seen working, sorted.
    pub verifications: Vec<Verification>,
}

/// A place artifacts come from. The tool's defaults (the default wheel index; a channel named
/// without URL) carry no URL: the machine's configuration says where they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// `conda-forge`, `pypi`, or the name in env.toml.
    pub name: String,
    /// What protocol it speaks.
    pub kind: SourceKind,
    /// Set where env.toml gives a URL or a relative path; never with credentials.
    pub url: Option<String>,
}

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// A conda channel: `<subdir>/repodata.json` and packages beside it.
    Channel,
    /// A simple wheel index (PEP 503, PEP 691).
    Index,
    /// A page of links, or a directory of wheels.
    FindLinks,
    /// A single file at a URL.
    Url,
    /// A single file at a path relative to the project.
    Path,
}

/// The closure for one platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedEnvironment {
    /// conda subdir.
    pub platform: Platform,
    /// Hash over all that decides the view; see `store-layout/README.md`.
    pub env_id: ShortHash,
    /// Declared host interpreter (`3.11`), or `None` with conda's Python or none at all.
    pub host_python: Option<String>,
    /// Virtual packages assumed, sorted, as `__glibc=2.28=0`.
    pub virtual_packages: Vec<String>,
    /// Ids of the packages in link order: a package stands after all it requires.
    pub packages: Vec<PackageId>,
    /// Hash of the view manifest, once realized.
    pub view_hash: Option<Sha256>,
}

/// Names a package within one lock: a wheel's file name, or `subdir/file name` of a conda
/// package; where two sources give different files that name, ` @source` follows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageId(pub String);

impl fmt::Display for PackageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One artifact, pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedPackage {
    /// Its id.
    pub id: PackageId,
    /// What kind of artifact.
    pub kind: ArtifactKind,
    /// Name, normalized as its world does.
    pub name: String,
    /// Version as its world writes it.
    pub version: String,
    /// Conda build string.
    pub build: Option<String>,
    /// Conda subdir (`linux-64`, `noarch`).
    pub subdir: Option<String>,
    /// File name.
    pub file: String,
    /// Name of its [`Source`].
    pub source: String,
    /// Where in the source, when the file name (with subdir) does not say it: the URL of a
    /// direct reference, or the relative path of a local wheel.
    pub location: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Digest of the file.
    pub sha256: Sha256,
    /// Whether the digest was computed by gpuenv because the source declared none.
    pub hash_computed: bool,
    /// NAR hash of the unpacked tree, once known.
    pub nar: Option<Sha256>,
    /// Requirements that led to other packages of the closure, sorted, as their world writes them.
    pub requires: Vec<String>,
    /// Names of the packages those resolved to, sorted: the edges of the graph. Wheel and
    /// conda names share this list; a wheel's edge to a conda package is `conda:name`.
    pub edges: Vec<String>,
    /// Why a yanked file was taken all the same.
    pub yanked: Option<String>,
}

/// Which world an artifact is from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ArtifactKind {
    /// `.conda` or `.tar.bz2`.
    Conda,
    /// `.whl`.
    Wheel,
}

/// An environment seen working on a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verification {
    /// The environment.
    pub env_id: ShortHash,
    /// GPU model, or `none`.
    pub gpu: String,
    /// Driver version, or `none`.
    pub driver: String,
    /// Outcome of each check, in order run: name and `passed` / `failed (…)`.
    pub checks: Vec<(String, String)>,
    /// Facts and numbers, sorted by name.
    pub facts: BTreeMap<String, String>,
}
