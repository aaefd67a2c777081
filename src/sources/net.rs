//! The HTTP client of this room: certificates, proxies, credentials, and what no request may do.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use http::Extensions;
use rattler_networking::{AuthenticationMiddleware, AuthenticationStorage};
use reqwest::header::CONTENT_ENCODING;
use reqwest::{Method, Request, Response, ResponseBuilderExt, StatusCode, redirect};
use reqwest_middleware::{ClientWithMiddleware, Middleware, Next};
use url::Url;

use super::config::Config;
use super::error::{Outcome, SourceError};

/// Longest chain of redirects followed.
const MAX_REDIRECTS: usize = 10;

/// Two clients over one connection pool.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    /// For files: neither retried nor looked into, the download does both.
    pub(crate) files: ClientWithMiddleware,
    /// For package indexes: retried, and refused where the content is of another kind.
    pub(crate) indexes: ClientWithMiddleware,
}

impl Net {
    pub(crate) fn new(config: &Arc<Config>, offline: bool) -> Result<Net, SourceError> {
        let client = client(config)?;
        let storage = if config.credentials {
            AuthenticationStorage::from_env_and_defaults()
                .map_err(|e| SourceError::Client { reason: format!("credentials: {e}") })?
        } else {
            AuthenticationStorage::empty()
        };
        let auth = Arc::new(AuthenticationMiddleware::from_auth_storage(storage));
        let gate = Arc::new(Gate { config: config.clone(), offline });
        let files = reqwest_middleware::ClientBuilder::new(client.clone())
            .with_arc(gate.clone())
            .with_arc(auth.clone())
            .build();
        let indexes = reqwest_middleware::ClientBuilder::new(client)
            .with_arc(gate)
            .with(Retry { config: config.clone() })
            .with_arc(auth)
            .with(Sniff)
            .build();
        Ok(Net { files, indexes })
    }
}

fn client(config: &Arc<Config>) -> Result<reqwest::Client, SourceError> {
    let broken = |e: reqwest::Error| SourceError::Client { reason: words(&e) };
    let redirects = {
        let config = config.clone();
        redirect::Policy::custom(move |attempt| {
            if attempt.previous().len() > MAX_REDIRECTS {
                attempt.error(Refused(Outcome::Other("too many redirects".into())))
            } else if config.allows(attempt.url()) {
                attempt.follow()
            } else {
                attempt.error(Refused(Outcome::Insecure))
            }
        })
    };
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("gpuenv/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(config.patience.stall.min(Duration::from_secs(20)))
        .read_timeout(config.patience.stall)
        .redirect(redirects)
        // A channel token is part of the path, so the path must not travel to another host.
        .referer(false)
        // Files are hashed as they are stored on the server.
        .no_gzip()
        .no_deflate()
        .no_zstd()
        .no_brotli()
        // The configuration says which proxies count.
        .no_proxy();
    if let Some(path) = &config.tls_ca {
        let pem = fs_err::read(path)
            .map_err(|e| SourceError::Client { reason: format!("certificates: {e}") })?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| {
            SourceError::Client { reason: format!("{}: {}", path.display(), words(&e)) }
        })?;
        if certificates.is_empty() {
            let reason = format!("{} holds no certificate in PEM form", path.display());
            return Err(SourceError::Client { reason });
        }
        builder = builder.tls_certs_merge(certificates);
    }
    let exempt = || config.proxies.no_proxy.as_deref().and_then(reqwest::NoProxy::from_string);
    for rule in &config.proxies.rules {
        let url = rule.proxy.clone();
        let proxy = match (rule.host.clone(), rule.scheme.as_deref()) {
            (None, None) => reqwest::Proxy::all(url).map_err(broken)?.no_proxy(exempt()),
            (None, Some("http")) => reqwest::Proxy::http(url).map_err(broken)?.no_proxy(exempt()),
            (None, Some("https")) => reqwest::Proxy::https(url).map_err(broken)?.no_proxy(exempt()),
            // Requests of other schemes are not made.
            (None, Some(_)) => continue,
            // A rule for one host stands above the list of exemptions, which the client does not
            // apply here anyway.
            (Some(host), scheme) => {
                let scheme = scheme.map(String::from);
                reqwest::Proxy::custom(move |target| {
                    let fits = scheme.as_deref().is_none_or(|s| s == target.scheme())
                        && Some(host.as_str()) == target.host_str();
                    fits.then(|| url.clone())
                })
            }
        };
        builder = builder.proxy(proxy);
    }
    builder.build().map_err(broken)
}

