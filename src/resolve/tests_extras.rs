//! Extras of distributions that conda provides.

use super::testing::*;
use super::*;

fn world() -> World {
    let mut world = World::new();
    world.pythons(&["3.11.9"]);
    world.add("uvicorn 0.29.0 pyh_0", &["python", "click"]);
    world.add("uvicorn 0.30.0 pyh_0", &["python", "click"]);
    world.add("click 8.1 0", &["python"]);
    for version in ["0.29.0", "0.30.0", "0.31.0"] {
        world.pure(
            &format!("uvicorn {version}"),
            &[
                "click>=7",
                "h11",
                "websockets>=10; extra == 'standard'",
                "colorama; sys_platform == 'win32' and extra == 'standard'",
                "uvicorn[standard]; extra == 'all'",
                "extra-only; extra == 'all'",
            ],
        );
    }
    world.pure("websockets 9.0", &[]);
    world.pure("websockets 12.0", &["deep"]);
    world.pure("deep 1.0", &[]);
    world.pure("extra-only 1.0", &[]);
    world.pure("app 1.0", &["uvicorn"]);
    world.pure("served 1.0", &["uvicorn[standard]>=0.29"]);
    world
}

#[test]
fn come_from_a_wheel_of_the_version() {
    let world = world();
    let solution = world.solve(&problem().dep("uvicorn").pypi("served")).unwrap();
    assert_eq!(
        names(&solution),
        [
            "python=3.11.9",
            "click=8.1",
            "deep==1.0",
            "websockets==12.0",
            "uvicorn=0.30.0",
            "served==1.0"
        ]
    );
    assert_eq!(solution.warnings, Vec::<String>::new());
    let uvicorn = solution
        .packages
        .iter()
        .find(|chosen| key(chosen) == Key::Conda(conda_name("uvicorn")))
        .unwrap();
    assert!(uvicorn.edges.contains(&Key::Wheel(dist("websockets"))));
    assert!(uvicorn.requires.iter().any(|line| line.starts_with("websockets>=10")));
    let asked = world.asked.borrow();
    let of_uvicorn: Vec<_> = asked.metadata.iter().filter(|f| f.starts_with("uvicorn")).collect();
    assert_eq!(of_uvicorn, ["uvicorn-0.30.0-py3-none-any.whl"]);
}

#[test]
fn are_not_asked_for_where_none_is_wanted() {
    let world = world();
    assert_eq!(
        world.chosen(&problem().dep("uvicorn").pypi("app")),
        ["python=3.11.9", "click=8.1", "uvicorn=0.30.0", "app==1.0"]
    );
    assert!(!world.asked.borrow().metadata.iter().any(|file| file.starts_with("uvicorn")));
}

#[test]
fn of_themselves_and_from_env_toml() {
    let world = world();
    let chosen = world.chosen(&problem().dep("uvicorn <0.30").pypi("uvicorn[all]"));
    for name in ["uvicorn=0.29.0", "websockets==12.0", "extra-only==1.0", "deep==1.0"] {
        assert!(chosen.contains(&name.to_owned()), "{name}: {chosen:?}");
    }
    // What the wheel needs without an extra is conda's business.
    assert!(!chosen.iter().any(|name| name.starts_with("h11")), "{chosen:?}");
}

#[test]
fn hold_against_other_requirements() {
    let world = world();
    // The extra needs websockets >=10.
    let refused =
        world.refused(&problem().dep("uvicorn").pypi("uvicorn[standard]").pypi("websockets<10"));
    assert!(refused.contains("websockets >=10"), "{refused}");
    assert!(refused.contains("extra `standard`"), "{refused}");
    let free = problem().dep("uvicorn").pypi("uvicorn").pypi("websockets<10");
    assert!(world.chosen(&free).contains(&"websockets==9.0".to_owned()));
}

/// A conda package can be what an extra needs.
#[test]
fn may_come_from_conda_again() {
    let mut world = world();
    world.add("websockets 11.0 0", &["python"]);
    let chosen = world.chosen(&problem().dep("uvicorn").dep("websockets").pypi("served"));
    assert!(chosen.contains(&"websockets=11.0".to_owned()), "{chosen:?}");
    assert!(!chosen.contains(&"websockets==12.0".to_owned()), "{chosen:?}");
}

#[test]
fn that_there_are_none_is_told() {
    let world = world();
    let solution = world.solve(&problem().dep("uvicorn").pypi("uvicorn[nothing]")).unwrap();
    assert_eq!(solution.warnings, ["uvicorn 0.30.0 has no extra `nothing`; it is ignored"]);
    // A wheel of another platform tells as well.
    let mut other = World::new();
    other.pythons(&["3.11.9"]);
    other.add("a 1.0 0", &["python"]);
    other.wheel("a-1.0-cp311-cp311-win_amd64.whl", &["b; extra == 'x'"]);
    other.pure("b 1.0", &[]);
    let chosen = other.chosen(&problem().dep("a").pypi("a[x]"));
    assert!(chosen.contains(&"b==1.0".to_owned()), "{chosen:?}");
    // Metadata that cannot be read does not.
    other.spoil("a-1.0-cp311-cp311-win_amd64.whl", ProviderError::Unusable("bad".to_owned()));
    let solution = other.solve(&problem().dep("a").pypi("a[x]")).unwrap();
    assert!(solution.warnings[0].contains("no wheel of 1.0 does"), "{:?}", solution.warnings);
}
