//! Channels, wheel indexes, find-links, directories, direct URLs; mirrors, credentials, downloads.
//! All async lives here: the face is synchronous.
//!
//! [`Sources`] is one run's way to the world. [`Sources::universe`] answers the solver for one
//! platform ([`crate::resolve::Provider`]) and pins what it chose; [`Sources::fetch_all`] brings
//! what a lock names.
//!
//! | file | what lives there |
//! |---|---|
//! | [`config`], [`condarc`] | what the machine says: mirrors, proxies, certificates |
//! | `places` | where a channel is from here |
//! | `net` | the HTTP client and what no request may do |
//! | `channels` | package records of conda channels |
//! | [`wheels`] | wheel indexes, pages of links, direct wheels |
//! | `download`, `part` | one file, resumed and checked |
//! | `fetch` | all files of a lock |
//! | `universe` | the provider, and pinning |
//! | [`error`] | what went wrong, place by place |

mod channels;
pub mod condarc;
pub mod config;
mod download;
pub mod error;
mod fetch;
mod net;
mod part;
mod places;
#[cfg(test)]
mod sources_tests;
#[cfg(test)]
pub(crate) mod test_server;
mod universe;
pub mod wheels;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use url::Url;

pub use self::config::Config;
pub use self::error::{ConfigError, SourceError};
pub use self::universe::{Pinned, Universe};

use self::channels::Repodata;
use self::download::Downloader;
use self::net::Net;
use self::places::Ground;
use self::wheels::{WheelConfig, WheelSourceError, WheelSources};
use crate::error::Report;
use crate::lockfile::{Source, SourceKind};
use crate::manifest::{
    self, IndexName, IndexSource, Manifest, WheelRequirementSource, lock_location,
};
use crate::progress::{Event, Progress};

/// How to reach the sources.
#[derive(Clone)]
pub struct SourcesOptions {
    /// What the machine says.
    pub config: Config,
    /// Use caches and local files only.
    pub offline: bool,
    /// Directory for what may be deleted at any time: indexes, metadata.
    pub cache_dir: PathBuf,
    /// Directory for downloads, finished or not; `None`: `downloads` in `cache_dir`.
    pub download_dir: Option<PathBuf>,
    /// Directory of `env.toml`: relative paths start here.
    pub project_dir: PathBuf,
    /// Who hears of progress.
    pub progress: Arc<dyn Progress>,
}

/// The sources, as seen from this machine. Cheap to clone; shared between threads.
#[derive(Clone)]
pub struct Sources {
    inner: Arc<Inner>,
}

struct Inner {
    config: Arc<Config>,
    offline: bool,
    cache_dir: PathBuf,
    download_dir: PathBuf,
    project_dir: PathBuf,
    progress: Arc<dyn Progress>,
    net: Net,
    repodata: Repodata,
    learned: Mutex<Learned>,
    /// Wheel sources in use by a [`Universe`]: those of several closures ask once.
    open: Mutex<Vec<(WheelKey, Weak<WheelSources>)>>,
    /// Whether the user heard which settings of pip and uv are ignored.
    noted: AtomicBool,
    /// Taken out when dropped.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Whatever still runs is of no use to anybody.
            runtime.shutdown_background();
        }
    }
}

/// What tells the wheel sources of one env.toml from those of another.
#[derive(Clone, PartialEq)]
struct WheelKey {
    default_index: Option<Url>,
    indexes: BTreeMap<IndexName, IndexSource>,
    find_links: Vec<String>,
    direct: BTreeMap<usize, WheelRequirementSource>,
}

/// What only `env.toml` knows of the sources a lock names.
#[derive(Clone, Default)]
struct Learned {
    /// Channels given by absolute path: lock name → as written.
    channel_directories: BTreeMap<String, String>,
    /// Wheel sources given by absolute path: lock name → as written.
    wheel_directories: BTreeMap<String, String>,
    /// `[pypi-options]`, for the credentials and mirrors of its places.
    wheels: Option<WheelConfig>,
    /// Opened when first needed for locating.
    locating: Option<Arc<WheelSources>>,
}

