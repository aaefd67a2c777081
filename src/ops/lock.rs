//! `lock`: env.toml → gpuenv.lock.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::context::Context;
use super::overrides;
use super::problem::{keep, keep_pins};
use super::project::{LOCK, MANIFEST, Project};
use super::solve::{self, Solved};
use super::update::Update;
use crate::error::{Exit, Report, Result};
use crate::fs::{self, FsError};
use crate::hash::{Sha256, ShortHash};
use crate::lockfile::{
    self, ArtifactKind, Lock, LockErrorKind, LockedEnvironment, LockedPackage, PackageId, Source,
    SourceKind, Stale,
};
use crate::manifest::{self, Closure, Manifest};
use crate::progress::Event;
use crate::resolve::{self, ChosenKind, Keep, Key};
use crate::sources::Pinned;

/// What `lock` did.
#[derive(Debug)]
pub struct Locked {
    /// The lock as it now is.
    pub lock: Lock,
    /// Its text.
    pub text: String,
    /// Whether gpuenv.lock was written.
    pub written: bool,
    /// Changes of versions, per platform and variant, in words.
    pub changes: Vec<Change>,
}

/// How one package differs between two locks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Change {
    /// Platform.
    pub platform: String,
    /// Variant of env.toml; `None`: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Package name.
    pub name: String,
    /// Version before.
    pub was: Option<String>,
    /// Version after.
    pub is: Option<String>,
}

/// gpuenv.lock does not fit env.toml.
#[derive(Debug, thiserror::Error)]
pub enum LockCheckError {
    /// Inputs differ.
    #[error("{LOCK} does not fit {MANIFEST}:\n{}", list(.0))]
    Stale(Vec<Stale>),
    /// There is none.
    #[error("there is no {LOCK}")]
    Missing,
}

fn list(stale: &[Stale]) -> String {
    stale.iter().map(|s| format!("  - {s}")).collect::<Vec<_>>().join("\n")
}

impl Report for LockCheckError {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        Some(match self {
            LockCheckError::Stale(_) => "`gpuenv lock` resolves again; commit the result".into(),
            LockCheckError::Missing => "`gpuenv lock` makes it; commit the result".into(),
        })
    }
}

/// Two closures take files of one name and source that are not the same.
#[derive(Debug, thiserror::Error)]
#[error("two variants take different files called {id} from one kind of source")]
struct TwoFiles {
    id: String,
}

impl Report for TwoFiles {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        Some("a lock tells them apart by their names alone: rename one of the files, or take both from indexes of [pypi-options.indexes]".into())
    }
}

/// Why `lock` is stale: what env.toml says now, and wheels given by path that are other files now.
/// A wheel that is not there says nothing: the store may hold what was locked.
pub fn stale(project: &Project, lock: &Lock, manifest: &Manifest) -> Result<Vec<Stale>> {
    let mut out = lockfile::stale(lock, &manifest::inputs(manifest));
    for package in &lock.packages {
        let by_path = lock.source_of(package).is_some_and(|s| s.kind == SourceKind::Path);
        let Some(location) = package.location.as_ref().filter(|_| by_path) else { continue };
        let path = project.root().join(location);
        if !path.is_file() {
            continue;
        }
        let (is, _) = Sha256::of_reader(fs::open(&path)?).map_err(FsError::at("read", &path))?;
        if is != package.sha256 {
            out.push(Stale::Changed {
                key: format!("the file {location}"),
                was: format!("sha256 {}", package.sha256),
                is: format!("sha256 {is}"),
            });
        }
    }
    Ok(out)
}

/// `lock --check`: fails where the lock is missing or stale.
pub fn check(ctx: &Context) -> Result<Lock> {
    let manifest = overrides::manifest(ctx)?;
    let Some((lock, _)) = ctx.project.lock()? else {
        return Err(LockCheckError::Missing.into());
    };
    let stale = stale(&ctx.project, &lock, &manifest)?;
    if stale.is_empty() { Ok(lock) } else { Err(LockCheckError::Stale(stale).into()) }
}

/// Resolves unless the lock fits already and nothing is to be updated.
pub fn lock(ctx: &Context, update: &Update) -> Result<Locked> {
    let (mut locked, old_text) = resolve(ctx, update)?;
    if locked.written {
        locked.written = ctx.project.write_lock(&locked.lock, old_text.as_deref())?;
    }
    Ok(locked)
}

