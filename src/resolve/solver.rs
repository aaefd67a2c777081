//! The solve itself: roots, the runs of the SAT solver, the way to an answer or an explanation.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;

use resolvo::{
    Candidates, Condition, ConditionId, ConditionalRequirement, Dependencies, DependencyProvider,
    HintDependenciesAvailable, Interner, KnownDependencies, NameId, SolvableId, Solver,
    SolverCache, StringId, UnsolvableOrCancelled, VersionSetId, VersionSetUnionId,
};
use uv_normalize::PackageName as DistName;
use uv_pep440::VersionSpecifiers;

use super::answer;
use super::conda::python_of_record;
use super::engine::{Engine, When};
use super::error::{Explanation, SolveError};
use super::explain;
use super::gpu::FACTS;
use super::names::{Candidate, Name, Set, World};
use super::problem::{Asker, GpuTarget, Problem, Solution};
use super::provider::{Provider, ProviderError, WheelOrigin};
use super::relax::{self, Conflict, Item};
use super::target::{Flavor, Pythons, Target};

/// A root requirement, as the solver gets it.
#[derive(Clone)]
pub(super) struct Root {
    /// The candidates that satisfy it.
    pub(super) set: VersionSetId,
    pub(super) when: When,
    pub(super) asker: Asker,
    /// As env.toml has it, such as `numpy >=2`.
    pub(super) words: String,
    /// Which requirement of the problem it is; `None` for the one on an interpreter that no line
    /// names.
    pub(super) item: Option<Item>,
}

impl Root {
    /// Whether it is one of the problem.
    pub(super) fn named(&self) -> bool {
        self.item.is_some()
    }
}

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
    match search(problem, provider, true) {
        Ok(solution) => Ok(solution),
        Err(Refusal::Error(error)) => Err(error),
        Err(Refusal::Unsatisfiable(refused)) => {
            let (explanation, conflict) = *refused;
            let explanation = relax::advise(problem, provider, explanation, conflict);
            Err(SolveError::Unsatisfiable(explanation))
        }
    }
}

/// The answer, if there is one that can be found.
pub(super) fn attempt(problem: &Problem, provider: &dyn Provider) -> Option<Solution> {
    search(problem, provider, false).ok()
}

/// How a search ended without an answer.
pub(super) enum Refusal {
    /// There is none; why, and what might be changed.
    Unsatisfiable(Box<(Explanation, Conflict)>),
    /// Something else.
    Error(SolveError),
}

impl From<SolveError> for Refusal {
    fn from(error: SolveError) -> Self {
        Refusal::Error(error)
    }
}

/// Solves; without words, the reasons are not worked out.
fn search(problem: &Problem, provider: &dyn Provider, words: bool) -> Result<Solution, Refusal> {
    let origins = origins(problem)?;
    let target = if problem.wheels.is_empty() {
        None
    } else {
        let target = Target::new(problem.platform, problem.glibc, &problem.virtual_packages)
            .map_err(|error| SolveError::problem(error.to_string(), None))?;
        Some(target)
    };
    if let Some(gpu) = &problem.gpu {
        driver_runs(problem, gpu)?;
    }
    let engine = Engine::new(problem, provider, target, origins);
    let (mut conda_roots, conda_sets) = conda_roots(&engine)?;
    conda_roots.extend(gpu_root(&engine));

    // Everything conda could bring.
    let explored = engine.explore(conda_sets.iter().copied());
    stop_if_failed(&engine)?;
    let mut roots = conda_roots;
    if engine.has_wheels() {
        know_pythons(&engine, &explored, &conda_sets)?;
        // Whatever else is there: wheels need one of the interpreters that they know.
        let every = Set::Pythons(engine.pythons().every());
        roots.push(Root {
            set: engine.set(Name::Conda("python".into()), every),
            when: When::default(),
            asker: Asker::Gpuenv("wheels need an interpreter".to_owned()),
            words: "python".to_owned(),
            item: None,
        });
        engine.group(&explored);
        prefer_what_conda_needs(&engine, &roots, words)?;
        roots.extend(wheel_roots(&engine)?);
        let sets: Vec<_> = roots.iter().map(|root| root.set).collect();
        engine.prefetch_listings(&sets);
    }
    let seen = engine.seen.borrow().clone();
    engine.permits.borrow_mut().merge(&seen);
    loop {
        match run(&engine, &roots) {
            // Now it is known which extras conda has to tell of: once more, with what they need.
            Ok(chosen) if engine.learn_extras_of_conda(&chosen) => {}
            Ok(chosen) => return Ok(answer::solution(&engine, &roots, &chosen)?),
            Err(Failed::Source(error)) => return Err(SolveError::Source(error).into()),
            Err(Failed::Unsatisfiable(_)) => {
                // Something looked at on the way names a pre-release or pins a yanked version:
                // then these are open to all.
                let seen = engine.seen.borrow().clone();
                if engine.permits.borrow().covers(&seen) {
                    return Err(refused(&engine, &roots, words));
                }
                engine.permits.borrow_mut().merge(&seen);
            }
        }
    }
}

