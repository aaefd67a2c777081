//! The solve, case by case.

use super::testing::*;
use super::*;
use crate::error::{Exit, Report};
use crate::manifest::{DependencyOverride, Prereleases};

#[test]
fn newest_wheel_that_fits_the_host() {
    let mut world = World::new();
    world.wheel("a-1.0-cp311-cp311-manylinux_2_17_x86_64.whl", &["b>=1"]);
    world.wheel("a-2.0-cp312-cp312-manylinux_2_17_x86_64.whl", &[]);
    world.wheel("a-3.0-cp311-cp311-manylinux_2_34_x86_64.whl", &[]);
    world.wheel("a-4.0-cp311-cp311-win_amd64.whl", &[]);
    world.wheel("a-5.0-cp311-cp311-musllinux_1_2_x86_64.whl", &[]);
    world.pure("b 1.0", &[]);
    world.pure("b 1.1", &[]);
    let problem = problem().host("3.11").pypi("a");
    assert_eq!(world.chosen(&problem), ["b==1.1", "a==1.0"]);
    // One request for each package chosen, and the best pick asked for ahead.
    assert_eq!(world.asked.borrow().metadata.len(), 2);
    assert_eq!(world.asked.borrow().wheels, ["a", "b"]);
}

#[test]
fn the_most_specific_file_of_a_version() {
    let mut world = World::new();
    for file in [
        "a-1.0-py3-none-any.whl",
        "a-1.0-cp39-abi3-manylinux_2_17_x86_64.whl",
        "a-1.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        "a-1.0-1-cp311-cp311-manylinux_2_17_x86_64.whl",
        "a-1.0-2-cp311-cp311-manylinux_2_17_x86_64.whl",
    ] {
        world.wheel(file, &[]);
    }
    let solution = world.solve(&problem().host("3.11").pypi("a")).unwrap();
    let ChosenKind::Wheel { file, .. } = &solution.packages[0].what else {
        panic!("a wheel");
    };
    assert_eq!(file.file, "a-1.0-2-cp311-cp311-manylinux_2_17_x86_64.whl");
}

#[test]
fn the_python_of_conda_is_chosen_with_the_wheels() {
    let mut world = World::new();
    world.pythons(&["3.9.18", "3.11.9", "3.13.1"]);
    world.wheel("a-1.0-cp39-cp39-manylinux_2_17_x86_64.whl", &[]);
    world.wheel("a-1.0-cp311-cp311-manylinux_2_17_x86_64.whl", &["b"]);
    world.pure("b 1.0", &["c; python_version < '3.10'", "d; python_version >= '3.10'"]);
    world.pure("c 1.0", &[]);
    world.pure("d 1.0", &[]);
    assert_eq!(world.chosen(&problem().pypi("a")), ["python=3.11.9", "d==1.0", "b==1.0", "a==1.0"]);
    // Metadata of the chosen files alone.
    assert_eq!(world.asked.borrow().metadata.len(), 3);
    assert_eq!(
        world.chosen(&problem().dep("python 3.9.*").pypi("a").pypi("b")),
        ["python=3.9.18", "a==1.0", "c==1.0", "b==1.0"]
    );
}

#[test]
fn requires_python_of_index_and_metadata() {
    let mut world = World::new();
    world.pure("a 3.0", &[]).requires_python = Some(">=3.12".parse().unwrap());
    world.pure("a 2.0", &[]);
    world.metadata_of("a-2.0-py3-none-any.whl").requires_python = Some(">=3.12".parse().unwrap());
    world.pure("a 1.0", &[]);
    assert_eq!(world.chosen(&problem().host("3.11").pypi("a")), ["a==1.0"]);
    world.pythons(&["3.11.9"]);
    assert_eq!(world.chosen(&problem().pypi("a")), ["python=3.11.9", "a==1.0"]);
    world.pythons(&["3.12.0"]);
    assert_eq!(world.chosen(&problem().pypi("a")), ["python=3.12.0", "a==3.0"]);
}

