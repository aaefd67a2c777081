//! The target as wheels see it: which platform tags fit, what markers evaluate to, and which
//! Pythons are to be had.
//!
//! The *Pythons* of a solve are the distinct interpreters that the target may end up with: the
//! declared host interpreter, or every conda `python` that the root requirements leave open. All
//! that a wheel says about Python (tags, `Requires-Python`, markers) is evaluated once against
//! each of them and becomes a [`PyMask`].

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use rattler_conda_types::{GenericVirtualPackage, Subdir};
use uv_distribution_filename::WheelFilename;
use uv_normalize::ExtraName;
use uv_pep440::{Version, VersionSpecifiers};
use uv_pep508::{MarkerEnvironment, MarkerEnvironmentBuilder, MarkerTree};
use uv_platform_tags::{
    AbiTag, Arch, LanguageTag, Os, Platform, PlatformTag, TagCompatibility, TagPriority, Tags,
    TagsOptions,
};

/// A set of the solve's Pythons, as bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PyMask(Box<[u64]>);

impl PyMask {
    pub(super) fn none(pythons: usize) -> Self {
        PyMask(vec![0; pythons.div_ceil(64)].into())
    }
    pub(super) fn insert(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }
    pub(super) fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
    pub(super) fn and(&self, other: &PyMask) -> PyMask {
        PyMask(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }
    pub(super) fn or(&self, other: &PyMask) -> PyMask {
        PyMask(self.0.iter().zip(&other.0).map(|(a, b)| a | b).collect())
    }
    /// What is in `self` but not in `other`.
    pub(super) fn minus(&self, other: &PyMask) -> PyMask {
        PyMask(self.0.iter().zip(&other.0).map(|(a, b)| a & !b).collect())
    }
}

/// Which interpreter a Python is: they differ in the wheels they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Flavor {
    /// CPython as everybody knows it.
    CPython,
    /// CPython without the global lock (`cp313t`).
    FreeThreaded,
}

/// One Python.
#[derive(Clone, Debug)]
pub(super) struct Python {
    /// Release segment only: a release candidate counts as its release (as installers have it,
    /// which compare `sys.version_info[:3]`).
    pub(super) version: Version,
    pub(super) minor: (u8, u8),
    pub(super) flavor: Flavor,
    env: MarkerEnvironment,
}

/// All Pythons of a solve, oldest first.
#[derive(Debug, Default)]
pub(super) struct Pythons {
    pub(super) all: Vec<Python>,
    /// Tags per (minor, flavour), newest first.
    tags: Vec<((u8, u8), Flavor, Tags)>,
    markers: RefCell<HashMap<(MarkerTree, Option<ExtraName>), PyMask>>,
    requires: RefCell<HashMap<VersionSpecifiers, PyMask>>,
}

/// Why the target cannot be described to the wheel libraries.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum TargetError {
    #[error("wheels are not supported for the platform {0}")]
    Platform(Subdir),
    #[error("Python {0} cannot be described by wheel tags")]
    Python(Version),
}

/// The target platform in the words of wheel tags and markers.
#[derive(Clone, Debug)]
pub(super) struct Target {
    platform: Platform,
    markers: MarkerWords,
}

#[derive(Clone, Copy, Debug)]
struct MarkerWords {
    os_name: &'static str,
    machine: &'static str,
    system: &'static str,
    sys_platform: &'static str,
}

