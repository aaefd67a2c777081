//! Makes a planned view on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use rayon::prelude::*;

use super::content::{self, Content};
use super::manifest::{self, ViewManifest};
use super::plan::{Op, OpKind, Plan, Relocate};
use super::relocate;
use crate::error::{Exit, Report};
use crate::fs::{self, FsError};
use crate::hash::Sha256;
use crate::relpath::RelPath;

pub use crate::fs::Rung;

/// Where a view is built, and what it will be.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The path that the view will have: written into its files. Absolute, UTF-8.
    pub final_prefix: &'a Path,
    /// The directory to build in; created here, and renamed to `final_prefix` by the caller.
    /// On the file system of the store's packages.
    pub staging: &'a Path,
    /// The interpreter of the machine (`[host] python`): no virtual environment's.
    pub host_python: Option<&'a Path>,
}

/// What was built.
#[derive(Clone, Debug)]
pub struct BuildReport {
    /// The view hash.
    pub view_hash: Sha256,
    /// The rung of the link ladder that this file system allows; on the last, only ELF files and
    /// executables are copied, and the rest are symbolic links.
    pub rung: Rung,
    /// Files made by each rung; single files step down where one has too many links.
    pub files: BTreeMap<Rung, usize>,
    /// Directories that are one link.
    pub folded: usize,
    /// What the user should hear of, sorted.
    pub notes: Vec<BuildNote>,
}

/// Something seen while building.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BuildNote {
    /// A binary file holds placeholders in text that no NUL ends; they were filled up with
    /// slashes.
    Unterminated {
        /// The package.
        package: String,
        /// The file.
        path: RelPath,
        /// How many.
        count: usize,
    },
    /// A `kernel.json` that is none; it is left as it is.
    BadKernelspec {
        /// The package.
        package: String,
        /// The file.
        path: RelPath,
    },
    /// A file is declared to hold a placeholder and does not.
    NoPlaceholder {
        /// The package.
        package: String,
        /// The file.
        path: RelPath,
    },
}

impl std::fmt::Display for BuildNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BuildNote::Unterminated { package, path, count } => write!(
                f,
                "{package}: {path} holds its prefix {count} times in text without an end; filled up with slashes"
            ),
            BuildNote::BadKernelspec { package, path } => {
                write!(f, "{package}: {path} is no kernel specification of Jupyter")
            }
            BuildNote::NoPlaceholder { package, path } => {
                write!(f, "{package}: {path} is said to hold a prefix placeholder and does not")
            }
        }
    }
}

/// Why a view was not built. The staging directory may hold a part of it.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A path given is not absolute or not UTF-8.
    #[error("a view cannot be at {0:?}: an absolute path in UTF-8 is needed")]
    BadPrefix(PathBuf),
    /// The view's path does not fit where a package's placeholder is. Found before anything is
    /// written.
    #[error(
        "the view's path is too long for {package}: {path} has room for {limit} bytes, and \
         {prefix:?} has {found}"
    )]
    PrefixTooLong {
        /// The package with the least room.
        package: String,
        /// The file.
        path: RelPath,
        /// Bytes of its placeholder.
        limit: usize,
        /// Bytes of the view's path.
        found: usize,
        /// The view's path.
        prefix: String,
    },
    /// The plan needs an interpreter of the machine, and none is given.
    #[error("the view is for the machine's Python, and none was found")]
    NoHostPython,
    /// `info/index.json` of a conda package cannot be read.
    #[error("{path:?} of {package} is no package metadata: {reason}")]
    BadIndexJson {
        /// The package.
        package: String,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file system refused.
    #[error("the view could not be written")]
    Write(#[from] FsError),
}

impl Report for BuildError {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        match self {
            BuildError::BadPrefix(_) => {
                Some("give the store an absolute path: --store DIR or GPUENV_STORE".into())
            }
            BuildError::PrefixTooLong { found, limit, .. } => Some(format!(
                "put the store at a path shorter by {} bytes: --store DIR or GPUENV_STORE",
                found - limit
            )),
            BuildError::NoHostPython => Some("install the interpreter named in [host]".into()),
            BuildError::BadIndexJson { package, .. } => {
                Some(format!("the archive of {package} is damaged; ask its channel"))
            }
            BuildError::Write(error) if error.is_missing() => {
                Some("a package is missing from the store; run the same command again".into())
            }
            BuildError::Write(error) => error.hint(),
        }
    }
}

