//! Which sources there are, what each is called in a lock, and where it is on this machine. Pure,
//! but for the shape of paths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use url::Url;

use super::WheelConfig;
use super::error::{WheelSourceError, redact};
use crate::lockfile::{Source, SourceKind};
use crate::manifest::IndexSource;
use crate::sources::config::may_ask;

/// Name of the default index, in env.toml and in locks.
pub const DEFAULT_INDEX: &str = "pypi";
/// Source name of wheels required by URL. No index can have it: a colon is no part of their names.
pub const DIRECT_URL: &str = "direct:url";
/// Source name of wheels required by path.
pub const DIRECT_PATH: &str = "direct:path";

/// Where one copy of a source is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Location {
    /// `http` or `https`; may hold credentials.
    Remote(Url),
    /// A directory or a page on disk.
    Local(PathBuf),
}

/// What is found at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A simple index: a page for each name.
    Index,
    /// One page of links, or one directory, for all names.
    Links,
}

/// One source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its name in locks and messages.
    pub name: String,
    pub shape: Shape,
    /// Copies, in the order to try them; never empty.
    pub locations: Vec<Location>,
    /// As a lock writes it.
    pub lock: Source,
}

/// All sources of a configuration.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The find-links of env.toml, in its order.
    pub links: Vec<Place>,
    /// The default index.
    pub default: Place,
    /// Explicit sources by name.
    pub explicit: BTreeMap<String, Place>,
    /// Where the default index is when env.toml names none.
    unnamed_default: Url,
    mirrors: BTreeMap<String, Vec<Url>>,
    project_dir: PathBuf,
    allow_insecure: BTreeSet<String>,
}

impl Places {
    /// Works out where everything is.
    pub(super) fn new(config: &WheelConfig) -> Result<Self, WheelSourceError> {
        let project_dir =
            std::path::absolute(&config.project_dir).map_err(|err| WheelSourceError::Local {
                name: "project".into(),
                path: config.project_dir.clone(),
                cause: super::error::Cause::of(&err, &[]),
            })?;
        let default_url = config.default_index.as_ref();
        // Whoever names an index in env.toml means that one; else the machine's settings say
        // where the default is, and else the library that owns it.
        let unnamed_default = match &config.user.index {
            Some(setting) => setting.value.clone(),
            None => uv_distribution_types::PYPI_URL.clone().into(),
        };
        let default_location = default_url.unwrap_or(&unnamed_default).clone();
        let mut places = Places {
            links: Vec::new(),
            default: Place {
                name: DEFAULT_INDEX.into(),
                shape: Shape::Index,
                locations: Vec::new(),
                lock: Source {
                    name: DEFAULT_INDEX.into(),
                    kind: SourceKind::Index,
                    url: default_url.map(without_credentials),
                },
            },
            explicit: BTreeMap::new(),
            unnamed_default,
            mirrors: config.mirrors.clone(),
            project_dir,
            allow_insecure: config.allow_insecure.clone(),
        };
        places.default.locations = places.locate(DEFAULT_INDEX, &default_location)?;
        for text in &config.find_links {
            let place = places.links(None, text)?;
            // Written twice, looked at once.
            if places.links.iter().all(|known| known.locations != place.locations) {
                places.links.push(place);
            }
        }
        for (name, source) in &config.indexes {
            if name.0 == DEFAULT_INDEX {
                return Err(WheelSourceError::BadLocation {
                    from: "[pypi-options.indexes] of env.toml".into(),
                    text: DEFAULT_INDEX.into(),
                    reason: "that name is the default index, which `index` in [pypi-options] moves"
                        .into(),
                });
            }
            let place = match source {
                IndexSource::Simple(url) => places.index(&name.0, url)?,
                IndexSource::FindLinks(text) => places.links(Some(&name.0), text)?,
            };
            places.explicit.insert(name.0.clone(), place);
        }
        Ok(places)
    }

    /// The source that a lock names: the configured one of that name if it is the same, else what
    /// the lock itself says.
    pub(super) fn of_lock(&self, source: &Source) -> Result<Place, WheelSourceError> {
        let configured = std::iter::once(&self.default)
            .chain(self.explicit.values())
            .chain(&self.links)
            .find(|place| place.lock == *source);
        if let Some(place) = configured {
            return Ok(place.clone());
        }
        match (source.kind, &source.url) {
            (SourceKind::Index, Some(text)) => {
                let url = Url::parse(text).map_err(|err| WheelSourceError::BadLocation {
                    from: format!("source `{}` of the lock", source.name),
                    text: text.clone(),
                    reason: err.to_string(),
                })?;
                self.index(&source.name, &url)
            }
            // The lock was made when env.toml named no index; it may name one now.
            (SourceKind::Index, None) if source.name == DEFAULT_INDEX => {
                self.index(DEFAULT_INDEX, &self.unnamed_default)
            }
            (SourceKind::FindLinks, Some(text)) => self.links(Some(&source.name), text),
            _ => Err(WheelSourceError::Unconfigured(source.name.clone())),
        }
    }

