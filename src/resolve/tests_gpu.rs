//! CUDA lines, cuDNN, drivers and GPUs in the solve.

use rattler_conda_types::Subdir;

use super::gpu::{FACTS, Line};
use super::problem::{Asker, GpuTarget, Problem};
use super::testing::{Build, World, index, names, problem, virtual_package};

/// A problem with `[gpu]`.
fn gpu(cuda: (u16, u16)) -> Problem {
    let mut problem = problem().host("3.11");
    problem.virtual_packages.push(virtual_package("__cuda", &format!("{}.{}", cuda.0, cuda.1)));
    problem.gpu = Some(GpuTarget {
        cuda,
        driver: None,
        archs: Vec::new(),
        mixed: false,
        asker: Asker::Manifest(50..51),
    });
    problem
}

fn cpu() -> Problem {
    problem().host("3.11")
}

fn wheel(world: &mut World, wheel: &str, requires: &[&str]) {
    let (name, version) = wheel.split_once(' ').unwrap();
    let name = name.replace('-', "_");
    world.wheel(&format!("{name}-{version}-cp311-cp311-manylinux1_x86_64.whl"), requires);
}

/// What paddlepaddle-gpu 2.6.2 opens, as wheels.
fn paddle_world() -> World {
    let mut world = World::new();
    wheel(&mut world, "paddlepaddle-gpu 2.6.2", &["numpy"]);
    world.pure("numpy 1.26.4", &[]);
    for major in ["11", "12"] {
        for name in ["cublas", "cufft", "curand", "cusolver", "cusparse", "cuda-nvrtc", "nccl"] {
            wheel(&mut world, &format!("nvidia-{name}-cu{major} {major}.12"), &[]);
        }
        for version in ["8.5.0.96", "8.9.5.29", "9.1.0.70"] {
            wheel(&mut world, &format!("nvidia-cudnn-cu{major} {version}"), &[]);
        }
    }
    world
}

#[test]
fn the_shipped_facts_can_be_read() {
    // An unreadable file would leave the table empty.
    assert!(FACTS.floor(12).is_some() && FACTS.shipped((12, 4)).is_some());
    assert!(
        FACTS.wheel(&"torch-2.5.1-cp311-cp311-manylinux1_x86_64.whl".parse().unwrap()).is_some()
    );
    assert_eq!(FACTS.faults(), Vec::<String>::new());
}

#[test]
fn lines_of_wheels() {
    let line = |name: &str, version: &str| {
        let file = format!("{name}-{version}-cp311-cp311-manylinux1_x86_64.whl");
        FACTS.line(&file.parse().unwrap())
    };
    let cuda = |major, minor| Some(Line::Cuda(major, Some(minor)));
    assert_eq!(line("torch", "2.3.0+cu121"), cuda(12, 1));
    assert_eq!(line("torch", "2.3.0+cpu"), Some(Line::Cpu));
    assert_eq!(line("torch", "1.9.0+cu92"), cuda(9, 2));
    assert_eq!(line("torch", "2.6.0"), cuda(12, 4));
    assert_eq!(line("mmcv", "2.1.0+cu118.torch2.1"), cuda(11, 8));
    assert_eq!(line("nvidia_cublas_cu12", "12.1.3.1"), cuda(12, 1));
    assert_eq!(line("nvidia_cublas", "13.0.0.19"), cuda(13, 0));
    assert_eq!(line("cupy_cuda12x", "14.2.0"), Some(Line::Cuda(12, None)));
    assert_eq!(line("cuda_toolkit", "12.1.1"), cuda(12, 1));
    assert_eq!(line("paddlepaddle_gpu", "2.5.2"), cuda(11, 8));
    assert_eq!(line("paddlepaddle_gpu", "2.5.2.post112"), cuda(11, 2));
    assert_eq!(line("paddlepaddle", "2.6.2"), Some(Line::Cpu));
    assert_eq!(line("paddlepaddle_gpu", "2.5.0"), cuda(11, 2));
    assert_eq!(line("paddlepaddle_gpu", "2.5.0.post120"), cuda(12, 0));
    assert_eq!(line("tensorflow", "2.15.1"), None);
    assert_eq!(line("tensorflow_cpu", "2.15.1"), Some(Line::Cpu));
    assert_eq!(line("torchvision", "0.15.2"), cuda(11, 7));
    assert_eq!(line("torchvision", "0.15.2+cpu"), Some(Line::Cpu));
    assert_eq!(line("torchaudio", "2.11.1"), cuda(13, 2));
    assert_eq!(line("xformers", "0.0.33"), cuda(13, 0));
    assert_eq!(line("xformers", "0.0.33.post1"), cuda(12, 8));
    assert_eq!(line("onnxruntime_gpu", "1.18.1"), Some(Line::Cuda(11, None)));
    assert_eq!(line("onnxruntime_gpu", "1.22.0"), cuda(12, 2));
    assert_eq!(line("onnxruntime", "1.22.0"), Some(Line::Cpu));
    assert_eq!(line("jax_cuda12_plugin", "0.6.2"), Some(Line::Cuda(12, None)));
    assert_eq!(line("jax_cuda12_pjrt", "0.6.2"), Some(Line::Cuda(12, None)));
    assert_eq!(line("jaxlib", "0.6.2"), None);
    assert_eq!(line("nvidia_nvvm", "13.0.48"), cuda(13, 0));
    assert_eq!(line("nvidia_cusparse", "12.7.3.1"), cuda(13, 1));
    // Before the first release that is known, or not part of the toolkit.
    assert_eq!(line("nvidia_cublas_cu11", "11.10.3.66"), Some(Line::Cuda(11, None)));
    assert_eq!(line("nvidia_cudnn_cu12", "9.8.0.87"), Some(Line::Cuda(12, None)));
    assert_eq!(line("nvidia_nvjitlink_cu12", "12.4.127"), Some(Line::Cuda(12, None)));
    assert_eq!(line("numpy", "1.26.4"), None);
}

