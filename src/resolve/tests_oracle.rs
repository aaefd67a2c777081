//! Random small universes of conda records and wheels against brute force: an answer satisfies
//! everything, there is none only where there is none, and it is the same every time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use rattler_conda_types::{MatchSpec, Matches, ParseMatchSpecOptions, RepoDataRecord};
use uv_normalize::{ExtraName, PackageName as DistName};
use uv_pep440::{Version, VersionSpecifiers};
use uv_pep508::{MarkerEnvironment, MarkerEnvironmentBuilder, VersionOrUrl};

use super::testing::*;
use super::*;

/// Choices, made from bytes: fewer and smaller bytes make simpler universes.
struct Dice<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Dice<'_> {
    fn roll(&mut self, sides: usize) -> usize {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(byte) % sides
    }
}

const PYTHONS: [&str; 3] = ["3.9.1", "3.11.2", "3.12.0"];
const CONDA: [&str; 3] = ["ca", "cb", "cc"];
/// `cb` and `cc` also exist as wheels.
const DISTS: [&str; 4] = ["cb", "cc", "wa", "wb"];

/// `scale` 1 is small enough for brute force.
pub(super) fn universe(bytes: &[u8], scale: usize) -> (World, Problem) {
    let mut dice = Dice { bytes, at: 0 };
    let mut world = World::new();
    let pythons = 1 + dice.roll(3);
    world.pythons(&PYTHONS[..pythons]);
    let conda_spec = |dice: &mut Dice<'_>| {
        let name = ["python", "ca", "cb", "cc"][dice.roll(4)];
        let bound = match name {
            "python" => ["", "", " 3.9.*", " >=3.11"][dice.roll(4)],
            _ => ["", "", " <", " >="][dice.roll(4)],
        };
        let version = match bound.ends_with(['<', '=']) {
            true => (2 + dice.roll(2 * scale - 1)).to_string(),
            false => String::new(),
        };
        format!("{name}{bound}{version}")
    };
    for name in CONDA {
        for version in 1..=scale * [2, 1, 2, 0][dice.roll(4)] {
            let depends: Vec<String> = (0..dice.roll(3)).map(|_| conda_spec(&mut dice)).collect();
            let depends: Vec<&str> = depends.iter().map(String::as_str).collect();
            let constrains = match dice.roll(4) {
                3 => vec![conda_spec(&mut dice)],
                _ => Vec::new(),
            };
            world.add(&format!("{name} {version}.0 0"), &depends).constrains = constrains;
        }
    }
    let wheel_spec = |dice: &mut Dice<'_>| {
        let name = DISTS[dice.roll(4)];
        let extra = ["", "", "[ex]", "[ex,ey]"][dice.roll(4)];
        let version = 2 + dice.roll(2 * scale - 1);
        let bound = [
            String::new(),
            String::new(),
            String::new(),
            format!("<{version}"),
            format!(">={version}"),
            format!("=={}.*", version - 1),
        ];
        format!("{name}{extra}{}", bound[dice.roll(6)])
    };
    for name in DISTS {
        for version in 1..=scale * [2, 1, 2, 2][dice.roll(4)] {
            let requires: Vec<String> = (0..dice.roll(4))
                .map(|_| {
                    let marker = [
                        "",
                        "; python_version < '3.11'",
                        "; python_full_version >= '3.11.2'",
                        "; extra == 'ex'",
                        "; extra == 'ey' and python_version >= '3.11'",
                        "; extra == 'ex' or python_version == '3.9'",
                        "; sys_platform == 'win32'",
                    ][dice.roll(7)];
                    format!("{} {marker}", wheel_spec(&mut dice))
                })
                .collect();
            let requires: Vec<&str> = requires.iter().map(String::as_str).collect();
            let tags = [
                "py3-none-any",
                "cp39-cp39-manylinux_2_17_x86_64",
                "cp311-cp311-manylinux_2_17_x86_64",
                "cp39-abi3-manylinux_2_17_x86_64",
                "cp311-abi3-manylinux_2_17_x86_64",
                "cp311-cp311-win_amd64",
            ];
            let first = dice.roll(6);
            let file = format!("{name}-{version}.0-{}.whl", tags[first]);
            let requires_python = [None, None, Some(">=3.11"), Some("<3.12")][dice.roll(4)];
            world.wheel(&file, &requires).requires_python =
                requires_python.map(|text| text.parse().unwrap());
            let requires_python = [None, None, None, Some(">=3.10")][dice.roll(4)];
            world.metadata_of(&file).requires_python =
                requires_python.map(|text| text.parse().unwrap());
            if dice.roll(2) == 1 {
                // A second file, with other requirements.
                let second = (first + 1) % 5;
                let file = format!("{name}-{version}.0-{}.whl", tags[second]);
                world.wheel(&file, &requires[..requires.len() / 2]);
            }
        }
    }
    let mut problem = problem();
    if dice.roll(4) == 3 {
        problem = problem.host("3.11");
    }
    for _ in 0..dice.roll(3) {
        problem = problem.dep(&conda_spec(&mut dice));
    }
    for _ in 0..1 + dice.roll(2) {
        problem = problem.pypi(&wheel_spec(&mut dice));
    }
    if dice.roll(4) == 3 {
        problem = problem.constrain("wa", "<2");
    }
    (world, problem)
}

