//! What the machine says about sources: gpuenv's own `config.toml`, the user's `.condarc` files
//! and the proxy and certificate variables.
//!
//! None of it enters a lock. It says where the default sources are from here, through which
//! proxy, with which certificates; what the lock names is decided by env.toml alone.
//!
//! # config.toml
//!
//! `$GPUENV_CONFIG`, else `$XDG_CONFIG_HOME/gpuenv/config.toml`, else
//! `~/.config/gpuenv/config.toml`. Unknown keys are errors.
//!
//! ```toml
//! store = "/srv/gpuenv"              # where packages and environments go
//! cache = "/scratch/me/gpuenv"       # indexes and partial downloads
//! concurrency = 8                    # downloads at once, 1 to 64
//! tls-ca = "/etc/ssl/lab-ca.pem"     # further certificate authorities, PEM
//! allow-insecure = ["mirror.lab"]    # hosts that may be asked over plain HTTP; true: any
//!
//! [mirrors]                          # source name → places with the same layout, in order
//! conda-forge = ["https://mirror.example.invalid/conda-forge"]
//! pypi = ["https://mirror.example.invalid/simple"]
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::condarc::Condarc;
use super::error::ConfigError;
use super::wheels::UserConfig;
use super::wheels::user_config::Proxy;
use crate::error::Snippet;

/// The environment and files that configuration is read from; injected so that reading it is a
/// pure function of its input.
#[derive(Clone, Copy)]
pub struct Ambient<'a> {
    /// Looks up an environment variable.
    pub var: &'a dyn Fn(&str) -> Option<String>,
    /// Reads a text file; `None` if there is none.
    pub read: &'a dyn Fn(&Path) -> io::Result<Option<String>>,
    /// Lists the files of a directory, sorted by name; empty if there is none.
    pub list: &'a dyn Fn(&Path) -> io::Result<Vec<PathBuf>>,
}

impl Ambient<'_> {
    /// A variable that is set and not empty.
    pub(crate) fn set(&self, name: &str) -> Option<String> {
        (self.var)(name).filter(|value| !value.is_empty())
    }
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.set("HOME").map(PathBuf::from)
    }
    /// An XDG base directory; the specification says that relative values are ignored.
    fn xdg(&self, name: &str, below_home: &str) -> Option<PathBuf> {
        self.set(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(self.home()?.join(below_home)))
    }
}

/// Where requests go through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// Rules, first match wins.
    pub rules: Vec<ProxyRule>,
    /// `NO_PROXY`, in curl's syntax.
    pub no_proxy: Option<String>,
}

/// One proxy and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRule {
    /// Scheme of the request; `None` for any.
    pub scheme: Option<String>,
    /// Host of the request; `None` for any.
    pub host: Option<String>,
    /// The proxy, with credentials if it has any.
    pub proxy: Url,
}

/// How patient downloads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A transfer that brings nothing for so long is broken off. There is no limit on the whole.
    pub stall: Duration,
    /// Tries in a row that bring nothing before a place is given up (at least 1).
    pub tries: u32,
    /// Pause before the second try; doubled for each further one.
    pub backoff: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { stall: Duration::from_secs(60), tries: 4, backoff: Duration::from_millis(500) }
    }
}

/// The machine's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[mirrors]`: lock source name → places, asked in order before the source itself.
    pub mirrors: BTreeMap<String, Vec<Url>>,
    /// `store`.
    pub store: Option<PathBuf>,
    /// `cache`.
    pub cache: Option<PathBuf>,
    /// `concurrency`: downloads at once.
    pub concurrency: NonZeroUsize,
    /// Certificate authorities to trust besides the system's: `tls-ca`, else `SSL_CERT_FILE`,
    /// `REQUESTS_CA_BUNDLE`, `ssl_verify` of `.condarc`.
    pub tls_ca: Option<PathBuf>,
    /// `allow-insecure`: hosts that may be asked over plain HTTP; [`ANY_HOST`] among them allows
    /// all. Loopback always may.
    pub allow_insecure: BTreeSet<String>,
    /// From `.condarc` and `CONDA_CHANNEL_ALIAS`.
    pub condarc: Condarc,
    /// Proxies, `proxy_servers` of `.condarc` before the variables.
    pub proxies: Proxies,
    /// Timeouts and retries.
    pub patience: Patience,
    /// What pip's and uv's settings say about the default wheel index.
    pub wheels: UserConfig,
    /// Whether credentials of the user are looked up (`~/.netrc`, `RATTLER_AUTH_FILE`,
    /// rattler's credential file).
    pub credentials: bool,
    /// The default cache directory, `$XDG_CACHE_HOME/gpuenv`; `None` without `HOME`.
    pub default_cache: Option<PathBuf>,
    /// Things found in the files that the user should hear of once.
    pub warnings: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mirrors: BTreeMap::new(),
            store: None,
            cache: None,
            concurrency: DEFAULT_CONCURRENCY,
            tls_ca: None,
            allow_insecure: BTreeSet::new(),
            condarc: Condarc::default(),
            proxies: Proxies::default(),
            patience: Patience::default(),
            wheels: UserConfig::default(),
            credentials: false,
            default_cache: None,
            warnings: Vec::new(),
        }
    }
}

