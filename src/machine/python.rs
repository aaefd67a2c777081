//! Interpreters of the machine.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use uv_pep440::Version;

use crate::error::{Exit, Report};

/// A CPython of the machine; no virtual environment's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The executable, with every link followed.
    pub executable: PathBuf,
    /// `(major, minor, patch)`.
    pub version: (u32, u32, u32),
    /// `EXT_SUFFIX` without dot and extension, such as `cpython-311-x86_64-linux-gnu`.
    pub soabi: String,
    /// `sys.base_prefix`.
    pub prefix: PathBuf,
}

/// Why there is no interpreter.
#[derive(Debug, thiserror::Error)]
pub enum PythonError {
    /// None of that version.
    #[error("no Python {wanted} was found on this machine{}", seen(.found))]
    NotFound {
        /// The version asked for.
        wanted: String,
        /// What was found instead, in the order looked at.
        found: Vec<Seen>,
    },
}

/// Something that was looked at and not taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// The file.
    pub path: PathBuf,
    /// Why not, or its version.
    pub what: String,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

fn seen(found: &[Seen]) -> String {
    if found.is_empty() {
        return "; there is none of any version".into();
    }
    let lines: Vec<_> = found.iter().map(|s| format!("\n  {s}")).collect();
    format!("; looked at:{}", lines.concat())
}

impl Report for PythonError {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        let PythonError::NotFound { wanted, .. } = self;
        Some(format!(
            "install CPython {wanted} so that python{} is on PATH, or take Python from conda: \
             leave [host] out and add python to [dependencies]",
            wanted.split('.').take(2).collect::<Vec<_>>().join(".")
        ))
    }
}

