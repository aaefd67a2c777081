use std::sync::Mutex;
use std::time::Duration;

use super::super::config::Patience;
use super::super::test_server::{Reply, Server};
use super::*;
use crate::error::{Exit, Report};

/// Keeps what it is told.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn event(&self, event: Event<'_>) {
        if let Event::Note { text } = event {
            self.0.lock().unwrap().push(text.to_string());
        }
    }
}

struct Bench {
    runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
    notes: Arc<Notes>,
    config: Config,
}

impl Bench {
    fn new() -> Bench {
        let patience = Patience {
            stall: Duration::from_millis(300),
            tries: 3,
            backoff: Duration::from_millis(1),
        };
        Bench {
            runtime: super::super::net::runtime().unwrap(),
            dir: tempfile::tempdir().unwrap(),
            notes: Arc::default(),
            config: Config { patience, ..Config::default() },
        }
    }

    fn downloader(&self, offline: bool) -> Downloader {
        let config = Arc::new(self.config.clone());
        Downloader {
            net: Net::new(&config, offline).unwrap(),
            config,
            handle: self.runtime.handle().clone(),
            progress: self.notes.clone(),
            offline,
        }
    }

    fn get(&self, want: &Want<'_>, urls: &[Url]) -> Result<Got, SourceError> {
        let places = urls.iter().map(|url| Ok(Place { source: "lab".into(), url: url.clone() }));
        self.downloader(false).get(want, Box::new(places), self.dir.path(), &Stop::new())
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn notes(&self) -> String {
        self.notes.0.lock().unwrap().join("\n")
    }
}

fn body() -> Vec<u8> {
    let mut body = b"PK\x03\x04".to_vec();
    body.extend((0..100_000u32).flat_map(|n| n.to_le_bytes()));
    body
}

fn want(body: &[u8]) -> Want<'static> {
    Want {
        file: "x-1-0.conda",
        size: Some(body.len() as u64),
        sha256: Some(Sha256::of(body)),
        md5: None,
        locked: true,
    }
}

fn attempts(error: &SourceError) -> &[Attempt] {
    match error {
        SourceError::Fetch { tried, .. } => &tried.0,
        other => panic!("{other}"),
    }
}

#[test]
fn a_transfer_cut_at_60_percent_goes_on_there() {
    let (bench, file) = (Bench::new(), body());
    let server = {
        let file = file.clone();
        Server::new(move |request| {
            let reply = Reply::file(request, &file, "\"v1\"");
            if request.before == 0 { reply.cut(file.len() * 6 / 10) } else { reply }
        })
    };
    let got = bench.get(&want(&file), &[server.url("/x")]).unwrap();
    assert_eq!(std::fs::read(&got.path).unwrap(), file);
    let log = server.log();
    assert_eq!(log.len(), 2);
    assert_eq!(log[1].headers["if-range"], "\"v1\"");
    assert_eq!(log[1].headers["range"], format!("bytes={}-", file.len() * 6 / 10));
    assert_eq!(bench.names().len(), 1);
}

#[test]
fn a_later_run_goes_on_and_hashes_what_was_there() {
    let (bench, file) = (Bench::new(), body());
    let server = {
        let file = file.clone();
        Server::new(move |request| {
            let reply = Reply::file(request, &file, "\"v1\"");
            // The first run ends without more than these bytes.
            if request.before < 3 { reply.cut(1000) } else { reply }
        })
    };
    let mut first = want(&file);
    first.size = None;
    // Each transfer brings 1,000 bytes of what is asked, so only the last goes through.
    bench.get(&first, &[server.url("/x")]).unwrap();

    let second = Bench::new();
    let part = second.dir.path().join(format!("{}.part", Sha256::of(&file)));
    std::fs::write(&part, &file[..5000]).unwrap();
    second.get(&want(&file), &[server.url("/x")]).unwrap();
    let last = server.log().pop().unwrap();
    assert_eq!(last.headers["range"], "bytes=5000-");
    assert!(!last.headers.contains_key("if-range"), "the validator is not known");
}

