//! Package records of conda channels, over `rattler_repodata_gateway`.
//!
//! The gateway fetches, caches and revalidates `repodata.json.zst`, `repodata.json` and sharded
//! repodata (CEP 16). What it leaves to us: more than one place a channel (each place is a channel
//! of its own to the gateway, the first that serves is kept); content that is not what its name
//! says (told apart before it is cached, see [`super::net`], or taken out of the cache when it
//! does not parse); channels in a directory, which may hold only `repodata.json.zst`; a channel
//! that has no subdir at all (mistyped, most likely).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rattler_conda_types::{
    Channel, MatchSpec, PackageName as CondaName, RepoDataRecord, Subdir as Platform,
};
use rattler_repodata_gateway::fetch::{CacheAction, FetchRepoDataError};
use rattler_repodata_gateway::sparse::{PackageFormatSelection, SparseRepoData};
use rattler_repodata_gateway::{
    CacheClearMode, ChannelConfig, ChannelRelationsMode, DownloadReporter, Gateway, GatewayError,
    Reporter, SourceConfig, SubdirSelection,
};
use url::Url;

use super::error::{Attempt, Attempts, Outcome, SourceError, redacted};
use super::net::{Net, Refused, outcome_of, outcome_of_reqwest};
use super::places::ChannelSpec;
use crate::lockfile::Source;
use crate::progress::{Event, Progress};

/// Requests at once for shards: they are small.
const MAX_REQUESTS: usize = 50;
/// Most bytes a local, compressed index may have when unpacked.
const MAX_INDEX: u64 = 4 << 30;

/// All records of one package: a list per channel, in priority order.
pub(crate) type Records = Arc<Vec<Vec<Arc<RepoDataRecord>>>>;

/// What is at one place: records and names, or nothing.
type Found = Option<(Backend, BTreeSet<String>)>;

/// A place that did not serve, and why.
struct Bad {
    place: Url,
    outcome: Outcome,
}

/// What fetches repodata, for all channels and platforms of a run.
#[derive(Clone)]
pub(crate) struct Repodata {
    gateway: Gateway,
    net: Net,
    offline: bool,
    progress: Arc<dyn Progress>,
}

impl Repodata {
    /// Keeps repodata in `cache_dir`, which must exist.
    pub(crate) fn new(
        net: Net,
        cache_dir: &Path,
        offline: bool,
        progress: Arc<dyn Progress>,
    ) -> Repodata {
        let cache_action =
            if offline { CacheAction::ForceCacheOnly } else { CacheAction::CacheOrFetch };
        let default = SourceConfig { cache_action, bz2_enabled: false, ..SourceConfig::default() };
        let gateway = Gateway::builder()
            .with_client(net.indexes.clone())
            .with_cache_dir(cache_dir)
            .with_channel_config(ChannelConfig { default, per_channel: HashMap::new() })
            .with_max_concurrent_requests(MAX_REQUESTS)
            .with_max_concurrent_io(64)
            .finish();
        Repodata { gateway, net, offline, progress }
    }

    /// Finds a place that serves the channel, and reads its index for `platform` and `noarch`.
    async fn open(self, spec: ChannelSpec, platform: Platform) -> Result<Open, SourceError> {
        let mut tried = Attempts::default();
        let mut absent = true;
        let count = spec.bases.len();
        for (index, base) in spec.bases.iter().enumerate() {
            match self.open_at(base, platform).await {
                Ok(Some((backend, names))) => {
                    let (source, base) = (spec.source, base.clone());
                    return Ok(Open { source, base, backend, names });
                }
                Ok(None) => tried.0.push(Attempt {
                    source: spec.source.name.clone(),
                    place: redacted(base),
                    outcome: Outcome::Missing,
                }),
                Err(bad) => {
                    let Bad { place, outcome } = *bad;
                    absent = false;
                    let place = redacted(&place);
                    if index + 1 < count {
                        let text = format!("{place}: {outcome}; trying the next place");
                        self.progress.event(Event::Note { text: &text });
                    }
                    tried.0.push(Attempt { source: spec.source.name.clone(), place, outcome });
                }
            }
        }
        let channel = spec.source.name;
        Err(match absent {
            true => SourceError::NoSuchChannel { channel, platform: platform.to_string(), tried },
            false => SourceError::Repodata { channel, tried },
        })
    }

