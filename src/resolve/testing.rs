//! A world in memory, to solve in: conda records, wheels with their metadata, and counters of what
//! was asked.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;

use rattler_conda_types::package::DistArchiveIdentifier;
use rattler_conda_types::{
    GenericVirtualPackage, MatchSpec, PackageName as CondaName, PackageRecord,
    ParseMatchSpecOptions, RepoDataRecord, Subdir, VersionWithSource,
};
use uv_distribution_filename::WheelFilename;
use uv_normalize::PackageName as DistName;
use uv_pep440::{Version, VersionSpecifiers};
use uv_pep508::{Requirement, VersionOrUrl};
use uv_pypi_types::VerbatimParsedUrl;

use super::{
    Asker, ChosenKind, CondaRequirement, Keep, KeptWheel, Key, Problem, Provider, ProviderError,
    Solution, Want, WheelFile, WheelListing, WheelMetadata, WheelOrigin, WheelRequirement,
};
use crate::manifest::{ExcludeNewer, IndexName, Prereleases};

/// Records by name.
type Records = BTreeMap<String, Vec<Arc<RepoDataRecord>>>;

/// A world of packages.
#[derive(Default)]
pub(crate) struct World {
    channels: Vec<(String, Records)>,
    listings: BTreeMap<(DistName, WheelOrigin), WheelListing>,
    metadata: BTreeMap<String, Result<Arc<WheelMetadata>, ProviderError>>,
    pub(crate) asked: RefCell<Asked>,
}

/// What the solver asked for, in order.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) conda: Vec<String>,
    pub(crate) wheels: Vec<String>,
    pub(crate) metadata: Vec<String>,
    pub(crate) prefetched: Vec<Want>,
}

/// A dist name from text.
pub(crate) fn dist(name: &str) -> DistName {
    DistName::from_str(name).unwrap()
}

/// A conda name from text.
pub(crate) fn conda_name(name: &str) -> CondaName {
    CondaName::try_from(name).unwrap()
}

impl World {
    pub(crate) fn new() -> Self {
        World::default()
    }

    /// Adds a record to the channel `conda-forge`: `numpy 1.26.4 py311_0`.
    pub(crate) fn add(&mut self, record: &str, depends: &[&str]) -> &mut PackageRecord {
        self.add_in("conda-forge", record, depends)
    }

    /// Adds a record to a channel.
    pub(crate) fn add_in(
        &mut self,
        channel: &str,
        record: &str,
        depends: &[&str],
    ) -> &mut PackageRecord {
        let mut parts = record.split(' ');
        let name = conda_name(parts.next().unwrap());
        let version = VersionWithSource::from_str(parts.next().unwrap()).unwrap();
        let build = parts.next().unwrap_or("0");
        let file = format!("{}-{version}-{build}.conda", name.as_normalized());
        let base = format!("https://conda.example.invalid/{channel}/");
        let mut package = PackageRecord::new(name.clone(), version, build.parse().unwrap());
        package.build_number =
            build.rsplit('_').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        package.subdir = "linux-64".to_owned();
        package.depends = depends.iter().map(ToString::to_string).collect();
        let record = RepoDataRecord {
            package_record: package,
            identifier: DistArchiveIdentifier::try_from_filename(&file).unwrap(),
            url: format!("{base}linux-64/{file}").parse().unwrap(),
            channel: Some(base),
        };
        let index = match self.channels.iter().position(|(name, _)| name == channel) {
            Some(index) => index,
            None => {
                self.channels.push((channel.to_owned(), BTreeMap::new()));
                self.channels.len() - 1
            }
        };
        let records = self.channels[index].1.entry(name.as_normalized().to_owned()).or_default();
        records.push(Arc::new(record));
        let last = records.last_mut().unwrap();
        &mut Arc::get_mut(last).unwrap().package_record
    }

    /// Adds conda Pythons: `3.11.9`.
    pub(crate) fn pythons(&mut self, versions: &[&str]) {
        for version in versions {
            self.add(&format!("python {version} h0_0"), &[]);
        }
    }

    /// Adds a wheel of the default sources.
    pub(crate) fn wheel(&mut self, file: &str, requires: &[&str]) -> &mut WheelFile {
        self.wheel_in(WheelOrigin::Default, file, requires)
    }

