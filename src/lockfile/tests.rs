use std::collections::BTreeMap;

use proptest::prelude::*;
use rattler_conda_types::Subdir as Platform;

use super::*;
use crate::error::Report as _;
use crate::hash::{Sha256, ShortHash};
use crate::manifest::Closure;

/// The example of the written grammar.
fn documented() -> &'static str {
    let text = include_str!("../../store-layout/lock.md");
    let start = text.find("```toml\n# Generated").expect("an example") + "```toml\n".len();
    &text[start..start + text[start..].find("```\n").expect("its end")]
}

fn example() -> Lock {
    let conda = |name: &str, version: &str, build: &str, edges: &[&str]| LockedPackage {
        id: PackageId(format!("linux-64/{name}-{version}-{build}.conda")),
        kind: ArtifactKind::Conda,
        name: name.into(),
        version: version.into(),
        build: Some(build.into()),
        subdir: Some("linux-64".into()),
        file: format!("{name}-{version}-{build}.conda"),
        source: "conda-forge".into(),
        location: None,
        size: 4096,
        sha256: Sha256::of(name),
        hash_computed: false,
        nar: None,
        requires: edges.iter().map(|edge| format!("{edge} >=1")).collect(),
        edges: edges.iter().map(|edge| (*edge).to_owned()).collect(),
        yanked: None,
    };
    let wheel = |name: &str, version: &str, edges: &[&str]| LockedPackage {
        id: PackageId(format!("{name}-{version}-py3-none-any.whl")),
        kind: ArtifactKind::Wheel,
        name: name.into(),
        version: version.into(),
        build: None,
        subdir: None,
        file: format!("{name}-{version}-py3-none-any.whl"),
        source: "pypi".into(),
        location: None,
        size: 512,
        sha256: Sha256::of(name),
        hash_computed: false,
        nar: None,
        requires: Vec::new(),
        edges: edges.iter().map(|edge| (*edge).to_owned()).collect(),
        yanked: None,
    };
    let mut local = wheel("ours", "0.1", &["conda:python"]);
    local.source = "path".into();
    local.location = Some("./wheels/ours-0.1-py3-none-any.whl".into());
    local.hash_computed = true;
    local.nar = Some(Sha256::of("nar"));
    let packages = vec![
        conda("libzlib", "1.2.13", "h1_0", &[]),
        conda("python", "3.9.18", "h0_0", &["libzlib"]),
        wheel("six", "1.16.0", &[]),
        wheel("torch", "2.1.0", &["conda:python", "six"]),
        local,
    ];
    let mut lock = Lock {
        inputs: BTreeMap::from(
            [
                ("env.name", "demo"),
                ("env.channels", "conda-forge"),
                ("env.platforms", "linux-64"),
                ("dependencies.python", "3.9.*"),
                ("pypi-dependencies.torch", "==2.1.0"),
                ("pypi-dependencies.ours", "@ ./wheels/ours-0.1-py3-none-any.whl"),
                ("activation.env.FLAGS_x", "a \"b\"\n\\"),
                ("view.winners.bin/six.py", "six"),
                ("view.skip-link-scripts.python", "true"),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned())),
        ),
        sources: vec![
            Source { name: "conda-forge".into(), kind: SourceKind::Channel, url: None },
            Source { name: "path".into(), kind: SourceKind::Path, url: None },
            Source { name: "pypi".into(), kind: SourceKind::Index, url: None },
        ],
        environments: vec![LockedEnvironment {
            platform: Platform::Linux64,
            variant: None,
            env_id: ShortHash::of(&Sha256::of("")),
            host_python: None,
            virtual_packages: vec!["__cuda=11.8=0".into(), "__glibc=2.28=0".into()],
            packages: packages.iter().map(|package| package.id.clone()).collect(),
            view_hash: Some(Sha256::of("view")),
            view_format: FIRST_VIEW_FORMAT,
        }],
        packages,
        verifications: Vec::new(),
    };
    lock.set_env_ids();
    lock.verifications.push(Verification {
        env_id: lock.environments[0].env_id,
        gpu: "none".into(),
        driver: "none".into(),
        checks: vec![("import".into(), "passed".into()), ("conv".into(), "failed (x)".into())],
        facts: BTreeMap::from([("glibc".into(), "2.36".into())]),
    });
    lock.sort();
    lock
}

