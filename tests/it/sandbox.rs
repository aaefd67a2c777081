//! A place of its own for every test: project, home, store, cache, configuration and server,
//! and an environment in which nothing of the machine's shows.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use sha2::Digest as _;

use crate::make::conda::hex;
use crate::make::python;
use crate::serve::Server;

/// No step of a test may take longer.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a program did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    fn of(out: Output) -> Self {
        Outcome {
            status: out.status.code(),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }

    /// Panics unless the exit status is this.
    #[track_caller]
    pub fn exits(&self, status: i32) -> &Self {
        assert_eq!(
            self.status,
            Some(status),
            "exit status\n--- stdout\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Panics unless standard output holds this.
    #[track_caller]
    pub fn says(&self, text: &str) -> &Self {
        assert!(
            self.stdout.contains(text),
            "stdout lacks {text:?}:\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Panics unless standard error holds this.
    #[track_caller]
    pub fn warns(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "stderr lacks {text:?}:\n{}", self.stderr);
        self
    }
}

/// The directories and the server of one test.
pub struct Sandbox {
    root: PathBuf,
    /// Where env.toml lies.
    pub project: PathBuf,
    /// HOME.
    pub home: PathBuf,
    /// GPUENV_STORE.
    pub store: PathBuf,
    /// GPUENV_CACHE.
    pub cache: PathBuf,
    /// GPUENV_CONFIG.
    pub config: PathBuf,
    /// Serves whatever the test puts there.
    pub server: Server,
    /// Variables on top of the scrubbed environment.
    pub env: BTreeMap<String, String>,
    /// Whether the network may be used.
    pub online: bool,
    redactions: Mutex<Option<snapbox::Redactions>>,
    keep: bool,
}

impl Sandbox {
    /// Makes the directories. The paths are short and of equal length on every machine, as
    /// message layout, shebangs and prefixes depend on that. `GPUENV_TEST_TMP` moves them,
    /// `GPUENV_TEST_KEEP` leaves them.
    pub fn new() -> Sandbox {
        let base = std::env::var_os("GPUENV_TEST_TMP").unwrap_or_else(|| "/tmp".into());
        let dir = tempfile::Builder::new()
            .prefix("gpuenv-")
            .tempdir_in(base)
            .expect("a temporary directory");
        let root = dir.keep().canonicalize().expect("a directory that was just made");
        let sub = |name: &str| {
            let path = root.join(name);
            std::fs::create_dir(&path).expect("a fresh directory");
            path
        };
        let sandbox = Sandbox {
            project: sub("project"),
            home: sub("home"),
            store: root.join("store"),
            cache: root.join("cache"),
            config: root.join("config.toml"),
            server: Server::start().expect("a loopback port"),
            env: BTreeMap::new(),
            online: false,
            redactions: Mutex::new(None),
            keep: std::env::var_os("GPUENV_TEST_KEEP").is_some(),
            root,
        };
        sandbox.write_config("");
        sandbox
    }

    /// The directory that holds all others.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes the configuration: mirrors of the default sources on the loopback server.
    pub fn write_config(&self, more: &str) {
        let url = self.server.url();
        let text = format!(
            "[mirrors]\npypi = [\"{url}/pypi/simple/\"]\nconda-forge = [\"{url}/conda-forge\"]\n{more}"
        );
        std::fs::write(&self.config, text).expect("writing the configuration");
    }

    /// Writes a file of the project, after [`Sandbox::fill`].
    pub fn write(&self, path: &str, text: &str) {
        let to = self.project.join(path);
        std::fs::create_dir_all(to.parent().expect("a file below the project"))
            .expect("making directories");
        std::fs::write(to, self.fill(text)).expect("writing a file of the project");
    }

    /// Reads a file of the project.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.project.join(path))
            .unwrap_or_else(|e| panic!("reading {path}: {e}"))
    }

    /// Replaces `{{server}}`, `{{other}}`, `{{python}}`, `{{project}}`, `{{store}}`,
    /// `{{home}}`, `{{root}}` and `{{view}}`.
    pub fn fill(&self, text: &str) -> String {
        let python = python::host().map_or("3.11", |h| h.minor.as_str());
        let mut text = text
            .replace("{{server}}", &self.server.url())
            .replace("{{other}}", &self.server.other_url())
            .replace("{{host}}", &format!("127.0.0.1:{}", self.server.port()))
            .replace("{{python}}", python)
            .replace("{{tag}}", &format!("cp{}", python.replace('.', "")))
            .replace("{{project}}", &self.project.to_string_lossy())
            .replace("{{store}}", &self.store.to_string_lossy())
            .replace("{{home}}", &self.home.to_string_lossy())
            .replace("{{root}}", &self.root.to_string_lossy());
        if text.contains("{{view}}") {
            text = text.replace("{{view}}", &self.view().to_string_lossy());
        }
        text
    }

    /// The view that the project points at.
    pub fn view(&self) -> PathBuf {
        self.find_view().expect("a link in .gpuenv/ that leads to a view in the store")
    }

    fn find_view(&self) -> Option<PathBuf> {
        let envs = self.store.join("envs").canonicalize().ok()?;
        let mut links: Vec<PathBuf> = std::fs::read_dir(self.project.join(".gpuenv"))
            .ok()?
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.is_symlink())
            .collect();
        links.sort();
        links.into_iter().filter_map(|l| l.canonicalize().ok()).find(|p| p.starts_with(&envs))
    }

    /// A command with the scrubbed environment, in the project.
    pub fn command(&self, program: impl Into<OsString>) -> Command {
        let bin = Path::new(env!("CARGO_BIN_EXE_gpuenv")).parent().expect("a file in a directory");
        let mut path = bin.to_string_lossy().into_owned();
        if let Some(host) = python::host()
            && let Some(dir) = host.executable.parent()
        {
            let _ = write!(path, ":{}", dir.display());
        }
        path += ":/usr/local/bin:/usr/bin:/bin";
        let mut command = Command::new(program.into());
        command
            .current_dir(&self.project)
            .env_clear()
            .env("PATH", path)
            .env("HOME", &self.home)
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .env("GPUENV_STORE", &self.store)
            .env("GPUENV_CACHE", &self.cache)
            .env("GPUENV_CONFIG", &self.config)
            .envs(self.env.iter().map(|(k, v)| (k, self.fill(v))))
            .stdin(Stdio::null());
        if !self.online {
            // Whoever leaves loopback meets this server, which has nothing for them.
            command.env("HTTPS_PROXY", self.server.url()).env("NO_PROXY", "127.0.0.1,localhost");
        }
        command
    }

    /// `gpuenv` with these arguments, to be run later.
    pub fn gpuenv_command<S: AsRef<str>>(&self, args: &[S]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_gpuenv"));
        command.args(args.iter().map(|a| self.fill(a.as_ref())));
        command
    }

    /// Runs `gpuenv`.
    pub fn gpuenv<S: AsRef<str>>(&self, args: &[S]) -> Outcome {
        run(self.gpuenv_command(args), PATIENCE)
    }

    /// Runs a bash script with `gpuenv` on PATH and `VIEW` set where there is a view.
    pub fn bash(&self, script: &str) -> Outcome {
        run(self.bash_command(script), PATIENCE)
    }

    /// The command of [`Sandbox::bash`].
    pub fn bash_command(&self, script: &str) -> Command {
        let mut command = self.command("bash");
        if let Some(view) = self.find_view() {
            command.env("VIEW", view);
        }
        command.env("SERVER", self.server.url());
        command.args(["-euo", "pipefail", "-c", &self.fill(script)]);
        command
    }

    /// One line per path below the store that a user relies on (`packages`, `envs`, `roots`):
    /// kind, mode and digest. What is staged is there too, so left-overs show.
    pub fn store_listing(&self) -> String {
        let mut out = String::new();
        for dir in ["packages", "envs", "roots", "staging"] {
            list(&self.store.join(dir), dir, &mut out);
        }
        out
    }

    /// Files left in the store's download directory.
    pub fn downloads(&self) -> String {
        let mut out = String::new();
        list(&self.store.join("downloads"), "downloads", &mut out);
        out
    }

    /// Replaces what differs between machines and runs.
    pub fn redact(&self, text: &str) -> String {
        let mut slot = self.redactions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Columns of sizes are as wide as the widest, which is not the same everywhere.
        let column = regex::Regex::new(r" {2,}(\d+(?:\.\d+)? (?:B|KiB|MiB|GiB)\b)");
        let text = column.expect("a valid pattern").replace_all(text, "  $1");
        slot.get_or_insert_with(|| self.make_redactions()).redact(&text)
    }

    fn make_redactions(&self) -> snapbox::Redactions {
        let mut r = snapbox::Redactions::new();
        let mut insert = |name: &'static str, value: String| {
            r.insert(name, value).expect("a placeholder is upper-case letters in brackets");
        };
        insert("[PROJECT]", self.project.to_string_lossy().into_owned());
        insert("[STORE]", self.store.to_string_lossy().into_owned());
        insert("[CACHE]", self.cache.to_string_lossy().into_owned());
        insert("[HOME]", self.home.to_string_lossy().into_owned());
        insert("[CONFIG]", self.config.to_string_lossy().into_owned());
        insert("[ROOT]", self.root.to_string_lossy().into_owned());
        insert("[SERVER]", self.server.url());
        insert("[OTHER]", self.server.other_url());
        insert("[HOST]", format!("127.0.0.1:{}", self.server.port()));
        if let Some(host) = python::host() {
            insert("[PYTHON]", host.executable.to_string_lossy().into_owned());
        }
        let mut pattern = |name: &'static str, pattern: &str| {
            let regex = regex::Regex::new(pattern).expect("a valid pattern");
            r.insert(name, regex).expect("a placeholder is upper-case letters in brackets");
        };
        pattern("[SHA]", r"\b[0-9a-f]{64}\b");
        pattern("[HASH]", r"\b[0-9a-df-np-su-z]{32}\b");
        // Where the libraries' defaults lead when no mirror serves: never named here.
        pattern("[DEFAULT]", r"https://(?:[a-z0-9-]+\.)+(?:org|com)\b");
        pattern("[STAGED]", r"\b[0-9a-f]{12}-\d+-\d+\b");
        // Compilers and compressors differ.
        pattern("[SIZE]", r"\b\d+(?:\.\d+)? (?:B|KiB|MiB|GiB)\b");
        pattern("[TIME]", r"\b\d+(?:\.\d+)? ?(?:ms|µs|s)\b");
        if let Some(host) = python::host() {
            let (full, minor) = (regex::escape(&host.full), regex::escape(&host.minor));
            pattern("[PY]", &format!(r"(?:\b|python)(?<redacted>{full}|{minor}|3\.11)\b"));
        }
        r
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.keep {
            eprintln!("kept {}", self.root.display());
            return;
        }
        make_writable(&self.root);
        // What cannot be removed stays in the temporary directory; no test depends on it.
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// Directories of a store are read-only.
pub fn make_writable(dir: &Path) {
    let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755));
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

