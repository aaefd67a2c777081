//! `[pypi-dependencies]` and `[pypi-options]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use url::Url;
use uv_distribution_filename::WheelFilename;
use uv_normalize::{ExtraName, PackageName as DistName};
use uv_pep440::{Version, VersionSpecifiers};
use uv_pep508::MarkerTree;

use super::super::error::{FaultKind, flat, nearest};
use super::super::inputs::find_links_name;
use super::super::location::{Place, mask_credentials, place};
use super::super::model::{
    DependencyOverride, IndexName, IndexSource, Prereleases, PypiOptions, Spanned, WheelDependency,
    WheelRequirementSource,
};
use super::reader::{Node, Reader, Section};
use super::settings::http_url;
use crate::hash::Sha256;

const KEYS: [&str; 7] = ["version", "extras", "index", "url", "sha256", "path", "markers"];
/// Keys of other tools that ask for a build.
const BUILD_KEYS: [&str; 6] = ["git", "rev", "branch", "tag", "subdirectory", "editable"];
/// Names that locks use for sources of their own.
const RESERVED_INDEXES: [&str; 3] = ["pypi", "url", "path"];
const SPECIFIER_HINT: &str =
    "write PEP 440 specifiers such as \">=1.2,<2\", \"==1.2.*\", \"==2.1.0+cu121\" or \"*\"";

pub(super) fn dependencies<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    options: &PypiOptions,
) -> Vec<WheelDependency> {
    lines(reader, root, options, 0, None)
}

/// The same table of a variant, where `NAME = false` is a removal; lines are numbered from
/// `first` on.
pub(super) fn changes<'t>(
    reader: &mut Reader<'t>,
    variant: &Section<'t>,
    options: &PypiOptions,
    first: usize,
) -> (Vec<WheelDependency>, Vec<Spanned<DistName>>) {
    let mut removed = Vec::new();
    (lines(reader, variant, options, first, Some(&mut removed)), removed)
}

fn lines<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    options: &PypiOptions,
    first: usize,
    mut removed: Option<&mut Vec<Spanned<DistName>>>,
) -> Vec<WheelDependency> {
    let Some(section) = reader.section(root, "pypi-dependencies") else { return Vec::new() };
    let mut out: Vec<WheelDependency> = Vec::new();
    for node in section.nodes() {
        let key = Spanned { value: node.key, span: node.key_span.clone() };
        let hint = "extras go into a table: NAME = { version = \">=1\", extras = [\"x\"] }";
        let hint = node.key.contains('[').then_some(hint);
        let name: Option<DistName> = reader.parse_as(&key, "a distribution name", hint);
        let Some(name) = name else { continue };
        if node.item.as_bool() == Some(false)
            && let Some(removed) = &mut removed
        {
            removed.push(Spanned { value: name, span: node.whole() });
            continue;
        }
        let Some(mut dependency) = dependency(reader, &node, name, options) else { continue };
        dependency.number = first + out.len();
        if let Some(first) = out.iter().find(|dep| dep.name == dependency.name) {
            let kind = FaultKind::Duplicate {
                what: "distribution",
                name: dependency.name.to_string(),
                first: reader.line(first.span.start),
            };
            reader.fault(node.key_span.clone(), kind);
            continue;
        }
        out.push(dependency);
    }
    out
}

fn dependency<'t>(
    reader: &mut Reader<'t>,
    node: &Node<'t>,
    name: DistName,
    options: &PypiOptions,
) -> Option<WheelDependency> {
    let mut dependency = WheelDependency {
        name,
        extras: Vec::new(),
        source: WheelRequirementSource::Index {
            specifiers: VersionSpecifiers::empty(),
            index: None,
        },
        marker: MarkerTree::TRUE,
        span: node.whole(),
        number: 0,
    };
    let Some(table) = node.item.as_table_like() else {
        let text = reader.node_string(node, "a specifier string or a table")?;
        let specifiers = specifiers(reader, &text, node.key)?;
        dependency.source = WheelRequirementSource::Index { specifiers, index: None };
        return Some(dependency);
    };

    let section = Section { path: node.path.clone(), table, span: node.span.clone() };
    let faults = reader.faults.len();
    if let Some(build) = section.nodes().into_iter().find(|node| BUILD_KEYS.contains(&node.key)) {
        let what = format!("`{}`", build.key);
        let kind = FaultKind::BuildFromSource { name: node.key.to_owned(), what };
        reader.fault(build.key_span.clone(), kind);
        return None;
    }
    reader.only(&section, &KEYS);
    for text in reader.strings(&section, "extras") {
        dependency.extras.extend(reader.parse_as::<ExtraName>(&text, "the name of an extra", None));
    }
    dependency.extras.sort();
    dependency.extras.dedup();
    if let Some(text) = reader.string(&section, "markers") {
        let hint = "write a PEP 508 marker such as \"python_version < '3.10'\"";
        if let Some(marker) = reader.parse_as::<MarkerTree>(&text, "a marker", Some(hint)) {
            dependency.marker = marker;
        }
    }
    dependency.source = source(reader, &section, node, &dependency.name, options)?;
    (reader.faults.len() == faults).then_some(dependency)
}

