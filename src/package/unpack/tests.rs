use std::collections::BTreeMap;
use std::fs as disk;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use proptest::prelude::*;

use super::*;
use crate::package::nar;
use crate::package::testing::*;
use crate::progress::Silent;

struct Out {
    /// Around the tree, so that whatever leaves it is seen.
    outside: tempfile::TempDir,
    result: Result<Unpacked, PackageError>,
}

impl Out {
    fn root(&self) -> std::path::PathBuf {
        self.outside.path().join("deep/tree")
    }
    fn read(&self, path: &str) -> String {
        disk::read_to_string(self.root().join(path)).unwrap()
    }
    fn paths(&self) -> Vec<&str> {
        self.result.as_ref().unwrap().entries.iter().map(|e| e.path.as_str()).collect()
    }
    fn fault(&self) -> &Fault {
        &self.result.as_ref().unwrap_err().fault
    }
}

fn run_with(file: &str, bytes: &[u8], policy: UnpackPolicy, limits: Limits) -> Out {
    let outside = tempfile::tempdir().unwrap();
    let into = outside.path().join("deep/tree");
    disk::create_dir_all(&into).unwrap();
    let archive = outside.path().join("archive");
    disk::write(&archive, bytes).unwrap();
    let job = Unpack { archive: &archive, file, into: &into, policy, limits, progress: &Silent };
    let result = unpack(&job);
    let mut names: Vec<_> =
        disk::read_dir(outside.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["archive", "deep"], "something was written outside");
    assert_eq!(disk::read_dir(outside.path().join("deep")).unwrap().count(), 1);
    if let Ok(unpacked) = &result {
        // The digest taken in passing is the digest of what is on disk.
        let on_disk = nar::hash_dir(&into).unwrap();
        assert_eq!(on_disk, (unpacked.nar, unpacked.nar_size));
    }
    Out { outside, result }
}

fn run(file: &str, bytes: &[u8]) -> Out {
    run_with(file, bytes, UnpackPolicy::default(), Limits::default())
}

fn whl(entries: &[ZipEntry]) -> Out {
    run("x-1.0-py3-none-any.whl", &zip(entries))
}

fn tars(entries: &[TarEntry]) -> Out {
    let out = run("x-1.0-h0_0.tar.bz2", &tar_bz2(entries));
    let other = run("x-1.0-h0_0.conda", &conda(&[index_json("x")], entries));
    match (&out.result, &other.result) {
        (Ok(_), Ok(_)) => {}
        (Err(a), Err(b)) => assert_eq!(
            std::mem::discriminant(&a.fault),
            std::mem::discriminant(&b.fault),
            "{a} / {b}"
        ),
        (a, b) => panic!("formats disagree: {a:?} / {b:?}"),
    }
    out
}

