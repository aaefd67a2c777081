//! One file, from whichever of its places gives it whole: resumed, checked while it streams,
//! kept only if it is the right one.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LAST_MODIFIED,
    RANGE, TRANSFER_ENCODING,
};
use reqwest::{Response, StatusCode, Version};
use url::Url;

use super::config::Config;
use super::error::{Attempt, Attempts, Outcome, SourceError, redacted};
use super::net::{Net, Stop, looks_like, outcome_of, outcome_of_reqwest, outcome_of_status};
use super::net::{pause, retry_after};
use super::part::{Digests, Part};
use crate::hash::Sha256;
use crate::progress::{Event, Progress};

/// Transfers of one file from one place, however much each of them brings.
const MAX_TRANSFERS: u32 = 200;

/// A place that may have the file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Name of the lock source it belongs to.
    pub(crate) source: String,
    /// Where.
    pub(crate) url: Url,
}

/// What is wanted.
pub(crate) struct Want<'a> {
    /// File name, for people; its ending tells what the content must be.
    pub(crate) file: &'a str,
    /// Bytes, where known.
    pub(crate) size: Option<u64>,
    /// Digest, where known.
    pub(crate) sha256: Option<Sha256>,
    /// Second digest to check, where a source declares one.
    pub(crate) md5: Option<[u8; 16]>,
    /// Whether a lock asks (for the advice when no place has it).
    pub(crate) locked: bool,
}

/// A file that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) path: PathBuf,
    pub(crate) sha256: Sha256,
    pub(crate) size: u64,
}

/// Places, found as they are needed: asking for one may itself fail.
pub(crate) type Places<'a> = Box<dyn Iterator<Item = Result<Place, Box<Attempt>>> + 'a>;

/// Fetches files. Its methods block; they are called on threads of their own, never on one of
/// the runtime's.
#[derive(Clone)]
pub(crate) struct Downloader {
    pub(crate) net: Net,
    pub(crate) config: Arc<Config>,
    pub(crate) handle: tokio::runtime::Handle,
    pub(crate) progress: Arc<dyn Progress>,
    pub(crate) offline: bool,
}

/// Why a place did not serve.
enum Failed {
    /// Another place may.
    Here(Outcome),
    /// No place will: this machine's own trouble.
    Everywhere(SourceError),
}

impl From<SourceError> for Failed {
    fn from(error: SourceError) -> Failed {
        Failed::Everywhere(error)
    }
}
impl From<Outcome> for Failed {
    fn from(outcome: Outcome) -> Failed {
        Failed::Here(outcome)
    }
}

/// The name a complete file has in the download directory.
pub(crate) fn final_name(sha256: &Sha256, file: &str) -> String {
    format!("{sha256}-{file}")
}

impl Downloader {
    /// Brings the file to `dir`, as [`final_name`], trying `places` in order.
    pub(crate) fn get(
        &self,
        want: &Want<'_>,
        places: Places<'_>,
        dir: &Path,
        stop: &Stop,
    ) -> Result<Got, SourceError> {
        std::fs::create_dir_all(dir).map_err(|e| SourceError::io("create", dir, e))?;
        if let Some(got) = self.already_there(want, dir)? {
            return Ok(got);
        }
        let mut tried = Attempts::default();
        let mut asked = BTreeSet::new();
        // Without a digest the name must depend on the place, or two files would mix.
        let mut part = match want.sha256 {
            Some(sha256) => Some(Part::open(dir, &sha256.to_string(), want.md5.is_some())?),
            None => None,
        };
        for place in places {
            let place = match place {
                Ok(place) => place,
                Err(attempt) => {
                    tried.0.push(*attempt);
                    continue;
                }
            };
            // Two sources may lead to one place.
            if !asked.insert(place.url.clone()) {
                continue;
            }
            let mut current = match part.take() {
                Some(part) => part,
                None => {
                    let url = Sha256::of(place.url.as_str());
                    Part::open(dir, &format!("url-{url}"), want.md5.is_some())?
                }
            };
            match self.at_place(want, &place, &mut current, stop) {
                Ok(digests) => {
                    let size = current.len();
                    let path = dir.join(final_name(&digests.sha256, want.file));
                    current.finish(&path)?;
                    self.progress.event(Event::Done { item: want.file });
                    return Ok(Got { path, sha256: digests.sha256, size });
                }
                Err(Failed::Everywhere(error)) => {
                    current.leave();
                    return Err(error);
                }
                Err(Failed::Here(outcome)) => {
                    let shown = redacted(&place.url);
                    let text = format!("{}: {shown}: {outcome}", want.file);
                    self.progress.event(Event::Note { text: &text });
                    tried.0.push(Attempt { source: place.source, place: shown, outcome });
                    match want.sha256 {
                        Some(_) => part = Some(current),
                        None => current.leave(),
                    }
                }
            }
        }
        if let Some(part) = part {
            part.leave();
        }
        let file = want.file.to_string();
        Err(SourceError::Fetch { file, tried, locked: want.locked })
    }