/// Whether a record satisfies a dependency by itself.
fn own(record: &RepoDataRecord, text: &str) -> bool {
    let (name, spec) = spec(text);
    record.package_record.name.as_normalized() == name && spec.matches(record)
}

/// A guess at a solution.
#[derive(Default, Clone, Debug)]
struct Guess {
    python: Option<&'static str>,
    conda: BTreeMap<String, Arc<RepoDataRecord>>,
    wheels: BTreeMap<DistName, Arc<WheelFile>>,
}

struct Oracle<'w> {
    world: &'w World,
    problem: &'w Problem,
    metadata: BTreeMap<String, Arc<WheelMetadata>>,
}

fn spec(text: &str) -> (String, MatchSpec) {
    let spec = MatchSpec::from_str(text, ParseMatchSpecOptions::lenient()).unwrap();
    let name = spec.name.as_exact().unwrap().as_normalized().to_owned();
    (name, spec)
}

impl Oracle<'_> {
    fn env(python: &str) -> MarkerEnvironment {
        let short: Vec<&str> = python.split('.').take(2).collect();
        MarkerEnvironment::try_from(MarkerEnvironmentBuilder {
            implementation_name: "cpython",
            implementation_version: python,
            os_name: "posix",
            platform_machine: "x86_64",
            platform_python_implementation: "CPython",
            platform_release: "",
            platform_system: "Linux",
            platform_version: "",
            python_full_version: python,
            python_version: &short.join("."),
            sys_platform: "linux",
        })
        .unwrap()
    }

    fn has_conda(&self, guess: &Guess, text: &str) -> bool {
        let (name, spec) = spec(text);
        if name == "python" && self.problem.host_python.is_some() {
            return guess.python.is_some_and(|python| {
                spec.version.as_ref().is_none_or(|bound| bound.matches(&python.parse().unwrap()))
            });
        }
        guess.conda.get(&name).is_some_and(|record| spec.matches(&**record))
    }

    fn provides(record: &RepoDataRecord) -> Option<DistName> {
        let needs_python =
            record.package_record.depends.iter().any(|text| text.starts_with("python"));
        (needs_python && record.package_record.name.as_normalized() != "python")
            .then(|| dist(record.package_record.name.as_normalized()))
    }

    /// The metadata of the wheel that says what extras need of what conda provides.
    fn tells_extras(&self, name: &DistName, version: &Version) -> Option<&Arc<WheelMetadata>> {
        let files = self.world.files().map(|(file, _)| file);
        let mut files: Vec<&Arc<WheelFile>> = files
            .filter(|file| file.filename.name == *name && file.filename.version == *version)
            .collect();
        files.sort_by_key(|file| (file.file.ends_with("win_amd64.whl"), &file.file));
        self.metadata.get(&files.first()?.file)
    }

    /// Whether the guess satisfies everything that env.toml and its own members ask for.
    fn valid(&self, guess: &Guess) -> bool {
        for root in &self.problem.conda {
            if !self.has_conda(guess, &root.spec.to_string()) {
                return false;
            }
        }
        let mut provided: BTreeMap<DistName, Version> = BTreeMap::new();
        for record in guess.conda.values() {
            let package = &record.package_record;
            if !package.depends.iter().all(|text| self.has_conda(guess, text)) {
                return false;
            }
            for text in &package.constrains {
                let (name, _) = spec(text);
                let there = match name.as_str() {
                    "python" => guess.python.is_some(),
                    _ => guess.conda.contains_key(&name),
                };
                if there && !self.has_conda(guess, text) {
                    return false;
                }
            }
            if let Some(dist) = Self::provides(record) {
                provided.insert(dist, package.version.to_string().parse().unwrap());
            }
        }
        if provided.keys().any(|dist| guess.wheels.contains_key(dist)) {
            return false;
        }
        let Some(python) = guess.python else {
            return false;
        };
        let env = Self::env(python);
        let version: Version = python.parse().unwrap();
        let minor = version.release()[1];
        let mut extras: BTreeMap<DistName, BTreeSet<ExtraName>> = BTreeMap::new();
        let mut asked: Vec<(DistName, VersionSpecifiers)> = Vec::new();
        for root in &self.problem.wheels {
            asked.push((root.name.clone(), root.specifiers.clone()));
            extras.entry(root.name.clone()).or_default().extend(root.extras.iter().cloned());
        }
        // Extras until nothing is added.
        loop {
            let before: usize = extras.values().map(BTreeSet::len).sum();
            let mut more = Vec::new();
            for file in guess.wheels.values() {
                let metadata = &self.metadata[&file.file];
                let own: Vec<ExtraName> =
                    extras.get(&file.filename.name).into_iter().flatten().cloned().collect();
                for requirement in &metadata.requires_dist {
                    if !requirement.marker.evaluate(&env, &own) {
                        continue;
                    }
                    extras
                        .entry(requirement.name.clone())
                        .or_default()
                        .extend(requirement.extras.iter().cloned());
                    let specifiers = match &requirement.version_or_url {
                        Some(VersionOrUrl::VersionSpecifier(specifiers)) => specifiers.clone(),
                        _ => VersionSpecifiers::empty(),
                    };
                    more.push((requirement.name.clone(), specifiers));
                }
            }
            for (name, version) in &provided {
                let own: Vec<ExtraName> = extras.get(name).into_iter().flatten().cloned().collect();
                let Some(metadata) = self.tells_extras(name, version) else { continue };
                for requirement in &metadata.requires_dist {
                    let only = !requirement.marker.evaluate(&env, &[])
                        && requirement.marker.evaluate(&env, &own);
                    if !only {
                        continue;
                    }
                    extras
                        .entry(requirement.name.clone())
                        .or_default()
                        .extend(requirement.extras.iter().cloned());
                    if let (false, Some(VersionOrUrl::VersionSpecifier(specifiers))) =
                        (requirement.name == *name, &requirement.version_or_url)
                    {
                        more.push((requirement.name.clone(), specifiers.clone()));
                    } else if requirement.name != *name {
                        more.push((requirement.name.clone(), VersionSpecifiers::empty()));
                    }
                }
            }
            if extras.values().map(BTreeSet::len).sum::<usize>() == before {
                asked.extend(more);
                break;
            }
        }
        for (name, file) in &guess.wheels {
            let metadata = &self.metadata[&file.file];
            let tags = file.file.split('-').skip(2).collect::<Vec<_>>().join("-");
            let runs = match tags.as_str() {
                "py3-none-any.whl" => true,
                "cp39-cp39-manylinux_2_17_x86_64.whl" => minor == 9,
                "cp311-cp311-manylinux_2_17_x86_64.whl" => minor == 11,
                "cp39-abi3-manylinux_2_17_x86_64.whl" => minor >= 9,
                "cp311-abi3-manylinux_2_17_x86_64.whl" => minor >= 11,
                _ => false,
            };
            let allowed = |bound: &Option<VersionSpecifiers>| {
                bound.as_ref().is_none_or(|bound| bound.contains(&version))
            };
            let bounded = self
                .problem
                .constraints
                .get(name)
                .is_none_or(|bound| bound.contains(&file.filename.version));
            if !runs
                || !bounded
                || !allowed(&file.requires_python)
                || !allowed(&metadata.requires_python)
            {
                return false;
            }
        }
        asked.iter().all(|(name, specifiers)| match (provided.get(name), guess.wheels.get(name)) {
            (Some(version), _) => specifiers.contains(version),
            (None, Some(file)) => specifiers.contains(&file.filename.version),
            (None, None) => false,
        })
    }

    /// The records that the conda part can reach: others are not there for wheels.
    fn reachable(&self) -> BTreeMap<String, Vec<Arc<RepoDataRecord>>> {
        let mut texts: Vec<String> =
            self.problem.conda.iter().map(|root| root.spec.to_string()).collect();
        if texts.iter().all(|text| !text.starts_with("python")) {
            texts.push("python".to_owned());
        }
        let mut done = BTreeSet::new();
        let mut found: BTreeMap<String, Vec<Arc<RepoDataRecord>>> = BTreeMap::new();
        while let Some(text) = texts.pop() {
            if !done.insert(text.clone()) {
                continue;
            }
            let (name, spec) = spec(&text);
            if name == "python" && self.problem.host_python.is_some() {
                continue;
            }
            for record in self.world.records() {
                if record.package_record.name.as_normalized() == name && spec.matches(&**record) {
                    let known = found.entry(name.clone()).or_default();
                    if !known.contains(record) {
                        known.push(record.clone());
                    }
                    // What a record itself satisfies leads nowhere.
                    let depends = record.package_record.depends.iter();
                    texts.extend(depends.filter(|text| !own(record, text)).cloned());
                }
            }
        }
        found
    }

    fn solvable(&self) -> bool {
        let reachable = self.reachable();
        let mut guesses = vec![Guess::default()];
        if self.problem.host_python.is_some() {
            guesses[0].python = Some("3.11.0");
        }
        for (name, records) in &reachable {
            let mut more = guesses.clone();
            for guess in &guesses {
                for record in records {
                    let mut guess = guess.clone();
                    guess.conda.insert(name.clone(), record.clone());
                    if name == "python" {
                        let version = record.package_record.version.to_string();
                        guess.python = PYTHONS.iter().find(|known| **known == version).copied();
                    }
                    more.push(guess);
                }
            }
            guesses = more;
        }
        for name in DISTS {
            let name = dist(name);
            let files: Vec<_> = self
                .world
                .files()
                .filter(|(file, _)| file.filename.name == name)
                .map(|(file, _)| file.clone())
                .collect();
            let mut more = guesses.clone();
            for guess in &guesses {
                for file in &files {
                    let mut guess = guess.clone();
                    guess.wheels.insert(name.clone(), file.clone());
                    more.push(guess);
                }
            }
            guesses = more;
        }
        guesses.iter().any(|guess| self.valid(guess))
    }
}

