//! What can go wrong between this machine and the sources, in the user's terms.

use std::fmt;
use std::io;
use std::path::PathBuf;

use url::Url;

use crate::error::{Exit, Report, Snippet};
use crate::hash::Sha256;
use crate::resolve::ProviderError;

/// A URL fit for eyes and logs: no user name, no password, no channel token, no query.
///
/// Credentials travel in the user information, in a conda token (`/t/TOKEN/`) and, for pre-signed
/// URLs, in the query; the fragment is of no use to a reader.
pub fn redacted(url: &Url) -> String {
    let mut shown = url.clone();
    // These setters fail only for URLs that cannot carry the part.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_query(None);
    shown.set_fragment(None);
    let text = shown.to_string();
    match text.split_once("/t/") {
        Some((head, tail)) if head.matches('/').count() == 2 => match tail.split_once('/') {
            Some((_, rest)) => format!("{head}/t/<token>/{rest}"),
            None => format!("{head}/t/<token>"),
        },
        _ => text,
    }
}

/// What a place did when asked for a file.
#[derive(Debug)]
pub enum Outcome {
    /// The server answered with an error status.
    Status {
        /// HTTP status code.
        code: u16,
    },
    /// The server wants credentials, or refuses those it got.
    Denied {
        /// HTTP status code: 401, 403 or 407.
        code: u16,
        /// Host that refused.
        host: String,
    },
    /// There is no such file.
    Missing,
    /// No connection, or one that broke before the answer.
    Unreachable(String),
    /// Nothing arrived for this many seconds.
    Stalled(u64),
    /// The transfer ended early.
    Cut {
        /// Bytes received.
        got: u64,
        /// Bytes announced, where known.
        expected: Option<u64>,
    },
    /// The file has another size than it must have.
    Size {
        /// Bytes it must have.
        expected: u64,
        /// Bytes it has.
        found: u64,
        /// What the content looks like, where that helps (`an HTML page`).
        looks_like: Option<&'static str>,
    },
    /// The file has another SHA-256 than it must have.
    Sha256 {
        /// What was declared or locked.
        expected: Sha256,
        /// What arrived.
        found: Sha256,
        /// What the content looks like, where that helps.
        looks_like: Option<&'static str>,
    },
    /// The file has another MD5 than the source declares.
    Md5 {
        /// What was declared.
        expected: String,
        /// What arrived.
        found: String,
    },
    /// The content is not of the kind it must be.
    Content {
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// Plain HTTP to a host that was not exempted.
    Insecure,
    /// Not in the cache, and the network may not be used.
    NotCached,
    /// A local file cannot be read.
    Unreadable(io::Error),
    /// Something else, in words.
    Other(String),
}

impl Outcome {
    /// Whether the same place may do better when asked again.
    pub(crate) fn transient(&self) -> bool {
        match self {
            Outcome::Status { code } => matches!(code, 408 | 425 | 429 | 500..=599),
            Outcome::Unreachable(_) | Outcome::Stalled(_) | Outcome::Cut { .. } => true,
            _ => false,
        }
    }
}

fn seems(looks_like: &Option<&'static str>) -> String {
    looks_like.map(|what| format!(" (it looks like {what})")).unwrap_or_default()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Status { code } => {
                let reason = http::StatusCode::from_u16(*code)
                    .ok()
                    .and_then(|s| s.canonical_reason())
                    .unwrap_or("unknown status");
                write!(f, "HTTP {code} {reason}")
            }
            Outcome::Denied { code, host } => {
                let what = if *code == 403 { "refused access" } else { "asked for credentials" };
                write!(f, "{host} {what} (HTTP {code})")
            }
            Outcome::Missing => f.write_str("no such file"),
            Outcome::Unreachable(why) => f.write_str(why),
            Outcome::Stalled(seconds) => write!(f, "nothing arrived for {seconds} s"),
            Outcome::Cut { got, expected: Some(all) } => {
                write!(f, "the transfer ended after {got} of {all} bytes")
            }
            Outcome::Cut { got, expected: None } => {
                write!(f, "the transfer broke off after {got} bytes")
            }
            Outcome::Size { expected, found, looks_like } => {
                write!(f, "expected {expected} bytes, found {found}{}", seems(looks_like))
            }
            Outcome::Sha256 { expected, found, looks_like } => {
                write!(f, "expected sha256 {expected}, found {found}{}", seems(looks_like))
            }
            Outcome::Md5 { expected, found } => {
                write!(f, "expected md5 {expected}, found {found}")
            }
            Outcome::Content { expected, found } => write!(f, "expected {expected}, found {found}"),
            Outcome::Insecure => f.write_str("plain HTTP is not allowed for this host"),
            Outcome::NotCached => f.write_str("not in the cache, and this run is offline"),
            Outcome::Unreadable(source) => write!(f, "cannot be read: {source}"),
            Outcome::Other(words) => f.write_str(words),
        }
    }
}

