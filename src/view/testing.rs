//! Packages made up for tests: in memory for plans, on disk for builds.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rattler_conda_types::Subdir as Platform;

use super::plan::{PackageInput, Plan, PlanError, PlanInput, plan};
use crate::hash::Sha256;
use crate::lockfile::ArtifactKind;
use crate::manifest::ViewOptions;
use crate::package::{CondaMeta, ElfFile, Entry, EntryKind, Meta, PackageRecord, WheelMeta};
use crate::relpath::RelPath;

pub fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

/// A package: files with their bytes and whether they are executable, links, metadata.
#[derive(Clone, Debug)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub files: BTreeMap<RelPath, (Vec<u8>, bool)>,
    pub links: BTreeMap<RelPath, String>,
    pub meta: Meta,
    pub root: bool,
}

impl Package {
    pub fn wheel(name: &str) -> Self {
        Package::wheel_of(name, "1.0")
    }
    pub fn wheel_of(name: &str, version: &str) -> Self {
        let dist_info = format!("{}-{version}.dist-info", name.replace('-', "_"));
        let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
        let meta = WheelMeta { dist_info: dist_info.clone(), ..WheelMeta::default() };
        let mut package = Package {
            name: name.into(),
            version: version.into(),
            files: BTreeMap::new(),
            links: BTreeMap::new(),
            meta: Meta::Wheel(meta),
            root: false,
        };
        package = package.file(&format!("{dist_info}/METADATA"), metadata.as_bytes());
        package =
            package.file(&format!("{dist_info}/WHEEL"), b"Wheel-Version: 1.0\nTag: py3-none-any\n");
        package.file(&format!("{dist_info}/RECORD"), b"of the archive\n")
    }
    pub fn conda(name: &str, version: &str) -> Self {
        let meta = CondaMeta { subdir: "linux-64".into(), ..CondaMeta::default() };
        let index = serde_json::json!({
            "name": name, "version": version, "build": "h0_1", "build_number": 1,
            "subdir": "linux-64", "depends": ["libx >=1"], "timestamp": 1600000000000u64,
            "license": "MIT",
        });
        let package = Package {
            name: name.into(),
            version: version.into(),
            files: BTreeMap::new(),
            links: BTreeMap::new(),
            meta: Meta::Conda(meta),
            root: false,
        };
        package.file("info/index.json", index.to_string().as_bytes())
    }
    pub fn file(mut self, at: &str, bytes: &[u8]) -> Self {
        self.files.insert(path(at), (bytes.to_vec(), false));
        self
    }
    pub fn program(mut self, at: &str, bytes: &[u8]) -> Self {
        self.files.insert(path(at), (bytes.to_vec(), true));
        self
    }
    pub fn link(mut self, at: &str, target: &str) -> Self {
        self.links.insert(path(at), target.into());
        self
    }
    pub fn root(mut self) -> Self {
        self.root = true;
        self
    }
    pub fn with_wheel(mut self, change: impl FnOnce(&mut WheelMeta)) -> Self {
        match &mut self.meta {
            Meta::Wheel(meta) => change(meta),
            Meta::Conda(_) => panic!("not a wheel"),
        }
        self
    }
    pub fn with_conda(mut self, change: impl FnOnce(&mut CondaMeta)) -> Self {
        match &mut self.meta {
            Meta::Conda(meta) => change(meta),
            Meta::Wheel(_) => panic!("not of conda"),
        }
        self
    }

