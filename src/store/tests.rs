use super::*;
use crate::lockfile::PackageId;

/// A locked wheel whose artifact is `bytes`.
pub(crate) fn locked_wheel(name: &str, version: &str, bytes: &[u8]) -> LockedPackage {
    let file = format!("{name}-{version}-py3-none-any.whl");
    LockedPackage {
        id: PackageId(file.clone()),
        kind: ArtifactKind::Wheel,
        name: name.to_owned(),
        version: version.to_owned(),
        build: None,
        subdir: None,
        file,
        source: "pypi".to_owned(),
        location: None,
        size: bytes.len() as u64,
        sha256: Sha256::of(bytes),
        hash_computed: false,
        nar: None,
        requires: Vec::new(),
        edges: Vec::new(),
        yanked: None,
    }
}

use std::sync::Barrier;

use crate::error::Report;
use crate::package::testing::{
    TarEntry, ZipEntry, conda, entry, index_json, tar_file, tar_link, wheel, zip,
};
use crate::progress::Silent;

struct Bench {
    dir: tempfile::TempDir,
    store: Store,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store")).unwrap();
        Bench { dir, store }
    }
    fn add(&self, package: &LockedPackage, bytes: &[u8]) -> Result<StoredPackage> {
        self.add_to(&self.store, package, bytes)
    }
    fn add_to(
        &self,
        store: &Store,
        package: &LockedPackage,
        bytes: &[u8],
    ) -> Result<StoredPackage> {
        let archive = tempfile::NamedTempFile::new_in(self.dir.path()).unwrap();
        std::fs::write(archive.path(), bytes).unwrap();
        store.add(&Add {
            package,
            archive: archive.path(),
            policy: UnpackPolicy::default(),
            verified: false,
            progress: &Silent,
        })
    }
    /// Names below `packages/` and `staging/`.
    fn names(&self) -> Vec<String> {
        [PACKAGES, STAGING]
            .iter()
            .flat_map(|d| fs::list(&self.store.root().join(d)).unwrap_or_default())
            .map(|n| n.into_string().unwrap())
            .collect()
    }
}

fn demo() -> (LockedPackage, Vec<u8>) {
    let bytes = wheel("demo", "1.0", vec![entry("demo/__init__.py", b"x = 1\n")]);
    (locked_wheel("demo", "1.0", &bytes), bytes)
}

#[test]
fn adds_once_and_finds_again() {
    let bench = Bench::new();
    let (package, bytes) = demo();
    let key = PackageKey::of(&package);
    assert!(!bench.store.contains(&key).unwrap());
    assert_eq!(bench.store.get(&key).unwrap(), None);
    let added = bench.add(&package, &bytes).unwrap();
    assert!(bench.store.contains(&key).unwrap());
    assert_eq!(bench.store.get(&key).unwrap().unwrap(), added);
    assert_eq!(nar_of(&added).unwrap(), (added.record.nar, added.record.nar_size));
    assert_eq!(bench.names(), [key.to_string(), format!("{key}.json")]);
    // The archive is not needed any more.
    assert_eq!(bench.add(&package, b"").unwrap(), added);
    // Another opening of the store sees the same.
    let other = Store::open(bench.store.root()).unwrap();
    assert_eq!(other.lookup(&package, UnpackPolicy::default()).unwrap().unwrap(), added);
}

#[test]
fn conda_packages_have_records_too() {
    let bench = Bench::new();
    let bytes = conda(&[index_json("x")], &[tar_file("lib/a", b"a")]);
    let mut package = locked_wheel("x", "1.0", &bytes);
    package.kind = ArtifactKind::Conda;
    package.build = Some("h0_0".into());
    package.file = "x-1.0-h0_0.conda".into();
    let added = bench.add(&package, &bytes).unwrap();
    assert!(added.path.file_name().unwrap().to_str().unwrap().ends_with("-x-1.0-h0_0"));
    let paths: Vec<_> = added.record.entries.iter().map(|e| e.path.as_str()).collect();
    assert_eq!(paths, ["info/index.json", "lib/a"]);
}

#[test]
fn another_artifact_than_locked_is_refused_and_nothing_kept() {
    let bench = Bench::new();
    let (package, bytes) = demo();
    let mut cut = bytes.clone();
    cut.pop();
    for other in [&cut[..], b"", &wheel("demo", "1.0", vec![])] {
        let e = bench.add(&package, other).unwrap_err();
        let words = e.to_string();
        assert!(words.contains(&package.sha256.to_string()), "{words}");
        assert!(words.contains(&Sha256::of(other).to_string()), "{words}");
        assert!(e.hint().is_some());
        assert!(bench.names().is_empty(), "{:?}", bench.names());
    }
    let evil = zip(&[entry("../evil", b"x")]);
    let e = bench.add(&locked_wheel("evil", "1", &evil), &evil).unwrap_err();
    assert!(matches!(e, StoreError::Package(_)));
    assert!(bench.names().is_empty());
    bench.add(&package, &bytes).unwrap();
}

