//! From env.toml to what the solver is asked, for one platform.

use rattler_conda_types::{
    GenericVirtualPackage, MatchSpec, PackageName as CondaName, Subdir as Platform,
    Version as CondaVersion,
};
use uv_pep440::VersionSpecifiers;
use uv_pep508::MarkerTree;

use super::overrides;
use crate::lockfile::{ArtifactKind, Lock, Pin};
use crate::manifest::{Closure, Manifest, WheelRequirementSource};
use crate::resolve::{
    Asker, CondaRequirement, GpuTarget, Keep, KeptWheel, Problem, WheelOrigin, WheelRequirement,
};

/// The problem for `platform`, with what is kept where it still fits.
pub fn problem(manifest: &Manifest, platform: Platform, keep: Keep) -> Problem {
    let conda = manifest
        .dependencies
        .iter()
        .map(|d| CondaRequirement {
            spec: MatchSpec::from_nameless(d.spec.clone(), d.name.clone().into()),
            asker: Asker::Manifest(d.span.clone()),
        })
        .collect();
    let mut wheels: Vec<WheelRequirement> = manifest
        .pypi_dependencies
        .iter()
        .map(|d| {
            let (specifiers, origin) = match &d.source {
                WheelRequirementSource::Index { specifiers, index: None } => {
                    (specifiers.clone(), WheelOrigin::Default)
                }
                WheelRequirementSource::Index { specifiers, index: Some(name) } => {
                    (specifiers.clone(), WheelOrigin::Index(name.clone()))
                }
                WheelRequirementSource::Url { .. } | WheelRequirementSource::Path(_) => {
                    (VersionSpecifiers::empty(), WheelOrigin::Direct(d.number))
                }
            };
            WheelRequirement {
                name: d.name.clone(),
                extras: d.extras.clone(),
                specifiers,
                origin,
                marker: d.marker,
                asker: Asker::Manifest(d.span.clone()),
            }
        })
        .collect();
    wheels.extend(pip(manifest));
    Problem {
        platform,
        virtual_packages: virtual_packages(manifest, platform),
        glibc: overrides::glibc(manifest, platform),
        host_python: manifest.host.as_ref().map(|h| h.python.clone()),
        channels: manifest.channel_names(),
        conda,
        wheels,
        indexes: manifest.pypi_options.indexes.keys().cloned().collect(),
        constraints: manifest.pypi_options.constraints.clone(),
        overrides: manifest.pypi_options.overrides.clone(),
        prereleases: manifest.pypi_options.prereleases,
        conda_pypi_map: manifest.conda_pypi_map.clone(),
        gpu: gpu(manifest, platform),
        exclude_newer: manifest.env.exclude_newer.clone(),
        keep,
    }
}

/// The GPUs that the environment is for. There is no CUDA on macOS.
fn gpu(manifest: &Manifest, platform: Platform) -> Option<GpuTarget> {
    let gpu = manifest.gpu.as_ref().filter(|_| !platform.is_osx())?;
    Some(GpuTarget {
        cuda: gpu.cuda,
        driver: gpu.driver.clone(),
        archs: gpu.archs.clone(),
        mixed: gpu.mixed,
        asker: Asker::Manifest(gpu.span.clone()),
    })
}

/// An environment that holds wheels holds pip too, so that `pip list` and `pip check` tell the
/// truth about it, unless env.toml names pip itself or sets `pip = false`.
fn pip(manifest: &Manifest) -> Option<WheelRequirement> {
    let has_wheels = !manifest.pypi_dependencies.is_empty() || manifest.host.is_some();
    let named = manifest.pypi_dependencies.iter().any(|d| d.name.as_ref() == "pip")
        || manifest.dependencies.iter().any(|d| d.name.as_normalized() == "pip");
    if !has_wheels || named || manifest.pypi_options.without_pip {
        return None;
    }
    Some(WheelRequirement {
        name: "pip".parse().ok()?,
        extras: Vec::new(),
        specifiers: VersionSpecifiers::empty(),
        origin: WheelOrigin::Default,
        marker: MarkerTree::TRUE,
        asker: Asker::Gpuenv(
            "so that `pip list` and `pip check` work in the environment; `[pypi-options] pip = false` leaves it out"
                .into(),
        ),
    })
}

/// The virtual packages of the target (CEP 30): declared, or set by `CONDA_OVERRIDE_*`; never those
/// of the machine that locks.
pub fn virtual_packages(manifest: &Manifest, platform: Platform) -> Vec<GenericVirtualPackage> {
    let mut out = Vec::new();
    let mut add = |name: &str, version: &str, build: &str| {
        out.extend(virtual_package(name, version, build));
    };
    let arch = match platform {
        Platform::Linux64 | Platform::Osx64 | Platform::Win64 => Some("x86_64"),
        Platform::LinuxAarch64 => Some("aarch64"),
        Platform::LinuxPpc64le => Some("ppc64le"),
        Platform::OsxArm64 => Some("m1"),
        _ => None,
    };
    let declared = manifest.system.archspec.as_deref();
    if let Some(arch) = declared.filter(|name| is_of_family(name, platform)).or(arch) {
        add("__archspec", "1", arch);
    }
    if let Some(gpu) = gpu(manifest, platform) {
        add("__cuda", &format!("{}.{}", gpu.cuda.0, gpu.cuda.1), "0");
        // The least that all GPUs have (CEP 46).
        if let Some((major, minor)) = gpu.archs.iter().min() {
            add("__cuda_arch", &format!("{major}.{minor}"), "0");
        }
    }
    if platform.is_linux() {
        add("__glibc", &format!("{}.{}", manifest.system.glibc.0, manifest.system.glibc.1), "0");
        add("__linux", &manifest.system.linux.to_string(), "0");
    }
    if platform.is_osx() {
        // The oldest macOS that current conda-forge builds for, as conda assumes across platforms.
        let oldest = if platform == Platform::OsxArm64 { (11, 0) } else { (10, 13) };
        let (major, minor) = manifest.system.macos.unwrap_or(oldest);
        add("__osx", &format!("{major}.{minor}"), "0");
    }
    if platform.is_unix() {
        add("__unix", "0", "0");
    }
    if platform.is_windows() {
        add("__win", "0", "0");
    }
    overrides::apply(manifest, platform, &mut out);
    out
}

