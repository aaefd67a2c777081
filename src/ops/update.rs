//! `update`: newer versions, of some packages or of all.

use rattler_conda_types::PackageName as CondaName;
use uv_normalize::PackageName as DistName;

use super::context::Context;
use super::lock::{self, LockCheckError, Locked};
use super::show::UnknownName;
use crate::error::Result;
use crate::manifest::Manifest;
use crate::resolve::{Keep, Key};

/// Which choices of the old lock are given up though they would fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Update {
    /// None.
    #[default]
    Nothing,
    /// All of them.
    All,
    /// Those of packages of these names, in both worlds, and those that hold them back.
    Names(Vec<String>),
}

/// What `update` did.
#[derive(Debug)]
pub struct Updated {
    /// The lock as it now is, or would be.
    pub locked: Locked,
    /// Of the names that were to be updated and did not move: name and versions.
    pub same: Vec<(String, Vec<String>)>,
}

impl Update {
    /// Whether every name is one of the lock, or of env.toml.
    pub(super) fn check(
        &self,
        manifest: &Manifest,
        is_locked: bool,
        locked: impl FnOnce() -> Vec<String>,
    ) -> Result<()> {
        let Update::Names(names) = self else { return Ok(()) };
        if !is_locked {
            return Err(LockCheckError::Missing.into());
        }
        let mut known = locked();
        known.extend(manifest.all_dependencies().map(|d| d.name.as_normalized().to_owned()));
        known.extend(manifest.all_pypi_dependencies().map(|d| d.name.to_string()));
        match names.iter().find(|name| !known.iter().any(|known| same(known, name))) {
            Some(name) => Err(UnknownName::among(known.iter().map(String::as_str), name).into()),
            None => Ok(()),
        }
    }

    /// What of `keep` is still to be kept.
    pub(super) fn free(&self, mut keep: Keep) -> Keep {
        match self {
            Update::Nothing => keep,
            Update::All => Keep::default(),
            Update::Names(names) => {
                for name in names {
                    if let Ok(name) = name.parse::<CondaName>() {
                        keep.conda.remove(&name);
                        keep.newest.insert(Key::Conda(name));
                    }
                    if let Ok(name) = name.parse::<DistName>() {
                        keep.wheels.remove(&name);
                        keep.newest.insert(Key::Wheel(name));
                    }
                }
                keep
            }
        }
    }
}

/// Whether a package of the lock is meant by a name of the command line, in either world's way.
fn same(locked: &str, name: &str) -> bool {
    name.parse::<CondaName>().is_ok_and(|name| name.as_normalized() == locked)
        || name.parse::<DistName>().is_ok_and(|name| name.as_ref() == locked)
}

/// `update`: resolves with `names` freed, or with nothing kept where none is given. With `dry`,
/// nothing is written.
pub fn update(ctx: &Context, names: &[String], dry: bool) -> Result<Updated> {
    let update = match names {
        [] => Update::All,
        names => Update::Names(names.to_vec()),
    };
    let locked = match dry {
        true => lock::resolve(ctx, &update)?.0,
        false => lock::lock(ctx, &update)?,
    };
    let mut unmoved = Vec::new();
    for name in names {
        if locked.changes.iter().any(|change| same(&change.name, name)) {
            continue;
        }
        let packages = locked.lock.packages.iter().filter(|p| same(&p.name, name));
        let mut versions: Vec<String> = packages.map(|p| p.version.clone()).collect();
        versions.sort();
        versions.dedup();
        unmoved.push((name.clone(), versions));
    }
    Ok(Updated { locked, same: unmoved })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_meant_in_the_way_of_both_worlds() {
        assert!(same("ruamel-yaml", "ruamel.yaml"));
        assert!(same("ruamel.yaml", "Ruamel.YAML"));
        assert!(same("typing_extensions", "typing_extensions"));
        assert!(same("typing-extensions", "typing_extensions"));
        assert!(!same("typing", "typing_extensions"));
    }

    #[test]
    fn names_are_freed_in_both_worlds() {
        let mut keep = Keep::default();
        let numpy: CondaName = "numpy".parse().unwrap();
        keep.conda.insert(numpy.clone(), ("1".into(), "0".into()));
        keep.conda.insert("other".parse().unwrap(), ("1".into(), "0".into()));
        let freed = Update::Names(vec!["NumPy".into()]).free(keep.clone());
        assert_eq!(freed.conda.len(), 1);
        assert!(freed.newest.contains(&Key::Conda(numpy)));
        assert_eq!(freed.newest.len(), 2);
        assert_eq!(Update::Nothing.free(keep.clone()).conda.len(), 2);
        assert!(Update::All.free(keep).conda.is_empty());
    }
}
