//! The problem as `resolvo` sees it: names, candidates and dependencies, made as they are asked
//! for.
//!
//! Conda records are explored before the solve, from the root requirements on: only so is it
//! known which distributions conda can provide and which Pythons are to be had. Wheels are looked
//! at as late as possible: a listing when a requirement names it, metadata when a file is chosen.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use rattler_conda_types::{
    MatchSpec, PackageName as CondaName, PackageNameMatcher, ParseMatchSpecOptions,
    RepodataRevision,
};
use resolvo::utils::Pool;
use resolvo::{
    Condition, ConditionId, ConditionalRequirement, Dependencies, KnownDependencies,
    LogicalOperator, NameId, Requirement, SolvableId, VersionSetId,
};
use uv_normalize::{ExtraName, PackageName as DistName};
use uv_pep440::{Operator, Version, VersionSpecifiers};

use super::conda::CondaNameCandidates;
use super::gpu::{self, FACTS, Line, Need, NeedFrom};
use super::gpu_builds;
use super::names::{Candidate, Name, Set, World};
use super::problem::Problem;
use super::provider::{Provider, ProviderError, Want, WheelFile, WheelMetadata, WheelOrigin};
use super::provides::Provides;
use super::target::{PyMask, Pythons, Target};
use super::wheels::Dist;
use crate::manifest::DependencyOverride;

/// Conda records of one name and one version that provide one distribution.
pub(super) struct Group {
    pub(super) conda: Arc<str>,
    pub(super) shown: String,
    pub(super) version: Option<Version>,
    pub(super) records: HashSet<SolvableId>,
}

/// What otherwise hidden versions are open, because something names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Permits {
    /// Distributions of which a specifier names a pre-release.
    pub(super) prereleases: BTreeSet<DistName>,
    /// Versions pinned with `==`, which may be yanked.
    pub(super) pins: BTreeSet<(DistName, Version)>,
}

impl Permits {
    fn learn(&mut self, name: &DistName, specifiers: &VersionSpecifiers) {
        for specifier in specifiers.iter() {
            if names_prerelease(specifier) {
                self.prereleases.insert(name.clone());
            }
            if pins(specifier) {
                self.pins.insert((name.clone(), specifier.version().clone()));
            }
        }
    }

    pub(super) fn covers(&self, other: &Permits) -> bool {
        self.prereleases.is_superset(&other.prereleases) && self.pins.is_superset(&other.pins)
    }

    pub(super) fn merge(&mut self, other: &Permits) {
        self.prereleases.extend(other.prereleases.iter().cloned());
        self.pins.extend(other.pins.iter().cloned());
    }
}

pub(super) fn names_prerelease(specifier: &uv_pep440::VersionSpecifier) -> bool {
    specifier.any_prerelease()
        && !matches!(specifier.operator(), Operator::NotEqual | Operator::NotEqualStar)
}

pub(super) fn pins(specifier: &uv_pep440::VersionSpecifier) -> bool {
    matches!(specifier.operator(), Operator::Equal | Operator::ExactEqual)
}

/// When a requirement holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct When {
    /// Only with this extra (a [`Name::Extra`]).
    pub(super) extra: Option<NameId>,
    /// Only on these Pythons.
    pub(super) pythons: Option<PyMask>,
}

impl When {
    fn always(&self) -> bool {
        *self == When::default()
    }
}

/// No CUDA and no cuDNN has a higher major. (CUDA 13 and cuDNN 9 are the newest there are.)
const MAJORS: u16 = 40;

type ParsedSpec = Result<(NameId, VersionSetId), Rc<str>>;

