//! `exclude-newer`.

use super::testing::*;
use super::*;
use crate::manifest::Moment;

fn millis(moment: &str) -> Option<i64> {
    Some(moment.parse::<Moment>().unwrap().millis)
}

fn dated(mut problem: Problem, moment: &str) -> Problem {
    problem.exclude_newer.all = Some(moment.parse().unwrap());
    problem
}

fn wheels() -> World {
    let mut world = World::new();
    world.pure("a 1.0", &[]).upload_time = millis("2024-04-30T12:00:00Z");
    world.pure("a 1.1", &[]).upload_time = millis("2024-05-01T23:59:59Z");
    world.pure("a 1.2", &[]).upload_time = millis("2024-05-02T00:00:00Z");
    world
}

#[test]
fn wheels_by_upload_time() {
    let world = wheels();
    let a = problem().host("3.11").pypi("a");
    assert_eq!(world.chosen(&a), ["a==1.2"]);
    assert_eq!(world.chosen(&dated(a.clone(), "2024-05-01")), ["a==1.1"]);
    assert_eq!(world.chosen(&dated(a.clone(), "2024-05-01T12:00:00Z")), ["a==1.0"]);
    let refused = world.refused(&dated(a.clone().pypi("a>=1.2"), "2024-05-01"));
    assert!(
        refused.contains("1.2 was uploaded 2024-05-02, after exclude-newer 2024-05-01"),
        "{refused}"
    );
    let refused = world.refused(&dated(a.clone(), "2020-01-01"));
    assert!(
        refused.contains("1.0 to 1.2 were uploaded after exclude-newer 2020-01-01"),
        "{refused}"
    );
    assert!(refused.contains("exclude-newer-package = { a = false }"), "{refused}");
    // What the old lock holds is no exception.
    let mut kept_newer = dated(a, "2024-05-01");
    kept_newer.keep.wheels.extend([kept("a-1.2-py3-none-any.whl")]);
    assert_eq!(world.chosen(&kept_newer), ["a==1.1"]);
}

#[test]
fn a_wheel_without_upload_time() {
    let mut world = wheels();
    world.pure("a 2.0", &[]);
    let a = problem().host("3.11").pypi("a");
    assert_eq!(world.chosen(&dated(a.clone(), "2024-05-01")), ["a==1.1"]);
    let refused = world.refused(&dated(a.clone().pypi("a>=2"), "2024-05-01"));
    assert!(refused.contains("its index does not say when 2.0 was uploaded"), "{refused}");
    // From pages of links and directories, and what env.toml names.
    world.pure("a 3.0", &[]).indexed = false;
    assert_eq!(world.chosen(&dated(a, "2024-05-01")), ["a==3.0"]);
    world.wheel_in(WheelOrigin::Direct(0), "b-1.0-py3-none-any.whl", &[]);
    let direct = problem().host("3.11").pypi_from("b", WheelOrigin::Direct(0));
    assert_eq!(world.chosen(&dated(direct, "2024-05-01")), ["b==1.0"]);
}

#[test]
fn records_by_time_stamp() {
    let mut world = World::new();
    let stamp = |seconds: i64| serde_json::from_value(serde_json::json!(seconds * 1000)).unwrap();
    world.add_in("conda-forge", "a 3.0 0", &[]).timestamp = Some(stamp(1_714_608_000));
    world.add_in("nvidia", "a 1.0 0", &[]);
    world.add_in("nvidia", "a 2.0 0", &[]).timestamp = Some(stamp(1_714_607_999));
    let a = problem().dep("a");
    assert_eq!(world.chosen(&a), ["a=3.0"]);
    // Without its newest record, the first channel does not have the name.
    assert_eq!(world.chosen(&dated(a.clone(), "2024-05-01")), ["a=2.0"]);
    // A record without a time stamp is old.
    assert_eq!(world.chosen(&dated(a.clone(), "2011-01-01")), ["a=1.0"]);
    let refused = world.refused(&dated(a.clone().dep("a >=2"), "2011-01-01"));
    assert!(refused.contains("after exclude-newer 2011-01-01"), "{refused}");
}

#[test]
fn packages_of_their_own() {
    let world = wheels();
    let mut own = dated(problem().host("3.11").pypi("a"), "2020-01-01");
    own.exclude_newer.packages.insert("a".to_owned(), None);
    assert_eq!(world.chosen(&own), ["a==1.2"]);
    own.exclude_newer.packages.insert("a".to_owned(), Some("2024-05-01".parse().unwrap()));
    assert_eq!(world.chosen(&own), ["a==1.1"]);
}
