//! A test that is a directory of `tests/cases/`.
//!
//! | file | what it is |
//! |---|---|
//! | `case.toml` | what lies on the server, and the steps with what must come of them ([`Case`]) |
//! | `expected.txt` | the transcript of the steps; `SNAPSHOTS=overwrite` writes it |
//! | anything else | is copied to the project, with `{{server}}` and the like filled in |
//!
//! `config.toml` beside them replaces the configuration that points the default sources at
//! the loopback server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

use crate::index::{self, Listing};
use crate::make::conda::{self, Channel};
use crate::make::wheel::{self, Wheel};
use crate::make::zip::Member;
use crate::make::{elf, python};
use crate::sandbox::{self, Outcome, Sandbox};
use crate::serve::{Content, Fault, Seen, matches};

/// A whole `case.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Case {
    /// What a user does and must see.
    pub about: String,
    /// What the machine must have, or the case is ignored: `cc`, `unshare`, `python`,
    /// `conda-python`, `no-driver` (of NVIDIA), or the name of a program.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Variables on top of the scrubbed environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether indexes speak JSON (PEP 691) too.
    #[serde(default = "yes")]
    pub json: bool,
    /// Put in the head of pages of links.
    #[serde(default)]
    pub links_head: String,
    /// Serve the pip that the interpreter bundles, as a wheel (instead of a stand-in) and as a
    /// conda package.
    #[serde(default)]
    pub pip: bool,
    /// Serve the machine's CPython as a conda package.
    #[serde(default)]
    pub python: bool,
    /// Wheels.
    #[serde(default)]
    pub wheel: Vec<WheelSpec>,
    /// Conda packages.
    #[serde(default)]
    pub conda: Vec<CondaSpec>,
    /// Other content by path.
    #[serde(default)]
    pub serve: BTreeMap<String, String>,
    /// Paths that are taken away after all is laid out.
    #[serde(default)]
    pub unserve: Vec<String>,
    /// What goes wrong from the start.
    #[serde(default)]
    pub fault: Vec<Fault>,
    /// What is done, in order.
    pub step: Vec<Step>,
}

fn yes() -> bool {
    true
}

/// One wheel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WheelSpec {
    name: String,
    version: String,
    build: Option<String>,
    tag: Option<String>,
    #[serde(default)]
    requires: Vec<String>,
    requires_python: Option<String>,
    #[serde(default)]
    headers: Vec<String>,
    entry_points: Option<String>,
    #[serde(default = "yes")]
    purelib: bool,
    /// Text files by path; without any, a module named like the distribution.
    files: Option<BTreeMap<String, String>>,
    /// Executable text files by path.
    #[serde(default)]
    programs: BTreeMap<String, String>,
    /// Members that are symbolic links, by path.
    #[serde(default)]
    links: BTreeMap<String, String>,
    /// Compiled libraries by path.
    #[serde(default)]
    libraries: BTreeMap<String, LibrarySpec>,
    /// A member of this many zero bytes.
    bomb: Option<usize>,
    /// A member that is there twice, with different content.
    twice: Option<String>,
    /// `true` (default), `wrong-hash`, `unlisted`, `absent`.
    record: Option<String>,
    stem: Option<String>,
    /// `pypi` (default) or another name: an index at `/NAME/simple/`; `links:NAME`: a page at
    /// `/NAME/links.html`; `dir:PATH`: a directory of the project.
    at: Option<String>,
    /// Whose page lists it, if not `name`'s.
    project: Option<String>,
    /// The bytes of the file instead of a wheel.
    garbage: Option<String>,
    /// The file name, instead of the one that follows from the rest.
    file: Option<String>,
    #[serde(default)]
    listing: Listing,
}

/// A library to compile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LibrarySpec {
    soname: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    needed: Vec<String>,
    rpath: Option<String>,
    #[serde(default)]
    old_rpath: bool,
}

impl LibrarySpec {
    fn compile(&self) -> Vec<u8> {
        elf::Library {
            soname: self.soname.clone(),
            source: self.source.replace("{{placeholder}}", &conda::placeholder()),
            needed: self.needed.clone(),
            rpath: self.rpath.clone(),
            old_rpath: self.old_rpath,
        }
        .compile()
    }
}

