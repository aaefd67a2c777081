use proptest::prelude::*;
use rattler_conda_types::Subdir as Platform;

use super::edit::{DependencyTable, EditError, Init, add_conda, add_wheel, env_name, init, remove};
use super::*;
use crate::error::{Exit, Report as _};

/// The example of the written grammar.
fn documented() -> &'static str {
    let text = include_str!("../../store-layout/env-toml.md");
    let start = text.find("```toml\n# example").expect("an example") + "```toml\n".len();
    &text[start..start + text[start..].find("```\n").expect("its end")]
}

const HEAD: &str =
    "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\nchannels = [\"conda-forge\", \"./local\"]\n";

fn read(rest: &str) -> Manifest {
    let text = format!("{HEAD}{rest}");
    parse(&text, "env.toml").unwrap_or_else(|error| panic!("{error}\n{:?}", error.hint()))
}

/// The error, its hint, and the text that its place covers.
#[track_caller]
fn refuse(text: &str) -> (String, String, String) {
    let error = parse(text, "env.toml").expect_err(text);
    assert_eq!(error.exit(), Exit::User);
    let snippet = error.snippet().expect("a place");
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(source) = cause {
        words = format!("{words}: {source}");
        cause = source.source();
    }
    let place = snippet.text[snippet.span].to_owned();
    (words, error.hint().unwrap_or_default(), place)
}

#[test]
fn the_documented_example_is_read() {
    let manifest = parse(documented(), "env.toml").unwrap_or_else(|error| panic!("{error}"));
    let facts: Vec<String> =
        inputs(&manifest).iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let expected = "\
activation.env.FLAGS_cudnn_deterministic = 1
conda-pypi-map.opencv = opencv-python, opencv-python-headless
dependencies.cudnn = 8.1.* channel=conda-forge
dependencies.python = 3.9.*
env.channels = conda-forge, nvidia, https://conda.example.invalid/lab, ./channel
env.name = ppyolo
env.platforms = linux-64, linux-aarch64
gpu.archs = 7.0, 8.0
gpu.cuda = 11.2
gpu.driver = 450.80.02
pypi-dependencies.opencv-python = >=4.5
pypi-dependencies.ours = @ ./wheels/ours-0.1-py3-none-any.whl
pypi-dependencies.paddlepaddle-gpu = ==2.5.2.post112 from paddle
pypi-dependencies.theirs = @ https://wheels.example.invalid/theirs-1.0%2Bcu112-py3-none-any.whl#sha256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
pypi-dependencies.uvicorn = [standard] >=0.20 ; python_full_version < '3.12'
pypi-options.constraints.numpy = <2
pypi-options.dependency-overrides.opencv-python-headless = >=4.5
pypi-options.dependency-overrides.sklearn = scikit-learn >=1
pypi-options.dependency-overrides.typing = false
pypi-options.find-links = ./wheels
pypi-options.indexes.lab = index https://wheels.example.invalid/simple
pypi-options.indexes.paddle = find-links https://wheels.example.invalid/stable.html
pypi-options.prereleases = allow
system-requirements.archspec = x86_64_v3
system-requirements.libc = 2.31
system-requirements.linux = 5.4
system-requirements.macos = 12.3
variants.cpu.dependencies.cudnn = false
variants.cpu.gpu = false
variants.cpu.platforms = linux-64
variants.cpu.pypi-dependencies.paddlepaddle = ==2.5.2
variants.cpu.pypi-dependencies.paddlepaddle-gpu = false
view.allow-duplicate-sonames.libgomp.so.1 = true
view.allow-external-links.cudatoolkit-dev = true
view.skip-link-scripts.cudatoolkit-dev = true
view.winners.bin/f2py = numpy";
    assert_eq!(facts.join("\n"), expected);
    assert_eq!(manifest.verify.framework, Some(Framework::Paddle));
    assert_eq!(manifest.verify.timeout, Some(600));
}

#[test]
fn smallest() {
    let manifest = parse("[env]\nname=\"a\"\nplatforms=[\"linux-64\"]\n", "env.toml").unwrap();
    assert_eq!(manifest.system, SystemRequirements::default());
    assert_eq!(manifest.gpu, None);
    assert_eq!(inputs(&manifest).len(), 2);
}