fn on(platform: Platform) -> Closure {
    Closure { platform, variant: None }
}

#[track_caller]
fn refused(text: &str) -> LockError {
    parse(text, "gpuenv.lock").expect_err("should be refused")
}

/// Parses the example after replacing text in it.
#[track_caller]
fn damaged(from: &str, to: &str) -> String {
    let text = write(&example());
    assert!(text.contains(from), "{from:?} is not in\n{text}");
    let error = refused(&text.replacen(from, to, 1));
    assert!(error.hint().is_some());
    let snippet = error.snippet().expect("a place");
    assert!(snippet.span.end <= snippet.text.len());
    error.to_string()
}

#[test]
fn round_trips() {
    let lock = example();
    check(&lock).unwrap();
    let text = write(&lock);
    assert!(text.ends_with('\n'));
    let back = parse(&text, "gpuenv.lock").unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(back, lock);
    assert_eq!(write(&back), text);
}

#[test]
fn the_documented_example_is_canonical() {
    let lock = parse(documented(), "lock.md").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(write(&lock), documented());
}

#[test]
fn any_order_on_disk_gives_the_same_lock() {
    let lock = example();
    let text = write(&lock);
    let (head, body) = text.split_at(text.find("[[package]]").unwrap());
    let (packages, verifications) = body.split_at(body.find("[[verification]]").unwrap());
    let mut blocks: Vec<&str> = packages.split_inclusive("\n\n").collect();
    blocks.reverse();
    let shuffled = format!("{head}{}{verifications}", blocks.concat());
    assert_eq!(parse(&shuffled, "gpuenv.lock").unwrap(), lock);
}

#[test]
fn the_version_is_read_before_the_body() {
    let text = "# c\n\nlock-version = 2 # later\nthis is = no [TOML\n";
    let error = refused(text);
    assert_eq!(
        error.to_string(),
        "gpuenv.lock:3:1: the lock has version 2; this gpuenv reads up to version 1"
    );
    assert!(error.hint().unwrap().contains("upgrade gpuenv"));
    assert!(matches!(refused("").kind(), LockErrorKind::NoVersion));
    assert!(matches!(refused("[inputs]\nlock-version = 1\n").kind(), LockErrorKind::NoVersion));
    assert!(matches!(refused("lock-version = 0\n").kind(), LockErrorKind::NoSuchVersion(0)));
}

#[test]
fn hand_edits_are_noticed() {
    let written = example().environments[0].env_id;
    for (from, to) in [
        ("version = \"2.1.0\"", "version = \"2.1.1\""),
        (
            &*format!("sha256 = \"{}\"", Sha256::of("six")),
            &*format!("sha256 = \"{}\"", Sha256::of("7")),
        ),
        ("FLAGS_x\" = \"a", "FLAGS_x\" = \"b"),
        ("bin/six.py\" = \"six\"", "bin/six.py\" = \"torch\""),
        ("platform = \"linux-64\"\n", "platform = \"linux-64\"\nhost-python = \"3.11\"\n"),
    ] {
        let words = damaged(from, to);
        assert!(words.contains("edited by hand or badly merged"), "{words}");
        assert!(words.contains(&written.to_string()), "{words}");
        assert!(words.contains("linux-64"), "{words}");
    }
}

