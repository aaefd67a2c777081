//! What a lock says: no time stamp, no user name, no absolute path, no mirror.

use std::collections::BTreeMap;
use std::fmt;

use rattler_conda_types::Subdir as Platform;

use crate::hash::{Sha256, ShortHash};
use crate::manifest::{Activation, Closure, VariantName, ViewOptions};
use crate::relpath::{RelPath, RelPathError};

/// The lock format this program writes.
pub const VERSION: u32 = 1;

/// A whole `gpuenv.lock`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// What of env.toml mattered, one normalized fact a key (`dependencies.python` → `3.9.*`),
    /// so that "stale because" can name what changed and how.
    pub inputs: BTreeMap<String, String>,
    /// Where artifacts come from, sorted by name.
    pub sources: Vec<Source>,
    /// One closure a platform and variant, sorted by platform name, then variant.
    pub environments: Vec<LockedEnvironment>,
    /// All artifacts of all environments, sorted by id.
    pub packages: Vec<LockedPackage>,
    /// Where the environments were seen working, sorted.
    pub verifications: Vec<Verification>,
}

/// A place artifacts come from. The tool's defaults (the default wheel index; a channel named
/// without URL) carry no URL: the machine's configuration says where they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// `conda-forge`, `pypi`, or the name in env.toml.
    pub name: String,
    /// What protocol it speaks.
    pub kind: SourceKind,
    /// Set where env.toml gives a URL or a relative path; never with credentials.
    pub url: Option<String>,
}

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// A conda channel: `<subdir>/repodata.json` and packages beside it.
    Channel,
    /// A simple wheel index (PEP 503, PEP 691).
    Index,
    /// A page of links, or a directory of wheels.
    FindLinks,
    /// A single file at a URL.
    Url,
    /// A single file at a path relative to the project.
    Path,
}

/// The format of view manifests where a lock does not say one.
pub const FIRST_VIEW_FORMAT: u32 = 1;

/// The closure for one platform and variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedEnvironment {
    /// conda subdir.
    pub platform: Platform,
    /// The variant of env.toml; `None`: the environment that is none.
    pub variant: Option<VariantName>,
    /// Hash over all that decides the view; see `store-layout/README.md`.
    pub env_id: ShortHash,
    /// Declared host interpreter (`3.11`), or `None` with conda's Python or none at all.
    pub host_python: Option<String>,
    /// Virtual packages assumed, sorted, as `__glibc=2.28=0`.
    pub virtual_packages: Vec<String>,
    /// Ids of the packages in link order: a package stands after all it requires.
    pub packages: Vec<PackageId>,
    /// Hash of the view manifest, once realized.
    pub view_hash: Option<Sha256>,
    /// Format of the view manifest that `view_hash` is of: hashes of two formats say nothing
    /// about each other.
    pub view_format: u32,
}

impl LockedEnvironment {
    /// What names it.
    pub fn closure(&self) -> Closure {
        Closure { platform: self.platform, variant: self.variant.clone() }
    }

    /// Whether it is for GPUs: it was resolved for a CUDA line.
    pub fn has_gpu(&self) -> bool {
        self.virtual_packages.iter().any(|package| package.starts_with("__cuda="))
    }
}

impl SourceKind {
    /// All kinds.
    pub const ALL: [SourceKind; 5] = [
        SourceKind::Channel,
        SourceKind::Index,
        SourceKind::FindLinks,
        SourceKind::Url,
        SourceKind::Path,
    ];

    /// As a lock writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            SourceKind::Channel => "channel",
            SourceKind::Index => "index",
            SourceKind::FindLinks => "find-links",
            SourceKind::Url => "url",
            SourceKind::Path => "path",
        }
    }

    /// The one called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        SourceKind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Names a package within one lock: a wheel's file name, or `subdir/file name` of a conda
/// package; where two sources give different files that name, ` @source` follows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageId(pub String);

impl fmt::Display for PackageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One artifact, pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedPackage {
    /// Its id.
    pub id: PackageId,
    /// What kind of artifact.
    pub kind: ArtifactKind,
    /// Name, normalized as its world does.
    pub name: String,
    /// Version as its world writes it.
    pub version: String,
    /// Conda build string.
    pub build: Option<String>,
    /// Conda subdir (`linux-64`, `noarch`).
    pub subdir: Option<String>,
    /// File name.
    pub file: String,
    /// Name of its [`Source`].
    pub source: String,
    /// Where in the source, when the file name (with subdir) does not say it: the URL of a
    /// direct reference, or the relative path of a local wheel.
    pub location: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Digest of the file.
    pub sha256: Sha256,
    /// Whether the digest was computed by gpuenv because the source declared none.
    pub hash_computed: bool,
    /// NAR hash of the unpacked tree, once known.
    pub nar: Option<Sha256>,
    /// Requirements that led to other packages of the closure, sorted, as their world writes them.
    pub requires: Vec<String>,
    /// Names of the packages those resolved to, sorted: the edges of the graph. Wheel and
    /// conda names share this list; a wheel's edge to a conda package is `conda:name`, a
    /// conda package's to a wheel `wheel:name`.
    pub edges: Vec<String>,
    /// Why a yanked file was taken all the same.
    pub yanked: Option<String>,
}

/// Which world an artifact is from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ArtifactKind {
    /// `.conda` or `.tar.bz2`.
    Conda,
    /// `.whl`.
    Wheel,
}

