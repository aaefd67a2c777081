//! What a shell or a command in a view sees.
//!
//! [`Activation::for_view`] reads what the view itself records and computes changes to an
//! environment; [`Activation::render`] writes them for `eval` in a shell, and
//! [`Activation::environment`] and [`launch`] apply them to a command.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::error::{Exit, Report};

mod shell;

pub use shell::{Shell, UnknownShell};
pub(super) use shell::{is_name, quote};

/// The environment of a process.
pub type Env = BTreeMap<OsString, OsString>;

/// The format of [`Recorded`] that this program writes.
pub const FORMAT: u32 = 1;
/// Where [`Recorded`] lies in a view.
pub const PATH: &str = "share/gpuenv/activation.json";

/// What a view records about its activation, as JSON at [`PATH`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Recorded {
    /// [`FORMAT`].
    pub format: u32,
    /// Name of the environment.
    pub name: String,
    /// Version of its Python, `major.minor`; `None` without one.
    pub python: Option<String>,
    /// Whether that Python is the machine's.
    pub host_python: bool,
    /// Whether there are conda packages in it, whose scripts expect `CONDA_PREFIX`.
    pub conda: bool,
    /// Whether `ld/` holds anything.
    pub ld: bool,
    /// `[activation.env]`.
    pub env: BTreeMap<String, String>,
}

impl Recorded {
    /// The text of the file.
    pub(super) fn to_json(&self) -> String {
        // A struct of strings, booleans and maps of strings always has a JSON form.
        let text = serde_json::to_string_pretty(self).unwrap_or_else(|e| unreachable!("{e}"));
        text + "\n"
    }
}

/// Changes to an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The view.
    pub view: PathBuf,
    /// Name of the environment.
    pub name: String,
    /// Variables to set.
    pub set: BTreeMap<String, String>,
    /// Variables to unset.
    pub unset: BTreeSet<String>,
    /// Directories to put before `PATH`, first to last.
    pub path: Vec<PathBuf>,
    /// Directories to take out of `PATH`: those of another active environment.
    pub path_remove: Vec<PathBuf>,
    /// `etc/conda/activate.d/*`, sorted: to be sourced after the variables are set. All
    /// shells' (`.sh`, `.fish`).
    pub scripts: Vec<PathBuf>,
    /// `etc/conda/deactivate.d/*`, sorted: to be sourced in reverse order.
    pub deactivate_scripts: Vec<PathBuf>,
    /// What was there and is not taken over, in sentences.
    pub notes: Vec<String>,
}

/// Why there is no activation.
#[derive(Debug, thiserror::Error)]
pub enum ActivateError {
    /// The view's path is not UTF-8 or has a character that no search path can hold.
    #[error("the view {0:?} cannot be activated: its path holds a colon or is not UTF-8")]
    BadPath(PathBuf),
    /// A file of the view cannot be read.
    #[error("cannot read {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of the view does not say what it should.
    #[error("{path:?} is damaged: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The view was made by a newer gpuenv.
    #[error("{path:?} has format {found}; this gpuenv knows {FORMAT}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// Activation scripts of conda packages need a shell that is not there.
    #[error("the environment has activation scripts ({script:?}), and bash cannot be run")]
    NoBash {
        /// The first of them.
        script: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// An activation script ended the shell.
    #[error("an activation script of the environment ended the shell that ran it ({status})")]
    ScriptExit {
        /// How the shell ended.
        status: String,
    },
    /// There is no such command.
    #[error("there is no command {0:?} in the environment or on PATH")]
    NotFound(OsString),
    /// The command is there and could not be started.
    #[error("cannot run {program:?}")]
    Exec {
        /// The command.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Report for ActivateError {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        match self {
            ActivateError::BadPath(_) => {
                Some("put the store elsewhere: --store DIR or GPUENV_STORE".into())
            }
            ActivateError::Read { .. } | ActivateError::Damaged { .. } => {
                Some("build the view again: gpuenv realize".into())
            }
            ActivateError::Newer { .. } => Some("use the newer gpuenv, or realize again".into()),
            ActivateError::NoBash { .. } => Some("install bash".into()),
            ActivateError::ScriptExit { .. } => {
                Some("look in etc/conda/activate.d of the view".into())
            }
            ActivateError::NotFound(_) => {
                Some("gpuenv list shows what the environment holds".into())
            }
            ActivateError::Exec { .. } => None,
        }
    }
}