fn refused(engine: &Engine<'_>, roots: &[Root], words: bool) -> Refusal {
    match words {
        true => explain::unsatisfiable(engine, roots),
        false => Refusal::Unsatisfiable(Box::default()),
    }
}

/// How a run ended without an answer.
pub(super) enum Failed {
    /// A source failed.
    Source(ProviderError),
    /// There is none; why, if a proof was wanted.
    Unsatisfiable(Option<Box<explain::Facts>>),
}

/// One run of the SAT solver.
pub(super) fn run(engine: &Engine<'_>, roots: &[Root]) -> Result<Vec<SolvableId>, Failed> {
    let mut requirements: Vec<ConditionalRequirement> = engine
        .problem
        .virtual_packages
        .iter()
        .map(|package| {
            let name = Name::Conda(package.name.as_normalized().into());
            engine.set(name, Set::Any).into()
        })
        .collect();
    requirements.extend(roots.iter().map(|root| engine.under(&root.when, root.set)));
    let problem = resolvo::Problem::new().requirements(requirements);
    let mut solver = Solver::new(engine);
    match solver.solve(problem) {
        Ok(chosen) => match engine.failure.borrow_mut().take() {
            None => Ok(chosen),
            Some(error) => Err(Failed::Source(error)),
        },
        Err(UnsolvableOrCancelled::Cancelled(_)) => {
            let error = engine.failure.borrow_mut().take();
            Err(Failed::Source(error.unwrap_or_else(|| ProviderError::Failed {
                message: "the solve was cancelled".to_owned(),
                hint: None,
                exit: crate::error::Exit::Bug,
            })))
        }
        Err(UnsolvableOrCancelled::Unsolvable(conflict)) => {
            if let Some(error) = engine.failure.borrow_mut().take() {
                return Err(Failed::Source(error));
            }
            // The solver can account for a conflict only where there are no conditions.
            let facts =
                engine.proving.get().then(|| Box::new(explain::Facts::of(conflict.graph(&solver))));
            Err(Failed::Unsatisfiable(facts))
        }
    }
}

fn stop_if_failed(engine: &Engine<'_>) -> Result<(), SolveError> {
    match engine.failure.borrow_mut().take() {
        None => Ok(()),
        Some(error) => Err(SolveError::Source(error)),
    }
}

/// The one place each distribution comes from; a contradiction is an error.
fn origins(problem: &Problem) -> Result<BTreeMap<DistName, WheelOrigin>, SolveError> {
    let mut origins: BTreeMap<DistName, (WheelOrigin, Asker)> = BTreeMap::new();
    for root in &problem.wheels {
        if root.origin == WheelOrigin::Default {
            continue;
        }
        if let Some((other, _)) = origins.get(&root.name)
            && *other != root.origin
        {
            return Err(SolveError::problem(
                format!("{} is asked for from two places", root.name),
                Some(root.asker.clone()),
            ));
        }
        origins.insert(root.name.clone(), (root.origin.clone(), root.asker.clone()));
    }
    Ok(origins.into_iter().map(|(name, (origin, _))| (name, origin)).collect())
}

fn conda_roots(engine: &Engine<'_>) -> Result<(Vec<Root>, Vec<VersionSetId>), SolveError> {
    let mut roots = Vec::new();
    let mut sets = Vec::new();
    let mut names_python = false;
    for (at, root) in engine.problem.conda.iter().enumerate() {
        let (name, set) = engine
            .match_spec(&root.spec)
            .map_err(|error| SolveError::problem(error, Some(root.asker.clone())))?;
        names_python |= *engine.pool.resolve_package_name(name) == Name::Conda("python".into());
        sets.push(set);
        roots.push(Root {
            set,
            when: When::default(),
            asker: root.asker.clone(),
            words: root.spec.to_string(),
            item: Some(Item::Conda(at)),
        });
    }
    if engine.has_wheels() && !names_python {
        sets.push(engine.set(Name::Conda("python".into()), Set::Any));
    }
    Ok((roots, sets))
}

