//! One flush for many: packages added at the same time share a `syncfs`.

use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::fs;

/// Merges the flushes of threads that ask at about the same time.
#[derive(Debug, Default)]
pub(super) struct GroupSync {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    /// Flushes begun so far.
    begun: u64,
    /// The last flush that ended well; those before it did what it did.
    done: u64,
}

impl GroupSync {
    /// Returns once a flush of the file system of `dir` that began after this call has ended.
    /// A failed flush is an error for whoever ran it; others run their own.
    pub(super) fn sync(&self, dir: &Path) -> fs::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // One that runs already may have passed by what this caller wrote.
        let need = state.begun + 1;
        loop {
            if state.done >= need {
                return Ok(());
            }
            if !state.running {
                break;
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.running = true;
        state.begun += 1;
        let mine = state.begun;
        drop(state);
        let result = fs::sync_tree(dir);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running = false;
        if result.is_ok() {
            state.done = mine;
        }
        self.news.notify_all();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_returns() {
        let dir = tempfile::tempdir().unwrap();
        let sync = GroupSync::default();
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| sync.sync(dir.path()).unwrap());
            }
        });
        let state = sync.state.lock().unwrap();
        assert!(state.begun <= 8 && state.done == state.begun && !state.running);
        drop(state);
        assert!(sync.sync(Path::new("/nonexistent-gpuenv")).is_err());
    }
}
