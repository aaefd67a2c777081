//! What a lock must keep to beyond its grammar.

use std::collections::{BTreeMap, BTreeSet};

use rattler_conda_types::{GenericVirtualPackage, PackageName as CondaName, Subdir};
use uv_normalize::PackageName as DistName;

use super::error::{LockError, LockErrorKind as Kind};
use super::graph::edge_target;
use super::model::{ArtifactKind, Lock, LockedEnvironment, LockedPackage, Source, SourceKind};
use crate::manifest::{Place as Location, is_env_name, mask_credentials, place};
use crate::relpath::RelPath;

/// A part of a lock, by its position in the [`Lock`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Inputs(String),
    Source(usize),
    Environment(usize),
    Package(usize),
    Verification(usize),
}

type Found = Result<(), (Place, Kind)>;

/// Whether a lock may be written: names, files and URLs are safe and the same on every machine,
/// nothing is there twice, everything named is there, env ids fit. [`super::parse`] checks the same.
///
/// # Errors
///
/// The first fault; it is a bug of whoever made the lock.
pub fn check(lock: &Lock) -> Result<(), LockError> {
    check_places(lock).map_err(|(_, kind)| LockError::without_text("gpuenv.lock", kind))
}

pub(super) fn check_places(lock: &Lock) -> Found {
    inputs(lock)?;
    let mut names = BTreeSet::new();
    for (i, source) in lock.sources.iter().enumerate() {
        let at = |kind| (Place::Source(i), kind);
        self::source(source).map_err(at)?;
        if !names.insert((&source.name, source.kind == SourceKind::Channel)) {
            let name = source.name.clone();
            return Err(at(Kind::Duplicate { what: "source", name }));
        }
    }
    let mut ids = BTreeSet::new();
    for (i, package) in lock.packages.iter().enumerate() {
        let at = |kind| (Place::Package(i), kind);
        self::package(lock, package).map_err(at)?;
        if !ids.insert(&package.id) {
            let name = package.id.0.clone();
            return Err(at(Kind::Duplicate { what: "package", name }));
        }
    }
    let mut found = BTreeSet::new();
    for (i, environment) in lock.environments.iter().enumerate() {
        let at = |kind| (Place::Environment(i), kind);
        self::environment(lock, environment).map_err(at)?;
        if !found.insert(environment.closure()) {
            let name = environment.closure().to_string();
            return Err(at(Kind::Duplicate { what: "environment", name }));
        }
    }
    let found: BTreeSet<String> = found.iter().map(ToString::to_string).collect();
    let asked = asked(lock);
    if asked != found {
        let list = |names: BTreeSet<String>| match names.is_empty() {
            true => "none".to_owned(),
            false => names.into_iter().collect::<Vec<_>>().join(", "),
        };
        let kind = Kind::Platforms { asked: list(asked), found: list(found) };
        return Err((Place::Inputs("env.platforms".into()), kind));
    }
    edges(lock)?;
    for (i, environment) in lock.environments.iter().enumerate() {
        let computed = lock.compute_env_id(environment);
        if computed != environment.env_id {
            let kind = Kind::EnvId {
                platform: environment.closure().to_string(),
                written: environment.env_id,
                computed,
            };
            return Err((Place::Environment(i), kind));
        }
    }
    let mut seen = BTreeSet::new();
    for (i, verification) in lock.verifications.iter().enumerate() {
        let key = (verification.env_id, &verification.gpu, &verification.driver);
        if !seen.insert(key) {
            let name = format!(
                "{} on {} with driver {}",
                verification.env_id, verification.gpu, verification.driver
            );
            return Err((Place::Verification(i), Kind::Duplicate { what: "verification", name }));
        }
    }
    Ok(())
}

/// The environments that the inputs ask for, as [`crate::manifest::Closure`] writes them.
fn asked(lock: &Lock) -> BTreeSet<String> {
    let platforms = |value: &str| -> Vec<String> { value.split(", ").map(str::to_owned).collect() };
    let base = lock.inputs.get("env.platforms").map(|value| platforms(value)).unwrap_or_default();
    let mut asked = BTreeSet::from_iter(base);
    for (key, value) in lock.inputs_below("variants.") {
        if let Some(name) = key.strip_suffix(".platforms") {
            asked.extend(platforms(value).iter().map(|platform| format!("{platform} {name}")));
        }
    }
    asked
}