    /// The size of the file at `place`, as its server says it without sending the file; `None`
    /// where it does not say.
    pub(crate) fn size_at(&self, place: &Place, stop: &Stop) -> Result<Option<u64>, SourceError> {
        if place.url.scheme() == "file" {
            let path = place.url.to_file_path().ok();
            return Ok(path.and_then(|p| std::fs::metadata(p).ok()).map(|m| m.len()));
        }
        if self.offline {
            return Ok(None);
        }
        // Not HEAD, which some servers answer with another length than the file's: what a
        // transfer is told is what counts. The body is left where it is.
        let request = self.net.files.get(place.url.clone());
        let request = request.header(ACCEPT_ENCODING, "identity").header(RANGE, "bytes=0-0");
        // Whatever goes wrong here goes wrong again where the file itself is asked for, and is
        // told there.
        let answer = match self.until(stop, request.send()) {
            Ok(Ok(answer)) => answer,
            Err(SourceError::Stopped) => return Err(SourceError::Stopped),
            _ => return Ok(None),
        };
        Ok(match answer.status() {
            StatusCode::PARTIAL_CONTENT => content_range(answer.headers()).and_then(|r| r.1),
            StatusCode::OK => header::<u64>(answer.headers(), CONTENT_LENGTH.as_str()),
            _ => None,
        })
    }