pub(super) fn virtual_package(
    name: &str,
    version: &str,
    build: &str,
) -> Option<GenericVirtualPackage> {
    Some(GenericVirtualPackage {
        name: name.parse::<CondaName>().ok()?,
        version: version.parse::<CondaVersion>().ok()?,
        build_string: build.parse().ok()?,
    })
}

/// Whether a microarchitecture can be one of `platform`: one `archspec` serves an env.toml whose
/// platforms are of several families. A name of no known family is taken everywhere.
pub(super) fn is_of_family(archspec: &str, platform: Platform) -> bool {
    use Platform::{Linux64, LinuxAarch64, LinuxPpc64le, Osx64, OsxArm64, Win64};
    let families: [(&[&str], &[Platform]); 3] = [
        (&["x86_64"], &[Linux64, Osx64, Win64]),
        (
            &["aarch64", "armv8", "armv9", "neoverse", "m1", "m2", "m3", "m4"],
            &[LinuxAarch64, OsxArm64],
        ),
        (&["ppc64le", "power"], &[LinuxPpc64le]),
    ];
    let family = families.iter().find(|(names, _)| names.iter().any(|n| archspec.starts_with(n)));
    family.is_none_or(|(_, platforms)| platforms.contains(&platform))
}

/// What the old lock holds for `closure`; where it has no such variant, what it holds for none.
pub fn keep(lock: &Lock, closure: &Closure) -> Keep {
    let base = Closure { variant: None, ..closure.clone() };
    let environment = lock.environment(closure).or_else(|| lock.environment(&base));
    keep_pins(environment.into_iter().flat_map(|e| lock.packages_of(e)).map(Pin::from))
}

/// Choices of an old lock as preferences of the solver; of a name pinned twice, the later wins.
pub fn keep_pins(pins: impl IntoIterator<Item = Pin>) -> Keep {
    let mut keep = Keep::default();
    for pin in pins {
        match pin.kind {
            ArtifactKind::Conda => {
                if let Ok(name) = pin.name.parse() {
                    keep.conda.insert(name, (pin.version, pin.build.unwrap_or_default()));
                }
            }
            ArtifactKind::Wheel => {
                if let (Ok(name), Ok(version)) = (pin.name.parse(), pin.version.parse()) {
                    let file = pin.file.unwrap_or_default();
                    keep.wheels.insert(name, KeptWheel { version, file, sha256: pin.sha256 });
                }
            }
        }
    }
    keep
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(more: &str, platform: Platform) -> String {
        let text = format!("[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\n{more}");
        let manifest = crate::manifest::parse(&text, "env.toml").unwrap();
        let mut out: Vec<String> = virtual_packages(&manifest, platform)
            .iter()
            .map(|v| format!("{}={}={}", v.name.as_normalized(), v.version, v.build_string))
            .collect();
        out.sort();
        out.join(" ")
    }

    #[test]
    fn each_platform_has_its_own_virtual_packages() {
        let gpu = "[gpu]\ncuda = \"12.4\"\n[system-requirements]\n";
        let all = format!("{gpu}libc = \"2.31\"\nmacos = \"13.3\"\narchspec = \"x86_64_v3\"\n");
        for (more, platform, expected) in [
            (
                gpu,
                Platform::Linux64,
                "__archspec=1=x86_64 __cuda=12.4=0 __glibc=2.28=0 __linux=4.18=0 __unix=0=0",
            ),
            (
                &all,
                Platform::Linux64,
                "__archspec=1=x86_64_v3 __cuda=12.4=0 __glibc=2.31=0 __linux=4.18=0 __unix=0=0",
            ),
            (
                &all,
                Platform::LinuxAarch64,
                "__archspec=1=aarch64 __cuda=12.4=0 __glibc=2.31=0 __linux=4.18=0 __unix=0=0",
            ),
            (gpu, Platform::OsxArm64, "__archspec=1=m1 __osx=11.0=0 __unix=0=0"),
            (&all, Platform::OsxArm64, "__archspec=1=m1 __osx=13.3=0 __unix=0=0"),
            (gpu, Platform::Osx64, "__archspec=1=x86_64 __osx=10.13=0 __unix=0=0"),
            (&all, Platform::Osx64, "__archspec=1=x86_64_v3 __osx=13.3=0 __unix=0=0"),
            (
                "",
                Platform::LinuxPpc64le,
                "__archspec=1=ppc64le __glibc=2.28=0 __linux=4.18=0 __unix=0=0",
            ),
            (&all, Platform::Win64, "__archspec=1=x86_64_v3 __cuda=12.4=0 __win=0=0"),
        ] {
            assert_eq!(declared(more, platform), expected, "{platform}");
        }
    }
}
