use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output};
use std::str::FromStr;

use super::*;
use crate::machine::{Interpreter, find_python};
use crate::package::Relocation;
use crate::view::activate;
use crate::view::testing::{Package, Set, compile, library, path};

/// A CPython of this machine, of the version in `GPUENV_TEST_PYTHON` or any 3: these tests cannot
/// do without one.
fn python() -> Interpreter {
    let wanted = std::env::var("GPUENV_TEST_PYTHON").unwrap_or("3".into());
    let wanted = uv_pep440::Version::from_str(&wanted).unwrap();
    find_python(&wanted, &|name| std::env::var_os(name)).unwrap()
}

/// A store with one view.
struct Built {
    dir: tempfile::TempDir,
    view: PathBuf,
    plan: Plan,
    report: BuildReport,
}

impl Built {
    fn new(set: Set) -> Self {
        Built::at(set, "store/envs/demo")
    }

    fn at(mut set: Set, place: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let python = python();
        if set.host_python.is_some() {
            set.host_python = Some((python.version.0, python.version.1));
        }
        set.store = root.join("store/packages");
        for package in &set.packages {
            package.unpack(&set.store.join(&package.name));
        }
        let plan = set.plan().unwrap();
        let view = root.join(place);
        let staging = root.join("staging");
        let target = Target {
            final_prefix: &view,
            staging: &staging,
            host_python: Some(&python.executable),
        };
        let report = build(&plan, &target).unwrap();
        fs::create_dir_all(view.parent().unwrap()).unwrap();
        fs::rename(&staging, &view).unwrap();
        crate::fs::set_mode(&view, 0o555).unwrap();
        Built { dir, view, plan, report }
    }

    /// Runs a program of the view in an environment that has nothing else.
    fn run(&self, program: &str, args: &[&str]) -> Output {
        let mut command = Command::new(self.view.join(program));
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin");
        command.current_dir(self.dir.path()).output().unwrap()
    }

    fn says(&self, program: &str, args: &[&str]) -> String {
        let output = self.run(program, args);
        let (out, err) = (&output.stdout, &output.stderr);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(err));
        String::from_utf8_lossy(out).trim().to_owned()
    }

    fn site(&self) -> PathBuf {
        self.plan.python.as_ref().unwrap().site.under(&self.view)
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        // Who is not root cannot remove what is in a read-only directory.
        let _ = Command::new("chmod").args(["-R", "u+w"]).arg(self.dir.path()).status();
    }
}

/// Every path below `dir` with mode, time and content.
fn listing(dir: &Path) -> BTreeMap<PathBuf, String> {
    fn walk(base: &Path, dir: &Path, all: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let what = if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if meta.is_dir() {
                walk(base, &path, all);
                format!("{:o} {}", meta.mode(), meta.mtime())
            } else {
                format!(
                    "{:o} {} {}",
                    meta.mode(),
                    meta.mtime(),
                    Sha256::of(fs::read(&path).unwrap())
                )
            };
            all.insert(path.strip_prefix(base).unwrap().to_owned(), what);
        }
    }
    let mut all = BTreeMap::new();
    walk(dir, dir, &mut all);
    all
}

fn demo() -> Package {
    Package::wheel("demo")
        .file(
            "demo/__init__.py",
            b"def main():\n    import sys\n    print('ran in', sys.prefix)\n    return 3\n",
        )
        .file("demo/data/x", b"1")
        .file(
            "demo-1.0.data/scripts/tool",
            b"#!python -E\nimport sys\nprint(sys.flags.ignore_environment, sys.argv[1])\n",
        )
        .file("mark.pth", b"import sys; sys.gpuenv_mark = 1\n")
        .with_wheel(|meta| {
            meta.data = Some("demo-1.0.data".into());
            meta.console_scripts = vec!["demo = demo:main".into()];
            meta.python_scripts = vec![path("demo-1.0.data/scripts/tool")];
        })
}