fn source<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    node: &Node<'t>,
    name: &DistName,
    options: &PypiOptions,
) -> Option<WheelRequirementSource> {
    for (one, other) in [
        ("url", "path"),
        ("url", "version"),
        ("url", "index"),
        ("path", "version"),
        ("path", "index"),
        ("path", "sha256"),
    ] {
        if let (Some(_), Some(at)) = (section.node(one), section.node(other)) {
            let kind = FaultKind::Exclusive { name: node.key.to_owned(), one, other };
            reader.fault(at.key_span.clone(), kind);
            return None;
        }
    }
    if let Some(text) = reader.string(section, "url") {
        return url_source(reader, section, &text, node.key, name);
    }
    if let Some(text) = reader.string(section, "path") {
        return path_source(reader, &text, node.key, name);
    }
    if let Some(at) = section.node("sha256") {
        let hint = "`sha256` goes with `url`; the lock pins the digest of what an index gives";
        let kind =
            FaultKind::Unsupported { what: "`sha256` without `url`".into(), instead: hint.into() };
        reader.fault(at.key_span.clone(), kind);
        return None;
    }
    let specifiers = match reader.string(section, "version") {
        Some(text) => specifiers(reader, &text, node.key)?,
        None => VersionSpecifiers::empty(),
    };
    let index = match reader.string(section, "index") {
        None => None,
        Some(text) if text.value == "pypi" => None,
        Some(text) => {
            let index = IndexName(text.value.to_owned());
            if !options.indexes.contains_key(&index) {
                let known = options.indexes.keys().map(|known| known.0.as_str());
                let nearest = nearest(text.value, known);
                // Somebody may write a URL here, with a password.
                let name = mask_credentials(text.value);
                let kind = FaultKind::UnknownIndex { name, nearest };
                reader.fault(text.span, kind);
                return None;
            }
            Some(index)
        }
    };
    Some(WheelRequirementSource::Index { specifiers, index })
}

/// PEP 440 specifiers; `""` and `"*"` mean any version.
fn specifiers(reader: &mut Reader, text: &Spanned<&str>, name: &str) -> Option<VersionSpecifiers> {
    match parse_specifiers(text.value) {
        Ok(specifiers) => Some(specifiers),
        Err(error) => {
            if let Ok(version) = text.value.trim().parse::<Version>() {
                let kind =
                    FaultKind::BareVersion { name: name.to_owned(), version: version.to_string() };
                reader.fault(text.span.clone(), kind);
                return None;
            }
            let hint = match text.value.trim().starts_with('[') {
                true => "extras go into a table: NAME = { version = \">=1\", extras = [\"x\"] }",
                false => SPECIFIER_HINT,
            };
            reader.invalid(
                text.span.clone(),
                "a version specifier",
                text.value,
                Some(hint.into()),
                Some(flat(error)),
            )
        }
    }
}

/// `""` and `"*"` mean any version.
fn parse_specifiers(
    text: &str,
) -> Result<VersionSpecifiers, uv_pep440::VersionSpecifiersParseError> {
    match text.trim() {
        "" | "*" => Ok(VersionSpecifiers::empty()),
        text => text.parse(),
    }
}