/// A request that was not sent, or an answer that was not passed on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) Outcome);

/// What `error` means for the place that was asked.
pub(crate) fn outcome_of(error: reqwest_middleware::Error) -> Outcome {
    match error {
        reqwest_middleware::Error::Middleware(inner) => match inner.downcast::<Refused>() {
            Ok(refused) => refused.0,
            Err(other) => match other.downcast::<reqwest::Error>() {
                Ok(inner) => outcome_of_reqwest(&inner),
                Err(other) => Outcome::Other(format!("{other:#}")),
            },
        },
        reqwest_middleware::Error::Reqwest(inner) => outcome_of_reqwest(&inner),
    }
}

/// As [`outcome_of`], for an error of the client itself.
pub(crate) fn outcome_of_reqwest(error: &reqwest::Error) -> Outcome {
    if let Some(status) = error.status() {
        let host = error.url().and_then(Url::host_str).unwrap_or("the host");
        return outcome_of_status(status, host);
    }
    if error.is_redirect() {
        // The policy's own words, if it was the policy.
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            if let Some(refused) = inner.downcast_ref::<Refused>() {
                return match refused.0 {
                    Outcome::Insecure => {
                        Outcome::Other("redirects to plain HTTP, which is not allowed".into())
                    }
                    _ => Outcome::Other(refused.to_string()),
                };
            }
            cause = inner.source();
        }
    }
    Outcome::Unreachable(words(error))
}

/// What an error status means for the place that was asked.
pub(crate) fn outcome_of_status(status: StatusCode, host: &str) -> Outcome {
    match status.as_u16() {
        code @ (401 | 403 | 407) => Outcome::Denied { code, host: host.to_string() },
        404 | 410 => Outcome::Missing,
        code => Outcome::Status { code },
    }
}

/// The last cause of a client error is the telling one (`connection refused`); the URL is left
/// out, since the caller names it redacted.
pub(crate) fn words(error: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(inner) = last.source() {
        last = inner;
    }
    let what = if error.is_timeout() {
        "timed out"
    } else if error.is_connect() {
        "cannot connect"
    } else if error.is_body() || error.is_decode() {
        "the transfer broke off"
    } else if error.is_builder() {
        "the request cannot be built"
    } else {
        "the request failed"
    };
    let is_outer = std::error::Error::source(error).is_none();
    if is_outer { what.to_string() } else { format!("{what}: {last}") }
}

/// Lets nothing out that may not go out.
struct Gate {
    config: Arc<Config>,
    offline: bool,
}

#[async_trait]
impl Middleware for Gate {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let refuse = |outcome| Err(reqwest_middleware::Error::middleware(Refused(outcome)));
        if self.offline {
            return refuse(Outcome::NotCached);
        }
        if !self.config.allows(request.url()) {
            return refuse(Outcome::Insecure);
        }
        next.run(request, extensions).await
    }
}

/// Asks again where that may help. Only requests without a body pass through here.
struct Retry {
    config: Arc<Config>,
}

#[async_trait]
impl Middleware for Retry {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let patience = self.config.patience;
        let mut pause = patience.backoff;
        for _ in 1..patience.tries {
            let Some(copy) = request.try_clone() else { break };
            let again = match next.clone().run(copy, extensions).await {
                Ok(response) => {
                    let host = response.url().host_str().unwrap_or_default();
                    if !outcome_of_status(response.status(), host).transient() {
                        return Ok(response);
                    }
                    retry_after(&response)
                }
                Err(reqwest_middleware::Error::Reqwest(e)) => {
                    if !outcome_of_reqwest(&e).transient() {
                        return Err(e.into());
                    }
                    None
                }
                Err(other) => return Err(other),
            };
            tokio::time::sleep(again.unwrap_or(pause)).await;
            pause *= 2;
        }
        next.run(request, extensions).await
    }
}

/// `Retry-After` in seconds, at most half a minute (a longer one is as good as a failure).
pub(crate) fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(reqwest::header::RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(value.trim().parse::<u64>().ok()?.min(30)))
}

