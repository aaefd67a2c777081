//! The smallest change to env.toml that would work.
//!
//! Where there is no answer, the lines that cannot be had together are known, and for much of what
//! was passed over also why. Each such line, and each such promise of env.toml, is relaxed in turn
//! and the problem solved again: what is advised has been found to work. Changes are tried in the
//! order of how little they change, a fixed number of them, so that the advice is the same
//! everywhere.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::mem::{Discriminant, discriminant};

use rattler_conda_types::{Channel, PackageNameMatcher, Version as CondaVersion, VersionSpec};
use uv_normalize::PackageName as DistName;
use uv_pep440::{Version, VersionSpecifier, VersionSpecifiers};
use uv_pep508::MarkerTree;

use super::error::Explanation;
use super::gpu::{FACTS, Line};
use super::gpu_builds;
use super::problem::{Asker, ChosenKind, Problem, Solution, WheelRequirement};
use super::provider::{Provider, WheelOrigin};
use super::solver;
use crate::manifest::{IndexName, Prereleases};

/// More solves than this are not worth the wait.
const SOLVES: usize = 12;
/// More ways out than this help nobody.
const WAYS_OUT: usize = 3;
/// Python 3 minors that [`Change::HostPython`] goes through.
const MINORS: std::ops::RangeInclusive<u64> = 8..=14;

/// Which root requirement of a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// Index into [`Problem::conda`].
    Conda(usize),
    /// Index into [`Problem::wheels`].
    Wheel(usize),
    /// `[gpu] cuda`.
    Cuda,
}

/// A change to env.toml, in the order in which changes are tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Take a distribution from an index that env.toml has.
    Index(DistName, IndexName),
    /// Take a conda package from the channel of this base URL and name.
    Channel(String, String, String),
    /// Take a yanked version.
    Yanked(DistName, Version),
    /// Another version (or build) of what env.toml bounds.
    Bound(Item),
    /// No constraint on a distribution.
    Constraint(DistName),
    /// Pre-releases.
    Prereleases,
    /// A newer glibc.
    Glibc(u16, u16),
    /// Another interpreter of the machine: how far away, and the minor of Python 3.
    HostPython(u64, Reverse<u64>),
    /// Another CUDA major: how far away, and which.
    Cuda(u16, u16),
    /// Not this GPU.
    Arch(u16, u16),
    /// Leave a requirement out.
    Without(Item),
}

/// What was found out about a conflict, for [`advise`].
#[derive(Default)]
pub(super) struct Conflict {
    /// Changes that might help.
    pub(super) changes: BTreeSet<Change>,
    /// Advice that holds whatever else is found.
    pub(super) advice: Vec<String>,
}

impl Conflict {
    /// What could be changed about a root requirement that takes part.
    pub(super) fn root(&mut self, problem: &Problem, item: Item, roots: usize) {
        let asked_by = match item {
            Item::Conda(at) => &problem.conda[at].asker,
            Item::Wheel(at) => &problem.wheels[at].asker,
            Item::Cuda => match &problem.gpu {
                Some(gpu) => &gpu.asker,
                None => return,
            },
        };
        if !matches!(asked_by, Asker::Manifest(_)) {
            return;
        }
        match item {
            Item::Cuda => self.cuda(problem),
            Item::Conda(_) | Item::Wheel(_) => {
                self.changes.insert(Change::Bound(item));
                if roots > 1 {
                    self.changes.insert(Change::Without(item));
                }
            }
        }
    }

    /// The other CUDA majors.
    pub(super) fn cuda(&mut self, problem: &Problem) {
        let Some(gpu) = &problem.gpu else { return };
        let own = gpu.cuda.0;
        let majors = FACTS.majors().filter(|major| *major != own);
        self.changes.extend(majors.map(|major| Change::Cuda(major.abs_diff(own), major)));
    }

    /// The other Pythons: of conda, or of the machine.
    pub(super) fn pythons(&mut self, problem: &Problem) {
        let conda = problem.conda.iter().position(|root| is(&root.spec.name, "python"));
        self.changes.extend(conda.map(|at| Change::Bound(Item::Conda(at))));
        let Some(own) = &problem.host_python else { return };
        let own = own.release().get(1).copied().unwrap_or(0);
        let minors = MINORS.filter(|minor| *minor != own);
        self.changes
            .extend(minors.map(|minor| Change::HostPython(minor.abs_diff(own), Reverse(minor))));
    }
}

