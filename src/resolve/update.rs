//! Updates: some packages as new as they can be, the rest as the old lock has it.
//!
//! A solver that prefers what is kept may keep something that holds back what is to be updated. So
//! where a newer version is offered than the one found, the problem is solved with nothing kept,
//! and, if that brings a newer one, once more with that one given and the rest kept.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use rattler_conda_types::{PackageName as CondaName, RepoDataRecord};
use uv_normalize::PackageName as DistName;

use super::error::SolveError;
use super::problem::{Chosen, ChosenKind, Keep, Key, Problem, Solution};
use super::provider::{
    Provider, ProviderError, Want, WheelFile, WheelListing, WheelMetadata, WheelOrigin,
};
use super::solver;

/// Solves a problem.
///
/// The answer depends on nothing but the problem and what the provider says: no clock, no
/// environment, no order of a hash table.
///
/// # Errors
///
/// [`SolveError::Unsatisfiable`] with the reasons; [`SolveError::Source`] if the provider failed;
/// [`SolveError::Problem`] where the requirements contradict each other before any package is
/// looked at.
pub fn solve(problem: &Problem, provider: &dyn Provider) -> Result<Solution, SolveError> {
    let first = solver::solve(problem, provider)?;
    let keys = &problem.keep.newest;
    let held_back = |key: &Key| {
        find(&first, key).is_some_and(|chosen| is_newer_offered(problem, provider, chosen))
    };
    if !keys.iter().any(held_back) {
        return Ok(first);
    }
    let free = Problem { keep: Keep::default(), ..problem.clone() };
    let best = solver::solve(&free, provider)?;
    let mut given = Given { provider, conda: BTreeMap::new(), wheels: BTreeMap::new() };
    let mut newer = false;
    for key in keys {
        let (Some(before), Some(after)) = (find(&first, key), find(&best, key)) else { continue };
        match compare(before, after) {
            // Something else that is newest of its own holds this one back: more is lost than won.
            Ordering::Greater => return Ok(first),
            Ordering::Less => newer = true,
            Ordering::Equal => {}
        }
        given.take(after);
    }
    if newer { solver::solve(problem, &given) } else { Ok(first) }
}

fn find<'s>(solution: &'s Solution, key: &Key) -> Option<&'s ChosenKind> {
    let is = |chosen: &&Chosen| match (&chosen.what, key) {
        (ChosenKind::Conda(record), Key::Conda(name)) => record.package_record.name == *name,
        (ChosenKind::Wheel { file, .. }, Key::Wheel(name)) => file.filename.name == *name,
        _ => false,
    };
    solution.packages.iter().find(is).map(|chosen| &chosen.what)
}

/// By version; of one version of conda by build number.
fn compare(a: &ChosenKind, b: &ChosenKind) -> Ordering {
    match (a, b) {
        (ChosenKind::Conda(a), ChosenKind::Conda(b)) => compare_records(a, b),
        (ChosenKind::Wheel { file: a, .. }, ChosenKind::Wheel { file: b, .. }) => {
            a.filename.version.cmp(&b.filename.version)
        }
        _ => Ordering::Equal,
    }
}

fn compare_records(a: &RepoDataRecord, b: &RepoDataRecord) -> Ordering {
    let (a, b) = (&a.package_record, &b.package_record);
    a.version.cmp(&b.version).then(a.build_number.cmp(&b.build_number))
}

/// Whether anything newer is offered at all, fit or not.
fn is_newer_offered(problem: &Problem, provider: &dyn Provider, chosen: &ChosenKind) -> bool {
    match chosen {
        ChosenKind::Conda(own) => {
            let offered = provider.conda(&own.package_record.name);
            offered.is_ok_and(|channels| {
                channels.iter().flatten().any(|other| compare_records(own, other).is_lt())
            })
        }
        ChosenKind::Wheel { file: own, .. } => {
            let own = &own.filename;
            let origin = problem
                .wheels
                .iter()
                .find(|root| root.name == own.name && root.origin != WheelOrigin::Default)
                .map_or(WheelOrigin::Default, |root| root.origin.clone());
            let newer = |file: &Arc<WheelFile>| {
                file.yanked.is_none()
                    && file.filename.version > own.version
                    && !file.filename.version.any_prerelease()
            };
            provider.wheels(&own.name, &origin).is_ok_and(|listing| listing.files.iter().any(newer))
        }
    }
}

/// A world in which there is one candidate of some names.
struct Given<'a> {
    provider: &'a dyn Provider,
    conda: BTreeMap<CondaName, Arc<RepoDataRecord>>,
    wheels: BTreeMap<DistName, Arc<WheelFile>>,
}

impl Given<'_> {
    fn take(&mut self, chosen: &ChosenKind) {
        match chosen {
            ChosenKind::Conda(record) => {
                self.conda.insert(record.package_record.name.clone(), record.clone());
            }
            ChosenKind::Wheel { file, .. } => {
                self.wheels.insert(file.filename.name.clone(), file.clone());
            }
        }
    }
}

impl Provider for Given<'_> {
    fn conda(&self, name: &CondaName) -> Result<Arc<Vec<Vec<Arc<RepoDataRecord>>>>, ProviderError> {
        let all = self.provider.conda(name)?;
        let Some(given) = self.conda.get(name) else { return Ok(all) };
        let only = |records: &Vec<Arc<RepoDataRecord>>| {
            records.iter().filter(|record| record.url == given.url).cloned().collect()
        };
        Ok(Arc::new(all.iter().map(only).collect()))
    }

    fn conda_names(&self) -> Vec<String> {
        self.provider.conda_names()
    }

    fn wheels(
        &self,
        name: &DistName,
        origin: &WheelOrigin,
    ) -> Result<Arc<WheelListing>, ProviderError> {
        let all = self.provider.wheels(name, origin)?;
        let Some(given) = self.wheels.get(name) else { return Ok(all) };
        let mut only = (*all).clone();
        only.files.retain(|file| file.file == given.file);
        Ok(Arc::new(only))
    }

    fn metadata(&self, file: &Arc<WheelFile>) -> Result<Arc<WheelMetadata>, ProviderError> {
        self.provider.metadata(file)
    }

    fn prefetch(&self, wants: Vec<Want>) {
        self.provider.prefetch(wants);
    }
}
