//! Makers of everything the tests install: wheels, conda packages, channels, libraries.

pub mod conda;
pub mod elf;
pub mod python;
pub mod wheel;
pub mod zip;
