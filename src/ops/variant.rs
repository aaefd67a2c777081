//! Which variant of the environment is meant.
//!
//! The first of these that says something decides: `--variant` or `GPUENV_VARIANT`; what was last
//! named so in this project (`.gpuenv/variant`); the machine ([`by_machine`]).

use rattler_conda_types::Subdir as Platform;

use super::project::Project;
use super::realize::RealizeError;
use crate::error::{Exit, Report, Result};
use crate::lockfile::{Lock, LockedEnvironment};
use crate::machine;
use crate::manifest::Closure;

/// A variant that cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum VariantError {
    /// No environment is called so.
    #[error("there is no variant `{name}` (there is {})", have.join(", "))]
    Unknown {
        /// As given.
        name: String,
        /// Those that there are.
        have: Vec<String>,
    },
    /// It is for other platforms.
    #[error("variant `{name}` is not for {here} (it is for {})", platforms.join(", "))]
    Elsewhere {
        /// As given.
        name: String,
        /// The platform wanted.
        here: Platform,
        /// Platforms it is for.
        platforms: Vec<String>,
        /// Variants for the platform wanted.
        have: Vec<String>,
    },
    /// It was not realized in this project.
    #[error("variant `{0}` is not built in this project")]
    NotBuilt(String),
}

impl Report for VariantError {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        Some(match self {
            VariantError::Unknown { name, .. } => format!(
                "name one of these with --variant or GPUENV_VARIANT; or write `[variants.{name}]` into env.toml and run `gpuenv lock`"
            ),
            VariantError::Elsewhere { here, have, .. } => match &have[..] {
                [] => format!(
                    "no variant is for {here}: add it to `platforms` in env.toml and run `gpuenv lock`"
                ),
                have => format!("for {here} there is {}", have.join(", ")),
            },
            VariantError::NotBuilt(name) => format!("`gpuenv realize --variant {name}` builds it"),
        })
    }
}

/// Whether there is a variant called `name` among `closures`, for `platform` where one is given.
pub fn require(closures: &[Closure], platform: Option<Platform>, name: &str) -> Result<()> {
    let names = |closures: &mut dyn Iterator<Item = &Closure>| {
        let mut names: Vec<String> = Vec::new();
        for name in closures.map(|closure| closure.variant_name().to_owned()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    let found: Vec<&Closure> = closures.iter().filter(|c| c.variant_name() == name).collect();
    match platform {
        _ if found.is_empty() => {
            let have = names(&mut closures.iter());
            Err(VariantError::Unknown { name: name.to_owned(), have }.into())
        }
        Some(here) if !found.iter().any(|c| c.platform == here) => Err(VariantError::Elsewhere {
            name: name.to_owned(),
            here,
            platforms: found.iter().map(|c| c.platform.to_string()).collect(),
            have: names(&mut closures.iter().filter(|c| c.platform == here)),
        }
        .into()),
        _ => Ok(()),
    }
}

/// The variant last named in this project.
pub fn remembered(project: &Project) -> Option<String> {
    let text =
        std::fs::read_to_string(project.state_dir().join(super::generation::VARIANT)).ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

/// An environment of a lock, and why it was taken.
#[derive(Debug)]
pub struct Choice<'l> {
    /// The environment.
    pub environment: &'l LockedEnvironment,
    /// What the user should hear, where it was taken among several and not by name.
    pub note: Option<String>,
    /// Whether there are others for this platform.
    pub among_several: bool,
}

/// The environment for `platform` that is meant: `named`, or what was named last in `project`, or
/// what suits a machine that has an NVIDIA driver or has none.
pub fn choose<'l>(
    lock: &'l Lock,
    platform: Platform,
    named: Option<&str>,
    project: &Project,
) -> Result<Choice<'l>> {
    choose_with(lock, platform, named, remembered(project).as_deref(), || {
        machine::gpu().driver.is_some()
    })
}

fn choose_with<'l>(
    lock: &'l Lock,
    platform: Platform,
    named: Option<&str>,
    last: Option<&str>,
    driver: impl Fn() -> bool,
) -> Result<Choice<'l>> {
    let fit: Vec<&LockedEnvironment> =
        lock.environments.iter().filter(|e| e.platform == platform).collect();
    let among_several = fit.len() > 1;
    let find = |name: &str| fit.iter().find(|e| e.closure().variant_name() == name).copied();
    if let Some(name) = named {
        require(&lock.closures(), Some(platform), name)?;
        if let Some(environment) = find(name) {
            return Ok(Choice { environment, note: None, among_several });
        }
    }
    let Some(first) = fit.first() else {
        let have = lock.environments.iter().map(|e| e.closure().to_string()).collect();
        return Err(RealizeError::Platform { here: platform, have }.into());
    };
    if !among_several {
        return Ok(Choice { environment: first, note: None, among_several });
    }
    let (environment, why) = match last.and_then(find) {
        Some(environment) => (environment, "last named in this project".to_owned()),
        None => by_machine(&fit, driver()),
    };
    let name = environment.closure().variant_name().to_owned();
    let others: Vec<String> = fit
        .iter()
        .map(|e| e.closure().variant_name().to_owned())
        .filter(|other| *other != name)
        .collect();
    let other = match &others[..] {
        [one] => format!("--variant {one} takes the other"),
        several => format!("--variant takes another ({})", several.join(", ")),
    };
    let note = Some(format!("variant {name}: {why}; {other}"));
    Ok(Choice { environment, note, among_several })
}

