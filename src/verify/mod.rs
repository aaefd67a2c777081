//! The post-build hook and its records.