/// One conda package.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CondaSpec {
    name: String,
    version: String,
    build: Option<String>,
    #[serde(default)]
    number: u64,
    /// `python` or `generic`.
    noarch: Option<String>,
    /// Instead of `linux-64`.
    subdir: Option<String>,
    #[serde(default)]
    depends: Vec<String>,
    #[serde(default)]
    constrains: Vec<String>,
    #[serde(default)]
    entry_points: Vec<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    programs: BTreeMap<String, String>,
    /// Text files in which `{{placeholder}}` stands for the prefix.
    #[serde(default)]
    text_prefix: BTreeMap<String, String>,
    /// The same with mode 0755.
    #[serde(default)]
    text_prefix_programs: BTreeMap<String, String>,
    /// Files marked binary; `\0` is a NUL and `{{placeholder}}` the prefix.
    #[serde(default)]
    binary_prefix: BTreeMap<String, String>,
    #[serde(default)]
    links: BTreeMap<String, String>,
    #[serde(default)]
    hard_links: BTreeMap<String, String>,
    #[serde(default)]
    devices: Vec<String>,
    #[serde(default)]
    libraries: BTreeMap<String, LibrarySpec>,
    /// Compiled libraries whose strings hold the placeholder.
    #[serde(default)]
    library_prefix: BTreeMap<String, LibrarySpec>,
    /// Other files of `info/`.
    #[serde(default)]
    info: BTreeMap<String, String>,
    /// `.tar.bz2` instead of `.conda`.
    #[serde(default)]
    bz2: bool,
    /// `conda-forge` (default) or another name: a channel at `/NAME`; `dir:PATH`: a directory
    /// of the project.
    at: Option<String>,
    /// Changes to the record in `repodata.json`; an empty string removes the key.
    #[serde(default)]
    record: BTreeMap<String, String>,
}

/// One thing that is done.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Step {
    /// Arguments of gpuenv, split at blanks (`'…'` keeps together).
    run: Option<String>,
    /// A bash script instead.
    sh: Option<String>,
    /// Exit status.
    exit: i32,
    /// What standard output must hold.
    out: Vec<String>,
    /// What standard error must hold.
    err: Vec<String>,
    /// What neither may hold.
    not: Vec<String>,
    /// Files of the project written before; `false` removes.
    write: BTreeMap<String, toml::Value>,
    /// Text replaced in a file of the project before: file to `[old, new]`.
    replace: BTreeMap<String, [String; 2]>,
    /// Variables of this step.
    env: BTreeMap<String, String>,
    /// Replaces the faults in force.
    fault: Option<Vec<Fault>>,
    /// Files of the project that must not change.
    same: Vec<String>,
    /// Files of the project that must not be there afterwards.
    absent: Vec<String>,
    /// Files of the project and what they must hold afterwards.
    holds: BTreeMap<String, Vec<String>>,
    /// Files of the project and what they must not hold.
    lacks: BTreeMap<String, Vec<String>>,
    /// Nothing may change in the store, and nothing be left staged.
    store_unchanged: bool,
    /// No downloaded file may be left.
    nothing_kept: bool,
    /// Requests by path pattern: exact number.
    requests: BTreeMap<String, usize>,
    /// Path patterns for which one request at least must go on from where it stopped.
    resumed: Vec<String>,
    /// Path patterns for which there must be requests, all of them for a range of bytes.
    ranged: Vec<String>,
    /// Path patterns for which there must be requests, none of them with credentials.
    unauthorized: Vec<String>,
    /// Leave it out of the transcript (its output differs between machines).
    quiet: bool,
}

/// Names of all cases.
pub fn names() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| e.path().join("case.toml").exists())
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn dir_of(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name)
}