#[test]
fn every_fault_has_its_place() {
    let head = HEAD;
    for (text, words, hint, place) in [
        ("[env\n", "not valid TOML", "", ""),
        ("", "`env` is missing", "gpuenv init", ""),
        ("[env]\nplatforms = [\"linux-64\"]\n", "`name` is missing from [env]", "name =", "[env]"),
        ("[env]\nname = \"t\"\n", "`platforms` is missing from [env]", "declared", "[env]"),
        ("[env]\nname = \"t\"\nplatforms = []\n", "`platforms` is missing", "declared", "[]"),
        (
            "[env]\nname = \"../t\"\nplatforms = [\"linux-64\"]\n",
            "`../t` is not an environment name",
            "starting with a letter",
            "\"../t\"",
        ),
        (
            "[env]\nname = 1\nplatforms = [\"linux-64\"]\n",
            "env.toml:2:8: `env.name` is an integer, expected a string",
            "a string",
            "1",
        ),
        (
            "[env]\nname = \"t\"\nplatforms = [\"linux64\"]\n",
            "env.toml:3:14: `linux64` is not a platform",
            "`linux-64`",
            "\"linux64\"",
        ),
        (
            "[env]\nname = \"t\"\nplatforms = [\"win-32\"]\n",
            "platform `win-32` is not supported",
            "win-64",
            "\"win-32\"",
        ),
        (
            "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\nchannels = [\"a b\"]\n",
            "`a b` is not a channel",
            "a URL or a path",
            "\"a b\"",
        ),
        (
            "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\nchannels = [\"/x/c\", \"/y/c\"]\n",
            "channel `dir:c` is given twice, first on line 4",
            "remove",
            "\"/y/c\"",
        ),
        (
            "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\nchannels = [\"ftp://h.invalid\"]\n",
            "is not a URL that can be fetched",
            "http",
            "\"ftp://h.invalid\"",
        ),
        (
            "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\n[dependencies]\npython = \"*\"\n",
            "[env] channels is empty",
            "add `channels",
            "[dependencies]",
        ),
        (
            "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\n[pypi-dependencies]\nnumpy = \"*\"\n",
            "needs a Python",
            "either add `channels = [\"conda-forge\"]` to [env], and conda's Python is chosen with the wheels; or take the machine's, with `[host]`",
            "[pypi-dependencies]",
        ),
    ] {
        let (found, found_hint, found_place) = refuse(text);
        assert!(found.contains(words), "{text}\n{found}");
        assert!(found_hint.contains(hint), "{text}\n{found_hint}");
        if !place.is_empty() {
            assert_eq!(found_place, place, "{text}");
        }
    }
    for (rest, words, hint, place) in [
        (
            "[dependncies]\n",
            "unknown key `dependncies` in env.toml",
            "`dependencies`?",
            "dependncies",
        ),
        ("[feature.x]\n", "[feature] is not supported", "[variants.NAME]", "feature"),
        ("[tasks]\n", "[tasks] is not supported", "gpuenv run", "tasks"),
        (
            "[dependencies]\npython = 3.9\n",
            "`dependencies.python` is a float, expected a version string",
            "write",
            "3.9",
        ),
        (
            "[dependencies]\npython = \">=3.9,,\"\n",
            "is not a conda version bound",
            "3.9.*",
            "\">=3.9,,\"",
        ),
        ("[dependencies]\npython = \"\"\n", "is not a conda version bound", "3.9.*", "\"\""),
        (
            "[dependencies]\nx = \"conda-forge::1.0\"\n",
            "is not a conda version bound",
            "table",
            "\"conda-forge::1.0\"",
        ),
        (
            "[dependencies]\nx = \"1.0[build=foo, md5=zz]\"\n",
            "is not a conda version bound",
            "",
            "",
        ),
        ("[dependencies]\n\"a b\" = \"*\"\n", "is not a conda package name", "", "\"a b\""),
        ("[dependencies]\n__glibc = \"*\"\n", "virtual package", "system-requirements", "__glibc"),
        (
            "[dependencies]\nNumPy = \"*\"\nnumpy = \"*\"\n",
            "conda package `numpy` is given twice, first on line 6",
            "remove",
            "numpy",
        ),
        (
            "[dependencies]\nx = { verison = \"*\" }\n",
            "unknown key `verison` in [dependencies.x]",
            "`version`?",
            "verison",
        ),
        (
            "[dependencies]\nx = { channel = \"conda-frge\" }\n",
            "channel `conda-frge` is not one of",
            "`conda-forge`?",
            "\"conda-frge\"",
        ),
        ("[dependencies]\nx = { sha256 = \"12\" }\n", "not a SHA-256 digest", "", "\"12\""),
        ("[dependencies]\nx = { md5 = \"12\" }\n", "not an MD5 digest", "32", "\"12\""),
        (
            "[dependencies]\nx = { file-name = \"../x.conda\" }\n",
            "not a file name of a conda package",
            "alone",
            "\"../x.conda\"",
        ),
        ("[dependencies]\nx = { subdir = \"linux\" }\n", "not a conda subdir", "", "\"linux\""),
        (
            "[dependencies]\nx = { build-number = \"x\" }\n",
            "not a build number bound",
            ">=2",
            "\"x\"",
        ),
        (
            "[pypi-dependencies]\nx = \"2.6.2\"\n",
            "env.toml:6:5: `2.6.2` is a version, not a specifier",
            "x = \"==2.6.2\"",
            "\"2.6.2\"",
        ),
        (
            "[pypi-dependencies]\nx = \"[cuda]>=1\"\n",
            "is not a version specifier",
            "extras go into a table",
            "",
        ),
        ("[pypi-dependencies]\nx = \"=>1\"\n", "is not a version specifier", "==1.2.*", "\"=>1\""),
        (
            "[pypi-dependencies]\n\"x[y]\" = \"*\"\n",
            "is not a distribution name",
            "extras go into a table",
            "",
        ),
        (
            "[pypi-dependencies]\na_b = \"*\"\nA-B = \"*\"\n",
            "distribution `a-b` is given twice, first on line 6",
            "",
            "A-B",
        ),
        (
            "[pypi-dependencies]\nx = { git = \"https://h.invalid/x\", rev = \"1\" }\n",
            "built from source (`git`), which is not supported yet",
            "pip wheel",
            "git",
        ),
        ("[pypi-options]\nno-build = false\n", "`no-build = false`", "takes wheels alone", "false"),
        (
            "[pypi-dependencies]\nx = { path = \".\", editable = true }\n",
            "built from source (`editable`)",
            "path",
            "editable",
        ),
        (
            "[pypi-dependencies]\nx = { path = \"../x\" }\n",
            "`x` is not a .whl file",
            "build a wheel",
            "\"../x\"",
        ),
        (
            "[pypi-dependencies]\nx = { url = \"https://h.invalid/x-1.tar.gz\" }\n",
            "`x-1.tar.gz` is a source distribution",
            "build a wheel",
            "",
        ),
        (
            "[pypi-dependencies]\nx = { url = \"git+https://h.invalid/x\" }\n",
            "a git repository",
            "build a wheel",
            "",
        ),
        (
            "[pypi-dependencies]\nx = { path = \"/srv/x-1-py3-none-any.whl\" }\n",
            "absolute path",
            "relative to env.toml",
            "",
        ),
        (
            "[pypi-dependencies]\nx = { url = \"file:///srv/x-1-py3-none-any.whl\" }\n",
            "absolute path",
            "relative to env.toml",
            "",
        ),
        (
            "[pypi-dependencies]\nx = { path = \"y-1-py3-none-any.whl\" }\n",
            "holds `y`, not `x`",
            "write `y`",
            "",
        ),
        (
            "[pypi-dependencies]\nx = { path = \"x.whl\" }\n",
            "not the file name of a wheel",
            "PEP 427",
            "\"x.whl\"",
        ),
        (
            "[pypi-dependencies]\nx = { path = \"x-1-py3-none-any.whl\", version = \"==1\" }\n",
            "exclude each other",
            "keep",
            "version",
        ),
        ("[pypi-dependencies]\nx = { sha256 = \"00\" }\n", "`sha256` without `url`", "", "sha256"),
        (
            "[pypi-dependencies]\nx = { index = \"padle\" }\n[pypi-options.indexes]\npaddle = { find-links = \"./w\" }\n",
            "no index `padle`",
            "did you mean `paddle`?",
            "\"padle\"",
        ),
        (
            "[pypi-dependencies]\nx = { index = \"lab\" }\n",
            "no index `lab`",
            "declare it",
            "\"lab\"",
        ),
        (
            "[pypi-dependencies]\nx = { markers = \"python_versio < '3'\" }\n",
            "is not a marker",
            "PEP 508",
            "",
        ),
        (
            "[pypi-dependencies]\nx = { extras = [\"a b\"] }\n",
            "is not the name of an extra",
            "",
            "\"a b\"",
        ),
        (
            "[pypi-options]\nextra-index-urls = [\"https://h.invalid\"]\n",
            "`extra-index-urls` is not supported",
            "indexes",
            "extra-index-urls",
        ),
        ("[pypi-options]\nindex = \"h.invalid\"\n", "is not a URL", "http", "\"h.invalid\""),
        (
            "[pypi-options]\nprereleases = \"yes\"\n",
            "is not a pre-release policy",
            "allow",
            "\"yes\"",
        ),
        (
            "[pypi-options.indexes]\npypi = { url = \"https://h.invalid\" }\n",
            "an index called `pypi`",
            "replaces the default",
            "pypi",
        ),
        (
            "[pypi-options.indexes]\nLab = { url = \"https://h.invalid\" }\n",
            "the name of an index",
            "a-z",
            "Lab",
        ),
        (
            "[pypi-options.indexes]\nlab = \"https://h.invalid\"\n",
            "is a string, expected a table",
            "",
            "",
        ),
        ("[pypi-options.indexes]\nlab = { }\n", "`url` is missing", "find-links", ""),
        (
            "[pypi-options.dependency-overrides]\nx = true\n",
            "`true` is not `false`",
            "replace",
            "true",
        ),
        (
            "[pypi-options.dependency-overrides]\nx = { version = \">=1\" }\n",
            "`replace` is missing",
            "",
            "",
        ),
        ("[gpu]\ndriver = \"450\"\n", "`cuda` is missing from [gpu]", "11.8", "[gpu]"),
        ("[gpu]\ncuda = 11.8\n", "is a float, expected a string", "", "11.8"),
        ("[gpu]\ncuda = \"12\"\n", "is not a CUDA version", "major and minor", "\"12\""),
        ("[gpu]\ncuda = \"12.1\"\ndriver = \"5.x\"\n", "is not a driver version", "450.80.02", ""),
        (
            "[gpu]\ncuda = \"12.1\"\narchs = [\"sm_80\"]\n",
            "is not a compute capability",
            "8.0",
            "\"sm_80\"",
        ),
        ("[host]\n", "`python` is missing from [host]", "3.11", "[host]"),
        ("[host]\npython = \"3.11.*\"\n", "is not a Python version", "3.11", "\"3.11.*\""),
        ("[host]\npython = \"2.7\"\n", "is not a Python version", "3.11", "\"2.7\""),
        (
            "[host]\npython = \"3.11\"\n[dependencies]\npython = \"3.11.*\"\n",
            "[host] (line 6) takes the machine's Python, and [dependencies] (line 8) asks",
            "remove",
            "python = \"3.11.*\"",
        ),
        ("[system-requirements]\ncuda = \"12\"\n", "unknown key `cuda`", "[gpu]", "cuda"),
        ("[system-requirements]\nlibc = \"2\"\n", "is not a glibc version", "2.28", "\"2\""),
        ("[activation.env]\nX = 1\n", "is an integer, expected a string (in quotes", "", "1"),
        (
            "[activation.env]\nLD_LIBRARY_PATH = \"/x\"\n",
            "is set by gpuenv itself",
            "remove",
            "LD_LIBRARY_PATH",
        ),
        (
            "[activation.env]\n\"A B\" = \"x\"\n",
            "is not the name of an environment variable",
            "",
            "\"A B\"",
        ),
        (
            "[view.winners]\n\"/bin/x\" = \"numpy\"\n",
            "is not a path in the view",
            "below the view",
            "\"/bin/x\"",
        ),
        (
            "[verify]\nframework = \"pytorch\"\n",
            "framework with built-in checks",
            "`torch`",
            "\"pytorch\"",
        ),
        ("[verify]\ntimeout = 0\n", "is not a positive number of seconds", "", "0"),
        ("[verify]\nscript = \"../x.py\"\n", "is not a relative path", "", "\"../x.py\""),
    ] {
        let text = format!("{head}{rest}");
        let (found, found_hint, found_place) = refuse(&text);
        assert!(found.contains(words), "{rest}\n{found}");
        assert!(found_hint.contains(hint), "{rest}\n{found_hint}");
        if !place.is_empty() {
            assert_eq!(found_place, place, "{rest}");
        }
    }
}