#[test]
fn damaged_bytes_of_an_earlier_run_are_thrown_away() {
    let (bench, file) = (Bench::new(), body());
    let server = Server::files(vec![("/x", file.clone())]);
    let part = bench.dir.path().join(format!("{}.part", Sha256::of(&file)));
    std::fs::write(&part, vec![7; 5000]).unwrap();
    let got = bench.get(&want(&file), &[server.url("/x")]).unwrap();
    assert_eq!(std::fs::read(got.path).unwrap(), file);
    assert!(bench.notes().contains("starting again"), "{}", bench.notes());
}

#[test]
fn a_server_that_ignores_ranges_starts_again() {
    let (bench, file) = (Bench::new(), body());
    let server = {
        let file = file.clone();
        Server::new(move |request| {
            let reply = Reply::ok(file.clone());
            if request.before == 0 { reply.cut(file.len() * 6 / 10) } else { reply }
        })
    };
    let got = bench.get(&want(&file), &[server.url("/x")]).unwrap();
    assert_eq!(std::fs::read(got.path).unwrap(), file);
    assert!(server.log()[1].headers.contains_key("range"));
}

#[test]
fn a_changed_validator_starts_again() {
    let bench = Bench::new();
    let (old, new) = (vec![b'o'; 9000], vec![b'n'; 9000]);
    let server = Server::new(move |request| match request.before {
        0 => Reply::file(request, &old, "\"old\"").cut(5000),
        _ => Reply::file(request, &new, "\"new\""),
    });
    // No digest is known, as when locking against an index without hashes.
    let want = Want { file: "x", size: None, sha256: None, md5: None, locked: false };
    let got = bench.get(&want, &[server.url("/x")]).unwrap();
    assert_eq!(std::fs::read(got.path).unwrap(), vec![b'n'; 9000], "no mixture");
    assert_eq!(server.log()[1].headers["if-range"], "\"old\"");
}

#[test]
fn the_next_place_is_asked_and_each_is_named_in_the_end() {
    let (bench, file) = (Bench::new(), body());
    let mut wrong = file.clone();
    wrong[5000] ^= 1;
    let server = {
        let file = file.clone();
        Server::new(move |request| match request.path.as_str() {
            "/empty" => Reply::ok(""),
            "/html" => Reply::ok("<!DOCTYPE html><h1>Welcome</h1>"),
            "/gone" => Reply::status(404),
            "/secret" => Reply::status(401),
            "/wrong" => Reply::ok(wrong.clone()),
            "/broken" => Reply::status(503),
            _ => Reply::ok(file.clone()),
        })
    };
    let bad = ["/empty", "/html", "/gone", "/secret", "/wrong", "/broken"].map(|p| server.url(p));
    let error = bench.get(&want(&file), &bad).unwrap_err();
    let said: Vec<String> = attempts(&error).iter().map(|a| a.outcome.to_string()).collect();
    let size = file.len();
    assert_eq!(said[0], format!("expected {size} bytes, found 0 (it looks like an empty file)"));
    assert_eq!(said[1], format!("expected {size} bytes, found 31 (it looks like an HTML page)"));
    assert_eq!(said[2], "no such file");
    assert_eq!(said[3], "127.0.0.1 asked for credentials (HTTP 401)");
    assert!(said[4].starts_with(&format!("expected sha256 {}", Sha256::of(&file))), "{}", said[4]);
    assert_eq!(said[5], "HTTP 503 Service Unavailable");
    assert!(error.hint().unwrap().contains("credentials for 127.0.0.1"));
    assert!(bench.names().is_empty(), "nothing wrong is kept: {:?}", bench.names());

    let mut all = bad.to_vec();
    all.push(server.url("/right"));
    bench.get(&want(&file), &all).unwrap();
    assert_eq!(bench.names(), [final_name(&Sha256::of(&file), "x-1-0.conda")]);
}

