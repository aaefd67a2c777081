//! Wheels (`.whl`): zip files whose members are inflated in parallel, largest first.
//!
//! The central directory is read and judged as a whole before the first byte is written. A
//! thread of its own hashes the Nix archive of the tree while the members are still being
//! inflated: it follows the sorted paths, waits for each to appear, and reads along with what
//! is still growing.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use libdeflater::DecompressionError;
use rawzip::{CompressionMethod, CreatorSystem, ZipArchive, ZipSliceArchive};

use super::ahead::Ahead;
use super::section::Section;
use super::tree::{self, Claim, Claimed, FileFacts, Tree};
use super::{Content, Unpack};
use crate::fs::FsError;
use crate::hash::Sha256;
use crate::package::error::Fault;
use crate::package::nar;
use crate::progress::Event;
use crate::relpath::RelPath;

/// Members up to this many bytes are inflated in buffers that a worker keeps.
const SMALL: u64 = 4 << 20;
/// Bytes of content for which another worker is worth starting.
const PER_WORKER: u64 = 1 << 20;

/// One regular file of the archive.
struct Member<'a> {
    path: RelPath,
    executable: bool,
    method: CompressionMethod,
    packed: Section<'a>,
    size: u64,
    crc: u32,
}

impl Member<'_> {
    fn length(&self, found: u64) -> Fault {
        Fault::Length { path: self.path.clone(), expected: self.size, found }
    }
    fn damaged(&self, source: io::Error) -> Fault {
        Fault::Damaged { what: format!("entry `{}`", self.path), source }
    }
    fn check_crc(&self, found: u32) -> Result<(), Fault> {
        if found != self.crc {
            return Err(Fault::Crc { path: self.path.clone(), expected: self.crc, found });
        }
        Ok(())
    }
}

/// Unpacks a wheel into `job.into`. `bytes` is `file`, mapped; only the directory and the local
/// headers are read through it.
pub(super) fn unpack(job: &Unpack<'_>, file: &File, bytes: &[u8]) -> Result<Content, Fault> {
    let archive = ZipArchive::from_slice(bytes).map_err(Fault::Zip)?;
    let (tree, members) = plan(job, file, &archive)?;
    refuse_case_twins(&tree)?;
    tree.make_dirs(job.into)?;

    let mut nodes: Vec<(RelPath, nar::Node)> = members
        .iter()
        .map(|m| (m.path.clone(), nar::Node::File { size: m.size, executable: m.executable }))
        .chain(tree.empty_dirs().into_iter().map(|d| (d, nar::Node::Dir)))
        .collect();
    nar::sort(&mut nodes);

    let (facts, nar) = extract(job, &members, &nodes)?;
    tree.finish(job.into)?;
    Ok(Content { tree, facts, nar })
}

