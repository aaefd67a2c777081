//! What a view will hold, decided before anything is written. Pure: records in, operations out.
//!
//! Each package first *claims* paths ([`conda`], [`wheel`]); claims on one path are settled
//! here; then what may be one link to a package's directory is folded ([`fold`]), and the
//! libraries that the loader would not find are listed ([`super::farm`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rattler_conda_types::Subdir as Platform;

use super::content::Content;
use super::farm;
use super::finding::{Finding, Place};
use super::links::Links;
use crate::hash::Sha256;
use crate::manifest::ViewOptions;
use crate::package::{Meta, PackageRecord};
use crate::relpath::RelPath;

mod claim;
mod conda;
mod error;
mod fold;
mod wheel;

#[cfg(test)]
mod tests;

pub use claim::{DirectUrl, PackageInput};
pub use error::{Conflict, PlanError};

use claim::{Claim, Claims, What};

/// All that decides a view.
#[derive(Clone, Debug)]
pub struct PlanInput<'a> {
    /// Name of the environment, for prompts and messages.
    pub name: &'a str,
    /// The target.
    pub platform: Platform,
    /// The packages in link order.
    pub packages: &'a [PackageInput<'a>],
    /// The declared interpreter of the machine, `(major, minor)`; `None` with conda's Python or
    /// none at all.
    pub host_python: Option<(u32, u32)>,
    /// `[view]`.
    pub options: &'a ViewOptions,
    /// `[activation.env]`.
    pub activation_env: &'a BTreeMap<String, String>,
}

/// Where Python's modules live in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonLayout {
    /// `(major, minor)`.
    pub version: (u32, u32),
    /// The one site directory, such as `lib/python3.11/site-packages`.
    pub site: RelPath,
    /// Where the interpreter comes from.
    pub origin: PythonOrigin,
}

/// Where an interpreter comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PythonOrigin {
    /// The package of this index.
    Conda(usize),
    /// The machine (`[host] python`).
    Host,
}

/// One thing to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Where in the view.
    pub path: RelPath,
    /// What.
    pub kind: OpKind,
}

/// The things a view is made of. `package` is an index into [`Plan::packages`], `from` a path in
/// that package's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// A real directory.
    Dir,
    /// One symbolic link to a directory of a package ("folded").
    Fold {
        /// The package.
        package: usize,
        /// The directory there.
        from: RelPath,
    },
    /// A file of a package, unchanged.
    File {
        /// The package.
        package: usize,
        /// The file there.
        from: RelPath,
        /// Digest of its content.
        sha256: Sha256,
        /// Mode 0555 rather than 0444.
        executable: bool,
        /// An ELF file or an executable: never a symbolic link, whatever the file system offers.
        real: bool,
    },
    /// A symbolic link with this text.
    Symlink {
        /// Its text.
        target: String,
    },
    /// A symbolic link to the interpreter of the machine.
    HostPython,
    /// A file of a package with the view's path in place of a placeholder.
    Relocated {
        /// The package.
        package: usize,
        /// The file there.
        from: RelPath,
        /// Digest of its content before.
        sha256: Sha256,
        /// Mode 0555 rather than 0444.
        executable: bool,
        /// What is replaced.
        how: Relocate,
    },
    /// A file that no package holds.
    Generated {
        /// What it says.
        content: Content,
        /// Mode 0555 rather than 0444.
        executable: bool,
    },
}

/// What is replaced in a relocated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relocate {
    /// A conda placeholder, wherever it stands (`paths.json`, file mode `text`).
    Text {
        /// The placeholder.
        placeholder: String,
    },
    /// A conda placeholder in NUL-terminated strings; the length is kept (file mode `binary`).
    Binary {
        /// The placeholder.
        placeholder: String,
    },
    /// A kernel of Jupyter (`kernel.json`): a Python that it starts is started through the view's
    /// own `share/gpuenv/run`, for Jupyter may run outside of the environment.
    Kernelspec {
        /// A conda placeholder to replace first.
        placeholder: Option<String>,
    },
    /// A first line `#!python` or `#!pythonw` of a wheel's script (binary distribution format,
    /// "Recommended installer features").
    PythonShebang,
}

