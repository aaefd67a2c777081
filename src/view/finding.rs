//! What a plan noticed and the user should hear of, short of an error.

use std::fmt;

use crate::relpath::RelPath;

/// A path of a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Name of the package.
    pub package: String,
    /// Path in the view.
    pub path: RelPath,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.package, self.path)
    }
}

/// Something worth saying about a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Two packages give a library of one soname with different content: which one a process
    /// gets depends on what it loads first.
    DuplicateSoname {
        /// The soname.
        soname: String,
        /// One.
        first: Place,
        /// The other.
        second: Place,
    },
    /// An entry point that does not name an object; no script is made for it.
    BadEntryPoint {
        /// The package.
        package: String,
        /// The entry point as written.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// `skip-link-scripts` names the package: its script did not run.
    LinkScriptSkipped {
        /// The package.
        package: String,
        /// The script.
        script: RelPath,
    },
    /// `[view.winners]` decided.
    Winner {
        /// The path.
        path: RelPath,
        /// Whose file is taken.
        winner: String,
        /// Whose file is not.
        loser: String,
    },
    /// `[view.winners]` names a path on which this package has no claim.
    UnusedWinner {
        /// The path.
        path: RelPath,
        /// The package named.
        winner: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::DuplicateSoname { soname, first, second } => {
                write!(f, "{soname} comes from two packages: {first} and {second}")
            }
            Finding::BadEntryPoint { package, text, reason } => {
                write!(f, "{package}: entry point {text:?} gets no script: {reason}")
            }
            Finding::LinkScriptSkipped { package, script } => {
                write!(f, "{package}: its link script {script} is not run (skip-link-scripts)")
            }
            Finding::Winner { path, winner, loser } => {
                write!(f, "{path} is taken from {winner}, not from {loser} ([view.winners])")
            }
            Finding::UnusedWinner { path, winner } => {
                write!(f, "[view.winners] names {winner} for {path}, which it does not provide")
            }
        }
    }
}