/// The last component of a URL's path, percent-decoded once.
pub(in super::super) fn url_file_name(url: &Url) -> Option<String> {
    let last = url.path_segments()?.next_back()?;
    let bytes = last.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| (*bytes.get(i)? as char).to_digit(16);
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(hi), Some(lo)) => {
                out.push((hi * 16 + lo) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok()
}

/// Reports a file that is no wheel, or one of another distribution.
fn check_wheel_name(
    reader: &mut Reader,
    text: &Spanned<&str>,
    file: &str,
    key: &str,
    name: &DistName,
) -> Option<()> {
    if !file.ends_with(".whl") {
        let what = if [".tar.gz", ".zip", ".tar.bz2", ".tgz"].iter().any(|s| file.ends_with(s)) {
            format!("`{file}` is a source distribution")
        } else {
            format!("`{file}` is not a .whl file")
        };
        let kind = FaultKind::BuildFromSource { name: key.to_owned(), what };
        reader.fault(text.span.clone(), kind);
        return None;
    }
    let file = Spanned { value: file, span: text.span.clone() };
    let hint = "the name has the form NAME-VERSION[-BUILD]-PYTHON-ABI-PLATFORM.whl (PEP 427)";
    let wheel: WheelFilename = reader.parse_as(&file, "the file name of a wheel", Some(hint))?;
    if wheel.name != *name {
        let kind = FaultKind::WheelName {
            name: key.to_owned(),
            file: file.value.to_owned(),
            found: wheel.name.to_string(),
        };
        reader.fault(text.span.clone(), kind);
        return None;
    }
    Some(())
}

fn url_source<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    text: &Spanned<&'t str>,
    key: &str,
    name: &DistName,
) -> Option<WheelRequirementSource> {
    let parsed: Result<Url, _> = text.value.parse();
    match &parsed {
        Ok(url) if url.scheme() == "file" => {
            reader.fault(text.span.clone(), FaultKind::AbsoluteWheel { name: key.to_owned() });
            return None;
        }
        Ok(url) if url.scheme().starts_with("git") => {
            let what = "a git repository".to_owned();
            let kind = FaultKind::BuildFromSource { name: key.to_owned(), what };
            reader.fault(text.span.clone(), kind);
            return None;
        }
        _ => {}
    }
    let mut url = http_url(reader, text, &format!("{}.url", section.path))?;
    let fragment = url.fragment().map(str::to_owned);
    url.set_fragment(None);
    let file = url_file_name(&url).unwrap_or_default();
    check_wheel_name(reader, text, &file, key, name)?;
    let in_fragment = match fragment.as_deref().and_then(|f| f.strip_prefix("sha256=")) {
        Some(digits) => {
            let digits = Spanned { value: digits, span: text.span.clone() };
            Some(reader.parse_as::<Sha256>(&digits, "a SHA-256 digest", None)?)
        }
        None => None,
    };
    let in_key = match reader.string(section, "sha256") {
        Some(digits) => {
            let digest = reader.parse_as::<Sha256>(&digits, "a SHA-256 digest", None)?;
            if let Some(fragment) = in_fragment
                && fragment != digest
            {
                let kind = FaultKind::TwoDigests {
                    name: key.to_owned(),
                    fragment: fragment.to_string(),
                    key: digest.to_string(),
                };
                reader.fault(digits.span, kind);
                return None;
            }
            Some(digest)
        }
        None => None,
    };
    Some(WheelRequirementSource::Url { url, sha256: in_key.or(in_fragment) })
}

fn path_source<'t>(
    reader: &mut Reader<'t>,
    text: &Spanned<&'t str>,
    key: &str,
    name: &DistName,
) -> Option<WheelRequirementSource> {
    let path = text.value;
    if place(path) == Place::Absolute {
        reader.fault(text.span.clone(), FaultKind::AbsoluteWheel { name: key.to_owned() });
        return None;
    }
    if path.is_empty() || path.contains("://") || path.chars().any(char::is_control) {
        let hint =
            "write a path relative to env.toml, such as \"wheels/NAME-1.0-py3-none-any.whl\"";
        return reader.invalid(text.span.clone(), "a relative path", path, Some(hint.into()), None);
    }
    let file = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
    check_wheel_name(reader, text, file, key, name)?;
    // Without empty and `.` components, so that one file has one spelling.
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    Some(WheelRequirementSource::Path(PathBuf::from(parts.join("/"))))
}

