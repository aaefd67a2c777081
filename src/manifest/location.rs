//! Where channels, indexes and wheels are, and what of it may be written into a lock: never
//! credentials, never a path that only one machine has.

use url::Url;

/// Parameters of a query whose values are secrets: pre-signed URLs, private registries.
const SECRET_PARAMETERS: [&str; 10] = [
    "access_token",
    "auth",
    "password",
    "private_token",
    "sig",
    "signature",
    "token",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-signature",
];

fn is_secret(parameter: &str) -> bool {
    SECRET_PARAMETERS.iter().any(|secret| secret.eq_ignore_ascii_case(parameter))
}

/// Whether a URL carries a user name, a password, a conda token (`/t/TOKEN/…`), or a parameter
/// that signs it.
pub fn has_credentials(url: &Url) -> bool {
    let token = || {
        let mut segments = url.path_segments()?;
        let found = segments.next()? == "t" && !segments.next()?.is_empty();
        Some(found && segments.next().is_some())
    };
    !url.username().is_empty()
        || url.password().is_some()
        || token().unwrap_or(false)
        || url.query_pairs().any(|(key, value)| is_secret(&key) && !value.is_empty())
}

/// `text` with the secrets of [`has_credentials`] in all its URLs replaced by as many `*` as they
/// have bytes, so that byte offsets stay valid.
pub fn mask_credentials(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        out.push_str(&rest[..at + 3]);
        let after = &rest[at + 3..];
        let end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>');
        let (url, tail) = after.split_at(after.find(end).unwrap_or(after.len()));
        mask_url(url, &mut out);
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// Masks what follows `://` of one URL.
fn mask_url(url: &str, out: &mut String) {
    let stars = |out: &mut String, text: &str| out.extend(std::iter::repeat_n('*', text.len()));
    let (authority, rest) = url.split_at(url.find(['/', '?', '#']).unwrap_or(url.len()));
    match authority.rsplit_once('@') {
        Some((user, host)) => {
            stars(out, user);
            out.push('@');
            out.push_str(host);
        }
        None => out.push_str(authority),
    }
    let (path, rest) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    match path.strip_prefix("/t/").and_then(|path| path.split_once('/')) {
        Some((token, path)) => {
            out.push_str("/t/");
            stars(out, token);
            out.push('/');
            out.push_str(path);
        }
        None => out.push_str(path),
    }
    for part in rest.split_inclusive(['?', '&', '#']) {
        let (pair, separator) = match part.char_indices().next_back() {
            Some((at, '?' | '&' | '#')) => part.split_at(at),
            _ => (part, ""),
        };
        match pair.split_once('=') {
            Some((key, value)) if is_secret(key) => {
                out.push_str(key);
                out.push('=');
                stars(out, value);
            }
            _ => out.push_str(pair),
        }
        out.push_str(separator);
    }
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
            ("https://a@b:c@h.invalid/", "https://*****@h.invalid/"),
            ("https://h.invalid/t/secret/chan", "https://h.invalid/t/******/chan"),
            ("https://h.invalid/x?a=b&Token=pw#c", "https://h.invalid/x?a=b&Token=**#c"),
            ("https://h.invalid?sig=pw&a=b", "https://h.invalid?sig=**&a=b"),
        ] {
            assert!(has_credentials(&url.parse().unwrap()), "{url}");
            assert_eq!(mask_credentials(url), masked);
        }
        for url in [
            "https://h.invalid/a@b",
            "https://h.invalid/t/",
            "https://h.invalid/t/x-1-py3-none-any.whl",
            "https://h.invalid/team/x/y",
            "https://h.invalid/x?version=1&design=2#sha256=00",
            "https://[::1]:80/x",
        ] {
            assert!(!has_credentials(&url.parse().unwrap()), "{url}");
            assert_eq!(mask_credentials(url), url);
        }
        let text = "a = \"https://ü:é@h/\" # b@c ssh://d@e";
        assert_eq!(mask_credentials(text), "a = \"https://*****@h/\" # b@c ssh://*@e");
    }

    proptest::proptest! {
        /// What is masked has no credentials left, keeps its length, and is masked once.
        #[test]
        fn masks_are_complete(
            user in "[a-z0-9:@%]{0,6}",
            path in "(/t)?(/[a-z]{0,4}){0,3}",
            query in "(\\?(token|a|SIG)=[a-z]{0,4}(&(token|b)=[a-z]{0,4})?)?",
        ) {
            // An empty user with an empty password is no secret, and masked all the same.
            proptest::prop_assume!(!user.chars().all(|c| c == ':' || c == '@') || user.is_empty());
            let at = if user.is_empty() { "" } else { "@" };
            let url = format!("https://{user}{at}h.invalid{path}{query}");
            if let Ok(parsed) = url.parse::<Url>() {
                let masked = mask_credentials(&url);
                proptest::prop_assert_eq!(masked != url, has_credentials(&parsed), "{}", url);
                proptest::prop_assert_eq!(masked.len(), url.len());
                proptest::prop_assert_eq!(mask_credentials(&masked), masked);
            }
        }
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
