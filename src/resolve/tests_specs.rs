//! What requirements admit: version specifiers, tags and build tags of wheels; match specs of conda.

use super::testing::*;
use super::*;

/// What `a` becomes, with all of `versions` offered as pure wheels.
fn picked(versions: &[&str], specifiers: &str) -> String {
    let mut world = World::new();
    for version in versions {
        world.pure(&format!("a {version}"), &[]);
    }
    match world.solve(&problem().host("3.11").pypi(&format!("a{specifiers}"))) {
        Ok(solution) => names(&solution)[0].trim_start_matches("a==").to_owned(),
        Err(_) => "none".to_owned(),
    }
}

#[test]
fn specifiers_of_pep_440() {
    for (versions, specifiers, expected) in [
        // Compatible releases.
        (&["1.4.1", "1.4.9", "1.5", "2.0"][..], "~=1.4.2", "1.4.9"),
        (&["1.3", "1.9", "2.0"], "~=1.4", "1.9"),
        (&["1.4.1", "1.5"], "~=1.4.2", "none"),
        (&["2.2", "2.2.post3", "2.3"], "~=2.2.post3", "2.3"),
        (&["1.4.5", "1.4.5a5", "1.5"], "~=1.4.5a4", "1.4.5"),
        // Prefixes.
        (&["1.9", "1.10.3", "2.0"], "==1.*", "1.10.3"),
        (&["1.1", "1.10", "1.11"], "==1.1.*", "1.1"),
        (&["1.1.post1", "1.1"], "==1.1.*", "1.1.post1"),
        (&["1.4", "1.5.1", "1.5.2"], "!=1.5.*", "1.4"),
        // Trailing zeros are nothing, but not to `===`.
        (&["1.0.0"], "==1", "1.0.0"),
        (&["1.0.0"], "===1.0.0", "1.0.0"),
        (&["1.0", "2.0"], "===1.0", "1.0"),
        (&["1.0.0"], "===1.0", "none"),
        // Local versions: a bound without one does not see it.
        (&["1.0+cu118", "2.0"], "==1.0", "1.0+cu118"),
        (&["1.0", "1.0+cu118", "2.0"], "==1.0+cu118", "1.0+cu118"),
        (&["1.0", "1.0+cpu"], "==1.0+cu118", "none"),
        (&["0.9", "1.0+cu118"], "!=1.0", "0.9"),
        (&["1.0+cu118"], "<=1.0", "1.0+cu118"),
        (&["1.0+cu118"], ">1.0", "none"),
        // Segments of local versions: numbers above letters, as numbers.
        (&["1.0+9", "1.0+10", "1.0+abc"], "==1.0", "1.0+10"),
        // Exclusive bounds.
        (&["1.0.post1"], ">1.0", "none"),
        (&["1.0.post1", "1.1"], ">1.0", "1.1"),
        (&["1.0.post1", "1.0.post2"], ">1.0.post1", "1.0.post2"),
        (&["2.0rc1", "1.0"], "<2.0", "1.0"),
        (&["2.0rc1"], "<2.0", "none"),
        (&["2.0a1", "2.0rc1"], "<2.0rc1", "2.0a1"),
        // Epochs.
        (&["1!0.5", "2024.1"], "", "1!0.5"),
        (&["1!0.5", "2024.1"], ">=2024", "1!0.5"),
        (&["1!0.5", "2024.1"], "<1!0", "2024.1"),
        // Several at once.
        (&["1.1", "1.2", "1.3", "2.0"], ">=1.1,!=1.3,<2", "1.2"),
    ] {
        assert_eq!(picked(versions, specifiers), expected, "{versions:?} {specifiers}");
    }
}

fn best(host: &str, files: &[&str]) -> String {
    let mut world = World::new();
    for file in files {
        world.wheel(file, &[]);
    }
    match world.solve(&problem().host(host).pypi("a")) {
        Ok(solution) => match &solution.packages[0].what {
            ChosenKind::Wheel { file, .. } => file.file.clone(),
            ChosenKind::Conda(_) => panic!("no conda here"),
        },
        Err(_) => "none".to_owned(),
    }
}