/// The CUDA major that env.toml declares.
fn gpu_root(engine: &Engine<'_>) -> Option<Root> {
    let gpu = engine.problem.gpu.as_ref()?;
    Some(Root {
        set: engine.set(Name::Cuda, Set::Major(gpu.cuda.0)),
        when: When::default(),
        asker: gpu.asker.clone(),
        words: format!("[gpu] cuda = \"{}.{}\"", gpu.cuda.0, gpu.cuda.1),
        item: Some(Item::Cuda),
    })
}

/// Whether the declared driver runs the declared CUDA line at all.
fn driver_runs(problem: &Problem, gpu: &GpuTarget) -> Result<(), Refusal> {
    let (major, minor) = gpu.cuda;
    let (Some(driver), Some(floor)) = (&gpu.driver, FACTS.floor(major)) else {
        return Ok(());
    };
    if driver >= floor {
        return Ok(());
    }
    let mut reasons = vec![
        format!("env.toml asks for `[gpu] cuda = \"{major}.{minor}\"`"),
        format!("CUDA {major}.x needs driver {floor} or newer, whatever its minor version"),
        format!("env.toml promises no more than `[gpu] driver = \"{driver}\"`"),
    ];
    if let Some(newest) = FACTS.newest_major(driver) {
        reasons.push(format!("driver {driver} runs CUDA up to {newest}.x"));
    }
    let advice = format!(
        "if all machines can have a newer driver, install it and say so: driver = \"{floor}\" in [gpu]"
    );
    let mut conflict = Conflict { advice: vec![advice.clone()], ..Conflict::default() };
    conflict.cuda(problem);
    let explanation = Explanation {
        headline: format!("CUDA {major}.{minor} does not run on driver {driver}"),
        reasons,
        advice,
        spans: match &gpu.asker {
            Asker::Manifest(span) => vec![span.clone()],
            Asker::Gpuenv(_) => Vec::new(),
        },
    };
    Err(Refusal::Unsatisfiable(Box::new((explanation, conflict))))
}

/// Works out the Pythons of the solve from what was explored.
fn know_pythons(
    engine: &Engine<'_>,
    explored: &[SolvableId],
    roots: &[VersionSetId],
) -> Result<(), SolveError> {
    let target = match &engine.target {
        Some(target) => target,
        None => return Ok(()),
    };
    let python = engine.conda_name("python");
    let sets: Vec<_> = roots
        .iter()
        .filter(|set| engine.pool.resolve_version_set_package_name(**set) == python)
        .map(|set| engine.pool.resolve_version_set(*set))
        .collect();
    let mut interpreters = Vec::new();
    for id in explored.iter().copied() {
        if engine.pool.resolve_solvable(id).name != python
            || !sets.iter().all(|set| engine.conda_matches(set, id))
        {
            continue;
        }
        let interpreter = match engine.candidate(id) {
            Candidate::Record { record, .. } => python_of_record(record),
            Candidate::HostPython(version) => Some((version.clone(), Flavor::CPython)),
            _ => None,
        };
        interpreters.extend(interpreter.map(|(version, flavor)| (id, version, flavor)));
    }
    let pythons = Pythons::new(
        target,
        interpreters.iter().map(|(_, version, flavor)| (version.clone(), *flavor)),
    )
    .map_err(|error| SolveError::problem(error.to_string(), None))?;
    let mut of = engine.python_of.borrow_mut();
    for (id, version, flavor) in interpreters {
        if let Some(index) = pythons.find(&version, flavor) {
            of.insert(id, index);
        }
    }
    drop(of);
    let _ = engine.pythons.set(pythons);
    Ok(())
}