    /// A complete file of an earlier run, hashed again.
    fn already_there(&self, want: &Want<'_>, dir: &Path) -> Result<Option<Got>, SourceError> {
        let Some(sha256) = want.sha256 else { return Ok(None) };
        let path = dir.join(final_name(&sha256, want.file));
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(SourceError::io("open", path, e)),
        };
        let (found, size) =
            Sha256::of_reader(file).map_err(|e| SourceError::io("read", &path, e))?;
        if found == sha256 && want.size.is_none_or(|s| s == size) {
            self.progress.event(Event::Bytes { item: want.file, delta: size });
            self.progress.event(Event::Done { item: want.file });
            return Ok(Some(Got { path, sha256, size }));
        }
        // Damaged on disk since.
        std::fs::remove_file(&path).map_err(|e| SourceError::io("remove", &path, e))?;
        Ok(None)
    }

    fn at_place(
        &self,
        want: &Want<'_>,
        place: &Place,
        part: &mut Part,
        stop: &Stop,
    ) -> Result<Digests, Failed> {
        if place.url.scheme() == "file" {
            self.copy(want, place, part, stop)?;
            return check(want, part);
        }
        if self.offline {
            return Err(Outcome::NotCached.into());
        }
        let patience = self.config.patience;
        let mut furthest = part.len();
        let mut fruitless = 0;
        let mut wait = patience.backoff;
        for _ in 0..MAX_TRANSFERS {
            if stop.is_set() {
                return Err(SourceError::Stopped.into());
            }
            let mut after = None;
            let outcome = match self.transfer(want, place, part, stop, &mut after) {
                Ok(()) => {
                    let resumed = part.resumed();
                    match check(want, part) {
                        Ok(digests) => return Ok(digests),
                        // The bytes of the earlier run may be the wrong ones: once more, whole.
                        Err(Failed::Here(outcome)) if resumed => {
                            let text = format!("{}: {outcome}; starting again", want.file);
                            self.progress.event(Event::Note { text: &text });
                            furthest = 0;
                            continue;
                        }
                        Err(failed) => return Err(failed),
                    }
                }
                Err(Failed::Here(outcome)) if outcome.transient() => outcome,
                Err(failed) => return Err(failed),
            };
            if part.len() > furthest {
                furthest = part.len();
                fruitless = 0;
                wait = patience.backoff;
            } else {
                fruitless += 1;
            }
            if fruitless >= patience.tries {
                return Err(outcome.into());
            }
            let text = format!("{}: {}: {outcome}; trying again", want.file, redacted(&place.url));
            self.progress.event(Event::Note { text: &text });
            if !self.handle.block_on(pause(after.unwrap_or(wait), stop)) {
                return Err(SourceError::Stopped.into());
            }
            wait = (wait * 2).min(std::time::Duration::from_secs(30));
        }
        Err(Outcome::Other(format!("gave up after {MAX_TRANSFERS} broken transfers")).into())
    }

    /// One request. On success the part holds all that the place has.
    fn transfer(
        &self,
        want: &Want<'_>,
        place: &Place,
        part: &mut Part,
        stop: &Stop,
        after: &mut Option<std::time::Duration>,
    ) -> Result<(), Failed> {
        if part.len() > 0 && want.size == Some(part.len()) {
            part.mark_resumed();
            return Ok(());
        }
        let validator = part.validator(&place.url);
        // With a digest to check against, bytes from another place are as good.
        let may_resume = validator.is_some() || want.sha256.is_some();
        if part.len() > 0 && (!may_resume || want.size.is_some_and(|size| part.len() > size)) {
            part.reset()?;
        }
        let mut request = self.net.files.get(place.url.clone()).header(ACCEPT_ENCODING, "identity");
        if part.len() > 0 {
            part.mark_resumed();
            request = request.header(RANGE, format!("bytes={}-", part.len()));
            if let Some(validator) = &validator {
                request = request.header(IF_RANGE, validator);
            }
        }
        let response = self.until(stop, request.send())?.map_err(outcome_of)?;
        let status = response.status();
        if outcome_of_status(status, "").transient() {
            *after = retry_after(&response);
        }
        let total = match status {
            StatusCode::PARTIAL_CONTENT => {
                let range = content_range(response.headers());
                let changed = validator.is_some_and(|v| {
                    strong_validator(response.headers()).is_some_and(|now| now != v)
                });
                match range {
                    Some((start, total)) if start == part.len() && !changed => {
                        let delta = part.len();
                        self.progress.event(Event::Bytes { item: want.file, delta });
                        total
                    }
                    _ => {
                        // Another range than asked for, or of another file.
                        part.reset()?;
                        return Err(Outcome::Cut { got: 0, expected: want.size }.into());
                    }
                }
            }
            StatusCode::OK => {
                part.reset()?;
                let validator = strong_validator(response.headers());
                part.note_validator(&place.url, validator.as_deref())?;
                header::<u64>(response.headers(), CONTENT_LENGTH.as_str())
            }
            StatusCode::RANGE_NOT_SATISFIABLE if part.len() > 0 => {
                part.reset()?;
                return Err(Outcome::Cut { got: 0, expected: want.size }.into());
            }
            other => {
                let host = response.url().host_str().unwrap_or("the host");
                return Err(outcome_of_status(other, host).into());
            }
        };
        if let (Some(expected), Some(found)) = (want.size, total)
            && expected != found
        {
            return Err(self.wrong_size(response, part, stop, expected, found)?.into());
        }
        self.body(want, response, part, stop, total)
    }

    /// Takes the first bytes of a file of the wrong size, to say what it is.
    fn wrong_size(
        &self,
        mut response: Response,
        part: &mut Part,
        stop: &Stop,
        expected: u64,
        found: u64,
    ) -> Result<Outcome, SourceError> {
        let mut seen = None;
        if response.status() == StatusCode::OK {
            // A failure to read more of it changes nothing.
            let first = self.until(stop, response.chunk())?.unwrap_or_default();
            seen = looks_like(&first.unwrap_or_default());
        }
        part.reset()?;
        Ok(Outcome::Size { expected, found, looks_like: seen })
    }

    fn body(
        &self,
        want: &Want<'_>,
        mut response: Response,
        part: &mut Part,
        stop: &Stop,
        total: Option<u64>,
    ) -> Result<(), Failed> {
        // Where the end of the connection is the end of the file, an early end looks the same.
        let framed = total.is_some()
            || response.version() >= Version::HTTP_2
            || response.headers().contains_key(TRANSFER_ENCODING);
        let expected = want.size.or(total);
        loop {
            match self.until(stop, response.chunk())? {
                Ok(Some(bytes)) => {
                    part.write(&bytes)?;
                    let delta = bytes.len() as u64;
                    self.progress.event(Event::Bytes { item: want.file, delta });
                    if let Some(expected) = want.size.filter(|size| part.len() > *size) {
                        let found = part.len();
                        let looks_like = looks_like(&part.head(64)?);
                        part.reset()?;
                        return Err(Outcome::Size { expected, found, looks_like }.into());
                    }
                }
                Ok(None) => break,
                Err(e) if e.is_timeout() => {
                    return Err(Outcome::Stalled(self.config.patience.stall.as_secs()).into());
                }
                Err(e) if e.is_body() || e.is_decode() || e.is_request() => {
                    return Err(Outcome::Cut { got: part.len(), expected }.into());
                }
                Err(e) => return Err(outcome_of_reqwest(&e).into()),
            }
        }
        match expected {
            Some(all) if part.len() < all && !framed => {
                Err(Outcome::Cut { got: part.len(), expected: Some(all) }.into())
            }
            _ => Ok(()),
        }
    }

    /// Copies a local file, so that what is unpacked later is what was hashed now.
    fn copy(
        &self,
        want: &Want<'_>,
        place: &Place,
        part: &mut Part,
        stop: &Stop,
    ) -> Result<(), Failed> {
        let path = place
            .url
            .to_file_path()
            .map_err(|()| Outcome::Other("is not a path of this machine".into()))?;
        let unreadable = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Outcome::Missing,
            _ => Outcome::Unreadable(e),
        };
        let mut file = File::open(&path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(Outcome::Other("is not a regular file".into()).into());
        }
        part.reset()?;
        if let Some(expected) = want.size.filter(|size| *size != metadata.len()) {
            let found = metadata.len();
            return Err(Outcome::Size { expected, found, looks_like: None }.into());
        }
        let mut buffer = vec![0; 256 * 1024];
        loop {
            if stop.is_set() {
                return Err(SourceError::Stopped.into());
            }
            match file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    part.write(&buffer[..n])?;
                    self.progress.event(Event::Bytes { item: want.file, delta: n as u64 });
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Outcome::Unreadable(e).into()),
            }
        }
    }

    /// Waits for `future` unless told to stop.
    fn until<T>(&self, stop: &Stop, future: impl Future<Output = T>) -> Result<T, SourceError> {
        self.handle.block_on(async {
            tokio::select! {
                biased;
                () = stop.wait() => Err(SourceError::Stopped),
                value = future => Ok(value),
            }
        })
    }
}

