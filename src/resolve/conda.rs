//! Conda candidates: which records take part, what matches them, which is tried first.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use rattler_conda_types::{
    Channel, Matches, NamelessMatchSpec, PackageNameMatcher, RepoDataRecord, Version,
};
use resolvo::{Dependencies, NameId, Requirement, SolvableId, VersionSetId};

use super::engine::Engine;
use super::gpu_builds;
use super::names::{Candidate, Name, Set};
use super::provider::ProviderError;
use super::target::Flavor;

/// What is known of one conda name.
#[derive(Default)]
pub(super) struct CondaNameCandidates {
    /// Candidates, in the provider's order.
    pub(super) usable: Vec<SolvableId>,
    /// Records that do not take part.
    pub(super) rejected: Vec<(Arc<RepoDataRecord>, CondaRejection)>,
    /// Why the name could not be read.
    pub(super) unusable: Option<String>,
}

/// Why a record does not take part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CondaRejection {
    /// A channel before its own has the name (strict priority).
    Priority {
        /// The channel that has it.
        first: String,
        /// Its own.
        own: String,
    },
    /// The build for CPUs of what has builds for GPUs, where env.toml has `[gpu]`.
    CpuBuild,
    /// Not there yet at the `exclude-newer` of env.toml.
    Newer {
        /// The day or time it came.
        came: String,
        /// `exclude-newer`.
        bound: String,
    },
    /// env.toml asks for another channel.
    Channel {
        /// The channel asked for.
        wanted: String,
    },
}

/// Orders already worked out.
#[derive(Default)]
pub(super) struct OrderCache {
    runs: HashMap<Vec<SolvableId>, Vec<SolvableId>>,
    /// Highest version (and whether that record tracks features) of a set.
    highest: HashMap<VersionSetId, Option<(SolvableId, bool)>>,
}

