//! From the solver's choice to a solution: walks the choice from the root requirements on, checks
//! every requirement on the way against the packages themselves, and puts all in link order.
//!
//! The walk does not use what the solver was told, but reads records and metadata again: a
//! requirement lost between here and there is found here, and what nothing needs is left out.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use rattler_conda_types::RepoDataRecord;
use resolvo::SolvableId;
use uv_normalize::{ExtraName, PackageName as DistName};
use uv_pep440::VersionSpecifiers;
use uv_pep508::MarkerTree;

use super::engine::{Engine, pins};
use super::error::SolveError;
use super::gpu::{self, FACTS, Line, NeedFrom};
use super::gpu_advice;
use super::gpu_builds;
use super::names::{Candidate, Name, Set};
use super::problem::{Chosen, ChosenKind, Key, Solution};
use super::provider::{WheelFile, WheelOrigin};
use super::solver::Root;
use super::target::PyMask;

/// What was chosen, by name.
#[derive(Default)]
struct Choice {
    /// Conda name → candidate: records, virtual packages, the host's interpreter.
    conda: BTreeMap<Arc<str>, SolvableId>,
    /// Distribution → wheel file.
    wheels: BTreeMap<DistName, (SolvableId, Arc<WheelFile>, PyMask)>,
    /// Distribution → the conda package that provides it.
    provided: BTreeMap<DistName, (SolvableId, Arc<str>)>,
}

/// A package on the walk.
#[derive(Default)]
struct Node {
    requires: BTreeSet<String>,
    edges: BTreeSet<Key>,
    root: bool,
}

struct Walk<'e, 'p> {
    engine: &'e Engine<'p>,
    choice: Choice,
    python: Option<usize>,
    nodes: BTreeMap<Key, Node>,
    extras: BTreeMap<DistName, BTreeSet<ExtraName>>,
    queue: Vec<Key>,
    warnings: BTreeSet<String>,
    notes: BTreeSet<String>,
    /// Distributions of which something requires another version than the one kept.
    moved_on: BTreeSet<DistName>,
}

pub(super) fn solution(
    engine: &Engine<'_>,
    roots: &[Root],
    chosen: &[SolvableId],
) -> Result<Solution, SolveError> {
    let choice = Choice::of(engine, chosen)?;
    let python =
        choice.conda.get("python").and_then(|id| engine.python_of.borrow().get(id).copied());
    if engine.has_wheels() && python.is_none() {
        return Err(broken("wheels are asked for, but no interpreter is chosen"));
    }
    let mut walk = Walk {
        engine,
        choice,
        python,
        nodes: BTreeMap::new(),
        extras: BTreeMap::new(),
        queue: Vec::new(),
        warnings: BTreeSet::new(),
        notes: BTreeSet::new(),
        moved_on: BTreeSet::new(),
    };
    walk.roots(roots)?;
    while let Some(key) = walk.queue.pop() {
        match &key {
            Key::Conda(_) => walk.record(&key)?,
            Key::Wheel(dist) => walk.wheel(dist)?,
        }
    }
    walk.excluded()?;
    walk.gpu()?;
    walk.finish()
}

fn broken(what: impl Into<String>) -> SolveError {
    SolveError::Broken(what.into())
}

impl Choice {
    fn of(engine: &Engine<'_>, chosen: &[SolvableId]) -> Result<Self, SolveError> {
        let mut choice = Choice::default();
        for &id in chosen {
            let twice = match (engine.name_of(id), engine.candidate(id)) {
                (Name::Conda(name), _) => choice.conda.insert(name.clone(), id).is_some(),
                (Name::Dist(dist), Candidate::Wheel { file, pythons, .. }) => {
                    let entry = (id, file.clone(), pythons.clone());
                    choice.provided.contains_key(dist)
                        || choice.wheels.insert(dist.clone(), entry).is_some()
                }
                (Name::Dist(dist), Candidate::Provided { conda, .. }) => {
                    choice.wheels.contains_key(dist)
                        || choice.provided.insert(dist.clone(), (id, conda.clone())).is_some()
                }
                _ => false,
            };
            if twice {
                return Err(broken(format!("{} is chosen twice", engine.name_of(id))));
            }
        }
        Ok(choice)
    }
}

impl Walk<'_, '_> {
    fn record_of(&self, name: &str) -> Option<&Arc<RepoDataRecord>> {
        match self.engine.candidate(*self.choice.conda.get(name)?) {
            Candidate::Record { record, .. } => Some(record),
            _ => None,
        }
    }