impl Activation {
    /// Computes what activating `view` changes in the environment `inherited`.
    ///
    /// # Errors
    ///
    /// The view cannot be read.
    pub fn for_view(view: &Path, inherited: &Env) -> Result<Self, ActivateError> {
        let text = view.to_str().filter(|t| !t.contains(':') && view.is_absolute());
        let text = text.ok_or_else(|| ActivateError::BadPath(view.to_owned()))?;
        let recorded = recorded(view)?;
        let mut all = Activation {
            view: view.to_owned(),
            name: recorded.name.clone(),
            set: BTreeMap::new(),
            unset: BTreeSet::new(),
            path: vec![view.join("bin")],
            path_remove: Vec::new(),
            scripts: Vec::new(),
            deactivate_scripts: Vec::new(),
            notes: Vec::new(),
        };
        let get = |name: &str| inherited.get(OsStr::new(name)).filter(|v| !v.is_empty());
        let old = get("GPUENV_VIEW").map(PathBuf::from).filter(|old| old != view);
        if let Some(old) = &old {
            all.path_remove.push(old.join("bin"));
        }
        all.set("GPUENV_VIEW", text);
        all.set("GPUENV_ENV", &recorded.name);

        if recorded.conda {
            all.set("CONDA_PREFIX", text);
            all.set("CONDA_DEFAULT_ENV", &recorded.name);
            all.conda_env_vars()?;
            all.scripts = list(&view.join("etc/conda/activate.d"), &["sh", "fish"])?;
            all.deactivate_scripts = list(&view.join("etc/conda/deactivate.d"), &["sh", "fish"])?;
        } else if let Some(foreign) = get("CONDA_PREFIX").filter(|v| *v != view.as_os_str()) {
            all.drop_foreign("CONDA_PREFIX", foreign);
        }
        if recorded.python.is_some() {
            all.set("PYTHONNOUSERSITE", "1");
            // The store is read-only: bytecode is cached elsewhere, by the path of its source.
            if get("PYTHONPYCACHEPREFIX").is_none()
                && let Some(cache) = pycache(inherited).as_deref().and_then(Path::to_str)
            {
                all.set("PYTHONPYCACHEPREFIX", cache);
            }
        }
        for name in ["PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"] {
            if let Some(foreign) = get(name) {
                all.drop_foreign(name, foreign);
            }
        }
        for (name, value) in &recorded.env {
            if name == "PATH" || name == "LD_LIBRARY_PATH" {
                all.notes.push(format!(
                    "{name} of [activation.env] is left out: gpuenv itself sets that variable"
                ));
            } else {
                all.unset.remove(name);
                all.set(name, value);
            }
        }

        all.library_path(view, &recorded, old.as_deref(), inherited);
        Ok(all)
    }