#[test]
fn a_view_on_the_machines_python_works() {
    let built = Built::new(Set::on_host([demo()]));
    let view = built.view.display().to_string();
    let about = "import sys, demo, importlib.metadata as m; \
                 print(sys.prefix, m.version('demo'), sys.gpuenv_mark, demo.__file__)";
    for name in ["bin/python", "bin/python3"] {
        for args in [&["-c", about][..], &["-I", "-c", about]] {
            let said = built.says(name, args);
            let file = built.site().join("demo/__init__.py");
            assert_eq!(said, format!("{view} 1.0 1 {}", file.display()), "{name} {args:?}");
        }
    }
    let script = built.run("bin/demo", &[]);
    assert_eq!(script.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&script.stdout), format!("ran in {view}\n"));
    assert_eq!(built.says("bin/tool", &["arg"]), "1 arg");
    assert!(built.report.folded >= 1);
}

#[test]
fn importlib_metadata_finds_every_recorded_file_true() {
    let built = Built::new(Set::on_host([demo()]));
    let check = r#"
import base64, hashlib, importlib.metadata
n = 0
for f in importlib.metadata.files('demo'):
    data = f.locate().read_bytes()
    if f.hash is not None:
        n += 1
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
        assert f.hash.mode == 'sha256' and f.hash.value == digest and f.size == len(data), f
print(n)
"#;
    assert!(built.says("bin/python", &["-c", check]).parse::<u32>().unwrap() >= 5);
}

#[test]
#[ignore = "needs a Python with the bundled wheel of ensurepip"]
fn with_pip_it_refuses_to_change_the_view_and_says_what_to_do() {
    let built = Built::new(Set::on_host([demo()]));
    let bundled = "import ensurepip, glob, os; \
                   print(*sorted(glob.glob(os.path.join(os.path.dirname(ensurepip.__file__), '_bundled', 'pip-*.whl')))[-1:])";
    let output = built.run("bin/python", &["-c", bundled]);
    let wheel = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(!wheel.is_empty(), "this Python brings no pip");
    let pip = format!("{wheel}/pip");
    for args in [[&pip, "install", "six"], [&pip, "uninstall", "demo"]] {
        let output = built.run("bin/python", &args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && said.contains("gpuenv add"), "{said}");
        assert!(said.lines().count() <= 2, "one clear line: {said}");
    }
    let list = built.says("bin/python", &[&pip, "list", "--disable-pip-version-check"]);
    assert!(list.lines().any(|l| l.starts_with("demo")), "{list}");
    built.says("bin/python", &[&pip, "check", "--disable-pip-version-check"]);
}

