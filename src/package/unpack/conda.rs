//! Conda packages: `.tar.bz2`, and `.conda`, a zip file of zstd-compressed tars (CEP: "conda
//! package format v2": `metadata.json`, `info-<name>.tar.zst`, `pkg-<name>.tar.zst`).
//!
//! A tar is a stream, so one thread decodes it. Files that fit in memory are handed to workers
//! that hash and write them; larger ones are written by the decoder itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use rawzip::{CompressionMethod, ZipArchive};
use tar::EntryType;

use super::section::Section;
use super::tree::{self, Claim, Claimed, FileFacts, Tree};
use super::{Content, Unpack};
use crate::fs;
use crate::package::error::Fault;
use crate::package::nar;
use crate::relpath::{RelPath, RelPathError};

/// Files up to this many bytes are handed to a worker.
const IN_MEMORY: u64 = 4 << 20;

/// Unpacks a `.tar.bz2`.
pub(super) fn unpack_tar_bz2(job: &Unpack<'_>, file: &File) -> Result<Content, Fault> {
    let len = file.metadata().map_err(fs::FsError::at("look at", job.archive))?.len();
    let from = bzip2::bufread::MultiBzDecoder::new(Section::new(file, 0, len).stream(job));
    unpack_tars(job, len, vec![("the archive", Box::new(from))])
}

/// Unpacks a `.conda`.
///
/// `bytes` is `file`, mapped; only the directory is read through it.
pub(super) fn unpack_conda(job: &Unpack<'_>, file: &File, bytes: &[u8]) -> Result<Content, Fault> {
    let archive = ZipArchive::from_slice(bytes).map_err(Fault::Zip)?;
    let mut info = None;
    let mut pkg = None;
    let mut metadata = None;
    for header in archive.entries() {
        let header = header.map_err(Fault::Zip)?;
        let path = RelPath::from_bytes(header.file_path().as_ref())?;
        let name = path.as_str();
        let slot = if name == "metadata.json" {
            &mut metadata
        } else if name.starts_with("info-") && name.ends_with(".tar.zst") {
            &mut info
        } else if name.starts_with("pkg-") && name.ends_with(".tar.zst") {
            &mut pkg
        } else {
            // Parts that later versions of the format may add are not ours to judge.
            continue;
        };
        if header.flags().is_encrypted() {
            return Err(Fault::Encrypted(path));
        }
        if header.compression_method() != CompressionMethod::STORE {
            let method = header.compression_method().to_string();
            return Err(Fault::Method { path, method });
        }
        let entry = archive.get_entry(header.wayfinder()).map_err(Fault::Zip)?;
        if entry.local_header().file_path().as_ref() != name.as_bytes() {
            return Err(Fault::Headers { path, what: "name" });
        }
        let (start, end) = entry.compressed_data_range();
        let data = Section::new(file, start, end - start);
        let claimed = entry.claim_verifier();
        if claimed.uncompressed_size != data.len() {
            let found = data.len();
            return Err(Fault::Length { path, expected: claimed.uncompressed_size, found });
        }
        let found = data.crc32(job).map_err(fs::FsError::at("read", job.archive))?;
        if found != claimed.crc {
            return Err(Fault::Crc { path, expected: claimed.crc, found });
        }
        if slot.replace((path.clone(), data)).is_some() {
            return Err(Fault::CondaLayout(format!("it has two parts like `{path}`")));
        }
    }
    if let Some((path, data)) = metadata {
        check_format_version(job, &path, data)?;
    }
    let Some(info) = info else {
        return Err(Fault::CondaLayout("it has no part `info-….tar.zst`".to_owned()));
    };
    let mut streams: Vec<(&str, Box<dyn Read + '_>)> = Vec::new();
    // A package that is nothing but metadata may leave the other part out.
    for (path, data) in [Some(&info), pkg.as_ref()].into_iter().flatten() {
        let from = zstd::stream::read::Decoder::with_buffer(data.stream(job))
            .map_err(|source| Fault::Damaged { what: format!("part `{path}`"), source })?;
        streams.push((path.as_str(), Box::new(from)));
    }
    unpack_tars(job, bytes.len() as u64, streams)
}

fn check_format_version(job: &Unpack<'_>, path: &RelPath, data: Section<'_>) -> Result<(), Fault> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        conda_pkg_format_version: u64,
    }
    let bad = |why: String| Fault::Metadata { path: path.to_string(), why };
    if data.len() > 1 << 20 {
        return Err(bad("it is far too long".to_owned()));
    }
    let mut text = Vec::new();
    data.read_into(&mut text).map_err(fs::FsError::at("read", job.archive))?;
    let metadata: Metadata = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
    if metadata.conda_pkg_format_version != 2 {
        return Err(bad(format!(
            "format version {} is not supported, only 2",
            metadata.conda_pkg_format_version
        )));
    }
    Ok(())
}

/// A file on its way to a worker.
struct Parcel {
    path: RelPath,
    executable: bool,
    bytes: Vec<u8>,
}