    /// `LD_LIBRARY_PATH`: the farm, if it holds anything. Of an inherited one, only directories of
    /// the driver are kept, after it: where the loader finds the driver through this variable
    /// alone, as in containers, there is no GPU without it.
    fn library_path(
        &mut self,
        view: &Path,
        recorded: &Recorded,
        old: Option<&Path>,
        inherited: &Env,
    ) {
        const NAME: &str = "LD_LIBRARY_PATH";
        let farm = view.join("ld");
        let ours = |dir: &Path| dir == farm || old.is_some_and(|old| dir == old.join("ld"));
        let mut new = Vec::new();
        if recorded.ld {
            new.push(farm.clone());
        }
        let value = inherited.get(OsStr::new(NAME)).cloned().unwrap_or_default();
        let mut dropped = Vec::new();
        for dir in std::env::split_paths(&value) {
            if is_driver_dir(&dir) && dir.to_str().is_some() {
                if !new.contains(&dir) {
                    new.push(dir);
                }
            } else if !ours(&dir) && !value.is_empty() {
                dropped.push(dir.display().to_string());
            }
        }
        if !dropped.is_empty() {
            self.drop_foreign(NAME, OsStr::new(&dropped.join(":")));
        }
        self.unset.remove(NAME);
        let new: Vec<&str> = new.iter().filter_map(|dir| dir.to_str()).collect();
        if new.is_empty() {
            self.unset.insert(NAME.into());
        } else {
            self.set(NAME, &new.join(":"));
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        self.set.insert(name.to_owned(), value.to_owned());
    }

    fn drop_foreign(&mut self, name: &str, value: &OsStr) {
        self.unset.insert(name.to_owned());
        let why = match name {
            "LD_LIBRARY_PATH" => "it would come before the environment's own libraries",
            "PYTHONPATH" | "PYTHONHOME" => "it would put foreign modules into the environment",
            _ => "it is of another environment",
        };
        self.notes.push(format!("{name}={} is left out: {why}", value.display()));
    }

    /// Variables of conda packages: `etc/conda/env_vars.d/*.json`, an object of strings each.
    fn conda_env_vars(&mut self) -> Result<(), ActivateError> {
        for path in list(&self.view.join("etc/conda/env_vars.d"), &["json"])? {
            let vars: BTreeMap<String, String> = serde_json::from_slice(&read(&path)?)
                .map_err(|e| ActivateError::Damaged { path, reason: e.to_string() })?;
            for (name, value) in vars {
                if name != "PATH" && name != "LD_LIBRARY_PATH" {
                    self.set(&name, &value);
                }
            }
        }
        Ok(())
    }

    /// The environment of a command: `inherited` with the changes applied, activation scripts of
    /// conda packages included (they are run by bash, only where there are any).
    ///
    /// # Errors
    ///
    /// Activation scripts that cannot be run.
    pub fn environment(&self, inherited: &Env) -> Result<Env, ActivateError> {
        let mut env = inherited.clone();
        for name in &self.unset {
            env.remove(OsStr::new(name));
        }
        for (name, value) in &self.set {
            env.insert(name.into(), value.into());
        }
        let path = self.search_path(inherited.get(OsStr::new("PATH")).map(OsString::as_os_str));
        env.insert("PATH".into(), path);
        let scripts: Vec<_> =
            self.scripts.iter().filter(|s| s.extension() == Some(OsStr::new("sh"))).collect();
        if scripts.is_empty() { Ok(env) } else { sourced(&scripts, env) }
    }

    /// The new `PATH`. Without an old one, the usual directories of the system follow.
    fn search_path(&self, old: Option<&OsStr>) -> OsString {
        let old = old.filter(|old| !old.is_empty());
        let old = old.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin")).as_bytes();
        let gone = |dir: &[u8]| {
            let mut all = self.path.iter().chain(&self.path_remove);
            all.any(|path| path.as_os_str().as_bytes() == dir)
        };
        let kept = old.split(|b| *b == b':').filter(|dir| !gone(dir));
        let new = self.path.iter().map(|p| p.as_os_str().as_bytes());
        OsString::from_vec(new.chain(kept).collect::<Vec<_>>().join(&b':'))
    }

    /// Text for `eval` (or `source`) in a shell: sets everything, and defines
    /// `gpuenv_deactivate`, which restores what was there.
    pub fn render(&self, shell: Shell) -> String {
        shell::render(self, shell)
    }
}

/// Becomes a command, by exec(2): signals and the exit status are the command's own. Returns
/// only if that fails. A name without a slash is looked for on the `PATH` of `env`.
pub fn launch(env: &Env, program: &OsStr, args: &[OsString]) -> ActivateError {
    let found = match which(env, program) {
        Some(found) => found,
        None => return ActivateError::NotFound(program.to_owned()),
    };
    // Python finds itself by the name it was called with.
    let source = Command::new(&found).arg0(program).args(args).env_clear().envs(env).exec();
    ActivateError::Exec { program: found, source }
}

/// The file that a command name means, given an environment.
pub fn which(env: &Env, program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = env.get(OsStr::new("PATH"))?;
    path.as_bytes().split(|b| *b == b':').find_map(|dir| {
        let dir = if dir.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(dir)) };
        let file = dir.join(program);
        let runs = rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).is_ok();
        (runs && file.is_file()).then_some(file)
    })
}

