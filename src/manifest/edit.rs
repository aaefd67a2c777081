//! Edits.