impl Sources {
    /// Sets up clients and caches. Nothing is fetched.
    ///
    /// # Errors
    /// A certificate file or proxy that cannot be used, a cache directory that cannot be made.
    pub fn open(options: SourcesOptions) -> Result<Sources, SourceError> {
        let SourcesOptions { config, offline, cache_dir, download_dir, project_dir, progress } =
            options;
        for text in &config.warnings {
            progress.event(Event::Warning { text });
        }
        let config = Arc::new(config);
        let project_dir = std::path::absolute(&project_dir)
            .map_err(|e| SourceError::io("find", &project_dir, e))?;
        let index_dir = cache_dir.join("repodata");
        std::fs::create_dir_all(&index_dir)
            .map_err(|e| SourceError::io("create", &index_dir, e))?;
        let runtime = net::runtime().map_err(|e| SourceError::Client { reason: e.to_string() })?;
        let net = Net::new(&config, offline)?;
        let repodata = Repodata::new(net.clone(), &index_dir, offline, progress.clone());
        let download_dir = download_dir.unwrap_or_else(|| cache_dir.join("downloads"));
        Ok(Sources {
            inner: Arc::new(Inner {
                config,
                offline,
                cache_dir,
                download_dir,
                project_dir,
                progress,
                net,
                repodata,
                learned: Mutex::default(),
                open: Mutex::default(),
                noted: AtomicBool::new(false),
                runtime: Some(runtime),
            }),
        })
    }

    /// Where downloads are kept unless [`Sources::fetch_all`] is told another place. What
    /// [`Universe::pin`] had to fetch lies here.
    pub fn download_dir(&self) -> &Path {
        &self.inner.download_dir
    }

    /// Takes note of where `manifest` says that sources are. A lock names no absolute path and no
    /// credentials, so [`Sources::fetch_all`] needs this for sources that `env.toml` gives by
    /// absolute path; it does no harm otherwise. [`Sources::universe`] does it by itself.
    pub fn learn(&self, manifest: &Manifest) {
        let mut learned = Learned::default();
        for channel in &manifest.env.channels {
            let written = &channel.value;
            if manifest::place(written) == manifest::Place::Absolute {
                let name = lock_location(written).name;
                learned.channel_directories.insert(name, written.clone());
            }
        }
        let options = &manifest.pypi_options;
        if let Some(url) = &options.index
            && url.value.scheme() == "file"
        {
            let name = wheels::DEFAULT_INDEX.to_string();
            learned.wheel_directories.insert(name, url.value.to_string());
        }
        for written in &options.find_links {
            if manifest::place(&written.value) == manifest::Place::Absolute {
                let name = lock_location(&written.value).name;
                learned.wheel_directories.insert(name, written.value.clone());
            }
        }
        for (name, source) in &options.indexes {
            let written = match source {
                IndexSource::Simple(url) => url.to_string(),
                IndexSource::FindLinks(text) => text.clone(),
            };
            if manifest::place(&written) == manifest::Place::Absolute {
                learned.wheel_directories.insert(name.0.clone(), written);
            }
        }
        learned.wheels = Some(self.inner.wheel_config(Some(manifest)));
        *self.inner.learned() = learned;
    }
}

