//! What the user reads when there is no answer.

use super::testing::*;
use super::*;

fn show(title: &str, text: String) {
    println!("== {title}\n{text}\n");
}

#[test]
fn look() {
    let mut world = World::new();
    world.pythons(&["3.9.18", "3.11.9", "3.13.1"]);
    world.pure("a 2.0", &["c<2"]);
    world.pure("a 2.1", &["c<2"]);
    world.pure("b 1.0", &["c>=2"]);
    world.pure("c 1.0", &[]);
    world.pure("c 2.0", &[]);
    show("clash", world.refused(&problem().host("3.11").pypi("a").pypi("b").pypi("c")));
    show("unknown", world.refused(&problem().host("3.11").pypi("sklearn")));
    show("unknown deep", world.refused(&problem().dep("pyhton")));
    show("no version", world.refused(&problem().host("3.11").pypi("a>=3")));
    for m in ["37", "38", "39", "310", "311"] {
        world.wheel(&format!("paddle-2.5.2-cp{m}-cp{m}-manylinux_2_17_x86_64.whl"), &[]);
        world.wheel(&format!("paddle-2.4.2-cp{m}-cp{m}-manylinux_2_17_x86_64.whl"), &[]);
        world.wheel(&format!("paddle-2.5.2-cp{m}-cp{m}-win_amd64.whl"), &[]);
    }
    show("python static", world.refused(&problem().dep("python 3.13.*").pypi("paddle")));
    show("python host", world.refused(&problem().host("3.13").pypi("paddle==2.5.2")));
    world.wheel("new-1.0-cp313-cp313-manylinux_2_17_x86_64.whl", &[]);
    show("python clash", world.refused(&problem().pypi("paddle").pypi("new")));
    world.wheel("glibc-1.0-cp311-cp311-manylinux_2_34_x86_64.whl", &[]);
    show("glibc", world.refused(&problem().host("3.11").pypi("glibc")));
    world.listing("src").sdist_only = vec!["1.0".parse().unwrap(), "1.1".parse().unwrap()];
    show("sdist", world.refused(&problem().host("3.11").pypi("src")));
    world.wheel("mac-1.0-cp311-cp311-macosx_11_0_arm64.whl", &[]);
    show("mac", world.refused(&problem().host("3.11").pypi("mac")));
    world.add("numpy 1.26.4 py311_0", &["python >=3.11,<3.12.0a0"]);
    world.add("pandas 2.2.0 py311_0", &["python >=3.11,<3.12.0a0", "numpy >=1.20"]);
    world.pure("needs 1.0", &["numpy>=2"]);
    world.pure("numpy 2.1.0", &[]);
    show("worlds", world.refused(&problem().dep("pandas").pypi("needs")));
    world.add("torch 2.0 cuda_1", &["__cuda >=12", "cuda-version 12.*"]);
    world.add("cuda-version 12.4 0", &[]);
    show("cuda", world.refused(&problem().dep("torch")));
    world.add("shim 1.0 0", &[]).constrains = vec!["pandas <2".to_owned()];
    show("constrains", world.refused(&problem().dep("pandas").dep("shim")));
    world.add_in("conda-forge", "cudnn 8.9 0", &[]);
    world.add_in("nvidia", "cudnn 9.3 0", &[]);
    show("priority", world.refused(&problem().dep("cudnn >=9")));
    world.pure("y 1.0", &[]).yanked = Some("bad".into());
    show("yanked", world.refused(&problem().host("3.11").pypi("y")));
    for i in 0..30 {
        world.pure(&format!("many 1.{i}"), &[&format!("dep=={i}")]);
    }
    for i in 0..5 {
        world.pure(&format!("dep {}", i + 40), &[]);
    }
    show("many", world.refused(&problem().host("3.11").pypi("many")));
    show("conda deep", {
        world.add("x 1.0 0", &["w >=1"]);
        world.add("w 1.0 0", &["zzz >=2"]);
        world.refused(&problem().dep("x"))
    });
}