/// Reads `case.toml`.
pub fn load(name: &str) -> Result<Case, String> {
    let path = dir_of(name).join("case.toml");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// What the machine lacks for this case.
pub fn lacking(case: &Case) -> Option<String> {
    let conda_python = case.python.then(|| "conda-python".to_owned());
    let pip = case.pip.then(|| "pip".to_owned());
    case.needs.iter().cloned().chain(conda_python).chain(pip).find(|need| !match need.as_str() {
        "cc" => elf::compiler(),
        "unshare" => sandbox::can_unshare(),
        "python" => python::host().is_some(),
        "pip" => python::host().is_some_and(|h| h.pip().is_some()),
        "no-driver" => !Path::new("/proc/driver/nvidia/version").exists(),
        "conda-python" => python::host().is_some_and(python::Host::relocatable),
        program => sandbox::has(program),
    })
}

/// Runs a case.
pub fn run(name: &str) {
    let case = load(name).unwrap_or_else(|e| panic!("{e}"));
    let mut sandbox = Sandbox::new();
    sandbox.env = case.env.clone();
    copy_project(&dir_of(name), &sandbox);
    lay_out(&case, &sandbox);
    sandbox.server.faults(&case.fault);

    let mut transcript = format!("# {}\n", case.about.trim());
    for step in &case.step {
        let told = perform(step, &mut sandbox, &case);
        if !step.quiet {
            transcript += &told;
        }
    }
    let expected = dir_of(name).join("expected.txt");
    let overwrite = std::env::var("SNAPSHOTS").is_ok_and(|v| v == "overwrite");
    assert!(
        expected.exists() || overwrite,
        "{} is not there: run once with SNAPSHOTS=overwrite, and read what it wrote\n{}",
        expected.display(),
        sandbox.redact(&transcript)
    );
    snapbox::Assert::new().action_env("SNAPSHOTS").normalize_paths(false).eq(
        sandbox.redact(&transcript),
        snapbox::Data::read_from(&expected, Some(snapbox::data::DataFormat::Text)),
    );
}

fn copy_project(from: &Path, sandbox: &Sandbox) {
    let mut pending = vec![from.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).expect("a case is a directory").flatten() {
            let path = entry.path();
            let relative = path.strip_prefix(from).expect("below the case").to_path_buf();
            let name = relative.to_string_lossy().into_owned();
            if path.is_dir() {
                pending.push(path);
            } else if name == "config.toml" {
                let text = std::fs::read_to_string(&path).expect("a text");
                std::fs::write(&sandbox.config, sandbox.fill(&text)).expect("writing");
            } else if name != "case.toml" && name != "expected.txt" {
                let text = std::fs::read_to_string(&path)
                    .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                sandbox.write(&name, &text);
            }
        }
    }
}

fn lay_out(case: &Case, sandbox: &Sandbox) {
    lay_out_wheels(case, sandbox);
    lay_out_channels(case, sandbox);
    for (path, text) in &case.serve {
        let text = sandbox.fill(text);
        let content = match path.rsplit_once('.').map_or("", |(_, suffix)| suffix) {
            "json" => Content::json(text),
            "zst" | "whl" | "conda" => Content::file(text),
            _ => Content::html(text),
        };
        sandbox.server.put(path, content);
    }
    for path in &case.unserve {
        sandbox.server.remove(path);
    }
}

fn lay_out_wheels(case: &Case, sandbox: &Sandbox) {
    let mut places: BTreeMap<String, Vec<index::Entry>> = BTreeMap::new();
    places.entry("pypi".into()).or_default();
    if !case.wheel.iter().any(|w| w.name == "pip") {
        let pip = case.pip.then(index::bundled_pip).flatten();
        let pip = pip.unwrap_or_else(index::stand_in_pip);
        places.entry("pypi".into()).or_default().push(pip);
    }
    for spec in &case.wheel {
        let entry = spec.make(sandbox);
        places.entry(spec.at.clone().unwrap_or_else(|| "pypi".into())).or_default().push(entry);
    }
    for (place, entries) in &places {
        if let Some(dir) = place.strip_prefix("dir:") {
            let dir = sandbox.project.join(dir);
            std::fs::create_dir_all(&dir).expect("making a directory of the project");
            for entry in entries {
                std::fs::write(dir.join(&entry.wheel.file), &entry.wheel.bytes).expect("writing");
            }
        } else if let Some(name) = place.strip_prefix("links:") {
            let head = sandbox.fill(&case.links_head);
            index::links(&sandbox.server, &format!("/{name}"), entries, &head);
        } else {
            index::simple(&sandbox.server, &format!("/{place}"), entries, case.json);
        }
    }
}

fn lay_out_channels(case: &Case, sandbox: &Sandbox) {
    let mut channels: BTreeMap<String, Channel> = BTreeMap::new();
    channels.entry("conda-forge".into()).or_default();
    if case.python
        && let Some(host) = python::host()
    {
        let channel = channels.entry("conda-forge".into()).or_default();
        channel.packages.push(python_package(host));
        if case.pip
            && let Some(package) = pip_package(host)
        {
            channel.packages.push(package);
        }
    }
    for spec in &case.conda {
        let place = spec.at.clone().unwrap_or_else(|| "conda-forge".into());
        channels.entry(place).or_default().packages.push(spec.make(sandbox));
    }
    for (place, channel) in &channels {
        for (path, bytes) in channel.files() {
            if let Some(dir) = place.strip_prefix("dir:") {
                let to = sandbox.project.join(dir).join(path);
                std::fs::create_dir_all(to.parent().expect("below the project")).expect("mkdir");
                std::fs::write(to, bytes).expect("writing a file of a channel");
            } else {
                let content = match path.ends_with(".json") {
                    true => Content::json(bytes),
                    false => Content::file(bytes),
                };
                sandbox.server.put(&format!("/{place}/{path}"), content);
            }
        }
    }
}