/// The state of one solve.
pub(super) struct Engine<'p> {
    pub(super) problem: &'p Problem,
    pub(super) provider: &'p dyn Provider,
    pub(super) pool: Pool<Set, Name>,
    pub(super) target: Option<Target>,
    pub(super) pythons: OnceCell<Pythons>,
    pub(super) provides: Provides,
    /// Where each distribution comes from, if not from the default.
    pub(super) origins: BTreeMap<DistName, WheelOrigin>,
    pub(super) permits: RefCell<Permits>,
    pub(super) seen: RefCell<Permits>,

    pub(super) conda: RefCell<HashMap<NameId, Rc<CondaNameCandidates>>>,
    specs: RefCell<HashMap<String, ParsedSpec>>,
    matching: RefCell<HashMap<VersionSetId, Rc<Vec<SolvableId>>>>,
    requirements: RefCell<HashMap<SolvableId, Dependencies>>,
    pub(super) reached: RefCell<HashSet<NameId>>,
    /// Which of the Pythons a conda record (or the host's interpreter) is.
    pub(super) python_of: RefCell<HashMap<SolvableId, usize>>,
    pub(super) groups: RefCell<Vec<Group>>,
    pub(super) groups_of: RefCell<BTreeMap<DistName, Vec<usize>>>,
    /// Groups that the conda part alone would choose.
    pub(super) preferred: RefCell<HashSet<usize>>,

    pub(super) dists: RefCell<HashMap<DistName, Rc<Dist>>>,
    pub(super) metadata: RefCell<HashMap<SolvableId, Result<Arc<WheelMetadata>, String>>>,
    worlds: RefCell<HashMap<NameId, [SolvableId; 2]>>,
    singles: RefCell<HashMap<NameId, SolvableId>>,
    majors: RefCell<HashMap<NameId, Vec<SolvableId>>>,
    /// Extras that something asks for.
    pub(super) wanted_extras: RefCell<HashSet<NameId>>,
    /// Distributions of which conda was chosen and an extra is wanted; see [`super::extras`].
    pub(super) extras_of_conda: RefCell<BTreeSet<DistName>>,
    /// Whether a proof is wanted rather than an answer; see [`Engine::under`].
    pub(super) proving: Cell<bool>,
    pub(super) order: RefCell<super::conda::OrderCache>,
    /// Files whose metadata the provider was told to expect a request for.
    pub(super) hinted: RefCell<HashSet<SolvableId>>,

    /// How many files of each distribution were looked into.
    pub(super) looked_at: RefCell<HashMap<DistName, u32>>,

    pub(super) failure: RefCell<Option<ProviderError>>,
}

impl<'p> Engine<'p> {
    pub(super) fn new(
        problem: &'p Problem,
        provider: &'p dyn Provider,
        target: Option<Target>,
        origins: BTreeMap<DistName, WheelOrigin>,
    ) -> Self {
        Engine {
            problem,
            provider,
            pool: Pool::new(),
            target,
            pythons: OnceCell::new(),
            provides: Provides::new(&problem.conda_pypi_map),
            origins,
            permits: RefCell::default(),
            seen: RefCell::default(),
            conda: RefCell::default(),
            specs: RefCell::default(),
            matching: RefCell::default(),
            requirements: RefCell::default(),
            reached: RefCell::default(),
            python_of: RefCell::default(),
            groups: RefCell::default(),
            groups_of: RefCell::default(),
            preferred: RefCell::default(),
            dists: RefCell::default(),
            metadata: RefCell::default(),
            worlds: RefCell::default(),
            singles: RefCell::default(),
            majors: RefCell::default(),
            wanted_extras: RefCell::default(),
            extras_of_conda: RefCell::default(),
            proving: Cell::new(false),
            order: RefCell::default(),
            hinted: RefCell::default(),
            looked_at: RefCell::default(),
            failure: RefCell::default(),
        }
    }

    /// Whether wheels take part at all.
    pub(super) fn has_wheels(&self) -> bool {
        self.target.is_some()
    }

    pub(super) fn pythons(&self) -> &Pythons {
        self.pythons.get_or_init(Pythons::default)
    }

    pub(super) fn candidate(&self, id: SolvableId) -> &Candidate {
        &self.pool.resolve_solvable(id).record
    }

    pub(super) fn name_of(&self, id: SolvableId) -> &Name {
        self.pool.resolve_package_name(self.pool.resolve_solvable(id).name)
    }

