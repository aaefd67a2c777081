//! Why nothing fits a requirement, and what to do about it.

use std::collections::{BTreeMap, BTreeSet};

use rattler_conda_types::NamelessMatchSpec;
use resolvo::SolvableId;
use uv_normalize::PackageName as DistName;
use uv_pep440::{Version, VersionSpecifiers};

use super::conda::{CondaRejection, from_channel, record_matches};
use super::engine::{Engine, pins};
use super::names::{Candidate, Name, Set};
use super::provider::WheelOrigin;
use super::relax::{Change, Conflict};
use super::target::PlatformMisfit;
use super::wheels::{Dist, WheelRejection};
use super::words;

/// Names that people import under, and what is to be installed for them.
const IMPORT_NAMES: &[(&str, &str)] = &[
    ("attr", "attrs"),
    ("bs4", "beautifulsoup4"),
    ("cv2", "opencv-python"),
    ("dateutil", "python-dateutil"),
    ("fitz", "pymupdf"),
    ("google-protobuf", "protobuf"),
    ("paddle", "paddlepaddle"),
    ("pil", "pillow"),
    ("pytorch", "torch"),
    ("serial", "pyserial"),
    ("skimage", "scikit-image"),
    ("sklearn", "scikit-learn"),
    ("tensorflow-cuda", "tensorflow"),
    ("yaml", "pyyaml"),
];

/// The glibc versions of distributions in use, where only "newer" is known to be needed.
const NEWER_GLIBCS: [(u16, u16); 4] = [(2, 28), (2, 31), (2, 34), (2, 39)];

/// Collects advice while the reasons are worked out.
pub(super) struct Reasons<'t, 'p> {
    engine: &'t Engine<'p>,
    advice: BTreeSet<String>,
    /// Of it, what holds whatever else is found.
    lasting: BTreeSet<String>,
    /// Changes that might help.
    changes: BTreeSet<Change>,
    /// Whether the requirement at hand is one of env.toml.
    root: bool,
}

/// Why one version has no file that takes part, the most telling reason last.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    OtherPlatform(String),
    SourceOnly,
    Unreadable(String),
    OtherName(String),
    Constraint(String),
    Prerelease,
    Yanked(String),
    Glibc((u16, u16)),
    Python(String),
    RequiresPython(String),
    /// When it came, and the bound.
    Newer(Option<String>, String),
    CpuBuild,
    Arch((u16, u16), String),
}

impl Why {
    /// Whether two versions can be told in one sentence.
    fn says_the_same(&self, other: &Why) -> bool {
        match (self, other) {
            (Why::Newer(Some(_), bound), Why::Newer(Some(_), other)) => bound == other,
            _ => self == other,
        }
    }
}

impl<'t, 'p> Reasons<'t, 'p> {
    pub(super) fn new(engine: &'t Engine<'p>) -> Self {
        Reasons {
            engine,
            advice: BTreeSet::new(),
            lasting: BTreeSet::new(),
            changes: BTreeSet::new(),
            root: false,
        }
    }

    pub(super) fn advice(&self) -> Vec<String> {
        self.advice.iter().cloned().collect()
    }

    /// What was found out besides.
    pub(super) fn conflict(&self) -> Conflict {
        Conflict { changes: self.changes.clone(), advice: self.lasting.iter().cloned().collect() }
    }

    /// Advice for want of a change that was found to work.
    fn advise(&mut self, advice: impl Into<String>) {
        self.advice.insert(advice.into());
    }

    /// Advice that holds beside such changes.
    fn advise_besides(&mut self, advice: impl Into<String>) {
        let advice = advice.into();
        self.advice.insert(advice.clone());
        self.lasting.insert(advice);
    }

    /// Advice on why a candidate is out of the question.
    pub(super) fn advise_on(&mut self, reason: &str) {
        if reason.contains("a place that env.toml does not name") {
            self.advise_besides("name the URL in [pypi-dependencies], or replace the requirement in [pypi-options.dependency-overrides]");
        }
    }

    /// Advice where conda's package and a wheel are at odds.
    pub(super) fn advise_worlds(&mut self, dist: &DistName) {
        self.advise_besides(format!(
            "take {dist} from one side: leave it out of [pypi-dependencies], or take the conda packages that need it as wheels; if conda's package does not really provide it, say so in [conda-pypi-map]"
        ));
    }