/// A package of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanPackage {
    /// Its name, for messages.
    pub name: String,
    /// Its tree in the store.
    pub store_path: PathBuf,
    /// Digest of the artifact.
    pub sha256: Sha256,
    /// NAR hash of the tree.
    pub nar: Sha256,
}

/// A view, ready to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The packages, in link order.
    pub packages: Vec<PlanPackage>,
    /// What to make, sorted by path; a directory stands before what is in it.
    pub ops: Vec<Op>,
    /// What is worth saying.
    pub findings: Vec<Finding>,
    /// Python's place, if there is a Python.
    pub python: Option<PythonLayout>,
    /// Whether `ld/` holds anything, and so `LD_LIBRARY_PATH` is set.
    pub ld: bool,
}

/// Paths that gpuenv itself writes; a package that claims one is refused as a conflict.
pub(super) const OWN_DIR: &str = "share/gpuenv";
/// The link farm.
pub(super) const LD_DIR: &str = "ld";
/// Directories that are never one link, so that they are the same in every view.
const NEVER_FOLDED: [&str; 4] = ["bin", "sbin", "conda-meta", LD_DIR];

/// Plans a view.
///
/// # Errors
///
/// Two packages that give one path different content; a package that needs Python where there
/// is none; a link script that is not knowingly skipped; one soname needed in `ld/` from two
/// packages.
pub fn plan(input: &PlanInput<'_>) -> Result<Plan, PlanError> {
    let python = python_layout(input)?;
    let mut findings = Vec::new();
    let mut claims = Claims::default();
    for (index, package) in input.packages.iter().enumerate() {
        match &package.record.meta {
            Meta::Conda(meta) => {
                let conda = conda::Context { index, package, meta, python: python.as_ref() };
                conda.claim(input.options, &mut claims, &mut findings)?;
            }
            Meta::Wheel(meta) => {
                let python = python
                    .as_ref()
                    .ok_or_else(|| PlanError::NoPython { package: package.record.name.clone() })?;
                let wheel = wheel::Context { index, package, meta, python };
                wheel.claim(&mut claims, &mut findings)?;
            }
        }
    }
    generated(input, python.as_ref(), &mut claims)?;
    let mut settled = settle(input, claims, &mut findings)?;
    kernelspecs(&mut settled);
    let mut tree = with_records(input, python.as_ref(), settled)?;

    let farm = link_farm(input, python.as_ref(), &tree, &mut findings)?;
    let ld = !farm.is_empty();
    for (name, target) in farm {
        let path = RelPath::new(&format!("{LD_DIR}/{name}")).map_err(PlanError::bad_path)?;
        let what = What::Symlink { target: format!("../{target}") };
        tree.insert(path, Settled::own(what));
    }
    let run = Content::run_script(input, python.as_ref(), ld, tree.keys());
    let what = What::Generated { content: run, executable: true };
    tree.insert(own("run"), Settled::own(what));
    let activation = Content::activation(input, python.as_ref(), ld);
    let what = What::Generated { content: Content::Text(activation), executable: false };
    tree.insert(own("activation.json"), Settled::own(what));

    Ok(Plan {
        packages: input
            .packages
            .iter()
            .map(|package| PlanPackage {
                name: package.record.name.clone(),
                store_path: package.store_path.to_owned(),
                sha256: package.record.sha256,
                nar: package.record.nar,
            })
            .collect(),
        ops: fold::fold(input.packages, tree),
        findings,
        python,
        ld,
    })
}

/// A path below [`OWN_DIR`]; `name` is a constant of this program.
fn own(name: &str) -> RelPath {
    constant(&format!("{OWN_DIR}/{name}"))
}

/// The name of a package in messages and in `[view.winners]`: with its world where both worlds
/// have a package of that name.
fn label(input: &PlanInput<'_>, index: usize) -> String {
    let name = &input.packages[index].record.name;
    match input.packages.iter().filter(|p| p.record.name == *name).count() {
        0 | 1 => name.clone(),
        _ => format!("{}:{name}", world(input, index)),
    }
}

