//! The writing that building a view takes; each error names the operation and the path.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

/// An operation on a path that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {op} {path:?}")]
pub struct WriteError {
    /// What was tried, as a verb.
    pub op: &'static str,
    /// On which path.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

pub(super) type Result<T> = std::result::Result<T, WriteError>;

/// Makes the error of `op` on `path`.
pub(super) fn at(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    move |source| WriteError { op, path: path.to_owned(), source }
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(at("read", path))
}

pub(super) fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir(path).map_err(at("create the directory", path))
}

pub(super) fn symlink(target: &Path, path: &Path) -> Result<()> {
    std::os::unix::fs::symlink(target, path).map_err(at("create the link", path))
}

/// Writes a new file with this mode, whatever the umask, and the fixed modification time.
pub(super) fn file(path: &Path, bytes: &[u8], executable: bool) -> Result<()> {
    let mut open = fs::OpenOptions::new();
    open.write(true).create_new(true).mode(0o600);
    let mut file = open.open(path).map_err(at("create", path))?;
    io::Write::write_all(&mut file, bytes).map_err(at("write", path))?;
    settle(&file, path, executable)
}

/// Gives an open file its mode and time.
fn settle(file: &fs::File, path: &Path, executable: bool) -> Result<()> {
    let mode = if executable { 0o555 } else { 0o444 };
    file.set_permissions(Permissions::from_mode(mode)).map_err(at("set the mode of", path))?;
    rustix::fs::futimens(file, &TIMES).map_err(|e| at("set the time of", path)(e.into()))
}

/// One second after the epoch, as in the packages of the store.
const TIMES: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 1, tv_nsec: 0 },
    last_modification: Timespec { tv_sec: 1, tv_nsec: 0 },
};

/// Gives a finished directory its time and, with `mode`, its mode.
pub(super) fn finish_dir(path: &Path, mode: Option<u32>) -> Result<()> {
    rustix::fs::utimensat(CWD, path, &TIMES, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|e| at("set the time of", path)(e.into()))?;
    match mode {
        Some(mode) => {
            let mode = Permissions::from_mode(mode);
            fs::set_permissions(path, mode).map_err(at("set the mode of", path))
        }
        None => Ok(()),
    }
}

/// A hard link; `Ok(false)` where the file system or a limit does not allow one.
pub(super) fn hard_link(from: &Path, to: &Path) -> Result<bool> {
    use rustix::io::Errno;
    match rustix::fs::link(from, to) {
        Ok(()) => Ok(true),
        // Another device, too many links, `protected_hardlinks`, a file system without links.
        Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(at("hard-link", from)(error.into())),
    }
}

/// A copy that shares its blocks (`FICLONE`); `Ok(false)` where the file system cannot.
pub(super) fn reflink(from: &Path, to: &Path, executable: bool) -> Result<bool> {
    use rustix::io::Errno;
    let source = fs::File::open(from).map_err(at("open", from))?;
    let mut open = fs::OpenOptions::new();
    open.write(true).create_new(true).mode(0o600);
    let file = open.open(to).map_err(at("create", to))?;
    match rustix::fs::ioctl_ficlone(&file, &source) {
        Ok(()) => settle(&file, to, executable).map(|()| true),
        Err(
            Errno::OPNOTSUPP
            | Errno::XDEV
            | Errno::INVAL
            | Errno::NOTTY
            | Errno::NOSYS
            | Errno::PERM
            | Errno::TXTBSY,
        ) => {
            fs::remove_file(to).map_err(at("remove", to))?;
            Ok(false)
        }
        Err(error) => Err(at("clone into", to)(error.into())),
    }
}

/// A plain copy.
pub(super) fn copy(from: &Path, to: &Path, executable: bool) -> Result<()> {
    let mut source = fs::File::open(from).map_err(at("open", from))?;
    let mut open = fs::OpenOptions::new();
    open.write(true).create_new(true).mode(0o600);
    let mut file = open.open(to).map_err(at("create", to))?;
    io::copy(&mut source, &mut file).map_err(at("copy into", to))?;
    settle(&file, to, executable)
}
