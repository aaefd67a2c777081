//! Many at once, and ended in the middle: whatever happens, the store is as it was or as it
//! should be (faults 25, 26, 38), and equal locks give equal bits (faults 31, 40).

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;

use crate::make::conda::{Channel, Entry, Package};
use crate::make::python;
use crate::make::wheel::Wheel;
use crate::sandbox::{PATIENCE, Sandbox, run};
use crate::serve::Content;
use crate::{index, trial};

/// The tests of this module.
pub fn trials() -> Vec<Trial> {
    let python = python::host().is_none().then_some("python");
    let root = (!rustix::process::geteuid().is_root()).then_some("root, to act as two users");
    vec![
        trial("together::four_realize_at_once", python, four_realize_at_once),
        trial("together::two_projects_share_packages", python, two_projects_share_packages),
        trial("together::killed_at_any_time", python, killed_at_any_time),
        trial("together::same_lock_same_bits", python, same_lock_same_bits),
        trial(
            "together::collisions_do_not_depend_on_order",
            python,
            collisions_do_not_depend_on_order,
        ),
        trial("together::doing_nothing_is_quick", python, doing_nothing_is_quick),
        trial("together::store_of_another_user", python.or(root), store_of_another_user),
    ]
}

/// A project with wheels (one with many files, one with a script) and a conda package with a
/// prefix in it.
fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    put_packages(&sandbox);
    sandbox.write("env.toml", MANIFEST);
    sandbox
}

const MANIFEST: &str = r#"
[env]
name = "demo"
platforms = ["linux-64"]
channels = ["conda-forge"]

[host]
python = "{{python}}"

[dependencies]
prefixed = "*"

[pypi-dependencies]
many = "*"
script = "*"

[activation.env]
A = "1"
"#;

fn put_packages(sandbox: &Sandbox) {
    let mut many = Wheel::new("many", "1.0").file("many/__init__.py", "n = 200\n");
    for nth in 0..200 {
        many =
            many.file(&format!("many/d{}/m{nth}.py", nth % 7), format!("x = {nth}\n").repeat(50));
    }
    let mut script = Wheel::new("script", "1.0").file("script.py", "def main(): print('ran')\n");
    script.entry_points = Some("[console_scripts]\nscript = script:main\n".into());
    script.requires = vec!["many".into()];
    put_wheels(sandbox, &[many, script]);
    let placeholder = crate::make::conda::placeholder();
    let prefixed = Package::new("prefixed", "1.0")
        .entry(
            Entry::program("bin/prefixed", format!("#!/bin/sh\necho {placeholder}\n"))
                .text_prefix(),
        )
        .entry(Entry::file("share/p/x.bin", format!("{placeholder}/share\0end\0")).binary_prefix());
    for (path, bytes) in (Channel { packages: vec![prefixed.build()] }).files() {
        sandbox.server.put(&format!("/conda-forge/{path}"), Content::file(bytes));
    }
}

fn put_wheels(sandbox: &Sandbox, wheels: &[Wheel]) {
    let entries: Vec<_> = std::iter::once(index::stand_in_pip())
        .chain(wheels.iter().map(|w| index::Entry {
            wheel: w.build(),
            project: index::normalize(&w.name),
            listing: index::Listing::default(),
        }))
        .collect();
    index::simple(&sandbox.server, "/pypi", &entries, true);
}

/// What a clean realize leaves in the store.
fn clean_listing() -> String {
    let sandbox = project();
    sandbox.gpuenv(&["realize"]).exits(0);
    content(&sandbox)
}

/// The store's listing without what names the sandbox itself (roots; the view's own prefix).
fn content(sandbox: &Sandbox) -> String {
    sandbox
        .store_listing()
        .lines()
        .filter(|l| l.starts_with("packages/") || l.starts_with("staging/"))
        .fold(String::new(), |mut out, line| {
            let _ = writeln!(out, "{line}");
            out
        })
}

fn works(sandbox: &Sandbox) {
    sandbox.gpuenv(&["run", "--", "script"]).exits(0).says("ran");
    let prefix = sandbox.view().to_string_lossy().into_owned();
    sandbox.gpuenv(&["run", "--", "prefixed"]).exits(0).says(&prefix);
}

