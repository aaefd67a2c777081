//! `gpuenv.lock`: model, reader, writer, and why a lock is stale. Pure.
//!
//! The grammar is written down in `store-layout/lock.md`.

pub mod model;

pub use model::*;
