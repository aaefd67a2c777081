//! What can be wrong with an `env.toml`, each fault at its place in the text.

use std::error::Error;
use std::fmt;

use super::location::mask_credentials;
use super::model::Span;
use crate::error::{Exit, Report, Snippet};

/// An `env.toml` that was refused: all faults found in one reading, in the order of the text.
#[derive(Debug)]
pub struct ManifestError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    file: String,
    text: String,
    first: Fault,
    others: Vec<Fault>,
}

impl ManifestError {
    /// `None` when `faults` is empty.
    pub(super) fn new(file: &str, text: &str, mut faults: Vec<Fault>) -> Option<Self> {
        faults.sort_by_key(|fault| fault.span.start);
        let mut faults = faults.into_iter();
        let first = faults.next()?;
        Some(ManifestError(Box::new(Inner {
            file: file.to_owned(),
            text: text.to_owned(),
            first,
            others: faults.collect(),
        })))
    }

    /// One fault alone.
    pub(super) fn of(file: &str, text: &str, fault: Fault) -> Self {
        ManifestError(Box::new(Inner {
            file: file.to_owned(),
            text: text.to_owned(),
            first: fault,
            others: Vec::new(),
        }))
    }

    /// Every fault, in the order of the text; never empty.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        std::iter::once(&self.0.first).chain(&self.0.others)
    }

    /// Line and column of a byte offset, both from 1, columns in characters.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        line_column(&self.0.text, offset)
    }
}

/// Line and column of a byte offset in `text`, both from 1, columns in characters.
pub(crate) fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before: String = String::from_utf8_lossy(&text.as_bytes()[..offset.min(text.len())]).into();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.position(self.0.first.span.start);
        write!(f, "{}:{line}:{column}: {}", self.0.file, self.0.first.kind)
    }
}

impl Error for ManifestError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.first.kind.source()
    }
}

impl Report for ManifestError {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        let mut lines: Vec<String> = self.0.first.kind.hint().into_iter().collect();
        for fault in &self.0.others {
            let (line, column) = self.position(fault.span.start);
            let mut words = format!("also at {}:{line}:{column}: {}", self.0.file, fault.kind);
            let mut cause = fault.kind.source();
            while let Some(error) = cause {
                words.push_str(": ");
                words.push_str(error.to_string().lines().next().unwrap_or(""));
                cause = error.source();
            }
            lines.push(words);
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
    fn snippet(&self) -> Option<Snippet> {
        Some(Snippet {
            file: self.0.file.clone(),
            text: self.0.text.clone(),
            span: self.0.first.span.clone(),
            label: self.0.first.kind.label(),
        })
    }
}

/// One fault and where it stands.
#[derive(Debug)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// Where.
    pub span: Span,
}

/// A cause kept for the chain of an error.
pub type Cause = Box<dyn Error + Send + Sync + 'static>;

/// An error of a library that draws arrows below its own text, as its first line; credentials
/// are masked.
pub(super) fn flat(error: impl fmt::Display) -> Cause {
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Words(String);
    let words = error.to_string();
    Box::new(Words(mask_credentials(words.lines().next().unwrap_or(""))))
}