    pub(super) fn conda_name(&self, name: &str) -> NameId {
        self.pool.intern_package_name(Name::Conda(name.into()))
    }

    pub(super) fn set(&self, name: Name, set: Set) -> VersionSetId {
        let name = self.pool.intern_package_name(name);
        self.pool.intern_version_set(name, set)
    }

    /// Notes that a source failed; the solve stops at the next occasion.
    pub(super) fn fail(&self, error: ProviderError) {
        self.failure.borrow_mut().get_or_insert(error);
    }

    pub(super) fn failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    // --- conda -------------------------------------------------------------------------------

    /// The name and the set of a match spec.
    pub(super) fn match_spec(&self, spec: &MatchSpec) -> Result<(NameId, VersionSetId), String> {
        if spec.condition.is_some() || spec.extras.as_ref().is_some_and(|list| !list.is_empty()) {
            return Err(format!(
                "`{spec}` uses optional or conditional dependencies of conda, which gpuenv does not know yet"
            ));
        }
        let (PackageNameMatcher::Exact(name), spec) = spec.clone().into_nameless() else {
            return Err(format!("`{spec}` names no single package"));
        };
        let name = self.conda_name(name.as_normalized());
        let set = if spec == rattler_conda_types::NamelessMatchSpec::default() {
            Set::Any
        } else {
            Set::Spec(Arc::new(spec))
        };
        Ok((name, self.pool.intern_version_set(name, set)))
    }

    /// As [`Engine::match_spec`], from the text of a record.
    pub(super) fn parse_spec(&self, text: &str) -> ParsedSpec {
        if let Some(parsed) = self.specs.borrow().get(text) {
            return parsed.clone();
        }
        let options = ParseMatchSpecOptions::lenient().with_repodata_revision(RepodataRevision::V3);
        let parsed = MatchSpec::from_str(text, options)
            .map_err(|error| format!("its dependency `{text}` cannot be read: {error}"))
            .and_then(|spec| self.match_spec(&spec))
            .map_err(Rc::from);
        self.specs.borrow_mut().insert(text.to_owned(), parsed.clone());
        parsed
    }

    /// The candidates of a conda set; kept, as they never change.
    pub(super) fn conda_matching(&self, set: VersionSetId) -> Rc<Vec<SolvableId>> {
        if let Some(found) = self.matching.borrow().get(&set) {
            return found.clone();
        }
        let name = self.pool.resolve_version_set_package_name(set);
        let candidates = self.conda_candidates(name);
        let wanted = self.pool.resolve_version_set(set);
        let found: Rc<Vec<SolvableId>> = Rc::new(
            candidates
                .usable
                .iter()
                .copied()
                .filter(|id| self.conda_matches(wanted, *id))
                .collect(),
        );
        self.matching.borrow_mut().insert(set, found.clone());
        found
    }

    /// What a record requires of conda, without its constraints.
    pub(super) fn record_requirements(&self, id: SolvableId) -> Dependencies {
        if let Some(known) = self.requirements.borrow().get(&id) {
            return known.clone();
        }
        let mut known = KnownDependencies::default();
        let mut unknown = None;
        if let Candidate::Record { record, .. } = self.candidate(id) {
            for text in &record.package_record.depends {
                match self.parse_spec(text) {
                    // Some packages name themselves.
                    Ok((name, set))
                        if name == self.pool.resolve_solvable(id).name
                            && self.conda_matches(self.pool.resolve_version_set(set), id) => {}
                    Ok((_, set)) => known.requirements.push(set.into()),
                    Err(reason) => {
                        unknown = Some(self.pool.intern_string(reason.to_string()));
                        break;
                    }
                }
            }
        }
        let dependencies = match unknown {
            Some(reason) => Dependencies::Unknown(reason),
            None => Dependencies::Known(known),
        };
        self.requirements.borrow_mut().insert(id, dependencies.clone());
        dependencies
    }