/// Builds `plan` in `target.staging`. Deterministic: the same plan and prefix give the same tree,
/// in modes and times too. Directories are read-only when it is done, except the topmost: a
/// directory that is not writable cannot be renamed into another one;
/// [`crate::store::Store::publish_env`] makes it so.
///
/// Nothing is synced; whoever publishes the view does that.
///
/// # Errors
///
/// See [`BuildError`]; a prefix that is too long is found before anything is written.
pub fn build(plan: &Plan, target: &Target<'_>) -> Result<BuildReport, BuildError> {
    let prefix = target.final_prefix.to_str().filter(|_| target.final_prefix.is_absolute());
    let prefix = prefix.ok_or_else(|| BuildError::BadPrefix(target.final_prefix.to_owned()))?;
    check_prefix(plan, prefix)?;
    if target.host_python.is_none()
        && plan.ops.iter().any(|op| matches!(op.kind, OpKind::HostPython))
    {
        return Err(BuildError::NoHostPython);
    }

    fs::create_dir(target.staging)?;
    for op in plan.ops.iter().filter(|op| op.kind == OpKind::Dir) {
        fs::create_dir(&op.path.under(target.staging))?;
    }
    let builder = Builder {
        plan,
        target,
        prefix,
        rung: AtomicU8::new(0),
        counts: Default::default(),
        notes: Mutex::default(),
    };
    // One file first, so that what the file system allows is known before many ask.
    let mut files = plan.ops.iter().filter(|op| matches!(op.kind, OpKind::File { real: true, .. }));
    let probe = files.next();
    if let Some(op) = probe {
        builder.make(op)?;
    }
    plan.ops
        .par_iter()
        .filter(|op| probe.is_none_or(|probe| probe.path != op.path))
        .try_for_each(|op| builder.make(op))?;

    let manifest = ViewManifest::of(plan);
    fs::write_new(&target.staging.join(manifest::PATH), manifest.text().as_bytes(), 0o444)?;
    for op in plan.ops.iter().rev().filter(|op| op.kind == OpKind::Dir) {
        seal(&op.path.under(target.staging))?;
    }
    fs::set_times(target.staging)?;

    let [hard, reflink, copy] = builder.counts.map(AtomicCount::get);
    let mut notes = match builder.notes.into_inner() {
        Ok(notes) => notes,
        Err(poisoned) => poisoned.into_inner(),
    };
    notes.sort();
    Ok(BuildReport {
        view_hash: manifest.hash(),
        rung: rung(builder.rung.into_inner()),
        files: [(Rung::HardLink, hard), (Rung::Reflink, reflink), (Rung::Copy, copy)]
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .collect(),
        folded: plan.ops.iter().filter(|op| matches!(op.kind, OpKind::Fold { .. })).count(),
        notes,
    })
}

/// Gives a finished directory its times and makes it read-only.
fn seal(dir: &Path) -> fs::Result<()> {
    fs::set_times(dir)?;
    fs::set_mode(dir, 0o555)
}

fn mode(executable: bool) -> u32 {
    if executable { 0o555 } else { 0o444 }
}

