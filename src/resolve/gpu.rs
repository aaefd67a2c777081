//! The GPU as part of the problem: which CUDA line a package is of, which build is preferred, which
//! cannot run on the GPUs declared, and what a wheel needs without saying so.
//!
//! The rules, with their sources in `gpu.toml` (packages) and `cuda.toml` (CUDA itself):
//!
//! - A process holds one CUDA major: its libraries are found by names that (in part) do not differ
//!   between majors. Within a major, a newer minor runs on an older driver (minor-version
//!   compatibility), but for code compiled at run time.
//! - Code for compute capability X.y runs on X.z with z ≥ y; PTX of X.y on all from X.y on. Code
//!   with the suffix `a` runs on that capability alone, with `f` on its own major from there on.
//! - cuDNN: the same major as at the build, at least its minor.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use rattler_conda_types::{PackageNameMatcher, RepoDataRecord};
use toml_edit::{DocumentMut, Table};
use uv_distribution_filename::WheelFilename;
use uv_normalize::PackageName as DistName;
use uv_pep440::{LocalVersionSlice, Version, VersionSpecifiers};

use super::problem::{GpuTarget, Problem};
use crate::driver::Driver;

/// The shipped facts.
pub(super) static FACTS: LazyLock<GpuFacts> = LazyLock::new(|| {
    // Part of the program: a test reads every entry.
    GpuFacts::parse(concat!(include_str!("cuda.toml"), "\n", include_str!("gpu.toml")))
        .unwrap_or_default()
});

/// What a build is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Line {
    /// No GPU.
    Cpu,
    /// CUDA of this major, and this minor where it is known.
    Cuda(u16, Option<u16>),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Cpu => f.write_str("CPUs"),
            Line::Cuda(major, Some(minor)) => write!(f, "CUDA {major}.{minor}"),
            Line::Cuda(major, None) => write!(f, "CUDA {major}"),
        }
    }
}

/// A compute capability that code was compiled for: `9.0a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arch {
    major: u16,
    minor: u16,
    suffix: Suffix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Suffix {
    None,
    /// This capability alone.
    A,
    /// Its family.
    F,
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.suffix {
            Suffix::None => "",
            Suffix::A => "a",
            Suffix::F => "f",
        };
        write!(f, "{}.{}{suffix}", self.major, self.minor)
    }
}

impl Arch {
    fn parse(text: &str) -> Option<Self> {
        let (digits, suffix) = match text.strip_suffix(['a', 'f']) {
            Some(digits) if text.ends_with('a') => (digits, Suffix::A),
            Some(digits) => (digits, Suffix::F),
            None => (text, Suffix::None),
        };
        let (major, minor) = digits.split_once('.')?;
        Some(Arch { major: major.parse().ok()?, minor: minor.parse().ok()?, suffix })
    }

    /// Whether native code for it runs on a device.
    fn runs_on(self, (major, minor): (u16, u16)) -> bool {
        self.major == major
            && match self.suffix {
                Suffix::A => self.minor == minor,
                Suffix::None | Suffix::F => self.minor <= minor,
            }
    }

    /// Whether PTX for it can be compiled for a device.
    fn compiles_for(self, device: (u16, u16)) -> bool {
        match self.suffix {
            Suffix::None => (self.major, self.minor) <= device,
            _ => self.runs_on(device),
        }
    }
}

/// Which builds of a version a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Build {
    Any,
    /// Neither a local version nor a post release.
    Plain,
    /// `+cu118`.
    Local(String),
    /// `.post112`.
    Post(u64),
}

/// What is known of some wheels.
#[derive(Clone, Debug)]
pub(super) struct WheelFacts {
    versions: VersionSpecifiers,
    build: Build,
    /// The line it was built for.
    pub(super) line: Option<Line>,
    /// It runs without a GPU as well.
    pub(super) optional: bool,
    /// The extra under which an optional one declares its needs.
    pub(super) extra: Option<String>,
    cudnn: Option<(u64, u64)>,
    /// Components that it opens at run time.
    pub(super) needs: Vec<String>,
    opens: Vec<String>,
    sass: Vec<Arch>,
    ptx: Vec<Arch>,
}

/// Which distribution brings a library of CUDA.
#[derive(Clone, Debug)]
struct Component {
    name: String,
    cuda: u16,
    wheel: DistName,
    /// CUDA line → version of the wheel in its first release.
    releases: BTreeMap<(u16, u16), Version>,
    /// Whether the newest serves all lines of the major.
    any_minor: bool,
}