    fn conda_key(&self, name: &str) -> Option<Key> {
        self.record_of(name).map(|record| Key::Conda(record.package_record.name.clone()))
    }

    /// Puts a package on the walk.
    fn visit(&mut self, key: &Key) -> &mut Node {
        if !self.nodes.contains_key(key) {
            self.queue.push(key.clone());
        }
        self.nodes.entry(key.clone()).or_default()
    }

    fn roots(&mut self, roots: &[Root]) -> Result<(), SolveError> {
        for root in roots {
            let set = root.set;
            let name = self.engine.pool.resolve_version_set_package_name(set);
            if let Name::Conda(name) = self.engine.pool.resolve_package_name(name) {
                let set = self.engine.pool.resolve_version_set(set);
                let key = self.conda_requirement("env.toml", name, set)?;
                if let Some(key) = key {
                    self.visit(&key).root |= root.named();
                }
            }
        }
        for root in &self.engine.problem.wheels {
            if !self.holds(root.marker, &[]) {
                continue;
            }
            let overridden = self.engine.overridden(&root.name, &root.extras, &root.specifiers);
            let Some((name, extras, specifiers)) = overridden else {
                continue;
            };
            let key = self.dist_requirement("env.toml", &name, &extras, &specifiers)?;
            if let Some(key) = key {
                self.visit(&key).root = true;
            }
        }
        Ok(())
    }

    /// Whether a marker holds in the environment chosen.
    fn holds(&self, marker: MarkerTree, extras: &[ExtraName]) -> bool {
        let Some(python) = self.python else {
            return false;
        };
        let pythons = self.engine.pythons();
        pythons.marked(marker, None).contains(python)
            || extras.iter().any(|extra| pythons.marked(marker, Some(extra)).contains(python))
    }

    fn conda_requirement(
        &self,
        who: &str,
        name: &str,
        set: &Set,
    ) -> Result<Option<Key>, SolveError> {
        match self.choice.conda.get(name) {
            Some(id) if self.engine.conda_matches(set, *id) => Ok(self.conda_key(name)),
            Some(id) => Err(broken(format!(
                "{who} needs {name} {set}, but {} is chosen",
                self.engine.candidate(*id)
            ))),
            None => Err(broken(format!("{who} needs {name} {set}, but none is chosen"))),
        }
    }

    fn dist_requirement(
        &mut self,
        who: &str,
        name: &DistName,
        extras: &[ExtraName],
        specifiers: &VersionSpecifiers,
    ) -> Result<Option<Key>, SolveError> {
        if let Some((id, conda)) = self.choice.provided.get(name).cloned() {
            let Some(record) = self.record_of(&conda) else {
                return Err(broken(format!(
                    "{who} needs {name} of conda's {conda}, which is not chosen"
                )));
            };
            let shown = record.package_record.version.to_string();
            let fits = match shown.parse() {
                Ok(version) => specifiers.contains(&version),
                Err(_) => specifiers.is_empty(),
            };
            if !fits {
                return Err(broken(format!(
                    "{who} needs {name} {specifiers}, but conda's {conda} is {shown}"
                )));
            }
            if let Some(bound) = self.engine.problem.constraints.get(name)
                && !shown.parse().is_ok_and(|version| bound.contains(&version))
            {
                return Err(broken(format!("{name} {shown} of conda is outside {bound}")));
            }
            let key = self.conda_key(&conda);
            let (true, Some(key)) = (!extras.is_empty(), &key) else { return Ok(key) };
            if self.engine.metadata_of_provided(id).is_some() {
                self.want_extras(key, name, extras);
            } else {
                let extras: Vec<_> = extras.iter().map(ToString::to_string).collect();
                self.warnings.insert(format!(
                    "{who} asks for {name}[{}], but {name} comes from conda's {conda}, which does not say what its extras need, and no wheel of {shown} does: name those packages in env.toml",
                    extras.join(",")
                ));
            }
            return Ok(Some(key.clone()));
        }
        let Some((_, file, _)) = self.choice.wheels.get(name) else {
            return Err(broken(format!("{who} needs {name}, but none is chosen")));
        };
        let version = &file.filename.version;
        if !specifiers.contains(version) {
            return Err(broken(format!(
                "{who} needs {name} {specifiers}, but {version} is chosen"
            )));
        }
        if let Some(kept) = self.engine.problem.keep.wheels.get(name)
            && !specifiers.contains(&kept.version)
        {
            self.moved_on.insert(name.clone());
        }
        let pinned = specifiers.iter().any(pins);
        if let Some(reason) = &file.yanked
            && pinned
        {
            let reason = reason.trim();
            self.warnings.insert(if reason.is_empty() {
                format!(
                    "{} was yanked by its maintainers; it is taken since {who} pins it",
                    file.file
                )
            } else {
                format!(
                    "{} was yanked by its maintainers ({reason}); it is taken since {who} pins it",
                    file.file
                )
            });
        }
        let key = Key::Wheel(name.clone());
        self.want_extras(&key, name, extras);
        Ok(Some(key))
    }