    /// `None` if there is neither subdir.
    async fn open_at(&self, base: &Url, platform: Platform) -> Result<Found, Box<Bad>> {
        if base.scheme() == "file" {
            let base = base.clone();
            let read = move || open_directory(&base, platform);
            return tokio::task::spawn_blocking(read)
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        }
        let channel = Channel::from_url(base.clone());
        let (native, noarch) = futures::join!(
            self.subdir(&channel, platform),
            self.subdir(&channel, Platform::NoArch)
        );
        let (native, noarch) = match (native, noarch) {
            // A subdir that was found missing online leaves no trace in the cache.
            (Ok(Some(found)), Err(Outcome::NotCached)) => (Ok(Some(found)), Ok(None)),
            (Err(Outcome::NotCached), Ok(Some(found))) => (Ok(None), Ok(Some(found))),
            both => both,
        };
        let at = |platform| {
            let place = channel.platform_url(platform);
            move |outcome| Box::new(Bad { place, outcome })
        };
        let mut subdirs = Vec::new();
        let mut names = BTreeSet::new();
        let noarch = noarch.map_err(at(Platform::NoArch))?;
        if let Some(found) = noarch {
            subdirs.push(Platform::NoArch);
            names.extend(found);
        }
        // The gateway shows a native subdir that is missing as one that is empty.
        let native = native.map_err(at(platform))?.unwrap_or_default();
        if !native.is_empty() {
            subdirs.insert(0, platform);
            names.extend(native);
        }
        if subdirs.is_empty() && !self.exists(base, platform).await.map_err(at(platform))? {
            return Ok(None);
        }
        let channel = Channel::from_url(base.clone());
        Ok(Some((Backend::Remote { channel, subdirs }, names)))
    }

    /// The names of one subdir; loads its index. `None` if it is missing.
    async fn subdir(
        &self,
        channel: &Channel,
        platform: Platform,
    ) -> Result<Option<Vec<String>>, Outcome> {
        let query = self
            .gateway
            .names([channel.clone()], [platform])
            .with_reporter(Told::new(&self.progress))
            .channel_relations(ChannelRelationsMode::Disabled);
        match query.execute().await {
            Ok(found) => {
                Ok(Some(found.names.iter().map(|n| n.as_normalized().to_string()).collect()))
            }
            Err(error) => match outcome_of_gateway(error) {
                Outcome::Missing => Ok(None),
                outcome => {
                    if !self.offline {
                        self.forget(channel, platform).await;
                    }
                    Err(outcome)
                }
            },
        }
    }

    /// Takes an index that failed out of the cache, so that the next run fetches it again.
    async fn forget(&self, channel: &Channel, platform: Platform) {
        let subdirs = SubdirSelection::Some(HashSet::from([platform.to_string()]));
        let (gateway, channel) = (self.gateway.clone(), channel.clone());
        let cleared = tokio::task::spawn_blocking(move || {
            gateway.clear_repodata_cache(&channel, subdirs, CacheClearMode::InMemoryAndDisk)
        });
        if let Ok(Err(error)) = cleared.await {
            tracing::warn!("cannot remove a bad package index from the cache: {error}");
        }
    }

    /// Whether the subdir has an index, however empty.
    async fn exists(&self, base: &Url, platform: Platform) -> Result<bool, Outcome> {
        if self.offline {
            return Ok(false);
        }
        let url = base
            .join(&format!("{platform}/repodata.json"))
            .map_err(|e| Outcome::Other(e.to_string()))?;
        let response = self.net.indexes.get(url).send().await.map_err(outcome_of)?;
        let host = response.url().host_str().unwrap_or("the host").to_string();
        match super::net::outcome_of_status(response.status(), &host) {
            _ if response.status().is_success() => Ok(true),
            Outcome::Missing => Ok(false),
            outcome => Err(outcome),
        }
    }
}

