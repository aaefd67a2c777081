//! All files of a lock: several at once, big ones first, each handed on as soon as it is there.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};

use url::Url;
use uv_normalize::PackageName as DistName;

use super::download::{Downloader, Place, Places, Want, final_name};
use super::error::{Attempt, Outcome, SourceError, redacted};
use super::net::Stop;
use super::places::locked_channel;
use super::wheels::{DEFAULT_INDEX, WheelSourceError};
use super::{Inner, Sources, at_home};
use crate::hash::Sha256;
use crate::lockfile::{ArtifactKind, Lock, LockedPackage, Source, SourceKind};

/// Room to leave on the file system besides the downloads.
const SLACK: u64 = 16 << 20;

impl Sources {
    /// Brings the files of `wanted`, packages of `lock`, to `dir`, and calls `done` for each as
    /// soon as its file is complete, on one of several threads made for that, so that the next
    /// files arrive meanwhile. Size and SHA-256 of each file were checked when `done` is called;
    /// it owns the file then and may move it away.
    ///
    /// A file is looked for in its source's mirrors, in the source, and then in the other sources
    /// of the lock, since its hash says whether it is the right one. Interrupted downloads are
    /// resumed by the next call with the same `dir`.
    ///
    /// # Errors
    /// The first that `done` returns, or the first file that no place gives; the rest is stopped
    /// then, and what has arrived of it stays.
    pub fn fetch_all<E>(
        &self,
        lock: &Lock,
        wanted: &[&LockedPackage],
        dir: &Path,
        done: &(dyn Fn(&LockedPackage, PathBuf) -> Result<(), E> + Sync),
    ) -> Result<(), E>
    where
        E: From<SourceError> + Send,
    {
        let downloader = self.inner.downloader()?;
        std::fs::create_dir_all(dir).map_err(|e| SourceError::io("create", dir, e))?;
        let jobs = jobs(lock, wanted)?;
        enough_space(&jobs, dir)?;
        let ends = self.inner.config.concurrency.get().min(jobs.len());
        let unpackers = std::thread::available_parallelism().map_or(2, usize::from).min(jobs.len());

        let stop = Stop::new();
        let first_error: Mutex<Option<E>> = Mutex::new(None);
        let fail = |error: E, follows: bool| {
            let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
            if first.is_none() && !follows {
                *first = Some(error);
            }
            stop.set();
        };
        let queue = Mutex::new(jobs);
        let (complete, arrived) = mpsc::channel::<(Vec<&LockedPackage>, PathBuf)>();
        let arrived = Mutex::new(arrived);
        std::thread::scope(|scope| {
            for _ in 0..ends {
                let complete = complete.clone();
                let (queue, downloader, stop, fail) = (&queue, &downloader, &stop, &fail);
                scope.spawn(move || {
                    while !stop.is_set() {
                        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                        let Some(job) = job else { break };
                        match self.inner.fetch(downloader, lock, &job, dir, stop) {
                            Ok(path) => {
                                // The receiver outlives this scope.
                                let _ = complete.send((job.packages, path));
                            }
                            Err(error) => {
                                let follows = matches!(error, SourceError::Stopped);
                                fail(error.into(), follows);
                            }
                        }
                    }
                });
            }
            // The channel closes when the last download thread ends.
            drop(complete);
            for _ in 0..unpackers {
                let (arrived, stop, fail) = (&arrived, &stop, &fail);
                scope.spawn(move || {
                    loop {
                        let next = arrived.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok((packages, path)) = next else { break };
                        if stop.is_set() {
                            continue;
                        }
                        if let Err(error) = hand_on(&packages, path, done) {
                            fail(error, false);
                        }
                    }
                });
            }
        });
        match first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Calls `done` for each package of one file. All but the last get a link of their own, since
/// `done` may move the file away.
fn hand_on<E: From<SourceError>>(
    packages: &[&LockedPackage],
    path: PathBuf,
    done: &(dyn Fn(&LockedPackage, PathBuf) -> Result<(), E> + Sync),
) -> Result<(), E> {
    let Some((last, others)) = packages.split_last() else { return Ok(()) };
    for (number, package) in others.iter().enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let own = path.with_file_name(format!("{number}-{name}"));
        // A link that an earlier run left behind is the file itself: writing to it would lose both.
        match std::fs::remove_file(&own) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(SourceError::io("remove", own, e).into());
            }
            _ => {}
        }
        let copied = match std::fs::hard_link(&path, &own) {
            Err(_) => std::fs::copy(&path, &own).map(|_| ()),
            linked => linked,
        };
        copied.map_err(|e| SourceError::io("copy", &path, e))?;
        done(package, own)?;
    }
    done(last, path)
}