/// Reads the central directory, checks it against limits and local headers, and claims every
/// entry.
fn plan<'a>(
    job: &Unpack<'_>,
    file: &'a File,
    archive: &ZipSliceArchive<&[u8]>,
) -> Result<(Tree, Vec<Member<'a>>), Fault> {
    let len = archive.get_ref().len() as u64;
    job.limits.entries(archive.entries_hint())?;
    if archive.end_offset() != len {
        return Err(Fault::Structure("bytes follow the end of the archive"));
    }
    let mut tree = Tree::default();
    let mut members = Vec::new();
    let mut ranges = Vec::new();
    let mut total = 0u64;
    let mut count = 0u64;
    for header in archive.entries() {
        let header = header.map_err(Fault::Zip)?;
        count += 1;
        job.limits.entries(count)?;
        let name = header.file_path();
        let path = RelPath::from_bytes(name.as_ref())?;
        if header.flags().is_encrypted() {
            return Err(Fault::Encrypted(path));
        }
        let entry = archive.get_entry(header.wayfinder()).map_err(Fault::Zip)?;
        let local = entry.local_header();
        let differs = |what| Fault::Headers { path: path.clone(), what };
        if local.file_path().as_ref() != name.as_ref() {
            return Err(differs("name"));
        }
        if local.compression_method() != header.compression_method() {
            return Err(differs("compression method"));
        }
        let claimed = entry.claim_verifier();
        // With a data descriptor the local header may leave these out.
        if let Some(descriptor) = entry.data_descriptor().map_err(Fault::Zip)? {
            if descriptor.crc32() != claimed.crc
                || descriptor.uncompressed_size() != claimed.uncompressed_size
            {
                return Err(differs("checksum or size"));
            }
        } else if local.crc32() != claimed.crc
            || local.uncompressed_size_hint() != claimed.uncompressed_size
            || local.compressed_size_hint() != header.compressed_size_hint()
        {
            return Err(differs("checksum or size"));
        }
        let (start, end) = entry.compressed_data_range();
        ranges.push((header.local_header_offset(), end, path.clone()));

        // Of systems without modes nothing is taken. (rawzip's own reading of the type gives
        // a directory without mode bits the type of a socket.)
        let mode = match header.version_made_by().creator_system() {
            CreatorSystem::UNIX | CreatorSystem::MACOS => header.external_attributes() >> 16,
            _ => 0,
        };
        match mode & 0o170000 {
            0o120000 => return Err(Fault::WheelLink(path)),
            0 | 0o040000 | 0o100000 if header.is_dir() => {
                if claimed.uncompressed_size != 0 {
                    let kind = "directory with content".to_owned();
                    return Err(Fault::Special { path: path.to_string(), kind });
                }
                tree.claim(&path, Claim::Dir)?;
                continue;
            }
            0 | 0o100000 => {}
            kind => {
                let kind = super::special_name(kind);
                return Err(Fault::Special { path: path.to_string(), kind });
            }
        }
        total = total.saturating_add(claimed.uncompressed_size);
        job.limits.bytes(total, len)?;
        let executable = mode & 0o111 != 0 || is_data_script(&path);
        if tree.claim(&path, Claim::File { executable })? == Claimed::Again {
            return Err(Fault::Duplicate(path));
        }
        let method = header.compression_method();
        members.push(Member {
            path,
            executable,
            method,
            packed: Section::new(file, start, end - start),
            size: claimed.uncompressed_size,
            crc: claimed.crc,
        });
    }
    if count != archive.entries_hint() {
        return Err(Fault::Structure("the number of entries is not the one declared"));
    }
    ranges.sort();
    if ranges.first().is_some_and(|(start, ..)| *start != 0) {
        return Err(Fault::Structure("bytes precede the first entry"));
    }
    for pair in ranges.windows(2) {
        if pair[0].1 > pair[1].0 {
            return Err(Fault::Overlap(pair[1].2.clone()));
        }
    }
    if let Some((_, end, path)) = ranges.last()
        && *end > archive.directory_offset()
    {
        return Err(Fault::Overlap(path.clone()));
    }
    Ok((tree, members))
}

/// Whether a path is below `<name>.data/scripts/`. Installers make those executable (binary
/// distribution format, "Spreading the wheel"), so the store holds them that way.
fn is_data_script(path: &RelPath) -> bool {
    let mut parts = path.components();
    parts.next().is_some_and(|p| p.ends_with(".data"))
        && parts.next() == Some("scripts")
        && parts.next().is_some()
}

/// Refuses two entries whose paths differ only in case: on some file systems one would
/// replace the other. (Directories may differ so; they merge.)
fn refuse_case_twins(tree: &Tree) -> Result<(), Fault> {
    let mut seen: BTreeMap<String, (&RelPath, bool)> = BTreeMap::new();
    for (path, claim) in tree.iter() {
        let dir = *claim == Claim::Dir;
        if let Some((other, other_dir)) = seen.insert(path.as_str().to_lowercase(), (path, dir))
            && !(dir && other_dir)
        {
            return Err(Fault::Case(other.clone(), path.clone()));
        }
    }
    Ok(())
}

/// How far the members are.
struct Board {
    written: Mutex<Vec<Written>>,
    news: Condvar,
    stop: AtomicBool,
}