    /// A new extra means new requirements: the package is walked again.
    fn want_extras(&mut self, key: &Key, name: &DistName, extras: &[ExtraName]) {
        let known = self.extras.entry(name.clone()).or_default();
        let before = known.len();
        known.extend(extras.iter().cloned());
        if known.len() > before && self.nodes.contains_key(key) {
            self.queue.push(key.clone());
        }
    }

    fn record(&mut self, key: &Key) -> Result<(), SolveError> {
        let Key::Conda(name) = key else {
            return Ok(());
        };
        let Some(record) = self.record_of(name.as_normalized()).cloned() else {
            return Err(broken(format!("{} has no record", name.as_normalized())));
        };
        let who = shown(&record);
        let mut requires = Vec::new();
        let mut edges = Vec::new();
        for text in &record.package_record.depends {
            let (name, set) = self
                .engine
                .parse_spec(text)
                .map_err(|reason| broken(format!("{who}: {reason}")))?;
            let Name::Conda(name) = self.engine.pool.resolve_package_name(name) else {
                continue;
            };
            let set = self.engine.pool.resolve_version_set(set);
            if let Some(edge) = self.conda_requirement(&who, name, set)? {
                self.visit(&edge);
                // A package that names itself is no edge.
                if edge != *key {
                    requires.push(text.clone());
                    edges.push(edge);
                }
            }
        }
        for dist in self.engine.provides.of(&record).iter() {
            self.extras_of_record(key, dist, &mut requires, &mut edges)?;
        }
        let node = self.nodes.entry(key.clone()).or_default();
        node.requires.extend(requires);
        node.edges.extend(edges);
        Ok(())
    }

    /// What the extras in force need of a distribution that a record provides.
    fn extras_of_record(
        &mut self,
        key: &Key,
        dist: &DistName,
        requires: &mut Vec<String>,
        edges: &mut Vec<Key>,
    ) -> Result<(), SolveError> {
        let extras: Vec<ExtraName> = self.extras.get(dist).into_iter().flatten().cloned().collect();
        let (false, Some((id, _))) = (extras.is_empty(), self.choice.provided.get(dist)) else {
            return Ok(());
        };
        let Some(metadata) = self.engine.metadata_of_provided(*id) else { return Ok(()) };
        let who = format!("{dist} {}", metadata.version);
        for extra in extras.iter().filter(|extra| !metadata.extras.contains(extra)) {
            self.warnings.insert(format!("{who} has no extra `{extra}`; it is ignored"));
        }
        for requirement in &metadata.requires_dist {
            if self.holds(requirement.marker, &[]) || !self.holds(requirement.marker, &extras) {
                continue;
            }
            let specifiers = self
                .engine
                .specifiers_of(requirement)
                .map_err(|reason| broken(format!("{who}: {reason}")))?;
            let Some((name, extras, specifiers)) =
                self.engine.overridden(&requirement.name, &requirement.extras, &specifiers)
            else {
                continue;
            };
            // Of itself, only the extras are news: its version is conda's.
            let specifiers = if name == *dist { VersionSpecifiers::empty() } else { specifiers };
            if let Some(edge) = self.dist_requirement(&who, &name, &extras, &specifiers)? {
                self.visit(&edge);
                if edge != *key {
                    requires.push(requirement.to_string());
                    edges.push(edge);
                }
            }
        }
        Ok(())
    }

