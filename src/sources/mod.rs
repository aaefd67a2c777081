//! Channels, wheel indexes, find-links, directories, direct URLs; mirrors, credentials, downloads. All async lives here.

mod channels;
pub mod condarc;
pub mod config;
pub(crate) mod download;
pub mod error;
mod net;
mod part;
mod places;
#[cfg(test)]
pub(crate) mod test_server;
pub mod wheels;