fn four_realize_at_once() {
    let clean = clean_listing();
    for _ in 0..3 {
        let sandbox = project();
        sandbox.gpuenv(&["lock"]).exits(0);
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| sandbox.gpuenv(&["realize", "--locked"]))).collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        for outcome in outcomes {
            outcome.exits(0);
        }
        works(&sandbox);
        assert_eq!(content(&sandbox), clean);
    }
}

fn two_projects_share_packages() {
    let one = project();
    let mut two = project();
    // Another project on the same store, which wants one of the packages.
    two.store = one.store.clone();
    two.write(
        "env.toml",
        &MANIFEST.replace("script = \"*\"\n", "").replace("\"demo\"", "\"other\""),
    );
    std::thread::scope(|scope| {
        let first = scope.spawn(|| one.gpuenv(&["realize"]));
        two.gpuenv(&["realize"]).exits(0);
        first.join().expect("no panic").exits(0);
    });
    works(&one);
    two.gpuenv(&["run", "--", "python", "-c", "import many; print(many.n)"]).exits(0).says("200");
    let listing = one.store_listing();
    let packages: Vec<_> = listing
        .lines()
        .filter(|l| {
            l.starts_with("packages/") && l.matches('/').count() == 2 && l.contains("-many-1.0/ ")
        })
        .collect();
    assert_eq!(packages.len(), 1, "the package is there once:\n{listing}");
}

fn killed_at_any_time() {
    let clean = clean_listing();
    let sandbox = project();
    sandbox.gpuenv(&["lock"]).exits(0);
    // How long it takes undisturbed says when to strike.
    let whole = {
        let other = project();
        other.gpuenv(&["lock"]).exits(0);
        let start = Instant::now();
        other.gpuenv(&["realize"]).exits(0);
        start.elapsed()
    };
    const STRIKES: u32 = 16;
    for strike in 0..STRIKES {
        let mut command = sandbox.gpuenv_command(&["realize"]);
        // A group of its own, so that what it started ends too.
        let mut child = command
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("gpuenv starts");
        std::thread::sleep(whole * strike / STRIKES);
        let _ = child.kill();
        child.wait().expect("waiting for a child");
        // Whatever is published is whole.
        let listing = sandbox.store_listing();
        for line in listing.lines().filter(|l| l.starts_with("packages/")) {
            assert!(clean.contains(line), "half-built after strike {strike}: {line}");
        }
    }
    sandbox.gpuenv(&["realize"]).exits(0);
    works(&sandbox);
    assert_eq!(content(&sandbox), clean, "left-overs of the killed");
    let downloads = sandbox.downloads();
    assert!(downloads.is_empty(), "{downloads}");
}

/// Two machines: other places, users, umask, time zone, language, job count, hash seed, and a
/// path so long that scripts need another form.
fn same_lock_same_bits() {
    let one = project();
    one.gpuenv(&["realize"]).exits(0);
    let mut two = project();
    let long = format!("{}/store", "a-long-name/".repeat(7));
    two.store = two.root().join(long);
    two.env.insert("TZ".into(), "Asia/Kathmandu".into());
    two.env.insert("LC_ALL".into(), "de_DE.UTF-8".into());
    two.env.insert("PYTHONHASHSEED".into(), "7".into());
    two.env.insert("RAYON_NUM_THREADS".into(), "1".into());
    two.env.insert("SOURCE_DATE_EPOCH".into(), "1".into());
    two.env.insert("USER".into(), "somebody".into());
    std::fs::copy(one.project.join("gpuenv.lock"), two.project.join("gpuenv.lock")).expect("copy");
    two.bash("umask 077; gpuenv realize --locked").exits(0);
    works(&two);
    snapbox::assert_data_eq!(
        two.read("gpuenv.lock"),
        snapbox::Data::text(one.read("gpuenv.lock")).raw()
    );
    assert_eq!(content(&one), content(&two));
    // And made from nothing there.
    std::fs::remove_file(two.project.join("gpuenv.lock")).expect("removing the lock");
    std::fs::remove_dir_all(two.project.join(".gpuenv")).expect("removing the link");
    two.bash("umask 002; sleep 1.1; gpuenv realize").exits(0);
    snapbox::assert_data_eq!(
        two.read("gpuenv.lock"),
        snapbox::Data::text(one.read("gpuenv.lock")).raw()
    );
}

