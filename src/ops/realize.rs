//! `realize`: lock if needed, fetch what the store lacks, build the view, point the project at
//! it, run the post-build hook.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rattler_conda_types::Subdir as Platform;

use super::context::Context;
use super::generation::{self, Generation};
use super::lock::{self, LockCheckError};
use super::overrides;
use super::project::LOCK;
use super::update::Update;
use super::variant;
use crate::error::{Exit, Failure, Report, Result};
use crate::hash::{Sha256, ShortHash};
use crate::lockfile::{
    ArtifactKind, Lock, LockedEnvironment, LockedPackage, SourceKind, Verification,
};
use crate::machine;
use crate::manifest::{Closure, Framework, Manifest};
use crate::package::UnpackPolicy;
use crate::progress::{Event, Progress};
use crate::relpath::{RelPath, RelPathError};
use crate::store::{Add, PackageKey, Store, StoredPackage, env_name};
use crate::verify;
use crate::view::activate::Activation;
use crate::view::build::Target;
use crate::view::manifest::ViewManifest;
use crate::view::{self, DirectUrl, PackageInput, PlanInput};

/// Options of `realize`.
#[derive(Clone, Debug, Default)]
pub struct RealizeOptions {
    /// Which variant; `None`: see [`super::variant`].
    pub variant: Option<String>,
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
    /// The platform realized.
    pub platform: Platform,
    /// The variant realized, where there are several; `default` is the one that is none.
    pub variant: Option<String>,
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
    #[error(
        "the view differs from the one this lock was realized to: expected view hash {expected}, found {found}"
    )]
    ViewHash {
        /// In the lock.
        expected: Sha256,
        /// Here.
        found: Sha256,
    },
    /// A view is in the store and is not what it should be.
    #[error("the environment {} is not as it was built: {stale}", view.display())]
    Damaged {
        /// The view.
        view: PathBuf,
        /// What is wrong.
        stale: view::build::Stale,
    },
    /// A package was in the store a moment ago.
    #[error("{package} vanished from the store while it was needed")]
    Vanished {
        /// The package.
        package: String,
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
            RealizeError::Damaged { view, .. } => {
                format!("something changed it, or the view-hash in {LOCK}; restore the lock, or remove the environment (`chmod -R u+w` and `rm -r` on {}) and realize again", view.display())
            }
            RealizeError::Vanished { .. } => "run `gpuenv realize` again".into(),
            RealizeError::Verify { .. } => {
                "the output of the check stands above; `gpuenv run -- CMD` works in the environment all the same, \
                 and `gpuenv realize --no-verify` leaves the check out"
                    .into()
            }
        })
    }
}

/// A path in the lock's inputs is none; reading the lock refuses it before this.
#[derive(Debug, thiserror::Error)]
#[error("[view.winners] of {LOCK} holds a bad path")]
struct BadWinner {
    #[source]
    source: RelPathError,
}

impl Report for BadWinner {
    fn exit(&self) -> Exit {
        Exit::User
    }
}

/// The platform of this machine.
pub fn current_platform() -> Result<Platform> {
    Platform::current()
        .filter(|platform| platform.is_linux())
        .ok_or_else(|| RealizeError::NotLinux(std::env::consts::OS.into()).into())
}

/// A lock that fits, and all that has to be known before anything is fetched.
pub struct Ready {
    /// What `lock` did, where it had to run. With `--dry-run` nothing was written.
    pub locked: Option<lock::Locked>,
    manifest: Manifest,
    lock: Lock,
    /// The lock's text on disk.
    text: String,
    hook: Option<ProjectHook>,
}

/// First half of the verb: locks if needed. What it did stands whatever becomes of the rest.
pub fn ready(ctx: &Context, options: &RealizeOptions) -> Result<Ready> {
    let manifest = ctx.project.manifest()?;
    // A misspelled name is not worth a solve.
    if let Some(name) = variant::given(options.variant.as_deref()) {
        let closures: Vec<Closure> = manifest.closures().into_iter().map(|(c, _)| c).collect();
        variant::require(&closures, Some(current_platform()?), name)?;
    }
    let hook = hook(ctx, &manifest, options)?;
    let (lock, text, locked) = current_lock(ctx, &manifest, options)?;
    Ok(Ready { locked, manifest, lock, text, hook })
}

