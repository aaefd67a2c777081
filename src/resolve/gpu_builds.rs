//! What conda records say of GPUs: by their build strings, and by what they depend on.
//!
//! Channels write the CUDA line into the build string in several ways: conda-forge as its first part
//! (`cuda118_…`, formerly `cuda112py39h…`), the pytorch channel as one of its parts
//! (`py3.9_cuda11.8_cudnn8.7.0_0`, `py39_cu118`), others as `cuda`, `gpu`, `cpu` or `nocuda` alone. What
//! a build depends on goes before what it says: a build made with 11.8 that depends on
//! `cuda-version >=11.2,<12` is for all of 11.2 and later.

use rattler_conda_types::RepoDataRecord;
use uv_pep440::Version;

use super::gpu::Line;

/// What a build string says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// A build for CPUs.
    Cpu,
    /// A build for GPUs, and the CUDA line it was made with, where that is said.
    Gpu(Option<(u16, u16)>),
}

/// What a build string says; `None` where it says nothing of GPUs.
fn said(build: &str) -> Option<Said> {
    let said: Vec<Said> =
        build.split('_').enumerate().filter_map(|(at, part)| said_by(part, at == 0)).collect();
    said.iter()
        .find(|own| matches!(own, Said::Gpu(Some(_))))
        .or_else(|| said.iter().find(|own| matches!(own, Said::Gpu(None))))
        .or_else(|| said.first())
        .copied()
}

/// What a part of a build string says, the first or a later one.
fn said_by(part: &str, first: bool) -> Option<Said> {
    match part {
        "cuda" => return Some(Said::Gpu(None)),
        "gpu" if first => return Some(Said::Gpu(None)),
        "cpu" => return Some(Said::Cpu),
        "nocuda" if first => return Some(Said::Cpu),
        _ => {}
    }
    if let Some(rest) = part.strip_prefix("cpu") {
        // Older builds have the hash, the Python or the licence right behind.
        let hash = |rest: &str| {
            rest.strip_prefix('h').is_some_and(|hash| {
                hash.len() >= 7 && hash.bytes().take(7).all(|byte| byte.is_ascii_hexdigit())
            })
        };
        let python = rest.strip_prefix("py").is_some_and(|rest| rest.starts_with(digit));
        let licence = rest.strip_prefix("lgpl").or_else(|| rest.strip_prefix("gpl"));
        let fits = hash(rest) || python || licence.is_some_and(|rest| rest.starts_with('h'));
        return fits.then_some(Said::Cpu);
    }
    if let Some(rest) = part.strip_prefix("cuda") {
        let (digits, rest) = leading_digits(rest);
        if let Some(rest) = rest.strip_prefix('.') {
            let line = (digits.parse().ok()?, leading_digits(rest).0.parse().ok()?);
            // How the pytorch channel once named builds without CUDA.
            return Some(if line == (0, 0) { Said::Cpu } else { Said::Gpu(Some(line)) });
        }
        let ends = rest.is_empty() || rest.starts_with("py") || rest.starts_with('h');
        return (first && digits.len() == 3 && ends).then(|| compact(digits)).flatten();
    }
    let digits = part.strip_prefix("cu")?;
    let fits = (2..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if fits { compact(digits) } else { None }
}

/// `118`: 11.8.
fn compact(digits: &str) -> Option<Said> {
    let (major, minor) = digits.split_at(digits.len().checked_sub(1)?);
    Some(Said::Gpu(Some((major.parse().ok()?, minor.parse().ok()?))))
}

fn digit(char: char) -> bool {
    char.is_ascii_digit()
}

fn leading_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|char| !digit(char)).unwrap_or(text.len()))
}

/// Packages whose version is the CUDA line of what depends on them.
fn stands_for_a_line(name: &str) -> bool {
    matches!(
        name,
        "cuda-version"
            | "cudatoolkit"
            | "pytorch-cuda"
            | "cuda-toolkit"
            | "cuda-runtime"
            | "cuda-libraries"
    )
}

