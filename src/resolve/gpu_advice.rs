//! What of a choice will not use the GPU as declared, though nothing forbids it: said as warnings.

use std::collections::BTreeSet;

use uv_distribution_filename::WheelFilename;
use uv_normalize::PackageName as DistName;

use super::gpu::{FACTS, GpuFacts, Line, WheelFacts, conda_names};
use super::problem::GpuTarget;
use super::words;

/// What was chosen, as far as it matters here.
pub(super) struct Chosen<'a> {
    pub(super) wheels: Vec<&'a WheelFilename>,
    /// Names of conda packages.
    pub(super) conda: BTreeSet<&'a str>,
}

impl Chosen<'_> {
    fn wheel(&self, name: &DistName) -> Option<&WheelFilename> {
        self.wheels.iter().copied().find(|file| file.name == *name)
    }
}

/// Distributions that are one thing, for GPUs and for CPUs, side by side.
pub(super) fn twice(chosen: &Chosen<'_>) -> Vec<String> {
    let mut out = Vec::new();
    for (gpu, cpu) in &FACTS.pairs {
        if let (Some(gpu), Some(cpu)) = (chosen.wheel(gpu), chosen.wheel(cpu)) {
            out.push(format!(
                "{} and {} are one package in two builds and hold the same modules: keep one of them (`dependency-overrides` drops one that others ask for)",
                shown(gpu),
                shown(cpu)
            ));
        }
    }
    out
}

/// The build for GPUs of a distribution for CPUs.
pub(super) fn for_gpus(cpu: &DistName) -> Option<&'static DistName> {
    FACTS.pairs.iter().find(|(_, own)| own == cpu).map(|(gpu, _)| gpu)
}

/// Where the declared GPUs will not be used as declared.
pub(super) fn warnings(target: &GpuTarget, chosen: &Chosen<'_>) -> Vec<String> {
    let mut out = Vec::new();
    for device in &target.archs {
        out.extend(not_compiled_for(&FACTS, target.cuda, *device));
    }
    for file in &chosen.wheels {
        if let Some(row) = FACTS.wheel(file)
            && row.optional
        {
            out.extend(on_the_cpu(&FACTS, target, chosen, file, row));
        }
    }
    out
}

/// A capability that the toolkit of the line compiles no code for, not for an older one of its
/// major either.
fn not_compiled_for(facts: &GpuFacts, line: (u16, u16), device: (u16, u16)) -> Option<String> {
    let runs: Vec<_> = facts
        .archs
        .iter()
        .filter(|arch| arch.capability.0 == device.0 && arch.capability.1 <= device.1)
        .collect();
    let from = |arch: &super::gpu::ArchFacts| arch.first.is_none_or(|first| first <= line);
    let to = |arch: &super::gpu::ArchFacts| arch.last.is_none_or(|last| line <= last);
    if runs.is_empty() || runs.iter().any(|arch| from(arch) && to(arch)) {
        return None;
    }
    let known = match runs.iter().filter(|arch| !from(arch)).filter_map(|arch| arch.first).min() {
        Some((major, minor)) => format!("CUDA {major}.{minor} is the first that does"),
        None => {
            let (major, minor) = runs.iter().filter_map(|arch| arch.last).max()?;
            format!("CUDA {major}.{minor} is the last that does")
        }
    };
    Some(format!(
        "CUDA {}.{} compiles no code for GPUs of compute capability {}.{}, which `archs` names; {known}",
        line.0, line.1, device.0, device.1
    ))
}

/// Why a wheel that runs without a GPU as well will run without.
fn on_the_cpu(
    facts: &GpuFacts,
    target: &GpuTarget,
    chosen: &Chosen<'_>,
    file: &WheelFilename,
    row: &WheelFacts,
) -> Option<String> {
    let Some(Line::Cuda(major, _)) = row.line else { return None };
    let who = shown(file);
    if major != target.cuda.0 {
        return Some(format!(
            "{who} will run on CPUs: it uses GPUs through CUDA {major}, and [gpu] says `cuda = \"{}.{}\"`",
            target.cuda.0, target.cuda.1
        ));
    }
    if let Some((major, minor)) = row.without_code(target) {
        return Some(format!(
            "{who} will run on CPUs where the GPU is of compute capability {major}.{minor}: it has code for {}",
            row.archs()
        ));
    }
    let brought = |component: &str| {
        facts.wheel_of(component, major).is_some_and(|wheel| chosen.wheel(wheel).is_some())
            || conda_names(component, major).iter().any(|name| chosen.conda.contains(name.as_str()))
    };
    let missing: Vec<String> =
        row.needs.iter().filter(|component| !brought(component)).cloned().collect();
    if missing.is_empty() {
        return None;
    }
    let advice = match &row.extra {
        Some(extra) => format!("ask for {}[{extra}]", file.name),
        None => "name their packages in env.toml".to_owned(),
    };
    Some(format!(
        "{who} will run on CPUs: nothing brings {} of CUDA {major}, which it opens; {advice}",
        words::short_list(&missing, 4, "and")
    ))
}

fn shown(file: &WheelFilename) -> String {
    format!("{} {}", file.name, file.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_a_toolkit_compiles_for() {
        let said = |line, device| not_compiled_for(&FACTS, line, device);
        // Code for 8.6 runs on 8.9, which is newer than the toolkit.
        assert_eq!(said((11, 2), (8, 9)), None);
        assert_eq!(said((12, 8), (12, 0)), None);
        assert_eq!(said((12, 8), (10, 3)), None);
        assert_eq!(said((13, 5), (7, 5)), None);
        assert_eq!(
            said((12, 4), (12, 0)).unwrap(),
            "CUDA 12.4 compiles no code for GPUs of compute capability 12.0, which `archs` names; CUDA 12.8 is the first that does"
        );
        assert!(said((13, 0), (7, 0)).unwrap().ends_with("CUDA 12.9 is the last that does"));
        assert!(said((12, 0), (3, 7)).unwrap().ends_with("CUDA 11.8 is the last that does"));
        // A capability that nothing is known of.
        assert_eq!(said((13, 0), (14, 0)), None);
    }
}
