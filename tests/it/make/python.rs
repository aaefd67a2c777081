//! CPython of this machine as a conda package, and its bundled pip as conda package and wheel.
//!
//! The interpreter is found once. Its files are packed as conda-forge packs them: DT_RUNPATH
//! relative to the file, the build prefix as a placeholder in text files, no
//! `site-packages`. The system libraries it needs (OpenSSL, libffi, …) stay the machine's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::conda::{Entry, Kind, Package, placeholder};

/// A CPython of this machine.
#[derive(Clone, Debug)]
pub struct Host {
    /// The real executable.
    pub executable: PathBuf,
    /// `sys.base_prefix`.
    pub prefix: PathBuf,
    /// `3.11`.
    pub minor: String,
    /// `3.11.7`.
    pub full: String,
}

/// The interpreter the tests use: `GPUENV_TEST_PYTHON`, else the first of these on PATH.
pub fn host() -> Option<&'static Host> {
    static HOST: LazyLock<Option<Host>> = LazyLock::new(|| {
        let named = std::env::var("GPUENV_TEST_PYTHON").ok();
        let names = ["python3.11", "python3.12", "python3.10", "python3.13", "python3.9"];
        named.iter().map(String::as_str).chain(names).find_map(probe)
    });
    HOST.as_ref()
}

fn probe(name: &str) -> Option<Host> {
    let script = "import os, sys, platform\n\
        print(os.path.realpath(sys._base_executable))\n\
        print(sys.base_prefix)\n\
        print('%d.%d' % sys.version_info[:2])\n\
        print(platform.python_version())";
    let out = Command::new(name).args(["-I", "-c", script]).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let mut lines = text.lines();
    Some(Host {
        executable: lines.next()?.into(),
        prefix: lines.next()?.into(),
        minor: lines.next()?.into(),
        full: lines.next()?.into(),
    })
}

/// File name, bytes and METADATA of a wheel.
type PipWheel = (String, Vec<u8>, Vec<u8>);

impl Host {
    /// `cp311`.
    pub fn tag(&self) -> String {
        format!("cp{}", self.minor.replace('.', ""))
    }

    /// Whether it can be packed: Debian's interpreter looks in `dist-packages`, so it is none
    /// that conda users know.
    pub fn relocatable(&self) -> bool {
        self.prefix != Path::new("/usr")
    }

    /// The wheel of pip that the interpreter bundles: file name, bytes and METADATA.
    pub fn pip(&self) -> Option<PipWheel> {
        static FOUND: LazyLock<Option<PipWheel>> =
            LazyLock::new(|| host().and_then(Host::find_pip));
        FOUND.clone()
    }