/// The names a record depends on.
fn depends(record: &RepoDataRecord) -> impl Iterator<Item = &str> {
    record
        .package_record
        .depends
        .iter()
        .map(|text| text.split([' ', '=', '<', '>', '!', '[']).next().unwrap_or_default())
}

/// The CUDA line of a conda record: of one that stands for a line, and of a build that names its
/// line and depends on nothing that does.
pub(super) fn line_of_record(record: &RepoDataRecord) -> Option<Line> {
    let package = &record.package_record;
    let name = package.name.as_normalized();
    if stands_for_a_line(name) {
        let version: Version = package.version.to_string().parse().ok()?;
        let part =
            |index: usize| version.release().get(index).and_then(|part| u16::try_from(*part).ok());
        return Some(Line::Cuda(part(0)?, part(1)));
    }
    // Some of the first builds of faiss-cpu name the CUDA of the machine they were made on.
    if name.ends_with("-cpu") || depends(record).any(stands_for_a_line) {
        return None;
    }
    match said(package.build.as_str())? {
        Said::Gpu(Some((major, minor))) => Some(Line::Cuda(major, Some(minor))),
        Said::Gpu(None) | Said::Cpu => None,
    }
}

/// Whether a record is the GPU build of something that also has CPU builds.
pub(super) fn is_gpu_build(record: &RepoDataRecord) -> bool {
    matches!(said(record.package_record.build.as_str()), Some(Said::Gpu(_)))
        || depends(record)
            .any(|name| matches!(name, "cuda-version" | "cudatoolkit" | "pytorch-cuda" | "__cuda"))
}

/// Whether a record says that it is the CPU build.
pub(super) fn is_cpu_build(record: &RepoDataRecord) -> bool {
    !is_gpu_build(record) && said(record.package_record.build.as_str()) == Some(Said::Cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_strings() {
        let gpu = |major, minor| Some(Said::Gpu(Some((major, minor))));
        for (build, expected) in [
            // conda-forge
            ("cuda112py39ha0cca9b_1", gpu(11, 2)),
            ("cuda118_py311h4ee7bbc_301", gpu(11, 8)),
            ("cuda126_mkl_py312_h30b5a27_300", gpu(12, 6)),
            ("cuda102h4ef0e5c_0", gpu(10, 2)),
            ("h30efb56_4_cuda", Some(Said::Gpu(None))),
            ("cpu_py311h6d93b4c_0", Some(Said::Cpu)),
            ("cpu_generic_py310_h6c1e6d4_1", Some(Said::Cpu)),
            ("cpu_mkl_h4bde7a9_103", Some(Said::Cpu)),
            ("cpuh7f2b1b8_0", Some(Said::Cpu)),
            ("cpu_gplh1234567_0", Some(Said::Cpu)),
            ("h1234567_4_cpu", Some(Said::Cpu)),
            ("nocuda_h1234567_0", Some(Said::Cpu)),
            ("gpu_0", Some(Said::Gpu(None))),
            // pytorch
            ("py3.9_cuda11.8_cudnn8.7.0_0", gpu(11, 8)),
            ("py36_cuda9.0.176_cudnn7.1.2_1", gpu(9, 0)),
            ("py3.6_hed44701_0_cuda10.2", gpu(10, 2)),
            ("py36_cuda0.0_1", Some(Said::Cpu)),
            ("py39_cu118", gpu(11, 8)),
            ("py36_cu92", gpu(9, 2)),
            ("py3.10_cpu_0", Some(Said::Cpu)),
            // Nothing of GPUs.
            ("h1234567_0", None),
            ("py39_0", None),
            ("cudah1234567_0", None),
            ("hcuda118_0", None),
            ("py310_cuteh1_0", None),
            ("", None),
        ] {
            assert_eq!(said(build), expected, "{build}");
        }
    }
}