    /// Other Pythons than env.toml leaves.
    fn other_pythons(&mut self) {
        let mut conflict = Conflict::default();
        conflict.pythons(self.engine.problem);
        self.changes.extend(conflict.changes);
    }

    /// The explicit indexes, for what the default sources do not have.
    fn other_indexes(&mut self, name: &DistName) {
        if self.engine.origin(name) == WheelOrigin::Default {
            let indexes = self.engine.problem.indexes.iter();
            self.changes.extend(indexes.map(|index| Change::Index(name.clone(), index.clone())));
        }
    }

    fn cuda(&mut self) {
        let mut conflict = Conflict::default();
        conflict.cuda(self.engine.problem);
        self.changes.extend(conflict.changes);
    }

    fn advise_override(&mut self, name: &str) {
        self.advise_besides(format!(
            "if the requirement on {name} is wrong or not needed, replace or drop it in [pypi-options.dependency-overrides]"
        ));
    }

    // --- words for candidates and requirements -----------------------------------------------

    /// A requirement: `numpy >=2`.
    pub(super) fn requirement(&self, name: &Name, set: &Set) -> String {
        match set {
            Set::Any => name.to_string(),
            Set::Pythons(mask) => self.engine.pythons().describe(mask),
            Set::Specifiers(specifiers) if specifiers.is_empty() => name.to_string(),
            Set::Records(_) | Set::World(_) | Set::Extra(_) => name.to_string(),
            Set::Spec(_) | Set::Specifiers(_) | Set::Major(_) => format!("{name} {set}"),
        }
    }

    /// Candidates of one name: `numpy 1.20 to 1.26`.
    pub(super) fn candidates(&self, ids: &[SolvableId]) -> String {
        let Some(first) = ids.first() else {
            return String::new();
        };
        let name = self.engine.name_of(*first);
        let all = self.versions(name);
        let mut wanted: Vec<usize> = ids
            .iter()
            .filter_map(|id| {
                let shown = self.engine.candidate(*id).to_string();
                all.iter().position(|version| *version == shown)
            })
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let some = self.only_some_builds(name, ids);
        if let ([id], true) = (ids, some)
            && let Candidate::Record { record, .. } = self.engine.candidate(*id)
        {
            let record = &record.package_record;
            return format!("{name} {} (build {})", record.version, record.build);
        }
        let which = if wanted.len() == all.len() && all.len() > 2 {
            if !some {
                return format!("every {name} to be had ({} to {})", all[0], all[all.len() - 1]);
            }
            format!("{} to {}", all[0], all[all.len() - 1])
        } else {
            ranges(&all, &wanted)
        };
        if some { format!("some builds of {name} {which}") } else { format!("{name} {which}") }
    }

    /// Whether there are other conda records of the same versions.
    fn only_some_builds(&self, name: &Name, ids: &[SolvableId]) -> bool {
        if !matches!(name, Name::Conda(_)) {
            return false;
        }
        let id = self.engine.pool.intern_package_name(name.clone());
        let all = &self.engine.conda_candidates(id).usable;
        let versions: BTreeSet<String> =
            ids.iter().map(|id| self.engine.candidate(*id).to_string()).collect();
        all.iter().any(|id| {
            !ids.contains(id) && versions.contains(&self.engine.candidate(*id).to_string())
        })
    }

    /// All versions of a name that have candidates, oldest first.
    fn versions(&self, name: &Name) -> Vec<String> {
        let mut versions: Vec<String> = Vec::new();
        let mut push = |version: String| {
            if !versions.contains(&version) {
                versions.push(version);
            }
        };
        match name {
            Name::Conda(_) => {
                let id = self.engine.pool.intern_package_name(name.clone());
                let mut usable = self.engine.conda_candidates(id).usable.clone();
                usable.sort_by(|a, b| {
                    match (self.engine.candidate(*a), self.engine.candidate(*b)) {
                        (
                            Candidate::Record { record: a, .. },
                            Candidate::Record { record: b, .. },
                        ) => a.package_record.version.cmp(&b.package_record.version),
                        _ => std::cmp::Ordering::Equal,
                    }
                });
                usable.iter().for_each(|id| push(self.engine.candidate(*id).to_string()));
            }
            Name::Dist(dist) => {
                let mut known: Vec<(Option<Version>, String)> = self
                    .engine
                    .dist(dist)
                    .candidates
                    .iter()
                    .map(|id| {
                        let candidate = self.engine.candidate(*id);
                        let version = match candidate {
                            Candidate::Wheel { file, .. } => Some(file.filename.version.clone()),
                            Candidate::Provided { version, .. } => version.clone(),
                            _ => None,
                        };
                        (version, candidate.to_string())
                    })
                    .collect();
                known.sort();
                known.into_iter().for_each(|(_, shown)| push(shown));
            }
            _ => {}
        }
        versions
    }

