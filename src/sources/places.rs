//! Where a channel is on this machine: a name, a URL or a path becomes the list of places that
//! are asked, in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rattler_conda_types::ChannelConfig;
use url::Url;

use super::config::Config;
use super::error::SourceError;
use crate::lockfile::{Source, SourceKind};
use crate::manifest::{self, lock_location};

/// What places are found with.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) config: &'a Config,
    /// Directory of `env.toml`, absolute; relative paths start there.
    pub(crate) project_dir: &'a Path,
    /// Sources whose absolute path only `env.toml` knows: lock name → path as written.
    pub(crate) directories: &'a BTreeMap<String, String>,
}

/// A channel and its places.
#[derive(Clone, Debug)]
pub(crate) struct ChannelSpec {
    /// As the lock writes it.
    pub(crate) source: Source,
    /// Base URLs with a last slash, mirrors first; never empty.
    pub(crate) bases: Vec<Url>,
}

/// The channel that `env.toml` writes as `written`.
pub(crate) fn channel(written: &str, ground: Ground<'_>) -> Result<ChannelSpec, SourceError> {
    let location = lock_location(written);
    let source = Source { name: location.name, kind: SourceKind::Channel, url: location.url };
    let own = match manifest::place(written) {
        manifest::Place::Absolute => Some(directory(written, Path::new("/"), written)?),
        _ => None,
    };
    let bases = bases(&source, own, ground)?;
    Ok(ChannelSpec { source, bases })
}

/// The places of a channel that a lock names.
pub(crate) fn locked_channel(source: &Source, ground: Ground<'_>) -> Result<Vec<Url>, SourceError> {
    let own = match ground.directories.get(&source.name) {
        Some(written) => Some(directory(written, ground.project_dir, &source.name)?),
        None => None,
    };
    bases(source, own, ground)
}

fn bases(source: &Source, own: Option<Url>, ground: Ground<'_>) -> Result<Vec<Url>, SourceError> {
    let config = ground.config;
    let mut bases: Vec<Url> = config.mirrors.get(&source.name).cloned().unwrap_or_default();
    if source.url.is_none() {
        bases.extend(
            config.condarc.mirrored_channels.get(&source.name).into_iter().flatten().cloned(),
        );
    }
    match (own, &source.url) {
        (Some(own), _) => bases.push(own),
        (None, Some(url)) if url.contains("://") => bases.push(remote(url, &source.name)?),
        (None, Some(path)) => bases.push(directory(path, ground.project_dir, &source.name)?),
        (None, None) if source.name.starts_with("dir:") => {
            if bases.is_empty() {
                return Err(SourceError::BadChannel {
                    channel: source.name.clone(),
                    reason: "it is a directory that env.toml names by an absolute path, and this \
                             env.toml does not; list its place under `[mirrors]` in gpuenv's \
                             config.toml"
                        .into(),
                });
            }
        }
        (None, None) => bases.push(named(&source.name, ground)?),
    }
    // A mirror may also be listed under the URL that it stands for.
    if let Some(own) = bases.last()
        && let Some(mirrors) = config.mirrors.get(own.as_str().trim_end_matches('/'))
    {
        bases.splice(0..0, mirrors.iter().cloned());
    }
    let mut seen = Vec::new();
    for mut base in bases {
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        if !seen.contains(&base) {
            seen.push(base);
        }
    }
    Ok(seen)
}

/// A channel by name: `custom_channels` of `.condarc`, else below the channel alias.
fn named(name: &str, ground: Ground<'_>) -> Result<Url, SourceError> {
    let bad = |reason: &str| SourceError::BadChannel {
        channel: name.to_string(),
        reason: reason.to_string(),
    };
    if name.is_empty()
        || !name.split('/').all(|part| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c))
        })
    {
        return Err(bad("a name has letters, digits and ._-+, with / between parts"));
    }
    let condarc = &ground.config.condarc;
    // The longest custom name that the channel is, or lies below.
    let custom = condarc
        .custom_channels
        .iter()
        .filter(|(key, _)| {
            name.strip_prefix(key.as_str()).is_some_and(|r| r.is_empty() || r.starts_with('/'))
        })
        .max_by_key(|(key, _)| key.len())
        .map(|(_, base)| base.clone());
    let mut base = custom.or_else(|| condarc.channel_alias.clone()).unwrap_or_else(|| {
        ChannelConfig::default_with_root_dir(PathBuf::from(ground.project_dir)).channel_alias
    });
    base.path_segments_mut()
        .map_err(|()| bad("the channel alias cannot have a path"))?
        .pop_if_empty()
        .extend(name.split('/'));
    Ok(base)
}

