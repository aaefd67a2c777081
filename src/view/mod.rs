//! The view: plan (pure), link, relocate, entry points, activation.
//!
//! [`plan::plan`] decides what a view holds; [`manifest`] writes that down, and its hash is the
//! view hash; [`build::build`] makes it; [`activate`] is what a shell or a command in it sees.
//! The formats are written down in `store-layout/view.md`.

pub mod activate;
pub mod build;
mod content;
mod entry_point;
mod farm;
mod finding;
mod links;
pub mod manifest;
pub mod plan;
mod relocate;
#[cfg(test)]
mod testing;

pub use build::{BuildError, BuildReport, build, check_fresh};
pub use content::{CondaFile, CondaFileType, Content, RunScript};
pub use finding::{Finding, Place};
pub use plan::{DirectUrl, PackageInput, Plan, PlanError, PlanInput, plan};
