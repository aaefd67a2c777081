//! The env id: a hash over all that decides what a view holds.

use std::collections::BTreeMap;

use rattler_conda_types::Subdir as Platform;

use super::model::{ArtifactKind, Lock, LockedEnvironment, LockedPackage};
use crate::hash::{Sha256, ShortHash};

/// The first line of the preimage; changes when its grammar does. How a view is laid out is not
/// in it (see [`crate::view::manifest::ViewManifest::FORMAT`]): what was verified stays so.
pub const ENV_ID_FORMAT: &str = "gpuenv-env 1";

/// One package as the env id sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvIdPackage<'a> {
    /// Which world it is from.
    pub kind: ArtifactKind,
    /// Name.
    pub name: &'a str,
    /// Version.
    pub version: &'a str,
    /// Digest of the artifact.
    pub sha256: Sha256,
}

impl<'a> From<&'a LockedPackage> for EnvIdPackage<'a> {
    fn from(package: &'a LockedPackage) -> Self {
        EnvIdPackage {
            kind: package.kind,
            name: &package.name,
            version: &package.version,
            sha256: package.sha256,
        }
    }
}

/// What an env id is the hash of. Not in it: user, paths, sources, and the environment's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvIdInput<'a> {
    /// Target.
    pub platform: Platform,
    /// Declared host interpreter, as in [`LockedEnvironment::host_python`].
    pub host_python: Option<&'a str>,
    /// Packages in link order.
    pub packages: Vec<EnvIdPackage<'a>>,
    /// `[activation.env]`.
    pub activation: BTreeMap<&'a str, &'a str>,
    /// `[view.winners]`: path → package.
    pub winners: BTreeMap<&'a str, &'a str>,
}

/// The env id: the [`ShortHash`] of the SHA-256 of the preimage written down in
/// `store-layout/lock.md`. Every value is preceded by its length, so no two inputs share one.
pub fn env_id(input: &EnvIdInput) -> ShortHash {
    ShortHash::of(&Sha256::of(preimage(input)))
}

fn preimage(input: &EnvIdInput) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(ENV_ID_FORMAT.as_bytes());
    out.push(b'\n');
    let mut line = |tag: &str, values: &[&str]| {
        out.extend_from_slice(tag.as_bytes());
        for value in values {
            out.extend_from_slice(format!(" {}:", value.len()).as_bytes());
            out.extend_from_slice(value.as_bytes());
        }
        out.push(b'\n');
    };
    line("platform", &[input.platform.as_str()]);
    if let Some(python) = input.host_python {
        line("host-python", &[python]);
    }
    for package in &input.packages {
        let sha256 = package.sha256.to_string();
        line(package.kind.as_str(), &[package.name, package.version, &sha256]);
    }
    for (name, value) in &input.activation {
        line("set", &[name, value]);
    }
    for (path, owner) in &input.winners {
        line("winner", &[path, owner]);
    }
    out
}

impl Lock {
    /// The env id that the contents of `environment` give. Ids of packages that the lock does
    /// not have are passed over; [`super::check`] refuses them.
    pub fn compute_env_id(&self, environment: &LockedEnvironment) -> ShortHash {
        let packages = self.packages_of(environment).map(EnvIdPackage::from).collect();
        env_id(&EnvIdInput {
            platform: environment.platform,
            host_python: environment.host_python.as_deref(),
            packages,
            activation: self.inputs_below("activation.env."),
            winners: self.inputs_below("view.winners."),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input<'a>() -> EnvIdInput<'a> {
        EnvIdInput {
            platform: Platform::Linux64,
            host_python: Some("3.11"),
            packages: vec![
                EnvIdPackage {
                    kind: ArtifactKind::Conda,
                    name: "python",
                    version: "3.9.18",
                    sha256: Sha256::of("python"),
                },
                EnvIdPackage {
                    kind: ArtifactKind::Wheel,
                    name: "numpy",
                    version: "1.26.4",
                    sha256: Sha256::of("numpy"),
                },
            ],
            activation: BTreeMap::from([("FLAGS_x", "1 2\n3")]),
            winners: BTreeMap::from([("bin/f2py", "numpy")]),
        }
    }

    /// Written down in store-layout/lock.md; changing it orphans every view in every store.
    #[test]
    fn golden() {
        let text = String::from_utf8(preimage(&input())).unwrap();
        let documented = include_str!("../../store-layout/lock.md");
        assert!(documented.contains(&text), "{text}");
        let id = env_id(&input()).to_string();
        assert!(documented.contains(&format!("`{id}`")), "{id}");
    }

    #[test]
    fn every_part_decides() {
        let id = env_id(&input());
        let mut others = Vec::new();
        let mut change = |f: &dyn Fn(&mut EnvIdInput)| {
            let mut changed = input();
            f(&mut changed);
            others.push(env_id(&changed));
        };
        change(&|i| i.platform = Platform::LinuxAarch64);
        change(&|i| i.host_python = None);
        change(&|i| i.host_python = Some("3.12"));
        change(&|i| i.packages.reverse());
        change(&|i| i.packages[0].kind = ArtifactKind::Wheel);
        change(&|i| i.packages[0].name = "pythom");
        change(&|i| i.packages[0].version = "3.9.19");
        change(&|i| i.packages[0].sha256 = Sha256::of("x"));
        change(&|i| i.packages.truncate(1));
        change(&|i| i.activation = BTreeMap::from([("FLAGS_x", "1 2\n")]));
        change(&|i| i.activation = BTreeMap::new());
        change(&|i| i.winners = BTreeMap::new());
        // The same text, once as a variable and once as a winner.
        change(&|i| {
            i.activation.insert("bin/f2py", "numpy");
            i.winners.clear();
        });
        others.push(id);
        let all: std::collections::BTreeSet<_> = others.iter().collect();
        assert_eq!(all.len(), others.len());
    }
}
