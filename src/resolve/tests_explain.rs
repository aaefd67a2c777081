//! What the user reads when there is no answer.

use super::testing::*;
use super::*;
use crate::manifest::Prereleases;

fn host() -> Problem {
    problem().host("3.11")
}

#[test]
fn two_wheels_at_odds() {
    let mut world = World::new();
    world.pure("a 2.0", &["c<2"]);
    world.pure("a 2.1", &["c<2"]);
    world.pure("b 1.0", &["c>=2"]);
    world.pure("c 1.0", &[]);
    world.pure("c 2.0", &[]);
    let problem = host().pypi("a").pypi("b").pypi("c");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` and `b` cannot be had together on linux-64
  - env.toml asks for `a`
  - env.toml asks for `b`
  - b 1.0 needs c >=2
  - a 2.0 and 2.1 need c <2
  - there can be only one version of c

each of these works:
  - leave a out of [pypi-dependencies]
  - leave b out of [pypi-dependencies]
"#]]
    );
}

#[test]
fn a_chain_of_wheels() {
    let mut world = World::new();
    world.pure("app 1.0", &["mid>=1"]);
    world.pure("mid 1.0", &["low<2"]);
    world.pure("mid 1.5", &["low<2"]);
    world.pure("low 1.0", &[]);
    world.pure("low 2.0", &[]);
    let problem = host().pypi("app").pypi("low>=2");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`app` and `low >=2` cannot be had together on linux-64
  - env.toml asks for `app`
  - env.toml asks for `low >=2`
  - app 1.0 needs mid >=1
  - mid 1.0 and 1.5 need low <2
  - there can be only one version of low

this works: `low = "==1.0"` in [pypi-dependencies] (gives low 1.0)
"#]]
    );
}

#[test]
fn an_import_name() {
    let world = World::new();

    let problem = host().pypi("sklearn");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`sklearn` cannot be had on linux-64
  - env.toml asks for `sklearn`, but there is no distribution of this name; near to it: `scikit-learn`

if you mean `scikit-learn`, write that
"#]]
    );
}

#[test]
fn a_name_deep_down_that_is_not_there() {
    let mut world = World::new();
    world.pure("a 1.0", &["b>=1"]);
    world.pure("b 1.0", &["nowhere"]);
    let problem = host().pypi("a");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` cannot be had on linux-64
  - env.toml asks for `a`
  - a 1.0 needs b >=1
  - b 1.0 needs nowhere, but there is no distribution of this name

if the requirement on nowhere is wrong or not needed, replace or drop it in [pypi-options.dependency-overrides]
"#]]
    );
}

#[test]
fn a_misspelt_conda_name() {
    let mut world = World::new();
    world.pythons(&["3.11.9"]);
    let problem = problem().dep("pyhton");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`pyhton` cannot be had on linux-64
  - env.toml asks for `pyhton`, but no package of this name is in conda-forge or nvidia; near to it: `python`

if you mean `python`, write that
"#]]
    );
}