/// A library next door is found whether its neighbour is loaded by its path in the view or by
/// what that path resolves to.
#[test]
fn neighbours_are_found_by_view_path_and_by_resolved_path() {
    let p = library("p", 1, &["q"], &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../q/lib"]);
    let wheel_p = Package::wheel("nvidia-p").file("nvidia/p/lib/libp.so", &p);
    let wheel_q =
        Package::wheel("nvidia-q").file("nvidia/q/lib/libq.so", &library("q", 41, &[], &[]));
    let built = Built::new(Set::on_host([wheel_p, wheel_q]));
    let load = r#"
import ctypes, pathlib, sys, sysconfig
p = pathlib.Path(sysconfig.get_paths()['purelib']) / 'nvidia/p/lib/libp.so'
if sys.argv[1] == 'resolved':
    p = p.resolve()
print(ctypes.CDLL(str(p)).p())
mapped = [l.split()[-1] for l in open('/proc/self/maps') if 'libq.so' in l]
assert mapped and all(str(sys.prefix) in m or 'nvidia-q' in m for m in mapped), mapped
"#;
    for way in ["plain", "resolved"] {
        assert_eq!(built.says("bin/python", &["-c", load, way]), "42", "{way}");
    }
}

/// What is in `ld/` is found by its bare name, and what it needs in turn.
#[test]
fn the_farm_serves_bare_names() {
    let a = library("a", 1, &["b"], &[]);
    let b = library("b", 2, &[], &[]);
    let user = library("user", 0, &["a"], &[]);
    let built = Built::new(Set::on_host([
        Package::wheel("nvidia-a").file("nvidia/a/lib/liba.so", &a),
        Package::wheel("nvidia-b").file("nvidia/b/lib/libb.so", &b),
        Package::wheel("user").file("user/libuser.so", &user),
    ]));
    assert!(built.plan.ld);
    let env: activate::Env = [(OsString::from("PATH"), OsString::from("/usr/bin:/bin"))].into();
    let env = activate::Activation::for_view(&built.view, &env).unwrap().environment(&env).unwrap();
    let load = format!(
        "import ctypes; print(ctypes.CDLL({:?}).user(), ctypes.CDLL('libb.so').b())",
        built.site().join("user/libuser.so").display().to_string()
    );
    let output = Command::new(built.view.join("bin/python"))
        .args(["-c", &load])
        .env_clear()
        .envs(&env)
        .output()
        .unwrap();
    let (out, err) = (&output.stdout, &output.stderr);
    assert_eq!(String::from_utf8_lossy(out).trim(), "3 2", "{}", String::from_utf8_lossy(err));
}

/// Enough of the machine's Python to start, as a conda package would hold it.
fn conda_python() -> Package {
    let python = python();
    let (major, minor, patch) = python.version;
    let bytes = fs::read(&python.executable).unwrap();
    let facts = crate::elf::read(&bytes).unwrap().unwrap();
    let name = format!("python{major}.{minor}");
    let mut package = Package::conda("python", &format!("{major}.{minor}.{patch}"))
        .program(&format!("bin/{name}"), &bytes)
        .link("bin/python", &name)
        .link("bin/python3", &name);
    // Some builds keep their code in a library, found where the program says or by the loader.
    for library in facts.needed.iter().filter(|needed| needed.starts_with("libpython")) {
        if let Ok(bytes) = fs::read(python.prefix.join("lib").join(library)) {
            package = package.file(&format!("lib/{library}"), &bytes);
        }
    }
    let stdlib = python.prefix.join("lib").join(&name);
    let parts = ["", "encodings", "collections", "re", "importlib", "importlib/metadata", "email"];
    for part in parts {
        let Ok(entries) = fs::read_dir(stdlib.join(part)) else { continue };
        for file in
            entries.map(|e| e.unwrap().path()).filter(|p| p.extension() == Some("py".as_ref()))
        {
            let at = file.strip_prefix(&stdlib).unwrap().to_str().unwrap();
            package = package.file(&format!("lib/{name}/{at}"), &fs::read(&file).unwrap());
        }
    }
    // Another mark by which Python knows its place.
    package.file(&format!("lib/{name}/lib-dynload/README"), b"")
}

/// Conda's Python is at home in the view however it is started.
#[test]
fn condas_python_has_the_view_as_its_prefix_in_every_way_of_starting() {
    let python = conda_python();
    let wheel = Package::wheel("demo").file("demo/__init__.py", b"X = 5\n").with_wheel(|meta| {
        meta.console_scripts = vec!["show = demo.show:main".into()];
    });
    let show = "def main():\n    import sys\n    print(sys.prefix)\n";
    let built = Built::new(Set::of([python, wheel.file("demo/show.py", show.as_bytes())]));
    let view = built.view.display().to_string();
    assert!(fs::metadata(built.view.join("bin/python")).unwrap().nlink() > 1, "hard links");
    let about = ["-c", "import sys, demo; print(sys.prefix, demo.X)"];
    let isolated = ["-I", about[0], about[1]];
    for program in ["bin/python", "bin/python3"] {
        assert_eq!(built.says(program, &about), format!("{view} 5"));
        assert_eq!(built.says(program, &isolated), format!("{view} 5"));
    }
    let elsewhere = built.dir.path().join("elsewhere");
    std::os::unix::fs::symlink(built.view.join("bin/python"), &elsewhere).unwrap();
    // `current_dir` of the run is another one, and the link is absolute.
    assert_eq!(built.says(elsewhere.to_str().unwrap(), &about), format!("{view} 5"));
    let by_path = Command::new("python")
        .args(about)
        .env_clear()
        .env("PATH", format!("{view}/bin:/usr/bin"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&by_path.stdout).trim(), format!("{view} 5"));
    assert_eq!(built.says("bin/show", &[]), view);
    assert!(built.site().parent().unwrap().join("EXTERNALLY-MANAGED").is_file());
}

/// A kernel has the environment's variables, whatever has Jupyter's process.
#[test]
fn a_kernel_starts_with_the_variables_of_the_environment() {
    let spec = r#"{"argv": ["python", "-c", "import os; print(*(os.environ.get(n) for n in ('SET', 'LD_LIBRARY_PATH', 'PYTHONPATH')))"]}"#;
    let a = Package::wheel("nvidia-a").file("nvidia/a/lib/liba.so", &library("a", 1, &[], &[]));
    let b = Package::wheel("b").file("b/libb.so", &library("b", 1, &["a"], &[]));
    let at = "k-1.0.data/data/share/jupyter/kernels/python3/kernel.json";
    let kernel = Package::wheel("k").file(at, spec.as_bytes());
    let kernel = kernel.with_wheel(|meta| meta.data = Some("k-1.0.data".into()));
    let mut set = Set::on_host([a, b, kernel]);
    set.env = [("SET".to_owned(), "it's".to_owned())].into();
    let built = Built::new(set);
    let file = built.view.join("share/jupyter/kernels/python3/kernel.json");
    let spec: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let argv: Vec<&str> =
        spec["argv"].as_array().unwrap().iter().filter_map(|v| v.as_str()).collect();
    let output = Command::new(argv[0])
        .args(&argv[1..])
        .env_clear()
        .envs([("PATH", "/usr/bin:/bin"), ("PYTHONPATH", "/foreign"), ("LD_LIBRARY_PATH", "/x")])
        .output()
        .unwrap();
    let expected = format!("it's {}/ld None\n", built.view.display());
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{err}");
}

#[test]
fn the_run_script_keeps_directories_of_the_driver_alone() {
    let built = Built::new(Set::on_host([demo()]));
    let [driver, mixed] = ["driver", "mixed"].map(|name| built.dir.path().join(name));
    for dir in [&driver, &mixed] {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("libcuda.so.1"), "").unwrap();
    }
    fs::write(mixed.join("libcublas.so.12"), "").unwrap();
    let run = |value: String| {
        let output = Command::new(built.view.join("share/gpuenv/run"))
            .args(["sh", "-c", "echo ${LD_LIBRARY_PATH-unset}"])
            .env("LD_LIBRARY_PATH", value)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let all = format!("/x::{}:{}", mixed.display(), driver.display());
    assert_eq!(run(all), driver.display().to_string());
    assert_eq!(run("/x:".into()), "unset");
}

/// With scripts of conda packages, too.
#[test]
fn the_run_script_sources_condas_scripts() {
    let conda = Package::conda("c", "1").file(
        "etc/conda/activate.d/c.sh",
        b"export FROM_SCRIPT=\"$CONDA_PREFIX $#\"; echo noise\n",
    );
    let built = Built::new(Set::of([conda]));
    let said =
        built.says("share/gpuenv/run", &["sh", "-c", "echo \"$FROM_SCRIPT $1\"", "x", "a b"]);
    assert_eq!(said, format!("{} 0 a b", built.view.display()));
}

#[test]
fn a_program_is_a_real_file_that_finds_its_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    let x = library("x", 7, &[], &[]);
    fs::write(dir.path().join("libx.so"), &x).unwrap();
    let flags = ["-L.", "-lx", "-Wl,-rpath,$ORIGIN/../lib"].map(str::to_owned);
    let main = "int x(void); int main(void) { return x(); }";
    let program = compile(dir.path(), main, "prog", &flags);
    let built = Built::new(Set::of([
        Package::conda("prog", "1").program("bin/prog", &program),
        Package::conda("libx", "1").file("lib/libx.so", &x),
    ]));
    assert!(fs::symlink_metadata(built.view.join("bin/prog")).unwrap().is_file());
    assert_eq!(built.run("bin/prog", &[]).status.code(), Some(7));
    // Through another link too.
    let link = built.dir.path().join("elsewhere");
    std::os::unix::fs::symlink(built.view.join("bin/prog"), &link).unwrap();
    assert_eq!(Command::new(link).status().unwrap().code(), Some(7));
    assert_eq!(built.report.rung, Rung::HardLink);
    let (a, b) =
        (built.view.join("bin/prog"), built.dir.path().join("store/packages/prog/bin/prog"));
    assert_eq!(fs::metadata(a).unwrap().ino(), fs::metadata(b).unwrap().ino());
}

