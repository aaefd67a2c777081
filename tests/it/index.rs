//! Lays wheels out on a [`Server`] as a wheel index (PEP 503 HTML, PEP 691 JSON, PEP 658
//! metadata) or as a page of links.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use sha2::Digest as _;

use crate::make::conda::hex;
use crate::make::wheel::Built;
use crate::serve::{Content, Server};

/// What an index page says about a file besides its name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Listing {
    /// `sha256` (default), `md5`, `none`, `wrong`.
    pub hash: String,
    /// Whether METADATA lies beside the file and the page says so.
    pub metadata: bool,
    /// `data-yanked`, with its reason.
    pub yanked: Option<String>,
    /// Repeats `Requires-Python`, or says this instead.
    pub requires_python: Option<String>,
    /// `href` as written, instead of a relative one. The file is served at the usual place.
    pub href: Option<String>,
    /// Text of the link, instead of the file name.
    pub text: Option<String>,
    /// The page lists the file, but it is not there.
    pub missing: bool,
    /// `upload-time` (PEP 700), on JSON pages.
    pub uploaded: Option<String>,
}

impl Default for Listing {
    fn default() -> Self {
        Listing {
            hash: "sha256".into(),
            metadata: true,
            yanked: None,
            requires_python: None,
            href: None,
            text: None,
            missing: false,
            uploaded: None,
        }
    }
}

/// A wheel (or any other file) of an index.
#[derive(Clone)]
pub struct Entry {
    /// The file.
    pub wheel: Built,
    /// Distribution name whose page lists it, normalized.
    pub project: String,
    /// What the page says.
    pub listing: Listing,
}

/// A stand-in for pip, which every environment with wheels gets unless told otherwise: quick to
/// unpack, and not able to install anything.
pub fn stand_in_pip() -> Entry {
    let pip = crate::make::wheel::Wheel::new("pip", "24.0").file("pip/__init__.py", "");
    Entry { wheel: pip.build(), project: "pip".into(), listing: Listing::default() }
}

/// The pip that the interpreter bundles.
pub fn bundled_pip() -> Option<Entry> {
    let (file, bytes, metadata) = crate::make::python::host()?.pip()?;
    let wheel = Built { file, bytes, metadata, requires_python: None };
    Some(Entry { wheel, project: "pip".into(), listing: Listing::default() })
}

/// PEP 503 normalization.
pub fn normalize(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if out.ends_with('-') => {}
            '-' | '_' | '.' => out.push('-'),
            c => out.push(c.to_ascii_lowercase()),
        }
    }
    out
}

fn digest(entry: &Entry) -> Option<(&'static str, String)> {
    let bytes = &entry.wheel.bytes;
    match entry.listing.hash.as_str() {
        "none" => None,
        "md5" => Some(("md5", hex(&md5::Md5::digest(bytes)))),
        "wrong" => Some(("sha256", hex(&sha2::Sha256::digest(b"another file")))),
        "sha256" => Some(("sha256", hex(&sha2::Sha256::digest(bytes)))),
        other => panic!("hash = {other:?}: expected sha256, md5, none or wrong"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn link(entry: &Entry, base: &str) -> String {
    let file = &entry.wheel.file;
    let mut href = entry.listing.href.clone().unwrap_or_else(|| format!("{base}{file}"));
    if let Some((name, value)) = digest(entry) {
        let _ = write!(href, "#{name}={value}");
    }
    let mut attributes = String::new();
    if let Some(python) = python_of(entry) {
        let _ = write!(attributes, " data-requires-python=\"{}\"", escape(&python));
    }
    if entry.listing.metadata {
        let sum = hex(&sha2::Sha256::digest(&entry.wheel.metadata));
        let _ = write!(attributes, " data-core-metadata=\"sha256={sum}\"");
    }
    if let Some(reason) = &entry.listing.yanked {
        let _ = write!(attributes, " data-yanked=\"{}\"", escape(reason));
    }
    let text = entry.listing.text.as_deref().unwrap_or(file);
    format!("<a href=\"{}\"{attributes}>{}</a><br/>\n", escape(&href), escape(text))
}

fn python_of(entry: &Entry) -> Option<String> {
    entry.listing.requires_python.clone().or_else(|| entry.wheel.requires_python.clone())
}

fn json_file(entry: &Entry) -> serde_json::Value {
    let file = &entry.wheel.file;
    let url = entry.listing.href.clone().unwrap_or_else(|| format!("../../files/{file}"));
    let hashes: BTreeMap<_, _> = digest(entry).into_iter().collect();
    let mut out = json!({ "filename": file, "url": url, "hashes": hashes });
    if let Some(python) = python_of(entry) {
        out["requires-python"] = json!(python);
    }
    if entry.listing.metadata {
        let sum = hex(&sha2::Sha256::digest(&entry.wheel.metadata));
        out["core-metadata"] = json!({ "sha256": sum });
    }
    if let Some(reason) = &entry.listing.yanked {
        out["yanked"] = json!(reason);
    }
    if let Some(time) = &entry.listing.uploaded {
        out["upload-time"] = json!(time);
    }
    if !entry.listing.missing {
        out["size"] = json!(entry.wheel.bytes.len());
    }
    out
}

fn put_files(server: &Server, root: &str, entries: &[Entry]) {
    for entry in entries.iter().filter(|e| !e.listing.missing) {
        let path = format!("{root}/files/{}", entry.wheel.file);
        server.put(&path, Content::file(entry.wheel.bytes.clone()));
        if entry.listing.metadata {
            let metadata = Content::file(entry.wheel.metadata.clone());
            server.put(&format!("{path}.metadata"), metadata);
        }
    }
}

/// Serves `entries` as an index below `root` (`/pypi`): pages at `{root}/simple/NAME/`, files
/// at `{root}/files/`. `json`: PEP 691 for those who ask.
pub fn simple(server: &Server, root: &str, entries: &[Entry], json: bool) {
    put_files(server, root, entries);
    let mut projects: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        projects.entry(&entry.project).or_default().push(entry);
    }
    let mut all = String::from("<!DOCTYPE html><html><body>\n");
    for (project, files) in &projects {
        let mut html = String::from(
            "<!DOCTYPE html><html><head>\
             <meta name=\"pypi:repository-version\" content=\"1.1\"></head><body>\n",
        );
        for file in files {
            html += &link(file, "../../files/");
        }
        let mut content = Content::html(html + "</body></html>\n");
        if json {
            let page = json!({
                "meta": { "api-version": "1.1" },
                "name": project,
                "files": files.iter().map(|f| json_file(f)).collect::<Vec<_>>(),
            });
            let bytes = Arc::new(page.to_string().into_bytes());
            content.alternative = Some(("application/vnd.pypi.simple.v1+json", bytes));
        }
        server.put(&format!("{root}/simple/{project}/"), content);
        let _ = writeln!(all, "<a href=\"{project}/\">{project}</a><br/>");
    }
    server.put(&format!("{root}/simple/"), Content::html(all + "</body></html>\n"));
}

/// Serves `entries` as one page of links at `{root}/links.html`, with `head` in its head.
pub fn links(server: &Server, root: &str, entries: &[Entry], head: &str) {
    put_files(server, root, entries);
    let mut html = format!("<!DOCTYPE html><html><head>{head}</head><body>\n");
    for entry in entries {
        html += &link(entry, "files/");
    }
    server.put(&format!("{root}/links.html"), Content::html(html + "</body></html>\n"));
}