#[test]
fn rows_are_of_wheels_for_linux_on_x86_64() {
    let line = |file: &str| FACTS.line(&file.parse().unwrap());
    assert_eq!(line("torch-2.8.0-cp311-none-macosx_11_0_arm64.whl"), None);
    assert_eq!(line("torch-2.8.0-cp311-cp311-win_amd64.whl"), None);
    assert_eq!(line("torch-2.8.0-cp311-cp311-manylinux_2_28_aarch64.whl"), None);
    assert_eq!(
        line("torch-2.8.0-cp311-cp311-manylinux_2_28_x86_64.whl"),
        Some(Line::Cuda(12, Some(8)))
    );
    // What the name says holds everywhere.
    assert_eq!(line("torch-2.8.0+cu126-cp311-cp311-win_amd64.whl"), Some(Line::Cuda(12, Some(6))));
    assert_eq!(line("paddlepaddle-2.6.2-cp311-cp311-macosx_11_0_arm64.whl"), Some(Line::Cpu));
}

#[test]
fn what_runs_without_a_gpu_is_not_ruled_out_by_one() {
    let mut world = World::new();
    wheel(&mut world, "tensorflow 2.21.0", &[]);
    let mut problem = gpu((11, 8)).pypi("tensorflow");
    problem.gpu.as_mut().unwrap().archs = vec![(5, 0)];
    assert_eq!(world.chosen(&problem), ["tensorflow==2.21.0"]);
}

#[test]
fn what_will_run_on_cpus_all_the_same_is_said() {
    let warned = |world: &mut World, problem: Problem| {
        let warnings = world.solve(&problem).unwrap().warnings;
        warnings.join("\n")
    };
    let libraries = [
        "cublas",
        "cufft",
        "curand",
        "cusolver",
        "cusparse",
        "cuda-nvrtc",
        "cuda-nvcc",
        "cuda-runtime",
        "cuda-cupti",
        "nvjitlink",
        "nccl",
        "cudnn",
    ];
    let mut world = World::new();
    let mut declared = Vec::new();
    for name in libraries {
        wheel(&mut world, &format!("nvidia-{name}-cu12 9.3"), &[]);
        declared.push(format!("nvidia-{name}-cu12; extra == 'and-cuda'"));
    }
    let declared: Vec<&str> = declared.iter().map(String::as_str).collect();
    wheel(&mut world, "tensorflow 2.21.0", &declared);
    let alone = warned(&mut world, gpu((12, 4)).pypi("tensorflow"));
    assert_eq!(
        alone,
        "tensorflow 2.21.0 will run on CPUs: nothing brings cublas, cufft, cusolver, cusparse and 2 more of CUDA 12, which it opens; ask for tensorflow[and-cuda]"
    );
    assert_eq!(warned(&mut world, gpu((12, 5)).pypi("tensorflow[and-cuda]")), "");
    assert_eq!(warned(&mut world, cpu().pypi("tensorflow")), "");
    let major = warned(&mut world, gpu((11, 8)).pypi("tensorflow"));
    assert!(
        major.contains("it uses GPUs through CUDA 12, and [gpu] says `cuda = \"11.8\"`"),
        "{major}"
    );
    let mut old = gpu((12, 5)).pypi("tensorflow[and-cuda]");
    old.gpu.as_mut().unwrap().archs = vec![(5, 2)];
    let old = warned(&mut world, old);
    assert!(old.contains("on CPUs where the GPU is of compute capability 5.2"), "{old}");
}