#[test]
fn wheel_unpacks_to_canonical_modes_and_times() {
    let big: Vec<u8> = (0..6_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let out = whl(&[
        entry("pkg/__init__.py", b"print(1)\n"),
        ZipEntry { mode: 0o104755, ..entry("pkg/tool", b"#!/bin/sh\n") },
        ZipEntry { deflate: false, mode: 0o100600, ..entry("pkg/stored", b"abc") },
        entry("pkg/big.bin", &big),
        entry("x-1.0.data/scripts/run", b"#!python\n"),
        entry("empty/", b""),
        entry("pkg/nothing", b""),
    ]);
    assert_eq!(
        out.paths(),
        [
            "empty",
            "pkg/__init__.py",
            "pkg/big.bin",
            "pkg/nothing",
            "pkg/stored",
            "pkg/tool",
            "x-1.0.data/scripts/run"
        ]
    );
    assert_eq!(disk::read(out.root().join("pkg/big.bin")).unwrap(), big);
    for (path, mode) in [
        ("pkg", 0o40555),
        ("empty", 0o40555),
        ("pkg/__init__.py", 0o100444),
        ("pkg/stored", 0o100444),
        // The setuid bit is gone, the executable bit stays.
        ("pkg/tool", 0o100555),
        ("x-1.0.data/scripts/run", 0o100555),
    ] {
        let meta = disk::metadata(out.root().join(path)).unwrap();
        assert_eq!(meta.permissions().mode(), mode, "{path}");
        assert_eq!(meta.mtime(), 1, "{path}");
    }
}

/// Archives made without Unix modes, as by `zipfile.writestr` or on Windows.
#[test]
fn wheel_without_modes_unpacks() {
    let out = whl(&[
        ZipEntry { mode: 0, ..entry("a/", b"") },
        ZipEntry { mode: 0, ..entry("a/f", b"1") },
        ZipEntry { mode: 0o40755, ..entry("b/", b"") },
        ZipEntry { mode: 0x4000, system: 0, ..entry("c/", b"") },
        ZipEntry { mode: 0o120777, system: 0, ..entry("c/f", b"1") },
    ]);
    assert_eq!(out.paths(), ["a/f", "b", "c/f"]);
    assert_eq!(out.read("c/f"), "1");
    let out = whl(&[ZipEntry { mode: 0o40755, ..entry("d", b"") }]);
    assert!(matches!(out.fault(), Fault::Special { .. }));
    let out = whl(&[ZipEntry { mode: 0, ..entry("d/", b"content") }]);
    assert!(matches!(out.fault(), Fault::Special { .. }));
}

#[test]
fn wheel_with_paths_that_leave_it_is_refused() {
    for name in ["../x", "/tmp/gpuenv-x", "a/../../x", "a//b", "a\nb", "a\0b"] {
        let out = whl(&[entry(name, b"x")]);
        assert!(matches!(out.fault(), Fault::Path(_)), "{name:?}: {:?}", out.fault());
    }
    let out = whl(&[ZipEntry { name: b"\xff".to_vec(), ..entry("", b"x") }]);
    assert!(matches!(out.fault(), Fault::Path(_)));
}

/// Fault 29: three tools treat a link in a zip file in three ways.
#[test]
fn wheel_with_links_or_devices_is_refused() {
    let out = whl(&[ZipEntry { mode: 0o120777, ..entry("pkg/l", b"/etc/passwd") }]);
    assert!(matches!(out.fault(), Fault::WheelLink(_)));
    assert!(out.result.unwrap_err().to_string().contains("`pkg/l` is a symbolic link"));
    for (mode, kind) in [(0o010644, "named pipe"), (0o020644, "character"), (0o140644, "socket")] {
        let out = whl(&[ZipEntry { mode, ..entry("pkg/d", b"") }]);
        assert!(matches!(out.fault(), Fault::Special { kind: k, .. } if k.contains(kind)));
    }
}

#[test]
fn wheel_with_colliding_entries_is_refused() {
    let out = whl(&[entry("a", b"1"), entry("a", b"1")]);
    assert!(matches!(out.fault(), Fault::Duplicate(_)));
    let out = whl(&[entry("pkg/A.py", b"1"), entry("pkg/a.py", b"2")]);
    assert_eq!(
        out.result.unwrap_err().to_string(),
        "x-1.0-py3-none-any.whl: entries `pkg/A.py` and `pkg/a.py` differ only in upper and lower case"
    );
    let out = whl(&[entry("a", b"1"), entry("a/b", b"1")]);
    assert!(matches!(out.fault(), Fault::NotADirectory { .. }));
    let out = whl(&[entry("a/b", b"1"), entry("a", b"1")]);
    assert!(matches!(out.fault(), Fault::NotADirectory { .. }));
    // Directories that differ so merge on some file systems, and do no harm.
    whl(&[entry("a/x", b"1"), entry("A/y", b"1")]).result.unwrap();
}

#[test]
fn damaged_wheels_are_refused() {
    let case = |e: ZipEntry| whl(&[e]);
    let out = case(ZipEntry { crc: Some(7), ..entry("a", b"content") });
    assert!(matches!(out.fault(), Fault::Crc { expected: 7, .. }));
    let out = case(ZipEntry { crc: Some(7), deflate: false, ..entry("a", b"content") });
    assert!(matches!(out.fault(), Fault::Crc { expected: 7, .. }));
    for size in [3, 90] {
        let out = case(ZipEntry { size: Some(size), ..entry("a", b"content") });
        assert!(matches!(out.fault(), Fault::Length { .. }), "{:?}", out.fault());
    }
    // The same, by the ways that large members take: in memory of the budget, and streamed.
    let big = vec![7; LARGE];
    for in_memory in [1 << 30, 0] {
        let limits = Limits { in_memory, ..Limits::default() };
        let case = |e: ZipEntry| run_with("x.whl", &zip(&[e]), UnpackPolicy::default(), limits);
        for size in [big.len() as u32 - 1, big.len() as u32 + 1] {
            let out = case(ZipEntry { size: Some(size), ..entry("a", &big) });
            assert!(matches!(out.fault(), Fault::Length { .. }), "{:?}", out.fault());
        }
        let out = case(ZipEntry { crc: Some(7), ..entry("a", &big) });
        assert!(matches!(out.fault(), Fault::Crc { .. }));
        let out = case(ZipEntry { size: Some(1), deflate: false, ..entry("a", &big) });
        assert!(matches!(out.fault(), Fault::Length { .. }));
        let out = case(ZipEntry { method: Some(8), deflate: false, ..entry("a", &big) });
        assert!(matches!(out.fault(), Fault::Damaged { .. } | Fault::Length { .. }));
        for deflate in [false, true] {
            case(ZipEntry { deflate, ..entry("a", &big) }).result.unwrap();
        }
        let packed = zstd::encode_all(&big[..], 1).unwrap();
        let out = case(ZipEntry {
            method: Some(93),
            deflate: false,
            size: Some(LARGE as u32),
            crc: Some(libdeflater::crc32(&big)),
            ..entry("a", &packed)
        });
        assert!(disk::read(out.root().join("a")).unwrap() == big);
    }
    let out = case(ZipEntry { local_name: Some(b"b".to_vec()), ..entry("a", b"x") });
    assert!(matches!(out.fault(), Fault::Headers { what: "name", .. }));
    let out = case(ZipEntry { flags: 0x801, ..entry("a", b"x") });
    assert!(matches!(out.fault(), Fault::Encrypted(_)));
    let out = case(ZipEntry { method: Some(14), ..entry("a", b"x") });
    assert!(matches!(out.fault(), Fault::Method { method, .. } if method.contains("LZMA")));
    let whole = zip(&[entry("a", b"content"), entry("b", b"content")]);
    for cut in [0, 1, 30, whole.len() / 2, whole.len() - 1] {
        let out = run("x-1.0-py3-none-any.whl", &whole[..cut]);
        assert!(matches!(out.fault(), Fault::Zip(_) | Fault::Structure(_)), "{:?}", out.fault());
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(matches!(run("x.whl", &longer).fault(), Fault::Structure(_) | Fault::Zip(_)));
    let mut shifted = b"#!/bin/sh\n".to_vec();
    shifted.extend(&whole);
    assert!(matches!(run("x.whl", &shifted).fault(), Fault::Structure(_) | Fault::Zip(_)));
    assert!(matches!(run("x.zip", &whole).fault(), Fault::Format));
}

/// Beyond what is inflated into memory that is kept.
const LARGE: usize = (4 << 20) + 9;

#[test]
fn bombs_are_refused_by_a_named_limit() {
    let limits = Limits {
        entries: 5,
        bytes: 1 << 20,
        ratio: 100,
        ratio_floor: 1 << 16,
        ..Limits::default()
    };
    let policy = UnpackPolicy::default();
    let limit = |file: &str, bytes: &[u8]| match run_with(file, bytes, policy, limits).fault() {
        Fault::Limit { name, .. } => *name,
        other => panic!("{other:?}"),
    };
    let zeros = vec![0; 900_000];
    assert_eq!(limit("x.whl", &zip(&[entry("a", &zeros)])), "ratio");
    assert_eq!(limit("x.tar.bz2", &tar_bz2(&[tar_file("a", &zeros)])), "ratio");
    let many: Vec<_> = (0..6).map(|i| entry(&format!("f{i}"), b"")).collect();
    assert_eq!(limit("x.whl", &zip(&many)), "entries");
    let many: Vec<_> = (0..6).map(|i| tar_file(&format!("f{i}"), b"")).collect();
    assert_eq!(limit("x.tar.bz2", &tar_bz2(&many)), "entries");
    let noise: Vec<u8> =
        (0..1_100_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect();
    let noise = ZipEntry { deflate: false, ..entry("a", &noise) };
    assert_eq!(limit("x.whl", &zip(&[noise])), "bytes");
    // Many members of one range of bytes: all small, together endless.
    let mut overlapping = zip(&[entry("a", &zeros[..1000]), entry("b", &zeros[..1000])]);
    let central = overlapping.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    overlapping[central + 42..central + 46].copy_from_slice(&0u32.to_le_bytes());
    overlapping[central + 46] = b'a';
    let out = run("x.whl", &overlapping);
    assert!(matches!(out.fault(), Fault::Overlap(_) | Fault::Duplicate(_)), "{:?}", out.fault());
}

#[test]
fn conda_unpacks_files_links_and_hard_links() {
    let big = vec![5; LARGE];
    let out = tars(&[
        tar_link(b'5', "./", ""),
        tar_link(b'5', "./lib/", ""),
        TarEntry { mode: 0o4711, ..tar_file("./lib/libz.so.1.2", b"\x7fELF damaged") },
        tar_link(b'2', "lib/libz.so", "libz.so.1.2"),
        tar_link(b'1', "bin/z", "./lib/libz.so.1.2"),
        tar_link(b'1', "bin/z2", "bin/z"),
        tar_link(b'2', "lib/elsewhere.so", "libother.so.3"),
        tar_link(b'2', "lib/self", "self"),
        tar_file("share/terminfo/E/x", b"1"),
        tar_file("share/terminfo/e/x", b"2"),
        tar_file("share/big", &big),
        tar_link(b'5', "etc/conf.d", ""),
        // The same again is the same.
        tar_file("share/terminfo/e/x", b"2"),
        tar_link(b'2', "lib/self", "self"),
    ]);
    assert_eq!(
        out.paths(),
        [
            "bin/z",
            "bin/z2",
            "etc/conf.d",
            "lib/elsewhere.so",
            "lib/libz.so",
            "lib/libz.so.1.2",
            "lib/self",
            "share/big",
            "share/terminfo/E/x",
            "share/terminfo/e/x"
        ]
    );
    assert_eq!(out.read("bin/z2"), "\x7fELF damaged");
    assert_eq!(out.read("share/terminfo/E/x"), "1");
    let unpacked = out.result.as_ref().unwrap();
    assert!(unpacked.elf.is_empty(), "a damaged ELF file has no facts and is no failure");
    let executable = |path: &str| {
        unpacked.entries.iter().any(|e| {
            e.path.as_str() == path && matches!(e.kind, EntryKind::File { executable: true, .. })
        })
    };
    assert!(executable("lib/libz.so.1.2") && executable("bin/z") && executable("bin/z2"));
    let meta = disk::symlink_metadata(out.root().join("lib/libz.so")).unwrap();
    assert_eq!(meta.mtime(), 1);
}

/// Fault 29: links that leave the package, files written through links.
#[test]
fn conda_with_links_that_leave_is_refused() {
    for (name, target) in [
        ("lib/x", "../../../../.bashrc"),
        ("lib/y", "/usr/lib/libcuda.so"),
        ("l", ".."),
        ("l", "lib/../../x"),
    ] {
        let out = tars(&[tar_link(b'2', name, target)]);
        assert!(matches!(out.fault(), Fault::LinkLeaves { .. }), "{name} -> {target}");
        let error = out.result.unwrap_err();
        assert!(error.to_string().contains(name) && error.to_string().contains(target));
        use crate::error::Report;
        assert!(error.hint().unwrap().contains("allow-external-links"));
    }
    let allowed = UnpackPolicy { allow_external_links: true };
    let archive = tar_bz2(&[tar_link(b'2', "lib/y", "/usr/lib/libcuda.so")]);
    let out = run_with("x.tar.bz2", &archive, allowed, Limits::default());
    assert_eq!(out.paths(), ["lib/y"]);
    // Through a link nothing is written, allowed or not.
    for link in ["/tmp", ".", "sub"] {
        let entries =
            [tar_file("sub/f", b"1"), tar_link(b'2', "tmp", link), tar_file("tmp/moo", b"x")];
        let out = run_with("x.tar.bz2", &tar_bz2(&entries), allowed, Limits::default());
        assert!(matches!(out.fault(), Fault::ThroughLink { .. }));
    }
    let out = tars(&[tar_link(b'2', "moo", "x"), tar_file("moo", b"1")]);
    assert!(matches!(out.fault(), Fault::Duplicate(_)));
    // A hard link to what is not an earlier file.
    for target in ["later", "l", "/etc/passwd", "../x", "d", ""] {
        let out = tars(&[
            tar_link(b'2', "l", "f"),
            tar_link(b'5', "d", ""),
            tar_link(b'1', "h", target),
            tar_file("later", b"1"),
        ]);
        assert!(matches!(out.fault(), Fault::HardLink { .. }), "{target}: {:?}", out.fault());
    }
}

#[test]
fn conda_with_hostile_entries_is_refused() {
    for name in ["../moo", "/tmp/gpuenv-moo", "tmp/../../moo", "a\u{1}b"] {
        assert!(matches!(tars(&[tar_file(name, b"x")]).fault(), Fault::Path(_)), "{name}");
    }
    for kind in [b'3', b'4', b'6', b'V'] {
        let out = tars(&[tar_link(kind, "d", "")]);
        assert!(matches!(out.fault(), Fault::Special { .. }), "{}", kind as char);
    }
    let out = tars(&[tar_file("a", b"1"), tar_file("a", b"2")]);
    assert!(matches!(out.fault(), Fault::Duplicate(_)));
    let out = tars(&[tar_file("a", b"1"), tar_file("a/b", b"2")]);
    assert!(matches!(out.fault(), Fault::NotADirectory { .. }));
}

#[test]
fn damaged_conda_packages_are_refused() {
    let noise: Vec<u8> =
        (0..300_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect();
    let entries = [tar_file("a", &noise), index_json("x")];
    let bz2 = tar_bz2(&entries);
    for cut in [0, 3, bz2.len() / 2, bz2.len() - 3] {
        let out = run("x.tar.bz2", &bz2[..cut]);
        // Of nothing, nothing unpacks; that it has no metadata is found later.
        assert!(cut == 0 || matches!(out.fault(), Fault::Damaged { .. }), "{cut}");
    }
    let mut flipped = bz2.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x10;
    assert!(matches!(run("x.tar.bz2", &flipped).fault(), Fault::Damaged { .. }));

    let whole = conda(&[index_json("x")], &entries);
    let mut flipped = whole.clone();
    flipped[middle] ^= 0x10;
    assert!(matches!(run("x.conda", &flipped).fault(), Fault::Crc { .. }));
    assert!(matches!(run("x.conda", &whole[..whole.len() / 2]).fault(), Fault::Zip(_)));
    assert!(matches!(run("x.conda", b"<html>no</html>").fault(), Fault::Zip(_)));

    let part = |name: &str, content: &[u8]| ZipEntry { deflate: false, ..entry(name, content) };
    let info = zstd::encode_all(&tar(&[index_json("x")])[..], 1).unwrap();
    let only_info = zip(&[part("info-x.tar.zst", &info)]);
    assert_eq!(run("x.conda", &only_info).paths(), ["info/index.json"]);
    let out = run("x.conda", &zip(&[part("pkg-x.tar.zst", &info)]));
    assert!(matches!(out.fault(), Fault::CondaLayout(_)));
    let out = run("x.conda", &zip(&[part("info-x.tar.zst", &info), part("info-y.tar.zst", &info)]));
    assert!(matches!(out.fault(), Fault::CondaLayout(_)));
    let out = run(
        "x.conda",
        &zip(&[
            part("metadata.json", br#"{"conda_pkg_format_version": 3}"#),
            part("info-x.tar.zst", &info),
        ]),
    );
    assert!(matches!(out.fault(), Fault::Metadata { .. }));
    let out = run("x.conda", &zip(&[entry("info-x.tar.zst", &info)]));
    assert!(matches!(out.fault(), Fault::Method { .. }));
}

/// Tars made by others to leave the directory they are unpacked in.
#[test]
#[ignore = "needs GPUENV_TEST_DATA or ../shared/data"]
fn with_data_tars_from_outside_stay_inside() {
    let dir = crate::package::testing::data("packages/tar-traversal");
    let mut count = 0;
    for name in fs::list(&dir).unwrap() {
        let tar = disk::read(dir.join(&name)).unwrap();
        let mut z = Vec::new();
        std::io::Read::read_to_end(
            &mut bzip2::read::BzEncoder::new(&tar[..], bzip2::Compression::fast()),
            &mut z,
        )
        .unwrap();
        let out = run("x.tar.bz2", &z);
        assert!(out.result.is_err(), "{name:?}");
        count += 1;
    }
    assert!(count >= 8);
}

/// Real packages of both formats unpack to the same tree.
#[test]
#[ignore = "needs GPUENV_TEST_DATA or ../shared/data"]
fn with_data_real_packages_unpack() {
    let dir = crate::package::testing::data("packages");
    let mut count = 0;
    for sub in [
        "zlib-channel/linux-64",
        "zlib-channel/osx-64",
        "mock",
        "sparse",
        "virtual-packages-channel/noarch",
    ] {
        for name in fs::list(&dir.join(sub)).unwrap() {
            let name = name.to_str().unwrap();
            if Format::of(name).is_none() {
                continue;
            }
            let out = run(name, &disk::read(dir.join(sub).join(name)).unwrap());
            // The two zlib packages of the newer format lost the texts of their links when they
            // were made; no file system takes such a link.
            if name.starts_with("zlib-") && name.ends_with(".conda") {
                let fault = out.result.map_err(|e| e.fault);
                assert!(matches!(fault, Err(Fault::LinkText { .. })), "{name}: {fault:?}");
                count += 1;
                continue;
            }
            let unpacked = out.result.unwrap_or_else(|e| panic!("{e}"));
            assert!(unpacked.entries.iter().any(|e| e.path.as_str() == "info/index.json"));
            count += 1;
        }
    }
    assert!(count >= 12, "{count}");
}

#[derive(Clone, Debug)]
enum Thing {
    File(Vec<u8>, bool),
    Dir,
}

fn things() -> impl Strategy<Value = BTreeMap<String, Thing>> {
    let path = proptest::collection::vec("[a-c][-.a]{0,2}", 1..4).prop_map(|p| p.join("/"));
    let thing = prop_oneof![
        4 => (proptest::collection::vec(any::<u8>(), 0..200), any::<bool>())
            .prop_map(|(c, x)| Thing::File(c, x)),
        1 => Just(Thing::Dir),
    ];
    proptest::collection::btree_map(path, thing, 0..12).prop_map(|map| {
        // Leave out what lies below a file.
        let files: Vec<String> = map
            .iter()
            .filter(|(_, t)| matches!(t, Thing::File(..)))
            .map(|(p, _)| format!("{p}/"))
            .collect();
        map.into_iter().filter(|(p, _)| !files.iter().any(|f| p.starts_with(f))).collect()
    })
}

fn on_disk(root: &Path, at: &Path, out: &mut BTreeMap<String, Option<(Vec<u8>, bool)>>) {
    for entry in disk::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let meta = disk::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            out.insert(name, None);
            on_disk(root, &path, out);
        } else {
            let executable = meta.permissions().mode() & 0o100 != 0;
            out.insert(name, Some((disk::read(&path).unwrap(), executable)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever tree goes into an archive of any format comes out of it, byte for byte, and
    /// all formats give one NAR hash.
    #[test]
    fn trees_round_trip(things in things()) {
        let mut expected = BTreeMap::new();
        for (path, thing) in &things {
            let mut up = path.as_str();
            while let Some((dir, _)) = up.rsplit_once('/') {
                expected.insert(dir.to_owned(), None);
                up = dir;
            }
            if let Thing::Dir = thing {
                expected.insert(path.clone(), None);
            }
        }
        for (path, thing) in &things {
            if let Thing::File(c, x) = thing {
                expected.insert(path.clone(), Some((c.clone(), *x)));
            }
        }
        let zipped: Vec<ZipEntry> = things.iter().map(|(p, t)| match t {
            Thing::File(c, x) => ZipEntry {
                mode: if *x { 0o100755 } else { 0o100644 },
                deflate: c.len() % 2 == 0,
                ..entry(p, c)
            },
            Thing::Dir => entry(&format!("{p}/"), b""),
        }).collect();
        let tarred: Vec<TarEntry> = things.iter().map(|(p, t)| match t {
            Thing::File(c, x) => TarEntry {
                mode: if *x { 0o755 } else { 0o644 },
                ..tar_file(p, c)
            },
            Thing::Dir => tar_link(b'5', p, ""),
        }).collect();
        let mut nars = Vec::new();
        for out in [whl(&zipped), run("x.tar.bz2", &tar_bz2(&tarred))] {
            let mut found = BTreeMap::new();
            on_disk(&out.root(), &out.root(), &mut found);
            prop_assert_eq!(&found, &expected);
            nars.push(out.result.unwrap().nar);
        }
        prop_assert_eq!(nars[0], nars[1]);
    }

    /// Bytes changed at random never panic, and never leave the directory (which `run` checks).
    #[test]
    fn changed_archives_are_answered(flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6), which in 0..3usize) {
        let entries = [tar_file("a/b", b"content"), tar_link(b'2', "l", "a"), index_json("x")];
        let (file, mut bytes) = match which {
            0 => ("x.whl", wheel("x", "1.0", vec![entry("x/a", b"content"), entry("x/b", b"1")])),
            1 => ("x.conda", conda(&[index_json("x")], &entries)),
            _ => ("x.tar.bz2", tar_bz2(&entries)),
        };
        for (at, value) in flips {
            let len = bytes.len();
            bytes[at % len] = value;
        }
        let _ = run(file, &bytes);
    }
}
