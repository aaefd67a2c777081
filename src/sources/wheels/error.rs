//! What can go wrong between a wheel source and us, in words that name the source, and never a
//! password.

use std::error::Error;
use std::path::PathBuf;

use uv_redacted::DisplaySafeUrl;

use crate::error::{Exit, Report};
use crate::resolve::ProviderError;

/// The causes below a failure, joined by colons, without credentials. Kept as text so that a
/// failure can be handed to everyone who waits for the same answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Cause(String);

impl Cause {
    /// The chain that starts at `error`, with the credentials of `urls` masked. Links that say
    /// again which URL it was about are left out if others say why.
    pub(super) fn of(error: &(dyn Error + 'static), urls: &[DisplaySafeUrl]) -> Self {
        let mut words: Vec<String> = Vec::new();
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            // Libraries like to repeat their cause; each fact is said once.
            if !text.is_empty() && !words.iter().any(|w| w.contains(&text)) {
                words.push(text);
            }
            next = error.source();
        }
        if words.iter().any(|w| !w.contains("://")) {
            words.retain(|w| !w.contains("://"));
        }
        let text = urls.iter().fold(words.join(": "), |text, url| url.redact_in(&text));
        Cause(text)
    }

    /// A cause known in words only.
    pub(super) fn words(text: impl Into<String>) -> Self {
        Cause(text.into())
    }
}

