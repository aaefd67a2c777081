//! What packages say belongs at a path.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use super::{OpKind, Relocate};
use crate::hash::Sha256;
use crate::package::PackageRecord;
use crate::relpath::RelPath;
use crate::view::content::Content;

/// A package as it takes part in a view.
#[derive(Clone, Debug)]
pub struct PackageInput<'a> {
    /// Its record.
    pub record: &'a PackageRecord,
    /// Its tree in the store.
    pub store_path: &'a Path,
    /// Whether env.toml itself asks for it (`REQUESTED`, `requested_spec`).
    pub root: bool,
    /// Conda: name of the channel as the lock has it.
    pub channel: Option<&'a str>,
    /// Conda: URL of the channel where env.toml gives one; otherwise the conda libraries'
    /// default location of [`channel`](Self::channel) is meant.
    pub channel_url: Option<&'a str>,
    /// Wheels of a URL or a path: what goes into `direct_url.json`.
    pub direct_url: Option<DirectUrl>,
}

/// A wheel's direct reference (the "direct URL data structure" of the packaging specifications).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectUrl {
    /// The URL, without credentials; for a path below the project `file:` and the relative path.
    pub url: String,
}

/// One claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Index of the package; `None` is gpuenv itself.
    pub owner: Option<usize>,
    pub what: What,
}

impl Claim {
    pub fn own(what: What) -> Self {
        Claim { owner: None, what }
    }
}

/// What is claimed. `from` is a path in the owner's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Dir,
    File {
        from: RelPath,
        sha256: Sha256,
        size: u64,
        executable: bool,
    },
    /// A link of a package (`from` set) or of gpuenv.
    PackageLink {
        from: RelPath,
        target: String,
    },
    Symlink {
        target: String,
    },
    HostPython,
    Relocated {
        from: RelPath,
        sha256: Sha256,
        executable: bool,
        how: Relocate,
    },
    Generated {
        content: Content,
        executable: bool,
    },
}

impl What {
    /// Whether both leave the same bytes at the path.
    pub fn same(&self, other: &What) -> bool {
        match (self, other) {
            (
                What::File { sha256: a, executable: x, .. },
                What::File { sha256: b, executable: y, .. },
            ) => a == b && x == y,
            (
                What::Relocated { sha256: a, executable: x, how: p, .. },
                What::Relocated { sha256: b, executable: y, how: q, .. },
            ) => a == b && x == y && p == q,
            (
                What::PackageLink { target: a, .. } | What::Symlink { target: a },
                What::PackageLink { target: b, .. } | What::Symlink { target: b },
            ) => a == b,
            (a, b) => a == b,
        }
    }

    /// Whether this is taken where one package claims a path twice: what is made for an entry
    /// point stands over a file of the same name.
    pub fn beats(&self, other: &What) -> bool {
        matches!(self, What::Generated { .. }) && !matches!(other, What::Generated { .. })
    }

    /// The file of a package that this is made from.
    pub fn source(&self) -> Option<(&RelPath, Sha256)> {
        match self {
            What::File { from, sha256, .. } | What::Relocated { from, sha256, .. } => {
                Some((from, *sha256))
            }
            _ => None,
        }
    }

    /// In words, for messages.
    pub fn describe(&self) -> String {
        match self {
            What::Dir => "a directory".into(),
            What::File { sha256, size, executable, .. } => {
                let x = if *executable { ", executable" } else { "" };
                format!("a file of {size} bytes, sha256 {sha256}{x}")
            }
            What::PackageLink { target, .. } | What::Symlink { target } => {
                format!("a link to {target:?}")
            }
            What::HostPython => "a link to the machine's Python".into(),
            What::Relocated { sha256, .. } => {
                format!("a file that names its own prefix, sha256 {sha256}")
            }
            What::Generated { content, .. } => content.describe().into(),
        }
    }

    /// As an operation.
    pub fn into_op(self, owner: Option<usize>, is_elf: bool) -> OpKind {
        let package = owner.unwrap_or(0);
        match self {
            What::Dir => OpKind::Dir,
            What::File { from, sha256, executable, .. } => {
                let real = executable || is_elf;
                OpKind::File { package, from, sha256, executable, real }
            }
            What::PackageLink { target, .. } | What::Symlink { target } => {
                OpKind::Symlink { target }
            }
            What::HostPython => OpKind::HostPython,
            What::Relocated { from, sha256, executable, how } => {
                OpKind::Relocated { package, from, sha256, executable, how }
            }
            What::Generated { content, executable } => OpKind::Generated { content, executable },
        }
    }
}

/// All claims, by path.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(BTreeMap<RelPath, Vec<Claim>>);

impl Claims {
    pub fn add(&mut self, path: RelPath, claim: Claim) {
        self.0.entry(path).or_default().push(claim);
    }

    /// Whether anything at or below the directory `dir` is claimed.
    pub fn any_below(&self, dir: &str) -> bool {
        self.0.contains_key(dir) || self.below(dir).next().is_some()
    }

    /// The claims strictly below `dir`.
    pub fn below(&self, dir: &str) -> impl Iterator<Item = &Claim> {
        // `0` is the character after `/`.
        let (start, end) = (format!("{dir}/"), format!("{dir}0"));
        let range = (Bound::Excluded(start.as_str()), Bound::Excluded(end.as_str()));
        self.0.range::<str, _>(range).flat_map(|(_, claims)| claims)
    }

    /// By path; claims on one path in link order.
    pub fn into_sorted(self) -> impl Iterator<Item = (RelPath, Vec<Claim>)> {
        self.0.into_iter()
    }
}