#[derive(Clone, Copy, PartialEq)]
enum Written {
    Bytes(u64),
    All,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Vec<Written>> {
        // The guarded data is a plain list: as good after a panic as before.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn post(&self, index: usize, written: Written) {
        self.lock()[index] = written;
        self.news.notify_all();
    }
    fn abort(&self) {
        self.stop.store(true, Ordering::Release);
        // Taken so that a waiter is either before its check or already waiting.
        drop(self.lock());
        self.news.notify_all();
    }
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
    /// Waits until a member has more than `have` bytes.
    fn wait(&self, index: usize, have: u64) -> io::Result<nar::State> {
        let mut written = self.lock();
        loop {
            match written[index] {
                Written::All => return Ok(nar::State::Complete),
                Written::Bytes(n) if n > have => return Ok(nar::State::Growing),
                Written::Bytes(_) if self.stopped() => return Err(io::Error::other("given up")),
                Written::Bytes(_) => {}
            }
            written = self.news.wait(written).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Aborts when dropped before it is disarmed: a worker that panics must not leave others waiting.
struct AbortOnDrop<'a>(&'a Board, bool);

impl Drop for AbortOnDrop<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.abort();
        }
    }
}

type Extracted = (BTreeMap<RelPath, FileFacts>, (Sha256, u64));

/// Inflates all members and hashes the tree.
fn extract(
    job: &Unpack<'_>,
    members: &[Member<'_>],
    nodes: &[(RelPath, nar::Node)],
) -> Result<Extracted, Fault> {
    let total: u64 = members.iter().map(|m| m.size).sum();
    let workers = (total / PER_WORKER + 1).min(super::parallelism() as u64) as usize;
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&i| (Reverse(members[i].size), i));
    let index: BTreeMap<&RelPath, usize> =
        members.iter().enumerate().map(|(i, m)| (&m.path, i)).collect();
    let board = Board {
        written: Mutex::new(vec![Written::Bytes(0); members.len()]),
        news: Condvar::new(),
        stop: AtomicBool::new(false),
    };
    let next = AtomicUsize::new(0);

    let work = || -> Result<Vec<(usize, FileFacts)>, (usize, Fault)> {
        let mut guard = AbortOnDrop(&board, true);
        let mut inflater = Inflater::default();
        let mut facts = Vec::new();
        while !board.stopped() {
            let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let _permit = super::Permit::take();
            let member = &members[i];
            let weight = member.size.saturating_add(member.packed.len());
            let fact = if weight <= SMALL {
                inflater.write(job, member)
            } else if weight <= job.limits.in_memory.min(super::ROOM) {
                let _room = super::Room::take(weight);
                Inflater::default().write(job, member)
            } else {
                write_large(job, member, &|n| board.post(i, Written::Bytes(n)))
            };
            facts.push((i, fact.map_err(|e| (i, e))?));
            board.post(i, Written::All);
        }
        guard.1 = false;
        Ok(facts)
    };
    let hash = || {
        nar::hash(job.into, nodes, |path, have| match index.get(path) {
            Some(&i) => board.wait(i, have),
            None => Ok(nar::State::Complete),
        })
    };

    // Threads of their own rather than a shared pool: while a pool's worker waits it takes up
    // other work of the pool, such as the next package, while it holds this package's lock.
    let (results, nar) = if workers <= 1 {
        (vec![work()], hash())
    } else {
        std::thread::scope(|scope| {
            let hashing = scope.spawn(hash);
            let working: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
            let mut results = vec![work()];
            results.extend(working.into_iter().map(|w| w.join().unwrap_or_else(resume)));
            (results, hashing.join().unwrap_or_else(resume))
        })
    };

    let mut facts = BTreeMap::new();
    let mut worst: Option<(usize, Fault)> = None;
    for result in results {
        match result {
            Ok(list) => facts.extend(list.into_iter().map(|(i, f)| (members[i].path.clone(), f))),
            Err(e) if worst.as_ref().is_none_or(|w| e.0 < w.0) => worst = Some(e),
            Err(_) => {}
        }
    }
    if let Some((_, fault)) = worst {
        return Err(fault);
    }
    let nar = nar.map_err(FsError::at("read back", job.into))?;
    Ok((facts, nar))
}