#[test]
fn another_tree_than_locked_is_refused() {
    let bench = Bench::new();
    let (mut package, bytes) = demo();
    package.nar = Some(Sha256::of(b"other"));
    let e = bench.add(&package, &bytes).unwrap_err();
    assert!(matches!(e, StoreError::Nar { .. }));
    assert!(e.to_string().contains(&Sha256::of(b"other").to_string()));
    assert!(bench.names().is_empty());
    package.nar = None;
    let added = bench.add(&package, &bytes).unwrap();
    package.nar = Some(added.record.nar);
    bench.add(&package, &bytes).unwrap();
    // Also where the package is there already.
    package.nar = Some(Sha256::of(b"other"));
    assert!(matches!(bench.add(&package, &bytes), Err(StoreError::Nar { .. })));
}

/// Fault 38: several processes add the same packages at once, with and without locks.
#[test]
fn races_end_in_one_package() {
    for locks in [true, false] {
        let bench = Bench::new();
        let (package, bytes) = demo();
        bench.store.prepare().unwrap();
        let lock = bench.store.root().join(LOCKS);
        if !locks {
            // A lock file that cannot be opened is a lock that is not supported.
            fs::remove_tree(&lock).unwrap();
            std::fs::write(&lock, "").unwrap();
        }
        let barrier = Barrier::new(6);
        let all: Vec<_> = std::thread::scope(|s| {
            let runs: Vec<_> = (0..6)
                .map(|_| {
                    s.spawn(|| {
                        // Each with a store of its own, as processes have.
                        let store = Store::open(bench.store.root()).unwrap();
                        *store.prepared.lock().unwrap() = true;
                        barrier.wait();
                        bench.add_to(&store, &package, &bytes).unwrap()
                    })
                })
                .collect();
            runs.into_iter().map(|r| r.join().unwrap()).collect()
        });
        assert!(all.windows(2).all(|w| w[0] == w[1]));
        let key = PackageKey::of(&package);
        assert_eq!(bench.names(), [key.to_string(), format!("{key}.json")]);
        assert_eq!(nar_of(&all[0]).unwrap().0, all[0].record.nar);
    }
}

/// What a kill or a power cut between two steps leaves counts for nothing and is replaced.
#[test]
fn debris_is_replaced() {
    let (package, bytes) = demo();
    let key = PackageKey::of(&package);
    // A record without a tree: whole, and damaged.
    for record in [None, Some("{ cut")] {
        let bench = Bench::new();
        let whole = bench.add(&package, &bytes).unwrap();
        fs::remove_tree(&whole.path).unwrap();
        if let Some(text) = record {
            fs::remove_file(&bench.store.record_path(&key)).unwrap();
            std::fs::write(bench.store.record_path(&key), text).unwrap();
        }
        assert_eq!(bench.store.get(&key).unwrap(), None);
        assert_eq!(bench.add(&package, &bytes).unwrap(), whole);
        assert_eq!(bench.names().len(), 2);
    }
    // A tree without a record, and with less in it.
    let bench = Bench::new();
    let whole = bench.add(&package, &bytes).unwrap();
    fs::remove_file(&bench.store.record_path(&key)).unwrap();
    fs::set_mode(&whole.path, 0o755).unwrap();
    fs::remove_tree(&whole.path.join("demo")).unwrap();
    assert_eq!(bench.store.get(&key).unwrap(), None);
    let again = bench.add(&package, &bytes).unwrap();
    assert_eq!(nar_of(&again).unwrap().0, whole.record.nar);
    assert_eq!(bench.names().len(), 2);
}

#[test]
fn damaged_records_are_named() {
    let bench = Bench::new();
    let (package, bytes) = demo();
    let added = bench.add(&package, &bytes).unwrap();
    let path = bench.store.record_path(&added.key);
    let text = fs::read_to_string(&path).unwrap();
    for damaged in
        ["", "{", &text[..text.len() / 2], &text.replace("\"sha256\":\"", "\"sha256\":\"x")]
    {
        fs::remove_file(&path).unwrap();
        std::fs::write(&path, damaged).unwrap();
        let e = bench.store.get(&added.key).unwrap_err();
        assert!(matches!(e, StoreError::Record { .. }), "{e}");
        assert!(e.to_string().contains(path.to_str().unwrap()));
        assert!(e.hint().unwrap().contains("remove"));
    }
    std::fs::write(&path, text.replace("\"format\":1", "\"format\":2")).unwrap();
    let e = bench.store.get(&added.key).unwrap_err();
    assert!(e.to_string().ends_with("has format 2; this gpuenv reads format 1"), "{e}");
}