/// One file and the packages of the lock that are it.
struct Job<'a> {
    packages: Vec<&'a LockedPackage>,
}

/// Files to fetch, big ones first.
fn jobs<'a>(lock: &Lock, wanted: &[&'a LockedPackage]) -> Result<VecDeque<Job<'a>>, SourceError> {
    let mut by_hash: BTreeMap<(Sha256, &str), Job<'a>> = BTreeMap::new();
    for package in wanted {
        if lock.source_of(package).is_none() {
            return Err(SourceError::UnknownSource {
                package: package.id.to_string(),
                source_name: package.source.clone(),
            });
        }
        let job = by_hash
            .entry((package.sha256, &package.file))
            .or_insert_with(|| Job { packages: Vec::new() });
        job.packages.push(package);
    }
    let mut jobs: Vec<Job<'a>> = by_hash.into_values().collect();
    jobs.sort_by(|a, b| {
        b.packages[0].size.cmp(&a.packages[0].size).then(a.packages[0].id.cmp(&b.packages[0].id))
    });
    Ok(jobs.into())
}

/// Whether the file system of `dir` has room for what is still to come.
fn enough_space(jobs: &VecDeque<Job<'_>>, dir: &Path) -> Result<(), SourceError> {
    let len = |name: String| std::fs::metadata(dir.join(name)).map_or(0, |m| m.len());
    let needed: u64 = jobs
        .iter()
        .map(|job| {
            let package = job.packages[0];
            let there = len(final_name(&package.sha256, &package.file))
                .max(len(format!("{}.part", package.sha256)));
            package.size.saturating_sub(there)
        })
        .fold(0, u64::saturating_add);
    // Some network file systems do not tell; then the write itself will.
    let Ok(stat) = rustix::fs::statvfs(dir) else { return Ok(()) };
    if stat.f_blocks == 0 || needed == 0 {
        return Ok(());
    }
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    match free < needed.saturating_add(SLACK) {
        true => Err(SourceError::NoSpace { dir: dir.to_path_buf(), needed, free }),
        false => Ok(()),
    }
}

/// Why a source says nothing about where a file is.
enum Unplaced {
    Known(Outcome),
    Told(SourceError),
}

impl From<SourceError> for Unplaced {
    fn from(error: SourceError) -> Unplaced {
        Unplaced::Told(error)
    }
}

impl From<WheelSourceError> for Unplaced {
    fn from(error: WheelSourceError) -> Unplaced {
        match error {
            WheelSourceError::NotCached { .. } => Unplaced::Known(Outcome::NotCached),
            WheelSourceError::NotThere { .. } => Unplaced::Known(Outcome::Missing),
            WheelSourceError::Insecure { .. } => Unplaced::Known(Outcome::Insecure),
            WheelSourceError::Refused { host, status, .. } => {
                Unplaced::Known(Outcome::Denied { code: status, host })
            }
            WheelSourceError::Status { status, .. } => {
                Unplaced::Known(Outcome::Status { code: status })
            }
            WheelSourceError::Unreachable { cause, .. } => {
                Unplaced::Known(Outcome::Unreachable(cause.to_string()))
            }
            other => Unplaced::Told(other.into()),
        }
    }
}

impl Inner {
    fn fetch(
        &self,
        downloader: &Downloader,
        lock: &Lock,
        job: &Job<'_>,
        dir: &Path,
        stop: &Stop,
    ) -> Result<PathBuf, SourceError> {
        let package = job.packages[0];
        let want = Want {
            file: &package.file,
            size: Some(package.size),
            sha256: Some(package.sha256),
            md5: None,
            locked: true,
        };
        Ok(downloader.get(&want, self.places(lock, package), dir, stop)?.path)
    }

