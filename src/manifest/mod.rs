//! `env.toml`: typed, with spans. Pure: text in, model out.
//!
//! The grammar is written down in `store-layout/env-toml.md`.

pub mod model;

pub use model::*;
