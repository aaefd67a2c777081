//! Metadata of conda packages: `info/index.json`, `info/paths.json` (or, in old packages,
//! `info/files`, `info/has_prefix`), `info/link.json`.

use std::collections::BTreeSet;
use std::path::Path;

use rattler_conda_types::package::{
    FileMode, Files, HasPrefix, IndexJson, NoLink, PackageFile, PathType, PathsEntry, PathsJson,
};

use super::{Contents, Read, agree, text, unclear};
use crate::hash::Sha256;
use crate::lockfile::LockedPackage;
use crate::package::error::Fault;
use crate::package::record::{CondaMeta, EntryKind, Meta, Relocation};
use crate::relpath::RelPath;

const INDEX: &str = "info/index.json";
const PATHS: &str = "info/paths.json";
const FILES: &str = "info/files";
const HAS_PREFIX: &str = "info/has_prefix";
const NO_LINK: &str = "info/no_link";
const LINK: &str = "info/link.json";

pub(super) fn read(contents: &Contents<'_>, locked: &LockedPackage) -> Result<Read, Fault> {
    let index: IndexJson =
        serde_json::from_slice(&contents.need(INDEX)?).map_err(|e| unclear(INDEX, e))?;
    let name = index.name.as_normalized();
    agree("name", &locked.name, name)?;
    agree("version", &locked.version, &index.version.as_str())?;
    if let Some(build) = &locked.build {
        agree("build", build, index.build.as_str())?;
    }
    let site_packages_path = match &index.python_site_packages_path {
        Some(path) => Some(RelPath::new(path).map_err(|e| unclear(INDEX, e))?.to_string()),
        None => None,
    };
    let mut meta = CondaMeta {
        // Old packages leave it out; then it is where the channel keeps them.
        subdir: index.subdir.or_else(|| locked.subdir.clone()).unwrap_or_default(),
        noarch_python: index.noarch.is_python(),
        site_packages_path,
        link_scripts: link_scripts(contents, name)?,
        depends: index.depends,
        ..CondaMeta::default()
    };
    if meta.noarch_python {
        meta.entry_points = entry_points(contents)?;
    }
    if let Some((list, paths)) = paths(contents)? {
        let listed = relocations(contents, list, &paths, &mut meta)?;
        meta.unlisted = contents
            .entries
            .iter()
            .filter(|(path, kind)| {
                !matches!(kind, EntryKind::Dir)
                    && !path.starts_with("info/")
                    && !listed.contains(**path)
            })
            .map(|(path, _)| RelPath::new(path))
            .collect::<Result<_, _>>()?;
    }
    let mut notes = Vec::new();
    if !meta.unlisted.is_empty() {
        notes.push(format!(
            "{}: its list of files leaves out {} of them; they stay out of the environment",
            locked.file,
            meta.unlisted.len()
        ));
    }
    Ok(Read { meta: Meta::Conda(meta), notes })
}

/// The list of files, and the name of the file it is from; `None` where a package has none.
fn paths(contents: &Contents<'_>) -> Result<Option<(&'static str, PathsJson)>, Fault> {
    if let Some(bytes) = contents.file(PATHS)? {
        let paths = PathsJson::from_slice(&bytes).map_err(|e| unclear(PATHS, e))?;
        return Ok(Some((PATHS, paths)));
    }
    let Some(bytes) = contents.file(FILES)? else { return Ok(None) };
    // Blank lines occur in these.
    let lines =
        |text: &str| text.lines().filter(|l| !l.trim().is_empty()).collect::<Vec<_>>().join("\n");
    let files = Files::from_str(&lines(text(FILES, &bytes)?)).map_err(|e| unclear(FILES, e))?;
    let has_prefix = match contents.file(HAS_PREFIX)? {
        Some(bytes) => Some(
            HasPrefix::from_str(&lines(text(HAS_PREFIX, &bytes)?))
                .map_err(|e| unclear(HAS_PREFIX, e))?,
        ),
        None => None,
    };
    let no_link = match contents.file(NO_LINK)? {
        Some(bytes) => Some(
            NoLink::from_str(&lines(text(NO_LINK, &bytes)?)).map_err(|e| unclear(NO_LINK, e))?,
        ),
        None => None,
    };
    let kind = |path: &Path| {
        Ok::<_, Fault>(match path.to_str().and_then(|p| contents.entries.get(p)) {
            Some(EntryKind::Symlink { .. }) => PathType::SoftLink,
            Some(EntryKind::Dir) => PathType::Directory,
            _ => PathType::HardLink,
        })
    };
    let paths = PathsJson::from_deprecated(files, has_prefix, no_link, None, kind)?;
    Ok(Some((FILES, paths)))
}