/// Whether a prefix fits into every binary placeholder of the plan.
fn check_prefix(plan: &Plan, prefix: &str) -> Result<(), BuildError> {
    let tightest = plan
        .ops
        .iter()
        .filter_map(|op| match &op.kind {
            OpKind::Relocated { package, how: Relocate::Binary { placeholder }, .. } => {
                Some((placeholder.len(), &op.path, *package))
            }
            _ => None,
        })
        .min();
    match tightest {
        Some((limit, path, package)) if limit < prefix.len() => Err(BuildError::PrefixTooLong {
            package: plan.packages[package].name.clone(),
            path: path.clone(),
            limit,
            found: prefix.len(),
            prefix: prefix.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The rung of a number in [`Builder::rung`].
fn rung(number: u8) -> Rung {
    match number {
        0 => Rung::HardLink,
        1 => Rung::Reflink,
        _ => Rung::Copy,
    }
}

#[derive(Default)]
struct AtomicCount(std::sync::atomic::AtomicUsize);

impl AtomicCount {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn get(self) -> usize {
        self.0.into_inner()
    }
}

struct Builder<'a> {
    plan: &'a Plan,
    target: &'a Target<'a>,
    prefix: &'a str,
    rung: AtomicU8,
    counts: [AtomicCount; 3],
    notes: Mutex<Vec<BuildNote>>,
}

impl Builder<'_> {
    fn make(&self, op: &Op) -> Result<(), BuildError> {
        let to = op.path.under(self.target.staging);
        match &op.kind {
            OpKind::Dir => {}
            OpKind::Fold { package, from } => {
                fs::symlink(from.under(&self.plan.packages[*package].store_path), &to)?;
            }
            OpKind::File { package, from, executable, real, .. } => {
                let from = from.under(&self.plan.packages[*package].store_path);
                self.link(&from, &to, *executable, *real)?;
            }
            OpKind::Symlink { target } => fs::symlink(target, &to)?,
            OpKind::HostPython => {
                let python = self.target.host_python.ok_or(BuildError::NoHostPython)?;
                fs::symlink(python, &to)?;
            }
            OpKind::Relocated { package, from, executable, how, .. } => {
                let bytes = fs::read(&from.under(&self.plan.packages[*package].store_path))?;
                let bytes = self.relocated(op, *package, how, &bytes)?;
                fs::write_new(&to, &bytes, mode(*executable))?;
            }
            OpKind::Generated { content, executable } => {
                fs::write_new(&to, &self.render(content)?, mode(*executable))?;
            }
        }
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path, executable: bool, real: bool) -> Result<(), BuildError> {
        let mut rung = self::rung(self.rung.load(Ordering::Relaxed));
        if rung == Rung::HardLink {
            if fs::hard_link(from, to)? {
                self.counts[0].add();
                return Ok(());
            }
            // The first file of all tells what the file system allows. A later one has its own
            // reason, such as too many links, and steps down alone.
            if self.counts[0].0.load(Ordering::Relaxed) == 0 {
                self.rung.fetch_max(1, Ordering::Relaxed);
            }
            rung = Rung::Reflink;
        }
        if rung == Rung::Reflink {
            if fs::reflink(from, to, mode(executable))? {
                self.counts[1].add();
                return Ok(());
            }
            if self.rung.load(Ordering::Relaxed) == 1 {
                self.rung.fetch_max(2, Ordering::Relaxed);
            }
        }
        if real {
            fs::copy(from, to, mode(executable))?;
        } else {
            fs::symlink(from, to)?;
        }
        self.counts[2].add();
        Ok(())
    }

    fn relocated(
        &self,
        op: &Op,
        package: usize,
        how: &Relocate,
        bytes: &[u8],
    ) -> Result<Vec<u8>, BuildError> {
        let name = || self.plan.packages[package].name.clone();
        let note = |note| {
            if let Ok(mut notes) = self.notes.lock() {
                notes.push(note);
            }
        };
        let out = match how {
            Relocate::Text { placeholder } => relocate::text(bytes, placeholder, self.prefix),
            Relocate::Binary { placeholder } => {
                let done = relocate::binary(bytes, placeholder, self.prefix).map_err(|_| {
                    BuildError::PrefixTooLong {
                        package: name(),
                        path: op.path.clone(),
                        limit: placeholder.len(),
                        found: self.prefix.len(),
                        prefix: self.prefix.to_owned(),
                    }
                })?;
                let count = done.unterminated.len();
                if count > 0 {
                    note(BuildNote::Unterminated { package: name(), path: op.path.clone(), count });
                }
                done.bytes
            }
            Relocate::Kernelspec { placeholder } => {
                let text = match placeholder {
                    Some(placeholder) => relocate::text(bytes, placeholder, self.prefix),
                    None => bytes.to_vec(),
                };
                return Ok(relocate::kernelspec(&text, self.prefix).unwrap_or_else(|| {
                    note(BuildNote::BadKernelspec { package: name(), path: op.path.clone() });
                    text
                }));
            }
            Relocate::PythonShebang => {
                return Ok(relocate::python_shebang(bytes, &self.python()));
            }
        };
        if out == bytes {
            note(BuildNote::NoPlaceholder { package: name(), path: op.path.clone() });
        }
        Ok(out)
    }

    fn python(&self) -> PathBuf {
        self.target.final_prefix.join("bin/python")
    }

    fn render(&self, content: &Content) -> Result<Vec<u8>, BuildError> {
        Ok(match content {
            Content::Text(text) => text.clone().into_bytes(),
            Content::PythonScript { body } => {
                content::python_script(&self.python(), "", body.as_bytes())
            }
            Content::RunScript(script) => script.render(self.prefix).into_bytes(),
            Content::PyvenvCfg => {
                let python = self.target.host_python.ok_or(BuildError::NoHostPython)?;
                let home = python.parent().unwrap_or(Path::new("/"));
                content::pyvenv_cfg(home).into_bytes()
            }
            Content::CondaMeta { package, .. } => {
                let package = &self.plan.packages[*package];
                let path = package.store_path.join("info/index.json");
                let bad = |reason: String| BuildError::BadIndexJson {
                    package: package.name.clone(),
                    path: path.clone(),
                    reason,
                };
                let index = serde_json::from_slice(&fs::read(&path)?);
                let index = index.map_err(|error| bad(error.to_string()))?;
                content.conda_meta(index).map_err(|error| bad(error.to_string()))?.into_bytes()
            }
        })
    }
}

/// What is wrong with a view that was built earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stale {
    /// There is no view.
    Missing,
    /// There is a directory without a manifest, or with one that cannot be read.
    NoManifest,
    /// It is of another format than this program's.
    Format {
        /// The number it says.
        found: String,
    },
    /// It is of another plan, or was changed.
    Hash {
        /// The hash that the plan gives.
        expected: Sha256,
        /// The hash of the manifest there.
        found: Sha256,
    },
    /// It is for another interpreter of the machine.
    HostPython {
        /// The interpreter meant now.
        expected: PathBuf,
        /// The one it has.
        found: PathBuf,
    },
    /// The interpreter it is for is gone.
    HostPythonGone(PathBuf),
}

impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stale::Missing => f.write_str("it was not built yet"),
            Stale::NoManifest => f.write_str("it holds no readable manifest"),
            Stale::Format { found } => {
                write!(f, "its manifest has format {found}, expected {}", ViewManifest::FORMAT)
            }
            Stale::Hash { expected, found } => {
                write!(f, "its view hash is {found}, expected {expected}")
            }
            Stale::HostPython { expected, found } => {
                write!(f, "it runs {}, expected {}", found.display(), expected.display())
            }
            Stale::HostPythonGone(path) => {
                write!(f, "its interpreter {} is gone", path.display())
            }
        }
    }
}