#[test]
fn a_conda_record_provides_the_distribution() {
    let mut world = World::new();
    world.pythons(&["3.11.9"]);
    world.add("numpy 1.26.4 py311_0", &["python >=3.11,<3.12.0a0"]);
    world.add("pandas 2.2.0 py311_0", &["python >=3.11,<3.12.0a0", "numpy >=1.20"]);
    world.add("pandas 1.0.0 py311_0", &["python >=3.11,<3.12.0a0"]);
    world.pure("numpy 2.1.0", &[]);
    world.pure("numpy 1.25.0", &[]);
    world.pure("needs 1.0", &["numpy>=1.21"]);
    world.pure("needs 0.9", &["numpy"]);
    let both = problem().dep("pandas").pypi("needs");
    assert_eq!(
        world.chosen(&both),
        ["python=3.11.9", "numpy=1.26.4", "pandas=2.2.0", "needs==1.0"]
    );
    let solution = world.solve(&both).unwrap();
    let needs = solution.packages.last().unwrap();
    assert_eq!(needs.requires, ["numpy>=1.21"]);
    assert!(needs.edges.contains(&Key::Conda(conda_name("numpy"))));
    assert!(needs.edges.contains(&Key::Conda(conda_name("python"))));
    assert!(needs.root);
    // Nobody asks conda for numpy: the wheel it is.
    assert_eq!(
        world.chosen(&problem().dep("python").pypi("needs")),
        ["python=3.11.9", "numpy==2.1.0", "needs==1.0"]
    );
}

#[test]
fn a_conda_package_merely_in_reach_is_not_dragged_in() {
    let mut world = World::new();
    world.pythons(&["3.11.9"]);
    world.add("tool 2.0 0", &["python"]);
    world.add("tool 1.0 0", &["python", "numpy"]);
    world.add("numpy 1.26.4 py311_0", &["python >=3.11,<3.12.0a0"]);
    world.pure("numpy 2.1.0", &[]);
    world.pure("needs 1.0", &["numpy"]);
    assert_eq!(
        world.chosen(&problem().dep("tool").pypi("needs")),
        ["python=3.11.9", "tool=2.0", "numpy==2.1.0", "needs==1.0"]
    );
}

#[test]
fn names_differ_between_the_worlds() {
    let mut world = World::new();
    world.pythons(&["3.11.9"]);
    world.add("pytorch 2.1.0 cpu_py311_0", &["python >=3.11,<3.12.0a0"]);
    world.pure("torch 2.5.0", &[]);
    world.pure("lightning 2.0", &["torch>=2"]);
    assert_eq!(
        world.chosen(&problem().dep("pytorch").pypi("lightning")),
        ["python=3.11.9", "pytorch=2.1.0", "lightning==2.0"]
    );
    let mut mapped = problem().dep("pytorch").pypi("lightning");
    mapped.conda_pypi_map.insert(conda_name("pytorch"), Vec::new());
    assert_eq!(
        world.chosen(&mapped),
        ["python=3.11.9", "pytorch=2.1.0", "torch==2.5.0", "lightning==2.0"]
    );
}

#[test]
fn a_c_library_is_no_distribution() {
    let mut world = World::new();
    world.pythons(&["3.11.9"]);
    world.add("graphviz 9.0 0", &[]);
    world.pure("graphviz 0.20", &[]);
    assert_eq!(
        world.chosen(&problem().dep("graphviz").pypi("graphviz")),
        ["graphviz=9.0", "python=3.11.9", "graphviz==0.20"]
    );
}