#[test]
fn damage_is_named_with_its_line() {
    let id = "\"torch-2.1.0-py3-none-any.whl\"";
    for (from, to, words) in [
        ("kind = \"channel\"", "kind = \"chanel\"", "not the kind of a source"),
        ("size = 512", "size = \"512\"", "not a number of bytes"),
        ("size = 512", "size = -1", "not a number of bytes"),
        ("size = 512\n", "", "`size` is missing"),
        ("size = 512", "siez = 512", "unknown key `siez` in [[package]]"),
        ("sha256 = \"", "sha256 = \"zz", "not a SHA-256 digest"),
        ("    \"six\",\n", "    \"sax\",\n", "the edge to `sax`"),
        ("    \"linux-64/python-3.9.18-h0_0.conda\",\n", "", "in no environment"),
        ("\"conda:python\"", "\"conda:pithon\"", "the edge to `conda:pithon`"),
        ("    \"torch-2.1.0-py3-none-any.whl\",\n", "", "in no environment"),
        (id, "\"../evil.whl\"", "does not have"),
        ("file = \"torch-2.1.0-py3", "file = \"../torch-2.1.0-py3", "not a file name"),
        ("file = \"torch-2.1.0-py3", "file = \"a\\u0000-py3", "not a file name"),
        ("file = \"torch-2.1.0-py3-none-any.whl", "file = \".whl", "not a file name"),
        ("file = \"torch-2.1.0-py3", "file = \"torch-2.1.1-py3", "does not fit its fields"),
        ("source = \"path\"", "source = \"nowhere\"", "`nowhere`, which the lock does not have"),
        ("source = \"path\"", "source = \"conda-forge\"", "gives no such artifacts"),
        ("name = \"six\"", "name = \"Six\"", "not a normalized package name"),
        ("name = \"six\"", "name = \"si x\"", "not a normalized package name"),
        ("name = \"libzlib\"", "name = \"..\"", "part of a path"),
        ("version = \"1.16.0\"", "version = \"1/../2\"", "part of a path"),
        ("version = \"1.16.0\"", "version = \"a\"", "not a version"),
        ("location = \"./wheels/", "location = \"/srv/", "absolute path"),
        ("location = \"./wheels/", "location = \"file:///srv/", "absolute path"),
        ("location = \"./wheels/", "location = \"https://u:p@h.invalid/", "holds credentials"),
        ("\"__glibc=2.28=0\"", "\"glibc\"", "not a virtual package"),
        ("env-id = \"", "env-id = \"e", "not an env id"),
        ("\"env.name\" = \"demo\"", "\"env.name\" = \"../x\"", "not an environment name"),
        ("\"env.name\" = \"demo\"\n", "", "`env.name` is missing"),
        ("\"view.winners.bin", "\"view.winners./bin", "not a path in the view"),
        ("build = \"h1_0\"\n", "", "`build` is missing"),
        ("[\"import\", \"passed\"]", "[\"import\"]", "not an array of pairs"),
        (
            "platforms\" = \"linux-64\"",
            "platforms\" = \"linux-64, linux-aarch64\"",
            "the lock has environments for linux-64",
        ),
        ("\"env.platforms\" = \"linux-64\"\n", "", "ask for environments for none"),
        ("[inputs]", "[imputs]", "unknown key `imputs`"),
        ("size = 512", "size 512", "damaged"),
        ("size = 512", "=======", "merge conflict"),
    ] {
        let found = damaged(from, to);
        assert!(found.contains(words), "{from} -> {to}\n{found}");
        assert!(found.starts_with("gpuenv.lock:"), "{found}");
        assert!(!found.contains("u:p"), "{found}");
    }
}

#[test]
fn nothing_is_there_twice() {
    let text = write(&example());
    let block = |head: &str| {
        let start = text.find(head).unwrap();
        let end = text[start + 1..].find("\n[[").map_or(text.len(), |at| start + 1 + at);
        text[start..end].to_owned()
    };
    for head in ["[[source]]", "[[environment]]", "[[package]]", "[[verification]]"] {
        let doubled = format!("{text}\n{}\n", block(head));
        let error = refused(&doubled);
        assert!(matches!(error.kind(), LockErrorKind::Duplicate { .. }), "{error}");
    }
}

/// No credentials in a lock, and none in what is shown of one.
#[test]
fn fault_r4_no_credentials() {
    let mut lock = example();
    let index = lock.sources.iter_mut().find(|source| source.name == "pypi").unwrap();
    index.url = Some("https://user:secret@h.invalid/simple".into());
    let error = check(&lock).unwrap_err();
    assert!(matches!(error.kind(), LockErrorKind::Credentials { .. }), "{error}");
    let error = refused(&write(&lock));
    let shown = format!("{error} {} {}", error.hint().unwrap(), error.snippet().unwrap().text);
    assert!(!shown.contains("secret"), "{shown}");

    let mut lock = example();
    lock.packages.last_mut().unwrap().requires.push("x @ https://secret@h.invalid/x.whl".into());
    assert!(matches!(check(&lock).unwrap_err().kind(), LockErrorKind::Credentials { .. }));
}