#[test]
fn a_hash_mismatch_alone_is_the_users_to_decide() {
    let (bench, file) = (Bench::new(), body());
    let server = Server::new(|_| Reply::ok(vec![b'P'; 400_004]));
    let error = bench.get(&want(&file), &[server.url("/x?token=secret")]).unwrap_err();
    assert_eq!(error.exit(), Exit::User);
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(error.to_string().contains("(lab): expected sha256"), "{error}");
}

#[test]
fn a_short_trouble_of_the_server_is_waited_out() {
    let (bench, file) = (Bench::new(), body());
    let server = {
        let file = file.clone();
        Server::new(move |request| match request.before {
            0 => Reply::status(500),
            1 => Reply::status(429).header("Retry-After", "0"),
            _ => Reply::ok(file.clone()),
        })
    };
    bench.get(&want(&file), &[server.url("/x")]).unwrap();
    assert_eq!(server.log().len(), 3);
}

#[test]
fn a_stalled_transfer_is_broken_off_and_resumed() {
    let (bench, file) = (Bench::new(), body());
    let server = {
        let file = file.clone();
        Server::new(move |request| {
            let reply = Reply::file(request, &file, "\"v1\"");
            if request.before == 0 { reply.stall(9000) } else { reply }
        })
    };
    bench.get(&want(&file), &[server.url("/x")]).unwrap();
    assert!(bench.notes().contains("nothing arrived"), "{}", bench.notes());
    assert!(server.log()[1].headers.contains_key("range"));
}

#[test]
fn a_dead_place_keeps_what_it_gave_for_the_next() {
    let (bench, file) = (Bench::new(), body());
    let server = {
        let file = file.clone();
        Server::new(move |request| match (request.path.as_str(), request.before) {
            ("/a", 0) => Reply::file(request, &file, "\"a\"").cut(200_000),
            ("/a", _) => Reply::status(502),
            _ => Reply::file(request, &file, "\"b\""),
        })
    };
    bench.get(&want(&file), &[server.url("/a"), server.url("/b")]).unwrap();
    let last = server.log().pop().unwrap();
    assert_eq!(last.headers["range"], "bytes=200000-");
}

#[test]
fn md5_and_kind_are_checked_where_nothing_better_is_known() {
    let bench = Bench::new();
    let server = Server::new(|_| Reply::ok("<html>hello"));
    let mut want = Want { file: "x.conda", size: None, sha256: None, md5: None, locked: false };
    let error = bench.get(&want, &[server.url("/x")]).unwrap_err();
    assert!(error.to_string().contains("expected a zip archive, found an HTML page"), "{error}");

    want.file = "x";
    want.md5 = Some([0; 16]);
    let error = bench.get(&want, &[server.url("/x")]).unwrap_err();
    assert!(error.to_string().contains("expected md5 0000"), "{error}");
    assert!(bench.names().is_empty());

    use md5::Digest as _;
    want.md5 = Some(md5::Md5::digest("<html>hello").into());
    assert_eq!(bench.get(&want, &[server.url("/x")]).unwrap().sha256, Sha256::of("<html>hello"));
}

#[test]
fn credentials_stay_with_their_host() {
    let (bench, file) = (Bench::new(), body());
    let target = Server::files(vec![("/x", file.clone())]);
    let to = target.url("/x").to_string().replace("127.0.0.1", "localhost");
    let first = Server::new(move |_| Reply::status(302).header("Location", &to));
    let mut url = first.url("/x");
    url.set_username("me").unwrap();
    url.set_password(Some("secret")).unwrap();
    bench.get(&want(&file), &[url]).unwrap();
    assert!(first.log()[0].headers.contains_key("authorization"));
    let there = &target.log()[0].headers;
    assert!(!there.contains_key("authorization") && !there.contains_key("referer"), "{there:?}");
}