impl ArtifactKind {
    /// As a lock writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            ArtifactKind::Conda => "conda",
            ArtifactKind::Wheel => "wheel",
        }
    }

    /// The one called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        [ArtifactKind::Conda, ArtifactKind::Wheel].into_iter().find(|kind| kind.as_str() == name)
    }
}

impl LockedPackage {
    /// The id this package has where no other source gives a different file of that name: the
    /// file name, for conda after `subdir/`.
    pub fn base_id(&self) -> String {
        match &self.subdir {
            Some(subdir) => format!("{subdir}/{}", self.file),
            None => self.file.clone(),
        }
    }
}

impl Lock {
    /// The name of the environment (`[env] name`).
    pub fn name(&self) -> &str {
        // A lock without it does not parse.
        self.inputs.get("env.name").map_or("", String::as_str)
    }

    /// The environment called `closure`.
    pub fn environment(&self, closure: &Closure) -> Option<&LockedEnvironment> {
        self.environments.iter().find(|environment| {
            environment.platform == closure.platform && environment.variant == closure.variant
        })
    }

    /// What names its environments, in their order.
    pub fn closures(&self) -> Vec<Closure> {
        self.environments.iter().map(LockedEnvironment::closure).collect()
    }

    /// The package called `id`.
    pub fn package(&self, id: &PackageId) -> Option<&LockedPackage> {
        self.packages.iter().find(|package| package.id == *id)
    }

    /// All packages by id.
    pub fn by_id(&self) -> BTreeMap<&PackageId, &LockedPackage> {
        self.packages.iter().map(|package| (&package.id, package)).collect()
    }

    /// The packages of `environment`, in link order.
    pub fn packages_of(
        &self,
        environment: &LockedEnvironment,
    ) -> impl Iterator<Item = &LockedPackage> + use<'_> {
        let by_id = self.by_id();
        let found: Vec<_> =
            environment.packages.iter().filter_map(|id| by_id.get(id).copied()).collect();
        found.into_iter()
    }

    /// The source of `package`: conda packages come from channels, wheels from the others, so one
    /// name may stand for a channel and for an index.
    pub fn source_of(&self, package: &LockedPackage) -> Option<&Source> {
        let conda = package.kind == ArtifactKind::Conda;
        self.sources.iter().find(|source| {
            source.name == package.source && (source.kind == SourceKind::Channel) == conda
        })
    }

    /// The inputs whose keys start with `prefix`, by the rest of the key.
    pub fn inputs_below<'l>(&'l self, prefix: &str) -> BTreeMap<&'l str, &'l str> {
        self.inputs
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(prefix)?, value.as_str())))
            .collect()
    }

    /// `[activation]`, from the inputs: a lock alone suffices to build its views.
    pub fn activation(&self) -> Activation {
        let env = self.inputs_below("activation.env.");
        Activation { env: env.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect() }
    }

    /// `[view]`, from the inputs.
    ///
    /// # Errors
    ///
    /// A winner's path that is none; [`super::check`] and [`super::parse`] refuse it too.
    pub fn view_options(&self) -> Result<ViewOptions, RelPathError> {
        let names = |key: &str| {
            self.inputs_below(&format!("view.{key}.")).into_keys().map(str::to_owned).collect()
        };
        Ok(ViewOptions {
            winners: self
                .inputs_below("view.winners.")
                .into_iter()
                .map(|(path, owner)| Ok((RelPath::new(path)?, owner.to_owned())))
                .collect::<Result<_, _>>()?,
            allow_external_links: names("allow-external-links"),
            skip_link_scripts: names("skip-link-scripts"),
            allow_duplicate_sonames: names("allow-duplicate-sonames"),
        })
    }

    /// Brings all parts into the order of the file. What has an order of its own (link order,
    /// checks) keeps it.
    pub fn sort(&mut self) {
        self.sources.sort();
        self.environments.sort_by_key(LockedEnvironment::closure);
        for environment in &mut self.environments {
            environment.virtual_packages.sort();
            environment.virtual_packages.dedup();
        }
        self.packages.sort_by(|a, b| a.id.cmp(&b.id));
        for package in &mut self.packages {
            for list in [&mut package.requires, &mut package.edges] {
                list.sort();
                list.dedup();
            }
        }
        self.verifications.sort();
    }

    /// Sets every env id to what the contents give; for whoever makes a lock.
    pub fn set_env_ids(&mut self) {
        let ids: Vec<ShortHash> =
            self.environments.iter().map(|env| self.compute_env_id(env)).collect();
        for (environment, id) in self.environments.iter_mut().zip(ids) {
            environment.env_id = id;
        }
    }

    /// Drops verifications of environments that the lock no longer has.
    pub fn drop_foreign_verifications(&mut self) {
        let ids: Vec<ShortHash> = self.environments.iter().map(|env| env.env_id).collect();
        self.verifications.retain(|verification| ids.contains(&verification.env_id));
    }
}

/// An environment seen working on a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verification {
    /// The environment.
    pub env_id: ShortHash,
    /// GPU model, or `none`.
    pub gpu: String,
    /// Driver version, or `none`.
    pub driver: String,
    /// Outcome of each check, in order run: name and `passed` / `failed (…)`.
    pub checks: Vec<(String, String)>,
    /// Facts and numbers, sorted by name.
    pub facts: BTreeMap<String, String>,
}
