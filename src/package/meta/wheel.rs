//! Metadata of wheels: the `.dist-info` directory (binary distribution format, PEP 427; entry
//! points specification; recording installed projects).

use std::collections::BTreeSet;
use std::io::Read as _;
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;
use sha2::Digest;
use uv_pep440::Version;
use uv_pypi_types::Metadata10;

use super::{Contents, Read, agree, text, unclear};
use crate::fs;
use crate::lockfile::LockedPackage;
use crate::package::error::Fault;
use crate::package::record::{EntryKind, Meta, WheelMeta};
use crate::relpath::RelPath;

pub(super) fn read(contents: &Contents<'_>, locked: &LockedPackage) -> Result<Read, Fault> {
    let tops: BTreeSet<&str> =
        contents.entries.keys().filter_map(|p| Some(p.split_once('/')?.0)).collect();
    let ending = |end: &str| -> Vec<&str> {
        tops.iter().copied().filter(|t| t.ends_with(end) && t.len() > end.len()).collect()
    };
    let dist_infos = ending(".dist-info");
    let [dist_info] = dist_infos[..] else {
        return Err(Fault::DistInfo(dist_infos.iter().map(|d| (*d).to_owned()).collect()));
    };
    let data = match ending(".data")[..] {
        [] => None,
        [one] => Some(one.to_owned()),
        [_, second, ..] => {
            return Err(unclear(second, "it is a second `.data` directory in one wheel"));
        }
    };
    check_identity(contents, dist_info, locked)?;

    let root_is_purelib = wheel_file(contents, dist_info)?;
    let mut meta =
        WheelMeta { dist_info: dist_info.to_owned(), root_is_purelib, ..WheelMeta::default() };
    let path = format!("{dist_info}/entry_points.txt");
    if let Some(bytes) = contents.file(&path)? {
        let text = text(&path, &bytes)?;
        meta.console_scripts = entry_points(text, "console_scripts");
        meta.gui_scripts = entry_points(text, "gui_scripts");
    }
    if let Some(data) = &data {
        meta.python_scripts = python_scripts(contents, data)?;
    }
    meta.data = data;
    let notes = check_record(contents, dist_info, &locked.file)?;
    Ok(Read { meta: Meta::Wheel(meta), notes })
}

/// Name and version, from the directory's name and from `METADATA`.
fn check_identity(
    contents: &Contents<'_>,
    dist_info: &str,
    locked: &LockedPackage,
) -> Result<(), Fault> {
    let stem = dist_info.strip_suffix(".dist-info").unwrap_or(dist_info);
    let expected = normal(&locked.name);
    // Compared as a beginning, as old tools left dashes in the name as they were.
    let same =
        normal(stem).strip_prefix(expected.as_str()).map(|v| v.is_empty() || v.starts_with('-'));
    if same != Some(true) {
        agree("`.dist-info` directory", &expected, stem)?;
    }

    let path = format!("{dist_info}/METADATA");
    let metadata =
        Metadata10::parse_pkg_info(&contents.need(&path)?).map_err(|e| unclear(&path, e))?;
    agree("name", &expected, metadata.name.as_ref())?;
    let same = match (Version::from_str(&locked.version), Version::from_str(&metadata.version)) {
        (Ok(a), Ok(b)) => a == b,
        _ => locked.version == metadata.version,
    };
    if !same {
        agree("version", &locked.version, &metadata.version)?;
    }
    Ok(())
}

/// A name as PEP 503 normalizes it, whatever else is in it.
fn normal(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if out.ends_with('-') => {}
            '-' | '_' | '.' => out.push('-'),
            c => out.extend(c.to_lowercase()),
        }
    }
    out
}

/// Checks `WHEEL` and returns `Root-Is-Purelib`.
fn wheel_file(contents: &Contents<'_>, dist_info: &str) -> Result<bool, Fault> {
    let path = format!("{dist_info}/WHEEL");
    let bytes = contents.need(&path)?;
    let text = text(&path, &bytes)?;
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let (k, v) = line.split_once(':')?;
            k.trim().eq_ignore_ascii_case(key).then(|| v.trim())
        })
    };
    let version =
        value("Wheel-Version").ok_or_else(|| unclear(&path, "it has no `Wheel-Version`"))?;
    let major = version.split('.').next().unwrap_or(version);
    if major != "1" {
        return Err(Fault::WheelVersion(version.to_owned()));
    }
    match value("Root-Is-Purelib") {
        Some(v) if v.eq_ignore_ascii_case("true") => Ok(true),
        Some(v) if v.eq_ignore_ascii_case("false") => Ok(false),
        Some(v) => Err(unclear(&path, format!("`Root-Is-Purelib` is `{v}`"))),
        // As pip takes it; with one site directory it makes no difference.
        None => Ok(false),
    }
}