#[test]
fn extras_and_extras_of_themselves() {
    let mut world = World::new();
    world.pure(
        "a 1.0",
        &["a[cli,net]; extra == 'all'", "click; extra == 'cli'", "http>=1; extra == 'net'", "base"],
    );
    world.pure("click 1.0", &[]);
    world.pure("http 1.0", &[]);
    world.pure("base 1.0", &[]);
    assert_eq!(world.chosen(&problem().host("3.11").pypi("a")), ["base==1.0", "a==1.0"]);
    assert_eq!(
        world.chosen(&problem().host("3.11").pypi("a[net]")),
        ["base==1.0", "http==1.0", "a[net]==1.0"]
    );
    assert_eq!(
        world.chosen(&problem().host("3.11").pypi("a[all]")),
        ["base==1.0", "click==1.0", "http==1.0", "a[all,cli,net]==1.0"]
    );
    let solution = world.solve(&problem().host("3.11").pypi("a[nope]")).unwrap();
    assert_eq!(solution.warnings, ["a 1.0 has no extra `nope`; it is ignored"]);
}

#[test]
fn prereleases_by_policy() {
    let mut world = World::new();
    world.pure("a 1.0", &[]);
    world.pure("a 2.0rc1", &[]);
    world.pure("only 1.0b2", &[]);
    world.pure("asks 1.0", &["a>=2.0rc1"]);
    let host = || problem().host("3.11");
    assert_eq!(world.chosen(&host().pypi("a")), ["a==1.0"]);
    assert_eq!(world.chosen(&host().pypi("a>=1.0b1")), ["a==2.0rc1"]);
    let solution = world.solve(&host().pypi("only")).unwrap();
    assert_eq!(names(&solution), ["only==1.0b2"]);
    assert_eq!(solution.warnings, ["only 1.0b2 is a pre-release; no final release fits"]);
    // A requirement deep down names one, another does not: both are about the same distribution.
    assert_eq!(world.chosen(&host().pypi("a").pypi("asks")), ["a==2.0rc1", "asks==1.0"]);
    let mut never = host().pypi("only");
    never.prereleases = Prereleases::Disallow;
    world.refused(&never);
    let mut always = host().pypi("a");
    always.prereleases = Prereleases::Allow;
    assert_eq!(world.chosen(&always), ["a==2.0rc1"]);
}

#[test]
fn yanked_files_only_when_pinned() {
    let mut world = World::new();
    world.pure("a 1.0", &[]);
    world.pure("a 2.0", &[]).yanked = Some("broken".to_owned());
    let host = || problem().host("3.11");
    assert_eq!(world.chosen(&host().pypi("a")), ["a==1.0"]);
    assert_eq!(world.chosen(&host().pypi("a<=2.0")), ["a==1.0"]);
    let solution = world.solve(&host().pypi("a==2.0")).unwrap();
    assert_eq!(names(&solution), ["a==2.0"]);
    assert_eq!(
        solution.warnings,
        [
            "a-2.0-py3-none-any.whl was yanked by its maintainers (broken); it is taken since env.toml pins it"
        ]
    );
    world.refused(&host().pypi("a==2.*"));
}

#[test]
fn local_versions() {
    let mut world = World::new();
    world.pure("torch 2.3.0+cu121", &[]);
    world.pure("torch 2.3.0+cpu", &[]);
    world.pure("torch 2.4.0", &[]);
    let host = || problem().host("3.11");
    // A public version takes all of its local ones; without [gpu] a build for CPUs comes first.
    assert_eq!(world.chosen(&host().pypi("torch==2.3.0")), ["torch==2.3.0+cpu"]);
    assert_eq!(world.chosen(&host().pypi("torch==2.3.0+cu121")), ["torch==2.3.0+cu121"]);
}

#[test]
fn a_post_release_is_not_the_release() {
    let mut world = World::new();
    world.pure("paddle 2.0.0", &[]);
    world.pure("paddle 2.0.0.post112", &[]);
    assert_eq!(world.chosen(&problem().host("3.11").pypi("paddle==2.0.0")), ["paddle==2.0.0"]);
}

