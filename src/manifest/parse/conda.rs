//! `[dependencies]` and `[conda-pypi-map]`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rattler_conda_types::{
    BuildNumberSpec, Channel, ChannelConfig, NamelessMatchSpec, PackageName as CondaName,
    ParseStrictness, StringMatcher, VersionSpec,
};
use rattler_digest::{Md5, parse_digest_from_hex};
use uv_normalize::PackageName as DistName;

use super::super::error::{FaultKind, nearest};
use super::super::location::{Place, lock_location, place};
use super::super::model::{CondaDependency, Spanned};
use super::reader::{Node, Reader, Section};
use crate::hash::Sha256;

const KEYS: [&str; 8] =
    ["version", "build", "build-number", "channel", "subdir", "file-name", "md5", "sha256"];

const VERSION_HINT: &str =
    "write a version bound such as \"3.9.*\", \">=1.2,<2\", \"==1.2.3\" or \"*\"";

pub(super) fn dependencies<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    channels: &[Spanned<String>],
) -> Vec<CondaDependency> {
    lines(reader, root, channels, None)
}

/// The same table of a variant, where `NAME = false` is a removal.
pub(super) fn changes<'t>(
    reader: &mut Reader<'t>,
    variant: &Section<'t>,
    channels: &[Spanned<String>],
) -> (Vec<CondaDependency>, Vec<Spanned<CondaName>>) {
    let mut removed = Vec::new();
    (lines(reader, variant, channels, Some(&mut removed)), removed)
}

fn lines<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    channels: &[Spanned<String>],
    mut removed: Option<&mut Vec<Spanned<CondaName>>>,
) -> Vec<CondaDependency> {
    let Some(section) = reader.section(root, "dependencies") else { return Vec::new() };
    let mut out: Vec<CondaDependency> = Vec::new();
    for node in section.nodes() {
        let key = Spanned { value: node.key, span: node.key_span.clone() };
        let name: Option<CondaName> = reader.parse_as(&key, "a conda package name", None);
        if node.item.as_bool() == Some(false)
            && let Some(removed) = &mut removed
        {
            removed.extend(name.map(|value| Spanned { value, span: node.whole() }));
            continue;
        }
        let spec = spec(reader, &node, channels);
        let (Some(name), Some(spec)) = (name, spec) else { continue };
        if name.as_normalized().starts_with("__") {
            reader.fault(
                node.key_span.clone(),
                FaultKind::Unsupported {
                    what: format!("a virtual package (`{}`) in [dependencies]", node.key),
                    instead: "declare the target in [system-requirements] and [gpu]".into(),
                },
            );
            continue;
        }
        if let Some(first) = out.iter().find(|dep| dep.name == name) {
            let kind = FaultKind::Duplicate {
                what: "conda package",
                name: name.as_normalized().to_owned(),
                first: reader.line(first.span.start),
            };
            reader.fault(node.key_span.clone(), kind);
            continue;
        }
        out.push(CondaDependency { name, spec, span: node.whole() });
    }
    out
}

fn spec<'t>(
    reader: &mut Reader<'t>,
    node: &Node<'t>,
    channels: &[Spanned<String>],
) -> Option<NamelessMatchSpec> {
    if let Some(table) = node.item.as_table_like() {
        let section = Section { path: node.path.clone(), table, span: node.span.clone() };
        return table_spec(reader, &section, channels);
    }
    let text = reader.node_string(node, "a version string or a table")?;
    string_spec(text.value)
        .map_err(|(hint, cause)| {
            reader.invalid::<()>(text.span, "a conda version bound", text.value, Some(hint), cause)
        })
        .ok()
}

/// A hint and the cause, where there is one.
type Refused = (String, Option<super::super::error::Cause>);