#[test]
fn one_thing_in_two_builds_is_said() {
    let mut world = World::new();
    wheel(&mut world, "onnxruntime 1.19.2", &[]);
    wheel(&mut world, "rapidocr 1", &["onnxruntime"]);
    wheel(&mut world, "onnxruntime-gpu 1.0", &[]);
    let both = world.solve(&cpu().pypi("rapidocr").pypi("onnxruntime-gpu")).unwrap();
    assert!(
        both.warnings[0].starts_with(
            "onnxruntime-gpu 1.0 and onnxruntime 1.19.2 are one package in two builds"
        ),
        "{:?}",
        both.warnings
    );
    let one = world.solve(&gpu((12, 4)).pypi("rapidocr")).unwrap();
    assert_eq!(
        one.warnings,
        ["env.toml has [gpu], but onnxruntime 1.19.2 is for CPUs; onnxruntime-gpu is for GPUs"]
    );
}

#[test]
fn libraries_of_the_release_a_wheel_was_built_with_or_newer() {
    let mut world = World::new();
    wheel(&mut world, "onnxruntime-gpu 1.22.0", &[]);
    for (name, versions) in [
        ("cublas", ["12.1.3.1", "12.2.1.16"]),
        ("cufft", ["11.0.2.54", "11.0.8.15"]),
        ("curand", ["10.3.2.106", "10.3.3.53"]),
        ("cuda-nvrtc", ["12.1.105", "12.2.91"]),
        ("cuda-runtime", ["12.1.105", "12.2.53"]),
        ("cudnn", ["8.9.7.29", "9.1.0.70"]),
    ] {
        for version in versions {
            wheel(&mut world, &format!("nvidia-{name}-cu12 {version}"), &[]);
        }
    }
    let chosen = world.chosen(&gpu((12, 2)).pypi("onnxruntime-gpu"));
    assert!(chosen.contains(&"nvidia-cuda-runtime-cu12==12.2.53".to_owned()), "{chosen:?}");
    assert!(chosen.contains(&"nvidia-cudnn-cu12==9.1.0.70".to_owned()), "{chosen:?}");
    // Of what is newer, the nearest line to the declared one.
    for version in ["12.3.101", "12.4.99", "12.9.79"] {
        wheel(&mut world, &format!("nvidia-cuda-runtime-cu12 {version}"), &[]);
    }
    let chosen = world.chosen(&gpu((12, 4)).pypi("onnxruntime-gpu"));
    assert!(chosen.contains(&"nvidia-cuda-runtime-cu12==12.4.99".to_owned()), "{chosen:?}");
    // Older than what it was built with.
    let refused =
        world.refused(&gpu((12, 2)).pypi("onnxruntime-gpu").pypi("nvidia-cufft-cu12<11.0.8"));
    assert!(refused.contains("nvidia-cufft-cu12"), "{refused}");
}

#[test]
fn what_a_wheel_opens_is_added_and_said() {
    for problem in [cpu(), gpu((11, 8))] {
        let solution = paddle_world().solve(&problem.pypi("paddlepaddle-gpu==2.6.2")).unwrap();
        let chosen = names(&solution);
        assert!(chosen.contains(&"nvidia-cudnn-cu11==8.9.5.29".to_owned()), "{chosen:?}");
        assert!(chosen.contains(&"nvidia-cublas-cu11==11.12".to_owned()), "{chosen:?}");
        assert_eq!(chosen.len(), 10, "{chosen:?}");
        assert!(solution.notes.contains(
            &"added nvidia-cudnn-cu11, because paddlepaddle-gpu 2.6.2 opens libcudnn.so without declaring it"
                .to_owned()
        ));
    }
}