    /// Reads all conda records that could be chosen, starting from the roots. Returns them.
    pub(super) fn explore(&self, roots: impl IntoIterator<Item = VersionSetId>) -> Vec<SolvableId> {
        let mut queue: VecDeque<VersionSetId> = roots.into_iter().collect();
        let mut sets: HashSet<VersionSetId> = queue.iter().copied().collect();
        let mut records: HashSet<SolvableId> = HashSet::new();
        let mut order = Vec::new();
        while let Some(set) = queue.pop_front() {
            if self.failed() {
                break;
            }
            self.reached.borrow_mut().insert(self.pool.resolve_version_set_package_name(set));
            for id in self.conda_matching(set).iter().copied() {
                if !records.insert(id) {
                    continue;
                }
                order.push(id);
                if let Dependencies::Known(known) = self.record_requirements(id) {
                    for requirement in known.requirements {
                        if let Requirement::Single(set) = requirement.requirement
                            && sets.insert(set)
                        {
                            queue.push_back(set);
                        }
                    }
                }
            }
        }
        order
    }

    /// Notes which distributions the explored records provide.
    pub(super) fn group(&self, records: &[SolvableId]) {
        let mut groups = self.groups.borrow_mut();
        let mut of = self.groups_of.borrow_mut();
        let mut numbers: HashMap<(DistName, NameId, String), usize> = HashMap::new();
        for &id in records {
            let Candidate::Record { record, provides } = self.candidate(id) else {
                continue;
            };
            let conda = &record.package_record;
            for dist in provides.iter() {
                let shown = conda.version.to_string();
                let key = (dist.clone(), self.pool.resolve_solvable(id).name, shown.clone());
                let number = *numbers.entry(key).or_insert_with(|| {
                    groups.push(Group {
                        conda: conda.name.as_normalized().into(),
                        version: shown.parse().ok(),
                        shown,
                        records: HashSet::new(),
                    });
                    of.entry(dist.clone()).or_default().push(groups.len() - 1);
                    groups.len() - 1
                });
                groups[number].records.insert(id);
            }
        }
    }

    /// What a conda record needs and excludes.
    pub(super) fn record_dependencies(&self, id: SolvableId) -> Dependencies {
        let mut known = match self.record_requirements(id) {
            Dependencies::Known(known) => known,
            unknown @ Dependencies::Unknown(_) => return unknown,
        };
        let Candidate::Record { record, provides } = self.candidate(id) else {
            return Dependencies::Known(known);
        };
        for text in &record.package_record.constrains {
            match self.parse_spec(text) {
                // A bound on itself holds or it does not, whatever is chosen.
                Ok((name, set)) if name == self.pool.resolve_solvable(id).name => {
                    if !self.conda_matches(self.pool.resolve_version_set(set), id) {
                        let reason = format!("it excludes itself (`{text}`)");
                        return Dependencies::Unknown(self.pool.intern_string(reason));
                    }
                }
                // Of what nothing can choose, nothing needs to be excluded.
                Ok((name, set)) if self.reachable(name) => known.constrains.push(set),
                Ok(_) => {}
                Err(reason) => {
                    return Dependencies::Unknown(self.pool.intern_string(reason.to_string()));
                }
            }
        }
        if self.has_wheels() {
            for dist in provides.iter() {
                known
                    .constrains
                    .push(self.set(Name::World(dist.clone()), Set::World(World::Conda)));
            }
        }
        let majors = self.majors(gpu_builds::line_of_record(record), gpu::cudnn_of_record(record));
        known.requirements.extend(majors.into_iter().map(ConditionalRequirement::from));
        Dependencies::Known(known)
    }

    /// The requirements of what is of a CUDA line, or brings cuDNN: one major of each is in an
    /// environment.
    fn majors(&self, line: Option<Line>, cudnn: Option<u16>) -> Vec<VersionSetId> {
        if self.problem.gpu.as_ref().is_some_and(|gpu| gpu.mixed) {
            return Vec::new();
        }
        let cuda = match line {
            Some(Line::Cuda(major, _)) => Some(self.set(Name::Cuda, Set::Major(major))),
            Some(Line::Cpu) | None => None,
        };
        cuda.into_iter()
            .chain(cudnn.map(|major| self.set(Name::Cudnn, Set::Major(major))))
            .collect()
    }

