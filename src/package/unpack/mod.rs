//! Safe unpacking: an archive is hostile until proven otherwise.
//!
//! What comes out is canonical. Modes are 0444 or 0555 (any executable bit of the archive, and
//! `<name>.data/scripts/` of a wheel), directories 0555, modification times one second after
//! the epoch; owners, setuid bits, extended attributes and times of the archive are dropped.
//! Whatever is refused is refused with the entry named, and the caller removes what was
//! unpacked so far.
//!
//! | in the archive | wheel | conda package |
//! |---|---|---|
//! | `..`, absolute path, control characters, not UTF-8 | refused | refused |
//! | two entries of one path | refused | refused, unless equal |
//! | paths that differ only in case | refused | kept (terminfo needs it) |
//! | symbolic link | refused | kept, unless it leads out of the package |
//! | hard link | – | to an earlier regular file of the archive |
//! | entry below a link or a file | refused | refused |
//! | device, pipe, socket, unknown type | refused | refused |
//! | more entries or bytes than [`Limits`] | refused | refused |

mod ahead;
mod conda;
mod section;
mod tree;
mod wheel;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use super::error::{Fault, PackageError};
use super::record::{ElfFile, Entry, EntryKind};
use crate::fs;
use crate::hash::Sha256;
use crate::progress::Progress;
use crate::relpath::RelPath;
use tree::{Claim, FileFacts, Tree};

/// What env.toml allows an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnpackPolicy {
    /// Keep symbolic links that lead out of the package (`allow-external-links`).
    pub allow_external_links: bool,
}

/// Bounds that only an archive made to fill the disk exceeds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries of an archive.
    pub entries: u64,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Bytes of all files together per byte of the archive…
    pub ratio: u64,
    /// …unless they stay below this.
    pub ratio_floor: u64,
    /// Bytes, packed and unpacked together, up to which a member of a zip file is inflated in
    /// one go in memory, which is about twice as fast as streaming it.
    pub in_memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        // The largest packages of the field (CUDA toolkits, language models) have about 10 GB
        // and 100,000 files, at ratios below 20.
        Limits {
            entries: 2_000_000,
            bytes: 256 << 30,
            ratio: 200,
            ratio_floor: 256 << 20,
            in_memory: 160 << 20,
        }
    }
}

impl Limits {
    fn entries(&self, found: u64) -> Result<(), Fault> {
        if found > self.entries {
            return Err(Fault::Limit { name: "entries", limit: self.entries, what: "entries" });
        }
        Ok(())
    }
    /// The most bytes an archive of `packed` bytes may hold, and the limit that says so.
    fn most(&self, packed: u64) -> (u64, &'static str) {
        let by_ratio = packed.saturating_mul(self.ratio).max(self.ratio_floor);
        if by_ratio < self.bytes { (by_ratio, "ratio") } else { (self.bytes, "bytes") }
    }
    fn bytes(&self, found: u64, packed: u64) -> Result<(), Fault> {
        let (limit, name) = self.most(packed);
        if found > limit {
            return Err(Fault::Limit { name, limit, what: "bytes" });
        }
        Ok(())
    }
}

/// Formats of archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.whl`: a zip file.
    Wheel,
    /// `.conda`: a zip file of zstd-compressed tars.
    Conda,
    /// `.tar.bz2`.
    TarBz2,
}

impl Format {
    /// The format a file name says, in any case.
    pub fn of(file: &str) -> Option<Format> {
        let lower = file.to_ascii_lowercase();
        [(".whl", Format::Wheel), (".conda", Format::Conda), (".tar.bz2", Format::TarBz2)]
            .into_iter()
            .find(|(end, _)| lower.ends_with(end))
            .map(|(_, format)| format)
    }
}

/// An archive to unpack.
pub struct Unpack<'a> {
    /// The archive.
    pub archive: &'a Path,
    /// Its file name as the user knows it, for messages; its ending says the format.
    pub file: &'a str,
    /// An empty directory that only this process writes to.
    pub into: &'a Path,
    /// What is allowed.
    pub policy: UnpackPolicy,
    /// Bounds.
    pub limits: Limits,
    /// Told about bytes of the archive as they are worked off.
    pub progress: &'a dyn Progress,
}

/// What an archive unpacked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// All entries, sorted by path; directories only where empty.
    pub entries: Vec<Entry>,
    /// Dynamic facts of each ELF file, sorted by path.
    pub elf: Vec<ElfFile>,
    /// SHA-256 of the Nix archive of the tree.
    pub nar: Sha256,
    /// Bytes of that Nix archive.
    pub nar_size: u64,
}

