//! Why a lock no longer fits its env.toml.

use std::collections::BTreeMap;
use std::fmt;

use super::model::Lock;

/// One fact of env.toml that changed since it was locked; keys as in
/// [`crate::manifest::inputs`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stale {
    /// It was not there.
    Added {
        /// The key.
        key: String,
        /// Its value now.
        is: String,
    },
    /// It is gone.
    Removed {
        /// The key.
        key: String,
        /// Its value then.
        was: String,
    },
    /// It has another value.
    Changed {
        /// The key.
        key: String,
        /// Its value then.
        was: String,
        /// Its value now.
        is: String,
    },
}

impl Stale {
    /// The key of env.toml.
    pub fn key(&self) -> &str {
        match self {
            Stale::Added { key, .. } | Stale::Removed { key, .. } | Stale::Changed { key, .. } => {
                key
            }
        }
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stale::Added { key, is } => write!(f, "{key} was added: {is:?}"),
            Stale::Removed { key, was } => write!(f, "{key} was removed; it was {was:?}"),
            Stale::Changed { key, was, is } => write!(f, "{key} was {was:?}, is now {is:?}"),
        }
    }
}

/// Why `lock` is stale, in key order; empty when it fits `inputs`
/// (of [`crate::manifest::inputs`]).
pub fn stale(lock: &Lock, inputs: &BTreeMap<String, String>) -> Vec<Stale> {
    let keys: std::collections::BTreeSet<&String> =
        lock.inputs.keys().chain(inputs.keys()).collect();
    keys.into_iter()
        .filter_map(|key| match (lock.inputs.get(key), inputs.get(key)) {
            (Some(was), Some(is)) if was != is => {
                Some(Stale::Changed { key: key.clone(), was: was.clone(), is: is.clone() })
            }
            (Some(was), None) => Some(Stale::Removed { key: key.clone(), was: was.clone() }),
            (None, Some(is)) => Some(Stale::Added { key: key.clone(), is: is.clone() }),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_changed_and_how() {
        let facts = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let lock = Lock {
            inputs: facts(&[("dependencies.python", "3.9.*"), ("gpu.cuda", "11.2"), ("same", "1")]),
            ..Lock::default()
        };
        let now = facts(&[
            ("dependencies.python", "3.10.*"),
            ("pypi-dependencies.numpy", ">=1.20"),
            ("same", "1"),
        ]);
        let words: Vec<String> = stale(&lock, &now).iter().map(ToString::to_string).collect();
        assert_eq!(
            words,
            [
                r#"dependencies.python was "3.9.*", is now "3.10.*""#,
                r#"gpu.cuda was removed; it was "11.2""#,
                r#"pypi-dependencies.numpy was added: ">=1.20""#,
            ]
        );
        assert!(stale(&lock, &lock.inputs).is_empty());
    }
}
