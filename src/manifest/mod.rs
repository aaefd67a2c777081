//! `env.toml`: typed, with spans. Pure: text in, model out.
//!
//! The grammar is written down in `store-layout/env-toml.md`.

pub mod edit;
mod error;
mod inputs;
mod location;
pub mod model;
mod moment;
mod parse;
mod variants;

pub use error::{Cause, Fault, FaultKind, ManifestError};
pub(crate) use error::{line_column, list};
pub use inputs::inputs;
pub use location::{LockLocation, Place, has_credentials, lock_location, mask_credentials, place};
pub use model::*;
pub use moment::{ExcludeNewer, Moment, MomentError};
pub(crate) use parse::is_env_name;
pub use parse::parse;
pub use variants::{BadVariantName, Closure, DEFAULT_VARIANT, Variant, VariantGpu, VariantName};

#[cfg(test)]
mod tests;
