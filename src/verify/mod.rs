//! The post-build hook and what is remembered of it.
//!
//! The user's script of `[verify] script` runs in the environment after the build. Exit status 0
//! means that the environment works. What passed on this machine is remembered in
//! `.gpuenv/verified`, so that realizing again does not run it again; the lock gets a record of
//! it that travels.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Exit, Report};
use crate::fs::{self, FsError};
use crate::hash::{Sha256, ShortHash};
use crate::relpath::RelPath;

/// How long a hook may take, in seconds, unless env.toml says otherwise.
pub const TIMEOUT_SECONDS: u64 = 1800;

/// How long a hook that was told to stop may take to do so.
const GRACE: Duration = Duration::from_secs(5);

/// A hook to run.
#[derive(Debug)]
pub struct Hook<'a> {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// The whole environment of the process.
    pub env: &'a BTreeMap<OsString, OsString>,
    /// Working directory: the project's.
    pub cwd: &'a Path,
    /// When to stop waiting.
    pub timeout: Duration,
}

/// How a hook ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit status 0.
    Passed,
    /// Another exit status.
    Exited(i32),
    /// Killed by a signal.
    Signal(i32),
    /// Did not end in time.
    TimedOut(Duration),
    /// The user interrupted it.
    Interrupted,
}

impl Outcome {
    /// Whether the environment is seen working.
    pub fn passed(&self) -> bool {
        *self == Outcome::Passed
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("passed"),
            Outcome::Exited(code) => write!(f, "exited with status {code}"),
            Outcome::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Outcome::TimedOut(limit) => write!(f, "did not end within {} s", limit.as_secs()),
            Outcome::Interrupted => f.write_str("was interrupted"),
        }
    }
}

/// The hook could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The script is not there.
    #[error("the check {} of [verify] cannot be read", path.display())]
    Script {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: FsError,
    },
    /// The program could not be started.
    #[error("{} could not be started", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The operating system would not say how it ended.
    #[error("waiting for the check failed")]
    Wait(#[source] std::io::Error),
    /// A file of `.gpuenv/` could not be written.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl Report for VerifyError {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        match self {
            VerifyError::Script { .. } => {
                Some("`script` in [verify] is a path relative to env.toml".into())
            }
            VerifyError::Start { .. } => Some(
                "a check that is not a .py file must be executable and start with `#!`; \
                 a .py file needs a Python in the environment"
                    .into(),
            ),
            VerifyError::Wait(_) => None,
            VerifyError::Fs(error) => error.hint(),
        }
    }
}

/// The digest of a script of the project.
pub fn digest(project: &Path, script: &RelPath) -> Result<Sha256, VerifyError> {
    let path = script.under(project);
    let bytes = fs::read(&path).map_err(|source| VerifyError::Script { path, source })?;
    Ok(Sha256::of(bytes))
}

/// Runs a hook, its output on standard error, and waits for its end. SIGINT and SIGTERM that reach
/// gpuenv meanwhile are passed on to it and all its children.
pub fn run(hook: &Hook<'_>) -> Result<Outcome, VerifyError> {
    let (program, arguments) = match hook.argv.split_first() {
        Some((program, arguments)) => (PathBuf::from(program), arguments),
        None => (PathBuf::new(), &[][..]),
    };
    let caught = Arc::new(AtomicUsize::new(0));
    let mut registered = Vec::new();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let number = usize::try_from(signal).unwrap_or_default();
        if let Ok(id) = signal_hook::flag::register_usize(signal, Arc::clone(&caught), number) {
            registered.push(id);
        }
    }
    let child = Command::new(&program)
        .args(arguments)
        .env_clear()
        .envs(hook.env)
        .current_dir(hook.cwd)
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .process_group(0)
        .spawn();
    let outcome = match child {
        Ok(mut child) => wait(&mut child, hook.timeout, &caught),
        Err(source) => Err(VerifyError::Start { program, source }),
    };
    for id in registered {
        signal_hook::low_level::unregister(id);
    }
    outcome
}

fn wait(
    child: &mut Child,
    timeout: Duration,
    caught: &AtomicUsize,
) -> Result<Outcome, VerifyError> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().map_err(VerifyError::Wait)? {
            return Ok(ended(status));
        }
        let signal = caught.swap(0, Ordering::SeqCst);
        if signal != 0 {
            stop(child);
            return Ok(Outcome::Interrupted);
        }
        if start.elapsed() >= timeout {
            stop(child);
            return Ok(Outcome::TimedOut(timeout));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Ends the whole process group: asked first, then killed.
fn stop(child: &mut Child) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw)
    else {
        return;
    };
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
    let start = Instant::now();
    while start.elapsed() < GRACE {
        if matches!(child.try_wait(), Ok(Some(_))) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
}

fn ended(status: ExitStatus) -> Outcome {
    match (status.code(), status.signal()) {
        (Some(0), _) => Outcome::Passed,
        (Some(code), _) => Outcome::Exited(code),
        (None, Some(signal)) => Outcome::Signal(signal),
        (None, None) => Outcome::Exited(-1),
    }
}

/// Text of the marker: the view and the script that passed in it.
fn marker(view: &ShortHash, script: &Sha256) -> String {
    format!("view {view}\nscript {script}\n")
}

fn marker_path(state: &Path) -> PathBuf {
    state.join("verified")
}

/// Whether this script passed in this view on this machine.
pub fn passed_here(state: &Path, view: &ShortHash, script: &Sha256) -> bool {
    std::fs::read_to_string(marker_path(state)).is_ok_and(|text| text == marker(view, script))
}

/// Remembers that it did.
pub fn mark_passed(state: &Path, view: &ShortHash, script: &Sha256) -> Result<(), VerifyError> {
    Ok(fs::write_atomic(&marker_path(state), marker(view, script).as_bytes(), 0o644)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, timeout: Duration) -> Outcome {
        let env = BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]);
        run(&Hook {
            argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
            env: &env,
            cwd: Path::new("/"),
            timeout,
        })
        .unwrap()
    }

    #[test]
    fn endings_are_told_apart() {
        let long = Duration::from_secs(60);
        assert_eq!(sh("exit 0", long), Outcome::Passed);
        assert_eq!(sh("exit 7", long), Outcome::Exited(7));
        assert_eq!(sh("kill -9 $$", long), Outcome::Signal(9));
        let limit = Duration::from_millis(50);
        assert_eq!(sh("sleep 60 & wait", limit), Outcome::TimedOut(limit));
    }

    #[test]
    fn a_missing_program_is_an_error_that_names_it() {
        let hook = Hook {
            argv: vec!["/nonexistent/python".into()],
            env: &BTreeMap::new(),
            cwd: Path::new("/"),
            timeout: Duration::from_secs(1),
        };
        assert!(run(&hook).unwrap_err().to_string().contains("/nonexistent/python"));
    }
}
