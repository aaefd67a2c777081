//! What is kept of an old lock, and what an update moves.

use super::testing::*;
use super::*;
use crate::hash::Sha256;

fn file(solution: &Solution, name: &str) -> String {
    let file = solution.packages.iter().find_map(|chosen| match &chosen.what {
        ChosenKind::Wheel { file, .. } if file.filename.name == dist(name) => Some(&file.file),
        _ => None,
    });
    file.expect("it is chosen").clone()
}

/// A file that comes later for the kept version, and would be taken first, is not taken.
#[test]
fn the_very_file_is_kept() {
    let mut world = World::new();
    world.wheel("a-1.0-cp311-cp311-manylinux_2_17_x86_64.whl", &[]);
    let mut again = problem().host("3.11").pypi("a");
    again.keep.wheels.extend([kept("a-1.0-cp311-cp311-manylinux_2_17_x86_64.whl")]);
    for later in [
        "a-1.0-1-cp311-cp311-manylinux_2_17_x86_64.whl",
        "a-1.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "a-2.0-cp311-cp311-manylinux_2_17_x86_64.whl",
    ] {
        world.wheel(later, &[]);
    }
    let solution = world.solve(&again).unwrap();
    assert_eq!(file(&solution, "a"), "a-1.0-cp311-cp311-manylinux_2_17_x86_64.whl");
    assert_eq!(solution.warnings, Vec::<String>::new());
    // Without the old lock, the newest.
    let solution = world.solve(&problem().host("3.11").pypi("a")).unwrap();
    assert_eq!(file(&solution, "a"), "a-2.0-cp311-cp311-manylinux_2_17_x86_64.whl");
}

#[test]
fn a_kept_file_that_is_gone_is_told() {
    let mut world = World::new();
    world.wheel("a-1.0-1-py3-none-any.whl", &[]);
    world.pure("a 2.0", &[]);
    let mut again = problem().host("3.11").pypi("a");
    again.keep.wheels.extend([kept("a-1.0-py3-none-any.whl")]);
    let solution = world.solve(&again).unwrap();
    assert_eq!(file(&solution, "a"), "a-1.0-1-py3-none-any.whl");
    assert_eq!(
        solution.warnings,
        [
            "a-1.0-py3-none-any.whl, which gpuenv.lock held, is not offered any more; a-1.0-1-py3-none-any.whl takes its place"
        ]
    );
}

#[test]
fn a_kept_name_with_another_content_is_told() {
    let mut world = World::new();
    world.pure("a 1.0", &[]).sha256 = Some(Sha256::of("new"));
    let mut again = problem().host("3.11").pypi("a");
    let (name, mut was) = kept("a-1.0-py3-none-any.whl");
    was.sha256 = Some(Sha256::of("old"));
    again.keep.wheels.insert(name, was);
    let solution = world.solve(&again).unwrap();
    let [warning] = &solution.warnings[..] else { panic!("{:?}", solution.warnings) };
    assert!(warning.starts_with("a-1.0-py3-none-any.whl is another file"), "{warning}");
}

#[test]
fn a_kept_record_that_is_gone_is_told() {
    let mut world = World::new();
    world.add("a 1.0 h0_1", &[]);
    world.add("a 2.0 h0_0", &[]);
    let mut again = problem().dep("a");
    again.keep.conda.insert(conda_name("a"), ("1.0".to_owned(), "h0_0".to_owned()));
    let solution = world.solve(&again).unwrap();
    assert_eq!(names(&solution), ["a=1.0"]);
    assert_eq!(
        solution.warnings,
        ["a 1.0 h0_0, which gpuenv.lock held, is not offered any more; a 1.0 h0_1 takes its place"]
    );
}

/// What something new needs is kept where it fits, also where newer ones are there.
#[test]
fn adding_moves_nothing_else() {
    let mut world = World::new();
    world.pythons(&["3.11.8", "3.11.9"]);
    for version in ["1.0", "2.0"] {
        world.pure(&format!("a {version}"), &["b"]);
        world.pure(&format!("b {version}"), &["c"]);
        world.pure(&format!("c {version}"), &[]);
        world.pure(&format!("new {version}"), &["b>=1", "c"]);
        world.add(&format!("lib {version} 0"), &[]);
        world.add(&format!("tool {version} 0"), &["lib"]);
    }
    let mut again = problem().dep("python").dep("lib").dep("tool").pypi("a").pypi("new");
    for name in ["a", "b", "c"] {
        again.keep.wheels.extend([kept(&format!("{name}-1.0-py3-none-any.whl"))]);
    }
    again.keep.conda.insert(conda_name("python"), ("3.11.8".to_owned(), "h0_0".to_owned()));
    again.keep.conda.insert(conda_name("lib"), ("1.0".to_owned(), "0".to_owned()));
    assert_eq!(
        world.chosen(&again),
        ["lib=1.0", "python=3.11.8", "tool=2.0", "c==1.0", "b==1.0", "a==1.0", "new==2.0"]
    );
}

