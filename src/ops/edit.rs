//! `init`, `add`, `remove`: edits of env.toml that keep comments and layout.

use std::path::{Path, PathBuf};

use super::project::{MANIFEST, Project};
use crate::error::Result;
use crate::manifest::{self, edit};

/// What `init` is told.
#[derive(Clone, Debug, Default)]
pub struct Init {
    /// Name of the environment; default: the directory's.
    pub name: Option<String>,
    /// Channels.
    pub channels: Vec<String>,
    /// Platforms; default: linux-64.
    pub platforms: Vec<String>,
    /// Python from conda.
    pub python: Option<String>,
    /// Python of the machine.
    pub host_python: Option<String>,
}

/// What `add` is told.
#[derive(Clone, Debug, Default)]
pub struct Add {
    /// Requirements.
    pub specs: Vec<String>,
    /// To `[pypi-dependencies]`.
    pub pypi: bool,
    /// From this index.
    pub index: Option<String>,
}

/// What `init` did.
#[derive(Clone, Debug)]
pub struct Initialized {
    /// The file written.
    pub path: PathBuf,
}

/// What an edit did.
#[derive(Clone, Debug, Default)]
pub struct Edited {
    /// Whether env.toml was written.
    pub changed: bool,
    /// A sentence a requirement.
    pub lines: Vec<String>,
}