pub(super) fn options<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> PypiOptions {
    let mut options = PypiOptions::default();
    let Some(section) = reader.section(root, "pypi-options") else { return options };
    if let Some(node) = section.node("extra-index-urls") {
        let kind = FaultKind::Unsupported {
            what: "`extra-index-urls`".into(),
            instead: "declare the index under [pypi-options.indexes] and name it where it is wanted, as `NAME = { version = \"…\", index = \"…\" }`: which index serves a package must not depend on who answers".into(),
        };
        reader.fault(node.key_span.clone(), kind);
    }
    reader.only(
        &section,
        &[
            "index",
            "indexes",
            "find-links",
            "pip",
            "no-build",
            "prereleases",
            "dependency-overrides",
            "constraints",
            "extra-index-urls",
        ],
    );
    if let Some(text) = reader.string(&section, "index") {
        options.index = index_url(reader, &text, "pypi-options.index")
            .map(|value| Spanned { value, span: text.span });
    }
    for text in reader.strings(&section, "find-links") {
        if find_links(reader, &text, "pypi-options.find-links").is_none() {
            continue;
        }
        // In a lock a source is its name alone; two directories `wheels` would become one.
        let name = find_links_name(&text.value);
        let same = |known: &&Spanned<String>| find_links_name(&known.value) == name;
        if let Some(known) = options.find_links.iter().find(same) {
            let first = reader.line(known.span.start);
            let kind = FaultKind::Duplicate { what: "find-links place", name, first };
            reader.fault(text.span, kind);
            continue;
        }
        options.find_links.push(text);
    }
    // What gpuenv does anyway; pixi and uv have the key.
    if reader.boolean(&section, "no-build") == Some(false) {
        let span = section.node("no-build").map_or(section.span.clone(), |node| node.span);
        let kind = FaultKind::Unsupported {
            what: "`no-build = false`".into(),
            instead: "gpuenv takes wheels alone: build the wheel elsewhere and name it by path or URL, or take a conda package".into(),
        };
        reader.fault(span, kind);
    }
    if let Some(pip) = reader.boolean(&section, "pip") {
        options.without_pip = !pip;
    }
    if let Some(text) = reader.string(&section, "prereleases") {
        match text.value {
            "if-necessary-or-explicit" => {}
            "allow" => options.prereleases = Prereleases::Allow,
            "disallow" => options.prereleases = Prereleases::Disallow,
            other => {
                let hint = "write \"if-necessary-or-explicit\", \"allow\" or \"disallow\"";
                reader.invalid::<()>(
                    text.span,
                    "a pre-release policy",
                    other,
                    Some(hint.into()),
                    None,
                );
            }
        }
    }
    if let Some(indexes) = reader.section(&section, "indexes") {
        for node in indexes.nodes() {
            if let Some((name, source)) = index(reader, &node) {
                options.indexes.insert(name, source);
            }
        }
    }
    if let Some(constraints) = reader.section(&section, "constraints") {
        for node in constraints.nodes() {
            let key = Spanned { value: node.key, span: node.key_span.clone() };
            let name: Option<DistName> = reader.parse_as(&key, "a distribution name", None);
            let text = reader.node_string(&node, "a specifier string");
            let (Some(name), Some(text)) = (name, text) else { continue };
            let Some(bound) = specifiers(reader, &text, node.key) else { continue };
            if options.constraints.insert(name, bound).is_some() {
                duplicate(reader, &constraints, &node);
            }
        }
    }
    options.overrides = overrides(reader, &section);
    options
}

fn duplicate(reader: &mut Reader, section: &Section, node: &Node) {
    let kind = FaultKind::Duplicate {
        what: "distribution",
        name: node.key.to_owned(),
        first: reader.line(section.span.start),
    };
    reader.fault(node.key_span.clone(), kind);
}

fn overrides<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
) -> BTreeMap<DistName, DependencyOverride> {
    let mut out = BTreeMap::new();
    let Some(section) = reader.section(section, "dependency-overrides") else { return out };
    for node in section.nodes() {
        let key = Spanned { value: node.key, span: node.key_span.clone() };
        let Some(name) = reader.parse_as::<DistName>(&key, "a distribution name", None) else {
            continue;
        };
        let Some(value) = override_value(reader, &node) else { continue };
        if out.insert(name, value).is_some() {
            duplicate(reader, &section, &node);
        }
    }
    out
}

