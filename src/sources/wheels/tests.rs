//! Wheel sources against servers and directories made for the purpose.

use std::io::Write as _;
use std::path::Path;
use std::str::FromStr;
use std::sync::Mutex;

use super::test_server::{Request, Response, Server};
use super::user_config::{Proxy, Setting};
use super::*;
use crate::error::Report;
use crate::lockfile::SourceKind;

struct Notes(Mutex<Vec<String>>);
impl Progress for Notes {
    fn event(&self, event: Event<'_>) {
        if let Event::Note { text } = event {
            lock(&self.0).push(text.to_owned());
        }
    }
}

fn dist(name: &str) -> DistName {
    DistName::from_str(name).unwrap()
}
fn index(name: &str) -> WheelOrigin {
    WheelOrigin::Index(IndexName(name.into()))
}

/// A configuration whose sources are all loopback: even the default index.
fn config(dir: &Path) -> WheelConfig {
    let mut config = WheelConfig::new(dir.join("project"), dir.join("cache"));
    std::fs::create_dir_all(dir.join("project")).unwrap();
    config.user.proxy = Proxy::None;
    config.retries = 1;
    // Nothing listens there.
    config.default_index = Some(Url::parse("http://127.0.0.1:9/simple").unwrap());
    config
}
fn with_default(dir: &Path, server: &Server) -> WheelConfig {
    WheelConfig { default_index: Some(server.url("/simple")), ..config(dir) }
}
fn open(config: WheelConfig) -> WheelSources {
    WheelSources::open(config).unwrap()
}
fn names(listing: &WheelListing) -> Vec<&str> {
    listing.files.iter().map(|f| f.file.as_str()).collect()
}
fn failed(error: ProviderError) -> (String, String, Exit) {
    match error {
        ProviderError::Failed { message, hint, exit } => (message, hint.unwrap_or_default(), exit),
        ProviderError::Unusable(reason) => panic!("unusable: {reason}"),
    }
}
fn unusable(error: ProviderError) -> String {
    match error {
        ProviderError::Unusable(reason) => reason,
        ProviderError::Failed { message, .. } => panic!("failed: {message}"),
    }
}

const METADATA: &str = "Metadata-Version: 2.1\nName: a\nVersion: 1.0\nRequires-Python: >=3.8\n\
                        Requires-Dist: numpy (>=1.20)\nRequires-Dist: b; extra == 'more'\n\
                        Provides-Extra: more\n";

/// A wheel of nothing but metadata, with some ballast before it.
fn wheel(dist_info: &str, metadata: &str) -> Vec<u8> {
    zip(dist_info, metadata, true)
}

/// Stored entries with data descriptors cannot be read as a stream.
fn zip(dist_info: &str, metadata: &str, deflate: bool) -> Vec<u8> {
    let mut archive = rawzip::ZipArchiveWriter::new(Vec::new());
    let files = [
        ("a/__init__.py".to_owned(), "x = 1\n".repeat(5000)),
        (format!("{dist_info}.dist-info/METADATA"), metadata.to_owned()),
        (format!("{dist_info}.dist-info/RECORD"), String::new()),
    ];
    for (path, body) in files {
        let method = if deflate {
            rawzip::CompressionMethod::DEFLATE
        } else {
            rawzip::CompressionMethod::STORE
        };
        let (mut entry, config) =
            archive.new_file(path.as_str()).compression_method(method).start().unwrap();
        let descriptor = if deflate {
            let encoder = flate2::write::DeflateEncoder::new(&mut entry, Default::default());
            let mut writer = config.wrap(encoder);
            writer.write_all(body.as_bytes()).unwrap();
            let (encoder, descriptor) = writer.finish().unwrap();
            encoder.finish().unwrap();
            descriptor
        } else {
            let mut writer = config.wrap(&mut entry);
            writer.write_all(body.as_bytes()).unwrap();
            writer.finish().unwrap().1
        };
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap()
}

#[test]
fn json_and_html_pages_are_listed() {
    let server = Server::start(|request: &Request| match request.target.as_str() {
        "/simple/a/" => Response::json(
            r#"{"meta": {"api-version": "1.0"}, "name": "a", "files": [
              {"filename": "a-1.0-py3-none-any.whl", "url": "../../f/a-1.0-py3-none-any.whl", "hashes": {}},
              {"filename": "a-2.0.tar.gz", "url": "../../f/a-2.0.tar.gz", "hashes": {}}]}"#,
        ),
        "/simple/b-c/" => Response::html(r#"<a href="/f/B_c-1-py3-none-any.whl">x</a>"#),
        _ => Response::status(404),
    });
    let dir = tempfile::tempdir().unwrap();
    let sources = open(with_default(dir.path(), &server));
    let a = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    assert_eq!(names(&a), ["a-1.0-py3-none-any.whl"]);
    assert_eq!(a.files[0].url, server.url("/f/a-1.0-py3-none-any.whl").as_str());
    assert_eq!(a.files[0].source, "pypi");
    assert_eq!(a.sdist_only, ["2.0".parse().unwrap()]);
    let b = sources.listing(&dist("B.C"), &WheelOrigin::Default).unwrap();
    assert_eq!(names(&b), ["B_c-1-py3-none-any.whl"]);
    let nothing = sources.listing(&dist("nothing"), &WheelOrigin::Default).unwrap();
    assert!(nothing.unknown && nothing.files.is_empty());
    let agent = &server.requests()[0].headers["user-agent"];
    assert!(agent.starts_with("gpuenv/"), "{agent}");
}