const PLACEHOLDER: &str = "/opt/anaconda1anaconda2anaconda3_placehold_placehold_placehold_placehold_placehold_placehold_placehold_placehold_placehold_placehold";

fn relocated() -> Package {
    Package::conda("r", "2.0")
        .program("bin/script", format!("#!{PLACEHOLDER}/bin/sh\necho {PLACEHOLDER}/x\n").as_bytes())
        .link("bin/sh", "/bin/sh")
        .file("lib/r.bin", format!("\0{PLACEHOLDER}/share\0end").as_bytes())
        .file("share/r/plain", b"plain")
        .with_conda(|meta| {
            let relocation = |at: &str, binary| Relocation {
                path: path(at),
                placeholder: PLACEHOLDER.into(),
                binary,
            };
            meta.relocations = vec![relocation("bin/script", false), relocation("lib/r.bin", true)];
        })
        .root()
}

#[test]
fn placeholders_become_the_views_path() {
    let built = Built::new(Set::of([relocated()]));
    let view = built.view.display().to_string();
    assert_eq!(built.says("bin/script", &[]), format!("{view}/x"));
    let bytes = fs::read(built.view.join("lib/r.bin")).unwrap();
    let mut expected = format!("\0{view}/share").into_bytes();
    expected.resize(1 + PLACEHOLDER.len() + "/share".len(), 0);
    expected.extend(b"\0end");
    assert_eq!(bytes, expected);
    assert!(built.report.notes.is_empty(), "{:?}", built.report.notes);
}