/// Finds a CPython of `version` (`3.11`, or `3.11.7` for exactly that): on `PATH`, in pyenv's and
/// uv's directories, in `/usr/bin` and `/usr/local/bin`, in that order. Each candidate is run.
///
/// # Errors
///
/// None is there; the error lists what is.
pub fn find_python(
    version: &Version,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Interpreter, PythonError> {
    let release: Vec<u64> = version.release().to_vec();
    let (major, minor) = (release.first().copied().unwrap_or(3), release.get(1).copied());
    let mut found = Vec::new();
    let mut tried = BTreeSet::new();
    for candidate in candidates(major, minor, env) {
        let Some(path) = without_venv(&candidate, minor) else { continue };
        let Ok(real) = fs::canonicalize(&path) else { continue };
        // A shim is one file for all versions: its name matters too.
        if !tried.insert((real.clone(), path.file_name().map(OsStr::to_owned))) {
            continue;
        }
        if is_view(&real) {
            continue;
        }
        match probe(&path, PATIENCE) {
            Ok(python) => match refusal(&python, &release) {
                None => return Ok(python.interpreter),
                Some(what) => found.push(Seen { path: candidate, what }),
            },
            Err(what) => found.push(Seen { path: candidate, what }),
        }
    }
    let mut seen = BTreeSet::new();
    found.retain(|f| seen.insert(f.clone()));
    Err(PythonError::NotFound { wanted: version.to_string(), found })
}

/// Why an interpreter that runs is not the one wanted.
fn refusal(python: &Probed, release: &[u64]) -> Option<String> {
    let Interpreter { version: (major, minor, patch), .. } = python.interpreter;
    let own = [major, minor, patch].map(u64::from);
    let full = format!("{major}.{minor}.{patch}");
    if python.implementation != "cpython" {
        return Some(format!("{} {full}", python.implementation));
    }
    if python.free_threaded {
        return Some(format!("{full}, free-threaded"));
    }
    if python.bits != 64 {
        return Some(format!("{full}, {} bits", python.bits));
    }
    (!own.starts_with(release) && !release.starts_with(&own)).then_some(full)
}

/// Files that may be the interpreter, best first.
fn candidates(
    major: u64,
    minor: Option<u64>,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Vec<PathBuf> {
    let names: Vec<String> = match minor {
        Some(minor) => {
            vec![format!("python{major}.{minor}"), format!("python{major}"), "python".into()]
        }
        None => vec![format!("python{major}"), "python".into()],
    };
    let mut dirs: Vec<PathBuf> = Vec::new();
    if let Some(path) = env("PATH") {
        dirs.extend(std::env::split_paths(&path).filter(|dir| dir.is_absolute()));
    }
    let home = env("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let absolute = |name: &str| env(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let pyenv = absolute("PYENV_ROOT").or_else(|| Some(home.as_ref()?.join(".pyenv")));
    let uv = absolute("UV_PYTHON_INSTALL_DIR")
        .or_else(|| Some(absolute("XDG_DATA_HOME")?.join("uv/python")))
        .or_else(|| Some(home.as_ref()?.join(".local/share/uv/python")));
    let prefix = minor.map(|minor| format!("{major}.{minor}")).unwrap_or(major.to_string());
    for (root, prefix) in
        [(pyenv.map(|p| p.join("versions")), prefix.clone()), (uv, format!("cpython-{prefix}"))]
    {
        let Some(Ok(entries)) = root.map(fs::read_dir) else { continue };
        let mut versions: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
                let rest = name.strip_prefix(&prefix);
                rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
            })
            .collect();
        // Newest first, where numbers are numbers.
        versions.sort_by_key(|path| std::cmp::Reverse(numbers(path)));
        dirs.extend(versions.into_iter().map(|path| path.join("bin")));
    }
    dirs.extend(["/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    // The exact minor version anywhere is better than a name that may be any.
    let at = |name: &String| dirs.iter().map(|dir| dir.join(name)).collect::<Vec<_>>();
    names.iter().flat_map(at).filter(|file| file.is_file()).collect()
}

fn numbers(path: &Path) -> Vec<u64> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

/// The interpreter that a virtual environment was made from (`home` in `pyvenv.cfg`); the file
/// itself where it is in none.
fn without_venv(file: &Path, minor: Option<u64>) -> Option<PathBuf> {
    let mut file = file.to_owned();
    // Environments made from environments end somewhere, or are a loop.
    for _ in 0..8 {
        let dir = file.parent()?;
        let marker = [Some(dir), dir.parent()].into_iter().flatten().map(|d| d.join("pyvenv.cfg"));
        let Some(text) = marker.map(fs::read_to_string).find_map(Result::ok) else {
            return Some(file);
        };
        let home = text.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == "home").then(|| PathBuf::from(value.trim()))
        })?;
        let mut names = vec!["python3".to_owned(), "python".to_owned()];
        if let Some(minor) = minor {
            names.insert(0, format!("python3.{minor}"));
        }
        file = names.iter().map(|name| home.join(name)).find(|file| file.is_file())?;
    }
    None
}

/// Whether the executable is in a view of gpuenv.
fn is_view(executable: &Path) -> bool {
    let prefix = executable.parent().and_then(Path::parent);
    prefix.is_some_and(|prefix| prefix.join(crate::machine::python::VIEW_MARK).exists())
}

/// What tells a view of gpuenv; see `store-layout/view.md`.
const VIEW_MARK: &str = "share/gpuenv/manifest";

struct Probed {
    interpreter: Interpreter,
    implementation: String,
    free_threaded: bool,
    bits: u32,
}

/// What the interpreter prints of itself.
#[derive(Deserialize)]
struct Printed {
    implementation: String,
    version: (u32, u32, u32),
    executable: PathBuf,
    prefix: PathBuf,
    suffix: Option<String>,
    free_threaded: bool,
    bits: u32,
}

const PROBE: &str = "\
import json, struct, sys
try:
    import _imp as imp
    suffix = imp.extension_suffixes()[0]
except Exception:
    suffix = None
print(json.dumps({
    'implementation': sys.implementation.name,
    'version': list(sys.version_info[:3]),
    'executable': sys.executable,
    'prefix': sys.base_prefix,
    'suffix': suffix,
    'free_threaded': 't' in getattr(sys, 'abiflags', ''),
    'bits': struct.calcsize('P') * 8,
}))
";