/// `b` kept would hold `a` back: it moves, `c` stays.
#[test]
fn an_update_moves_what_holds_it_back() {
    let mut world = World::new();
    for version in ["1.0", "2.0"] {
        world.pure(&format!("a {version}"), &[&format!("core=={version}"), "c"]);
        world.pure(&format!("b {version}"), &[&format!("core=={version}")]);
        world.pure(&format!("core {version}"), &[]);
        world.pure(&format!("c {version}"), &[]);
    }
    let mut again = problem().host("3.11").pypi("b").pypi("a").pypi("c");
    for name in ["b", "core", "c"] {
        again.keep.wheels.extend([kept(&format!("{name}-1.0-py3-none-any.whl"))]);
    }
    again.keep.newest.insert(Key::Wheel(dist("a")));
    assert_eq!(world.chosen(&again), ["c==1.0", "core==2.0", "a==2.0", "b==2.0"]);
    // The bound of env.toml holds.
    let bounded = again.clone().pypi("b<2");
    assert_eq!(world.chosen(&bounded), ["c==1.0", "core==1.0", "a==1.0", "b==1.0"]);
}

#[test]
fn an_update_of_a_record_moves_what_holds_it_back() {
    let mut world = World::new();
    for version in ["1.0", "2.0"] {
        world.add(&format!("a {version} 0"), &[&format!("core {version}")]);
        world.add(&format!("b {version} 0"), &[&format!("core {version}"), "c"]);
        world.add(&format!("core {version} 0"), &[]);
        world.add(&format!("c {version} 0"), &[]);
    }
    let mut again = problem().dep("b").dep("a");
    for name in ["b", "core", "c"] {
        again.keep.conda.insert(conda_name(name), ("1.0".to_owned(), "0".to_owned()));
    }
    again.keep.newest.insert(Key::Conda(conda_name("a")));
    assert_eq!(world.chosen(&again), ["core=2.0", "a=2.0", "c=1.0", "b=2.0"]);
}

/// Where all at its newest would mean an older one of what is to be updated, what is kept stays.
#[test]
fn an_update_does_not_go_back() {
    let mut world = World::new();
    world.pure("a 1.0", &[]);
    world.pure("a 2.0", &[]);
    world.pure("a 3.0", &["gone"]);
    world.pure("b 1.0", &[]);
    world.pure("b 2.0", &["a<2"]);
    let mut again = problem().host("3.11").pypi("b").pypi("a");
    again.keep.wheels.extend([kept("b-1.0-py3-none-any.whl")]);
    again.keep.newest.insert(Key::Wheel(dist("a")));
    assert_eq!(world.chosen(&again), ["a==2.0", "b==1.0"]);
}

/// All that a solution holds, as an old lock.
fn keep(solution: &Solution) -> Keep {
    let mut keep = Keep::default();
    for chosen in &solution.packages {
        match &chosen.what {
            ChosenKind::Conda(record) => {
                let record = &record.package_record;
                let kept = (record.version.to_string(), record.build.to_string());
                keep.conda.insert(record.name.clone(), kept);
            }
            ChosenKind::Wheel { file, .. } => keep.wheels.extend([kept(&file.file)]),
        }
    }
    keep
}

fn files(solution: &Solution) -> Vec<String> {
    let mut files: Vec<String> = solution
        .packages
        .iter()
        .map(|chosen| match &chosen.what {
            ChosenKind::Conda(record) => record.identifier.to_string(),
            ChosenKind::Wheel { file, .. } => file.file.clone(),
        })
        .collect();
    files.sort();
    files
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        failure_persistence: None,
        ..proptest::prelude::ProptestConfig::default()
    })]

    /// What fits is kept, file by file.
    #[test]
    fn a_lock_that_fits_stays(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..240)) {
        let (world, problem) = super::tests_oracle::universe(&bytes, 1);
        if let Ok(solution) = world.solve(&problem) {
            let mut again = problem.clone();
            again.keep = keep(&solution);
            let kept = world.solve(&again).expect("it fits");
            proptest::prop_assert_eq!(files(&solution), files(&kept));
            proptest::prop_assert_eq!(solution.warnings, kept.warnings);
        }
    }
}