/// Completes the advice of an explanation with changes that were found to work.
pub(super) fn advise(
    problem: &Problem,
    provider: &dyn Provider,
    mut explanation: Explanation,
    conflict: Conflict,
) -> Explanation {
    let mut solves = 0;
    let mut found: Vec<String> = Vec::new();
    let mut done: HashSet<Discriminant<Change>> = HashSet::new();
    for change in &conflict.changes {
        if solves == SOLVES || found.len() == WAYS_OUT {
            break;
        }
        let kind = discriminant(change);
        let one_is_enough = !matches!(change, Change::Bound(_) | Change::Without(_));
        // What gives up something that was asked for, only where nothing else helps.
        let last_resort = matches!(change, Change::Without(_) | Change::Arch(..));
        let others = done.iter().any(|done| *done != kind);
        if (one_is_enough && done.contains(&kind)) || (last_resort && others) {
            continue;
        }
        let Some(relaxed) = change.apply(problem) else { continue };
        solves += 1;
        let Some(solution) = solver::attempt(&relaxed, provider) else { continue };
        if let Some(words) = change.words(problem, provider, &relaxed, &solution, &mut solves) {
            done.insert(kind);
            found.push(words);
        }
    }
    let mut advice = match found.as_slice() {
        [] => vec![explanation.advice],
        [one] => vec![format!("this works: {one}")],
        more => {
            let lines: Vec<String> = more.iter().map(|way| format!("  - {way}")).collect();
            vec![format!("each of these works:\n{}", lines.join("\n"))]
        }
    };
    if !found.is_empty() {
        advice.extend(conflict.advice);
    }
    explanation.advice = advice.join("\n");
    explanation
}

impl Change {
    /// The problem after the change; `None` where it changes nothing.
    fn apply(&self, problem: &Problem) -> Option<Problem> {
        let mut relaxed = problem.clone();
        match self {
            Change::Index(name, index) => {
                let origin = WheelOrigin::Index(index.clone());
                want(&mut relaxed, name, |root| root.origin = origin.clone());
            }
            Change::Channel(name, base, channel) => {
                let url = base.parse::<url::Url>().ok()?;
                let root = relaxed.conda.iter_mut().find(|root| is(&root.spec.name, name))?;
                let from = Channel { name: Some(channel.clone()), ..Channel::from_url(url) };
                root.spec.channel = Some(from.into());
            }
            Change::Yanked(name, version) => {
                let pin = VersionSpecifier::equals_version(version.clone());
                want(&mut relaxed, name, |root| root.specifiers = pin.clone().into());
            }
            Change::Bound(Item::Conda(at)) => {
                let spec = &mut relaxed.conda.get_mut(*at)?.spec;
                if spec.version.is_none() && spec.build.is_none() && spec.build_number.is_none() {
                    return None;
                }
                spec.version = None;
                spec.build = None;
                spec.build_number = None;
                spec.file_name = None;
                spec.md5 = None;
                spec.sha256 = None;
            }
            Change::Bound(Item::Wheel(at)) => {
                let root = relaxed.wheels.get_mut(*at)?;
                if root.specifiers.is_empty() || matches!(root.origin, WheelOrigin::Direct(_)) {
                    return None;
                }
                root.specifiers = VersionSpecifiers::empty();
            }
            Change::Constraint(name) => {
                relaxed.constraints.remove(name)?;
            }
            Change::Prereleases => {
                if relaxed.prereleases == Prereleases::Allow {
                    return None;
                }
                relaxed.prereleases = Prereleases::Allow;
            }
            Change::Glibc(major, minor) => {
                if relaxed.glibc? >= (*major, *minor) {
                    return None;
                }
                relaxed.glibc = Some((*major, *minor));
                set_virtual(&mut relaxed, "__glibc", &format!("{major}.{minor}"));
            }
            Change::HostPython(_, Reverse(minor)) => {
                relaxed.host_python.as_ref()?;
                relaxed.host_python = Some(Version::new([3, *minor]));
            }
            Change::Cuda(_, major) => {
                let line = FACTS.newest_line(*major);
                let gpu = relaxed.gpu.as_mut()?;
                if gpu
                    .driver
                    .as_ref()
                    .zip(FACTS.floor(*major))
                    .is_some_and(|(own, floor)| own < floor)
                {
                    return None;
                }
                gpu.cuda = line;
                set_virtual(&mut relaxed, "__cuda", &format!("{}.{}", line.0, line.1));
            }
            Change::Arch(major, minor) => {
                relaxed.gpu.as_mut()?.archs.retain(|arch| *arch != (*major, *minor));
            }
            Change::Without(Item::Conda(at)) => {
                let root = relaxed.conda.get(*at)?;
                // Without Python there is another reason why nothing can be had.
                if is(&root.spec.name, "python") {
                    return None;
                }
                relaxed.conda.remove(*at);
            }
            Change::Without(Item::Wheel(at)) => {
                // Origins name roots by their place, which must stay.
                relaxed.wheels.get_mut(*at)?.marker = MarkerTree::FALSE;
            }
            Change::Bound(Item::Cuda) | Change::Without(Item::Cuda) => return None,
        }
        Some(relaxed)
    }

