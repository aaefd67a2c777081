//! A file on its way: what has arrived, its running digests, and what a later run needs to go on.
//!
//! `STEM.part` holds the bytes, `STEM.part.json` the validator they belong to (an entity tag or a
//! date, and a digest of the URL, which may hold secrets). The validator is written before the
//! first byte and removed before the bytes are discarded, so that after a kill at any point the
//! bytes either belong to the validator or are not trusted.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use md5::Digest as _;
use serde::{Deserialize, Serialize};
use url::Url;

use super::error::SourceError;
use crate::hash::{Hasher, Sha256};

/// Bytes read at once from disk.
const BUFFER: usize = 256 * 1024;

/// What the bytes of a partial file belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Validator {
    /// SHA-256 of the URL.
    url: Sha256,
    /// A strong entity tag, or a `Last-Modified` date: what `If-Range` takes (RFC 9110, 13.1.5).
    value: String,
}

/// The digests of a complete file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) sha256: Sha256,
    /// Where it was asked for.
    pub(crate) md5: Option<[u8; 16]>,
}

/// A partial file, locked for this process.
pub(crate) struct Part {
    path: PathBuf,
    file: File,
    len: u64,
    sha256: Hasher<io::Sink>,
    md5: Option<md5::Md5>,
    /// Whether bytes of an earlier transfer are in it.
    resumed: bool,
    /// Whether other processes know the name, so that it may be left behind for them.
    shared: bool,
}

impl Part {
    /// Opens `DIR/STEM.part`, with what an earlier run left in it. If another process is writing
    /// that file, or locks do not work here, a private one is used that nobody resumes. The MD5 is
    /// computed only if `md5` says so.
    pub(crate) fn open(dir: &Path, stem: &str, md5: bool) -> Result<Part, SourceError> {
        let md5 = md5.then(md5::Md5::new);
        let path = dir.join(format!("{stem}.part"));
        loop {
            let open =
                || File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let file = open().map_err(|e| SourceError::io("open", &path, e))?;
            if file.try_lock().is_err() {
                return Part::private(dir, stem, md5);
            }
            // Whoever held the lock before may have renamed the file away in between.
            let mine = file.metadata().map_err(|e| SourceError::io("inspect", &path, e))?;
            match std::fs::metadata(&path) {
                Ok(there) if (there.dev(), there.ino()) == (mine.dev(), mine.ino()) => {}
                _ => continue,
            }
            let mut part = Part::around(path, file, true, md5);
            part.read_back().map_err(|e| SourceError::io("read", &part.path, e))?;
            return Ok(part);
        }
    }

    fn private(dir: &Path, stem: &str, md5: Option<md5::Md5>) -> Result<Part, SourceError> {
        let made = tempfile::Builder::new()
            .prefix(&format!("{stem}."))
            .suffix(".part")
            .tempfile_in(dir)
            .and_then(|temp| temp.keep().map_err(|e| e.error));
        let (file, path) = made.map_err(|e| SourceError::io("create a file in", dir, e))?;
        Ok(Part::around(path, file, false, md5))
    }

    fn around(path: PathBuf, file: File, shared: bool, md5: Option<md5::Md5>) -> Part {
        let sha256 = Hasher::new(io::sink());
        Part { path, file, len: 0, sha256, md5, resumed: false, shared }
    }