#[test]
fn several_faults_are_told_at_once() {
    let text =
        format!("{HEAD}x = 1\n[dependencies]\npython = 3\n[pypi-dependencies]\ny = \"1.0\"\n");
    let error = parse(&text, "env.toml").unwrap_err();
    assert_eq!(error.faults().count(), 3);
    assert!(error.to_string().starts_with("env.toml:5:1: unknown key `x` in [env]"), "{error}");
    let hint = error.hint().unwrap();
    assert!(hint.contains("also at env.toml:7:10: "), "{hint}");
    assert!(hint.contains("also at env.toml:9:5: "), "{hint}");
    // One fault does not raise another.
    let text = "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\nchannels = [\"a b\"]\n[dependencies]\nx = \"*\"\n";
    assert_eq!(parse(text, "env.toml").unwrap_err().faults().count(), 1);
}

#[test]
fn fault_r4_no_credentials() {
    let url = "https://user:secret@h.invalid/simple";
    for rest in [
        format!("[pypi-options]\nindex = \"{url}\"\n"),
        format!("[pypi-options]\nfind-links = [\"{url}\"]\n"),
        format!("[pypi-options.indexes]\nlab = {{ url = \"{url}\" }}\n"),
        format!("[pypi-options.indexes]\nlab = {{ find-links = \"{url}\" }}\n"),
        format!("[pypi-dependencies]\nx = {{ url = \"{url}/x-1-py3-none-any.whl\" }}\n"),
        format!("[activation.env]\nX = \"{url}\"\n"),
        "[pypi-options]\nindex = \"https://secret@h.invalid/simple\"\n".into(),
        "[pypi-options]\nindex = \"https://h.invalid/t/secret/simple\"\n".into(),
        // Not even when the URL is refused for another reason, or stands beside another fault.
        "[pypi-options]\nindex = \"https://user:secret@h.invalid:x/simple\"\n".into(),
        format!("[pypi-options]\nindex = 1 # {url}\n"),
        format!("[dependencies]\nx = {{ channel = \"{url}\" }}\n"),
    ] {
        let text = format!("{HEAD}{rest}");
        let error = parse(&text, "env.toml").unwrap_err();
        let shown = format!(
            "{error} {:?} {:?} {:?}",
            std::error::Error::source(&error).map(ToString::to_string),
            error.hint(),
            error.snippet()
        );
        assert!(!shown.contains("secret"), "{shown}");
    }
    let text = HEAD.replace("./local", url);
    let error = parse(&text, "env.toml").unwrap_err();
    assert!(error.to_string().contains("holds credentials"), "{error}");
    assert!(error.hint().unwrap().contains("netrc"));
}

