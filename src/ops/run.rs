//! `run`, `shell`, `activate`: the environment in use. Nothing here writes.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use super::generation::{self, Generation};
use super::overrides;
use super::project::Project;
use super::realize::current_platform;
use super::variant::{self, VariantError};
use crate::error::{Exit, Failure, Report, Result};
use crate::lockfile::LockedEnvironment;
use crate::store::env_name;
use crate::view::activate::{Activation, Env, launch};
use crate::{lockfile, manifest};

pub use crate::view::activate::Shell;

/// An environment about to be used.
#[derive(Debug)]
pub struct Prepared {
    activation: Activation,
    inherited: Env,
    stale: Option<String>,
}

/// Which shell is meant cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// `$SHELL` is one that activation does not speak.
    #[error("the shell {0:?} is not one that gpuenv writes for")]
    Unknown(String),
    /// The start-up text could not be handed over.
    #[error("the shell's start-up text could not be prepared")]
    Startup(#[source] std::io::Error),
}

impl Report for ShellError {
    fn exit(&self) -> Exit {
        match self {
            ShellError::Unknown(_) => Exit::Usage,
            ShellError::Startup(_) => Exit::User,
        }
    }
    fn hint(&self) -> Option<String> {
        match self {
            ShellError::Unknown(_) => Some("name one: --shell bash, zsh, fish or sh".into()),
            ShellError::Startup(_) => Some("`gpuenv run -- SHELL` starts one without it".into()),
        }
    }
}

impl Prepared {
    /// What the user should hear before the environment is used.
    pub fn notes(&self) -> Vec<String> {
        self.activation.notes.iter().cloned().chain(self.stale.clone()).collect()
    }
}

/// Finds the project's environment, the one in use or that of `variant`, and computes what it
/// changes.
pub fn prepare(dir: Option<&Path>, variant: Option<&str>) -> Result<Prepared> {
    let project = Project::find(dir)?;
    let variant = variant::given(variant);
    let generation = match variant {
        Some(name) => of_variant(&project, name)?,
        None => generation::require(&project)?,
    };
    let inherited: Env = std::env::vars_os().collect();
    let activation = Activation::for_view(&generation.view, &inherited)?;
    Ok(Prepared { activation, inherited, stale: stale(&project, &generation, variant) })
}

/// The view of a variant; in a project of one environment, that is the one in use.
fn of_variant(project: &Project, name: &str) -> Result<Generation> {
    let lock = project.require_lock()?;
    let platform = current_platform()?;
    variant::require(&lock.closures(), Some(platform), name)?;
    if lock.environments.iter().filter(|e| e.platform == platform).count() == 1 {
        return generation::require(project);
    }
    let found = generation::of_variant(project, name).filter(|g| g.view.is_dir());
    Ok(found.ok_or_else(|| VariantError::NotBuilt(name.to_owned()))?)
}

/// A sentence if the lock has moved on from what is built; that the lock cannot be read is for
/// `realize` to say.
fn stale(project: &Project, generation: &Generation, variant: Option<&str>) -> Option<String> {
    let (lock, _) = project.lock().ok()??;
    let inputs = manifest::inputs(&project.manifest().ok()?);
    let stale = lockfile::stale(&lock, &inputs);
    if let Some(first) = stale.iter().find(|stale| !overrides::is_of_a_run(stale)) {
        return Some(format!(
            "env.toml has changed since this environment was locked ({first}): run `gpuenv realize`"
        ));
    }
    let platform = current_platform().ok()?;
    let python =
        std::fs::read_link(generation.view.join("bin/python")).ok().filter(|p| p.is_absolute());
    let mut meant = lock.environments.iter().filter(|environment| {
        environment.platform == platform
            && variant.is_none_or(|name| environment.closure().variant_name() == name)
    });
    let is_meant = |environment: &LockedEnvironment| {
        let key = super::realize::view_key(&environment.env_id, python.as_deref());
        let name = env_name(&key, lock.name());
        generation.view.file_name() == Some(OsStr::new(&name))
    };
    (!meant.any(is_meant)).then(|| {
        "gpuenv.lock has changed since this environment was built: run `gpuenv realize`".into()
    })
}

/// Becomes `command` in the environment. Returns only if that fails.
pub fn exec(prepared: &Prepared, command: &[OsString]) -> Failure {
    let env = match prepared.activation.environment(&prepared.inherited) {
        Ok(env) => env,
        Err(error) => return error.into(),
    };
    let (program, args) = command.split_first().map_or((OsStr::new(""), &[][..]), |(p, a)| (p, a));
    launch(&env, program, args).into()
}

/// The shell of the user, and its path.
fn user_shell(inherited: &Env) -> (OsString, Option<Shell>) {
    let path = inherited.get(OsStr::new("SHELL")).filter(|v| !v.is_empty()).cloned();
    let path = path.unwrap_or_else(|| "/bin/sh".into());
    let name = Path::new(&path).file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
    (path, name.parse().ok())
}

/// The text that activates the environment, for `shell` or the user's.
pub fn script(prepared: &Prepared, shell: Option<Shell>) -> Result<String> {
    let (path, users) = user_shell(&prepared.inherited);
    let shell =
        shell.or(users).ok_or_else(|| ShellError::Unknown(path.to_string_lossy().into_owned()))?;
    Ok(prepared.activation.render(shell))
}

/// Becomes an interactive shell in the environment. Returns only if that fails.
///
/// The user's own start-up files are read first, so that what they put on `PATH` does not come
/// before the environment; bash and fish are then handed the activation itself. zsh takes no
/// start-up text from outside: it inherits the environment.
pub fn shell(prepared: &Prepared) -> Failure {
    match try_shell(prepared) {
        Ok(never) => never,
        Err(failure) => failure,
    }
}

fn try_shell(prepared: &Prepared) -> Result<Failure> {
    let (path, shell) = user_shell(&prepared.inherited);
    let env = prepared.activation.environment(&prepared.inherited)?;
    let name = &prepared.activation.name;
    Ok(match shell {
        Some(Shell::Bash) => {
            let text = format!(
                "[ -r ~/.bashrc ] && . ~/.bashrc\n{}\nPS1=\"({name}) ${{PS1-}}\"\n",
                prepared.activation.render(Shell::Bash)
            );
            let file = startup(&text).map_err(ShellError::Startup)?;
            let rc = format!("/proc/self/fd/{}", file.as_raw_fd());
            // Activation happens in the shell itself, from the environment as it was.
            launch(&prepared.inherited, &path, &["--rcfile".into(), rc.into(), "-i".into()]).into()
        }
        Some(Shell::Fish) => {
            // The name's characters need no quoting; see `manifest::Env::name`.
            let text = format!(
                "{}\nfunctions -c fish_prompt __gpuenv_prompt\n\
                 function fish_prompt; echo -n '({name}) '; __gpuenv_prompt; end\n",
                prepared.activation.render(Shell::Fish)
            );
            launch(&prepared.inherited, &path, &["--init-command".into(), text.into(), "-i".into()])
                .into()
        }
        _ => launch(&env, &path, &["-i".into()]).into(),
    })
}

/// The text in an unnamed file that the next program can read by its descriptor's number: nothing
/// is written to any disk, and nothing is left behind.
fn startup(text: &str) -> std::io::Result<std::fs::File> {
    let fd = rustix::fs::memfd_create("gpuenv-rc", rustix::fs::MemfdFlags::empty())?;
    let mut file = std::fs::File::from(fd);
    file.write_all(text.as_bytes())?;
    Ok(file)
}
