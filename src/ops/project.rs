//! The project on disk: where env.toml, gpuenv.lock and `.gpuenv/` lie, and how they are read
//! and written.

use std::path::{Path, PathBuf};

use crate::error::{Exit, Report, Result, Snippet};
use crate::fs::{self, FsError};
use crate::lockfile::{self, Lock};
use crate::manifest::{self, Manifest};

/// File name of the manifest.
pub const MANIFEST: &str = "env.toml";
/// File name of the lock.
pub const LOCK: &str = "gpuenv.lock";
/// Directory of the generation links and of local state; not committed.
pub const STATE: &str = ".gpuenv";

/// Where a project lies.
#[derive(Clone, Debug)]
pub struct Project {
    root: PathBuf,
}

/// The project cannot be found or read.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// No env.toml here or above.
    #[error("no {MANIFEST} in {} or in a directory above it", .0.display())]
    NotFound(PathBuf),
    /// `--project` names a directory without one.
    #[error("no {MANIFEST} in {}", .0.display())]
    NotThere(PathBuf),
    /// There is one already.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// The current directory is gone.
    #[error("the current directory cannot be read")]
    NoCurrentDirectory(#[source] std::io::Error),
    /// There is no lock.
    #[error("no {LOCK} in {}", .0.display())]
    NoLock(PathBuf),
    /// env.toml is a directory, or a link that leads nowhere.
    #[error("{} is not a file, or a link that leads to none", .0.display())]
    NotAFile(PathBuf),
    /// A file of the project cannot be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: FsError,
    },
    /// The file is not UTF-8.
    #[error("{} is not UTF-8 (byte {at})", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Offset of the first bad byte.
        at: usize,
    },
}

impl Report for ProjectError {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        Some(match self {
            ProjectError::NotFound(_) | ProjectError::NotThere(_) => {
                "write one with `gpuenv init`, or name its directory with `--project DIR`".into()
            }
            ProjectError::Exists(_) => "edit it, or use `gpuenv add` and `gpuenv remove`".into(),
            ProjectError::NoCurrentDirectory(_) => "name the project with `--project DIR`".into(),
            ProjectError::NoLock(_) => "`gpuenv lock` makes it".into(),
            ProjectError::NotAFile(path) => {
                format!("move {} away, or let it lead to a file", path.display())
            }
            ProjectError::Write { source, .. } => return source.trouble().advice(&source.path),
            ProjectError::NotUtf8 { path, .. } if path.ends_with(LOCK) => {
                "restore the file from version control, or remove it and run `gpuenv lock`".into()
            }
            ProjectError::NotUtf8 { .. } => "save the file as UTF-8".into(),
        })
    }
    fn snippet(&self) -> Option<Snippet> {
        None
    }
}

impl Project {
    /// The project at `dir`, or the nearest one at or above the current directory.
    pub fn find(dir: Option<&Path>) -> Result<Self> {
        let here = || std::env::current_dir().map_err(ProjectError::NoCurrentDirectory);
        if let Some(dir) = dir {
            let root = if dir.is_absolute() { dir.to_owned() } else { here()?.join(dir) };
            if !has_manifest(&root)? {
                return Err(ProjectError::NotThere(dir.to_owned()).into());
            }
            return Ok(Project { root: clean(&root) });
        }
        let start = here()?;
        let mut at = start.as_path();
        loop {
            if has_manifest(at)? {
                return Ok(Project { root: at.to_owned() });
            }
            at = at.parent().ok_or_else(|| ProjectError::NotFound(start.clone()))?;
        }
    }

    /// A project that is yet to be written at `dir` (default: the current directory).
    pub fn create(dir: Option<&Path>) -> Result<Self> {
        let here = std::env::current_dir().map_err(ProjectError::NoCurrentDirectory)?;
        let root = clean(&dir.map_or(here.clone(), |d| here.join(d)));
        let project = Project { root };
        if project.manifest_path().exists() {
            return Err(ProjectError::Exists(project.manifest_path()).into());
        }
        Ok(project)
    }