/// Where the records of an opened channel are.
enum Backend {
    /// Behind the gateway: the subdirs that exist.
    Remote { channel: Channel, subdirs: Vec<Platform> },
    /// Read from a directory.
    Local(Vec<Arc<SparseRepoData>>),
}

/// A channel with a place that serves it.
struct Open {
    source: Source,
    base: Url,
    backend: Backend,
    names: BTreeSet<String>,
}

impl Open {
    /// All records of `name`, native before `noarch`, each sorted by file name.
    async fn records(
        &self,
        gateway: &Gateway,
        progress: &Arc<dyn Progress>,
        name: &CondaName,
    ) -> Result<Vec<Arc<RepoDataRecord>>, Outcome> {
        if !self.names.contains(name.as_normalized()) {
            return Ok(Vec::new());
        }
        let mut records: Vec<RepoDataRecord> = match &self.backend {
            Backend::Remote { channel, subdirs } => {
                let spec = MatchSpec::from(name.clone());
                let found = gateway
                    .query([channel.clone()], subdirs.iter().copied(), [spec])
                    .with_reporter(Told::new(progress))
                    .recursive(false)
                    .channel_relations(ChannelRelationsMode::Disabled)
                    .package_format_selection(PackageFormatSelection::PreferConda)
                    .execute()
                    .await
                    .map_err(outcome_of_gateway)?;
                found.iter().flat_map(|data| data.iter().cloned()).collect()
            }
            Backend::Local(subdirs) => {
                let (subdirs, name) = (subdirs.clone(), name.clone());
                let load = move || {
                    let mut all = Vec::new();
                    for sparse in &subdirs {
                        all.extend(
                            sparse.load_records(&name, PackageFormatSelection::PreferConda)?,
                        );
                    }
                    Ok::<_, io::Error>(all)
                };
                tokio::task::spawn_blocking(load)
                    .await
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
                    .map_err(damaged)?
            }
        };
        records.sort_by_cached_key(|record| {
            let noarch = record.package_record.subdir == Platform::NoArch.as_str();
            (noarch, record.identifier.to_string())
        });
        for record in &mut records {
            record.channel = Some(self.source.name.clone());
        }
        Ok(records.into_iter().map(Arc::new).collect())
    }
}

/// The opened channels of one environment, for one platform.
pub(crate) struct Channels {
    repodata: Repodata,
    handle: tokio::runtime::Handle,
    open: Vec<Open>,
    cache: Mutex<HashMap<CondaName, Records>>,
}

impl Channels {
    /// Opens all channels at once, and reads the records of `roots` and of all that these may
    /// need, so that the solver does not wait for them one by one.
    pub(crate) fn open(
        repodata: Repodata,
        handle: tokio::runtime::Handle,
        specs: Vec<ChannelSpec>,
        platform: Platform,
        roots: Vec<CondaName>,
    ) -> Result<Channels, SourceError> {
        let opened = handle.block_on(futures::future::join_all(
            specs.into_iter().map(|spec| repodata.clone().open(spec, platform)),
        ));
        // The first channel's failure is told, whichever came first in time.
        let open = opened.into_iter().collect::<Result<Vec<_>, _>>()?;
        let channels = Channels { repodata, handle, open, cache: Mutex::default() };
        // Local records are read as fast when they are asked for.
        if channels.open.iter().any(|o| matches!(o.backend, Backend::Remote { .. })) {
            channels.handle.block_on(channels.warm(roots))?;
        }
        Ok(channels)
    }

