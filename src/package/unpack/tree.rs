//! The tree an archive describes, checked entry by entry, and the writing of its files.
//!
//! Safety rests on three things. Paths are [`RelPath`]s from the moment they are read. Every
//! entry is claimed in [`Tree`] first, which refuses whatever lies below a link or a file. And
//! links are made last, after all files, so that nothing can be written through one.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::ahead::fill;
use crate::elf;
use crate::fs;
use crate::hash::{Hasher, Sha256};
use crate::package::error::Fault;
use crate::relpath::{MAX_LEN, RelPath};

/// How much of a file is read, hashed and written at once, in bytes.
const CHUNK: usize = 256 << 10;

/// What is known of a file that was written.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// Bytes.
    pub size: u64,
    /// Digest of the content.
    pub sha256: Sha256,
    /// Dynamic section, of an ELF file.
    pub elf: Option<elf::Dynamic>,
}

/// What an archive has at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A directory, given by itself or as the parent of something.
    Dir,
    /// A regular file.
    File {
        /// Any executable bit.
        executable: bool,
    },
    /// A hard link to an earlier regular file.
    HardLink(RelPath),
    /// A symbolic link with its text.
    Symlink(String),
}

/// What became of a claim.
#[derive(Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The path was free.
    New,
    /// There is an entry of the same path already; for directories that means nothing.
    Again,
}

/// The entries of an archive as far as they were read.
#[derive(Debug, Default)]
pub struct Tree {
    claims: BTreeMap<RelPath, Claim>,
}

impl Tree {
    /// Registers an entry and the directories above it.
    pub fn claim(&mut self, path: &RelPath, claim: Claim) -> Result<Claimed, Fault> {
        let mut up = path.parent();
        let mut missing = Vec::new();
        while let Some(dir) = up {
            match self.claims.get(&dir) {
                // Whatever is in the map has its ancestors in it.
                Some(Claim::Dir) => break,
                Some(Claim::File { .. } | Claim::HardLink(_)) => {
                    return Err(Fault::NotADirectory { path: dir });
                }
                Some(Claim::Symlink(_)) => {
                    return Err(Fault::ThroughLink { path: path.clone(), link: dir });
                }
                None => {
                    up = dir.parent();
                    missing.push(dir);
                }
            }
        }
        for dir in missing {
            self.claims.insert(dir, Claim::Dir);
        }
        match (self.claims.get(path), &claim) {
            (None, _) => {
                self.claims.insert(path.clone(), claim);
                Ok(Claimed::New)
            }
            (Some(Claim::Dir), Claim::Dir) => Ok(Claimed::Again),
            (Some(Claim::Dir), _) | (Some(_), Claim::Dir) => {
                Err(Fault::NotADirectory { path: path.clone() })
            }
            (Some(_), _) => Ok(Claimed::Again),
        }
    }

    /// What was claimed for a path.
    pub fn get(&self, path: &str) -> Option<&Claim> {
        self.claims.get(path)
    }