    // --- nothing fits ------------------------------------------------------------------------

    /// Why a set has no candidates. `root`: env.toml itself asks for it, so that it can be
    /// written otherwise; what a package asks for can only be replaced.
    pub(super) fn why_nothing_fits(
        &mut self,
        name: &Name,
        set: &Set,
        root: bool,
    ) -> Option<String> {
        self.root = root;
        match (name, set) {
            (Name::Conda(text), _) => Some(self.why_no_record(name, text, set)),
            (Name::Dist(dist), Set::Specifiers(specifiers)) => {
                Some(self.why_no_wheel(dist, specifiers))
            }
            _ => None,
        }
    }

    fn why_no_record(&mut self, name: &Name, text: &str, set: &Set) -> String {
        let id = self.engine.pool.intern_package_name(name.clone());
        let known = self.engine.conda_candidates(id);
        if text.starts_with("__") {
            return self.why_no_virtual(text);
        }
        if let Some(reason) = &known.unusable {
            return format!("{text} cannot be read: {reason}");
        }
        if text == "python"
            && let Some(host) = &self.engine.problem.host_python
        {
            self.advise("change host.python, or the requirement on Python");
            self.other_pythons();
            return format!("the interpreter of the machine is declared as {host}");
        }
        let matching: Vec<_> = known
            .rejected
            .iter()
            .filter(|(record, _)| match set {
                Set::Spec(spec) => record_matches(spec, record),
                _ => true,
            })
            .collect();
        if let Some((record, rejection)) = matching.last() {
            let version = &record.package_record.version;
            return match rejection {
                CondaRejection::Priority { first, own } => {
                    if let Some(base) = &record.channel {
                        let change = Change::Channel(text.to_owned(), base.clone(), own.clone());
                        self.changes.insert(change);
                    }
                    self.advise(format!(
                        "to take {text} from {own}, say so: {text} = {{ version = \"…\", channel = \"{own}\" }}; or put {own} first in channels"
                    ));
                    format!(
                        "only {own} has it ({version}), and {first} comes before {own} and has the name (channels are strict)"
                    )
                }
                CondaRejection::Channel { wanted } => {
                    format!("{wanted} does not have it; another channel has {version}")
                }
                CondaRejection::Newer { came, bound } => {
                    self.advise_besides(format!(
                        "move exclude-newer in [env], or exempt it: exclude-newer-package = {{ {text} = false }}"
                    ));
                    format!("{version} came {came}, after exclude-newer {bound}")
                }
                CondaRejection::CpuBuild => {
                    self.advise(format!(
                        "to take the build of {text} for CPUs all the same, name it: {text} = {{ version = \"{version}\", build = \"{}\" }}",
                        record.package_record.build
                    ));
                    format!("{version} is there only as a build for CPUs, and env.toml has [gpu]")
                }
            };
        }
        let versions = self.versions(name);
        if versions.is_empty() {
            let channels = words::list(&self.engine.problem.channels, "or");
            let channels = if channels.is_empty() {
                "no channel is given".to_owned()
            } else {
                format!("no package of this name is in {channels}")
            };
            let names = self.engine.provider.conda_names();
            let nearest = words::nearest(text, names.iter().map(String::as_str));
            return self.with_nearest(channels, &nearest, text, "[pypi-dependencies]");
        }
        let newest = &versions[versions.len() - 1];
        if let Set::Spec(spec) = set
            && let Some(why) = self.why_no_build(name, spec)
        {
            return why;
        }
        if self.root {
            self.advise(format!("ask for a version of {text} that exists"));
        }
        match versions.len() {
            1 => format!("there is only {newest}"),
            _ => format!("there is no such version: {}", some(&versions)),
        }
    }