/// Checks the list of files against the tree and takes the placeholders from it. Returns the
/// paths listed.
fn relocations(
    contents: &Contents<'_>,
    list: &str,
    paths: &PathsJson,
    meta: &mut CondaMeta,
) -> Result<BTreeSet<String>, Fault> {
    let mut listed = BTreeSet::new();
    for entry in &paths.paths {
        let shown = entry.relative_path.display().to_string();
        let path = entry.relative_path.to_str().ok_or_else(|| unclear(list, &shown))?;
        let path = RelPath::new(path).map_err(|e| unclear(list, e))?;
        let kind = match contents.entries.get(path.as_str()) {
            Some(kind) => *kind,
            None if entry.path_type == PathType::Directory => continue,
            None => return Err(Fault::Unheld { path: shown, list: list.to_owned() }),
        };
        if let EntryKind::File { size, sha256, .. } = kind {
            if entry.path_type == PathType::HardLink {
                check_content(&path, entry, *size, sha256, list)?;
            }
            if let Some(prefix) = &entry.prefix_placeholder {
                if prefix.placeholder.is_empty() || prefix.placeholder.contains('\0') {
                    return Err(unclear(list, format!("`{path}` has no usable placeholder")));
                }
                meta.relocations.push(Relocation {
                    path: path.clone(),
                    placeholder: prefix.placeholder.clone(),
                    binary: prefix.file_mode == FileMode::Binary,
                });
            }
        }
        listed.insert(path.to_string());
    }
    meta.relocations.sort_by(|a, b| a.path.cmp(&b.path));
    if let Some(twice) = meta.relocations.windows(2).find(|w| w[0].path == w[1].path) {
        return Err(unclear(list, format!("`{}` is listed twice", twice[0].path)));
    }
    Ok(listed)
}

fn check_content(
    path: &RelPath,
    entry: &PathsEntry,
    size: u64,
    sha256: &Sha256,
    list: &str,
) -> Result<(), Fault> {
    if let Some(expected) = entry.size_in_bytes
        && expected != size
    {
        return Err(Fault::Length { path: path.clone(), expected, found: size });
    }
    if let Some(expected) = &entry.sha256
        && expected.as_slice() != sha256.as_bytes()
    {
        return Err(Fault::Content {
            path: path.clone(),
            list: list.to_owned(),
            expected: data_encoding::HEXLOWER.encode(expected),
            found: sha256.to_string(),
        });
    }
    Ok(())
}

/// Entry points of `noarch: python`, as they stand there; whoever writes the scripts judges
/// them.
fn entry_points(contents: &Contents<'_>) -> Result<Vec<String>, Fault> {
    #[derive(serde::Deserialize)]
    struct Link {
        noarch: Option<Noarch>,
    }
    #[derive(serde::Deserialize)]
    struct Noarch {
        #[serde(default)]
        entry_points: Option<Vec<String>>,
    }
    let Some(bytes) = contents.file(LINK)? else { return Ok(Vec::new()) };
    let link: Link = serde_json::from_slice(&bytes).map_err(|e| unclear(LINK, e))?;
    let mut points = link.noarch.and_then(|n| n.entry_points).unwrap_or_default();
    for point in &mut points {
        *point = point.trim().to_owned();
    }
    points.sort();
    points.dedup();
    Ok(points)
}

/// Scripts that conda would run when it links or unlinks the package.
fn link_scripts(contents: &Contents<'_>, name: &str) -> Result<Vec<RelPath>, Fault> {
    let mut scripts = Vec::new();
    for when in ["post-link", "pre-link", "pre-unlink"] {
        let path = format!("bin/.{name}-{when}.sh");
        if contents.has_file(&path) {
            scripts.push(RelPath::new(&path)?);
        }
    }
    Ok(scripts)
}