#[test]
fn a_redirect_does_not_lead_to_plain_http() {
    let (bench, file) = (Bench::new(), body());
    let server =
        Server::new(|_| Reply::status(302).header("Location", "http://plain.example.invalid/x"));
    let error = bench.get(&want(&file), &[server.url("/x")]).unwrap_err();
    assert!(error.to_string().contains("redirects to plain HTTP"), "{error}");

    let plain = Url::parse("http://plain.example.invalid/x").unwrap();
    let error = bench.get(&want(&file), &[plain]).unwrap_err();
    assert!(matches!(attempts(&error)[0].outcome, Outcome::Insecure));
    assert!(error.hint().unwrap().contains("allow-insecure"));
}

#[test]
fn local_files_are_copied_and_checked() {
    let (bench, file) = (Bench::new(), body());
    let from = tempfile::tempdir().unwrap();
    std::fs::write(from.path().join("x"), &file).unwrap();
    let url = |name: &str| Url::from_file_path(from.path().join(name)).unwrap();
    let got = bench.get(&want(&file), &[url("none"), url(""), url("x")]).unwrap();
    assert_eq!(std::fs::read(got.path).unwrap(), file);
}

#[test]
fn offline_uses_what_is_there_and_asks_nobody() {
    let (bench, file) = (Bench::new(), body());
    let server = Server::files(vec![("/x", file.clone())]);
    let place =
        || Box::new(std::iter::once(Ok(Place { source: "lab".into(), url: server.url("/x") })));
    let downloader = bench.downloader(true);
    let error = downloader.get(&want(&file), place(), bench.dir.path(), &Stop::new()).unwrap_err();
    assert!(error.hint().unwrap().contains("--offline"));
    assert!(server.log().is_empty());
    bench.get(&want(&file), &[server.url("/x")]).unwrap();
    downloader.get(&want(&file), place(), bench.dir.path(), &Stop::new()).unwrap();

    // Damage on disk is noticed, even so.
    let path = bench.dir.path().join(&bench.names()[0]);
    std::fs::write(&path, "damaged").unwrap();
    assert!(downloader.get(&want(&file), place(), bench.dir.path(), &Stop::new()).is_err());
}

#[test]
fn a_stop_leaves_a_part_that_can_be_resumed() {
    let (bench, file) = (Bench::new(), body());
    let server = {
        let file = file.clone();
        Server::new(move |request| {
            let reply = Reply::file(request, &file, "\"v1\"");
            if request.before == 0 { reply.stall(100_000) } else { reply }
        })
    };
    let mut bench = bench;
    bench.config.patience.stall = Duration::from_secs(30);
    let stop = Stop::new();
    let setter = stop.clone();
    let timer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        setter.set();
    });
    let place = Place { source: "lab".into(), url: server.url("/x") };
    let error = bench
        .downloader(false)
        .get(&want(&file), Box::new(std::iter::once(Ok(place))), bench.dir.path(), &stop)
        .unwrap_err();
    timer.join().unwrap();
    assert!(matches!(error, SourceError::Stopped));
    let part = bench.dir.path().join(format!("{}.part", Sha256::of(&file)));
    assert_eq!(std::fs::metadata(part).unwrap().len(), 100_000);
    bench.get(&want(&file), &[server.url("/x")]).unwrap();
    assert_eq!(server.log()[1].headers["range"], "bytes=100000-");
}

/// Bytes without their validator are worth nothing where no digest is known: that is what is left
/// when the process dies between the two.
#[test]
fn bytes_without_a_validator_are_not_trusted_without_a_digest() {
    let bench = Bench::new();
    let server = Server::files(vec![("/x", vec![b'n'; 9000])]);
    let stem = format!("url-{}", Sha256::of(server.url("/x").as_str()));
    std::fs::write(bench.dir.path().join(format!("{stem}.part")), vec![b'o'; 4000]).unwrap();
    let want = Want { file: "x", size: None, sha256: None, md5: None, locked: false };
    let got = bench.get(&want, &[server.url("/x")]).unwrap();
    assert_eq!(std::fs::read(got.path).unwrap(), vec![b'n'; 9000]);
}

