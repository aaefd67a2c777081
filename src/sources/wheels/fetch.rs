//! What runs on the worker thread: pages, local directories and metadata.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use futures::future::{join, join_all};
use tokio::sync::{OnceCell, Semaphore};
use url::Url;
use uv_cache::{Cache, CacheEntry};
use uv_client::{CacheControl, CachedClientError, ErrorKind, RegistryClient};
use uv_distribution_filename::WheelFilename;
use uv_distribution_types::{
    BuiltDist, DirectUrlBuiltDist, File, FileLocation, IndexCapabilities, RegistryBuiltDist,
    RegistryBuiltWheel, UrlString,
};
use uv_git::GitResolver;
use uv_normalize::PackageName as DistName;
use uv_pep508::VerbatimUrl;
use uv_pypi_types::{HashDigests, ResolutionMetadata};
use uv_redacted::DisplaySafeUrl;

use super::engine::lock;
use super::error::{Cause, WheelSourceError, redact};
use super::listing::ListingBuilder;
use super::page::{self, NotAPage, Page, PageFile};
use super::places::{DIRECT_PATH, DIRECT_URL, Location, Place, Places, Shape};
use super::{Told, WheelConfig};
use crate::hash::{Sha256, ShortHash};
use crate::manifest::WheelRequirementSource;
use crate::progress::{Event, Progress};
use crate::resolve::{ProviderError, WheelFile, WheelListing, WheelMetadata, WheelOrigin};

/// Requests under way at one time.
const CONCURRENCY: usize = 50;
/// Directory of pages in the cache; the number goes up when [`Page`] changes.
const PAGES: &str = "pages-v1";
/// JSON first; the weights are those PEP 691 suggests.
const ACCEPT: &str = "application/vnd.pypi.simple.v1+json, \
                      application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01";

/// What is known of a wheel beside what [`WheelFile`] says, by URL.
pub(super) type Facts = Mutex<HashMap<String, Fact>>;

/// See [`Facts`].
#[derive(Clone, Debug)]
pub(super) struct Fact {
    /// Its metadata can be had alone.
    pub core_metadata: bool,
    /// MD5, where the source declares no SHA-256.
    pub md5: Option<String>,
    /// The copy of the source that offers it.
    pub root: Option<Url>,
}

type Shared<T> = Result<T, WheelSourceError>;
type LinksPages = HashMap<String, Rc<OnceCell<Shared<Found>>>>;

/// A page, and the copy of the source it is from.
#[derive(Clone)]
struct Found {
    page: Rc<Page>,
    root: Option<Url>,
}

/// State of the worker thread.
pub(super) struct Fetcher {
    places: Arc<Places>,
    direct: HashMap<usize, WheelRequirementSource>,
    facts: Arc<Facts>,
    client: RegistryClient,
    cache: Cache,
    capabilities: IndexCapabilities,
    permits: Semaphore,
    offline: bool,
    progress: Arc<dyn Progress>,
    /// Pages that serve every name are read once.
    links: RefCell<LinksPages>,
    /// URLs with credentials, to mask in messages.
    secrets: Vec<DisplaySafeUrl>,
}

/// A body that could not be taken.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("the answer ended early")]
    Cut(#[source] reqwest::Error),
    #[error("{}", .0.found)]
    NotAPage(NotAPage),
}

impl Fetcher {
    pub(super) fn new(
        config: &WheelConfig,
        places: Arc<Places>,
        facts: Arc<Facts>,
        client: RegistryClient,
        cache: Cache,
    ) -> Self {
        let secrets = places
            .urls()
            .into_iter()
            .filter(|url| url.password().is_some() || !url.username().is_empty())
            .map(DisplaySafeUrl::from_url)
            .collect();
        Fetcher {
            places,
            direct: config.direct.clone().into_iter().collect(),
            facts,
            client,
            cache,
            capabilities: IndexCapabilities::default(),
            permits: Semaphore::new(CONCURRENCY),
            offline: config.offline,
            progress: config.progress.clone(),
            links: RefCell::default(),
            secrets,
        }
    }