#[test]
fn constraints_bound_without_adding() {
    let mut world = World::new();
    world.pure("a 1.0", &["b"]);
    world.pure("b 1.0", &[]);
    world.pure("b 2.0", &[]);
    let bounded = problem().host("3.11").pypi("a").constrain("b", "<2").constrain("absent", "==1");
    assert_eq!(world.chosen(&bounded), ["b==1.0", "a==1.0"]);
}

#[test]
fn overrides_replace_whoever_asks() {
    let mut world = World::new();
    world.pure("a 1.0", &["sklearn", "b==1.0", "c"]);
    world.pure("b 1.0", &[]);
    world.pure("b 2.0", &[]);
    world.pure("scikit-learn 1.5", &[]);
    let mut with = problem().host("3.11").pypi("a");
    with.overrides.insert(dist("c"), DependencyOverride::Drop);
    with.overrides.insert(dist("b"), DependencyOverride::Specifiers(">=2".parse().unwrap()));
    with.overrides.insert(
        dist("sklearn"),
        DependencyOverride::Replace(dist("scikit-learn"), ">=1".parse().unwrap()),
    );
    assert_eq!(world.chosen(&with), ["b==2.0", "scikit-learn==1.5", "a==1.0"]);
}

#[test]
fn an_explicit_index_serves_who_names_it_everywhere() {
    let mut world = World::new();
    world.pure("torch 2.5.0", &[]);
    world.wheel_in(index("cu121"), "torch-2.3.0+cu121-py3-none-any.whl", &["sympy"]);
    world.pure("sympy 1.12", &[]);
    world.pure("vision 1.0", &["torch>=2"]);
    let both = problem().host("3.11").pypi("vision").pypi_from("torch", index("cu121"));
    assert_eq!(world.chosen(&both), ["sympy==1.12", "torch==2.3.0+cu121", "vision==1.0"]);
    let twice = both.pypi_from("torch", index("cpu"));
    assert_eq!(world.solve(&twice).unwrap_err().exit(), Exit::User);
}

#[test]
fn urls_only_where_env_toml_names_them() {
    let mut world = World::new();
    let url = "https://wheels.example.invalid/b-1.0-py3-none-any.whl";
    world.pure("a 1.0", &[&format!("b @ {url}")]);
    world.pure("b 2.0", &[]);
    world.wheel_in(WheelOrigin::Direct(1), "b-1.0-py3-none-any.whl", &[]);
    let refused = world.refused(&problem().host("3.11").pypi("a"));
    assert!(refused.contains(url), "{refused}");
    let named = problem().host("3.11").pypi("a").pypi_from("b", WheelOrigin::Direct(1));
    assert_eq!(world.chosen(&named), ["b==1.0", "a==1.0"]);
    let mut replaced = problem().host("3.11").pypi("a");
    replaced.overrides.insert(dist("b"), DependencyOverride::Specifiers(">=2".parse().unwrap()));
    assert_eq!(world.chosen(&replaced), ["b==2.0", "a==1.0"]);
}

#[test]
fn unusable_files_are_passed_over() {
    let mut world = World::new();
    world.pure("a 1.0", &[]);
    world.pure("a 2.0", &[]);
    world.spoil(
        "a-2.0-py3-none-any.whl",
        ProviderError::Unusable("its requirement `k (>=9.0.0a1.0)` cannot be read".to_owned()),
    );
    let host = || problem().host("3.11");
    assert_eq!(world.chosen(&host().pypi("a")), ["a==1.0"]);
    let refused = world.refused(&host().pypi("a>=2"));
    assert!(refused.contains("k (>=9.0.0a1.0)"), "{refused}");
}

#[test]
fn a_failing_source_stops_the_solve() {
    let mut world = World::new();
    world.pure("a 1.0", &[]);
    world.spoil(
        "a-1.0-py3-none-any.whl",
        ProviderError::Failed {
            message: "no answer".to_owned(),
            hint: Some("try later".to_owned()),
            exit: Exit::Source,
        },
    );
    let error = world.solve(&problem().host("3.11").pypi("a")).unwrap_err();
    assert_eq!(error.exit(), Exit::Source);
    assert_eq!(error.to_string(), "no answer");
    assert_eq!(error.hint().as_deref(), Some("try later"));
}

