//! `list`, `tree`, `why`: what the lock says, as data that can be printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::error::{Exit, Report, Result};
use crate::lockfile::{self, ArtifactKind, Graph, Lock, LockedEnvironment, LockedPackage, Node};

/// One environment of the lock.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// Platform.
    pub platform: String,
    /// Variant of env.toml; `None`: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Bytes of all artifacts.
    pub size: u64,
    /// Packages by name.
    pub packages: Vec<Row>,
}

/// One package.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Conda build.
    pub build: Option<String>,
    /// `conda` or `wheel`.
    pub kind: &'static str,
    /// Bytes of the artifact.
    pub size: u64,
    /// Source.
    pub source: String,
    /// SHA-256 of the artifact.
    pub sha256: String,
}

/// The lock does not hold a name.
#[derive(Debug, thiserror::Error)]
#[error("gpuenv.lock holds no package named `{name}`")]
pub struct UnknownName {
    name: String,
    near: Option<String>,
}

impl UnknownName {
    /// For `name`, which is none of `known`.
    pub(super) fn among<'n>(known: impl IntoIterator<Item = &'n str>, name: &str) -> Self {
        let near = known
            .into_iter()
            .map(|known| (strsim::jaro_winkler(known, name), known))
            .filter(|(score, _)| *score > 0.8)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, known)| known.to_owned());
        UnknownName { name: name.to_owned(), near }
    }
}

impl Report for UnknownName {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        Some(match &self.near {
            Some(near) => format!("did you mean `{near}`? `gpuenv list` shows all"),
            None => "`gpuenv list` shows all".into(),
        })
    }
}

/// `linux-64`, or `linux-64 cpu`.
fn place(platform: &str, variant: &Option<String>) -> String {
    match variant {
        Some(variant) => format!("{platform} {variant}"),
        None => platform.to_owned(),
    }
}

impl Listing {
    /// What the environment is called: `linux-64`, or `linux-64 cpu`.
    pub fn place(&self) -> String {
        place(&self.platform, &self.variant)
    }
}

/// The environments of `lock`, or those of `variant`.
fn environments<'l>(
    lock: &'l Lock,
    variant: Option<&str>,
) -> Result<impl Iterator<Item = &'l LockedEnvironment> + use<'l>> {
    if let Some(name) = variant {
        super::variant::require(&lock.closures(), None, name)?;
    }
    let variant = variant.map(str::to_owned);
    let wanted = move |environment: &&LockedEnvironment| {
        variant.as_deref().is_none_or(|name| environment.closure().variant_name() == name)
    };
    Ok(lock.environments.iter().filter(wanted))
}

/// All environments, or those of `variant`, packages by name.
pub fn list(lock: &Lock, variant: Option<&str>) -> Result<Vec<Listing>> {
    Ok(environments(lock, variant)?
        .map(|environment| {
            let mut packages: Vec<&LockedPackage> = lock.packages_of(environment).collect();
            packages.sort_by_key(|p| (&p.name, p.kind));
            Listing {
                platform: environment.platform.to_string(),
                variant: environment.variant.as_ref().map(ToString::to_string),
                size: packages.iter().map(|p| p.size).sum(),
                packages: packages
                    .into_iter()
                    .map(|p| Row {
                        name: p.name.clone(),
                        version: p.version.clone(),
                        build: p.build.clone(),
                        kind: p.kind.as_str(),
                        size: p.size,
                        source: p.source.clone(),
                        sha256: p.sha256.to_string(),
                    })
                    .collect(),
            }
        })
        .collect())
}

/// A forest of one environment.
#[derive(Clone, Debug, Serialize)]
pub struct Tree {
    /// Platform.
    pub platform: String,
    /// Variant of env.toml; `None`: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// What stands at the top.
    pub roots: Vec<Branch>,
}

/// One package in a [`Tree`].
#[derive(Clone, Debug, Serialize)]
pub struct Branch {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// `conda` or `wheel`.
    pub kind: &'static str,
    /// What it requires is shown at an earlier place.
    pub repeated: bool,
    /// What it requires.
    pub children: Vec<Branch>,
}

impl From<lockfile::Tree<'_>> for Branch {
    fn from(tree: lockfile::Tree<'_>) -> Self {
        Branch {
            name: tree.package.name.clone(),
            version: tree.package.version.clone(),
            kind: tree.package.kind.as_str(),
            repeated: tree.repeated,
            children: tree.children.into_iter().map(Branch::from).collect(),
        }
    }
}

/// The packages of each environment, or of those of `variant`, below what env.toml asks for, or
/// below `names`.
pub fn tree(lock: &Lock, variant: Option<&str>, names: &[String]) -> Result<Vec<Tree>> {
    let mut found = BTreeSet::new();
    let mut out = Vec::new();
    for environment in environments(lock, variant)? {
        let graph = lock.graph(environment);
        let roots = if names.is_empty() {
            graph.tree()
        } else {
            let mut nodes = Vec::new();
            for name in names {
                let here = graph.find(name);
                if !here.is_empty() {
                    found.insert(name);
                }
                nodes.extend(here);
            }
            graph.tree_from(&nodes)
        };
        out.push(Tree {
            platform: environment.platform.to_string(),
            variant: environment.variant.as_ref().map(ToString::to_string),
            roots: roots.into_iter().map(Branch::from).collect(),
        });
    }
    match names.iter().find(|name| !found.contains(name)) {
        Some(name) => Err(unknown(lock, name).into()),
        None => Ok(out),
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", place(&self.platform, &self.variant))?;
        branches(f, &self.roots, "")
    }
}