    async fn warm(&self, roots: Vec<CondaName>) -> Result<(), SourceError> {
        let mut seen: HashSet<CondaName> = roots.iter().cloned().collect();
        let mut waiting: Vec<CondaName> = roots;
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < MAX_REQUESTS
                && let Some(name) = waiting.pop()
            {
                running.push(self.load(name));
            }
            let Some(records) = running.next().await else { return Ok(()) };
            let records = records?;
            for record in records.iter().flatten() {
                for depends in &record.package_record.depends {
                    let name = CondaName::from_matchspec_str_unchecked(depends);
                    if !name.as_normalized().starts_with("__") && seen.insert(name.clone()) {
                        waiting.push(name);
                    }
                }
            }
        }
    }

    async fn load(&self, name: CondaName) -> Result<Records, SourceError> {
        let Repodata { gateway, progress, .. } = &self.repodata;
        let lists = futures::future::join_all(
            self.open.iter().map(|channel| channel.records(gateway, progress, &name)),
        )
        .await;
        let mut records = Vec::with_capacity(lists.len());
        for (channel, list) in self.open.iter().zip(lists) {
            records.push(list.map_err(|outcome| SourceError::Records {
                channel: channel.source.name.clone(),
                package: name.as_normalized().to_string(),
                outcome: Box::new(outcome),
            })?);
        }
        let records = Arc::new(records);
        self.lock().insert(name, records.clone());
        Ok(records)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<CondaName, Records>> {
        // Each insertion is one step, so a panic elsewhere leaves the map whole.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All records of `name`, per channel.
    pub(crate) fn records(&self, name: &CondaName) -> Result<Records, SourceError> {
        if let Some(known) = self.lock().get(name) {
            return Ok(known.clone());
        }
        self.handle.block_on(self.load(name.clone()))
    }

    /// Every name the channels hold, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self.open.iter().flat_map(|o| &o.names).collect();
        all.into_iter().cloned().collect()
    }

    /// The lock source of a record, and where the file is in it unless its name says so.
    pub(crate) fn origin(&self, record: &RepoDataRecord) -> Option<(Source, Option<String>)> {
        let channel = self.open.iter().find(|o| Some(&o.source.name) == record.channel.as_ref())?;
        let tail = format!("{}/{}", record.package_record.subdir, record.identifier);
        // A channel may keep its files elsewhere (`base_url`, CEP 15). A mirror repeats the
        // original's address there, which ends in the channel's own name all the same.
        let last = channel.source.name.rsplit('/').next().unwrap_or_default();
        let path = record.url.path();
        let usual = channel.base.join(&tail).is_ok_and(|url| url.path() == path)
            || path.ends_with(&format!("/{last}/{tail}"));
        let mut url = record.url.clone();
        // Neither fails for a URL that can have them.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Some((channel.source.clone(), (!usual).then(|| url.to_string())))
    }
}

/// Passes the gateway's downloads on to our own listener.
struct Told {
    progress: Arc<dyn Progress>,
    /// Bytes told of so far, a download each.
    sofar: Mutex<Vec<usize>>,
}

impl Told {
    /// What indexes are called together: they are many and small, or few and cached.
    const ITEM: &str = "package indexes";

