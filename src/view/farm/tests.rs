use super::*;
use crate::view::plan::{OpKind, Plan, PlanError};
use crate::view::testing::{Package, Set, library};

/// An ELF file with nothing but names in it: sonames with versions.
fn versioned(soname: &str, needs: &[&str]) -> Vec<u8> {
    let mut flags = vec![format!("-Wl,-soname,{soname}")];
    let dir = tempfile::tempdir().unwrap();
    for need in needs {
        let soname = format!("-Wl,-soname,{need}");
        let all = ["-shared", "-fPIC", &soname].map(str::to_owned);
        crate::view::testing::compile(dir.path(), "", need, &all);
        flags.push(format!("./{need}"));
    }
    flags.extend(["-shared", "-fPIC", "-Wl,--no-as-needed"].map(str::to_owned));
    // Flags that concern the order come first.
    flags.rotate_right(1);
    crate::view::testing::compile(dir.path(), "", "out", &flags)
}

/// `ld/` of a plan: name → target.
fn farm_of(plan: &Plan) -> BTreeMap<String, String> {
    plan.ops
        .iter()
        .filter_map(|op| match &op.kind {
            OpKind::Symlink { target } => {
                let name = op.path.as_str().strip_prefix("ld/")?;
                Some((name.to_owned(), target.clone()))
            }
            _ => None,
        })
        .collect()
}

fn names(plan: &Plan) -> Vec<String> {
    farm_of(plan).into_keys().collect()
}

/// cuDNN 8 and what goes with it, as NVIDIA's wheels for CUDA 11 lay it out.
fn nvidia() -> Vec<Package> {
    let lib = |name: &str, part: &str, files: &[(&str, &[&str])]| {
        let mut package = Package::wheel(name).file("nvidia/__init__.py", b"");
        for (soname, needs) in files {
            let at = format!("nvidia/{part}/lib/{soname}");
            package = package.file(&at, &versioned(soname, needs));
        }
        package
    };
    vec![
        lib(
            "nvidia-cudnn-cu11",
            "cudnn",
            &[
                ("libcudnn.so.8", &[]),
                ("libcudnn_ops_infer.so.8", &["libcublas.so.11", "libcublasLt.so.11"]),
            ],
        ),
        lib(
            "nvidia-cublas-cu11",
            "cublas",
            &[("libcublas.so.11", &["libcublasLt.so.11"]), ("libcublasLt.so.11", &[])],
        ),
        lib(
            "nvidia-cuda-nvrtc-cu11",
            "cuda_nvrtc",
            &[("libnvrtc.so.11.2", &[]), ("libnvrtc-builtins.so.11.8", &[])],
        ),
        lib("nvidia-cufft-cu11", "cufft", &[("libcufft.so.10", &[])]),
    ]
}

#[test]
fn the_table_is_well_formed() {
    let table = Table::parse(include_str!("../dlopen.toml")).unwrap();
    assert!(!table.opens.is_empty() && !table.library.is_empty() && table.bare.len() == 1);
    assert!(table.opens.iter().all(|row| !row.package.is_empty() && !row.names.is_empty()));
    assert!(Table::parse("[[opens]]\nnames = []\n").is_err(), "a row names its source");
    assert!(Table::parse("[[opens]]\nname = 1\n").is_err());
}

#[test]
fn patterns_match_as_shells_do() {
    assert!(matches("libcudnn_*.so.8", "libcudnn_ops_infer.so.8"));
    assert!(matches("libx.so*", "libx.so") && matches("a*b*c", "aXbYbc"));
    assert!(!matches("libcudnn_*.so.8", "libcudnn.so.8") && !matches("a*b", "a"));
}