fn world(input: &PlanInput<'_>, index: usize) -> &'static str {
    match input.packages[index].record.meta {
        Meta::Conda(_) => "conda",
        Meta::Wheel(_) => "pypi",
    }
}

/// Whether `text` means this package: its name, or `conda:NAME`, `pypi:NAME`.
fn is_named(input: &PlanInput<'_>, index: usize, text: &str) -> bool {
    let name = &input.packages[index].record.name;
    let rest = text.strip_prefix(world(input, index)).and_then(|t| t.strip_prefix(':'));
    rest.unwrap_or(text) == name
}

/// A path that this program itself writes down.
fn constant(text: &str) -> RelPath {
    // A constant that is no path is a bug, and one that every test meets.
    RelPath::new(text).unwrap_or_else(|error| unreachable!("{error}"))
}

/// The Python that the packages will run on.
fn python_layout(input: &PlanInput<'_>) -> Result<Option<PythonLayout>, PlanError> {
    if let Some(version) = input.host_python {
        let site = format!("lib/python{}.{}/site-packages", version.0, version.1);
        let site = RelPath::new(&site).map_err(PlanError::bad_path)?;
        return Ok(Some(PythonLayout { version, site, origin: PythonOrigin::Host }));
    }
    for (index, package) in input.packages.iter().enumerate() {
        let Meta::Conda(meta) = &package.record.meta else { continue };
        if package.record.name != "python" {
            continue;
        }
        let bad = || PlanError::PythonVersion { found: package.record.version.clone() };
        let mut parts = package.record.version.split('.');
        let mut number = || parts.next().and_then(|p| p.parse().ok()).ok_or_else(bad);
        let version = (number()?, number()?);
        let site = match &meta.site_packages_path {
            Some(path) => path.clone(),
            None => format!("lib/python{}.{}/site-packages", version.0, version.1),
        };
        let site = RelPath::new(&site).map_err(PlanError::bad_path)?;
        let origin = PythonOrigin::Conda(index);
        return Ok(Some(PythonLayout { version, site, origin }));
    }
    Ok(None)
}

/// Claims what no package holds: the face of a virtual environment, refusals for pip.
fn generated(
    input: &PlanInput<'_>,
    python: Option<&PythonLayout>,
    claims: &mut Claims,
) -> Result<(), PlanError> {
    let text = |content: Content| What::Generated { content, executable: false };
    if let Some(python) = python {
        let (major, minor) = python.version;
        claims.add(python.site.clone(), Claim::own(What::Dir));
        claims.add(
            python.site.push("_gpuenv.pth").map_err(PlanError::bad_path)?,
            Claim::own(text(Content::Text(Content::pycache_pth()))),
        );
        claims.add(
            constant("pip.conf"),
            Claim::own(text(Content::Text(Content::pip_conf(input.name)))),
        );
        match python.origin {
            PythonOrigin::Host => {
                let bin = |name: String| constant(&format!("bin/{name}"));
                claims.add(bin("python".into()), Claim::own(What::HostPython));
                for name in [format!("python{major}"), format!("python{major}.{minor}")] {
                    let what = What::Symlink { target: "python".into() };
                    claims.add(bin(name), Claim::own(what));
                }
                claims.add(constant("pyvenv.cfg"), Claim::own(text(Content::PyvenvCfg)));
                // What `python -m venv` makes, for code that looks in `lib64`.
                if !claims.any_below("lib64") {
                    let what = What::Symlink { target: "lib".into() };
                    claims.add(constant("lib64"), Claim::own(what));
                }
            }
            PythonOrigin::Conda(_) => {
                // PEP 668: the marker lies in the standard library's directory.
                if let Some(stdlib) = python.site.parent() {
                    let path = stdlib.push("EXTERNALLY-MANAGED").map_err(PlanError::bad_path)?;
                    claims.add(
                        path,
                        Claim::own(text(Content::Text(Content::externally_managed(input.name)))),
                    );
                }
            }
        }
    }
    if input.packages.iter().any(|p| matches!(p.record.meta, Meta::Conda(_))) {
        // Its presence is what tells conda that the directory is an environment.
        let empty = text(Content::Text(String::new()));
        claims.add(constant("conda-meta/history"), Claim::own(empty));
    }
    Ok(())
}

/// What stands at a path, after all claims on it were heard.
#[derive(Clone, Debug)]
struct Settled {
    /// Who holds it, in link order; the first is who it is taken from. Empty: gpuenv itself.
    owners: Vec<usize>,
    what: What,
}

impl Settled {
    fn own(what: What) -> Self {
        Settled { owners: Vec::new(), what }
    }
}

/// Settles the claims: equal content is shared, a named winner wins, anything else is refused.
fn settle(
    input: &PlanInput<'_>,
    claims: Claims,
    findings: &mut Vec<Finding>,
) -> Result<BTreeMap<RelPath, Settled>, PlanError> {
    let name = |owner: Option<usize>| match owner {
        Some(index) => label(input, index),
        None => "gpuenv".to_owned(),
    };
    let mut conflicts = Vec::new();
    let mut tree: BTreeMap<RelPath, Settled> = BTreeMap::new();
    let mut dirs: BTreeMap<RelPath, Option<usize>> = BTreeMap::new();
    let mut decided = BTreeSet::new();
    // Paths whose winner is a file or link: what others claim below is dropped.
    let mut cleared: BTreeSet<RelPath> = BTreeSet::new();
    // Paths whose winner has a directory there: what others claim at the path is dropped.
    let by_directory: BTreeSet<RelPath> = (input.options.winners.iter())
        .filter(|(path, winner)| {
            let mut below = claims.below(path.as_str());
            below.any(|c| c.owner.is_some_and(|i| is_named(input, i, winner)))
        })
        .map(|(path, _)| path.clone())
        .collect();

    for (path, mut claims) in claims.into_sorted() {
        if has_ancestor(&path, &cleared) {
            continue;
        }
        if let Some(winner) = input.options.winners.get(&path) {
            let wins = |c: &Claim| c.owner.is_some_and(|i| is_named(input, i, winner));
            if by_directory.contains(&path) && claims.iter().all(|c| c.what != What::Dir) {
                decided.insert(path.clone());
                for loser in claims.iter().filter(|c| !wins(c)) {
                    let (winner, loser) = (winner.clone(), name(loser.owner));
                    findings.push(Finding::Winner { path: path.clone(), winner, loser });
                }
                continue;
            }
            if claims.iter().any(wins) {
                decided.insert(path.clone());
                for loser in claims.iter().filter(|c| !wins(c)) {
                    let (winner, loser) = (winner.clone(), name(loser.owner));
                    findings.push(Finding::Winner { path: path.clone(), winner, loser });
                }
                claims.retain(|c| wins(c));
                if claims.iter().all(|c| c.what != What::Dir) {
                    cleared.insert(path.clone());
                }
            }
        }
        let mut rest = claims.into_iter();
        let Some(first) = rest.next() else { continue };
        let mut settled =
            Settled { owners: first.owner.into_iter().collect(), what: first.what.clone() };
        let mut dropped = false;
        for other in rest {
            if settled.what.same(&other.what) {
                if let Some(owner) = other.owner
                    && !settled.owners.contains(&owner)
                {
                    settled.owners.push(owner);
                }
            } else if other.owner == first.owner && other.what.beats(&settled.what) {
                settled.what = other.what;
            } else if other.owner == first.owner && settled.what.beats(&other.what) {
            } else if is_cache(&path) {
                // A cache of bytecode: two packages' differ where their sources are equal.
                // Python makes its own.
                dropped = true;
            } else {
                conflicts.push(Conflict {
                    path: path.clone(),
                    first: (name(first.owner), settled.what.describe()),
                    second: (name(other.owner), other.what.describe()),
                });
            }
        }
        if dropped {
            continue;
        }
        if settled.what == What::Dir {
            dirs.insert(path, first.owner);
        } else {
            tree.insert(path, settled);
        }
    }

    // A file or link where another needs a directory.
    for (path, settled) in tree.range::<RelPath, _>(..) {
        if let Some(above) = ancestor_in(path, &tree) {
            let there = &tree[&above];
            conflicts.push(Conflict {
                first: (name(there.owners.first().copied()), there.what.describe()),
                second: (name(settled.owners.first().copied()), format!("{path:?} below it")),
                path: above,
            });
        }
    }
    for (path, owner) in dirs {
        let taken = if tree.contains_key(&path) { Some(path.clone()) } else { None };
        if let Some(above) = taken.or_else(|| ancestor_in(&path, &tree)) {
            let there = &tree[&above];
            conflicts.push(Conflict {
                first: (name(there.owners.first().copied()), there.what.describe()),
                second: (name(owner), "a directory".into()),
                path: above,
            });
        } else {
            let owners = owner.into_iter().collect();
            tree.insert(path, Settled { owners, what: What::Dir });
        }
    }
    for (path, settled) in &tree {
        for reserved in [LD_DIR, OWN_DIR] {
            let rest = path.as_str().strip_prefix(reserved);
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                conflicts.push(Conflict {
                    path: path.clone(),
                    first: ("gpuenv".into(), format!("the directory {reserved}")),
                    second: (name(settled.owners.first().copied()), settled.what.describe()),
                });
            }
        }
    }
    if !conflicts.is_empty() {
        conflicts.sort();
        conflicts.dedup();
        return Err(PlanError::Conflicts(conflicts));
    }
    for (path, winner) in &input.options.winners {
        if !decided.contains(path) {
            let (path, winner) = (path.clone(), winner.clone());
            findings.push(Finding::UnusedWinner { path, winner });
        }
    }
    Ok(tree)
}

