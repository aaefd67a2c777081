//! Relative paths that came from outside, validated from the moment they are read.

use std::borrow::Borrow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Longest path accepted, in bytes: Linux's `PATH_MAX` less room for a store prefix.
pub const MAX_LEN: usize = 3072;
/// Longest component accepted, in bytes: `NAME_MAX`.
pub const MAX_COMPONENT: usize = 255;

/// A relative path with `/` between components: UTF-8, not empty, no empty, `.` or `..`
/// component, no NUL, not absolute. Ordered bytewise by component string, as the whole text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Box<str>);

/// Why a text is no [`RelPath`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelPathError {
    /// Nothing is left of the path.
    #[error("the path is empty")]
    Empty,
    /// It starts at the root.
    #[error("path {0:?} is absolute")]
    Absolute(String),
    /// A component is `..`.
    #[error("path {0:?} has a `..` component")]
    Parent(String),
    /// A component is empty or `.` in the middle.
    #[error("path {0:?} has an empty or `.` component")]
    EmptyComponent(String),
    /// A NUL or another control character.
    #[error("path {0:?} has a control character")]
    Control(String),
    /// Not UTF-8.
    #[error("path {0:?} is not UTF-8")]
    NotUtf8(String),
    /// Longer than a file system takes.
    #[error("path {0:?} is too long")]
    TooLong(String),
}

impl RelPath {
    /// Validates `text`. A leading `./` and one trailing `/` are dropped, as archives write them.
    pub fn new(text: &str) -> Result<Self, RelPathError> {
        let shown = || text.chars().take(200).collect::<String>();
        if text.starts_with('/') {
            return Err(RelPathError::Absolute(shown()));
        }
        let mut rest = text;
        while let Some(r) = rest.strip_prefix("./") {
            rest = r;
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() || rest == "." {
            return Err(RelPathError::Empty);
        }
        if rest.len() > MAX_LEN {
            return Err(RelPathError::TooLong(shown()));
        }
        if rest.chars().any(|c| c.is_control()) {
            return Err(RelPathError::Control(shown()));
        }
        for part in rest.split('/') {
            match part {
                ".." => return Err(RelPathError::Parent(shown())),
                "" | "." => return Err(RelPathError::EmptyComponent(shown())),
                p if p.len() > MAX_COMPONENT => return Err(RelPathError::TooLong(shown())),
                _ => {}
            }
        }
        Ok(RelPath(rest.into()))
    }

    /// Validates bytes as an archive gives them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RelPathError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::new(text),
            Err(_) => Err(RelPathError::NotUtf8(
                String::from_utf8_lossy(bytes).chars().take(200).collect(),
            )),
        }
    }

    /// The text of the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The last component.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
    /// The path without its last component; `None` for one of a single component.
    pub fn parent(&self) -> Option<RelPath> {
        self.0.rsplit_once('/').map(|(p, _)| RelPath(p.into()))
    }
    /// The components, first to last.
    pub fn components(&self) -> std::str::Split<'_, char> {
        self.0.split('/')
    }
    /// This path with `more` (validated) appended.
    pub fn join(&self, more: &RelPath) -> RelPath {
        RelPath(format!("{}/{}", self.0, more.0).into())
    }
    /// This path with the text `more` appended, validated.
    pub fn push(&self, more: &str) -> Result<RelPath, RelPathError> {
        RelPath::new(&format!("{}/{more}", self.0))
    }
    /// What is left below `prefix`, which must be a proper ancestor.
    pub fn strip_prefix(&self, prefix: &RelPath) -> Option<RelPath> {
        let rest = self.0.strip_prefix(&*prefix.0)?.strip_prefix('/')?;
        Some(RelPath(rest.into()))
    }
    /// Whether this path lies below `prefix` (or is it).
    pub fn starts_with(&self, prefix: &RelPath) -> bool {
        self == prefix || self.strip_prefix(prefix).is_some()
    }
    /// The path below `base` on disk.
    pub fn under(&self, base: &Path) -> PathBuf {
        base.join(&*self.0)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
impl FromStr for RelPath {
    type Err = RelPathError;
    fn from_str(s: &str) -> Result<Self, RelPathError> {
        RelPath::new(s)
    }
}
impl AsRef<str> for RelPath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}
impl AsRef<Path> for RelPath {
    fn as_ref(&self) -> &Path {
        Path::new(&*self.0)
    }
}
impl Borrow<str> for RelPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}
impl serde::Serialize for RelPath {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}
impl<'de> serde::Deserialize<'de> for RelPath {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        RelPath::new(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_archives_write() {
        for (given, kept) in
            [("a/b", "a/b"), ("./a", "a"), ("a/", "a"), ("././a/b/", "a/b"), ("a b/ü", "a b/ü")]
        {
            assert_eq!(RelPath::new(given).unwrap().as_str(), kept);
        }
    }

    #[test]
    fn refuses_what_leaves_the_tree() {
        for bad in [
            "", ".", "./", "/a", "../a", "a/../b", "a//b", "a/./b", "a/..", "a\0b", "a\nb", "//a",
            ".//a",
        ] {
            assert!(RelPath::new(bad).is_err(), "{bad:?}");
        }
        assert!(RelPath::new(&"x".repeat(256)).is_err());
        assert!(RelPath::from_bytes(b"\xff").is_err());
    }
}
