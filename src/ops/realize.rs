//! `realize`: lock if needed, fetch what the store lacks, build the view, point the project at
//! it, run the post-build hook.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rattler_conda_types::Subdir as Platform;

use super::context::{Context, process_env};
use super::generation;
use super::lock::{self, LockCheckError};
use super::project::LOCK;
use crate::error::{Exit, Failure, Report, Result};
use crate::hash::{Sha256, ShortHash};
use crate::lockfile::{self, Lock, LockedEnvironment, LockedPackage, Verification};
use crate::machine::{self, Interpreter};
use crate::manifest::{self, Manifest};
use crate::package::UnpackPolicy;
use crate::progress::Event;
use crate::store::{PackageKey, Store, StoredPackage};
use crate::verify;
use crate::view;

/// Options of `realize`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealizeOptions {
    /// Fail where the lock does not fit; never write it.
    pub locked: bool,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Leave the hook out.
    pub no_verify: bool,
}

/// What `realize` did.
#[derive(Debug)]
pub struct Realized {
    /// What `lock` did, where it had to run.
    pub locked: Option<lock::Locked>,
    /// The platform realized.
    pub platform: Platform,
    /// Env id of the lock.
    pub env_id: ShortHash,
    /// The view.
    pub view: PathBuf,
    /// Number of packages in the environment.
    pub packages: usize,
    /// Packages that had to be fetched: file name and bytes.
    pub fetched: Vec<(String, u64)>,
    /// Whether the view had to be built.
    pub built: bool,
    /// Whether the project had to be pointed at it, and the generation's number.
    pub generation: Option<u64>,
    /// Outcome of the hook, where it ran.
    pub verification: Option<verify::Outcome>,
    /// Whether gpuenv.lock gained hashes or a verification.
    pub lock_written: bool,
    /// Things worth knowing about the view.
    pub findings: Vec<String>,
}

/// Realizing cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RealizeError {
    /// The lock has no closure for this machine.
    #[error("{LOCK} has no environment for {here} (it has {})", have.join(", "))]
    Platform {
        /// This machine.
        here: Platform,
        /// Those of the lock.
        have: Vec<String>,
    },
    /// Views are built on Linux.
    #[error("this machine is {0}, and gpuenv builds environments on Linux alone")]
    NotLinux(String),
    /// The view came out different from what the lock says.
    #[error("the view differs from the one this lock was realized to: expected view hash {expected}, found {found}")]
    ViewHash {
        /// In the lock.
        expected: Sha256,
        /// Here.
        found: Sha256,
    },
    /// The hook failed.
    #[error("the environment is built, but its check failed: {script} {outcome}")]
    Verify {
        /// The script.
        script: String,
        /// How it ended.
        outcome: String,
    },
}

impl Report for RealizeError {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        Some(match self {
            RealizeError::Platform { here, .. } => {
                format!("add \"{here}\" to `platforms` in env.toml and run `gpuenv lock`")
            }
            RealizeError::NotLinux(_) => "`gpuenv lock` works here; realize on a Linux machine".into(),
            RealizeError::ViewHash { .. } => {
                "the packages are the same, so this is a difference of gpuenv versions or a damaged store; \
                 if the change is wanted, remove the view-hash line from gpuenv.lock and realize again"
                    .into()
            }
            RealizeError::Verify { .. } => {
                "the output of the check stands above; `gpuenv run -- CMD` works in the environment all the same, \
                 and `gpuenv realize --no-verify` leaves the check out"
                    .into()
            }
        })
    }
}

/// The platform of this machine.
pub fn current_platform() -> Result<Platform> {
    Platform::current().ok_or_else(|| RealizeError::NotLinux(std::env::consts::OS.into()).into())
}

