//! The GPU of the machine, as far as the kernel module tells without any library: which model,
//! which driver. `/proc/driver/nvidia` is written by NVIDIA's kernel module.

use std::path::Path;

/// What the kernel module says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Model of the first GPU (by bus address); `None` without GPU or driver.
    pub model: Option<String>,
    /// Version of the kernel module, such as `535.104.05`.
    pub driver: Option<String>,
}

/// Asks the kernel module of this machine.
pub fn gpu() -> Gpu {
    gpu_below(Path::new("/proc/driver/nvidia"))
}

fn gpu_below(dir: &Path) -> Gpu {
    let driver = std::fs::read_to_string(dir.join("version")).ok().and_then(|text| driver(&text));
    let mut places: Vec<_> = std::fs::read_dir(dir.join("gpus"))
        .map(|entries| entries.flatten().map(|e| e.path().join("information")).collect())
        .unwrap_or_default();
    places.sort();
    let model = places
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .find_map(|text| model(&text));
    Gpu { model, driver }
}

/// From `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 …`, or with
/// `NVIDIA UNIX Open Kernel Module for x86_64  …`: the first word that is a version.
fn driver(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
    };
    line.split_whitespace().find(is_version).map(str::to_owned)
}

fn model(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
    Some(line.trim().to_owned()).filter(|model| !model.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_kernel_module_are_read() {
        for text in [
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12.2.0\n",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.104.05  Release Build\n",
        ] {
            assert_eq!(driver(text).as_deref(), Some("535.104.05"));
        }
        assert_eq!(driver("nonsense"), None);
    }

    #[test]
    fn a_machine_without_driver_has_neither() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(gpu_below(empty.path()), Gpu::default());
        std::fs::create_dir_all(empty.path().join("gpus/0000:01:00.0")).unwrap();
        let information = empty.path().join("gpus/0000:01:00.0/information");
        std::fs::write(information, "Model: \t\t NVIDIA H200\nIRQ:   42\n").unwrap();
        assert_eq!(gpu_below(empty.path()).model.as_deref(), Some("NVIDIA H200"));
    }
}
