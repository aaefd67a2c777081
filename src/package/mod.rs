//! What a package is: an artifact, unpacked. Conda records and wheels; safe unpacking.

pub mod error;
pub mod meta;
pub mod nar;
pub mod record;
#[cfg(test)]
pub(crate) mod testing;
pub mod unpack;

pub use error::{Fault, PackageError};
pub use record::*;
pub use unpack::{Format, Limits, Unpack, UnpackPolicy, Unpacked, unpack};