/// What the machine that locks knows does not show: same text, same facts, and no absolute path.
#[test]
fn fault_15_facts_name_no_machine() {
    let text = |channel: &str, place: &str| {
        format!(
            "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\nchannels = [\"{channel}\"]\n\
             [dependencies]\nx = {{ channel = \"{channel}\" }}\n\
             [pypi-options]\nfind-links = [\"{place}\"]\nindex = \"file://{place}\"\n\
             [pypi-options.indexes]\na = {{ find-links = \"{place}\" }}\nb = {{ url = \"file://{place}\" }}\n"
        )
    };
    let one = inputs(&parse(&text("/home/one/chan", "/home/one/w"), "env.toml").unwrap());
    let two = inputs(&parse(&text("file:///srv/two/chan/", "/srv/two/w/"), "env.toml").unwrap());
    assert_eq!(one, two);
    assert!(one.values().all(|value| !value.contains("home")), "{one:?}");
}

#[test]
fn facts_do_not_depend_on_spelling() {
    let one = read(
        "[pypi-dependencies]\nOpenCV_Python = \">=4.5, <5\"\nb = \"*\"\n[dependencies]\nx = \"*\"\n",
    );
    let two = format!(
        "dependencies.x = {{ version = \"*\" }} # c\n{HEAD}[verify]\ntimeout = 5\n\
         [pypi-dependencies]\nb = \"\"\nopencv-python = {{ version = \"<5,>=4.5\" }}\n"
    );
    let two = parse(&two, "env.toml").unwrap();
    assert_eq!(inputs(&one), inputs(&two));
}