/// Stands for any host in [`Config::allow_insecure`].
pub const ANY_HOST: &str = "*";

const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");
const MAX_CONCURRENCY: usize = 64;

impl Config {
    /// Reads the configuration of this process's environment; `file` is read as gpuenv's own
    /// instead of what `GPUENV_CONFIG` names.
    pub fn from_process(file: Option<&Path>) -> Result<Config, ConfigError> {
        let file = file.map(|f| f.to_string_lossy().into_owned());
        let var = |name: &str| match (name, &file) {
            ("GPUENV_CONFIG", Some(file)) => Some(file.clone()),
            _ => std::env::var(name).ok(),
        };
        let read = |path: &Path| match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(e)
                if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        };
        let list = |path: &Path| {
            let entries = match std::fs::read_dir(path) {
                Ok(entries) => entries,
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    return Ok(Vec::new());
                }
                Err(e) => return Err(e),
            };
            let mut files =
                entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
            files.sort();
            Ok(files)
        };
        let ambient = Ambient { var: &var, read: &read, list: &list };
        Ok(Config { credentials: true, ..Config::load(&ambient)? })
    }

    /// Reads the configuration from `ambient`. Credentials are off.
    pub fn load(ambient: &Ambient<'_>) -> Result<Config, ConfigError> {
        let mut config = Config {
            default_cache: ambient.xdg("XDG_CACHE_HOME", ".cache").map(|d| d.join("gpuenv")),
            ..Config::default()
        };
        let explicit = ambient.set("GPUENV_CONFIG").map(PathBuf::from);
        let path = explicit.clone().or_else(|| {
            Some(ambient.xdg("XDG_CONFIG_HOME", ".config")?.join("gpuenv/config.toml"))
        });
        if let Some(path) = path {
            match (ambient.read)(&path) {
                Ok(Some(text)) => {
                    Reader { path: &path, text: &text, ambient }.apply(&mut config)?;
                }
                Ok(None) if explicit.is_some() => return Err(ConfigError::Missing { path }),
                Ok(None) => {}
                Err(source) => return Err(ConfigError::Read { path, source }),
            }
        }
        let (condarc, mut warnings) = Condarc::load(ambient)?;
        config.warnings.append(&mut warnings);
        if let Some(cache) = ambient.set("GPUENV_CACHE").map(PathBuf::from) {
            if !cache.is_absolute() {
                return Err(ConfigError::Variable {
                    name: "GPUENV_CACHE",
                    value: cache.display().to_string(),
                    message: "expected an absolute path".into(),
                });
            }
            config.cache = Some(cache);
        }
        config.wheels = UserConfig::read(ambient.var, ambient.read)?;
        config.tls_ca = config
            .tls_ca
            .or_else(|| ambient.set("SSL_CERT_FILE").map(PathBuf::from))
            .or_else(|| ambient.set("REQUESTS_CA_BUNDLE").map(PathBuf::from))
            .or_else(|| condarc.tls_ca.clone())
            .or_else(|| config.wheels.certificates.as_ref().map(|setting| setting.value.clone()));
        config.proxies = proxies(ambient, &condarc)?;
        if let Proxy::Url(setting) = &config.wheels.proxy {
            // pip's own setting comes last: the variables are for everybody.
            let proxy = setting.value.clone();
            config.proxies.rules.push(ProxyRule { scheme: None, host: None, proxy });
        }
        config.condarc = condarc;
        Ok(config)
    }

    /// Where indexes and downloads are kept: `cache`, else the XDG cache directory.
    pub fn cache_dir(&self) -> Option<PathBuf> {
        self.cache.clone().or_else(|| self.default_cache.clone())
    }

    /// Whether `url` may be asked: TLS, a local file, loopback, or an exempted host.
    pub fn allows(&self, url: &Url) -> bool {
        may_ask(url, &self.allow_insecure)
    }
}