/// A version bound, optionally followed by a space and a build string.
fn string_spec(text: &str) -> Result<NamelessMatchSpec, Refused> {
    if text.trim().is_empty() {
        return Err((VERSION_HINT.into(), None));
    }
    let table = "the string holds a version and perhaps a build; channel, URL and the rest go into a table such as { version = \"1.2.*\", channel = \"conda-forge\" }";
    let hint = if text.contains([':', '[', '/']) { table } else { VERSION_HINT };
    let spec = NamelessMatchSpec::from_str(&exactly(text), ParseStrictness::Strict)
        .map_err(|error| (hint.into(), Some(Box::new(error) as _)))?;
    let plain = NamelessMatchSpec {
        version: spec.version.clone(),
        build: spec.build.clone(),
        ..NamelessMatchSpec::default()
    };
    if spec != plain || spec.version.is_none() {
        return Err((table.into(), None));
    }
    Ok(plain)
}

/// `text` with `==` before each bare version of its bound, which the strict parser refuses
/// (conda reads it as `==` or as `=`, depending on where it stands).
fn exactly(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(['|', ',', '(', ')']).map_or(rest.len(), |at| at + 1);
        let (part, after) = rest.split_at(end);
        let words = part.trim_start();
        out.push_str(&part[..part.len() - words.len()]);
        let version = words.split([' ', '\t', '|', ',', '(', ')']).next().unwrap_or_default();
        let bare = version.starts_with(|c: char| c.is_ascii_digit())
            && version.chars().all(|c| c.is_ascii_alphanumeric() || "._+!-".contains(c));
        if bare {
            out.push_str("==");
        }
        out.push_str(words);
        rest = after;
        // Behind a version and a blank stands the build string, to the end.
        if bare && words[version.len()..].trim_start().starts_with(|c: char| c != '|' && c != ',') {
            out.push_str(rest);
            break;
        }
    }
    out
}

fn table_spec<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    channels: &[Spanned<String>],
) -> Option<NamelessMatchSpec> {
    let faults = reader.faults.len();
    reader.only(section, &KEYS);
    let mut spec = NamelessMatchSpec::default();
    if let Some(text) = reader.string(section, "version") {
        match VersionSpec::from_str(&exactly(text.value), ParseStrictness::Strict) {
            Ok(version) => spec.version = Some(version),
            Err(error) => {
                reader.invalid::<()>(
                    text.span,
                    "a conda version bound",
                    text.value,
                    Some(VERSION_HINT.into()),
                    Some(Box::new(error)),
                );
            }
        }
    }
    if let Some(text) = reader.string(section, "build") {
        spec.build = reader.parse_as::<StringMatcher>(&text, "a build string or glob", None);
    }
    if let Some(node) = section.node("build-number") {
        let text = match node.item.as_integer() {
            Some(number) => Some(Spanned { value: number.to_string(), span: node.span.clone() }),
            None => reader
                .node_string(&node, "an integer or a bound such as \">=2\"")
                .map(|text| Spanned { value: text.value.to_owned(), span: text.span }),
        };
        if let Some(text) = text {
            spec.build_number = reader.parse_as::<BuildNumberSpec>(
                &text,
                "a build number bound",
                Some("write a number or a bound such as \">=2\""),
            );
        }
    }
    if let Some(text) = reader.string(section, "channel") {
        spec.channel = channel(reader, &text, channels).map(Arc::new);
    }
    if let Some(text) = reader.string(section, "subdir") {
        spec.subdir = reader
            .parse_as::<rattler_conda_types::Subdir>(&text, "a conda subdir", None)
            .map(|subdir| subdir.as_str().to_owned());
    }
    if let Some(text) = reader.string(section, "file-name") {
        let good = (text.value.ends_with(".conda") || text.value.ends_with(".tar.bz2"))
            && !text.value.contains(['/', '\\'])
            && !text.value.chars().any(char::is_control);
        if good {
            spec.file_name = Some(text.value.to_owned());
        } else {
            let hint = "write the file's name alone, ending in .conda or .tar.bz2".to_owned();
            reader.invalid::<()>(
                text.span,
                "a file name of a conda package",
                text.value,
                Some(hint),
                None,
            );
        }
    }
    if let Some(text) = reader.string(section, "md5") {
        spec.md5 = parse_digest_from_hex::<Md5>(text.value);
        if spec.md5.is_none() {
            let hint = "write 32 hexadecimal digits".to_owned();
            reader.invalid::<()>(text.span, "an MD5 digest", text.value, Some(hint), None);
        }
    }
    if let Some(text) = reader.string(section, "sha256") {
        spec.sha256 = reader
            .parse_as::<Sha256>(&text, "a SHA-256 digest", None)
            .map(|digest| (*digest.as_bytes()).into());
    }
    (reader.faults.len() == faults).then_some(spec)
}

