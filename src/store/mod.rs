//! The store: packages and environments, each complete or not there.
//!
//! The tree on disk and the grammar of every file in it are in `store-layout/README.md`.
//!
//! # How a package is added
//!
//! 1. Its lock file is taken, to save work; correctness does not depend on it.
//! 2. It is looked up once more.
//! 3. The archive is checked against size and digest, unpacked into a directory below
//!    `staging/`, checked against its own metadata, and its record is written beside the tree.
//! 4. One `syncfs` flushes all of it; packages added at the same time share it.
//! 5. The record is renamed to `packages/<key>.json`.
//! 6. The tree is renamed to `packages/<key>`: from here on the package exists.
//!
//! Killed before 6, the store holds nothing new but, at most, a record without a tree, which
//! counts for nothing and is replaced by the next attempt; what is below `staging/` is removed
//! by the next process that writes. A tree without a record can only come from a file system
//! that lost a renaming in a power cut; it counts for nothing too, and is moved away. Whoever
//! loses the race for the name in 6 compares NAR hashes and uses what is there.

mod error;
pub mod key;
mod lock;
mod staging;
mod sync;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use error::StoreError;
pub use key::{PackageKey, env_name};
pub use staging::StagingDir;

use crate::fs;
use crate::hash::{Sha256, ShortHash};
use crate::lockfile::{ArtifactKind, LockedPackage};
use crate::package::{
    Fault, Limits, PackageRecord, Unpack, UnpackPolicy, meta, nar, record, unpack,
};
use crate::progress::{Event, Progress};
use lock::{Attempt, Lock};

/// The store format this program writes.
pub const FORMAT: u32 = 1;

const VERSION: &str = "version";
const PACKAGES: &str = "packages";
const ENVS: &str = "envs";
const ROOTS: &str = "roots";
const STAGING: &str = "staging";
const DOWNLOADS: &str = "downloads";
const LOCKS: &str = "locks";

/// How long somebody else's lock is waited for. Then work may be done twice, which is better
/// than waiting for a process that was stopped, or a lock that a dead server still keeps.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// The result of everything here.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A store, open for reading; what writes prepares it for writing by itself.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    prepared: Mutex<bool>,
    sync: sync::GroupSync,
}

/// A package in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPackage {
    /// Its name.
    pub key: PackageKey,
    /// Its tree.
    pub path: PathBuf,
    /// Its record.
    pub record: PackageRecord,
}

/// What is to be added.
pub struct Add<'a> {
    /// The package, as locked.
    pub package: &'a LockedPackage,
    /// Its archive on disk, whatever its name.
    pub archive: &'a Path,
    /// What env.toml allows it.
    pub policy: UnpackPolicy,
    /// Whether size and digest of this very file were checked just now, as by a download.
    pub verified: bool,
    /// Told about bytes of the archive, and about whatever is odd.
    pub progress: &'a dyn Progress,
}

impl Store {
    /// Where the store is if nothing else is said: `$GPUENV_STORE`, else
    /// `$XDG_DATA_HOME/gpuenv/store`, else `~/.local/share/gpuenv/store`.
    ///
    /// # Errors
    ///
    /// A relative `$GPUENV_STORE`; none of the variables set. (A relative `$XDG_DATA_HOME` is
    /// passed over, as the XDG base directory specification asks.)
    pub fn default_root(env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
        let get = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(root) = get("GPUENV_STORE") {
            return if root.is_absolute() { Ok(root) } else { Err(StoreError::Relative(root)) };
        }
        let data = get("XDG_DATA_HOME")
            .filter(|p| p.is_absolute())
            .or_else(|| Some(get("HOME").filter(|p| p.is_absolute())?.join(".local/share")))
            .ok_or(StoreError::NoHome)?;
        Ok(data.join("gpuenv/store"))
    }