fn inputs(lock: &Lock) -> Found {
    for (key, value) in &lock.inputs {
        let at = |kind| (Place::Inputs(key.clone()), kind);
        if mask_credentials(value) != *value {
            return Err(at(Kind::Credentials { place: format!("input `{key}`") }));
        }
        if let Some(path) = key.strip_prefix("view.winners.")
            && let Err(error) = RelPath::new(path)
        {
            return Err(at(Kind::Invalid {
                what: "a path in the view",
                value: path.to_owned(),
                cause: Some(Box::new(error)),
            }));
        }
    }
    match lock.inputs.get("env.name") {
        None => Err((
            Place::Inputs("env.name".into()),
            Kind::Missing { key: "env.name", table: "[inputs]" },
        )),
        Some(name) if !is_env_name(name) => {
            Err((Place::Inputs("env.name".into()), invalid("an environment name", name)))
        }
        Some(_) => Ok(()),
    }
}

fn invalid(what: &'static str, value: &str) -> Kind {
    Kind::Invalid { what, value: mask_credentials(value), cause: None }
}

fn plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

/// A location that may travel: no credentials, no absolute path.
fn travels(text: &str, name: impl Fn() -> String) -> Result<(), Kind> {
    if !plain(text) {
        return Err(invalid("a location", text));
    }
    if mask_credentials(text) != text {
        return Err(Kind::Credentials { place: name() });
    }
    if place(text) == Location::Absolute {
        return Err(Kind::AbsolutePath { place: name() });
    }
    Ok(())
}

fn source(source: &Source) -> Result<(), Kind> {
    if !plain(&source.name) {
        return Err(invalid("the name of a source", &source.name));
    }
    travels(&source.name, || "the name of a source".into())?;
    if let Some(url) = &source.url {
        travels(url, || format!("the URL of source `{}`", mask_credentials(&source.name)))?;
    }
    Ok(())
}

/// A file name that stays in its directory.
fn safe_file_name(name: &str) -> bool {
    plain(name) && !name.contains(['/', '\\']) && !name.starts_with('.') && name.len() <= 255
}

fn package(lock: &Lock, package: &LockedPackage) -> Result<(), Kind> {
    let ending: &[&str] = match package.kind {
        ArtifactKind::Conda => &[".conda", ".tar.bz2"],
        ArtifactKind::Wheel => &[".whl"],
    };
    if !safe_file_name(&package.file) || !ending.iter().any(|e| package.file.ends_with(e)) {
        return Err(invalid("a file name of an artifact of its kind", &package.file));
    }
    // They become parts of store paths.
    for text in [Some(&package.name), Some(&package.version), package.build.as_ref()] {
        if let Some(text) = text.filter(|text| !safe_file_name(text)) {
            return Err(invalid("a name, version or build that can be part of a path", text));
        }
    }
    let name = match package.kind {
        ArtifactKind::Conda => package
            .name
            .parse::<CondaName>()
            .map(|name| name.as_normalized() == package.name)
            .map_err(|error| -> super::error::Cause { Box::new(error) }),
        ArtifactKind::Wheel => package
            .name
            .parse::<DistName>()
            .map(|name| name.as_str() == package.name)
            .map_err(|error| -> super::error::Cause { Box::new(error) }),
    };
    if !matches!(name, Ok(true)) {
        let what = "a normalized package name";
        return Err(Kind::Invalid { what, value: package.name.clone(), cause: name.err() });
    }
    let version: Option<super::error::Cause> = match package.kind {
        ArtifactKind::Conda => package
            .version
            .parse::<rattler_conda_types::Version>()
            .err()
            .map(|error| Box::new(error) as _),
        ArtifactKind::Wheel => {
            package.version.parse::<uv_pep440::Version>().err().map(|error| Box::new(error) as _)
        }
    };
    if version.is_some() {
        let what = "a version";
        return Err(Kind::Invalid { what, value: package.version.clone(), cause: version });
    }
    match package.kind {
        ArtifactKind::Conda => {
            let table = "a conda [[package]]";
            let Some(build) = &package.build else {
                return Err(Kind::Missing { key: "build", table });
            };
            let Some(subdir) = &package.subdir else {
                return Err(Kind::Missing { key: "subdir", table });
            };
            let bad = |c: char| c.is_control() || c.is_whitespace() || c == '/' || c == '\\';
            if build.is_empty() || build.contains(bad) {
                return Err(invalid("a build string", build));
            }
            if let Err(error) = subdir.parse::<Subdir>() {
                return Err(Kind::Invalid {
                    what: "a conda subdir",
                    value: subdir.clone(),
                    cause: Some(Box::new(error)),
                });
            }
        }
        ArtifactKind::Wheel => {
            for (key, value) in [("build", &package.build), ("subdir", &package.subdir)] {
                if value.is_some() {
                    let known = Vec::new();
                    let table = "a wheel [[package]]";
                    return Err(Kind::UnknownKey { key: key.into(), table, known });
                }
            }
        }
    }
    let base = package.base_id();
    let with_source = format!("{base} @{}", package.source);
    if package.id.0 != base && package.id.0 != with_source {
        return Err(Kind::Id { expected: base, found: package.id.0.clone() });
    }
    match lock.source_of(package) {
        Some(source) => {
            let direct = matches!(source.kind, SourceKind::Url | SourceKind::Path);
            if direct && package.location.is_none() {
                return Err(Kind::Missing {
                    key: "location",
                    table: "a [[package]] of a direct source",
                });
            }
        }
        None if lock.sources.iter().any(|source| source.name == package.source) => {
            return Err(Kind::WrongSource {
                package: package.id.0.clone(),
                source_name: package.source.clone(),
            });
        }
        None => {
            return Err(Kind::Dangling {
                what: "the source",
                name: package.source.clone(),
                by: format!("package `{}`", package.id),
            });
        }
    }
    if let Some(location) = &package.location {
        travels(location, || format!("the location of package `{}`", package.id))?;
    }
    for text in package.requires.iter().chain(&package.edges) {
        if !plain(text) {
            return Err(invalid("a requirement or edge", text));
        }
        if mask_credentials(text) != *text {
            let place = format!("a requirement of package `{}`", package.id);
            return Err(Kind::Credentials { place });
        }
    }
    Ok(())
}

