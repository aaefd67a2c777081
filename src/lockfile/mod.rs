//! `gpuenv.lock`: model, reader, writer, and why a lock is stale. Pure.
//!
//! The grammar is written down in `store-layout/lock.md`.

mod check;
mod env_id;
mod error;
mod graph;
pub mod model;
mod parse;
mod salvage;
mod stale;
mod write;

pub use check::check;
pub use env_id::{ENV_ID_FORMAT, EnvIdInput, EnvIdPackage, env_id};
pub use error::{Cause, LockError, LockErrorKind};
pub use graph::{Graph, Node, Tree};
pub use model::*;
pub use parse::parse;
pub use salvage::{Pin, salvage};
pub use stale::{Stale, stale};
pub use write::write;

#[cfg(test)]
mod tests;