    fn find_pip(&self) -> Option<PipWheel> {
        let bundled = self.prefix.join(format!("lib/python{}/ensurepip/_bundled", self.minor));
        let dirs = [bundled, PathBuf::from("/usr/share/python-wheels")];
        let file = dirs.iter().filter_map(|d| std::fs::read_dir(d).ok()).flatten().flatten().find(
            |f| {
                let name = f.file_name().to_string_lossy().into_owned();
                name.starts_with("pip-") && name.ends_with(".whl")
            },
        )?;
        // Read by the interpreter: a zip reader that is not the one under test.
        let script = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); \
            n = next(n for n in z.namelist() if n.endswith('.dist-info/METADATA')); \
            sys.stdout.buffer.write(z.read(n))";
        let out = Command::new(&self.executable)
            .args(["-I", "-c", script])
            .arg(file.path())
            .output()
            .ok()?;
        let name = file.file_name().to_string_lossy().into_owned();
        Some((name, std::fs::read(file.path()).ok()?, out.stdout))
    }

    /// The conda package `python`. Takes about two seconds and some 40 MB.
    pub fn package(&self) -> Package {
        let mut package = Package::new("python", &self.full);
        package.build = "h0_0_cpython".into();
        package.depends = vec!["__glibc >=2.17".into()];
        package.constrains = vec![format!("python_abi {}.* *_{}", self.minor, self.tag())];
        let short = format!("python{}", self.minor);
        for name in [short.clone(), format!("{short}-config"), format!("pydoc{}", self.minor)] {
            self.add(&mut package, &self.prefix.join("bin").join(name));
        }
        for name in ["python", "python3"] {
            package.entries.push(Entry::link(&format!("bin/{name}"), &short));
        }
        self.walk(&mut package, &self.prefix.join("include"));
        self.walk(&mut package, &self.prefix.join("lib"));
        let readme = format!("lib/{short}/site-packages/README.txt");
        package.entries.push(Entry::file(&readme, "Packages go here.\n"));
        package
    }

    fn walk(&self, package: &mut Package, dir: &Path) {
        // Tests, caches and the static library are most of the bulk and nothing here needs them.
        const SKIP: [&str; 9] = [
            "site-packages",
            "test",
            "tests",
            "idle_test",
            "__pycache__",
            "idlelib",
            "lib2to3",
            "pkgconfig",
            "tkinter",
        ];
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .unwrap_or_else(|e| panic!("reading {}: {e}", dir.display()))
            .flatten()
            .collect();
        names.sort_by_key(std::fs::DirEntry::file_name);
        for entry in names {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if SKIP.contains(&name.as_str()) || name.ends_with(".a") {
                continue;
            }
            // Only this interpreter's part of lib/.
            if dir == self.prefix.join("lib") && !name.contains(&format!("python{}", self.minor)) {
                continue;
            }
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                if name.starts_with("config-") && dir.ends_with(format!("python{}", self.minor)) {
                    continue;
                }
                self.walk(package, &path);
            } else {
                self.add(package, &path);
            }
        }
    }

    fn add(&self, package: &mut Package, path: &Path) {
        use std::os::unix::fs::PermissionsExt as _;
        let Ok(meta) = path.symlink_metadata() else { return };
        let Ok(relative) = path.strip_prefix(&self.prefix) else { return };
        let relative = relative.to_string_lossy().into_owned();
        if meta.is_symlink() {
            let target = std::fs::read_link(path).expect("a link that was just seen");
            package.entries.push(Entry::link(&relative, &target.to_string_lossy()));
            return;
        }
        let mut data =
            std::fs::read(path).unwrap_or_else(|e| panic!("reading {}: {e}", path.display()));
        let mut prefix = None;
        if data.starts_with(b"\x7fELF") {
            let up = vec![".."; relative.matches('/').count()].join("/");
            set_runpath(&mut data, &format!("$ORIGIN/{up}/lib"));
        } else if let Ok(text) = std::str::from_utf8(&data) {
            let own = self.prefix.to_string_lossy();
            if text.contains(&*own) {
                data = text.replace(&*own, &placeholder()).into_bytes();
                prefix = Some((placeholder(), false));
            }
        }
        let mode = if meta.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
        package.entries.push(Entry { path: relative, kind: Kind::File(data), mode, prefix });
    }
}

/// Overwrites DT_RPATH or DT_RUNPATH of a 64-bit little-endian ELF file, when it has one that
/// is at least as long as `to`.
fn set_runpath(data: &mut [u8], to: &str) {
    let Some((at, len)) = runpath(data) else { return };
    assert!(len >= to.len(), "the search path is too short to hold {to}");
    data[at..at + len].fill(0);
    data[at..at + to.len()].copy_from_slice(to.as_bytes());
}

/// Place and length of the search path string in the file.
fn runpath(data: &[u8]) -> Option<(usize, usize)> {
    use object::elf;
    use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
    let header = elf::FileHeader64::<object::Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let offset_of = |address: u64| {
        segments.iter().find_map(|s| {
            let (start, size) = (s.p_vaddr(endian), s.p_filesz(endian));
            let inside =
                s.p_type(endian) == elf::PT_LOAD && (start..start + size).contains(&address);
            inside.then(|| (address - start + s.p_offset(endian)) as usize)
        })
    };
    let dynamic = segments.iter().find_map(|s| s.dynamic(endian, data).ok().flatten())?;
    let value = |tag: elf::DynamicTag| {
        dynamic.iter().find(|d| d.d_tag(endian) == tag).map(|d| d.d_val(endian))
    };
    let strings = offset_of(value(elf::DT_STRTAB)?)?;
    let path = value(elf::DT_RUNPATH).or_else(|| value(elf::DT_RPATH))?;
    let at = strings + path as usize;
    let len = data[at..].iter().position(|b| *b == 0)?;
    Some((at, len))
}
