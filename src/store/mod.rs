//! The store: paths, NAR hashes, adding packages, locks, roots.