/// Looks at the first bytes of a package index before anything caches it: a mirror that answers
/// with an error page and status 200, or with an empty file, is told apart here.
struct Sniff;

/// How a file of a known kind starts.
fn kind_of(path: &str) -> Option<(&'static str, &'static [u8])> {
    match path.rsplit('.').next()? {
        "zst" => Some(("Zstandard data", b"\x28\xb5\x2f\xfd")),
        "bz2" => Some(("bzip2 data", b"BZh")),
        "json" => Some(("JSON", b"{")),
        _ => None,
    }
}

#[async_trait]
impl Middleware for Sniff {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let kind =
            (*request.method() == Method::GET).then(|| kind_of(request.url().path())).flatten();
        let mut response = next.run(request, extensions).await?;
        let Some((expected, magic)) = kind else { return Ok(response) };
        let encoded = response
            .headers()
            .get(CONTENT_ENCODING)
            .is_some_and(|value| value.as_bytes() != b"identity");
        if response.status() != StatusCode::OK || encoded {
            return Ok(response);
        }
        let mut head = Vec::new();
        while head.len() < 64 {
            match response.chunk().await? {
                Some(chunk) => head.extend_from_slice(&chunk),
                None => break,
            }
        }
        let shown = if expected == "JSON" { head.trim_ascii_start() } else { &head[..] };
        if !shown.starts_with(magic) {
            let found = looks_like(&head).unwrap_or("something else").to_string();
            let refused = Refused(Outcome::Content { expected, found });
            return Err(reqwest_middleware::Error::middleware(refused));
        }
        // The same answer, with the bytes taken put back in front.
        let mut rebuilt = http::Response::builder()
            .status(response.status())
            .version(response.version())
            .url(response.url().clone());
        if let Some(headers) = rebuilt.headers_mut() {
            *headers = std::mem::take(response.headers_mut());
        }
        let first = futures::stream::once(async move { Ok::<_, reqwest::Error>(head.into()) });
        let body = reqwest::Body::wrap_stream(first.chain(response.bytes_stream()));
        let rebuilt = rebuilt.body(body).map_err(reqwest_middleware::Error::middleware)?;
        Ok(Response::from(rebuilt))
    }
}

/// What the first bytes of a file look like, if that helps a reader.
pub(crate) fn looks_like(head: &[u8]) -> Option<&'static str> {
    let text = head.trim_ascii_start();
    let lower = text[..text.len().min(64)].to_ascii_lowercase();
    if head.is_empty() {
        Some("an empty file")
    } else if lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") {
        Some("an HTML page")
    } else if lower.starts_with(b"<?xml") || lower.starts_with(b"<") {
        Some("an XML or HTML document")
    } else if lower.starts_with(b"{") || lower.starts_with(b"[") {
        Some("JSON text")
    } else if lower.starts_with(b"version https://git-lfs") {
        Some("a Git LFS pointer")
    } else {
        None
    }
}

/// Sleeps, unless told to stop first. Returns whether it slept to the end.
pub(crate) async fn pause(duration: Duration, stop: &Stop) -> bool {
    tokio::select! {
        biased;
        () = stop.wait() => false,
        () = tokio::time::sleep(duration) => true,
    }
}

/// Tells running transfers to end; what they have is kept.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    sender: Arc<tokio::sync::watch::Sender<bool>>,
}

impl Stop {
    pub(crate) fn new() -> Stop {
        Stop { sender: Arc::new(tokio::sync::watch::channel(false).0) }
    }
    pub(crate) fn set(&self) {
        self.sender.send_replace(true);
    }
    pub(crate) fn is_set(&self) -> bool {
        *self.sender.borrow()
    }
    /// Returns once [`Stop::set`] was called.
    pub(crate) async fn wait(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.sender.subscribe().wait_for(|set| *set).await;
    }
}

/// The runtime that all of this room's async runs on.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, io::Error> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("gpuenv-net")
        .enable_all()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_told_by_its_first_bytes() {
        assert_eq!(looks_like(b""), Some("an empty file"));
        assert_eq!(looks_like(b"\n<!DOCTYPE HTML><p>"), Some("an HTML page"));
        assert_eq!(looks_like(b"{\"error\": 1}"), Some("JSON text"));
        assert_eq!(looks_like(b"PK\x03\x04"), None);
    }
}