fn is_cache(path: &RelPath) -> bool {
    path.as_str().ends_with(".pyc") && path.components().any(|c| c == "__pycache__")
}

/// The nearest proper ancestor of `path` that is a key of `tree` and no directory.
fn ancestor_in(path: &RelPath, tree: &BTreeMap<RelPath, Settled>) -> Option<RelPath> {
    let mut above = path.parent();
    while let Some(dir) = above {
        if tree.get(&dir).is_some_and(|s| s.what != What::Dir) {
            return Some(dir);
        }
        above = dir.parent();
    }
    None
}

fn has_ancestor(path: &RelPath, set: &BTreeSet<RelPath>) -> bool {
    !set.is_empty()
        && std::iter::successors(path.parent(), RelPath::parent).any(|dir| set.contains(&dir))
}

/// Kernels of Jupyter have to start in the environment, wherever Jupyter itself runs.
fn kernelspecs(tree: &mut BTreeMap<RelPath, Settled>) {
    for (path, settled) in tree {
        let mut parts = path.components();
        let head = [parts.next(), parts.next(), parts.next()];
        if head != [Some("share"), Some("jupyter"), Some("kernels")]
            || path.file_name() != "kernel.json"
        {
            continue;
        }
        let (from, sha256, executable, placeholder) = match &settled.what {
            What::File { from, sha256, executable, .. } => (from, sha256, executable, None),
            What::Relocated { from, sha256, executable, how: Relocate::Text { placeholder } } => {
                (from, sha256, executable, Some(placeholder.clone()))
            }
            _ => continue,
        };
        settled.what = What::Relocated {
            from: from.clone(),
            sha256: *sha256,
            executable: *executable,
            how: Relocate::Kernelspec { placeholder },
        };
    }
}