impl Component {
    /// The line that a version of the wheel is of.
    fn line(&self, version: &Version) -> Line {
        let minor = self.releases.iter().rfind(|(_, first)| *first <= version);
        match minor {
            Some(((major, minor), _)) if !self.any_minor => Line::Cuda(*major, Some(*minor)),
            _ => Line::Cuda(self.cuda, None),
        }
    }
}

/// Which toolkits compile for a compute capability.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArchFacts {
    pub(super) capability: (u16, u16),
    /// The first one; `None`: older than what was looked at.
    pub(super) first: Option<(u16, u16)>,
    /// The last one; `None`: the newest does.
    pub(super) last: Option<(u16, u16)>,
}

/// `gpu.toml` and `cuda.toml`.
#[derive(Debug, Default)]
pub(super) struct GpuFacts {
    wheels: BTreeMap<DistName, Vec<WheelFacts>>,
    components: Vec<Component>,
    /// CUDA line → the driver it shipped with.
    toolkits: BTreeMap<(u16, u16), Driver>,
    /// CUDA major → the oldest driver that runs it.
    floors: BTreeMap<u16, Driver>,
    pub(super) archs: Vec<ArchFacts>,
    /// Distributions of one thing: for GPUs, for CPUs.
    pub(super) pairs: Vec<(DistName, DistName)>,
    /// Distributions whose post releases are CUDA builds.
    post_is_build: BTreeSet<DistName>,
}

/// Something a wheel needs and does not declare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// From where.
    pub(super) from: NeedFrom,
    /// The names the wheel opens it by; may be empty.
    pub(super) opens: Vec<String>,
}

/// Where a [`Need`] is met from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NeedFrom {
    /// A wheel.
    Wheel(DistName, VersionSpecifiers),
    /// A conda package that env.toml names, as a match spec.
    Conda(String),
}

fn strings(table: &Table, key: &str) -> Option<Vec<String>> {
    match table.get(key) {
        None => Some(Vec::new()),
        Some(item) => {
            item.as_array()?.iter().map(|value| value.as_str().map(str::to_owned)).collect()
        }
    }
}

