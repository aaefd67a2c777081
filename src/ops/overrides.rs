//! `CONDA_OVERRIDE_*` (CEP 30, CEP 46): virtual packages that the environment of a lock run sets
//! instead of env.toml.
//!
//! They count where something is resolved, and nowhere else: a lock says which were in force, so
//! that `lock --check` sees whether they still are, and realizing takes the lock as it is.

use std::collections::BTreeMap;
use std::ffi::OsString;

use rattler_conda_types::{GenericVirtualPackage, Subdir as Platform};

use super::context::Context;
use super::problem::{is_of_family, virtual_package, virtual_packages};
use crate::error::{Exit, Report, Result};
use crate::lockfile::Stale;
use crate::manifest::{Manifest, OVERRIDE_INPUT, VirtualOverrides};
use crate::progress::Event;

/// What a variable may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Numbers with dots.
    Version,
    /// Two numbers.
    MajorMinor,
    /// A microarchitecture.
    Archspec,
}

/// Variables and the virtual packages that they set.
const VARIABLES: [(&str, &str, Form); 7] = [
    ("CONDA_OVERRIDE_ARCHSPEC", "__archspec", Form::Archspec),
    ("CONDA_OVERRIDE_CUDA", "__cuda", Form::Version),
    ("CONDA_OVERRIDE_CUDA_ARCH", "__cuda_arch", Form::MajorMinor),
    ("CONDA_OVERRIDE_GLIBC", "__glibc", Form::MajorMinor),
    ("CONDA_OVERRIDE_LINUX", "__linux", Form::Version),
    ("CONDA_OVERRIDE_OSX", "__osx", Form::Version),
    ("CONDA_OVERRIDE_WIN", "__win", Form::Version),
];

/// A variable that says nothing that could be meant.
#[derive(Debug, thiserror::Error)]
#[error("{variable} is `{value}`, which is not {}", self.form.words().0)]
struct BadOverride {
    variable: &'static str,
    value: String,
    name: &'static str,
    form: Form,
}

impl Form {
    /// What it is, and an example.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Form::Version => ("a version", "12.4"),
            Form::MajorMinor => ("a version of two numbers", "2.28"),
            Form::Archspec => ("the name of a microarchitecture", "x86_64_v3"),
        }
    }

    fn reads(self, value: &str) -> bool {
        let mut parts = value.split('.');
        let is_number = |part: &str| part.parse::<u32>().is_ok() && !part.starts_with('+');
        match self {
            Form::Version => parts.all(is_number),
            Form::MajorMinor => major_minor(value).is_some(),
            Form::Archspec => {
                value.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            }
        }
    }
}

impl Report for BadOverride {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        let (what, example) = self.form.words();
        Some(format!(
            "set {} to {what} such as {example}, to nothing for a target without {}, or unset it: then env.toml says",
            self.variable, self.name
        ))
    }
}

/// `MAJOR.MINOR`.
pub(super) fn major_minor(text: &str) -> Option<(u16, u16)> {
    let number = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten()
    };
    let (major, minor) = text.split_once('.')?;
    Some((number(major)?, number(minor)?))
}

/// env.toml as it is to be resolved: with the overrides that change something for one of its
/// platforms, each told as a note.
///
/// # Errors
/// A variable with a value that cannot be meant, whether it would change something or not.
pub fn manifest(ctx: &Context) -> Result<Manifest> {
    let mut manifest = ctx.project.manifest()?;
    manifest.virtual_overrides = read(|name| std::env::var_os(name))?;
    in_force(&mut manifest);
    for (variable, name, _) in VARIABLES {
        let Some(value) = manifest.virtual_overrides.get(name) else { continue };
        let text = match value {
            Some(value) => format!(
                "{variable} is set: the target has {name} {value}, whatever env.toml declares"
            ),
            None => {
                format!("{variable} is empty: the target has no {name}, whatever env.toml declares")
            }
        };
        ctx.progress.event(Event::Note { text: &text });
    }
    Ok(manifest)
}

fn read(env: impl Fn(&str) -> Option<OsString>) -> Result<VirtualOverrides> {
    let mut out = VirtualOverrides::new();
    for (variable, name, form) in VARIABLES {
        let Some(value) = env(variable) else { continue };
        let value = value.to_string_lossy();
        let value = value.trim();
        if value.is_empty() {
            out.insert(name.to_owned(), None);
        } else if form.reads(value) {
            out.insert(name.to_owned(), Some(value.to_owned()));
        } else {
            return Err(BadOverride { variable, value: value.to_owned(), name, form }.into());
        }
    }
    Ok(out)
}