    fn wheel(&mut self, dist: &DistName) -> Result<(), SolveError> {
        let Some((id, file, pythons)) = self.choice.wheels.get(dist).cloned() else {
            return Err(broken(format!("{dist} has no file")));
        };
        let who = format!("{dist} {}", file.filename.version);
        let metadata = self
            .engine
            .metadata_of(id, &file)
            .map_err(|reason| broken(format!("{who}: {reason}")))?;
        let allowed =
            self.engine.pythons().allowed(metadata.requires_python.as_ref()).and(&pythons);
        if !self.python.is_some_and(|python| allowed.contains(python)) {
            return Err(broken(format!("{who} does not run on the Python chosen")));
        }
        let extras: Vec<ExtraName> = self.extras.get(dist).into_iter().flatten().cloned().collect();
        for extra in &extras {
            if !metadata.extras.contains(extra) {
                self.warnings.insert(format!("{who} has no extra `{extra}`; it is ignored"));
            }
        }
        let key = Key::Wheel(dist.clone());
        let mut requires = Vec::new();
        let mut edges = Vec::new();
        let mut declared = BTreeSet::new();
        if let Some(python) = self.conda_key("python") {
            self.visit(&python);
            edges.push(python);
        }
        for requirement in &metadata.requires_dist {
            if !self.holds(requirement.marker, &extras) {
                continue;
            }
            let specifiers = self
                .engine
                .specifiers_of(requirement)
                .map_err(|reason| broken(format!("{who}: {reason}")))?;
            let overridden =
                self.engine.overridden(&requirement.name, &requirement.extras, &specifiers);
            let Some((name, extras, specifiers)) = overridden else {
                continue;
            };
            declared.insert(name.clone());
            let edge = self.dist_requirement(&who, &name, &extras, &specifiers)?;
            if let Some(edge) = edge {
                self.visit(&edge);
                if edge != key {
                    requires.push(requirement.to_string());
                    edges.push(edge);
                }
            }
        }
        for need in self.engine.undeclared(&file) {
            let (edge, text) = match &need.from {
                NeedFrom::Conda(spec) => {
                    let (name, set) = self
                        .engine
                        .parse_spec(spec)
                        .map_err(|reason| broken(format!("{who}: {reason}")))?;
                    let Name::Conda(name) = self.engine.pool.resolve_package_name(name) else {
                        continue;
                    };
                    let set = self.engine.pool.resolve_version_set(set);
                    (self.conda_requirement(&who, name, set)?, spec.clone())
                }
                NeedFrom::Wheel(name, specifiers) => {
                    let Some((name, extras, specifiers)) =
                        self.engine.overridden(name, &[], specifiers)
                    else {
                        continue;
                    };
                    let edge = self.dist_requirement(&who, &name, &extras, &specifiers)?;
                    // Some declare under an extra what they need in any case.
                    let asked = self.engine.problem.wheels.iter().any(|root| root.name == name);
                    if !asked && !declared.contains(&name) {
                        self.notes.insert(note(&who, &name, &need.opens));
                    }
                    (edge, format!("{name}{specifiers}"))
                }
            };
            if let Some(edge) = edge {
                self.visit(&edge);
                requires.push(text);
                edges.push(edge);
            }
        }
        let node = self.nodes.entry(key).or_default();
        node.requires.extend(requires);
        node.edges.extend(edges);
        Ok(())
    }

