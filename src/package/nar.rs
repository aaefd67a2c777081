//! Nix archives: the serialization of a tree that its NAR hash is taken over.
//!
//! A NAR holds names, contents, executable bits and link texts in one canonical order, and
//! nothing else: no times, owners or other modes. So its SHA-256 names the content of a tree.
//! `nix hash path` prints the same digest for the same tree. The format is figure 5.2 of
//! Dolstra, *The Purely Functional Software Deployment Model* (2006):
//!
//! ```text
//! nar   = str("nix-archive-1") node
//! node  = str("(") str("type") body str(")")
//! body  = str("regular") [str("executable") str("")] str("contents") str(CONTENT)
//!       | str("symlink") str("target") str(TEXT)
//!       | str("directory") entry*            entries sorted bytewise by name
//! entry = str("entry") str("(") str("name") str(NAME) str("node") node str(")")
//! str(s) = length as u64, little-endian; the bytes; NULs up to a multiple of 8
//! ```

use std::io::{self, Read, Write};
use std::path::Path;

use crate::fs;
use crate::hash::{Hasher, Sha256};
use crate::package::record::{Entry, EntryKind};
use crate::relpath::RelPath;

/// What a NAR says about one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File {
        /// Bytes.
        size: u64,
        /// Whether the owner may execute it.
        executable: bool,
    },
    /// A symbolic link with its text.
    Symlink(String),
    /// A directory; those that hold something need not be listed.
    Dir,
}

impl From<&EntryKind> for Node {
    fn from(kind: &EntryKind) -> Node {
        match kind {
            EntryKind::File { size, executable, .. } => {
                Node::File { size: *size, executable: *executable }
            }
            EntryKind::Symlink { target } => Node::Symlink(target.clone()),
            EntryKind::Dir => Node::Dir,
        }
    }
}

/// Nodes of a record's entries.
pub fn nodes(entries: &[Entry]) -> Vec<(RelPath, Node)> {
    entries.iter().map(|e| (e.path.clone(), Node::from(&e.kind))).collect()
}

/// Sorts as a NAR does: by component, bytewise. (`a-b` stands before `a/b` as text, but the
/// entry `a` before the entry `a-b`.)
pub fn sort(nodes: &mut [(RelPath, Node)]) {
    nodes.sort_by(|(a, _), (b, _)| a.components().cmp(b.components()));
}

/// Writes the NAR of a directory holding `nodes`, which must be sorted by [`sort`].
///
/// `content` writes the content of a file and must write exactly as many bytes as its node says.
pub fn write<W: Write>(
    nodes: &[(RelPath, Node)],
    out: &mut W,
    mut content: impl FnMut(&RelPath, &mut W) -> io::Result<u64>,
) -> io::Result<()> {
    str(out, b"nix-archive-1")?;
    open_dir(out)?;
    // The directories that are open, outermost first, below the root.
    let mut open: Vec<&str> = Vec::new();
    for (path, node) in nodes {
        let parts: Vec<&str> = path.components().collect();
        let dirs = &parts[..parts.len() - 1];
        let shared = open.iter().zip(dirs).take_while(|(a, b)| a == b).count();
        while open.len() > shared {
            open.pop();
            close(out)?;
        }
        for &name in &dirs[shared..] {
            entry(out, name)?;
            open_dir(out)?;
            open.push(name);
        }
        let name = parts[parts.len() - 1];
        entry(out, name)?;
        match node {
            Node::Dir => {
                open_dir(out)?;
                open.push(name);
                continue;
            }
            Node::Symlink(target) => {
                str(out, b"(")?;
                str(out, b"type")?;
                str(out, b"symlink")?;
                str(out, b"target")?;
                str(out, target.as_bytes())?;
            }
            Node::File { size, executable } => {
                str(out, b"(")?;
                str(out, b"type")?;
                str(out, b"regular")?;
                if *executable {
                    str(out, b"executable")?;
                    str(out, b"")?;
                }
                str(out, b"contents")?;
                out.write_all(&size.to_le_bytes())?;
                let wrote = content(path, out)?;
                if wrote != *size {
                    return Err(io::Error::other(format!(
                        "{path} has {wrote} bytes instead of {size}"
                    )));
                }
                pad(out, *size)?;
            }
        }
        close(out)?;
    }
    while open.pop().is_some() {
        close(out)?;
    }
    str(out, b")")
}

fn str<W: Write>(out: &mut W, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&(bytes.len() as u64).to_le_bytes())?;
    out.write_all(bytes)?;
    pad(out, bytes.len() as u64)
}