/// Reads what a view records.
///
/// # Errors
///
/// The file is not there, or does not say what it should.
pub fn recorded(view: &Path) -> Result<Recorded, ActivateError> {
    let path = view.join(PATH);
    let bytes = read(&path)?;
    let damaged =
        |e: serde_json::Error, path| ActivateError::Damaged { path, reason: e.to_string() };
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|e| damaged(e, path.clone()))?;
    // The format is read before the rest.
    if let Some(found) = value.get("format").and_then(serde_json::Value::as_u64)
        && found > u64::from(FORMAT)
    {
        return Err(ActivateError::Newer { path, found });
    }
    serde_json::from_value(value).map_err(|e| damaged(e, path))
}

fn read(path: &Path) -> Result<Vec<u8>, ActivateError> {
    std::fs::read(path).map_err(|source| ActivateError::Read { path: path.to_owned(), source })
}

/// Files of a directory with one of these extensions, sorted by name; none if it is not there.
fn list(dir: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, ActivateError> {
    let failed = |source| ActivateError::Read { path: dir.to_owned(), source };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a directory holds the driver's libraries and none of a toolkit, which would come before
/// the environment's own.
fn is_driver_dir(dir: &Path) -> bool {
    const TOOLKIT: [&str; 9] = [
        "libcudart",
        "libcublas",
        "libcudnn",
        "libcufft",
        "libcurand",
        "libcusolver",
        "libcusparse",
        "libnccl",
        "libstdc++",
    ];
    if !dir.is_absolute() || !dir.join("libcuda.so.1").exists() {
        return false;
    }
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().all(|entry| {
        let name = entry.file_name();
        !TOOLKIT.iter().any(|toolkit| name.as_bytes().starts_with(toolkit.as_bytes()))
    })
}

/// Where bytecode of read-only environments is cached.
fn pycache(env: &Env) -> Option<PathBuf> {
    let dir = |name: &str| env.get(OsStr::new(name)).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = dir("GPUENV_CACHE")
        .or_else(|| dir("XDG_CACHE_HOME").map(|cache| cache.join("gpuenv")))
        .or_else(|| dir("HOME").map(|home| home.join(".cache/gpuenv")))?;
    Some(cache.join("pycache"))
}

/// What a shell says once it has sourced the scripts given as arguments: its environment, on a
/// descriptor of its own, for what the scripts print is for the user. The position parameters
/// are cleared, as a sourced script would otherwise see them.
const SOURCE_ALL: &str = r#"
__gpuenv_env=$(command -v env)
__gpuenv_scripts=("$@")
set --
exec 3>&1 1>&2
for __gpuenv_script in "${__gpuenv_scripts[@]}"; do . "$__gpuenv_script"; done
exec "$__gpuenv_env" -0 >&3
"#;

/// Variables that bash itself changes.
const OF_BASH: [&str; 4] = ["_", "SHLVL", "PWD", "OLDPWD"];

fn sourced(scripts: &[&PathBuf], env: Env) -> Result<Env, ActivateError> {
    let no_bash = |source| ActivateError::NoBash { script: scripts[0].clone(), source };
    let bash = which(&env, OsStr::new("bash"))
        .ok_or_else(|| no_bash(io::Error::from(io::ErrorKind::NotFound)))?;
    let output = Command::new(bash)
        .args(["--noprofile", "--norc", "-c", SOURCE_ALL, "gpuenv"])
        .args(scripts)
        .env_clear()
        .envs(&env)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(no_bash)?;
    if !output.status.success() || !output.stdout.ends_with(&[0]) {
        return Err(ActivateError::ScriptExit { status: output.status.to_string() });
    }
    let mut after: Env = output
        .stdout
        .split(|b| *b == 0)
        .filter_map(|line| {
            let at = line.iter().position(|b| *b == b'=')?;
            let (name, value) = (line[..at].to_vec(), line[at + 1..].to_vec());
            Some((OsString::from_vec(name), OsString::from_vec(value)))
        })
        .collect();
    for name in OF_BASH.map(OsStr::new) {
        match env.get(name) {
            Some(value) => after.insert(name.to_owned(), value.clone()),
            None => after.remove(name),
        };
    }
    Ok(after)
}

#[cfg(test)]
mod tests;
