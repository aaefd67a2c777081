//! Why an archive is refused.

use crate::error::{Exit, Report};
use crate::fs::{FsError, Trouble};
use crate::hash::Sha256;
use crate::relpath::{RelPath, RelPathError};

/// An archive that was refused, and why.
#[derive(Debug)]
pub struct PackageError {
    /// File name of the archive.
    pub file: String,
    /// What is wrong with it, with the entry concerned.
    pub fault: Fault,
}

impl std::fmt::Display for PackageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.file, self.fault)
    }
}

// By hand, as the fault's words are part of this error's own and must not come twice.
impl std::error::Error for PackageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.fault)
    }
}

/// What is wrong with an archive or with what it says about itself.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Not a name of an archive.
    #[error("the file name ends in neither .whl, .conda nor .tar.bz2")]
    Format,
    /// An entry's path leaves the tree, or is none.
    #[error("an entry is refused: {0}")]
    Path(#[from] RelPathError),
    /// Two entries of one path.
    #[error("two entries have the path `{0}`")]
    Duplicate(RelPath),
    /// Two entries of a wheel that one directory cannot hold on every file system.
    #[error("entries `{0}` and `{1}` differ only in upper and lower case")]
    Case(RelPath, RelPath),
    /// An entry lies below another entry that is a link.
    #[error("entry `{path}` would be written through the link `{link}`")]
    ThroughLink {
        /// The entry.
        path: RelPath,
        /// The link above it.
        link: RelPath,
    },
    /// An entry lies below another entry that is a file, or a file where a directory is.
    #[error("entry `{path}` is both a directory and something else")]
    NotADirectory {
        /// The path in question.
        path: RelPath,
    },
    /// A link leads out of the tree.
    #[error("link `{path}` leads out of the package, to `{target}`")]
    LinkLeaves {
        /// The link.
        path: RelPath,
        /// Its text.
        target: String,
    },
    /// A link text no file system takes.
    #[error("link `{path}` has no usable target")]
    LinkText {
        /// The link.
        path: RelPath,
    },
    /// A hard link to something that is no earlier regular file of the archive.
    #[error("hard link `{path}` names `{target}`, which is no earlier file of the archive")]
    HardLink {
        /// The entry.
        path: RelPath,
        /// What it names.
        target: String,
    },
    /// A link in a wheel; the wheel format has none (PEP 427).
    #[error("entry `{0}` is a symbolic link, which a wheel cannot hold")]
    WheelLink(RelPath),
    /// A device, pipe, socket, or an entry of a type nobody knows.
    #[error("entry `{path}` is a {kind}")]
    Special {
        /// The entry.
        path: String,
        /// What it is.
        kind: String,
    },
    /// An encrypted entry.
    #[error("entry `{0}` is encrypted")]
    Encrypted(RelPath),
    /// A compression that is not read.
    #[error("entry `{path}` is compressed by the method {method}, which is not supported")]
    Method {
        /// The entry.
        path: RelPath,
        /// Number and name.
        method: String,
    },
    /// The two headers that a zip file has for each entry disagree.
    #[error("the local header of `{path}` gives another {what} than the central directory")]
    Headers {
        /// The entry.
        path: RelPath,
        /// What differs.
        what: &'static str,
    },
    /// Bytes of the archive belong to two entries.
    #[error("entry `{0}` overlaps another entry")]
    Overlap(RelPath),
    /// Bytes before or after the archive proper, or a count that is off.
    #[error("the zip structure is inconsistent: {0}")]
    Structure(&'static str),
    /// Content does not have the checksum the archive gives.
    #[error("entry `{path}` is damaged: checksum {found:08x}, expected {expected:08x}")]
    Crc {
        /// The entry.
        path: RelPath,
        /// From the archive.
        expected: u32,
        /// Of the content.
        found: u32,
    },
    /// Content does not have the length the archive gives.
    #[error("entry `{path}` has {found} bytes instead of the declared {expected}")]
    Length {
        /// The entry.
        path: RelPath,
        /// From the archive.
        expected: u64,
        /// How many there are, or at least are.
        found: u64,
    },
    /// A limit that only a hostile archive reaches.
    #[error("the archive unpacks to more than {limit} {what} (limit `{name}`)")]
    Limit {
        /// Name of the limit.
        name: &'static str,
        /// Its value.
        limit: u64,
        /// What is counted.
        what: &'static str,
    },
    /// The archive cannot be decoded.
    #[error("{what} cannot be read")]
    Damaged {
        /// What was being read.
        what: String,
        /// The decoder's words.
        #[source]
        source: std::io::Error,
    },
    /// The zip structure cannot be decoded.
    #[error("the zip structure cannot be read")]
    Zip(#[source] rawzip::Error),
    /// A `.conda` file without one of its parts, or with two of one.
    #[error("{0}")]
    CondaLayout(String),
    /// A file that every package has is missing.
    #[error("it has no `{0}`")]
    NoFile(String),
    /// A metadata file cannot be understood.
    #[error("`{path}` cannot be understood: {why}")]
    Metadata {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The archive is of another package than the lock says.
    #[error("its {what} is `{found}`, the lock says `{expected}`")]
    Other {
        /// `name`, `version` or `build`.
        what: &'static str,
        /// From the lock.
        expected: String,
        /// From the archive.
        found: String,
    },
    /// Not exactly one `.dist-info` directory.
    #[error("a wheel has one `.dist-info` directory, this one has {}", listed(.0))]
    DistInfo(Vec<String>),
    /// A wheel format of the future.
    #[error("it has the wheel format {0}; formats 1.x are supported")]
    WheelVersion(String),
    /// A file is not what `RECORD` or `paths.json` says.
    #[error("`{path}` is not what `{list}` says: sha256 {found}, expected {expected}")]
    Content {
        /// The file.
        path: RelPath,
        /// The list that says otherwise.
        list: String,
        /// From the list.
        expected: String,
        /// Of the content.
        found: String,
    },
    /// A file that `paths.json` lists is not in the archive.
    #[error("`{path}` is listed in `{list}`, but the archive does not hold it")]
    Unheld {
        /// The file.
        path: String,
        /// The list.
        list: String,
    },
    /// The file as a whole is not the one the lock names.
    #[error(
        "it has sha256 {found} and {found_size} bytes; the lock says {expected} and {expected_size} bytes"
    )]
    Artifact {
        /// From the lock.
        expected: Sha256,
        /// From the lock.
        expected_size: u64,
        /// Of the file.
        found: Sha256,
        /// Of the file.
        found_size: u64,
    },
    /// The file system, not the archive.
    #[error("unpacking failed")]
    Fs(#[source] FsError),
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl From<FsError> for Fault {
    fn from(e: FsError) -> Fault {
        Fault::Fs(e)
    }
}

impl Fault {
    /// Names the archive.
    pub fn of(self, file: &str) -> PackageError {
        PackageError { file: file.to_owned(), fault: self }
    }
}

impl Report for PackageError {
    fn exit(&self) -> Exit {
        Exit::User
    }

    fn hint(&self) -> Option<String> {
        Some(match &self.fault {
            Fault::Fs(e) => return e.hint(),
            Fault::LinkLeaves { .. } => {
                "what such a link leads to differs from machine to machine; if you know this package and want it so, add its name to the list `allow-external-links` in `[view]` of env.toml".to_owned()
            }
            Fault::Format | Fault::Method { .. } | Fault::WheelVersion(_) => {
                "pick another build of this package".to_owned()
            }
            Fault::Artifact { .. } => {
                "nothing was kept; the file was changed, or the download was cut: run the same command again, and if it stays so, find out which source serves another file than the one that was locked".to_owned()
            }
            Fault::Other { .. } => {
                "the lock was edited by hand, or the source lists this file under a wrong name; `gpuenv lock` makes a new lock".to_owned()
            }
            Fault::Limit { .. } => {
                "nothing was kept; this looks like an archive made to fill the disk. If it is not, report it, with the name of the limit".to_owned()
            }
            Fault::Damaged { .. } | Fault::Zip(_) | Fault::Crc { .. } | Fault::Length { .. } => {
                "nothing was kept; the archive itself is damaged at its source: pick another build of this package, or tell whoever publishes it".to_owned()
            }
            _ => "nothing was kept; the archive is malformed: pick another build of this package, or tell whoever publishes it".to_owned(),
        })
    }
}

impl PackageError {
    /// The trouble of the file system behind it, if that is what it was.
    pub fn trouble(&self) -> Option<Trouble> {
        match &self.fault {
            Fault::Fs(e) => Some(e.trouble()),
            _ => None,
        }
    }
}