    /// All that `origin` offers of `name`.
    pub(super) async fn listing(
        &self,
        name: &DistName,
        origin: &WheelOrigin,
    ) -> Shared<WheelListing> {
        let places = self.places.clone();
        match origin {
            WheelOrigin::Default => {
                let links = join_all(places.links.iter().map(|place| self.links_page(place)));
                let (links, index) = join(links, self.index_page(&places.default, name)).await;
                let mut builder = ListingBuilder::new(name);
                for (place, found) in places.links.iter().zip(links) {
                    self.add(&mut builder, place, &found?);
                }
                if let Some(found) = index? {
                    self.add(&mut builder, &places.default, &found);
                }
                Ok(builder.finish())
            }
            WheelOrigin::Index(index) => {
                let place = places
                    .explicit
                    .get(&index.0)
                    .ok_or_else(|| WheelSourceError::Unconfigured(index.0.clone()))?;
                let mut builder = ListingBuilder::new(name);
                if let Some(found) = self.page(place, name).await? {
                    self.add(&mut builder, place, &found);
                }
                Ok(builder.finish())
            }
            WheelOrigin::Direct(number) => {
                let source = self.direct.get(number).ok_or_else(|| {
                    WheelSourceError::Unconfigured(format!("direct requirement {number}"))
                })?;
                let file = self.direct_file(name, source)?;
                Ok(WheelListing { files: vec![Arc::new(file)], ..WheelListing::default() })
            }
        }
    }

    /// Adds a page to a listing and keeps what a [`WheelFile`] has no field for.
    fn add(&self, builder: &mut ListingBuilder<'_>, place: &Place, found: &Found) {
        {
            let mut facts = lock(&self.facts);
            for file in &found.page.files {
                if file.name.ends_with(".whl") && !facts.contains_key(&file.url) {
                    facts.insert(
                        file.url.clone(),
                        Fact {
                            core_metadata: file.core_metadata,
                            md5: file.md5.clone(),
                            root: found.root.clone(),
                        },
                    );
                }
            }
        }
        match place.shape {
            Shape::Index => builder.add_index(&place.name, &found.page),
            Shape::Links => builder.add_links(&place.name, &found.page),
        }
    }

    /// Where a file of that name or digest is now; best candidates first.
    pub(super) async fn locate(
        &self,
        source: &crate::lockfile::Source,
        name: &DistName,
        file: &str,
        sha256: &Sha256,
    ) -> Shared<Vec<Url>> {
        let place = self.places.of_lock(source)?;
        let Some(found) = self.page(&place, name).await? else { return Ok(Vec::new()) };
        let mut candidates: Vec<(u8, Url)> = Vec::new();
        for entry in &found.page.files {
            let rank = match (&entry.sha256, entry.name == file) {
                (Some(digest), true) if digest == sha256 => 0,
                // The same bytes under another name serve as well.
                (Some(digest), false) if digest == sha256 => 1,
                (None, true) => 2,
                // An index may be wrong about a hash; the file itself is checked.
                (Some(_), true) => 3,
                _ => continue,
            };
            if let Ok(url) = Url::parse(&entry.url) {
                candidates.push((rank, url));
            }
        }
        candidates.sort();
        candidates.dedup();
        Ok(candidates.into_iter().map(|(_, url)| url).collect())
    }

    async fn page(&self, place: &Place, name: &DistName) -> Shared<Option<Found>> {
        match place.shape {
            Shape::Index => self.index_page(place, name).await,
            Shape::Links => self.links_page(place).await.map(Some),
        }
    }

    /// The page of `name` in a simple index; `None` if the index does not know the name.
    async fn index_page(&self, place: &Place, name: &DistName) -> Shared<Option<Found>> {
        self.first_copy(place, async |location| match location {
            Location::Local(root) => local_index_page(&place.name, root, name).await,
            Location::Remote(root) => {
                let mut url = root.clone();
                if let Ok(mut segments) = url.path_segments_mut() {
                    // With a trailing slash, as PEP 503 has it, or links are joined wrongly.
                    segments.pop_if_empty().push(name.as_ref()).push("");
                }
                let entry = self.page_entry(root, &format!("{name}.msgpack"));
                self.remote_page(&place.name, &url, entry, &format!("the page of `{name}`")).await
            }
        })
        .await
    }

