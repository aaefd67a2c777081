//! What can be wrong with a `gpuenv.lock`.

use std::error::Error;
use std::fmt;
use std::ops::Range;

use crate::error::{Exit, Report, Snippet};
use crate::hash::ShortHash;
use crate::manifest::{line_column, list, mask_credentials};

/// A `gpuenv.lock` that was refused.
#[derive(Debug)]
pub struct LockError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    file: String,
    /// The text and the place in it; `None` for a lock that was never text.
    place: Option<(String, Range<usize>)>,
    kind: LockErrorKind,
}

impl LockError {
    pub(super) fn at(file: &str, text: &str, span: Range<usize>, kind: LockErrorKind) -> Self {
        // A span past the end would make the edge's snippet fail instead of the lock.
        let end = span.end.min(text.len());
        let span = span.start.min(end)..end;
        let place = Some((mask_credentials(text), span));
        LockError(Box::new(Inner { file: file.into(), place, kind }))
    }

    pub(super) fn without_text(file: &str, kind: LockErrorKind) -> Self {
        LockError(Box::new(Inner { file: file.into(), place: None, kind }))
    }

    /// What is wrong.
    pub fn kind(&self) -> &LockErrorKind {
        &self.0.kind
    }

    /// Line and column of the fault, both from 1.
    pub fn position(&self) -> Option<(usize, usize)> {
        self.0.place.as_ref().map(|(text, span)| line_column(text, span.start))
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position() {
            Some((line, column)) => write!(f, "{}:{line}:{column}: {}", self.0.file, self.0.kind),
            None => write!(f, "{}: {}", self.0.file, self.0.kind),
        }
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.kind.source()
    }
}

impl Report for LockError {
    fn exit(&self) -> Exit {
        match (&self.0.place, &self.0.kind) {
            // Metadata of a package may hold what a lock must not.
            (Some(_), _) | (None, LockErrorKind::Credentials { .. }) => Exit::User,
            // gpuenv itself made it.
            (None, _) => Exit::Bug,
        }
    }
    fn hint(&self) -> Option<String> {
        let anew = "restore the file from version control, or run `gpuenv lock` to write it anew (it keeps the versions that still fit)";
        Some(match &self.0.kind {
            LockErrorKind::Newer { .. } => {
                "upgrade gpuenv, or restore the lock that this version wrote".into()
            }
            LockErrorKind::Conflict => "run `gpuenv lock`: it solves for the merged env.toml and keeps what both sides agree on".into(),
            LockErrorKind::EnvId { .. } => format!("a lock is not edited by hand, and a merge needs a new solve: {anew}"),
            LockErrorKind::UnknownKey { known, .. } => {
                format!("known here: {}; {anew}", list(known))
            }
            LockErrorKind::Credentials { .. } => {
                "remove them from env.toml, put user and password into the netrc file of each machine (or its gpuenv configuration), and run `gpuenv lock`; change the password if this file was shared".into()
            }
            _ => anew.into(),
        })
    }
    fn snippet(&self) -> Option<Snippet> {
        let (text, span) = self.0.place.clone()?;
        Some(Snippet { file: self.0.file.clone(), text, span, label: self.0.kind.label().into() })
    }
}

/// A cause kept for the chain of an error.
pub type Cause = Box<dyn Error + Send + Sync + 'static>;

