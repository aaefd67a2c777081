//! `list`, `tree`, `why`: what the lock says, as data that can be printed.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::error::{Exit, Report, Result};
use crate::lockfile::{ArtifactKind, Lock, LockedEnvironment, LockedPackage};

/// One environment of the lock.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// Platform.
    pub platform: String,
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

fn kind(package: &LockedPackage) -> &'static str {
    match package.kind {
        ArtifactKind::Conda => "conda",
        ArtifactKind::Wheel => "wheel",
    }
}

/// All environments, packages by name.
pub fn list(lock: &Lock) -> Vec<Listing> {
    lock.environments
        .iter()
        .map(|environment| {
            let mut packages: Vec<&LockedPackage> = lock.closure(environment);
            packages.sort_by_key(|p| (&p.name, p.kind));
            Listing {
                platform: environment.platform.to_string(),
                size: packages.iter().map(|p| p.size).sum(),
                packages: packages
                    .into_iter()
                    .map(|p| Row {
                        name: p.name.clone(),
                        version: p.version.clone(),
                        build: p.build.clone(),
                        kind: kind(p),
                        size: p.size,
                        source: p.source.clone(),
                        sha256: p.sha256.to_string(),
                    })
                    .collect(),
            }
        })
        .collect()
}

/// A forest of one environment.
#[derive(Clone, Debug, Serialize)]
pub struct Tree {
    /// Platform.
    pub platform: String,
    /// What stands at the top.
    pub roots: Vec<Node>,
}

/// One package in a [`Tree`].
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// `conda` or `wheel`.
    pub kind: &'static str,
    /// Shown in full above already: children are left out.
    pub seen: bool,
    /// What it requires.
    pub children: Vec<Node>,
}
