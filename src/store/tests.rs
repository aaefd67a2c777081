use super::*;
use crate::lockfile::PackageId;

/// A locked wheel whose artifact is `bytes`.
pub(crate) fn locked_wheel(name: &str, version: &str, bytes: &[u8]) -> LockedPackage {
    let file = format!("{name}-{version}-py3-none-any.whl");
    LockedPackage {
        id: PackageId(file.clone()),
        kind: ArtifactKind::Wheel,
        name: name.to_owned(),
        version: version.to_owned(),
        build: None,
        subdir: None,
        file,
        source: "pypi".to_owned(),
        location: None,
        size: bytes.len() as u64,
        sha256: Sha256::of(bytes),
        hash_computed: false,
        nar: None,
        requires: Vec::new(),
        edges: Vec::new(),
        yanked: None,
    }
}