    fn reachable(&self, name: NameId) -> bool {
        self.reached.borrow().contains(&name)
            || matches!(self.pool.resolve_package_name(name), Name::Conda(name) if name.starts_with("__"))
    }

    // --- wheels ------------------------------------------------------------------------------

    /// Applies the overrides; `None` drops the requirement.
    pub(super) fn overridden(
        &self,
        name: &DistName,
        extras: &[ExtraName],
        specifiers: &VersionSpecifiers,
    ) -> Option<(DistName, Vec<ExtraName>, VersionSpecifiers)> {
        match self.problem.overrides.get(name) {
            None => Some((name.clone(), extras.to_vec(), specifiers.clone())),
            Some(DependencyOverride::Drop) => None,
            Some(DependencyOverride::Specifiers(instead)) => {
                Some((name.clone(), extras.to_vec(), instead.clone()))
            }
            Some(DependencyOverride::Replace(other, instead)) => {
                Some((other.clone(), Vec::new(), instead.clone()))
            }
        }
    }

    /// On these Pythons, if there are others.
    pub(super) fn on_pythons(&self, mask: &PyMask) -> When {
        When { extra: None, pythons: (!self.pythons().is_every(mask)).then(|| mask.clone()) }
    }

    /// A requirement that holds only at times.
    ///
    /// To find an answer it becomes a conditional requirement: what it names is looked at when the
    /// condition holds. To prove that there is none it becomes a choice between what it names and
    /// the ways out: the solver's account of a conflict knows no conditions.
    pub(super) fn under(&self, when: &When, set: VersionSetId) -> ConditionalRequirement {
        let python =
            |mask: &PyMask| self.set(Name::Conda("python".into()), Set::Pythons(mask.clone()));
        let extra = |name: NameId, on: bool| self.pool.intern_version_set(name, Set::Extra(on));
        if when.always() {
            return set.into();
        }
        if self.proving.get() {
            let every = self.pythons().every();
            let ways_out = when
                .extra
                .map(|name| extra(name, false))
                .into_iter()
                .chain(when.pythons.as_ref().map(|mask| python(&every.minus(mask))));
            return self.pool.intern_version_set_union(set, ways_out).into();
        }
        let mut condition: Option<ConditionId> = None;
        for part in when
            .extra
            .map(|name| extra(name, true))
            .into_iter()
            .chain(when.pythons.as_ref().map(python))
        {
            let part = self.pool.intern_condition(Condition::Requirement(part));
            condition = Some(match condition {
                None => part,
                Some(other) => {
                    self.pool.intern_condition(Condition::Binary(LogicalOperator::And, other, part))
                }
            });
        }
        ConditionalRequirement { condition, requirement: set.into() }
    }

    /// What a requirement names, and the ways out of it.
    pub(super) fn parts(
        &self,
        requirement: Requirement,
    ) -> Option<(VersionSetId, Vec<VersionSetId>)> {
        match requirement {
            Requirement::Single(set) => Some((set, Vec::new())),
            Requirement::Union(union) => {
                let mut sets = self.pool.resolve_version_set_union(union);
                Some((sets.next()?, sets.collect()))
            }
        }
    }

    /// What is required where a distribution with extras is.
    pub(super) fn require_dist(
        &self,
        name: &DistName,
        extras: &[ExtraName],
        specifiers: &VersionSpecifiers,
    ) -> Vec<VersionSetId> {
        self.seen.borrow_mut().learn(name, specifiers);
        let mut sets =
            vec![self.set(Name::Dist(name.clone()), Set::Specifiers(specifiers.clone()))];
        for extra in extras {
            let name = Name::Extra(name.clone(), extra.clone());
            // The solver must know that with and without exclude each other before it chooses one:
            // what it learns of that later, it forgets on the way back (resolvo 0.12), and with it
            // what is required under this extra.
            sets.push(self.set(name.clone(), Set::Any));
            let set = self.set(name, Set::Extra(true));
            self.wanted_extras.borrow_mut().insert(self.pool.resolve_version_set_package_name(set));
            sets.push(set);
        }
        sets
    }

