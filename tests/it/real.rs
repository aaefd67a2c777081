//! Real input: the examples of `lock-examples/` from the default wheel index, with the
//! machine's own network configuration, and real conda packages and repodata where
//! `GPUENV_TEST_DATA` (or `../shared/data`) has them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::Trial;

use crate::make::conda::{self, Package};
use crate::make::python;
use crate::sandbox::{Outcome, Sandbox, make_writable, run};
use crate::trial;

/// A download of some gigabytes and a training run.
const LONG: Duration = Duration::from_secs(1500);

/// The tests of this module.
pub fn trials() -> Vec<Trial> {
    let wanted = std::env::var("GPUENV_TEST_NETWORK").is_ok_and(|v| v == "1");
    let network = (!wanted).then_some("GPUENV_TEST_NETWORK=1");
    let python = python::host().is_none().then_some("python");
    let packages = data("packages").is_none().then_some("real packages");
    let repodata = data("repodata").is_none().then_some("real repodata");
    vec![
        trial("real::scientific_stack", network, scientific_stack),
        trial("real::quickstart_trains", network, || example("quickstart", "ten steps")),
        trial("real::paddle_cpu_trains", network, || example("paddle-cpu", "ten steps")),
        trial("real::paddledetection_trains", network, || {
            example("paddledetection", "parameters moved");
        }),
        trial("real::paddle_gpu_trains", network, || example("paddle-gpu", "cuDNN 8600")),
        trial("real::torch_cu121_trains", network, || example("torch-cu121", "torch 2.1.0+cu121")),
        trial("real::cudnn_cu11_by_bare_soname", network, || cudnn("cu11", "==8.6.0.163", "8600")),
        trial("real::cudnn_cu12_by_bare_soname", network, || cudnn("cu12", "==8.9.2.26", "8902")),
        trial("real::examples_lock_again", None, examples_lock_again),
        trial("real::zlib_channel", packages.or(python), zlib_channel),
        trial("real::odd_conda_archives", packages, odd_conda_archives),
        trial("real::conda_forge_solve", repodata, conda_forge_solve),
    ]
}

/// `GPUENV_TEST_DATA/NAME`, else `../shared/data/NAME`.
fn data(name: &str) -> Option<PathBuf> {
    let root = match std::env::var_os("GPUENV_TEST_DATA") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("shared/data"),
    };
    let path = root.join(name).canonicalize().ok()?;
    path.is_dir().then_some(path)
}

/// Where the downloads of one run of the network tests lie.
fn network_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let root = root.canonicalize().unwrap_or_else(|_| root.into());
    root.join(format!("network-{}", std::process::id()))
}

/// Removes what the network tests downloaded.
pub fn clean_up() {
    let dir = network_dir();
    if dir.exists() && std::env::var_os("GPUENV_TEST_KEEP").is_none() {
        make_writable(&dir);
        // What cannot be removed stays in cargo's target directory.
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// A sandbox that reaches the default index the way this machine does: its proxies,
/// certificates and pip configuration, and no mirror. Downloads are shared by all tests.
fn online() -> Sandbox {
    let mut sandbox = Sandbox::new();
    sandbox.online = true;
    std::fs::write(&sandbox.config, "").expect("writing the configuration");
    for (name, value) in std::env::vars() {
        let upper = name.to_uppercase();
        let passed = [
            "PIP_INDEX_URL",
            "PIP_CONFIG_FILE",
            "PIP_CERT",
            "PIP_PROXY",
            "UV_INDEX_URL",
            "UV_DEFAULT_INDEX",
        ];
        if upper.ends_with("_PROXY")
            || upper.starts_with("SSL_CERT_")
            || upper == "REQUESTS_CA_BUNDLE"
            || passed.contains(&upper.as_str())
        {
            sandbox.env.insert(name, value);
        }
    }
    if let Some(home) = std::env::var_os("HOME") {
        for file in [".config/pip/pip.conf", ".pip/pip.conf", ".netrc"] {
            let from = Path::new(&home).join(file);
            if from.exists() {
                let to = sandbox.home.join(file);
                std::fs::create_dir_all(to.parent().expect("below home")).expect("mkdir");
                std::fs::copy(from, to).expect("copying the user's configuration");
            }
        }
    }
    sandbox.store = network_dir().join("store");
    sandbox
}

fn gpuenv(sandbox: &Sandbox, args: &[&str]) -> Outcome {
    run(sandbox.gpuenv_command(args), LONG)
}

/// Builds an example of the repository; its own script is the check.
fn example(name: &str, proof: &str) {
    let sandbox = online();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("lock-examples").join(name);
    for entry in std::fs::read_dir(&from).expect("the example is there").flatten() {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), sandbox.project.join(entry.file_name())).expect("copying");
        }
    }
    gpuenv(&sandbox, &["realize", "--locked"]).exits(0);
    assert!(sandbox.read("gpuenv.lock").contains("passed"), "the hook's result is in the lock");
    gpuenv(&sandbox, &["run", "--", "python", "-W", "ignore", "verify.py"]).exits(0).says(proof);
}