#[test]
fn every_table_form_is_read() {
    for rest in [
        "[dependencies]\nx = { version = \">=1\", channel = \"conda-forge\" }\n",
        "[dependencies.x]\nversion = \">=1\"\nchannel = \"conda-forge\"\n",
        "[dependencies]\nx.version = \">=1\"\nx.channel = \"conda-forge\"\n",
    ] {
        let manifest = read(rest);
        assert_eq!(manifest.dependencies[0].requirement(), ">=1 channel=conda-forge", "{rest}");
        let span = manifest.dependencies[0].span.clone();
        assert!(manifest.text[span].contains('x'), "{rest}");
    }
    let manifest = read("[dependencies]\npython = \"3.9.* *_cpython\"\n");
    assert_eq!(manifest.dependencies[0].requirement(), "3.9.* build=*_cpython");
    let manifest = read("[pypi-dependencies]\nx = { index = \"pypi\" }\n");
    assert_eq!(manifest.pypi_dependencies[0].requirement(), "*");
}

#[test]
fn a_bare_version_means_exactly_that_one() {
    for (written, means) in [
        ("1.2.3", "==1.2.3"),
        ("1.2|1.4", "==1.2|==1.4"),
        ("1.2 | 1.4", "==1.2|==1.4"),
        ("1.2 py3*_4", "==1.2 build=py3*_4"),
        ("2.0 1", "==2.0 build=1"),
        (">=1,<2|3.0", ">=1,<2|==3.0"),
        ("=1.2", "1.2.*"),
        ("1.2.*", "1.2.*"),
        ("~=1.2", "~=1.2"),
        ("1!2.0", "==1!2.0"),
        (">=1.2, <2", ">=1.2,<2"),
    ] {
        let manifest = read(&format!("[dependencies]\nx = \"{written}\"\n"));
        assert_eq!(manifest.dependencies[0].requirement(), means, "{written}");
    }
    let manifest = read("[dependencies]\nx = { version = \"1.2\" }\n");
    assert_eq!(manifest.dependencies[0].requirement(), "==1.2");
}

