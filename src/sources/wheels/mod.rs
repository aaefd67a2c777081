//! Wheel sources: simple indexes (PEP 503, PEP 691), pages of links, directories, single files.
//!
//! [`WheelSources`] answers the solver's questions about wheels, and says where a locked wheel is
//! now. Its face is synchronous; all waiting happens on one thread of its own.
//!
//! HTTP, cache, credentials, metadata (PEP 658, ranges) are `uv-client`'s; see `client` for what
//! is set there, and `page` for why pages are read here.
//!
//! # What decides where a source is
//!
//! Which sources there are, and what they are called, is said by env.toml alone. The machine may
//! move them: `mirrors` of gpuenv's configuration moves any, and pip's and uv's settings move the
//! default index (see [`user_config`]). A lock names sources, so it is the same wherever they are.

mod client;
mod engine;
mod error;
mod fetch;
mod listing;
mod local;
mod page;
mod places;
pub mod user_config;

#[cfg(test)]
pub(crate) mod test_server;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use url::Url;
use uv_cache::Cache;
use uv_normalize::PackageName as DistName;

use self::engine::{OnceMap, Promise, Slot, Worker, lock};
use self::fetch::{Facts, Fetcher};
use self::places::Places;
use crate::error::Exit;
use crate::hash::Sha256;
use crate::lockfile::Source;
use crate::manifest::{IndexName, IndexSource, WheelRequirementSource};
use crate::progress::{Event, Progress, Silent};
use crate::resolve::{ProviderError, Want, WheelFile, WheelListing, WheelMetadata, WheelOrigin};

pub use self::error::{Cause, WheelSourceError};
pub use self::places::{DEFAULT_INDEX, DIRECT_PATH, DIRECT_URL};
pub use self::user_config::UserConfig;

/// Which wheel sources there are, and how this machine reaches them.
#[derive(Clone)]
pub struct WheelConfig {
    /// `[pypi-options] index`: replaces the default index.
    pub default_index: Option<Url>,
    /// `[pypi-options.indexes]`.
    pub indexes: BTreeMap<IndexName, IndexSource>,
    /// `[pypi-options] find-links`, as written.
    pub find_links: Vec<String>,
    /// Direct requirements, by the number [`WheelOrigin::Direct`] gives them.
    pub direct: BTreeMap<usize, WheelRequirementSource>,
    /// Directory of env.toml: relative paths start here.
    pub project_dir: PathBuf,
    /// Directory for what may be deleted at any time.
    pub cache_dir: PathBuf,
    /// Use the cache and local files only.
    pub offline: bool,
    /// Source name → where to fetch it in its stead, in order.
    pub mirrors: BTreeMap<String, Vec<Url>>,
    /// Settings of pip and uv on this machine.
    pub user: UserConfig,
    /// Hosts that may be asked without encryption, as in
    /// [`Config::allow_insecure`](crate::sources::Config::allow_insecure).
    pub allow_insecure: BTreeSet<String>,
    /// Further tries after a failure that may pass (5xx, 408, 429, a dropped connection).
    pub retries: u32,
    /// Hears about mirrors that fail and settings that are ignored.
    pub progress: Arc<dyn Progress>,
}

impl WheelConfig {
    /// A configuration without sources of its own: the default index, where the libraries have it.
    pub fn new(project_dir: impl Into<PathBuf>, cache_dir: impl Into<PathBuf>) -> Self {
        WheelConfig {
            default_index: None,
            indexes: BTreeMap::new(),
            find_links: Vec::new(),
            direct: BTreeMap::new(),
            project_dir: project_dir.into(),
            cache_dir: cache_dir.into(),
            offline: false,
            mirrors: BTreeMap::new(),
            user: UserConfig::default(),
            allow_insecure: BTreeSet::new(),
            retries: uv_client::DEFAULT_RETRIES,
            progress: Arc::new(Silent),
        }
    }
}

/// What the solver is told.
type Told<T> = Result<Arc<T>, ProviderError>;
/// Identifies a wheel: source, URL.
type MetadataKey = (String, String);

/// The wheel sources of one project. Cheap to share by reference between threads; every answer
/// is sought once and kept for its lifetime.
///
/// Dropping it drops requests under way.
pub struct WheelSources {
    places: Arc<Places>,
    facts: Arc<Facts>,
    listings: OnceMap<(DistName, WheelOrigin), Told<WheelListing>>,
    metadata: OnceMap<MetadataKey, Told<WheelMetadata>>,
    worker: Worker<Fetcher>,
}