#[test]
fn build_tags_count_as_numbers() {
    let file = |tag: &str| format!("a-1.0-{tag}py3-none-any.whl");
    let tagged = [file(""), file("9-"), file("10-"), file("2x-")];
    let tagged: Vec<&str> = tagged.iter().map(String::as_str).collect();
    assert_eq!(best("3.11", &tagged), file("10-"));
    assert_eq!(best("3.11", &tagged[..2]), file("9-"));
    assert_eq!(best("3.11", &[&file("2x-"), &file("2-")]), file("2x-"));
    // A better tag comes before a higher build.
    let native = "a-1.0-cp311-cp311-manylinux_2_17_x86_64.whl";
    assert_eq!(best("3.11", &[&file("10-"), native]), native);
}

#[test]
fn the_stable_abi_serves_later_pythons() {
    let abi3 = "a-1.0-cp39-abi3-manylinux_2_17_x86_64.whl";
    let later = "a-1.0-cp310-abi3-manylinux_2_17_x86_64.whl";
    let native = "a-1.0-cp311-cp311-manylinux_2_17_x86_64.whl";
    for (host, files, expected) in [
        ("3.9", &[abi3][..], abi3),
        ("3.13", &[abi3], abi3),
        ("3.8", &[abi3], "none"),
        ("3.11", &[abi3, later], later),
        ("3.9", &[abi3, later], abi3),
        ("3.11", &[abi3, later, native], native),
        ("3.12", &[abi3, native], abi3),
    ] {
        assert_eq!(best(host, files), expected, "{host} {files:?}");
    }
}

/// Records of one name that differ in all that a match spec can ask for.
fn records() -> World {
    let mut world = World::new();
    world.add("a 1.0 py310_h1_0", &[]);
    let record = world.add("a 1.0 py311_h1_1", &[]);
    record.md5 = Some([0x11; 16].into());
    record.sha256 = Some([0x22; 32].into());
    world.add("a 1.0 cuda_py311_3", &[]).track_features = vec!["gpu".to_owned()];
    world.add("a 1.1 py310_h2_2", &[]);
    let noarch = world.add("a 0.9 pyhd_0", &[]);
    noarch.subdir = "noarch".to_owned();
    world
}

/// Version and build of `a`.
fn record(world: &World, spec: &str) -> String {
    match world.solve(&problem().dep(spec)) {
        Ok(solution) => match &solution.packages[0].what {
            ChosenKind::Conda(record) => {
                format!("{} {}", record.package_record.version, record.package_record.build)
            }
            ChosenKind::Wheel { .. } => panic!("no wheels here"),
        },
        Err(_) => "none".to_owned(),
    }
}

#[test]
fn match_specs() {
    let world = records();
    let (md5, sha256) = ("11".repeat(16), "22".repeat(32));
    for (spec, expected) in [
        ("a", "1.1 py310_h2_2"),
        // Builds: a glob, a whole one, a regular expression.
        ("a * py311_*", "1.0 py311_h1_1"),
        ("a * *_h1_*", "1.0 py311_h1_1"),
        ("a 1.0 py310_h1_0", "1.0 py310_h1_0"),
        ("a[build='^cuda_.*$']", "1.0 cuda_py311_3"),
        ("a * py312_*", "none"),
        // Build numbers.
        ("a[build_number=0]", "1.0 py310_h1_0"),
        ("a[build_number='>=3']", "1.0 cuda_py311_3"),
        ("a[version='1.0', build_number='<1']", "1.0 py310_h1_0"),
        ("a[build_number='>3']", "none"),
        // Where it is.
        ("a[subdir=noarch]", "0.9 pyhd_0"),
        ("a[subdir=linux-aarch64]", "none"),
        ("https://conda.example.invalid/conda-forge::a", "1.1 py310_h2_2"),
        ("https://conda.example.invalid/nvidia::a", "none"),
        // What it is.
        (&format!("a[md5={md5}]"), "1.0 py311_h1_1"),
        (&format!("a[sha256={sha256}]"), "1.0 py311_h1_1"),
        (&format!("a[sha256={}]", "33".repeat(32)), "none"),
        // Tracked features come last of all, be the build number as it may.
        ("a 1.0.*", "1.0 py311_h1_1"),
        ("a 1.0 cuda*", "1.0 cuda_py311_3"),
        // Versions.
        ("a <1", "0.9 pyhd_0"),
        ("a =1.0", "1.0 py311_h1_1"),
        ("a ~=1.0", "1.1 py310_h2_2"),
        ("a 0.9|1.0", "1.0 py311_h1_1"),
        ("a !=1.1", "1.0 py311_h1_1"),
    ] {
        assert_eq!(record(&world, spec), expected, "{spec}");
    }
}