fn environment(lock: &Lock, environment: &LockedEnvironment) -> Result<(), Kind> {
    if let Some(python) = &environment.host_python
        && let Err(error) = python.parse::<uv_pep440::Version>()
    {
        return Err(Kind::Invalid {
            what: "a Python version",
            value: python.clone(),
            cause: Some(Box::new(error)),
        });
    }
    for virtual_package in &environment.virtual_packages {
        let good = virtual_package.starts_with("__") && parse_virtual(virtual_package).is_some();
        if !good {
            return Err(invalid("a virtual package (`__name=version=build`)", virtual_package));
        }
    }
    let by_id = lock.by_id();
    let mut ids = BTreeSet::new();
    let mut names = BTreeSet::new();
    for id in &environment.packages {
        let Some(package) = by_id.get(id) else {
            return Err(Kind::Dangling {
                what: "the package",
                name: id.0.clone(),
                by: format!("the environment for {}", environment.closure()),
            });
        };
        if !ids.insert(id) || !names.insert((package.kind, &package.name)) {
            return Err(Kind::Duplicate { what: "package", name: package.name.clone() });
        }
    }
    Ok(())
}

/// `__glibc=2.28=0`.
fn parse_virtual(text: &str) -> Option<GenericVirtualPackage> {
    let mut parts = text.splitn(3, '=');
    let name = parts.next()?.parse().ok()?;
    let version = parts.next()?.parse().ok()?;
    let build_string = parts.next().filter(|build| !build.is_empty())?.parse().ok()?;
    Some(GenericVirtualPackage { name, version, build_string })
}

/// Every package is in an environment, and every edge leads somewhere in one that has it.
fn edges(lock: &Lock) -> Found {
    let by_id = lock.by_id();
    let mut names: Vec<BTreeSet<(ArtifactKind, &str)>> = Vec::new();
    let mut homes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, environment) in lock.environments.iter().enumerate() {
        let packages = environment.packages.iter().filter_map(|id| by_id.get(id));
        names.push(packages.clone().map(|p| (p.kind, p.name.as_str())).collect());
        packages.for_each(|package| homes.entry(&package.id.0).or_default().push(i));
    }
    for (i, package) in lock.packages.iter().enumerate() {
        let Some(homes) = homes.get(&*package.id.0) else {
            return Err((Place::Package(i), Kind::Orphan(package.id.0.clone())));
        };
        for edge in &package.edges {
            let target = edge_target(package.kind, edge);
            if !homes.iter().any(|home| names[*home].contains(&target)) {
                let kind = Kind::Dangling {
                    what: "the edge to",
                    name: edge.clone(),
                    by: format!("package `{}`", package.id),
                };
                return Err((Place::Package(i), kind));
            }
        }
    }
    Ok(())
}