fn remote(text: &str, channel: &str) -> Result<Url, SourceError> {
    let bad = |reason: String| SourceError::BadChannel { channel: channel.to_string(), reason };
    let url = Url::parse(text).map_err(|e| bad(format!("no URL ({e})")))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        other => Err(bad(format!("expected an http, https or file URL, found {other}"))),
    }
}

/// A directory, by path or by `file:` URL.
fn directory(text: &str, project_dir: &Path, channel: &str) -> Result<Url, SourceError> {
    let bad = |reason: &str| SourceError::BadChannel {
        channel: channel.to_string(),
        reason: reason.to_string(),
    };
    if text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:")) {
        let url = Url::parse(text).map_err(|e| bad(&format!("no URL ({e})")))?;
        url.to_file_path().map_err(|()| bad("a file URL needs an absolute path and no host"))?;
        return Ok(url);
    }
    Url::from_directory_path(project_dir.join(text))
        .map_err(|()| bad("the project directory is not absolute"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground<'a>(config: &'a Config, directories: &'a BTreeMap<String, String>) -> Ground<'a> {
        Ground { config, project_dir: Path::new("/p"), directories }
    }

    fn list(written: &str, config: &Config) -> Vec<String> {
        let none = BTreeMap::new();
        let spec = channel(written, ground(config, &none)).unwrap();
        spec.bases.iter().map(Url::to_string).collect()
    }

    #[test]
    fn a_channel_is_a_name_a_url_or_a_path() {
        let mut config = Config::default();
        let default = ChannelConfig::default_with_root_dir("/".into()).channel_alias;
        assert_eq!(list("conda-forge", &config), [format!("{default}conda-forge/")]);
        assert_eq!(list("a/label/b", &config), [format!("{default}a/label/b/")]);
        assert_eq!(list("https://h.example.invalid/c", &config), ["https://h.example.invalid/c/"]);
        assert_eq!(list("./chan", &config), ["file:///p/./chan/".replace("/./", "/")]);
        assert_eq!(list("/srv/chan", &config), ["file:///srv/chan/"]);
        assert_eq!(list("file:///srv/chan", &config), ["file:///srv/chan/"]);

        config.condarc.channel_alias =
            Some("https://alias.example.invalid/conda/".parse().unwrap());
        config
            .condarc
            .custom_channels
            .insert("lab".into(), "https://lab.example.invalid/".parse().unwrap());
        assert_eq!(list("x", &config), ["https://alias.example.invalid/conda/x/"]);
        assert_eq!(list("lab/gpu", &config), ["https://lab.example.invalid/lab/gpu/"]);
        assert_eq!(list("label", &config), ["https://alias.example.invalid/conda/label/"]);
    }

    #[test]
    fn mirrors_come_first_and_the_channel_last() {
        let mut config = Config::default();
        let url = |text: &str| text.parse::<Url>().unwrap();
        config.mirrors.insert("c".into(), vec![url("https://m.example.invalid/c")]);
        config
            .condarc
            .mirrored_channels
            .insert("c".into(), vec![url("https://n.example.invalid/c/")]);
        let list_c = list("c", &config);
        assert_eq!(list_c[..2], ["https://m.example.invalid/c/", "https://n.example.invalid/c/"]);
        assert_eq!(list_c.len(), 3);
        // Under the URL that it stands for, too.
        let own = list("d", &config)[0].clone();
        config
            .mirrors
            .insert(own.trim_end_matches('/').into(), vec![url("https://m.example.invalid/d")]);
        assert_eq!(list("d", &config), ["https://m.example.invalid/d/", &own]);
    }

    #[test]
    fn what_is_no_channel_is_said() {
        let (config, none) = (Config::default(), BTreeMap::new());
        for written in ["", "a b", "../x/..\0", "a//b", ".hidden", "ftp://h/c", "https://"] {
            if let Ok(spec) = channel(written, ground(&config, &none)) {
                assert!(written.starts_with("../"), "{written:?} became {spec:?}");
            }
        }
    }

    #[test]
    fn a_directory_of_the_lock_is_found_through_env_toml_or_a_mirror() {
        let mut config = Config::default();
        let none = BTreeMap::new();
        let source = Source { name: "dir:chan".into(), kind: SourceKind::Channel, url: None };
        assert!(locked_channel(&source, ground(&config, &none)).is_err());
        let known = BTreeMap::from([("dir:chan".to_string(), "/srv/chan".to_string())]);
        let found = locked_channel(&source, ground(&config, &known)).unwrap();
        assert_eq!(found[0].as_str(), "file:///srv/chan/");
        config.mirrors.insert("dir:chan".into(), vec!["file:///m/".parse().unwrap()]);
        let found = locked_channel(&source, ground(&config, &none)).unwrap();
        assert_eq!(found[0].as_str(), "file:///m/");
    }
}