/// How long an interpreter may take to answer. One on a cold network file system takes seconds; a
/// stand-in that asks a question, or a wrapper that waits for a server, takes forever.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most bytes of an answer that are read.
const ANSWER: u64 = 64 << 10;

/// Runs an interpreter: isolated (`-I`), without the `site` module (`-S`).
fn probe(path: &Path, patience: Duration) -> Result<Probed, String> {
    let mut child = Command::new(path)
        .args(["-I", "-S", "-c", PROBE])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // So that what it starts can be ended with it.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot be run ({error})"))?;
    let deadline = Instant::now() + patience;
    let answer = child.stdout.take().map(read_aside);
    let complaint = child.stderr.take().map(read_aside);
    let status = wait(&mut child, deadline).map_err(|error| format!("cannot be run ({error})"))?;
    // Whatever it left behind may hold the pipes open: what has been said by now is all.
    end(&mut child);
    let said = |from: Option<mpsc::Receiver<Vec<u8>>>| {
        from.and_then(|from| from.recv_timeout(Duration::from_secs(1)).ok()).unwrap_or_default()
    };
    let Some(status) = status else {
        return Err(format!("does not answer within {} s", patience.as_secs_f32()));
    };
    if !status.success() {
        let stderr = said(complaint);
        let stderr = String::from_utf8_lossy(&stderr);
        let last = stderr.lines().last().unwrap_or_default().trim();
        return Err(format!("fails to start ({status}): {last}"));
    }
    let stdout = said(answer);
    let printed: Printed = serde_json::from_slice(&stdout)
        .map_err(|_| "does not answer as a Python does".to_owned())?;
    let executable = fs::canonicalize(&printed.executable)
        .map_err(|error| format!("names {:?} as itself ({error})", printed.executable))?;
    let suffix = printed.suffix.unwrap_or_default();
    let soabi = suffix.trim_start_matches('.').trim_end_matches(".so").to_owned();
    let interpreter =
        Interpreter { executable, version: printed.version, soabi, prefix: printed.prefix };
    Ok(Probed {
        interpreter,
        implementation: printed.implementation,
        free_threaded: printed.free_threaded,
        bits: printed.bits,
    })
}

/// Reads a pipe in a thread of its own, which ends with the pipe. What goes beyond [`ANSWER`] is
/// left, and the writer gets an error.
fn read_aside(pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A pipe that breaks has said what it had to say.
        let _ = pipe.take(ANSWER).read_to_end(&mut bytes);
        let _ = send.send(bytes);
    });
    receive
}

