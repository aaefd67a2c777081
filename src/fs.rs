//! The file system, with errors that name their path and say what to do.
//!
//! Everything the crate writes below a store, a view or a project goes through here, so that
//! the rules stand in one place: nothing is ever written through an existing link (`O_EXCL`,
//! `O_NOFOLLOW`), a file that others read appears whole or not at all ([`write_atomic`]), and
//! what must survive a power cut is flushed before it gets its name ([`sync_tree`],
//! [`sync_dir`]). Files that users edit too are replaced where their links lead, and keep their
//! mode ([`replace_text`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use crate::error::{Exit, Report};

/// Modification time of everything in the store: one second after the epoch, as in Nix
/// stores. (Zero means "unknown" to some tools, zip cannot hold it.)
pub const MTIME: i64 = 1;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, FsError>;

/// An operation on a path that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {op} {}{}", path.display(), to.as_ref().map(|to| format!(" to {}", to.display())).unwrap_or_default())]
pub struct FsError {
    /// The operation, as words after "cannot": `read`, `create the directory`.
    pub op: &'static str,
    /// The path it was tried on.
    pub path: PathBuf,
    /// The second path of an operation that has two.
    pub to: Option<PathBuf>,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// Kinds of trouble that have advice of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// `ENOSPC`.
    NoSpace,
    /// `EDQUOT`.
    Quota,
    /// `EROFS`.
    ReadOnly,
    /// `EACCES` and `EPERM`.
    Denied,
    /// `EMFILE` and `ENFILE`.
    TooManyFiles,
    /// `ENAMETOOLONG`.
    NameTooLong,
    /// `ENOENT` and `ENOTDIR`.
    Missing,
    /// `EIO`: the device itself.
    Device,
    /// Anything else.
    Other,
}

impl Trouble {
    /// Classifies an error of the system.
    pub fn of(error: &io::Error) -> Trouble {
        use rustix::io::Errno;
        let Some(code) = error.raw_os_error() else {
            return match error.kind() {
                io::ErrorKind::NotFound => Trouble::Missing,
                io::ErrorKind::PermissionDenied => Trouble::Denied,
                io::ErrorKind::StorageFull => Trouble::NoSpace,
                io::ErrorKind::QuotaExceeded => Trouble::Quota,
                _ => Trouble::Other,
            };
        };
        match Errno::from_raw_os_error(code) {
            Errno::NOSPC => Trouble::NoSpace,
            Errno::DQUOT => Trouble::Quota,
            Errno::ROFS => Trouble::ReadOnly,
            Errno::ACCESS | Errno::PERM => Trouble::Denied,
            Errno::MFILE | Errno::NFILE => Trouble::TooManyFiles,
            Errno::NAMETOOLONG => Trouble::NameTooLong,
            Errno::NOENT | Errno::NOTDIR => Trouble::Missing,
            Errno::IO => Trouble::Device,
            _ => Trouble::Other,
        }
    }

    /// What to do about it, for `path`, which is of the store or could be if the store were
    /// elsewhere.
    pub fn hint(self, path: &Path) -> Option<String> {
        let advice = self.advice(path)?;
        Some(match self {
            Trouble::NoSpace | Trouble::Quota | Trouble::ReadOnly | Trouble::Denied => {
                format!("{advice}, or choose another store with `--store` or GPUENV_STORE")
            }
            _ => advice,
        })
    }

    /// What to do about it, for any `path`.
    pub fn advice(self, path: &Path) -> Option<String> {
        let at = path.display();
        Some(match self {
            Trouble::NoSpace => format!(
                "the file system of {at} is full; free some space and run the same command again"
            ),
            Trouble::Quota => format!(
                "your disk quota on the file system of {at} is used up; free some space and run the same command again"
            ),
            Trouble::ReadOnly => {
                format!("{at} is on a file system mounted read-only; mount it for writing")
            }
            Trouble::Denied => {
                format!("this user may not do that at {at}; look at its owner and mode")
            }
            Trouble::TooManyFiles => {
                "the limit on open files is reached; raise it with `ulimit -n`".to_owned()
            }
            Trouble::NameTooLong => {
                "the path is longer than the file system takes; choose a shorter place".to_owned()
            }
            Trouble::Device => {
                "the device reports a read or write error; look at the system's log".to_owned()
            }
            Trouble::Missing | Trouble::Other => return None,
        })
    }
}