    /// Where the version is there and the rest of the spec is what nothing fits: a channel that
    /// is not in env.toml, or a build.
    fn why_no_build(&mut self, name: &Name, spec: &NamelessMatchSpec) -> Option<String> {
        let Name::Conda(text) = name else { return None };
        let known = self.engine.conda_candidates(self.engine.conda_name(text));
        let records: Vec<_> = known
            .usable
            .iter()
            .filter_map(|id| match self.engine.candidate(*id) {
                Candidate::Record { record, .. } => Some(record.clone()),
                _ => None,
            })
            .collect();
        if let Some(channel) = &spec.channel
            && !records.iter().any(|record| from_channel(channel, record))
        {
            let channel = channel.name();
            self.advise(format!(
                "add {channel} to channels in env.toml: a requirement that names a channel takes nothing from another"
            ));
            return Some(format!(
                "{text} comes from {}, not from a channel {channel}",
                words::list(&self.engine.problem.channels, "or")
            ));
        }
        if spec.build.is_none() && spec.build_number.is_none() {
            return None;
        }
        let mut builds: Vec<(&rattler_conda_types::VersionWithSource, &str)> = records
            .iter()
            .map(|record| &record.package_record)
            .filter(|record| spec.version.as_ref().is_none_or(|v| v.matches(&record.version)))
            .map(|record| (&record.version, record.build.as_str()))
            .collect();
        builds.sort_unstable();
        builds.dedup();
        let (newest, _) = builds.last()?;
        let of_newest: Vec<String> = builds
            .iter()
            .filter(|(version, _)| version == newest)
            .map(|(_, build)| (*build).to_owned())
            .collect();
        if self.root {
            self.advise(format!("ask for a build of {text} that exists"));
        }
        Some(format!(
            "there is no such build: {newest} has {}",
            words::short_list(&of_newest, 6, "and")
        ))
    }

    fn why_no_virtual(&mut self, name: &str) -> String {
        let own = self
            .engine
            .problem
            .virtual_packages
            .iter()
            .find(|package| package.name.as_normalized() == name);
        match (name, own) {
            ("__cuda", None) => {
                self.advise("declare the GPU in env.toml: [gpu] with cuda (and driver)");
                "env.toml declares no GPU".to_owned()
            }
            ("__cuda", Some(own)) => {
                self.cuda();
                self.advise("raise gpu.cuda in env.toml, if the drivers of the machines run it");
                format!("env.toml declares CUDA {} ([gpu] cuda)", own.version)
            }
            ("__glibc", Some(own)) => {
                for (major, minor) in NEWER_GLIBCS {
                    self.changes.insert(Change::Glibc(major, minor));
                }
                self.advise("raise libc in [system-requirements], if all machines have it");
                format!("env.toml promises glibc {}", own.version)
            }
            ("__linux", Some(own)) => {
                self.advise("raise linux in [system-requirements], if all machines have it");
                format!("env.toml promises Linux {}", own.version)
            }
            ("__archspec", Some(own)) => {
                self.advise("raise archspec in [system-requirements], if all machines have it");
                format!("env.toml promises a processor {}", own.build_string)
            }
            (_, Some(own)) => format!("the target has {name} {}", own.version),
            (_, None) => format!("the target has no {name}"),
        }
    }

    fn with_nearest(
        &mut self,
        what: String,
        nearest: &[&str],
        name: &str,
        elsewhere: &str,
    ) -> String {
        if !self.root {
            if elsewhere == "[dependencies]" {
                self.advise_override(name);
            } else {
                self.advise(format!("add a channel that has {name}"));
            }
            return what;
        }
        if nearest.is_empty() {
            self.advise(format!(
                "check the spelling of {name}, or whether it belongs into {elsewhere}"
            ));
            return what;
        }
        let nearest: Vec<String> = nearest.iter().map(|name| format!("`{name}`")).collect();
        let nearest = words::list(&nearest, "or");
        self.advise(format!("if you mean {nearest}, write that"));
        format!("{what}; near to it: {nearest}")
    }