/// The machine's CPython as a conda package, packed once for all tests.
pub fn python_package(host: &python::Host) -> conda::Built {
    static PACKED: std::sync::OnceLock<conda::Built> = std::sync::OnceLock::new();
    PACKED.get_or_init(|| host.package().build()).clone()
}

/// The pip that CPython bundles, as `noarch: python`.
pub fn pip_package(host: &python::Host) -> Option<conda::Built> {
    let (file, bytes, _) = host.pip()?;
    let version = file.split('-').nth(1)?.to_owned();
    let dir = tempfile::tempdir().ok()?;
    std::fs::write(dir.path().join(&file), bytes).ok()?;
    // The interpreter itself unpacks: a zip reader that is not the one under test.
    let status = std::process::Command::new(&host.executable)
        .args(["-I", "-m", "zipfile", "-e", &file, "out"])
        .current_dir(dir.path())
        .status()
        .ok()?;
    assert!(status.success(), "python -m zipfile -e {file}");
    let mut package = conda::Package::new("pip", &version).noarch_python().depends("python");
    package.entry_points = vec!["pip = pip._internal.cli.main:main".into()];
    let root = dir.path().join("out");
    let mut pending = vec![root.clone()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).ok()?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
                continue;
            }
            let relative = path.strip_prefix(&root).ok()?.to_string_lossy().into_owned();
            let to = format!("site-packages/{relative}");
            package.entries.push(conda::Entry::file(&to, std::fs::read(&path).ok()?));
        }
    }
    package.entries.sort_by(|a, b| a.path.cmp(&b.path));
    Some(package.build())
}

impl WheelSpec {
    fn make(&self, sandbox: &Sandbox) -> index::Entry {
        let mut wheel = Wheel::new(&self.name, &self.version);
        wheel.build = self.build.clone();
        if let Some(tag) = &self.tag {
            wheel.tag = sandbox.fill(tag);
        }
        wheel.requires = self.requires.clone();
        wheel.requires_python = self.requires_python.clone();
        wheel.headers = self.headers.clone();
        wheel.entry_points = self.entry_points.clone();
        wheel.purelib = self.purelib;
        wheel.stem = self.stem.clone();
        wheel.record = match self.record.as_deref() {
            None | Some("true") => wheel::Record::True,
            Some("wrong-hash") => wheel::Record::WrongHash,
            Some("unlisted") => wheel::Record::Unlisted,
            Some("absent") => wheel::Record::Absent,
            Some(other) => panic!("record = {other:?} is not known"),
        };
        match &self.files {
            Some(files) => {
                for (path, text) in files {
                    wheel.members.push(Member::file(path, text.as_bytes()));
                }
            }
            None => {
                let module = self.name.to_lowercase().replace(['-', '.'], "_");
                let text = format!("version = {:?}\n", self.version);
                wheel.members.push(Member::file(&format!("{module}/__init__.py"), text));
            }
        }
        for (path, text) in &self.programs {
            wheel.members.push(Member::file(path, text.as_bytes()).mode(0o755));
        }
        for (path, to) in &self.links {
            wheel.members.push(Member::link(path, to));
        }
        for (path, library) in &self.libraries {
            wheel.members.push(Member::file(path, library.compile()).mode(0o755));
        }
        if let Some(size) = self.bomb {
            wheel.members.push(Member::file("bomb.bin", vec![0; size]));
        }
        if let Some(path) = &self.twice {
            wheel.members.push(Member::file(path, "first\n"));
            wheel.members.push(Member::file(path, "second\n"));
        }
        let mut built = wheel.build();
        if let Some(text) = &self.garbage {
            built.bytes = text.clone().into_bytes();
        }
        if let Some(file) = &self.file {
            built.file = file.clone();
        }
        let mut listing = self.listing.clone();
        listing.href = listing.href.map(|h| sandbox.fill(&h));
        let project = self.project.clone().unwrap_or_else(|| index::normalize(&self.name));
        index::Entry { wheel: built, project, listing }
    }
}