/// A place that was tried, and what it did.
#[derive(Debug)]
pub struct Attempt {
    /// Name of the lock source it belongs to.
    pub source: String,
    /// The URL, [`redacted`].
    pub place: String,
    /// What it did.
    pub outcome: Outcome,
}

/// Every place tried, in order; never empty in an error.
#[derive(Debug, Default)]
pub struct Attempts(pub Vec<Attempt>);

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for attempt in &self.0 {
            // Where the source's name is its URL, the place says it all.
            if attempt.place.starts_with(&attempt.source) {
                write!(f, "\n  {}: {}", attempt.place, attempt.outcome)?;
            } else {
                write!(f, "\n  {} ({}): {}", attempt.place, attempt.source, attempt.outcome)?;
            }
        }
        Ok(())
    }
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `GPUENV_CONFIG` names a file that is not there.
    #[error("the configuration file {} does not exist", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A key or value of `config.toml` is wrong, or the file is no TOML.
    #[error("{}, line {line}: {message}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// 1-based line.
        line: usize,
        /// What is wrong.
        message: String,
        /// Where to point.
        snippet: Box<Snippet>,
    },
    /// A `.condarc` is no YAML, or a value of it is wrong.
    #[error("{}: {message}", path.display())]
    Condarc {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The settings of pip or uv cannot be used.
    #[error(transparent)]
    Wheels(#[from] super::wheels::WheelSourceError),
    /// An environment variable holds a wrong value.
    #[error("{name} is set to {value:?}: {message}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value, with credentials masked.
        value: String,
        /// What is wrong.
        message: String,
    },
}

impl Report for ConfigError {
    fn exit(&self) -> Exit {
        match self {
            ConfigError::Wheels(inner) => inner.exit(),
            _ => Exit::User,
        }
    }
    fn hint(&self) -> Option<String> {
        Some(match self {
            ConfigError::Wheels(inner) => return inner.hint(),
            ConfigError::Read { .. } => "make the file readable, or remove it".into(),
            ConfigError::Missing { .. } => {
                "unset GPUENV_CONFIG, or let it name an existing file".into()
            }
            ConfigError::Toml { .. } => {
                "known keys: mirrors, store, cache, concurrency, tls-ca, allow-insecure".into()
            }
            ConfigError::Condarc { .. } => {
                "correct the file; conda reads it in the same way (`conda config --show-sources`)"
                    .into()
            }
            ConfigError::Variable { name, .. } => format!("correct or unset {name}"),
        })
    }
    fn snippet(&self) -> Option<Snippet> {
        match self {
            ConfigError::Toml { snippet, .. } => Some((**snippet).clone()),
            _ => None,
        }
    }
}

/// Anything that the room `sources` reports.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The machine's configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A channel in env.toml or the lock is neither a name, a URL nor a path.
    #[error("{channel:?} is no channel: {reason}")]
    BadChannel {
        /// As written.
        channel: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A channel holds neither the platform nor `noarch`.
    #[error("channel {channel} has no packages for {platform} and none for noarch{tried}")]
    NoSuchChannel {
        /// As written.
        channel: String,
        /// The conda subdir wanted.
        platform: String,
        /// What each place said.
        tried: Attempts,
    },
    /// The package index of a channel could not be had.
    #[error("cannot read the package index of channel {channel}{tried}")]
    Repodata {
        /// As written.
        channel: String,
        /// What each place did.
        tried: Attempts,
    },
    /// Records of one package of a channel could not be had.
    #[error("cannot read the records of {package} in channel {channel}: {outcome}")]
    Records {
        /// Lock source name of the channel.
        channel: String,
        /// Name of the package.
        package: String,
        /// What happened.
        outcome: Box<Outcome>,
    },
    /// A wheel source failed.
    #[error("{message}")]
    Wheel {
        /// In its words.
        message: String,
        /// What to do next.
        hint: Option<String>,
        /// How the process ends.
        exit: Exit,
    },
    /// No place gave the file that was asked for.
    #[error("cannot get {file}{tried}")]
    Fetch {
        /// File name.
        file: String,
        /// What each place did.
        tried: Attempts,
        /// Whether a lock asked for it (as opposed to locking).
        locked: bool,
    },
    /// A file is there, and is not what its source declares.
    #[error("{file} is not the file that its source declares{tried}")]
    Declared {
        /// File name.
        file: String,
        /// Index and URL, expected and found.
        tried: Attempts,
    },
    /// The lock names a source that it does not define.
    #[error("package {package} comes from source {source_name:?}, which the lock does not define")]
    UnknownSource {
        /// Package id.
        package: String,
        /// The source.
        source_name: String,
    },
    /// The file system has too little room.
    #[error("{} has {free} bytes free, and the downloads need {needed}", dir.display())]
    NoSpace {
        /// Where the downloads go.
        dir: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes available to this user.
        free: u64,
    },
    /// A local file or directory of gpuenv could not be written or read.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was attempted (`write`, `create`).
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The network client cannot be set up.
    #[error("cannot set up the network client: {reason}")]
    Client {
        /// What is wrong.
        reason: String,
    },
    /// Another download failed first, so this one was given up; its partial file remains.
    #[error("the download was stopped")]
    Stopped,
}

