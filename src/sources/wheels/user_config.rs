//! Where the *default* wheel index is on this machine, as pip and uv have been told.
//!
//! A machine behind a mirror is usually set up for pip or uv already; gpuenv listens to that, and
//! to nothing more: these settings move the default index and say how to reach hosts. They never
//! add a source, so that a lock does not depend on them. What would add one is named in a note
//! and ignored.
//!
//! Order, first match wins: gpuenv's own mirrors (see [`super::WheelConfig::mirrors`]), then
//! `UV_DEFAULT_INDEX`, `UV_INDEX_URL`, `PIP_INDEX_URL`, pip's files, then the default of
//! `uv_distribution_types`. pip's files are read as "Configuration" of its user guide says: later
//! files override earlier ones, `[install]` overrides `[global]`. The file of a virtual
//! environment is not read: no virtual environment is involved.
//!
//! The system's certificate authorities are always trusted, so `UV_NATIVE_TLS` has nothing to
//! add; a bundle named by `SSL_CERT_FILE`, `PIP_CERT`, pip's `cert`, `REQUESTS_CA_BUNDLE` or
//! `CURL_CA_BUNDLE` (the first of them that is set) is trusted beside them.

use std::io;
use std::path::{Path, PathBuf};

use configparser::ini::Ini;
use url::Url;

use super::error::{Cause, WheelSourceError, redact};

/// Looks up an environment variable.
pub type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;
/// Reads a file; `None` where there is none.
pub type FileReader<'a> = &'a dyn Fn(&Path) -> io::Result<Option<String>>;

/// A value and who gave it (`PIP_INDEX_URL`, `/etc/pip.conf, [global] index-url`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Who gave it, for messages.
    pub from: String,
}

/// How to find a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY` and their lower-case forms.
    #[default]
    Environment,
    /// This one, except for what `NO_PROXY` names.
    Url(Setting<Url>),
    /// None at all.
    None,
}

/// What this machine's settings say about reaching wheel sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserConfig {
    /// Where the default index is; may hold credentials.
    pub index: Option<Setting<Url>>,
    /// PEM file of certificate authorities to trust beside the system's.
    pub certificates: Option<Setting<PathBuf>>,
    /// Proxy.
    pub proxy: Proxy,
    /// Sentences on settings that are there and ignored.
    pub notes: Vec<String>,
}