/// How the child ended; `None` where it did not before `deadline`.
fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Ends what is left of the child's process group.
fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        // No such group any more is what is wanted.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::str::FromStr;

    use super::*;

    /// A stand-in that prints what an interpreter would.
    fn fake(dir: &Path, name: &str, version: &str, implementation: &str) -> PathBuf {
        fs::create_dir_all(dir).unwrap();
        let path = dir.join(name);
        let version = version.replace('.', ", ");
        let script = format!(
            "#!/bin/sh\ncat <<END\n{{\"implementation\": \"{implementation}\", \"version\": [{version}], \
             \"executable\": \"$0\", \"prefix\": \"/p\", \"suffix\": \".cpython-x.so\", \
             \"free_threaded\": false, \"bits\": 64}}\nEND\n"
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn find(wanted: &str, vars: &[(&str, &Path)]) -> Result<Interpreter, PythonError> {
        let get = |name: &str| {
            let found = vars.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| value.as_os_str().to_owned())
        };
        find_python(&Version::from_str(wanted).unwrap(), &get)
    }

    #[test]
    fn the_exact_name_on_the_path_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        fake(dir.path(), "python3", "3.77.1", "cpython");
        let wanted = fake(dir.path(), "python3.99", "3.99.2", "cpython");
        let found = find("3.99", &[("PATH", dir.path())]).unwrap();
        assert_eq!(found.executable, fs::canonicalize(wanted).unwrap());
        assert_eq!((found.version, &*found.soabi), ((3, 99, 2), "cpython-x"));
        // `python3` serves where it is of that version.
        assert_eq!(find("3.77", &[("PATH", dir.path())]).unwrap().version, (3, 77, 1));
        assert_eq!(find("3.99.2", &[("PATH", dir.path())]).unwrap().version, (3, 99, 2));
    }

    #[test]
    fn what_is_there_instead_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        fake(dir.path(), "python3.99", "3.99.2", "cpython");
        let other = dir.path().join("other");
        fake(&other, "python3.98", "3.98.1", "pypy");
        let both = std::env::join_paths([dir.path(), &other]).unwrap();
        let error = find("3.99.5", &[("PATH", Path::new(&both))]).unwrap_err().to_string();
        assert!(error.contains("python3.99: 3.99.2"), "{error}");
        let error = find("3.98", &[("PATH", Path::new(&both))]).unwrap_err().to_string();
        assert!(error.contains("python3.98: pypy 3.98.1"), "{error}");
    }

    fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn one_that_hangs_is_given_up_with_all_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let text = format!("sleep 600 & echo $! > {}; wait", pid.display());
        let hanging = script(dir.path(), "python3.99", &text);
        let begun = Instant::now();
        let error = probe(&hanging, Duration::from_millis(500)).err().unwrap();
        assert_eq!(error, "does not answer within 0.5 s");
        assert!(begun.elapsed() < Duration::from_secs(30));
        let pid = fs::read_to_string(&pid).unwrap();
        let state = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok();
        let gone = || state().is_none_or(|stat| stat.contains(") Z "));
        assert!((0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            gone()
        }));
    }

    #[test]
    fn one_that_leaves_something_behind_or_talks_without_end_is_no_trouble() {
        let dir = tempfile::tempdir().unwrap();
        let good = fake(dir.path(), "good", "3.99.0", "cpython");
        let leaves = format!("sleep 600 &\nexec {} \"$@\"", good.display());
        let leaves = script(dir.path(), "leaves", &leaves);
        let found = probe(&leaves, PATIENCE).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found.interpreter.version, (3, 99, 0));
        let endless = script(dir.path(), "endless", "exec yes");
        let error = probe(&endless, PATIENCE).err().unwrap();
        assert!(error.starts_with("fails to start"), "{error}");
    }

    #[test]
    fn a_virtual_environment_leads_to_its_base() {
        let dir = tempfile::tempdir().unwrap();
        let base = fake(&dir.path().join("base/bin"), "python3.99", "3.99.0", "cpython");
        let venv = dir.path().join("venv");
        fake(&venv.join("bin"), "python3.99", "3.99.0", "cpython");
        let home = format!("home = {}\n", base.parent().unwrap().display());
        fs::write(venv.join("pyvenv.cfg"), home).unwrap();
        let found = find("3.99", &[("PATH", &venv.join("bin"))]).unwrap();
        assert_eq!(found.executable, fs::canonicalize(base).unwrap());
    }

    #[test]
    fn a_view_of_gpuenv_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        fake(&dir.path().join("bin"), "python3.99", "3.99.0", "cpython");
        fs::create_dir_all(dir.path().join("share/gpuenv")).unwrap();
        fs::write(dir.path().join(VIEW_MARK), "").unwrap();
        assert!(find("3.99", &[("PATH", &dir.path().join("bin"))]).is_err());
    }

    #[test]
    fn pyenvs_newest_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        for version in ["3.99.9", "3.99.10", "3.9.1", "3.999.1"] {
            fake(
                &dir.path().join("versions").join(version).join("bin"),
                "python3.99",
                version,
                "cpython",
            );
        }
        let found = find("3.99", &[("PYENV_ROOT", dir.path())]).unwrap();
        assert_eq!(found.version, (3, 99, 10));
    }
}