#[test]
fn conda_reads_the_record_of_its_package() {
    let built = Built::new(Set::of([relocated()]));
    let file = built.view.join("conda-meta/r-2.0-h0_1.json");
    let record = rattler_conda_types::PrefixRecord::from_path(&file).unwrap();
    let package = &record.repodata_record.package_record;
    assert_eq!(package.name.as_normalized(), "r");
    assert_eq!((package.version.to_string(), package.build_number), ("2.0".into(), 1));
    assert_eq!(record.files.len(), 4);
    assert!(record.files.iter().all(|f| !f.starts_with("info")));
    assert!(
        record.repodata_record.url.as_str().ends_with("/conda-forge/linux-64/r-2.0-h0_1.conda")
    );
    assert!(fs::read_to_string(file).unwrap().find("timestamp").is_none());
    assert!(built.view.join("conda-meta/history").exists());
}

#[test]
fn a_prefix_too_long_is_found_before_anything_is_written() {
    let plan = Set::of([relocated()]).plan().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let staging = dir.path().join("staging");
    let long = PathBuf::from(format!("/{}", "x".repeat(PLACEHOLDER.len())));
    let target = Target { final_prefix: &long, staging: &staging, host_python: None };
    let error = build(&plan, &target).unwrap_err();
    let BuildError::PrefixTooLong { package, limit, found, .. } = &error else { panic!("{error}") };
    assert_eq!((&**package, *limit, *found), ("r", PLACEHOLDER.len(), PLACEHOLDER.len() + 1));
    assert!(error.hint().unwrap().contains("shorter by 1 bytes"));
    assert!(!staging.exists());
}

#[test]
fn scripts_run_from_a_path_that_no_first_line_holds() {
    let deep = format!("store/{}/a b/demo", "d".repeat(150));
    let built = Built::at(Set::on_host([demo()]), &deep);
    assert_eq!(built.run("bin/demo", &[]).status.code(), Some(3));
    assert_eq!(built.says("bin/tool", &["arg"]), "1 arg");
    let script = fs::read_to_string(built.view.join("bin/demo")).unwrap();
    assert!(script.starts_with("#!/bin/sh\n"));
}

