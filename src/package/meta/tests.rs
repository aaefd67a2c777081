use super::*;
use crate::hash::Sha256;
use crate::package::testing::*;
use crate::package::{CondaMeta, Limits, Unpack, UnpackPolicy, WheelMeta, unpack};
use crate::progress::Silent;
use crate::store::tests::locked_wheel;

fn read_archive(locked: &LockedPackage, bytes: &[u8]) -> Result<Read, Fault> {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("tree");
    std::fs::create_dir(&into).unwrap();
    let archive = dir.path().join("archive");
    std::fs::write(&archive, bytes).unwrap();
    let unpacked = unpack(&Unpack {
        archive: &archive,
        file: &locked.file,
        into: &into,
        policy: UnpackPolicy::default(),
        limits: Limits::default(),
        progress: &Silent,
    })
    .unwrap();
    read(&Contents::new(&into, &unpacked), locked)
}

fn wheel_of(files: Vec<ZipEntry>) -> Result<(WheelMeta, Vec<String>), Fault> {
    let bytes = zip(&files);
    let read = read_archive(&locked_wheel("my-pkg", "1.0", &bytes), &bytes)?;
    let Meta::Wheel(meta) = read.meta else { panic!() };
    Ok((meta, read.notes))
}

/// A wheel of these files, and with a right `.dist-info`, of which some files are replaced.
fn with(files: Vec<ZipEntry>, replaced: &[(&str, Option<&str>)]) -> Vec<ZipEntry> {
    let mut info = dist_info("my_pkg", "1.0", &files);
    for (name, content) in replaced {
        let path = format!("my_pkg-1.0.dist-info/{name}");
        info.retain(|e| e.name != path.as_bytes());
        if let Some(content) = content {
            info.push(entry(&path, content.as_bytes()));
        }
    }
    files.into_iter().chain(info).collect()
}

