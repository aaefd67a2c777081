//! The parts of conda's own configuration that say where channels are.
//!
//! Files and their order are conda's (`conda config --help`, "search path"): later files win,
//! maps are merged. Keys that do not concern the place of a channel are left alone, since they
//! configure another program.

use std::collections::BTreeMap;
use std::path::PathBuf;

use saphyr::{LoadableYamlNode, Yaml};
use url::Url;

use super::config::{Ambient, ProxyRule, parse_proxy};
use super::error::ConfigError;

/// What `.condarc` files say about channels and the way to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condarc {
    /// `channel_alias` (or `CONDA_CHANNEL_ALIAS`): the base of named channels.
    pub channel_alias: Option<Url>,
    /// `custom_channels`: channel name → its base, to which the name is appended.
    pub custom_channels: BTreeMap<String, Url>,
    /// `mirrored_channels`: channel name → places with its layout, in order.
    pub mirrored_channels: BTreeMap<String, Vec<Url>>,
    /// `ssl_verify`, where it is a path (or `CONDA_SSL_VERIFY`).
    pub tls_ca: Option<PathBuf>,
    /// `proxy_servers`.
    pub proxies: Vec<ProxyRule>,
}

impl Condarc {
    /// Reads all files of the search path. The second value holds remarks for the user.
    pub(crate) fn load(ambient: &Ambient<'_>) -> Result<(Condarc, Vec<String>), ConfigError> {
        let mut condarc = Condarc::default();
        let mut warnings = Vec::new();
        for path in search_path(ambient)? {
            let text = (ambient.read)(&path)
                .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
            if let Some(text) = text {
                let file = File { path: &path, ambient, warnings: &mut warnings };
                file.apply(&text, &mut condarc)?;
            }
        }
        if let Some(alias) = ambient.set("CONDA_CHANNEL_ALIAS") {
            condarc.channel_alias = Some(channel_url(&alias).map_err(|message| {
                ConfigError::Variable { name: "CONDA_CHANNEL_ALIAS", value: "…".into(), message }
            })?);
        }
        if let Some(verify) = ambient.set("CONDA_SSL_VERIFY") {
            match verify.to_ascii_lowercase().as_str() {
                "true" | "yes" | "1" | "truststore" => {}
                "false" | "no" | "0" => warnings.push(UNVERIFIED.replace("{}", "CONDA_SSL_VERIFY")),
                _ => condarc.tls_ca = Some(PathBuf::from(verify)),
            }
        }
        Ok((condarc, warnings))
    }
}

const UNVERIFIED: &str = "{} turns certificate checks off; gpuenv keeps them on (name the \
                          certificate authority with `tls-ca` in its config.toml)";

/// conda's search path, lowest priority first.
fn search_path(ambient: &Ambient<'_>) -> Result<Vec<PathBuf>, ConfigError> {
    let mut paths = Vec::new();
    let mut family = |dir: PathBuf| -> Result<(), ConfigError> {
        paths.push(dir.join(".condarc"));
        paths.push(dir.join("condarc"));
        let below = dir.join("condarc.d");
        let files = (ambient.list)(&below)
            .map_err(|source| ConfigError::Read { path: below.clone(), source })?;
        paths.extend(
            files
                .into_iter()
                .filter(|file| file.extension().is_some_and(|e| e == "yml" || e == "yaml")),
        );
        Ok(())
    };
    family("/etc/conda".into())?;
    family("/var/lib/conda".into())?;
    if let Some(root) = ambient.set("CONDA_ROOT") {
        family(root.into())?;
    }
    if let Some(xdg) = ambient.set("XDG_CONFIG_HOME") {
        family(PathBuf::from(xdg).join("conda"))?;
    }
    if let Some(home) = ambient.home() {
        family(home.join(".config/conda"))?;
        family(home.join(".conda"))?;
        paths.push(home.join(".condarc"));
    }
    if let Some(prefix) = ambient.set("CONDA_PREFIX") {
        let prefix = PathBuf::from(prefix);
        paths.push(prefix.join(".condarc"));
        paths.push(prefix.join("condarc"));
    }
    if let Some(file) = ambient.set("CONDARC") {
        paths.push(file.into());
    }
    Ok(paths)
}

