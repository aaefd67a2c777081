//! The record of a package in the store: all that later steps need without opening its files again.

use serde::{Deserialize, Serialize};

use crate::hash::Sha256;
use crate::lockfile::ArtifactKind;
use crate::relpath::RelPath;

/// The record format this program writes.
pub const FORMAT: u32 = 1;

/// What the store knows of one unpacked package. Lies beside the tree as
/// `packages/<hash>-<name>-<version>[-<build>].json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PackageRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Which world it is from.
    pub kind: ArtifactKind,
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Conda build string.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub build: Option<String>,
    /// File name of the artifact.
    pub file: String,
    /// Digest of the artifact.
    pub sha256: Sha256,
    /// Bytes of the artifact.
    pub size: u64,
    /// SHA-256 of the Nix archive of the tree.
    pub nar: Sha256,
    /// Bytes of that archive.
    pub nar_size: u64,
    /// All entries of the tree, sorted by path; directories only where empty.
    pub entries: Vec<Entry>,
    /// What its own metadata says about installing it.
    pub meta: Meta,
    /// Dynamic facts of each ELF file, sorted by path.
    pub elf: Vec<ElfFile>,
}

/// One entry of a package tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Entry {
    /// Path in the tree.
    pub path: RelPath,
    /// What is there.
    #[serde(flatten)]
    pub kind: EntryKind,
}

/// What stands at a path of a package tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum EntryKind {
    /// A regular file, mode 0444 or 0555.
    File {
        /// Bytes.
        size: u64,
        /// Digest of the content.
        sha256: Sha256,
        /// Mode 0555.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        executable: bool,
    },
    /// A symbolic link.
    Symlink {
        /// Its text.
        target: String,
    },
    /// An empty directory.
    Dir,
}

/// Installation metadata of a package, parsed once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Meta {
    /// A conda package.
    Conda(CondaMeta),
    /// A wheel.
    Wheel(WheelMeta),
}

/// From `info/` of a conda package. Files below `info/` are in the tree but not in the view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CondaMeta {
    /// conda subdir.
    pub subdir: String,
    /// Files holding a prefix placeholder.
    pub relocations: Vec<Relocation>,
    /// `noarch: python`: files below `site-packages/` and `python-scripts/` move into place.
    pub noarch_python: bool,
    /// `noarch: python` entry points (`info/link.json`), as `name = module:func`.
    pub entry_points: Vec<String>,
    /// `python_site_packages_path` (CEP 17), on a `python` package.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub site_packages_path: Option<String>,
    /// Link scripts the package has (`bin/.NAME-post-link.sh` and the like).
    pub link_scripts: Vec<RelPath>,
    /// `depends` of index.json.
    pub depends: Vec<String>,
    /// Files of the archive that its own list (`paths.json`, `files`) leaves out, sorted, those
    /// below `info/` aside. An installer links what is listed, so they are not in a view.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unlisted: Vec<RelPath>,
}

/// A file with a placeholder for the prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Relocation {
    /// The file.
    pub path: RelPath,
    /// The text to replace.
    pub placeholder: String,
    /// `binary` (padded to length) rather than text.
    pub binary: bool,
}

/// From `*.dist-info/` of a wheel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct WheelMeta {
    /// Name of the `.dist-info` directory.
    pub dist_info: String,
    /// Name of the `.data` directory, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<String>,
    /// `Root-Is-Purelib`.
    pub root_is_purelib: bool,
    /// `entry_points.txt`, `[console_scripts]`, as `name = module:func`, sorted.
    pub console_scripts: Vec<String>,
    /// `[gui_scripts]`.
    pub gui_scripts: Vec<String>,
    /// Files of `.data/scripts` that start with `#!python`.
    pub python_scripts: Vec<RelPath>,
}

/// Dynamic facts of one ELF file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ElfFile {
    /// The file.
    pub path: RelPath,
    /// What its dynamic section says.
    #[serde(flatten)]
    pub dynamic: crate::elf::Dynamic,
}