fn pad<W: Write>(out: &mut W, len: u64) -> io::Result<()> {
    out.write_all(&[0; 7][..(8 - len as usize % 8) % 8])
}

fn open_dir<W: Write>(out: &mut W) -> io::Result<()> {
    str(out, b"(")?;
    str(out, b"type")?;
    str(out, b"directory")
}

fn entry<W: Write>(out: &mut W, name: &str) -> io::Result<()> {
    str(out, b"entry")?;
    str(out, b"(")?;
    str(out, b"name")?;
    str(out, name.as_bytes())?;
    str(out, b"node")
}

/// Ends a node and the entry around it.
fn close<W: Write>(out: &mut W) -> io::Result<()> {
    str(out, b")")?;
    str(out, b")")
}

/// How far a file is that may still be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is more to read now than there was.
    Growing,
    /// All of it is there.
    Complete,
}

/// Hashes the NAR of a directory whose nodes are known: digest and length in bytes.
///
/// `wait(path, have)` is called before a file is opened, and while it is growing: it returns
/// once the file has more than `have` bytes, or is complete, or fails to give up.
pub fn hash(
    root: &Path,
    nodes: &[(RelPath, Node)],
    mut wait: impl FnMut(&RelPath, u64) -> io::Result<State>,
) -> io::Result<(Sha256, u64)> {
    // Names and brackets are a few bytes each; only the buffer makes hashing them cheap.
    let mut out = io::BufWriter::with_capacity(64 << 10, Hasher::new(io::sink()));
    let mut buf = vec![0; 256 << 10];
    write(nodes, &mut out, |path, out| {
        let mut state = wait(path, 0)?;
        let mut file = std::fs::File::open(path.under(root))?;
        let mut len = 0;
        loop {
            match file.read(&mut buf) {
                Ok(0) if state == State::Complete => return Ok(len),
                Ok(0) => state = wait(path, len)?,
                Ok(n) => {
                    out.write_all(&buf[..n])?;
                    len += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    })?;
    let hasher = out.into_inner().map_err(|e| e.into_error())?;
    let len = hasher.len();
    Ok((hasher.finish().0, len))
}

/// Hashes the NAR of a directory on disk, whatever is there.
pub fn hash_dir(root: &Path) -> fs::Result<(Sha256, u64)> {
    let mut nodes = Vec::new();
    scan(root, None, &mut nodes)?;
    sort(&mut nodes);
    hash(root, &nodes, |_, _| Ok(State::Complete)).map_err(fs::FsError::at("hash", root))
}

/// Lists a directory on disk as nodes, empty directories included, in no particular order.
fn scan(dir: &Path, at: Option<&RelPath>, nodes: &mut Vec<(RelPath, Node)>) -> fs::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let bad = |path: &Path, why: String| fs::FsError::at("hash", path)(io::Error::other(why));
    for name in fs::list(dir)? {
        let path = dir.join(&name);
        let text = name.to_str().ok_or_else(|| bad(&path, "the name is not UTF-8".into()))?;
        let rel = match at {
            Some(at) => at.push(text),
            None => RelPath::new(text),
        }
        .map_err(|e| bad(&path, e.to_string()))?;
        let Some(meta) = fs::lstat(&path)? else { continue };
        if meta.is_dir() {
            let before = nodes.len();
            scan(&path, Some(&rel), nodes)?;
            if nodes.len() == before {
                nodes.push((rel, Node::Dir));
            }
        } else if meta.is_symlink() {
            let target = fs::read_link(&path)?;
            let target =
                target.to_str().ok_or_else(|| bad(&path, "the link is not UTF-8".into()))?;
            nodes.push((rel, Node::Symlink(target.to_owned())));
        } else if meta.is_file() {
            let executable = meta.permissions().mode() & 0o100 != 0;
            nodes.push((rel, Node::File { size: meta.len(), executable }));
        } else {
            return Err(bad(&path, "it is neither file, link nor directory".into()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    /// A second, simple NAR writer: recursive, over a tree in memory.
    enum Simple {
        File(Vec<u8>, bool),
        Link(String),
        Dir(BTreeMap<Vec<u8>, Simple>),
    }

    fn simple_str(s: &[u8]) -> Vec<u8> {
        let mut v = (s.len() as u64).to_le_bytes().to_vec();
        v.extend(s);
        while !v.len().is_multiple_of(8) {
            v.push(0);
        }
        v
    }

    fn simple(node: &Simple) -> Vec<u8> {
        let words = |ws: &[&[u8]]| ws.iter().flat_map(|w| simple_str(w)).collect::<Vec<u8>>();
        match node {
            Simple::File(c, false) => words(&[b"(", b"type", b"regular", b"contents", c, b")"]),
            Simple::File(c, true) => {
                words(&[b"(", b"type", b"regular", b"executable", b"", b"contents", c, b")"])
            }
            Simple::Link(t) => words(&[b"(", b"type", b"symlink", b"target", t.as_bytes(), b")"]),
            Simple::Dir(m) => {
                let mut v = words(&[b"(", b"type", b"directory"]);
                for (name, child) in m {
                    v.extend(words(&[b"entry", b"(", b"name", name, b"node"]));
                    v.extend(simple(child));
                    v.extend(simple_str(b")"));
                }
                v.extend(simple_str(b")"));
                v
            }
        }
    }

    fn simple_nar(node: &Simple) -> Vec<u8> {
        let mut v = simple_str(b"nix-archive-1");
        v.extend(simple(node));
        v
    }

    fn write_tree(dir: &Path, tree: &BTreeMap<Vec<u8>, Simple>) {
        use std::os::unix::ffi::OsStrExt;
        for (name, node) in tree {
            let path = dir.join(std::ffi::OsStr::from_bytes(name));
            match node {
                Simple::File(c, x) => {
                    std::fs::write(&path, c).unwrap();
                    fs::set_mode(&path, if *x { 0o555 } else { 0o444 }).unwrap();
                }
                Simple::Link(t) => fs::symlink(t, &path).unwrap(),
                Simple::Dir(m) => {
                    fs::create_dir(&path).unwrap();
                    write_tree(&path, m);
                }
            }
        }
    }

    fn tree() -> impl Strategy<Value = Simple> {
        let leaf = prop_oneof![
            (proptest::collection::vec(any::<u8>(), 0..40), any::<bool>())
                .prop_map(|(c, x)| Simple::File(c, x)),
            "[a-z./]{1,9}".prop_map(Simple::Link),
        ];
        let dir = leaf.prop_recursive(4, 40, 6, |inner| {
            proptest::collection::btree_map(
                "[-a-cA +.]{0,2}[a-c]".prop_map(String::into_bytes),
                inner,
                0..6,
            )
            .prop_map(Simple::Dir)
        });
        proptest::collection::btree_map(
            "[-a-cA +.]{0,2}[a-c]".prop_map(String::into_bytes),
            dir,
            0..6,
        )
        .prop_map(Simple::Dir)
    }

    impl std::fmt::Debug for Simple {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            match self {
                Simple::File(c, x) => write!(f, "File({c:?}, {x})"),
                Simple::Link(t) => write!(f, "Link({t:?})"),
                Simple::Dir(m) => write!(
                    f,
                    "{:?}",
                    m.iter().map(|(k, v)| (String::from_utf8_lossy(k), v)).collect::<Vec<_>>()
                ),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn equals_a_simple_writer(tree in tree()) {
            let Simple::Dir(map) = &tree else { unreachable!() };
            let dir = tempfile::tempdir().unwrap();
            write_tree(dir.path(), map);
            let expected = simple_nar(&tree);
            let (digest, len) = hash_dir(dir.path()).unwrap();
            prop_assert_eq!(digest, Sha256::of(&expected));
            prop_assert_eq!(len, expected.len() as u64);
        }
    }

    /// The tree of `store-layout/golden/nar.txt`, whose digest Nix itself printed.
    #[test]
    fn golden_value_of_nix() {
        let golden = include_str!("../../store-layout/golden/nar.txt");
        let value = |key: &str| {
            golden.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')).unwrap()
        };
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for d in ["a", "a-b", "bin", "empty"] {
            fs::create_dir(&root.join(d)).unwrap();
        }
        for (path, content, mode) in [
            ("a/1", "", 0o444),
            ("a-b/2", "seven b", 0o444),
            ("a.c", "eight by", 0o444),
            ("bin/run", "#!/bin/sh\n", 0o555),
            ("ü", "utf-8\n", 0o444),
        ] {
            std::fs::write(root.join(path), content).unwrap();
            fs::set_mode(&root.join(path), mode).unwrap();
        }
        fs::symlink("../a/1", &root.join("bin/one")).unwrap();
        let (digest, len) = hash_dir(root).unwrap();
        assert_eq!(digest.to_string(), value("sha256"));
        assert_eq!(len.to_string(), value("size"));
    }
}