/// The base of a channel, without a trailing slash's difference.
fn channel_url(text: &str) -> Result<Url, String> {
    let text = text.trim();
    // conda accepts an alias without a scheme.
    let full = if text.contains("://") { text.to_string() } else { format!("https://{text}") };
    let mut url = Url::parse(&full).map_err(|e| format!("this is no URL ({e})"))?;
    if !matches!(url.scheme(), "http" | "https" | "file") {
        return Err(format!("expected an http, https or file URL, found {}", url.scheme()));
    }
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

struct File<'a> {
    path: &'a std::path::Path,
    ambient: &'a Ambient<'a>,
    warnings: &'a mut Vec<String>,
}

impl File<'_> {
    fn error(&self, message: impl Into<String>) -> ConfigError {
        ConfigError::Condarc { path: self.path.to_path_buf(), message: message.into() }
    }

    fn apply(self, text: &str, out: &mut Condarc) -> Result<(), ConfigError> {
        let documents = Yaml::load_from_str(text).map_err(|e| self.error(e.to_string()))?;
        let Some(document) = documents.first() else { return Ok(()) };
        if document.is_null() {
            return Ok(());
        }
        if !document.is_mapping() {
            return Err(self.error("expected keys and values"));
        }
        let get = |key: &str| document.as_mapping_get(key).filter(|value| !value.is_null());

        if let Some(value) = get("channel_alias") {
            out.channel_alias = Some(self.url("channel_alias", value)?);
        }
        if let Some(value) = get("custom_channels") {
            for (name, base) in self.pairs("custom_channels", value)? {
                let url = self.url(&format!("custom_channels: {name}"), base)?;
                out.custom_channels.insert(name, url);
            }
        }
        if let Some(value) = get("mirrored_channels") {
            for (name, places) in self.pairs("mirrored_channels", value)? {
                let key = format!("mirrored_channels: {name}");
                let list = match places.as_sequence() {
                    Some(list) => list.iter().collect::<Vec<_>>(),
                    None => vec![places],
                };
                // Registries that are no HTTP servers (oci://) are another protocol.
                let urls = list
                    .into_iter()
                    .filter(|place| !place.as_str().is_some_and(|t| t.starts_with("oci:")))
                    .map(|place| self.url(&key, place))
                    .collect::<Result<Vec<_>, _>>()?;
                out.mirrored_channels.insert(name, urls);
            }
        }
        if let Some(value) = get("proxy_servers") {
            for (target, proxy) in self.pairs("proxy_servers", value)? {
                let key = format!("proxy_servers: {target}");
                let text = self.text(&key, proxy)?;
                let proxy =
                    parse_proxy(&text).map_err(|why| self.error(format!("{key}: {why}")))?;
                let (scheme, host) = match target.split_once("://") {
                    Some((scheme, host)) => (scheme, Some(host.trim_end_matches('/').to_string())),
                    None => (target.as_str(), None),
                };
                let scheme = (scheme != "all").then(|| scheme.to_string());
                let rule = ProxyRule { scheme, host, proxy };
                out.proxies.retain(|r| (&r.scheme, &r.host) != (&rule.scheme, &rule.host));
                out.proxies.push(rule);
            }
            // The rule for one host goes before the rule for all.
            out.proxies.sort_by_key(|rule| rule.host.is_none());
        }
        if let Some(value) = get("ssl_verify") {
            match (value.as_bool(), value.as_str()) {
                (Some(true), _) | (_, Some("truststore")) => {}
                (Some(false), _) => {
                    let what = format!("`ssl_verify: false` in {}", self.path.display());
                    self.warnings.push(UNVERIFIED.replace("{}", &what));
                }
                (_, Some(_)) => out.tls_ca = Some(self.text("ssl_verify", value)?.into()),
                _ => return Err(self.error("ssl_verify is true, false or a path")),
            }
        }
        Ok(())
    }

    fn pairs<'y>(
        &self,
        key: &str,
        value: &'y Yaml<'y>,
    ) -> Result<Vec<(String, &'y Yaml<'y>)>, ConfigError> {
        let map = value
            .as_mapping()
            .ok_or_else(|| self.error(format!("{key} is a map of names and values")))?;
        map.iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| match name.as_str() {
                Some(name) => Ok((name.to_string(), value)),
                None => Err(self.error(format!("{key} has a name that is no text"))),
            })
            .collect()
    }

    fn text(&self, key: &str, value: &Yaml<'_>) -> Result<String, ConfigError> {
        let text = value.as_str().ok_or_else(|| self.error(format!("{key} is a text")))?;
        Ok(expand(text, self.ambient))
    }

    fn url(&self, key: &str, value: &Yaml<'_>) -> Result<Url, ConfigError> {
        let text = self.text(key, value)?;
        channel_url(&text).map_err(|why| self.error(format!("{key}: {why}")))
    }
}