impl SourceError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: io::Error,
    ) -> SourceError {
        SourceError::Io { action, path: path.into(), source }
    }

    /// The same failure as the solver's trait wants it.
    pub(crate) fn into_provider_error(self) -> ProviderError {
        let mut message = self.to_string();
        let mut cause = std::error::Error::source(&self);
        while let Some(inner) = cause {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            cause = inner.source();
        }
        ProviderError::Failed { message, hint: self.hint(), exit: self.exit() }
    }
}

/// The most telling advice for a list of failed places.
fn advice(tried: &Attempts) -> Option<String> {
    let outcomes = || tried.0.iter().map(|a| &a.outcome);
    let denied = outcomes().find_map(|o| match o {
        Outcome::Denied { host, .. } => Some(host),
        _ => None,
    });
    if let Some(host) = denied {
        return Some(format!(
            "add credentials for {host} to ~/.netrc, or to the credential file that \
             RATTLER_AUTH_FILE names, and check that they may read this source"
        ));
    }
    if outcomes().any(|o| matches!(o, Outcome::Insecure)) {
        return Some(
            "use https, or list the host under `allow-insecure` in gpuenv's config.toml".into(),
        );
    }
    if outcomes().any(|o| matches!(o, Outcome::NotCached)) {
        return Some("run once without --offline to fill the cache".into());
    }
    if outcomes().any(|o| matches!(o, Outcome::Sha256 { .. } | Outcome::Md5 { .. })) {
        return Some(
            "the file is not the one its hash names: a damaged mirror, or a file replaced under \
             the same name; list another mirror under `[mirrors]` in gpuenv's config.toml"
                .into(),
        );
    }
    if outcomes().any(|o| matches!(o, Outcome::Size { .. } | Outcome::Content { .. })) {
        return Some(
            "what arrived is not the file: a login page, a broken proxy or a damaged mirror; open \
             the URL in a browser, or list another mirror under `[mirrors]` in gpuenv's config.toml"
                .into(),
        );
    }
    if outcomes().any(|o| matches!(o, Outcome::Status { .. })) {
        return Some(
            "the server has a problem: try again later, or list a mirror under `[mirrors]` in \
             gpuenv's config.toml"
                .into(),
        );
    }
    if outcomes()
        .any(|o| matches!(o, Outcome::Unreachable(_) | Outcome::Stalled(_) | Outcome::Cut { .. }))
    {
        return Some(
            "check the network and the proxy settings and run again (partial downloads are kept), \
             or list a mirror under `[mirrors]` in gpuenv's config.toml"
                .into(),
        );
    }
    None
}