    /// The CUDA lines and cuDNN versions of the choice, checked anew: one major of each, and what
    /// of the declared line is to be known.
    fn gpu(&mut self) -> Result<(), SolveError> {
        let mut cuda: BTreeMap<u16, String> = BTreeMap::new();
        let mut cudnn: BTreeMap<u16, String> = BTreeMap::new();
        let mut newer: Vec<String> = Vec::new();
        let mut newer_libraries: Vec<String> = Vec::new();
        let mut cpu: Vec<String> = Vec::new();
        let mut better: BTreeSet<&'static DistName> = BTreeSet::new();
        let mut chosen = gpu_advice::Chosen { wheels: Vec::new(), conda: BTreeSet::new() };
        let target = self.engine.problem.gpu.as_ref();
        for key in self.nodes.keys() {
            let (who, line, brings) = match key {
                Key::Conda(name) => {
                    let Some(record) = self.record_of(name.as_normalized()) else { continue };
                    chosen.conda.insert(name.as_normalized());
                    (
                        shown(record),
                        gpu_builds::line_of_record(record),
                        gpu::cudnn_of_record(record),
                    )
                }
                Key::Wheel(dist) => {
                    let Some((_, file, _)) = self.choice.wheels.get(dist) else { continue };
                    let file = &file.filename;
                    chosen.wheels.push(file);
                    let who = format!("{dist} {}", file.version);
                    let line = FACTS.line(file);
                    if line == Some(Line::Cpu) {
                        better.extend(gpu_advice::for_gpus(dist));
                    }
                    (who, line, gpu::cudnn_of_wheel(file))
                }
            };
            if let (Some(target), Some(Line::Cuda(major, Some(minor)))) = (target, line)
                && (major, minor) > target.cuda
            {
                let library = matches!(key, Key::Wheel(dist) if FACTS.is_component(dist));
                let list = if library { &mut newer_libraries } else { &mut newer };
                list.push(format!("{who} (CUDA {major}.{minor})"));
            }
            match line {
                Some(Line::Cuda(major, _)) => {
                    cuda.entry(major).or_insert_with(|| who.clone());
                }
                Some(Line::Cpu) if target.is_some() => cpu.push(who.clone()),
                Some(Line::Cpu) | None => {}
            }
            if let Some(major) = brings {
                cudnn.entry(major).or_insert(who);
            }
        }
        if target.is_none_or(|target| !target.mixed) {
            for (what, majors) in [("CUDA", &cuda), ("cuDNN", &cudnn)] {
                if majors.len() > 1 {
                    let who: Vec<String> = majors.values().cloned().collect();
                    return Err(broken(format!(
                        "{} are of different {what} majors",
                        who.join(", ")
                    )));
                }
            }
        }
        let mut warnings = gpu_advice::twice(&chosen);
        let Some(target) = target else {
            self.warnings.extend(warnings);
            return Ok(());
        };
        warnings.extend(gpu_advice::warnings(target, &chosen));
        self.warnings.extend(warnings);
        let (major, minor) = target.cuda;
        if !target.mixed
            && let Some((other, who)) = cuda.iter().find(|(own, _)| **own != major)
        {
            return Err(broken(format!("{who} is for CUDA {other}, not {major}.{minor}")));
        }
        if newer.is_empty() {
            // Else they are there for the sake of what was built for them.
            newer = newer_libraries;
        }
        if !newer.is_empty() && !target.mixed {
            self.warnings.insert(format!(
                "built for a newer minor version than `cuda = \"{major}.{minor}\"`: {}; it runs on every driver of CUDA {major}.x, but for code that is compiled at run time (PTX, NVRTC, Triton)",
                super::words::short_list(&newer, 4, "and")
            ));
        }
        if !cpu.is_empty() {
            let better: Vec<String> = better.iter().map(ToString::to_string).collect();
            self.warnings.insert(format!(
                "env.toml has [gpu], but {} {} for CPUs{}",
                super::words::short_list(&cpu, 4, "and"),
                if cpu.len() == 1 { "is" } else { "are" },
                match better.len() {
                    0 => String::new(),
                    1 => format!("; {} is for GPUs", better[0]),
                    _ => format!("; {} are for GPUs", super::words::list(&better, "and")),
                }
            ));
        }
        if let (Some(driver), Some(shipped)) = (&target.driver, FACTS.shipped(target.cuda))
            && driver < shipped
        {
            self.warnings.insert(format!(
                "CUDA {major}.{minor} came with driver {shipped}; on {driver} it runs by minor-version compatibility, but for code that is compiled at run time (PTX, NVRTC, Triton)"
            ));
        }
        Ok(())
    }

    /// What must not be together is not: constraints of records, distributions from two worlds,
    /// bounds of env.toml.
    fn excluded(&self) -> Result<(), SolveError> {
        for key in self.nodes.keys() {
            match key {
                Key::Conda(name) => {
                    let name = name.as_normalized();
                    let Some(record) = self.record_of(name) else {
                        continue;
                    };
                    for text in &record.package_record.constrains {
                        let Ok((other, set)) = self.engine.parse_spec(text) else {
                            continue;
                        };
                        let Name::Conda(other) = self.engine.pool.resolve_package_name(other)
                        else {
                            continue;
                        };
                        let set = self.engine.pool.resolve_version_set(set);
                        if let Some(id) = self.choice.conda.get(other)
                            && !self.engine.conda_matches(set, *id)
                        {
                            return Err(broken(format!(
                                "{} does not work with {other} {}, which is chosen",
                                shown(record),
                                self.engine.candidate(*id)
                            )));
                        }
                    }
                    for dist in self.engine.provides.of(record).iter() {
                        if self.nodes.contains_key(&Key::Wheel(dist.clone())) {
                            return Err(broken(format!(
                                "{dist} is chosen as a wheel and as conda's {name}"
                            )));
                        }
                    }
                }
                Key::Wheel(dist) => {
                    let Some((_, file, _)) = self.choice.wheels.get(dist) else {
                        continue;
                    };
                    if let Some(bound) = self.engine.problem.constraints.get(dist)
                        && !bound.contains(&file.filename.version)
                    {
                        return Err(broken(format!(
                            "{dist} {} is outside {bound}",
                            file.filename.version
                        )));
                    }
                }
            }
        }
        Ok(())
    }