    /// The source that a requirement names: an explicit one, or the default index by its name,
    /// which then serves without the find-links.
    pub(super) fn named(&self, name: &str) -> Option<&Place> {
        self.explicit.get(name).or_else(|| (name == DEFAULT_INDEX).then_some(&self.default))
    }

    /// The source named in a [`WheelFile`](crate::resolve::WheelFile), as a lock writes it.
    pub(super) fn lock_source(&self, name: &str) -> Option<Source> {
        let direct = |kind| Source { name: name.to_owned(), kind, url: None };
        match name {
            DIRECT_URL => return Some(direct(SourceKind::Url)),
            DIRECT_PATH => return Some(direct(SourceKind::Path)),
            _ => {}
        }
        std::iter::once(&self.default)
            .chain(self.explicit.values())
            .chain(&self.links)
            .find(|place| place.name == name)
            .map(|place| place.lock.clone())
    }

    /// A path of env.toml, made absolute.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        self.project_dir.join(path)
    }

    /// Whether a URL may be fetched from: encrypted, or local, or allowed all the same.
    pub(super) fn is_allowed(&self, url: &Url) -> bool {
        url.scheme() != "http" || may_ask(url, &self.allow_insecure)
    }

    /// Every remote place, with credentials.
    pub(super) fn urls(&self) -> Vec<Url> {
        std::iter::once(&self.default)
            .chain(self.explicit.values())
            .chain(&self.links)
            .flat_map(|place| &place.locations)
            .filter_map(|location| match location {
                Location::Remote(url) => Some(url.clone()),
                Location::Local(_) => None,
            })
            .collect()
    }

    fn index(&self, name: &str, url: &Url) -> Result<Place, WheelSourceError> {
        Ok(Place {
            name: name.to_owned(),
            shape: Shape::Index,
            locations: self.locate(name, url)?,
            lock: Source {
                name: name.to_owned(),
                kind: SourceKind::Index,
                url: Some(without_credentials(url)),
            },
        })
    }

    /// A find-links entry; without a name of its own it is called as it is written, but never so
    /// that it could be an index's name.
    fn links(&self, name: Option<&str>, text: &str) -> Result<Place, WheelSourceError> {
        let url =
            Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "file"));
        let written = match &url {
            Some(url) => without_credentials(url),
            None if text.contains("://") => {
                return Err(WheelSourceError::BadLocation {
                    from: "a find-links entry of env.toml".into(),
                    text: "…".into(),
                    reason: "its scheme is none of http, https, file".into(),
                });
            }
            None => text.to_owned(),
        };
        let name = match name {
            Some(name) => name.to_owned(),
            None if written.contains('/') => written.clone(),
            None => format!("./{written}"),
        };
        let name = name.as_str();
        let locations = match &url {
            Some(url) => self.locate(name, url)?,
            None => vec![Location::Local(self.project_dir.join(text))],
        };
        Ok(Place {
            name: name.to_owned(),
            shape: Shape::Links,
            locations,
            lock: Source { name: name.to_owned(), kind: SourceKind::FindLinks, url: Some(written) },
        })
    }

    /// Where the source `name` is: at its mirrors, if the machine has any; else at `url`.
    fn locate(&self, name: &str, url: &Url) -> Result<Vec<Location>, WheelSourceError> {
        let mirrors = self.mirrors.get(name).filter(|urls| !urls.is_empty());
        let (urls, from) = match mirrors {
            Some(urls) => (urls.as_slice(), "the mirrors in gpuenv's config.toml"),
            None => (std::slice::from_ref(url), "the settings"),
        };
        urls.iter()
            .map(|url| match url.scheme() {
                "file" => url.to_file_path().map(Location::Local).map_err(|()| {
                    WheelSourceError::BadLocation {
                        from: format!("{from} (source `{name}`)"),
                        text: redact(url),
                        reason: "it is no path of this machine".into(),
                    }
                }),
                "http" | "https" if !self.is_allowed(url) => {
                    Err(WheelSourceError::Insecure { name: name.to_owned(), url: redact(url) })
                }
                "http" | "https" => Ok(Location::Remote(url.clone())),
                _ => Err(WheelSourceError::BadLocation {
                    from: format!("{from} (source `{name}`)"),
                    text: redact(url),
                    reason: "its scheme is none of http, https, file".into(),
                }),
            })
            .collect()
    }
}