#[test]
fn a_channel_may_be_named_as_written_or_as_messages_call_it() {
    for (channel, named, means) in [
        ("/srv/chan", "/srv/chan/", "dir:chan"),
        ("/srv/chan", "dir:chan", "dir:chan"),
        ("./../up", "./../up", "../up"),
        ("./../up", "../up", "../up"),
        (
            "https://h.example.invalid/c/",
            "https://h.example.invalid/c",
            "https://h.example.invalid/c",
        ),
    ] {
        let text = format!(
            "[env]\nname = \"e\"\nplatforms = [\"linux-64\"]\nchannels = [\"{channel}\"]\n\
             [dependencies]\nx = {{ version = \"*\", channel = \"{named}\" }}\n"
        );
        let manifest = parse(&text, "env.toml").unwrap();
        let words = manifest.dependencies[0].requirement();
        assert_eq!(words, format!("* channel={means}"), "{named}");
    }
}

#[test]
fn byte_order_marks_and_line_ends_do_not_shift_places() {
    let text = format!("\u{feff}{HEAD}[gpu]\ncuda = 1\n").replace('\n', "\r\n");
    let (words, _, place) = refuse(&text);
    assert!(words.starts_with("env.toml:6:8: "), "{words}");
    assert_eq!(place, "1");
}

#[test]
fn digests_of_a_wheel_url() {
    let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let url = "https://h.invalid/x-1-py3-none-any.whl";
    for rest in [
        format!("[pypi-dependencies]\nx = {{ url = \"{url}#sha256={digest}\" }}\n"),
        format!("[pypi-dependencies]\nx = {{ url = \"{url}\", sha256 = \"{digest}\" }}\n"),
    ] {
        let WheelRequirementSource::Url { url: found, sha256 } =
            &read(&rest).pypi_dependencies[0].source
        else {
            panic!("{rest}")
        };
        assert_eq!((found.as_str(), sha256.map(|d| d.to_string())), (url, Some(digest.into())));
    }
    let other = digest.replace('9', "8");
    let text = format!(
        "{HEAD}[pypi-dependencies]\nx = {{ url = \"{url}#sha256={digest}\", sha256 = \"{other}\" }}\n"
    );
    assert!(refuse(&text).0.contains("two different digests"));
}

#[test]
fn the_template_is_read_and_says_what_was_asked() {
    let asked = Init {
        name: env_name("my project"),
        platforms: vec![Platform::Linux64],
        channels: vec!["conda-forge".into()],
        host_python: None,
    };
    let manifest = parse(&init(&asked), "env.toml").unwrap();
    assert_eq!(manifest.env.name, "my-project");
    assert_eq!(manifest.channel_names(), ["conda-forge"]);
    let asked = Init { channels: vec![], host_python: Some("3.11".into()), ..asked };
    let text = init(&asked);
    let manifest = parse(&text, "env.toml").unwrap();
    assert_eq!(manifest.host.unwrap().python.to_string(), "3.11");
    let edit = add_wheel(&text, "env.toml", "numpy<2", None).unwrap();
    let line = "[pypi-dependencies]\nnumpy = \"<2\"\n";
    assert_eq!(edit.text, text.replace("[pypi-dependencies]\n", line));
    for (directory, name) in [("..", "env"), ("-x", "x"), ("ü", "env"), ("a/b c", "a-b-c")] {
        assert_eq!(env_name(directory), name);
    }
}