    fn why_no_wheel(&mut self, name: &DistName, specifiers: &VersionSpecifiers) -> String {
        let dist = self.engine.dist(name);
        if let Some(reason) = &dist.unusable {
            return format!("its listing cannot be used: {reason}");
        }
        if let (Some(bound), [_, ..]) =
            (self.engine.problem.constraints.get(name), dist.outside.as_slice())
        {
            self.advise(format!("loosen the constraint on {name} in [pypi-options.constraints]"));
            self.changes.insert(Change::Constraint(name.clone()));
            let conda = words::short_list(&dist.outside, 3, "and");
            return format!(
                "conda provides it ({conda}), and the constraint of env.toml on it is {bound}"
            );
        }
        let whys = self.whys(name, &dist, specifiers);
        if !whys.is_empty() {
            return self.say(name, &whys);
        }
        let mut versions = self.versions(&Name::Dist(name.clone()));
        let mut every: BTreeSet<Version> =
            dist.files.iter().map(|file| file.filename.version.clone()).collect();
        every.extend(dist.sdist_only.iter().cloned());
        if versions.is_empty() {
            versions = every.iter().map(ToString::to_string).collect();
        }
        if versions.is_empty() {
            if !dist.skipped.is_empty() {
                let (file, reason) = &dist.skipped[0];
                return format!("none of its files can be read ({file}: {reason})");
            }
            self.other_indexes(name);
            let place = match self.engine.origin(name) {
                WheelOrigin::Index(index) => format!("{index} has no distribution of this name"),
                WheelOrigin::Direct(_) => "the file it is to come from is not there".to_owned(),
                WheelOrigin::Default => "there is no distribution of this name".to_owned(),
            };
            let meant: Vec<&str> = IMPORT_NAMES
                .iter()
                .filter(|(import, _)| *import == name.as_ref())
                .map(|(_, name)| *name)
                .collect();
            return self.with_nearest(place, &meant, name.as_ref(), "[dependencies]");
        }
        self.other_indexes(name);
        if self.root {
            self.advise(format!("ask for a version of {name} that exists"));
        } else {
            self.advise_override(name.as_ref());
        }
        format!("there is no such version: {}", some(&versions))
    }

    /// For each version in the specifiers that exists but does not take part: why.
    fn whys(
        &self,
        name: &DistName,
        dist: &Dist,
        specifiers: &VersionSpecifiers,
    ) -> BTreeMap<Version, Why> {
        let mut whys: BTreeMap<Version, Why> = BTreeMap::new();
        let mut note = |version: &Version, why: Why| {
            let entry = whys.entry(version.clone()).or_insert_with(|| why.clone());
            if let (Why::Python(known), Why::Python(more)) = (&mut *entry, &why) {
                for tag in more.split('.') {
                    if !known.split('.').any(|known| known == tag) {
                        known.push('.');
                        known.push_str(tag);
                    }
                }
            } else if let (Why::Glibc(known), Why::Glibc(other)) = (&mut *entry, &why) {
                *known = (*known).min(*other);
            } else if *entry < why {
                *entry = why;
            }
        };
        for (file, rejection) in &dist.rejected {
            let version = &file.filename.version;
            if !specifiers.contains(version) {
                continue;
            }
            note(
                version,
                match rejection {
                    WheelRejection::Platform(PlatformMisfit::Glibc(need)) => Why::Glibc(*need),
                    WheelRejection::Platform(PlatformMisfit::Other(tags)) => {
                        Why::OtherPlatform(tags.clone())
                    }
                    WheelRejection::Python(tags) => Why::Python(tags.clone()),
                    WheelRejection::RequiresPython(requires) => {
                        Why::RequiresPython(requires.clone())
                    }
                    WheelRejection::Constraint(bound) => Why::Constraint(bound.clone()),
                    WheelRejection::Name(other) => Why::OtherName(other.to_string()),
                    WheelRejection::Newer(came, bound) => Why::Newer(came.clone(), bound.clone()),
                    WheelRejection::CpuBuild => Why::CpuBuild,
                    WheelRejection::Arch(device, has) => Why::Arch(*device, has.clone()),
                },
            );
        }
        for id in &dist.candidates {
            let Candidate::Wheel { file, .. } = self.engine.candidate(*id) else {
                continue;
            };
            let version = &file.filename.version;
            if !specifiers.contains(version) {
                continue;
            }
            if let Some(reason) = &file.yanked
                && !specifiers.iter().any(pins)
            {
                note(version, Why::Yanked(reason.clone()));
            } else if version.any_prerelease() {
                note(version, Why::Prerelease);
            }
        }
        for version in &dist.sdist_only {
            if specifiers.contains(version) {
                note(version, Why::SourceOnly);
            }
        }
        for (file, reason) in &dist.skipped {
            // The version of an unreadable name is a guess: `name-version-…`.
            let guess = file
                .trim_end_matches(".whl")
                .split('-')
                .nth(1)
                .and_then(|version| version.parse::<Version>().ok());
            if let Some(version) = guess
                && specifiers.contains(&version)
                && !dist.sdist_only.contains(&version)
            {
                note(&version, Why::Unreadable(format!("{file}: {reason}")));
            }
        }
        let _ = name;
        whys
    }