impl Engine<'_> {
    /// The candidates of a conda name, asked of the provider once.
    pub(super) fn conda_candidates(&self, name: NameId) -> Rc<CondaNameCandidates> {
        if let Some(known) = self.conda.borrow().get(&name) {
            return known.clone();
        }
        let loaded = Rc::new(self.load_conda(name));
        self.conda.borrow_mut().insert(name, loaded.clone());
        loaded
    }

    fn load_conda(&self, name: NameId) -> CondaNameCandidates {
        let mut loaded = CondaNameCandidates::default();
        let Name::Conda(text) = self.pool.resolve_package_name(name) else {
            return loaded;
        };
        if text.starts_with("__") {
            loaded.usable = self
                .problem
                .virtual_packages
                .iter()
                .filter(|package| package.name.as_normalized() == &**text)
                .map(|package| self.pool.intern_solvable(name, Candidate::Virtual(package.clone())))
                .collect();
            return loaded;
        }
        if let Some(host) = self.problem.host_python.as_ref()
            && &**text == "python"
        {
            let id = self.pool.intern_solvable(name, Candidate::HostPython(host.clone()));
            loaded.usable.push(id);
            return loaded;
        }
        let channels = match self.provider.conda(&Self::conda_package_name(text)) {
            Ok(channels) => channels,
            Err(ProviderError::Unusable(reason)) => {
                loaded.unusable = Some(reason);
                return loaded;
            }
            Err(failed) => {
                self.fail(failed);
                return loaded;
            }
        };
        let wanted = self.problem.conda.iter().find_map(|root| {
            let PackageNameMatcher::Exact(of) = &root.spec.name else {
                return None;
            };
            (of.as_normalized() == &**text).then_some(root.spec.channel.as_deref()).flatten()
        });
        let mut first: Option<String> = None;
        for (index, records) in channels.iter().enumerate() {
            let own = self
                .problem
                .channels
                .get(index)
                .cloned()
                .or_else(|| records.first().and_then(|record| record.channel.clone()))
                .unwrap_or_else(|| format!("channel {}", index + 1));
            for record in best_archives(records) {
                // Before the priority of channels: what was not there stands before nothing.
                if let Some(rejection) = self.record_too_new(record) {
                    loaded.rejected.push((record.clone(), rejection));
                    continue;
                }
                if let Some(wanted) = wanted
                    && !from_channel(wanted, record)
                {
                    let wanted = wanted.name().to_owned();
                    loaded.rejected.push((record.clone(), CondaRejection::Channel { wanted }));
                    continue;
                }
                let first = first.get_or_insert_with(|| own.clone());
                if *first != own {
                    let rejection =
                        CondaRejection::Priority { first: first.clone(), own: own.clone() };
                    loaded.rejected.push((record.clone(), rejection));
                    continue;
                }
                let candidate = Candidate::Record {
                    provides: self.provides.of(record),
                    record: record.clone(),
                };
                loaded.usable.push(self.pool.intern_solvable(name, candidate));
            }
        }
        if self.problem.gpu.is_some() {
            self.leave_cpu_builds(&mut loaded, text);
        }
        loaded
    }

    /// With `[gpu]`, the build for CPUs of what has builds for GPUs is taken only where env.toml
    /// asks for that build.
    fn leave_cpu_builds(&self, loaded: &mut CondaNameCandidates, name: &str) {
        let record = |id: &SolvableId| match self.candidate(*id) {
            Candidate::Record { record, .. } => Some(record),
            _ => None,
        };
        let asked = self.problem.conda.iter().any(|root| {
            matches!(&root.spec.name, PackageNameMatcher::Exact(of) if of.as_normalized() == name)
                && root.spec.build.is_some()
        });
        if asked
            || !loaded
                .usable
                .iter()
                .filter_map(record)
                .any(|record| gpu_builds::is_gpu_build(record))
        {
            return;
        }
        let (cpu, usable) = loaded
            .usable
            .iter()
            .partition(|id| record(id).is_some_and(|record| gpu_builds::is_cpu_build(record)));
        loaded.usable = usable;
        let cpu: Vec<SolvableId> = cpu;
        let rejected = cpu.iter().filter_map(record).cloned();
        loaded.rejected.extend(rejected.map(|record| (record, CondaRejection::CpuBuild)));
    }

    /// Whether a candidate of a conda name is in a set.
    pub(super) fn conda_matches(&self, set: &Set, id: SolvableId) -> bool {
        match (set, self.candidate(id)) {
            (Set::Any, _) => true,
            (Set::Spec(spec), Candidate::Record { record, .. }) => record_matches(spec, record),
            (Set::Spec(spec), Candidate::Virtual(package)) => {
                spec.version.as_ref().is_none_or(|version| version.matches(&package.version))
                    && spec
                        .build
                        .as_ref()
                        .is_none_or(|build| build.matches(package.build_string.as_str()))
            }
            (Set::Spec(spec), Candidate::HostPython(version)) => host_python_matches(spec, version),
            (Set::Pythons(mask), _) => {
                self.python_of.borrow().get(&id).is_some_and(|python| mask.contains(*python))
            }
            (Set::Records(number), _) => {
                self.groups.borrow().get(*number).is_some_and(|group| group.records.contains(&id))
            }
            _ => false,
        }
    }

    /// Best first: without tracked features, newest version, highest build number, newest
    /// dependencies, newest build. What the old lock holds comes before all.
    pub(super) fn sort_records(&self, ids: &mut [SolvableId]) {
        ids.sort_by(|a, b| self.compare_records(*a, *b));
        let mut start = 0;
        while start < ids.len() {
            let mut end = start + 1;
            while end < ids.len() && self.compare_records(ids[start], ids[end]) == Ordering::Equal {
                end += 1;
            }
            if end - start > 1 {
                self.sort_builds(&mut ids[start..end]);
            }
            start = end;
        }
        self.favor_kept(ids);
    }

    fn favor_kept(&self, ids: &mut [SolvableId]) {
        let kept = ids.first().and_then(|id| match self.candidate(*id) {
            Candidate::Record { record, .. } => {
                self.problem.keep.conda.get(&record.package_record.name)
            }
            _ => None,
        });
        let Some((version, build)) = kept else {
            return;
        };
        ids.sort_by_key(|id| match self.candidate(*id) {
            Candidate::Record { record, .. } => {
                let record = &record.package_record;
                let same = record.version.to_string() == *version;
                match (same, record.build.as_str() == build.as_str()) {
                    (true, true) => 0,
                    (true, false) => 1,
                    _ => 2,
                }
            }
            _ => 2,
        });
    }

    fn compare_records(&self, a: SolvableId, b: SolvableId) -> Ordering {
        match (self.candidate(a), self.candidate(b)) {
            (Candidate::Record { record: a, .. }, Candidate::Record { record: b, .. }) => {
                let (a, b) = (&a.package_record, &b.package_record);
                let tracks = |features: &[String]| !features.is_empty();
                tracks(&a.track_features)
                    .cmp(&tracks(&b.track_features))
                    .then_with(|| b.version.version().cmp(a.version.version()))
                    .then_with(|| b.build_number.cmp(&a.build_number))
            }
            _ => Ordering::Equal,
        }
    }

    /// Orders builds of one version and build number: by the newest version of each dependency
    /// that they all have, in the order of the dependencies' names, then by time stamp.
    fn sort_builds(&self, ids: &mut [SolvableId]) {
        if let Some(sorted) = self.order.borrow().runs.get(&*ids) {
            ids.copy_from_slice(sorted);
            return;
        }
        let unsorted = ids.to_vec();
        type Sets = BTreeMap<String, Vec<VersionSetId>>;
        let mut builds: Vec<(SolvableId, Option<Sets>)> = ids
            .iter()
            .map(|id| {
                let Dependencies::Known(known) = self.record_requirements(*id) else {
                    return (*id, None);
                };
                let mut sets = Sets::new();
                for requirement in known.requirements {
                    if let Requirement::Single(set) = requirement.requirement {
                        let name = self.pool.resolve_version_set_package_name(set);
                        let name = self.pool.resolve_package_name(name).to_string();
                        sets.entry(name).or_default().push(set);
                    }
                }
                (*id, Some(sets))
            })
            .collect();
        let mut shared: Option<Vec<String>> = None;
        for sets in builds.iter().filter_map(|(_, sets)| sets.as_ref()) {
            shared = Some(match shared {
                None => sets.keys().cloned().collect(),
                Some(names) => names.into_iter().filter(|name| sets.contains_key(name)).collect(),
            });
        }
        let shared = shared.unwrap_or_default();
        builds.sort_by(|(a, of_a), (b, of_b)| match (of_a, of_b) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(of_a), Some(of_b)) => {
                for name in &shared {
                    let (Some(a), Some(b)) = (of_a.get(name), of_b.get(name)) else {
                        continue;
                    };
                    // What both ask for in the same words tells nothing.
                    if a == b {
                        continue;
                    }
                    let ordering = self.compare_best(self.best_of(a), self.best_of(b));
                    if ordering != Ordering::Equal {
                        return ordering;
                    }
                }
                self.timestamp(*b).cmp(&self.timestamp(*a))
            }
        });
        for (slot, (id, _)) in ids.iter_mut().zip(&builds) {
            *slot = *id;
        }
        self.order.borrow_mut().runs.insert(unsorted, ids.to_vec());
    }

    fn timestamp(&self, id: SolvableId) -> Option<rattler_conda_types::utils::TimestampMs> {
        match self.candidate(id) {
            Candidate::Record { record, .. } => record.package_record.timestamp,
            _ => None,
        }
    }

    fn version(&self, id: SolvableId) -> Option<&Version> {
        match self.candidate(id) {
            Candidate::Record { record, .. } => Some(record.package_record.version.version()),
            Candidate::Virtual(package) => Some(&package.version),
            _ => None,
        }
    }

    /// The best that several requirements on one name leave: the worst of their bests.
    fn best_of(&self, sets: &[VersionSetId]) -> Option<(SolvableId, bool)> {
        sets.iter().filter_map(|set| self.highest(*set)).reduce(|a, b| {
            if self.compare_best(Some(a), Some(b)) == Ordering::Greater { a } else { b }
        })
    }

    fn compare_best(
        &self,
        a: Option<(SolvableId, bool)>,
        b: Option<(SolvableId, bool)>,
    ) -> Ordering {
        match (a, b) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some((a, tracks_a)), Some((b, tracks_b))) => {
                tracks_a.cmp(&tracks_b).then_with(|| self.version(b).cmp(&self.version(a)))
            }
        }
    }

    fn highest(&self, set: VersionSetId) -> Option<(SolvableId, bool)> {
        if let Some(known) = self.order.borrow().highest.get(&set) {
            return *known;
        }
        let mut highest: Option<SolvableId> = None;
        for id in self.conda_matching(set).iter().copied() {
            if self.version(id).is_some()
                && highest.is_none_or(|best| self.version(id) > self.version(best))
            {
                highest = Some(id);
            }
        }
        let highest = highest.map(|id| {
            let tracks = match self.candidate(id) {
                Candidate::Record { record, .. } => {
                    !record.package_record.track_features.is_empty()
                }
                _ => false,
            };
            (id, tracks)
        });
        self.order.borrow_mut().highest.insert(set, highest);
        highest
    }
}