const EDITED: &str = "\
# head
[env] # the env
name = \"t\"
platforms = [\"linux-64\"]
channels = [\"conda-forge\"]

[dependencies]
  python   =   \"3.9.*\"   # keep me
  # about cudnn
  cudnn = { version = \"8.1.*\", channel = \"conda-forge\" } # and me

[pypi-dependencies]
NumPy = \"<2\" # pinned

# tail
";

#[test]
fn edits_change_their_line_alone() {
    let file = "env.toml";
    let edit = add_conda(EDITED, file, "python=3.10").unwrap();
    assert_eq!(edit.text, EDITED.replace("\"3.9.*\"", "\"3.10.*\""));
    assert_eq!((edit.was.as_deref(), edit.is.as_deref()), (Some("3.9.*"), Some("3.10.*")));
    let edit = add_conda(EDITED, file, "cudnn").unwrap();
    let old = "{ version = \"8.1.*\", channel = \"conda-forge\" }";
    assert_eq!(edit.text, EDITED.replace(old, "\"*\""));
    let edit = add_conda(EDITED, file, "conda-forge::nccl>=2,<3").unwrap();
    let last = "# and me\n";
    let line = "  nccl = { version = \">=2,<3\", channel = \"conda-forge\" }\n";
    assert_eq!(edit.text, EDITED.replace(last, &format!("{last}{line}")));
    let edit = add_wheel(EDITED, file, "numpy==1.26.4", None).unwrap();
    assert_eq!(edit.text, EDITED.replace("\"<2\"", "\"==1.26.4\""));
    let edit = add_wheel(EDITED, file, "./w/x-1+cu1-py3-none-any.whl", None).unwrap();
    assert_eq!(edit.is.as_deref(), Some("@ ./w/x-1+cu1-py3-none-any.whl"));
    let edit = add_wheel(EDITED, file, "x[b,a]>=1 ; python_version < '3.12'", None).unwrap();
    assert_eq!(edit.is.as_deref(), Some("[a,b] >=1 ; python_full_version < '3.12'"));
    let edit = add_wheel(EDITED, file, "x @ https://h.invalid/x-1-py3-none-any.whl", None).unwrap();
    assert_eq!(edit.is.as_deref(), Some("@ https://h.invalid/x-1-py3-none-any.whl"));
    let edit = add_wheel(EDITED, file, "x @ ../x-1-py3-none-any.whl", None).unwrap();
    assert_eq!(edit.is.as_deref(), Some("@ ./../x-1-py3-none-any.whl"));

    let edit = remove(EDITED, file, "Cudnn", None).unwrap();
    assert_eq!(edit.table, DependencyTable::Conda);
    let line = format!("  cudnn = {old} # and me\n");
    assert_eq!(edit.text, EDITED.replace(&line, ""));
    let edit = remove(EDITED, file, "numpy", None).unwrap();
    assert_eq!(edit.text, EDITED.replace("NumPy = \"<2\" # pinned\n", ""));
    assert_eq!(edit.was.as_deref(), Some("<2"));
}

#[test]
fn edits_of_other_forms_keep_their_meaning() {
    let file = "env.toml";
    let head = "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\nchannels = [\"conda-forge\"]\n";
    // No such table, and no line end at the end.
    let text = head.trim_end();
    let edit = add_conda(text, file, "python").unwrap();
    assert_eq!(edit.text, format!("{text}\n\n[dependencies]\npython = \"*\"\n"));
    for text in [
        format!("dependencies = {{ python = \"3.9.*\" }} # c\n{head}"),
        format!("dependencies.python = \"3.9.*\" # c\n{head}"),
        format!("{head}[dependencies.python] # c\nversion = \"3.9.*\"\n"),
        format!("{head}[dependencies]\npython.version = \"3.9.*\" # c\n"),
        format!("{head}[dependencies]\npython = '''3.9.*''' # c").replace('\n', "\r\n"),
    ] {
        let edit = add_conda(&text, file, "python=3.10").unwrap();
        assert_eq!(edit.is.as_deref(), Some("3.10.*"), "{text}");
        let edit = add_conda(&text, file, "zlib").unwrap();
        assert_eq!((edit.was, edit.is.as_deref()), (None, Some("*")), "{text}");
        assert!(edit.text.contains("# c"), "{}", edit.text);
        let gone = remove(&edit.text, file, "zlib", None).unwrap();
        assert!(gone.text.contains("python"), "{}", gone.text);
        let gone = remove(&text, file, "python", None).unwrap();
        assert_eq!(gone.is, None, "{text}");
    }
    let text = EDITED.replace('\n', "\r\n");
    let edit = add_conda(&text, file, "zlib").unwrap();
    assert_eq!(edit.text, text.replace("# and me\r\n", "# and me\r\n  zlib = \"*\"\r\n"));
}

#[test]
fn refused_edits_say_why() {
    let file = "env.toml";
    let error = add_conda("[env]\n", file, "python").unwrap_err();
    assert!(matches!(error, EditError::Before(_)) && error.snippet().is_some());
    let bare = "[env]\nname = \"t\"\nplatforms = [\"linux-64\"]\n";
    let error = add_wheel(bare, file, "numpy", None).unwrap_err();
    assert!(matches!(error, EditError::After { .. }));
    assert!(error.hint().unwrap().contains("[host]"));
    let error = add_wheel(EDITED, file, "numpy", Some("lab")).unwrap_err();
    assert!(error.hint().unwrap().contains("declare it"));
    for bad in ["", "numpy=>", "a b c d", "https://h.invalid/linux-64/x-1-0.conda", "num*"] {
        let error = add_conda(EDITED, file, bad).unwrap_err();
        assert!(matches!(error, EditError::Requirement { .. }), "{bad} {error}");
    }
    for bad in ["", "numpy=>1", "x @ https://u:secret@h.invalid/x", "x.whl", "x[", "./x-1.tar.gz"] {
        let error = add_wheel(EDITED, file, bad, None).unwrap_err();
        let shown =
            format!("{error} {:?} {:?}", std::error::Error::source(&error), error.snippet());
        assert!(!shown.contains("secret"), "{shown}");
    }
    for source in ["./x", ".", "https://h.invalid/x-1.tar.gz", "../x-1.zip"] {
        let error = add_wheel(EDITED, file, source, None).unwrap_err();
        assert!(error.hint().unwrap().contains("build a wheel"), "{source} {error:?}");
    }
    let error = remove(EDITED, file, "nunpy", None).unwrap_err();
    assert!(error.hint().unwrap().contains("`numpy`"), "{error:?}");
    let both = EDITED.replace("NumPy", "cudnn");
    assert!(matches!(remove(&both, file, "cudnn", None), Err(EditError::Ambiguous { .. })));
    let edit = remove(&both, file, "cudnn", Some(DependencyTable::Wheels)).unwrap();
    assert!(edit.text.contains("8.1.*") && !edit.text.contains("<2"));
}

/// Lines of an env.toml that mean nothing or stand for themselves.
fn any_line() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "# [ -~]{0,20}",
        Just("   # indented".to_owned()),
        (0u8..9, "[ ]{0,3}", "( # [a-z =\"]{0,9})?")
            .prop_map(|(i, blank, comment)| format!("{blank}p{i}{blank}={blank}\"*\"{comment}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Adding a line and taking it away gives the same bytes; in between, one line more.
    #[test]
    fn add_then_remove_is_nothing(
        mut lines in proptest::collection::vec(any_line(), 0..12),
        tail in proptest::collection::vec("# [ -~]{0,20}|", 0..4),
        crlf in any::<bool>(),
        wheels in any::<bool>(),
    ) {
        let mut seen = std::collections::BTreeSet::new();
        lines.retain(|line| match line.trim_start().get(..2) {
            Some(key) if key.starts_with('p') => seen.insert(key.to_owned()),
            _ => true,
        });
        let header = if wheels { "[pypi-dependencies]" } else { "[dependencies]" };
        let mut text = format!("{HEAD}{header}\n");
        for line in lines.iter().chain(&tail) {
            text.push_str(line);
            text.push('\n');
        }
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        let edit = match wheels {
            true => add_wheel(&text, "env.toml", "added>=1", None),
            false => add_conda(&text, "env.toml", "added>=1"),
        };
        let edit = edit.map_err(|error| TestCaseError::fail(format!("{error:?}\n{text}")))?;
        prop_assert_eq!(edit.is.as_deref(), Some(">=1"));
        let added: Vec<&str> = edit.text.split_inclusive('\n').collect();
        let kept: String =
            added.iter().filter(|line| !line.trim_start().starts_with("added")).copied().collect();
        prop_assert_eq!(&kept, &text);
        prop_assert_eq!(added.len(), text.split_inclusive('\n').count() + 1);
        let gone = remove(&edit.text, "env.toml", "added", None).unwrap();
        prop_assert_eq!(gone.text, text);
    }

    /// Replacing a value changes no byte outside of it.
    #[test]
    fn replacing_keeps_the_rest(version in "[0-9]{1,3}", comment in "( # [ -~]{0,12})?", before in "[ ]{0,3}") {
        let text = format!("{HEAD}[dependencies]\n{before}x{before}=\t\"1.*\"{comment}\ny = \"*\"\n");
        let edit = add_conda(&text, "env.toml", &format!("x=={version}")).unwrap();
        let shown = edit.is.clone().unwrap();
        prop_assert_eq!(edit.text, text.replacen("\"1.*\"", &format!("\"{shown}\""), 1));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,60}", at in 0usize..3000, junk in "[\\x00-\\x7f]{0,3}") {
        if let Err(error) = parse(&text, "env.toml") {
            let _ = (error.to_string(), error.hint(), error.snippet());
        }
        let mut damaged = documented().to_owned();
        let at = at.min(damaged.len());
        damaged.insert_str(at, &junk);
        if let Err(error) = parse(&damaged, "env.toml") {
            let snippet = error.snippet().unwrap();
            prop_assert!(snippet.text.get(snippet.span).is_some());
        }
    }
}

#[test]
fn an_index_that_is_a_url_with_a_password_is_not_repeated() {
    let text = "[env]\nname = \"e\"\nplatforms = [\"linux-64\"]\n[host]\npython = \"3.11\"\n\
                [pypi-dependencies]\na = { index = \"https://user:hunter2@corp.example.invalid/s\" }\n";
    let error = parse(text, "env.toml").unwrap_err();
    let snippet = error.snippet().map(|s| s.text).unwrap_or_default();
    let all = format!("{error} {:?} {snippet}", error.hint());
    assert!(all.contains("corp.example.invalid") && !all.contains("hunter2"), "{all}");
}

#[test]
fn a_variable_has_a_name() {
    let text = "[env]\nname = \"e\"\nplatforms = [\"linux-64\"]\nchannels = [\"c\"]\n\
                [activation.env]\n\"\" = \"x\"\n";
    assert!(parse(text, "env.toml").is_err());
}

#[test]
fn two_find_links_of_one_name_in_a_lock_are_refused() {
    let text = "[env]\nname = \"e\"\nplatforms = [\"linux-64\"]\n[host]\npython = \"3.11\"\n\
                [pypi-options]\nfind-links = [\"/a/wheels\", \"/b/wheels\"]\n";
    let error = parse(text, "env.toml").unwrap_err();
    assert!(error.to_string().contains("given twice"), "{error}");
}
