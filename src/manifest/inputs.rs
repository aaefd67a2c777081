//! The facts of env.toml that a lock depends on.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rattler_conda_types::NamelessMatchSpec;
use uv_pep440::VersionSpecifiers;

use super::location::lock_location;
use super::model::{
    CondaDependency, DependencyOverride, Gpu, IndexSource, Manifest, OVERRIDE_INPUT, Prereleases,
    SystemRequirements, WheelDependency, WheelRequirementSource,
};
use super::variants::{Variant, VariantGpu};

/// Everything in env.toml that can change the lock, one normalized fact a key, so that
/// [`crate::lockfile::stale`] can say what changed and how.
///
/// Two texts that mean the same give the same facts: order of tables and of packages, comments,
/// spelling of names and blanks do not show. `[verify]` is not in it: it changes no lock.
/// Values hold no absolute path (a directory given by one appears as `dir:NAME`) and no
/// credentials (an env.toml with credentials does not parse). A key that has its default value is
/// left out, so that a later version of gpuenv with another default does not make locks stale.
pub fn inputs(manifest: &Manifest) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut put = |key: String, value: String| {
        facts.insert(key, value);
    };

    put("env.name".into(), manifest.env.name.clone());
    let platforms: Vec<&str> = manifest.env.platforms.iter().map(|p| p.as_str()).collect();
    put("env.platforms".into(), platforms.join(", "));
    if !manifest.env.channels.is_empty() {
        put("env.channels".into(), manifest.channel_names().join(", "));
    }
    if let Some(moment) = &manifest.env.exclude_newer.all {
        put("env.exclude-newer".into(), moment.to_string());
    }
    for (name, moment) in &manifest.env.exclude_newer.packages {
        let value = moment.as_ref().map_or("false".into(), ToString::to_string);
        put(format!("env.exclude-newer-package.{name}"), value);
    }
    for dependency in &manifest.dependencies {
        put(
            format!("dependencies.{}", dependency.name.as_normalized()),
            conda_requirement(&dependency.spec),
        );
    }
    for dependency in &manifest.pypi_dependencies {
        put(format!("pypi-dependencies.{}", dependency.name), wheel_requirement(dependency));
    }

    let options = &manifest.pypi_options;
    if let Some(index) = &options.index {
        put("pypi-options.index".into(), lock_location(index.value.as_str()).name);
    }
    for (name, source) in &options.indexes {
        let value = match source {
            IndexSource::Simple(url) => format!("index {}", lock_location(url.as_str()).name),
            IndexSource::FindLinks(place) => format!("find-links {}", find_links_name(place)),
        };
        put(format!("pypi-options.indexes.{name}"), value);
    }
    if !options.find_links.is_empty() {
        let places: Vec<String> =
            options.find_links.iter().map(|place| find_links_name(&place.value)).collect();
        put("pypi-options.find-links".into(), places.join(", "));
    }
    if options.without_pip {
        put("pypi-options.pip".into(), "false".into());
    }
    match options.prereleases {
        Prereleases::IfNecessaryOrExplicit => {}
        Prereleases::Allow => put("pypi-options.prereleases".into(), "allow".into()),
        Prereleases::Disallow => put("pypi-options.prereleases".into(), "disallow".into()),
    }
    for (name, replacement) in &options.overrides {
        let value = match replacement {
            DependencyOverride::Drop => "false".into(),
            DependencyOverride::Specifiers(bound) => specifiers(bound),
            DependencyOverride::Replace(other, bound) => format!("{other} {}", specifiers(bound)),
        };
        put(format!("pypi-options.dependency-overrides.{name}"), value);
    }
    for (name, bound) in &options.constraints {
        put(format!("pypi-options.constraints.{name}"), specifiers(bound));
    }
    for (name, distributions) in &manifest.conda_pypi_map {
        let names: Vec<&str> = distributions.iter().map(|name| name.as_str()).collect();
        put(format!("conda-pypi-map.{}", name.as_normalized()), names.join(", "));
    }

    if let Some(gpu) = &manifest.gpu {
        gpu_facts(gpu, "gpu", &mut put);
    }
    if let Some(host) = &manifest.host {
        put("host.python".into(), host.python.to_string());
    }
    let default = SystemRequirements::default();
    let system = &manifest.system;
    if system.glibc != default.glibc {
        put("system-requirements.libc".into(), format!("{}.{}", system.glibc.0, system.glibc.1));
    }
    if system.linux != default.linux {
        put("system-requirements.linux".into(), system.linux.to_string());
    }
    if let Some((major, minor)) = system.macos {
        put("system-requirements.macos".into(), format!("{major}.{minor}"));
    }
    if let Some(archspec) = &system.archspec {
        put("system-requirements.archspec".into(), archspec.clone());
    }
    for (name, value) in &manifest.virtual_overrides {
        put(format!("{OVERRIDE_INPUT}{name}"), value.clone().unwrap_or_default());
    }
    for (name, value) in &manifest.activation.env {
        put(format!("activation.env.{name}"), value.clone());
    }
    for (path, owner) in &manifest.view.winners {
        put(format!("view.winners.{path}"), owner.clone());
    }
    for (key, names) in [
        ("allow-external-links", &manifest.view.allow_external_links),
        ("skip-link-scripts", &manifest.view.skip_link_scripts),
        ("allow-duplicate-sonames", &manifest.view.allow_duplicate_sonames),
    ] {
        for name in names {
            put(format!("view.{key}.{name}"), "true".into());
        }
    }
    for (name, variant) in &manifest.variants {
        variant_facts(variant, &format!("variants.{name}"), &mut put);
    }
    facts
}