/// What one request of a moody server does.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Whole,
    Cut(usize),
    IgnoreRange(usize),
    OtherTag,
    Error,
    WrongRange,
}

fn mood() -> impl proptest::strategy::Strategy<Value = Mood> {
    use proptest::prelude::*;
    prop_oneof![
        Just(Mood::Whole),
        (1usize..4000).prop_map(Mood::Cut),
        (1usize..4000).prop_map(Mood::IgnoreRange),
        Just(Mood::OtherTag),
        Just(Mood::Error),
        Just(Mood::WrongRange),
    ]
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 40, ..Default::default() })]

    /// Whatever a server does on the way, the file that comes out is the right one, or none.
    #[test]
    fn no_order_of_troubles_gives_a_wrong_file(
        moods in proptest::collection::vec(mood(), 0..8),
        known in proptest::bool::ANY,
    ) {
        let mut bench = Bench::new();
        bench.config.patience.tries = 10;
        let file: Vec<u8> = (0..4000u32).map(|n| (n % 251) as u8).collect();
        let served = file.clone();
        let server = Server::new(move |request| {
            let whole = Reply::file(request, &served, "\"v\"");
            match moods.get(request.before).copied().unwrap_or(Mood::Whole) {
                Mood::Whole => whole,
                Mood::Cut(after) => whole.cut(after),
                Mood::IgnoreRange(after) => Reply::ok(served.clone()).cut(after),
                // The content is the same, and the server says that it is not.
                Mood::OtherTag => Reply::file(request, &served, "\"w\"").cut(100),
                Mood::Error => Reply::status(500),
                Mood::WrongRange => Reply::status(206)
                    .body(&served[1..])
                    .header("Content-Range", &format!("bytes 1-3999/{}", served.len())),
            }
        });
        let mut want = want(&file);
        want.file = "x";
        if !known {
            want.sha256 = None;
            want.size = None;
        }
        let got = bench.get(&want, &[server.url("/x")]);
        let got = got.map_err(|e| proptest::test_runner::TestCaseError::fail(e.to_string()))?;
        proptest::prop_assert_eq!(std::fs::read(got.path).unwrap(), file);
    }
}

#[test]
fn requests_go_through_the_proxy_except_for_exempted_hosts() {
    use super::super::config::{ANY_HOST, Proxies, ProxyRule};
    let (mut bench, file) = (Bench::new(), body());
    let proxy = {
        let file = file.clone();
        Server::new(move |_| Reply::ok(file.clone()))
    };
    let direct = Server::files(vec![("/x", file.clone())]);
    bench.config.allow_insecure.insert(ANY_HOST.into());
    let rule = |host: Option<&str>| ProxyRule {
        scheme: Some("http".into()),
        host: host.map(String::from),
        proxy: proxy.url("/"),
    };
    bench.config.proxies = Proxies { rules: vec![rule(None)], no_proxy: Some("127.0.0.1".into()) };
    bench.get(&want(&file), &[direct.url("/x")]).unwrap();
    assert!(proxy.log().is_empty());

    bench.dir = tempfile::tempdir().unwrap();
    let far = Url::parse("http://far.example.invalid/x").unwrap();
    bench.get(&want(&file), std::slice::from_ref(&far)).unwrap();
    assert_eq!(proxy.log()[0].path, far.as_str());

    bench.dir = tempfile::tempdir().unwrap();
    bench.config.proxies =
        Proxies { rules: vec![rule(Some("far.example.invalid"))], no_proxy: None };
    bench.get(&want(&file), &[far]).unwrap();
    bench.dir = tempfile::tempdir().unwrap();
    bench.get(&want(&file), &[direct.url("/x")]).unwrap();
    assert_eq!((proxy.log().len(), direct.log().len()), (2, 2));
}