    /// Directory of env.toml, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// Path of env.toml.
    pub fn manifest_path(&self) -> PathBuf {
        self.root.join(MANIFEST)
    }
    /// Path of gpuenv.lock.
    pub fn lock_path(&self) -> PathBuf {
        self.root.join(LOCK)
    }
    /// Path of `.gpuenv/`.
    pub fn state_dir(&self) -> PathBuf {
        self.root.join(STATE)
    }

    /// The text of env.toml.
    pub fn manifest_text(&self) -> Result<String> {
        read_text(&self.manifest_path())
    }

    /// Reads and checks env.toml.
    pub fn manifest(&self) -> Result<Manifest> {
        Ok(manifest::parse(&self.manifest_text()?, MANIFEST)?)
    }

    /// Writes env.toml, whole or not at all.
    pub fn write_manifest(&self, text: &str) -> Result<()> {
        replace(&self.manifest_path(), text)
    }

    /// Keeps other gpuenvs from changing the project's files until it is dropped; waits for one
    /// that does. Where there is no locking, there is none: it only keeps edits from being lost.
    pub fn exclusive(&self) -> Exclusive {
        let dir = std::fs::File::open(&self.root).ok();
        Exclusive { _dir: dir.filter(|dir| dir.lock().is_ok()) }
    }

    /// The text of gpuenv.lock; `None` where there is none.
    pub fn lock_text(&self) -> Result<Option<String>> {
        match fs::read(&self.lock_path()) {
            Ok(bytes) => text_of(&self.lock_path(), bytes).map(Some),
            // Also a link to a lock that is yet to be written.
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads gpuenv.lock with its text; `None` where there is none.
    pub fn lock(&self) -> Result<Option<(Lock, String)>> {
        match self.lock_text()? {
            Some(text) => Ok(Some((lockfile::parse(&text, LOCK)?, text))),
            None => Ok(None),
        }
    }

    /// Reads gpuenv.lock, which must be there.
    pub fn require_lock(&self) -> Result<Lock> {
        match self.lock()? {
            Some((lock, _)) => Ok(lock),
            None => Err(ProjectError::NoLock(self.root.clone()).into()),
        }
    }

    /// Writes gpuenv.lock where its text differs from `old`; says whether it did.
    pub fn write_lock(&self, lock: &Lock, old: Option<&str>) -> Result<bool> {
        let text = lockfile::write(lock);
        if old == Some(text.as_str()) {
            return Ok(false);
        }
        replace(&self.lock_path(), &text)?;
        Ok(true)
    }
}

/// See [`Project::exclusive`].
#[derive(Debug)]
pub struct Exclusive {
    _dir: Option<std::fs::File>,
}

/// Whether `dir` has an env.toml. One that cannot be read as a file is not passed over in silence:
/// a project further up is not the one meant.
fn has_manifest(dir: &Path) -> Result<bool> {
    let path = dir.join(MANIFEST);
    if path.is_file() {
        return Ok(true);
    }
    match path.symlink_metadata() {
        Ok(_) => Err(ProjectError::NotAFile(path).into()),
        Err(_) => Ok(false),
    }
}

/// Replaces a file of the user whole or not at all: where it is a link, the file that it leads to;
/// its mode stays.
fn replace(path: &Path, text: &str) -> Result<()> {
    let failed = |source| ProjectError::Write { path: path.to_owned(), source };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    Ok(fs::replace_text(path, text).map_err(failed)?)
}

fn read_text(path: &Path) -> Result<String> {
    text_of(path, fs::read(path)?)
}

fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        ProjectError::NotUtf8 { path: path.to_owned(), at: error.utf8_error().valid_up_to() }.into()
    })
}

/// Drops `.` components; leaves `..` and links to the kernel.
fn clean(path: &Path) -> PathBuf {
    path.components().collect()
}
