//! Wheel candidates: which files of a listing take part, in which order, and which a requirement
//! admits.

use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;

use resolvo::SolvableId;
use uv_normalize::PackageName as DistName;
use uv_pep440::{Version, VersionSpecifiers};

use super::engine::{Engine, names_prerelease, pins};
use super::gpu::{FACTS, Line, WheelFacts};
use super::names::{Candidate, Name};
use super::provider::{ProviderError, Want, WheelFile, WheelListing, WheelOrigin};
use super::target::{Flavor, PlatformMisfit, PyMask};
use crate::manifest::Prereleases;

/// What is known of one distribution.
#[derive(Default)]
pub(super) struct Dist {
    /// Candidates, best first: wheels, and what conda provides.
    pub(super) candidates: Vec<SolvableId>,
    /// Every wheel file of the listing.
    pub(super) files: Vec<Arc<WheelFile>>,
    /// Files that do not take part.
    pub(super) rejected: Vec<(Arc<WheelFile>, WheelRejection)>,
    /// Conda packages that provide it, but outside the constraint of env.toml.
    pub(super) outside: Vec<String>,
    /// Versions without any wheel.
    pub(super) sdist_only: Vec<Version>,
    /// Files that could not be read, with the reason.
    pub(super) skipped: Vec<(String, String)>,
    /// The sources do not know the name.
    pub(super) unknown: bool,
    /// Why the listing could not be read.
    pub(super) unusable: Option<String>,
}

/// Why a file does not take part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WheelRejection {
    /// Built for another platform, or for a newer glibc.
    Platform(PlatformMisfit),
    /// Built for other Pythons (its Python tags).
    Python(String),
    /// `Requires-Python` allows none of the Pythons.
    RequiresPython(String),
    /// Outside a constraint of env.toml.
    Constraint(String),
    /// A file of another distribution.
    Name(DistName),
    /// A build for CPUs, where env.toml has `[gpu]`.
    CpuBuild,
    /// Not there yet, or nobody says since when, at the `exclude-newer` of env.toml: the day or
    /// time it came, and `exclude-newer`.
    Newer(Option<String>, String),
    /// No code for a GPU that env.toml declares: that one, and those it has code for.
    Arch((u16, u16), String),
}