fn picture(world: &World, problem: &Problem) -> String {
    let mut text = String::new();
    for record in world.records() {
        let package = &record.package_record;
        text += &format!(
            "{} depends {:?} constrains {:?}\n",
            record.identifier, package.depends, package.constrains
        );
    }
    for (file, metadata) in world.files() {
        let requires: Vec<_> = metadata.requires_dist.iter().map(ToString::to_string).collect();
        text += &format!(
            "{} {:?} {:?} requires {requires:?}\n",
            file.file,
            file.requires_python.as_ref().map(ToString::to_string),
            metadata.requires_python.as_ref().map(ToString::to_string)
        );
    }
    for root in &problem.conda {
        text += &format!("root {}\n", root.spec);
    }
    for root in &problem.wheels {
        text += &format!("root wheel {}{:?} {}\n", root.name, root.extras, root.specifiers);
    }
    text += &format!("host {:?} constraints {:?}", problem.host_python, problem.constraints);
    text
}

/// Whether each package stands after all it requires, but for cycles.
fn linked(solution: &Solution) -> bool {
    let edges: BTreeMap<Key, &BTreeSet<Key>> =
        solution.packages.iter().map(|chosen| (key(chosen), &chosen.edges)).collect();
    let reaches = |from: &Key, to: &Key| {
        let mut seen = BTreeSet::from([from.clone()]);
        let mut queue = vec![from.clone()];
        while let Some(at) = queue.pop() {
            if at == *to {
                return true;
            }
            queue.extend(edges[&at].iter().filter(|edge| seen.insert((*edge).clone())).cloned());
        }
        false
    };
    let order: Vec<Key> = solution.packages.iter().map(key).collect();
    order.iter().enumerate().all(|(place, at)| {
        edges[at].iter().all(|edge| order[..place].contains(edge) || reaches(edge, at))
    })
}

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (world, problem) = universe(bytes, 1);
    let oracle = Oracle {
        world: &world,
        problem: &problem,
        metadata: world
            .files()
            .map(|(file, metadata)| (file.file.clone(), metadata.clone()))
            .collect(),
    };
    let outcome = world.solve(&problem);
    match outcome {
        Ok(solution) => {
            let mut guess = Guess::default();
            if problem.host_python.is_some() {
                guess.python = Some("3.11.0");
            }
            let mut placed: BTreeSet<Key> = BTreeSet::new();
            for chosen in &solution.packages {
                match &chosen.what {
                    ChosenKind::Conda(record) => {
                        let name = record.package_record.name.as_normalized().to_owned();
                        if name == "python" {
                            let version = record.package_record.version.to_string();
                            guess.python = PYTHONS.iter().find(|known| **known == version).copied();
                        }
                        guess.conda.insert(name, record.clone());
                    }
                    ChosenKind::Wheel { file, .. } => {
                        guess.wheels.insert(file.filename.name.clone(), file.clone());
                    }
                }
                placed.insert(key(chosen));
            }
            prop_assert!(
                oracle.valid(&guess),
                "{:?}\n{}",
                names(&solution),
                picture(&world, &problem)
            );
            // Every edge leads to a package that is there.
            for chosen in &solution.packages {
                prop_assert!(chosen.edges.is_subset(&placed));
            }
            prop_assert!(linked(&solution), "{:?}", names(&solution));
            let again = world
                .solve(&problem)
                .map_err(|error| TestCaseError::fail(format!("an answer, then none: {error}")))?;
            prop_assert_eq!(names(&solution), names(&again));
        }
        Err(SolveError::Unsatisfiable(explanation)) => {
            prop_assert!(
                !oracle.solvable(),
                "there is an answer, but: {explanation}\n{}",
                picture(&world, &problem)
            );
            prop_assert!(!explanation.reasons.is_empty());
            prop_assert!(!explanation.advice.is_empty());
            for heeded in explanation.advice.lines().filter_map(|line| heed(&problem, line)) {
                prop_assert!(
                    world.solve(&heeded).is_ok(),
                    "does not work: {}\n{}",
                    explanation.advice,
                    picture(&world, &problem)
                );
            }
            let again = world.solve(&problem).unwrap_err().to_string();
            prop_assert_eq!(explanation.to_string(), again);
        }
        Err(error) => {
            return Err(TestCaseError::fail(format!("{error}\n{}", picture(&world, &problem))));
        }
    }
    Ok(())
}