/// Whether `url` may be asked: TLS, a local file, loopback, or plain HTTP to one of `exempted`
/// (as [`Config::allow_insecure`]). The one rule for every client and every redirect.
pub(crate) fn may_ask(url: &Url, exempted: &BTreeSet<String>) -> bool {
    match url.scheme() {
        "https" | "file" => true,
        "http" if exempted.contains(ANY_HOST) => true,
        "http" => match url.host() {
            Some(url::Host::Domain(name)) => name == "localhost" || exempted.contains(name),
            Some(url::Host::Ipv4(ip)) => ip.is_loopback() || exempted.contains(&ip.to_string()),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback() || exempted.contains(&ip.to_string()),
            None => false,
        },
        _ => false,
    }
}

/// Proxies: `proxy_servers` of `.condarc`, then `HTTPS_PROXY`, `http_proxy`, `ALL_PROXY`.
///
/// Upper-case `HTTP_PROXY` is left out in CGI programs since a request header can set it
/// (CVE-2016-5385); gpuenv is none, so both cases count, the lower one first as in curl.
fn proxies(ambient: &Ambient<'_>, condarc: &Condarc) -> Result<Proxies, ConfigError> {
    let mut rules = condarc.proxies.clone();
    for (names, scheme) in [
        (["https_proxy", "HTTPS_PROXY"], Some("https")),
        (["http_proxy", "HTTP_PROXY"], Some("http")),
        (["all_proxy", "ALL_PROXY"], None),
    ] {
        let Some((name, value)) = names.iter().find_map(|name| Some((*name, ambient.set(name)?)))
        else {
            continue;
        };
        let proxy = parse_proxy(&value).map_err(|message| ConfigError::Variable {
            name,
            value: mask(&value),
            message,
        })?;
        rules.push(ProxyRule { scheme: scheme.map(String::from), host: None, proxy });
    }
    let no_proxy = ambient.set("no_proxy").or_else(|| ambient.set("NO_PROXY"));
    Ok(Proxies { rules, no_proxy })
}

/// A proxy URL; without a scheme it is an HTTP proxy, as curl has it.
pub(crate) fn parse_proxy(text: &str) -> Result<Url, String> {
    let text = text.trim();
    let full = if text.contains("://") { text.to_string() } else { format!("http://{text}") };
    match Url::parse(&full) {
        Ok(url) if url.has_host() => match url.scheme() {
            "http" | "https" | "socks4" | "socks4a" | "socks5" | "socks5h" => Ok(url),
            other => Err(format!("{other} is no kind of proxy that is known")),
        },
        Ok(_) => Err("a proxy needs a host".into()),
        Err(e) => Err(format!("this is no URL ({e})")),
    }
}

/// What stands before `@` may be a password.
fn mask(value: &str) -> String {
    match value.rsplit_once('@') {
        Some((_, rest)) => format!("…@{rest}"),
        None => value.to_string(),
    }
}

/// A text of the file, and where it stands.
type Text = (String, Option<std::ops::Range<usize>>);

/// Reads one `config.toml`.
struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    ambient: &'a Ambient<'a>,
}