#[test]
fn wheel_metadata() {
    let files = with(
        vec![
            entry("my_pkg/__init__.py", b""),
            entry("my_pkg-1.0.data/scripts/a", b"#!python -i\n"),
            entry("my_pkg-1.0.data/scripts/b", b"#!/bin/sh\n"),
            entry("my_pkg-1.0.data/scripts/sub/c", b"#!pythonw\n"),
            entry("my_pkg-1.0.data/data/etc/x", b"#!python\n"),
        ],
        &[],
    );
    let (meta, notes) = wheel_of(files).unwrap();
    assert_eq!(meta.dist_info, "my_pkg-1.0.dist-info");
    assert_eq!(meta.data.as_deref(), Some("my_pkg-1.0.data"));
    assert!(meta.root_is_purelib);
    let scripts: Vec<_> = meta.python_scripts.iter().map(|p| p.as_str()).collect();
    assert_eq!(scripts, ["my_pkg-1.0.data/scripts/a", "my_pkg-1.0.data/scripts/sub/c"]);
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn entry_points_as_importlib_reads_them() {
    let text = "\
# comment
[console_scripts]
b = m:f[cli]
memray3.13=memray:main

 a.b = pkg.mod : Class.method
no pair here
[gui_scripts]
g = m:g
[other]
x = y
[console_scripts]
late = m:late
";
    let files = with(vec![], &[("entry_points.txt", Some(text))]);
    let (meta, notes) = wheel_of(files).unwrap();
    assert_eq!(
        meta.console_scripts,
        [
            "a.b = pkg.mod : Class.method",
            "b = m:f[cli]",
            "late = m:late",
            "memray3.13 = memray:main"
        ]
    );
    assert_eq!(meta.gui_scripts, ["g = m:g"]);
    assert_eq!(notes, ["my-pkg-1.0-py3-none-any.whl: its RECORD leaves out 1 of its files"]);
}

#[test]
fn wheel_of_another_name_or_version_is_refused() {
    let metadata = |name: &str, version: &str| {
        let text = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n");
        wheel_of(with(
            vec![],
            &[("METADATA", Some(&text)), ("RECORD", Some("my_pkg-1.0.dist-info/RECORD,,\n"))],
        ))
    };
    metadata("My.Pkg", "1.0.0").unwrap();
    for (name, version, what) in [("other", "1.0", "name"), ("my-pkg", "1.1", "version")] {
        match metadata(name, version) {
            Err(Fault::Other { what: found, .. }) => assert_eq!(found, what),
            other => panic!("{other:?}"),
        }
    }
    let bytes = wheel("other", "1.0", vec![]);
    let e = read_archive(&locked_wheel("my-pkg", "1.0", &bytes), &bytes).unwrap_err();
    assert_eq!(e.to_string(), "its `.dist-info` directory is `other-1.0`, the lock says `my-pkg`");
    for (dir, same) in [
        ("My.Pkg-1.0+cu121", true),
        ("my-pkg-1.0", true),
        ("my__pkg-1.0", true),
        ("my_pkgs-1.0", false),
        ("my-1.0", false),
    ] {
        let files: Vec<_> = dist_info("my_pkg", "1.0", &[])
            .into_iter()
            .map(|mut e| {
                let name = String::from_utf8(e.name).unwrap().replace("my_pkg-1.0", dir);
                e.name = name.into_bytes();
                if e.name.ends_with(b"RECORD") {
                    e.content.clear();
                }
                e
            })
            .collect();
        assert_eq!(wheel_of(files).is_ok(), same, "{dir}");
    }
}

#[test]
fn malformed_wheels_are_refused() {
    for missing in ["METADATA", "WHEEL", "RECORD"] {
        let e = wheel_of(with(vec![], &[(missing, None)])).unwrap_err();
        assert!(matches!(&e, Fault::NoFile(f) if f.ends_with(missing)), "{e}");
    }
    assert!(matches!(wheel_of(vec![entry("a.py", b"")]), Err(Fault::DistInfo(_))));
    let mut two = with(vec![], &[]);
    two.push(entry("other-1.dist-info/METADATA", b""));
    let e = wheel_of(two).unwrap_err();
    assert!(e.to_string().contains("my_pkg-1.0.dist-info, other-1.dist-info"), "{e}");
    let e = wheel_of(with(
        vec![],
        &[("WHEEL", Some("Wheel-Version: 2.0\nRoot-Is-Purelib: true\n")), ("RECORD", Some(""))],
    ));
    assert!(matches!(e, Err(Fault::WheelVersion(v)) if v == "2.0"));
}

#[test]
fn record_is_checked() {
    let record =
        |rows: &str| wheel_of(with(vec![entry("a.py", b"x = 1\n")], &[("RECORD", Some(rows))]));
    let e = record("a.py,sha256=AAAA,6\n").unwrap_err();
    assert!(matches!(&e, Fault::Content { path, .. } if path.as_str() == "a.py"), "{e}");
    let right = |d: &[u8]| BASE64(d);
    use sha2::Digest;
    let sha256 = right(Sha256::of(b"x = 1\n").as_bytes());
    let sha512 = right(&sha2::Sha512::digest(b"x = 1\n"));
    for hash in [
        format!("sha256={sha256}"),
        format!("sha256={sha256}="),
        format!("sha512={sha512}"),
        "md5=whatever".into(),
        String::new(),
    ] {
        record(&format!("a.py,{hash},6\n")).unwrap();
    }
    assert!(record(&format!("a.py,sha512={sha256},6\n")).is_err());
    // Rows for what is not there are noted, as are files without a row.
    let (_, notes) = record("gone.py,sha256=AAAA,6\n\"/abs,path\",,\n").unwrap();
    assert_eq!(notes.len(), 2);
    assert!(notes[1].contains("2 lines"), "{notes:?}");
}

#[allow(non_snake_case)]
fn BASE64(bytes: &[u8]) -> String {
    data_encoding::BASE64URL_NOPAD.encode(bytes)
}

fn locked_conda(name: &str) -> LockedPackage {
    let mut locked = locked_wheel(name, "1.0", b"");
    locked.kind = ArtifactKind::Conda;
    locked.build = Some("h0_0".into());
    locked.subdir = Some("linux-64".into());
    locked.file = format!("{name}-1.0-h0_0.conda");
    locked
}

fn conda_of(info: Vec<TarEntry>, pkg: &[TarEntry]) -> Result<(CondaMeta, Vec<String>), Fault> {
    let read = read_archive(&locked_conda("x"), &conda(&info, pkg))?;
    let Meta::Conda(meta) = read.meta else { panic!() };
    Ok((meta, read.notes))
}

fn info(name: &str, text: &str) -> TarEntry {
    tar_file(&format!("info/{name}"), text.as_bytes())
}

#[test]
fn conda_metadata() {
    let sha = Sha256::of(b"PREFIX/lib");
    let paths = format!(
        r#"{{"paths_version":1,"paths":[
        {{"_path":"lib/x.pc","path_type":"hardlink","sha256":"{sha}","size_in_bytes":10,
          "prefix_placeholder":"PREFIX","file_mode":"text"}},
        {{"_path":"bin/x","path_type":"hardlink","prefix_placeholder":"/opt/ph","file_mode":"binary"}},
        {{"_path":"bin/.x-post-link.sh","path_type":"hardlink"}},
        {{"_path":"lib/l","path_type":"softlink","sha256":"{sha}"}}]}}"#
    );
    let pkg = [
        tar_file("lib/x.pc", b"PREFIX/lib"),
        tar_file("bin/x", b"\0/opt/ph\0"),
        tar_file("bin/.x-post-link.sh", b""),
        tar_file("bin/.other-post-link.sh", b""),
        tar_link(b'2', "lib/l", "x.pc"),
    ];
    let (meta, notes) = conda_of(vec![index_json("x"), info("paths.json", &paths)], &pkg).unwrap();
    assert_eq!(meta.subdir, "linux-64");
    assert_eq!(meta.depends, ["libz >=1"]);
    let relocations: Vec<_> = meta
        .relocations
        .iter()
        .map(|r| (r.path.as_str(), r.placeholder.as_str(), r.binary))
        .collect();
    assert_eq!(relocations, [("bin/x", "/opt/ph", true), ("lib/x.pc", "PREFIX", false)]);
    assert_eq!(meta.link_scripts.len(), 1);
    let unlisted: Vec<_> = meta.unlisted.iter().map(|p| p.as_str()).collect();
    assert_eq!(unlisted, ["bin/.other-post-link.sh"]);
    assert_eq!(notes.len(), 1);
}