impl Target {
    /// Describes `subdir`. The macOS version is that of the `__osx` virtual package, 11.0 unless
    /// given.
    pub(super) fn new(
        subdir: Subdir,
        glibc: Option<(u16, u16)>,
        virtual_packages: &[GenericVirtualPackage],
    ) -> Result<Self, TargetError> {
        let (major, minor) = glibc.unwrap_or((0, 0));
        let linux = Os::Manylinux { major, minor };
        let macos = || {
            let version = virtual_packages
                .iter()
                .find(|package| package.name.as_normalized() == "__osx")
                .and_then(|package| Version::from_str(&package.version.to_string()).ok());
            let part = |index: usize| {
                version
                    .as_ref()
                    .and_then(|version| version.release().get(index).copied())
                    .and_then(|part| u16::try_from(part).ok())
            };
            Os::Macos { major: part(0).unwrap_or(11), minor: part(1).unwrap_or(0) }
        };
        let posix = |machine, system, sys_platform| MarkerWords {
            os_name: "posix",
            machine,
            system,
            sys_platform,
        };
        let windows = |machine| MarkerWords {
            os_name: "nt",
            machine,
            system: "Windows",
            sys_platform: "win32",
        };
        let (os, arch, markers) = match subdir {
            Subdir::Linux64 => (linux, Arch::X86_64, posix("x86_64", "Linux", "linux")),
            Subdir::LinuxAarch64 => (linux, Arch::Aarch64, posix("aarch64", "Linux", "linux")),
            Subdir::LinuxPpc64le => (linux, Arch::Powerpc64Le, posix("ppc64le", "Linux", "linux")),
            Subdir::LinuxS390X => (linux, Arch::S390X, posix("s390x", "Linux", "linux")),
            Subdir::LinuxRiscv64 => (linux, Arch::Riscv64, posix("riscv64", "Linux", "linux")),
            Subdir::Osx64 => (macos(), Arch::X86_64, posix("x86_64", "Darwin", "darwin")),
            Subdir::OsxArm64 => (macos(), Arch::Aarch64, posix("arm64", "Darwin", "darwin")),
            Subdir::Win64 => (Os::Windows, Arch::X86_64, windows("AMD64")),
            Subdir::WinArm64 => (Os::Windows, Arch::Aarch64, windows("ARM64")),
            other => return Err(TargetError::Platform(other)),
        };
        Ok(Target { platform: Platform::new(os, arch), markers })
    }

    fn environment(&self, version: &Version) -> Result<MarkerEnvironment, TargetError> {
        let error = || TargetError::Python(version.clone());
        let [major, minor, patch] = release(version).ok_or_else(error)?;
        let full = format!("{major}.{minor}.{patch}");
        let short = format!("{major}.{minor}");
        MarkerEnvironment::try_from(MarkerEnvironmentBuilder {
            implementation_name: "cpython",
            implementation_version: &full,
            os_name: self.markers.os_name,
            platform_machine: self.markers.machine,
            platform_python_implementation: "CPython",
            // Facts of a machine, not of a target: empty, so that no lock depends on them.
            platform_release: "",
            platform_system: self.markers.system,
            platform_version: "",
            python_full_version: &full,
            python_version: &short,
            sys_platform: self.markers.sys_platform,
        })
        .map_err(|_| error())
    }

    fn tags(&self, minor: (u8, u8), flavor: Flavor) -> Result<Tags, TargetError> {
        let options = TagsOptions {
            manylinux_compatible: true,
            gil_disabled: flavor == Flavor::FreeThreaded,
            debug_enabled: false,
            is_cross: true,
        };
        Tags::from_env(self.platform.clone(), minor, "cpython", minor, options).map_err(|_| {
            TargetError::Python(Version::new([u64::from(minor.0), u64::from(minor.1)]))
        })
    }

    /// Why none of the platform tags of `file` fits the target.
    pub(super) fn platform_misfit(&self, file: &WheelFilename) -> PlatformMisfit {
        let glibc = |tag: &PlatformTag| {
            let (need, arch) = match tag {
                PlatformTag::Manylinux { major, minor, arch } => ((*major, *minor), arch),
                PlatformTag::Manylinux2014 { arch } => ((2, 17), arch),
                PlatformTag::Manylinux2010 { arch } => ((2, 12), arch),
                PlatformTag::Manylinux1 { arch } => ((2, 5), arch),
                _ => return None,
            };
            let ours =
                matches!(self.platform.os(), Os::Manylinux { .. }) && *arch == self.platform.arch();
            ours.then_some(need)
        };
        match file.platform_tags().iter().filter_map(glibc).min() {
            Some(need) => PlatformMisfit::Glibc(need),
            None => PlatformMisfit::Other(
                file.platform_tags().iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            ),
        }
    }
}