    /// The reasons, newest versions first, versions of one reason together.
    fn say(&mut self, name: &DistName, whys: &BTreeMap<Version, Why>) -> String {
        let all: Vec<String> = whys.keys().map(ToString::to_string).collect();
        let mut groups: Vec<(&Why, Vec<usize>)> = Vec::new();
        for (index, why) in whys.values().enumerate().rev() {
            match groups.iter_mut().find(|(known, _)| known.says_the_same(why)) {
                Some((_, versions)) => versions.push(index),
                None => groups.push((why, vec![index])),
            }
        }
        let total = groups.len();
        let mut parts = Vec::new();
        for (why, mut versions) in groups.into_iter().take(3) {
            versions.sort_unstable();
            if let (Why::Yanked(_), Some(newest)) =
                (why, versions.last().and_then(|at| whys.keys().nth(*at)))
            {
                self.changes.insert(Change::Yanked(name.clone(), newest.clone()));
            }
            let which = ranges(&all, &versions);
            parts.push(self.say_one(name, &which, versions.len() > 1, why));
        }
        if total > 3 {
            parts.push(format!("and {}", words::count(total - 3, "more reason")));
        }
        parts.join("; ")
    }

    fn say_one(&mut self, name: &DistName, which: &str, many: bool, why: &Why) -> String {
        let pythons = self.engine.pythons().describe(&self.engine.pythons().every());
        let own = match &self.engine.problem.host_python {
            Some(host) => format!("the interpreter of the machine is Python {host}"),
            None => format!("env.toml leaves {pythons}"),
        };
        let platform = self.engine.problem.platform;
        let (is, needs, has) = if many { ("are", "need", "have") } else { ("is", "needs", "has") };
        match why {
            Why::RequiresPython(requires) => {
                self.other_pythons();
                self.advise(format!("choose a Python in {requires}, or another version of {name}"));
                format!("{which} {needs} Python {requires}, and {own}")
            }
            Why::Python(tags) => {
                self.other_pythons();
                let tags = python_tags(tags);
                self.advise(format!(
                    "choose a Python that {name} has wheels for ({tags}), or another version of {name}"
                ));
                format!("{which} {has} wheels for {tags} only, and {own}")
            }
            Why::Glibc((major, minor)) => {
                self.changes.insert(Change::Glibc(*major, *minor));
                let (have_major, have_minor) = self.engine.problem.glibc.unwrap_or_default();
                self.advise(format!(
                    "if all machines have glibc {major}.{minor}, say so: libc = \"{major}.{minor}\" in [system-requirements]"
                ));
                format!(
                    "{which} {needs} glibc {major}.{minor}, and env.toml promises {have_major}.{have_minor}"
                )
            }
            Why::Yanked(reason) => {
                self.advise(format!("pin a yanked version with == to take it all the same, or choose another version of {name}"));
                let reason = reason.trim();
                if reason.is_empty() {
                    format!("{which} {is} yanked")
                } else {
                    format!("{which} {is} yanked ({reason})")
                }
            }
            Why::Prerelease => {
                self.changes.insert(Change::Prereleases);
                self.advise(format!(
                    "to take a pre-release of {name}, name one (`>=…rc1`), or set prereleases = \"allow\" in [pypi-options]"
                ));
                let noun = if many { "pre-releases" } else { "a pre-release" };
                format!("{which} {is} {noun}")
            }
            Why::Constraint(bound) => {
                self.changes.insert(Change::Constraint(name.clone()));
                self.advise(format!(
                    "loosen the constraint on {name} in [pypi-options.constraints]"
                ));
                format!("{which} {is} outside the constraint {bound} of env.toml")
            }
            Why::SourceOnly => {
                self.advise(format!(
                    "choose a version of {name} that has wheels, or a conda package of it: gpuenv does not build from source"
                ));
                format!("{which} {is} there only as source")
            }
            Why::OtherPlatform(tags) => {
                self.advise(format!(
                    "choose a version of {name} that has wheels for {platform}, or a conda package of it; or leave {platform} out of platforms"
                ));
                format!("{which} {has} no wheel for {platform} (but for {tags})")
            }
            Why::Unreadable(reason) => format!("{which} cannot be read ({reason})"),
            Why::Newer(came, bound) => {
                self.advise_besides(format!(
                    "move exclude-newer in [env], or exempt it: exclude-newer-package = {{ {name} = false }}"
                ));
                let was = if many { "were" } else { "was" };
                match came {
                    Some(_) if many => format!("{which} were uploaded after exclude-newer {bound}"),
                    Some(came) => {
                        format!("{which} was uploaded {came}, after exclude-newer {bound}")
                    }
                    None => format!(
                        "its index does not say when {which} {was} uploaded, and env.toml has exclude-newer {bound}"
                    ),
                }
            }
            Why::CpuBuild => {
                self.advise(format!(
                    "to take a build of {name} for CPUs all the same, pin it with == in [pypi-dependencies]; or leave out [gpu]"
                ));
                let noun = if many { "builds for CPUs" } else { "a build for CPUs" };
                format!("{which} {is} {noun}, and env.toml has [gpu]")
            }
            Why::Arch((major, minor), archs) => {
                self.changes.insert(Change::Arch(*major, *minor));
                self.advise(format!(
                    "choose a version of {name} that has code for {major}.{minor}, or leave {major}.{minor} out of archs in [gpu]"
                ));
                format!(
                    "{which} {has} no code for the compute capability {major}.{minor} that env.toml names in [gpu] archs (only for {archs})"
                )
            }
            Why::OtherName(other) => {
                self.advise(format!("correct the name, or the URL, of {name}"));
                format!("the file is one of {other}")
            }
        }
    }
}