#[test]
fn one_question_is_asked_once() {
    let server = Server::start(|_: &Request| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        Response::html(r#"<a href="a-1.0-py3-none-any.whl">x</a>"#)
    });
    let dir = tempfile::tempdir().unwrap();
    let sources = open(with_default(dir.path(), &server));
    sources.prefetch(vec![Want::Wheels(dist("a"), WheelOrigin::Default); 3]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| sources.listing(&dist("a"), &WheelOrigin::Default).unwrap());
        }
    });
    assert_eq!(server.seen(), ["GET /simple/a/"]);
}

#[test]
fn metadata_comes_alone_or_by_ranges_or_from_the_whole_file() {
    for way in ["alone", "promised", "ranges", "stream", "whole"] {
        let body = zip("a-1.0", METADATA, way != "whole");
        let attribute = if matches!(way, "alone" | "promised") {
            r#"data-dist-info-metadata="true""#
        } else {
            ""
        };
        let server = Server::start(move |request: &Request| match request.target.as_str() {
            "/simple/a/" => {
                Response::html(format!(r#"<a href="/f/a-1.0-py3-none-any.whl" {attribute}>x</a>"#))
            }
            "/f/a-1.0-py3-none-any.whl.metadata" if way == "alone" => Response::file(METADATA),
            "/f/a-1.0-py3-none-any.whl" if matches!(way, "stream" | "whole") => {
                if request.method == "HEAD" {
                    Response::status(405)
                } else {
                    Response::file(body.clone())
                }
            }
            "/f/a-1.0-py3-none-any.whl" => Response::file(body.clone()).with_ranges(),
            _ => Response::status(404),
        });
        let dir = tempfile::tempdir().unwrap();
        let sources = open(with_default(dir.path(), &server));
        let listing = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
        let metadata = sources.metadata(&listing.files[0]).unwrap();
        assert_eq!(metadata.version, "1.0".parse().unwrap(), "{way}");
        assert_eq!(metadata.requires_dist.len(), 2, "{way}");
        assert_eq!(metadata.extras.len(), 1, "{way}");
        assert_eq!(metadata.requires_python, Some(">=3.8".parse().unwrap()), "{way}");
        let whole = server.requests().into_iter().filter(|r| {
            r.method == "GET" && r.target.ends_with(".whl") && !r.headers.contains_key("range")
        });
        let expected = match way {
            "stream" => 1,
            "whole" => 2,
            _ => 0,
        };
        assert_eq!(whole.count(), expected, "{way}: {:?}", server.seen());
    }
}

#[test]
fn metadata_of_a_known_digest_is_asked_for_once_and_for_all() {
    let digest = Sha256::of(b"a");
    let server = Server::start(move |request: &Request| match request.target.as_str() {
        "/simple/a/" => Response::html(format!(
            r#"<a href="/a-1.0-py3-none-any.whl#sha256={digest}" data-core-metadata=true>x</a>
               <a href="/a-1.0-py2-none-any.whl" data-core-metadata=true>x</a>"#
        )),
        _ => Response::file(METADATA).header("Cache-Control", "no-cache"),
    });
    let dir = tempfile::tempdir().unwrap();
    let mut answers = Vec::new();
    for _ in 0..2 {
        let sources = open(with_default(dir.path(), &server));
        let listing = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
        for file in &listing.files {
            answers.push(format!("{:?}", sources.metadata(file).unwrap()));
        }
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "what is kept is what was fetched: {answers:?}");
    let asked = |name: &str| server.seen().iter().filter(|r| r.contains(name)).count();
    assert_eq!((asked("py3-none"), asked("py2-none")), (1, 2), "{:?}", server.seen());
    // A damaged entry is no answer.
    let kept = dir.path().join("cache/wheels/metadata-v1");
    let shard = std::fs::read_dir(kept).unwrap().next().unwrap().unwrap().path();
    let entry = std::fs::read_dir(shard).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&entry, "{").unwrap();
    let sources = open(with_default(dir.path(), &server));
    let listing = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    for file in &listing.files {
        sources.metadata(file).unwrap();
    }
    assert!(std::fs::read(&entry).unwrap().len() > 1);
}

const NETRC_TEST: &str = "sources::wheels::tests::an_index_that_needs_credentials";

/// The other half of the next test, in a process whose environment names a netrc file.
#[test]
#[ignore = "run by netrc_is_read"]
fn an_index_that_needs_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.default_index = Some(std::env::var("GPUENV_TEST_INDEX").unwrap().parse().unwrap());
    let listing = open(config).listing(&dist("a"), &WheelOrigin::Default).unwrap();
    assert_eq!(names(&listing), ["a-1.0-py3-none-any.whl"]);
}