/// Every version ever written stays readable, and reading one does not make it stale.
#[test]
fn fault_40_old_locks_are_read_and_not_stale() {
    let lock = parse(include_str!("testdata/v1.lock"), "v1.lock").unwrap();
    assert!(stale(&lock, &lock.inputs).is_empty());
    assert_eq!(write(&lock), include_str!("testdata/v1.lock"));
}

#[test]
fn a_lock_alone_suffices_for_its_view() {
    let lock = example();
    assert_eq!(lock.name(), "demo");
    assert_eq!(lock.activation().env["FLAGS_x"], "a \"b\"\n\\");
    let view = lock.view_options().unwrap();
    assert_eq!(view.winners.iter().next().unwrap().1, "six");
    assert_eq!(view.skip_link_scripts, ["python"]);
    let torch = lock.package(&PackageId("torch-2.1.0-py3-none-any.whl".into())).unwrap();
    assert_eq!(lock.source_of(torch).unwrap().name, "pypi");
}

#[test]
fn graph_says_who_needs_what() {
    let lock = example();
    let environment = lock.environment(&on(Platform::Linux64)).unwrap();
    let graph = lock.graph(environment);
    let names = |nodes: &[Node]| {
        nodes.iter().map(|node| graph.package(*node).name.as_str()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(graph.roots()), "python torch ours");
    assert!(graph.is_asked_for(graph.roots()[0]));
    assert!(!graph.is_asked_for(graph.find("six")[0]));
    let [zlib] = graph.find("libzlib")[..] else { panic!() };
    let why: Vec<String> = graph.why(zlib).iter().map(|path| names(path)).collect();
    assert_eq!(why, ["python libzlib", "ours python libzlib", "torch python libzlib"]);
    let torch = graph.find("Torch");
    assert_eq!(names(&graph.closure(&torch)), "libzlib python six torch");
    assert_eq!(names(&graph.why(torch[0])[0]), "torch");
    assert_eq!(names(&graph.required_by(graph.find("six")[0])), "torch");

    let shown: Vec<(String, usize, bool)> = graph
        .tree()
        .iter()
        .map(|tree| (tree.package.name.clone(), tree.children.len(), tree.repeated))
        .collect();
    let expected = [("ours", 1, false), ("python", 0, true), ("torch", 2, false)];
    assert_eq!(shown, expected.map(|(n, c, r)| (n.to_owned(), c, r)));
}

/// A later gpuenv may make another view of the same packages; the lock says which it hashed.
#[test]
fn the_format_of_the_hashed_view_is_kept() {
    let mut lock = example();
    assert!(!write(&lock).contains("view-format"), "the first format goes without saying");
    lock.environments[0].view_format = 2;
    let text = write(&lock);
    assert!(text.contains("\nview-format = 2\n"), "{text}");
    assert_eq!(parse(&text, "gpuenv.lock").unwrap(), lock);
    for bad in ["0", "-1", "\"2\"", "4294967296"] {
        refused(&text.replace("view-format = 2", &format!("view-format = {bad}")));
    }
}

/// A wheel for every platform has the edges of all of them; each graph shows its own.
#[test]
fn two_platforms_share_a_wheel() {
    let mut lock = example();
    let wheels: Vec<PackageId> = ["six-1.16.0-py3-none-any.whl", "torch-2.1.0-py3-none-any.whl"]
        .map(|id| PackageId(id.into()))
        .into();
    let other = LockedEnvironment {
        platform: Platform::LinuxAarch64,
        host_python: Some("3.11".into()),
        packages: wheels,
        view_hash: None,
        ..lock.environments[0].clone()
    };
    lock.environments.push(other);
    lock.inputs.insert("env.platforms".into(), "linux-64, linux-aarch64".into());
    lock.set_env_ids();
    lock.sort();
    check(&lock).unwrap();
    assert_eq!(parse(&write(&lock), "gpuenv.lock").unwrap(), lock);
    let [x86, arm] = [Platform::Linux64, Platform::LinuxAarch64].map(|platform| {
        let environment = lock.environment(&on(platform)).unwrap();
        let graph = lock.graph(environment);
        graph.requires(graph.find("torch")[0]).len()
    });
    assert_eq!((x86, arm), (2, 1));
    assert_ne!(lock.environments[0].env_id, lock.environments[1].env_id);
}

#[test]
fn cycles_end() {
    let mut lock = example();
    let zlib = lock.packages.iter_mut().find(|package| package.name == "libzlib").unwrap();
    zlib.edges.push("python".into());
    check(&lock).unwrap();
    let graph = lock.graph(&lock.environments[0]);
    assert_eq!(graph.closure(&graph.find("python")).len(), 2);
    assert_eq!(graph.tree().len(), 3);
    assert_eq!(graph.why(graph.find("libzlib")[0]).len(), 3);
}

#[test]
fn pins_survive_a_merge_conflict() {
    let text = write(&example());
    let theirs = text.replace("2.1.0", "2.1.1");
    let from = text.find("[[package]]").unwrap();
    let conflict = format!("<<<<<<< a\n{}=======\n{}>>>>>>> b\n", &text[from..], &theirs[from..]);
    let merged = format!("{}{conflict}", &text[..from]);
    assert!(matches!(refused(&merged).kind(), LockErrorKind::Conflict));
    let pins = salvage(&merged);
    let versions: Vec<&str> =
        pins.iter().filter(|pin| pin.name == "torch").map(|pin| &*pin.version).collect();
    assert_eq!(versions, ["2.1.0", "2.1.1"]);
    assert_eq!(pins.iter().filter(|pin| pin.name == "python").count(), 1);
    assert_eq!(salvage("not a lock"), []);
}

#[test]
fn foreign_verifications_are_kept_until_dropped() {
    let mut lock = example();
    lock.verifications[0].env_id = ShortHash::of(&Sha256::of("another"));
    let mut lock = parse(&write(&lock), "gpuenv.lock").unwrap();
    assert_eq!(lock.verifications.len(), 1);
    lock.drop_foreign_verifications();
    assert!(lock.verifications.is_empty());
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,8}", "\\PC{0,12}", "[\\x00-\\x7f]{0,12}"]
}