fn line(text: &str) -> Option<(u16, u16)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl GpuFacts {
    fn parse(text: &str) -> Option<Self> {
        let document: DocumentMut = text.parse().ok()?;
        let rows = |name: &str| {
            document.get(name).and_then(|item| item.as_array_of_tables()).into_iter().flatten()
        };
        let mut facts = GpuFacts::default();
        for row in rows("wheel") {
            let text = |key: &str| row.get(key).and_then(|item| item.as_str());
            let name = DistName::from_str(text("name")?).ok()?;
            let build = match text("build").unwrap_or("any") {
                "any" => Build::Any,
                "plain" => Build::Plain,
                other => match other.strip_prefix("post") {
                    Some(number) => Build::Post(number.parse().ok()?),
                    None => Build::Local(other.to_owned()),
                },
            };
            if matches!(build, Build::Post(_)) {
                facts.post_is_build.insert(name.clone());
            }
            let archs = |key: &str| {
                strings(row, key)?.iter().map(|text| Arch::parse(text)).collect::<Option<Vec<_>>>()
            };
            let optional = row.get("optional").and_then(|item| item.as_bool()).unwrap_or(false);
            let wheel = WheelFacts {
                versions: text("versions").unwrap_or("").parse().ok()?,
                build,
                optional,
                extra: text("extra").map(str::to_owned),
                line: match text("cuda") {
                    None => None,
                    Some("none") => Some(Line::Cpu),
                    Some(text) => match line(text) {
                        Some((major, minor)) => Some(Line::Cuda(major, Some(minor))),
                        None => Some(Line::Cuda(text.parse().ok()?, None)),
                    },
                },
                cudnn: match text("cudnn") {
                    None => None,
                    Some(text) => {
                        let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
                        Some((major.parse().ok()?, minor.parse().ok()?))
                    }
                },
                needs: strings(row, "needs")?,
                opens: strings(row, "opens")?,
                sass: archs("sass")?,
                ptx: archs("ptx")?,
            };
            facts.wheels.entry(name).or_default().push(wheel);
        }
        for row in rows("component") {
            let text = |key: &str| row.get(key).and_then(|item| item.as_str());
            let mut releases = BTreeMap::new();
            if let Some(table) = row.get("releases").and_then(|item| item.as_table_like()) {
                for (key, value) in table.iter() {
                    let version = value.as_str()?.trim_end_matches('*').trim_end_matches('.');
                    releases.insert(line(key)?, version.parse().ok()?);
                }
            }
            facts.components.push(Component {
                name: text("name")?.to_owned(),
                cuda: text("cuda")?.parse().ok()?,
                wheel: DistName::from_str(text("wheel")?).ok()?,
                releases,
                any_minor: row.get("any-minor").and_then(|item| item.as_bool()).unwrap_or(false),
            });
        }
        for row in rows("toolkit") {
            let text = |key: &str| row.get(key).and_then(|item| item.as_str());
            facts.toolkits.insert(line(text("cuda")?)?, text("driver")?.parse().ok()?);
        }
        for row in rows("major") {
            let text = |key: &str| row.get(key).and_then(|item| item.as_str());
            facts.floors.insert(text("cuda")?.parse().ok()?, text("driver")?.parse().ok()?);
        }
        for row in rows("arch") {
            let text = |key: &str| row.get(key).and_then(|item| item.as_str());
            // A bound that cannot be read is not one that is not there.
            let bound = |key: &str| match text(key) {
                Some(text) => line(text).map(Some),
                None => Some(None),
            };
            facts.archs.push(ArchFacts {
                capability: line(text("capability")?)?,
                first: bound("first")?,
                last: bound("last")?,
            });
        }
        for row in rows("gpu-pair") {
            let dist =
                |key: &str| DistName::from_str(row.get(key).and_then(|item| item.as_str())?).ok();
            facts.pairs.push((dist("gpu")?, dist("cpu")?));
        }
        Some(facts)
    }

    /// What rows refer to and is not there.
    #[cfg(test)]
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, rows) in &self.wheels {
            for row in rows {
                let Some(Line::Cuda(major, _)) = row.line else { continue };
                for need in &row.needs {
                    if !self.components.iter().any(|own| own.name == *need && own.cuda == major) {
                        faults.push(format!("{name}{}: no {need} for CUDA {major}", row.versions));
                    }
                }
            }
        }
        faults
    }

    /// The row for a wheel: the first that fits.
    pub(super) fn wheel(&self, file: &WheelFilename) -> Option<&WheelFacts> {
        let rows = self.wheels.get(&file.name)?;
        let public = file.version.clone().without_local();
        let locals = locals(&file.version);
        let post = self.post_is_build.contains(&file.name).then(|| public.post()).flatten();
        let base = if post.is_some() { base(&public) } else { public };
        rows.iter().find(|row| {
            row.versions.contains(&base)
                && (row.line == Some(Line::Cpu) || is_linux_x86_64(file))
                && match &row.build {
                    Build::Any => true,
                    Build::Plain => locals.is_empty() && post.is_none(),
                    Build::Local(local) => locals.contains(local),
                    Build::Post(number) => post == Some(*number),
                }
        })
    }

    /// The line a wheel is of, as far as its row or its file name says.
    pub(super) fn line(&self, file: &WheelFilename) -> Option<Line> {
        if let Some(row) = self.wheel(file)
            && row.line.is_some()
        {
            // What runs without a GPU as well is of no line.
            return row.line.filter(|_| !row.optional);
        }
        let locals = locals(&file.version);
        if let Some(line) = locals.iter().find_map(|local| line_of_tag(local)) {
            return Some(line);
        }
        if file.name.as_ref() == "cuda-toolkit" {
            let release = file.version.release();
            let part = |index: usize| release.get(index).and_then(|part| u16::try_from(*part).ok());
            return Some(Line::Cuda(part(0)?, part(1)));
        }
        // From CUDA 13 on the names of its wheels say no major: their metadata does not, either.
        if let Some(component) = self.component(&file.name) {
            return Some(component.line(&file.version));
        }
        file.name.as_ref().split('-').skip(1).find_map(line_of_tag)
    }

    fn component(&self, name: &DistName) -> Option<&Component> {
        self.components.iter().find(|component| component.wheel == *name)
    }

    /// Whether a wheel brings a library of CUDA.
    pub(super) fn is_component(&self, name: &DistName) -> bool {
        self.component(name).is_some()
    }

    /// What a wheel of this row needs without declaring it.
    pub(super) fn needs(&self, problem: &Problem, row: &WheelFacts) -> Vec<Need> {
        let Some(Line::Cuda(major, minor)) = row.line else {
            return Vec::new();
        };
        if row.optional || !problem.platform.is_linux() {
            return Vec::new();
        }
        let mut needs = Vec::new();
        for name in &row.needs {
            let bound = match (name.as_str(), row.cudnn) {
                ("cudnn", Some((major, minor))) => {
                    Some(format!(">={major}.{minor},<{}", major + 1))
                }
                _ => None,
            };
            let stem = match name.trim_start_matches("cuda-") {
                "runtime" => "libcudart".to_owned(),
                stem => format!("lib{stem}"),
            };
            let opens = row
                .opens
                .iter()
                .filter(|soname| soname.to_ascii_lowercase().starts_with(&stem))
                .cloned()
                .collect();
            if let Some(conda) = conda_need(problem, name, major, minor, bound.as_deref()) {
                let from = NeedFrom::Conda(conda);
                if !needs.iter().any(|need: &Need| need.from == from) {
                    needs.push(Need { from, opens });
                }
                continue;
            }
            let Some(component) =
                self.components.iter().find(|c| c.name == *name && c.cuda == major)
            else {
                continue;
            };
            let release = minor.and_then(|minor| component.releases.get(&(major, minor)));
            let bound = match (bound, release) {
                (Some(bound), _) => bound,
                (None, Some(version)) => format!(">={version}"),
                (None, None) => String::new(),
            };
            let Ok(specifiers) = bound.parse() else { continue };
            needs.push(Need { from: NeedFrom::Wheel(component.wheel.clone(), specifiers), opens });
        }
        needs
    }

    /// The wheel that brings a component for a CUDA major.
    pub(super) fn wheel_of(&self, component: &str, major: u16) -> Option<&DistName> {
        self.components
            .iter()
            .find(|own| own.name == component && own.cuda == major)
            .map(|own| &own.wheel)
    }

    /// The oldest driver that runs a CUDA major.
    pub(super) fn floor(&self, major: u16) -> Option<&Driver> {
        self.floors.get(&major)
    }

    /// The newest CUDA major that a driver runs.
    pub(super) fn newest_major(&self, driver: &Driver) -> Option<u16> {
        self.floors.iter().filter(|(_, floor)| *floor <= driver).map(|(major, _)| *major).max()
    }

    /// The newest line of a major.
    pub(super) fn newest_line(&self, major: u16) -> (u16, u16) {
        let newest = self.toolkits.keys().rfind(|(own, _)| *own == major);
        newest.copied().unwrap_or((major, 0))
    }

    /// The CUDA majors that are known.
    pub(super) fn majors(&self) -> impl Iterator<Item = u16> {
        self.floors.keys().copied()
    }

    /// The driver that a CUDA line came with: all of it works there.
    pub(super) fn shipped(&self, line: (u16, u16)) -> Option<&Driver> {
        self.toolkits.get(&line)
    }

    /// The version of a distribution without what only says which CUDA it was built for, and how
    /// the builds of that version compare (less is better).
    pub(super) fn order(
        &self,
        file: &WheelFilename,
        target: Option<&GpuTarget>,
    ) -> (u16, Version, u16) {
        let public = file.version.clone().without_local();
        let version = match self.post_is_build.contains(&file.name) {
            true => base(&public),
            false => public,
        };
        let line = self.line(file);
        let Some(target) = target else {
            // Without a GPU: builds for CPUs first, those for CUDA last.
            let rank = match line {
                Some(Line::Cpu) => 0,
                None => 1,
                Some(Line::Cuda(..)) => 2,
            };
            return (0, version, rank);
        };
        let (major, minor) = target.cuda;
        match line {
            None => (0, version, 0),
            Some(Line::Cuda(own, _)) if own != major => (3, version, 0),
            Some(Line::Cuda(_, None)) => (0, version, 0),
            // The nearest line that is not newer; then, as minor versions are compatible, the
            // nearest newer one.
            Some(Line::Cuda(_, Some(own))) if own <= minor => (0, version, minor - own),
            Some(Line::Cuda(_, Some(own))) => (1, version, own - minor),
            Some(Line::Cpu) => (2, version, 0),
        }
    }
}