impl FsError {
    /// Makes a converter for `map_err`.
    pub fn at(op: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> FsError {
        move |source| FsError { op, path: path.as_ref().to_owned(), to: None, source }
    }
    /// Makes a converter for `map_err` of an operation on two paths.
    pub fn between(
        op: &'static str,
        path: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> FsError {
        move |source| FsError {
            op,
            path: path.as_ref().to_owned(),
            to: Some(to.as_ref().to_owned()),
            source,
        }
    }
    /// What kind of trouble it is.
    pub fn trouble(&self) -> Trouble {
        Trouble::of(&self.source)
    }
    /// Whether the path is not there.
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
    /// Whether something stands at the path already.
    pub fn is_taken(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty
        )
    }
}

impl Report for FsError {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        self.trouble().hint(&self.path)
    }
}

/// Reads a whole file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(FsError::at("read", path))
}

/// Reads a whole file of text.
pub fn read_to_string(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(FsError::at("read", path))
}

/// Opens a file for reading.
pub fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(FsError::at("open", path))
}

/// Maps a file that nobody changes while it is mapped.
pub fn map(file: &File, path: &Path) -> Result<memmap2::Mmap> {
    // SAFETY: the callers map downloads and staged files, which only this process writes and
    // which are complete by then. Should another program truncate one all the same, the
    // process gets SIGBUS; nothing half-read reaches the store.
    unsafe { memmap2::Mmap::map(file) }.map_err(FsError::at("map", path))
}

/// What stands at `path` itself, links not followed; `None` if nothing does.
pub fn lstat(path: &Path) -> Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(FsError::at("look at", path)(e)),
    }
}

/// Names in a directory, sorted bytewise.
pub fn list(dir: &Path) -> Result<Vec<std::ffi::OsString>> {
    let mut names = fs::read_dir(dir)
        .map_err(FsError::at("list", dir))?
        .map(|entry| entry.map(|e| e.file_name()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(FsError::at("list", dir))?;
    names.sort();
    Ok(names)
}

/// The text of a symbolic link.
pub fn read_link(path: &Path) -> Result<PathBuf> {
    fs::read_link(path).map_err(FsError::at("read the link", path))
}

/// Creates a file that is not there yet, for writing. Never follows a link.
pub fn create_new(path: &Path) -> Result<File> {
    OpenOptions::new()
        .write(true)
        .read(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)
        .map_err(FsError::at("create", path))
}

/// Creates a directory that is not there yet, mode 0755.
pub fn create_dir(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .mode(0o755)
        .create(path)
        .map_err(FsError::at("create the directory", path))
}

/// Creates a directory and its ancestors where missing.
pub fn create_dir_all(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(FsError::at("create the directory", path))
}

/// Creates a symbolic link.
pub fn symlink(target: impl AsRef<Path>, path: &Path) -> Result<()> {
    std::os::unix::fs::symlink(target, path).map_err(FsError::at("create the link", path))
}

/// Renames within one file system.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(FsError::between("rename", from, to))
}

/// Renames a file unless something stands at `to`; then the error [`FsError::is_taken`].
pub fn rename_new(from: &Path, to: &Path) -> Result<()> {
    use rustix::fs::RenameFlags;
    use rustix::io::Errno;
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // Not every file system and kernel has the flag. Then the check and the renaming are
        // two steps, and of two processes that give one name the later wins.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match lstat(to)? {
            Some(_) => {
                Err(FsError::between("rename", from, to)(io::ErrorKind::AlreadyExists.into()))
            }
            None => rename(from, to),
        },
        Err(e) => Err(FsError::between("rename", from, to)(e.into())),
    }
}