    /// The change in the words of env.toml, and what comes of it.
    fn words(
        &self,
        problem: &Problem,
        provider: &dyn Provider,
        relaxed: &Problem,
        solution: &Solution,
        solves: &mut usize,
    ) -> Option<String> {
        Some(match self {
            Change::Index(name, index) => {
                let version = dist_version(solution, name)?;
                format!(
                    "`{name} = {{ version = \"{}\", index = \"{index}\" }}` in [pypi-dependencies]: {index} has {name} {version}",
                    specifiers(&version)
                )
            }
            Change::Channel(name, _, channel) => {
                let version = conda_version(solution, name)?;
                format!(
                    "`{name} = {{ version = \"{}\", channel = \"{channel}\" }}` in [dependencies]",
                    bound(&version)
                )
            }
            Change::Yanked(name, version) => {
                format!(
                    "`{name} = \"=={version}\"` in [pypi-dependencies], which takes the yanked version"
                )
            }
            Change::Bound(Item::Conda(at)) => {
                let spec = &problem.conda.get(*at)?.spec;
                let PackageNameMatcher::Exact(name) = &spec.name else {
                    return None;
                };
                let name = name.as_normalized();
                let version = conda_version(solution, name)?;
                let bound = bound(&version);
                let line = match &spec.channel {
                    Some(channel) => {
                        let channel = channel.name();
                        format!("{name} = {{ version = \"{bound}\", channel = \"{channel}\" }}")
                    }
                    None => format!("{name} = \"{bound}\""),
                };
                let fits = |own: &VersionSpec| {
                    version.parse::<CondaVersion>().is_ok_and(|version| own.matches(&version))
                };
                match spec.version.as_ref().is_some_and(fits) {
                    true => format!("another build of {name}: `{line}` in [dependencies]"),
                    false => format!("`{line}` in [dependencies] (gives {name} {version})"),
                }
            }
            Change::Bound(Item::Wheel(at)) => {
                let root = problem.wheels.get(*at)?;
                let version = dist_version(solution, &root.name)?;
                let (name, bound) = (&root.name, specifiers(&version));
                let line = match (&root.origin, root.extras.is_empty() && root.marker.is_true()) {
                    (WheelOrigin::Index(index), true) => {
                        format!("{name} = {{ version = \"{bound}\", index = \"{index}\" }}")
                    }
                    (_, true) => format!("{name} = \"{bound}\""),
                    (_, false) => format!("{name} = {{ version = \"{bound}\", … }}"),
                };
                format!("`{line}` in [pypi-dependencies] (gives {name} {version})")
            }
            Change::Bound(Item::Cuda) => return None,
            Change::Constraint(name) => {
                let version = dist_version(solution, name)?;
                format!(
                    "a constraint on {name} in [pypi-options.constraints] that {version} satisfies, or none"
                )
            }
            Change::Prereleases => "`prereleases = \"allow\"` in [pypi-options]".to_owned(),
            Change::Glibc(major, minor) => format!(
                "`libc = \"{major}.{minor}\"` in [system-requirements], if all machines have that"
            ),
            Change::HostPython(_, Reverse(minor)) => format!("`python = \"3.{minor}\"` in [host]"),
            Change::Cuda(..) => {
                let newest = relaxed.gpu.as_ref()?.cuda;
                // As little as the packages of the answer need, if that works as well.
                let needed = lines_of(solution).filter(|line| line.0 == newest.0).max();
                let mut line = newest;
                if let Some(needed) = needed.filter(|needed| *needed < newest) {
                    let mut less = relaxed.clone();
                    less.gpu.as_mut()?.cuda = needed;
                    set_virtual(&mut less, "__cuda", &format!("{}.{}", needed.0, needed.1));
                    *solves += 1;
                    if solver::attempt(&less, provider).is_some() {
                        line = needed;
                    }
                }
                format!("`cuda = \"{}.{}\"` in [gpu]", line.0, line.1)
            }
            Change::Arch(major, minor) => {
                format!("leave \"{major}.{minor}\" out of archs in [gpu]")
            }
            Change::Without(Item::Conda(at)) => match &problem.conda.get(*at)?.spec.name {
                PackageNameMatcher::Exact(name) => {
                    format!("leave {} out of [dependencies]", name.as_normalized())
                }
                _ => return None,
            },
            Change::Without(Item::Wheel(at)) => {
                format!("leave {} out of [pypi-dependencies]", problem.wheels.get(*at)?.name)
            }
            Change::Without(Item::Cuda) => return None,
        })
    }
}

