//! What of a lock can still be used when the lock itself cannot.

use super::model::ArtifactKind;

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
}

impl Block {
    fn pin(self) -> Option<Pin> {
        Some(Pin {
            kind: ArtifactKind::from_name(&self.kind?)?,
            name: self.name?,
            version: self.version?,
            build: self.build,
        })
    }
}