/// Removes a file or link; not being there is fine.
pub fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FsError::at("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Removes whatever stands at `path`, read-only directories included; not being there is fine.
/// Links are removed, never followed.
pub fn remove_tree(path: &Path) -> Result<()> {
    let Some(meta) = lstat(path)? else { return Ok(()) };
    if !meta.is_dir() {
        return remove_file(path);
    }
    match fs::remove_dir_all(path) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => {}
    }
    open_up(path)?;
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FsError::at("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Makes every directory of a tree writable to its owner, so that it can be removed.
fn open_up(dir: &Path) -> Result<()> {
    set_mode(dir, 0o700)?;
    for name in list(dir)? {
        let path = dir.join(name);
        if lstat(&path)?.is_some_and(|m| m.is_dir()) {
            open_up(&path)?;
        }
    }
    Ok(())
}

/// Sets the mode, whatever the umask is.
pub fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(FsError::at("set the mode of", path))
}

fn stamps() -> Timestamps {
    let stamp = Timespec { tv_sec: MTIME, tv_nsec: 0 };
    Timestamps { last_access: stamp, last_modification: stamp }
}

/// Sets the times of `path` itself (links not followed) to [`MTIME`].
pub fn set_times(path: &Path) -> Result<()> {
    rustix::fs::utimensat(CWD, path, &stamps(), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|e| FsError::at("set the times of", path)(e.into()))
}

/// Gives an open file its final mode and [`MTIME`].
pub fn finish_file(file: &File, path: &Path, mode: u32) -> Result<()> {
    file.set_permissions(fs::Permissions::from_mode(mode))
        .map_err(FsError::at("set the mode of", path))?;
    rustix::fs::futimens(file, &stamps())
        .map_err(|e| FsError::at("set the times of", path)(e.into()))
}

/// Replaces the file at `path` so that readers see the old content or the new, never a part,
/// also after a power cut: written beside it, flushed, renamed, directory flushed.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let mut temp = temporary(path, mode)?;
    temp.write_all(content).map_err(FsError::at("write", path))?;
    temp.as_file()
        .set_permissions(fs::Permissions::from_mode(mode))
        .map_err(FsError::at("set the mode of", path))?;
    persist(temp, path)
}

/// Most links followed for one path, as in the kernel (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// Replaces a file that is the user's as much as ours, atomically as [`write_atomic`] does: where
/// `path` is a link, the file that it leads to, and the link stays; a file that is there keeps
/// its mode, and a new one gets what the umask leaves of 0666.
pub fn replace_text(path: &Path, text: &str) -> Result<()> {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        match lstat(&at)? {
            Some(meta) if meta.is_symlink() => {
                let target = read_link(&at)?;
                at = parent(&at).join(target);
            }
            Some(meta) => {
                return write_atomic(&at, text.as_bytes(), meta.permissions().mode() & 0o7777);
            }
            None => {
                let mut temp = temporary(&at, 0o666)?;
                temp.write_all(text.as_bytes()).map_err(FsError::at("write", &at))?;
                return persist(temp, &at);
            }
        }
    }
    Err(FsError::at("write", path)(rustix::io::Errno::LOOP.into()))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// An unfinished file beside `path`; of `mode`, the umask is taken away.
fn temporary(path: &Path, mode: u32) -> Result<tempfile::NamedTempFile> {
    let dir = parent(path);
    tempfile::Builder::new()
        .prefix(".tmp-")
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(dir)
        .map_err(FsError::at("create a temporary file in", dir))
}

/// Flushes a finished file, gives it its name and flushes that.
fn persist(temp: tempfile::NamedTempFile, path: &Path) -> Result<()> {
    temp.as_file().sync_all().map_err(FsError::at("flush", path))?;
    temp.persist(path).map_err(|e| FsError::at("replace", path)(e.error))?;
    sync_dir(parent(path))
}

/// Flushes a directory's own entries.
pub fn sync_dir(dir: &Path) -> Result<()> {
    let file = open(dir)?;
    match file.sync_all() {
        // Some network and FUSE file systems cannot flush a directory; there is nothing
        // else to ask of them.
        Err(e) if matches!(e.raw_os_error(), Some(22 | 95)) => Ok(()),
        other => other.map_err(FsError::at("flush", dir)),
    }
}

/// Flushes everything written below `dir`: one `syncfs` on its file system, which costs one
/// journal commit instead of one per file; where there is none, file by file.
pub fn sync_tree(dir: &Path) -> Result<()> {
    use rustix::io::Errno;
    let file = open(dir)?;
    match rustix::fs::syncfs(&file) {
        Ok(()) => Ok(()),
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => sync_each(dir),
        Err(e) => Err(FsError::at("flush", dir)(e.into())),
    }
}