#[test]
fn no_such_version() {
    let mut world = World::new();
    world.pure("a 1.0", &[]);
    world.pure("a 2.0", &[]);
    let problem = host().pypi("a>=3");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a >=3` cannot be had on linux-64
  - env.toml asks for `a >=3`, but there is no such version: there are 1.0 and 2.0

this works: `a = "==2.0"` in [pypi-dependencies] (gives a 2.0)
"#]]
    );
}

#[test]
fn no_such_conda_version() {
    let mut world = World::new();
    world.pythons(&["3.9.1", "3.10.1", "3.11.1", "3.12.1", "3.13.1"]);
    let problem = problem().dep("python 3.8.*");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`python 3.8.*` cannot be had on linux-64
  - env.toml asks for `python 3.8.*`, but there is no such version: there are 5 versions, from 3.9.1 to 3.13.1

this works: `python = "3.13.*"` in [dependencies] (gives python 3.13.1)
"#]]
    );
}

#[test]
fn wheels_that_stop_at_an_older_python() {
    let mut world = World::new();
    world.pythons(&["3.11.9", "3.13.1"]);
    for minor in ["37", "38", "39", "310", "311"] {
        for version in ["2.4.2", "2.5.2"] {
            for platform in ["manylinux_2_17_x86_64", "win_amd64"] {
                world.wheel(&format!("paddle-{version}-cp{minor}-cp{minor}-{platform}.whl"), &[]);
            }
        }
    }
    let problem = problem().dep("python 3.13.*").pypi("paddle");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`paddle` cannot be had on linux-64
  - env.toml asks for `paddle`, but 2.4.2 and 2.5.2 have wheels for cp37 to cp311 only, and env.toml leaves Python 3.13

this works: `python = "3.11.*"` in [dependencies] (gives python 3.11.9)
"#]]
    );
}

#[test]
fn wheels_not_for_the_interpreter_of_the_machine() {
    let mut world = World::new();
    world.wheel("a-1.0-cp310-cp310-manylinux_2_17_x86_64.whl", &[]);
    world.pure("a 2.0", &[]).requires_python = Some(">=3.12".parse().unwrap());
    let problem = host().pypi("a");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` cannot be had on linux-64
  - env.toml asks for `a`, but 2.0 needs Python >=3.12, and the interpreter of the machine is Python 3.11; 1.0 has wheels for cp310 only, and the interpreter of the machine is Python 3.11

this works: `python = "3.12"` in [host]
"#]]
    );
}

#[test]
fn two_wheels_for_different_pythons() {
    let mut world = World::new();
    world.pythons(&["3.9.18", "3.11.9", "3.13.1"]);
    world.wheel("old-1.0-cp39-cp39-manylinux_2_17_x86_64.whl", &[]);
    world.wheel("old-1.0-cp311-cp311-manylinux_2_17_x86_64.whl", &[]);
    world.wheel("new-1.0-cp313-cp313-manylinux_2_17_x86_64.whl", &[]);
    let problem = problem().pypi("old").pypi("new");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`old` and `new` cannot be had together on linux-64
  - env.toml asks for `new`
  - env.toml asks for `old`
  - new 1.0 runs on Python 3.13 only
  - old 1.0 runs on Python 3.9 or 3.11 only
  - there can be only one version of python

each of these works:
  - leave old out of [pypi-dependencies]
  - leave new out of [pypi-dependencies]
"#]]
    );
}

#[test]
fn a_requirement_on_one_python_only() {
    let mut world = World::new();
    world.pythons(&["3.9.18", "3.12.1", "3.13.1"]);
    world.pure("a 1.0", &["b>=2; python_version >= '3.12'"]);
    world.pure("b 1.0", &[]);
    world.wheel("c-1.0-cp312-abi3-manylinux_2_17_x86_64.whl", &[]);
    let problem = problem().pypi("a").pypi("b").pypi("c");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` and `c` cannot be had together on linux-64
  - env.toml asks for `a`
  - env.toml asks for `c`
  - c 1.0 runs on Python 3.12 or 3.13 only
  - a 1.0 needs b >=2 on Python 3.12 or 3.13, but there is no such version: there is only 1.0
  - there can be only one version of python

each of these works:
  - leave a out of [pypi-dependencies]
  - leave c out of [pypi-dependencies]
if the requirement on b is wrong or not needed, replace or drop it in [pypi-options.dependency-overrides]
"#]]
    );
}

#[test]
fn an_extra_at_odds() {
    let mut world = World::new();
    world.pure("a 1.0", &["b>=2; extra == 'fast'"]);
    world.pure("b 1.0", &[]);
    world.pure("b 2.0", &[]);
    let problem = host().pypi("a[fast]").pypi("b<2");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a[fast]` and `b <2` cannot be had together on linux-64
  - env.toml asks for `a[fast]`
  - env.toml asks for `b <2`
  - a 1.0 needs b >=2 for its extra `fast`
  - there can be only one version of b

this works: `b = "==2.0"` in [pypi-dependencies] (gives b 2.0)
"#]]
    );
}