#[test]
fn nothing_is_in_it_where_search_paths_suffice() {
    let p = library("p", 1, &["q"], &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/../q"]);
    let p = Package::wheel("p").file("p/libp.so", &p);
    let q = Package::wheel("q").file("q/libq.so", &library("q", 1, &[], &[]));
    let plan = Set::on_host([p, q]).plan().unwrap();
    assert!(!plan.ld && names(&plan).is_empty());
}

#[test]
fn what_a_search_path_misses_is_in_it() {
    let p = library("p", 1, &["q"], &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/../elsewhere"]);
    let p = Package::wheel("p").file("p/libp.so", &p);
    let q = Package::wheel("q").file("q/libq.so", &library("q", 1, &[], &[]));
    let plan = Set::on_host([p, q]).plan().unwrap();
    let target = "../lib/python3.11/site-packages/q/libq.so".to_owned();
    assert_eq!(farm_of(&plan), [("libq.so".to_owned(), target)].into());
}

#[test]
fn rpath_is_inherited_and_runpath_is_not() {
    // a (search path to b and c) → b (none) → c.
    let set = |tags: &str| {
        let flags = [format!("-Wl,{tags},-rpath,$ORIGIN/../b:$ORIGIN/../c")];
        let a = library("a", 1, &["b"], &[&flags[0]]);
        Set::on_host([
            Package::wheel("a").file("a/liba.so", &a),
            Package::wheel("b").file("b/libb.so", &library("b", 1, &["c"], &[])),
            Package::wheel("c")
                .file("c/libc1.so", b"")
                .file("c/libc.so", &library("c", 1, &[], &[])),
        ])
    };
    assert!(names(&set("--disable-new-dtags").plan().unwrap()).is_empty());
    assert_eq!(names(&set("--enable-new-dtags").plan().unwrap()), ["libc.so"]);
}

#[test]
fn what_is_loaded_already_need_not_be_found() {
    // a (search path) → b and c; b (none) → c. The loader has c before it looks at b's needs.
    let set = |needs: &[&str]| {
        let a = library("a", 1, needs, &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/../l"]);
        Set::on_host([
            Package::wheel("a").file("a/liba.so", &a),
            Package::wheel("b").file("l/libb.so", &library("b", 1, &["q"], &[])),
            Package::wheel("q").file("l/libq.so", &library("q", 1, &[], &[])),
        ])
    };
    assert!(names(&set(&["b", "q"]).plan().unwrap()).is_empty());
    assert_eq!(names(&set(&["b"]).plan().unwrap()), ["libq.so"]);
}

#[test]
fn a_wheel_finds_what_it_holds_itself() {
    let wheel = Package::wheel("p")
        .file("p/libp.so", &library("p", 1, &["q"], &[]))
        .file("p/libq.so", &library("q", 1, &[], &[]));
    assert!(names(&Set::on_host([wheel]).plan().unwrap()).is_empty());
}

#[test]
fn the_interpreters_rpath_serves_what_it_loads() {
    let dir = tempfile::tempdir().unwrap();
    let set = |tags: &str| {
        let flags = [format!("-Wl,{tags},-rpath,$ORIGIN/../lib")];
        let main = "int main(void) { return 0; }";
        let python = crate::view::testing::compile(dir.path(), main, "python", &flags);
        Set::of([
            Package::conda("python", "3.11.9")
                .program("bin/python3.11", &python)
                .link("bin/python", "python3.11"),
            Package::conda("q", "1").file("lib/libq.so", &library("q", 1, &[], &[])),
            Package::wheel("p").file("p/libp.so", &library("p", 1, &["q"], &[])),
        ])
    };
    assert!(names(&set("--disable-new-dtags").plan().unwrap()).is_empty());
    assert_eq!(names(&set("--enable-new-dtags").plan().unwrap()), ["libq.so"]);
}

#[test]
fn nvidias_libraries_alone_are_found_by_bare_name() {
    let plan = Set::on_host(nvidia()).plan().unwrap();
    let expected = [
        "libcublas.so.11",
        "libcublasLt.so.11",
        "libcudnn.so.8",
        "libcudnn_ops_infer.so.8",
        "libcufft.so.10",
        "libnvrtc-builtins.so.11.8",
        // cuDNN 8 opens the name without a version.
        "libnvrtc.so",
        "libnvrtc.so.11.2",
    ];
    assert_eq!(names(&plan), expected);
}

#[test]
fn paddle_gets_the_unversioned_names_it_opens() {
    let mut packages = nvidia();
    let flags = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN/../libs/"];
    let paddle = library("paddle", 1, &[], &flags);
    let wheel = Package::wheel_of("paddlepaddle-gpu", "2.6.2");
    packages.push(wheel.file("paddle/base/libpaddle.so", &paddle));
    let plan = Set::on_host(packages).plan().unwrap();
    let farm = farm_of(&plan);
    for name in ["libcudnn.so", "libcublas.so", "libcublasLt.so", "libcufft.so", "libnvrtc.so"] {
        let target = &farm[name];
        assert!(target.starts_with("../lib/python3.11/site-packages/nvidia/"), "{name}: {target}");
    }
    // Closed under what those need and open.
    assert!(farm.contains_key("libcudnn_ops_infer.so.8") && farm.contains_key("libcublas.so.11"));
    assert!(farm.contains_key("libnvrtc-builtins.so.11.8"));
}

#[test]
fn paddle_takes_condas_names_where_they_are() {
    let cudnn = versioned("libcudnn.so.8", &[]);
    let conda = Package::conda("cudnn", "8.1.0")
        .file("lib/libcudnn.so.8.1.0", &cudnn)
        .link("lib/libcudnn.so.8", "libcudnn.so.8.1.0")
        .link("lib/libcudnn.so", "libcudnn.so.8");
    let python = Package::conda("python", "3.11.9").program("bin/python3.11", b"");
    let wheel = Package::wheel_of("paddlepaddle-gpu", "2.5.2");
    let paddle = library("paddle", 1, &[], &["-Wl,--enable-new-dtags,-rpath,$ORIGIN/../libs/"]);
    let wheel = wheel.file("paddle/fluid/libpaddle.so", &paddle);
    let plan = Set::of([python, conda, wheel]).plan().unwrap();
    let farm = farm_of(&plan);
    assert_eq!(farm["libcudnn.so"], "../lib/libcudnn.so.8.1.0");
    assert_eq!(farm.into_keys().collect::<Vec<_>>(), ["libcudnn.so", "libcudnn.so.8"]);
}

#[test]
fn torch_finds_its_own_and_the_variable_stays_unset() {
    let mut packages = nvidia();
    // In the wheels, sub-libraries find each other.
    packages[0] = Package::wheel("nvidia-cudnn-cu11")
        .file("nvidia/cudnn/lib/libcudnn.so.8", &versioned("libcudnn.so.8", &[]));
    packages[1] = Package::wheel("nvidia-cublas-cu11")
        .file("nvidia/cublas/lib/libcublas.so.11", &versioned("libcublas.so.11", &[]));
    packages.push(Package::wheel_of("torch", "2.1.0").file("torch/__init__.py", b""));
    let plan = Set::on_host(packages).plan().unwrap();
    assert!(!plan.ld, "{:?}", names(&plan));
}

#[test]
fn stubs_drivers_and_what_hosts_have_are_never_in_it() {
    let needs = ["libcuda.so.1", "libstdc++.so.6", "libssl.so.3", "libtinfo.so.6", "libz.so.1"];
    let user = Package::wheel("user").file("user/libuser.so", &versioned("libuser.so", &needs));
    let mut provider = Package::conda("all", "1").file("lib/all.txt", b"");
    for name in needs {
        provider = provider.file(&format!("lib/{name}"), &versioned(name, &[]));
    }
    for dir in ["lib/stubs", "targets/x86_64-linux/lib/stubs"] {
        let stub = versioned("libcudart.so.12", &[]);
        provider = provider.file(&format!("{dir}/libcudart.so.12"), &stub);
    }
    let mut set = Set::on_host([provider, user]);
    assert_eq!(names(&set.plan().unwrap()), ["libz.so.1"]);
    set.packages.pop();
    assert!(names(&set.plan().unwrap()).is_empty());
}

#[test]
fn two_providers_of_a_name_that_must_be_in_it_are_an_error() {
    let cudnn = |n: u8| {
        let mut bytes = versioned("libcudnn.so.8", &[]);
        bytes.push(n);
        bytes
    };
    let conda = Package::conda("cudnn", "8.1").file("lib/libcudnn.so.8", &cudnn(1));
    let wheel =
        Package::wheel("nvidia-cudnn-cu12").file("nvidia/cudnn/lib/libcudnn.so.8", &cudnn(2));
    let mut set = Set::on_host([conda, wheel]);
    let error = set.plan().unwrap_err();
    let PlanError::FarmDuplicate { name, first, second } = &error else { panic!("{error}") };
    assert_eq!(
        (&**name, &*first.package, &*second.package),
        ("libcudnn.so.8", "cudnn", "nvidia-cudnn-cu12")
    );
    set.options.allow_duplicate_sonames = vec!["libcudnn.so.8".into()];
    let farm = farm_of(&set.plan().unwrap());
    assert!(farm["libcudnn.so.8"].contains("nvidia/cudnn"), "the later in link order: {farm:?}");
}

/// As torchvision, torch, NVIDIA's wheels and triton: an extension needs a library of another
/// wheel, which finds a third's by its own search path, and a fourth keeps a copy for itself.
#[test]
fn search_path_of_a_member_says_which_of_two_providers_is_meant() {
    let cupti = |wheel: &str, value| {
        let at = format!("{wheel}/lib/libcupti.so");
        Package::wheel(wheel).file(&at, &library("cupti", value, &[], &[]))
    };
    let core = |wheel: &str, finds: &str| {
        let path = format!("-Wl,-rpath,$ORIGIN/../../{finds}/lib");
        let bytes = library(wheel, 1, &["cupti"], &[&path]);
        Package::wheel(wheel).file(&format!("{wheel}/lib/lib{wheel}.so"), &bytes)
    };
    let vision = |needs: &[&str]| {
        Package::wheel("vision").file("vision/_C.so", &library("vision", 1, needs, &[]))
    };
    for keeper_first in [true, false] {
        let mut packages = vec![cupti("nvidia", 1), core("core", "nvidia"), vision(&["core"])];
        packages.insert(if keeper_first { 0 } else { 3 }, cupti("triton", 2));
        let plan = Set::on_host(packages).plan().unwrap();
        assert_eq!(names(&plan), ["libcore.so", "libcupti.so"]);
        let farm = farm_of(&plan);
        assert!(farm["libcupti.so"].contains("nvidia/lib"), "{farm:?}");
    }
    let two = [
        cupti("nvidia", 1),
        cupti("triton", 2),
        core("core", "nvidia"),
        core("other", "triton"),
        vision(&["core", "other"]),
    ];
    let error = Set::on_host(two).plan().unwrap_err();
    assert!(matches!(error, PlanError::FarmDuplicate { .. }), "{error}");
}

#[test]
fn files_of_another_architecture_do_not_count() {
    let mut foreign = library("q", 1, &[], &[]);
    // e_machine: AArch64.
    foreign[18..20].copy_from_slice(&183u16.to_le_bytes());
    let p = Package::wheel("p").file("p/libp.so", &library("p", 1, &["q"], &[]));
    let q = Package::wheel("q").file("q/libq.so", &foreign);
    assert!(names(&Set::on_host([p, q]).plan().unwrap()).is_empty());
}