/// What the unpackers of the formats hand back.
struct Content {
    tree: Tree,
    facts: BTreeMap<RelPath, FileFacts>,
    nar: (Sha256, u64),
}

/// Unpacks an archive.
///
/// # Errors
///
/// Any [`Fault`]; `job.into` then holds a part of the tree that the caller must remove.
pub fn unpack(job: &Unpack<'_>) -> Result<Unpacked, PackageError> {
    content(job).map(Content::seal).map_err(|fault| fault.of(job.file))
}

fn content(job: &Unpack<'_>) -> Result<Content, Fault> {
    let format = Format::of(job.file).ok_or(Fault::Format)?;
    let file = fs::open(job.archive)?;
    match format {
        Format::Wheel => wheel::unpack(job, &file, &fs::map(&file, job.archive)?),
        Format::Conda => conda::unpack_conda(job, &file, &fs::map(&file, job.archive)?),
        Format::TarBz2 => conda::unpack_tar_bz2(job, &file),
    }
}

impl Content {
    fn seal(self) -> Unpacked {
        let Content { tree, facts, nar } = self;
        let mut entries = Vec::with_capacity(tree.len());
        let mut elf = Vec::new();
        for dir in tree.empty_dirs() {
            entries.push(Entry { path: dir, kind: EntryKind::Dir });
        }
        for (path, claim) in tree.iter() {
            let (source, executable) = match claim {
                Claim::Dir => continue,
                Claim::Symlink(target) => {
                    let kind = EntryKind::Symlink { target: target.clone() };
                    entries.push(Entry { path: path.clone(), kind });
                    continue;
                }
                Claim::File { executable } => (path, *executable),
                Claim::HardLink(to) => {
                    (to, matches!(tree.get(to.as_str()), Some(Claim::File { executable: true })))
                }
            };
            // Every claimed file was written, or unpacking failed before this.
            let Some(fact) = facts.get(source) else { continue };
            let kind = EntryKind::File { size: fact.size, sha256: fact.sha256, executable };
            entries.push(Entry { path: path.clone(), kind });
            if let Some(dynamic) = &fact.elf {
                elf.push(ElfFile { path: path.clone(), dynamic: dynamic.clone() });
            }
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Unpacked { entries, elf, nar: nar.0, nar_size: nar.1 }
    }
}

/// Words for the file types of `st_mode` that no package has.
fn special_name(kind: u32) -> String {
    match kind {
        0o060000 => "block device".to_owned(),
        0o020000 => "character device".to_owned(),
        0o010000 => "named pipe".to_owned(),
        0o140000 => "socket".to_owned(),
        0o040000 => "directory that is named like a file".to_owned(),
        other => format!("thing of unknown type {other:#o}"),
    }
}

fn parallelism() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

/// The right to inflate. There are as many as processors, for the whole process, so that
/// several packages unpacked at once cost no more memory than one.
struct Permit;

static FREE: (Mutex<Option<usize>>, Condvar) = (Mutex::new(None), Condvar::new());

impl Permit {
    fn take() -> Permit {
        let mut free = FREE.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match free.get_or_insert_with(parallelism) {
                0 => free = FREE.1.wait(free).unwrap_or_else(PoisonError::into_inner),
                n => {
                    *n -= 1;
                    return Permit;
                }
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut free = FREE.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = free.as_mut() {
            *n += 1;
        }
        FREE.1.notify_one();
    }
}

/// Memory for contents inflated in one go, of one budget for the whole process.
struct Room(u64);

/// The budget, in bytes.
const ROOM: u64 = 256 << 20;

static ROOM_LEFT: (Mutex<u64>, Condvar) = (Mutex::new(ROOM), Condvar::new());

impl Room {
    /// Waits for `bytes`, which must be within [`ROOM`].
    fn take(bytes: u64) -> Room {
        let mut left = ROOM_LEFT.0.lock().unwrap_or_else(PoisonError::into_inner);
        while *left < bytes {
            left = ROOM_LEFT.1.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
        *left -= bytes;
        Room(bytes)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *ROOM_LEFT.0.lock().unwrap_or_else(PoisonError::into_inner) += self.0;
        ROOM_LEFT.1.notify_all();
    }
}

#[cfg(test)]
mod tests;
