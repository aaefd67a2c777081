//! Pages of an index: what a server or a directory says, before any of it is believed.
//!
//! A [`Page`] is what the cache keeps: every link that may be a distribution, with its URL joined
//! (RFC 3986) and its name decoded, and every entry that cannot be read, with the reason. Unlike
//! `uv-client`'s own reader, which drops unreadable entries, gives up a whole page for one odd
//! hash, and takes only an absolute `<base href>`.

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use url::Url;
use uv_distribution_filename::SourceDistExtension;
use uv_pypi_types::{CoreMetadata, LenientVersionSpecifiers, PypiFile, Yanked};

use crate::hash::Sha256;

/// All that one page offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Page {
    /// Links to distributions, in the page's order.
    pub files: Vec<PageFile>,
    /// Entries that cannot be read: name or URL, and why.
    pub skipped: Vec<(String, String)>,
}

/// One link to a distribution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PageFile {
    /// File name, decoded once; the extension in lower case.
    pub name: String,
    /// Absolute URL without fragment, encoded as the page has it.
    pub url: String,
    /// Bytes.
    pub size: Option<u64>,
    /// Digest of the file; never that of its metadata.
    pub sha256: Option<Sha256>,
    /// MD5 of the file in hexadecimal, where that is all the source has.
    pub md5: Option<String>,
    /// `data-requires-python`, as written.
    pub requires_python: Option<String>,
    /// `data-yanked`: the reason.
    pub yanked: Option<String>,
    /// Milliseconds since the epoch (PEP 700).
    pub upload_time: Option<i64>,
    /// The metadata can be had alone (PEP 658, PEP 714).
    pub core_metadata: bool,
}

/// A body that is no index page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotAPage {
    /// What should have come.
    pub expected: &'static str,
    /// What came.
    pub found: String,
}

/// Reads a body by its `Content-Type`; without one, by its first character.
pub(super) fn parse(content_type: Option<&str>, body: &[u8], url: &Url) -> Result<Page, NotAPage> {
    let media = content_type
        .map(|c| c.split(';').next().unwrap_or(c).trim().to_ascii_lowercase())
        .filter(|c| !c.is_empty());
    match media.as_deref() {
        Some("application/vnd.pypi.simple.v1+json" | "application/json") => parse_json(body, url),
        Some("application/vnd.pypi.simple.v1+html" | "text/html" | "application/xhtml+xml") => {
            parse_html(body, url)
        }
        None if body.trim_ascii_start().starts_with(b"{") => parse_json(body, url),
        None => parse_html(body, url),
        Some(other) => Err(NotAPage {
            expected: "JSON (PEP 691) or HTML (PEP 503)",
            found: format!("a body of type {}", shorten(other)),
        }),
    }
}

/// PEP 691.
fn parse_json(body: &[u8], url: &Url) -> Result<Page, NotAPage> {
    #[derive(Deserialize)]
    struct Wire {
        #[serde(default)]
        meta: Meta,
        files: Vec<serde_json::Value>,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "kebab-case", default)]
    struct Meta {
        api_version: Option<String>,
    }

    let expected = "the JSON of a simple index (PEP 691)";
    let wire: Wire = serde_json::from_slice(body)
        .map_err(|err| NotAPage { expected, found: format!("{}: {err}", describe(body)) })?;
    check_version(wire.meta.api_version.as_deref())?;

    let mut page = Page::default();
    for value in wire.files {
        let label = ["filename", "url"]
            .into_iter()
            .find_map(|key| value.get(key)?.as_str())
            .map_or_else(|| "an entry without a name".to_owned(), shorten);
        match json_file(value, url) {
            Ok(Some(file)) => page.files.push(file),
            Ok(None) => {}
            Err(reason) => page.skipped.push((label, reason)),
        }
    }
    Ok(page)
}