    /// What a wheel file needs as far as its name says, and, if it runs on every Python of the
    /// solve, what its metadata says.
    pub(super) fn wheel_dependencies(
        &self,
        id: SolvableId,
        file: &Arc<WheelFile>,
        pythons: &PyMask,
    ) -> Dependencies {
        let dist = &file.filename.name;
        let mut known = KnownDependencies::default();
        if self.groups_of.borrow().contains_key(dist) {
            let set = self.set(Name::World(dist.clone()), Set::World(World::Wheel));
            known.requirements.push(set.into());
        }
        let majors = self.majors(FACTS.line(&file.filename), gpu::cudnn_of_wheel(&file.filename));
        known.requirements.extend(majors.into_iter().map(ConditionalRequirement::from));
        if self.pythons().is_every(pythons) {
            return match self.metadata_dependencies(id, file, pythons) {
                Dependencies::Known(more) => {
                    known.requirements.extend(more.requirements);
                    Dependencies::Known(known)
                }
                unknown => unknown,
            };
        }
        let python = self.set(Name::Conda("python".into()), Set::Pythons(pythons.clone()));
        known.requirements.push(python.into());
        let metadata = self.set(Name::Metadata(id), Set::Any);
        known.requirements.push(metadata.into());
        Dependencies::Known(known)
    }

    /// The metadata of a wheel file, read once.
    pub(super) fn metadata_of(
        &self,
        id: SolvableId,
        file: &Arc<WheelFile>,
    ) -> Result<Arc<WheelMetadata>, String> {
        if let Some(known) = self.metadata.borrow().get(&id) {
            return known.clone();
        }
        self.look_ahead(id, file);
        let answer = match self.provider.metadata(file) {
            Ok(metadata) if metadata.name != file.filename.name => {
                Err(format!("its metadata is that of another distribution, {}", metadata.name))
            }
            Ok(metadata) => Ok(metadata),
            Err(ProviderError::Unusable(reason)) => Err(reason),
            Err(failed @ ProviderError::Failed { .. }) => {
                self.fail(failed);
                Err("its source failed".to_owned())
            }
        };
        self.metadata.borrow_mut().insert(id, answer.clone());
        answer
    }

    /// What the metadata of a wheel file says it needs, if it is to run on these Pythons.
    pub(super) fn metadata_dependencies(
        &self,
        id: SolvableId,
        file: &Arc<WheelFile>,
        pythons: &PyMask,
    ) -> Dependencies {
        let unknown = |reason: String| Dependencies::Unknown(self.pool.intern_string(reason));
        let metadata = match self.metadata_of(id, file) {
            Ok(metadata) => metadata,
            Err(reason) => return unknown(reason),
        };
        let all = self.pythons();
        let allowed = all.allowed(metadata.requires_python.as_ref()).and(pythons);
        let mut known = KnownDependencies::default();
        if allowed.is_empty() {
            let requires =
                metadata.requires_python.as_ref().map(ToString::to_string).unwrap_or_default();
            return unknown(format!("it requires Python {requires}"));
        }
        if allowed != *pythons {
            let set = self.set(Name::Conda("python".into()), Set::Pythons(allowed.clone()));
            known.requirements.push(set.into());
        }
        let mut soon = Vec::new();
        for requirement in &metadata.requires_dist {
            let times = self.times(&metadata, requirement.marker, &allowed);
            if times.is_empty() {
                continue;
            }
            let specifiers = match self.specifiers_of(requirement) {
                Ok(specifiers) => specifiers,
                Err(reason) if times.iter().all(When::always) => return unknown(reason),
                Err(reason) => {
                    let refused = self.set(Name::Refused(reason.into()), Set::Any);
                    for when in times.iter().filter(|when| self.expected(when)) {
                        known.requirements.push(self.under(when, refused));
                    }
                    continue;
                }
            };
            let Some((name, extras, specifiers)) =
                self.overridden(&requirement.name, &requirement.extras, &specifiers)
            else {
                continue;
            };
            // `pkg[all]` of pkg itself: only the extras are news.
            let itself = name == file.filename.name && specifiers.contains(&file.filename.version);
            for when in times.iter().filter(|when| self.expected(when)) {
                let sets = self.require_dist(&name, &extras, &specifiers);
                for set in sets.into_iter().skip(usize::from(itself)) {
                    if self.probable(when) {
                        soon.push(set);
                    }
                    known.requirements.push(self.under(when, set));
                }
            }
        }
        for need in self.undeclared(file) {
            for set in self.need_sets(&need) {
                soon.push(set);
                known.requirements.push(set.into());
            }
        }
        self.prefetch_listings(&soon);
        Dependencies::Known(known)
    }

