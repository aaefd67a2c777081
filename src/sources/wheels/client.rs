//! The HTTP client: `uv-client` over a connection pool of our own.
//!
//! `uv-client` brings retries, credentials (netrc, URLs), a cache that follows HTTP's rules,
//! redirects that do not carry credentials to another host, PEP 658, and range requests with a
//! fallback. The pool beneath is ours, so that servers see gpuenv, and so that certificates and
//! proxy are what the caller says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest_middleware::{Middleware, Next};
use uv_cache::Cache;
use uv_client::{
    BaseClientBuilder, Connectivity, ExtraMiddleware, RegistryClient, RegistryClientBuilder,
};
use uv_distribution_types::{Index, IndexLocations, IndexUrl};
use uv_pep508::VerbatimUrl;
use uv_redacted::DisplaySafeUrl;

use super::error::{Cause, WheelSourceError, redact};
use super::user_config::{Proxy, UserConfig};
use crate::sources::config::may_ask;

/// No server may take longer to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No server may be silent for longer within an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// What the client is made from.
pub(super) struct ClientOptions {
    pub user: UserConfig,
    pub offline: bool,
    pub retries: u32,
    /// All places of the configuration, for their credentials.
    pub places: Vec<url::Url>,
    /// Hosts that may be asked without encryption.
    pub allow_insecure: BTreeSet<String>,
}

/// A request was not sent, since it would not have been encrypted.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not encrypted")]
pub(super) struct NotEncrypted(pub String);

/// Carries [`NotEncrypted`] as its cause: the outermost error of a middleware is not in the chain
/// that callers of `uv-client` see.
#[derive(Debug, thiserror::Error)]
#[error("the request was not sent")]
struct NotSent(#[source] NotEncrypted);

/// Lets no request out that is neither encrypted nor for an exempted host; `uv-client` sends
/// each redirect through here as a request of its own.
struct Gate {
    exempted: BTreeSet<String>,
}

#[async_trait]
impl Middleware for Gate {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        if !may_ask(request.url(), &self.exempted) {
            let refused = NotSent(NotEncrypted(redact(request.url())));
            return Err(reqwest_middleware::Error::middleware(refused));
        }
        next.run(request, extensions).await
    }
}

/// A URL in the type that `uv-client` wants for an index.
pub(super) fn index_url(url: &url::Url) -> IndexUrl {
    IndexUrl::from(VerbatimUrl::from_url(DisplaySafeUrl::from_url(url.clone())))
}

/// Builds the client.
pub(super) fn build(
    options: &ClientOptions,
    cache: Cache,
) -> Result<RegistryClient, WheelSourceError> {
    let setup = |err: &(dyn std::error::Error + 'static)| WheelSourceError::Setup {
        cause: Cause::of(err, &[]),
    };
    let pool = pool(&options.user)?;
    let connectivity = if options.offline { Connectivity::Offline } else { Connectivity::Online };
    let base = BaseClientBuilder::default()
        .connectivity(connectivity)
        .retries(options.retries)
        // Tests must not wait for back-off.
        .no_retry_delay(cfg!(test));
    let indexes =
        options.places.iter().map(|url| Index::from_extra_index_url(index_url(url))).collect();
    RegistryClientBuilder::new(base, cache)
        .with_reqwest_client(pool)
        .extra_middleware(ExtraMiddleware(vec![Arc::new(Gate {
            exempted: options.allow_insecure.clone(),
        })]))
        .index_locations(IndexLocations::new(indexes, Vec::new(), false))
        .build()
        .map_err(|err| setup(&err))
}

fn pool(user: &UserConfig) -> Result<reqwest::Client, WheelSourceError> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("gpuenv/", env!("CARGO_PKG_VERSION")))
        // `uv-client` follows redirects itself, so that credentials are looked at for each.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .pool_max_idle_per_host(20);

    if let Some(setting) = &user.certificates {
        let bad = |cause| WheelSourceError::Certificates {
            path: setting.value.clone(),
            from: setting.from.clone(),
            cause,
        };
        let pem = std::fs::read(&setting.value).map_err(|err| bad(Cause::of(&err, &[])))?;
        let certificates =
            reqwest::Certificate::from_pem_bundle(&pem).map_err(|err| bad(Cause::of(&err, &[])))?;
        if certificates.is_empty() {
            return Err(bad(Cause::words("there is no PEM certificate in it")));
        }
        builder = builder.tls_certs_merge(certificates);
    }
    builder = match &user.proxy {
        Proxy::Environment => builder,
        Proxy::None => builder.no_proxy(),
        Proxy::Url(setting) => {
            let masked = [DisplaySafeUrl::from_url(setting.value.clone())];
            let proxy = reqwest::Proxy::all(setting.value.clone())
                .map_err(|err| WheelSourceError::Setup { cause: Cause::of(&err, &masked) })?;
            builder.proxy(proxy.no_proxy(reqwest::NoProxy::from_env()))
        }
    };
    builder.build().map_err(|err| WheelSourceError::Setup { cause: Cause::of(&err, &[]) })
}
