//! Where channels, indexes and wheels are, and what of it may be written into a lock: never
//! credentials, never a path that only one machine has.

use url::Url;

/// Whether a URL carries a user name, a password, or a conda token (`/t/TOKEN/…`).
pub fn has_credentials(url: &Url) -> bool {
    let token = || {
        let mut segments = url.path_segments()?;
        Some(segments.next()? == "t" && !segments.next()?.is_empty())
    };
    !url.username().is_empty() || url.password().is_some() || token().unwrap_or(false)
}

/// `text` with what stands between `://` and `@` of a URL, or after its `/t/`, replaced by as
/// many `*` as it has bytes, so that byte offsets stay valid.
pub fn mask_credentials(text: &str) -> String {
    const END: [char; 9] = ['/', '"', '\'', '?', '#', ' ', '\t', '\r', '\n'];
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let authority = &after[..after.find(END).unwrap_or(after.len())];
        let mut tail = after;
        if let Some(at_sign) = authority.rfind('@') {
            out.extend(std::iter::repeat_n('*', at_sign));
            tail = &after[at_sign..];
        }
        let host = tail.find(END).unwrap_or(tail.len());
        out.push_str(&tail[..host]);
        tail = &tail[host..];
        if let Some(token) = tail.strip_prefix("/t/") {
            let len = token.find(END).unwrap_or(token.len());
            out.push_str("/t/");
            out.extend(std::iter::repeat_n('*', len));
            tail = &token[len..];
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// How a channel, an index or a page of links is called in a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockLocation {
    /// A name that is the same on every machine: the name as written, the URL without its last
    /// slash, the relative path, or `dir:NAME` for a directory given by absolute path.
    pub name: String,
    /// What [`crate::lockfile::Source::url`] holds: the URL or relative path; `None` for a name
    /// (the machine's configuration says where it is) and for an absolute path (only env.toml does).
    pub url: Option<String>,
}

/// How a location of env.toml is called in a lock. An absolute path or a `file:` URL is a fact
/// of one machine: the lock keeps the directory's name, and the hashes do the rest.
pub fn lock_location(written: &str) -> LockLocation {
    let trimmed = match written.trim_end_matches('/') {
        "" => written,
        trimmed => trimmed,
    };
    match place(trimmed) {
        Place::Name => LockLocation { name: trimmed.into(), url: None },
        Place::Url => LockLocation { name: trimmed.into(), url: Some(trimmed.into()) },
        Place::Relative => {
            let path = trimmed.strip_prefix("./").unwrap_or(trimmed);
            let name = if path.starts_with("..") { path.into() } else { format!("./{path}") };
            LockLocation { url: Some(name.clone()), name }
        }
        Place::Absolute => {
            let base = trimmed.rsplit('/').next().unwrap_or("");
            LockLocation { name: format!("dir:{base}"), url: None }
        }
    }
}

/// The four ways to write a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `conda-forge`.
    Name,
    /// `https://…`.
    Url,
    /// `./wheels`, `../channel`.
    Relative,
    /// `/srv/channel`, `file:///srv/channel`.
    Absolute,
}

/// Which way `written` is.
pub fn place(written: &str) -> Place {
    let scheme = written.get(..5).unwrap_or("");
    if written.starts_with('/') || scheme.eq_ignore_ascii_case("file:") {
        Place::Absolute
    } else if written.contains("://") {
        Place::Url
    } else if written == "." || written.starts_with("./") || written.starts_with("..") {
        Place::Relative
    } else {
        Place::Name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_seen_and_masked() {
        for (url, masked) in [
            ("https://user:pw@h.invalid/x", "https://*******@h.invalid/x"),
            ("https://tok@h.invalid", "https://***@h.invalid"),
            ("https://h.invalid/t/secret/chan", "https://h.invalid/t/******/chan"),
        ] {
            assert!(has_credentials(&url.parse().unwrap()), "{url}");
            assert_eq!(mask_credentials(url), masked);
        }
        for url in ["https://h.invalid/a@b", "https://h.invalid/t/", "https://h.invalid/team/x"] {
            assert!(!has_credentials(&url.parse().unwrap()), "{url}");
            assert_eq!(mask_credentials(url), url);
        }
        assert_eq!(
            mask_credentials("a = \"https://ü:é@h/\" # b@c"),
            "a = \"https://*****@h/\" # b@c"
        );
    }

    #[test]
    fn a_lock_names_no_absolute_path() {
        for (written, name, url) in [
            ("conda-forge", "conda-forge", None),
            ("https://e.invalid/c/", "https://e.invalid/c", Some("https://e.invalid/c")),
            ("./chan", "./chan", Some("./chan")),
            ("../chan/", "../chan", Some("../chan")),
            ("/srv/chan/", "dir:chan", None),
            ("file:///srv/chan", "dir:chan", None),
            ("FILE:///srv/chan", "dir:chan", None),
        ] {
            let got = lock_location(written);
            assert_eq!((got.name.as_str(), got.url.as_deref()), (name, url), "{written}");
        }
    }
}