/// Solves the conda part alone, if it could provide distributions: what it chooses is preferred
/// over wheels of the same name, what it merely could choose is not. Without this a wheel taken
/// early would push conda packages to odd versions that do without the conda one.
fn prefer_what_conda_needs(
    engine: &Engine<'_>,
    roots: &[Root],
    words: bool,
) -> Result<(), Refusal> {
    if engine.groups.borrow().is_empty() {
        return Ok(());
    }
    match run(engine, roots) {
        Ok(chosen) => {
            let groups = engine.groups.borrow();
            let mut preferred = engine.preferred.borrow_mut();
            for (number, group) in groups.iter().enumerate() {
                if chosen.iter().any(|id| group.records.contains(id)) {
                    preferred.insert(number);
                }
            }
            Ok(())
        }
        Err(Failed::Source(error)) => Err(SolveError::Source(error).into()),
        Err(Failed::Unsatisfiable(_)) => Err(refused(engine, roots, words)),
    }
}

fn wheel_roots(engine: &Engine<'_>) -> Result<Vec<Root>, SolveError> {
    let pythons = engine.pythons();
    let mut roots = Vec::new();
    for constraint in &engine.problem.constraints {
        engine.require_dist(constraint.0, &[], constraint.1);
    }
    for (at, root) in engine.problem.wheels.iter().enumerate() {
        let mask = pythons.marked(root.marker, None);
        // Without any Python there is nothing to evaluate on; the missing interpreter is the
        // reason that will be given.
        if mask.is_empty() && pythons.len() > 0 {
            continue;
        }
        let Some((name, extras, specifiers)) =
            engine.overridden(&root.name, &root.extras, &root.specifiers)
        else {
            continue;
        };
        let words = root_words(&name, &extras, &specifiers, &root.origin);
        let when = engine.on_pythons(&mask);
        for set in engine.require_dist(&name, &extras, &specifiers) {
            roots.push(Root {
                set,
                when: when.clone(),
                asker: root.asker.clone(),
                words: words.clone(),
                item: Some(Item::Wheel(at)),
            });
        }
    }
    Ok(roots)
}

fn root_words(
    name: &DistName,
    extras: &[uv_normalize::ExtraName],
    specifiers: &VersionSpecifiers,
    origin: &WheelOrigin,
) -> String {
    let mut words = name.to_string();
    if !extras.is_empty() {
        let extras: Vec<String> = extras.iter().map(ToString::to_string).collect();
        words.push_str(&format!("[{}]", extras.join(",")));
    }
    if !specifiers.is_empty() {
        words.push_str(&format!(" {specifiers}"));
    }
    if let WheelOrigin::Index(index) = origin {
        words.push_str(&format!(" (from {index})"));
    }
    words
}

impl Interner for &Engine<'_> {
    type NameId = NameId;
    type SolvableId = SolvableId;

    fn display_solvable(&self, solvable: SolvableId) -> impl Display + '_ {
        format!("{} {}", self.name_of(solvable), self.candidate(solvable))
    }

    fn display_name(&self, name: NameId) -> impl Display + '_ {
        self.pool.resolve_package_name(name)
    }

    fn display_version_set(&self, version_set: VersionSetId) -> impl Display + '_ {
        self.pool.resolve_version_set(version_set)
    }

    fn display_string(&self, string_id: StringId) -> impl Display + '_ {
        self.pool.resolve_string(string_id)
    }

    fn version_set_name(&self, version_set: VersionSetId) -> NameId {
        self.pool.resolve_version_set_package_name(version_set)
    }

    fn solvable_name(&self, solvable: SolvableId) -> NameId {
        self.pool.resolve_solvable(solvable).name
    }

    fn version_sets_in_union(
        &self,
        version_set_union: VersionSetUnionId,
    ) -> impl Iterator<Item = VersionSetId> {
        self.pool.resolve_version_set_union(version_set_union)
    }

    fn resolve_condition(&self, condition: ConditionId) -> Condition {
        self.pool.resolve_condition(condition).clone()
    }
}