/// `$NAME` and `${NAME}` as conda expands them; unset ones stay as they are.
fn expand(text: &str, ambient: &Ambient<'_>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, len) = match after.strip_prefix('{').and_then(|a| a.split_once('}')) {
            Some((name, _)) => (name, name.len() + 2),
            None => {
                let end = after
                    .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                    .unwrap_or(after.len());
                (&after[..end], end)
            }
        };
        match (ambient.var)(name).filter(|_| !name.is_empty()) {
            Some(value) => out.push_str(&value),
            None => out.push_str(&rest[at..at + 1 + len]),
        }
        rest = &after[len..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::super::config::tests::load;
    use super::*;

    #[test]
    fn later_files_win_and_maps_merge() {
        let config = load(
            &[("HOME", "/h"), ("CONDARC", "/x/rc")],
            &[
                (
                    "/etc/conda/condarc.d/10-site.yml",
                    "channel_alias: https://site.example.invalid/conda\n\
                     custom_channels:\n  lab: https://site.example.invalid\n  a: file:///srv\n",
                ),
                ("/etc/conda/condarc.d/README", "not yaml: ["),
                ("/h/.condarc", "custom_channels:\n  lab: https://me.example.invalid/c\n"),
                ("/x/rc", "channel_alias: https://mine.example.invalid\nchannels: [x]\n"),
            ],
        )
        .unwrap();
        let rc = &config.condarc;
        assert_eq!(rc.channel_alias.as_ref().unwrap().as_str(), "https://mine.example.invalid/");
        assert_eq!(rc.custom_channels["lab"].as_str(), "https://me.example.invalid/c/");
        assert_eq!(rc.custom_channels["a"].as_str(), "file:///srv/");
    }

    #[test]
    fn mirrors_proxies_and_certificates() {
        let config = load(
            &[("HOME", "/h"), ("PW", "p1"), ("http_proxy", "env.example.invalid")],
            &[(
                "/h/.condarc",
                "mirrored_channels:\n  conda-forge:\n    - oci://ghcr.example.invalid/c\n    - https://m.example.invalid/cf\n\
                 proxy_servers:\n  http: http://u:${PW}@p.example.invalid:1\n  https://one.example.invalid: http://q.example.invalid:2\n\
                 ssl_verify: /ca.pem\n",
            )],
        )
        .unwrap();
        assert_eq!(
            config.condarc.mirrored_channels["conda-forge"],
            [Url::parse("https://m.example.invalid/cf/").unwrap()]
        );
        assert_eq!(config.tls_ca, Some("/ca.pem".into()));
        let rules = &config.proxies.rules;
        assert_eq!(rules[0].host.as_deref(), Some("one.example.invalid"));
        assert_eq!(rules[1].proxy.password(), Some("p1"));
        assert_eq!(rules.len(), 3, "the variable comes last");
    }

    #[test]
    fn turned_off_verification_is_not_obeyed_but_mentioned() {
        let config = load(&[("HOME", "/h")], &[("/h/.condarc", "ssl_verify: false\n")]).unwrap();
        assert_eq!(config.tls_ca, None);
        assert!(config.warnings[0].contains("ssl_verify: false"), "{:?}", config.warnings);
    }

    #[test]
    fn broken_files_are_named() {
        for text in ["a: [", "- x", "channel_alias: 3", "custom_channels: [a]", "ssl_verify: [1]"] {
            let error = load(&[("HOME", "/h")], &[("/h/.condarc", text)]).unwrap_err();
            assert!(error.to_string().starts_with("/h/.condarc: "), "{text}: {error}");
        }
        assert!(load(&[("HOME", "/h")], &[("/h/.condarc", "")]).is_ok());
    }

    #[test]
    fn variables_expand_as_conda_does() {
        let var = |name: &str| (name == "A_1").then(|| "x".to_string());
        let read = |_: &std::path::Path| Ok(None);
        let list = |_: &std::path::Path| Ok(Vec::new());
        let ambient = Ambient { var: &var, read: &read, list: &list };
        for (text, expanded) in
            [("$A_1/y", "x/y"), ("${A_1}y", "xy"), ("$B ${B} $ $$A_1 ${", "$B ${B} $ $x ${")]
        {
            assert_eq!(expand(text, &ambient), expanded);
        }
    }
}