impl WheelFacts {
    /// The first declared GPU that the wheel has no code for, where it cannot do without.
    pub(super) fn uncovered(&self, target: &GpuTarget) -> Option<(u16, u16)> {
        if self.optional { None } else { self.without_code(target) }
    }

    /// The first declared GPU that the wheel has no code for.
    pub(super) fn without_code(&self, target: &GpuTarget) -> Option<(u16, u16)> {
        if self.sass.is_empty() && self.ptx.is_empty() {
            return None;
        }
        target.archs.iter().copied().find(|device| {
            !self.sass.iter().any(|arch| arch.runs_on(*device))
                && !self.ptx.iter().any(|arch| arch.compiles_for(*device))
        })
    }

    /// The capabilities it has code for, in words.
    pub(super) fn archs(&self) -> String {
        let mut archs: Vec<String> = self.sass.iter().map(ToString::to_string).collect();
        archs.extend(self.ptx.iter().map(|arch| format!("{arch} (PTX)")));
        super::words::list(&archs, "and")
    }
}

/// `cu121`, `cuda12x`, `cu12`, `cpu`.
fn line_of_tag(tag: &str) -> Option<Line> {
    if tag == "cpu" {
        return Some(Line::Cpu);
    }
    let digits = tag.strip_prefix("cuda").or_else(|| tag.strip_prefix("cu"))?;
    let digits = digits.strip_suffix('x').unwrap_or(digits);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u16 = digits.parse().ok()?;
    match number {
        // CUDA 8 and 9 had one digit: `cu92`. The majors since have two.
        80..=99 => Some(Line::Cuda(number / 10, Some(number % 10))),
        8..=29 => Some(Line::Cuda(number, None)),
        100..=299 => Some(Line::Cuda(number / 10, Some(number % 10))),
        _ => None,
    }
}