prop_compose! {
    fn any_lock()(
        values in proptest::collection::vec(any_text(), 8),
        versions in proptest::collection::vec((0u32..99, 0u32..99), 6),
        sizes in proptest::collection::vec(0u64..i64::MAX as u64, 6),
        order in Just((0..6).collect::<Vec<usize>>()).prop_shuffle(),
        edges in proptest::collection::vec((0usize..6, 0usize..6), 0..10),
        host in proptest::option::of(Just("3.11".to_owned())),
    ) -> Lock {
        let mut lock = example();
        lock.packages.clear();
        for (i, ((a, b), size)) in versions.iter().zip(&sizes).enumerate() {
            let file = format!("pkg{i}-{a}.{b}-py3-none-any.whl");
            lock.packages.push(LockedPackage {
                id: PackageId(file.clone()),
                kind: ArtifactKind::Wheel,
                name: format!("pkg{i}"),
                version: format!("{a}.{b}"),
                build: None,
                subdir: None,
                file,
                source: "pypi".into(),
                location: None,
                size: *size,
                sha256: Sha256::of(size.to_le_bytes()),
                hash_computed: size % 2 == 0,
                nar: (size % 3 == 0).then(|| Sha256::of("n")),
                requires: Vec::new(),
                edges: Vec::new(),
                yanked: (size % 5 == 0).then(|| values[0].clone()),
            });
        }
        for (from, to) in edges {
            lock.packages[from].edges.push(format!("pkg{to}"));
            lock.packages[from].requires.push(format!("pkg{to}>=1"));
        }
        lock.environments[0].packages =
            order.iter().map(|i| lock.packages[*i].id.clone()).collect();
        lock.environments[0].host_python = host;
        lock.inputs.insert("activation.env.X".into(), values[1].replace("://", ""));
        lock.verifications[0].gpu = values[2].clone();
        lock.verifications[0].checks = vec![(values[3].clone(), values[4].clone())];
        lock.verifications[0].facts.insert(values[5].clone(), values[6].clone());
        lock.set_env_ids();
        lock.sort();
        lock
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(lock in any_lock()) {
        let text = write(&lock);
        prop_assert_eq!(check(&lock).map_err(|e| e.to_string()), Ok(()));
        let back = parse(&text, "gpuenv.lock").map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(&back, &lock);
        prop_assert_eq!(write(&back), text);
    }

    /// No damage makes the reader panic, or accept another set of packages under the same env id.
    #[test]
    fn damage_is_never_silent(at in 0usize..4000, byte in 0u8..128) {
        let lock = example();
        let mut bytes = write(&lock).into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        let text = String::from_utf8(bytes).unwrap();
        if let Ok(read) = parse(&text, "gpuenv.lock")
            && read.environments.first().map(|e| e.env_id) == Some(lock.environments[0].env_id)
        {
            let pins = |lock: &Lock| -> Vec<(String, String, Sha256)> {
                lock.packages.iter().map(|p| (p.name.clone(), p.version.clone(), p.sha256)).collect()
            };
            prop_assert_eq!(pins(&read), pins(&lock));
        }
    }
}

/// Two closures of one platform: sorted, read, each with its own graph; one wheel once.
#[test]
fn variants_stand_beside_each_other() {
    let mut lock = example();
    let old = write(&lock);
    assert!(!old.contains("variant"), "without variants nothing says so");
    let cpu = LockedEnvironment {
        variant: Some("cpu".parse().unwrap()),
        virtual_packages: vec!["__glibc=2.28=0".into()],
        packages: ["six-1.16.0-py3-none-any.whl", "torch-2.1.0-py3-none-any.whl"]
            .map(|id| PackageId(id.into()))
            .into(),
        view_hash: None,
        ..lock.environments[0].clone()
    };
    lock.environments.insert(0, cpu);
    for (key, value) in [
        ("variants.cpu.platforms", "linux-64"),
        ("variants.cpu.gpu", "false"),
        ("variants.cpu.dependencies.python", "false"),
        ("variants.cpu.pypi-dependencies.ours", "false"),
        ("variants.cpu.pypi-dependencies.torch", "==2.*"),
        ("variants.cpu.pypi-dependencies.six", "*"),
    ] {
        lock.inputs.insert(key.into(), value.into());
    }
    lock.set_env_ids();
    lock.sort();
    check(&lock).unwrap();
    let text = write(&lock);
    assert_eq!(parse(&text, "gpuenv.lock").unwrap(), lock);
    assert!(text.contains("platform = \"linux-64\"\nvariant = \"cpu\"\nenv-id"), "{text}");
    assert_eq!(text.matches("id = \"torch-").count(), 1);

    let [base, cpu] = &lock.environments[..] else { panic!() };
    assert_eq!((base.has_gpu(), cpu.has_gpu()), (true, false));
    assert_ne!(base.env_id, cpu.env_id);
    let graph = lock.graph(cpu);
    let asked: Vec<&str> = graph
        .packages()
        .filter(|(node, _)| graph.is_asked_for(*node))
        .map(|(_, package)| package.name.as_str())
        .collect();
    assert_eq!(asked, ["six", "torch"]);
    assert_eq!(graph.requires(graph.find("torch")[0]).len(), 1, "not python, which it has not");
    assert_eq!(lock.requirements(cpu)[&(ArtifactKind::Wheel, "torch")], "==2.*");
    assert_eq!(lock.requirements(base)[&(ArtifactKind::Wheel, "torch")], "==2.1.0");

    for (from, to, words) in [
        ("variant = \"cpu\"\n", "", "environment `linux-64` is there twice"),
        (
            "variant = \"cpu\"",
            "variant = \"gpu\"",
            "linux-64, linux-64 cpu; the lock has environments for linux-64, linux-64 gpu",
        ),
        ("variant = \"cpu\"", "variant = \"default\"", "`default` is not the name of a variant"),
        (
            "\"variants.cpu.platforms\" = \"linux-64\"\n",
            "",
            "ask for environments for linux-64; the lock has environments for linux-64, linux-64 cpu",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let error = refused(&text.replacen(from, to, 1)).to_string();
        assert!(error.contains(words), "{error}");
    }
}
