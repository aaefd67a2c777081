//! What runs on the worker thread: pages, local directories and metadata.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use futures::future::{join, join_all};
use tokio::io::AsyncWriteExt as _;
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

use super::client::NotEncrypted;
use super::engine::lock;
use super::error::{Cause, WheelSourceError, redact};
use super::listing::ListingBuilder;
use super::local;
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
/// Directory of metadata by digest of the wheel in the cache.
const METADATA: &str = "metadata-v1";
/// Below the cache: an empty file for each page that its server does not have, by its URL.
const ABSENT: &str = "absent-v1";
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
type LinksPages = HashMap<Vec<Location>, Rc<OnceCell<Shared<Found>>>>;

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
    /// Copies that failed; asked last from then on, so that a dead mirror costs its timeout once.
    failing: RefCell<HashSet<Location>>,
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

/// Largest page that is read, in bytes, after decompression: far more than any page of links
/// needs, and less than what would hurt.
const MAX_PAGE: usize = 256 << 20;

/// The body of a page; one that does not end is not read to its end.
async fn page_body(mut response: reqwest::Response, most: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Cut)? {
        if body.len() + chunk.len() > most {
            return Err(BodyError::NotAPage(NotAPage {
                expected: "an index page",
                found: format!("more than {most} bytes"),
            }));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
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
            failing: RefCell::default(),
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
                    .named(&index.0)
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
            Location::Local(root) => local::index_page(&place.name, root, name).await,
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
        let cell = self.links.borrow_mut().entry(place.locations.clone()).or_default().clone();
        cell.get_or_init(async || {
            let found = self
                .first_copy(place, async |location| match location {
                    Location::Local(path) => local::links(&place.name, path).await.map(Some),
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
        let mut locations: Vec<&Location> = place.locations.iter().collect();
        locations.sort_by_key(|location| self.failing.borrow().contains(*location));
        for (number, location) in locations.iter().enumerate() {
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
                    let first = self.failing.borrow_mut().insert((*location).clone());
                    if first && number + 1 < locations.len() {
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
        CacheEntry::new(self.cache.root().join(PAGES).join(shard(root)), file)
    }

    /// Where the metadata of a wheel is kept for good: what a source says of given bytes does not
    /// change, while HTTP would have us ask again for what carries no lifetime. By source, so that
    /// one that lies is believed by nobody else.
    fn kept_metadata(&self, file: &WheelFile, root: &Url) -> Option<PathBuf> {
        let dir = self.cache.root().join(METADATA).join(shard(root));
        Some(dir.join(format!("{}.json", file.sha256?)))
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
            let body = page_body(response, MAX_PAGE).await?;
            page::parse(content_type.as_deref(), &body, &base).map_err(BodyError::NotAPage)
        };
        let answer = self
            .client
            .cached_client()
            .get_serde_with_retry(request, &entry, self.cache_control(), read)
            .await;
        // `uv-client` caches answers, and no page is none: a file that is there says so.
        let absent = self.cache.root().join(ABSENT).join(shard(url));
        match answer {
            Ok(page) => {
                // It is rarely there. Left behind, it would only count if the page got lost.
                let _ = std::fs::remove_file(&absent);
                Ok(Some(page))
            }
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
                WheelSourceError::NotThere { .. } => {
                    // A cache that cannot be written makes the next run ask again.
                    let dir = self.cache.root().join(ABSENT);
                    let _ =
                        std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&absent, b""));
                    Ok(None)
                }
                WheelSourceError::NotCached { .. } if absent.exists() => Ok(None),
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
        if let Some(url) = not_encrypted(err) {
            return WheelSourceError::Insecure { name: source.to_owned(), url };
        }
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
        if let Some(url) = not_encrypted(err) {
            return WheelSourceError::Insecure { name, url };
        }
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
                indexed: false,
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
                    indexed: false,
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
        let root = fact.as_ref().and_then(|f| f.root.clone()).unwrap_or_else(|| url.clone());
        let metadata = if url.scheme() == "file" {
            self.uv_metadata(file, &url, &url, false).await
        } else {
            let kept = self.kept_metadata(file, &root);
            let found = kept.as_deref().and_then(read_metadata);
            match found.filter(|metadata| metadata.name == file.filename.name) {
                Some(metadata) => Ok(metadata),
                None => {
                    let alone = fact.is_some_and(|fact| fact.core_metadata);
                    let fetched = self.remote_metadata(file, &url, &root, alone).await?;
                    if let (Ok(metadata), Some(path)) = (&fetched, &kept) {
                        self.keep_metadata(path, metadata)?;
                    }
                    fetched
                }
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

    /// Metadata from a server, by the cheapest way it allows.
    async fn remote_metadata(
        &self,
        file: &WheelFile,
        url: &Url,
        root: &Url,
        alone: bool,
    ) -> Result<Result<ResolutionMetadata, uv_client::Error>, ProviderError> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let mut answer = self.uv_metadata(file, url, root, alone).await;
        // Mirrors copy the promise of a metadata file (PEP 658) and not always the file.
        if alone && answer.as_ref().is_err_and(|err| is_status(err, &[403, 404, 410])) {
            answer = self.uv_metadata(file, url, root, false).await;
        }
        // Without ranges `uv-client` reads the archive as a stream, which not every archive
        // allows.
        let streamed = file.source == DIRECT_URL
            || !self.capabilities.supports_range_requests(&super::client::index_url(root));
        match answer {
            Err(err)
                if streamed
                    && matches!(err.kind(), ErrorKind::Metadata(..) | ErrorKind::Zip(..)) =>
            {
                self.downloaded_metadata(file, url).await
            }
            answer => Ok(answer),
        }
    }

    fn keep_metadata(
        &self,
        path: &Path,
        metadata: &ResolutionMetadata,
    ) -> Result<(), ProviderError> {
        let write = || -> std::io::Result<()> {
            let dir = path.parent().unwrap_or(path);
            std::fs::create_dir_all(dir)?;
            let mut file = tempfile::NamedTempFile::new_in(dir)?;
            serde_json::to_writer(&mut file, metadata)?;
            // Whole or not at all; lost at a power cut it is fetched again.
            file.persist(path)?;
            Ok(())
        };
        write().map_err(|err| {
            let path = path.to_owned();
            WheelSourceError::CacheDir { path, cause: Cause::of(&err, &[]) }.into()
        })
    }

    /// Metadata from a copy of the whole wheel, which is thrown away: realizing downloads what
    /// was chosen, and most candidates are not.
    async fn downloaded_metadata(
        &self,
        file: &WheelFile,
        url: &Url,
    ) -> Result<Result<ResolutionMetadata, uv_client::Error>, ProviderError> {
        let cut = |err: &(dyn std::error::Error + 'static)| {
            ProviderError::from(self.unreachable(&file.source, url, err))
        };
        let disk = |err: std::io::Error| {
            ProviderError::from(WheelSourceError::CacheDir {
                path: self.cache.root().to_owned(),
                cause: Cause::of(&err, &[]),
            })
        };
        let safe = DisplaySafeUrl::from_url(url.clone());
        let request = self
            .client
            .uncached_client(&safe)
            .get(url.clone())
            // What is stored is the archive itself, not an encoding of it.
            .header("Accept-Encoding", "identity");
        let mut response = request
            .send()
            .await
            .map_err(|err| cut(&err))?
            .error_for_status()
            .map_err(|err| cut(&err))?;
        let copy = tempfile::NamedTempFile::new_in(self.cache.root()).map_err(disk)?;
        let mut out = tokio::fs::File::from_std(copy.reopen().map_err(disk)?);
        while let Some(chunk) = response.chunk().await.map_err(|err| cut(&err))? {
            out.write_all(&chunk).await.map_err(disk)?;
        }
        out.flush().await.map_err(disk)?;
        let local = Url::from_file_path(copy.path())
            .map_err(|()| disk(std::io::ErrorKind::InvalidFilename.into()))?;
        Ok(self.uv_metadata(file, &local, &local, false).await)
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
            | ErrorKind::Zip(..) => {
                let cause = Cause::of(err, &self.secrets);
                self.unusable(file, format!("its metadata cannot be read: {cause}"))
            }
            ErrorKind::Io(err) if url.scheme() == "file" => {
                let path = url.to_file_path().unwrap_or_else(|()| PathBuf::from(url.path()));
                let name = file.source.clone();
                WheelSourceError::Local { name, path, cause: Cause::of(err, &[]) }.into()
            }
            _ => {
                let what = format!("the metadata of {}", file.file);
                match self.classify(&file.source, url, &what, err) {
                    // Listed and gone: a fault of this file, unless it is the only one asked for.
                    WheelSourceError::NotThere { status, .. } if !direct => {
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

/// What was kept; nothing where there is none or it is damaged, and then it is fetched again.
fn read_metadata(path: &Path) -> Option<ResolutionMetadata> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// A directory name for a source; credentials are no part of what a source is.
fn shard(root: &Url) -> String {
    let mut key = root.clone();
    // Both fail only for URLs that cannot have credentials.
    let _ = key.set_username("");
    let _ = key.set_password(None);
    ShortHash::of(&Sha256::of(key.as_str())).to_string()
}

/// The place that was not asked for want of encryption, if that is why.
fn not_encrypted(err: &(dyn std::error::Error + 'static)) -> Option<String> {
    std::iter::successors(Some(err), |err| err.source())
        .find_map(|err| err.downcast_ref::<NotEncrypted>())
        .map(|refused| refused.0.clone())
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

#[cfg(test)]
mod body_tests {
    use super::*;

    #[tokio::test]
    async fn a_page_that_does_not_end_is_given_up() {
        let answer = || reqwest::Response::from(http::Response::new(vec![b'x'; 100]));
        assert_eq!(page_body(answer(), 100).await.map(|body| body.len()).ok(), Some(100));
        let error = page_body(answer(), 99).await.unwrap_err();
        assert_eq!(error.to_string(), "more than 99 bytes");
    }
}