/// Runs the verb.
pub fn realize(ctx: &Context, options: RealizeOptions) -> Result<Realized> {
    let manifest = ctx.project.manifest()?;
    let (lock, text, locked) = current_lock(ctx, &manifest, options)?;
    let platform = current_platform()?;
    let environment = environment(&lock, platform)?.clone();
    let packages: Vec<&LockedPackage> = lock.closure(&environment);
    let interpreter = match &manifest.host {
        Some(host) => Some(machine::find_python(&host.python, &process_env)?),
        None => None,
    };
    let key = view::key(&environment.env_id, interpreter.as_ref());
    let name = format!("{key}-{}", manifest.env.name);
    let mut done = Realized {
        locked,
        platform,
        env_id: environment.env_id,
        view: PathBuf::new(),
        packages: packages.len(),
        fetched: Vec::new(),
        built: false,
        generation: None,
        verification: None,
        lock_written: false,
        findings: Vec::new(),
    };
    let root = ctx.store_root()?;
    done.view = Store::env_path_in(&root, &name);
    let script = manifest.verify.script.clone().filter(|_| !options.no_verify);
    let script_digest = match &script {
        Some(script) => Some(verify::digest(ctx.project.root(), &script.value)?),
        None => None,
    };
    let fresh = view::is_built(&done.view);
    let pointed = generation::current(&ctx.project).is_some_and(|g| g.view == done.view);
    let verified = match (&script, script_digest) {
        (Some(_), Some(digest)) => verify::passed_here(&ctx.project.state_dir(), &key, &digest),
        _ => true,
    };
    if fresh && pointed && verified {
        return Ok(done);
    }

    let store = if options.dry_run { None } else { Some(ctx.store()?) };
    let missing: Vec<&LockedPackage> =
        packages.iter().copied().filter(|p| !Store::has_package_in(&root, &PackageKey::of(p))).collect();
    done.fetched = if fresh { Vec::new() } else { missing.iter().map(|p| (p.file.clone(), p.size)).collect() };
    done.built = !fresh;
    let Some(store) = store else {
        return Ok(done);
    };

    let mut lock = lock;
    if !fresh {
        let stored = bring(ctx, &store, &lock, &packages, &missing, &manifest)?;
        let built = build(ctx, &store, &manifest, &environment, &packages, &stored, interpreter.as_ref(), &name)?;
        done.findings = built.findings;
        record_hashes(&mut lock, platform, &stored, built.view_hash);
    } else if let Some(hash) = view::recorded_hash(&done.view)? {
        check_view_hash(&environment, hash)?;
        record_hashes(&mut lock, platform, &BTreeMap::new(), hash);
    }
    done.generation = generation::point(&ctx.project, &store, &done.view)?;

    let mut failed = None;
    if let (Some(script), Some(digest), false) = (&script, script_digest, verified) {
        ctx.progress.event(Event::Phase { name: "verifying", items: None, bytes: None });
        let timeout = std::time::Duration::from_secs(manifest.verify.timeout.unwrap_or(verify::TIMEOUT_SECONDS));
        let outcome = verify::run_script(&verify::Hook {
            project: ctx.project.root(),
            view: &done.view,
            script: &script.value,
            timeout,
        })?;
        if outcome.passed() {
            verify::mark_passed(&ctx.project.state_dir(), &key, &digest)?;
            record_verification(&mut lock, &environment.env_id, &script.value.to_string(), &digest);
        } else {
            failed = Some(RealizeError::Verify { script: script.value.to_string(), outcome: outcome.to_string() });
        }
        done.verification = Some(outcome);
    }
    if !options.locked {
        done.lock_written = ctx.project.write_lock(&lock, Some(&text))?;
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(done),
    }
}

/// The lock to realize, its text on disk, and what `lock` did if it had to run.
fn current_lock(
    ctx: &Context,
    manifest: &Manifest,
    options: RealizeOptions,
) -> Result<(Lock, String, Option<lock::Locked>)> {
    let stale = match ctx.project.lock()? {
        Some((lock, text)) => {
            let stale = lockfile::stale(&lock, &manifest::inputs(manifest));
            if stale.is_empty() {
                return Ok((lock, text, None));
            }
            LockCheckError::Stale(stale)
        }
        None => LockCheckError::Missing,
    };
    if options.locked || options.dry_run {
        return Err(stale.into());
    }
    if let LockCheckError::Stale(_) = &stale {
        ctx.progress.event(Event::Note { text: &stale.to_string() });
    }
    let locked = lock::lock(ctx, false)?;
    Ok((locked.lock.clone(), locked.text.clone(), Some(locked)))
}

