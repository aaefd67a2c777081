//! The whole room against servers on loopback.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rattler_conda_types::Subdir as Platform;

use super::config::Patience;
use super::error::Outcome;
use super::test_server::{Reply, Request, Server};
use super::*;
use crate::error::Exit;
use crate::hash::Sha256;
use crate::lockfile::{ArtifactKind, Lock, LockedPackage, PackageId};
use crate::progress::Silent;
use crate::resolve::{Chosen, ChosenKind, Provider, WheelFile, WheelOrigin};

struct Bench {
    dir: tempfile::TempDir,
    config: Config,
}

impl Bench {
    fn new() -> Bench {
        let patience =
            Patience { stall: Duration::from_secs(5), tries: 2, backoff: Duration::from_millis(1) };
        Bench {
            dir: tempfile::tempdir().unwrap(),
            config: Config { patience, ..Config::default() },
        }
    }

    fn sources(&self) -> Sources {
        Sources::open(SourcesOptions {
            config: self.config.clone(),
            offline: false,
            cache_dir: self.dir.path().join("cache"),
            download_dir: None,
            project_dir: self.dir.path().into(),
            progress: Arc::new(Silent),
        })
        .unwrap()
    }

    /// Fetches into a directory and returns what was handed on.
    fn fetch(&self, lock: &Lock) -> Result<BTreeMap<String, Vec<u8>>, SourceError> {
        let wanted: Vec<&LockedPackage> = lock.packages.iter().collect();
        let seen = Mutex::new(BTreeMap::new());
        let dir = self.dir.path().join("downloads");
        self.sources().fetch_all(lock, &wanted, &dir, &|package, path| {
            let bytes = std::fs::read(path).unwrap();
            seen.lock().unwrap().insert(package.id.0.clone(), bytes);
            Ok::<(), SourceError>(())
        })?;
        Ok(seen.into_inner().unwrap())
    }
}