fn manifest(python: &str, dependencies: &str) -> String {
    format!(
        "[env]\nname = \"real\"\nplatforms = [\"linux-64\"]\n\n[host]\npython = \"{python}\"\n\n\
         [pypi-dependencies]\n{dependencies}"
    )
}

fn scientific_stack() {
    let sandbox = online();
    let names = [
        "numpy",
        "scipy",
        "pillow",
        "opencv-python-headless",
        "scikit-image",
        "pycocotools",
        "pip",
    ];
    let lines: String = names.iter().map(|n| format!("{n} = \"*\"\n")).collect();
    sandbox.write("env.toml", &manifest("{{python}}", &lines));
    gpuenv(&sandbox, &["realize"]).exits(0);
    let script = "
import io, numpy as np, scipy.linalg, scipy.ndimage, cv2, skimage.filters, skimage.measure
from PIL import Image
from pycocotools import mask
a = np.zeros((32, 32), dtype=np.uint8); a[8:24, 8:24] = 255
buf = io.BytesIO(); Image.fromarray(a).save(buf, 'PNG')
b = cv2.imdecode(np.frombuffer(buf.getvalue(), np.uint8), cv2.IMREAD_GRAYSCALE)
assert (a == b).all()
assert skimage.measure.label(b > skimage.filters.threshold_otsu(b)).max() == 1
assert scipy.ndimage.center_of_mass(b) == (15.5, 15.5)
assert np.allclose(scipy.linalg.inv(np.eye(3) * 2), np.eye(3) / 2)
assert mask.area(mask.encode(np.asfortranarray(b // 255))) == 256
print('all of it works')
";
    gpuenv(&sandbox, &["run", "--", "python", "-c", script]).exits(0).says("all of it works");
    gpuenv(&sandbox, &["run", "--", "python", "-m", "pip", "check"])
        .exits(0)
        .says("No broken requirements");
}

/// Loads the library by its bare soname, as frameworks do, and asks its version; then makes a
/// handle, for which it opens its sub-libraries, cuBLAS and NVRTC in turn. Without a GPU that
/// is status 1, "not initialized"; were one of them not found, the process would abort.
/// NVRTC is not among what the cu11 wheel declares, but its version call aborts without.
fn cudnn(line: &str, version: &str, expected: &str) {
    let sandbox = online();
    let dependencies =
        format!("nvidia-cudnn-{line} = \"{version}\"\nnvidia-cuda-nvrtc-{line} = \"*\"\n");
    sandbox.write("env.toml", &manifest("{{python}}", &dependencies));
    gpuenv(&sandbox, &["realize"]).exits(0);
    let script = "import ctypes\n\
        cudnn = ctypes.CDLL('libcudnn.so.8')\n\
        print('cuDNN', cudnn.cudnnGetVersion())\n\
        handle = ctypes.c_void_p()\n\
        print('status', cudnn.cudnnCreate(ctypes.byref(handle)))\n";
    let outcome = gpuenv(&sandbox, &["run", "--", "python", "-c", script]);
    outcome.exits(0).says(&format!("cuDNN {expected}"));
    let status = outcome.stdout.contains("status 0") || outcome.stdout.contains("status 1");
    assert!(status, "{}", outcome.stdout);
}

fn conda_manifest(channel: &Path, dependencies: &str) -> String {
    format!(
        "[env]\nname = \"real\"\nplatforms = [\"linux-64\"]\nchannels = [\"{}\"]\n\n[dependencies]\n{dependencies}",
        channel.display()
    )
}

/// A real package with links, a text prefix and an ELF library. Its `.conda` was repacked on a
/// system without links, and their targets are gone: that is refused, not unpacked as it is.
/// The `.tar.bz2` is whole. The dependency on `libgcc-ng` is served by a package of ours.
fn zlib_channel() {
    let sandbox = Sandbox::new();
    let real = data("packages").expect("ignored without").join("zlib-channel/linux-64");
    let repodata = std::fs::read_to_string(real.join("repodata.json")).expect("repodata");
    let repodata: serde_json::Value = serde_json::from_str(&repodata).expect("JSON");
    for (table, file) in [
        ("packages.conda", "zlib-1.2.11-h7b6447c_3.conda"),
        ("packages", "zlib-1.2.11-h7b6447c_3.tar.bz2"),
    ] {
        let record = repodata[table][file].clone();
        assert!(record.is_object(), "{file} has a record");
        let bytes = std::fs::read(real.join(file)).expect("the archive is there");
        let gcc = Package::new("libgcc-ng", "7.3.0").build();
        let zlib = conda::Built { subdir: "linux-64".into(), file: file.into(), bytes, record };
        let packages = vec![gcc, zlib];
        for (path, bytes) in (conda::Channel { packages }).files() {
            let to = sandbox.project.join("channel").join(path);
            std::fs::create_dir_all(to.parent().expect("below")).expect("mkdir");
            std::fs::write(to, bytes).expect("writing");
        }
        sandbox.write("env.toml", &conda_manifest(Path::new("./channel"), "zlib = \"*\"\n"));
        let outcome = sandbox.gpuenv(&["realize"]);
        if table == "packages.conda" {
            outcome.exits(1).warns(file).warns("lib/libz.so.1");
            std::fs::remove_file(sandbox.project.join("gpuenv.lock")).expect("the lock");
        } else {
            outcome.exits(0);
        }
    }
    let view = sandbox.view();
    let text = std::fs::read_to_string(view.join("lib/pkgconfig/zlib.pc")).expect("a text");
    assert!(text.contains(&*view.to_string_lossy()), "{text}");
    let script = "import ctypes, sys; z = ctypes.CDLL(sys.argv[1]); \
        z.zlibVersion.restype = ctypes.c_char_p; print(z.zlibVersion())";
    let host = python::host().expect("ignored without");
    let mut command = sandbox.command(&host.executable);
    // The archive holds its links as empty files; the library itself is whole.
    command.args(["-c", script]).arg(view.join("lib/libz.so.1.2.11"));
    run(command, LONG).exits(0).says("1.2.11");
}

/// Zip64, names that begin with `./`, links, a package that is metadata alone.
fn odd_conda_archives() {
    use sha2::Digest as _;
    let sandbox = Sandbox::new();
    let real = data("packages").expect("ignored without").join("sparse");
    let mut packages = Vec::new();
    let names = ["dotslash-test", "info-only", "sparse-test", "symlink-test", "zip64-test"];
    for name in names {
        let file = format!("{name}-1.0.0-0.conda");
        let bytes = std::fs::read(real.join(&file)).expect("the archive is there");
        let record = serde_json::json!({
            "name": name, "version": "1.0.0", "build": "0", "build_number": 0, "depends": [],
            "subdir": "linux-64", "size": bytes.len(),
            "sha256": conda::hex(&sha2::Sha256::digest(&bytes)),
        });
        packages.push(conda::Built { subdir: "linux-64".into(), file, bytes, record });
    }
    for (path, bytes) in (conda::Channel { packages }).files() {
        let to = sandbox.project.join("channel").join(path);
        std::fs::create_dir_all(to.parent().expect("below")).expect("mkdir");
        std::fs::write(to, bytes).expect("writing");
    }
    let lines: String = names.iter().map(|n| format!("{n} = \"*\"\n")).collect();
    sandbox.write("env.toml", &conda_manifest(Path::new("./channel"), &lines));
    sandbox.gpuenv(&["realize"]).exits(0);
    let listed = sandbox.gpuenv(&["list"]);
    for name in names {
        listed.exits(0).says(name);
    }
}

/// Locks against 19,000 real records; the packages themselves are not there.
fn conda_forge_solve() {
    let sandbox = Sandbox::new();
    let real = data("repodata").expect("ignored without").join("conda-forge");
    let lines = "python = \"3.11.*\"\nnumpy = \"*\"\n";
    sandbox.write("env.toml", &conda_manifest(&real, lines));
    sandbox.gpuenv(&["lock"]).exits(0);
    let first = sandbox.read("gpuenv.lock");
    assert!(first.contains("python-3.11") && first.contains("numpy-"), "{first}");
    sandbox.gpuenv(&["lock", "--check"]).exits(0);
    std::fs::remove_file(sandbox.project.join("gpuenv.lock")).expect("removing the lock");
    sandbox.gpuenv(&["lock"]).exits(0);
    assert_eq!(first, sandbox.read("gpuenv.lock"));
}

/// The committed locks are what env.toml and the frozen index data give (`tests/freeze.py`).
/// What only realizing knows (NAR and view hashes, verifications) is left out.
fn examples_lock_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sandbox = Sandbox::new();
    serve_frozen(&sandbox, &root.join("tests/frozen/index.json.bz2"));
    let mut examples = 0;
    for entry in std::fs::read_dir(root.join("lock-examples")).expect("examples").flatten() {
        let Ok(manifest) = std::fs::read_to_string(entry.path().join("env.toml")) else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        let committed = std::fs::read_to_string(entry.path().join("gpuenv.lock"))
            .unwrap_or_else(|e| panic!("the lock of {name}: {e}"));
        examples += 1;
        let project = sandbox.root().join(&name);
        std::fs::create_dir(&project).expect("making a project");
        std::fs::write(project.join("env.toml"), manifest).expect("writing env.toml");
        let verify = entry.path().join("verify.py");
        std::fs::copy(verify, project.join("verify.py")).expect("copying the check");
        let at = project.to_string_lossy().into_owned();
        sandbox.gpuenv(&["--project", &at, "lock"]).exits(0);
        let anew = std::fs::read_to_string(project.join("gpuenv.lock")).expect("a lock");
        snapbox::assert_data_eq!(
            unrealized(&anew),
            snapbox::Data::text(unrealized(&committed)).raw()
        );
        // And what is committed is taken for current.
        std::fs::write(project.join("gpuenv.lock"), committed).expect("writing the lock");
        sandbox.gpuenv(&["--project", &at, "lock", "--check"]).exits(0);
    }
    assert!(examples >= 5, "{examples} examples");
}

fn unrealized(lock: &str) -> String {
    let body = lock.split("[[verification]]").next().unwrap_or(lock);
    let known = |l: &&str| !l.starts_with("nar = ") && !l.starts_with("view-hash = ");
    body.trim_end().lines().filter(known).map(|l| format!("{l}\n")).collect()
}

fn serve_frozen(sandbox: &Sandbox, path: &Path) {
    use crate::serve::Content;
    use std::sync::Arc;
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let frozen: serde_json::Value =
        serde_json::from_reader(bzip2::read::BzDecoder::new(file)).expect("frozen data is JSON");
    for (name, files) in frozen["projects"].as_object().expect("an object") {
        let Some(files) = files.as_array() else { continue };
        let files: Vec<_> = files
            .iter()
            .cloned()
            .map(|mut file| {
                let url = format!("../../files/{}", file["filename"].as_str().expect("a name"));
                file["url"] = url.replace('+', "%2B").into();
                file
            })
            .collect();
        let page = serde_json::json!({
            "meta": { "api-version": "1.1" }, "name": name, "files": files,
        });
        let bytes = Arc::new(page.to_string().into_bytes());
        let mut content = Content::html("<html><body>PEP 691 only</body></html>");
        content.alternative = Some(("application/vnd.pypi.simple.v1+json", bytes));
        sandbox.server.put(&format!("/pypi/simple/{name}/"), content);
    }
    for (file, text) in frozen["metadata"].as_object().expect("an object") {
        let text = text.as_str().expect("a text").as_bytes();
        sandbox.server.put(&format!("/pypi/files/{file}.metadata"), Content::file(text));
    }
}
