//! Generations: the views a project pointed at, one link each, and `current` that names the one in
//! use. A change is a new link and an atomic rename; nothing that exists is changed.
//!
//! ```text
//! .gpuenv/
//!   .gitignore            "*": local state, not for the repository
//!   current -> generations/3
//!   generations/3 -> $STORE/envs/<key>-<name>
//!   verified              what the post-build hook passed on, see `crate::verify`
//! ```

use std::path::PathBuf;

use super::project::Project;
use crate::error::{Exit, Report, Result};
use crate::fs;
use crate::store::Store;

/// A generation of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number, from 1.
    pub number: u64,
    /// The view it points at.
    pub view: PathBuf,
}

/// The project has no environment yet, or it is gone.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// Never realized.
    #[error("the project {} has no environment yet", .0.display())]
    None(PathBuf),
    /// The view was removed.
    #[error("the environment {} is gone from the store", .0.display())]
    Gone(PathBuf),
}

impl Report for GenerationError {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        Some("`gpuenv realize` builds it".into())
    }
}

/// The generation in use.
pub fn current(project: &Project) -> Option<Generation> {
    let dir = project.state_dir();
    let link = std::fs::read_link(dir.join("current")).ok()?;
    let number = link.file_name()?.to_str()?.parse().ok()?;
    let view = std::fs::read_link(dir.join(&link)).ok()?;
    Some(Generation { number, view })
}

/// The generation in use, whose view must be there.
pub fn require(project: &Project) -> Result<Generation> {
    let generation =
        current(project).ok_or_else(|| GenerationError::None(project.root().to_owned()))?;
    if !generation.view.is_dir() {
        return Err(GenerationError::Gone(generation.view).into());
    }
    Ok(generation)
}

/// Makes `view` the project's current one; returns the new number, or `None` where it was already.
pub fn point(project: &Project, store: &Store, view: &std::path::Path) -> Result<Option<u64>> {
    let dir = project.state_dir();
    let generations = dir.join("generations");
    fs::create_dir_all(&generations)?;
    let ignore = dir.join(".gitignore");
    if !ignore.exists() {
        fs::write_atomic(&ignore, b"*\n", 0o644)?;
    }
    if current(project).is_some_and(|g| g.view == view) {
        return Ok(None);
    }
    let mut number = 0;
    for name in fs::list(&generations)? {
        if let Some(n) = name.to_str().and_then(|n| n.parse::<u64>().ok()) {
            number = number.max(n);
        }
    }
    // Two runs at once may want the same number; the link that exists first wins it.
    loop {
        number += 1;
        match fs::symlink(view, &generations.join(number.to_string())) {
            Ok(()) => break,
            Err(error) if error.is_taken() => {}
            Err(error) => return Err(error.into()),
        }
    }
    store.add_root(&generations.join(number.to_string()))?;
    // A new link beside the old one, then a rename over it: there is always one.
    let temporary = dir.join(format!("current.{}", std::process::id()));
    fs::remove_file(&temporary)?;
    fs::symlink(PathBuf::from("generations").join(number.to_string()), &temporary)?;
    fs::rename(&temporary, &dir.join("current"))?;
    Ok(Some(number))
}