/// The kinds of faults.
#[derive(Debug, thiserror::Error)]
pub enum FaultKind {
    /// Not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// A key this program does not know.
    #[error("unknown key `{key}` in {table}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The table, as `[env]`.
        table: String,
        /// The known key that looks most like it.
        nearest: Option<String>,
        /// All known keys of the table.
        known: Vec<String>,
    },
    /// A value of another type.
    #[error("`{key}` is {found}, expected {expected}")]
    WrongType {
        /// The key with its table, as `env.name`.
        key: String,
        /// What should stand there, with an article.
        expected: &'static str,
        /// What stands there, with an article.
        found: &'static str,
    },
    /// A key that has to be there.
    #[error("`{key}` is missing from {table}")]
    Missing {
        /// The key.
        key: &'static str,
        /// The table.
        table: String,
        /// What to write.
        hint: &'static str,
    },
    /// A value its type refuses.
    #[error("`{value}` is not {what}")]
    Invalid {
        /// What it should be, with an article.
        what: &'static str,
        /// The value as written.
        value: String,
        /// What to write instead.
        hint: Option<String>,
        /// Why it is refused.
        #[source]
        cause: Option<Cause>,
    },
    /// Two keys or list items that mean the same.
    #[error("{what} `{name}` is given twice, first on line {first}")]
    Duplicate {
        /// A package, a channel, …
        what: &'static str,
        /// The name both have.
        name: String,
        /// Line of the first.
        first: usize,
    },
    /// A version where PEP 440 wants a specifier.
    #[error("`{version}` is a version, not a specifier: `{name}` needs an operator")]
    BareVersion {
        /// The distribution.
        name: String,
        /// The version.
        version: String,
    },
    /// What would have to be built from source.
    #[error("`{name}` would have to be built from source ({what}), which is not supported yet")]
    BuildFromSource {
        /// The distribution.
        name: String,
        /// What asks for it, as `git = …`.
        what: String,
    },
    /// A URL with a user name, password or token in it.
    #[error("{place} holds credentials")]
    Credentials {
        /// The key, never the URL itself.
        place: String,
    },
    /// A part of the design that this version does not do.
    #[error("{what} is not supported by this version of gpuenv")]
    Unsupported {
        /// The part.
        what: String,
        /// What to do instead.
        instead: String,
    },
    /// `index = NAME` without such an index.
    #[error("no index `{name}` in [pypi-options.indexes]")]
    UnknownIndex {
        /// The name.
        name: String,
        /// Names that look like it.
        nearest: Vec<String>,
    },
    /// `channel = NAME` that `[env] channels` does not list.
    #[error("channel `{name}` is not one of [env] channels")]
    UnknownChannel {
        /// The name.
        name: String,
        /// Channels that look like it.
        nearest: Vec<String>,
    },
    /// Conda dependencies and no channel.
    #[error("[dependencies] has conda packages, but [env] channels is empty")]
    NoChannels,
    /// Wheels and no Python.
    #[error("[pypi-dependencies] needs a Python, and neither a conda channel nor [host] gives one")]
    NoPython,
    /// Both the machine's Python and conda's.
    #[error(
        "[host] (line {host_line}) takes the machine's Python, and [dependencies] (line {conda_line}) asks for conda's"
    )]
    TwoPythons {
        /// Line of `[host]`.
        host_line: usize,
        /// Line of the conda package.
        conda_line: usize,
    },
    /// Keys that exclude each other.
    #[error("`{name}` has both `{one}` and `{other}`, which exclude each other")]
    Exclusive {
        /// The dependency.
        name: String,
        /// A key.
        one: &'static str,
        /// Another.
        other: &'static str,
    },
    /// A local wheel whose location would have to be an absolute path in the lock.
    #[error("the location of `{name}` is an absolute path, which no other machine has")]
    AbsoluteWheel {
        /// The distribution.
        name: String,
    },
    /// A wheel file of another distribution.
    #[error("the wheel `{file}` holds `{found}`, not `{name}`")]
    WheelName {
        /// The key in `[pypi-dependencies]`.
        name: String,
        /// The wheel's file name.
        file: String,
        /// The name in it.
        found: String,
    },
    /// Two digests that differ.
    #[error("`{name}` has two different digests, {fragment} in the URL and {key} in `sha256`")]
    TwoDigests {
        /// The dependency.
        name: String,
        /// From the fragment.
        fragment: String,
        /// From the key.
        key: String,
    },
    /// A variant that removes what is not there.
    #[error("variant `{variant}` removes `{name}`, which {table} does not have")]
    NothingToRemove {
        /// The variant.
        variant: String,
        /// The package.
        name: String,
        /// The table, as `[dependencies]`.
        table: &'static str,
        /// Names there that look like it.
        nearest: Vec<String>,
    },
    /// A variant for a platform that the environment is not for.
    #[error("platform `{name}` of a variant is not one of [env] platforms")]
    ForeignPlatform {
        /// The platform.
        name: String,
        /// Those of `[env]`.
        known: Vec<String>,
    },
    /// A variable that the view sets itself.
    #[error("`{0}` is set by gpuenv itself")]
    ReservedVariable(String),
}

