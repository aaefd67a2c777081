//! gpuenv: declarative, reproducible deep-learning environments.
//!
//! A user writes `env.toml`; `gpuenv lock` resolves conda packages and wheels together
//! into `gpuenv.lock`; `gpuenv realize` installs them into an immutable store and builds
//! the environment as a view of links.
//!
//! # Rooms
//!
//! Dependencies point down. Neighbours on one line do not know each other; they meet in
//! [`ops`].
//!
//! | room | what lives there |
//! |---|---|
//! | [`cli`] | one file a command: arguments in, words out; the only place that prints |
//! | [`ops`] | one file a verb: calls the rooms below in order |
//! | [`sources`] | channels, wheel indexes, directories; mirrors, credentials, downloads; all async |
//! | [`store`] | store paths, NAR hashes, adding packages, locks, roots |
//! | [`view`] | plan (pure), link, relocate, entry points, activation |
//! | [`machine`] | glibc, driver, interpreters of the machine |
//! | [`verify`] | the post-build hook and its records |
//! | [`resolve`] | the joint solve over a provider trait; conflicts to words (pure) |
//! | [`lockfile`] | `gpuenv.lock`: model, grammar, writer, "stale because" (pure) |
//! | [`manifest`] | `env.toml`: typed, with spans; edits that keep comments (pure) |
//! | [`elf`] | dynamic sections of ELF files; what the loader would not find (pure) |
//! | [`package`] | what a package is: conda record, wheel; safe unpacking |
//! | [`error`], [`hash`], [`relpath`], [`progress`], [`fs`] | small leaves |
//!
//! # Files on disk
//!
//! | file | written by | grammar |
//! |---|---|---|
//! | `env.toml` | the user; [`manifest`] edits it | `store-layout/env-toml.md` |
//! | `gpuenv.lock` | [`lockfile`] | `store-layout/lock.md` |
//! | `$STORE/packages`, `$STORE/envs`, `$STORE/roots` | [`store`], [`view`] | `store-layout/README.md` |
//! | `.gpuenv/` | [`ops`] | `store-layout/README.md` |

pub mod driver;
pub mod error;
pub mod hash;
pub mod progress;
pub mod relpath;

pub mod fs;

pub mod elf;
pub mod lockfile;
pub mod manifest;
pub mod package;
pub mod resolve;

pub mod machine;
pub mod sources;
pub mod store;
pub mod verify;
pub mod view;

pub mod ops;

pub mod cli;
