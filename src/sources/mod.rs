//! Channels, wheel indexes, find-links, directories, direct URLs; mirrors, credentials, downloads. All async lives here.

pub mod condarc;
pub mod config;
pub mod error;
mod net;
#[cfg(test)]
pub(crate) mod test_server;