impl WheelSources {
    /// Sets up client, cache and thread. Nothing is fetched yet.
    ///
    /// # Errors
    /// A place that is no URL or not allowed, a certificate file or cache directory that cannot
    /// be used.
    pub fn open(config: WheelConfig) -> Result<Self, WheelSourceError> {
        for note in &config.user.notes {
            config.progress.event(Event::Note { text: note });
        }
        let places = Arc::new(Places::new(&config)?);
        let facts = Arc::new(Facts::default());
        let options = client::ClientOptions {
            user: config.user.clone(),
            offline: config.offline,
            retries: config.retries,
            places: places.urls(),
            allow_insecure: config.allow_insecure.clone(),
        };
        let (thread_places, thread_facts) = (places.clone(), facts.clone());
        let worker = Worker::start(
            move || async move {
                let root = config.cache_dir.join("wheels");
                let cache = Cache::from_path(&root).init().await.map_err(|err| {
                    WheelSourceError::CacheDir { path: root, cause: Cause::of(&err, &[]) }
                })?;
                let client = client::build(&options, cache.clone())?;
                Ok(Fetcher::new(&config, thread_places, thread_facts, client, cache))
            },
            |reason| WheelSourceError::Setup { cause: Cause::words(reason) },
        )?;
        Ok(WheelSources {
            places,
            facts,
            listings: OnceMap::new(),
            metadata: OnceMap::new(),
            worker,
        })
    }

    /// All that `origin` offers of `name`. Blocks until it is known.
    ///
    /// # Errors
    /// [`ProviderError::Failed`] when a source gives no answer. An index that does not know the
    /// name is no error: see [`WheelListing::unknown`].
    pub fn listing(
        &self,
        name: &DistName,
        origin: &WheelOrigin,
    ) -> Result<Arc<WheelListing>, ProviderError> {
        self.start_listing(name.clone(), origin.clone()).wait()
    }

    /// The metadata of a wheel. Blocks until it is known.
    ///
    /// # Errors
    /// [`ProviderError::Unusable`] when this file cannot be read or contradicts its name;
    /// [`ProviderError::Failed`] when its source fails, or it is the file of a direct
    /// requirement and is not there.
    pub fn metadata(&self, file: &Arc<WheelFile>) -> Result<Arc<WheelMetadata>, ProviderError> {
        self.start_metadata(file.clone()).wait()
    }

    /// Starts fetching what will be asked for soon. Returns at once; failures are told to who
    /// asks.
    pub fn prefetch(&self, wants: Vec<Want>) {
        for want in wants {
            match want {
                Want::Wheels(name, origin) => drop(self.start_listing(name, origin)),
                Want::Metadata(file) => drop(self.start_metadata(file)),
            }
        }
    }

    /// Where a locked wheel is now, best candidates first: those the source lists under the
    /// digest, then those it lists under the name with no digest or another one. The digest must
    /// be checked after download in every case. Empty when the source has it no more. Blocks.
    ///
    /// `source` is of kind index or find-links: single files carry their place in the lock.
    ///
    /// # Errors
    /// The source gives no answer, or is not configured here.
    pub fn locate(
        &self,
        source: &Source,
        name: &DistName,
        file: &str,
        sha256: &Sha256,
    ) -> Result<Vec<Url>, WheelSourceError> {
        let (promise, slot) =
            Promise::new(Err(WheelSourceError::Lost(format!("the place of {file}"))));
        let (source, name, file, sha256) =
            (source.clone(), name.clone(), page::dist_name(file), *sha256);
        self.worker.run(move |fetcher: std::rc::Rc<Fetcher>| async move {
            promise.keep(fetcher.locate(&source, &name, &file, &sha256).await);
        });
        slot.wait()
    }

    /// The source called `name` in [`WheelFile::source`], as a lock writes it.
    pub fn lock_source(&self, name: &str) -> Option<Source> {
        self.places.lock_source(name)
    }

    /// The MD5 (hexadecimal, lower case) that a source declares for a file it gives no SHA-256
    /// for; known once the file was listed.
    pub fn declared_md5(&self, file: &WheelFile) -> Option<String> {
        lock(&self.facts).get(&file.url)?.md5.clone()
    }

    fn start_listing(&self, name: DistName, origin: WheelOrigin) -> Arc<Slot<Told<WheelListing>>> {
        let lost = || Err(lost(format!("the files of `{name}`")));
        self.listings.get_or_start((name.clone(), origin.clone()), lost, |promise| {
            let name = name.clone();
            self.worker.run(move |fetcher: std::rc::Rc<Fetcher>| async move {
                let answer = fetcher.listing(&name, &origin).await;
                promise.keep(answer.map(Arc::new).map_err(ProviderError::from));
            });
        })
    }

    fn start_metadata(&self, file: Arc<WheelFile>) -> Arc<Slot<Told<WheelMetadata>>> {
        let lost = || Err(lost(format!("the metadata of {}", file.file)));
        let key = (file.source.clone(), file.url.clone());
        self.metadata.get_or_start(key, lost, |promise| {
            let file = file.clone();
            self.worker.run(move |fetcher: std::rc::Rc<Fetcher>| async move {
                promise.keep(fetcher.metadata(&file).await);
            });
        })
    }
}

fn lost(what: String) -> ProviderError {
    let error = ProviderError::from(WheelSourceError::Lost(what));
    debug_assert!(matches!(&error, ProviderError::Failed { exit: Exit::Bug, .. }));
    error
}