    /// The page, or directory, of a find-links source.
    async fn links_page(&self, place: &Place) -> Shared<Found> {
        let cell = self.links.borrow_mut().entry(place.name.clone()).or_default().clone();
        cell.get_or_init(async || {
            let found = self
                .first_copy(place, async |location| match location {
                    Location::Local(path) => local_links(&place.name, path).await.map(Some),
                    Location::Remote(url) => {
                        let entry = self.page_entry(url, "links.msgpack");
                        self.remote_page(&place.name, url, entry, "the page of links").await
                    }
                })
                .await?;
            found.ok_or_else(|| WheelSourceError::NotThere {
                name: place.name.clone(),
                url: place.locations.iter().map(shown).collect::<Vec<_>>().join(", "),
                status: 404,
            })
        })
        .await
        .clone()
    }

    /// Asks the copies of a source in order until one has an answer. That a copy does not know a
    /// name counts only if no other copy knows it and none failed.
    async fn first_copy(
        &self,
        place: &Place,
        ask: impl AsyncFn(&Location) -> Shared<Option<Page>>,
    ) -> Shared<Option<Found>> {
        let mut failure = None;
        for (number, location) in place.locations.iter().enumerate() {
            match ask(location).await {
                Ok(Some(page)) => {
                    let root = match location {
                        Location::Remote(url) => Some(url.clone()),
                        Location::Local(_) => None,
                    };
                    return Ok(Some(Found { page: Rc::new(self.without_insecure(page)), root }));
                }
                Ok(None) => {}
                Err(err) => {
                    if number + 1 < place.locations.len() {
                        let text = format!("{err}; trying the next mirror");
                        self.progress.event(Event::Note { text: &text });
                    }
                    failure.get_or_insert(err);
                }
            }
        }
        failure.map_or(Ok(None), Err)
    }

    /// Moves links over an unencrypted connection to the skipped ones.
    fn without_insecure(&self, mut page: Page) -> Page {
        let allowed =
            |file: &PageFile| Url::parse(&file.url).is_ok_and(|u| self.places.is_allowed(&u));
        let (kept, refused) = page.files.into_iter().partition(allowed);
        page.files = kept;
        page.skipped.extend(
            Vec::into_iter(refused)
                .map(|file: PageFile| (file.name, "its URL is not encrypted".to_owned())),
        );
        page
    }

    fn page_entry(&self, root: &Url, file: &str) -> CacheEntry {
        let mut key = root.clone();
        // Credentials are no part of what a page is.
        let _ = key.set_username("");
        let _ = key.set_password(None);
        let shard = ShortHash::of(&Sha256::of(key.as_str())).to_string();
        CacheEntry::new(self.cache.root().join(PAGES).join(shard), file)
    }

    fn cache_control(&self) -> CacheControl {
        if self.offline { CacheControl::AllowStale } else { CacheControl::None }
    }