fn resume<T>(panic: Box<dyn std::any::Any + Send>) -> T {
    std::panic::resume_unwind(panic)
}

/// Inflates members in one go, keeping its buffers from one to the next.
#[derive(Default)]
struct Inflater {
    decoder: libdeflater::Decompressor,
    packed: Vec<u8>,
    content: Vec<u8>,
}

impl Inflater {
    fn write(&mut self, job: &Unpack<'_>, member: &Member<'_>) -> Result<FileFacts, Fault> {
        member.packed.read_into(&mut self.packed).map_err(FsError::at("read", job.archive))?;
        let content = match member.method {
            CompressionMethod::STORE => &self.packed,
            CompressionMethod::DEFLATE => {
                grow(&mut self.content, member.size as usize);
                match self.decoder.deflate_decompress(&self.packed, &mut self.content) {
                    Ok(n) => self.content.truncate(n),
                    Err(DecompressionError::InsufficientSpace) => {
                        return Err(member.length(member.size + 1));
                    }
                    Err(e @ DecompressionError::BadData) => {
                        return Err(member.damaged(io::Error::other(e)));
                    }
                }
                &self.content
            }
            _ => return write_large(job, member, &|_| {}),
        };
        if content.len() as u64 != member.size {
            return Err(member.length(content.len() as u64));
        }
        member.check_crc(libdeflater::crc32(content))?;
        let facts = tree::write_bytes(member.path.under(job.into), member.executable, content)?;
        job.progress.event(Event::Bytes { item: job.file, delta: member.packed.len() });
        Ok(facts)
    }
}

/// Gives a buffer a length, whatever is in it. A new one comes zeroed from the system, page by
/// page as it is filled.
fn grow(buf: &mut Vec<u8>, len: usize) {
    if buf.capacity() < len {
        *buf = vec![0; len];
    } else {
        buf.resize(len, 0);
    }
}

/// Checks a large member while it is written, and says how far it is.
struct Checked<'a> {
    member: &'a Member<'a>,
    crc: libdeflater::Crc,
    seen: u64,
    wrote: &'a dyn Fn(u64),
}

impl tree::Watch for Checked<'_> {
    fn before(&mut self, chunk: &[u8]) -> Result<(), Fault> {
        self.crc.update(chunk);
        self.seen += chunk.len() as u64;
        // Stop at the first byte too many, whatever the stream still holds.
        if self.seen > self.member.size { Err(self.member.length(self.seen)) } else { Ok(()) }
    }
    fn after(&mut self, written: u64) {
        (self.wrote)(written);
    }
}

/// Inflates a member as a stream.
fn write_large(
    job: &Unpack<'_>,
    member: &Member<'_>,
    wrote: &dyn Fn(u64),
) -> Result<FileFacts, Fault> {
    let packed = member.packed.stream(job);
    let damaged = |e| member.damaged(e);
    let from: Box<dyn Read + Send + '_> = match member.method {
        CompressionMethod::STORE => Box::new(packed),
        CompressionMethod::DEFLATE => Box::new(flate2::bufread::DeflateDecoder::new(packed)),
        CompressionMethod::ZSTD => {
            Box::new(zstd::stream::read::Decoder::with_buffer(packed).map_err(damaged)?)
        }
        other => {
            let method = other.to_string();
            return Err(Fault::Method { path: member.path.clone(), method });
        }
    };
    let mut watch = Checked { member, crc: libdeflater::Crc::new(), seen: 0, wrote };
    let to = member.path.under(job.into);
    let facts = std::thread::scope(|scope| {
        let mut from = Ahead::start(scope, from);
        tree::write_stream(to, member.executable, &mut from, &mut watch, damaged)
    })?;
    if facts.size != member.size {
        return Err(member.length(facts.size));
    }
    member.check_crc(watch.crc.sum())?;
    Ok(facts)
}