/// The problem after what a line of advice says, read as a user would.
fn heed(problem: &Problem, line: &str) -> Option<Problem> {
    let line = line.trim_start_matches("this works: ").trim_start_matches("  - ");
    let mut heeded = problem.clone();
    if let Some((name, place)) =
        line.strip_prefix("leave ").and_then(|rest| rest.split_once(" out of "))
    {
        match place {
            "[dependencies]" => heeded.conda.retain(|root| root.spec.name.to_string() != name),
            _ => heeded.wheels.retain(|root| root.name.as_ref() != name),
        }
        return Some(heeded);
    }
    let (name, rest) = line.strip_prefix('`')?.split_once(" = \"")?;
    let (bound, place) = rest.split_once("\"` in [")?;
    // In env.toml a table has a key once.
    let conda = problem.conda.iter().filter(|root| root.spec.name.to_string() == name).count();
    let wheels = problem.wheels.iter().filter(|root| root.name.as_ref() == name).count();
    if conda > 1 || wheels > 1 {
        return None;
    }
    match place.split(']').next()? {
        "host" => heeded.host_python = Some(bound.parse().unwrap()),
        "dependencies" => {
            let named = |root: &&mut CondaRequirement| root.spec.name.to_string() == name;
            let spec = &mut heeded.conda.iter_mut().find(named)?.spec;
            *spec =
                MatchSpec::from_str(&format!("{name} {bound}"), ParseMatchSpecOptions::lenient())
                    .unwrap();
        }
        "pypi-dependencies" => {
            heeded.wheels.iter_mut().find(|root| root.name.as_ref() == name)?.specifiers =
                bound.parse().unwrap();
        }
        _ => return None,
    }
    Some(heeded)
}