    /// Fetches a page through the cache. `None` for 404 and 410.
    async fn remote_page(
        &self,
        source: &str,
        url: &Url,
        entry: CacheEntry,
        what: &str,
    ) -> Shared<Option<Page>> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let safe = DisplaySafeUrl::from_url(url.clone());
        let request = self
            .client
            .uncached_client(&safe)
            .get(url.clone())
            .header("Accept", ACCEPT)
            .build()
            .map_err(|err| self.unreachable(source, url, &err))?;
        let read = async |response: reqwest::Response| {
            let content_type = response
                .headers()
                .get(reqwest::header::CONTENT_TYPE)
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            // Links are relative to where redirects led.
            let base = response.url().clone();
            let body = response.bytes().await.map_err(BodyError::Cut)?;
            page::parse(content_type.as_deref(), &body, &base).map_err(BodyError::NotAPage)
        };
        let answer = self
            .client
            .cached_client()
            .get_serde_with_retry(request, &entry, self.cache_control(), read)
            .await;
        match answer {
            Ok(page) => Ok(Some(page)),
            Err(CachedClientError::Callback { err: BodyError::NotAPage(what), .. }) => {
                Err(WheelSourceError::NotAnIndex {
                    name: source.to_owned(),
                    url: redact(url),
                    expected: what.expected,
                    found: what.found,
                })
            }
            Err(CachedClientError::Callback { err, .. }) => {
                Err(self.unreachable(source, url, &err))
            }
            Err(CachedClientError::Client(err)) => match self.classify(source, url, what, &err) {
                WheelSourceError::NotThere { .. } => Ok(None),
                err => Err(err),
            },
        }
    }

    fn unreachable(
        &self,
        source: &str,
        url: &Url,
        err: &(dyn std::error::Error + 'static),
    ) -> WheelSourceError {
        WheelSourceError::Unreachable {
            name: source.to_owned(),
            url: redact(url),
            cause: Cause::of(err, &self.secrets),
        }
    }

    /// A failure of `uv-client` in our words.
    fn classify(
        &self,
        source: &str,
        url: &Url,
        what: &str,
        err: &uv_client::Error,
    ) -> WheelSourceError {
        let name = source.to_owned();
        match err.kind() {
            ErrorKind::Offline(_) => WheelSourceError::NotCached { name, what: what.to_owned() },
            ErrorKind::CacheWrite(err) => WheelSourceError::CacheDir {
                path: self.cache.root().to_owned(),
                cause: Cause::of(err, &[]),
            },
            ErrorKind::WrappedReqwestError(_, inner) => match inner.status().map(|s| s.as_u16()) {
                Some(status @ (401 | 403 | 407)) => WheelSourceError::Refused {
                    name,
                    url: redact(url),
                    host: url.host_str().unwrap_or_default().to_owned(),
                    status,
                },
                Some(status @ (404 | 410)) => {
                    WheelSourceError::NotThere { name, url: redact(url), status }
                }
                Some(status) => WheelSourceError::Status { name, url: redact(url), status },
                None => self.unreachable(source, url, err),
            },
            _ => self.unreachable(source, url, err),
        }
    }

    /// The file of a direct requirement.
    fn direct_file(&self, name: &DistName, source: &WheelRequirementSource) -> Shared<WheelFile> {
        let bad = |location: String, reason: String| WheelSourceError::BadWheel {
            location,
            distribution: name.to_string(),
            reason,
        };
        let parse = |location: &str, file: &str| -> Shared<WheelFilename> {
            let filename = WheelFilename::from_str(file)
                .map_err(|err| bad(location.to_owned(), err.to_string()))?;
            if filename.name != *name {
                let reason = format!("it is a wheel of `{}`", filename.name);
                return Err(bad(location.to_owned(), reason));
            }
            Ok(filename)
        };
        let local = |path: &Path, label: String, sha256| -> Shared<WheelFile> {
            let file =
                path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let file = page::dist_name(&file);
            let filename = parse(&label, &file)?;
            let unreadable = |cause| WheelSourceError::Local {
                name: DIRECT_PATH.into(),
                path: path.to_owned(),
                cause,
            };
            let metadata = std::fs::metadata(path).map_err(|e| unreadable(Cause::of(&e, &[])))?;
            if !metadata.is_file() {
                return Err(unreadable(Cause::words("it is no file")));
            }
            let url = Url::from_file_path(path)
                .map_err(|()| unreadable(Cause::words("its path cannot be written as a URL")))?;
            Ok(WheelFile {
                filename,
                file,
                source: DIRECT_PATH.into(),
                url: url.into(),
                size: Some(metadata.len()),
                sha256,
                requires_python: None,
                yanked: None,
                upload_time: None,
            })
        };
        match source {
            WheelRequirementSource::Path(path) => {
                local(&self.places.path(path), path.display().to_string(), None)
            }
            WheelRequirementSource::Url { url, sha256 } => {
                let shown = redact(url);
                let from_fragment = || url.fragment()?.strip_prefix("sha256=")?.parse().ok();
                let sha256 = (*sha256).or_else(from_fragment);
                if url.scheme() == "file" {
                    let path = url
                        .to_file_path()
                        .map_err(|()| bad(shown.clone(), "it is no path of this machine".into()))?;
                    let file = local(&path, shown, sha256)?;
                    return Ok(WheelFile { source: DIRECT_URL.into(), ..file });
                }
                if !matches!(url.scheme(), "http" | "https") {
                    return Err(bad(shown, "its scheme is none of http, https, file".into()));
                }
                if !self.places.is_allowed(url) {
                    return Err(WheelSourceError::Insecure { name: DIRECT_URL.into(), url: shown });
                }
                let raw = url.path_segments().and_then(|mut s| s.next_back()).unwrap_or_default();
                let file = percent_encoding::percent_decode_str(raw)
                    .decode_utf8()
                    .map_err(|_| bad(shown.clone(), "its file name is not UTF-8".into()))?;
                let file = page::dist_name(&file);
                let filename = parse(&shown, &file)?;
                let mut url = url.clone();
                url.set_fragment(None);
                Ok(WheelFile {
                    filename,
                    file,
                    source: DIRECT_URL.into(),
                    url: url.into(),
                    size: None,
                    sha256,
                    requires_python: None,
                    yanked: None,
                    upload_time: None,
                })
            }
            WheelRequirementSource::Index { .. } => Err(WheelSourceError::Unconfigured(format!(
                "direct requirement on `{name}`: it names an index"
            ))),
        }
    }

    /// The metadata of a wheel.
    pub(super) async fn metadata(&self, file: &WheelFile) -> Told<WheelMetadata> {
        let url = Url::parse(&file.url).map_err(|err| {
            ProviderError::Unusable(format!("{}: its URL is invalid: {err}", file.file))
        })?;
        let fact = lock(&self.facts).get(&file.url).cloned();
        let metadata = if url.scheme() == "file" {
            self.uv_metadata(file, &url, &url, false).await
        } else {
            let _permit = self.permits.acquire().await;
            let root =
                fact.as_ref().and_then(|fact| fact.root.clone()).unwrap_or_else(|| url.clone());
            let alone = fact.as_ref().is_some_and(|fact| fact.core_metadata);
            match self.uv_metadata(file, &url, &root, alone).await {
                // Mirrors copy the promise of a metadata file (PEP 658) and not always the file.
                Err(err) if alone && is_status(&err, &[403, 404, 410]) => {
                    self.uv_metadata(file, &url, &root, false).await
                }
                other => other,
            }
        };
        let metadata = metadata.map_err(|err| self.metadata_error(file, &url, &err))?;
        // The file name decided what the solver chose it for; pip refuses a difference too.
        if metadata.version != file.filename.version {
            return Err(
                self.unusable(file, format!("its metadata says version {}", metadata.version))
            );
        }
        Ok(Arc::new(WheelMetadata {
            name: metadata.name,
            version: metadata.version,
            requires_python: metadata.requires_python,
            requires_dist: metadata.requires_dist.into_vec(),
            extras: metadata.provides_extra.into_vec(),
        }))
    }

    async fn uv_metadata(
        &self,
        file: &WheelFile,
        url: &Url,
        root: &Url,
        alone: bool,
    ) -> Result<ResolutionMetadata, uv_client::Error> {
        let safe = DisplaySafeUrl::from_url(url.clone());
        let dist = if file.source == DIRECT_URL && url.scheme() != "file" {
            BuiltDist::DirectUrl(DirectUrlBuiltDist {
                filename: file.filename.clone(),
                location: Box::new(safe.clone()),
                url: VerbatimUrl::from_url(safe),
                size: None,
            })
        } else {
            BuiltDist::Registry(RegistryBuiltDist {
                wheels: vec![RegistryBuiltWheel {
                    filename: file.filename.clone(),
                    file: Box::new(File {
                        dist_info_metadata: alone,
                        filename: file.file.as_str().into(),
                        hashes: HashDigests::empty(),
                        requires_python: None,
                        size: file.size,
                        upload_time_utc_ms: None,
                        url: FileLocation::AbsoluteUrl(UrlString::from(safe)),
                        yanked: None,
                        zstd: None,
                    }),
                    index: super::client::index_url(root),
                    size_is_authoritative: false,
                }],
                best_wheel_index: 0,
                sdist: None,
            })
        };
        self.client.wheel_metadata(&dist, &GitResolver::default(), &self.capabilities, None).await
    }

    fn metadata_error(&self, file: &WheelFile, url: &Url, err: &uv_client::Error) -> ProviderError {
        let direct = file.source == DIRECT_URL || file.source == DIRECT_PATH;
        match err.kind() {
            // The file is what is wrong, not the source.
            ErrorKind::Metadata(..)
            | ErrorKind::MetadataParseError(..)
            | ErrorKind::NameMismatch { .. }
            | ErrorKind::Zip(..) => self.unusable(file, Cause::of(err, &self.secrets).to_string()),
            ErrorKind::Io(err) if url.scheme() == "file" => {
                let path = url.to_file_path().unwrap_or_else(|()| PathBuf::from(url.path()));
                let name = file.source.clone();
                WheelSourceError::Local { name, path, cause: Cause::of(err, &[]) }.into()
            }
            _ => {
                let what = format!("the metadata of {}", file.file);
                match self.classify(&file.source, url, &what, err) {
                    // Listed and gone: a fault of this file, unless it is the only one asked for.
                    WheelSourceError::NotThere { status, .. }
                    | WheelSourceError::Refused { status: status @ 403, .. }
                        if !direct =>
                    {
                        self.unusable(file, format!("{} answered {status}", redact(url)))
                    }
                    err => err.into(),
                }
            }
        }
    }

    fn unusable(&self, file: &WheelFile, reason: String) -> ProviderError {
        ProviderError::Unusable(format!("{} ({}): {reason}", file.file, file.source))
    }
}