/// Why a wheel source cannot be used or gives no answer.
///
/// URLs in it are already redacted. It is `Clone` because one fetch answers all
/// who wait for it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WheelSourceError {
    /// A setting does not say where a source is.
    #[error("{from} gives {text:?} as the place of a wheel source: {reason}")]
    BadLocation {
        /// Who says it: a variable, a file and key, a table of env.toml.
        from: String,
        /// What it says, redacted.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A source is asked for over an unencrypted connection.
    #[error("wheel source `{name}` is at {url}, which is not encrypted")]
    Insecure {
        /// The source.
        name: String,
        /// Its place.
        url: String,
    },
    /// A settings file of pip cannot be read.
    #[error("cannot read the pip settings in {path}")]
    Settings {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// A file of certificate authorities cannot be used.
    #[error("cannot use the certificates in {path}, named by {from}")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Who names it.
        from: String,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// The HTTP client or its thread cannot be set up.
    #[error("cannot set up the client for wheel sources")]
    Setup {
        /// Why.
        #[source]
        cause: Cause,
    },
    /// The cache directory is unusable.
    #[error("cannot use the cache directory {path}")]
    CacheDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// 401, 403 or 407.
    #[error("wheel source `{name}` refuses access: {url} answered {status}")]
    Refused {
        /// The source.
        name: String,
        /// What was asked for.
        url: String,
        /// Its host, for the hint.
        host: String,
        /// HTTP status code.
        status: u16,
    },
    /// 404 or 410 for something that must be there: a find-links page, a wheel named by URL.
    #[error("wheel source `{name}` has nothing at {url}: it answered {status}")]
    NotThere {
        /// The source.
        name: String,
        /// What was asked for.
        url: String,
        /// HTTP status code.
        status: u16,
    },
    /// Another HTTP status, after retries.
    #[error("wheel source `{name}` is failing: {url} answered {status}")]
    Status {
        /// The source.
        name: String,
        /// What was asked for.
        url: String,
        /// HTTP status code.
        status: u16,
    },
    /// No answer, or half of one: no route, no name, refused, timed out, cut, TLS.
    #[error("cannot reach wheel source `{name}` at {url}")]
    Unreachable {
        /// The source.
        name: String,
        /// What was asked for.
        url: String,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// An answer that is no index page.
    #[error(
        "wheel source `{name}` gave no index page at {url}: expected {expected}, found {found}"
    )]
    NotAnIndex {
        /// The source.
        name: String,
        /// What was asked for.
        url: String,
        /// What should have come.
        expected: &'static str,
        /// What came.
        found: String,
    },
    /// Offline, and not in the cache.
    #[error(
        "{what} of wheel source `{name}` is not in the cache, and the network is not used (--offline)"
    )]
    NotCached {
        /// The source.
        name: String,
        /// What is missing.
        what: String,
    },
    /// A local directory, page or wheel cannot be read.
    #[error("cannot read {path} of wheel source `{name}`")]
    Local {
        /// The source.
        name: String,
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// A direct reference is not to a wheel of that distribution.
    #[error("{location} cannot serve as `{distribution}`: {reason}")]
    BadWheel {
        /// URL (redacted) or path, as given.
        location: String,
        /// What it should be a wheel of.
        distribution: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A name that was never configured: the caller mixed up manifests.
    #[error("no wheel source is configured as {0}")]
    Unconfigured(String),
    /// A task ended without an answer.
    #[error("the fetch of {0} ended without an answer")]
    Lost(String),
}

impl Report for WheelSourceError {
    fn exit(&self) -> Exit {
        use WheelSourceError as E;
        match self {
            E::BadLocation { .. }
            | E::Insecure { .. }
            | E::Settings { .. }
            | E::Certificates { .. }
            | E::CacheDir { .. }
            | E::Local { .. }
            | E::BadWheel { .. } => Exit::User,
            E::Refused { .. }
            | E::NotThere { .. }
            | E::Status { .. }
            | E::Unreachable { .. }
            | E::NotAnIndex { .. }
            | E::Setup { .. }
            | E::NotCached { .. } => Exit::Source,
            E::Unconfigured(_) | E::Lost(_) => Exit::Bug,
        }
    }

    fn hint(&self) -> Option<String> {
        use WheelSourceError as E;
        Some(match self {
            E::BadLocation { .. } => {
                "give a URL with a scheme (https, file) or a path that exists".into()
            }
            E::Insecure { .. } => "use an https URL; if you trust the network between, list the host \
                                   under `allow-insecure` in gpuenv's config.toml"
                .into(),
            E::Settings { .. } => {
                "mend the file, or set PIP_CONFIG_FILE=/dev/null to have it ignored".into()
            }
            E::Certificates { .. } => {
                "name a file of PEM certificates there, or unset it".into()
            }
            E::CacheDir { .. } => {
                "give another directory as `cache` in gpuenv's config.toml".into()
            }
            E::Refused { host, status, .. } => {
                let mut hint = format!(
                    "put credentials for it into ~/.netrc:\n    machine {host} login USER password \
                     PASSWORD\nor into the URL in your own gpuenv, pip or uv settings (not into \
                     env.toml)"
                );
                if *status == 403 {
                    hint.push_str(
                        "; some servers also answer 403 for a distribution they do not hold: check \
                         its name",
                    );
                }
                hint
            }
            E::NotThere { .. } => "check the URL in env.toml".into(),
            E::Status { .. } => "try again later, or configure a mirror in gpuenv's config.toml".into(),
            E::Unreachable { .. } => "check network, proxy and certificate settings, try again, or \
                                      configure a mirror in gpuenv's config.toml"
                .into(),
            E::NotAnIndex { .. } => "check that the URL is the root of a simple index (it often ends \
                                     in /simple), that no login page or proxy answers in its place, \
                                     or use a find-links entry for a single page of links"
                .into(),
            E::NotCached { .. } => {
                "run the command once without --offline, on a machine with network".into()
            }
            E::Local { .. } => "check the path in env.toml; relative paths start at its directory".into(),
            E::BadWheel { .. } => {
                "give a file named NAME-VERSION-PYTHON-ABI-PLATFORM.whl (PEP 427)".into()
            }
            E::Setup { .. } => "check proxy and certificate settings".into(),
            E::Unconfigured(_) | E::Lost(_) => return None,
        })
    }
}

impl From<&WheelSourceError> for ProviderError {
    fn from(error: &WheelSourceError) -> Self {
        let mut message = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            next = cause.source();
        }
        ProviderError::Failed { message, hint: error.hint(), exit: error.exit() }
    }
}

impl From<WheelSourceError> for ProviderError {
    fn from(error: WheelSourceError) -> Self {
        (&error).into()
    }
}

/// A URL for messages: without user, password and fragment, and without the values of a query,
/// which may be a signature.
pub(super) fn redact(url: &url::Url) -> String {
    if url.cannot_be_a_base() {
        // `user:password@host` reads as one of scheme `user`.
        return format!("{}:...", url.scheme());
    }
    let mut url = url.clone();
    // Both fail only for URLs that cannot have credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    if url.query().is_some() {
        url.set_query(Some("..."));
    }
    url.into()
}