impl DependencyProvider for &Engine<'_> {
    async fn filter_candidates(
        &self,
        candidates: &[SolvableId],
        version_set: VersionSetId,
        inverse: bool,
    ) -> Vec<SolvableId> {
        let name = self.pool.resolve_version_set_package_name(version_set);
        let set = self.pool.resolve_version_set(version_set);
        let matching: Vec<SolvableId> = match (self.pool.resolve_package_name(name), set) {
            (_, Set::Any) => candidates.to_vec(),
            (Name::Conda(_), _) => self.conda_matching(version_set).to_vec(),
            (Name::Dist(dist), Set::Specifiers(specifiers)) => {
                self.admitted(dist, candidates, specifiers)
            }
            (Name::World(_), Set::World(world)) => candidates
                .iter()
                .copied()
                .filter(|id| matches!(self.candidate(*id), Candidate::World(own) if own == world))
                .collect(),
            (Name::Cuda | Name::Cudnn, Set::Major(major)) => candidates
                .iter()
                .copied()
                .filter(|id| matches!(self.candidate(*id), Candidate::Major(own) if own == major))
                .collect(),
            (Name::Extra(..), Set::Extra(on)) => candidates
                .iter()
                .copied()
                .filter(|id| matches!(self.candidate(*id), Candidate::Extra(own) if own == on))
                .collect(),
            _ => Vec::new(),
        };
        if !inverse {
            return matching;
        }
        let matching: std::collections::HashSet<SolvableId> = matching.into_iter().collect();
        candidates.iter().copied().filter(|id| !matching.contains(id)).collect()
    }

    async fn get_candidates(&self, name: NameId) -> Option<Candidates> {
        let mut candidates = Candidates {
            hint_dependencies_available: HintDependenciesAvailable::All,
            ..Candidates::default()
        };
        match self.pool.resolve_package_name(name) {
            Name::Conda(_) => candidates.candidates = self.conda_candidates(name).usable.clone(),
            Name::Dist(dist) => {
                candidates.candidates = self.dist(dist).candidates.clone();
                let cheap = candidates
                    .candidates
                    .iter()
                    .copied()
                    .filter(|id| match self.candidate(*id) {
                        Candidate::Wheel { pythons, .. } => !self.pythons().is_every(pythons),
                        _ => true,
                    })
                    .collect();
                candidates.hint_dependencies_available = HintDependenciesAvailable::Some(cheap);
            }
            Name::World(_) => candidates.candidates = self.worlds(name).to_vec(),
            Name::Extra(..) => candidates.candidates = self.extras(name).to_vec(),
            Name::Refused(_) => {}
            Name::Cuda | Name::Cudnn => candidates.candidates = self.major_candidates(name),
            Name::Metadata(_) => {
                candidates.candidates = self.single(name).into_iter().collect();
                candidates.hint_dependencies_available = HintDependenciesAvailable::None;
            }
        }
        Some(candidates)
    }

    async fn sort_candidates(&self, _: &SolverCache<Self>, solvables: &mut [SolvableId]) {
        match solvables.first().map(|id| self.name_of(*id)) {
            Some(Name::Conda(_)) => self.sort_records(solvables),
            Some(Name::Dist(_)) => self.sort_dist(solvables),
            _ => {}
        }
    }

    async fn get_dependencies(&self, solvable: SolvableId) -> Dependencies {
        match self.candidate(solvable) {
            Candidate::Record { .. } => self.record_dependencies(solvable),
            Candidate::Wheel { file, pythons, .. } => {
                self.wheel_dependencies(solvable, file, pythons)
            }
            Candidate::Provided { number, conda, .. } => {
                let records = self.set(Name::Conda(conda.clone()), Set::Records(*number));
                let mut known = KnownDependencies::default();
                known.requirements.push(records.into());
                if let Name::Dist(dist) = self.name_of(solvable) {
                    let world = self.set(Name::World(dist.clone()), Set::World(World::Conda));
                    known.requirements.push(world.into());
                    if self.has_extras_of_conda(dist, solvable) {
                        let metadata = self.set(Name::Metadata(solvable), Set::Any);
                        known.requirements.push(metadata.into());
                    }
                }
                Dependencies::Known(known)
            }
            Candidate::Metadata(file) => {
                let Name::Metadata(wheel) = self.name_of(solvable) else {
                    return Dependencies::Known(KnownDependencies::default());
                };
                match self.candidate(*wheel) {
                    Candidate::Wheel { pythons, .. } => {
                        self.metadata_dependencies(*wheel, file, pythons)
                    }
                    Candidate::Provided { .. } => self.extras_of_provided(*wheel, file),
                    _ => Dependencies::Known(KnownDependencies::default()),
                }
            }
            Candidate::Virtual(_)
            | Candidate::HostPython(_)
            | Candidate::Extra(_)
            | Candidate::Major(_)
            | Candidate::World(_) => Dependencies::Known(KnownDependencies::default()),
        }
    }

    fn should_cancel_with_value(&self) -> Option<Box<dyn Any>> {
        self.failed().then(|| Box::new(()) as Box<dyn Any>)
    }
}