#[test]
fn a_glibc_too_old() {
    let mut world = World::new();
    world.wheel("a-1.0-cp311-cp311-manylinux_2_34_x86_64.whl", &[]);
    let problem = host().pypi("a");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` cannot be had on linux-64
  - env.toml asks for `a`, but 1.0 needs glibc 2.34, and env.toml promises 2.28

this works: `libc = "2.34"` in [system-requirements], if all machines have that
"#]]
    );
}

#[test]
fn another_platform() {
    let mut world = World::new();
    world.wheel("a-1.0-cp311-cp311-macosx_11_0_arm64.whl", &[]);
    let problem = host().pypi("a");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` cannot be had on linux-64
  - env.toml asks for `a`, but 1.0 has no wheel for linux-64 (but for macosx_11_0_arm64)

choose a version of a that has wheels for linux-64, or a conda package of it; or leave linux-64 out of platforms
"#]]
    );
}

#[test]
fn only_sources() {
    let mut world = World::new();
    world.listing("a").sdist_only = vec!["1.0".parse().unwrap(), "1.1".parse().unwrap()];
    let problem = host().pypi("a");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` cannot be had on linux-64
  - env.toml asks for `a`, but 1.0 and 1.1 are there only as source

choose a version of a that has wheels, or a conda package of it: gpuenv does not build from source
"#]]
    );
}

#[test]
fn unreadable_files() {
    let mut world = World::new();
    world.listing("a").skipped =
        vec![("a-1.0-foo.whl".to_owned(), "its name has too few parts".to_owned())];
    let problem = host().pypi("a");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` cannot be had on linux-64
  - env.toml asks for `a`, but 1.0 cannot be read (a-1.0-foo.whl: its name has too few parts)

change or remove `a` in env.toml
"#]]
    );
}

#[test]
fn unusable_metadata() {
    let mut world = World::new();
    world.pure("a 1.0", &[]);
    let why = "its requirement `k (>=9.0.0a1.0)` cannot be read";
    world.spoil("a-1.0-py3-none-any.whl", ProviderError::Unusable(why.to_owned()));
    let problem = host().pypi("a");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` cannot be had on linux-64
  - env.toml asks for `a`
  - a 1.0 cannot be used: its requirement `k (>=9.0.0a1.0)` cannot be read

change or remove `a` in env.toml
"#]]
    );
}

#[test]
fn yanked() {
    let mut world = World::new();
    world.pure("a 1.0", &[]).yanked = Some("bad build".to_owned());
    let problem = host().pypi("a");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` cannot be had on linux-64
  - env.toml asks for `a`, but 1.0 is yanked (bad build)

this works: `a = "==1.0"` in [pypi-dependencies], which takes the yanked version
"#]]
    );
}

#[test]
fn only_prereleases_and_none_allowed() {
    let mut world = World::new();
    world.pure("a 1.0rc1", &[]);
    let mut never = host().pypi("a");
    never.prereleases = Prereleases::Disallow;
    let problem = never;
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` cannot be had on linux-64
  - env.toml asks for `a`, but 1.0rc1 is a pre-release

this works: `prereleases = "allow"` in [pypi-options]
"#]]
    );
}

#[test]
fn outside_a_constraint() {
    let mut world = World::new();
    world.pure("a 2.0", &[]);
    let problem = host().pypi("a").constrain("a", "<2");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` cannot be had on linux-64
  - env.toml asks for `a`, but 2.0 is outside the constraint <2 of env.toml

this works: a constraint on a in [pypi-options.constraints] that 2.0 satisfies, or none
"#]]
    );
}