/// Second half: fetches, builds, verifies.
pub fn realize(ctx: &Context, options: &RealizeOptions, ready: &Ready) -> Result<Realized> {
    let Ready { manifest, lock, text, hook, .. } = ready;
    let platform = current_platform()?;
    let named = variant::given(options.variant.as_deref());
    let choice = variant::choose(lock, platform, named, &ctx.project)?;
    if let Some(text) = &choice.note {
        ctx.progress.event(Event::Note { text });
    }
    let environment = choice.environment.clone();
    let variant = choice.among_several.then(|| environment.closure().variant_name().to_owned());
    let mark = |number: u64| match &variant {
        Some(name) => generation::mark(&ctx.project, number, name, named.is_some()),
        None => Ok(()),
    };
    let store = ctx.store()?;
    let mut done = Realized {
        platform,
        variant: variant.clone(),
        env_id: environment.env_id,
        view: PathBuf::new(),
        packages: environment.packages.len(),
        fetched: Vec::new(),
        built: false,
        generation: None,
        verification: None,
        lock_written: false,
        findings: Vec::new(),
    };
    if let Some(there) = up_to_date(ctx, &store, options, ready, &environment)? {
        if !options.dry_run {
            mark(there.number)?;
        }
        done.view = there.view;
        return Ok(done);
    }

    if let Some(text) = older_glibc(&environment, machine::glibc_version()) {
        ctx.progress.event(Event::Warning { text: &text });
    }
    if manifest.verify.framework.is_some_and(|f| f != Framework::None) {
        let text = "`framework` in [verify] is not acted on by this version of gpuenv: \
                    it has no built-in checks yet; `script` runs one of your own";
        ctx.progress.event(Event::Warning { text });
    }
    let interpreter = match &manifest.host {
        Some(host) => Some(machine::find_python(&host.python, &|name| std::env::var_os(name))?),
        None => None,
    };
    let python = interpreter.as_ref().map(|i| i.executable.as_path());
    let key = view_key(&environment.env_id, python);
    let name = env_name(&key, lock.name());
    done.view = store.env_path(&name)?;
    let fresh = match view::check_fresh(&done.view, comparable(&environment), python) {
        Ok(hash) => Some(hash),
        Err(view::build::Stale::Missing) => None,
        // A view that is there and is not what the lock says is evidence, not rubbish.
        Err(stale) => return Err(RealizeError::Damaged { view: done.view, stale }.into()),
    };
    let packages: Vec<&LockedPackage> = lock.packages_of(&environment).collect();
    let mut missing = Vec::new();
    // Also of a view that is built: it leads to the packages.
    for package in &packages {
        if !store.contains(&PackageKey::with_policy(package, policy(manifest, package)))? {
            missing.push(*package);
        }
    }
    done.fetched = missing.iter().map(|p| (p.file.clone(), p.size)).collect();
    done.built = fresh.is_none();
    if options.dry_run {
        return Ok(done);
    }

    let mut new = lock.clone();
    let view_hash = match fresh {
        Some(hash) => {
            if !missing.is_empty() {
                bring(ctx, &store, lock, &packages, &missing, manifest)?;
            }
            // A lock made anew has lost the NAR hashes; the records of the store have them.
            for package in new.packages.iter_mut().filter(|p| p.nar.is_none()) {
                if packages.iter().any(|p| p.id == package.id)
                    && let Some(there) =
                        store.get(&PackageKey::with_policy(package, policy(manifest, package)))?
                {
                    package.nar = Some(there.record.nar);
                }
            }
            hash
        }
        None => {
            let stored = bring(ctx, &store, lock, &packages, &missing, manifest)?;
            let job = Job { ctx, store: &store, lock, environment: &environment, python };
            let built = job.build(&packages, &stored, &name)?;
            done.findings = built.findings;
            for package in &mut new.packages {
                package.nar =
                    package.nar.or_else(|| stored.get(&package.sha256).map(|s| s.record.nar));
            }
            built.view_hash
        }
    };
    // Closures of the same packages have one view.
    for environment in new.environments.iter_mut().filter(|e| e.env_id == done.env_id) {
        // What a later gpuenv recorded is for it to compare.
        if environment.view_format <= ViewManifest::FORMAT {
            environment.view_hash = Some(view_hash);
            environment.view_format = ViewManifest::FORMAT;
        }
    }
    let pointed = generation::point(&ctx.project, &store, &done.view)?;
    mark(pointed.number)?;
    done.generation = pointed.new;
    if let Some(error) = pointed.unregistered {
        let text = format!(
            "{error}, and so does not know that this project uses the environment: \
             whoever cleans it must"
        );
        ctx.progress.event(Event::Warning { text: &text });
    }

    let mut failed = None;
    if let Some(hook) = hook
        // What was just built is checked, whatever an earlier build passed.
        && (done.built || !verify::passed_here(&ctx.project.state_dir(), &key, &hook.digest))
    {
        ctx.progress.event(Event::Phase { name: "verifying", items: None, bytes: None });
        let outcome = run_hook(ctx, &done.view, hook)?;
        if outcome.passed() {
            verify::mark_passed(&ctx.project.state_dir(), &key, &hook.digest)?;
            record_verification(&mut new, &environment.env_id, hook);
        } else {
            failed = Some(RealizeError::Verify {
                script: hook.script.to_string(),
                outcome: outcome.to_string(),
            });
        }
        done.verification = Some(outcome);
    }
    if !options.locked {
        // Downloads and checks take long; what was locked in the meantime is not undone.
        let _alone = ctx.project.exclusive();
        if ctx.project.lock_text()?.as_deref() == Some(text.as_str()) {
            done.lock_written = ctx.project.write_lock(&new, Some(text))?;
        } else {
            let text = format!("{LOCK} was changed while this ran, and was left as it is");
            ctx.progress.event(Event::Warning { text: &text });
        }
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(done),
    }
}

