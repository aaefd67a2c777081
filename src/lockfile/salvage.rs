//! What of a lock can still be used when the lock itself cannot.

use super::model::{ArtifactKind, LockedPackage};
use crate::hash::Sha256;

/// A choice that a lock held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// Which world it is from.
    pub kind: ArtifactKind,
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Conda build string.
    pub build: Option<String>,
    /// File name.
    pub file: Option<String>,
    /// Digest of the file.
    pub sha256: Option<Sha256>,
}

impl From<&LockedPackage> for Pin {
    fn from(package: &LockedPackage) -> Self {
        Pin {
            kind: package.kind,
            name: package.name.clone(),
            version: package.version.clone(),
            build: package.build.clone(),
            file: Some(package.file.clone()),
            sha256: Some(package.sha256),
        }
    }
}

/// The choices in the text of a lock that [`super::parse`] refuses: one with conflict markers, a
/// bad merge, a newer version. For the solver's preferences only (a wrong pin costs nothing but
/// the preference), so that `gpuenv lock` after a merge does not upgrade the world.
///
/// Reads line by line, since the writer puts one fact on each. Sorted; of a name that two sides
/// pin differently, both are given.
pub fn salvage(text: &str) -> Vec<Pin> {
    let mut pins = Vec::new();
    let mut block = Block::default();
    for line in text.lines() {
        if line.starts_with("[[") || line.starts_with('[') {
            pins.extend(std::mem::take(&mut block).pin());
            block.package = line.trim_end() == "[[package]]";
        } else if let Some((key, value)) = line.split_once(" = ") {
            let value = value.trim().strip_prefix('"').and_then(|v| v.strip_suffix('"'));
            let (true, Some(value)) = (block.package, value) else { continue };
            let value = Some(value.to_owned());
            match key {
                "kind" => block.kind = value,
                "name" => block.name = value,
                "version" => block.version = value,
                "build" => block.build = value,
                "file" => block.file = value,
                "sha256" => block.sha256 = value,
                _ => {}
            }
        }
    }
    pins.extend(block.pin());
    pins.sort();
    pins.dedup();
    pins
}

#[derive(Default)]
struct Block {
    package: bool,
    kind: Option<String>,
    name: Option<String>,
    version: Option<String>,
    build: Option<String>,
    file: Option<String>,
    sha256: Option<String>,
}

impl Block {
    fn pin(self) -> Option<Pin> {
        Some(Pin {
            kind: ArtifactKind::from_name(&self.kind?)?,
            name: self.name?,
            version: self.version?,
            build: self.build,
            file: self.file,
            sha256: self.sha256.and_then(|digest| digest.parse().ok()),
        })
    }
}