    fn new(progress: &Arc<dyn Progress>) -> Told {
        Told { progress: progress.clone(), sofar: Mutex::default() }
    }
    fn sofar(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.sofar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reporter for Told {
    fn download_reporter(&self) -> Option<&dyn DownloadReporter> {
        Some(self)
    }
}

impl DownloadReporter for Told {
    fn on_download_start(&self, _: &Url) -> usize {
        let mut sofar = self.sofar();
        sofar.push(0);
        sofar.len() - 1
    }
    fn on_download_progress(&self, _: &Url, index: usize, bytes: usize, _: Option<usize>) {
        let mut delta = 0;
        if let Some(known) = self.sofar().get_mut(index) {
            delta = bytes.saturating_sub(*known) as u64;
            *known = bytes;
        }
        self.progress.event(Event::Bytes { item: Told::ITEM, delta });
    }
}

/// Reads the indexes of a channel in a directory.
fn open_directory(base: &Url, platform: Platform) -> Result<Found, Box<Bad>> {
    let mut subdirs = Vec::new();
    let mut names = BTreeSet::new();
    for subdir in [platform, Platform::NoArch] {
        for file in ["repodata.json", "repodata.json.zst"] {
            let url = base
                .join(&format!("{subdir}/{file}"))
                .map_err(|e| Bad { place: base.clone(), outcome: Outcome::Other(e.to_string()) })
                .map_err(Box::new)?;
            let read = || -> Result<Option<SparseRepoData>, Outcome> {
                let path = url
                    .to_file_path()
                    .map_err(|()| Outcome::Other("is not a path of this machine".into()))?;
                let bytes = match std::fs::read(&path) {
                    Ok(bytes) => bytes,
                    Err(e)
                        if matches!(
                            e.kind(),
                            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                        ) =>
                    {
                        return Ok(None);
                    }
                    Err(e) => return Err(Outcome::Unreadable(e)),
                };
                let bytes = if file.ends_with(".zst") {
                    let mut plain = Vec::new();
                    zstd::stream::read::Decoder::new(&bytes[..])
                        .and_then(|d| d.take(MAX_INDEX).read_to_end(&mut plain))
                        .map_err(|e| Outcome::Content {
                            expected: "Zstandard data",
                            found: e.to_string(),
                        })?;
                    plain
                } else {
                    bytes
                };
                let channel = Channel::from_url(base.clone());
                SparseRepoData::from_bytes(channel, subdir.as_str(), bytes.into(), None)
                    .map(Some)
                    .map_err(|e| damaged(e.into()))
            };
            match read() {
                Ok(None) => {}
                Ok(Some(sparse)) => {
                    names.extend(
                        sparse.package_names(PackageFormatSelection::PreferConda).map(String::from),
                    );
                    subdirs.push(Arc::new(sparse));
                    break;
                }
                Err(outcome) => return Err(Box::new(Bad { place: url, outcome })),
            }
        }
    }
    Ok((!subdirs.is_empty()).then_some((Backend::Local(subdirs), names)))
}

fn damaged(error: io::Error) -> Outcome {
    Outcome::Content { expected: "a package index", found: format!("damaged data ({error})") }
}

/// What a failure of the gateway means for the place that was asked.
fn outcome_of_gateway(error: GatewayError) -> Outcome {
    match error {
        GatewayError::SubdirNotFoundError(_) => Outcome::Missing,
        GatewayError::ReqwestError(e) => outcome_of_reqwest(&e),
        GatewayError::ReqwestMiddlewareError(e) => match e.downcast::<Refused>() {
            Ok(refused) => refused.0,
            Err(e) => Outcome::Other(format!("{e:#}")),
        },
        GatewayError::ShardNotCached(_) | GatewayError::ShardedIndexNotCached(_) => {
            Outcome::NotCached
        }
        GatewayError::IoError(what, e) => match e.kind() {
            io::ErrorKind::InvalidData
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidInput => damaged(e),
            _ => Outcome::Other(format!("{what}: {e}")),
        },
        GatewayError::FetchRepoDataError(e) => match e {
            FetchRepoDataError::HttpError(e) => outcome_of(e),
            FetchRepoDataError::NotFound(_) => Outcome::Missing,
            FetchRepoDataError::NoCacheAvailable(_) => Outcome::NotCached,
            FetchRepoDataError::FailedToDownload(_, e) => {
                match e.get_ref().and_then(|inner| inner.downcast_ref::<reqwest::Error>()) {
                    Some(inner) => outcome_of_reqwest(inner),
                    None => damaged(e),
                }
            }
            other => Outcome::Other(chain(&other)),
        },
        other => Outcome::Other(chain(&other)),
    }
}

/// An error with its causes, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
#[path = "channels_tests.rs"]
mod tests;
