//! The world as the solver sees it, for one platform; and the pinning of what it chose.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rattler_conda_types::{PackageName as CondaName, RepoDataRecord, Subdir as Platform};
use url::Url;
use uv_normalize::PackageName as DistName;

use super::channels::Channels;
use super::download::{Downloader, Got, Place, Places, Want as Wanted};
use super::error::{Attempt, Outcome, SourceError};
use super::net::Stop;
use super::wheels::{DIRECT_PATH, DIRECT_URL, WheelSources};
use super::{Inner, Sources, places, portable};
use crate::hash::Sha256;
use crate::lockfile::{Source, SourceKind};
use crate::manifest::{Manifest, WheelRequirementSource};
use crate::progress::Event;
use crate::resolve::{
    Chosen, ChosenKind, Provider, ProviderError, Want, WheelFile, WheelListing, WheelMetadata,
    WheelOrigin,
};

/// What can be had for one platform: channels and wheel sources of one `env.toml`.
///
/// [`WheelOrigin::Direct`] is a [`crate::manifest::WheelDependency::number`].
pub struct Universe {
    inner: Arc<Inner>,
    channels: Channels,
    wheels: Arc<WheelSources>,
    /// Wheels required by path: name → path from the project's directory.
    paths: Vec<(DistName, PathBuf)>,
}

/// An artifact, pinned: what a lock says of it beyond what the solver knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Where it is from, as a lock writes it.
    pub source: Source,
    /// File name.
    pub file: String,
    /// Bytes.
    pub size: u64,
    /// Digest of the file.
    pub sha256: Sha256,
    /// Whether the digest was computed here because the source declares none.
    pub hash_computed: bool,
    /// Where in the source, if name (and subdir) do not say it.
    pub location: Option<String>,
    /// Conda subdir.
    pub subdir: Option<String>,
}

