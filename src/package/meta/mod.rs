//! What an unpacked package says about itself, checked against the lock and its own lists.

mod conda;
mod wheel;

use std::collections::BTreeMap;
use std::path::Path;

use super::error::Fault;
use super::record::{EntryKind, Meta};
use super::unpack::Unpacked;
use crate::fs;
use crate::lockfile::{ArtifactKind, LockedPackage};

/// An unpacked package whose metadata is to be read.
pub struct Contents<'a> {
    /// Where it was unpacked.
    root: &'a Path,
    /// Its entries by path.
    entries: BTreeMap<&'a str, &'a EntryKind>,
}

impl<'a> Contents<'a> {
    /// The package unpacked at `root`.
    pub fn new(root: &'a Path, unpacked: &'a Unpacked) -> Self {
        let entries = unpacked.entries.iter().map(|e| (e.path.as_str(), &e.kind)).collect();
        Contents { root, entries }
    }

    fn has_file(&self, path: &str) -> bool {
        matches!(self.entries.get(path), Some(EntryKind::File { .. }))
    }

    /// The content of a regular file; `None` if there is none of that path.
    fn file(&self, path: &str) -> Result<Option<Vec<u8>>, Fault> {
        // Asked of the entries, not the disk: a link of that name is not followed.
        if !self.has_file(path) {
            return Ok(None);
        }
        Ok(Some(fs::read(&self.root.join(path))?))
    }

    /// The content of a regular file that must be there.
    fn need(&self, path: &str) -> Result<Vec<u8>, Fault> {
        self.file(path)?.ok_or_else(|| Fault::NoFile(path.to_owned()))
    }
}

/// Metadata and, besides, what is odd about the package without being wrong.
#[derive(Debug)]
pub struct Read {
    /// The metadata.
    pub meta: Meta,
    /// Sentences for the curious.
    pub notes: Vec<String>,
}

/// Reads and checks the metadata of an unpacked package.
///
/// # Errors
///
/// Another name, version or build than `locked` says; metadata files missing or not to be
/// understood; content that differs from `RECORD` or `paths.json`.
pub fn read(contents: &Contents<'_>, locked: &LockedPackage) -> Result<Read, Fault> {
    match locked.kind {
        ArtifactKind::Conda => conda::read(contents, locked),
        ArtifactKind::Wheel => wheel::read(contents, locked),
    }
}

fn agree(what: &'static str, expected: &str, found: &str) -> Result<(), Fault> {
    if expected == found {
        return Ok(());
    }
    Err(Fault::Other { what, expected: expected.to_owned(), found: found.to_owned() })
}

fn unclear(path: &str, why: impl std::fmt::Display) -> Fault {
    Fault::Metadata { path: path.to_owned(), why: why.to_string() }
}

/// The content as text, without a byte order mark.
fn text<'a>(path: &str, bytes: &'a [u8]) -> Result<&'a str, Fault> {
    let text = std::str::from_utf8(bytes).map_err(|_| unclear(path, "it is not UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

#[cfg(test)]
mod tests;
