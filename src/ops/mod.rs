//! One file a verb: calls the rooms below in order. Nothing here prints.

pub mod context;
pub mod edit;
pub mod generation;
pub mod lock;
pub mod overrides;
pub mod problem;
pub mod project;
pub mod realize;
pub mod run;
pub mod show;
mod solve;
pub mod update;
pub mod variant;