#[test]
fn what_an_extra_declares_was_not_added() {
    let mut world = World::new();
    let libraries = [
        "cublas",
        "cufft",
        "cusolver",
        "cusparse",
        "cuda-nvrtc",
        "cuda-nvcc",
        "cuda-runtime",
        "cuda-cupti",
        "nvjitlink",
        "nccl",
        "nvshmem",
        "cudnn",
    ];
    let mut declared = Vec::new();
    for name in libraries {
        wheel(&mut world, &format!("nvidia-{name}-cu12 12.9"), &[]);
        declared.push(format!("nvidia-{name}-cu12; extra == 'with-cuda'"));
    }
    let declared: Vec<&str> = declared.iter().map(String::as_str).collect();
    for version in ["9.8.0.87", "8.9.7.29"] {
        wheel(&mut world, &format!("nvidia-cudnn-cu12 {version}"), &[]);
    }
    wheel(&mut world, "jax-cuda12-plugin 0.8.2", &declared);
    let with = world.solve(&gpu((12, 4)).pypi("jax-cuda12-plugin[with-cuda]")).unwrap();
    assert_eq!(with.notes, Vec::<String>::new());
    // Without the extra it needs them all the same.
    let without = world.solve(&gpu((12, 4)).pypi("jax-cuda12-plugin")).unwrap();
    assert_eq!(names(&with).len(), names(&without).len());
    assert_eq!(without.notes.len(), libraries.len(), "{:?}", without.notes);
    assert!(names(&with).contains(&"nvidia-cudnn-cu12==9.8.0.87".to_owned()));
}

#[test]
fn an_override_drops_what_would_be_added() {
    let mut problem = cpu().pypi("paddlepaddle-gpu==2.6.2");
    let drop = crate::manifest::DependencyOverride::Drop;
    problem.overrides.insert(super::testing::dist("nvidia-nccl-cu11"), drop);
    let chosen = paddle_world().chosen(&problem);
    assert!(!chosen.iter().any(|name| name.contains("nccl")), "{chosen:?}");
}

#[test]
fn conda_packages_of_env_toml_serve_what_a_wheel_opens() {
    let mut world = paddle_world();
    world.add("cudatoolkit 11.8.0 h0_0", &[]);
    world.add("cudnn 8.8.0.121 h0_0", &["cudatoolkit 11.*"]);
    world.add("cudnn 9.3.0.75 h0_0", &["cudatoolkit 11.*"]);
    world.add("nccl 2.18 h0_0", &[]);
    let problem =
        gpu((11, 8)).dep("cudatoolkit").dep("cudnn").dep("nccl").pypi("paddlepaddle-gpu==2.6.2");
    let chosen = world.chosen(&problem);
    assert!(chosen.contains(&"cudnn=8.8.0.121".to_owned()), "{chosen:?}");
    assert!(!chosen.iter().any(|name| name.starts_with("nvidia-")), "{chosen:?}");
}

#[test]
fn the_declared_line_decides_between_builds() {
    let mut world = paddle_world();
    for version in ["2.5.2", "2.5.2.post112", "2.5.2.post116"] {
        wheel(&mut world, &format!("paddlepaddle-gpu {version}"), &[]);
    }
    let chosen = |problem: Problem| {
        let all = world.chosen(&problem);
        all.into_iter().find(|name| name.starts_with("paddle")).unwrap()
    };
    // A bound that both fit: the build of the line, not the highest post release.
    assert_eq!(
        chosen(gpu((11, 2)).pypi("paddlepaddle-gpu>=2.5,<2.6")),
        "paddlepaddle-gpu==2.5.2.post112"
    );
    assert_eq!(
        chosen(gpu((11, 7)).pypi("paddlepaddle-gpu>=2.5,<2.6")),
        "paddlepaddle-gpu==2.5.2.post116"
    );
    assert_eq!(chosen(gpu((11, 8)).pypi("paddlepaddle-gpu>=2.5,<2.6")), "paddlepaddle-gpu==2.5.2");
    // `==2.5.2` means 2.5.2 (PEP 440).
    assert_eq!(chosen(gpu((11, 2)).pypi("paddlepaddle-gpu==2.5.2")), "paddlepaddle-gpu==2.5.2");
}

#[test]
fn a_newer_minor_is_taken_last_and_with_a_warning() {
    let mut world = World::new();
    for version in ["2.6.0", "2.8.0", "2.12.0"] {
        wheel(&mut world, &format!("torch {version}"), &[]);
    }
    assert_eq!(world.chosen(&gpu((12, 4)).pypi("torch")), ["torch==2.6.0"]);
    let solution = world.solve(&gpu((12, 4)).pypi("torch==2.8.0")).unwrap();
    assert!(solution.warnings[0].contains("torch 2.8.0 (CUDA 12.8)"), "{:?}", solution.warnings);
    let refused = world.refused(&gpu((12, 4)).pypi("torch==2.12.0"));
    assert!(refused.contains("torch 2.12.0 is for CUDA 13.0"), "{refused}");
    assert!(refused.contains("[gpu] cuda = \"12.4\""), "{refused}");
}