#[test]
fn strict_channel_priority() {
    let mut world = World::new();
    world.add_in("conda-forge", "cudnn 8.9 0", &[]);
    world.add_in("nvidia", "cudnn 9.3 0", &[]);
    world.add_in("nvidia", "nvcc 12.0 0", &[]);
    assert_eq!(world.chosen(&problem().dep("cudnn").dep("nvcc")), ["cudnn=8.9", "nvcc=12.0"]);
    world.refused(&problem().dep("cudnn >=9"));
    let mut named = problem().dep("cudnn");
    named.conda[0].spec.channel =
        Some(std::sync::Arc::new(rattler_conda_types::Channel::from_url(
            "https://conda.example.invalid/nvidia".parse::<url::Url>().unwrap(),
        )));
    assert_eq!(world.chosen(&named), ["cudnn=9.3"]);
}

#[test]
fn virtual_packages_and_constraints_of_conda() {
    let mut world = World::new();
    world.add("torch 2.0 cuda_1", &["__cuda >=12", "cuda-version 12.*"]);
    world.add("torch 2.0 cpu_0", &[]);
    world.add("cuda-version 12.4 0", &[]).constrains = vec!["__cuda >=12".to_owned()];
    world.add("driver-shim 1.0 0", &[]).constrains = vec!["torch <2".to_owned()];
    let build = |problem: &Problem| {
        let solution = world.solve(problem).unwrap();
        let ChosenKind::Conda(record) = &solution.packages.last().unwrap().what else {
            panic!("a record");
        };
        record.package_record.build.as_str().to_owned()
    };
    assert_eq!(build(&problem().dep("torch")), "cpu_0");
    let mut gpu = problem().dep("torch");
    gpu.virtual_packages.push(virtual_package("__cuda", "12.4"));
    assert_eq!(build(&gpu), "cuda_1");
    world.refused(&problem().dep("torch").dep("driver-shim"));
}

#[test]
fn the_host_interpreter_serves_conda_records() {
    let mut world = World::new();
    world.pythons(&["3.12.1"]);
    world.add("python_abi 3.11 5_cp311", &[]).constrains = vec!["python 3.11.* *_cp311".to_owned()];
    world.add("tool 1.0 py311_0", &["python >=3.11,<3.12.0a0", "python_abi 3.11.* *_cp311"]);
    world.add("tool 2.0 py312_0", &["python >=3.12,<3.13.0a0"]);
    assert_eq!(world.chosen(&problem().host("3.11").dep("tool")), ["python_abi=3.11", "tool=1.0"]);
}

#[test]
fn free_threaded_and_foreign_interpreters_take_other_wheels() {
    let mut world = World::new();
    world.add("python 3.13.1 h1_cp313t", &[]).track_features = vec!["free".to_owned()];
    world.add("python 3.13.1 h0_0_73_pypy", &[]);
    world.wheel("a-1.0-cp313-cp313t-manylinux_2_17_x86_64.whl", &[]);
    world.wheel("a-2.0-cp313-cp313-manylinux_2_17_x86_64.whl", &[]);
    assert_eq!(world.chosen(&problem().pypi("a")), ["python=3.13.1", "a==1.0"]);
}

#[test]
fn what_the_old_lock_holds_is_kept_where_it_fits() {
    let mut world = World::new();
    world.pythons(&["3.11.8", "3.11.9"]);
    world.pure("a 1.0", &["b"]);
    world.pure("a 2.0", &["b"]);
    world.pure("b 1.0", &[]);
    world.pure("b 2.0", &[]);
    let mut again = problem().dep("python").pypi("a").pypi("b>=2");
    again.keep.conda.insert(conda_name("python"), ("3.11.8".to_owned(), "h0_0".to_owned()));
    again.keep.wheels.extend([kept("a-1.0-py3-none-any.whl"), kept("b-1.0-py3-none-any.whl")]);
    assert_eq!(world.chosen(&again), ["python=3.11.8", "b==2.0", "a==1.0"]);
}