/// What workers found.
#[derive(Default)]
struct Desk {
    facts: BTreeMap<RelPath, FileFacts>,
    fault: Option<Fault>,
}

fn unpack_tars(
    job: &Unpack<'_>,
    packed: u64,
    streams: Vec<(&str, Box<dyn Read + '_>)>,
) -> Result<Content, Fault> {
    let _permit = super::Permit::take();
    let desk = Mutex::new(Desk::default());
    let stop = AtomicBool::new(false);
    // The capacity bounds what is held in memory: a few files of at most `IN_MEMORY`.
    let helpers = super::parallelism().clamp(1, 4);
    let (send, receive) = mpsc::sync_channel::<Parcel>(helpers);
    let receive = Mutex::new(receive);
    let lock = || desk.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        loop {
            let parcel = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Parcel { path, executable, bytes }) = parcel else { return };
            if stop.load(Ordering::Acquire) {
                continue;
            }
            match tree::write_bytes(path.under(job.into), executable, &bytes) {
                Ok(facts) => {
                    lock().facts.insert(path, facts);
                }
                Err(fault) => {
                    lock().fault.get_or_insert(fault);
                    stop.store(true, Ordering::Release);
                }
            }
        }
    };
    let mut reader = Reader {
        job,
        packed,
        tree: Tree::default(),
        made: BTreeSet::new(),
        facts: BTreeMap::new(),
        again: Vec::new(),
        content: 0,
        send: Some(send),
        stop: &stop,
    };
    let read = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..helpers).map(|_| scope.spawn(work)).collect();
        let read = streams.into_iter().try_for_each(|(what, from)| reader.tar(what, from));
        // Closing the channel is what ends the workers.
        reader.send = None;
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
        read
    });
    let Desk { mut facts, fault } = desk.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(fault) = fault {
        return Err(fault);
    }
    read?;
    let Reader { tree, facts: own, again, .. } = reader;
    facts.extend(own);
    for (path, executable, copy) in again {
        let same = tree.get(path.as_str()) == Some(&Claim::File { executable })
            && facts
                .get(path.as_str())
                .is_some_and(|f| f.size == copy.size && f.sha256 == copy.sha256);
        if !same {
            return Err(Fault::Duplicate(path));
        }
    }
    tree.check_links(job.policy.allow_external_links)?;
    tree.finish(job.into)?;
    let nar = nar_of(job.into, &tree, &facts)?;
    Ok(Content { tree, facts, nar })
}

fn nar_of(
    root: &Path,
    tree: &Tree,
    facts: &BTreeMap<RelPath, FileFacts>,
) -> Result<(crate::hash::Sha256, u64), Fault> {
    let mut nodes = Vec::new();
    for (path, claim) in tree.iter() {
        let file = |at: &RelPath, executable| {
            let size = facts.get(at).map_or(0, |f| f.size);
            nar::Node::File { size, executable }
        };
        let node = match claim {
            Claim::Dir => nar::Node::Dir,
            Claim::Symlink(target) => nar::Node::Symlink(target.clone()),
            Claim::File { executable } => file(path, *executable),
            Claim::HardLink(to) => {
                let executable = tree.get(to.as_str()) == Some(&Claim::File { executable: true });
                file(to, executable)
            }
        };
        nodes.push((path.clone(), node));
    }
    nar::sort(&mut nodes);
    Ok(nar::hash(root, &nodes, |_, _| Ok(nar::State::Complete))
        .map_err(fs::FsError::at("read back", root))?)
}

/// Reads the tars of one package.
struct Reader<'a> {
    job: &'a Unpack<'a>,
    packed: u64,
    tree: Tree,
    made: BTreeSet<RelPath>,
    facts: BTreeMap<RelPath, FileFacts>,
    /// Second entries of a path, which must equal the first: path, executable, facts.
    again: Vec<(RelPath, bool, FileFacts)>,
    /// Bytes of files so far.
    content: u64,
    send: Option<mpsc::SyncSender<Parcel>>,
    stop: &'a AtomicBool,
}

