use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::config::{Config, Patience};
use super::super::places::{self, Ground};
use super::super::test_server::{Reply, Request, Server};
use super::*;
use crate::error::Report;
use crate::progress::Silent;

struct Bench {
    runtime: tokio::runtime::Runtime,
    cache: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            runtime: super::super::net::runtime().unwrap(),
            cache: tempfile::tempdir().unwrap(),
        }
    }

    /// Opens a channel at `bases`, as a fresh process would.
    fn open(&self, bases: &[Url], offline: bool) -> Result<Channels, SourceError> {
        let mut config = Config {
            patience: Patience {
                stall: Duration::from_secs(5),
                tries: 2,
                backoff: Duration::from_millis(1),
            },
            ..Config::default()
        };
        let (last, mirrors) = bases.split_last().unwrap();
        config.mirrors.insert(last.to_string().trim_end_matches('/').into(), mirrors.to_vec());
        let config = Arc::new(config);
        let directories = BTreeMap::new();
        let ground = Ground {
            config: &config,
            project_dir: std::path::Path::new("/"),
            directories: &directories,
        };
        let spec = places::channel(last.as_str(), ground)?;
        let net = Net::new(&config, offline)?;
        let repodata = Repodata::new(net, self.cache.path(), offline, Arc::new(Silent));
        let handle = self.runtime.handle().clone();
        let roots = vec!["a".parse().unwrap()];
        Channels::open(repodata, handle, vec![spec], Platform::Linux64, roots)
    }
}

fn entry(name: &str, version: &str, depends: &str) -> String {
    format!(
        r#"{{"name":"{name}","version":"{version}","build":"0","build_number":0,"depends":[{depends}],"subdir":"linux-64","sha256":"{}","size":10}}"#,
        "00".repeat(32)
    )
}