fn sync_each(dir: &Path) -> Result<()> {
    for name in list(dir)? {
        let path = dir.join(name);
        match lstat(&path)? {
            Some(m) if m.is_dir() => sync_each(&path)?,
            Some(m) if m.is_file() => {
                open(&path)?.sync_all().map_err(FsError::at("flush", &path))?
            }
            _ => {}
        }
    }
    sync_dir(dir)
}

/// How a file of the store came to stand in a second place; cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// One inode, two names.
    HardLink,
    /// Blocks shared until written (`FICLONE`: btrfs, XFS, bcachefs).
    Reflink,
    /// A copy of the bytes.
    Copy,
}

impl std::fmt::Display for Rung {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Rung::HardLink => "hard link",
            Rung::Reflink => "reflink",
            Rung::Copy => "copy",
        })
    }
}

/// Makes `to` (not there yet) hold what the regular file `from` holds: by a hard link, or where
/// there can be none by a reflink, or by a copy. A missing source and a denied directory are
/// errors, not steps.
pub fn place(from: &Path, to: &Path) -> Result<Rung> {
    if hard_link(from, to)? {
        return Ok(Rung::HardLink);
    }
    let meta = fs::metadata(from).map_err(FsError::at("look at", from))?;
    let mode = if meta.permissions().mode() & 0o111 != 0 { 0o555 } else { 0o444 };
    if reflink(from, to, mode)? {
        return Ok(Rung::Reflink);
    }
    copy(from, to, mode).map(|()| Rung::Copy)
}

/// A hard link; `Ok(false)` where the file system or a limit does not allow one: across file
/// systems, at the limit of links, where `fs.protected_hardlinks` forbids it.
pub fn hard_link(from: &Path, to: &Path) -> Result<bool> {
    use rustix::io::Errno;
    match rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(
            Errno::XDEV
            | Errno::MLINK
            | Errno::PERM
            | Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::INVAL,
        ) => Ok(false),
        Err(e) => Err(FsError::between("hard link", from, to)(e.into())),
    }
}

/// A copy of this mode that shares its blocks (`FICLONE`); `Ok(false)` where the file system has
/// none, and then nothing is at `to`.
pub fn reflink(from: &Path, to: &Path, mode: u32) -> Result<bool> {
    use rustix::io::Errno;
    let source = open(from)?;
    let target = create_new(to)?;
    let failed = match rustix::fs::ioctl_ficlone(&target, &source) {
        Ok(()) => return finish_file(&target, to, mode).map(|()| true),
        Err(
            Errno::XDEV
            | Errno::OPNOTSUPP
            | Errno::NOTTY
            | Errno::NOSYS
            | Errno::INVAL
            | Errno::PERM
            | Errno::BADF
            | Errno::TXTBSY,
        ) => None,
        Err(e) => Some(FsError::between("copy", from, to)(e.into())),
    };
    match (failed, remove_file(to)) {
        // The error that matters is the first.
        (Some(error), _) | (None, Err(error)) => Err(error),
        (None, Ok(())) => Ok(false),
    }
}

/// A plain copy of this mode.
pub fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let mut source = open(from)?;
    let mut target = create_new(to)?;
    if let Err(e) = io::copy(&mut source, &mut target) {
        // The error that matters is the copy's; a rest is removed as well as can be.
        let _ = remove_file(to);
        return Err(FsError::between("copy", from, to)(e));
    }
    finish_file(&target, to, mode)
}