#[test]
fn backtracks_over_wheels() {
    let mut world = World::new();
    world.pure("a 2.0", &["c<2"]);
    world.pure("a 1.0", &["c"]);
    world.pure("b 1.0", &["c>=2"]);
    world.pure("c 1.0", &[]);
    world.pure("c 2.0", &[]);
    assert_eq!(
        world.chosen(&problem().host("3.11").pypi("a").pypi("b")),
        ["c==2.0", "a==1.0", "b==1.0"]
    );
}

#[test]
fn cycles_are_ordered_by_name() {
    let mut world = World::new();
    world.pure("a 1.0", &["b"]);
    world.pure("b 1.0", &["a", "c"]);
    world.pure("c 1.0", &[]);
    assert_eq!(world.chosen(&problem().host("3.11").pypi("b")), ["c==1.0", "b==1.0", "a==1.0"]);
}

#[test]
fn root_markers() {
    let mut world = World::new();
    world.pythons(&["3.9.1", "3.12.1"]);
    world.pure("a 1.0", &[]);
    world.pure("b 1.0", &[]);
    let roots = problem().pypi("a; python_version >= '3.12'").pypi("b; sys_platform == 'win32'");
    assert_eq!(world.chosen(&roots), ["python=3.12.1", "a==1.0"]);
    assert_eq!(world.chosen(&roots.clone().dep("python 3.9.*")), ["python=3.9.1"]);
}

/// Sixty distributions of three hundred files each, ten requirements apiece.
fn crowd(files_per_version: &[&str]) -> World {
    let mut world = World::new();
    let names = 60;
    for name in 0..names {
        for version in 0..(300 / files_per_version.len()) {
            let requires: Vec<String> = (1..=10)
                .map(|step| (name + step * step) % names)
                .filter(|other| *other > name)
                .map(|other| format!("dist{other}>={}", version / 2))
                .collect();
            let requires: Vec<&str> = requires.iter().map(String::as_str).collect();
            for tags in files_per_version {
                world.wheel(&format!("dist{name}-{version}.0-{tags}.whl"), &requires);
            }
        }
    }
    world
}

#[test]
fn metadata_is_asked_for_once_per_package() {
    let world = crowd(&["py3-none-any"]);
    let solution = world.solve(&problem().host("3.11").pypi("dist0").pypi("dist7")).unwrap();
    assert_eq!(world.asked.borrow().metadata.len(), solution.packages.len());
    assert_eq!(world.asked.borrow().wheels.len(), solution.packages.len());
    assert!(solution.packages.len() > 50);
}

#[test]
fn metadata_is_asked_for_once_per_package_with_pythons_to_choose_from() {
    let mut world = crowd(&[
        "cp39-cp39-manylinux_2_17_x86_64",
        "cp310-cp310-manylinux_2_17_x86_64",
        "cp311-cp311-manylinux_2_17_x86_64",
        "cp312-cp312-manylinux_2_17_x86_64",
        "cp312-cp312-win_amd64",
    ]);
    world.pythons(&["3.9.1", "3.9.2", "3.10.1", "3.11.1", "3.12.1", "3.13.1", "3.14.0"]);
    let solution = world.solve(&problem().pypi("dist0").pypi("dist7")).unwrap();
    assert_eq!(names(&solution)[0], "python=3.12.1");
    assert_eq!(world.asked.borrow().metadata.len(), solution.packages.len() - 1);
}

#[test]
fn extras_of_what_conda_provides_are_told() {
    let mut world = World::new();
    world.pythons(&["3.11.9"]);
    world.add("ray-core 2.9 py311_0", &["python 3.11.*"]);
    world.pure("app 1.0", &["ray[default]"]);
    let solution = world.solve(&problem().dep("ray-core").pypi("app")).unwrap();
    assert_eq!(names(&solution), ["python=3.11.9", "ray-core=2.9", "app==1.0"]);
    assert_eq!(
        solution.warnings,
        [
            "app 1.0 asks for ray[default], but ray comes from conda's ray-core, which does not say what its extras need, and no wheel of 2.9 does: name those packages in env.toml"
        ]
    );
}