#[test]
fn the_record_format_is_the_golden_one() {
    let bench = Bench::new();
    let check = |package: &LockedPackage, bytes: &[u8], golden: &str| {
        let added = bench.add(package, bytes).unwrap();
        let text = fs::read_to_string(&bench.store.record_path(&added.key)).unwrap();
        // The archive is made by a compressor whose output may change; its tree does not.
        let text = text
            .replace(&package.sha256.to_string(), &Sha256::of(b"").to_string())
            .replace(&format!("\"size\":{},\"nar\"", bytes.len()), "\"size\":0,\"nar\"");
        assert_eq!(text, golden);
    };
    let bytes = wheel(
        "demo",
        "1.0",
        vec![
            entry("demo/__init__.py", b"x = 1\n"),
            entry("demo-1.0.data/scripts/demo", b"#!python\n"),
        ],
    );
    check(
        &locked_wheel("demo", "1.0", &bytes),
        &bytes,
        include_str!("../../store-layout/golden/record-wheel.json"),
    );
    let paths = r#"{"paths_version":1,"paths":[{"_path":"bin/x","path_type":"hardlink",
        "prefix_placeholder":"/opt/placeholder","file_mode":"text"},
        {"_path":"lib/l","path_type":"softlink"}]}"#;
    let info = [index_json("x"), tar_file("info/paths.json", paths.as_bytes())];
    let bytes = conda(
        &info,
        &[
            TarEntry { mode: 0o755, ..tar_file("bin/x", b"#!/opt/placeholder/bin/sh\n") },
            tar_link(b'2', "lib/l", "libl.so.1"),
            tar_link(b'5', "share/empty", ""),
        ],
    );
    let mut package = locked_wheel("x", "1.0", &bytes);
    package.kind = ArtifactKind::Conda;
    package.build = Some("h0_0".into());
    package.subdir = Some("linux-64".into());
    package.file = "x-1.0-h0_0.conda".into();
    check(&package, &bytes, include_str!("../../store-layout/golden/record-conda.json"));
}

#[test]
fn stores_are_told_from_other_directories() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("s");
    assert!(matches!(Store::open("relative/store"), Err(StoreError::Relative(_))));
    // Not there, empty, begun.
    Store::open(&root).unwrap();
    fs::create_dir(&root).unwrap();
    Store::open(&root).unwrap();
    fs::create_dir(&root.join("packages")).unwrap();
    Store::open(&root).unwrap().stage().unwrap();
    assert_eq!(fs::read_to_string(&root.join("version")).unwrap(), "gpuenv store 1\n");
    Store::open(&root).unwrap();
    for (text, newer) in [("gpuenv store 2\n", true), ("1\n", false), ("", false)] {
        fs::remove_file(&root.join("version")).unwrap();
        std::fs::write(root.join("version"), text).unwrap();
        let e = Store::open(&root).unwrap_err();
        assert_eq!(matches!(e, StoreError::Newer { .. }), newer, "{e}");
        assert!(e.hint().is_some());
    }
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    std::fs::write(home.join(".bashrc"), "").unwrap();
    let e = Store::open(&home).unwrap_err();
    assert!(e.to_string().contains(".bashrc"), "{e}");
}

#[test]
fn default_root_follows_the_environment() {
    let root = |vars: &[(&str, &str)]| {
        let vars: Vec<_> = vars.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Store::default_root(|name| {
            vars.iter().find(|(k, _)| k == name).map(|(_, v)| OsString::from(v))
        })
    };
    let is = |vars: &[(&str, &str)], path: &str| {
        assert_eq!(root(vars).unwrap(), Path::new(path), "{vars:?}");
    };
    is(&[("GPUENV_STORE", "/s"), ("HOME", "/h")], "/s");
    is(&[("XDG_DATA_HOME", "/d"), ("HOME", "/h")], "/d/gpuenv/store");
    is(&[("XDG_DATA_HOME", "d"), ("HOME", "/h")], "/h/.local/share/gpuenv/store");
    is(&[("GPUENV_STORE", ""), ("HOME", "/h")], "/h/.local/share/gpuenv/store");
    assert!(matches!(root(&[("GPUENV_STORE", "s")]), Err(StoreError::Relative(_))));
    assert!(matches!(root(&[]), Err(StoreError::NoHome)));
}

