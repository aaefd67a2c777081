//! The joint solve: conda records, wheels and virtual packages as one SAT problem. Pure: what it
//! needs to know comes through [`provider::Provider`].
//!
//! # The model
//!
//! | candidate | name it is a candidate of | needs |
//! |---|---|---|
//! | conda record | its conda name | its `depends`; excludes by `constrains`, and the wheels of what it provides |
//! | virtual package, host interpreter | its conda name | nothing; always there |
//! | wheel file | its distribution | a Python its tags and `Requires-Python` allow; its `Requires-Dist` |
//! | distribution provided by conda | the distribution | a conda record of that name and version |
//! | extra | `name[extra]` | nothing: `Requires-Dist` with extras are conditional on it |
//!
//! The way of a solve: `solver` makes the roots, `engine` and its `conda` and `wheels`
//! parts answer the SAT solver, `answer` walks the choice from the roots on and thereby checks
//! it, `explain` puts a conflict into words.

mod answer;
mod conda;
mod engine;
pub mod error;
mod explain;
mod names;
pub mod problem;
pub mod provider;
mod provides;
mod reasons;
mod solver;
mod target;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_explain;
#[cfg(test)]
mod tests_oracle;
mod wheels;
mod words;

pub use error::{Explanation, SolveError};
pub use problem::*;
pub use provider::*;
pub use solver::solve;