/// Whether the view at `view` is whole, as far as its manifest says, and is the one expected.
/// A few system calls; what the files hold is for verification.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_fresh(
    view: &Path,
    expected: Option<&Sha256>,
    host_python: Option<&Path>,
) -> Result<Sha256, Stale> {
    if !view.is_dir() {
        return Err(Stale::Missing);
    }
    let text = fs::read(&view.join(manifest::PATH)).map_err(|_| Stale::NoManifest)?;
    let head = text.split(|b| *b == b'\n').next().unwrap_or_default();
    match head.strip_prefix(b"gpuenv-view\t").map(String::from_utf8_lossy) {
        None => return Err(Stale::NoManifest),
        Some(found) if found != ViewManifest::FORMAT.to_string() => {
            return Err(Stale::Format { found: found.chars().take(20).collect() });
        }
        Some(_) => {}
    }
    let found = Sha256::of(&text);
    if let Some(expected) = expected.filter(|expected| **expected != found) {
        return Err(Stale::Hash { expected: *expected, found });
    }
    if let Ok(python) = fs::read_link(&view.join("bin/python"))
        && python.is_absolute()
    {
        if let Some(expected) = host_python.filter(|expected| *expected != python) {
            return Err(Stale::HostPython { expected: expected.to_owned(), found: python });
        }
        if !python.exists() {
            return Err(Stale::HostPythonGone(python));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