/// Writes a file that is not there yet, with this mode whatever the umask, and [`MTIME`].
pub fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let mut file = create_new(path)?;
    file.write_all(content).map_err(FsError::at("write", path))?;
    finish_file(&file, path, mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_path_and_advice() {
        let e = read(Path::new("/nonexistent-gpuenv/x")).unwrap_err();
        assert_eq!(e.to_string(), "cannot read /nonexistent-gpuenv/x");
        assert!(e.is_missing());
        for (code, trouble) in [
            (28, Trouble::NoSpace),
            (122, Trouble::Quota),
            (30, Trouble::ReadOnly),
            (13, Trouble::Denied),
            (1, Trouble::Denied),
            (24, Trouble::TooManyFiles),
            (36, Trouble::NameTooLong),
            (5, Trouble::Device),
        ] {
            let e = FsError::at("write", "/s/x")(io::Error::from_raw_os_error(code));
            assert_eq!(e.trouble(), trouble);
            assert!(e.hint().is_some(), "{trouble:?}");
        }
    }

    #[test]
    fn atomic_write_replaces_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write_atomic(&path, b"one", 0o644).unwrap();
        write_atomic(&path, b"two", 0o444).unwrap();
        assert_eq!(read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
        assert_eq!(list(dir.path()).unwrap(), ["f"]);
        let e = write_atomic(&dir.path().join("no/f"), b"x", 0o644).unwrap_err();
        assert!(e.is_missing());
    }

    #[test]
    fn text_of_the_user_is_replaced_where_links_lead_and_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        create_dir(&at("shared")).unwrap();
        fs::write(at("shared/real"), "one").unwrap();
        set_mode(&at("shared/real"), 0o640).unwrap();
        symlink("shared/near", &at("link")).unwrap();
        symlink("real", &at("shared/near")).unwrap();
        replace_text(&at("link"), "two").unwrap();
        assert_eq!(read(&at("shared/real")).unwrap(), b"two");
        assert_eq!(mode("shared/real"), 0o640);
        assert!(lstat(&at("link")).unwrap().unwrap().is_symlink());
        assert!(lstat(&at("shared/near")).unwrap().unwrap().is_symlink());
        // A link to what is not there yet, and no link at all.
        symlink("shared/new", &at("dangling")).unwrap();
        replace_text(&at("dangling"), "x").unwrap();
        replace_text(&at("plain"), "x").unwrap();
        fs::write(at("as the system makes them"), "x").unwrap();
        for name in ["shared/new", "plain"] {
            assert_eq!(read(&at(name)).unwrap(), b"x");
            assert_eq!(mode(name), mode("as the system makes them"));
        }
        symlink("round", &at("round")).unwrap();
        assert!(replace_text(&at("round"), "x").is_err());
        assert_eq!(list(&at("shared")).unwrap(), ["near", "new", "real"], "nothing else is left");
    }

    #[test]
    fn creation_never_follows_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        symlink(&outside, &dir.path().join("l")).unwrap();
        assert!(create_new(&dir.path().join("l")).unwrap_err().is_taken());
        assert!(lstat(&outside).unwrap().is_none());
    }

    #[test]
    fn removes_read_only_trees_but_not_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        create_dir(&kept).unwrap();
        fs::write(kept.join("f"), "x").unwrap();
        let tree = dir.path().join("t");
        create_dir_all(&tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/f"), "x").unwrap();
        symlink(&kept, &tree.join("a/l")).unwrap();
        set_mode(&tree.join("a/b"), 0o555).unwrap();
        set_mode(&tree.join("a"), 0o555).unwrap();
        set_mode(&tree, 0o555).unwrap();
        remove_tree(&tree).unwrap();
        assert!(lstat(&tree).unwrap().is_none());
        assert_eq!(read(&kept.join("f")).unwrap(), b"x");
        remove_tree(&tree).unwrap();
    }

    #[test]
    fn ladder_steps_down_and_keeps_the_content() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::write(&from, "content").unwrap();
        set_mode(&from, 0o555).unwrap();
        let to = |name: &str| dir.path().join(name);
        assert_eq!(place(&from, &to("placed")).unwrap(), Rung::HardLink);
        copy(&from, &to("copied"), 0o555).unwrap();
        let mut made = vec!["placed", "copied"];
        match reflink(&from, &to("cloned"), 0o555).unwrap() {
            true => made.push("cloned"),
            false => assert!(lstat(&to("cloned")).unwrap().is_none(), "a rest stays"),
        }
        for name in made {
            assert_eq!(read(&to(name)).unwrap(), b"content");
            assert_eq!(fs::metadata(to(name)).unwrap().permissions().mode() & 0o777, 0o555);
        }
        assert!(place(&to("no"), &to("x")).unwrap_err().is_missing());
        assert!(place(&from, &to("placed")).unwrap_err().is_taken());
        assert!(copy(&from, &to("placed"), 0o444).unwrap_err().is_taken());
        assert!(reflink(&from, &to("placed"), 0o444).unwrap_err().is_taken());
    }
}
