//! The one edge type between errors of the rooms and what the user sees.
//!
//! Rooms define `thiserror` enums: lower-case fragments, `#[source]` for the cause, never the
//! cause's words repeated. Each such enum implements [`Report`], which says how the process
//! ends and what to do next. Only [`crate::cli`] prints.

use std::error::Error;

/// How the process ends. Public and stable: scripts rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Exit {
    /// All that was asked for is done.
    Done = 0,
    /// Something the user can mend: an unsatisfiable set, a hash mismatch, a failed check.
    User = 1,
    /// The command line itself is wrong (also what clap uses).
    Usage = 2,
    /// A source or the network failed; the same command may work later.
    Source = 3,
    /// A bug in gpuenv.
    Bug = 70,
}

/// A place in a text the user wrote, to be shown with the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snippet {
    /// File name as the user knows it, such as `env.toml`.
    pub file: String,
    /// The whole text of the file.
    pub text: String,
    /// Byte range within `text`.
    pub span: std::ops::Range<usize>,
    /// Short words under the span, such as `expected a string`.
    pub label: String,
}

/// What every error of a room can say about itself at the edge.
pub trait Report: Error + Send + Sync + 'static {
    /// The exit status this error leads to.
    fn exit(&self) -> Exit;
    /// What to do next, as a sentence; several lines are allowed.
    fn hint(&self) -> Option<String> {
        None
    }
    /// The place in a file of the user that is at fault.
    fn snippet(&self) -> Option<Snippet> {
        None
    }
}

/// Any [`Report`], as it travels from the rooms through `ops` to `cli`.
#[derive(Debug)]
pub struct Failure(Box<dyn Report>);

impl Failure {
    /// The exit status of the process.
    pub fn exit(&self) -> Exit {
        self.0.exit()
    }
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        self.0.hint()
    }
    /// The place in a file of the user.
    pub fn snippet(&self) -> Option<Snippet> {
        self.0.snippet()
    }
    /// The error with its chain of sources.
    pub fn error(&self) -> &(dyn Error + 'static) {
        &*self.0
    }
}

impl<R: Report> From<R> for Failure {
    fn from(report: R) -> Self {
        Failure(Box::new(report))
    }
}

/// The result of everything in `ops`.
pub type Result<T> = std::result::Result<T, Failure>;
