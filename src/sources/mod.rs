//! Channels, wheel indexes, find-links, directories, direct URLs; mirrors, credentials, downloads. All async lives here.

pub mod wheels;
