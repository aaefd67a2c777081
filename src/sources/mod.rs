//! Channels, wheel indexes, find-links, directories, direct URLs; mirrors, credentials, downloads. All async lives here.

pub mod condarc;
pub mod config;
pub mod error;
pub(crate) mod download;
mod net;
mod part;
#[cfg(test)]
pub(crate) mod test_server;