/// One element of `files`. `None` for what is no distribution at all.
fn json_file(mut value: serde_json::Value, base: &Url) -> Result<Option<PageFile>, String> {
    // Some servers write null where PEP 691 leaves the key out.
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, v| !v.is_null());
    }
    let file: PypiFile =
        serde_json::from_value(value).map_err(|err| format!("its entry is malformed: {err}"))?;
    let name = dist_name(&file.filename);
    if !is_dist(&name) {
        return Ok(None);
    }
    let (url, _) = join(base, &file.url)?;
    Ok(Some(PageFile {
        name,
        url,
        size: file.size,
        sha256: file.hashes.sha256.as_ref().and_then(|h| h.parse().ok()),
        md5: file.hashes.md5.as_ref().and_then(|h| md5(h)),
        requires_python: match file.requires_python {
            None => None,
            Some(Ok(specifiers)) => Some(specifiers.to_string()),
            Some(Err(err)) => {
                return Err(format!("its Requires-Python {:?} is invalid", shorten(err.line())));
            }
        },
        yanked: file.yanked.and_then(|yanked| match *yanked {
            Yanked::Bool(false) => None,
            Yanked::Bool(true) => Some(String::new()),
            Yanked::Reason(reason) => Some(reason.to_string()),
        }),
        upload_time: file.upload_time.map(|t| t.as_millisecond()),
        core_metadata: file.core_metadata.as_ref().is_some_and(CoreMetadata::is_available),
    }))
}

/// PEP 503, and pages of links.
fn parse_html(body: &[u8], url: &Url) -> Result<Page, NotAPage> {
    let expected = "the HTML of a simple index (PEP 503) or a page of links";
    if body.trim_ascii().is_empty() {
        return Err(NotAPage { expected, found: "an empty body".into() });
    }
    let text = String::from_utf8_lossy(body);
    let dom = tl::parse(&text, tl::ParserOptions::default())
        .map_err(|err| NotAPage { expected, found: format!("HTML that cannot be read: {err}") })?;

    let mut page = Page::default();
    let mut base: Option<Url> = None;
    let mut links = 0usize;
    let mut foreign = false;
    for tag in dom.nodes().iter().filter_map(|node| node.as_tag()) {
        let element = tag.name().as_bytes().to_ascii_lowercase();
        match element.as_slice() {
            b"meta" => {
                let attributes = Attributes::of(tag);
                if attributes.get("name") == Some("pypi:repository-version") {
                    check_version(attributes.get("content"))?;
                }
            }
            // Only the first counts (HTML, "The base element").
            b"base" if base.is_none() => {
                base = Attributes::of(tag).get("href").and_then(|href| url.join(href.trim()).ok());
            }
            b"a" => {
                let attributes = Attributes::of(tag);
                let Some(href) = attributes.get("href").map(str::trim).filter(|h| !h.is_empty())
                else {
                    continue;
                };
                links += 1;
                match html_file(href, &attributes, base.as_ref().unwrap_or(url)) {
                    Ok(Some(file)) => page.files.push(file),
                    Ok(None) => {}
                    Err(reason) => page.skipped.push((shorten(href), reason)),
                }
            }
            b"form" | b"script" | b"frame" => foreign = true,
            _ => {}
        }
    }
    // An index page may be empty, but it has no forms to fill in.
    if links == 0 && foreign {
        return Err(NotAPage {
            expected,
            found: "a web page without links (a login page?)".into(),
        });
    }
    if links == 0 && !text.contains('<') {
        return Err(NotAPage { expected, found: describe(body) });
    }
    Ok(page)
}

/// One anchor. `None` for a link to something else than a distribution.
fn html_file(href: &str, attributes: &Attributes, base: &Url) -> Result<Option<PageFile>, String> {
    // Whether the link is about a distribution at all decides whether a fault in it is worth a
    // word; so look at the raw path first.
    let path = href.split(['?', '#']).next().unwrap_or(href);
    let raw = path.rsplit('/').next().unwrap_or(path);
    let Ok(name) = percent_decode_str(raw).decode_utf8() else {
        return if is_dist(raw) { Err("its name is not UTF-8".into()) } else { Ok(None) };
    };
    let name = dist_name(&name);
    if !is_dist(&name) {
        return Ok(None);
    }
    let (url, fragment) = join(base, href)?;

    let mut sha256 = None;
    let mut weak = None;
    for part in fragment.as_deref().unwrap_or_default().split('&') {
        match part.split_once('=') {
            // A digest that is none is as good as no digest: the file will be hashed.
            Some(("sha256", hex)) => sha256 = hex.trim().parse().ok(),
            Some(("md5", hex)) => weak = md5(hex.trim()),
            _ => {}
        }
    }
    if let Some(text) = attributes.get("data-requires-python")
        && let Err(err) = text.parse::<LenientVersionSpecifiers>()
    {
        return Err(format!("its Requires-Python {:?} is invalid", shorten(err.line())));
    }
    Ok(Some(PageFile {
        name,
        url,
        size: attributes.get("data-size").and_then(|s| s.trim().parse().ok()),
        sha256,
        md5: weak,
        requires_python: attributes.get("data-requires-python").map(str::to_owned),
        // The attribute may stand without a value.
        yanked: attributes.entry("data-yanked").map(|v| v.unwrap_or_default().to_owned()),
        upload_time: None,
        core_metadata: attributes
            .get("data-core-metadata")
            .or_else(|| attributes.get("data-dist-info-metadata"))
            .is_some_and(|v| v != "false"),
    }))
}

