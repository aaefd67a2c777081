use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::view::manifest::ViewManifest;
use crate::view::testing::{Package, Set, library, path};

const SITE: &str = "lib/python3.11/site-packages";

fn at<'a>(plan: &'a Plan, text: &str) -> Option<&'a OpKind> {
    plan.ops.iter().find(|op| op.path.as_str() == text).map(|op| &op.kind)
}

fn text<'a>(plan: &'a Plan, file: &str) -> &'a str {
    match at(plan, file) {
        Some(OpKind::Generated { content: Content::Text(text), .. }) => text,
        other => panic!("{file}: {other:?}"),
    }
}

fn conda_python() -> Package {
    Package::conda("python", "3.11.9")
        .program("bin/python3.11", b"\x7fELF stand-in")
        .link("bin/python", "python3.11")
        .file("lib/python3.11/os.py", b"")
        .file("lib/python3.11/json/__init__.py", b"")
}

#[test]
fn a_directory_of_one_owner_is_folded() {
    let a = Package::wheel("a").file("a/__init__.py", b"").file("a/b/c.py", b"x");
    let plan = Set::on_host([a]).plan().unwrap();
    let from = path("a");
    assert_eq!(at(&plan, &format!("{SITE}/a")), Some(&OpKind::Fold { package: 0, from }));
    assert_eq!(at(&plan, &format!("{SITE}/a/b")), None);
    // RECORD is generated, so the metadata directory is real.
    assert_eq!(at(&plan, &format!("{SITE}/a-1.0.dist-info")), Some(&OpKind::Dir));
}

#[test]
fn what_a_conda_package_does_not_list_stays_out() {
    let package = Package::conda("x", "1")
        .file("share/x/listed", b"1")
        .file("share/x/unlisted", b"2")
        .file("share/y/a", b"3")
        .link("lib/unlisted.so", "x.so")
        .with_conda(|meta| {
            meta.unlisted = ["lib/unlisted.so", "share/x/unlisted"].map(path).to_vec();
        });
    let plan = Set::of([package]).plan().unwrap();
    assert!(at(&plan, "lib").is_none() && at(&plan, "share/x/unlisted").is_none());
    // The directory cannot be one link: that would bring the file back in.
    assert_eq!(at(&plan, "share/x"), Some(&OpKind::Dir));
    assert!(matches!(at(&plan, "share/x/listed"), Some(OpKind::File { .. })));
    assert!(matches!(at(&plan, "share/y"), Some(OpKind::Fold { .. })));
}

#[test]
fn a_namespace_of_several_owners_is_merged() {
    let a = Package::wheel("nvidia-p").file("nvidia/__init__.py", b"").file("nvidia/p/x.py", b"");
    let b = Package::wheel("nvidia-q").file("nvidia/__init__.py", b"").file("nvidia/q/x.py", b"");
    let plan = Set::on_host([a, b]).plan().unwrap();
    assert_eq!(at(&plan, &format!("{SITE}/nvidia")), Some(&OpKind::Dir));
    for (package, name) in ["p", "q"].into_iter().enumerate() {
        let from = path(&format!("nvidia/{name}"));
        let found = at(&plan, &format!("{SITE}/nvidia/{name}"));
        assert_eq!(found, Some(&OpKind::Fold { package, from }));
    }
    // Both own the shared file, and both say so.
    for name in ["nvidia_p", "nvidia_q"] {
        let record = text(&plan, &format!("{SITE}/{name}-1.0.dist-info/RECORD"));
        assert!(record.contains("nvidia/__init__.py,sha256="), "{record}");
    }
}

