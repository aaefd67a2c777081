//! The makers and the server against tools that are not ours: what pip installs from the
//! test's index, and what CPython's own readers find in the archives, is what was made.

use std::time::Duration;

use libtest_mimic::Trial;

use crate::make::conda::{Channel, Entry, Format, Package};
use crate::make::wheel::Wheel;
use crate::make::{elf, python};
use crate::sandbox::{Sandbox, run};
use crate::serve::{Content, Fault};
use crate::{case, index, trial};

/// The tests of this module.
pub fn trials() -> Vec<Trial> {
    let python = python::host().is_none().then_some("python");
    let conda = match python::host() {
        Some(host) if host.relocatable() => None,
        _ => Some("conda-python"),
    };
    let cc = (!elf::compiler()).then_some("cc");
    vec![
        trial("makers::pip_installs_from_the_index", python, pip_installs_from_the_index),
        trial("makers::archives_read_back", python, archives_read_back),
        trial("makers::server_serves_ranges_and_faults", None, server_serves_ranges_and_faults),
        trial("makers::libraries_load", cc.or(python), libraries_load),
        trial("makers::python_package_runs_elsewhere", conda, python_package_runs_elsewhere),
        trial("makers::cases_load", None, cases_load),
    ]
}

/// A case that does not parse must not pass unseen.
fn cases_load() {
    let broken: Vec<String> =
        case::names().iter().filter_map(|name| case::load(name).err()).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn host() -> &'static python::Host {
    python::host().expect("this test is ignored without a Python")
}

fn pip_installs_from_the_index() {
    for json in [false, true] {
        let sandbox = Sandbox::new();
        let mut hello = Wheel::new("Hello.World", "1.0")
            .file("hello/__init__.py", "def main(): print('hello')\n");
        hello.requires = vec!["dep>=2".into()];
        hello.entry_points = Some("[console_scripts]\nhello = hello:main\n".into());
        let wheels =
            [hello, Wheel::new("dep", "1.0"), Wheel::new("dep", "2.0").file("dep.py", "x = 1\n")];
        let entries: Vec<_> = wheels
            .iter()
            .map(|w| index::Entry {
                wheel: w.build(),
                project: index::normalize(&w.name),
                listing: index::Listing::default(),
            })
            .collect();
        index::simple(&sandbox.server, "/pypi", &entries, json);
        let venv = sandbox.root().join("venv");
        let mut command = sandbox.command(&host().executable);
        command.args(["-m", "venv", "--without-pip"]).arg(&venv);
        run(command, Duration::from_secs(60)).exits(0);
        let (pip, bytes, _) = host().pip().expect("this Python bundles pip");
        let pip = sandbox.root().join(pip);
        std::fs::write(&pip, bytes).expect("writing pip");
        // A wheel of pip can be run as it is.
        let mut command = sandbox.command(venv.join("bin/python"));
        command.arg(pip.join("pip")).args(["install", "-q", "--index-url"]);
        command.arg(format!("{}/pypi/simple/", sandbox.server.url())).arg("hello-world");
        run(command, Duration::from_secs(60)).exits(0);
        run(sandbox.command(venv.join("bin/hello")), Duration::from_secs(60))
            .exits(0)
            .says("hello");
        let seen = sandbox.server.take_seen();
        assert!(seen.iter().any(|s| s.path == "/pypi/files/dep-2.0-py3-none-any.whl"), "{seen:#?}");
        assert!(
            !seen.iter().any(|s| s.path == "/pypi/files/dep-1.0-py3-none-any.whl"),
            "{seen:#?}"
        );
    }
}

fn archives_read_back() {
    let sandbox = Sandbox::new();
    let long = format!("share/{}x.txt", "deep/".repeat(40));
    let mut package = Package::new("demo", "1.0")
        .entry(Entry::file("lib/a.txt", "a\n"))
        .entry(Entry::link("lib/b.txt", "a.txt"))
        .entry(Entry::file(&long, "deep\n"));
    package.format = Format::TarBz2;
    std::fs::write(sandbox.project.join("demo.tar.bz2"), package.build().bytes).expect("writing");
    package.format = Format::Conda;
    std::fs::write(sandbox.project.join("demo.conda"), package.build().bytes).expect("writing");
    let wheel = Wheel::new("demo", "1.0").file("demo.py", "x = 1\n").build();
    std::fs::write(sandbox.project.join("demo.whl"), wheel.bytes).expect("writing");
    let script = "
import json, tarfile, zipfile
t = tarfile.open('demo.tar.bz2')
assert t.extractfile('lib/a.txt').read() == b'a\\n'
assert t.getmember('lib/b.txt').linkname == 'a.txt'
assert any(n.endswith('deep/x.txt') and len(n) > 200 for n in t.getnames()), t.getnames()
paths = json.load(t.extractfile('info/paths.json'))['paths']
assert [p['path_type'] for p in paths] == ['hardlink', 'softlink', 'hardlink'], paths
z = zipfile.ZipFile('demo.conda')
assert z.testzip() is None
assert z.namelist() == ['metadata.json', 'pkg-demo-1.0-h0_0.tar.zst', 'info-demo-1.0-h0_0.tar.zst']
z = zipfile.ZipFile('demo.whl')
assert z.testzip() is None and 'demo-1.0.dist-info/RECORD' in z.namelist()
print('ok')
";
    let mut command = sandbox.command(&host().executable);
    command.args(["-I", "-c", script]);
    run(command, Duration::from_secs(30)).exits(0).says("ok");
    let files = Channel { packages: vec![package.build()] }.files();
    let plain = &files["linux-64/repodata.json"];
    let packed = zstd::decode_all(&*files["linux-64/repodata.json.zst"]).expect("zstd");
    assert_eq!(plain, &packed);
    assert!(files.contains_key("noarch/repodata.json"));
}