impl Sources {
    /// Opens the channels and wheel sources of `manifest` for `platform`. Reads the indexes of
    /// all channels, and the records of what `[dependencies]` may need.
    ///
    /// `closure` is what of `manifest` is resolved, `manifest` itself or one of its
    /// [`Manifest::closures`]. Universes of one manifest that live at the same time ask for each
    /// thing once.
    ///
    /// # Errors
    /// A channel that is not there, or whose index cannot be had from any place; a wheel source
    /// whose place makes no sense. Wheel sources that do not answer are told when asked.
    pub fn universe(
        &self,
        manifest: &Manifest,
        closure: &Manifest,
        platform: Platform,
    ) -> Result<Universe, SourceError> {
        self.learn(manifest);
        let inner = self.inner.clone();
        let wheels = inner.wheel_sources(manifest)?;
        let manifest = closure;
        let nothing = Default::default();
        let specs = manifest
            .env
            .channels
            .iter()
            .map(|channel| places::channel(&channel.value, inner.ground(&nothing)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut roots: Vec<CondaName> =
            manifest.dependencies.iter().map(|d| d.name.clone()).collect();
        if !manifest.pypi_dependencies.is_empty() && manifest.host.is_none() {
            roots.push(CondaName::new_unchecked("python"));
        }
        roots.sort();
        roots.dedup();
        if !manifest.pypi_dependencies.is_empty() && !inner.noted.swap(true, Ordering::Relaxed) {
            for text in &inner.config.wheels.notes {
                inner.progress.event(Event::Note { text });
            }
        }
        // The wheel sources work while the channels are read.
        wheels.prefetch(
            manifest
                .pypi_dependencies
                .iter()
                .map(|d| {
                    let origin = match &d.source {
                        WheelRequirementSource::Index { index: Some(name), .. } => {
                            WheelOrigin::Index(name.clone())
                        }
                        WheelRequirementSource::Index { index: None, .. } => WheelOrigin::Default,
                        _ => WheelOrigin::Direct(d.number),
                    };
                    Want::Wheels(d.name.clone(), origin)
                })
                .collect(),
        );
        let repodata = inner.repodata.clone();
        let channels = Channels::open(repodata, inner.handle()?, specs, platform, roots)?;
        let paths = manifest
            .pypi_dependencies
            .iter()
            .filter_map(|d| match &d.source {
                WheelRequirementSource::Path(path) => Some((d.name.clone(), path.clone())),
                _ => None,
            })
            .collect();
        Ok(Universe { inner, channels, wheels, paths })
    }
}

impl Provider for Universe {
    fn conda(&self, name: &CondaName) -> Result<Arc<Vec<Vec<Arc<RepoDataRecord>>>>, ProviderError> {
        self.channels.records(name).map_err(SourceError::into_provider_error)
    }

    fn conda_names(&self) -> Vec<String> {
        self.channels.names()
    }

    fn wheels(
        &self,
        name: &DistName,
        origin: &WheelOrigin,
    ) -> Result<Arc<WheelListing>, ProviderError> {
        self.wheels.listing(name, origin)
    }

    fn metadata(&self, file: &Arc<WheelFile>) -> Result<Arc<WheelMetadata>, ProviderError> {
        self.wheels.metadata(file)
    }

    fn prefetch(&self, wants: Vec<Want>) {
        self.wheels.prefetch(wants);
    }
}

impl Universe {
    /// Pins one chosen package. Where its source declares no SHA-256 or no size, the file is
    /// fetched (into [`Sources::download_dir`], where realizing finds it) and hashed; a declared
    /// MD5 is checked then.
    ///
    /// # Errors
    /// A file that had to be fetched and could not be, or that is not what its source declares.
    pub fn pin(&self, chosen: &Chosen) -> Result<Pinned, SourceError> {
        let downloader = self.inner.downloader()?;
        self.pin_with(&downloader, chosen, &Stop::new())
    }

    /// Pins many, fetching several at once where files must be hashed. Same order as given.
    ///
    /// # Errors
    /// As [`Universe::pin`]; the first in the order given.
    pub fn pin_all(&self, chosen: &[Chosen]) -> Result<Vec<Pinned>, SourceError> {
        let downloader = self.inner.downloader()?;
        let stop = Stop::new();
        let next = AtomicUsize::new(0);
        let pinned: Mutex<Vec<Option<Result<Pinned, SourceError>>>> =
            Mutex::new(chosen.iter().map(|_| None).collect());
        let store = |index: usize, value| {
            pinned.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(value);
        };
        std::thread::scope(|scope| {
            for _ in 0..self.inner.config.concurrency.get().min(chosen.len()) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(one) = chosen.get(index) else { break };
                        let result = self.pin_with(&downloader, one, &stop);
                        if result.is_err() {
                            stop.set();
                        }
                        store(index, result);
                    }
                });
            }
        });
        let mut all = Vec::with_capacity(chosen.len());
        let mut stopped = None;
        for result in pinned.into_inner().unwrap_or_else(PoisonError::into_inner) {
            match result {
                Some(Ok(one)) => all.push(one),
                // Stopped for another's sake: that one's error is the telling one.
                Some(Err(SourceError::Stopped)) | None => stopped = Some(SourceError::Stopped),
                Some(Err(error)) => return Err(error),
            }
        }
        match stopped {
            None => Ok(all),
            Some(error) => Err(error),
        }
    }

    fn pin_with(
        &self,
        downloader: &Downloader,
        chosen: &Chosen,
        stop: &Stop,
    ) -> Result<Pinned, SourceError> {
        match &chosen.what {
            ChosenKind::Conda(record) => self.pin_record(downloader, record, stop),
            ChosenKind::Wheel { file, .. } => self.pin_wheel(downloader, file, stop),
        }
    }

    fn pin_record(
        &self,
        downloader: &Downloader,
        record: &RepoDataRecord,
        stop: &Stop,
    ) -> Result<Pinned, SourceError> {
        let file = record.identifier.to_string();
        let package = &record.package_record;
        let (source, location) =
            self.channels.origin(record).ok_or_else(|| SourceError::UnknownSource {
                package: file.clone(),
                source_name: record.channel.clone().unwrap_or_default(),
            })?;
        let declared = package.sha256.map(|digest| Sha256::from_bytes(digest.into()));
        let (sha256, size) = match (declared, package.size) {
            (Some(sha256), Some(size)) => (sha256, size),
            (declared, size) => {
                let want = Wanted {
                    file: &file,
                    size,
                    sha256: declared,
                    md5: package.md5.map(Into::into),
                    locked: false,
                };
                let place = Place { source: source.name.clone(), url: record.url.clone() };
                let got = self.fetch(downloader, &want, vec![place], stop)?;
                (got.sha256, got.size)
            }
        };
        Ok(Pinned {
            source,
            file,
            size,
            sha256,
            hash_computed: declared.is_none(),
            location,
            subdir: Some(package.subdir.clone()),
        })
    }

    fn pin_wheel(
        &self,
        downloader: &Downloader,
        file: &Arc<WheelFile>,
        stop: &Stop,
    ) -> Result<Pinned, SourceError> {
        let unknown = || SourceError::UnknownSource {
            package: file.file.clone(),
            source_name: file.source.clone(),
        };
        let source = self.wheels.lock_source(&file.source).map(portable).ok_or_else(unknown)?;
        let url = Url::parse(&file.url).map_err(|e| SourceError::Wheel {
            message: format!("source {} gives {} at no URL: {e}", source.name, file.file),
            hint: None,
            exit: crate::error::Exit::Source,
        })?;
        let location = match file.source.as_str() {
            DIRECT_URL => {
                let mut shown = url.clone();
                // Neither fails for a URL that can have them.
                let _ = shown.set_username("");
                let _ = shown.set_password(None);
                shown.set_fragment(None);
                Some(shown.to_string())
            }
            DIRECT_PATH => {
                let path = self.paths.iter().find(|(name, path)| {
                    *name == file.filename.name
                        && Url::from_file_path(self.inner.project_dir.join(path))
                            .is_ok_and(|it| it == url)
                });
                let (_, path) = path.ok_or_else(unknown)?;
                Some(path.to_string_lossy().into_owned())
            }
            _ => None,
        };
        // An HTML page says no size. With a digest at hand the server's word for it will do: a
        // file of that digest has one size only.
        let size = match (file.sha256, file.size) {
            (Some(_), None) if source.kind != SourceKind::Path => {
                let url = self.inner.with_credentials(url.clone());
                downloader.size_at(&Place { source: source.name.clone(), url }, stop)?
            }
            (_, size) => size,
        };
        let (sha256, size) = match (file.sha256, size) {
            (Some(sha256), Some(size)) if source.kind != SourceKind::Path => (sha256, size),
            (declared, size) => {
                let md5 = self.wheels.declared_md5(file).and_then(|digits| parse_md5(&digits));
                let want = Wanted {
                    file: &file.file,
                    size,
                    sha256: declared,
                    md5: md5.filter(|_| declared.is_none()),
                    locked: false,
                };
                let url = self.inner.with_credentials(url);
                let place = Place { source: source.name.clone(), url };
                let got = self.fetch(downloader, &want, vec![place], stop)?;
                (got.sha256, got.size)
            }
        };
        Ok(Pinned {
            source,
            file: file.file.clone(),
            size,
            sha256,
            hash_computed: file.sha256.is_none(),
            location,
            subdir: None,
        })
    }

    fn fetch(
        &self,
        downloader: &Downloader,
        want: &Wanted<'_>,
        places: Vec<Place>,
        stop: &Stop,
    ) -> Result<Got, SourceError> {
        let places: Places<'_> = Box::new(places.into_iter().map(Ok::<Place, Box<Attempt>>));
        downloader.get(want, places, &self.inner.download_dir, stop).map_err(|error| match error {
            // A damaged declaration is the index's fault, and the file is there: say which it is.
            SourceError::Fetch { file, tried, .. }
                if tried
                    .0
                    .iter()
                    .any(|a| matches!(a.outcome, Outcome::Sha256 { .. } | Outcome::Md5 { .. })) =>
            {
                SourceError::Declared { file, tried }
            }
            other => other,
        })
    }
}

fn parse_md5(digits: &str) -> Option<[u8; 16]> {
    let digits = digits.as_bytes();
    let mut out = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = ((pair[0] as char).to_digit(16)?, (pair[1] as char).to_digit(16)?);
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(out)
}