#[test]
fn environments_are_published_once() {
    let bench = Bench::new();
    let id = ShortHash::of(&Sha256::of(b"env"));
    let name = env_name(&id, "ppyolo / GPU");
    assert_eq!(name, format!("{id}-ppyolo___GPU"));
    assert_eq!(bench.store.get_env(&name).unwrap(), None);
    let stage = || {
        let staging = bench.store.stage().unwrap();
        let view = staging.path().join("view");
        fs::create_dir(&view).unwrap();
        std::fs::write(view.join("f"), "x").unwrap();
        fs::set_mode(&view, 0o555).unwrap();
        (staging, view)
    };
    let (staging, view) = stage();
    let path = bench.store.publish_env(&view, &name).unwrap();
    drop(staging);
    assert_eq!(path, bench.store.env_path(&name).unwrap());
    assert_eq!(fs::read(&path.join("f")).unwrap(), b"x");
    let (staging, view) = stage();
    assert_eq!(bench.store.publish_env(&view, &name).unwrap(), path);
    drop(staging);
    assert!(bench.names().is_empty());
    assert!(bench.store.env_path("../x").is_err());
    assert!(bench.store.env_path(&format!("{id}-a/b")).is_err());
}

#[test]
fn roots_are_registered_once() {
    let bench = Bench::new();
    let link = bench.dir.path().join("project/.gpuenv/current");
    bench.store.add_root(&link).unwrap();
    bench.store.add_root(&link).unwrap();
    let roots = bench.store.root().join(ROOTS);
    let names = fs::list(&roots).unwrap();
    assert_eq!(names.len(), 1);
    assert_eq!(fs::read_link(&roots.join(&names[0])).unwrap(), link);
    assert!(bench.store.add_root(Path::new("relative")).is_err());
}

#[test]
fn what_cannot_fit_is_refused_before_it_is_fetched() {
    let bench = Bench::new();
    bench.store.check_room(0).unwrap();
    let error = bench.store.check_room(u64::MAX).unwrap_err();
    assert!(matches!(error, StoreError::NoRoom { packed: u64::MAX, .. }), "{error}");
    assert!(crate::error::Report::hint(&error).unwrap().contains("free some space"), "{error}");
    // Nothing was made to find out.
    let store = Store::open(bench.store.root().join("not/there/yet")).unwrap();
    store.check_room(0).unwrap();
    assert!(fs::lstat(store.root()).unwrap().is_none());
}

/// A store whose owner lets nobody write can be read, and says so when asked for more.
#[test]
fn read_only_stores_can_be_read() {
    let bench = Bench::new();
    let (package, bytes) = demo();
    let added = bench.add(&package, &bytes).unwrap();
    let root = bench.store.root().to_owned();
    for dir in [PACKAGES, ENVS, ROOTS, STAGING, DOWNLOADS, LOCKS] {
        fs::set_mode(&root.join(dir), 0o555).unwrap();
    }
    let store = Store::open(&root).unwrap();
    assert_eq!(store.get(&added.key).unwrap().unwrap(), added);
    assert_eq!(bench.add_to(&store, &package, &bytes).unwrap(), added);
    // To the superuser nothing is read-only.
    if !rustix::process::geteuid().is_root() {
        let other = wheel("other", "1.0", vec![]);
        let e = bench.add_to(&store, &locked_wheel("other", "1.0", &other), &other).unwrap_err();
        assert!(matches!(e, StoreError::ReadOnly { .. }), "{e}");
    }
    for dir in [PACKAGES, ENVS, ROOTS, STAGING, DOWNLOADS, LOCKS] {
        fs::set_mode(&root.join(dir), 0o755).unwrap();
    }
}

#[test]
fn the_machine_is_read_from_the_platform() {
    let mut package = locked_wheel("x", "1", b"");
    assert_eq!(machine(&package), None);
    package.file = "x-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl".into();
    assert_eq!(machine(&package), Some(62));
    package.kind = ArtifactKind::Conda;
    package.subdir = Some("linux-aarch64".into());
    assert_eq!(machine(&package), Some(183));
    package.subdir = Some("noarch".into());
    assert_eq!(machine(&package), None);
}