impl FaultKind {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            FaultKind::Syntax(_) => return None,
            FaultKind::UnknownKey { key, nearest, known, table } => match (nearest, &**key) {
                (Some(nearest), _) => format!("did you mean `{nearest}`?"),
                (None, "cuda") if table == "[system-requirements]" => {
                    "the CUDA line is declared as `cuda = \"12.4\"` in [gpu]".into()
                }
                (None, _) if known.is_empty() => return None,
                (None, _) => format!("{table} knows {}", list(known)),
            },
            FaultKind::WrongType { expected, .. } => format!("write {expected}"),
            FaultKind::Missing { hint, .. } => (*hint).into(),
            FaultKind::Invalid { hint, .. } => return hint.clone(),
            FaultKind::Duplicate { .. } => "remove one of the two".into(),
            FaultKind::BareVersion { name, version } => {
                format!("write `{name} = \"=={version}\"` for exactly this version, or a bound such as \">={version}\"")
            }
            FaultKind::BuildFromSource { name, .. } => format!(
                "build a wheel with `python -m pip wheel --no-deps …` and give it as `{name} = {{ path = \"wheels/….whl\" }}` or `{{ url = \"https://….whl\" }}`"
            ),
            FaultKind::Credentials { .. } => {
                "env.toml is shared: write the URL without them, and put user and password into the netrc file of each machine (or its gpuenv configuration)".into()
            }
            FaultKind::Unsupported { instead, .. } => instead.clone(),
            FaultKind::UnknownIndex { nearest, .. } if nearest.is_empty() => {
                "declare it, as `[pypi-options.indexes]` `NAME = { url = \"https://…\" }`".into()
            }
            FaultKind::UnknownIndex { nearest, .. } => format!("did you mean {}?", list(nearest)),
            FaultKind::UnknownChannel { nearest, name } if nearest.is_empty() => {
                format!("add \"{name}\" to `channels` in [env]; their order is their priority")
            }
            FaultKind::UnknownChannel { nearest, .. } => format!("did you mean {}?", list(nearest)),
            FaultKind::NoChannels => {
                "add `channels = [\"conda-forge\"]` (or your own) to [env]".into()
            }
            FaultKind::NoPython => "either add `channels = [\"conda-forge\"]` to [env], and conda's Python is chosen with the wheels; or take the machine's, with `[host]` and `python = \"3.11\"`".into(),
            FaultKind::TwoPythons { .. } => {
                "remove `python` from [dependencies], or remove [host]".into()
            }
            FaultKind::Exclusive { one, other, .. } => format!("keep `{one}` or `{other}`"),
            FaultKind::AbsoluteWheel { name } => format!(
                "give the path relative to env.toml, as `{name} = {{ path = \"wheels/….whl\" }}`; or list its directory under `find-links` in [pypi-options], and name the version"
            ),
            FaultKind::WheelName { found, .. } => format!("write `{found}` as the key"),
            FaultKind::TwoDigests { .. } => "keep the right one".into(),
            FaultKind::NothingToRemove { nearest, variant, .. } if nearest.is_empty() => {
                format!("remove the line from [variants.{variant}]")
            }
            FaultKind::NothingToRemove { nearest, .. } => format!("did you mean {}?", list(nearest)),
            FaultKind::ForeignPlatform { name, known } => {
                format!("write {}, or add \"{name}\" to `platforms` in [env]", list(known))
            }
            FaultKind::ReservedVariable(name) if name == "PATH" || name == "LD_LIBRARY_PATH" => {
                "remove it; the view computes it from its packages".into()
            }
            FaultKind::ReservedVariable(_) => "remove it".into(),
        })
    }

    /// Short words under the place in the text.
    pub fn label(&self) -> String {
        match self {
            FaultKind::Syntax(_) => "here".into(),
            FaultKind::UnknownKey { .. } => "unknown key".into(),
            FaultKind::WrongType { expected, .. } => format!("expected {expected}"),
            FaultKind::Missing { key, .. } => format!("`{key}` is missing"),
            FaultKind::Invalid { what, .. } => format!("not {what}"),
            FaultKind::Duplicate { .. } => "given twice".into(),
            FaultKind::BareVersion { .. } => "no operator".into(),
            FaultKind::BuildFromSource { .. } => "needs a build".into(),
            FaultKind::Credentials { .. } => "credentials in a URL".into(),
            FaultKind::Unsupported { .. } => "not supported".into(),
            FaultKind::UnknownIndex { .. } => "no such index".into(),
            FaultKind::UnknownChannel { .. } => "not in [env] channels".into(),
            FaultKind::NoChannels => "needs a channel".into(),
            FaultKind::NoPython => "needs a Python".into(),
            FaultKind::TwoPythons { .. } => "two Pythons".into(),
            FaultKind::Exclusive { .. } => "exclude each other".into(),
            FaultKind::AbsoluteWheel { .. } => "absolute".into(),
            FaultKind::WheelName { .. } => "another distribution".into(),
            FaultKind::TwoDigests { .. } => "two digests".into(),
            FaultKind::NothingToRemove { .. } => "nothing to remove".into(),
            FaultKind::ForeignPlatform { .. } => "not in [env] platforms".into(),
            FaultKind::ReservedVariable(_) => "reserved".into(),
        }
    }
}

/// `a`, `b` or `c`, in backquotes.
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => format!("`{one}`"),
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(|item| format!("`{item}`")).collect();
            format!("{} or `{last}`", rest.join(", "))
        }
    }
}

/// The items of `known` that look like `name`, best first, at most three.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|item| (strsim::jaro_winkler(name, item), item))
        .filter(|(score, _)| *score > 0.8)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, item)| item.to_owned()).collect()
}
