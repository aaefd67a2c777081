//! Where the files of a conda package go.

use std::collections::BTreeMap;

use super::claim::{Claim, Claims, PackageInput, What};
use super::{PlanError, PythonLayout, Relocate};
use crate::manifest::ViewOptions;
use crate::package::{CondaMeta, EntryKind};
use crate::relpath::RelPath;
use crate::view::content::{CondaFile, CondaFileType, Content};
use crate::view::entry_point::EntryPoint;
use crate::view::finding::Finding;

/// One conda package.
pub(super) struct Context<'a> {
    pub index: usize,
    pub package: &'a PackageInput<'a>,
    pub meta: &'a CondaMeta,
    pub python: Option<&'a PythonLayout>,
}

impl Context<'_> {
    /// Claims its files.
    pub fn claim(
        &self,
        options: &ViewOptions,
        claims: &mut Claims,
        findings: &mut Vec<Finding>,
    ) -> Result<(), PlanError> {
        let record = self.package.record;
        for script in &self.meta.link_scripts {
            // `pre-unlink` scripts undo in a mutable environment what a view never needs undone.
            let name = script.file_name();
            if !name.ends_with("-post-link.sh") && !name.ends_with("-pre-link.sh") {
                continue;
            }
            let package = record.name.clone();
            let script = script.clone();
            if !options.skip_link_scripts.contains(&package) {
                return Err(PlanError::LinkScript { package, script });
            }
            findings.push(Finding::LinkScriptSkipped { package, script });
        }
        let relocations: BTreeMap<_, _> =
            self.meta.relocations.iter().map(|r| (&r.path, r)).collect();
        for entry in &record.entries {
            if entry.path.as_str() == "info" || entry.path.as_str().starts_with("info/") {
                continue;
            }
            // What the package's own list leaves out, no installer of conda links.
            if self.meta.unlisted.binary_search(&entry.path).is_ok() {
                continue;
            }
            let path = self.place(&entry.path)?;
            let from = entry.path.clone();
            let what = match (&entry.kind, relocations.get(&entry.path)) {
                (EntryKind::Dir, _) => What::Dir,
                (EntryKind::Symlink { target }, _) => {
                    What::PackageLink { from, target: target.clone() }
                }
                (EntryKind::File { sha256, size, executable }, None) => {
                    let (sha256, size, executable) = (*sha256, *size, *executable);
                    What::File { from, sha256, size, executable }
                }
                (EntryKind::File { sha256, executable, .. }, Some(relocation)) => {
                    let placeholder = relocation.placeholder.clone();
                    let how = match relocation.binary {
                        true => Relocate::Binary { placeholder },
                        false => Relocate::Text { placeholder },
                    };
                    What::Relocated { from, sha256: *sha256, executable: *executable, how }
                }
            };
            claims.add(path, Claim { owner: Some(self.index), what });
        }
        for text in &self.meta.entry_points {
            self.python()?;
            match EntryPoint::parse(text) {
                Ok(entry) => {
                    let path = RelPath::new(&format!("bin/{}", entry.name));
                    let path = path.map_err(PlanError::bad_path)?;
                    let content = Content::PythonScript { body: entry.script() };
                    let what = What::Generated { content, executable: true };
                    claims.add(path, Claim { owner: Some(self.index), what });
                }
                Err(reason) => findings.push(Finding::BadEntryPoint {
                    package: record.name.clone(),
                    text: text.clone(),
                    reason,
                }),
            }
        }
        Ok(())
    }

    fn python(&self) -> Result<&PythonLayout, PlanError> {
        self.python.ok_or_else(|| PlanError::NoPython { package: self.package.record.name.clone() })
    }

    /// Where a file of the tree goes: `noarch: python` packages leave the site directory open.
    fn place(&self, from: &RelPath) -> Result<RelPath, PlanError> {
        if self.meta.noarch_python {
            let (head, rest) = from.as_str().split_once('/').unwrap_or((from.as_str(), ""));
            let moved = match head {
                "site-packages" if rest.is_empty() => Some(self.python()?.site.to_string()),
                "site-packages" => Some(format!("{}/{rest}", self.python()?.site)),
                "python-scripts" => Some(format!("bin/{rest}")),
                _ => None,
            };
            if let Some(moved) = moved {
                return RelPath::new(&moved).map_err(PlanError::bad_path);
            }
        }
        Ok(from.clone())
    }
}

/// `conda-meta/<name>-<version>-<build>.json`: what conda calls a prefix record.
pub(super) fn prefix_record<'a>(
    index: usize,
    package: &PackageInput<'_>,
    files: impl Iterator<Item = (&'a RelPath, &'a What)>,
) -> Content {
    let record = package.record;
    let files = files
        .map(|(path, what)| {
            let (kind, sha256, size) = match what {
                What::PackageLink { .. } | What::Symlink { .. } => {
                    (CondaFileType::Softlink, None, None)
                }
                What::File { sha256, size, .. } => {
                    (CondaFileType::Hardlink, Some(*sha256), Some(*size))
                }
                What::Relocated { how: Relocate::Text { placeholder }, sha256, .. } => (
                    CondaFileType::Relocated { placeholder: placeholder.clone(), binary: false },
                    Some(*sha256),
                    None,
                ),
                What::Relocated { how: Relocate::Binary { placeholder }, sha256, .. } => (
                    CondaFileType::Relocated { placeholder: placeholder.clone(), binary: true },
                    Some(*sha256),
                    None,
                ),
                What::Relocated {
                    how: Relocate::PythonShebang | Relocate::Kernelspec { .. },
                    sha256,
                    ..
                } => (CondaFileType::Hardlink, Some(*sha256), None),
                What::Generated { .. } | What::HostPython | What::Dir => {
                    (CondaFileType::EntryPoint, None, None)
                }
            };
            CondaFile { path: path.clone(), kind, sha256, size }
        })
        .collect();
    Content::CondaMeta {
        package: index,
        file: record.file.clone(),
        sha256: record.sha256,
        size: record.size,
        channel: package.channel.unwrap_or_default().to_owned(),
        channel_url: package.channel_url.map(str::to_owned),
        requested: package.root,
        files,
    }
}