/// The closure for `platform`.
pub fn environment(lock: &Lock, platform: Platform) -> Result<&LockedEnvironment> {
    lock.environments.iter().find(|e| e.platform == platform).ok_or_else(|| {
        RealizeError::Platform {
            here: platform,
            have: lock.environments.iter().map(|e| e.platform.to_string()).collect(),
        }
        .into()
    })
}

/// Fetches and unpacks what is missing; returns every package of the closure as stored.
fn bring(
    ctx: &Context,
    store: &Store,
    lock: &Lock,
    packages: &[&LockedPackage],
    missing: &[&LockedPackage],
    manifest: &Manifest,
) -> Result<BTreeMap<Sha256, StoredPackage>> {
    let stored: Mutex<BTreeMap<Sha256, StoredPackage>> = Mutex::new(BTreeMap::new());
    if !missing.is_empty() {
        ctx.progress.event(Event::Phase {
            name: "downloading",
            items: Some(missing.len() as u64),
            bytes: Some(missing.iter().map(|p| p.size).sum()),
        });
        let add = |package: &LockedPackage, archive: PathBuf| -> std::result::Result<(), Failure> {
            let policy = UnpackPolicy {
                allow_external_links: manifest.view.allow_external_links.contains(&package.name),
            };
            let entry = store.add(package, &archive, &policy)?;
            stored.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(package.sha256, entry);
            ctx.progress.event(Event::Done { item: &package.file });
            Ok(())
        };
        ctx.sources()?.fetch_all(lock, missing, &store.downloads_dir(), &add)?;
    }
    let mut stored = stored.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    for package in packages {
        if !stored.contains_key(&package.sha256) {
            stored.insert(package.sha256, store.require(package)?);
        }
    }
    Ok(stored)
}

struct Built {
    view_hash: Sha256,
    findings: Vec<String>,
}

#[allow(clippy::too_many_arguments)]
fn build(
    ctx: &Context,
    store: &Store,
    manifest: &Manifest,
    environment: &LockedEnvironment,
    packages: &[&LockedPackage],
    stored: &BTreeMap<Sha256, StoredPackage>,
    interpreter: Option<&Interpreter>,
    name: &str,
) -> Result<Built> {
    ctx.progress.event(Event::Phase { name: "linking", items: None, bytes: None });
    let _ = (store, manifest, environment, packages, stored, interpreter, name);
    todo!()
}

fn check_view_hash(environment: &LockedEnvironment, found: Sha256) -> Result<()> {
    match environment.view_hash {
        Some(expected) if expected != found => Err(RealizeError::ViewHash { expected, found }.into()),
        _ => Ok(()),
    }
}

fn record_hashes(lock: &mut Lock, platform: Platform, stored: &BTreeMap<Sha256, StoredPackage>, view: Sha256) {
    for package in &mut lock.packages {
        if package.nar.is_none() {
            package.nar = stored.get(&package.sha256).map(|s| s.record.nar);
        }
    }
    for environment in lock.environments.iter_mut().filter(|e| e.platform == platform) {
        environment.view_hash = Some(view);
    }
}

/// One record per (env id, GPU model, driver); a newer one replaces an older.
fn record_verification(lock: &mut Lock, env_id: &ShortHash, script: &str, digest: &Sha256) {
    let gpu = machine::gpu();
    let record = Verification {
        env_id: *env_id,
        gpu: gpu.model.unwrap_or_else(|| "none".into()),
        driver: gpu.driver.unwrap_or_else(|| "none".into()),
        checks: vec![(script.to_owned(), "passed".into())],
        facts: BTreeMap::from([("script-sha256".to_owned(), digest.to_string())]),
    };
    lock.verifications
        .retain(|v| (v.env_id, &v.gpu, &v.driver) != (record.env_id, &record.gpu, &record.driver));
    lock.verifications.push(record);
    lock.verifications.sort();
}

/// Where the project's current view lies, for messages.
pub fn display(path: &Path) -> String {
    path.display().to_string()
}