impl Engine<'_> {
    /// The candidates of a distribution, asked of the provider once.
    pub(super) fn dist(&self, name: &DistName) -> Rc<Dist> {
        if let Some(known) = self.dists.borrow().get(name) {
            return known.clone();
        }
        let loaded = Rc::new(self.load_dist(name));
        self.dists.borrow_mut().insert(name.clone(), loaded.clone());
        loaded
    }

    fn load_dist(&self, name: &DistName) -> Dist {
        let origin = self.origin(name);
        let mut dist = Dist::default();
        let listing = match self.provider.wheels(name, &origin) {
            Ok(listing) => listing,
            Err(ProviderError::Unusable(reason)) => {
                dist.unusable = Some(reason);
                Arc::new(WheelListing::default())
            }
            Err(failed) => {
                self.fail(failed);
                Arc::new(WheelListing::default())
            }
        };
        dist.files = listing.files.clone();
        dist.sdist_only = listing.sdist_only.clone();
        dist.sdist_only.sort();
        dist.skipped = listing.skipped.clone();
        dist.unknown = listing.unknown;

        let name_id = self.pool.intern_package_name(Name::Dist(name.clone()));
        let keep = self.problem.keep.wheels.get(name);
        let mut usable = Vec::new();
        for file in &listing.files {
            match self.screen(name, file) {
                Ok((pythons, priority)) => usable.push((file, pythons, priority)),
                Err(rejection) => dist.rejected.push((file.clone(), rejection)),
            }
        }
        usable.sort_by_cached_key(|(file, _, priority)| {
            let version = &file.filename.version;
            let (line, release, build) = FACTS.order(&file.filename, self.problem.gpu.as_ref());
            (
                keep.map_or(0, |kept| kept.distance(file)),
                line,
                Reverse(release),
                build,
                Reverse(version.clone()),
                Reverse(*priority),
                Reverse(file.filename.build_tag().cloned()),
                file.file.clone(),
            )
        });
        // A copy of a file from a source further back.
        usable.dedup_by(|a, b| a.0.file == b.0.file);

        let groups = self.groups.borrow();
        let preferred = self.preferred.borrow();
        let mut numbers: Vec<usize> = match origin {
            WheelOrigin::Default => self.groups_of.borrow().get(name).cloned().unwrap_or_default(),
            // Asked for from a place of its own: no conda package will do.
            WheelOrigin::Index(_) | WheelOrigin::Direct(_) => Vec::new(),
        };
        if let Some(bound) = self.problem.constraints.get(name) {
            let (inside, outside) = numbers.into_iter().partition(|number: &usize| {
                groups[*number].version.as_ref().is_some_and(|version| bound.contains(version))
            });
            numbers = inside;
            let outside: Vec<usize> = outside;
            dist.outside = outside
                .into_iter()
                .map(|number| format!("{} {}", groups[number].conda, groups[number].shown))
                .collect();
        }
        numbers.sort_by(|a, b| {
            let version = |number: &usize| groups[*number].version.clone();
            version(b).cmp(&version(a)).then_with(|| groups[*a].conda.cmp(&groups[*b].conda))
        });
        let mut rank = 0;
        let mut next = || {
            rank += 1;
            rank
        };
        let provided = |number: usize, rank: u32| {
            let group = &groups[number];
            self.pool.intern_solvable(
                name_id,
                Candidate::Provided {
                    number,
                    conda: group.conda.clone(),
                    shown: group.shown.clone(),
                    version: group.version.clone(),
                    rank,
                },
            )
        };
        let (first, last): (Vec<usize>, Vec<usize>) =
            numbers.into_iter().partition(|number| preferred.contains(number));
        dist.candidates.extend(first.into_iter().map(|number| provided(number, next())));
        dist.candidates.extend(usable.into_iter().map(|(file, pythons, _)| {
            self.pool.intern_solvable(
                name_id,
                Candidate::Wheel { file: file.clone(), pythons, rank: next() },
            )
        }));
        dist.candidates.extend(last.into_iter().map(|number| provided(number, next())));
        dist
    }

    /// Whether a file takes part: the Pythons it runs on, and how well its tags fit.
    fn screen(
        &self,
        name: &DistName,
        file: &WheelFile,
    ) -> Result<(PyMask, Option<uv_platform_tags::TagPriority>), WheelRejection> {
        let filename = &file.filename;
        if filename.name != *name {
            return Err(WheelRejection::Name(filename.name.clone()));
        }
        if let Some(constraint) = self.problem.constraints.get(name)
            && !constraint.contains(&filename.version)
        {
            return Err(WheelRejection::Constraint(constraint.to_string()));
        }
        if let Some(gpu) = &self.problem.gpu {
            if let Some(device) = FACTS.wheel(filename).and_then(|row| row.uncovered(gpu)) {
                let has = FACTS.wheel(filename).map(WheelFacts::archs).unwrap_or_default();
                return Err(WheelRejection::Arch(device, has));
            }
            // A distribution that is for CPUs whatever its version was chosen by its name.
            let by_version = filename.version.is_local();
            let asked = self.problem.wheels.iter().any(|root| {
                root.name == *name
                    && (root.specifiers.iter().any(|own| own.version() == &filename.version)
                        || matches!(root.origin, WheelOrigin::Direct(_)))
            });
            if by_version && !asked && FACTS.line(filename) == Some(Line::Cpu) {
                return Err(WheelRejection::CpuBuild);
            }
        }
        let pythons = self.pythons();
        if let Some(target) = &self.target
            && !pythons.platform_fits(filename)
        {
            return Err(WheelRejection::Platform(target.platform_misfit(filename)));
        }
        let (tagged, priority) = pythons.fit(filename);
        if tagged.is_empty() {
            let tags: Vec<String> =
                filename.python_tags().iter().map(ToString::to_string).collect();
            return Err(WheelRejection::Python(tags.join(".")));
        }
        let allowed = pythons.allowed(file.requires_python.as_ref()).and(&tagged);
        if allowed.is_empty() {
            return Err(WheelRejection::RequiresPython(
                file.requires_python.as_ref().map(ToString::to_string).unwrap_or_default(),
            ));
        }
        // Last, so that it is the reason only of what would fit otherwise.
        if let Some(rejection) = self.too_new(name, file) {
            return Err(rejection);
        }
        Ok((allowed, priority))
    }

    /// Which of `candidates` a requirement admits.
    ///
    /// A pre-release is admitted where a specifier names one, of this requirement or of another
    /// on the same distribution, or where no final release fits (PEP 440); a yanked file where its
    /// version is pinned with `==` (PEP 592). What conda provides is conda's choice: only its
    /// version counts.
    pub(super) fn admitted(
        &self,
        name: &DistName,
        candidates: &[SolvableId],
        specifiers: &VersionSpecifiers,
    ) -> Vec<SolvableId> {
        let direct = matches!(self.origin(name), WheelOrigin::Direct(_));
        let policy = self.problem.prereleases;
        let permits = self.permits.borrow();
        let named = permits.prereleases.contains(name)
            || specifiers.iter().any(names_prerelease)
            || self
                .problem
                .constraints
                .get(name)
                .is_some_and(|constraint| constraint.iter().any(names_prerelease));
        let yanked_fits = |file: &WheelFile| {
            file.yanked.is_none()
                || direct
                || specifiers.iter().any(pins)
                || permits
                    .pins
                    .iter()
                    .any(|(of, version)| of == name && same_pin(version, &file.filename.version))
        };
        let fits = |id: &SolvableId| match self.candidate(*id) {
            Candidate::Wheel { file, .. } => {
                specifiers.contains(&file.filename.version) && yanked_fits(file)
            }
            Candidate::Provided { version, .. } => match version {
                Some(version) => specifiers.contains(version),
                None => specifiers.is_empty(),
            },
            _ => false,
        };
        let is_prerelease = |id: &SolvableId| match self.candidate(*id) {
            Candidate::Wheel { file, .. } => file.filename.version.any_prerelease(),
            _ => false,
        };
        let fitting: Vec<SolvableId> = candidates.iter().copied().filter(|id| fits(id)).collect();
        let open = direct
            || match policy {
                Prereleases::Allow => true,
                Prereleases::Disallow => false,
                Prereleases::IfNecessaryOrExplicit => named || fitting.iter().all(is_prerelease),
            };
        if open {
            return fitting;
        }
        fitting.into_iter().filter(|id| !is_prerelease(id)).collect()
    }

    /// Best first, and the best one's metadata asked for ahead.
    pub(super) fn sort_dist(&self, ids: &mut [SolvableId]) {
        ids.sort_by_key(|id| match self.candidate(*id) {
            Candidate::Wheel { rank, .. } | Candidate::Provided { rank, .. } => *rank,
            _ => u32::MAX,
        });
        // The likely pick: the best for the Python that is tried first, the newest.
        let newest = self.pythons().all.iter().rposition(|python| python.flavor == Flavor::CPython);
        let likely = ids.iter().copied().find(|id| match self.candidate(*id) {
            Candidate::Wheel { pythons, .. } => {
                newest.is_none_or(|newest| pythons.contains(newest))
            }
            _ => true,
        });
        if let Some(id) = likely
            && let Candidate::Wheel { file, .. } = self.candidate(id)
            && self.hinted.borrow_mut().insert(id)
        {
            self.provider.prefetch(vec![Want::Metadata(file.clone())]);
        }
    }
}