    /// The CUDA line that a candidate is of.
    pub(super) fn line_of(&self, id: SolvableId) -> Option<Line> {
        match self.candidate(id) {
            Candidate::Record { record, .. } => gpu_builds::line_of_record(record),
            Candidate::Wheel { file, .. } => FACTS.line(&file.filename),
            _ => None,
        }
    }

    /// What a file needs without declaring it.
    pub(super) fn undeclared(&self, file: &WheelFile) -> Vec<Need> {
        match FACTS.wheel(&file.filename) {
            Some(row) => FACTS.needs(self.problem, row),
            None => Vec::new(),
        }
    }

    fn need_sets(&self, need: &Need) -> Vec<VersionSetId> {
        match &need.from {
            NeedFrom::Conda(spec) => {
                self.parse_spec(spec).ok().map(|(_, set)| set).into_iter().collect()
            }
            NeedFrom::Wheel(name, specifiers) => match self.overridden(name, &[], specifiers) {
                Some((name, extras, specifiers)) => self.require_dist(&name, &extras, &specifiers),
                None => Vec::new(),
            },
        }
    }

    /// The specifiers of a requirement; an error where it refers to a URL that env.toml does not
    /// name as well.
    pub(super) fn specifiers_of(
        &self,
        requirement: &uv_pep508::Requirement<uv_pypi_types::VerbatimParsedUrl>,
    ) -> Result<VersionSpecifiers, String> {
        match &requirement.version_or_url {
            None => Ok(VersionSpecifiers::empty()),
            Some(uv_pep508::VersionOrUrl::VersionSpecifier(specifiers)) => Ok(specifiers.clone()),
            Some(uv_pep508::VersionOrUrl::Url(url)) => {
                if self.problem.overrides.contains_key(&requirement.name) {
                    return Ok(VersionSpecifiers::empty());
                }
                let raw = url.verbatim.raw().to_string();
                let given = url.verbatim.given().unwrap_or(&raw);
                let plain = |url: &str| url.split('#').next().unwrap_or_default().to_owned();
                let named =
                    matches!(self.origins.get(&requirement.name), Some(WheelOrigin::Direct(_)))
                        && self.dist(&requirement.name).files.iter().any(|file| {
                            plain(&file.url) == plain(&raw) || plain(&file.url) == plain(given)
                        });
                if named {
                    Ok(VersionSpecifiers::empty())
                } else {
                    Err(format!(
                        "it needs {} from {given}, a place that env.toml does not name",
                        requirement.name
                    ))
                }
            }
        }
    }