fn is_status(err: &uv_client::Error, statuses: &[u16]) -> bool {
    match err.kind() {
        ErrorKind::WrappedReqwestError(_, inner) => {
            inner.status().is_some_and(|s| statuses.contains(&s.as_u16()))
        }
        _ => false,
    }
}

fn shown(location: &Location) -> String {
    match location {
        Location::Remote(url) => redact(url),
        Location::Local(path) => path.display().to_string(),
    }
}

/// The page of a name in a simple index on disk: `NAME/index.html`, or the files of `NAME/`.
async fn local_index_page(source: &str, root: &Path, name: &DistName) -> Shared<Option<Page>> {
    let (source, root, name) = (source.to_owned(), root.to_owned(), name.to_string());
    blocking(move || {
        let dir = root.join(&name);
        if dir.is_dir() {
            let index = dir.join("index.html");
            return if index.is_file() {
                read_page(&source, &index, &dir).map(Some)
            } else {
                read_dir(&source, &dir).map(Some)
            };
        }
        // A mistyped root must not look like an index that holds nothing.
        std::fs::read_dir(&root).map_err(|err| local_error(&source, &root, &err))?;
        Ok(None)
    })
    .await
}

/// A directory of wheels, or a page of links on disk.
async fn local_links(source: &str, path: &Path) -> Shared<Page> {
    let (source, path) = (source.to_owned(), path.to_owned());
    blocking(move || {
        if path.is_file() {
            let dir = path.parent().unwrap_or(&path).to_owned();
            read_page(&source, &path, &dir)
        } else {
            read_dir(&source, &path)
        }
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Shared<T> + Send + 'static,
) -> Shared<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|err| Err(WheelSourceError::Lost(format!("a local source ({err})"))))
}