fn locals(version: &Version) -> Vec<String> {
    match version.local() {
        LocalVersionSlice::Segments(segments) => segments.iter().map(ToString::to_string).collect(),
        LocalVersionSlice::Max => Vec::new(),
    }
}

/// Whether it is for Linux on x86-64: the wheels that rows with a CUDA line were read from. Those of
/// the same version for other platforms may be for another line, or for CPUs.
fn is_linux_x86_64(file: &WheelFilename) -> bool {
    file.platform_tags().iter().any(|tag| {
        let tag = tag.to_string();
        tag.contains("linux") && tag.ends_with("_x86_64")
    })
}

/// Without post release.
fn base(version: &Version) -> Version {
    version.clone().with_post(None)
}

/// The conda package of `[dependencies]` that brings a component, if one does.
fn conda_need(
    problem: &Problem,
    component: &str,
    major: u16,
    minor: Option<u16>,
    bound: Option<&str>,
) -> Option<String> {
    let named = |name: &str| {
        problem.conda.iter().any(|root| match &root.spec.name {
            PackageNameMatcher::Exact(own) => own.as_normalized() == name,
            _ => false,
        })
    };
    let name = conda_names(component, major).into_iter().find(|name| named(name))?;
    Some(match (component, name.as_str()) {
        ("cudnn", _) => format!("{name} {}", bound.unwrap_or("*")),
        (_, "cudatoolkit") => format!("{name} >={major}.{},<{}", minor.unwrap_or(0), major + 1),
        _ => format!("{name} *"),
    })
}

/// The conda packages that bring a component of a CUDA major.
pub(super) fn conda_names(component: &str, major: u16) -> Vec<String> {
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    match component {
        // Not part of the toolkit: its metapackages do not bring them.
        "cudnn" => own(&["cudnn", "libcudnn"]),
        "nccl" => own(&["nccl"]),
        "nvshmem" => Vec::new(),
        // Up to CUDA 11 one package held the libraries, and no tools.
        "cuda-nvcc" if major <= 11 => own(&["cuda-nvcc"]),
        _ if major <= 11 => own(&["cudatoolkit"]),
        // The split packages of CUDA 12 and later; the metapackages bring them all.
        _ => {
            let mut names: Vec<String> = match component {
                "cuda-runtime" => own(&["cuda-cudart"]),
                "cuda-nvrtc" | "cuda-cupti" => own(&[component]),
                "cuda-nvcc" => own(&["cuda-nvcc", "cuda-nvcc-tools"]),
                "nvvm" => own(&["cuda-nvvm-tools"]),
                other => vec![format!("lib{other}")],
            };
            names.extend(own(&["cuda-toolkit", "cuda-libraries", "cuda-runtime"]));
            names
        }
    }
}

/// The cuDNN major of a conda record that brings cuDNN.
pub(super) fn cudnn_of_record(record: &RepoDataRecord) -> Option<u16> {
    let package = &record.package_record;
    if !matches!(package.name.as_normalized(), "cudnn" | "libcudnn") {
        return None;
    }
    let version: Version = package.version.to_string().parse().ok()?;
    version.release().first().and_then(|part| u16::try_from(*part).ok())
}

/// The cuDNN major of a wheel that brings cuDNN.
pub(super) fn cudnn_of_wheel(file: &WheelFilename) -> Option<u16> {
    if !file.name.as_ref().starts_with("nvidia-cudnn") {
        return None;
    }
    file.version.release().first().and_then(|part| u16::try_from(*part).ok())
}