#[test]
fn an_explicit_index_is_not_served_by_conda() {
    let mut world = World::new();
    world.pythons(&["3.11.9"]);
    world.add("pytorch 2.1.0 0", &["python"]);
    world.wheel_in(index("cu121"), "torch-2.3.0+cu121-py3-none-any.whl", &[]);
    let both = problem().dep("pytorch").pypi_from("torch", index("cu121"));
    let refused = world.refused(&both);
    assert!(refused.contains("pytorch 2.1.0 of conda provides torch"), "{refused}");
    world.chosen(&problem().pypi_from("torch", index("cu121")));
}

#[test]
fn one_file_by_its_url() {
    let mut world = World::new();
    world.wheel_in(WheelOrigin::Direct(0), "a-1.0rc1-py3-none-any.whl", &[]).yanked =
        Some(String::new());
    world.pure("a 2.0", &[]);
    world.pure("b 1.0", &["a"]);
    let problem = problem().host("3.11").pypi_from("a", WheelOrigin::Direct(0)).pypi("b");
    assert_eq!(world.chosen(&problem), ["a==1.0rc1", "b==1.0"]);
}

#[test]
fn the_error_knows_the_lines_of_env_toml() {
    let mut world = World::new();
    world.pure("a 1.0", &[]);
    world.pure("b 1.0", &["a>=2"]);
    let error = world.solve(&problem().host("3.11").pypi("a").pypi("b")).unwrap_err();
    // The second line alone is at fault.
    assert_eq!(error.span(), Some(101..102));
    assert_eq!(error.exit(), Exit::User);
}

#[test]
fn without_wheels_no_interpreter_is_needed() {
    let mut world = World::new();
    world.add("cudnn 8.9 0", &[]);
    assert_eq!(world.chosen(&problem().dep("cudnn")), ["cudnn=8.9"]);
    assert!(world.asked.borrow().wheels.is_empty());
    assert_eq!(world.chosen(&problem()), [""; 0]);
}

#[test]
fn constraints_bound_what_conda_provides() {
    let mut world = World::new();
    world.pythons(&["3.11.9"]);
    world.add("numpy 1.26 0", &["python"]);
    world.add("numpy 2.1 0", &["python"]);
    world.pure("needs 1.0", &["numpy"]);
    let bounded = problem().dep("numpy").pypi("needs").constrain("numpy", "<2");
    assert_eq!(world.chosen(&bounded), ["python=3.11.9", "numpy=1.26", "needs==1.0"]);
    let refused = world.refused(&problem().dep("numpy >=2").pypi("needs").constrain("numpy", "<2"));
    assert!(refused.contains("the constraint of env.toml on it is <2"), "{refused}");
}

#[test]
fn going_through_versions_asks_for_the_next_ones_ahead() {
    let mut world = World::new();
    for version in 1..=60 {
        world.pure(&format!("deep {version}"), &["low<1"]);
    }
    world.pure("deep 0.5", &[]);
    world.pure("low 1", &[]);
    world.pure("low 0.5", &["other"]);
    world.pure("other 1", &["low>=1"]);
    assert_eq!(world.chosen(&problem().host("3.11").pypi("deep")), ["deep==0.5"]);
    let asked = world.asked.borrow();
    let ahead = asked
        .prefetched
        .iter()
        .filter(|want| matches!(want, Want::Metadata(file) if file.file.starts_with("deep")))
        .count();
    assert!(ahead > 50, "{ahead}");
    let deep = asked.metadata.iter().filter(|file| file.starts_with("deep")).count();
    assert!(deep <= 61, "{deep}");
}