/// What [`lock`] would do, and the text of the lock that there is. Nothing is written.
pub fn resolve(ctx: &Context, update: &Update) -> Result<(Locked, Option<String>)> {
    let manifest = overrides::manifest(ctx)?;
    let inputs = manifest::inputs(&manifest);
    let (old_lock, old_text, pins) = match ctx.project.lock_text()? {
        None => (None, None, Vec::new()),
        Some(text) => match lockfile::parse(&text, LOCK) {
            Ok(lock) => (Some(lock), Some(text), Vec::new()),
            // Making a lock is the cure for a damaged one, a bad merge above all. One that a
            // later gpuenv wrote is not damaged, and whoever uses that would lose by it.
            Err(error) if !matches!(error.kind(), LockErrorKind::Newer { .. }) => {
                let note =
                    format!("{error}; resolving again, with its versions where they still fit");
                ctx.progress.event(Event::Warning { text: &note });
                (None, None, lockfile::salvage(&text))
            }
            Err(error) => return Err(error.into()),
        },
    };
    if let (Some(lock), Some(text)) = (&old_lock, &old_text)
        && *update == Update::Nothing
        && stale(&ctx.project, lock, &manifest)?.is_empty()
    {
        let locked =
            Locked { lock: lock.clone(), text: text.clone(), written: false, changes: Vec::new() };
        return Ok((locked, old_text));
    }
    update.check(&manifest, old_lock.is_some() || !pins.is_empty(), || match &old_lock {
        Some(lock) => lock.packages.iter().map(|p| p.name.clone()).collect(),
        None => pins.iter().map(|pin| pin.name.clone()).collect(),
    })?;
    let keep = |closure: &Closure| {
        update.free(match &old_lock {
            Some(lock) => keep(lock, closure),
            None => keep_pins(pins.iter().cloned()),
        })
    };
    let lock = resolve_all(ctx, &manifest, inputs, &keep)?;
    let lock = match &old_lock {
        Some(old) => carry_over(lock, old),
        None => lock,
    };
    let text = lockfile::write(&lock);
    let written = old_text.as_deref() != Some(text.as_str());
    let changes = changes(old_lock.as_ref(), &lock);
    Ok((Locked { text, lock, written, changes }, old_text))
}

fn resolve_all(
    ctx: &Context,
    manifest: &Manifest,
    inputs: BTreeMap<String, String>,
    keep: &(dyn Fn(&Closure) -> Keep + Sync),
) -> Result<Lock> {
    let mut lock = Lock { inputs, ..Lock::default() };
    let mut packages: BTreeMap<PackageId, LockedPackage> = BTreeMap::new();
    let mut used: BTreeSet<Source> = BTreeSet::new();
    if let Some(text) = without_cuda(manifest) {
        ctx.progress.event(Event::Note { text: &text });
    }
    for Solved { closure, problem, packages: solved } in solve::all(ctx, manifest, keep)? {
        let mut ids = Vec::new();
        for (chosen, pinned) in &solved {
            used.insert(pinned.source.clone());
            let package = locked_package(chosen, pinned.clone(), &packages);
            ids.push(package.id.clone());
            match packages.entry(package.id.clone()) {
                Entry::Vacant(slot) => {
                    slot.insert(package);
                }
                // One wheel on two platforms may need different things there.
                Entry::Occupied(mut slot) => {
                    let both = slot.get_mut();
                    if both.sha256 != package.sha256 {
                        return Err(TwoFiles { id: package.id.0 }.into());
                    }
                    both.requires.extend(package.requires);
                    both.edges.extend(package.edges);
                }
            }
        }
        lock.environments.push(LockedEnvironment {
            platform: closure.platform,
            variant: closure.variant,
            env_id: ShortHash::of(&Sha256::of([])),
            host_python: manifest.host.as_ref().map(|h| h.python.to_string()),
            virtual_packages: virtual_package_strings(&problem),
            packages: ids,
            view_hash: None,
            view_format: lockfile::FIRST_VIEW_FORMAT,
        });
    }
    lock.packages = packages.into_values().collect();
    lock.sources = used.into_iter().collect();
    lock.sort();
    lock.set_env_ids();
    Ok(lock)
}

/// A sentence where `[gpu]` cannot hold everywhere.
fn without_cuda(manifest: &Manifest) -> Option<String> {
    let closures = manifest.closures().into_iter();
    let macs =
        closures.filter(|(closure, merged)| closure.platform.is_osx() && merged.gpu.is_some());
    let macs: Vec<String> = macs.map(|(closure, _)| closure.to_string()).collect();
    (!macs.is_empty())
        .then(|| format!("there is no CUDA on macOS: [gpu] does not count for {}", macs.join(", ")))
}

fn virtual_package_strings(problem: &resolve::Problem) -> Vec<String> {
    let mut out: Vec<String> = problem
        .virtual_packages
        .iter()
        .map(|v| format!("{}={}={}", v.name.as_normalized(), v.version, v.build_string))
        .collect();
    out.sort();
    out
}