/// Too large for brute force: but an answer is checked on its way out, and that there is none is
/// proved in another encoding than it is found in.
fn check_large(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (world, problem) = universe(bytes, 4);
    match world.solve(&problem) {
        Ok(solution) => prop_assert!(linked(&solution), "{:?}", names(&solution)),
        Err(SolveError::Unsatisfiable(explanation)) => {
            prop_assert!(!explanation.reasons.is_empty());
            let again = world.solve(&problem).unwrap_err().to_string();
            prop_assert_eq!(explanation.to_string(), again);
        }
        Err(error) => {
            return Err(TestCaseError::fail(format!("{error}\n{}", picture(&world, &problem))));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_brute_force(bytes in proptest::collection::vec(any::<u8>(), 0..240)) {
        check(&bytes)?;
    }

    #[test]
    fn large_universes(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        check_large(&bytes)?;
    }
}

/// `wb`, needed under an extra, was not chosen.
#[test]
fn what_an_extra_requires_is_not_forgotten_on_the_way_back() {
    let bytes = [
        181, 2, 21, 0, 79, 56, 31, 20, 115, 104, 0, 0, 2, 0, 0, 192, 0, 3, 0, 0, 5, 19, 101, 27, 0,
        0, 118, 2, 27, 0, 0, 5, 0, 10, 0, 0, 29, 92, 0, 0, 19, 22, 59, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 84, 0, 0, 0, 0, 2, 38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0,
        0, 0, 4, 0, 0, 0, 0, 186, 89, 0, 0, 0, 0, 0, 19, 10, 0, 19, 26, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 74, 0, 0, 0, 4, 16, 19, 48, 0, 200, 78, 0, 5,
    ];
    check(&bytes).unwrap();
}