/// The kinds of faults.
#[derive(Debug, thiserror::Error)]
pub enum LockErrorKind {
    /// Not TOML.
    #[error("the lock is damaged: {0}")]
    Syntax(String),
    /// `<<<<<<<` and the like.
    #[error("the lock has an unresolved merge conflict")]
    Conflict,
    /// No `lock-version` before the first table.
    #[error("no `lock-version`: this is not a gpuenv.lock, or its head is gone")]
    NoVersion,
    /// Written by a later gpuenv.
    #[error("the lock has version {found}; this gpuenv reads up to version {known}")]
    Newer {
        /// In the file.
        found: u64,
        /// [`super::VERSION`].
        known: u32,
    },
    /// A version that never was.
    #[error("the lock has version {0}, which no gpuenv ever wrote")]
    NoSuchVersion(u64),
    /// A key the format does not have.
    #[error("unknown key `{key}` in {table}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The table.
        table: &'static str,
        /// The keys it has.
        known: Vec<String>,
    },
    /// A key the format demands.
    #[error("`{key}` is missing from {table}")]
    Missing {
        /// The key.
        key: &'static str,
        /// The table.
        table: &'static str,
    },
    /// A value of another type.
    #[error("`{key}` in {table} is not {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// The table.
        table: &'static str,
        /// What should stand there, with an article.
        expected: &'static str,
    },
    /// A value its type refuses.
    #[error("`{value}` is not {what}")]
    Invalid {
        /// What it should be, with an article.
        what: &'static str,
        /// As written.
        value: String,
        /// Why it is refused.
        #[source]
        cause: Option<Cause>,
    },
    /// Two of what there is one of.
    #[error("{what} `{name}` is there twice")]
    Duplicate {
        /// A package, a source, …
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A name that leads nowhere.
    #[error("{by} names {what} `{name}`, which the lock does not have")]
    Dangling {
        /// A package, a source, …
        what: &'static str,
        /// The name.
        name: String,
        /// Who names it.
        by: String,
    },
    /// The environments are not those that the inputs ask for.
    #[error("the inputs ask for environments for {asked}; the lock has environments for {found}")]
    Platforms {
        /// From `env.platforms`.
        asked: String,
        /// Of the environments.
        found: String,
    },
    /// A package that no environment holds.
    #[error("package `{0}` is in no environment")]
    Orphan(String),
    /// The id of a package is not made of its other fields.
    #[error("package id `{found}` does not fit its fields: expected `{expected}`")]
    Id {
        /// Made of the fields.
        expected: String,
        /// As written.
        found: String,
    },
    /// A source of the wrong kind.
    #[error("package `{package}` comes from `{source_name}`, which gives no such artifacts")]
    WrongSource {
        /// The package's id.
        package: String,
        /// The source.
        source_name: String,
    },
    /// Credentials in a URL.
    #[error("{place} holds credentials")]
    Credentials {
        /// Where, never the URL itself.
        place: String,
    },
    /// A path that only one machine has.
    #[error("{place} is an absolute path, which no other machine has")]
    AbsolutePath {
        /// Where.
        place: String,
    },
    /// The env id is not the hash of what the lock says.
    #[error(
        "the environment for {platform} was edited by hand or badly merged: its env-id is {written}, its contents give {computed}"
    )]
    EnvId {
        /// The environment.
        platform: String,
        /// As written.
        written: ShortHash,
        /// Of the contents.
        computed: ShortHash,
    },
}

impl LockErrorKind {
    fn label(&self) -> &'static str {
        match self {
            LockErrorKind::Syntax(_) | LockErrorKind::Missing { .. } => "here",
            LockErrorKind::Conflict => "conflict marker",
            LockErrorKind::NoVersion => "expected `lock-version = …`",
            LockErrorKind::Newer { .. } => "newer",
            LockErrorKind::NoSuchVersion(_) => "no such version",
            LockErrorKind::UnknownKey { .. } => "unknown key",
            LockErrorKind::WrongType { .. } => "wrong type",
            LockErrorKind::Invalid { .. } => "not valid",
            LockErrorKind::Duplicate { .. } => "there twice",
            LockErrorKind::Dangling { .. } => "leads nowhere",
            LockErrorKind::Platforms { .. } => "other platforms",
            LockErrorKind::Orphan(_) => "in no environment",
            LockErrorKind::Id { .. } => "does not fit",
            LockErrorKind::WrongSource { .. } => "wrong source",
            LockErrorKind::Credentials { .. } => "credentials",
            LockErrorKind::AbsolutePath { .. } => "absolute path",
            LockErrorKind::EnvId { .. } => "does not fit the contents",
        }
    }
}