fn manifest(text: &str) -> Manifest {
    crate::manifest::parse(text, "env.toml").unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn archive(n: u8) -> Vec<u8> {
    let mut bytes = b"PK\x03\x04".to_vec();
    bytes.extend(vec![n; 1000 + usize::from(n)]);
    bytes
}

/// A wheel with nothing but its metadata.
fn wheel(name: &str, version: &str) -> Vec<u8> {
    let text = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
    let path = format!("{name}-{version}.dist-info/METADATA");
    let mut crc = flate2::Crc::new();
    crc.update(text.as_bytes());
    let fixed = |out: &mut Vec<u8>| {
        out.extend(20u16.to_le_bytes());
        out.extend([0; 8]);
        out.extend(crc.sum().to_le_bytes());
        out.extend((text.len() as u32).to_le_bytes());
        out.extend((text.len() as u32).to_le_bytes());
        out.extend((path.len() as u16).to_le_bytes());
        out.extend([0; 2]);
    };
    let mut out = b"PK\x03\x04".to_vec();
    fixed(&mut out);
    out.extend(path.bytes());
    out.extend(text.bytes());
    let directory = out.len();
    out.extend(b"PK\x01\x02\x14\x00");
    fixed(&mut out);
    out.extend([0; 2 + 2 + 2 + 4 + 4]);
    out.extend(path.bytes());
    let end = out.len();
    out.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    out.extend(((end - directory) as u32).to_le_bytes());
    out.extend((directory as u32).to_le_bytes());
    out.extend([0; 2]);
    out
}

fn record(name: &str, more: &str) -> String {
    format!(
        r#"{{"info":{{"subdir":"linux-64"}},"packages":{{}},"packages.conda":{{"{name}-1-0.conda":{{"name":"{name}","version":"1","build":"0","build_number":0,"depends":[],"subdir":"linux-64"{more}}}}}}}"#
    )
}

fn chosen_record(universe: &Universe, name: &str) -> Chosen {
    let records = universe.conda(&name.parse().unwrap()).unwrap();
    let record = records.iter().flatten().next().expect("a record").clone();
    chosen(ChosenKind::Conda(record))
}

fn chosen(what: ChosenKind) -> Chosen {
    Chosen { what, requires: Vec::new(), edges: Default::default(), root: true }
}

fn chosen_wheel(file: Arc<WheelFile>) -> Chosen {
    chosen(ChosenKind::Wheel { file, extras: Default::default() })
}

fn locked(kind: ArtifactKind, file: &str, source: &str, bytes: &[u8]) -> LockedPackage {
    let name = file.split('-').next().unwrap().to_string();
    let subdir = (kind == ArtifactKind::Conda).then(|| "linux-64".to_string());
    let id = subdir.iter().cloned().chain([file.to_string()]).collect::<Vec<_>>().join("/");
    LockedPackage {
        id: PackageId(id),
        kind,
        name,
        version: "1".into(),
        build: subdir.as_ref().map(|_| "0".into()),
        subdir,
        file: file.into(),
        source: source.into(),
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

fn source(name: &str, kind: SourceKind, url: Option<&Url>) -> Source {
    Source { name: name.into(), kind, url: url.map(Url::to_string) }
}

#[test]
fn a_declared_hash_is_pinned_without_a_download() {
    let more = format!(r#","sha256":"{}","size":10"#, "ab".repeat(32));
    let server = Server::files(vec![("/c/linux-64/repodata.json", record("a", &more).into())]);
    let mut bench = Bench::new();
    bench.config.mirrors.insert("lab".into(), vec![server.url("/c")]);
    // Never asked, since the mirror serves.
    bench.config.condarc.channel_alias = Some("https://conda.example.invalid/".parse().unwrap());
    let manifest = manifest(
        "[env]\nname = \"x\"\nplatforms = [\"linux-64\"]\nchannels = [\"lab\"]\n[dependencies]\na = \"*\"\n",
    );
    let universe = bench.sources().universe(&manifest, &manifest, Platform::Linux64).unwrap();
    assert_eq!(universe.conda_names(), ["a"]);
    let pinned = universe.pin(&chosen_record(&universe, "a")).unwrap();
    assert_eq!(
        pinned,
        Pinned {
            source: source("lab", SourceKind::Channel, None),
            file: "a-1-0.conda".into(),
            size: 10,
            sha256: Sha256::from_bytes([0xab; 32]),
            hash_computed: false,
            location: None,
            subdir: Some("linux-64".into()),
        }
    );
}

/// Fault 19, for channels: MD5 alone does not weaken the lock, and is checked.
#[test]
fn a_record_with_md5_alone_is_fetched_hashed_and_checked() {
    use md5::Digest as _;
    let bytes = archive(1);
    let right: [u8; 16] = md5::Md5::digest(&bytes).into();
    for (md5, good) in [(download::hex(&right), true), ("00".repeat(16), false)] {
        let index = record("a", &format!(r#","md5":"{md5}""#));
        let server = Server::files(vec![
            ("/c/linux-64/repodata.json", index.into()),
            ("/c/linux-64/a-1-0.conda", bytes.clone()),
        ]);
        let bench = Bench::new();
        let text = format!(
            "[env]\nname = \"x\"\nplatforms = [\"linux-64\"]\nchannels = [\"{}\"]\n[dependencies]\na = \"*\"\n",
            server.url("/c")
        );
        let sources = bench.sources();
        let universe =
            sources.universe(&manifest(&text), &manifest(&text), Platform::Linux64).unwrap();
        let result = universe.pin_all(&[chosen_record(&universe, "a")]);
        if good {
            let pinned = &result.unwrap()[0];
            assert_eq!((pinned.sha256, pinned.size), (Sha256::of(&bytes), bytes.len() as u64));
            assert!(pinned.hash_computed);
            let kept =
                sources.download_dir().join(download::final_name(&pinned.sha256, &pinned.file));
            assert_eq!(std::fs::read(kept).unwrap(), bytes);
        } else {
            let error = result.unwrap_err();
            assert_eq!(error.exit(), Exit::User);
            let words = error.to_string();
            assert!(words.contains("expected md5 0000"), "{words}");
            assert!(words.contains(server.url("/c/linux-64/a-1-0.conda").as_str()), "{words}");
        }
    }
}

/// Fault 19, for indexes.
#[test]
fn wheels_without_a_hash_are_pinned_by_what_they_are() {
    let bytes = wheel("w", "1");
    let served = bytes.clone();
    let server = Server::new(move |request: &Request| {
        match request.path.as_str() {
        "/simple/w/" => Reply::ok(
            "<!DOCTYPE html><html><body><a href=\"../../files/w-1-py3-none-any.whl\">w</a></body></html>",
        )
        .header("Content-Type", "text/html"),
        "/files/w-1-py3-none-any.whl" => Reply::file(request, &served, "\"1\""),
        _ => Reply::status(404),
    }
    });
    let mut bench = Bench::new();
    bench.config.mirrors.insert("pypi".into(), vec![server.url("/simple")]);
    let manifest = manifest(
        "[env]\nname = \"x\"\nplatforms = [\"linux-64\"]\n[host]\npython = \"3.11\"\n[pypi-dependencies]\nw = \"*\"\n",
    );
    let universe = bench.sources().universe(&manifest, &manifest, Platform::Linux64).unwrap();
    let listing = universe.wheels(&"w".parse().unwrap(), &WheelOrigin::Default).unwrap();
    assert_eq!(listing.files.len(), 1, "{:?}", listing.skipped);
    let pinned = universe.pin(&chosen_wheel(listing.files[0].clone())).unwrap();
    assert_eq!(pinned.source, source("pypi", SourceKind::Index, None), "no mirror in the lock");
    assert_eq!((pinned.sha256, pinned.hash_computed), (Sha256::of(&bytes), true));

    // And what the lock says is found again.
    let lock = Lock {
        sources: vec![pinned.source.clone()],
        packages: vec![locked(ArtifactKind::Wheel, &pinned.file, "pypi", &bytes)],
        ..Lock::default()
    };
    assert_eq!(bench.fetch(&lock).unwrap()["w-1-py3-none-any.whl"], bytes);
}

#[test]
fn direct_wheels_are_pinned_by_place() {
    let bytes = wheel("w", "1");
    let bench = Bench::new();
    std::fs::create_dir(bench.dir.path().join("wheels")).unwrap();
    std::fs::write(bench.dir.path().join("wheels/w-1-py3-none-any.whl"), &bytes).unwrap();
    let manifest = manifest(
        "[env]\nname = \"x\"\nplatforms = [\"linux-64\"]\n[host]\npython = \"3.11\"\n[pypi-dependencies]\nw = { path = \"wheels/w-1-py3-none-any.whl\" }\n",
    );
    let universe = bench.sources().universe(&manifest, &manifest, Platform::Linux64).unwrap();
    let listing = universe.wheels(&"w".parse().unwrap(), &WheelOrigin::Direct(0)).unwrap();
    let pinned = universe.pin(&chosen_wheel(listing.files[0].clone())).unwrap();
    assert_eq!(pinned.source.kind, SourceKind::Path);
    assert_eq!(pinned.location.as_deref(), Some("wheels/w-1-py3-none-any.whl"));
    let mut package = locked(ArtifactKind::Wheel, &pinned.file, &pinned.source.name, &bytes);
    package.location = pinned.location;
    let lock = Lock { sources: vec![pinned.source], packages: vec![package], ..Lock::default() };
    assert_eq!(bench.fetch(&lock).unwrap().len(), 1);
}

#[test]
fn all_files_of_a_lock_arrive_big_ones_first() {
    let files: Vec<(&'static str, Vec<u8>)> = vec![
        ("/c/linux-64/a-1-0.conda", archive(1)),
        ("/c/linux-64/b-1-0.conda", archive(200)),
        ("/c/linux-64/c-1-0.conda", archive(30)),
    ];
    let server = Server::files(files.clone());
    let mut bench = Bench::new();
    bench.config.concurrency = std::num::NonZeroUsize::MIN;
    let packages = files
        .iter()
        .map(|(path, bytes)| {
            locked(ArtifactKind::Conda, path.rsplit('/').next().unwrap(), "lab", bytes)
        })
        .collect();
    let lock = Lock {
        sources: vec![source("lab", SourceKind::Channel, Some(&server.url("/c")))],
        packages,
        ..Lock::default()
    };
    let got = bench.fetch(&lock).unwrap();
    assert_eq!(got.len(), 3);
    assert_eq!(got["linux-64/b-1-0.conda"], archive(200));
    let asked: Vec<String> = server.log().into_iter().map(|r| r.path).collect();
    assert!(asked[0].contains("/b-") && asked[2].contains("/a-"), "{asked:?}");

    // A second run asks nobody.
    bench.fetch(&lock).unwrap();
    assert_eq!(server.log().len(), 3);
}

/// Fault 20: gone from its own place, and there in another source of the lock.
#[test]
fn what_is_gone_is_found_by_hash_or_every_place_is_named() {
    let bytes = archive(1);
    let server = Server::files(vec![("/other/linux-64/a-1-0.conda", bytes.clone())]);
    let mirror = Server::new(|_| Reply::ok("<html>"));
    let mut bench = Bench::new();
    bench.config.mirrors.insert("lab".into(), vec![mirror.url("/m")]);
    let mut lock = Lock {
        sources: vec![
            source("lab", SourceKind::Channel, Some(&server.url("/c"))),
            source("other", SourceKind::Channel, Some(&server.url("/other"))),
        ],
        packages: vec![locked(ArtifactKind::Conda, "a-1-0.conda", "lab", &bytes)],
        ..Lock::default()
    };
    assert_eq!(bench.fetch(&lock).unwrap()["linux-64/a-1-0.conda"], bytes);

    let bench = Bench { config: bench.config.clone(), ..Bench::new() };
    lock.sources.pop();
    let error = bench.fetch(&lock).unwrap_err();
    let words = error.to_string();
    for place in [mirror.url("/m/linux-64/a-1-0.conda"), server.url("/c/linux-64/a-1-0.conda")] {
        assert!(words.contains(place.as_str()), "{words}");
    }
    assert!(words.contains("an XML or HTML document") || words.contains("an HTML page"), "{words}");
    assert!(error.hint().unwrap().contains("[mirrors]"), "{:?}", error.hint());
    assert_eq!(error.exit(), Exit::Source);
}

#[test]
fn an_error_of_the_receiver_ends_it_all() {
    let server = Server::files(vec![
        ("/c/linux-64/a-1-0.conda", archive(1)),
        ("/c/linux-64/b-1-0.conda", archive(2)),
    ]);
    let bench = Bench::new();
    let lock = Lock {
        sources: vec![source("lab", SourceKind::Channel, Some(&server.url("/c")))],
        packages: vec![
            locked(ArtifactKind::Conda, "a-1-0.conda", "lab", &archive(1)),
            locked(ArtifactKind::Conda, "b-1-0.conda", "lab", &archive(2)),
        ],
        ..Lock::default()
    };
    #[derive(Debug)]
    enum Mine {
        Full,
        Source(SourceError),
    }
    impl From<SourceError> for Mine {
        fn from(error: SourceError) -> Mine {
            Mine::Source(error)
        }
    }
    let calls = AtomicUsize::new(0);
    let wanted: Vec<&LockedPackage> = lock.packages.iter().collect();
    let dir = bench.dir.path().join("d");
    let result = bench.sources().fetch_all(&lock, &wanted, &dir, &|_, _| {
        calls.fetch_add(1, Ordering::SeqCst);
        Err(Mine::Full)
    });
    assert!(matches!(result, Err(Mine::Full)), "{result:?}");
    assert!(calls.load(Ordering::SeqCst) >= 1);
    if let Err(Mine::Source(error)) = result {
        panic!("{error}");
    }
}

/// Fault 25: the room is looked at before the first byte.
#[test]
fn too_little_space_is_said_first() {
    let server = Server::files(Vec::new());
    let bench = Bench::new();
    let mut package = locked(ArtifactKind::Conda, "a-1-0.conda", "lab", b"x");
    package.size = 1 << 60;
    let lock = Lock {
        sources: vec![source("lab", SourceKind::Channel, Some(&server.url("/c")))],
        packages: vec![package],
        ..Lock::default()
    };
    let error = bench.fetch(&lock).unwrap_err();
    assert!(matches!(error, SourceError::NoSpace { needed, .. } if needed == 1 << 60), "{error}");
    assert!(server.log().is_empty());
}

#[test]
fn a_directory_given_by_absolute_path_stays_out_of_the_lock() {
    let bench = Bench::new();
    let channel = bench.dir.path().join("chan");
    std::fs::create_dir_all(channel.join("linux-64")).unwrap();
    let bytes = archive(9);
    std::fs::write(channel.join("linux-64/repodata.json"), record("a", "")).unwrap();
    std::fs::write(channel.join("linux-64/a-1-0.conda"), &bytes).unwrap();
    let manifest = manifest(&format!(
        "[env]\nname = \"x\"\nplatforms = [\"linux-64\"]\nchannels = [\"{}\"]\n[dependencies]\na = \"*\"\n",
        channel.display()
    ));
    let sources = bench.sources();
    let universe = sources.universe(&manifest, &manifest, Platform::Linux64).unwrap();
    let pinned = universe.pin(&chosen_record(&universe, "a")).unwrap();
    assert_eq!(pinned.source, source("dir:chan", SourceKind::Channel, None));
    assert_eq!(pinned.location, None);
    let lock = Lock {
        sources: vec![pinned.source],
        packages: vec![locked(ArtifactKind::Conda, "a-1-0.conda", "dir:chan", &bytes)],
        ..Lock::default()
    };
    let dir = bench.dir.path().join("d");
    let got = sources.fetch_all(&lock, &[&lock.packages[0]], &dir, &|_, path| {
        assert_eq!(std::fs::read(path).unwrap(), bytes);
        Ok::<(), SourceError>(())
    });
    got.unwrap();

    // Without env.toml there is no telling where it is, and that is what is said.
    let error = bench.fetch(&lock).unwrap_err();
    assert!(error.to_string().contains("env.toml names by an absolute path"), "{error}");
}

#[test]
fn one_file_for_two_packages_is_fetched_once() {
    let bytes = archive(3);
    let server = Server::files(vec![("/c/linux-64/a-1-0.conda", bytes.clone())]);
    let bench = Bench::new();
    let first = locked(ArtifactKind::Conda, "a-1-0.conda", "lab", &bytes);
    let mut second = first.clone();
    second.id = PackageId("linux-64/a-1-0.conda @other".into());
    second.source = "other".into();
    let lock = Lock {
        sources: vec![
            source("lab", SourceKind::Channel, Some(&server.url("/c"))),
            source("other", SourceKind::Channel, Some(&server.url("/c"))),
        ],
        packages: vec![first, second],
        ..Lock::default()
    };
    // Twice, as after a run that ended in between: what it left is no obstacle.
    for _ in 0..2 {
        let got = bench.fetch(&lock).unwrap();
        assert_eq!(got.len(), 2);
        assert!(got.values().all(|content| *content == bytes));
    }
    assert_eq!(server.log().len(), 1);
}

/// Fault 19, last input: the right file in one mirror, a wrong one in another.
#[test]
fn a_wheel_that_is_wrong_in_one_mirror_is_taken_from_the_next() {
    let right = wheel("w", "1");
    let wrong = wheel("w", "2");
    let digest = Sha256::of(&right);
    let server = Server::new(move |request: &Request| {
        match request.path.as_str() {
        "/one/w/" | "/two/w/" => Reply::ok(format!(
            "<!DOCTYPE html><html><body><a href=\"w-1-py3-none-any.whl#sha256={digest}\">w</a></body></html>"
        ))
        .header("Content-Type", "text/html"),
        "/one/w/w-1-py3-none-any.whl" => Reply::ok(wrong.clone()),
        "/two/w/w-1-py3-none-any.whl" => Reply::ok(wheel("w", "1")),
        _ => Reply::status(404),
    }
    });
    let mut bench = Bench::new();
    bench.config.mirrors.insert("pypi".into(), vec![server.url("/one"), server.url("/two")]);
    let lock = Lock {
        sources: vec![source("pypi", SourceKind::Index, None)],
        packages: vec![locked(ArtifactKind::Wheel, "w-1-py3-none-any.whl", "pypi", &right)],
        ..Lock::default()
    };
    assert_eq!(bench.fetch(&lock).unwrap()["w-1-py3-none-any.whl"], right);
    let bad = server.log().iter().filter(|r| r.path == "/one/w/w-1-py3-none-any.whl").count();
    assert_eq!(bad, 1, "not asked again");
}

#[test]
fn an_index_that_refuses_or_is_not_cached_is_told_as_such() {
    let server = Server::new(|_| Reply::status(401));
    let mut bench = Bench::new();
    bench.config.mirrors.insert("pypi".into(), vec![server.url("/simple")]);
    bench.config.wheels.index =
        Some(wheels::user_config::Setting { value: server.url("/simple"), from: "a test".into() });
    let lock = Lock {
        sources: vec![source("pypi", SourceKind::Index, None)],
        packages: vec![locked(ArtifactKind::Wheel, "w-1-py3-none-any.whl", "pypi", b"x")],
        ..Lock::default()
    };
    let error = bench.fetch(&lock).unwrap_err();
    assert!(error.to_string().contains("127.0.0.1 asked for credentials (HTTP 401)"), "{error}");
    assert!(error.hint().unwrap().contains("netrc"), "{:?}", error.hint());

    let offline = Sources::open(SourcesOptions {
        config: bench.config.clone(),
        offline: true,
        cache_dir: bench.dir.path().join("cache"),
        download_dir: None,
        project_dir: bench.dir.path().into(),
        progress: Arc::new(Silent),
    });
    let dir = bench.dir.path().join("d");
    let asked = server.log().len();
    let error = offline
        .unwrap()
        .fetch_all(&lock, &[&lock.packages[0]], &dir, &|_, _| Ok::<(), SourceError>(()))
        .unwrap_err();
    assert!(error.hint().unwrap().contains("--offline"), "{error}");
    assert_eq!(server.log().len(), asked);
}

#[test]
fn names_in_a_lock_are_portable() {
    let links = |name: &str, url: &str| {
        let got = portable(Source {
            name: name.into(),
            kind: SourceKind::FindLinks,
            url: Some(url.into()),
        });
        (got.name, got.url)
    };
    assert_eq!(links("wheels", "wheels"), ("./wheels".into(), Some("./wheels".into())));
    assert_eq!(links("/srv/w", "/srv/w"), ("dir:w".into(), None));
    assert_eq!(links("local", "file:///srv/w"), ("local".into(), None));
    let page = "https://h.example.invalid/p.html";
    assert_eq!(links(page, page), (page.into(), Some(page.into())));
    let home = at_home(
        &Source { name: "dir:w".into(), kind: SourceKind::FindLinks, url: None },
        &BTreeMap::from([("dir:w".to_string(), "/srv/w".to_string())]),
    );
    assert_eq!(home.url.as_deref(), Some("/srv/w"));
}

#[test]
fn credentials_of_an_index_serve_its_files_and_no_other_host() {
    let mut bench = Bench::new();
    let index = "https://u:secret@i.example.invalid/simple".parse().unwrap();
    bench.config.mirrors.insert("pypi".into(), vec![index]);
    let sources = bench.sources();
    let with = |text: &str| sources.inner.with_credentials(text.parse().unwrap()).to_string();
    assert_eq!(with("https://i.example.invalid/f.whl"), "https://u:secret@i.example.invalid/f.whl");
    assert_eq!(with("https://j.example.invalid/f.whl"), "https://j.example.invalid/f.whl");
    assert_eq!(with("http://i.example.invalid/f.whl"), "http://i.example.invalid/f.whl");
    let shown = error::Attempt {
        source: "pypi".into(),
        place: error::redacted(&with("https://i.example.invalid/f.whl").parse().unwrap()),
        outcome: Outcome::Missing,
    };
    assert!(!format!("{shown:?}").contains("secret"));
}
