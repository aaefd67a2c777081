//! Where the files of a wheel go (binary distribution format; recording installed projects).

use super::claim::{Claim, Claims, PackageInput, What};
use super::{PlanError, PythonLayout, Relocate};
use crate::hash::Sha256;
use crate::package::{EntryKind, WheelMeta};
use crate::relpath::RelPath;
use crate::view::content::{Content, base64_url};
use crate::view::entry_point::EntryPoint;
use crate::view::finding::Finding;

/// One wheel.
pub(super) struct Context<'a> {
    pub index: usize,
    pub package: &'a PackageInput<'a>,
    pub meta: &'a WheelMeta,
    pub python: &'a PythonLayout,
}

/// Files of `.dist-info` that an installer writes itself. Signatures of the archive's own
/// `RECORD` say nothing of the installed one.
const OURS: [&str; 6] =
    ["RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json"];

impl Context<'_> {
    /// Claims its files.
    pub fn claim(&self, claims: &mut Claims, findings: &mut Vec<Finding>) -> Result<(), PlanError> {
        let record = self.package.record;
        let owner = Some(self.index);
        for entry in &record.entries {
            let Some(path) = self.place(&entry.path)? else { continue };
            let from = entry.path.clone();
            let what = match &entry.kind {
                EntryKind::Dir => What::Dir,
                EntryKind::Symlink { target } => What::PackageLink { from, target: target.clone() },
                EntryKind::File { sha256, size, executable } => {
                    // Zip archives made elsewhere carry no modes: a script is one by its place.
                    let executable = *executable || self.is_script(&from);
                    if self.meta.python_scripts.contains(&from) {
                        let how = Relocate::PythonShebang;
                        What::Relocated { from, sha256: *sha256, executable, how }
                    } else {
                        What::File { from, sha256: *sha256, size: *size, executable }
                    }
                }
            };
            claims.add(path, Claim { owner, what });
        }
        for text in self.meta.console_scripts.iter().chain(&self.meta.gui_scripts) {
            match EntryPoint::parse(text) {
                Ok(entry) => {
                    let path = RelPath::new(&format!("bin/{}", entry.name));
                    let path = path.map_err(PlanError::bad_path)?;
                    let content = Content::PythonScript { body: entry.script() };
                    let what = What::Generated { content, executable: true };
                    claims.add(path, Claim { owner, what });
                }
                Err(reason) => findings.push(Finding::BadEntryPoint {
                    package: record.name.clone(),
                    text: text.clone(),
                    reason,
                }),
            }
        }
        let mut info = |name: &str, text: String| -> Result<(), PlanError> {
            let path = self.python.site.push(&self.meta.dist_info).map_err(PlanError::bad_path)?;
            let path = path.push(name).map_err(PlanError::bad_path)?;
            let what = What::Generated { content: Content::Text(text), executable: false };
            claims.add(path, Claim { owner, what });
            Ok(())
        };
        info("INSTALLER", "gpuenv\n".into())?;
        if self.package.root {
            info("REQUESTED", String::new())?;
        }
        if let Some(direct) = &self.package.direct_url {
            let json = serde_json::json!({
                "archive_info": { "hashes": { "sha256": record.sha256.to_string() } },
                "url": direct.url,
            });
            info("direct_url.json", format!("{json}\n"))?;
        }
        Ok(())
    }

    /// The part of `.data` that a file is in, and the rest of its path.
    fn data<'p>(&self, from: &'p RelPath) -> Option<(&'p str, &'p str)> {
        let rest = from.as_str().strip_prefix(self.meta.data.as_deref()?)?.strip_prefix('/')?;
        Some(rest.split_once('/').unwrap_or((rest, "")))
    }

    fn is_script(&self, from: &RelPath) -> bool {
        matches!(self.data(from), Some(("scripts", rest)) if !rest.is_empty())
    }

    /// Where a file of the tree goes; `None` for one that is not installed.
    fn place(&self, from: &RelPath) -> Result<Option<RelPath>, PlanError> {
        let site = &self.python.site;
        if self.meta.data.as_deref() == Some(from.as_str()) {
            return Ok(None);
        }
        if let Some((kind, rest)) = self.data(from) {
            let (major, minor) = self.python.version;
            let base = match kind {
                "purelib" | "platlib" => site.to_string(),
                "scripts" => "bin".to_owned(),
                "headers" => format!("include/python{major}.{minor}/{}", self.package.record.name),
                "data" if rest.is_empty() => return Ok(None),
                "data" => return RelPath::new(rest).map(Some).map_err(PlanError::bad_path),
                _ => {
                    return Err(PlanError::UnknownScheme {
                        package: self.package.record.name.clone(),
                        path: from.clone(),
                        scheme: kind.to_owned(),
                    });
                }
            };
            let path = if rest.is_empty() { base } else { format!("{base}/{rest}") };
            return RelPath::new(&path).map(Some).map_err(PlanError::bad_path);
        }
        if let Some(name) = from.as_str().strip_prefix(&self.meta.dist_info)
            && let Some(name) = name.strip_prefix('/')
            && OURS.contains(&name)
        {
            return Ok(None);
        }
        site.push(from.as_str()).map(Some).map_err(PlanError::bad_path)
    }
}

/// The text of `RECORD`: CSV of path relative to the site directory, hash and size, sorted by
/// path in the view. Files that hold the view's own path have neither hash nor size, which the
/// specification allows, so that the text is the same in every store.
pub(super) fn record<'a>(
    site: &RelPath,
    itself: &RelPath,
    files: impl Iterator<Item = (&'a RelPath, &'a What)>,
) -> String {
    let mut lines: Vec<(&RelPath, String)> = files
        .map(|(path, what)| {
            let known = match what {
                What::File { sha256, size, .. } => Some((*sha256, *size)),
                What::Generated { content: Content::Text(text), .. } => {
                    Some((Sha256::of(text), text.len() as u64))
                }
                _ => None,
            };
            let rest = match known {
                Some((sha256, size)) => {
                    format!("sha256={},{size}", base64_url(sha256.as_bytes()))
                }
                None => ",".to_owned(),
            };
            (path, rest)
        })
        .collect();
    lines.push((itself, ",".to_owned()));
    lines.sort();
    let mut text = String::new();
    for (path, rest) in lines {
        let relative = relative_to(site, path);
        if relative.contains([',', '"']) {
            text += &format!("\"{}\",{rest}\n", relative.replace('"', "\"\""));
        } else {
            text += &format!("{relative},{rest}\n");
        }
    }
    text
}

/// `path` as seen from the directory `site`, both of one tree.
pub(super) fn relative_to(site: &RelPath, path: &RelPath) -> String {
    let (site, path): (Vec<_>, Vec<_>) = (site.components().collect(), path.components().collect());
    let shared = site.iter().zip(&path).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..", site.len() - shared);
    up.chain(path[shared..].iter().copied()).collect::<Vec<_>>().join("/")
}