/// Runs a command to its end; ends it, and the test, after `patience`.
pub fn run(mut command: Command, patience: Duration) -> Outcome {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("starting {:?}: {e}", command.get_program()));
    let mut pipes = (child.stdout.take(), child.stderr.take());
    let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut bytes);
            }
            bytes
        })
    };
    let stdout = read(pipes.0.take().map(|p| Box::new(p) as _));
    let stderr = read(pipes.1.take().map(|p| Box::new(p) as _));
    let start = Instant::now();
    let status = loop {
        match child.try_wait().expect("waiting for a child") {
            Some(status) => break status,
            None if start.elapsed() > patience => {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{command:?} was not done after {} s", patience.as_secs());
            }
            None => std::thread::sleep(Duration::from_millis(3)),
        }
    };
    let stdout = stdout.join().expect("a reader that does not panic");
    let stderr = stderr.join().expect("a reader that does not panic");
    Outcome::of(Output { status, stdout, stderr })
}

/// One line per path below `dir`: `path kind mode digest`.
fn list(dir: &Path, name: &str, out: &mut String) {
    let mut entries: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        let Ok(meta) = path.symlink_metadata() else { continue };
        let mode = meta.permissions().mode() & 0o7777;
        if meta.is_symlink() {
            let target = std::fs::read_link(&path).unwrap_or_default();
            let _ = writeln!(out, "{name} -> {}", target.display());
        } else if meta.is_dir() {
            let _ = writeln!(out, "{name}/ {mode:o}");
            list(&path, &name, out);
        } else {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let _ = writeln!(out, "{name} {mode:o} {}", hex(&sha2::Sha256::digest(bytes)));
        }
    }
}

/// Whether this machine lets us make a mount namespace (as root, or as a user in a user
/// namespace): with it a test has read-only and full file systems.
pub fn can_unshare() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        Command::new("unshare")
            .args(["-rm", "sh", "-c", "mount -t tmpfs none /mnt"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    })
}

/// Whether a program is on PATH.
pub fn has(program: &str) -> bool {
    let dirs = ["/usr/local/bin", "/usr/bin", "/bin"];
    dirs.iter().any(|d| Path::new(d).join(program).exists())
}