/// Attributes of an element, names in lower case, entities decoded.
struct Attributes(Vec<(String, Option<String>)>);

impl Attributes {
    fn of(tag: &tl::HTMLTag<'_>) -> Self {
        Attributes(
            tag.attributes()
                .iter()
                .map(|(name, value)| {
                    let value = value.map(|v| html_escape::decode_html_entities(&v).into_owned());
                    (name.to_ascii_lowercase(), value)
                })
                .collect(),
        )
    }
    fn entry(&self, name: &str) -> Option<Option<&str>> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_deref())
    }
    fn get(&self, name: &str) -> Option<&str> {
        self.entry(name).flatten()
    }
}

/// Joins a link to its page (RFC 3986) and takes the fragment off, decoded.
fn join(base: &Url, link: &str) -> Result<(String, Option<String>), String> {
    let mut url =
        base.join(link).map_err(|err| format!("its URL {:?} is invalid: {err}", shorten(link)))?;
    match url.scheme() {
        "http" | "https" => {}
        // A server must not make us read this machine's files.
        "file" if base.scheme() == "file" => {}
        other => return Err(format!("its URL has the scheme `{other}`")),
    }
    let fragment = url.fragment().map(|f| percent_decode_str(f).decode_utf8_lossy().into_owned());
    url.set_fragment(None);
    Ok((url.into(), fragment))
}

/// PEP 629: a major version we do not know must not be read.
fn check_version(version: Option<&str>) -> Result<(), NotAPage> {
    let Some(version) = version else { return Ok(()) };
    let major = version.split('.').next().unwrap_or(version).trim();
    if major == "1" {
        return Ok(());
    }
    Err(NotAPage {
        expected: "version 1 of the simple index interface (PEP 629)",
        found: format!("version {:?}", shorten(version)),
    })
}

/// A file name with `.WHL` and the like in lower case, so that every room knows it by one name.
pub(super) fn dist_name(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((stem, ext)) if ext.eq_ignore_ascii_case("whl") => format!("{stem}.whl"),
        _ => name.to_owned(),
    }
}

/// Whether a file name is that of a wheel or a source distribution.
pub(super) fn is_dist(name: &str) -> bool {
    name.ends_with(".whl") || SourceDistExtension::from_path(name).is_ok()
}

fn md5(hex: &str) -> Option<String> {
    (hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| hex.to_ascii_lowercase())
}

/// The beginning of a body, for messages.
fn describe(body: &[u8]) -> String {
    if body.is_empty() {
        return "an empty body".into();
    }
    let start = String::from_utf8_lossy(&body[..body.len().min(200)]);
    let line = start.trim_start().lines().next().unwrap_or_default();
    if line.starts_with('<') {
        format!("HTML ({:?})", shorten(line))
    } else {
        format!("{:?}", shorten(line))
    }
}