    /// What the old lock held and could not be kept, since it is not offered any more.
    fn vanished(&self) -> Vec<String> {
        let lost = self.nodes.keys().filter_map(|key| match key {
            Key::Conda(name) => self.engine.lost_record(self.record_of(name.as_normalized())?),
            Key::Wheel(dist) if self.moved_on.contains(dist) => None,
            Key::Wheel(dist) => self.engine.lost_wheel(&self.choice.wheels.get(dist)?.1),
        });
        lost.collect()
    }

    fn finish(mut self) -> Result<Solution, SolveError> {
        for (dist, (_, file, _)) in &self.choice.wheels {
            let version = &file.filename.version;
            let permits = self.engine.permits.borrow();
            if self.nodes.contains_key(&Key::Wheel(dist.clone()))
                && version.any_prerelease()
                && !permits.prereleases.contains(dist)
                && matches!(self.engine.origin(dist), WheelOrigin::Default | WheelOrigin::Index(_))
                && self.engine.problem.prereleases
                    == crate::manifest::Prereleases::IfNecessaryOrExplicit
            {
                self.warnings
                    .insert(format!("{dist} {version} is a pre-release; no final release fits"));
            }
        }
        self.warnings.extend(self.vanished());
        let mut packages = Vec::with_capacity(self.nodes.len());
        for key in link_order(&self.nodes) {
            let what = match &key {
                Key::Conda(name) => match self.record_of(name.as_normalized()) {
                    Some(record) => ChosenKind::Conda(record.clone()),
                    None => continue,
                },
                Key::Wheel(dist) => match self.choice.wheels.get(dist) {
                    Some((_, file, _)) => ChosenKind::Wheel {
                        file: file.clone(),
                        extras: self.extras.get(dist).cloned().unwrap_or_default(),
                    },
                    None => continue,
                },
            };
            if let Some(node) = self.nodes.remove(&key) {
                packages.push(Chosen {
                    what,
                    requires: node.requires.into_iter().collect(),
                    edges: node.edges,
                    root: node.root,
                });
            }
        }
        Ok(Solution {
            packages,
            warnings: self.warnings.into_iter().collect(),
            notes: self.notes.into_iter().collect(),
        })
    }
}

/// Why something was added.
fn note(who: &str, added: &DistName, opens: &[String]) -> String {
    match opens {
        [] => format!("added {added}, which {who} needs without declaring it"),
        opens => format!(
            "added {added}, because {who} opens {} without declaring it",
            super::words::short_list(opens, 2, "and")
        ),
    }
}

fn shown(record: &RepoDataRecord) -> String {
    let record = &record.package_record;
    format!("{} {}", record.name.as_normalized(), record.version)
}

/// Each package after all it requires. Packages are taken in the order of their keys, and their
/// requirements likewise; an edge back into a cycle is passed over, so that a cycle is entered at
/// the same place every time.
fn link_order(nodes: &BTreeMap<Key, Node>) -> Vec<Key> {
    #[derive(Clone, Copy)]
    enum Step<'k> {
        Enter(&'k Key),
        Leave(&'k Key),
    }
    let mut order = Vec::with_capacity(nodes.len());
    let mut entered: HashSet<&Key> = HashSet::with_capacity(nodes.len());
    let mut stack: Vec<Step<'_>> = nodes.keys().rev().map(Step::Enter).collect();
    while let Some(step) = stack.pop() {
        match step {
            Step::Leave(key) => order.push(key.clone()),
            Step::Enter(key) => {
                if !entered.insert(key) {
                    continue;
                }
                stack.push(Step::Leave(key));
                if let Some(node) = nodes.get(key) {
                    stack.extend(
                        node.edges
                            .iter()
                            .rev()
                            .filter(|edge| nodes.contains_key(edge))
                            .map(Step::Enter),
                    );
                }
            }
        }
    }
    order
}
