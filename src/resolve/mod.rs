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
//! | distribution provided by conda | the distribution | a conda record of that name and version; with an extra, what a wheel of that version says the extra needs |
//! | extra | `name[extra]` | nothing: `Requires-Dist` with extras are conditional on it |
//! | CUDA major, cuDNN major | CUDA, cuDNN | nothing: what is of a line requires its major |
//!
//! # What is preferred
//!
//! What is to be updated, as new as it can be; what the old lock holds, where it still fits, of
//! wheels the very file; then the newest version, then the file whose tags
//! fit best, then the higher build tag. Of conda records: those without tracked features, then the
//! newest version, the highest build number, the newest dependencies, the newest build; channels
//! are strict. A distribution comes from conda where the conda part of the problem, solved by
//! itself, needs the conda package; else from a wheel.
//!
//! With `[gpu]`, the build of the declared CUDA line comes before a newer version of another: the
//! nearest line that is not newer, then, as minor versions of CUDA are compatible, newer ones.
//! Without it, builds for CPUs come before those for CUDA.
//!
//! # What is looked at
//!
//! Pre-releases where a specifier names one, or where no final release fits the specifiers
//! (PEP 440). Yanked files where a requirement pins their version with `==` (PEP 592). A
//! With `exclude-newer`, nothing that came later: wheels by the upload time that their index tells
//! (without one they are left out too), conda records by their time stamp (without one they stay). A
//! distribution that a line of env.toml takes from an index comes from there whoever asks. A URL
//! in a wheel's metadata is refused unless env.toml names the same.
//!
//! The way of a solve: `solver` makes the roots, `engine` and its `conda` and `wheels`
//! parts answer the SAT solver, `answer` walks the choice from the roots on and thereby checks
//! it, `explain` puts a conflict into words. `update` solves more than once where what is kept
//! holds back what is to be updated.

mod answer;
mod conda;
mod engine;
pub mod error;
mod explain;
mod extras;
mod gpu;
mod gpu_advice;
mod gpu_builds;
mod kept;
mod names;
mod newer;
pub mod problem;
pub mod provider;
mod provides;
mod reasons;
mod relax;
mod solver;
mod target;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_explain;
#[cfg(test)]
mod tests_extras;
#[cfg(test)]
mod tests_gpu;
#[cfg(test)]
mod tests_newer;
#[cfg(test)]
mod tests_oracle;
#[cfg(test)]
mod tests_specs;
#[cfg(test)]
mod tests_update;
mod update;
mod wheels;
mod words;

pub use error::{Explanation, SolveError};
pub use problem::*;
pub use provider::*;
pub use update::solve;