#[test]
fn conda_noarch_python() {
    let index = r#"{"name":"x","version":"1.0","build":"h0_0","build_number":0,"noarch":"python",
        "subdir":"noarch","depends":["python"]}"#;
    let link = r#"{"noarch":{"type":"python","entry_points":["b = m:f", "a.c=m.n:g "]},
        "package_metadata_version":1}"#;
    let (meta, _) =
        conda_of(vec![info("index.json", index), info("link.json", link)], &[]).unwrap();
    assert!(meta.noarch_python);
    assert_eq!(meta.entry_points, ["a.c=m.n:g", "b = m:f"]);
    let index = r#"{"name":"x","version":"1.0","build":"h0_0","build_number":0,
        "python_site_packages_path":"lib/python3.13t/site-packages"}"#;
    let (meta, _) = conda_of(vec![info("index.json", index)], &[]).unwrap();
    assert_eq!(meta.site_packages_path.as_deref(), Some("lib/python3.13t/site-packages"));
    assert_eq!(meta.subdir, "linux-64");
    let index = index.replace("lib/python3.13t", "../..");
    assert!(conda_of(vec![info("index.json", &index)], &[]).is_err());
}

#[test]
fn conda_of_the_old_days() {
    let info = vec![
        index_json("x"),
        info("files", "bin/x\nlib/y\nlib/l\n\n"),
        info("has_prefix", "/opt/ph binary bin/x\n\"/a b/ph\" text lib/y\n"),
        info("no_link", "lib/y\n"),
    ];
    let pkg = [tar_file("bin/x", b"x"), tar_file("lib/y", b"y"), tar_link(b'2', "lib/l", "y")];
    let (meta, _) = conda_of(info, &pkg).unwrap();
    let relocations: Vec<_> = meta
        .relocations
        .iter()
        .map(|r| (r.path.as_str(), r.placeholder.as_str(), r.binary))
        .collect();
    assert_eq!(relocations, [("bin/x", "/opt/ph", true), ("lib/y", "/a b/ph", false)]);
}

#[test]
fn malformed_conda_packages_are_refused() {
    assert!(matches!(conda_of(vec![], &[]), Err(Fault::NoFile(_))));
    let e = conda_of(vec![info("index.json", "{")], &[]).unwrap_err();
    assert!(matches!(e, Fault::Metadata { .. }));
    let e = conda_of(vec![index_json("y")], &[]).unwrap_err();
    assert_eq!(e.to_string(), "its name is `y`, the lock says `x`");
    let paths = |entry: &str| {
        let paths = format!(r#"{{"paths_version":1,"paths":[{entry}]}}"#);
        conda_of(vec![index_json("x"), info("paths.json", &paths)], &[tar_file("a", b"a")])
            .unwrap_err()
    };
    let sha = Sha256::of(b"b");
    let e = paths(&format!(r#"{{"_path":"a","path_type":"hardlink","sha256":"{sha}"}}"#));
    assert!(matches!(e, Fault::Content { .. }), "{e}");
    let e = paths(r#"{"_path":"a","path_type":"hardlink","size_in_bytes":7}"#);
    assert!(matches!(e, Fault::Length { .. }), "{e}");
    let e = paths(r#"{"_path":"b","path_type":"hardlink"}"#);
    assert!(matches!(e, Fault::Unheld { .. }), "{e}");
    let e = paths(r#"{"_path":"../b","path_type":"hardlink"}"#);
    assert!(matches!(e, Fault::Metadata { .. }), "{e}");
}