    /// Opens the store at `root`. Nothing is written; a store that is not there yet is empty.
    ///
    /// # Errors
    ///
    /// A relative path, a directory that is no store, a store of a later format.
    pub fn open(root: impl Into<PathBuf>) -> Result<Store> {
        let root = root.into();
        if !root.is_absolute() {
            return Err(StoreError::Relative(root));
        }
        let path = root.join(VERSION);
        match fs::read(&path) {
            Ok(bytes) => check_version(&root, &path, &bytes)?,
            Err(e) if e.is_missing() => refuse_foreign(&root)?,
            Err(e) => return Err(e.into()),
        }
        Ok(Store { root, prepared: Mutex::new(false), sync: sync::GroupSync::default() })
    }

    /// The directory of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the tree of a package is, or would be.
    pub fn package_path(&self, key: &PackageKey) -> PathBuf {
        self.root.join(PACKAGES).join(key.as_str())
    }

    /// Where the record of a package is, or would be.
    pub fn record_path(&self, key: &PackageKey) -> PathBuf {
        self.root.join(PACKAGES).join(format!("{key}.json"))
    }

    /// Whether a package is there. Two look-ups, nothing read.
    pub fn contains(&self, key: &PackageKey) -> Result<bool> {
        Ok(fs::lstat(&self.package_path(key))?.is_some()
            && fs::lstat(&self.record_path(key))?.is_some())
    }