#[test]
fn a_url_that_env_toml_does_not_name() {
    let mut world = World::new();
    world.pure("a 1.0", &["b @ https://wheels.example.invalid/b-1.0-py3-none-any.whl"]);
    let problem = host().pypi("a");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a` cannot be had on linux-64
  - env.toml asks for `a`
  - a 1.0 cannot be used: it needs b from https://wheels.example.invalid/b-1.0-py3-none-any.whl, a place that env.toml does not name

name the URL in [pypi-dependencies], or replace the requirement in [pypi-options.dependency-overrides]
"#]]
    );
}

#[test]
fn a_url_behind_an_extra() {
    let mut world = World::new();
    world.pure(
        "a 1.0",
        &["b @ https://wheels.example.invalid/b-1.0-py3-none-any.whl ; extra == 'net'"],
    );
    let problem = host().pypi("a[net]");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`a[net]` cannot be had on linux-64
  - env.toml asks for `a[net]`
  - a 1.0 cannot be used for its extra `net`: it needs b from https://wheels.example.invalid/b-1.0-py3-none-any.whl, a place that env.toml does not name

name the URL in [pypi-dependencies], or replace the requirement in [pypi-options.dependency-overrides]
"#]]
    );
}

#[test]
fn conda_and_wheel_of_one_distribution() {
    let mut world = World::new();
    world.pythons(&["3.11.9"]);
    world.add("numpy 1.26.4 py311_0", &["python >=3.11,<3.12.0a0"]);
    world.add("pandas 2.2.0 py311_0", &["python >=3.11,<3.12.0a0", "numpy >=1.20"]);
    world.pure("needs 1.0", &["numpy>=2"]);
    world.pure("numpy 2.1.0", &[]);
    let problem = problem().dep("pandas").pypi("needs");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`pandas` and `needs` cannot be had together on linux-64
  - env.toml asks for `needs`
  - env.toml asks for `pandas`
  - needs 1.0 needs numpy >=2
  - pandas 2.2.0 needs numpy >=1.20
  - numpy 1.26.4 of conda provides numpy: a wheel of it cannot be beside it

each of these works:
  - leave pandas out of [dependencies]
  - leave needs out of [pypi-dependencies]
take numpy from one side: leave it out of [pypi-dependencies], or take the conda packages that need it as wheels; if conda's package does not really provide it, say so in [conda-pypi-map]
"#]]
    );
}

#[test]
fn no_gpu_declared() {
    let mut world = World::new();
    world.add("torch 2.0 cuda_1", &["__cuda >=12"]);
    world.add("torch 2.1 cuda_1", &["__cuda >=12"]);
    world.add("torch 2.1 other_0", &["mkl"]);
    let problem = problem().dep("torch");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`torch` cannot be had on linux-64
  - env.toml asks for `torch`
  - some builds of torch 2.0 and 2.1 need __cuda >=12, but env.toml declares no GPU
  - torch 2.1 (build other_0) needs mkl, but no package of this name is in conda-forge or nvidia

add a channel that has mkl
declare the GPU in env.toml: [gpu] with cuda (and driver)
"#]]
    );
}

#[test]
fn no_such_build() {
    let mut world = World::new();
    world.add("torch 2.0 cuda_1", &[]);
    world.add("torch 2.1 cuda_1", &[]);
    world.add("torch 2.1 cpu_0", &[]);
    snapbox::assert_data_eq!(
        world.refused(&problem().dep("torch 2.1 rocm*")),
        snapbox::str![[r#"
`torch ==2.1 rocm*` cannot be had on linux-64
  - env.toml asks for `torch ==2.1 rocm*`, but there is no such build: 2.1 has cpu_0 and cuda_1

this works: another build of torch: `torch = "==2.1"` in [dependencies]
"#]]
    );
}

#[test]
fn a_dependency_names_a_channel_that_is_not_there() {
    let mut world = World::new();
    world.add("app 1.0 0", &["lab::torch >=1"]);
    world.add("torch 2.1 cpu_0", &[]);
    snapbox::assert_data_eq!(
        world.refused(&problem().dep("app")),
        snapbox::str![[r#"
`app` cannot be had on linux-64
  - env.toml asks for `app`
  - app 1.0 needs torch >=1[channel="lab"], but torch comes from conda-forge or nvidia, not from a channel lab

add lab to channels in env.toml: a requirement that names a channel takes nothing from another
"#]]
    );
}

#[test]
fn kernel_and_processor_are_promised_in_env_toml() {
    let mut world = World::new();
    world.add("fresh 1.0 0", &["__linux >=5.10"]);
    let mut old = problem().dep("fresh");
    old.virtual_packages.retain(|package| package.name.as_normalized() != "__linux");
    old.virtual_packages.push(virtual_package("__linux", "4.18"));
    snapbox::assert_data_eq!(
        world.refused(&old),
        snapbox::str![[r#"
`fresh` cannot be had on linux-64
  - env.toml asks for `fresh`
  - fresh 1.0 needs __linux >=5.10, but env.toml promises Linux 4.18

raise linux in [system-requirements], if all machines have it
"#]]
    );
}

#[test]
fn a_driver_too_old() {
    let mut world = World::new();
    world.add("torch 2.0 cuda_1", &["__cuda >=12"]);
    let mut gpu = problem().dep("torch");
    gpu.virtual_packages.push(virtual_package("__cuda", "11.2"));
    let problem = gpu;
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`torch` cannot be had on linux-64
  - env.toml asks for `torch`
  - torch 2.0 needs __cuda >=12, but env.toml declares CUDA 11.2 ([gpu] cuda)

raise gpu.cuda in env.toml, if the drivers of the machines run it
"#]]
    );
}

#[test]
fn conda_packages_that_exclude_each_other() {
    let mut world = World::new();
    world.add("pandas 2.2.0 0", &[]);
    world.add("shim 1.0 0", &[]).constrains = vec!["pandas <2".to_owned()];
    let problem = problem().dep("pandas").dep("shim");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`pandas` and `shim` cannot be had together on linux-64
  - env.toml asks for `pandas`
  - env.toml asks for `shim`
  - shim 1.0 works only with pandas <2, not with pandas 2.2.0

each of these works:
  - leave pandas out of [dependencies]
  - leave shim out of [dependencies]
"#]]
    );
}

#[test]
fn a_channel_further_back() {
    let mut world = World::new();
    world.add_in("conda-forge", "cudnn 8.9 0", &[]);
    world.add_in("nvidia", "cudnn 9.3 0", &[]);
    let problem = problem().dep("cudnn >=9");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`cudnn >=9` cannot be had on linux-64
  - env.toml asks for `cudnn >=9`, but only nvidia has it (9.3), and conda-forge comes before nvidia and has the name (channels are strict)

each of these works:
  - `cudnn = { version = "==9.3", channel = "nvidia" }` in [dependencies]
  - `cudnn = "==8.9"` in [dependencies] (gives cudnn 8.9)
"#]]
    );
}

#[test]
fn conda_python_beside_the_interpreter_of_the_machine() {
    let mut world = World::new();
    world.pythons(&["3.12.1"]);
    world.add("tool 1.0 0", &["python >=3.12"]);
    let problem = host().dep("tool");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`tool` cannot be had on linux-64
  - env.toml asks for `tool`
  - tool 1.0 needs python >=3.12, but the interpreter of the machine is declared as 3.11

this works: `python = "3.12"` in [host]
"#]]
    );
}

#[test]
fn many_versions_with_as_many_bounds() {
    let mut world = World::new();
    for minor in 0..30 {
        world.pure(&format!("many 1.{minor}"), &[&format!("dep=={minor}")]);
    }
    for version in 40..45 {
        world.pure(&format!("dep {version}"), &[]);
    }
    let problem = host().pypi("many");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
`many` cannot be had on linux-64
  - env.toml asks for `many`
  - every many to be had (1.0 to 1.29) needs dep ==0, dep ==1, dep ==2 and 27 more, but there is no such version: there are 5 versions, from 40 to 44

if the requirement on dep is wrong or not needed, replace or drop it in [pypi-options.dependency-overrides]
"#]]
    );
}

#[test]
fn wheels_without_any_python() {
    let mut world = World::new();
    world.pure("a 1.0", &[]);
    let problem = problem().pypi("a");
    snapbox::assert_data_eq!(
        world.refused(&problem),
        snapbox::str![[r#"
nothing can be installed on linux-64
  - gpuenv asks for python (wheels need an interpreter), but no package of this name is in conda-forge or nvidia

add a channel that has python
"#]]
    );
}