impl Inner {
    fn learned(&self) -> MutexGuard<'_, Learned> {
        // Written in one step, so a panic elsewhere leaves it whole.
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self) -> Result<tokio::runtime::Handle, SourceError> {
        match &self.runtime {
            Some(runtime) => Ok(runtime.handle().clone()),
            // Only while being dropped, when nobody can ask.
            None => Err(SourceError::Stopped),
        }
    }

    fn downloader(&self) -> Result<Downloader, SourceError> {
        Ok(Downloader {
            net: self.net.clone(),
            config: self.config.clone(),
            handle: self.handle()?,
            progress: self.progress.clone(),
            offline: self.offline,
        })
    }

    fn ground<'a>(&'a self, directories: &'a BTreeMap<String, String>) -> Ground<'a> {
        Ground { config: &self.config, project_dir: &self.project_dir, directories }
    }

    fn wheel_config(&self, manifest: Option<&Manifest>) -> WheelConfig {
        let mut config = WheelConfig::new(&self.project_dir, &self.cache_dir);
        config.offline = self.offline;
        config.mirrors = self.config.mirrors.clone();
        config.user = self.config.wheels.clone();
        // Told once a run, by `universe`, not by every client that is made.
        config.user.notes.clear();
        config.retries = self.config.patience.tries.saturating_sub(1);
        config.progress = self.progress.clone();
        if let Some(path) = &self.config.tls_ca {
            config.user.certificates = Some(wheels::user_config::Setting {
                value: path.clone(),
                from: "`tls-ca` or the certificate settings of this machine".into(),
            });
        }
        if let Some(manifest) = manifest {
            let options = &manifest.pypi_options;
            config.default_index = options.index.as_ref().map(|url| url.value.clone());
            config.indexes = options.indexes.clone();
            config.find_links = options.find_links.iter().map(|l| l.value.clone()).collect();
            config.direct = manifest
                .all_pypi_dependencies()
                .filter(|d| !matches!(d.source, WheelRequirementSource::Index { .. }))
                .map(|d| (d.number, d.source.clone()))
                .collect();
        }
        config.allow_insecure = self.config.allow_insecure.clone();
        config
    }

    /// The wheel sources of an env.toml: those that are open, or new ones.
    fn wheel_sources(&self, manifest: &Manifest) -> Result<Arc<WheelSources>, SourceError> {
        let config = self.wheel_config(Some(manifest));
        let key = WheelKey {
            default_index: config.default_index.clone(),
            indexes: config.indexes.clone(),
            find_links: config.find_links.clone(),
            direct: config.direct.clone(),
        };
        // Written in one step, so a panic elsewhere leaves it whole.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, sources)| sources.strong_count() > 0);
        let there = open.iter().find(|(known, _)| *known == key).map(|(_, sources)| sources);
        if let Some(sources) = there.and_then(Weak::upgrade) {
            return Ok(sources);
        }
        let sources = Arc::new(WheelSources::open(config)?);
        open.push((key, Arc::downgrade(&sources)));
        Ok(sources)
    }

    /// Every remote place of wheels that the configuration names, with credentials.
    fn wheel_urls(&self, config: &WheelConfig) -> Vec<Url> {
        let links = config.indexes.values().filter_map(|source| match source {
            IndexSource::Simple(url) => Some(url.clone()),
            IndexSource::FindLinks(text) => Url::parse(text).ok(),
        });
        let direct = config.direct.values().filter_map(|source| match source {
            WheelRequirementSource::Url { url, .. } => Some(url.clone()),
            _ => None,
        });
        config
            .default_index
            .iter()
            .cloned()
            .chain(config.user.index.iter().map(|setting| setting.value.clone()))
            .chain(config.find_links.iter().filter_map(|text| Url::parse(text).ok()))
            .chain(links)
            .chain(direct)
            .chain(self.config.mirrors.values().flatten().cloned())
            .collect()
    }

    /// `url` with the credentials that the configuration has for its origin, if it has none.
    fn with_credentials(&self, url: Url) -> Url {
        if !url.username().is_empty() || url.password().is_some() {
            return url;
        }
        let config = self.wheel_config(None);
        let known = self.wheel_urls(&config).into_iter().find(|known| {
            (!known.username().is_empty() || known.password().is_some())
                && known.origin() == url.origin()
        });
        let Some(known) = known else { return url };
        let mut full = url.clone();
        let set = full.set_username(known.username()).is_ok()
            && full.set_password(known.password()).is_ok();
        if set { full } else { url }
    }

    /// The wheel sources that locate what a lock names.
    fn locating(&self) -> Result<Arc<WheelSources>, SourceError> {
        let mut learned = self.learned();
        if let Some(open) = &learned.locating {
            return Ok(open.clone());
        }
        let config = match &learned.wheels {
            Some(config) => config.clone(),
            None => self.wheel_config(None),
        };
        let open = Arc::new(WheelSources::open(config).map_err(SourceError::from)?);
        learned.locating = Some(open.clone());
        Ok(open)
    }
}

impl From<WheelSourceError> for SourceError {
    fn from(error: WheelSourceError) -> SourceError {
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            cause = inner.source();
        }
        SourceError::Wheel { message, hint: error.hint(), exit: error.exit() }
    }
}

/// A wheel source as a lock may hold it: the names of [`lock_location`], no absolute path.
fn portable(source: Source) -> Source {
    let Some(written) = &source.url else { return source };
    let location = match (source.kind, manifest::place(written)) {
        // `wheels` as a place of links is a directory, not a name.
        (SourceKind::FindLinks, manifest::Place::Name) => lock_location(&format!("./{written}")),
        _ => lock_location(written),
    };
    let name = if source.name == *written { location.name } else { source.name };
    // An index is where its URL says, to the last slash.
    let url = if source.kind == SourceKind::Index && location.url.is_some() {
        source.url
    } else {
        location.url
    };
    Source { name, kind: source.kind, url }
}

/// The same source with the absolute path that `env.toml` gives it.
fn at_home(source: &Source, directories: &BTreeMap<String, String>) -> Source {
    let url = source.url.clone().or_else(|| directories.get(&source.name).cloned());
    Source { url, ..source.clone() }
}