fn native() -> String {
    format!(
        r#"{{"info":{{"subdir":"linux-64"}},"packages":{{"a-1-0.tar.bz2":{a1},"b-1-0.tar.bz2":{b}}},"packages.conda":{{"a-1-0.conda":{a1},"a-2-0.conda":{a2}}}}}"#,
        a1 = entry("a", "1", ""),
        a2 = entry("a", "2", r#""b >=1", "__glibc >=2.17""#),
        b = entry("b", "1", ""),
    )
}

fn files(names: &Records) -> Vec<String> {
    names.iter().flatten().map(|r| r.identifier.to_string()).collect()
}

fn records(channels: &Channels, name: &str) -> Vec<String> {
    files(&channels.records(&name.parse().unwrap()).unwrap())
}

fn failure(result: Result<Channels, SourceError>) -> SourceError {
    match result {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[test]
fn plain_json_and_a_missing_noarch_will_do() {
    let (bench, server) =
        (Bench::new(), Server::files(vec![("/c/linux-64/repodata.json", native().into())]));
    let channels = bench.open(&[server.url("/c")], false).unwrap();
    // Both formats of one build are there: the newer format is taken.
    assert_eq!(records(&channels, "a"), ["a-1-0.conda", "a-2-0.conda"]);
    assert_eq!(records(&channels, "b"), ["b-1-0.tar.bz2"]);
    assert!(records(&channels, "zz").is_empty());
    assert_eq!(channels.names(), ["a", "b"]);
    let list = channels.records(&"a".parse().unwrap()).unwrap();
    let (source, location) = channels.origin(&list[0][0]).unwrap();
    assert_eq!(source.url.unwrap(), server.url("/c").as_str());
    assert_eq!(location, None);
}

#[test]
fn compressed_indexes_are_read_and_revalidated() {
    let zst = zstd::encode_all(native().as_bytes(), 1).unwrap();
    let server = Server::new(move |request: &Request| match request.path.as_str() {
        "/c/linux-64/repodata.json.zst" => {
            match request.headers.get("if-none-match").map(String::as_str) {
                Some("\"1\"") => Reply::status(304).header("ETag", "\"1\""),
                _ => Reply::ok(zst.clone()).header("ETag", "\"1\""),
            }
        }
        _ => Reply::status(404),
    });
    let bench = Bench::new();
    for _ in 0..2 {
        let channels = bench.open(&[server.url("/c")], false).unwrap();
        assert_eq!(records(&channels, "b").len(), 1);
    }
    let gets: Vec<_> = server
        .log()
        .into_iter()
        .filter(|r| r.method == "GET" && r.path == "/c/linux-64/repodata.json.zst")
        .collect();
    assert_eq!(gets.len(), 2);
    assert_eq!(gets[1].headers["if-none-match"], "\"1\"");

    // And without network, from the cache alone.
    let before = server.log().len();
    let channels = bench.open(&[server.url("/c")], true).unwrap();
    assert_eq!(records(&channels, "b").len(), 1);
    assert_eq!(server.log().len(), before);
}

#[test]
fn bad_indexes_are_named_and_never_cached() {
    let half = native()[..native().len() / 2].to_string();
    let json_as_zst = native();
    let bad: Vec<(&str, &'static str, Vec<u8>, &str)> = vec![
        (
            "not zstd",
            "/c/linux-64/repodata.json.zst",
            json_as_zst.into(),
            "expected Zstandard data, found JSON text",
        ),
        ("empty", "/c/linux-64/repodata.json", Vec::new(), "expected JSON, found an empty file"),
        (
            "HTML",
            "/c/linux-64/repodata.json",
            b"<!doctype html>".to_vec(),
            "expected JSON, found an HTML page",
        ),
        (
            "half",
            "/c/linux-64/repodata.json",
            half.into(),
            "expected a package index, found damaged data",
        ),
        (
            "text",
            "/c/noarch/repodata.json",
            b"{\"packages\": 3}".to_vec(),
            "expected a package index",
        ),
    ];
    for (what, path, body, words) in bad {
        let mended = Arc::new(AtomicBool::new(false));
        let server = {
            let mended = mended.clone();
            Server::new(move |request: &Request| {
                let good = mended.load(Ordering::SeqCst);
                if request.path == path && !good {
                    // As long-lived as a mirror may say.
                    return Reply::ok(body.clone()).header("Cache-Control", "max-age=100000");
                }
                match request.path.as_str() {
                    "/c/linux-64/repodata.json" => Reply::ok(native()),
                    _ => Reply::status(404),
                }
            })
        };
        let bench = Bench::new();
        let error = failure(bench.open(&[server.url("/c")], false));
        let text = error.to_string();
        assert!(text.contains(words), "{what}: {text}");
        assert!(text.contains(server.url("/c/").as_str()), "{what}: {text}");
        assert!(error.hint().is_some());
        mended.store(true, Ordering::SeqCst);
        let channels = bench.open(&[server.url("/c")], false);
        let channels = channels.unwrap_or_else(|e| panic!("{what} was cached: {e}"));
        assert_eq!(records(&channels, "b").len(), 1, "{what}");
    }
}

#[test]
fn the_next_mirror_serves_where_one_is_bad() {
    let good = Server::files(vec![("/c/linux-64/repodata.json", native().into())]);
    let bad = Server::new(|_| Reply::ok("<html>maintenance</html>"));
    let (bench, gone) = (Bench::new(), Server::new(|_| Reply::status(404)));
    let dead = {
        let server = Server::new(|_| Reply::status(500));
        server.url("/c")
    };
    let channels =
        bench.open(&[bad.url("/c"), gone.url("/c"), dead, good.url("/c")], false).unwrap();
    assert_eq!(records(&channels, "b").len(), 1);
}

#[test]
fn a_mistyped_channel_is_an_error_of_the_user() {
    let (bench, server) = (Bench::new(), Server::new(|_| Reply::status(404)));
    let error = failure(bench.open(&[server.url("/conda-frge")], false));
    assert!(matches!(error, SourceError::NoSuchChannel { .. }), "{error}");
    assert_eq!(error.exit(), crate::error::Exit::User);
    assert!(error.to_string().contains("linux-64"));

    // An empty index is no mistake.
    let empty = br#"{"info":{"subdir":"linux-64"},"packages":{}}"#.to_vec();
    let server = Server::files(vec![("/c/linux-64/repodata.json", empty)]);
    assert!(bench.open(&[server.url("/c")], false).is_ok());
}

#[test]
fn refused_access_asks_for_credentials() {
    let (bench, server) = (Bench::new(), Server::new(|_| Reply::status(401)));
    let error = failure(bench.open(&[server.url("/c")], false));
    assert!(error.to_string().contains("asked for credentials (HTTP 401)"), "{error}");
    assert!(error.hint().unwrap().contains("netrc"));
}

#[test]
fn offline_without_a_cache_says_so() {
    let (bench, server) = (Bench::new(), Server::new(|_| Reply::status(500)));
    let error = failure(bench.open(&[server.url("/c")], true));
    assert!(error.to_string().contains("not in the cache"), "{error}");
    assert!(error.hint().unwrap().contains("--offline"));
    assert!(server.log().is_empty());
}

#[test]
fn a_short_trouble_is_waited_out() {
    let server = Server::new(|request: &Request| match request.path.as_str() {
        "/c/linux-64/repodata.json" if request.before == 0 => Reply::status(503),
        "/c/linux-64/repodata.json" => Reply::ok(native()),
        _ => Reply::status(404),
    });
    assert!(Bench::new().open(&[server.url("/c")], false).is_ok());
}

#[test]
fn directories_are_channels_too() {
    let (bench, dir) = (Bench::new(), tempfile::tempdir().unwrap());
    let url = Url::from_directory_path(dir.path()).unwrap();
    assert!(matches!(
        failure(bench.open(std::slice::from_ref(&url), false)),
        SourceError::NoSuchChannel { .. } | SourceError::BadChannel { .. }
    ));
    std::fs::create_dir_all(dir.path().join("linux-64")).unwrap();
    let index = dir.path().join("linux-64/repodata.json.zst");
    std::fs::write(&index, zstd::encode_all(native().as_bytes(), 1).unwrap()).unwrap();
    let spec = |written: &str| {
        let config = Config::default();
        let none = BTreeMap::new();
        let ground = Ground { config: &config, project_dir: dir.path(), directories: &none };
        places::channel(written, ground).unwrap()
    };
    let open = |offline| {
        let config = Arc::new(Config::default());
        let net = Net::new(&config, offline).unwrap();
        let repodata = Repodata::new(net, bench.cache.path(), offline, Arc::new(Silent));
        let handle = bench.runtime.handle().clone();
        Channels::open(repodata, handle, vec![spec("./")], Platform::Linux64, Vec::new())
    };
    let channels = open(true).unwrap();
    assert_eq!(records(&channels, "a"), ["a-1-0.conda", "a-2-0.conda"]);

    std::fs::write(&index, native()).unwrap();
    let error = failure(open(false));
    assert!(error.to_string().contains("repodata.json.zst"), "{error}");
}

/// The snapshots that lie beside the repository, where they do.
#[test]
#[ignore = "needs GPUENV_TEST_DATA or ../shared/data"]
fn real_channels_are_read_whole() {
    let data =
        std::env::var_os("GPUENV_TEST_DATA").map(std::path::PathBuf::from).unwrap_or_else(|| {
            let above = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(1);
            above.map(|dir| dir.join("shared/data")).find(|dir| dir.is_dir()).expect("test data")
        });
    let bench = Bench::new();
    let config = Arc::new(Config::default());
    let none = BTreeMap::new();
    let ground = Ground { config: &config, project_dir: &data, directories: &none };
    let specs = ["./repodata/conda-forge", "./repodata/nvidia", "./repodata/pytorch"]
        .map(|written| places::channel(written, ground).unwrap());
    let net = Net::new(&config, true).unwrap();
    let repodata = Repodata::new(net, bench.cache.path(), true, Arc::new(Silent));
    let handle = bench.runtime.handle().clone();
    let channels =
        Channels::open(repodata, handle, specs.to_vec(), Platform::Linux64, Vec::new()).unwrap();
    let names = channels.names();
    assert!(names.len() > 1000, "{}", names.len());
    let mut count = 0;
    for name in &names {
        let records = channels.records(&name.parse().unwrap()).unwrap();
        for record in records.iter().flatten() {
            channels.origin(record).expect("a source");
            count += 1;
        }
    }
    assert!(count > 10_000, "{count}");
}

/// As much of MessagePack as shards need; text of 64 hexadecimal digits becomes bytes, as hashes
/// are written there.
fn msgpack(value: &serde_json::Value, out: &mut Vec<u8>) {
    use serde_json::Value;
    let len16 = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(b) => out.push(0xc2 + u8::from(*b)),
        Value::Number(n) => {
            out.push(0xcf);
            out.extend(n.as_u64().unwrap().to_be_bytes());
        }
        Value::String(text) if text.len() == 64 => {
            out.extend([0xc4, 32]);
            out.extend(text.parse::<crate::hash::Sha256>().unwrap().as_bytes());
        }
        Value::String(text) => {
            out.push(0xda);
            out.extend(len16(text.len()));
            out.extend(text.bytes());
        }
        Value::Array(list) => {
            out.push(0xdc);
            out.extend(len16(list.len()));
            list.iter().for_each(|item| msgpack(item, out));
        }
        Value::Object(map) => {
            out.push(0xde);
            out.extend(len16(map.len()));
            for (key, item) in map {
                msgpack(&Value::String(key.clone()), out);
                msgpack(item, out);
            }
        }
    }
}

fn packed(value: &serde_json::Value) -> Vec<u8> {
    let mut out = Vec::new();
    msgpack(value, &mut out);
    zstd::encode_all(&out[..], 1).unwrap()
}

/// CEP 16: an index of hashes, and a file for each name, fetched as they are needed.
#[test]
fn sharded_indexes_are_walked_ahead_of_the_solver_and_kept_for_offline() {
    let shard = |name: &str, depends: &[&str]| {
        packed(&serde_json::json!({
            "packages": {},
            "packages.conda": { format!("{name}-1-0.conda"): {
                "name": name, "version": "1", "build": "0", "build_number": 0,
                "depends": depends, "subdir": "linux-64", "size": 10, "sha256": "11".repeat(32),
            }},
            "removed": [],
        }))
    };
    let shards = [
        ("a", shard("a", &["b >=1", "__cuda"])),
        ("b", shard("b", &["a"])),
        ("c", shard("c", &[])),
    ];
    let hash = |bytes: &[u8]| crate::hash::Sha256::of(bytes).to_string();
    let list: serde_json::Map<String, serde_json::Value> =
        shards.iter().map(|(name, bytes)| (name.to_string(), hash(bytes).into())).collect();
    let index = packed(&serde_json::json!({
        "info": {"subdir": "linux-64", "base_url": "./", "shards_base_url": "./shards/"},
        "shards": list,
    }));
    let mut files = vec![("/c/linux-64/repodata_shards.msgpack.zst".to_string(), index)];
    for (_, bytes) in &shards {
        files.push((format!("/c/linux-64/shards/{}.msgpack.zst", hash(bytes)), bytes.clone()));
    }
    let server = Server::new(move |request: &Request| {
        match files.iter().find(|(path, _)| *path == request.path) {
            Some((_, body)) => Reply::ok(body.clone()).header("Cache-Control", "max-age=60"),
            None => Reply::status(404),
        }
    });
    let bench = Bench::new();
    let channels = bench.open(&[server.url("/c")], false).unwrap();
    let asked = server.log().len();
    assert_eq!(records(&channels, "a"), ["a-1-0.conda"]);
    assert_eq!(records(&channels, "b"), ["b-1-0.conda"]);
    assert_eq!(server.log().len(), asked, "the root's closure was fetched on opening");
    assert_eq!(records(&channels, "c"), ["c-1-0.conda"]);
    assert_eq!(server.log().len(), asked + 1);
    let list = channels.records(&"a".parse().unwrap()).unwrap();
    assert_eq!(channels.origin(&list[0][0]).unwrap().1, None);

    let total = server.log().len();
    let channels = bench.open(&[server.url("/c")], true).unwrap();
    assert_eq!(records(&channels, "b"), ["b-1-0.conda"]);
    assert_eq!(server.log().len(), total);
}