/// Fault 26: three wheels, two contents of one path; the winner never changes.
fn collisions_do_not_depend_on_order() {
    let wheels = ["one", "two", "three"].map(|name| {
        let who = if name == "three" { "one" } else { name };
        Wheel::new(name, "1.0")
            .file("shared/__init__.py", format!("who = '{who}'\n"))
            .file(&format!("shared/{name}.py"), "")
    });
    let manifest = "[env]\nname = \"demo\"\nplatforms = [\"linux-64\"]\n\n[host]\npython = \"{{python}}\"\n\n\
        [pypi-dependencies]\none = \"*\"\ntwo = \"*\"\nthree = \"*\"\n";
    let winner =
        "\n[view.winners]\n\"lib/python{{python}}/site-packages/shared/__init__.py\" = \"two\"\n";
    let mut said = None;
    let mut lock = None;
    for _ in 0..10 {
        let sandbox = Sandbox::new();
        put_wheels(&sandbox, &wheels);
        sandbox.write("env.toml", manifest);
        let outcome = sandbox.gpuenv(&["realize"]);
        outcome.exits(1).warns("shared/__init__.py");
        // Before the error stands what arrived, in any order.
        let at = outcome.stderr.find("error:").expect("an error");
        let words = sandbox.redact(&outcome.stderr[at..]);
        assert_eq!(said.get_or_insert_with(|| words.clone()), &words);
        sandbox.write("env.toml", &format!("{manifest}{winner}"));
        sandbox.gpuenv(&["realize"]).exits(0);
        let now = sandbox.read("gpuenv.lock");
        assert_eq!(lock.get_or_insert_with(|| now.clone()), &now);
    }
}

fn doing_nothing_is_quick() {
    let sandbox = project();
    sandbox.gpuenv(&["realize"]).exits(0);
    sandbox.server.take_seen();
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            sandbox.gpuenv(&["realize"]).exits(0);
            start.elapsed()
        })
        .min()
        .expect("five runs");
    assert!(sandbox.server.take_seen().is_empty(), "it asked the network");
    // A few milliseconds are promised of a release build; the margin is for a debug build on a
    // busy machine.
    assert!(best < Duration::from_millis(300), "{best:?}");
}

/// A store that somebody else owns and that we may only read.
fn store_of_another_user() {
    let sandbox = project();
    sandbox.gpuenv(&["realize"]).exits(0);
    for dir in [sandbox.root(), &sandbox.project, &sandbox.home] {
        open_to_all(dir);
    }
    let nobody = |args: &[&str]| {
        let mut command = sandbox.gpuenv_command(args);
        command.uid(65534).gid(65534);
        run(command, PATIENCE)
    };
    let before = sandbox.store_listing();
    nobody(&["list"]).exits(0).says("many");
    nobody(&["run", "--", "sh", "-c", "command -v prefixed"]).exits(0).says("/bin/prefixed");
    // The interpreter may lie where only root can look.
    if python::host().is_some_and(|h| {
        run(sandbox_as_nobody(&sandbox, &h.executable), PATIENCE).status == Some(0)
    }) {
        nobody(&["realize"]).exits(0);
    }
    sandbox.write("env.toml", &MANIFEST.replace("script = \"*\"\n", ""));
    sandbox.gpuenv(&["lock"]).exits(0);
    let outcome = nobody(&["realize"]);
    outcome.exits(1).warns(&sandbox.store.to_string_lossy());
    assert_eq!(sandbox.store_listing(), before);
}

/// The interpreter, doing nothing as nobody; `test -x` where it cannot even be started.
fn sandbox_as_nobody(sandbox: &Sandbox, executable: &Path) -> std::process::Command {
    let mut command = sandbox.command("test");
    command.arg("-x").arg(executable).uid(65534).gid(65534);
    command
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
}