/// Adds what lists the files of a package as they came to lie: wheels' `RECORD`, `conda-meta`.
fn with_records(
    input: &PlanInput<'_>,
    python: Option<&PythonLayout>,
    mut tree: BTreeMap<RelPath, Settled>,
) -> Result<BTreeMap<RelPath, Settled>, PlanError> {
    let mut held: Vec<Vec<&RelPath>> = vec![Vec::new(); input.packages.len()];
    for (path, settled) in &tree {
        for owner in settled.owners.iter().filter(|_| settled.what != What::Dir) {
            held[*owner].push(path);
        }
    }
    let mut records = Vec::new();
    for (index, package) in input.packages.iter().enumerate() {
        let files = || held[index].iter().map(|path| (*path, &tree[*path].what));
        let (path, content) = match (&package.record.meta, python) {
            (Meta::Wheel(meta), Some(python)) => {
                let path = python.site.push(&meta.dist_info).map_err(PlanError::bad_path)?;
                let path = path.push("RECORD").map_err(PlanError::bad_path)?;
                let text = wheel::record(&python.site, &path, files());
                (path, Content::Text(text))
            }
            (Meta::Wheel(_), None) => continue,
            (Meta::Conda(_), _) => {
                let record = package.record;
                let build = record.build.as_deref().unwrap_or("0");
                let path = format!("conda-meta/{}-{}-{build}.json", record.name, record.version);
                let path = RelPath::new(&path).map_err(PlanError::bad_path)?;
                (path, conda::prefix_record(index, package, files()))
            }
        };
        records.push((path, index, What::Generated { content, executable: false }));
    }
    for (path, index, what) in records {
        if let Some(there) = tree.get(&path) {
            let owner = there.owners.first().map(|i| label(input, *i));
            return Err(PlanError::Conflicts(vec![Conflict {
                first: (owner.unwrap_or_else(|| "gpuenv".into()), there.what.describe()),
                second: (label(input, index), what.describe()),
                path,
            }]));
        }
        tree.insert(path, Settled { owners: vec![index], what });
    }
    Ok(tree)
}