fn is(name: &PackageNameMatcher, wanted: &str) -> bool {
    matches!(name, PackageNameMatcher::Exact(name) if name.as_normalized() == wanted)
}

/// Changes the root requirement on a distribution; adds one where there is none.
fn want(problem: &mut Problem, name: &DistName, change: impl Fn(&mut WheelRequirement)) {
    let mut there = false;
    for root in problem.wheels.iter_mut().filter(|root| root.name == *name) {
        change(root);
        there = true;
    }
    if !there {
        let mut root = WheelRequirement {
            name: name.clone(),
            extras: Vec::new(),
            specifiers: VersionSpecifiers::empty(),
            origin: WheelOrigin::Default,
            marker: MarkerTree::TRUE,
            asker: Asker::Gpuenv("as advice".to_owned()),
        };
        change(&mut root);
        problem.wheels.push(root);
    }
}

fn set_virtual(problem: &mut Problem, name: &str, version: &str) {
    let Ok(version) = version.parse::<CondaVersion>() else { return };
    for package in &mut problem.virtual_packages {
        if package.name.as_normalized() == name {
            package.version = version.clone();
        }
    }
}

/// The version that an answer has of a conda package.
fn conda_version(solution: &Solution, name: &str) -> Option<String> {
    solution.packages.iter().find_map(|chosen| match &chosen.what {
        ChosenKind::Conda(record) if record.package_record.name.as_normalized() == name => {
            Some(record.package_record.version.to_string())
        }
        _ => None,
    })
}

/// The version that an answer has of a distribution, as a wheel or by conda.
fn dist_version(solution: &Solution, name: &DistName) -> Option<String> {
    let wheel = solution.packages.iter().find_map(|chosen| match &chosen.what {
        ChosenKind::Wheel { file, .. } if file.filename.name == *name => {
            Some(file.filename.version.to_string())
        }
        _ => None,
    });
    wheel.or_else(|| conda_version(solution, name.as_ref()))
}

/// The CUDA lines of an answer's packages.
fn lines_of(solution: &Solution) -> impl Iterator<Item = (u16, u16)> {
    solution.packages.iter().filter_map(|chosen| {
        let line = match &chosen.what {
            ChosenKind::Conda(record) => gpu_builds::line_of_record(record),
            ChosenKind::Wheel { file, .. } => FACTS.line(&file.filename),
        };
        match line {
            Some(Line::Cuda(major, Some(minor))) => Some((major, minor)),
            _ => None,
        }
    })
}

/// A conda bound that admits a version, and not much else: `1.26.*`.
fn bound(version: &str) -> String {
    match version.split('.').collect::<Vec<_>>().as_slice() {
        [major, minor, _, ..] if major.len() < 4 => format!("{major}.{minor}.*"),
        _ => format!("=={version}"),
    }
}

/// PEP 440 specifiers that admit a version, and not much else: `==1.26.*`.
fn specifiers(text: &str) -> String {
    let Ok(version) = text.parse::<Version>() else { return format!("=={text}") };
    match &*version.release() {
        [major, minor, _, ..]
            if *major < 1000 && !version.any_prerelease() && !version.is_post() =>
        {
            format!("=={major}.{minor}.*")
        }
        _ => format!("=={}", version.without_local()),
    }
}