/// Of records that differ only in their archive format, the better one; else the first.
fn best_archives(records: &[Arc<RepoDataRecord>]) -> Vec<&Arc<RepoDataRecord>> {
    let mut best: Vec<&Arc<RepoDataRecord>> = Vec::with_capacity(records.len());
    let mut place: HashMap<(&str, String), usize> = HashMap::with_capacity(records.len());
    for record in records {
        let key = (record.package_record.subdir.as_str(), record.identifier.identifier.to_string());
        match place.get(&key) {
            None => {
                place.insert(key, best.len());
                best.push(record);
            }
            Some(&index) => {
                let better = record
                    .identifier
                    .archive_type
                    .cmp_preference(best[index].identifier.archive_type);
                if better == Ordering::Greater {
                    best[index] = record;
                }
            }
        }
    }
    best
}

/// Whether a record comes from a channel, by the channel's name or by its URL.
pub(super) fn from_channel(channel: &Channel, record: &RepoDataRecord) -> bool {
    let bare = |text: &str| text.trim_end_matches('/').to_owned();
    let base = bare(channel.base_url.as_str());
    let own = record.channel.as_deref().map(bare);
    own.as_deref() == Some(base.as_str())
        || own.as_deref() == channel.name.as_deref().map(bare).as_deref() && own.is_some()
        || record.url.as_str().starts_with(&format!("{base}/"))
}