/// A channel that a dependency names: one of `[env] channels`, since a channel without a place
/// in the order would have no priority.
fn channel<'t>(
    reader: &mut Reader<'t>,
    text: &Spanned<&'t str>,
    channels: &[Spanned<String>],
) -> Option<Channel> {
    let wanted = text.value.trim_end_matches('/');
    let same = |a: &str| a.trim_end_matches('/') == wanted || lock_location(a).name == wanted;
    let Some(found) = channels.iter().find(|channel| same(&channel.value)) else {
        let nearest = nearest(text.value, channels.iter().map(|channel| channel.value.as_str()));
        let name = super::super::location::mask_credentials(text.value);
        reader.fault(text.span.clone(), FaultKind::UnknownChannel { name, nearest });
        return None;
    };
    // Where a channel really is, only the machine knows. Its identity here is its name in the
    // lock, as records have it; a path is left below the root, which nobody may follow.
    let config = ChannelConfig::default_with_root_dir(PathBuf::from("/"));
    match Channel::from_str(&found.value, &config) {
        Ok(channel) => Some(Channel { name: Some(lock_location(&found.value).name), ..channel }),
        Err(error) => {
            reader.invalid(text.span.clone(), "a channel", text.value, None, Some(Box::new(error)))
        }
    }
}

/// Whether `[env] channels` may hold this; the error is a hint.
pub(super) fn check_channel(reader: &mut Reader, channel: &Spanned<String>) -> Option<()> {
    let written = &channel.value;
    let hint = "write a name (\"conda-forge\"), a URL or a path that starts with ./, ../ or /";
    match place(written) {
        Place::Url => {
            super::settings::http_url(reader, channel, "env.channels")?;
        }
        Place::Absolute | Place::Relative => {
            if written.chars().any(char::is_control) {
                return reader.invalid(
                    channel.span.clone(),
                    "a channel",
                    written,
                    Some(hint.into()),
                    None,
                );
            }
        }
        Place::Name => {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
            if !written.chars().all(plain)
                || !written.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                || written.contains("//")
            {
                return reader.invalid(
                    channel.span.clone(),
                    "a channel",
                    written,
                    Some(hint.into()),
                    None,
                );
            }
        }
    }
    Some(())
}

pub(super) fn conda_pypi_map<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
) -> BTreeMap<CondaName, Vec<DistName>> {
    let mut out = BTreeMap::new();
    let Some(section) = reader.section(root, "conda-pypi-map") else { return out };
    for node in section.nodes() {
        let key = Spanned { value: node.key, span: node.key_span.clone() };
        let name: Option<CondaName> = reader.parse_as(&key, "a conda package name", None);
        let texts = match node.item.as_str() {
            Some(one) => vec![Spanned { value: one.to_owned(), span: node.span.clone() }],
            None => reader.node_strings(&node),
        };
        let mut names: Vec<DistName> = texts
            .iter()
            .filter_map(|text| reader.parse_as(text, "a distribution name", None))
            .collect();
        names.sort();
        names.dedup();
        if let Some(name) = name
            && out.insert(name.clone(), names).is_some()
        {
            let kind = FaultKind::Duplicate {
                what: "conda package",
                name: name.as_normalized().to_owned(),
                first: reader.line(section.span.start),
            };
            reader.fault(node.key_span.clone(), kind);
        }
    }
    out
}