/// At most 80 characters of text from outside.
pub(super) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn html(body: &str) -> Page {
        let url = Url::parse("https://example.invalid/a/simple/torch/").unwrap();
        parse(Some("text/html; charset=utf-8"), body.as_bytes(), &url).unwrap()
    }

    /// Fault 17.
    #[test]
    fn links_are_joined_and_names_decoded_once() {
        let page = html(&format!(
            r#"<html><body>
            <a href="../a/torch-2.3.0%2Bcu121-cp312-cp312-linux_x86_64.whl#sha256={DIGEST}">other text</a>
            <a href="/w/torch-2.3.1-cp312-cp312-linux_x86_64.WHL?sig=a%2Fb&amp;x=1#sha256={DIGEST}">t</a>
            <a href="torch-2.3.2%252B-py3-none-any.whl">t</a>
            <a href="https://other.invalid/torch-1.0.tar.gz">t</a>
            <a href="../">up</a> <a href="mailto:x@example.invalid">mail</a> <a>nothing</a>
            </body></html>"#
        ));
        let seen: Vec<_> = page.files.iter().map(|f| (f.name.as_str(), f.url.as_str())).collect();
        assert_eq!(
            seen,
            [
                (
                    "torch-2.3.0+cu121-cp312-cp312-linux_x86_64.whl",
                    "https://example.invalid/a/simple/a/torch-2.3.0%2Bcu121-cp312-cp312-linux_x86_64.whl"
                ),
                (
                    "torch-2.3.1-cp312-cp312-linux_x86_64.whl",
                    "https://example.invalid/w/torch-2.3.1-cp312-cp312-linux_x86_64.WHL?sig=a%2Fb&x=1"
                ),
                (
                    "torch-2.3.2%2B-py3-none-any.whl",
                    "https://example.invalid/a/simple/torch/torch-2.3.2%252B-py3-none-any.whl"
                ),
                ("torch-1.0.tar.gz", "https://other.invalid/torch-1.0.tar.gz"),
            ]
        );
        assert_eq!(page.files[1].sha256, Some(DIGEST.parse().unwrap()));
        assert!(page.skipped.is_empty(), "{:?}", page.skipped);
    }

    #[test]
    fn base_href_may_be_relative_and_in_any_case() {
        for base in ["/w/", "https://example.invalid/w/", "../../../w/"] {
            let page =
                html(&format!(r#"<BASE HREF="{base}"><A HREF="a-1-py3-none-any.whl">a</A>"#));
            assert_eq!(
                page.files[0].url, "https://example.invalid/w/a-1-py3-none-any.whl",
                "{base}"
            );
        }
    }

    /// Fault 19: hashes as servers give them.
    #[test]
    fn only_the_files_own_sha256_is_a_digest() {
        let page = html(&format!(
            r#"<a href="a-1-py3-none-any.whl" data-dist-info-metadata="sha256={DIGEST}"
                 data-core-metadata="sha256={DIGEST}">a</a>
            <a href="a-2-py3-none-any.whl#md5=900150983CD24FB0D6963F7D28E17F72">a</a>
            <a href="a-3-py3-none-any.whl#sha224=00">a</a>
            <a href="a-4-py3-none-any.whl#sha256=md5:None">a</a>
            <a href="a-5-py3-none-any.whl#egg=a&sha256={DIGEST}">a</a>"#
        ));
        assert_eq!(page.files.len(), 5, "{page:?}");
        let digests: Vec<_> = page.files.iter().map(|f| f.sha256.is_some()).collect();
        assert_eq!(digests, [false, false, false, false, true]);
        assert!(page.files[0].core_metadata);
        assert_eq!(page.files[1].md5.as_deref(), Some("900150983cd24fb0d6963f7d28e17f72"));
    }

    /// Fault 22: one unreadable entry costs that entry.
    #[test]
    fn unreadable_entries_are_kept_with_their_reason() {
        let page = html(
            r#"<a href="a-1-py3-none-any.whl" data-requires-python="three">a</a>
            <a href="a-2-py3-none-any.whl" data-requires-python="&gt;=3.8" data-yanked>a</a>
            <a href="a-3-py3-none-any.whl" data-yanked="broken &amp; gone">a</a>
            <a href="a-%ff-py3-none-any.whl">a</a>
            <a href="file:///etc/a-4-py3-none-any.whl">a</a>
            <a href="https://[/a-5-py3-none-any.whl">a</a>"#,
        );
        assert_eq!(page.files.len(), 2);
        assert_eq!(page.files[0].requires_python.as_deref(), Some(">=3.8"));
        assert_eq!(page.files[0].yanked.as_deref(), Some(""));
        assert_eq!(page.files[1].yanked.as_deref(), Some("broken & gone"));
        let reasons: Vec<_> = page.skipped.iter().map(|(_, r)| r.as_str()).collect();
        assert_eq!(reasons.len(), 4, "{reasons:?}");
        assert!(reasons[0].contains("Requires-Python \"three\""), "{reasons:?}");
        assert!(reasons[1].contains("UTF-8"), "{reasons:?}");
        assert!(reasons[2].contains("scheme `file`"), "{reasons:?}");
        assert!(reasons[3].contains("invalid"), "{reasons:?}");
    }

    #[test]
    fn json_entries_stand_alone_too() {
        let url = Url::parse("https://example.invalid/simple/a/").unwrap();
        let body = format!(
            r#"{{"meta": {{"api-version": "1.3"}}, "name": "a", "files": [
            {{"filename": "a-1-py3-none-any.whl", "url": "../../f/a-1-py3-none-any.whl",
              "hashes": {{"sha256": "{DIGEST}", "whirlpool": "x"}}, "size": 7, "yanked": false,
              "requires-python": ">=3.8", "core-metadata": {{"sha256": "{DIGEST}"}},
              "upload-time": "1970-01-01T00:00:01.5Z"}},
            {{"filename": "a-2-py3-none-any.whl", "url": "a2", "hashes": {{}}, "size": null,
              "yanked": "bad", "requires-python": null, "core-metadata": false}},
            {{"filename": "a-3-py3-none-any.whl", "url": "a3", "hashes": {{}}, "size": "big"}},
            {{"filename": "a-4-py3-none-any.whl", "url": "a4", "hashes": {{}}, "requires-python": "x"}},
            {{"filename": "a-1.exe", "url": "x", "hashes": {{}}}}, 5]}}"#
        );
        let page =
            parse(Some("application/vnd.pypi.simple.v1+json"), body.as_bytes(), &url).unwrap();
        assert_eq!(
            page.files[0],
            PageFile {
                name: "a-1-py3-none-any.whl".into(),
                url: "https://example.invalid/f/a-1-py3-none-any.whl".into(),
                size: Some(7),
                sha256: Some(DIGEST.parse().unwrap()),
                md5: None,
                requires_python: Some(">=3.8".into()),
                yanked: None,
                upload_time: Some(1500),
                core_metadata: true,
            }
        );
        assert_eq!(page.files[1].yanked.as_deref(), Some("bad"));
        assert!(!page.files[1].core_metadata);
        assert_eq!(page.files.len(), 2);
        assert_eq!(page.skipped.len(), 3, "{:?}", page.skipped);
    }

    #[test]
    fn what_is_no_index_page_is_refused_by_name() {
        let url = Url::parse("https://example.invalid/simple/a/").unwrap();
        let json = Some("application/vnd.pypi.simple.v1+json");
        let html = Some("text/html");
        for (content_type, body, found) in [
            (json, "<html>sign in</html>", "HTML"),
            (json, "", "an empty body"),
            (json, r#"{"files": [{"#, "EOF"),
            (json, r#"{"name": "a"}"#, "missing field `files`"),
            (json, r#"{"meta": {"api-version": "2.0"}, "files": []}"#, "version \"2.0\""),
            (html, r#"<meta name="pypi:repository-version" content="2.0">"#, "version \"2.0\""),
            (html, "<html><form action=login></form></html>", "login page"),
            (html, "upstream failure", "upstream failure"),
            (html, " ", "an empty body"),
            (Some("application/octet-stream"), "{}", "application/octet-stream"),
            (None, "{", "EOF"),
        ] {
            let err = parse(content_type, body.as_bytes(), &url).unwrap_err();
            assert!(err.found.contains(found), "{body:?}: {err:?}");
        }
        assert_eq!(parse(html, b"<html><body></body></html>", &url), Ok(Page::default()));
    }

    proptest::proptest! {
        /// Whatever a server sends, reading it ends with a page or a reason.
        #[test]
        fn no_body_panics(body: Vec<u8>, json: bool) {
            let url = Url::parse("https://example.invalid/simple/a/").unwrap();
            let media = if json { "application/json" } else { "text/html" };
            let _ = parse(Some(media), &body, &url);
        }

        #[test]
        fn no_anchor_panics(href in "[ -~]{0,60}", attribute in "[a-z-]{1,20}", value in "[ -~]{0,30}") {
            let url = Url::parse("https://example.invalid/simple/a/").unwrap();
            let body = format!(r#"<a href="{href}.whl" {attribute}="{value}">x</a>"#);
            let _ = parse(Some("text/html"), body.as_bytes(), &url);
        }
    }
}