    /// A package, if it is there.
    ///
    /// # Errors
    ///
    /// A record that is damaged, of a later format, or of another package.
    pub fn get(&self, key: &PackageKey) -> Result<Option<StoredPackage>> {
        let path = self.package_path(key);
        if fs::lstat(&path)?.is_none() {
            return Ok(None);
        }
        let record_path = self.record_path(key);
        let bytes = match fs::read(&record_path) {
            Ok(bytes) => bytes,
            Err(e) if e.is_missing() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let record = parse_record(&record_path, &bytes)?;
        Ok(Some(StoredPackage { key: key.clone(), path, record }))
    }

    /// The package of a lock, if it is there.
    ///
    /// # Errors
    ///
    /// Those of [`Store::get`]; a NAR hash that differs from the lock's.
    pub fn lookup(
        &self,
        package: &LockedPackage,
        policy: UnpackPolicy,
    ) -> Result<Option<StoredPackage>> {
        let stored = self.get(&PackageKey::with_policy(package, policy))?;
        if let Some(stored) = &stored {
            agree(package, stored.record.nar)?;
        }
        Ok(stored)
    }

    /// Adds a package, or finds it there.
    ///
    /// # Errors
    ///
    /// The store cannot be written to or is full; the archive is not the one of the lock, is
    /// refused ([`Fault`]), or unpacks to another tree than the lock says. The store is then
    /// as it was.
    pub fn add(&self, add: &Add<'_>) -> Result<StoredPackage> {
        let key = PackageKey::with_policy(add.package, add.policy);
        if let Some(there) = self.lookup(add.package, add.policy)? {
            return Ok(there);
        }
        self.prepare()?;
        let _lock = self.wait_for(&key, add)?;
        if let Some(there) = self.lookup(add.package, add.policy)? {
            return Ok(there);
        }
        if !add.verified {
            check_artifact(add.package, add.archive)?;
        }
        let staging = StagingDir::new(&self.root.join(STAGING))?;
        let tree = staging.path().join("tree");
        fs::create_dir(&tree)?;
        let record = unpack_into(&tree, add)?;
        agree(add.package, record.nar)?;
        self.publish(key, staging, record)
    }

    /// Takes the lock of a package, or waits for what its holder makes. `None` means: go on
    /// without.
    fn wait_for(&self, key: &PackageKey, add: &Add<'_>) -> Result<Option<Lock>> {
        let path = self.root.join(LOCKS).join(format!("{key}.lock"));
        let begun = Instant::now();
        let mut pause = Duration::from_millis(5);
        let mut told = false;
        loop {
            match lock::try_lock(&path) {
                Attempt::Held(lock) => return Ok(Some(lock)),
                Attempt::Unsupported => return Ok(None),
                Attempt::Busy if begun.elapsed() > PATIENCE => return Ok(None),
                Attempt::Busy => {}
            }
            if !told && begun.elapsed() > Duration::from_secs(1) {
                told = true;
                let text = format!("waiting for another gpuenv that adds {}", add.package.file);
                add.progress.event(Event::Note { text: &text });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }

    /// Steps 4 to 6 of the module's documentation.
    fn publish(
        &self,
        key: PackageKey,
        staging: StagingDir,
        record: PackageRecord,
    ) -> Result<StoredPackage> {
        let staged_record = staging.path().join("record.json");
        write_record(&staged_record, &record)?;
        self.sync.sync(staging.path())?;

        let path = self.package_path(&key);
        let record_path = self.record_path(&key);
        let mut placed = false;
        for attempt in 0.. {
            if fs::lstat(&path)?.is_some() {
                match self.get(&key)? {
                    // Another process was here, now or long ago.
                    Some(there) => return won_by(there, record.nar),
                    // A tree without a record is debris.
                    None => fs::rename(&path, &staging.path().join(format!("debris-{attempt}")))?,
                }
            }
            if !placed {
                match fs::rename_new(&staged_record, &record_path) {
                    Ok(()) => {}
                    // A record without a tree, whole or damaged: ours takes its place.
                    Err(e) if e.is_taken() => fs::rename(&staged_record, &record_path)?,
                    Err(e) => return Err(e.into()),
                }
                placed = true;
            }
            match fs::rename(&staging.path().join("tree"), &path) {
                Ok(()) => break,
                Err(e) if e.is_taken() && attempt < 3 => {}
                Err(e) => return Err(e.into()),
            }
        }
        // Only now, as a directory must be writable to be renamed into another one. Killed in
        // between, the package is whole; its top directory is merely writable for its owner.
        fs::set_mode(&path, 0o555)?;
        Ok(StoredPackage { key, path, record })
    }

    /// Makes the layout and removes what the dead left, once per opened store.
    fn prepare(&self) -> Result<()> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if *prepared {
            return Ok(());
        }
        let make = || -> fs::Result<()> {
            for dir in [PACKAGES, ENVS, ROOTS, STAGING, DOWNLOADS, LOCKS] {
                fs::create_dir_all(&self.root.join(dir))?;
            }
            let version = self.root.join(VERSION);
            if fs::lstat(&version)?.is_none() {
                fs::write_atomic(&version, version_text().as_bytes(), 0o444)?;
            }
            // The test of whether anything can be added at all.
            StagingDir::new(&self.root.join(STAGING)).map(drop)
        };
        make().map_err(|source| match source.trouble() {
            fs::Trouble::ReadOnly
            | fs::Trouble::Denied
            | fs::Trouble::NoSpace
            | fs::Trouble::Quota => StoreError::ReadOnly { root: self.root.clone(), source },
            _ => source.into(),
        })?;
        staging::clean(&self.root.join(STAGING));
        *prepared = true;
        Ok(())
    }

    /// The directory for downloads in progress, made where missing. It is in the store so that
    /// it is on the same disk, and survives a restart for resuming.
    pub fn downloads(&self) -> Result<PathBuf> {
        self.prepare()?;
        Ok(self.root.join(DOWNLOADS))
    }

    /// Fails early where packages whose archives have `packed` bytes together cannot fit: unpacked
    /// they are larger, how much nobody knows. What does fit this may still fill the disk.
    pub fn check_room(&self, packed: u64) -> Result<()> {
        let free = self.free_space()?;
        if free < packed {
            return Err(StoreError::NoRoom { root: self.root.clone(), packed, free });
        }
        Ok(())
    }

    /// Bytes that this user can still write to the store's file system, as far as it says.
    fn free_space(&self) -> Result<u64> {
        // The nearest directory that exists says it for those that do not yet.
        let at = self.root.ancestors().find(|p| p.is_dir()).unwrap_or(Path::new("/"));
        let stat = rustix::fs::statvfs(at)
            .map_err(|e| fs::FsError::at("look at the file system of", at)(e.into()))?;
        // Some file systems of the network and of FUSE know no number, and say zero to all.
        Ok(if stat.f_blocks == 0 { u64::MAX } else { stat.f_bavail.saturating_mul(stat.f_frsize) })
    }

    /// A directory in the store for work in progress, on the same file system as packages and
    /// environments. Dropped, it is removed.
    pub fn stage(&self) -> Result<StagingDir> {
        self.prepare()?;
        Ok(StagingDir::new(&self.root.join(STAGING))?)
    }

    /// Where an environment of a name is, or would be.
    ///
    /// # Errors
    ///
    /// A name that [`env_name`] did not make.
    pub fn env_path(&self, name: &str) -> Result<PathBuf> {
        key::check_name(name)?;
        Ok(self.root.join(ENVS).join(name))
    }

    /// An environment's directory, if it is there.
    pub fn get_env(&self, name: &str) -> Result<Option<PathBuf>> {
        let path = self.env_path(name)?;
        Ok(fs::lstat(&path)?.is_some_and(|m| m.is_dir()).then_some(path))
    }

    /// Gives the finished view at `staged` (below a [`Store::stage`] of this store) its place,
    /// after one flush. Losing a race to the same name is success: what is there is returned,
    /// and `staged` stays where it is, to be dropped.
    pub fn publish_env(&self, staged: &Path, name: &str) -> Result<PathBuf> {
        let path = self.env_path(name)?;
        self.prepare()?;
        if let Some(there) = self.get_env(name)? {
            return Ok(there);
        }
        fs::set_mode(staged, 0o755)?;
        fs::set_times(staged)?;
        self.sync.sync(staged)?;
        match fs::rename(staged, &path) {
            Ok(()) => {}
            Err(e) if e.is_taken() => {
                return self.get_env(name)?.ok_or_else(|| e.into());
            }
            Err(e) => return Err(e.into()),
        }
        fs::set_mode(&path, 0o555)?;
        fs::sync_dir(&self.root.join(ENVS))?;
        Ok(path)
    }

    /// Registers the link at `link` (absolute; a project's generation link) as a root: what it
    /// points at is kept. Nothing is written if it is registered already.
    pub fn add_root(&self, link: &Path) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        if !link.is_absolute() {
            return Err(StoreError::Relative(link.to_owned()));
        }
        let name = ShortHash::of(&Sha256::of(link.as_os_str().as_bytes())).to_string();
        let path = self.root.join(ROOTS).join(&name);
        if fs::read_link(&path).is_ok_and(|target| target == link) {
            return Ok(());
        }
        self.prepare()?;
        let staging = StagingDir::new(&self.root.join(STAGING))?;
        let staged = staging.path().join(&name);
        fs::symlink(link, &staged)?;
        fs::rename(&staged, &path)?;
        Ok(fs::sync_dir(&self.root.join(ROOTS))?)
    }
}

/// Unpacks an archive and makes the record of it.
fn unpack_into(tree: &Path, add: &Add<'_>) -> Result<PackageRecord> {
    let locked = add.package;
    let unpacked = unpack(&Unpack {
        archive: add.archive,
        file: &locked.file,
        into: tree,
        policy: add.policy,
        limits: Limits::default(),
        progress: add.progress,
    })?;
    let read = meta::read(&meta::Contents::new(tree, &unpacked), locked)
        .map_err(|fault| fault.of(&locked.file))?;
    for text in &read.notes {
        add.progress.event(Event::Note { text });
    }
    let mut elf = unpacked.elf;
    if let Some(machine) = machine(locked) {
        for file in &mut elf {
            file.dynamic.foreign = file.dynamic.machine != 0 && file.dynamic.machine != machine;
        }
    }
    Ok(PackageRecord {
        format: record::FORMAT,
        kind: locked.kind,
        name: locked.name.clone(),
        version: locked.version.clone(),
        build: locked.build.clone(),
        file: locked.file.clone(),
        sha256: locked.sha256,
        size: locked.size,
        nar: unpacked.nar,
        nar_size: unpacked.nar_size,
        entries: unpacked.entries,
        meta: read.meta,
        elf,
    })
}

/// The ELF machine that a package is for, if it says one.
fn machine(package: &LockedPackage) -> Option<u16> {
    let platform = match package.kind {
        ArtifactKind::Conda => package.subdir.as_deref()?,
        // The platform tag is the last part of a wheel's name.
        ArtifactKind::Wheel => package.file.strip_suffix(".whl")?.rsplit('-').next()?,
    };
    [
        ("x86_64", crate::elf::EM_X86_64),
        ("linux-64", crate::elf::EM_X86_64),
        ("aarch64", crate::elf::EM_AARCH64),
        ("ppc64le", crate::elf::EM_PPC64),
    ]
    .into_iter()
    .find(|(name, _)| platform.ends_with(name))
    .map(|(_, machine)| machine)
}

/// Checks the archive as a whole against the lock.
fn check_artifact(package: &LockedPackage, archive: &Path) -> Result<()> {
    let file = fs::open(archive)?;
    let (found, found_size) = Sha256::of_reader(file).map_err(fs::FsError::at("read", archive))?;
    if found != package.sha256 || found_size != package.size {
        let fault = Fault::Artifact {
            expected: package.sha256,
            expected_size: package.size,
            found,
            found_size,
        };
        return Err(fault.of(&package.file).into());
    }
    Ok(())
}

/// Checks a NAR hash against the lock's, if it has one.
fn agree(package: &LockedPackage, found: Sha256) -> Result<()> {
    match package.nar {
        Some(expected) if expected != found => {
            Err(StoreError::Nar { file: package.file.clone(), expected, found })
        }
        _ => Ok(()),
    }
}

/// The outcome of a race that another process won.
fn won_by(there: StoredPackage, found: Sha256) -> Result<StoredPackage> {
    if there.record.nar != found {
        let StoredPackage { path, record, .. } = there;
        return Err(StoreError::Differs { path, stored: record.nar, found });
    }
    Ok(there)
}

fn write_record(path: &Path, record: &PackageRecord) -> Result<()> {
    let mut bytes = serde_json::to_vec(record)
        .map_err(|source| StoreError::Record { path: path.to_owned(), source })?;
    bytes.push(b'\n');
    Ok(fs::write_new(path, &bytes, 0o444)?)
}

/// Reads a record, its format before the rest.
fn parse_record(path: &Path, bytes: &[u8]) -> Result<PackageRecord> {
    #[derive(serde::Deserialize)]
    struct Head {
        format: u32,
    }
    let damaged = |source| StoreError::Record { path: path.to_owned(), source };
    let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
    if head.format != record::FORMAT {
        return Err(StoreError::RecordIs {
            path: path.to_owned(),
            what: format!(
                "has format {}; this gpuenv reads format {}",
                head.format,
                record::FORMAT
            ),
        });
    }
    serde_json::from_slice(bytes).map_err(damaged)
}

fn version_text() -> String {
    format!("gpuenv store {FORMAT}\n")
}

fn check_version(root: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(bytes);
    let found = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("gpuenv store "))
        .and_then(|n| n.trim().parse::<u32>().ok());
    match found {
        Some(found) if found > FORMAT => {
            Err(StoreError::Newer { root: root.to_owned(), found, known: FORMAT })
        }
        Some(FORMAT) => Ok(()),
        _ => Err(StoreError::Version {
            path: path.to_owned(),
            text: text.chars().take(80).collect(),
        }),
    }
}

/// Refuses a directory without version file that holds anything but the beginnings of a store:
/// a slip of the pen in GPUENV_STORE must not mix a store into somebody's home.
fn refuse_foreign(root: &Path) -> Result<()> {
    let names = match fs::list(root) {
        Ok(names) => names,
        Err(e) if e.is_missing() => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let ours = |name: &str| {
        [PACKAGES, ENVS, ROOTS, STAGING, DOWNLOADS, LOCKS, "lost+found"].contains(&name)
            || name.starts_with(".tmp-")
    };
    match names.iter().map(|n| n.to_string_lossy()).find(|n| !ours(n)) {
        Some(found) => {
            Err(StoreError::NotAStore { root: root.to_owned(), found: found.into_owned() })
        }
        None => Ok(()),
    }
}

/// The NAR hash and size of a package's tree as it is on disk now.
pub fn nar_of(package: &StoredPackage) -> Result<(Sha256, u64)> {
    Ok(nar::hash_dir(&package.path)?)
}

#[cfg(test)]
pub(crate) mod tests;