#[test]
fn builds_for_cpus_come_first_without_gpu_and_never_silently_with_it() {
    let mut world = World::new();
    for version in ["2.3.0+cpu", "2.3.0+cu121", "2.3.0+cu118"] {
        wheel(&mut world, &format!("torch {version}"), &[]);
    }
    assert_eq!(world.chosen(&cpu().pypi("torch")), ["torch==2.3.0+cpu"]);
    assert_eq!(world.chosen(&gpu((12, 1)).pypi("torch")), ["torch==2.3.0+cu121"]);
    assert_eq!(world.chosen(&gpu((11, 8)).pypi("torch")), ["torch==2.3.0+cu118"]);
    let solution = world.solve(&gpu((11, 8)).pypi("torch==2.3.0+cpu")).unwrap();
    assert_eq!(names(&solution), ["torch==2.3.0+cpu"]);
    assert!(
        solution.warnings[0].contains("torch 2.3.0+cpu is for CPUs"),
        "{:?}",
        solution.warnings
    );
    let mut world = World::new();
    wheel(&mut world, "torch 2.3.0+cpu", &[]);
    let refused = world.refused(&gpu((12, 1)).pypi("torch"));
    assert!(refused.contains("is a build for CPUs, and env.toml has [gpu]"), "{refused}");
}

#[test]
fn conda_builds_for_cpus_are_not_taken_silently() {
    let mut world = World::new();
    world.add("pytorch 2.4.0 cpu_py311_1", &[]);
    world.add("pytorch 2.3.0 cuda120_py311_0", &["cuda-version >=12.0,<13", "__cuda"]);
    world.add("cuda-version 12.4 h0_3", &[]).constrains = vec!["__cuda >=12".to_owned()];
    let conda = |mut problem: Problem| {
        problem.host_python = None;
        problem
    };
    let on = conda(gpu((12, 4)));
    assert_eq!(world.chosen(&on.clone().dep("pytorch")), ["cuda-version=12.4", "pytorch=2.3.0"]);
    assert_eq!(world.chosen(&on.clone().dep("pytorch * cpu*")), ["pytorch=2.4.0"]);
    assert_eq!(world.chosen(&problem().dep("pytorch")), ["pytorch=2.4.0"]);
    let refused = world.refused(&on.dep("pytorch 2.4.*"));
    assert!(refused.contains("only as a build for CPUs"), "{refused}");
}

#[test]
fn one_cuda_major_in_an_environment() {
    let mut world = World::new();
    wheel(&mut world, "torch 2.1.0+cu121", &["nvidia-cudnn-cu12==8.9.2.26"]);
    wheel(&mut world, "nvidia-cudnn-cu12 8.9.2.26", &[]);
    world.add("cudatoolkit 11.8.0 h0_0", &[]);
    let both = cpu().dep("cudatoolkit 11.8.*").pypi("torch==2.1.0+cu121");
    let refused = world.refused(&both);
    assert!(refused.contains("cudatoolkit 11.8.0 is for CUDA 11.8"), "{refused}");
    assert!(refused.contains("torch 2.1.0+cu121 is for CUDA 12.1"), "{refused}");
    let mut allowed = both;
    allowed.gpu = gpu((12, 1)).gpu.map(|gpu| GpuTarget { mixed: true, ..gpu });
    assert!(world.solve(&allowed).is_ok());
}

#[test]
fn the_line_of_a_conda_build_that_depends_on_none() {
    let mut world = World::new();
    world.add("faiss-gpu 1.7.4 py3.10_hc0239a3_0_cuda11.4", &[]);
    world.add("pytorch 2.1.0 cuda118_py311_0", &["cuda-version >=11.2,<12"]);
    world.add("cuda-version 11.2 h0_3", &[]);
    world.add("cuda-version 12.4 h0_3", &[]);
    let conda = |mut problem: Problem| {
        problem.host_python = None;
        problem
    };
    let refused = world.refused(&conda(gpu((12, 4))).dep("faiss-gpu"));
    assert!(refused.contains("faiss-gpu 1.7.4 is for CUDA 11.4"), "{refused}");
    assert!(world.solve(&conda(gpu((11, 8))).dep("faiss-gpu")).is_ok());
    // What it depends on goes before what it says.
    let older = world.solve(&conda(gpu((11, 2))).dep("pytorch")).unwrap();
    assert_eq!(older.warnings, Vec::<String>::new());
}

