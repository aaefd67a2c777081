//! What the solver asks of the world. Synchronous: an implementation may block while its own
//! machinery fetches; [`Provider::prefetch`] tells it early what will be asked.

use std::sync::Arc;

use rattler_conda_types::{PackageName as CondaName, RepoDataRecord};
use uv_distribution_filename::WheelFilename;
use uv_normalize::{ExtraName, PackageName as DistName};
use uv_pep440::{Version, VersionSpecifiers};
use uv_pypi_types::VerbatimParsedUrl;

use crate::hash::Sha256;
use crate::manifest::IndexName;

/// Where a distribution is looked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WheelOrigin {
    /// The find-links of env.toml, then the default index.
    Default,
    /// An explicit index of env.toml.
    Index(IndexName),
    /// The one file of a direct requirement: index into [`super::Problem::wheels`].
    Direct(usize),
}

/// One file a wheel source offers.
#[derive(Clone, Debug)]
pub struct WheelFile {
    /// Parsed file name.
    pub filename: WheelFilename,
    /// File name as served.
    pub file: String,
    /// Name of the lock [`Source`](crate::lockfile::Source) that offers it.
    pub source: String,
    /// Where to fetch it on this machine, undecoded; never written to a lock unless the
    /// requirement itself names it.
    pub url: String,
    /// Bytes, if the source says so.
    pub size: Option<u64>,
    /// Digest, if the source declares one.
    pub sha256: Option<Sha256>,
    /// `data-requires-python`.
    pub requires_python: Option<VersionSpecifiers>,
    /// `data-yanked`: the reason (may be empty).
    pub yanked: Option<String>,
    /// Milliseconds since the epoch, where the source says so (PEP 700).
    pub upload_time: Option<i64>,
    /// Whether an index lists it, rather than a page of links, a directory or env.toml itself.
    pub indexed: bool,
}

/// All a source offers of one distribution.
#[derive(Clone, Debug, Default)]
pub struct WheelListing {
    /// Wheels, any order.
    pub files: Vec<Arc<WheelFile>>,
    /// Versions that exist only as source distributions.
    pub sdist_only: Vec<Version>,
    /// Files that could not be read, with the reason, for the report when nothing fits.
    pub skipped: Vec<(String, String)>,
    /// The name is not there at all (as opposed to: no wheels).
    pub unknown: bool,
}

/// The core metadata that a solve needs.
#[derive(Clone, Debug)]
pub struct WheelMetadata {
    /// `Name`.
    pub name: DistName,
    /// `Version`.
    pub version: Version,
    /// `Requires-Python`.
    pub requires_python: Option<VersionSpecifiers>,
    /// `Requires-Dist`.
    pub requires_dist: Vec<uv_pep508::Requirement<VerbatimParsedUrl>>,
    /// `Provides-Extra`.
    pub extras: Vec<ExtraName>,
}

/// Why the provider has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProviderError {
    /// This one file or version is unusable; others may serve.
    #[error("{0}")]
    Unusable(String),
    /// A source failed; the solve stops. `code` is the exit status.
    #[error("{message}")]
    Failed {
        /// Words for the user.
        message: String,
        /// What to do next.
        hint: Option<String>,
        /// How the process ends.
        exit: crate::error::Exit,
    },
}

/// Something the solver will probably ask for soon.
#[derive(Clone, Debug)]
pub enum Want {
    /// [`Provider::wheels`].
    Wheels(DistName, WheelOrigin),
    /// [`Provider::metadata`].
    Metadata(Arc<WheelFile>),
}

/// The world as the solver sees it.
pub trait Provider {
    /// All records of `name` for the platform and `noarch`, each channel's after the one before it
    /// in priority; strict priority is the solver's business. The outer vector is per channel.
    fn conda(&self, name: &CondaName) -> Result<Arc<Vec<Vec<Arc<RepoDataRecord>>>>, ProviderError>;
    /// Every conda name the channels hold, for "nearest name" hints; may be empty.
    fn conda_names(&self) -> Vec<String>;
    /// What a wheel source offers of `name`.
    fn wheels(
        &self,
        name: &DistName,
        origin: &WheelOrigin,
    ) -> Result<Arc<WheelListing>, ProviderError>;
    /// The metadata of a wheel.
    fn metadata(&self, file: &Arc<WheelFile>) -> Result<Arc<WheelMetadata>, ProviderError>;
    /// Hints; returns at once.
    fn prefetch(&self, wants: Vec<Want>);
}