fn gpu_facts(gpu: &Gpu, at: &str, put: &mut dyn FnMut(String, String)) {
    put(format!("{at}.cuda"), format!("{}.{}", gpu.cuda.0, gpu.cuda.1));
    if let Some(driver) = &gpu.driver {
        put(format!("{at}.driver"), driver.to_string());
    }
    if gpu.mixed {
        put(format!("{at}.allow-mixed-cuda"), "true".into());
    }
    if !gpu.archs.is_empty() {
        let archs: Vec<String> =
            gpu.archs.iter().map(|(major, minor)| format!("{major}.{minor}")).collect();
        put(format!("{at}.archs"), archs.join(", "));
    }
}

/// The platforms are always there: they say that there is such a variant.
fn variant_facts(variant: &Variant, at: &str, put: &mut dyn FnMut(String, String)) {
    let platforms: Vec<&str> = variant.platforms.iter().map(|p| p.as_str()).collect();
    put(format!("{at}.platforms"), platforms.join(", "));
    match &variant.gpu {
        VariantGpu::Same => {}
        VariantGpu::Without => put(format!("{at}.gpu"), "false".into()),
        VariantGpu::Other(gpu) => gpu_facts(gpu, &format!("{at}.gpu"), put),
    }
    for line in &variant.dependencies {
        let key = format!("{at}.dependencies.{}", line.name.as_normalized());
        put(key, conda_requirement(&line.spec));
    }
    for name in &variant.without {
        put(format!("{at}.dependencies.{}", name.value.as_normalized()), "false".into());
    }
    for line in &variant.pypi_dependencies {
        put(format!("{at}.pypi-dependencies.{}", line.name), wheel_requirement(line));
    }
    for name in &variant.without_pypi {
        put(format!("{at}.pypi-dependencies.{}", name.value), "false".into());
    }
}

impl Manifest {
    /// The channels by the names they have in a lock, in priority order; no two are equal.
    pub fn channel_names(&self) -> Vec<String> {
        self.env.channels.iter().map(|channel| lock_location(&channel.value).name).collect()
    }
}

impl CondaDependency {
    /// The requirement in words, as [`inputs`] writes it, without the name.
    pub fn requirement(&self) -> String {
        conda_requirement(&self.spec)
    }
}

impl WheelDependency {
    /// The requirement in words, as [`inputs`] writes it, without the name.
    pub fn requirement(&self) -> String {
        wheel_requirement(self)
    }
}

/// A find-links place: a bare `wheels` is a directory there, not a name.
pub(super) fn find_links_name(written: &str) -> String {
    match super::location::place(written) {
        super::location::Place::Name => lock_location(&format!("./{written}")).name,
        _ => lock_location(written).name,
    }
}

fn specifiers(bound: &VersionSpecifiers) -> String {
    match bound.is_empty() {
        true => "*".into(),
        false => bound.to_string(),
    }
}

/// Version, then whatever else is asked for. Not rattler's `Display`, which writes a channel by
/// the URL it has on this machine.
fn conda_requirement(spec: &NamelessMatchSpec) -> String {
    let mut out = match &spec.version {
        Some(version) => version.to_string(),
        None => "*".into(),
    };
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _infallible = write!(out, " {key}={value}");
        }
    };
    add("build", spec.build.as_ref().map(ToString::to_string));
    add("build-number", spec.build_number.as_ref().map(ToString::to_string));
    let channel = spec.channel.as_ref().and_then(|channel| channel.name.as_deref());
    add("channel", channel.map(|name| lock_location(name).name));
    add("subdir", spec.subdir.clone());
    add("file-name", spec.file_name.clone());
    add("md5", spec.md5.map(|digest| hex(&digest)));
    add("sha256", spec.sha256.map(|digest| hex(&digest)));
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn wheel_requirement(dependency: &WheelDependency) -> String {
    let mut out = String::new();
    if !dependency.extras.is_empty() {
        let extras: Vec<&str> = dependency.extras.iter().map(|extra| extra.as_str()).collect();
        out = format!("[{}] ", extras.join(","));
    }
    match &dependency.source {
        WheelRequirementSource::Index { specifiers: bound, index } => {
            out.push_str(&specifiers(bound));
            if let Some(index) = index {
                let _infallible = write!(out, " from {index}");
            }
        }
        WheelRequirementSource::Url { url, sha256 } => {
            let _infallible = write!(out, "@ {url}");
            if let Some(sha256) = sha256 {
                let _infallible = write!(out, "#sha256={sha256}");
            }
        }
        WheelRequirementSource::Path(path) => {
            let _infallible = write!(out, "@ ./{}", path.display());
        }
    }
    if let Some(marker) = dependency.marker.contents() {
        let _infallible = write!(out, " ; {marker}");
    }
    out
}
