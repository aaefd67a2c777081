//! What a package is: an artifact, unpacked. Conda records and wheels; safe unpacking.

pub mod record;

pub use record::*;