impl Report for SourceError {
    fn exit(&self) -> Exit {
        match self {
            SourceError::Config(inner) => inner.exit(),
            SourceError::BadChannel { .. } | SourceError::NoSuchChannel { .. } => Exit::User,
            SourceError::UnknownSource { .. } | SourceError::Declared { .. } => Exit::User,
            SourceError::NoSpace { .. } | SourceError::Io { .. } => Exit::User,
            SourceError::Wheel { exit, .. } => *exit,
            SourceError::Client { .. } => Exit::User,
            SourceError::Fetch { tried, .. }
                if tried
                    .0
                    .iter()
                    .any(|a| matches!(a.outcome, Outcome::Sha256 { .. } | Outcome::Md5 { .. })) =>
            {
                Exit::User
            }
            SourceError::Repodata { .. }
            | SourceError::Records { .. }
            | SourceError::Fetch { .. }
            | SourceError::Stopped => Exit::Source,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            SourceError::Config(inner) => inner.hint(),
            SourceError::BadChannel { .. } => Some(
                "write a channel as a name (conda-forge), a URL, or a path that starts with ./ or /"
                    .into(),
            ),
            SourceError::NoSuchChannel { channel, .. } if channel == "defaults" => Some(
                "`defaults` is conda's name for a group of channels: name those you mean, by URL"
                    .into(),
            ),
            SourceError::NoSuchChannel { channel, .. } => Some(format!(
                "check the spelling of {channel} under `channels` in env.toml, and the platforms \
                 it serves"
            )),
            SourceError::Repodata { tried, .. } => advice(tried).or_else(|| {
                Some(
                    "try again later, or list a mirror of the channel under `[mirrors]` in \
                     gpuenv's config.toml"
                        .into(),
                )
            }),
            SourceError::Records { outcome, .. } => Some(match **outcome {
                Outcome::NotCached => "run once without --offline to fill the cache".into(),
                _ => "try again later, or use another mirror of the channel".into(),
            }),
            SourceError::Wheel { hint, .. } => hint.clone(),
            SourceError::Fetch { tried, locked, .. } => advice(tried).or_else(|| {
                locked.then(|| {
                    "what the lock names is not to be had as it was locked: list a mirror that \
                     still has it under `[mirrors]` in gpuenv's config.toml, or resolve again with \
                     `gpuenv lock --fresh`"
                        .into()
                })
            }),
            SourceError::Declared { .. } => Some(
                "the source declares a wrong hash, or serves a changed file: choose another \
                 version or source in env.toml, or tell those who run the source"
                    .into(),
            ),
            SourceError::UnknownSource { .. } => {
                Some("the lock was edited or merged wrongly: run `gpuenv lock` again".into())
            }
            SourceError::NoSpace { .. } => Some(
                "free some space, or put the cache on another file system (`cache` in gpuenv's \
                 config.toml)"
                    .into(),
            ),
            SourceError::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(
                    "free some space or raise the quota and run again: partial downloads are kept"
                        .into(),
                ),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Some(
                    "choose a writable directory with `cache` in gpuenv's config.toml".into(),
                ),
                _ => None,
            },
            SourceError::Client { .. } => {
                Some("check `tls-ca` in gpuenv's config.toml and the proxy variables".into())
            }
            SourceError::Stopped => Some("run the command again: it resumes".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        for (url, shown) in [
            ("https://me:pw@h.example.invalid/a?sig=abc#f", "https://h.example.invalid/a"),
            ("https://h.example.invalid/t/tok-123/c/x", "https://h.example.invalid/t/<token>/c/x"),
            ("https://h.example.invalid/a/t/b/x", "https://h.example.invalid/a/t/b/x"),
            ("file:///srv/t/x", "file:///srv/t/x"),
        ] {
            assert_eq!(redacted(&Url::parse(url).unwrap()), shown);
        }
    }

    #[test]
    fn advice_fits_what_happened() {
        let hint = |outcome: Outcome| {
            SourceError::Fetch {
                file: "x-1-0.conda".into(),
                tried: Attempts(vec![Attempt {
                    source: "https://h.example.invalid/c".into(),
                    place: "https://h.example.invalid/c/x".into(),
                    outcome,
                }]),
                locked: true,
            }
            .hint()
            .unwrap()
        };
        assert!(hint(Outcome::Missing).contains("not to be had as it was locked"));
        assert!(hint(Outcome::Status { code: 500 }).contains("try again later"));
        let page = Outcome::Size { expected: 9, found: 5, looks_like: Some("an HTML page") };
        assert!(hint(page).contains("login page"));
    }

    #[test]
    fn a_source_called_by_its_url_is_named_once() {
        let attempt = |source: &str| {
            Attempts(vec![Attempt {
                source: source.into(),
                place: "https://h.example.invalid/c/x".into(),
                outcome: Outcome::Missing,
            }])
            .to_string()
        };
        assert_eq!(
            attempt("https://h.example.invalid/c"),
            "\n  https://h.example.invalid/c/x: no such file"
        );
        assert_eq!(attempt("lab"), "\n  https://h.example.invalid/c/x (lab): no such file");
    }

    #[test]
    fn a_refusal_asks_for_credentials_and_names_the_host() {
        let error = SourceError::Fetch {
            file: "x-1-0.conda".into(),
            tried: Attempts(vec![Attempt {
                source: "lab".into(),
                place: "https://h.example.invalid/x".into(),
                outcome: Outcome::Denied { code: 401, host: "h.example.invalid".into() },
            }]),
            locked: true,
        };
        assert_eq!(error.exit(), Exit::Source);
        assert!(error.hint().unwrap().contains("h.example.invalid"));
        assert!(error.to_string().contains("(lab): h.example.invalid asked for credentials"));
    }
}