impl CondaSpec {
    fn make(&self, sandbox: &Sandbox) -> conda::Built {
        let mut package = conda::Package::new(&self.name, &self.version);
        if let Some(noarch) = &self.noarch {
            package.noarch = Some(noarch.clone());
            package.subdir = "noarch".into();
        }
        if let Some(subdir) = &self.subdir {
            package.subdir = subdir.clone();
        }
        if let Some(build) = &self.build {
            package.build = build.clone();
        }
        package.number = self.number;
        package.depends = self.depends.iter().map(|d| sandbox.fill(d)).collect();
        package.constrains = self.constrains.clone();
        package.entry_points = self.entry_points.clone();
        package.format = if self.bz2 { conda::Format::TarBz2 } else { conda::Format::Conda };
        for (name, text) in &self.info {
            package.info.insert(name.clone(), text.clone().into_bytes());
        }
        package.entries = self.entries();
        let mut built = package.build();
        for (key, value) in &self.record {
            let record = built.record.as_object_mut().expect("a record is an object");
            match value.as_str() {
                "" => drop(record.remove(key)),
                number if key == "timestamp" => {
                    let number: u64 = number.parse().expect("milliseconds");
                    drop(record.insert(key.clone(), number.into()));
                }
                text => drop(record.insert(key.clone(), text.into())),
            }
        }
        built
    }

    fn entries(&self) -> Vec<conda::Entry> {
        use conda::{Entry, Kind};
        let put = |text: &str| text.replace("{{placeholder}}", &conda::placeholder());
        let mut out = Vec::new();
        out.extend(self.files.iter().map(|(p, t)| Entry::file(p, t.as_bytes())));
        out.extend(self.programs.iter().map(|(p, t)| Entry::program(p, t.as_bytes())));
        out.extend(self.text_prefix.iter().map(|(p, t)| Entry::file(p, put(t)).text_prefix()));
        let programs = &self.text_prefix_programs;
        out.extend(programs.iter().map(|(p, t)| Entry::program(p, put(t)).text_prefix()));
        let binaries = &self.binary_prefix;
        out.extend(
            binaries
                .iter()
                .map(|(p, t)| Entry::file(p, put(t).replace("\\0", "\0")).binary_prefix()),
        );
        out.extend(self.libraries.iter().map(|(p, l)| Entry::program(p, l.compile())));
        let prefixed = &self.library_prefix;
        out.extend(prefixed.iter().map(|(p, l)| Entry::program(p, l.compile()).binary_prefix()));
        out.extend(self.links.iter().map(|(p, to)| Entry::link(p, to)));
        // A hard link stands after what it links to.
        out.extend(
            self.hard_links
                .iter()
                .map(|(p, to)| Entry { kind: Kind::Hard(to.clone()), ..Entry::file(p, "") }),
        );
        out.extend(self.devices.iter().map(|p| Entry { kind: Kind::Device, ..Entry::file(p, "") }));
        out
    }
}

/// Does one step and returns its part of the transcript.
fn perform(step: &Step, sandbox: &mut Sandbox, case: &Case) -> String {
    for (path, value) in &step.write {
        match value {
            toml::Value::String(text) => sandbox.write(path, text),
            _ => {
                let _ = std::fs::remove_file(sandbox.project.join(path));
            }
        }
    }
    for (path, [old, new]) in &step.replace {
        let text = sandbox.read(path);
        let (old, new) = (sandbox.fill(old), sandbox.fill(new));
        assert!(text.contains(&old), "{path} does not hold {old:?}:\n{text}");
        std::fs::write(sandbox.project.join(path), text.replacen(&old, &new, 1)).expect("writing");
    }
    if let Some(faults) = &step.fault {
        sandbox.server.faults(faults);
    }
    sandbox.env = case.env.clone();
    sandbox.env.extend(step.env.clone());
    let same: Vec<(String, Option<Vec<u8>>)> = step
        .same
        .iter()
        .map(|p| (p.clone(), std::fs::read(sandbox.project.join(p)).ok()))
        .collect();
    let before = step.store_unchanged.then(|| sandbox.store_listing());
    sandbox.server.take_seen();

    let (shown, outcome) = match (&step.run, &step.sh) {
        (Some(args), None) => {
            let words = split(args);
            (format!("$ gpuenv {args}"), sandbox.gpuenv(&words))
        }
        (None, Some(script)) => (format!("$ {}", script.trim()), sandbox.bash(script)),
        _ => panic!("a step has `run` or `sh`"),
    };

    let told = tell(&shown, &outcome);
    check(step, sandbox, &outcome, &told);
    for (path, was) in same {
        let is = std::fs::read(sandbox.project.join(&path)).ok();
        assert!(was == is, "{path} changed\n{told}");
    }
    if let Some(before) = before {
        let after = sandbox.store_listing();
        assert!(
            before == after,
            "the store changed\n{told}\n--- before\n{before}\n--- after\n{after}"
        );
    }
    told
}