#[test]
fn a_library_that_looks_for_its_neighbours_keeps_its_directories_real() {
    let p = library("p", 1, &["q"], &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../q/lib"]);
    let p = Package::wheel("nvidia-p").file("nvidia/p/lib/libp.so", &p).file("nvidia/p/h/x.h", b"");
    let q = Package::wheel("nvidia-q").file("nvidia/q/lib/libq.so", &library("q", 2, &[], &[]));
    let plan = Set::on_host([p, q]).plan().unwrap();
    for dir in ["nvidia", "nvidia/p", "nvidia/p/lib"] {
        assert_eq!(at(&plan, &format!("{SITE}/{dir}")), Some(&OpKind::Dir), "{dir}");
    }
    let found = at(&plan, &format!("{SITE}/nvidia/p/lib/libp.so"));
    assert!(matches!(found, Some(OpKind::File { real: true, .. })), "{found:?}");
    for dir in ["nvidia/p/h", "nvidia/q"] {
        let found = at(&plan, &format!("{SITE}/{dir}"));
        assert!(matches!(found, Some(OpKind::Fold { .. })), "{dir}");
    }
    assert!(!plan.ld, "the search path in the file suffices");
}

#[test]
fn a_search_path_that_stays_inside_does_not_hinder() {
    let p = library("p", 1, &["q"], &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/../q"]);
    let a =
        Package::wheel("a").file("a/p/libp.so", &p).file("a/q/libq.so", &library("q", 2, &[], &[]));
    let plan = Set::on_host([a]).plan().unwrap();
    assert!(matches!(at(&plan, &format!("{SITE}/a")), Some(OpKind::Fold { .. })));
}

#[test]
fn programs_and_links_that_leave_keep_their_directories_real() {
    let dir = tempfile::tempdir().unwrap();
    let program =
        crate::view::testing::compile(dir.path(), "int main(void) { return 0; }", "m", &[]);
    let a = Package::conda("a", "1")
        .program("libexec/a/run", &program)
        .file("libexec/a/data/x", b"")
        .link("share/a/x", "../b/x")
        .link("share/c/x", "y")
        .file("share/c/y", b"")
        .file("share/b/x", b"");
    let plan = Set::of([a, Package::conda("b", "1").file("share/d", b"")]).plan().unwrap();
    assert!(matches!(at(&plan, "libexec/a/run"), Some(OpKind::File { real: true, .. })));
    assert!(matches!(at(&plan, "libexec/a/data"), Some(OpKind::Fold { .. })));
    assert_eq!(at(&plan, "share/a/x"), Some(&OpKind::Symlink { target: "../b/x".into() }));
    assert!(matches!(at(&plan, "share/c"), Some(OpKind::Fold { .. })));
}

#[test]
fn unequal_bytes_name_both_owners_and_a_winner_settles_it() {
    let wheel = |name: &str, bytes: &[u8]| {
        Package::wheel(name).file("databricks/__init__.py", bytes).file(&format!("{name}/x"), b"")
    };
    let mut set = Set::on_host([wheel("a", b"1"), wheel("b", b"2"), wheel("c", b"1")]);
    let error = set.plan().unwrap_err();
    let PlanError::Conflicts(conflicts) = &error else { panic!("{error}") };
    assert_eq!(conflicts.len(), 1);
    assert_eq!((&*conflicts[0].first.0, &*conflicts[0].second.0), ("a", "b"));
    assert!(error.to_string().contains("databricks/__init__.py"), "{error}");

    let contested = path(&format!("{SITE}/databricks/__init__.py"));
    set.options.winners.insert(contested.clone(), "b".into());
    let plan = set.plan().unwrap();
    let held = &flatten(&plan, &set)[contested.as_str()];
    assert_eq!(*held, format!("{} false", Sha256::of(b"2")));
    assert_eq!(plan.findings.len(), 2, "a and c lose: {:?}", plan.findings);
    let record = text(&plan, &format!("{SITE}/a-1.0.dist-info/RECORD"));
    assert!(!record.contains("databricks"), "a file that is another's is not listed: {record}");
}

#[test]
fn files_links_and_directories_conflict_alike() {
    let file = Package::conda("f", "1").file("lib64", b"x");
    let link = Package::conda("l", "1").link("lib64", "lib");
    let dir = Package::conda("d", "1").file("lib64/x", b"x");
    for pair in [[&file, &link], [&file, &dir], [&link, &dir], [&dir, &link]] {
        let error = Set::of(pair.map(Clone::clone)).plan().unwrap_err();
        let PlanError::Conflicts(conflicts) = &error else { panic!("{error}") };
        assert_eq!(conflicts[0].path, path("lib64"));
        let mut owners = [&*conflicts[0].first.0, &*conflicts[0].second.0];
        owners.sort_unstable();
        let mut names = pair.map(|p| p.name.as_str());
        names.sort_unstable();
        assert_eq!(owners, names);
    }
    // A winner settles these too, whichever it is.
    for (winner, kept, gone) in [("l", "lib64", "lib64/x"), ("d", "lib64/x", "")] {
        let mut set = Set::of([dir.clone(), link.clone()]);
        set.options.winners.insert(path("lib64"), winner.into());
        let plan = set.plan().unwrap();
        let folded = matches!(at(&plan, "lib64"), Some(OpKind::Fold { package: 0, .. }));
        assert!(at(&plan, kept).is_some() || (winner == "d" && folded), "{:?}", plan.ops);
        assert!(gone.is_empty() || at(&plan, gone).is_none());
    }
}

#[test]
fn caches_that_differ_are_left_out() {
    let wheel = |name: &str, pyc: &[u8]| {
        Package::wheel(name)
            .file("ns/__init__.py", b"")
            .file("ns/__pycache__/__init__.cpython-311.pyc", pyc)
    };
    let plan = Set::on_host([wheel("a", b"1"), wheel("b", b"2")]).plan().unwrap();
    assert!(plan.ops.iter().all(|op| !op.path.as_str().contains("__pycache__")));
}

#[test]
fn equal_links_are_shared() {
    let a = Package::conda("a", "1").link("lib/x", "y").file("lib/a", b"");
    let b = Package::conda("b", "1").link("lib/x", "y").file("lib/b", b"");
    assert!(Set::of([a, b]).plan().is_ok());
}

#[test]
fn a_wheels_data_goes_where_it_belongs() {
    let d = "a-1.0.data";
    let a = Package::wheel("a")
        .file(&format!("{d}/purelib/pure.py"), b"")
        .file(&format!("{d}/platlib/plat.so"), b"")
        .file(&format!("{d}/scripts/tool"), b"#!python -E\n")
        .file(&format!("{d}/scripts/sub/x"), b"#!/bin/sh\n")
        .file(&format!("{d}/data/etc/x"), b"")
        .file(&format!("{d}/headers/a.h"), b"")
        .with_wheel(|meta| {
            meta.data = Some(d.into());
            meta.python_scripts = vec![path(&format!("{d}/scripts/tool"))];
            meta.console_scripts =
                ["a = a:f[cli]", "memray3.13 = a.b:c.d", "bad = a"].map(str::to_owned).to_vec();
            meta.gui_scripts = vec!["window = a:g".into()];
        })
        .root();
    let plan = Set::on_host([a]).plan().unwrap();
    for there in [
        &format!("{SITE}/pure.py"),
        &format!("{SITE}/plat.so"),
        "bin/sub/x",
        "bin/a",
        "bin/memray3.13",
        "bin/window",
        "include/python3.11/a",
    ] {
        assert!(at(&plan, there).is_some(), "{there}");
    }
    assert!(at(&plan, "etc").is_some());
    assert!(matches!(at(&plan, "bin/sub/x"), Some(OpKind::File { executable: true, .. })));
    let tool = at(&plan, "bin/tool");
    assert!(
        matches!(
            tool,
            Some(OpKind::Relocated { how: Relocate::PythonShebang, executable: true, .. })
        ),
        "{tool:?}"
    );
    assert!(plan.ops.iter().all(|op| !op.path.as_str().contains(".data")));
    assert!(
        matches!(&plan.findings[..], [Finding::BadEntryPoint { text, .. }] if text == "bad = a")
    );
    let info = format!("{SITE}/a-1.0.dist-info");
    assert_eq!(text(&plan, &format!("{info}/INSTALLER")), "gpuenv\n");
    assert_eq!(text(&plan, &format!("{info}/REQUESTED")), "");
    let record = text(&plan, &format!("{info}/RECORD"));
    for line in ["../../../bin/a,,", "../../../bin/tool,,", "a-1.0.dist-info/RECORD,,"] {
        assert!(record.lines().any(|l| l == line), "{line}: {record}");
    }
    assert!(record.contains("../../../etc/x,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0"));
}

#[test]
fn an_unknown_part_of_a_wheels_data_is_named() {
    let a = Package::wheel("a")
        .file("a-1.0.data/wat/x", b"")
        .with_wheel(|meta| meta.data = Some("a-1.0.data".into()));
    let error = Set::on_host([a]).plan().unwrap_err();
    assert!(matches!(error, PlanError::UnknownScheme { .. }), "{error}");
}

#[test]
fn noarch_python_goes_into_the_site_directory() {
    let a = Package::conda("a", "1")
        .file("site-packages/a/x.py", b"")
        .file("python-scripts/tool", b"")
        .file("etc/a", b"")
        .with_conda(|meta| {
            meta.noarch_python = true;
            meta.entry_points = vec!["run-a = a.x:main".into()];
        });
    let plan = Set::of([conda_python(), a.clone()]).plan().unwrap();
    let from = path("site-packages/a");
    assert_eq!(at(&plan, &format!("{SITE}/a")), Some(&OpKind::Fold { package: 1, from }));
    assert!(at(&plan, "bin/tool").is_some() && at(&plan, "bin/run-a").is_some());
    assert!(plan.ops.iter().all(|op| !op.path.as_str().starts_with("info")));
    assert!(at(&plan, "conda-meta/a-1-h0_1.json").is_some());
    assert_eq!(text(&plan, "conda-meta/history"), "");

    let error = Set::of([a]).plan().unwrap_err();
    assert!(matches!(error, PlanError::NoPython { .. }), "{error}");
}

#[test]
fn python_may_name_its_site_directory() {
    let python = Package::conda("python", "3.13.1")
        .file("lib/python3.13t/os.py", b"")
        .with_conda(|m| m.site_packages_path = Some("lib/python3.13t/site-packages".into()));
    let plan = Set::of([python, Package::wheel("a").file("a.py", b"")]).plan().unwrap();
    assert!(at(&plan, "lib/python3.13t/site-packages/a.py").is_some());
    assert!(at(&plan, "lib/python3.13t/EXTERNALLY-MANAGED").is_some());
}

#[test]
fn a_link_script_is_named_and_skipped_only_knowingly() {
    let a = Package::conda("a", "1")
        .file("bin/.a-post-link.sh", b"")
        .file("bin/.a-pre-unlink.sh", b"")
        .with_conda(|meta| {
            meta.link_scripts = vec![path("bin/.a-post-link.sh"), path("bin/.a-pre-unlink.sh")];
        });
    let mut set = Set::of([a]);
    let error = set.plan().unwrap_err();
    let hint = crate::error::Report::hint(&error).unwrap();
    assert!(hint.contains("skip-link-scripts = [\"a\"]"), "{hint}");
    set.options.skip_link_scripts = vec!["a".into()];
    let plan = set.plan().unwrap();
    assert!(matches!(&plan.findings[..], [Finding::LinkScriptSkipped { .. }]));
}

#[test]
fn a_view_on_the_machines_python_has_the_face_of_a_virtual_environment() {
    let plan = Set::on_host([]).plan().unwrap();
    assert_eq!(at(&plan, "bin/python"), Some(&OpKind::HostPython));
    for name in ["bin/python3", "bin/python3.11"] {
        assert_eq!(at(&plan, name), Some(&OpKind::Symlink { target: "python".into() }));
    }
    assert_eq!(at(&plan, "lib64"), Some(&OpKind::Symlink { target: "lib".into() }));
    assert_eq!(at(&plan, SITE), Some(&OpKind::Dir));
    assert!(text(&plan, "pip.conf").contains("gpuenv add"));
}

#[test]
fn two_copies_of_one_package_are_an_error_with_both_owners() {
    let conda = Package::conda("boltons", "1")
        .file(&format!("{SITE}/boltons/__init__.py"), b"conda")
        .file(&format!("{SITE}/boltons/x.py"), b"conda");
    let wheel = Package::wheel("boltons").file("boltons/__init__.py", b"wheel");
    let mut set = Set::of([conda_python(), conda, wheel]);
    let error = set.plan().unwrap_err();
    let PlanError::Conflicts(all) = &error else { panic!("{error}") };
    assert_eq!((&*all[0].first.0, &*all[0].second.0), ("conda:boltons", "pypi:boltons"));
    let contested = path(&format!("{SITE}/boltons/__init__.py"));
    set.options.winners.insert(contested.clone(), "pypi:boltons".into());
    let held = flatten(&set.plan().unwrap(), &set).remove(contested.as_str());
    assert_eq!(held, Some(format!("{} false", Sha256::of(b"wheel"))));
}

#[test]
fn what_is_gpuenvs_own_is_refused() {
    for at in ["ld/libx.so", "share/gpuenv/run", "ld", "pip.conf"] {
        let set = Set::of([conda_python(), Package::conda("a", "1").file(at, b"x")]);
        let error = set.plan().unwrap_err();
        assert!(error.to_string().contains("gpuenv") && error.to_string().contains(at), "{error}");
    }
}

/// The view hash is a promise: this text changes only with the format number.
#[test]
fn the_manifest_is_as_written_down() {
    let a = Package::wheel("a")
        .file("a/__init__.py", b"")
        .file("a-1.0.data/scripts/tool", b"#!python\n")
        .file("top.py", b"")
        .with_wheel(|meta| {
            meta.data = Some("a-1.0.data".into());
            meta.python_scripts = vec![path("a-1.0.data/scripts/tool")];
            meta.console_scripts = vec!["run = a:f".into()];
        });
    let manifest = ViewManifest::of(&Set::on_host([a]).plan().unwrap());
    let golden = include_str!("../../../store-layout/golden/view-manifest");
    let hash = include_str!("../../../store-layout/golden/view-manifest.sha256");
    assert_eq!(manifest.text(), golden, "{}", manifest.text());
    assert_eq!(manifest.hash().to_string(), hash.trim());
}

#[test]
fn one_soname_of_two_packages_is_reported() {
    let one = library("dup", 1, &[], &[]);
    let two = library("dup", 2, &[], &[]);
    let a = Package::conda("a", "1").file("lib/libdup.so", &one);
    let b = Package::wheel("b").file("b/libdup.so", &two);
    let plan = Set::of([conda_python(), a.clone(), b.clone()]).plan().unwrap();
    let [Finding::DuplicateSoname { soname, first, second }] = &plan.findings[..] else {
        panic!("{:?}", plan.findings)
    };
    assert_eq!((&**soname, &*first.package, &*second.package), ("libdup.so", "a", "b"));
    // Allowed knowingly, and nothing to say where the bytes are equal.
    let mut set = Set::of([conda_python(), a.clone(), b]);
    set.options.allow_duplicate_sonames = vec!["libdup.so".into()];
    assert!(set.plan().unwrap().findings.is_empty());
    let same = Package::wheel("b").file("b/libdup.so", &one);
    assert!(Set::of([conda_python(), a, same]).plan().unwrap().findings.is_empty());
}

/// The names of duplicates that a plan of wheels with these libraries reports.
fn duplicates_of(files: &[(&str, &str, &[u8])]) -> Vec<String> {
    let mut packages: BTreeMap<&str, Package> = BTreeMap::new();
    for (name, at, bytes) in files {
        let package = packages.remove(name).unwrap_or_else(|| Package::wheel(name));
        packages.insert(name, package.file(at, bytes));
    }
    let plan = Set::on_host(packages.into_values()).plan().unwrap();
    let soname = |finding: &Finding| match finding {
        Finding::DuplicateSoname { soname, .. } => Some(soname.clone()),
        _ => None,
    };
    plan.findings.iter().filter_map(soname).collect()
}

#[test]
fn copies_of_one_library_are_no_duplicates() {
    let [one, two, other] = [1, 2, 3].map(|value| library("x", value, &[], &[]));
    assert!(duplicates_of(&[("a", "a/libx.so", &one), ("b", "b/libx.so", &one)]).is_empty());
    // A package with two builds, one of which is the other package's.
    let files: [(&str, &str, &[u8]); 3] =
        [("a", "a/1/libx.so", &one), ("a", "a/2/libx.so", &two), ("b", "b/libx.so", &two)];
    assert!(duplicates_of(&files).is_empty());
    let third = ("c", "c/libx.so", &other[..]);
    assert_eq!(duplicates_of(&[files[0], files[1], files[2], third]), ["libx.so"]);
}

#[test]
fn what_a_repair_tool_named_is_no_duplicate() {
    let named = |soname: &str| {
        [1, 2].map(|value| library("x", value, &[], &[&format!("-Wl,-soname,{soname}")]))
    };
    let [one, two] = named("libx-040039e1.so");
    let silent =
        [("a", "a.libs/libx-040039e1.so", &one[..]), ("b", "b.libs/libx-040039e1.so", &two[..])];
    assert!(duplicates_of(&silent).is_empty());
    // Elsewhere, or with another ending, the name says nothing.
    let loud = [silent[0], ("b", "b/libx-040039e1.so", &two[..])];
    assert_eq!(duplicates_of(&loud), ["libx-040039e1.so"]);
    let [one, two] = named("libx-release0.so");
    let loud =
        [("a", "a.libs/libx-release0.so", &one[..]), ("b", "b.libs/libx-release0.so", &two[..])];
    assert_eq!(duplicates_of(&loud), ["libx-release0.so"]);
}

/// What a path of the view holds, however the plan puts it there.
fn flatten(plan: &Plan, set: &Set) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for op in &plan.ops {
        match &op.kind {
            OpKind::Fold { package, from } => {
                let below = |p: &RelPath| p.strip_prefix(from).map(|rest| op.path.join(&rest));
                let package = &set.packages[*package];
                for (path, (bytes, x)) in &package.files {
                    if let Some(path) = below(path) {
                        all.insert(path.to_string(), format!("{} {x}", Sha256::of(bytes)));
                    }
                }
                for (path, target) in &package.links {
                    if let Some(path) = below(path) {
                        all.insert(path.to_string(), target.clone());
                    }
                }
            }
            OpKind::File { sha256, executable, .. } => {
                all.insert(op.path.to_string(), format!("{sha256} {executable}"));
            }
            OpKind::Symlink { target } => {
                all.insert(op.path.to_string(), target.clone());
            }
            _ => {}
        }
    }
    all
}

proptest! {
    /// Whatever is folded, the view holds each package's files, each once, and nothing else; a
    /// parent stands before its children and is a real directory.
    #[test]
    fn a_plan_holds_what_the_packages_hold(
        trees in prop::collection::vec(
            prop::collection::btree_map("[ab]/[ab](/[ab]){0,2}/[xyz]", (any::<bool>(), 0u8..2), 1..6),
            1..4,
        ),
    ) {
        let packages = trees.iter().enumerate().map(|(n, tree)| {
            let mut package = Package::conda(&format!("p{n}"), "1");
            for (at, (link, content)) in tree {
                package = match link {
                    true => package.link(at, if *content == 0 { "x" } else { "../x" }),
                    false => package.file(at, &[*content]),
                };
            }
            package
        });
        let set = Set::of(packages);
        let mut oracle: BTreeMap<String, String> = BTreeMap::new();
        let mut clash = false;
        for package in &set.packages {
            let files = package.files.iter().filter(|(p, _)| !p.as_str().starts_with("info"));
            let files = files.map(|(p, (b, x))| (p, format!("{} {x}", Sha256::of(b))));
            let links = package.links.iter().map(|(p, t)| (p, t.clone()));
            for (path, what) in files.chain(links) {
                let old = oracle.insert(path.to_string(), what.clone());
                clash |= old.is_some_and(|old| old != what);
            }
        }
        clash |= oracle.keys().any(|p| oracle.keys().any(|q| q.starts_with(&format!("{p}/"))));
        match set.plan() {
            Err(_) => prop_assert!(clash),
            Ok(plan) => {
                prop_assert!(!clash);
                prop_assert_eq!(flatten(&plan, &set), oracle);
                let mut real = std::collections::BTreeSet::new();
                for op in &plan.ops {
                    prop_assert!(op.path.parent().is_none_or(|dir| real.contains(&dir)));
                    if op.kind == OpKind::Dir {
                        real.insert(op.path.clone());
                    }
                }
                let again = set.plan().unwrap();
                prop_assert_eq!(ViewManifest::of(&plan).hash(), ViewManifest::of(&again).hash());
            }
        }
    }
}