    pub fn record(&self) -> PackageRecord {
        let mut entries: Vec<Entry> = Vec::new();
        let mut elf = Vec::new();
        for (path, (bytes, executable)) in &self.files {
            let kind = EntryKind::File {
                size: bytes.len() as u64,
                sha256: Sha256::of(bytes),
                executable: *executable,
            };
            entries.push(Entry { path: path.clone(), kind });
            if let Ok(Some(dynamic)) = crate::elf::read(bytes) {
                elf.push(ElfFile { path: path.clone(), dynamic });
            }
        }
        for (path, target) in &self.links {
            let kind = EntryKind::Symlink { target: target.clone() };
            entries.push(Entry { path: path.clone(), kind });
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let kind = match self.meta {
            Meta::Conda(_) => ArtifactKind::Conda,
            Meta::Wheel(_) => ArtifactKind::Wheel,
        };
        PackageRecord {
            format: crate::package::FORMAT,
            kind,
            name: self.name.clone(),
            version: self.version.clone(),
            build: matches!(kind, ArtifactKind::Conda).then(|| "h0_1".into()),
            file: match kind {
                ArtifactKind::Conda => format!("{}-{}-h0_1.conda", self.name, self.version),
                ArtifactKind::Wheel => format!("{}-{}-py3-none-any.whl", self.name, self.version),
            },
            sha256: Sha256::of(format!("{} {}", self.name, self.version)),
            size: 1,
            nar: Sha256::of(format!("nar {} {}", self.name, self.version)),
            nar_size: 1,
            entries,
            meta: self.meta.clone(),
            elf,
        }
    }

    /// Writes the tree below `dir`, with the modes of a store.
    pub fn unpack(&self, dir: &Path) {
        for (path, (bytes, executable)) in &self.files {
            let file = path.under(dir);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, bytes).unwrap();
            let mode = if *executable { 0o555 } else { 0o444 };
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        for (path, target) in &self.links {
            let link = path.under(dir);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, link).unwrap();
        }
    }
}

/// A set of packages, and how they are put together.
pub struct Set {
    pub packages: Vec<Package>,
    pub host_python: Option<(u32, u32)>,
    pub options: ViewOptions,
    pub env: BTreeMap<String, String>,
    pub store: PathBuf,
}

impl Set {
    pub fn on_host(packages: impl IntoIterator<Item = Package>) -> Self {
        let host_python = Some((3, 11));
        Set { host_python, ..Set::of(packages) }
    }
    pub fn of(packages: impl IntoIterator<Item = Package>) -> Self {
        Set {
            packages: packages.into_iter().collect(),
            host_python: None,
            options: ViewOptions::default(),
            env: BTreeMap::new(),
            store: "/store/packages".into(),
        }
    }
    pub fn plan(&self) -> Result<Plan, PlanError> {
        let records: Vec<_> = self.packages.iter().map(Package::record).collect();
        let paths: Vec<_> = self.packages.iter().map(|p| self.store.join(&p.name)).collect();
        let inputs: Vec<_> = self
            .packages
            .iter()
            .zip(&records)
            .zip(&paths)
            .map(|((package, record), store_path)| PackageInput {
                record,
                store_path,
                root: package.root,
                channel: Some("conda-forge"),
                channel_url: None,
                direct_url: None,
            })
            .collect();
        plan(&PlanInput {
            name: "demo",
            platform: Platform::Linux64,
            packages: &inputs,
            host_python: self.host_python,
            options: &self.options,
            activation_env: &self.env,
        })
    }
}

/// Compiles a shared library `lib<name>.so`, whose function `<name>()` returns `value` plus what
/// the functions of the libraries in `needs` return.
pub fn library(name: &str, value: u32, needs: &[&str], flags: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let mut source = String::new();
    let mut sum = value.to_string();
    for need in needs {
        // Something to link against; what is loaded is decided at run time.
        let stub = format!("int {need}(void) {{ return 0; }}\n");
        compile(dir.path(), &stub, &format!("lib{need}.so"), &shared(need));
        source += &format!("int {need}(void);\n");
        sum += &format!(" + {need}()");
    }
    source += &format!("int {name}(void) {{ return {sum}; }}\n");
    let mut all = shared(name);
    all.extend(flags.iter().map(|f| (*f).to_owned()));
    all.push("-L.".into());
    all.extend(needs.iter().map(|n| format!("-l{n}")));
    compile(dir.path(), &source, "out", &all)
}

fn shared(name: &str) -> Vec<String> {
    ["-shared", "-fPIC", &format!("-Wl,-soname,lib{name}.so")].map(str::to_owned).to_vec()
}

/// Compiles C in `dir` and returns the output.
pub fn compile(dir: &Path, source: &str, out: &str, flags: &[String]) -> Vec<u8> {
    let file = dir.join(format!("{out}.c"));
    fs::write(&file, source).unwrap();
    // Libraries stand after what needs them.
    let status =
        Command::new("cc").current_dir(dir).args(["-o", out]).arg(&file).args(flags).status();
    assert!(status.unwrap().success());
    fs::read(dir.join(out)).unwrap()
}
