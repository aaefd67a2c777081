//! Generations: the views a project pointed at, one link each, and `current` that names the one in
//! use. A change is a new link and an atomic rename; nothing that exists is changed.
//!
//! ```text
//! .gpuenv/
//!   .gitignore            "*": local state, not for the repository
//!   current -> generations/3
//!   generations/3 -> $STORE/envs/<key>-<name>
//!   variant               the variant last asked for by name
//!   variants/cpu -> ../generations/2    the last view of each variant, where there are several
//!   verified              what the post-build hook passed on, see `crate::verify`
//! ```

use std::path::{Path, PathBuf};

use super::project::Project;
use crate::error::{Exit, Report, Result};
use crate::fs;
use crate::store::{Store, StoreError};

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

/// The file in the state directory that holds the variant last asked for by name.
pub const VARIANT: &str = "variant";

/// The last view of a variant.
pub fn of_variant(project: &Project, name: &str) -> Option<Generation> {
    let dir = project.state_dir();
    let link = std::fs::read_link(dir.join("variants").join(name)).ok()?;
    let number = link.file_name()?.to_str()?.parse().ok()?;
    let view = std::fs::read_link(dir.join(self::link(number))).ok()?;
    Some(Generation { number, view })
}

/// Notes down that the current view is that of a variant; with `named`, that it was asked for.
pub fn mark(project: &Project, number: u64, name: &str, named: bool) -> Result<()> {
    let dir = project.state_dir();
    if named
        && std::fs::read_to_string(dir.join(VARIANT)).ok().as_deref().map(str::trim) != Some(name)
    {
        fs::write_atomic(&dir.join(VARIANT), format!("{name}\n").as_bytes(), 0o644)?;
    }
    let variants = dir.join("variants");
    let target = PathBuf::from("..").join(link(number));
    if std::fs::read_link(variants.join(name)).ok().as_ref() == Some(&target) {
        return Ok(());
    }
    fs::create_dir_all(&variants)?;
    // No variant's name has a dot.
    replace_link(&variants.join(name), &target, &variants.join(format!(".{name}")))
}

/// A new link beside the old one, then a rename over it: there is always one.
fn replace_link(place: &Path, target: &Path, beside: &Path) -> Result<()> {
    let temporary = beside.with_added_extension(std::process::id().to_string());
    fs::remove_file(&temporary)?;
    fs::symlink(target, &temporary)?;
    Ok(fs::rename(&temporary, place)?)
}

/// What [`point`] did.
#[derive(Debug)]
pub struct Pointed {
    /// The number of the generation in use.
    pub number: u64,
    /// The number of the new generation; `None` where the view was the current one already.
    pub new: Option<u64>,
    /// Why the store could not note down that the view is in use, if it could not: a store that
    /// others fill can be used by those who may not write to it.
    pub unregistered: Option<StoreError>,
}

/// Makes `view` the project's current one.
pub fn point(project: &Project, store: &Store, view: &Path) -> Result<Pointed> {
    let dir = project.state_dir();
    let generations = dir.join("generations");
    fs::create_dir_all(&generations)?;
    let ignore = dir.join(".gitignore");
    if !ignore.exists() {
        fs::write_atomic(&ignore, b"*\n", 0o644)?;
    }
    if let Some(there) = current(project).filter(|g| g.view == view) {
        let unregistered = register(project, store, there.number)?;
        return Ok(Pointed { number: there.number, new: None, unregistered });
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
    let unregistered = register(project, store, number)?;
    let current = dir.join("current");
    replace_link(&current, &link(number), &current)?;
    Ok(Pointed { number, new: Some(number), unregistered })
}

/// Notes down in the store that a generation is in use; an old one too, as the project may have
/// been moved or copied to where it is. Nothing is written where it is noted already. Returns why
/// a store that cannot be written to does not know.
pub fn register(project: &Project, store: &Store, number: u64) -> Result<Option<StoreError>> {
    match store.add_root(&project.state_dir().join(link(number))) {
        Ok(()) => Ok(None),
        Err(error @ StoreError::ReadOnly { .. }) => Ok(Some(error)),
        Err(error) => Err(error.into()),
    }
}

/// The link of a generation, as seen from the state directory.
fn link(number: u64) -> PathBuf {
    PathBuf::from("generations").join(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_have_their_own_pointers() {
        let dir = tempfile::tempdir().unwrap();
        let text = "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\n";
        std::fs::write(dir.path().join("env.toml"), text).unwrap();
        let project = Project::find(Some(dir.path())).unwrap();
        let store = Store::open(dir.path().join("store")).unwrap();
        let views = ["default", "cpu"].map(|name| dir.path().join("views").join(name));
        let view_of = |name: &str| of_variant(&project, name).map(|g| (g.number, g.view));

        let first = point(&project, &store, &views[0]).unwrap();
        mark(&project, first.number, "default", false).unwrap();
        assert_eq!(view_of("default"), Some((1, views[0].clone())));
        assert_eq!(view_of("cpu"), None);
        assert!(!project.state_dir().join(VARIANT).exists(), "nobody named it");

        let second = point(&project, &store, &views[1]).unwrap();
        mark(&project, second.number, "cpu", true).unwrap();
        assert_eq!(std::fs::read_to_string(project.state_dir().join(VARIANT)).unwrap(), "cpu\n");
        assert_eq!(current(&project).unwrap().view, views[1]);
        assert_eq!(view_of("default"), Some((1, views[0].clone())));
        assert_eq!(view_of("cpu"), Some((2, views[1].clone())));

        // Doing it again changes nothing; another view moves the pointer.
        assert_eq!(point(&project, &store, &views[1]).unwrap().new, None);
        mark(&project, 2, "cpu", false).unwrap();
        let third = point(&project, &store, &views[0]).unwrap();
        mark(&project, third.number, "cpu", false).unwrap();
        assert_eq!(view_of("cpu"), Some((3, views[0].clone())));
        let left: Vec<String> = std::fs::read_dir(project.state_dir().join("variants"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