    /// All claims, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = (&RelPath, &Claim)> {
        self.claims.iter()
    }

    /// How many entries there are, implied directories included.
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Directories that nothing lies in.
    pub fn empty_dirs(&self) -> Vec<RelPath> {
        // A child of `a` stands behind `a`, but `a-b` may stand between: so look it up by range.
        let below = |dir: &RelPath| {
            let from = format!("{dir}/");
            self.claims
                .range::<str, _>((
                    std::ops::Bound::Included(from.as_str()),
                    std::ops::Bound::Unbounded,
                ))
                .next()
                .is_some_and(|(p, _)| p.as_str().starts_with(&from))
        };
        self.iter()
            .filter(|(path, claim)| **claim == Claim::Dir && !below(path))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Refuses links that lead out of the tree, unless that is `allowed`.
    ///
    /// A link is followed as the kernel would follow it, through other links of the archive: a
    /// text that looks harmless may leave the tree from where another link leads. What leads
    /// nowhere within the tree (as a conda package's link to a file of another package does),
    /// or in a circle, stays inside and is fine.
    pub fn check_links(&self, allowed: bool) -> Result<(), Fault> {
        for (path, claim) in &self.claims {
            let Claim::Symlink(target) = claim else { continue };
            if target.is_empty() || target.len() > MAX_LEN || target.chars().any(|c| c.is_control())
            {
                return Err(Fault::LinkText { path: path.clone() });
            }
            if !allowed && self.leaves(path, target) {
                return Err(Fault::LinkLeaves { path: path.clone(), target: target.clone() });
            }
        }
        Ok(())
    }

    fn leaves(&self, path: &RelPath, target: &str) -> bool {
        // Components still to walk, last first, and the directory reached so far.
        let mut todo: Vec<&str> = target.split('/').rev().collect();
        let mut at: Vec<&str> = path.components().collect();
        at.pop();
        if target.starts_with('/') {
            return true;
        }
        // The kernel gives up after 40 links; a circle is data like any other.
        let mut links = 0;
        while let Some(part) = todo.pop() {
            match part {
                "" | "." => {}
                ".." => {
                    if at.pop().is_none() {
                        return true;
                    }
                }
                name => {
                    at.push(name);
                    if let Some(Claim::Symlink(next)) = self.claims.get(at.join("/").as_str()) {
                        links += 1;
                        if links > 40 {
                            return false;
                        }
                        if next.starts_with('/') {
                            return true;
                        }
                        at.pop();
                        todo.extend(next.split('/').rev());
                    }
                }
            }
        }
        false
    }

    /// Makes all directories below `root`, which is there.
    pub fn make_dirs(&self, root: &Path) -> Result<(), Fault> {
        // Sorted by path, a parent comes before what is in it.
        for (path, claim) in &self.claims {
            if *claim == Claim::Dir {
                fs::create_dir(&path.under(root))?;
            }
        }
        Ok(())
    }

    /// Makes hard links and symbolic links, then gives directories their mode and times. The
    /// root itself stays writable, as a directory must be to be renamed into another one.
    pub fn finish(&self, root: &Path) -> Result<(), Fault> {
        for (path, claim) in &self.claims {
            if let Claim::HardLink(target) = claim {
                fs::place(&target.under(root), &path.under(root))?;
            }
        }
        for (path, claim) in &self.claims {
            if let Claim::Symlink(target) = claim {
                let at = path.under(root);
                fs::symlink(target, &at)?;
                fs::set_times(&at)?;
            }
        }
        for (path, claim) in self.claims.iter().rev() {
            if *claim == Claim::Dir {
                let at = path.under(root);
                fs::set_mode(&at, 0o555)?;
                fs::set_times(&at)?;
            }
        }
        fs::set_times(root)?;
        Ok(())
    }
}

/// Mode of a file in the store.
fn mode(executable: bool) -> u32 {
    if executable { 0o555 } else { 0o444 }
}

/// Dynamic facts of a whole ELF file. A damaged one has none: that is for the loader to
/// complain about, not for whoever unpacks it.
fn elf_facts(bytes: &[u8]) -> Option<elf::Dynamic> {
    if !bytes.starts_with(b"\x7fELF") {
        return None;
    }
    elf::read(bytes).ok().flatten()
}

/// Writes a small file from memory.
pub fn write_bytes(path: PathBuf, executable: bool, bytes: &[u8]) -> Result<FileFacts, Fault> {
    fs::write_new(&path, bytes, mode(executable))?;
    Ok(FileFacts { size: bytes.len() as u64, sha256: Sha256::of(bytes), elf: elf_facts(bytes) })
}

/// Looks on while a file is written.
pub trait Watch {
    /// A chunk is about to be written; may refuse it.
    fn before(&mut self, chunk: &[u8]) -> Result<(), Fault>;
    /// The file has this many bytes now.
    fn after(&mut self, written: u64);
}

/// Nobody looks on.
pub struct Unwatched;