impl Reader<'_> {
    fn tar(&mut self, what: &str, from: Box<dyn Read + '_>) -> Result<(), Fault> {
        let (limit, _) = self.job.limits.most(self.packed);
        // Headers and padding come on top of content; long-name headers are read into memory.
        let bounded =
            Bounded { inner: from, left: limit.saturating_mul(2).saturating_add(1 << 20) };
        let damaged = |source| Fault::Damaged { what: what.to_owned(), source };
        let mut archive = tar::Archive::new(bounded);
        for entry in archive.entries().map_err(damaged)? {
            let mut entry = entry.map_err(damaged)?;
            if self.stop.load(Ordering::Acquire) {
                // The worker that set it has the reason.
                return Ok(());
            }
            self.entry(&mut entry, what)?;
            self.job.limits.entries(self.tree.len() as u64)?;
        }
        // To its end, where the decoder checks its checksum.
        io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(damaged)?;
        Ok(())
    }

    fn entry<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, what: &str) -> Result<(), Fault> {
        let damaged = |source| Fault::Damaged { what: what.to_owned(), source };
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            return Ok(());
        }
        let raw = entry.path_bytes().into_owned();
        let is_dir = kind.is_dir() || (kind.is_file() && raw.ends_with(b"/"));
        let path = match RelPath::from_bytes(&raw) {
            // The root of the tree, as `tar -C dir .` writes it.
            Err(RelPathError::Empty) if is_dir => return Ok(()),
            other => other?,
        };
        let special = |kind: &str| Fault::Special { path: path.to_string(), kind: kind.to_owned() };
        match kind {
            _ if is_dir => {
                self.tree.claim(&path, Claim::Dir)?;
                self.make_dir(&path)
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                if let Some(extensions) = entry.pax_extensions().map_err(damaged)? {
                    for extension in extensions {
                        let extension = extension.map_err(damaged)?;
                        if extension.key_bytes().starts_with(b"GNU.sparse.") {
                            return Err(special("sparse file in a form that is not supported"));
                        }
                    }
                }
                let executable = entry.header().mode().map_err(damaged)? & 0o111 != 0;
                self.file(path, executable, entry, what)
            }
            EntryType::Symlink => {
                let target = link_text(entry).ok_or(Fault::LinkText { path: path.clone() })?;
                let claim = Claim::Symlink(target);
                if self.tree.claim(&path, claim.clone())? == Claimed::Again
                    && self.tree.get(path.as_str()) != Some(&claim)
                {
                    return Err(Fault::Duplicate(path));
                }
                self.make_parent(&path)
            }
            EntryType::Link => {
                let text = link_text(entry).unwrap_or_default();
                let target = RelPath::new(&text)
                    .ok()
                    .and_then(|to| match self.tree.get(to.as_str())? {
                        Claim::File { .. } => Some(to),
                        Claim::HardLink(first) => Some(first.clone()),
                        Claim::Dir | Claim::Symlink(_) => None,
                    })
                    .ok_or(Fault::HardLink { path: path.clone(), target: text })?;
                let claim = Claim::HardLink(target.clone());
                if path != target
                    && self.tree.claim(&path, claim.clone())? == Claimed::Again
                    && self.tree.get(path.as_str()) != Some(&claim)
                {
                    return Err(Fault::Duplicate(path));
                }
                self.make_parent(&path)
            }
            EntryType::Block => Err(special("block device")),
            EntryType::Char => Err(special("character device")),
            EntryType::Fifo => Err(special("named pipe")),
            other => Err(special(&format!("thing of unknown type {:?}", other.as_byte() as char))),
        }
    }

    fn file<R: Read>(
        &mut self,
        path: RelPath,
        executable: bool,
        entry: &mut tar::Entry<'_, R>,
        what: &str,
    ) -> Result<(), Fault> {
        let damaged = |source| Fault::Damaged { what: format!("entry `{path}` of {what}"), source };
        let size = entry.size();
        self.content = self.content.saturating_add(size);
        self.job.limits.bytes(self.content, self.packed)?;
        let again = self.tree.claim(&path, Claim::File { executable })? == Claimed::Again;
        if again {
            let (sha256, found) = crate::hash::Sha256::of_reader(entry).map_err(damaged)?;
            self.again.push((path, executable, FileFacts { size: found, sha256, elf: None }));
            return Ok(());
        }
        self.make_parent(&path)?;
        let short = |found| Fault::Length { path: path.clone(), expected: size, found };
        if size <= IN_MEMORY {
            let mut bytes = Vec::with_capacity(size as usize);
            entry.read_to_end(&mut bytes).map_err(damaged)?;
            if bytes.len() as u64 != size {
                return Err(short(bytes.len() as u64));
            }
            if let Some(send) = &self.send {
                // It fails only when every worker is gone, and then one of them panicked.
                let _ = send.send(Parcel { path, executable, bytes });
            }
            return Ok(());
        }
        let to = path.under(self.job.into);
        let facts = tree::write_stream(to, executable, entry, &mut tree::Unwatched, damaged)?;
        if facts.size != size {
            return Err(short(facts.size));
        }
        self.facts.insert(path, facts);
        Ok(())
    }

    fn make_parent(&mut self, path: &RelPath) -> Result<(), Fault> {
        match path.parent() {
            Some(dir) => self.make_dir(&dir),
            None => Ok(()),
        }
    }

    fn make_dir(&mut self, dir: &RelPath) -> Result<(), Fault> {
        if self.made.contains(dir) {
            return Ok(());
        }
        self.make_parent(dir)?;
        fs::create_dir(&dir.under(self.job.into))?;
        self.made.insert(dir.clone());
        Ok(())
    }
}

fn link_text<R: Read>(entry: &tar::Entry<'_, R>) -> Option<String> {
    String::from_utf8(entry.link_name_bytes()?.into_owned()).ok()
}

/// A reader that fails after a number of bytes.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !buf.is_empty() {
            return Err(io::Error::other("it is far larger than its size makes plausible"));
        }
        let most = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.inner.read(&mut buf[..most])?;
        self.left -= n as u64;
        Ok(n)
    }
}