    /// Adds a wheel of an index.
    pub(crate) fn wheel_in(
        &mut self,
        origin: WheelOrigin,
        file: &str,
        requires: &[&str],
    ) -> &mut WheelFile {
        let filename = WheelFilename::from_str(file).unwrap();
        let requires_dist: Vec<Requirement<VerbatimParsedUrl>> = requires
            .iter()
            .map(|requirement| Requirement::from_str(requirement).unwrap())
            .collect();
        let mut extras = BTreeSet::new();
        for requirement in &requires_dist {
            requirement.marker.visit_extras(|_, extra| {
                extras.insert(extra.clone());
            });
        }
        let metadata = WheelMetadata {
            name: filename.name.clone(),
            version: filename.version.clone(),
            requires_python: None,
            requires_dist,
            extras: extras.into_iter().collect(),
        };
        self.metadata.insert(file.to_owned(), Ok(Arc::new(metadata)));
        let listing = self.listings.entry((filename.name.clone(), origin)).or_default();
        listing.files.push(Arc::new(WheelFile {
            filename,
            file: file.to_owned(),
            source: "pypi".to_owned(),
            url: format!("https://wheels.example.invalid/{file}"),
            size: None,
            sha256: None,
            requires_python: None,
            yanked: None,
            upload_time: None,
            indexed: true,
        }));
        Arc::get_mut(listing.files.last_mut().unwrap()).unwrap()
    }

    /// A pure wheel: `requests 2.0`.
    pub(crate) fn pure(&mut self, wheel: &str, requires: &[&str]) -> &mut WheelFile {
        let (name, version) = wheel.split_once(' ').unwrap();
        let file = format!("{}-{version}-py3-none-any.whl", name.replace('-', "_"));
        self.wheel(&file, requires)
    }

    /// Changes the metadata of a wheel.
    pub(crate) fn metadata_of(&mut self, file: &str) -> &mut WheelMetadata {
        match self.metadata.get_mut(file).unwrap() {
            Ok(metadata) => Arc::get_mut(metadata).unwrap(),
            Err(_) => panic!("{file} has no metadata"),
        }
    }

    /// Makes the metadata of a wheel unusable, or its source fail.
    pub(crate) fn spoil(&mut self, file: &str, error: ProviderError) {
        self.metadata.insert(file.to_owned(), Err(error));
    }

    /// The listing of a distribution in the default sources.
    pub(crate) fn listing(&mut self, name: &str) -> &mut WheelListing {
        self.listings.entry((dist(name), WheelOrigin::Default)).or_default()
    }

    /// All conda records, channel by channel.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Arc<RepoDataRecord>> {
        self.channels.iter().flat_map(|(_, names)| names.values().flatten())
    }

    /// All wheels with their metadata.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Arc<WheelFile>, &Arc<WheelMetadata>)> {
        self.listings.values().flat_map(|listing| {
            listing
                .files
                .iter()
                .filter_map(|file| Some((file, self.metadata.get(&file.file)?.as_ref().ok()?)))
        })
    }

    /// Solves.
    pub(crate) fn solve(&self, problem: &Problem) -> Result<Solution, super::SolveError> {
        super::solve(problem, self)
    }

    /// Solves and says what was chosen, in link order, as `name=version` or `name==version`.
    pub(crate) fn chosen(&self, problem: &Problem) -> Vec<String> {
        match self.solve(problem) {
            Ok(solution) => names(&solution),
            Err(error) => panic!("{error}"),
        }
    }

    /// Solves, expecting no answer; the whole message.
    pub(crate) fn refused(&self, problem: &Problem) -> String {
        use crate::error::Report;
        match self.solve(problem) {
            Ok(solution) => panic!("there is an answer: {:?}", names(&solution)),
            Err(error) => {
                let hint = error.hint().unwrap_or_default();
                format!("{error}\n\n{hint}")
            }
        }
    }
}

/// What was chosen: `name=version` of conda, `name==version` of wheels.
pub(crate) fn names(solution: &Solution) -> Vec<String> {
    solution
        .packages
        .iter()
        .map(|chosen| match &chosen.what {
            ChosenKind::Conda(record) => {
                let record = &record.package_record;
                format!("{}={}", record.name.as_normalized(), record.version)
            }
            ChosenKind::Wheel { file, extras } => {
                let extras: Vec<_> = extras.iter().map(ToString::to_string).collect();
                let extras = match extras.is_empty() {
                    true => String::new(),
                    false => format!("[{}]", extras.join(",")),
                };
                format!("{}{extras}=={}", file.filename.name, file.filename.version)
            }
        })
        .collect()
}

/// The key of a chosen package.
pub(crate) fn key(chosen: &super::Chosen) -> Key {
    match &chosen.what {
        ChosenKind::Conda(record) => Key::Conda(record.package_record.name.clone()),
        ChosenKind::Wheel { file, .. } => Key::Wheel(file.filename.name.clone()),
    }
}

impl Provider for World {
    fn conda(&self, name: &CondaName) -> Result<Arc<Vec<Vec<Arc<RepoDataRecord>>>>, ProviderError> {
        let name = name.as_normalized();
        self.asked.borrow_mut().conda.push(name.to_owned());
        Ok(Arc::new(
            self.channels
                .iter()
                .map(|(_, names)| names.get(name).cloned().unwrap_or_default())
                .collect(),
        ))
    }

