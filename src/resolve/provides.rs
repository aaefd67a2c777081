//! Which distributions a conda record provides.
//!
//! In order: the user's map; the shipped table `conda_pypi.toml`; else a record that needs Python
//! provides the distribution of its own normalized name. An entry of the user's map holds for
//! every record of that name, the other two only for records that need Python: `graphviz` of
//! conda is the C program, not the distribution.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use rattler_conda_types::{PackageName as CondaName, RepoDataRecord};
use uv_normalize::PackageName as DistName;

/// The shipped table: conda name (normalized) to distributions.
static TABLE: LazyLock<HashMap<String, Arc<[DistName]>>> = LazyLock::new(|| {
    // Part of the program: a test reads every entry.
    parse(include_str!("conda_pypi.toml")).unwrap_or_default()
});

fn parse(text: &str) -> Option<HashMap<String, Arc<[DistName]>>> {
    let document: toml_edit::DocumentMut = text.parse().ok()?;
    document
        .iter()
        .map(|(name, item)| {
            let dists = item
                .as_array()?
                .iter()
                .map(|dist| DistName::from_str(dist.as_str()?).ok())
                .collect::<Option<Vec<_>>>()?;
            Some((name.to_owned(), dists.into()))
        })
        .collect()
}

/// The map in force for one solve.
#[derive(Debug, Default)]
pub(super) struct Provides {
    user: HashMap<String, Arc<[DistName]>>,
}

impl Provides {
    pub(super) fn new(user: &BTreeMap<CondaName, Vec<DistName>>) -> Self {
        Provides {
            user: user
                .iter()
                .map(|(name, dists)| (name.as_normalized().to_owned(), dists.clone().into()))
                .collect(),
        }
    }

    /// The distributions that `record` provides.
    pub(super) fn of(&self, record: &RepoDataRecord) -> Arc<[DistName]> {
        let name = record.package_record.name.as_normalized();
        if let Some(dists) = self.user.get(name) {
            return dists.clone();
        }
        if name == "python" || !needs_python(record) {
            return Arc::new([]);
        }
        if let Some(dists) = TABLE.get(name) {
            return dists.clone();
        }
        match DistName::from_str(name) {
            Ok(dist) => Arc::new([dist]),
            Err(_) => Arc::new([]),
        }
    }
}

/// Whether a record holds Python modules: it is `noarch: python`, or depends on the interpreter.
fn needs_python(record: &RepoDataRecord) -> bool {
    record.package_record.noarch.is_python()
        || record.package_record.depends.iter().any(|dependency| {
            let name =
                dependency.split([' ', '=', '<', '>', '!', '~', '[']).next().unwrap_or_default();
            matches!(name, "python" | "python_abi" | "pypy3.9")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_table_reads() {
        let table = parse(include_str!("conda_pypi.toml")).expect("every entry is a list of names");
        assert!(table.len() > 30, "{}", table.len());
        for (name, dists) in &table {
            assert!(CondaName::try_from(name.as_str()).is_ok(), "{name}");
            // An entry equal to the default rule says nothing.
            let default = DistName::from_str(name).ok();
            assert!(
                dists.len() != 1 || Some(&dists[0]) != default.as_ref(),
                "{name} only repeats the default"
            );
        }
    }
}