/// Drops what changes nothing: a variable for macOS, say, where no platform is macOS.
fn in_force(manifest: &mut Manifest) {
    let all = |manifest: &Manifest| -> Vec<_> {
        let closures = manifest.closures().into_iter();
        closures.map(|(closure, merged)| virtual_packages(&merged, closure.platform)).collect()
    };
    let names: Vec<String> = manifest.virtual_overrides.keys().cloned().collect();
    let with = all(manifest);
    let mut kept: VirtualOverrides = BTreeMap::new();
    for name in names {
        let Some(value) = manifest.virtual_overrides.remove(&name) else { continue };
        if all(manifest) != with {
            kept.insert(name.clone(), value.clone());
        }
        manifest.virtual_overrides.insert(name, value);
    }
    manifest.virtual_overrides = kept;
}

/// Puts the overrides of `manifest` in the place of what it declares, as far as they are for
/// `platform`. There is no `__cuda_arch` without `__cuda`.
pub(super) fn apply(
    manifest: &Manifest,
    platform: Platform,
    packages: &mut Vec<GenericVirtualPackage>,
) {
    for (name, value) in &manifest.virtual_overrides {
        let value = value.as_deref();
        let is_for = match name.as_str() {
            "__glibc" | "__linux" => platform.is_linux(),
            "__osx" => platform.is_osx(),
            "__win" => platform.is_windows(),
            "__cuda" | "__cuda_arch" => !platform.is_osx(),
            _ => value.is_none_or(|value| is_of_family(value, platform)),
        };
        if !is_for {
            continue;
        }
        // In its place, so that an override that says the same changes nothing.
        let at = packages.iter().position(|package| package.name.as_normalized() == name);
        let package = value.and_then(|value| match name.as_str() {
            "__archspec" => virtual_package(name, "1", value),
            _ => virtual_package(name, value, "0"),
        });
        match (at, package) {
            (Some(at), Some(package)) => packages[at] = package,
            (Some(at), None) => drop(packages.remove(at)),
            (None, Some(package)) => packages.push(package),
            (None, None) => {}
        }
    }
    if !packages.iter().any(|package| package.name.as_normalized() == "__cuda") {
        packages.retain(|package| package.name.as_normalized() != "__cuda_arch");
    }
}

/// The oldest glibc of the target; `None` where it has none.
pub(super) fn glibc(manifest: &Manifest, platform: Platform) -> Option<(u16, u16)> {
    if !platform.is_linux() {
        return None;
    }
    match manifest.virtual_overrides.get("__glibc") {
        Some(value) => value.as_deref().and_then(major_minor),
        None => Some(manifest.system.glibc),
    }
}

