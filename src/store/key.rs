//! Names of packages and environments in the store.

use std::fmt;
use std::str::FromStr;

use crate::hash::{Sha256, ShortHash};
use crate::lockfile::{ArtifactKind, LockedPackage};
use crate::package::UnpackPolicy;

/// Longest readable part of a name, in bytes; with the hash it stays below `NAME_MAX`, with
/// room for an ending.
const READABLE: usize = 160;

/// Name of a package in the store: `<hash>-<name>-<version>[-<build>]`.
///
/// The hash alone decides; the rest is for people. It is the [`ShortHash`] of the SHA-256 over
/// these lines, each ended by a newline:
///
/// ```text
/// gpuenv package 1
/// kind conda|wheel
/// sha256 <64 hexadecimal digits of the artifact>
/// external-links allowed               (only where env.toml allows them)
/// ```
///
/// The first line changes whenever the same artifact would unpack to something else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageKey(String);

impl PackageKey {
    /// The key under the default policy.
    pub fn of(package: &LockedPackage) -> PackageKey {
        PackageKey::with_policy(package, UnpackPolicy::default())
    }

    /// The key under a policy.
    pub fn with_policy(package: &LockedPackage, policy: UnpackPolicy) -> PackageKey {
        let kind = match package.kind {
            ArtifactKind::Conda => "conda",
            ArtifactKind::Wheel => "wheel",
        };
        let mut preimage = format!("gpuenv package 1\nkind {kind}\nsha256 {}\n", package.sha256);
        if policy.allow_external_links {
            preimage.push_str("external-links allowed\n");
        }
        let hash = ShortHash::of(&Sha256::of(preimage));
        let mut readable = format!("{}-{}", package.name, package.version);
        if let Some(build) = &package.build {
            readable.push('-');
            readable.push_str(build);
        }
        PackageKey(format!("{hash}-{}", plain(&readable)))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hash in it.
    pub fn hash(&self) -> &str {
        self.0.split('-').next().unwrap_or(&self.0)
    }
}

impl fmt::Display for PackageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no name of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name of the store: expected `<hash>-<name>`")]
pub struct BadName(pub String);

impl FromStr for PackageKey {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        check_name(text).map(|()| PackageKey(text.to_owned()))
    }
}

/// Name of an environment in the store: `<env id>-<name>`.
pub fn env_name(id: &ShortHash, name: &str) -> String {
    format!("{id}-{}", plain(name))
}

/// Checks that a text is `<hash>-<name>` of plain characters, and so one harmless component of
/// a path.
pub fn check_name(text: &str) -> Result<(), BadName> {
    let bad = || BadName(text.chars().take(200).collect());
    let (hash, readable) = text.split_once('-').ok_or_else(bad)?;
    hash.parse::<ShortHash>().map_err(|_| bad())?;
    if readable.is_empty() || readable.len() > READABLE || plain(readable) != readable {
        return Err(bad());
    }
    Ok(())
}

/// The readable part of a name: letters, digits and `._+-!`, everything else an underscore.
/// What a lock or a project calls things is data of others and must not make a path.
fn plain(text: &str) -> String {
    let mut out: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._+-!".contains(c) { c } else { '_' })
        .take(READABLE)
        .collect();
    if out.is_empty() {
        out.push('_');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::locked_wheel;

    #[test]
    fn golden_keys() {
        let golden = include_str!("../../store-layout/golden/keys.txt");
        let value = |key: &str| {
            golden.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')).unwrap()
        };
        let mut package = locked_wheel("demo", "1.0+cu121", b"");
        assert_eq!(package.sha256, Sha256::of(b""));
        assert_eq!(PackageKey::of(&package).as_str(), value("wheel"));
        let policy = UnpackPolicy { allow_external_links: true };
        assert_eq!(
            PackageKey::with_policy(&package, policy).as_str(),
            value("wheel-external-links")
        );
        package.kind = ArtifactKind::Conda;
        package.build = Some("h123_0".into());
        assert_eq!(PackageKey::of(&package).as_str(), value("conda"));
    }

    #[test]
    fn names_from_outside_make_no_path() {
        for (name, version) in
            [("../../x", "1"), ("a/b", "1\0"), ("", ""), ("ü\n", "1"), (&"x".repeat(400), "1")]
        {
            let key = PackageKey::of(&locked_wheel(name, version, b""));
            assert!(!key.as_str().contains(['/', '\0', '\n']), "{key}");
            assert!(key.as_str().len() < 200);
            assert_eq!(key.as_str().parse::<PackageKey>().unwrap(), key);
        }
        for bad in ["", "x", "..", "0123-x", &format!("{}-a/b", "0".repeat(32)), "0-"] {
            assert!(bad.parse::<PackageKey>().is_err(), "{bad:?}");
        }
    }
}