/// The pairs of a section of `entry_points.txt`, as `name = value`, read as
/// `importlib.metadata` reads them: whatever it would not take for a pair is passed over.
fn entry_points(text: &str, section: &str) -> Vec<String> {
    let mut within = false;
    let mut points = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') || line.starts_with(';') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            within = name.trim() == section;
        } else if within && let Some((name, value)) = line.split_once('=') {
            points.push(format!("{} = {}", name.trim(), value.trim()));
        }
    }
    points.sort();
    points.dedup();
    points
}

/// Files of `.data/scripts/` whose first line asks for Python, to be rewritten on linking.
fn python_scripts(contents: &Contents<'_>, data: &str) -> Result<Vec<RelPath>, Fault> {
    let below = format!("{data}/scripts/");
    let mut scripts = Vec::new();
    for (path, kind) in contents.entries.range(below.as_str()..) {
        if !path.starts_with(&below) {
            break;
        }
        if !matches!(kind, EntryKind::File { .. }) {
            continue;
        }
        let at = contents.root.join(path);
        let mut head = Vec::new();
        fs::open(&at)?.take(8).read_to_end(&mut head).map_err(fs::FsError::at("read", &at))?;
        if head == b"#!python" {
            scripts.push(RelPath::new(path)?);
        }
    }
    Ok(scripts)
}

/// Checks content against `RECORD`.
///
/// The specification asks for every file to be listed; installers tolerate files that are not,
/// and lines for files that are not there, and published wheels rely on that. Both are noted.
/// A digest that differs is an error. MD5 and SHA-1, which the specification rules out, prove
/// nothing and are passed over.
fn check_record(
    contents: &Contents<'_>,
    dist_info: &str,
    file: &str,
) -> Result<Vec<String>, Fault> {
    let list = format!("{dist_info}/RECORD");
    let bytes = contents.need(&list)?;
    let mut rows =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&bytes[..]);
    let mut listed = BTreeSet::new();
    let mut unheld = 0;
    for row in rows.records() {
        let row = row.map_err(|e| unclear(&list, e))?;
        let Some(given) = row.get(0).filter(|p| !p.is_empty()) else { continue };
        let entry = RelPath::new(given)
            .ok()
            .and_then(|path| contents.entries.get(path.as_str()).map(|kind| (path, *kind)));
        let Some((path, EntryKind::File { sha256, .. })) = entry else {
            unheld += 1;
            continue;
        };
        if let Some((algorithm, expected)) = row.get(1).and_then(|h| h.split_once('=')) {
            let expected = expected.trim_end_matches('=');
            let found = match algorithm.to_ascii_lowercase().as_str() {
                "sha256" => Some(BASE64URL_NOPAD.encode(sha256.as_bytes())),
                "sha384" => Some(digest_of::<sha2::Sha384>(contents, &path)?),
                "sha512" => Some(digest_of::<sha2::Sha512>(contents, &path)?),
                _ => None,
            };
            if let Some(found) = found
                && found != expected
            {
                return Err(Fault::Content { path, list, expected: expected.to_owned(), found });
            }
        }
        listed.insert(path.to_string());
    }
    let unlisted = contents
        .entries
        .iter()
        .filter(|(path, kind)| {
            matches!(kind, EntryKind::File { .. })
                && !listed.contains(**path)
                && !is_record(path, dist_info)
        })
        .count();
    let mut notes = Vec::new();
    if unlisted > 0 {
        notes.push(format!("{file}: its RECORD leaves out {unlisted} of its files"));
    }
    if unheld > 0 {
        notes.push(format!("{file}: its RECORD has {unheld} lines for what it does not hold"));
    }
    Ok(notes)
}

/// `RECORD` itself and its signatures need not be listed.
fn is_record(path: &str, dist_info: &str) -> bool {
    path.strip_prefix(dist_info)
        .is_some_and(|p| matches!(p, "/RECORD" | "/RECORD.jws" | "/RECORD.p7s"))
}

fn digest_of<D: Digest>(contents: &Contents<'_>, path: &RelPath) -> Result<String, Fault> {
    let at = path.under(contents.root);
    let file = fs::open(&at)?;
    let map = fs::map(&file, &at)?;
    Ok(BASE64URL_NOPAD.encode(&D::digest(&map[..])))
}