#[test]
fn the_same_plan_gives_the_same_tree_whenever_it_is_built() {
    let dir = tempfile::tempdir().unwrap();
    let mut set = Set::of([relocated(), Package::conda("b", "1").file("share/b/x", b"1")]);
    set.store = dir.path().join("packages");
    for package in &set.packages {
        package.unpack(&set.store.join(&package.name));
    }
    let plan = set.plan().unwrap();
    let trees = ["one", "two"].map(|name| {
        let staging = dir.path().join(name);
        let target =
            Target { final_prefix: Path::new("/gpuenv/v"), staging: &staging, host_python: None };
        let report = build(&plan, &target).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        (listing(&staging), report.view_hash)
    });
    assert_eq!(trees[0], trees[1]);
    for (path, what) in &trees[0].0 {
        if !what.starts_with("->") {
            assert!(
                what.contains("0555 1") || what.contains("0444 1") || what.contains("40555 1"),
                "{path:?} {what}"
            );
        }
    }
    // The hash is the same wherever the view is.
    let staging = dir.path().join("three");
    let target = Target { final_prefix: Path::new("/other"), staging: &staging, host_python: None };
    assert_eq!(build(&plan, &target).unwrap().view_hash, trees[0].1);
    let _ = Command::new("chmod").args(["-R", "u+w"]).arg(dir.path()).status();
}

#[test]
fn another_file_system_gets_copies_and_links() {
    let shm = Path::new("/dev/shm");
    let here = tempfile::tempdir().unwrap();
    let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
    let other = device(shm).is_some_and(|shm| Some(shm) != device(here.path()));
    assert!(other, "needs a second file system, at /dev/shm");
    let there = tempfile::tempdir_in(shm).unwrap();
    let x = library("x", 7, &[], &[]);
    let package = Package::conda("x", "1").file("lib/libx.so", &x).file("lib/x.txt", b"x");
    let other = Package::conda("y", "1").file("lib/y.txt", b"y");
    let mut set = Set::of([package, other]);
    set.store = here.path().join("packages");
    for package in &set.packages {
        package.unpack(&set.store.join(&package.name));
    }
    let staging = there.path().join("v");
    let target = Target { final_prefix: &staging, staging: &staging, host_python: None };
    let report = build(&set.plan().unwrap(), &target).unwrap();
    assert_eq!(report.rung, Rung::Copy);
    assert!(fs::symlink_metadata(staging.join("lib/libx.so")).unwrap().is_file());
    assert!(fs::symlink_metadata(staging.join("lib/x.txt")).unwrap().is_symlink());
    assert_eq!(fs::read(staging.join("lib/libx.so")).unwrap(), x);
    let _ = Command::new("chmod").args(["-R", "u+w"]).arg(there.path()).status();
}

#[test]
fn freshness_says_what_is_wrong() {
    let built = Built::new(Set::on_host([demo()]));
    let hash = built.report.view_hash;
    assert_eq!(check_fresh(&built.view, Some(&hash), None), Ok(hash));
    let python = python().executable;
    assert_eq!(check_fresh(&built.view, None, Some(&python)), Ok(hash));
    let other = Sha256::of("other");
    assert_eq!(
        check_fresh(&built.view, Some(&other), None),
        Err(Stale::Hash { expected: other, found: hash })
    );
    let gone = check_fresh(&built.view, None, Some(Path::new("/gone/python")));
    assert!(matches!(gone, Err(Stale::HostPython { .. })));
    assert_eq!(check_fresh(&built.view.join("no"), None, None), Err(Stale::Missing));
    assert_eq!(check_fresh(built.dir.path(), None, None), Err(Stale::NoManifest));
}

#[test]
fn a_package_that_is_gone_is_an_error_with_its_path() {
    let set = Set::of([
        Package::conda("a", "1").file("lib/a", b""),
        Package::conda("b", "1").file("lib/b", b""),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let staging = dir.path().join("v");
    let target = Target { final_prefix: &staging, staging: &staging, host_python: None };
    let BuildError::Write(error) = build(&set.plan().unwrap(), &target).unwrap_err() else {
        panic!()
    };
    assert_eq!(error.source.kind(), std::io::ErrorKind::NotFound);
}