impl UserConfig {
    /// Reads the settings of the process's own environment.
    ///
    /// # Errors
    /// As [`UserConfig::read`].
    pub fn of_this_machine() -> Result<Self, WheelSourceError> {
        UserConfig::read(&|name| std::env::var(name).ok(), &|path| match fs_err::read_to_string(
            path,
        ) {
            Ok(text) => Ok(Some(text)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        })
    }

    /// Reads the settings through `env` and `read`.
    ///
    /// # Errors
    /// A settings file that cannot be read, or an index or proxy that is no URL.
    pub fn read(env: EnvLookup<'_>, read: FileReader<'_>) -> Result<Self, WheelSourceError> {
        // Both tools take an empty variable for an unset one.
        let var = |name: &str| {
            let value = env(name)?;
            let value = value.trim();
            (!value.is_empty()).then(|| Setting { value: value.to_owned(), from: name.to_owned() })
        };
        let pip = PipFiles::read(&var, read)?;

        let index = var("UV_DEFAULT_INDEX")
            .map(|s| Setting { value: without_index_name(&s.value).to_owned(), ..s })
            .or_else(|| var("UV_INDEX_URL"))
            .or_else(|| var("PIP_INDEX_URL"))
            .or_else(|| pip.get("index-url"))
            .map(|s| parse_url(s, &["http", "https", "file"]))
            .transpose()?;

        let certificates = var("SSL_CERT_FILE")
            .or_else(|| var("PIP_CERT"))
            .or_else(|| pip.get("cert"))
            .or_else(|| var("REQUESTS_CA_BUNDLE"))
            .or_else(|| var("CURL_CA_BUNDLE"))
            .map(|s| Setting { value: PathBuf::from(s.value), from: s.from });

        let proxy = match var("PIP_PROXY").or_else(|| pip.get("proxy")) {
            None => Proxy::Environment,
            Some(mut setting) => {
                // pip takes `host:port` too.
                if !setting.value.contains("://") {
                    setting.value.insert_str(0, "http://");
                }
                Proxy::Url(parse_url(setting, &["http", "https"])?)
            }
        };

        let mut notes = Vec::new();
        let ignored = ["PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"];
        let ignored = ignored.into_iter().filter_map(var).chain(pip.get("extra-index-url"));
        for setting in ignored {
            notes.push(format!(
                "{} is ignored: a lock must not depend on it; name the index in \
                 [pypi-options.indexes] of env.toml",
                setting.from
            ));
        }
        let ignored = ["PIP_FIND_LINKS", "UV_FIND_LINKS", "PIP_NO_INDEX", "UV_NO_INDEX"];
        let ignored = ignored
            .into_iter()
            .filter_map(var)
            .chain(pip.get("find-links"))
            .chain(pip.get("no-index"));
        for setting in ignored {
            notes.push(format!(
                "{} is ignored: a lock must not depend on it; use `find-links` in [pypi-options] of \
                 env.toml",
                setting.from
            ));
        }
        Ok(UserConfig { index, certificates, proxy, notes })
    }
}

/// The files of pip that are there, least important first.
struct PipFiles(Vec<(PathBuf, Ini)>);

impl PipFiles {
    fn read(
        var: &dyn Fn(&str) -> Option<Setting<String>>,
        read: FileReader<'_>,
    ) -> Result<Self, WheelSourceError> {
        let var = |name: &str| var(name).map(|s| s.value);
        let explicit = var("PIP_CONFIG_FILE");
        if explicit.as_deref() == Some("/dev/null") {
            return Ok(PipFiles(Vec::new()));
        }
        let mut paths: Vec<PathBuf> = var("XDG_CONFIG_DIRS")
            .unwrap_or_else(|| "/etc/xdg".into())
            .split(':')
            .filter(|dir| !dir.is_empty())
            .map(|dir| Path::new(dir).join("pip/pip.conf"))
            .collect();
        paths.push("/etc/pip.conf".into());
        let home = var("HOME").map(PathBuf::from);
        if let Some(home) = &home {
            paths.push(home.join(".pip/pip.conf"));
        }
        if let Some(config) =
            var("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| Some(home?.join(".config")))
        {
            paths.push(config.join("pip/pip.conf"));
        }
        paths.extend(explicit.map(PathBuf::from));

        let mut files = Vec::new();
        for path in paths {
            let bad = |cause| WheelSourceError::Settings { path: path.clone(), cause };
            let Some(text) = read(&path).map_err(|err| bad(Cause::of(&err, &[])))? else {
                continue;
            };
            let mut ini = Ini::new();
            ini.set_multiline(true);
            // As Python's configparser: a `#` within a value (a URL) begins no comment.
            ini.set_inline_comment_symbols(Some(&[]));
            ini.read(text).map_err(|err| bad(Cause::words(err)))?;
            files.push((path, ini));
        }
        Ok(PipFiles(files))
    }

    /// The value of an option, and where it stands. An empty value counts as none.
    fn get(&self, option: &str) -> Option<Setting<String>> {
        for section in ["install", "global"] {
            for (path, ini) in self.0.iter().rev() {
                // pip takes `index_url` for `index-url`.
                let value = ini
                    .get(section, option)
                    .or_else(|| ini.get(section, &option.replace('-', "_")))
                    .map(|v| v.trim().to_owned())
                    .filter(|v| !v.is_empty());
                if let Some(value) = value {
                    let from = format!("{}, [{section}] {option}", path.display());
                    return Some(Setting { value, from });
                }
            }
        }
        None
    }
}

/// `name=https://…`, as uv allows, without the name.
fn without_index_name(text: &str) -> &str {
    match text.split_once('=') {
        Some((name, url)) if !name.contains(['/', ':']) => url,
        _ => text,
    }
}

fn parse_url(setting: Setting<String>, schemes: &[&str]) -> Result<Setting<Url>, WheelSourceError> {
    let bad = |text: String, reason: String| WheelSourceError::BadLocation {
        from: setting.from.clone(),
        text,
        reason,
    };
    // A text that is no URL may hold a password at any place, so it is not shown.
    let url = Url::parse(&setting.value).map_err(|err| bad("…".into(), err.to_string()))?;
    if !schemes.contains(&url.scheme()) {
        let reason = format!("its scheme is none of {}", schemes.join(", "));
        return Err(bad(redact(&url), reason));
    }
    Ok(Setting { value: url, from: setting.from })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn config(
        env: &[(&str, &str)],
        files: &[(&str, &str)],
    ) -> Result<UserConfig, WheelSourceError> {
        let env: BTreeMap<_, _> = env.iter().copied().collect();
        let files: BTreeMap<_, _> = files.iter().copied().collect();
        UserConfig::read(&|name| env.get(name).map(|v| (*v).to_owned()), &|path| {
            Ok(path.to_str().and_then(|p| files.get(p)).map(|t| (*t).to_owned()))
        })
    }
    fn index(env: &[(&str, &str)], files: &[(&str, &str)]) -> (String, String) {
        let setting = config(env, files).unwrap().index.unwrap();
        (setting.value.into(), setting.from)
    }

    #[test]
    fn nothing_said_means_nothing_changed() {
        assert_eq!(config(&[], &[]).unwrap(), UserConfig::default());
        assert_eq!(config(&[("PIP_INDEX_URL", " ")], &[]).unwrap(), UserConfig::default());
    }

    #[test]
    fn precedence_is_uv_then_pip_then_files() {
        let files = [
            ("/etc/pip.conf", "[global]\nindex-url = https://etc.invalid/simple\n"),
            ("/home/u/.config/pip/pip.conf", "[global]\nindex_url: https://user.invalid/simple\n"),
        ];
        let home = ("HOME", "/home/u");
        let pip = ("PIP_INDEX_URL", "https://pip.invalid/simple");
        let uv = ("UV_INDEX_URL", "https://uv.invalid/simple");
        let default = ("UV_DEFAULT_INDEX", "corp=https://default.invalid/simple?x=1");
        let first = |env: &[(&str, &str)]| index(env, &files).0;
        assert_eq!(first(&[]), "https://etc.invalid/simple");
        assert_eq!(first(&[home]), "https://user.invalid/simple");
        assert_eq!(first(&[home, pip]), "https://pip.invalid/simple");
        assert_eq!(first(&[home, pip, uv]), "https://uv.invalid/simple");
        assert_eq!(first(&[home, pip, uv, default]), "https://default.invalid/simple?x=1");
    }

    #[test]
    fn install_beats_global_and_the_named_file_beats_all() {
        let files = [
            ("/etc/pip.conf", "[install]\nindex-url = https://install.invalid/simple\n"),
            ("/x/pip.conf", "[global]\nindex-url = https://named.invalid/simple\n"),
            ("/y/pip.conf", "# c\n[install]\n; c\nindex-url = https://y.invalid/simple#frag\n"),
        ];
        let (url, from) = index(&[("PIP_CONFIG_FILE", "/x/pip.conf")], &files);
        assert_eq!(url, "https://install.invalid/simple");
        assert_eq!(from, "/etc/pip.conf, [install] index-url");
        let (url, _) = index(&[("PIP_CONFIG_FILE", "/y/pip.conf")], &files);
        assert_eq!(url, "https://y.invalid/simple#frag");
        let none = config(&[("PIP_CONFIG_FILE", "/dev/null")], &files).unwrap();
        assert_eq!(none.index, None);
    }

    /// Fault 40: what would add a source is ignored, and said so.
    #[test]
    fn extra_indexes_are_noted_and_ignored() {
        let files = [(
            "/etc/pip.conf",
            "[global]\nextra-index-url =\n    https://a.invalid\n    https://b.invalid\n",
        )];
        let env = [
            ("PIP_EXTRA_INDEX_URL", "https://user:secret@extra.invalid/simple"),
            ("UV_INDEX", "https://extra.invalid/simple"),
            ("PIP_FIND_LINKS", "/opt/wheels"),
        ];
        let config = config(&env, &files).unwrap();
        assert_eq!(config.index, None);
        assert_eq!(config.notes.len(), 4, "{:?}", config.notes);
        assert!(config.notes[0].starts_with("PIP_EXTRA_INDEX_URL is ignored"));
        assert!(config.notes[2].starts_with("/etc/pip.conf, [global] extra-index-url is ignored"));
        assert!(!config.notes.concat().contains("secret"));
    }

    #[test]
    fn certificates_and_proxy() {
        let files =
            [("/etc/pip.conf", "[global]\ncert = /pip.pem\nproxy = u:p@proxy.invalid:3128\n")];
        let got = config(&[("REQUESTS_CA_BUNDLE", "/requests.pem")], &files).unwrap();
        assert_eq!(got.certificates.unwrap().value, Path::new("/pip.pem"));
        let Proxy::Url(proxy) = got.proxy else { panic!("no proxy") };
        assert_eq!(proxy.value.as_str(), "http://u:p@proxy.invalid:3128/");
        let got = config(&[("SSL_CERT_FILE", "/ssl.pem"), ("PIP_CERT", "/p.pem")], &files).unwrap();
        assert_eq!(got.certificates.unwrap().value, Path::new("/ssl.pem"));
    }

    #[test]
    fn a_setting_that_is_no_url_names_who_said_it_and_shows_no_secret() {
        for value in ["ftp://user:secret@host.invalid", "user:secret@host", "//:secret@"] {
            let err = config(&[("PIP_INDEX_URL", value)], &[]).unwrap_err().to_string();
            assert!(err.contains("PIP_INDEX_URL"), "{err}");
            assert!(!err.contains("secret"), "{err}");
        }
        let err = config(&[], &[("/etc/pip.conf", "[global\nindex-url\n")]).unwrap_err();
        assert!(err.to_string().contains("/etc/pip.conf"), "{err}");
    }

    proptest::proptest! {
        /// Whatever a settings file holds, reading it ends with settings or an error.
        #[test]
        fn no_settings_file_panics(text in "(\\[(global|install)\\]\n|[ -~]{0,20}|index-url = |\n|\t|é){0,20}") {
            let _ = config(&[], &[("/etc/pip.conf", text.as_str())]);
        }
    }
}