    /// Where `package` may be: its own source first, then the others of its world.
    fn places<'a>(&'a self, lock: &'a Lock, package: &'a LockedPackage) -> Places<'a> {
        let own = lock.source_of(package);
        let channels = package.kind == ArtifactKind::Conda;
        let others = lock.sources.iter().filter(move |source| {
            Some(*source) != own
                && match source.kind {
                    SourceKind::Channel => channels,
                    SourceKind::Index | SourceKind::FindLinks => !channels,
                    SourceKind::Url | SourceKind::Path => false,
                }
        });
        let own = own.into_iter().flat_map(|source| self.copies(source)).map(|s| (s, true));
        let others = others.map(|source| (source.clone(), false));
        Box::new(own.chain(others).flat_map(move |(source, own)| {
            let found = match source.kind {
                SourceKind::Channel => self.channel_places(&source, package, own),
                SourceKind::Index | SourceKind::FindLinks => self.wheel_places(&source, package),
                SourceKind::Url | SourceKind::Path => self.direct_place(&source, package),
            }
            .map_err(|error| match error {
                Unplaced::Known(outcome) => outcome,
                Unplaced::Told(error) => Outcome::Other(error.to_string()),
            });
            let nowhere = |place: String, outcome| {
                vec![Err(Box::new(Attempt { source: source.name.clone(), place, outcome }))]
            };
            match found {
                Ok(urls) if urls.is_empty() && own => {
                    nowhere(format!("the pages of {}", source.name), Outcome::Missing)
                }
                Ok(urls) => urls
                    .into_iter()
                    .map(|url| Ok(Place { source: source.name.clone(), url }))
                    .collect(),
                Err(outcome) if own => {
                    let place = source.url.as_deref().and_then(|text| Url::parse(text).ok());
                    let place = place.map_or_else(|| source.name.clone(), |url| redacted(&url));
                    nowhere(place, outcome)
                }
                // Another source that cannot be asked is no news about this package.
                Err(_) => Vec::new(),
            }
        }))
    }

    /// A source, and where the same files may be besides. The pages of an index are read from the
    /// first mirror that answers; a file that is not right there is looked for on the pages of the
    /// next one, and of the index itself. Channels have their mirrors among their places.
    fn copies(&self, source: &Source) -> Vec<Source> {
        let mut copies = vec![source.clone()];
        let mirrors = self.config.mirrors.get(&source.name).map_or(&[][..], Vec::as_slice);
        if mirrors.is_empty() || !matches!(source.kind, SourceKind::Index | SourceKind::FindLinks) {
            return copies;
        }
        // Under another name, the mirrors of the source do not stand in for it.
        let copy = |which: String, url: String| Source {
            name: format!("{} ({which})", source.name),
            kind: source.kind,
            url: Some(url),
        };
        for (index, mirror) in mirrors.iter().enumerate() {
            copies.push(copy(format!("mirror {}", index + 1), mirror.to_string()));
        }
        let home = source.url.clone().or_else(|| {
            let here = self.config.wheels.index.as_ref().map(|setting| setting.value.to_string());
            (source.name == DEFAULT_INDEX)
                .then(|| here.unwrap_or_else(|| uv_distribution_types::PYPI_URL.to_string()))
        });
        copies.extend(home.map(|url| copy("itself".into(), url)));
        copies
    }

    fn channel_places(
        &self,
        source: &Source,
        package: &LockedPackage,
        own: bool,
    ) -> Result<Vec<Url>, Unplaced> {
        let directories = self.learned().channel_directories.clone();
        let mut urls = Vec::new();
        if let Some(location) = package.location.as_deref().filter(|_| own) {
            let url = Url::parse(location).map_err(|e| {
                Outcome::Other(format!("the lock's place of {} is no URL ({e})", package.file))
            });
            urls.push(url.map_err(Unplaced::Known)?);
        }
        for mut url in locked_channel(source, self.ground(&directories))? {
            // Pushed as segments, so that no character of a file name ends the path.
            let pushed = url.path_segments_mut().map(|mut segments| {
                segments.pop_if_empty().extend(package.subdir.as_deref()).push(&package.file);
            });
            if pushed.is_ok() {
                urls.push(url);
            }
        }
        Ok(urls)
    }

    fn wheel_places(&self, source: &Source, package: &LockedPackage) -> Result<Vec<Url>, Unplaced> {
        let name: DistName = package.name.parse().map_err(|_| SourceError::UnknownSource {
            package: package.id.to_string(),
            source_name: source.name.clone(),
        })?;
        let wheels = self.locating()?;
        let source = at_home(source, &self.learned().wheel_directories);
        let urls = wheels.locate(&source, &name, &package.file, &package.sha256)?;
        Ok(urls.into_iter().map(|url| self.with_credentials(url)).collect())
    }

    /// A wheel required by URL or path.
    fn direct_place(&self, source: &Source, package: &LockedPackage) -> Result<Vec<Url>, Unplaced> {
        let broken = |reason: &str| {
            let file = &package.file;
            Unplaced::Known(Outcome::Other(format!("the lock's place of {file} is {reason}")))
        };
        let location = package.location.as_deref().ok_or_else(|| broken("missing"))?;
        let url = match source.kind {
            SourceKind::Path => Url::from_file_path(self.project_dir.join(location))
                .map_err(|()| broken("no path"))?,
            _ => Url::parse(location).map_err(|e| broken(&format!("no URL ({e})")))?,
        };
        Ok(vec![self.with_credentials(url)])
    }
}