/// All of a spec, also what `Matches` leaves to others.
pub(super) fn record_matches(spec: &NamelessMatchSpec, record: &RepoDataRecord) -> bool {
    spec.matches(record)
        && spec.subdir.as_ref().is_none_or(|subdir| *subdir == record.package_record.subdir)
        && spec.file_name.as_ref().is_none_or(|file| *file == record.identifier.to_string())
        && spec.channel.as_ref().is_none_or(|channel| from_channel(channel, record))
}

/// The host's interpreter as a conda record: `3.11` is 3.11.0, and the build says its ABI, so that
/// `*_cp311` matches.
fn host_python_matches(spec: &NamelessMatchSpec, version: &uv_pep440::Version) -> bool {
    let part = |index: usize| version.release().get(index).copied().unwrap_or(0);
    let text = format!("{}.{}.{}", part(0), part(1), part(2));
    let build = format!("0_cp{}{}", part(0), part(1));
    spec.version
        .as_ref()
        .is_none_or(|wanted| text.parse::<Version>().is_ok_and(|version| wanted.matches(&version)))
        && spec.build.as_ref().is_none_or(|wanted| wanted.matches(&build))
}

/// The interpreter that a conda `python` record is; `None` for one that wheels do not know
/// (PyPy, GraalPy).
pub(super) fn python_of_record(record: &RepoDataRecord) -> Option<(uv_pep440::Version, Flavor)> {
    let package = &record.package_record;
    let build = package.build.as_str();
    if build.ends_with("_pypy") || build.contains("pypy") || build.contains("graalpy") {
        return None;
    }
    let version: uv_pep440::Version = package.version.to_string().parse().ok()?;
    if version.release().len() < 2 {
        return None;
    }
    let free_threaded = build.ends_with('t') && build.contains("_cp");
    Some((version, if free_threaded { Flavor::FreeThreaded } else { Flavor::CPython }))
}