/// Runs [`farm::farm`] over the ELF files of the tree, and reports sonames given twice.
fn link_farm(
    input: &PlanInput<'_>,
    python: Option<&PythonLayout>,
    tree: &BTreeMap<RelPath, Settled>,
    findings: &mut Vec<Finding>,
) -> Result<BTreeMap<String, RelPath>, PlanError> {
    let view = Links::new(tree.iter().filter_map(|(path, settled)| match &settled.what {
        What::PackageLink { target, .. } | What::Symlink { target } => {
            Some((path.clone(), target.clone()))
        }
        _ => None,
    }));
    let mut libraries = Vec::new();
    for (path, settled) in tree {
        let (Some(owner), Some((from, sha256))) = (settled.owners.first(), settled.what.source())
        else {
            continue;
        };
        let record: &PackageRecord = input.packages[*owner].record;
        let Ok(at) = record.elf.binary_search_by(|elf| elf.path.cmp(from)) else { continue };
        let dynamic = &record.elf[at].dynamic;
        let placeholder = match &settled.what {
            What::Relocated { how: Relocate::Binary { placeholder }, .. } => {
                Some(placeholder.as_str())
            }
            _ => None,
        };
        libraries.push(farm::Library { path, package: *owner, dynamic, sha256, placeholder });
    }
    let links = tree.keys().filter(|path| view.on_a_link(path));
    let links = links.filter_map(|path| Some((path.clone(), view.resolve(path)?)));
    let dists: Vec<_> = input.packages.iter().map(|p| p.record).collect();
    let found = farm::farm(&farm::Input {
        libraries: &libraries,
        links: links.collect(),
        packages: &dists,
        machine: farm::machine(input.platform),
        interpreter: python.and_then(|python| match python.origin {
            PythonOrigin::Conda(_) => {
                view.resolve(&constant("bin/python")).filter(|p| tree.contains_key(p))
            }
            PythonOrigin::Host => None,
        }),
        allowed_duplicates: &input.options.allow_duplicate_sonames,
    });
    for twice in found.duplicates {
        let place = |library: &farm::Library<'_>| Place {
            package: label(input, library.package),
            path: library.path.clone(),
        };
        let (first, second) = (place(&twice.first), place(&twice.second));
        if twice.ambiguous {
            return Err(PlanError::FarmDuplicate { name: twice.name, first, second });
        }
        findings.push(Finding::DuplicateSoname { soname: twice.name, first, second });
    }
    Ok(found.links)
}