fn locked_package(
    chosen: &resolve::Chosen,
    pinned: Pinned,
    others: &BTreeMap<PackageId, LockedPackage>,
) -> LockedPackage {
    let mut requires = chosen.requires.clone();
    requires.sort();
    requires.dedup();
    let edges: Vec<String> = chosen
        .edges
        .iter()
        .map(|key| edge_name(&chosen.what, key))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let (kind, name, version, build, yanked) = match &chosen.what {
        ChosenKind::Conda(record) => (
            ArtifactKind::Conda,
            record.package_record.name.as_normalized().to_owned(),
            record.package_record.version.to_string(),
            Some(record.package_record.build.to_string()),
            None,
        ),
        ChosenKind::Wheel { file, .. } => (
            ArtifactKind::Wheel,
            file.filename.name.to_string(),
            file.filename.version.to_string(),
            None,
            file.yanked.clone(),
        ),
    };
    let id = package_id(&pinned, others);
    LockedPackage {
        id,
        kind,
        name,
        version,
        build,
        subdir: pinned.subdir,
        file: pinned.file,
        source: pinned.source.name,
        location: pinned.location,
        size: pinned.size,
        sha256: pinned.sha256,
        hash_computed: pinned.hash_computed,
        nar: None,
        requires,
        edges,
        yanked,
    }
}

/// An edge across the border names the other world; within one, the name is enough.
fn edge_name(from: &ChosenKind, to: &Key) -> String {
    match (from, to) {
        (ChosenKind::Wheel { .. }, Key::Conda(name)) => format!("conda:{}", name.as_normalized()),
        (ChosenKind::Conda(_), Key::Wheel(name)) => format!("wheel:{name}"),
        (_, Key::Conda(name)) => name.as_normalized().to_owned(),
        (_, Key::Wheel(name)) => name.to_string(),
    }
}

fn package_id(pinned: &Pinned, others: &BTreeMap<PackageId, LockedPackage>) -> PackageId {
    let plain = match &pinned.subdir {
        Some(subdir) => format!("{subdir}/{}", pinned.file),
        None => pinned.file.clone(),
    };
    let id = PackageId(plain.clone());
    match others.get(&id) {
        Some(other) if other.sha256 != pinned.sha256 => {
            PackageId(format!("{plain} @{}", pinned.source.name))
        }
        _ => id,
    }
}

/// What does not depend on resolving stays: NAR and view hashes of what did not change, and the
/// evidence of environments that are still there.
fn carry_over(mut lock: Lock, old: &Lock) -> Lock {
    let nars: BTreeMap<Sha256, Sha256> =
        old.packages.iter().filter_map(|p| p.nar.map(|nar| (p.sha256, nar))).collect();
    for package in &mut lock.packages {
        package.nar = package.nar.or_else(|| nars.get(&package.sha256).copied());
    }
    // A view says which packages env.toml itself asks for; the env id does not.
    let asked: Vec<bool> = lock
        .environments
        .iter()
        .map(|environment| lock.asked(environment.env_id) == old.asked(environment.env_id))
        .collect();
    for (environment, asked) in lock.environments.iter_mut().zip(asked) {
        let same = old
            .environments
            .iter()
            .find(|o| o.platform == environment.platform && o.env_id == environment.env_id);
        if let Some(same) = same.filter(|_| asked) {
            (environment.view_hash, environment.view_format) = (same.view_hash, same.view_format);
        }
    }
    lock.verifications = old.verifications.clone();
    lock.drop_foreign_verifications();
    lock
}

/// Version (and build) and file of each package.
fn versions<'l>(
    lock: &'l Lock,
    closure: &Closure,
) -> BTreeMap<(ArtifactKind, String), (String, &'l str)> {
    let environment = lock.environment(closure);
    environment
        .into_iter()
        .flat_map(|environment| lock.packages_of(environment))
        .map(|p| {
            let version = match &p.build {
                Some(build) => format!("{} {build}", p.version),
                None => p.version.clone(),
            };
            ((p.kind, p.name.clone()), (version, p.file.as_str()))
        })
        .collect()
}

/// What differs between two locks, sorted by platform, variant and name.
pub fn changes(old: Option<&Lock>, new: &Lock) -> Vec<Change> {
    let mut out = Vec::new();
    for environment in &new.environments {
        let closure = environment.closure();
        let before = old.map(|o| versions(o, &closure)).unwrap_or_default();
        let after = versions(new, &closure);
        let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        for key in names {
            let (was, is) = (before.get(key), after.get(key));
            if was != is {
                // Another file of the same version: then the files are what differs.
                let same = was.map(|was| &was.0) == is.map(|is| &is.0);
                let words = |(version, file): &(String, &str)| match same {
                    true => format!("{version} ({file})"),
                    false => version.clone(),
                };
                let (was, is) = (was.map(words), is.map(words));
                out.push(Change {
                    platform: closure.platform.to_string(),
                    variant: closure.variant.as_ref().map(ToString::to_string),
                    name: key.1.clone(),
                    was,
                    is,
                });
            }
        }
    }
    out
}