/// The same of what records ask of each other.
#[test]
fn match_specs_of_records() {
    for (depends, expected) in [
        ("a 1.0 *_h1_*", "1.0 py311_h1_1"),
        ("a[build_number='>=3']", "1.0 cuda_py311_3"),
        ("a * py310*", "1.1 py310_h2_2"),
        ("a >=0.5,<1.0a0", "0.9 pyhd_0"),
    ] {
        let mut world = records();
        world.add("z 1.0 0", &[depends]);
        assert_eq!(record(&world, "z"), expected, "{depends}");
    }
}

#[test]
fn noarch_beside_builds_for_a_platform() {
    let mut world = World::new();
    world.pythons(&["3.11.9"]);
    let noarch = |world: &mut World, record: &str, python: &str| {
        let record = world.add(record, &[python]);
        record.subdir = "noarch".to_owned();
        record.noarch = rattler_conda_types::NoArchType::python();
    };
    world.add("tool 1.0 py311_0", &["python >=3.11,<3.12.0a0"]);
    noarch(&mut world, "tool 1.0 pyhd_1", "python >=3.8");
    world.pure("tool 2.0", &[]);
    world.pure("app 1.0", &["tool"]);
    // The higher build number, of whichever kind.
    assert_eq!(record(&world, "tool"), "3.11.9 h0_0");
    let chosen = world.solve(&problem().dep("tool")).unwrap();
    let builds: Vec<String> = chosen
        .packages
        .iter()
        .filter_map(|chosen| match &chosen.what {
            ChosenKind::Conda(record) => Some(record.package_record.build.to_string()),
            ChosenKind::Wheel { .. } => None,
        })
        .collect();
    assert_eq!(builds, ["h0_0", "pyhd_1"]);
    // A noarch record provides its distribution, too.
    assert_eq!(
        world.chosen(&problem().dep("tool").pypi("app")),
        ["python=3.11.9", "tool=1.0", "app==1.0"]
    );
    // One for Pythons that are not to be had leaves the other.
    let mut other = World::new();
    other.pythons(&["3.11.9"]);
    other.add("tool 1.0 py311_0", &["python >=3.11,<3.12.0a0"]);
    noarch(&mut other, "tool 1.0 pyhd_1", "python >=3.12");
    assert_eq!(other.chosen(&problem().dep("tool")), ["python=3.11.9", "tool=1.0"]);
}

#[test]
fn constraints_on_virtual_packages() {
    let mut world = World::new();
    world.add("a 2.0 0", &[]).constrains = vec!["__cuda >=12".to_owned()];
    world.add("a 1.0 0", &[]).constrains = vec!["__glibc >=2.17".to_owned()];
    let target = |cuda: Option<&str>, spec: &str| {
        let mut problem = problem().dep(spec);
        problem.virtual_packages.extend(cuda.map(|version| virtual_package("__cuda", version)));
        problem
    };
    assert_eq!(world.chosen(&target(Some("12.4"), "a")), ["a=2.0"]);
    assert_eq!(world.chosen(&target(Some("11.8"), "a")), ["a=1.0"]);
    // Of what the target does not have, nothing is excluded.
    assert_eq!(world.chosen(&target(None, "a")), ["a=2.0"]);
    let refused = world.refused(&target(Some("11.8"), "a 2.*"));
    assert!(refused.contains("__cuda"), "{refused}");
    let mut old = problem().dep("a 1.*");
    old.virtual_packages = vec![virtual_package("__glibc", "2.12")];
    assert!(world.refused(&old).contains("__glibc"));
}