/// Not a test: what [`killed_at_any_moment`] runs and kills.
#[test]
#[ignore = "run by another test"]
fn child_that_adds() {
    let Some(root) = std::env::var_os("GPUENV_TEST_ROOT") else { return };
    let archive = PathBuf::from(std::env::var_os("GPUENV_TEST_ARCHIVE").unwrap());
    let package = locked_wheel("demo", "1.0", &fs::read(&archive).unwrap());
    let policy = UnpackPolicy::default();
    Store::open(PathBuf::from(root))
        .unwrap()
        .add(&Add {
            package: &package,
            archive: &archive,
            policy,
            verified: true,
            progress: &Silent,
        })
        .unwrap();
}

/// A wheel that takes a while.
fn large() -> (LockedPackage, Vec<u8>) {
    let files = (0..400)
        .map(|i: u32| {
            let content: Vec<u8> =
                (0..20_000u32).map(|n| (n.wrapping_mul(i + 7) >> 5) as u8).collect();
            ZipEntry { deflate: i.is_multiple_of(2), ..entry(&format!("demo/{i}"), &content) }
        })
        .collect();
    let bytes = wheel("demo", "1.0", files);
    (locked_wheel("demo", "1.0", &bytes), bytes)
}

/// Killed anywhere, the store either has the package, whole, or has nothing; and the next
/// process adds it and leaves no rest.
#[test]
fn killed_at_any_moment() {
    let bench = Bench::new();
    let (package, bytes) = large();
    let key = PackageKey::of(&package);
    let archive = bench.dir.path().join("archive");
    std::fs::write(&archive, &bytes).unwrap();
    let mut whole = 0;
    for round in 0..14u64 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "store::tests::child_that_adds"])
            .env("GPUENV_TEST_ROOT", bench.store.root())
            .env("GPUENV_TEST_ARCHIVE", &archive)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(5 + round * round));
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(there) = bench.store.get(&key).unwrap() {
            whole += 1;
            assert_eq!(nar_of(&there).unwrap().0, there.record.nar);
            fs::remove_tree(&there.path).unwrap();
        }
    }
    println!("{whole} rounds ended with the package in the store");
    let added = bench.add(&package, &bytes).unwrap();
    assert_eq!(nar_of(&added).unwrap().0, added.record.nar);
    assert_eq!(bench.names(), [key.to_string(), format!("{key}.json")]);
}

/// For a person: `GPUENV_TEST_ARCHIVES=/dir cargo test --lib -- --ignored any_archives
/// --nocapture` adds every archive of a directory to a store that stays, and prints what `nix
/// hash path --base16` should print for each.
#[test]
#[ignore = "needs GPUENV_TEST_ARCHIVES"]
fn any_archives_of_a_directory() {
    struct Notes;
    impl Progress for Notes {
        fn event(&self, event: Event<'_>) {
            if let Event::Note { text } = event {
                println!("  {text}");
            }
        }
    }
    let dir = PathBuf::from(std::env::var_os("GPUENV_TEST_ARCHIVES").unwrap());
    let root = tempfile::tempdir().unwrap().keep();
    let store = Store::open(root.join("store")).unwrap();
    for name in fs::list(&dir).unwrap() {
        let file = name.into_string().unwrap();
        let archive = dir.join(&file);
        let (sha256, size) = Sha256::of_reader(fs::open(&archive).unwrap()).unwrap();
        let mut package = LockedPackage { sha256, size, ..locked_wheel("", "", b"") };
        if let Some(stem) = file.strip_suffix(".whl") {
            let mut parts = stem.split('-');
            package.name = parts.next().unwrap().replace('_', "-").to_lowercase();
            package.version = parts.next().unwrap().to_owned();
        } else if let Some(stem) =
            file.strip_suffix(".conda").or_else(|| file.strip_suffix(".tar.bz2"))
        {
            let mut parts = stem.rsplitn(3, '-');
            package.kind = ArtifactKind::Conda;
            package.build = parts.next().map(str::to_owned);
            package.version = parts.next().unwrap().to_owned();
            package.name = parts.next().unwrap().to_owned();
        } else {
            continue;
        }
        package.file = file;
        let begun = Instant::now();
        let policy = UnpackPolicy::default();
        let add =
            Add { package: &package, archive: &archive, policy, verified: true, progress: &Notes };
        match store.add(&add) {
            Ok(added) => println!(
                "{} {} {} entries {} elf {:.2?}",
                added.record.nar,
                added.path.display(),
                added.record.entries.len(),
                added.record.elf.len(),
                begun.elapsed()
            ),
            Err(e) => println!("REFUSED {e}: {:?}", std::error::Error::source(&e)),
        }
    }
}
