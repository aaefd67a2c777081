//! File-system operations whose errors name their path; the choke point for all writing.