fn tell(shown: &str, outcome: &Outcome) -> String {
    let status = outcome.status.map_or("signal".into(), |s| s.to_string());
    let mut told = format!("\n{shown}\n= {status}\n");
    for (mark, text) in [("", &outcome.stdout), ("~ ", &outcome.stderr)] {
        for line in text.lines().filter(|l| !is_progress(l)) {
            let _ = writeln!(told, "{}", format!("{mark}{line}").trim_end());
        }
    }
    told
}

/// A line about one file of many that arrive in any order.
fn is_progress(line: &str) -> bool {
    let name = line.strip_prefix("  ").unwrap_or("").split(' ').next().unwrap_or("");
    let artifact = [".whl", ".conda", ".tar.bz2"].iter().any(|s| name.ends_with(s));
    artifact && !name.contains('/')
}

fn check(step: &Step, sandbox: &Sandbox, outcome: &Outcome, told: &str) {
    assert_eq!(outcome.status, Some(step.exit), "exit status\n{told}");
    for text in &step.out {
        let text = sandbox.fill(text);
        assert!(outcome.stdout.contains(&text), "stdout lacks {text:?}\n{told}");
    }
    for text in &step.err {
        let text = sandbox.fill(text);
        // Long lines are wrapped for people; what they say is not.
        let flat = outcome.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        let found = outcome.stderr.contains(&text) || flat.contains(&text);
        assert!(found, "stderr lacks {text:?}\n{told}");
    }
    for text in &step.not {
        let text = sandbox.fill(text);
        let said = outcome.stdout.contains(&text) || outcome.stderr.contains(&text);
        assert!(!said, "{text:?} is said\n{told}");
    }
    for path in &step.absent {
        let path = sandbox.project.join(path);
        assert!(!path.exists() && !path.is_symlink(), "{} is there\n{told}", path.display());
    }
    for (path, texts) in &step.holds {
        let content = sandbox.read(path);
        for text in texts {
            let text = sandbox.fill(text);
            assert!(content.contains(&text), "{path} lacks {text:?}:\n{content}\n{told}");
        }
    }
    for (path, texts) in &step.lacks {
        let content = sandbox.read(path);
        for text in texts {
            let text = sandbox.fill(text);
            assert!(!content.contains(&text), "{path} holds {text:?}:\n{content}\n{told}");
        }
    }
    if step.nothing_kept {
        let left = sandbox.downloads();
        assert!(left.is_empty(), "downloads are left:\n{left}\n{told}");
    }
    let seen = sandbox.server.take_seen();
    let hits = |pattern: &str| -> Vec<_> {
        seen.iter().filter(|s| matches(pattern, &s.path)).cloned().collect()
    };
    for (pattern, number) in &step.requests {
        let hits: Vec<_> = hits(pattern).into_iter().filter(|s| s.method == "GET").collect();
        assert_eq!(hits.len(), *number, "requests for {pattern}: {hits:#?}\n{told}");
    }
    for pattern in &step.resumed {
        let resumed = |s: &Seen| s.range.as_ref().is_some_and(|r| !r.starts_with("bytes=0-"));
        assert!(hits(pattern).iter().any(resumed), "not resumed: {:#?}\n{told}", hits(pattern));
    }
    for pattern in &step.ranged {
        let hits = hits(pattern);
        let all = hits.iter().filter(|s| s.method == "GET").all(|s| s.range.is_some());
        assert!(!hits.is_empty() && all, "{pattern}: {hits:#?}\n{told}");
    }
    for pattern in &step.unauthorized {
        let hits = hits(pattern);
        let bare = !hits.is_empty() && hits.iter().all(|s| !s.authorized);
        assert!(bare, "{pattern}: {hits:#?}\n{told}");
    }
}

/// Splits at blanks; `'…'` keeps together.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (nth, part) in text.split('\'').enumerate() {
        match nth % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}