fn server_serves_ranges_and_faults() {
    use std::io::{Read as _, Write as _};
    let sandbox = Sandbox::new();
    let server = &sandbox.server;
    server.put("/f", Content::file("0123456789"));
    let ask = |headers: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).expect("up");
        let request = format!("GET /f HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("sending");
        stream.shutdown(std::net::Shutdown::Write).expect("half-closing");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    };
    let whole = ask("");
    assert!(whole.starts_with("HTTP/1.1 200") && whole.ends_with("0123456789"), "{whole}");
    assert!(ask("Range: bytes=3-5\r\n").ends_with("\r\n\r\n345"));
    assert!(ask("Range: bytes=-2\r\n").ends_with("\r\n\r\n89"));
    assert!(ask("Range: bytes=3-5\r\nIf-Range: \"other\"\r\n").starts_with("HTTP/1.1 200"));
    let fault = |f: Fault| server.faults(&[Fault { path: "/*".into(), ..f }]);
    fault(Fault { status: Some(500), times: 1, ..Fault::default() });
    assert!(ask("").starts_with("HTTP/1.1 500"));
    assert!(ask("").starts_with("HTTP/1.1 200"));
    fault(Fault { cut: Some(0.6), ..Fault::default() });
    assert!(ask("").ends_with("\r\n\r\n012345"));
    fault(Fault { no_ranges: true, ..Fault::default() });
    assert!(ask("Range: bytes=3-5\r\n").ends_with("0123456789"));
    fault(Fault { auth: Some("u:p".into()), ..Fault::default() });
    assert!(ask("").starts_with("HTTP/1.1 401"));
    assert!(ask("Authorization: Basic dTpw\r\n").starts_with("HTTP/1.1 200"));
    fault(Fault { changing: true, ..Fault::default() });
    let (first, second) = (ask(""), ask(""));
    assert!(first.ends_with("0123456789") && !second.ends_with("0123456789"), "{second}");
    assert_eq!(server.take_seen().len(), 12);
}

fn libraries_load() {
    let sandbox = Sandbox::new();
    let q = elf::Library::new("libq.so", "int q(void) { return 42; }");
    let mut p = elf::Library::new("libp.so", "int q(void); int p(void) { return q(); }");
    p.needed = vec!["libq.so".into()];
    p.rpath = Some("$ORIGIN/../q".into());
    for (path, library) in [("p/libp.so", &p), ("q/libq.so", &q)] {
        let path = sandbox.project.join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("making it");
        std::fs::write(path, library.compile()).expect("writing a library");
    }
    let mut command = sandbox.command(&host().executable);
    command.args(["-I", "-c", "import ctypes; print(ctypes.CDLL('p/libp.so').p())"]);
    run(command, Duration::from_secs(30)).exits(0).says("42");
}

/// The package is of use only if the interpreter in it does not lean on the one it came from.
fn python_package_runs_elsewhere() {
    let sandbox = Sandbox::new();
    let host = host();
    let to = sandbox.root().join("unpacked");
    for entry in &host.package().entries {
        use std::os::unix::fs::PermissionsExt as _;
        let path = to.join(&entry.path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("making it");
        match &entry.kind {
            crate::make::conda::Kind::File(bytes) => {
                std::fs::write(&path, bytes).expect("writing");
                let mode = std::fs::Permissions::from_mode(entry.mode);
                std::fs::set_permissions(&path, mode).expect("setting the mode");
            }
            crate::make::conda::Kind::Link(to) => {
                std::os::unix::fs::symlink(to, &path).expect("linking");
            }
            _ => panic!("{} is neither file nor link", entry.path),
        }
    }
    let script = "import sys, ssl, ctypes, hashlib, sqlite3, zlib; print(sys.prefix); \
        print(open('/proc/self/maps').read().count(sys.argv[1]))";
    let mut command = sandbox.command(to.join("bin/python"));
    command.args(["-I", "-c", script]).arg(format!("{}/", host.prefix.display()));
    let outcome = run(command, Duration::from_secs(30));
    outcome.exits(0).says(&to.to_string_lossy());
    assert_eq!(outcome.stdout.lines().nth(1), Some("0"), "maps files of the machine's Python");
}