fn override_value<'t>(reader: &mut Reader<'t>, node: &Node<'t>) -> Option<DependencyOverride> {
    const EXPECTED: &str = "`false`, a specifier string or { replace = \"…\", version = \"…\" }";
    if let Some(keep) = node.item.as_bool() {
        if keep {
            reader.wrong_type_or_range(node, EXPECTED);
            return None;
        }
        return Some(DependencyOverride::Drop);
    }
    if let Some(table) = node.item.as_table_like() {
        let section = Section { path: node.path.clone(), table, span: node.span.clone() };
        reader.only(&section, &["replace", "version"]);
        if !table.contains_key("replace") {
            let kind = FaultKind::Missing {
                key: "replace",
                table: section.name(),
                hint: "name the distribution to take instead, as { replace = \"scikit-learn\" }",
            };
            reader.fault(node.span.clone(), kind);
        }
        let bound = match reader.string(&section, "version") {
            Some(text) => specifiers(reader, &text, node.key)?,
            None => VersionSpecifiers::empty(),
        };
        let text = reader.string(&section, "replace")?;
        let name = reader.parse_as(&text, "a distribution name", None)?;
        return Some(DependencyOverride::Replace(name, bound));
    }
    let text = reader.node_string(node, EXPECTED)?;
    Some(DependencyOverride::Specifiers(specifiers(reader, &text, node.key)?))
}

fn index<'t>(reader: &mut Reader<'t>, node: &Node<'t>) -> Option<(IndexName, IndexSource)> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !node.key.starts_with(first) || !node.key.chars().all(plain) {
        let hint = "use a-z 0-9 . _ -, starting with a letter or digit".to_owned();
        return reader.invalid(
            node.key_span.clone(),
            "the name of an index",
            node.key,
            Some(hint),
            None,
        );
    }
    if RESERVED_INDEXES.contains(&node.key) {
        let kind = FaultKind::Unsupported {
            what: format!("an index called `{}`", node.key),
            instead: "`index = \"https://…\"` in [pypi-options] replaces the default index, `pypi`; give any other index another name".into(),
        };
        reader.fault(node.key_span.clone(), kind);
        return None;
    }
    let Some(table) = node.item.as_table_like() else {
        reader
            .wrong_type(node, "a table such as { url = \"https://…\" } or { find-links = \"…\" }");
        return None;
    };
    let section = Section { path: node.path.clone(), table, span: node.span.clone() };
    reader.only(&section, &["url", "find-links"]);
    let name = IndexName(node.key.to_owned());
    match (section.node("url"), section.node("find-links")) {
        (Some(_), Some(other)) => {
            let kind =
                FaultKind::Exclusive { name: node.key.to_owned(), one: "url", other: "find-links" };
            reader.fault(other.key_span.clone(), kind);
            None
        }
        (Some(_), None) => {
            let text = reader.string(&section, "url")?;
            let url = index_url(reader, &text, &format!("{}.url", section.path))?;
            Some((name, IndexSource::Simple(url)))
        }
        (None, Some(_)) => {
            let text = reader.string(&section, "find-links")?;
            let text = Spanned { value: text.value.to_owned(), span: text.span };
            find_links(reader, &text, &format!("{}.find-links", section.path))?;
            Some((name, IndexSource::FindLinks(text.value)))
        }
        (None, None) => {
            let kind = FaultKind::Missing {
                key: "url",
                table: section.name(),
                hint: "write { url = \"https://…\" } for a simple index, { find-links = \"…\" } for a page of links or a directory",
            };
            reader.fault(node.span.clone(), kind);
            None
        }
    }
}

/// A simple index: `http`, `https` or `file`.
fn index_url(reader: &mut Reader, text: &Spanned<&str>, place: &str) -> Option<Url> {
    match text.value.parse::<Url>() {
        Ok(url) if url.scheme() == "file" => Some(url),
        _ => http_url(reader, text, place),
    }
}

/// A page of links by URL, or a directory by path.
fn find_links(reader: &mut Reader, text: &Spanned<String>, key: &str) -> Option<()> {
    match place(&text.value) {
        Place::Url => http_url(reader, text, key).map(|_| ()),
        Place::Absolute | Place::Relative | Place::Name => {
            // The shell is not there to expand a `~`.
            let home = text.value.starts_with('~');
            if home || text.value.is_empty() || text.value.chars().any(char::is_control) {
                let hint = "write a URL or a directory, such as \"./wheels\"".to_owned();
                return reader.invalid(
                    text.span.clone(),
                    "a page of links or a directory",
                    &text.value,
                    Some(hint),
                    None,
                );
            }
            Some(())
        }
    }
}