impl Reader<'_> {
    fn error(&self, span: Option<std::ops::Range<usize>>, message: String) -> ConfigError {
        let span = span.unwrap_or(0..0);
        let before = self.text.get(..span.start).unwrap_or(self.text);
        ConfigError::Toml {
            path: self.path.to_path_buf(),
            line: before.matches('\n').count() + 1,
            message: message.clone(),
            snippet: Box::new(Snippet {
                file: self.path.display().to_string(),
                text: self.text.to_string(),
                span,
                label: message,
            }),
        }
    }

    fn apply(&self, config: &mut Config) -> Result<(), ConfigError> {
        let document = toml_edit::Document::parse(self.text)
            .map_err(|e| self.error(e.span(), e.message().to_string()))?;
        for (key, item) in document.iter() {
            let key_span = document.key(key).and_then(|k| k.span());
            match key {
                "store" => config.store = Some(self.path_value(key, item)?),
                "cache" => config.cache = Some(self.path_value(key, item)?),
                "tls-ca" => config.tls_ca = Some(self.path_value(key, item)?),
                "concurrency" => config.concurrency = self.concurrency(item)?,
                "allow-insecure" => match item.as_bool() {
                    Some(true) => {
                        config.allow_insecure.insert(ANY_HOST.into());
                    }
                    Some(false) => {}
                    None => self.exempted(key, item, &mut config.allow_insecure)?,
                },
                "mirrors" => self.mirrors(item, &mut config.mirrors)?,
                unknown => {
                    return Err(self.error(key_span, format!("unknown key {unknown:?}")));
                }
            }
        }
        Ok(())
    }

    /// Hosts that may be asked over plain HTTP.
    fn exempted(
        &self,
        key: &str,
        item: &toml_edit::Item,
        out: &mut BTreeSet<String>,
    ) -> Result<(), ConfigError> {
        for (host, span) in self.strings(key, item)? {
            if host.contains(['/', '@', ' ', '*']) || host.is_empty() {
                let message = format!("{host:?} is no host: expected one such as mirror.lab");
                return Err(self.error(span, message));
            }
            out.insert(host.to_ascii_lowercase());
        }
        Ok(())
    }

    fn mirrors(
        &self,
        item: &toml_edit::Item,
        out: &mut BTreeMap<String, Vec<Url>>,
    ) -> Result<(), ConfigError> {
        let table = item.as_table_like().ok_or_else(|| {
            self.error(item.span(), "mirrors is a table of source names and URLs".into())
        })?;
        for (name, places) in table.iter() {
            let mut urls = Vec::new();
            for (text, span) in self.strings(name, places)? {
                let bad = |message: String| self.error(span.clone(), message);
                let url = Url::parse(&text).map_err(|e| bad(format!("no URL ({e})")))?;
                if !matches!(url.scheme(), "http" | "https" | "file") {
                    return Err(bad(format!(
                        "expected an http, https or file URL, found {}",
                        url.scheme()
                    )));
                }
                urls.push(url);
            }
            out.insert(name.to_string(), urls);
        }
        Ok(())
    }

    /// A string or an array of strings.
    fn strings(&self, key: &str, item: &toml_edit::Item) -> Result<Vec<Text>, ConfigError> {
        let wrong = |span| self.error(span, format!("{key} is an array of strings"));
        if let Some(one) = item.as_str() {
            return Ok(vec![(one.to_string(), item.span())]);
        }
        let array = item.as_array().ok_or_else(|| wrong(item.span()))?;
        array
            .iter()
            .map(|value| match value.as_str() {
                Some(text) => Ok((text.to_string(), value.span())),
                None => Err(wrong(value.span())),
            })
            .collect()
    }

    /// A path; `~/` is the home directory, a relative one starts at the configuration file.
    fn path_value(&self, key: &str, item: &toml_edit::Item) -> Result<PathBuf, ConfigError> {
        let text = item
            .as_str()
            .filter(|text| !text.is_empty())
            .ok_or_else(|| self.error(item.span(), format!("{key} is a path")))?;
        if let Some(rest) = text.strip_prefix("~/") {
            let home = self.ambient.home().ok_or_else(|| {
                self.error(item.span(), format!("{key} starts with ~/, and HOME is not set"))
            })?;
            return Ok(home.join(rest));
        }
        Ok(self.path.parent().unwrap_or(Path::new("")).join(text))
    }

    fn concurrency(&self, item: &toml_edit::Item) -> Result<NonZeroUsize, ConfigError> {
        item.as_integer()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n <= MAX_CONCURRENCY)
            .and_then(NonZeroUsize::new)
            .ok_or_else(|| {
                self.error(
                    item.span(),
                    format!("concurrency is a whole number from 1 to {MAX_CONCURRENCY}"),
                )
            })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A made-up machine: variables and files.
    pub(crate) fn load(
        vars: &[(&str, &str)],
        files: &[(&str, &str)],
    ) -> Result<Config, ConfigError> {
        let var = |name: &str| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
        };
        let read = |path: &Path| {
            Ok(files
                .iter()
                .find(|(key, _)| Path::new(key) == path)
                .map(|(_, text)| text.to_string()))
        };
        let list = |dir: &Path| {
            let mut found: Vec<PathBuf> = files
                .iter()
                .map(|(key, _)| PathBuf::from(key))
                .filter(|path| path.parent() == Some(dir))
                .collect();
            found.sort();
            Ok(found)
        };
        Config::load(&Ambient { var: &var, read: &read, list: &list })
    }

    const FILE: &str = "/h/.config/gpuenv/config.toml";

    fn with_file(text: &str) -> Result<Config, ConfigError> {
        load(&[("HOME", "/h")], &[(FILE, text)])
    }

    #[test]
    fn nothing_set_gives_the_defaults() {
        let config = load(&[], &[]).unwrap();
        assert_eq!(config.concurrency.get(), 8);
        assert!(config.mirrors.is_empty() && config.cache_dir().is_none());
        let config = load(&[("HOME", "/h")], &[]).unwrap();
        assert_eq!(config.cache_dir(), Some("/h/.cache/gpuenv".into()));
    }

    #[test]
    fn every_key_is_read() {
        let config = with_file(
            r#"
            store = "~/store"
            cache = "/scratch/c"
            concurrency = 3
            tls-ca = "lab.pem"
            allow-insecure = ["Mirror.Lab"]
            [mirrors]
            conda-forge = ["https://a.example.invalid/cf", "http://mirror.lab/cf"]
            pypi = "https://a.example.invalid/simple"
            "#,
        )
        .unwrap();
        assert_eq!(config.store, Some("/h/store".into()));
        assert_eq!(config.cache_dir(), Some("/scratch/c".into()));
        assert_eq!(config.concurrency.get(), 3);
        assert_eq!(config.tls_ca, Some("/h/.config/gpuenv/lab.pem".into()));
        assert_eq!(config.mirrors["conda-forge"].len(), 2);
        assert_eq!(config.mirrors["pypi"][0].as_str(), "https://a.example.invalid/simple");
        assert!(config.allows(&Url::parse("http://mirror.lab/x").unwrap()));
        assert!(!config.allows(&Url::parse("http://other.lab/x").unwrap()));
        let config = with_file("allow-insecure = true").unwrap();
        assert!(config.allows(&Url::parse("http://other.lab/x").unwrap()));
    }

    #[test]
    fn mistakes_are_errors_that_point_at_the_line() {
        for (text, line, word) in [
            ("\nmirror = 1", 2, "unknown key \"mirror\""),
            ("concurrency = 0", 1, "1 to 64"),
            ("concurrency = \"8\"", 1, "1 to 64"),
            ("store = 3", 1, "store is a path"),
            ("[mirrors]\nx = [\"nonsense\"]", 2, "no URL"),
            ("[mirrors]\nx = [\"ftp://h/x\"]", 2, "found ftp"),
            ("mirrors = 3", 1, "mirrors is a table"),
            ("allow-insecure = [\"http://h/\"]", 1, "no host"),
            ("a = = 1", 1, ""),
        ] {
            match with_file(text) {
                Err(ConfigError::Toml { line: found, message, snippet, .. }) => {
                    assert_eq!(found, line, "{text}");
                    assert!(message.contains(word), "{message}");
                    assert!(snippet.span.end <= text.len());
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_named_file_must_exist() {
        let named = [("GPUENV_CONFIG", "/etc/g.toml")];
        assert!(matches!(load(&named, &[]), Err(ConfigError::Missing { .. })));
        let config = load(&named, &[("/etc/g.toml", "concurrency = 2")]).unwrap();
        assert_eq!(config.concurrency.get(), 2);
    }

    #[test]
    fn plain_http_is_for_loopback_and_exempted_hosts() {
        let config = Config::default();
        for (url, allowed) in [
            ("https://h.example.invalid/", true),
            ("file:///x", true),
            ("http://127.0.0.1:8/", true),
            ("http://[::1]:8/", true),
            ("http://localhost/", true),
            ("http://h.example.invalid/", false),
            ("ftp://h.example.invalid/", false),
        ] {
            assert_eq!(config.allows(&Url::parse(url).unwrap()), allowed, "{url}");
        }
    }

    #[test]
    fn proxies_and_certificates_come_from_the_environment() {
        let config = load(
            &[
                ("HTTPS_PROXY", "proxy.example.invalid:3128"),
                ("no_proxy", "localhost,.lab"),
                ("SSL_CERT_FILE", "/ca.pem"),
            ],
            &[],
        )
        .unwrap();
        assert_eq!(config.tls_ca, Some("/ca.pem".into()));
        assert_eq!(config.proxies.rules[0].proxy.as_str(), "http://proxy.example.invalid:3128/");
        assert_eq!(config.proxies.rules[0].scheme.as_deref(), Some("https"));
        assert_eq!(config.proxies.no_proxy.as_deref(), Some("localhost,.lab"));

        let error = load(&[("ALL_PROXY", "ftp://u:secret@h")], &[]).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