/// Whether a lock is stale by an override alone: those of the run that locked are facts of that
/// lock, and whoever realizes it need not set them.
pub(super) fn is_of_a_run(stale: &Stale) -> bool {
    stale.key().starts_with(OVERRIDE_INPUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(more: &str, platforms: &str, env: &[(&str, &str)]) -> Manifest {
        let text = format!("[env]\nname = \"t\"\nplatforms = [{platforms}]\n{more}");
        let mut manifest = crate::manifest::parse(&text, "env.toml").unwrap();
        let env: BTreeMap<&str, &str> = env.iter().copied().collect();
        manifest.virtual_overrides = read(|name| env.get(name).map(Into::into)).unwrap();
        in_force(&mut manifest);
        manifest
    }

    fn packages(manifest: &Manifest, platform: Platform) -> String {
        let packages = virtual_packages(manifest, platform);
        let mut words: Vec<String> = packages
            .iter()
            .map(|v| format!("{}={}={}", v.name.as_normalized(), v.version, v.build_string))
            .collect();
        words.sort();
        words.join(" ")
    }

    #[test]
    fn they_replace_what_env_toml_declares() {
        let gpu = "[gpu]\ncuda = \"12.4\"\narchs = [\"9.0\", \"8.0\"]\n";
        let linux =
            |env: &[(&str, &str)]| packages(&manifest(gpu, "\"linux-64\"", env), Platform::Linux64);
        let rest = "__glibc=2.28=0 __linux=4.18=0 __unix=0=0";
        let x86 = "__archspec=1=x86_64";
        assert_eq!(linux(&[]), format!("{x86} __cuda=12.4=0 __cuda_arch=8.0=0 {rest}"));
        assert_eq!(
            linux(&[("CONDA_OVERRIDE_CUDA", "11.8"), ("CONDA_OVERRIDE_CUDA_ARCH", "7.0")]),
            format!("{x86} __cuda=11.8=0 __cuda_arch=7.0=0 {rest}")
        );
        assert_eq!(linux(&[("CONDA_OVERRIDE_CUDA", "")]), format!("{x86} {rest}"));
        assert_eq!(
            linux(&[
                ("CONDA_OVERRIDE_CUDA", ""),
                ("CONDA_OVERRIDE_GLIBC", "2.17"),
                ("CONDA_OVERRIDE_LINUX", ""),
                ("CONDA_OVERRIDE_ARCHSPEC", "x86_64_v4"),
            ]),
            "__archspec=1=x86_64_v4 __glibc=2.17=0 __unix=0=0"
        );
    }

    #[test]
    fn glibc_counts_for_wheels() {
        let glibc = |env| glibc(&manifest("", "\"linux-64\"", env), Platform::Linux64);
        assert_eq!(glibc(&[]), Some((2, 28)));
        assert_eq!(glibc(&[("CONDA_OVERRIDE_GLIBC", "2.17")]), Some((2, 17)));
        assert_eq!(glibc(&[("CONDA_OVERRIDE_GLIBC", "")]), None);
    }

    #[test]
    fn each_is_for_platforms_of_its_own() {
        let env = [
            ("CONDA_OVERRIDE_OSX", "14.2"),
            ("CONDA_OVERRIDE_WIN", "10.0.19045"),
            ("CONDA_OVERRIDE_CUDA", "12.0"),
            ("CONDA_OVERRIDE_ARCHSPEC", "neoverse_v2"),
        ];
        let all = manifest("", "\"linux-64\", \"osx-64\", \"win-64\", \"linux-aarch64\"", &env);
        let rest = "__glibc=2.28=0 __linux=4.18=0 __unix=0=0";
        for (platform, expected) in [
            (Platform::Linux64, format!("__archspec=1=x86_64 __cuda=12.0=0 {rest}")),
            (Platform::LinuxAarch64, format!("__archspec=1=neoverse_v2 __cuda=12.0=0 {rest}")),
            (Platform::Osx64, "__archspec=1=x86_64 __osx=14.2=0 __unix=0=0".to_owned()),
            (Platform::Win64, "__archspec=1=x86_64 __cuda=12.0=0 __win=10.0.19045=0".to_owned()),
        ] {
            assert_eq!(packages(&all, platform), expected, "{platform}");
        }
        // Those that are for no platform of env.toml, and those that say the same, are no facts.
        let linux = manifest("", "\"linux-64\"", &env);
        assert_eq!(linux.virtual_overrides.keys().collect::<Vec<_>>(), ["__cuda"]);
        let same = manifest("", "\"linux-64\"", &[("CONDA_OVERRIDE_GLIBC", "2.28")]);
        assert!(same.virtual_overrides.is_empty());
        let arch = manifest("", "\"linux-64\"", &[("CONDA_OVERRIDE_CUDA_ARCH", "8.0")]);
        assert!(arch.virtual_overrides.is_empty());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (variable, value) in [
            ("CONDA_OVERRIDE_CUDA", "foo"),
            ("CONDA_OVERRIDE_CUDA", "12.x"),
            ("CONDA_OVERRIDE_CUDA", ".12"),
            ("CONDA_OVERRIDE_CUDA_ARCH", "9"),
            ("CONDA_OVERRIDE_CUDA_ARCH", "9.0a"),
            ("CONDA_OVERRIDE_GLIBC", "2.17.1"),
            ("CONDA_OVERRIDE_ARCHSPEC", "x86-64"),
        ] {
            let error = read(|name| (name == variable).then(|| value.into())).unwrap_err();
            let words = error.error().to_string();
            assert!(words.starts_with(&format!("{variable} is `{value}`")), "{words}");
        }
    }
}