fn local_error(source: &str, path: &Path, err: &std::io::Error) -> WheelSourceError {
    WheelSourceError::Local {
        name: source.to_owned(),
        path: path.to_owned(),
        cause: Cause::of(err, &[]),
    }
}

fn read_page(source: &str, path: &Path, dir: &Path) -> Shared<Page> {
    let body = std::fs::read(path).map_err(|err| local_error(source, path, &err))?;
    let base = Url::from_directory_path(dir).map_err(|()| WheelSourceError::Local {
        name: source.to_owned(),
        path: dir.to_owned(),
        cause: Cause::words("its path cannot be written as a URL"),
    })?;
    page::parse(Some("text/html"), &body, &base).map_err(|what| WheelSourceError::NotAnIndex {
        name: source.to_owned(),
        url: path.display().to_string(),
        expected: what.expected,
        found: what.found,
    })
}

/// The distributions of a directory, by name; subdirectories are not looked at.
fn read_dir(source: &str, dir: &Path) -> Shared<Page> {
    let mut page = Page::default();
    let failed = |err: std::io::Error| local_error(source, dir, &err);
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(raw) = path.file_name() else { continue };
        let lossy = raw.to_string_lossy().into_owned();
        let name = page::dist_name(&lossy);
        if !page::is_dist(&name) {
            continue;
        }
        // A dangling link or a file without permission costs that file.
        let file = match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => continue,
            Err(err) => {
                page.skipped.push((lossy, err.to_string()));
                continue;
            }
        };
        match (raw.to_str(), Url::from_file_path(&path)) {
            (Some(_), Ok(url)) => page.files.push(PageFile {
                name,
                url: url.into(),
                size: Some(file.len()),
                sha256: None,
                md5: None,
                requires_python: None,
                yanked: None,
                upload_time: None,
                core_metadata: false,
            }),
            _ => page.skipped.push((lossy, "its name is not UTF-8".into())),
        }
    }
    page.files.sort_by(|a, b| a.name.cmp(&b.name));
    page.skipped.sort();
    Ok(page)
}
