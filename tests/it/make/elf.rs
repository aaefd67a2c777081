//! Shared libraries and programs, compiled by the machine's C compiler.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// A shared library to be compiled.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// DT_SONAME.
    pub soname: String,
    /// C source.
    pub source: String,
    /// Sonames for DT_NEEDED; each stands for an empty library made for the link only.
    pub needed: Vec<String>,
    /// DT_RUNPATH (or DT_RPATH with `old_rpath`).
    pub rpath: Option<String>,
    /// Write DT_RPATH, the old tag that the libraries below inherit.
    pub old_rpath: bool,
}

/// Whether there is a C compiler.
pub fn compiler() -> bool {
    static FOUND: LazyLock<bool> =
        LazyLock::new(|| Command::new("cc").arg("--version").output().is_ok());
    *FOUND
}

impl Library {
    /// A library with one function.
    pub fn new(soname: &str, source: &str) -> Self {
        Library { soname: soname.into(), source: source.into(), ..Library::default() }
    }

    /// Compiles it: the bytes of the shared object. Build ids are left out, so equal input
    /// gives equal bytes.
    pub fn compile(&self) -> Vec<u8> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut stubs = Vec::new();
        for (nth, soname) in self.needed.iter().enumerate() {
            let stub = dir.path().join(format!("stub{nth}.so"));
            cc(
                dir.path(),
                &["-shared", "-o", &stub.to_string_lossy(), &format!("-Wl,-soname,{soname}")],
                "",
            );
            stubs.push(stub.to_string_lossy().into_owned());
        }
        let out = dir.path().join("out.so");
        let mut args = vec![
            "-shared".into(),
            "-fPIC".into(),
            "-o".into(),
            out.to_string_lossy().into_owned(),
            format!("-Wl,-soname,{}", self.soname),
            "-Wl,--no-as-needed".into(),
            // What a stub does not define is found at run time, in the real library.
            "-Wl,--allow-shlib-undefined,--unresolved-symbols=ignore-all".into(),
        ];
        if let Some(rpath) = &self.rpath {
            args.push(format!("-Wl,-rpath,{rpath}"));
            let tags = if self.old_rpath { "--disable-new-dtags" } else { "--enable-new-dtags" };
            args.push(format!("-Wl,{tags}"));
        }
        args.extend(stubs);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        cc(dir.path(), &args, &self.source);
        std::fs::read(out).expect("the compiler wrote the library")
    }
}

/// Runs the compiler on `source` (standard input cannot stand before `-x`, so it is a file).
fn cc(dir: &Path, args: &[&str], source: &str) {
    std::fs::write(dir.join("in.c"), source).expect("writing the source");
    let out = Command::new("cc")
        .current_dir(dir)
        // The name of the source is recorded in the symbol table: keep it relative.
        .args(["in.c", "-O1", "-Wl,--build-id=none"])
        .args(args)
        .output()
        .expect("the C compiler runs");
    assert!(out.status.success(), "cc {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}