/// The view directory's key: the env id, and with a host interpreter also which one, since the
/// view holds a link to it. Two interpreters on one machine get two views.
pub fn view_key(env_id: &ShortHash, python: Option<&Path>) -> ShortHash {
    const {
        assert!(ViewManifest::FORMAT == 1, "views of another format have other keys: hash it too");
    }
    match python {
        None => *env_id,
        Some(python) => {
            let mut text = format!("gpuenv-view-key 1\n{env_id}\n").into_bytes();
            text.extend_from_slice(python.as_os_str().as_bytes());
            ShortHash::of(&Sha256::of(text))
        }
    }
}

/// The view hash of the lock, where it is of the format of view that this program makes.
fn comparable(environment: &LockedEnvironment) -> Option<&Sha256> {
    let same = environment.view_format == ViewManifest::FORMAT;
    environment.view_hash.as_ref().filter(|_| same)
}

/// The project's view, where nothing is to be done. Looks at a handful of files and at the names
/// of the packages: no interpreter is started, no source opened, no package record read.
fn up_to_date(
    ctx: &Context,
    store: &Store,
    options: &RealizeOptions,
    ready: &Ready,
    environment: &LockedEnvironment,
) -> Result<Option<Generation>> {
    let Ready { manifest, lock, hook, .. } = ready;
    let Some(generation) = generation::current(&ctx.project) else { return Ok(None) };
    let python = match &environment.host_python {
        Some(_) => match std::fs::read_link(generation.view.join("bin/python")) {
            Ok(target) => Some(target),
            Err(_) => return Ok(None),
        },
        None => None,
    };
    let key = view_key(&environment.env_id, python.as_deref());
    let mut fits = generation.view == store.env_path(&env_name(&key, lock.name()))?
        && view::check_fresh(&generation.view, comparable(environment), python.as_deref()).is_ok()
        && hook
            .as_ref()
            .is_none_or(|h| verify::passed_here(&ctx.project.state_dir(), &key, &h.digest));
    // With `--locked` nothing would be recorded.
    if !options.locked {
        fits &= environment.view_hash.is_some() && environment.view_format >= ViewManifest::FORMAT;
        fits &= lock.packages_of(environment).all(|p| p.nar.is_some());
    }
    if fits {
        for package in lock.packages_of(environment) {
            fits &= store.contains(&PackageKey::with_policy(package, policy(manifest, package)))?;
        }
    }
    if fits {
        // Said when it was built; not again.
        let _unregistered = generation::register(&ctx.project, store, generation.number)?;
    }
    Ok(fits.then_some(generation))
}

/// The check of `[verify]`.
struct ProjectHook {
    script: RelPath,
    digest: Sha256,
    timeout: Duration,
}

fn hook(
    ctx: &Context,
    manifest: &Manifest,
    options: &RealizeOptions,
) -> Result<Option<ProjectHook>> {
    let Some(script) = manifest.verify.script.as_ref().filter(|_| !options.no_verify) else {
        return Ok(None);
    };
    Ok(Some(ProjectHook {
        script: script.value.clone(),
        digest: verify::digest(ctx.project.root(), &script.value)?,
        timeout: Duration::from_secs(manifest.verify.timeout.unwrap_or(verify::TIMEOUT_SECONDS)),
    }))
}