    /// Hashes what is there, and stands at its end.
    fn read_back(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let n = match self.file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            self.digest(&buffer[..n])?;
            self.resumed = true;
        }
    }

    fn digest(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sha256.write_all(bytes)?;
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Bytes there.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether bytes of an earlier transfer are in it.
    pub(crate) fn resumed(&self) -> bool {
        self.resumed
    }

    /// The next transfer adds to what is there.
    pub(crate) fn mark_resumed(&mut self) {
        self.resumed = self.len > 0;
    }

    /// Appends `bytes`.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        self.file
            .write_all(bytes)
            .and_then(|()| self.digest(bytes))
            .map_err(|e| SourceError::io("write", &self.path, e))
    }

    /// Discards all that is there.
    pub(crate) fn reset(&mut self) -> Result<(), SourceError> {
        let failed = |e| SourceError::io("truncate", &self.path, e);
        if self.shared {
            remove(&self.validator_path())?;
        }
        self.file.set_len(0).map_err(failed)?;
        self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        self.len = 0;
        self.sha256 = Hasher::new(io::sink());
        self.md5 = self.md5.as_ref().map(|_| md5::Md5::new());
        self.resumed = false;
        Ok(())
    }

    fn validator_path(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".json");
        name.into()
    }

    /// The validator of the bytes there, if they came from `url`. A damaged note counts as none.
    pub(crate) fn validator(&self, url: &Url) -> Option<String> {
        let text = std::fs::read(self.validator_path()).ok()?;
        let noted: Validator = serde_json::from_slice(&text).ok()?;
        (noted.url == Sha256::of(url.as_str())).then_some(noted.value)
    }

    /// Notes the validator of the bytes that will be written; call it while the part is empty.
    pub(crate) fn note_validator(&self, url: &Url, value: Option<&str>) -> Result<(), SourceError> {
        if !self.shared {
            return Ok(());
        }
        let path = self.validator_path();
        let Some(value) = value else { return remove(&path) };
        let note = Validator { url: Sha256::of(url.as_str()), value: value.to_string() };
        let failed = |e| SourceError::io("write", &path, e);
        let text = serde_json::to_vec(&note).map_err(|e| failed(e.into()))?;
        let dir = path.parent().unwrap_or(Path::new("."));
        let mut temp = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
        temp.write_all(&text).map_err(failed)?;
        temp.persist(&path).map_err(|e| failed(e.error))?;
        Ok(())
    }

    /// The first bytes, at most `n`.
    pub(crate) fn head(&self, n: usize) -> Result<Vec<u8>, SourceError> {
        use std::os::unix::fs::FileExt;
        let mut head = vec![0; n.min(usize::try_from(self.len).unwrap_or(n))];
        self.file
            .read_exact_at(&mut head, 0)
            .map_err(|e| SourceError::io("read", &self.path, e))?;
        Ok(head)
    }

    /// Digests of all that is there.
    pub(crate) fn digests(&mut self) -> Digests {
        let sha256 = std::mem::replace(&mut self.sha256, Hasher::new(io::sink()));
        let md5 = self.md5.as_mut().map(|md5| md5.finalize_reset().into());
        Digests { sha256: sha256.finish().0, md5 }
    }

    /// Gives the file its final name. The content was checked by then. It is not synced: a
    /// download is hashed again before it is used by another run.
    pub(crate) fn finish(self, to: &Path) -> Result<(), SourceError> {
        std::fs::rename(&self.path, to).map_err(|e| SourceError::io("rename", &self.path, e))?;
        if self.shared { remove(&self.validator_path()) } else { Ok(()) }
    }

    /// Leaves the bytes for a later run if that can use them, and removes the file otherwise.
    pub(crate) fn leave(self) {
        if self.len == 0 || !self.shared {
            // Left-overs are harmless; the error that led here is the one to tell.
            let _ = remove(&self.path);
            let _ = remove(&self.validator_path());
        }
    }
}

/// Removes a file that may not be there.
fn remove(path: &Path) -> Result<(), SourceError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(SourceError::io("remove", path, e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_part_goes_on_where_it_stood() {
        let dir = tempfile::tempdir().unwrap();
        let url = Url::parse("https://u:secret@h.example.invalid/f").unwrap();
        let mut part = Part::open(dir.path(), "x", false).unwrap();
        part.note_validator(&url, Some("\"tag\"")).unwrap();
        part.write(b"ab").unwrap();
        part.leave();
        let note = std::fs::read_to_string(dir.path().join("x.part.json")).unwrap();
        assert!(!note.contains("secret"));

        let mut part = Part::open(dir.path(), "x", false).unwrap();
        assert_eq!((part.len(), part.resumed()), (2, true));
        assert_eq!(part.validator(&url).as_deref(), Some("\"tag\""));
        assert_eq!(part.validator(&Url::parse("https://h.example.invalid/g").unwrap()), None);
        part.write(b"c").unwrap();
        assert_eq!(part.digests().sha256, Sha256::of("abc"));
        part.finish(&dir.path().join("done")).unwrap();
        assert_eq!(std::fs::read(dir.path().join("done")).unwrap(), b"abc");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_second_writer_gets_a_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = Part::open(dir.path(), "x", false).unwrap();
        first.write(b"first").unwrap();
        let mut second = Part::open(dir.path(), "x", false).unwrap();
        assert_eq!(second.len(), 0);
        second.write(b"2").unwrap();
        second.leave();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        first.finish(&dir.path().join("done")).unwrap();
        assert_eq!(std::fs::read(dir.path().join("done")).unwrap(), b"first");
    }

    #[test]
    fn nothing_is_left_of_an_empty_part() {
        let dir = tempfile::tempdir().unwrap();
        let mut part = Part::open(dir.path(), "x", false).unwrap();
        part.write(b"bad").unwrap();
        part.reset().unwrap();
        part.leave();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
