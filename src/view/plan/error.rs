//! Why there is no plan.

use std::fmt;

use crate::error::{Exit, Report};
use crate::relpath::{RelPath, RelPathError};
use crate::view::finding::Place;

/// Two packages that give one path different content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The path.
    pub path: RelPath,
    /// One owner, and what it puts there.
    pub first: (String, String),
    /// The other, and what it puts there.
    pub second: (String, String),
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflict { path, first, second } = self;
        write!(f, "{path}\n    {}: {}\n    {}: {}", first.0, first.1, second.0, second.1)
    }
}

/// Why a view cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Paths with two owners. Sorted, never empty.
    #[error("{}", conflicts(.0))]
    Conflicts(Vec<Conflict>),
    /// A package has to be put into Python's site directory, and there is no Python.
    #[error("{package} needs a Python, and the environment has none")]
    NoPython {
        /// The package.
        package: String,
    },
    /// A conda `python` whose version does not start with two numbers.
    #[error("the conda package python has version {found:?}; expected one such as 3.11.9")]
    PythonVersion {
        /// The version.
        found: String,
    },
    /// A package wants to run a script when it is linked.
    #[error("{package} has a link script ({script}), which gpuenv does not run")]
    LinkScript {
        /// The package.
        package: String,
        /// The script.
        script: RelPath,
    },
    /// Two packages give a library that has to be in the link farm.
    #[error(
        "{name} has to be found by its bare name, and two packages give different ones: {first} and {second}"
    )]
    FarmDuplicate {
        /// The library.
        name: String,
        /// One.
        first: Place,
        /// The other.
        second: Place,
    },
    /// A wheel's `.data` directory has a part that is none of the five that are specified.
    #[error("{package}: {path} is of the unknown installation scheme {scheme:?}")]
    UnknownScheme {
        /// The package.
        package: String,
        /// The file.
        path: RelPath,
        /// The part.
        scheme: String,
    },
    /// A package leads to a path that no file system takes.
    #[error("the view would need an impossible path")]
    BadPath(#[source] RelPathError),
}

impl PlanError {
    pub(super) fn bad_path(error: RelPathError) -> Self {
        PlanError::BadPath(error)
    }
}

/// Most conflicts shown in full.
const SHOWN: usize = 5;

fn conflicts(all: &[Conflict]) -> String {
    let mut text = match all.len() {
        1 => "two packages give one path of the view different content:".to_owned(),
        n => format!("{n} paths of the view have two owners with different content:"),
    };
    for conflict in all.iter().take(SHOWN) {
        text += &format!("\n  {conflict}");
    }
    if all.len() > SHOWN {
        text += &format!("\n  and {} more", all.len() - SHOWN);
    }
    text
}

impl Report for PlanError {
    fn exit(&self) -> Exit {
        Exit::User
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            PlanError::Conflicts(all) => {
                let Conflict { path, first, second } = all.first()?;
                let name = if first.0 == "gpuenv" { &second.0 } else { &first.0 };
                if first.0 == "gpuenv" || second.0 == "gpuenv" {
                    format!("{path} is written by gpuenv itself; leave {name} out")
                } else {
                    format!(
                        "take one of the two packages out of env.toml, or say whose file is meant:\n\
                         [view.winners]\n{:?} = {name:?}",
                        path.as_str()
                    )
                }
            }
            PlanError::NoPython { .. } => {
                "add python to [dependencies], or declare the machine's: [host] python = \"3.11\""
                    .into()
            }
            PlanError::PythonVersion { .. } => "the channel's python package is damaged".into(),
            PlanError::LinkScript { package, .. } => format!(
                "if {package} works without it, say so in env.toml:\n\
                 [view]\nskip-link-scripts = [{package:?}]"
            ),
            PlanError::FarmDuplicate { name, .. } => format!(
                "take one of the two packages out of env.toml; if either will do, the later in link \
                 order is used with:\n[view]\nallow-duplicate-sonames = [{name:?}]"
            ),
            PlanError::UnknownScheme { package, .. } => format!(
                "a wheel has purelib, platlib, headers, scripts and data; {package} has to be repaired by its maker"
            ),
            PlanError::BadPath(_) => return None,
        })
    }
}
