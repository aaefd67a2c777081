//! What can go wrong with the store.

use std::path::PathBuf;

use super::key::BadName;
use crate::error::{Exit, Report};
use crate::fs::{FsError, Trouble};
use crate::hash::Sha256;
use crate::package::PackageError;

/// What can go wrong with the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store must not depend on where the command was started.
    #[error("the store must be an absolute path, not `{}`", .0.display())]
    Relative(PathBuf),
    /// Neither variable that could say where the store is.
    #[error("no place for the store: neither GPUENV_STORE nor XDG_DATA_HOME nor HOME is set")]
    NoHome,
    /// A directory with other things in it.
    #[error("{} is not a gpuenv store: it has no file `version`, but holds `{found}`", .root.display())]
    NotAStore {
        /// The directory.
        root: PathBuf,
        /// A thing in it.
        found: String,
    },
    /// Made by a later gpuenv.
    #[error("the store {} has format {found}; this gpuenv knows formats up to {known}", .root.display())]
    Newer {
        /// The store.
        root: PathBuf,
        /// Its format.
        found: u32,
        /// [`super::FORMAT`].
        known: u32,
    },
    /// A version file that says nothing.
    #[error("the store's version file {} cannot be understood: it says {text:?}", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its beginning.
        text: String,
    },
    /// Something must be added, and this user may not write.
    #[error("the store {} cannot be written to", .root.display())]
    ReadOnly {
        /// The store.
        root: PathBuf,
        /// The first thing that failed.
        #[source]
        source: FsError,
    },
    /// The packages to be added are larger than the disk has room.
    #[error("the disk of the store {} is too full: {} MB are free, and the packages to be added have {} MB packed", .root.display(), .free / 1_000_000, .packed.div_ceil(1_000_000))]
    NoRoom {
        /// The store.
        root: PathBuf,
        /// Bytes of the archives.
        packed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The archive is refused.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The archive unpacks to another tree than the lock says.
    #[error("{file} unpacks to a tree with NAR hash {found}; the lock says {expected}")]
    Nar {
        /// The archive.
        file: String,
        /// From the lock.
        expected: Sha256,
        /// Computed, or from the record in the store.
        found: Sha256,
    },
    /// The store holds something else under the same name.
    #[error("{} is in the store with NAR hash {stored}, but the same archive now unpacks to {found}", .path.display())]
    Differs {
        /// The package in the store.
        path: PathBuf,
        /// From its record.
        stored: Sha256,
        /// Computed now.
        found: Sha256,
    },
    /// A record that cannot be read.
    #[error("the record {} is damaged", .path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// A record that is of a later format, or of another package than its name says.
    #[error("the record {} {what}", .path.display())]
    RecordIs {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A name that cannot be one of the store.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The file system.
    #[error(transparent)]
    Fs(#[from] FsError),
}

impl Report for StoreError {
    fn exit(&self) -> Exit {
        match self {
            StoreError::Package(e) => e.exit(),
            StoreError::Fs(e) => e.exit(),
            StoreError::Name(_) => Exit::Bug,
            _ => Exit::User,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            StoreError::Relative(_) | StoreError::NoHome => {
                "give an absolute path with `--store` or GPUENV_STORE".to_owned()
            }
            StoreError::NotAStore { .. } => {
                "point `--store` or GPUENV_STORE at an empty or new directory".to_owned()
            }
            StoreError::Newer { .. } => {
                "use a newer gpuenv, or another store with `--store` or GPUENV_STORE".to_owned()
            }
            StoreError::Version { path, .. } => format!(
                "if this is a store, write the line `gpuenv store {}` into {}",
                super::FORMAT,
                path.display()
            ),
            StoreError::ReadOnly { source, .. } => match source.trouble() {
                Trouble::NoSpace | Trouble::Quota => return source.hint(),
                _ => "what is in it can be used; to add to it, ask its owner, or choose a store of your own with `--store` or GPUENV_STORE".to_owned(),
            },
            StoreError::NoRoom { root, .. } => return Trouble::NoSpace.hint(root),
            StoreError::Package(e) => return e.hint(),
            StoreError::Nar { .. } => {
                "the lock was edited by hand, or written by a gpuenv that unpacks differently; if you trust the archive, remove the line `nar` of this package from the lock and run `gpuenv realize` again".to_owned()
            }
            StoreError::Differs { path, .. } => format!(
                "the store was changed behind gpuenv's back; remove {} and run the same command again",
                path.display()
            ),
            StoreError::Record { path, .. } | StoreError::RecordIs { path, .. } => format!(
                "remove {} (it is made again from the archive), and run the same command again",
                path.display()
            ),
            StoreError::Fs(e) => return e.hint(),
            StoreError::Name(_) => return None,
        })
    }
}