/// A URL as a lock may hold it.
fn without_credentials(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs that cannot have credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::IndexName;
    use crate::sources::wheels::user_config::Setting;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }
    fn config() -> WheelConfig {
        WheelConfig::new("/project", "/cache")
    }
    fn remote(place: &Place) -> Vec<String> {
        place
            .locations
            .iter()
            .map(|l| match l {
                Location::Remote(url) => url.to_string(),
                Location::Local(path) => path.display().to_string(),
            })
            .collect()
    }

    #[test]
    fn the_machine_moves_the_default_index_and_the_lock_does_not_see_it() {
        let plain = Places::new(&config()).unwrap();
        assert_eq!(remote(&plain.default), [uv_distribution_types::PYPI_URL.to_string()]);
        let mut moved = config();
        moved.user.index = Some(Setting {
            value: url("https://user:secret@mirror.example.invalid/simple"),
            from: "PIP_INDEX_URL".into(),
        });
        let moved_places = Places::new(&moved).unwrap();
        assert_eq!(
            remote(&moved_places.default),
            ["https://user:secret@mirror.example.invalid/simple"]
        );
        assert_eq!(moved_places.default.lock, plain.default.lock);
        assert_eq!(plain.default.lock.url, None);

        moved.mirrors.insert(
            "pypi".into(),
            vec![url("https://one.example.invalid/simple"), url("https://two.example.invalid/")],
        );
        let mirrored = Places::new(&moved).unwrap();
        assert_eq!(
            remote(&mirrored.default),
            ["https://one.example.invalid/simple", "https://two.example.invalid/"]
        );
        assert_eq!(mirrored.default.lock, plain.default.lock);
    }

    #[test]
    fn an_index_of_the_manifest_is_not_moved_by_pip() {
        let mut config = config();
        config.default_index = Some(url("https://u:p@corp.example.invalid/simple"));
        config.user.index = Some(Setting {
            value: url("https://mirror.example.invalid/simple"),
            from: "PIP_INDEX_URL".into(),
        });
        let places = Places::new(&config).unwrap();
        assert_eq!(remote(&places.default), ["https://u:p@corp.example.invalid/simple"]);
        let lock = places.lock_source("pypi").unwrap();
        assert_eq!(lock.url.as_deref(), Some("https://corp.example.invalid/simple"));
        // And the lock finds the place with credentials again.
        assert_eq!(places.of_lock(&lock).unwrap(), places.default);
        // A lock from before env.toml named it means the default of this machine.
        let before = Source { url: None, ..lock };
        assert_eq!(
            remote(&places.of_lock(&before).unwrap()),
            ["https://mirror.example.invalid/simple"]
        );
    }

    #[test]
    fn find_links_are_urls_or_paths_from_the_project() {
        let mut config = config();
        config.find_links = [
            "wheels",
            "./wheels",
            "/abs",
            "file:///abs",
            "https://u:p@example.invalid/p.html",
            "wheels",
        ]
        .map(str::to_owned)
        .into();
        config.indexes.insert(IndexName("local".into()), IndexSource::FindLinks("../w".into()));
        let places = Places::new(&config).unwrap();
        let seen: Vec<_> =
            places.links.iter().map(|p| (p.name.clone(), remote(p).remove(0))).collect();
        let expected = [
            ("./wheels", "/project/wheels"),
            ("/abs", "/abs"),
            ("https://example.invalid/p.html", "https://u:p@example.invalid/p.html"),
        ];
        assert_eq!(seen, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        let lock = places.lock_source("local").unwrap();
        assert_eq!((lock.kind, lock.url.as_deref()), (SourceKind::FindLinks, Some("../w")));
        // A machine without that configuration finds it from the lock alone.
        let bare = Places::new(&super::super::WheelConfig::new("/elsewhere", "/cache")).unwrap();
        assert_eq!(remote(&bare.of_lock(&lock).unwrap()), ["/elsewhere/../w"]);
    }

    #[test]
    fn plain_http_must_be_asked_for() {
        let mut config = config();
        config.indexes.insert(
            IndexName("corp".into()),
            IndexSource::Simple(url("http://u:secret@corp.example.invalid/simple")),
        );
        let err = Places::new(&config).unwrap_err();
        assert!(matches!(err, WheelSourceError::Insecure { .. }), "{err}");
        assert!(!err.to_string().contains("secret"), "{err}");
        config.allow_insecure = BTreeSet::from(["other.example.invalid".into()]);
        assert!(Places::new(&config).is_err(), "another host was exempted");
        config.allow_insecure = BTreeSet::from(["corp.example.invalid".into()]);
        Places::new(&config).unwrap();
        config.allow_insecure.clear();
        for loopback in ["http://127.0.0.1:1/simple", "http://localhost/s", "http://[::1]/s"] {
            config.indexes.insert(IndexName("corp".into()), IndexSource::Simple(url(loopback)));
            Places::new(&config).unwrap();
        }
        config.indexes.insert(IndexName("pypi".into()), IndexSource::FindLinks("w".into()));
        assert!(Places::new(&config).is_err(), "two sources of one name");
        config.indexes.clear();
        config.find_links = vec!["ftp://u:secret@example.invalid/".into()];
        let err = Places::new(&config).unwrap_err();
        assert!(!err.to_string().contains("secret"), "{err}");
    }
}