    /// When a requirement with this marker holds: at no time if the list is empty.
    pub(super) fn times(
        &self,
        metadata: &WheelMetadata,
        marker: uv_pep508::MarkerTree,
        pythons: &PyMask,
    ) -> Vec<When> {
        let all = self.pythons();
        let plain = all.marked(marker, None).and(pythons);
        if plain == *pythons {
            return vec![When::default()];
        }
        let mut times = Vec::new();
        if !plain.is_empty() {
            times.push(self.on_pythons(&plain));
        }
        let mut named = BTreeSet::new();
        marker.visit_extras(|_, extra| {
            named.insert(extra.clone());
        });
        for extra in named {
            let with = all.marked(marker, Some(&extra)).and(pythons).minus(&plain);
            if with.is_empty() {
                continue;
            }
            let mut when = self.on_pythons(&with);
            // Where all Pythons that the file runs on are meant, none need be named.
            if with == *pythons {
                when.pythons = None;
            }
            let name = Name::Extra(metadata.name.clone(), extra);
            when.extra = Some(self.pool.intern_package_name(name));
            times.push(when);
        }
        times
    }

    /// Whether a requirement will probably hold: its extra has been asked for.
    fn probable(&self, when: &When) -> bool {
        when.extra.is_none_or(|extra| self.wanted_extras.borrow().contains(&extra))
    }

    /// Whether a requirement is to be told to the solver at all. What hangs on an extra that
    /// nothing asks for matters to no proof, and would have its listing read.
    pub(super) fn expected(&self, when: &When) -> bool {
        !self.proving.get() || self.probable(when)
    }

    /// Tells the provider which listings are about to be asked for.
    pub(super) fn prefetch_listings(&self, sets: &[VersionSetId]) {
        let mut wants = Vec::new();
        let mut told = BTreeSet::new();
        let dists = self.dists.borrow();
        for set in sets.iter().copied() {
            let name = self.pool.resolve_version_set_package_name(set);
            if let Name::Dist(dist) = self.pool.resolve_package_name(name)
                && !dists.contains_key(dist)
                && told.insert(dist)
            {
                wants.push(Want::Wheels(dist.clone(), self.origin(dist)));
            }
        }
        drop(dists);
        if !wants.is_empty() {
            self.provider.prefetch(wants);
        }
    }

    pub(super) fn origin(&self, dist: &DistName) -> WheelOrigin {
        self.origins.get(dist).cloned().unwrap_or(WheelOrigin::Default)
    }

    // --- flags -------------------------------------------------------------------------------

    /// The two candidates of a [`Name::World`].
    pub(super) fn worlds(&self, name: NameId) -> [SolvableId; 2] {
        *self.worlds.borrow_mut().entry(name).or_insert_with(|| {
            [World::Conda, World::Wheel]
                .map(|world| self.pool.intern_solvable(name, Candidate::World(world)))
        })
    }

    /// The candidates of [`Name::Cuda`] and [`Name::Cudnn`], newest first.
    pub(super) fn major_candidates(&self, name: NameId) -> Vec<SolvableId> {
        self.majors
            .borrow_mut()
            .entry(name)
            .or_insert_with(|| {
                let majors = (1..=MAJORS).rev();
                majors
                    .map(|major| self.pool.intern_solvable(name, Candidate::Major(major)))
                    .collect()
            })
            .clone()
    }

    /// The two candidates of a [`Name::Extra`]: with it, and without it.
    pub(super) fn extras(&self, name: NameId) -> [SolvableId; 2] {
        *self.worlds.borrow_mut().entry(name).or_insert_with(|| {
            [true, false].map(|on| self.pool.intern_solvable(name, Candidate::Extra(on)))
        })
    }

    /// The only candidate of a [`Name::Metadata`].
    pub(super) fn single(&self, name: NameId) -> Option<SolvableId> {
        if let Some(id) = self.singles.borrow().get(&name) {
            return Some(*id);
        }
        let Name::Metadata(wheel) = self.pool.resolve_package_name(name) else {
            return None;
        };
        let file = match self.candidate(*wheel) {
            Candidate::Wheel { file, .. } => file.clone(),
            Candidate::Provided { .. } => self.file_of_provided(*wheel)?,
            _ => return None,
        };
        let id = self.pool.intern_solvable(name, Candidate::Metadata(file));
        self.singles.borrow_mut().insert(name, id);
        Some(id)
    }

    pub(super) fn conda_package_name(name: &str) -> CondaName {
        // Only names that were normalized conda names before come here.
        CondaName::new_unchecked(name)
    }
}