/// `cp39.cp310.cp311` in words: neighbours as a range.
fn python_tags(tags: &str) -> String {
    let mut tags: Vec<(u32, u32, &str)> = tags
        .split('.')
        .map(|tag| {
            let digits: String = tag.chars().filter(char::is_ascii_digit).collect();
            let (major, minor) = digits.split_at(digits.len().min(1));
            (major.parse().unwrap_or(0), minor.parse().unwrap_or(0), tag)
        })
        .collect();
    tags.sort_unstable();
    tags.dedup();
    let mut parts: Vec<String> = Vec::new();
    let mut start = 0;
    for end in 1..=tags.len() {
        let kind = |tag: &str| tag.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        if end < tags.len()
            && tags[end].0 == tags[end - 1].0
            && tags[end].1 == tags[end - 1].1 + 1
            && kind(tags[end].2) == kind(tags[end - 1].2)
        {
            continue;
        }
        match end - start {
            1 => parts.push(tags[start].2.to_owned()),
            _ => parts.push(format!("{} to {}", tags[start].2, tags[end - 1].2)),
        }
        start = end;
    }
    words::list(&parts, "and")
}

/// Versions, oldest first: all if few, else the range.
fn some(versions: &[String]) -> String {
    match versions {
        [] => "there is none".to_owned(),
        [one] => format!("there is only {one}"),
        few if few.len() <= 4 => format!("there are {}", words::list(few, "and")),
        [first, .., last] => {
            format!("there are {}, from {first} to {last}", words::count(versions.len(), "version"))
        }
    }
}

/// The versions at these places, neighbours as ranges.
fn ranges(all: &[String], places: &[usize]) -> String {
    let mut parts = Vec::new();
    let mut start = 0;
    for end in 1..=places.len() {
        if end < places.len() && places[end] == places[end - 1] + 1 {
            continue;
        }
        let (first, last) = (places[start], places[end - 1]);
        match last - first {
            0 => parts.push(all[first].clone()),
            1 => parts.extend([all[first].clone(), all[last].clone()]),
            _ => parts.push(format!("{} to {}", all[first], all[last])),
        }
        start = end;
    }
    words::short_list(&parts, 4, "and")
}