/// Whether the part is the file that is wanted; if not, its bytes are gone.
fn check(want: &Want<'_>, part: &mut Part) -> Result<Digests, Failed> {
    let found = part.len();
    let head = part.head(64)?;
    let seen = looks_like(&head);
    let digests = part.digests();
    let wrong = if let Some(expected) = want.size.filter(|size| *size != found) {
        Some(Outcome::Size { expected, found, looks_like: seen })
    } else if let Some(expected) = want.sha256.filter(|sha256| *sha256 != digests.sha256) {
        Some(Outcome::Sha256 { expected, found: digests.sha256, looks_like: seen })
    } else if let (Some(expected), Some(found)) = (want.md5, digests.md5)
        && expected != found
    {
        Some(Outcome::Md5 { expected: hex(&expected), found: hex(&found) })
    } else if want.sha256.is_some() {
        // The very file that is meant: what is wrong with it, no other place mends.
        None
    } else {
        let kind: Option<(&'static str, &[u8])> = match want.file.rsplit('.').next() {
            Some("conda" | "whl") => Some(("a zip archive", b"PK")),
            Some("bz2") => Some(("bzip2 data", b"BZh")),
            _ => None,
        };
        kind.filter(|(_, magic)| !head.starts_with(magic)).map(|(expected, _)| Outcome::Content {
            expected,
            found: seen.unwrap_or("something else").to_string(),
        })
    };
    match wrong {
        None => Ok(digests),
        Some(outcome) => {
            part.reset()?;
            Err(outcome.into())
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn header<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Option<T> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// What `If-Range` may carry: a strong entity tag, else a date. A weak tag says nothing about
/// bytes (RFC 9110, 8.8.1).
fn strong_validator(headers: &HeaderMap) -> Option<String> {
    match header::<String>(headers, ETAG.as_str()) {
        Some(tag) if tag.starts_with('"') => Some(tag),
        Some(_) => None,
        None => header(headers, LAST_MODIFIED.as_str()),
    }
}

/// Start and total length of a `Content-Range: bytes 5-9/10`.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = header::<String>(headers, CONTENT_RANGE.as_str())?;
    let (range, total) = text.strip_prefix("bytes")?.trim_start().split_once('/')?;
    let start = range.split_once('-')?.0.trim().parse().ok()?;
    Some((start, total.trim().parse().ok()))
}

#[cfg(test)]
#[path = "download_tests.rs"]
mod tests;