#[test]
fn one_cudnn_major_in_an_environment() {
    let mut world = World::new();
    wheel(&mut world, "a 1", &["nvidia-cudnn-cu12<9"]);
    wheel(&mut world, "nvidia-cudnn-cu12 8.9.2.26", &[]);
    world.add("cudnn 9.3.0.75 h0_0", &[]);
    let refused = world.refused(&cpu().dep("cudnn").pypi("a"));
    assert!(refused.contains("is cuDNN 8") && refused.contains("is cuDNN 9"), "{refused}");
}

#[test]
fn a_driver_too_old_for_the_line() {
    let mut problem = gpu((12, 4));
    problem.gpu.as_mut().unwrap().driver = Some("470.82.01".parse().unwrap());
    let refused = World::new().refused(&problem);
    assert!(refused.contains("CUDA 12.4 does not run on driver 470.82.01"), "{refused}");
    assert!(refused.contains("525.60.13") && refused.contains("cuda = \"11.8\""), "{refused}");
    // Within the major it runs, with less.
    problem.gpu.as_mut().unwrap().driver = Some("535.104.05".parse().unwrap());
    let solution = World::new().solve(&problem).unwrap();
    assert!(solution.warnings[0].contains("550.54.14"), "{:?}", solution.warnings);
}

#[test]
fn a_gpu_without_kernels() {
    let mut world = World::new();
    wheel(&mut world, "torch 2.5.1", &[]);
    wheel(&mut world, "torch 2.8.0", &[]);
    let with = |archs: &[(u16, u16)]| {
        let mut problem = gpu((12, 8));
        problem.gpu.as_mut().unwrap().archs = archs.to_vec();
        problem
    };
    let refused = world.refused(&with(&[(12, 0)]).pypi("torch==2.5.1"));
    assert!(refused.contains("no code for the compute capability 12.0"), "{refused}");
    assert_eq!(world.chosen(&with(&[(12, 0)]).pypi("torch")), ["torch==2.8.0"]);
    // Code for 8.6 runs on 8.9; code for 5.0 and 6.0 is gone from 2.8.
    assert_eq!(world.chosen(&with(&[(8, 9)]).pypi("torch")), ["torch==2.8.0"]);
    assert_eq!(world.chosen(&with(&[(6, 1)]).pypi("torch")), ["torch==2.5.1"]);
}

#[test]
fn libraries_that_left_a_gpu_behind() {
    let mut world = World::new();
    wheel(&mut world, "app 1", &["nvidia-cudnn-cu12"]);
    for version in ["9.10.2.21", "9.11.0.98", "9.28.0.42"] {
        wheel(&mut world, &format!("nvidia-cudnn-cu12 {version}"), &[]);
    }
    let chosen = |device: (u16, u16)| {
        let mut problem = gpu((12, 8)).pypi("app");
        problem.gpu.as_mut().unwrap().archs = vec![device];
        world.chosen(&problem)
    };
    assert_eq!(chosen((7, 0)), ["nvidia-cudnn-cu12==9.10.2.21", "app==1"]);
    for device in [(7, 5), (8, 9), (9, 0), (10, 3), (12, 0), (12, 1)] {
        assert_eq!(chosen(device), ["nvidia-cudnn-cu12==9.28.0.42", "app==1"]);
    }
}

#[test]
fn builds_of_an_explicit_index() {
    let mut world = World::new();
    for version in ["2.3.0+cu118", "2.4.0+cu121"] {
        let file = format!("torch-{version}-cp311-cp311-linux_x86_64.whl");
        world.wheel_in(index("torch"), &file, &[]);
    }
    let problem = gpu((11, 8)).pypi_from("torch", index("torch"));
    assert_eq!(world.chosen(&problem), ["torch==2.3.0+cu118"]);
}

#[test]
fn elsewhere_nothing_is_added() {
    let mut world = paddle_world();
    world.wheel("paddlepaddle_gpu-2.6.2-cp311-cp311-win_amd64.whl", &[]);
    let mut problem = cpu().pypi("paddlepaddle-gpu==2.6.2");
    problem.platform = Subdir::Win64;
    problem.glibc = None;
    assert_eq!(world.chosen(&problem), ["paddlepaddle-gpu==2.6.2"]);
}