fn run_hook(ctx: &Context, view: &Path, hook: &ProjectHook) -> Result<verify::Outcome> {
    let inherited = std::env::vars_os().collect();
    let env = Activation::for_view(view, &inherited)?.environment(&inherited)?;
    let script = hook.script.under(ctx.project.root());
    let mut argv = Vec::new();
    if hook.script.as_str().ends_with(".py") {
        argv.push(view.join("bin/python").into_os_string());
    }
    argv.push(script.into_os_string());
    Ok(verify::run(&verify::Hook {
        argv,
        env: &env,
        cwd: ctx.project.root(),
        timeout: hook.timeout,
    })?)
}

/// The lock to realize, its text on disk, and what `lock` did if it had to run.
fn current_lock(
    ctx: &Context,
    manifest: &Manifest,
    options: &RealizeOptions,
) -> Result<(Lock, String, Option<lock::Locked>)> {
    let stale = match ctx.project.lock()? {
        Some((lock, text)) => {
            let stale = lock::stale(&ctx.project, &lock, manifest)?;
            if stale.iter().all(overrides::is_of_a_run) {
                return Ok((lock, text, None));
            }
            LockCheckError::Stale(stale)
        }
        None => LockCheckError::Missing,
    };
    if options.locked {
        return Err(stale.into());
    }
    if let LockCheckError::Stale(_) = &stale {
        ctx.progress.event(Event::Note { text: &stale.to_string() });
    }
    let locked = match options.dry_run {
        true => lock::resolve(ctx, &Update::Nothing)?.0,
        false => lock::lock(ctx, &Update::Nothing)?,
    };
    Ok((locked.lock.clone(), locked.text.clone(), Some(locked)))
}

/// What env.toml allows a package to hold.
fn policy(manifest: &Manifest, package: &LockedPackage) -> UnpackPolicy {
    UnpackPolicy {
        allow_external_links: manifest.view.allow_external_links.contains(&package.name),
    }
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
            bytes: Some(missing.iter().map(|p| p.size).fold(0, u64::saturating_add)),
        });
        let add = |package: &LockedPackage, archive: PathBuf| -> std::result::Result<(), Failure> {
            let progress = &Quiet(&*ctx.progress);
            let policy = policy(manifest, package);
            let entry =
                store.add(&Add { package, archive: &archive, policy, verified: true, progress })?;
            // The store holds its content; the archive would only take room.
            let _ = std::fs::remove_file(&archive);
            stored.lock().unwrap_or_else(PoisonError::into_inner).insert(package.sha256, entry);
            ctx.progress.event(Event::Stored { item: &package.file });
            Ok(())
        };
        store.check_room(missing.iter().map(|p| p.size).fold(0, u64::saturating_add))?;
        let sources = ctx.sources()?;
        sources.learn(manifest);
        let dir = sources.download_dir().to_owned();
        sources.fetch_all(lock, missing, &dir, &add)?;
    }
    let mut stored = stored.into_inner().unwrap_or_else(PoisonError::into_inner);
    for package in packages {
        if !stored.contains_key(&package.sha256)
            && let Some(there) = store.lookup(package, policy(manifest, package))?
        {
            stored.insert(package.sha256, there);
        }
    }
    Ok(stored)
}

/// Drops what unpacking says about bytes: the bar counts the bytes of downloads.
struct Quiet<'a>(&'a dyn Progress);

impl Progress for Quiet<'_> {
    fn event(&self, event: Event<'_>) {
        if let Event::Note { .. } | Event::Warning { .. } = event {
            self.0.event(event);
        }
    }
}

/// A view to be built.
struct Job<'a> {
    ctx: &'a Context,
    store: &'a Store,
    lock: &'a Lock,
    environment: &'a LockedEnvironment,
    python: Option<&'a Path>,
}

struct Built {
    view_hash: Sha256,
    findings: Vec<String>,
}

