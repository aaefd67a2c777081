//! Work in progress: directories below `staging/` that vanish with whoever made them.
//!
//! Each has a lock file beside it, made and locked before the directory is. A process that
//! dies, however it dies, drops the lock; the next one that opens the store for writing gets
//! it, and so knows that the directory is nobody's.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::lock::{Attempt, Lock, try_lock};
use crate::fs;

const LOCK: &str = "lock";

/// A directory of work in progress. Dropped, it is removed with all that is in it.
#[derive(Debug)]
pub struct StagingDir {
    path: PathBuf,
    lock_path: PathBuf,
    _lock: Option<Lock>,
}

impl StagingDir {
    /// Makes a directory below `staging`.
    pub(super) fn new(staging: &Path) -> fs::Result<StagingDir> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let me = Owner::me();
        loop {
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-{}-{n}", me.boot, me.pid);
            let path = staging.join(&name);
            let lock_path = path.with_extension(LOCK);
            if fs::lstat(&lock_path)?.is_some() || fs::lstat(&path)?.is_some() {
                // Of a process that had this number before; the cleaning takes care of it.
                continue;
            }
            let lock = match try_lock(&lock_path) {
                Attempt::Held(lock) => Some(lock),
                Attempt::Busy => continue,
                Attempt::Unsupported => None,
            };
            let dir = StagingDir { path, lock_path, _lock: lock };
            fs::create_dir(&dir.path)?;
            return Ok(dir);
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        // What cannot be removed now (the disk is gone) is found by the next cleaning.
        let _ = fs::remove_tree(&self.path);
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// Whose a directory is, as its name says: boot of the machine and process. It decides only
/// where there are no locks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    boot: String,
    pid: u32,
}

impl Owner {
    fn me() -> Owner {
        // Tells machines and boots apart, as a number of a process does not.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot: String = boot.chars().filter(char::is_ascii_hexdigit).take(12).collect();
        let boot = if boot.is_empty() { "0".to_owned() } else { boot };
        Owner { boot, pid: std::process::id() }
    }

    fn of(name: &str) -> Option<Owner> {
        let (boot, rest) = name.split_once('-')?;
        let (pid, _) = rest.split_once('-')?;
        Some(Owner { boot: boot.to_owned(), pid: pid.parse().ok()? })
    }

    /// Certainly gone: of this boot, and no such process. Anything else may be alive.
    fn is_gone(&self) -> bool {
        let me = Owner::me();
        me.boot != "0"
            && self.boot == me.boot
            && !Path::new(&format!("/proc/{}", self.pid)).exists()
    }
}

/// Removes the directories of processes that are no more. Doubt keeps them; so does trouble,
/// as nothing depends on their being gone. Returns how many were removed.
pub(super) fn clean(staging: &Path) -> usize {
    let Ok(names) = fs::list(staging) else { return 0 };
    let names: Vec<&str> = names.iter().filter_map(|n| n.to_str()).collect();
    let mut stems: Vec<&str> = names.iter().map(|n| n.strip_suffix(".lock").unwrap_or(n)).collect();
    stems.dedup();
    let mut removed = 0;
    for stem in stems {
        let Some(owner) = Owner::of(stem) else { continue };
        let path = staging.join(stem);
        let lock_path = path.with_extension(LOCK);
        let lock = match try_lock(&lock_path) {
            Attempt::Held(lock) => Some(lock),
            Attempt::Busy => continue,
            Attempt::Unsupported if owner.is_gone() => None,
            Attempt::Unsupported => continue,
        };
        // The directory first: while the lock file stands, nobody takes its name.
        if fs::remove_tree(&path).is_ok() {
            let _ = fs::remove_file(&lock_path);
            removed += 1;
        }
        drop(lock);
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vanishes_when_dropped() {
        let root = tempfile::tempdir().unwrap();
        let dir = StagingDir::new(root.path()).unwrap();
        std::fs::write(dir.path().join("f"), "x").unwrap();
        fs::set_mode(dir.path(), 0o555).unwrap();
        drop(dir);
        assert!(fs::list(root.path()).unwrap().is_empty());
    }

    #[test]
    fn only_what_the_dead_left_is_cleaned() {
        let root = tempfile::tempdir().unwrap();
        let alive = StagingDir::new(root.path()).unwrap();
        // What a killed process leaves: its directory, and a lock file that nobody holds.
        let dead = root.path().join("abc-4000000000-7");
        fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join("f"), "x").unwrap();
        std::fs::write(root.path().join("abc-4000000000-7.lock"), "").unwrap();
        // Not ours to judge.
        std::fs::write(root.path().join("notes"), "x").unwrap();
        assert_eq!(clean(root.path()), 1);
        assert!(fs::lstat(&dead).unwrap().is_none());
        assert!(fs::lstat(alive.path()).unwrap().is_some());
        assert!(fs::lstat(&root.path().join("notes")).unwrap().is_some());
        assert_eq!(fs::list(root.path()).unwrap().len(), 3);
    }

    #[test]
    fn without_locks_only_the_certainly_dead_are_gone() {
        let me = Owner::me();
        assert!(!me.is_gone());
        assert!(Owner { pid: 4_000_000_000, ..me.clone() }.is_gone());
        assert!(!Owner { boot: "other".into(), pid: 4_000_000_000 }.is_gone());
        assert_eq!(Owner::of(&format!("{}-{}-3", me.boot, me.pid)), Some(me));
        assert_eq!(Owner::of("notes"), None);
    }
}
