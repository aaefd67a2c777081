//! The joint solve: conda records, wheels and virtual packages as one SAT problem. Pure: what it
//! needs to know comes through [`provider::Provider`].

pub mod problem;
pub mod provider;

pub use problem::*;
pub use provider::*;
