//! `init`, `add`, `remove`: edits of env.toml that keep comments and layout.

use std::path::{Component, Path, PathBuf};

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
    // Two edits at once: the second sees what the first wrote.
    let _alone = project.exclusive();
    let mut text = project.manifest_text()?;
    let mut done = Edited::default();
    let here = std::env::current_dir().unwrap_or_else(|_| project.root().to_owned());
    for spec in &add.specs {
        let edit = if add.pypi {
            let spec = from_root(project.root(), &here, spec);
            edit::add_wheel(&text, MANIFEST, &spec, add.index.as_deref())?
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

/// A wheel's path on a command line starts where the command does, in env.toml at env.toml. An
/// absolute path stays one unless it is in the project, and is refused: other machines lack it.
fn from_root(root: &Path, here: &Path, spec: &str) -> String {
    let (before, path) = spec
        .rsplit_once(" @ ")
        .map_or(("", spec), |(_, path)| (&spec[..spec.len() - path.len()], path));
    let bare = path.split('#').next().unwrap_or(path);
    let local = bare.ends_with(".whl") && !path.contains("://") && !path.starts_with("file:");
    if !local || here == root && Path::new(path).is_relative() {
        return spec.to_owned();
    }
    let whole = normal(&here.join(path));
    let relative = match whole.strip_prefix(root) {
        Ok(below) => Path::new(".").join(below),
        Err(_) if Path::new(path).is_absolute() => return spec.to_owned(),
        Err(_) => {
            let common = root.components().zip(whole.components()).take_while(|(a, b)| a == b);
            let common = common.count();
            let up = root.components().skip(common).map(|_| Component::ParentDir);
            up.chain(whole.components().skip(common)).collect()
        }
    };
    format!("{before}{}", relative.display())
}

/// The path without `.` and `..`, by its words alone.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut out, component| {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
        out
    })
}

/// `remove`: all of `names`, or none.
pub fn remove(dir: Option<&Path>, names: &[String]) -> Result<Edited> {
    let project = Project::find(dir)?;
    // Two edits at once: the second sees what the first wrote.
    let _alone = project.exclusive();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_wheels_are_told_from_the_project() {
        let root = Path::new("/p");
        let from = |here: &str, spec: &str| from_root(root, Path::new(here), spec);
        let wheel = "x-1-py3-none-any.whl";
        assert_eq!(from("/p", &format!("./{wheel}")), format!("./{wheel}"));
        assert_eq!(from("/p/a/b", wheel), format!("./a/b/{wheel}"));
        assert_eq!(from("/p/a/b", &format!("x[e] @ ../{wheel}")), format!("x[e] @ ./a/{wheel}"));
        assert_eq!(
            from("/p/a", &format!("../../q/{wheel}#sha256=0")),
            format!("../q/{wheel}#sha256=0")
        );
        assert_eq!(from("/", &format!("/p/d/{wheel}")), format!("./d/{wheel}"));
        for same in
            ["numpy>=1", "/q/x-1-py3-none-any.whl", "https://example.invalid/x-1-py3-none-any.whl"]
        {
            assert_eq!(from("/p/a", same), same);
        }
    }

    /// No edit of several at once is lost; links and modes stay what they are.
    #[test]
    fn edits_keep_each_other_the_link_and_the_mode() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real.toml");
        let text = "[env]\nname = \"e\"\nplatforms = [\"linux-64\"]\n[host]\npython = \"3.11\"\n";
        std::fs::write(&real, text).unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
        let project = dir.path().join("project");
        std::fs::create_dir(&project).unwrap();
        std::os::unix::fs::symlink("../real.toml", project.join(MANIFEST)).unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let project = &project;
                scope.spawn(move || {
                    let specs = vec![format!("pkg{number}")];
                    add(Some(project), &Add { specs, pypi: true, index: None }).unwrap();
                });
            }
        });
        let text = std::fs::read_to_string(&real).unwrap();
        assert_eq!((0..8).filter(|n| text.contains(&format!("pkg{n} = "))).count(), 8, "{text}");
        assert!(project.join(MANIFEST).is_symlink());
        assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn an_env_toml_that_leads_nowhere_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join(MANIFEST)).unwrap();
        let error = remove(Some(dir.path()), &["x".into()]).unwrap_err();
        assert!(error.error().to_string().contains("leads to none"), "{}", error.error());
    }
}
