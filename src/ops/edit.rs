//! `init`, `add`, `remove`: edits of env.toml that keep comments and layout.

use std::path::{Path, PathBuf};

use rattler_conda_types::Subdir as Platform;

use super::project::{MANIFEST, Project};
use crate::error::{Exit, Report, Result};
use crate::manifest::{self, edit};

/// What `init` is told.
#[derive(Clone, Debug, Default)]
pub struct Init {
    /// Name of the environment; default: the directory's.
    pub name: Option<String>,
    /// Channels.
    pub channels: Vec<String>,
    /// Platforms; default: linux-64.
    pub platforms: Vec<String>,
    /// Python from conda.
    pub python: Option<String>,
    /// Python of the machine.
    pub host_python: Option<String>,
}

/// What `add` is told.
#[derive(Clone, Debug, Default)]
pub struct Add {
    /// Requirements.
    pub specs: Vec<String>,
    /// To `[pypi-dependencies]`.
    pub pypi: bool,
    /// From this index.
    pub index: Option<String>,
}

/// What `init` did.
#[derive(Clone, Debug)]
pub struct Initialized {
    /// The file written.
    pub path: PathBuf,
}

/// What an edit did.
#[derive(Clone, Debug, Default)]
pub struct Edited {
    /// Whether env.toml was written.
    pub changed: bool,
    /// A sentence a requirement.
    pub lines: Vec<String>,
}

/// A word of the command line that is none.
#[derive(Debug, thiserror::Error)]
#[error("`{value}` is not a platform")]
struct BadPlatform {
    value: String,
}

impl Report for BadPlatform {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
    fn hint(&self) -> Option<String> {
        Some("conda's names are meant, such as linux-64, linux-aarch64, osx-arm64 or win-64".into())
    }
}

/// `init`: writes a new env.toml.
pub fn init(dir: Option<&Path>, init: &Init) -> Result<Initialized> {
    let project = Project::create(dir)?;
    let name = init.name.clone().unwrap_or_else(|| {
        project
            .root()
            .file_name()
            .map_or("env".into(), |name| edit::env_name(&name.to_string_lossy()))
    });
    let mut platforms = Vec::new();
    for platform in &init.platforms {
        platforms.push(
            platform.parse::<Platform>().map_err(|_| BadPlatform { value: platform.clone() })?,
        );
    }
    if platforms.is_empty() {
        platforms.push(Platform::Linux64);
    }
    let mut text = edit::init(&edit::Init {
        name,
        platforms,
        channels: init.channels.clone(),
        host_python: init.host_python.clone(),
    });
    if let Some(python) = &init.python {
        text = edit::add_conda(&text, MANIFEST, &spec("python", python))?.text;
    }
    // A name or a channel that env.toml would refuse is refused now.
    manifest::parse(&text, MANIFEST)?;
    project.write_manifest(&text)?;
    Ok(Initialized { path: project.manifest_path() })
}

/// `3.11` on a command line means any 3.11, as it does in conda's.
fn spec(name: &str, version: &str) -> String {
    if version.starts_with(|c: char| c.is_ascii_digit()) {
        format!("{name}={version}")
    } else {
        format!("{name}{version}")
    }
}

/// `add`: all of `specs`, or none.
pub fn add(dir: Option<&Path>, add: &Add) -> Result<Edited> {
    let project = Project::find(dir)?;
    let mut text = project.manifest_text()?;
    let mut done = Edited::default();
    for spec in &add.specs {
        let edit = if add.pypi {
            edit::add_wheel(&text, MANIFEST, spec, add.index.as_deref())?
        } else {
            edit::add_conda(&text, MANIFEST, spec)?
        };
        done.changed |= edit.text != text;
        done.lines.push(sentence(&edit));
        text = edit.text;
    }
    if done.changed {
        project.write_manifest(&text)?;
    }
    Ok(done)
}

/// `remove`: all of `names`, or none.
pub fn remove(dir: Option<&Path>, names: &[String]) -> Result<Edited> {
    let project = Project::find(dir)?;
    let mut text = project.manifest_text()?;
    let mut done = Edited::default();
    for name in names {
        let edit = edit::remove(&text, MANIFEST, name, None)?;
        done.changed = true;
        done.lines.push(sentence(&edit));
        text = edit.text;
    }
    project.write_manifest(&text)?;
    Ok(done)
}

fn sentence(edit: &edit::Edit) -> String {
    let (name, table) = (&edit.name, edit.table);
    match (&edit.was, &edit.is) {
        (None, Some(is)) => format!("added {name} {is} to {table}"),
        (Some(was), Some(is)) if was == is => format!("{name} {is} is in {table} already"),
        (Some(was), Some(is)) => format!("changed {name} from {was} to {is} in {table}"),
        (Some(was), None) => format!("removed {name} {was} from {table}"),
        (None, None) => format!("{name} is not in {table}"),
    }
}