impl Job<'_> {
    fn build(
        &self,
        packages: &[&LockedPackage],
        stored: &BTreeMap<Sha256, StoredPackage>,
        name: &str,
    ) -> Result<Built> {
        self.ctx.progress.event(Event::Phase { name: "linking", items: None, bytes: None });
        let inputs = self.inputs(packages, stored)?;
        let options = self.lock.view_options().map_err(|source| BadWinner { source })?;
        let activation = self.lock.activation();
        let plan = view::plan(&PlanInput {
            name: self.lock.name(),
            platform: self.environment.platform,
            packages: &inputs,
            host_python: self.environment.host_python.as_deref().and_then(minor),
            options: &options,
            activation_env: &activation.env,
        })?;
        let hash = ViewManifest::of(&plan).hash();
        if let Some(&expected) = comparable(self.environment).filter(|expected| **expected != hash)
        {
            return Err(RealizeError::ViewHash { expected, found: hash }.into());
        }
        let staging = self.store.stage()?;
        let staged = staging.path().join("view");
        let report = view::build(
            &plan,
            &Target {
                final_prefix: &self.store.env_path(name)?,
                staging: &staged,
                host_python: self.python,
            },
        )?;
        let view = self.store.publish_env(&staged, name)?;
        // It may be another's, who was faster.
        if let Err(stale) = view::check_fresh(&view, Some(&hash), self.python) {
            return Err(RealizeError::Damaged { view, stale }.into());
        }
        let mut findings: Vec<String> = plan.findings.iter().map(ToString::to_string).collect();
        findings.extend(report.notes.iter().map(ToString::to_string));
        Ok(Built { view_hash: report.view_hash, findings })
    }

    fn inputs<'b>(
        &'b self,
        packages: &[&'b LockedPackage],
        stored: &'b BTreeMap<Sha256, StoredPackage>,
    ) -> Result<Vec<PackageInput<'b>>> {
        // Closures of the same packages have one view: what counts is what the first asks for, so
        // that a variant that is added changes no view that was built.
        let asked = self.lock.asked(self.environment.env_id);
        let mut out = Vec::new();
        for package in packages {
            let there = stored
                .get(&package.sha256)
                .ok_or_else(|| RealizeError::Vanished { package: package.id.to_string() })?;
            let source = self.lock.source_of(package);
            let conda = package.kind == ArtifactKind::Conda;
            let direct = source
                .filter(|s| matches!(s.kind, SourceKind::Url | SourceKind::Path))
                .and(package.location.clone());
            out.push(PackageInput {
                record: &there.record,
                store_path: &there.path,
                root: asked.contains(&&package.id),
                channel: conda.then_some(package.source.as_str()),
                channel_url: source.filter(|_| conda).and_then(|s| s.url.as_deref()),
                direct_url: direct.map(|url| DirectUrl {
                    url: if url.contains("://") { url } else { format!("file:{url}") },
                }),
            });
        }
        Ok(out)
    }
}

/// A sentence where the machine has not the C library that the packages were chosen for. What they
/// truly need may be less.
fn older_glibc(environment: &LockedEnvironment, here: Option<(u16, u16)>) -> Option<String> {
    let assumed = environment.virtual_packages.iter().find_map(|text| {
        let (version, _) = text.strip_prefix("__glibc=")?.split_once('=')?;
        minor(version)
    })?;
    let found = match here.map(|(major, minor)| (u32::from(major), u32::from(minor))) {
        Some(here) if here >= assumed => return None,
        Some((major, minor)) => format!("has glibc {major}.{minor}"),
        None => "has no glibc".to_owned(),
    };
    Some(format!(
        "this environment is for machines with glibc {}.{} or later, and this one {found}: some of \
         its libraries may not load (`libc` in [system-requirements] of env.toml sets the bound)",
        assumed.0, assumed.1
    ))
}

/// `3.11.7` → `(3, 11)`.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    }
}

/// One record per (env id, GPU model, driver); a newer one replaces an older.
fn record_verification(lock: &mut Lock, env_id: &ShortHash, hook: &ProjectHook) {
    let gpu = machine::gpu();
    let record = Verification {
        env_id: *env_id,
        gpu: gpu.model.unwrap_or_else(|| "none".into()),
        driver: gpu.driver.unwrap_or_else(|| "none".into()),
        checks: vec![(hook.script.to_string(), "passed".into())],
        facts: BTreeMap::from([("script-sha256".to_owned(), hook.digest.to_string())]),
    };
    lock.verifications
        .retain(|v| (v.env_id, &v.gpu, &v.driver) != (record.env_id, &record.gpu, &record.driver));
    lock.verifications.push(record);
    lock.verifications.sort();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_glibc_is_told_before_anything_is_fetched() {
        let environment = LockedEnvironment {
            platform: Platform::Linux64,
            variant: None,
            env_id: ShortHash::of(&Sha256::of("")),
            host_python: None,
            virtual_packages: vec!["__cuda=11.8=0".into(), "__glibc=2.28=0".into()],
            packages: Vec::new(),
            view_hash: None,
            view_format: ViewManifest::FORMAT,
        };
        for fine in [(2, 28), (2, 36), (3, 0)] {
            assert_eq!(older_glibc(&environment, Some(fine)), None);
        }
        let text = older_glibc(&environment, Some((2, 17))).unwrap();
        assert!(text.contains("glibc 2.28") && text.contains("glibc 2.17"), "{text}");
        assert!(older_glibc(&environment, None).unwrap().contains("no glibc"));
    }
}