/// So many files at once are looked ahead at most.
const AHEAD: usize = 32;

impl Engine<'_> {
    /// Called with each file whose metadata is asked for. From the second of a distribution on,
    /// the solver is going through its versions: those that come next are asked for ahead, twice
    /// as many each time.
    pub(super) fn look_ahead(&self, id: SolvableId, file: &WheelFile) {
        let name = &file.filename.name;
        let mut looked_at = self.looked_at.borrow_mut();
        let times = looked_at.entry(name.clone()).or_default();
        *times += 1;
        if *times < 2 {
            return;
        }
        let number = 1_usize.checked_shl(*times).unwrap_or(AHEAD).min(AHEAD);
        let Candidate::Wheel { rank, pythons, .. } = self.candidate(id) else {
            return;
        };
        let dist = self.dist(name);
        let mut hinted = self.hinted.borrow_mut();
        let wants: Vec<Want> = dist
            .candidates
            .iter()
            .filter_map(|next| match self.candidate(*next) {
                Candidate::Wheel { file, pythons: of_next, rank: of } => {
                    (of > rank && !of_next.and(pythons).is_empty()).then_some((*next, file))
                }
                _ => None,
            })
            .take(number)
            .filter(|(next, _)| hinted.insert(*next))
            .map(|(_, file)| Want::Metadata(file.clone()))
            .collect();
        if !wants.is_empty() {
            self.provider.prefetch(wants);
        }
    }
}

/// Whether `==pin` means `version`: a local version of it counts, as in PEP 440.
fn same_pin(pin: &Version, version: &Version) -> bool {
    pin == version || (!pin.is_local() && *pin == version.clone().without_local())
}