fn branches(f: &mut fmt::Formatter<'_>, list: &[Branch], before: &str) -> fmt::Result {
    for (at, branch) in list.iter().enumerate() {
        let last = at + 1 == list.len();
        let (fork, below) = if last { ("└── ", "    ") } else { ("├── ", "│   ") };
        let more = if branch.repeated { " (shown above)" } else { "" };
        writeln!(f, "{before}{fork}{} {} [{}]{more}", branch.name, branch.version, branch.kind)?;
        branches(f, &branch.children, &format!("{before}{below}"))?;
    }
    Ok(())
}

/// Why a package is in one environment.
#[derive(Clone, Debug, Serialize)]
pub struct Why {
    /// Platform.
    pub platform: String,
    /// Variant of env.toml; `None`: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The package.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `conda` or `wheel`.
    pub kind: &'static str,
    /// From each root that leads to it, a shortest chain.
    pub chains: Vec<Chain>,
}

/// One reason.
#[derive(Clone, Debug, Serialize)]
pub struct Chain {
    /// Whether env.toml asks for the first one, or gpuenv adds it.
    pub asked_for: bool,
    /// What env.toml asks for, as the lock's inputs write it.
    pub asked: Option<String>,
    /// From the root to the package, each as `name version`, with the requirement that led on.
    pub steps: Vec<Step>,
}

/// One link of a [`Chain`].
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// The requirement, as its own metadata writes it, that leads to the next step.
    pub requires: Option<String>,
}

/// Why `name` is in each environment that has it, or in those of `variant`.
pub fn why(lock: &Lock, variant: Option<&str>, name: &str) -> Result<Vec<Why>> {
    let mut out = Vec::new();
    for environment in environments(lock, variant)? {
        let graph = lock.graph(environment);
        let asked = lock.requirements(environment);
        for node in graph.find(name) {
            let package = graph.package(node);
            let chains =
                graph.why(node).into_iter().map(|path| chain(&asked, &graph, &path)).collect();
            out.push(Why {
                platform: environment.platform.to_string(),
                variant: environment.variant.as_ref().map(ToString::to_string),
                name: package.name.clone(),
                version: package.version.clone(),
                kind: package.kind.as_str(),
                chains,
            });
        }
    }
    if out.is_empty() { Err(unknown(lock, name).into()) } else { Ok(out) }
}

fn chain(asked: &BTreeMap<(ArtifactKind, &str), &str>, graph: &Graph<'_>, path: &[Node]) -> Chain {
    let steps = path
        .iter()
        .enumerate()
        .map(|(at, node)| {
            let package = graph.package(*node);
            let next = path.get(at + 1).map(|next| graph.package(*next));
            Step {
                name: package.name.clone(),
                version: package.version.clone(),
                requires: next.and_then(|next| requirement(package, next)),
            }
        })
        .collect();
    let root = path.first().filter(|root| graph.is_asked_for(**root));
    let asked = root.and_then(|root| {
        let package = graph.package(*root);
        let name = package.name.as_str();
        let other = match package.kind {
            ArtifactKind::Conda => ArtifactKind::Wheel,
            ArtifactKind::Wheel => ArtifactKind::Conda,
        };
        // Of a name in both tables, each world's own.
        let line = asked.get(&(package.kind, name)).or(asked.get(&(other, name)));
        line.map(|line| (*line).to_owned())
    });
    Chain { asked_for: root.is_some(), asked, steps }
}

/// The line of `package`'s metadata that names `next`.
fn requirement(package: &LockedPackage, next: &LockedPackage) -> Option<String> {
    let normal = |text: &str| text.to_lowercase().replace(['_', '.'], "-");
    let names = |line: &&String| {
        let end = line.find(|c: char| !(c.is_alphanumeric() || "-_.".contains(c)));
        normal(&line[..end.unwrap_or(line.len())]) == normal(&next.name)
    };
    package.requires.iter().find(names).cloned()
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = place(&self.platform, &self.variant);
        writeln!(f, "{} {} [{}] on {place}", self.name, self.version, self.kind)?;
        for chain in &self.chains {
            let by = if chain.asked_for { "env.toml" } else { "gpuenv" };
            let mut line = format!("  {by} asks for ");
            for (at, step) in chain.steps.iter().enumerate() {
                if at > 0 {
                    line += ", which requires ";
                    // The requirement says more than the bare name.
                    let led = &chain.steps[at - 1].requires;
                    line += &led
                        .as_ref()
                        .map_or(step.name.clone(), |l| format!("`{l}`: {}", step.name));
                    line += &format!(" {}", step.version);
                } else {
                    line += &match &chain.asked {
                        Some(asked) => format!("`{} {asked}`: {0} {}", step.name, step.version),
                        None => format!("{} {}", step.name, step.version),
                    };
                }
            }
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

fn unknown(lock: &Lock, name: &str) -> UnknownName {
    UnknownName::among(lock.packages.iter().map(|p| p.name.as_str()), name)
}