impl Watch for Unwatched {
    fn before(&mut self, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
    fn after(&mut self, _: u64) {}
}

/// Writes a file from a stream under the eyes of `watch`. Memory use is bounded by [`CHUNK`].
/// An error of `from` is told apart from one of the disk.
pub fn write_stream(
    path: PathBuf,
    executable: bool,
    from: &mut dyn Read,
    watch: &mut dyn Watch,
    damaged: impl Fn(io::Error) -> Fault,
) -> Result<FileFacts, Fault> {
    let mut file = fs::create_new(&path)?;
    let mut hasher = Hasher::new(io::sink());
    let mut buf = vec![0; CHUNK];
    let mut is_elf = None;
    loop {
        let n = fill(from, &mut buf).map_err(&damaged)?;
        if n == 0 {
            break;
        }
        let chunk = &buf[..n];
        is_elf.get_or_insert_with(|| chunk.starts_with(b"\x7fELF"));
        watch.before(chunk)?;
        hasher.write_all(chunk).map_err(&damaged)?;
        file.write_all(chunk).map_err(fs::FsError::at("write", &path))?;
        watch.after(hasher.len());
    }
    fs::finish_file(&file, &path, mode(executable))?;
    let size = hasher.len();
    // The pages just written are in memory; of these the reader of dynamic sections touches few.
    let elf = match is_elf {
        Some(true) => elf_facts(&fs::map(&file, &path)?),
        _ => None,
    };
    Ok(FileFacts { size, sha256: hasher.finish().0, elf })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(s: &str) -> RelPath {
        RelPath::new(s).unwrap()
    }
    fn file() -> Claim {
        Claim::File { executable: false }
    }
    fn link(s: &str) -> Claim {
        Claim::Symlink(s.to_owned())
    }

    #[test]
    fn nothing_lies_below_a_link_or_a_file() {
        let mut t = Tree::default();
        t.claim(&p("d"), link("/tmp")).unwrap();
        assert!(matches!(t.claim(&p("d/x"), file()), Err(Fault::ThroughLink { .. })));
        assert!(matches!(t.claim(&p("d/e/x"), link("y")), Err(Fault::ThroughLink { .. })));
        t.claim(&p("f"), file()).unwrap();
        assert!(matches!(t.claim(&p("f/x"), Claim::Dir), Err(Fault::NotADirectory { .. })));
        t.claim(&p("a/b"), file()).unwrap();
        assert!(matches!(t.claim(&p("a"), link("b")), Err(Fault::NotADirectory { .. })));
        assert_eq!(t.claim(&p("a"), Claim::Dir).unwrap(), Claimed::Again);
        assert_eq!(t.claim(&p("a/b"), file()).unwrap(), Claimed::Again);
    }

    #[test]
    fn empty_directories_are_found_beside_similar_names() {
        let mut t = Tree::default();
        for d in ["a", "a-b", "c", "c.d/e"] {
            t.claim(&p(d), Claim::Dir).unwrap();
        }
        t.claim(&p("a/x"), file()).unwrap();
        t.claim(&p("a-b.c"), file()).unwrap();
        let empty: Vec<_> = t.empty_dirs().iter().map(|p| p.to_string()).collect();
        assert_eq!(empty, ["a-b", "c", "c.d/e"]);
    }

    #[test]
    fn links_are_followed_as_the_kernel_does() {
        let check = |links: &[(&str, &str)]| {
            let mut t = Tree::default();
            t.claim(&p("sub/deep/file"), file()).unwrap();
            for (path, target) in links {
                t.claim(&p(path), link(target)).unwrap();
            }
            t.check_links(false)
        };
        for inside in [
            &[("l", "sub/deep/file")][..],
            &[("l", "nowhere/at/all")],
            &[("l", "l")],
            &[("a", "b"), ("b", "a/x/../..")],
            &[("sub/l", "../other")],
            &[("sub/l", "..")],
            &[("sub/deep/l", "../../x"), ("x", "sub")],
            &[("l", "sub//deep/./file")],
        ] {
            check(inside).unwrap_or_else(|e| panic!("{inside:?}: {e}"));
        }
        for outside in [
            &[("l", "/usr/lib/libcuda.so")][..],
            &[("l", "..")],
            &[("l", "../x")],
            &[("lib/x", "../../../../.bashrc")],
            &[("l", "sub/../..")],
            // Harmless as text: `sub/deep/up` leads to the root, `..` from there leaves it.
            &[("sub/deep/up", "../.."), ("l", "sub/deep/up/..")],
            &[("cur", "."), ("par", "cur/..")],
            &[("l", "missing/../../x")],
        ] {
            assert!(
                matches!(check(outside), Err(Fault::LinkLeaves { .. })),
                "{outside:?} must be refused"
            );
        }
        let mut t = Tree::default();
        t.claim(&p("l"), link("/usr")).unwrap();
        t.check_links(true).unwrap();
        t.claim(&p("m"), link("a\nb")).unwrap();
        assert!(matches!(t.check_links(true), Err(Fault::LinkText { .. })));
    }
}