#[test]
fn netrc_is_read() {
    let server = Server::start(|request: &Request| {
        // someone:s3cret
        match request.headers.get("authorization").map(String::as_str) {
            Some("Basic c29tZW9uZTpzM2NyZXQ=") => {
                Response::html(r#"<a href="a-1.0-py3-none-any.whl">x</a>"#)
            }
            _ => Response::status(401).header("WWW-Authenticate", "Basic realm=x"),
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let netrc = dir.path().join("netrc");
    std::fs::write(&netrc, "machine 127.0.0.1 login someone password s3cret\n").unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NETRC_TEST, "--ignored"])
        .env("NETRC", netrc)
        .env("GPUENV_TEST_INDEX", server.url("/simple").as_str())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Fault 22: bad metadata costs one file, and says why.
#[test]
fn unreadable_metadata_is_the_files_fault() {
    let cases = [
        ("Metadata-Version: 2.1\nName: a\nVersion: 1.0-foo\n", "found `-foo`"),
        ("Metadata-Version: 2.1\nName: a\nVersion: 2.0\n", "version 2.0"),
        ("Metadata-Version: 2.1\nName: b\nVersion: 1.0\n", "`b`"),
        (
            "Metadata-Version: 2.1\nName: a\nVersion: 1.0\nRequires-Dist: kubernetes (>=nine)\n",
            "nine",
        ),
        ("nonsense", "metadata"),
    ];
    for (metadata, reason) in cases {
        let server = Server::start(move |request: &Request| match request.target.as_str() {
            "/simple/a/" => Response::html(
                r#"<a href="/a-1.0-py3-none-any.whl" data-core-metadata="true">x</a>"#,
            ),
            _ => Response::file(metadata),
        });
        let dir = tempfile::tempdir().unwrap();
        let sources = open(with_default(dir.path(), &server));
        let listing = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
        let err = unusable(sources.metadata(&listing.files[0]).unwrap_err());
        assert!(err.contains(reason) && err.contains("a-1.0-py3-none-any.whl"), "{reason}: {err}");
    }
}

/// Fault 22: what old releases wrote and what it must have meant.
#[test]
fn common_slips_in_old_metadata_are_read() {
    let metadata = "Metadata-Version: 2.1\nName: a\nVersion: 1.0\nRequires-Python: >= 3.5.*\n\
                    Requires-Dist: kubernetes (>=9.0.0a1.0)\n";
    let server = Server::start(move |request: &Request| match request.target.as_str() {
        "/simple/a/" => Response::html(
            r#"<a href="/a-1.0-py3-none-any.whl" data-requires-python="&gt;=3.5.*"
                  data-core-metadata="true">x</a>"#,
        ),
        _ => Response::file(metadata),
    });
    let dir = tempfile::tempdir().unwrap();
    let sources = open(with_default(dir.path(), &server));
    let listing = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    let expected = Some(">=3.5".parse().unwrap());
    assert_eq!(listing.files[0].requires_python, expected);
    let metadata = sources.metadata(&listing.files[0]).unwrap();
    assert_eq!(metadata.requires_python, expected);
    assert_eq!(metadata.requires_dist[0].to_string(), "kubernetes>=9.0.0a1");
}

#[test]
fn a_broken_or_missing_wheel_is_unusable() {
    let body = wheel("a-1.0", METADATA);
    let server = Server::start(move |request: &Request| match request.target.as_str() {
        "/simple/a/" => Response::html(
            r#"<a href="/a-1.0-py3-none-any.whl">x</a><a href="/a-1.1-py3-none-any.whl">x</a>
               <a href="/a-1.2-py3-none-any.whl">x</a>"#,
        ),
        "/a-1.0-py3-none-any.whl" => Response::file("<html>not a zip</html>").with_ranges(),
        "/a-1.1-py3-none-any.whl" => Response::file(body[..body.len() / 2].to_vec()).with_ranges(),
        _ => Response::status(404),
    });
    let dir = tempfile::tempdir().unwrap();
    let sources = open(with_default(dir.path(), &server));
    let listing = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    for file in &listing.files {
        let err = unusable(sources.metadata(file).unwrap_err());
        assert!(err.contains(&file.file), "{err}");
    }
}

#[test]
fn failures_say_which_source_and_what_to_do() {
    let server = Server::start(|request: &Request| {
        match request.target.split('/').nth(1).unwrap_or_default() {
            "401" => Response::status(401),
            "403" => Response::status(403),
            "500" => Response::status(500),
            "html" => Response::json("<html>sign in</html>"),
            "login" => Response::html("<html><form></form></html>"),
            "cut" => Response::json(r#"{"files": []}     "#).cut(5),
            _ => Response::status(404),
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    for path in ["401", "403", "500", "html", "login", "cut"] {
        let mut url = server.url(&format!("/{path}/simple"));
        url.set_username("someone").unwrap();
        url.set_password(Some("s3cret")).unwrap();
        config.indexes.insert(IndexName(path.into()), IndexSource::Simple(url));
    }
    let gone = Url::parse("http://u:s3cret@127.0.0.1:9/simple").unwrap();
    config.indexes.insert(IndexName("gone".into()), IndexSource::Simple(gone));
    config.indexes.insert(
        IndexName("links".into()),
        IndexSource::FindLinks(server.url("/nowhere.html").to_string()),
    );
    let sources = open(config);
    for (name, words, advice) in [
        ("401", "answered 401", "~/.netrc"),
        ("403", "answered 403", "do not hold"),
        ("500", "answered 500", "mirror"),
        ("html", "found HTML", "login page"),
        ("login", "login page", "login page"),
        ("cut", "cannot reach", "try again"),
        ("gone", "cannot reach", "network"),
        ("links", "nothing at", "env.toml"),
    ] {
        let (message, hint, exit) = failed(sources.listing(&dist("a"), &index(name)).unwrap_err());
        assert!(message.contains(words), "{name}: {message}");
        assert!(message.contains(&format!("`{name}`")), "{name}: {message}");
        assert!(message.contains("http://127.0.0.1"), "{name}: {message}");
        assert!(hint.contains(advice), "{name}: {hint}");
        assert_eq!(exit, Exit::Source, "{name}");
        assert!(!format!("{message}{hint}").contains("s3cret"), "{name}: {message}");
        assert_eq!(message.matches("://").count(), 1, "{name}: {message}");
    }
    let tries = server.seen().iter().filter(|r| r.contains("/500/")).count();
    assert!(tries >= 2, "a failing server is asked again: {tries}");
}

#[test]
fn credentials_of_a_url_are_sent_and_stay_with_their_host() {
    let files = Server::start(|_: &Request| Response::file(METADATA));
    let elsewhere = files.url("/a-1.0-py3-none-any.whl");
    let server = Server::start(move |request: &Request| {
        if !request.headers.contains_key("authorization") {
            return Response::status(401).header("WWW-Authenticate", "Basic realm=x");
        }
        match request.target.as_str() {
            "/simple/a/" => Response::html(format!(
                r#"<a href="{elsewhere}" data-core-metadata=true>x</a>
                   <a href="/f/a-1.0-py2-none-any.whl" data-core-metadata=true>x</a>"#
            )),
            _ => Response::file(METADATA),
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let mut config = with_default(dir.path(), &server);
    let url = config.default_index.as_mut().unwrap();
    url.set_username("someone").unwrap();
    url.set_password(Some("s3cret")).unwrap();
    let sources = open(config);
    let listing = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    assert_eq!(listing.files.len(), 2);
    for file in &listing.files {
        assert!(!file.url.contains("s3cret"));
        sources.metadata(file).unwrap();
    }
    assert!(files.requests().iter().all(|r| !r.headers.contains_key("authorization")));
    assert_eq!(
        sources.lock_source("pypi").unwrap().url.as_deref(),
        Some(server.url("/simple").as_str())
    );
}

#[test]
fn redirects_are_followed_and_links_joined_there() {
    let server = Server::start(|request: &Request| match request.target.as_str() {
        "/simple/a/" => Response::status(302).header("Location", "/moved/deep/a/"),
        "/moved/deep/a/" => Response::html(r#"<a href="../a-1.0-py3-none-any.whl">x</a>"#),
        _ => Response::status(404),
    });
    let dir = tempfile::tempdir().unwrap();
    let sources = open(with_default(dir.path(), &server));
    let listing = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    assert_eq!(listing.files[0].url, server.url("/moved/deep/a-1.0-py3-none-any.whl").as_str());
}

#[test]
fn offline_answers_from_the_cache_and_names_what_is_missing() {
    let server = Server::start(|request: &Request| match request.target.as_str() {
        "/simple/a/" => {
            Response::html(r#"<a href="a-1.0-py3-none-any.whl" data-core-metadata=true>x</a>"#)
        }
        "/simple/b/" => Response::html(r#"<a href="b-1.0-py3-none-any.whl">x</a>"#),
        "/simple/a/a-1.0-py3-none-any.whl.metadata" => Response::file(METADATA),
        _ => Response::status(404),
    });
    let dir = tempfile::tempdir().unwrap();
    let online = open(with_default(dir.path(), &server));
    let listing = online.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    online.metadata(&listing.files[0]).unwrap();
    online.listing(&dist("b"), &WheelOrigin::Default).unwrap();
    drop(online);
    let before = server.seen().len();
    let offline = open(WheelConfig { offline: true, ..with_default(dir.path(), &server) });
    let listing = offline.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    assert_eq!(names(&listing), ["a-1.0-py3-none-any.whl"]);
    offline.metadata(&listing.files[0]).unwrap();
    let b = offline.listing(&dist("b"), &WheelOrigin::Default).unwrap();
    let (message, hint, exit) = failed(offline.metadata(&b.files[0]).unwrap_err());
    assert!(message.contains("the metadata of b-1.0-py3-none-any.whl"), "{message}");
    let (message, _, _) = failed(offline.listing(&dist("c"), &WheelOrigin::Default).unwrap_err());
    assert!(message.contains("the page of `c`"), "{message}");
    assert!(hint.contains("--offline"), "{hint}");
    assert_eq!(exit, Exit::Source);
    assert_eq!(server.seen().len(), before, "no request offline");
}

#[test]
fn find_links_come_before_the_default_index() {
    let server = Server::start(|request: &Request| match request.target.as_str() {
        "/simple/a/" => Response::html(
            r#"<a href="/f/a-1.0-py3-none-any.whl">x</a><a href="/f/a-2.0-py3-none-any.whl">x</a>"#,
        ),
        "/links.html" => Response::html(
            r#"<a href="/l/a-2.0-py3-none-any.whl">x</a><a href="/l/b-2.0-py3-none-any.whl">x</a>
               <a href="/l/a-1-odd.whl">x</a>"#,
        ),
        _ => Response::status(404),
    });
    let dir = tempfile::tempdir().unwrap();
    let mut config = with_default(dir.path(), &server);
    let wheels = dir.path().join("project/wheels");
    std::fs::create_dir(&wheels).unwrap();
    std::fs::write(wheels.join("a-1.0-py3-none-any.WHL"), wheel("a-1.0", METADATA)).unwrap();
    std::fs::write(wheels.join("c-3.0.tar.gz"), "").unwrap();
    std::fs::write(wheels.join("README.txt"), "").unwrap();
    config.find_links = vec!["wheels".into(), server.url("/links.html").into()];
    let sources = open(config);
    let a = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    let seen: Vec<_> = a.files.iter().map(|f| (f.file.as_str(), f.source.as_str())).collect();
    let links = server.url("/links.html");
    let expected =
        [("a-1.0-py3-none-any.whl", "./wheels"), ("a-2.0-py3-none-any.whl", links.as_str())];
    assert_eq!(seen, expected);
    assert_eq!(a.skipped.len(), 1, "{:?}", a.skipped);
    assert_eq!(sources.metadata(&a.files[0]).unwrap().requires_dist.len(), 2);
    let b = sources.listing(&dist("b"), &WheelOrigin::Default).unwrap();
    assert_eq!((names(&b), b.unknown), (vec!["b-2.0-py3-none-any.whl"], false));
    let c = sources.listing(&dist("c"), &WheelOrigin::Default).unwrap();
    assert_eq!(c.sdist_only, ["3.0".parse().unwrap()]);
    assert!(sources.listing(&dist("d"), &WheelOrigin::Default).unwrap().unknown);
    // By its name, the default index serves alone.
    let a = sources.listing(&dist("a"), &index("pypi")).unwrap();
    assert!(a.files.iter().all(|f| f.source == "pypi") && a.files.len() == 2);
    let pages = server.seen().iter().filter(|r| r.contains("links.html")).count();
    assert_eq!(pages, 1, "a page for all names is read once");
    let lock = sources.lock_source("./wheels").unwrap();
    assert_eq!((lock.kind, lock.url.as_deref()), (SourceKind::FindLinks, Some("wheels")));
}

#[test]
fn an_explicit_index_serves_only_who_names_it() {
    let server = Server::start(|request: &Request| match request.target.as_str() {
        "/corp/a/" => Response::html(r#"<a href="a-9.0-py3-none-any.whl">x</a>"#),
        _ => Response::status(404),
    });
    let dir = tempfile::tempdir().unwrap();
    let mut config = with_default(dir.path(), &server);
    config.indexes.insert(IndexName("corp".into()), IndexSource::Simple(server.url("/corp/")));
    let sources = open(config);
    assert!(sources.listing(&dist("a"), &WheelOrigin::Default).unwrap().unknown);
    let a = sources.listing(&dist("a"), &index("corp")).unwrap();
    assert_eq!(a.files[0].source, "corp");
    let (_, _, exit) = failed(sources.listing(&dist("a"), &index("other")).unwrap_err());
    assert_eq!(exit, Exit::Bug);
}

#[test]
fn a_local_simple_index() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("simple");
    std::fs::create_dir_all(root.join("a")).unwrap();
    std::fs::create_dir_all(root.join("b")).unwrap();
    std::fs::create_dir_all(dir.path().join("f")).unwrap();
    let file = dir.path().join("f/a-1.0-py3-none-any.whl");
    std::fs::write(&file, wheel("a-1.0", METADATA)).unwrap();
    let page = r#"<a href="../../f/a-1.0-py3-none-any.whl">x</a>"#;
    std::fs::write(root.join("a/index.html"), page).unwrap();
    std::fs::write(root.join("b/b-1.0-py3-none-any.whl"), "").unwrap();
    let mut config = config(dir.path());
    config.default_index = Some(Url::from_directory_path(&root).unwrap());
    let missing = Url::from_directory_path(dir.path().join("missing")).unwrap();
    config.indexes.insert(IndexName("missing".into()), IndexSource::Simple(missing));
    let sources = open(config);
    let a = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    assert_eq!(a.files[0].url, Url::from_file_path(&file).unwrap().as_str());
    sources.metadata(&a.files[0]).unwrap();
    let b = sources.listing(&dist("b"), &WheelOrigin::Default).unwrap();
    assert_eq!(names(&b), ["b-1.0-py3-none-any.whl"]);
    unusable(sources.metadata(&b.files[0]).unwrap_err());
    assert!(sources.listing(&dist("c"), &WheelOrigin::Default).unwrap().unknown);
    let (message, _, exit) = failed(sources.listing(&dist("a"), &index("missing")).unwrap_err());
    assert!(message.contains("missing"), "{message}");
    assert_eq!(exit, Exit::User);
}

#[test]
fn direct_wheels_by_url_and_path() {
    let body = wheel("a-1.0", METADATA);
    let served = body.clone();
    let server = Server::start(move |request: &Request| match request.target.as_str() {
        "/w/a-1.0%2Bcu1-py3-none-any.whl?k=1" => Response::file(served.clone()).with_ranges(),
        _ => Response::status(404),
    });
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    std::fs::write(dir.path().join("project/a-1.0-py3-none-any.whl"), &body).unwrap();
    let digest = Sha256::of(&body);
    let by_url =
        |url: &str| WheelRequirementSource::Url { url: Url::parse(url).unwrap(), sha256: None };
    let at = |path: &str| by_url(server.url(path).as_str());
    config.direct = BTreeMap::from([
        (0, WheelRequirementSource::Path("a-1.0-py3-none-any.whl".into())),
        (1, at(&format!("/w/a-1.0%2Bcu1-py3-none-any.whl?k=1#sha256={digest}"))),
        (2, at("/w/a-1.0.zip")),
        (3, at("/w/a-2.0-py3-none-any.whl")),
        (4, WheelRequirementSource::Path("b-1.0-py3-none-any.whl".into())),
        (5, WheelRequirementSource::Path("a-3.0-py3-none-any.whl".into())),
        (6, by_url("http://u:s3cret@example.invalid/a-1.0-py3-none-any.whl")),
    ]);
    let sources = open(config);
    let listing = |n| sources.listing(&dist("a"), &WheelOrigin::Direct(n));
    let local = listing(0).unwrap();
    assert_eq!(local.files[0].size, Some(body.len() as u64));
    assert_eq!(local.files[0].source, DIRECT_PATH);
    sources.metadata(&local.files[0]).unwrap();

    let remote = listing(1).unwrap();
    let file = &remote.files[0];
    assert_eq!((file.file.as_str(), file.sha256), ("a-1.0+cu1-py3-none-any.whl", Some(digest)));
    assert_eq!(file.url, server.url("/w/a-1.0%2Bcu1-py3-none-any.whl?k=1").as_str());
    // The wheel was renamed: its metadata says 1.0.
    assert!(unusable(sources.metadata(file).unwrap_err()).contains("version 1.0"));

    let (message, hint, exit) = failed(listing(2).unwrap_err());
    assert!(message.contains("a-1.0.zip") && hint.contains("PEP 427"), "{message} {hint}");
    assert_eq!(exit, Exit::User);
    let gone = listing(3).unwrap();
    let (message, _, exit) = failed(sources.metadata(&gone.files[0]).unwrap_err());
    assert!(message.contains("answered 404"), "{message}");
    assert_eq!(exit, Exit::Source);
    assert!(failed(listing(4).unwrap_err()).0.contains("a wheel of `b`"));
    assert!(failed(listing(5).unwrap_err()).0.contains("a-3.0-py3-none-any.whl"));
    let (message, hint, _) = failed(listing(6).unwrap_err());
    assert!(message.contains("not encrypted") && !message.contains("s3cret"), "{message}");
    assert!(hint.contains("allow-insecure"), "{hint}");
}

#[test]
fn mirrors_stand_in_for_each_other() {
    let empty = Server::start(|_: &Request| Response::status(404));
    let broken = Server::start(|_: &Request| Response::json("{"));
    let good = Server::start(|request: &Request| match request.target.as_str() {
        "/m/a/" => Response::html(r#"<a href="a-1.0-py3-none-any.whl">x</a>"#),
        _ => Response::status(404),
    });
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.default_index = None;
    let mirrors = vec![empty.url("/m"), broken.url("/m"), good.url("/m")];
    config.mirrors.insert("pypi".into(), mirrors);
    let notes = Arc::new(Notes(Mutex::new(Vec::new())));
    config.progress = notes.clone();
    config.user.notes = vec!["X is ignored".into()];
    let sources = open(config);
    let a = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    assert_eq!(a.files[0].url, good.url("/m/a/a-1.0-py3-none-any.whl").as_str());
    assert_eq!(sources.lock_source("pypi").unwrap().url, None);
    let notes_now = lock(&notes.0).clone();
    assert!(
        notes_now[0] == "X is ignored" && notes_now[1].contains("next mirror"),
        "{notes_now:?}"
    );
    sources.listing(&dist("a"), &index("pypi")).unwrap();
    assert_eq!(broken.seen().iter().filter(|r| r.contains("/a/")).count(), 1, "asked last now");
    assert_eq!(lock(&notes.0).len(), 2, "and named once");
    // Nobody has `b`, but one of those asked could not say so.
    let (message, _, _) = failed(sources.listing(&dist("b"), &WheelOrigin::Default).unwrap_err());
    assert!(message.contains("no index page"), "{message}");
}

/// Faults 19 and 20: the digest decides; what the source says of names and hashes is a guide.
#[test]
fn locked_wheels_are_located_by_digest_and_name() {
    let digest = Sha256::of(b"a");
    let other = Sha256::of(b"b");
    let server = Server::start(move |request: &Request| match request.target.as_str() {
        "/simple/a/" => Response::html(format!(
            r#"<a href="/1/a-1.0%2Bx-py3-none-any.whl#sha256={other}">wrong hash</a>
            <a href="/2/a-1.0%2Bx-py3-none-any.whl">no hash</a>
            <a href="/3/a-1.0%2Bx-1-py3-none-any.whl#sha256={digest}">renamed</a>
            <a href="/4/a-1.0%2Bx-py3-none-any.whl#sha256={digest}"
               data-requires-python="&gt;=3" data-yanked="x">right</a>
            <a href="/5/a-2.0-py3-none-any.whl#sha256={other}">other</a>"#
        )),
        _ => Response::status(404),
    });
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.default_index = None;
    let from = "PIP_INDEX_URL".into();
    config.user.index = Some(Setting { value: server.url("/simple"), from });
    let sources = open(config);
    let pypi = Source { name: "pypi".into(), kind: SourceKind::Index, url: None };
    let locate = |source: &Source, name: &str| {
        sources.locate(source, &dist(name), "a-1.0+x-py3-none-any.whl", &digest)
    };
    let paths = |urls: Vec<Url>| urls.iter().map(|u| u.path()[..2].to_owned()).collect::<String>();
    assert_eq!(paths(locate(&pypi, "a").unwrap()), "/4/3/2/1");
    assert!(locate(&pypi, "b").unwrap().is_empty());
    let named =
        Source { name: "corp".into(), url: Some(server.url("/simple").into()), ..pypi.clone() };
    assert_eq!(paths(locate(&named, "a").unwrap()), "/4/3/2/1");
    let err = locate(&Source { name: "corp".into(), ..pypi }, "a").unwrap_err();
    assert_eq!(err.exit(), Exit::Bug);
}

#[test]
fn a_declared_md5_is_kept_where_it_is_all_there_is() {
    let server = Server::start(|_: &Request| {
        Response::html(
            r#"<a href="a-1.0-py3-none-any.whl#md5=900150983cd24fb0d6963f7d28e17f72">x</a>"#,
        )
    });
    let dir = tempfile::tempdir().unwrap();
    let sources = open(with_default(dir.path(), &server));
    let a = sources.listing(&dist("a"), &WheelOrigin::Default).unwrap();
    assert_eq!(a.files[0].sha256, None);
    let md5 = sources.declared_md5(&a.files[0]);
    assert_eq!(md5.as_deref(), Some("900150983cd24fb0d6963f7d28e17f72"));
}

#[test]
fn unusable_settings_are_the_users_to_mend() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.pem");
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    for path in [missing, empty] {
        let mut config = config(dir.path());
        let from = "SSL_CERT_FILE".into();
        config.user.certificates = Some(Setting { value: path.clone(), from });
        let err = WheelSources::open(config).err().unwrap();
        assert!(err.to_string().contains(path.to_str().unwrap()), "{err}");
        assert!(err.to_string().contains("SSL_CERT_FILE"), "{err}");
        assert_eq!(err.exit(), Exit::User);
    }
    let blocked = dir.path().join("file");
    std::fs::write(&blocked, "").unwrap();
    let err = WheelSources::open(WheelConfig { cache_dir: blocked, ..config(dir.path()) });
    assert!(matches!(err, Err(WheelSourceError::CacheDir { .. })));
}

/// By hand: `cargo test --lib -- --ignored --nocapture the_real_default_index`.
#[test]
#[ignore = "asks the real default index"]
fn the_real_default_index() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = WheelConfig::new(dir.path(), dir.path().join("cache"));
    config.user = UserConfig::of_this_machine().unwrap();
    eprintln!("notes: {:?}", config.user.notes);
    for round in ["first", "again", "offline"] {
        config.offline = round == "offline";
        real_round(round, &open(config.clone()));
    }
}

fn real_round(round: &str, sources: &WheelSources) {
    let names = ["numpy", "torch", "paddlepaddle", "paddlepaddle-gpu", "no-such-name-gpuenv"];
    for name in names {
        let start = std::time::Instant::now();
        let listing = match sources.listing(&dist(name), &WheelOrigin::Default) {
            Ok(listing) => listing,
            Err(err) => {
                eprintln!("{round} {name}: {err}");
                continue;
            }
        };
        eprintln!(
            "{round} {name}: {} wheels, {} source-only, skipped {:?}, unknown {}, {:?}",
            listing.files.len(),
            listing.sdist_only.len(),
            listing.skipped.iter().take(5).collect::<Vec<_>>(),
            listing.unknown,
            start.elapsed()
        );
        let start = std::time::Instant::now();
        let some: Vec<_> = listing.files.iter().rev().take(20).collect();
        sources.prefetch(some.iter().map(|f| Want::Metadata((*f).clone())).collect());
        for file in &some {
            if let Err(err) = sources.metadata(file) {
                eprintln!("  {}: {err}", file.file);
            }
        }
        let Some(file) = some.first() else { continue };
        let metadata = sources.metadata(file).unwrap();
        let wanted = metadata.requires_dist.len();
        eprintln!(
            "  {}: {wanted} requirements; {} in {:?}",
            file.file,
            some.len(),
            start.elapsed()
        );
        let source = sources.lock_source(&file.source).unwrap();
        let places = sources.locate(&source, &dist(name), &file.file, &file.sha256.unwrap());
        assert_eq!(places.unwrap()[0].as_str(), file.url);
    }
}

/// A page read in the clear would supply the digests that get locked.
#[test]
fn redirects_to_plain_http_are_not_followed() {
    let server = Server::start(|request: &Request| match request.target.as_str() {
        "/simple/a/" => {
            Response::status(302).header("Location", "http://plain.example.invalid/simple/a/")
        }
        _ => Response::status(404),
    });
    let dir = tempfile::tempdir().unwrap();
    let told = |config| {
        let listed = open(config).listing(&dist("a"), &WheelOrigin::Default);
        failed(listed.expect_err("there is no such page"))
    };
    let (message, hint, exit) = told(with_default(dir.path(), &server));
    assert!(message.contains("http://plain.example.invalid/simple/a/"), "{message}");
    assert!(message.contains("not encrypted") && hint.contains("allow-insecure"), "{message}");
    assert_eq!(exit, Exit::User);
    // Another host's exemption changes nothing; its own lets the request out.
    let with = |host: &str| WheelConfig {
        allow_insecure: BTreeSet::from([host.to_owned()]),
        ..with_default(dir.path(), &server)
    };
    assert!(told(with("mirror.lab")).0.contains("not encrypted"));
    assert!(!told(with("plain.example.invalid")).0.contains("not encrypted"));
}

/// Metadata decides what is locked, and its file may be at another host than the page.
#[test]
fn an_exempted_host_exempts_no_other() {
    let server = Server::start(|request: &Request| match request.target.as_str() {
        "/simple/a/" => {
            Response::html("<a href=\"http://plain.example.invalid/a-1.0-py3-none-any.whl\">a</a>")
        }
        _ => Response::status(404),
    });
    let dir = tempfile::tempdir().unwrap();
    let config = WheelConfig {
        allow_insecure: BTreeSet::from(["mirror.lab".to_owned()]),
        ..with_default(dir.path(), &server)
    };
    let listing = open(config).listing(&dist("a"), &WheelOrigin::Default).unwrap();
    assert!(listing.files.is_empty() && listing.skipped.len() == 1, "{listing:?}");
    assert!(listing.skipped[0].1.contains("not encrypted"), "{listing:?}");
}

/// What online is no reason to stop is none offline.
#[test]
fn a_name_that_an_index_does_not_have_is_known_offline_too() {
    let server = Server::start(|_: &Request| Response::status(404));
    let dir = tempfile::tempdir().unwrap();
    let config = with_default(dir.path(), &server);
    assert!(open(config.clone()).listing(&dist("a"), &WheelOrigin::Default).unwrap().unknown);
    let sources = open(WheelConfig { offline: true, ..config });
    assert!(sources.listing(&dist("a"), &WheelOrigin::Default).unwrap().unknown);
    let (message, _, _) =
        failed(sources.listing(&dist("never-asked"), &WheelOrigin::Default).unwrap_err());
    assert!(message.contains("not in the cache"), "{message}");
}