    fn conda_names(&self) -> Vec<String> {
        let names: BTreeSet<String> =
            self.channels.iter().flat_map(|(_, names)| names.keys().cloned()).collect();
        names.into_iter().collect()
    }

    fn wheels(
        &self,
        name: &DistName,
        origin: &WheelOrigin,
    ) -> Result<Arc<WheelListing>, ProviderError> {
        self.asked.borrow_mut().wheels.push(name.to_string());
        let key = (name.clone(), origin.clone());
        Ok(Arc::new(
            self.listings
                .get(&key)
                .cloned()
                .unwrap_or(WheelListing { unknown: true, ..WheelListing::default() }),
        ))
    }

    fn metadata(&self, file: &Arc<WheelFile>) -> Result<Arc<WheelMetadata>, ProviderError> {
        self.asked.borrow_mut().metadata.push(file.file.clone());
        self.metadata
            .get(&file.file)
            .cloned()
            .unwrap_or_else(|| Err(ProviderError::Unusable("it has no metadata".to_owned())))
    }

    fn prefetch(&self, wants: Vec<Want>) {
        self.asked.borrow_mut().prefetched.extend(wants);
    }
}

/// A problem for linux-64 with glibc 2.28.
pub(crate) fn problem() -> Problem {
    Problem {
        platform: Subdir::Linux64,
        virtual_packages: vec![
            virtual_package("__glibc", "2.28"),
            virtual_package("__linux", "4.18"),
        ],
        glibc: Some((2, 28)),
        host_python: None,
        channels: vec!["conda-forge".to_owned(), "nvidia".to_owned()],
        conda: Vec::new(),
        wheels: Vec::new(),
        indexes: Vec::new(),
        constraints: BTreeMap::new(),
        overrides: BTreeMap::new(),
        prereleases: Prereleases::default(),
        conda_pypi_map: BTreeMap::new(),
        gpu: None,
        exclude_newer: ExcludeNewer::default(),
        keep: Keep::default(),
    }
}

/// A virtual package.
pub(crate) fn virtual_package(name: &str, version: &str) -> GenericVirtualPackage {
    GenericVirtualPackage {
        name: conda_name(name),
        version: version.parse().unwrap(),
        build_string: "0".parse().unwrap(),
    }
}

/// Building blocks of a problem.
pub(crate) trait Build: Sized {
    /// The host's interpreter.
    fn host(self, python: &str) -> Self;
    /// A line of `[dependencies]`, as a match spec.
    fn dep(self, spec: &str) -> Self;
    /// A line of `[pypi-dependencies]`, as PEP 508.
    fn pypi(self, requirement: &str) -> Self;
    /// The same from an index.
    fn pypi_from(self, requirement: &str, origin: WheelOrigin) -> Self;
    /// A bound that adds nothing.
    fn constrain(self, name: &str, specifiers: &str) -> Self;
}

impl Build for Problem {
    fn host(mut self, python: &str) -> Self {
        self.host_python = Some(Version::from_str(python).unwrap());
        self
    }

    fn dep(mut self, spec: &str) -> Self {
        let line = self.conda.len();
        self.conda.push(CondaRequirement {
            spec: MatchSpec::from_str(spec, ParseMatchSpecOptions::lenient()).unwrap(),
            asker: Asker::Manifest(line..line + 1),
        });
        self
    }

    fn pypi(self, requirement: &str) -> Self {
        self.pypi_from(requirement, WheelOrigin::Default)
    }

    fn pypi_from(mut self, requirement: &str, origin: WheelOrigin) -> Self {
        let parsed: Requirement<VerbatimParsedUrl> = Requirement::from_str(requirement).unwrap();
        let line = 100 + self.wheels.len();
        self.wheels.push(WheelRequirement {
            name: parsed.name,
            extras: parsed.extras.to_vec(),
            specifiers: match parsed.version_or_url {
                Some(VersionOrUrl::VersionSpecifier(specifiers)) => specifiers,
                _ => VersionSpecifiers::empty(),
            },
            origin,
            marker: parsed.marker,
            asker: Asker::Manifest(line..line + 1),
        });
        self
    }

    fn constrain(mut self, name: &str, specifiers: &str) -> Self {
        self.constraints.insert(dist(name), specifiers.parse().unwrap());
        self
    }
}

/// A wheel file of an old lock.
pub(crate) fn kept(file: &str) -> (DistName, KeptWheel) {
    let filename = WheelFilename::from_str(file).unwrap();
    let version = filename.version;
    (filename.name, KeptWheel { version, file: file.to_owned(), sha256: None })
}

/// An index of env.toml.
pub(crate) fn index(name: &str) -> WheelOrigin {
    WheelOrigin::Index(IndexName(name.to_owned()))
}
