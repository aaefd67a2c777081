//! Advisory locks, which save work and never carry correctness.
//!
//! Two processes that add one package would both be right: the second finds the name taken and
//! uses what is there. The lock only keeps the second from unpacking in vain. So every reason
//! not to get one (no lock manager on NFS, a file of another user, a read-only directory) means
//! going on without it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// A lock that is held until dropped (or until the process ends, however it ends).
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// How an attempt went.
#[derive(Debug)]
pub enum Attempt<T = Lock> {
    /// It is ours.
    Held(T),
    /// Somebody else has it.
    Busy,
    /// There is no locking here.
    Unsupported,
}

/// Tries to take the lock file at `path`, creating it where missing. Does not wait.
pub fn try_lock(path: &Path) -> Attempt {
    loop {
        // For writing, as NFSv4 grants an exclusive lock only then.
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o666)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .or_else(|_| File::open(path));
        let Ok(file) = opened else { return Attempt::Unsupported };
        match attempt(&file) {
            Attempt::Held(()) => {}
            Attempt::Busy => return Attempt::Busy,
            Attempt::Unsupported => return Attempt::Unsupported,
        }
        // Whoever had it may have removed the file in between; then this lock is on nothing.
        match (file.metadata(), std::fs::symlink_metadata(path)) {
            (Ok(ours), Ok(there)) if ours.ino() == there.ino() && ours.dev() == there.dev() => {
                return Attempt::Held(Lock { _file: file });
            }
            (Ok(_), Ok(_)) => {}
            (Ok(_), Err(e)) if e.kind() == io::ErrorKind::NotFound => {}
            _ => return Attempt::Unsupported,
        }
    }
}

fn attempt(file: &File) -> Attempt<()> {
    loop {
        return match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Attempt::Held(()),
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => Attempt::Busy,
            // ENOSYS, ENOLCK, EBADF, EOPNOTSUPP, EIO of a lost lock manager…
            Err(_) => Attempt::Unsupported,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_until_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        let Attempt::Held(first) = try_lock(&path) else { panic!() };
        assert!(matches!(try_lock(&path), Attempt::Busy));
        drop(first);
        assert!(matches!(try_lock(&path), Attempt::Held(_)));
    }

    #[test]
    fn no_lock_is_no_failure() {
        assert!(matches!(try_lock(Path::new("/proc/nowhere/l")), Attempt::Unsupported));
    }
}