/// Why a wheel is not for the platform.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlatformMisfit {
    /// It needs a newer glibc.
    Glibc((u16, u16)),
    /// It is for other platforms.
    Other(String),
}

/// Major, minor and patch of a Python version; a missing patch is 0, so that a declared `3.11`
/// compares as 3.11.0.
fn release(version: &Version) -> Option<[u64; 3]> {
    let parts = version.release();
    Some([*parts.first()?, *parts.get(1)?, parts.get(2).copied().unwrap_or(0)])
}

impl Pythons {
    /// The Pythons with these versions, in any order, with repeats.
    pub(super) fn new(
        target: &Target,
        versions: impl IntoIterator<Item = (Version, Flavor)>,
    ) -> Result<Self, TargetError> {
        let mut distinct: BTreeMap<([u64; 3], Flavor), Version> = BTreeMap::new();
        for (version, flavor) in versions {
            let parts = release(&version).ok_or_else(|| TargetError::Python(version.clone()))?;
            distinct.insert((parts, flavor), Version::new(parts));
        }
        let mut pythons = Pythons::default();
        for ((parts, flavor), version) in distinct {
            let too_large = || TargetError::Python(version.clone());
            let minor = (
                u8::try_from(parts[0]).map_err(|_| too_large())?,
                u8::try_from(parts[1]).map_err(|_| too_large())?,
            );
            if !pythons.tags.iter().any(|(have, of, _)| *have == minor && *of == flavor) {
                pythons.tags.push((minor, flavor, target.tags(minor, flavor)?));
            }
            let env = target.environment(&version)?;
            pythons.all.push(Python { version, minor, flavor, env });
        }
        pythons.tags.reverse();
        Ok(pythons)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The index of a Python.
    pub(super) fn find(&self, version: &Version, flavor: Flavor) -> Option<usize> {
        let parts = release(version)?;
        let version = Version::new(parts);
        self.all.iter().position(|python| python.version == version && python.flavor == flavor)
    }

    pub(super) fn every(&self) -> PyMask {
        self.mask(|_| true)
    }

    pub(super) fn is_every(&self, mask: &PyMask) -> bool {
        mask.count() == self.len()
    }

    fn mask(&self, keep: impl Fn(&Python) -> bool) -> PyMask {
        let mut mask = PyMask::none(self.len());
        for (index, python) in self.all.iter().enumerate() {
            if keep(python) {
                mask.insert(index);
            }
        }
        mask
    }

    /// Whether a platform tag of `file` fits, whatever Python it is for.
    pub(super) fn platform_fits(&self, file: &WheelFilename) -> bool {
        // What runs on any Python 3 has only its platform left to fail on.
        let language = [LanguageTag::Python { major: 3, minor: None }];
        self.tags.iter().any(|(minor, _, tags)| {
            minor.0 == 3 && tags.is_compatible(&language, &[AbiTag::None], file.platform_tags())
        })
    }

    /// Pythons whose tags take `file`, and how well the newest of them likes it.
    pub(super) fn fit(&self, file: &WheelFilename) -> (PyMask, Option<TagPriority>) {
        let mut best = None;
        let mut fits = Vec::with_capacity(self.tags.len());
        for (minor, flavor, tags) in &self.tags {
            if let TagCompatibility::Compatible(priority) = file.compatibility(tags) {
                fits.push((*minor, *flavor));
                best = best.or(Some(priority));
            }
        }
        let mask = self.mask(|python| fits.contains(&(python.minor, python.flavor)));
        (mask, best)
    }

    /// Pythons that a `Requires-Python` allows.
    pub(super) fn allowed(&self, requires: Option<&VersionSpecifiers>) -> PyMask {
        let Some(requires) = requires else {
            return self.every();
        };
        if let Some(mask) = self.requires.borrow().get(requires) {
            return mask.clone();
        }
        let mask = self.mask(|python| requires.contains(&python.version));
        self.requires.borrow_mut().insert(requires.clone(), mask.clone());
        mask
    }

    /// Pythons for which `marker` holds, with at most one extra in force.
    pub(super) fn marked(&self, marker: MarkerTree, extra: Option<&ExtraName>) -> PyMask {
        if marker.is_true() {
            return self.every();
        }
        let key = (marker, extra.cloned());
        if let Some(mask) = self.markers.borrow().get(&key) {
            return mask.clone();
        }
        let extras = extra.map(std::slice::from_ref).unwrap_or_default();
        let mask = self.mask(|python| marker.evaluate(&python.env, extras));
        self.markers.borrow_mut().insert(key, mask.clone());
        mask
    }

    /// The set in words: `Python 3.7 to 3.11`, `Python 3.9.2`.
    pub(super) fn describe(&self, mask: &PyMask) -> String {
        if mask.is_empty() {
            return "no Python".to_owned();
        }
        // Whole minors where all their patch releases are in the set.
        let mut words: Vec<(usize, String)> = Vec::new();
        let mut minors: Vec<(u8, u8)> = self.all.iter().map(|python| python.minor).collect();
        minors.dedup();
        for (position, minor) in minors.iter().enumerate() {
            let of_minor: Vec<usize> = (0..self.len())
                .filter(|index| {
                    self.all[*index].minor == *minor && self.all[*index].flavor == Flavor::CPython
                })
                .collect();
            let inside: Vec<usize> =
                of_minor.iter().copied().filter(|index| mask.contains(*index)).collect();
            match (inside.first(), inside.last()) {
                (Some(_), Some(_)) if inside.len() == of_minor.len() => {
                    words.push((position, format!("{}.{}", minor.0, minor.1)));
                }
                (Some(first), Some(last)) => {
                    // Not to be merged with its neighbours: a position of its own.
                    let position = usize::MAX - position * 2;
                    let (first, last) = (&self.all[*first].version, &self.all[*last].version);
                    words.push((
                        position,
                        if first == last {
                            first.to_string()
                        } else {
                            format!("{first} to {last}")
                        },
                    ));
                }
                _ => {}
            }
        }
        if words.is_empty() {
            return "free-threaded Python".to_owned();
        }
        let mut ranges: Vec<String> = Vec::new();
        let mut start = 0;
        for end in 1..=words.len() {
            let contiguous = end < words.len() && words[end].0 == words[end - 1].0.wrapping_add(1);
            if contiguous {
                continue;
            }
            match end - start {
                1 => ranges.push(words[start].1.clone()),
                2 => ranges.extend([words[start].1.clone(), words[end - 1].1.clone()]),
                _ => ranges.push(format!("{} to {}", words[start].1, words[end - 1].1)),
            }
            start = end;
        }
        format!("Python {}", super::words::list(&ranges, "or"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(subdir: Subdir) -> Target {
        let osx = GenericVirtualPackage {
            name: rattler_conda_types::PackageName::new_unchecked("__osx"),
            version: "12.3".parse().unwrap(),
            build_string: "0".parse().unwrap(),
        };
        let glibc = subdir.is_linux().then_some((2, 28));
        Target::new(subdir, glibc, &[osx]).unwrap()
    }

    fn pythons(target: &Target, versions: &[&str]) -> Pythons {
        let versions = versions.iter().map(|text| (text.parse().unwrap(), Flavor::CPython));
        Pythons::new(target, versions).unwrap()
    }

    #[test]
    fn platforms_take_their_own_wheels() {
        let files = [
            (Subdir::Linux64, "manylinux1_x86_64", true),
            (Subdir::Linux64, "manylinux2014_x86_64", true),
            (Subdir::Linux64, "manylinux_2_28_x86_64", true),
            (Subdir::Linux64, "manylinux_2_29_x86_64", false),
            (Subdir::Linux64, "linux_x86_64", true),
            (Subdir::Linux64, "musllinux_1_2_x86_64", false),
            (Subdir::Linux64, "manylinux_2_17_aarch64", false),
            (Subdir::LinuxAarch64, "manylinux_2_17_aarch64", true),
            (Subdir::LinuxAarch64, "manylinux_2_17_x86_64", false),
            (Subdir::OsxArm64, "macosx_11_0_arm64", true),
            (Subdir::OsxArm64, "macosx_12_0_universal2", true),
            (Subdir::OsxArm64, "macosx_13_0_arm64", false),
            (Subdir::OsxArm64, "macosx_11_0_x86_64", false),
            (Subdir::Win64, "win_amd64", true),
            (Subdir::Win64, "win32", false),
        ];
        for (subdir, platform, fits) in files {
            let target = target(subdir);
            let pythons = pythons(&target, &["3.11"]);
            let file: WheelFilename = format!("a-1-cp311-cp311-{platform}.whl").parse().unwrap();
            assert_eq!(pythons.platform_fits(&file), fits, "{subdir} {platform}");
            assert_eq!(!pythons.fit(&file).0.is_empty(), fits, "{subdir} {platform}");
        }
        assert!(Target::new(Subdir::EmscriptenWasm32, None, &[]).is_err());
    }

    #[test]
    fn tags_of_older_pythons() {
        let pythons = pythons(&target(Subdir::Linux64), &["3.8.1", "3.9.2", "3.10.3", "3.11.4"]);
        let words = |tags: &str| {
            let file: WheelFilename = format!("a-1-{tags}-any.whl").parse().unwrap();
            pythons.describe(&pythons.fit(&file).0)
        };
        assert_eq!(words("py3-none"), "Python 3.8 to 3.11");
        assert_eq!(words("py2.py3-none"), "Python 3.8 to 3.11");
        assert_eq!(words("py2-none"), "no Python");
        assert_eq!(words("cp39-none"), "Python 3.9");
        let file = "a-1-cp39-abi3-manylinux_2_17_x86_64.whl".parse().unwrap();
        assert_eq!(pythons.describe(&pythons.fit(&file).0), "Python 3.9 to 3.11");
        let file = "a-1-cp38.cp310-cp38.cp310-linux_x86_64.whl".parse().unwrap();
        assert_eq!(pythons.describe(&pythons.fit(&file).0), "Python 3.8 or 3.10");
    }

    #[test]
    fn markers_know_the_target_and_not_the_machine() {
        let pythons = pythons(&target(Subdir::OsxArm64), &["3.9.1", "3.12"]);
        let holds = |text: &str| {
            let marker = MarkerTree::from_str(text).unwrap();
            pythons.describe(&pythons.marked(marker, None))
        };
        assert_eq!(
            holds("sys_platform == 'darwin' and platform_machine == 'arm64'"),
            "Python 3.9 or 3.12"
        );
        assert_eq!(holds("platform_system == 'Linux'"), "no Python");
        assert_eq!(holds("python_full_version >= '3.12.0'"), "Python 3.12");
        assert_eq!(holds("platform_release >= '20'"), "no Python");
        assert_eq!(holds("extra == 'x'"), "no Python");
    }

    #[test]
    fn parts_of_a_minor_are_told_apart() {
        let pythons =
            pythons(&target(Subdir::Linux64), &["3.9.1", "3.9.7", "3.9.18", "3.10.1", "3.11.0rc1"]);
        let allowed = |text: &str| {
            let bound: VersionSpecifiers = text.parse().unwrap();
            pythons.describe(&pythons.allowed(Some(&bound)))
        };
        assert_eq!(allowed(">=3.9.7"), "Python 3.9.7 to 3.9.18, 3.10 or 3.11");
        assert_eq!(allowed(">=3.11"), "Python 3.11");
        assert_eq!(allowed("==3.9.1"), "Python 3.9.1");
        assert_eq!(allowed(">=3.8,<3.10"), "Python 3.9");
    }
}