/// What suits the machine, and why in words. `fit` is never empty, and in a lock's order: the one
/// that is no variant first, then variants by name.
///
/// With a driver, the first that is for GPUs; without one, the first that is not; where all are
/// alike, the first.
fn by_machine<'l>(fit: &[&'l LockedEnvironment], driver: bool) -> (&'l LockedEnvironment, String) {
    let suits = fit.iter().find(|e| e.has_gpu() == driver).copied();
    let machine = match driver {
        true => "this machine has an NVIDIA driver",
        false => "this machine has no NVIDIA driver",
    };
    match suits {
        Some(environment) => (environment, machine.to_owned()),
        None => {
            let all = if driver { "none is for GPUs" } else { "all are for GPUs" };
            (fit[0], format!("{machine}, but {all}"))
        }
    }
}

/// `name` without what says nothing: an empty variable, an empty argument.
pub fn given(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{Sha256, ShortHash};

    fn lock(environments: &[(Platform, &str, bool)]) -> Lock {
        let environments = environments.iter().map(|(platform, variant, gpu)| LockedEnvironment {
            platform: *platform,
            variant: variant.parse().ok(),
            env_id: ShortHash::of(&Sha256::of("")),
            host_python: None,
            virtual_packages: if *gpu { vec!["__cuda=12.4=0".into()] } else { Vec::new() },
            packages: Vec::new(),
            view_hash: None,
            view_format: crate::lockfile::FIRST_VIEW_FORMAT,
        });
        let mut lock = Lock { environments: environments.collect(), ..Lock::default() };
        lock.sort();
        lock
    }

    const HERE: Platform = Platform::Linux64;

    #[track_caller]
    fn taken(lock: &Lock, named: Option<&str>, last: Option<&str>, driver: bool) -> String {
        let choice = choose_with(lock, HERE, named, last, || driver).unwrap();
        match choice.note {
            Some(note) => note,
            None => format!("{} in silence", choice.environment.closure().variant_name()),
        }
    }

    #[test]
    fn the_machine_decides_where_nobody_else_does() {
        let usual = lock(&[(HERE, "default", true), (HERE, "cpu", false)]);
        assert_eq!(
            taken(&usual, None, None, false),
            "variant cpu: this machine has no NVIDIA driver; --variant default takes the other"
        );
        assert_eq!(
            taken(&usual, None, None, true),
            "variant default: this machine has an NVIDIA driver; --variant cpu takes the other"
        );
        let reverse = lock(&[(HERE, "default", false), (HERE, "old", true), (HERE, "new", true)]);
        assert_eq!(
            taken(&reverse, None, None, true),
            "variant new: this machine has an NVIDIA driver; --variant takes another (default, old)"
        );
        assert!(taken(&reverse, None, None, false).starts_with("variant default: "));
        let gpus = lock(&[(HERE, "default", true), (HERE, "old", true)]);
        assert_eq!(
            taken(&gpus, None, None, false),
            "variant default: this machine has no NVIDIA driver, but all are for GPUs; \
             --variant old takes the other"
        );
        let cpus = lock(&[(HERE, "default", false), (HERE, "dev", false)]);
        assert!(taken(&cpus, None, None, true).contains("but none is for GPUs"));
        assert!(taken(&cpus, None, None, false).starts_with("variant default: "));
    }

    #[test]
    fn a_name_decides_then_the_last_name() {
        let usual = lock(&[(HERE, "default", true), (HERE, "cpu", false)]);
        assert_eq!(taken(&usual, Some("default"), Some("cpu"), false), "default in silence");
        assert_eq!(
            taken(&usual, None, Some("cpu"), true),
            "variant cpu: last named in this project; --variant default takes the other"
        );
        // A name that env.toml has no more.
        assert!(taken(&usual, None, Some("gone"), true).starts_with("variant default: "));
    }

    #[test]
    fn one_that_is_alone_needs_no_words() {
        let other = Platform::OsxArm64;
        let lock = lock(&[(HERE, "gpu", true), (other, "default", false), (other, "cpu", false)]);
        assert_eq!(taken(&lock, None, Some("cpu"), false), "gpu in silence");
        let words = |named| {
            let error = choose_with(&lock, HERE, Some(named), None, || false).unwrap_err();
            format!("{} | {}", error.error(), error.hint().unwrap_or_default())
        };
        assert_eq!(
            words("cpu"),
            "variant `cpu` is not for linux-64 (it is for osx-arm64) | for linux-64 there is gpu"
        );
        assert!(
            words("x").starts_with(
                "there is no variant `x` (there is gpu, default, cpu) | name one of these"
            ),
            "{}",
            words("x")
        );
        let error = choose_with(&lock, Platform::Win64, None, None, || false).unwrap_err();
        assert!(error.error().to_string().contains("osx-arm64 cpu"), "{}", error.error());
    }
}
