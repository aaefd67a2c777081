use std::fs;

use super::*;

/// A view that records this, with files.
fn view(recorded: &Recorded, files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let view = fs::canonicalize(dir.path()).unwrap().join("a 'view'");
    let json = recorded.to_json();
    for (at, text) in files.iter().chain([&(PATH, json.as_str())]) {
        let path = view.join(at);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    (dir, view)
}

fn recorded() -> Recorded {
    Recorded {
        format: FORMAT,
        name: "demo".into(),
        python: Some("3.11".into()),
        host_python: true,
        conda: false,
        ld: false,
        env: [("FLAGS_x".to_owned(), "it's $HOME \\ \"1\"".to_owned())].into(),
    }
}

fn env(vars: &[(&str, &str)]) -> Env {
    vars.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))).collect()
}

fn get<'a>(env: &'a Env, name: &str) -> Option<&'a str> {
    env.get(OsStr::new(name)).and_then(|v| v.to_str())
}

#[test]
fn foreign_variables_are_dropped_and_mentioned() {
    let (_dir, view) = view(&recorded(), &[]);
    let before = env(&[
        ("PATH", "/usr/bin"),
        ("PYTHONPATH", "/opt/ros"),
        ("PYTHONHOME", "/x"),
        ("LD_LIBRARY_PATH", "/usr/lcoal/lib:"),
        ("VIRTUAL_ENV", "/venv"),
        ("CONDA_PREFIX", "/conda"),
        ("HOME", "/home/u"),
        ("KEPT", "1"),
    ]);
    let activation = Activation::for_view(&view, &before).unwrap();
    assert_eq!(activation.notes.len(), 5, "{:?}", activation.notes);
    let after = activation.environment(&before).unwrap();
    for name in ["PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"] {
        assert_eq!(get(&after, name), None, "{name}");
        assert!(activation.notes.iter().any(|n| n.starts_with(name)), "{name}");
    }
    assert_eq!(get(&after, "KEPT"), Some("1"));
    assert_eq!(get(&after, "PYTHONNOUSERSITE"), Some("1"));
    assert_eq!(get(&after, "PYTHONPYCACHEPREFIX"), Some("/home/u/.cache/gpuenv/pycache"));
    assert_eq!(get(&after, "FLAGS_x"), Some("it's $HOME \\ \"1\""));
    let path = format!("{}/bin:/usr/bin", view.display());
    assert_eq!(get(&after, "PATH"), Some(&*path));
}

#[test]
fn the_library_path_is_exactly_the_farm() {
    let (_dir, view) = view(&Recorded { ld: true, ..recorded() }, &[]);
    for before in [env(&[]), env(&[("LD_LIBRARY_PATH", "/host:")])] {
        let activation = Activation::for_view(&view, &before).unwrap();
        let after = activation.environment(&before).unwrap();
        let ld = format!("{}/ld", view.display());
        assert_eq!(get(&after, "LD_LIBRARY_PATH"), Some(&*ld));
        // Activated again, nothing is foreign and nothing changes.
        let again = Activation::for_view(&view, &after).unwrap();
        assert!(again.notes.is_empty(), "{:?}", again.notes);
        assert_eq!(again.environment(&after).unwrap(), after);
    }
}

#[test]
fn directories_of_the_driver_are_kept_after_the_farm() {
    let (_dir, path) = view(&Recorded { ld: true, ..recorded() }, &[]);
    let host = tempfile::tempdir().unwrap();
    let [driver, mixed] = ["driver", "mixed"].map(|name| host.path().join(name));
    for dir in [&driver, &mixed] {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("libcuda.so.1"), "").unwrap();
    }
    fs::write(mixed.join("libcublas.so.12"), "").unwrap();
    let value = format!("{}:{}::", mixed.display(), driver.display());
    let before = env(&[("LD_LIBRARY_PATH", &value)]);
    let activation = Activation::for_view(&path, &before).unwrap();
    let after = activation.environment(&before).unwrap();
    let expected = format!("{}/ld:{}", path.display(), driver.display());
    assert_eq!(get(&after, "LD_LIBRARY_PATH"), Some(&*expected));
    assert!(activation.notes[0].contains("mixed"), "{:?}", activation.notes);
    let again = Activation::for_view(&path, &after).unwrap();
    assert_eq!(again.environment(&after).unwrap(), after);
    assert!(again.notes.is_empty());
    // Without a farm too.
    let (_dir, path) = view(&recorded(), &[]);
    let after = Activation::for_view(&path, &before).unwrap().environment(&before).unwrap();
    assert_eq!(get(&after, "LD_LIBRARY_PATH"), driver.to_str());
}

#[test]
fn another_active_environment_leaves_path() {
    let (_one, first) = view(&Recorded { ld: true, ..recorded() }, &[]);
    let (_two, second) = view(&recorded(), &[]);
    let before = env(&[("PATH", "/usr/bin")]);
    let one = Activation::for_view(&first, &before).unwrap().environment(&before).unwrap();
    let activation = Activation::for_view(&second, &one).unwrap();
    let two = activation.environment(&one).unwrap();
    assert_eq!(get(&two, "PATH"), Some(&*format!("{}/bin:/usr/bin", second.display())));
    assert_eq!(get(&two, "LD_LIBRARY_PATH"), None);
    assert!(activation.notes.is_empty(), "{:?}", activation.notes);
}

const CONDA: [(&str, &str); 4] = [
    ("etc/conda/env_vars.d/a.json", r#"{"FROM_JSON": "j"}"#),
    (
        "etc/conda/activate.d/a.sh",
        "echo from the script; export FROM_SCRIPT=\"$CONDA_PREFIX $# $FROM_JSON\"\nsome_array=(1 2)\n",
    ),
    ("etc/conda/activate.d/b.sh", "export MULTI='a\nb'; unset DROPPED\n"),
    ("etc/conda/deactivate.d/a.sh", "unset FROM_SCRIPT MULTI\n"),
];

#[test]
fn condas_scripts_are_sourced_for_a_command() {
    let (_dir, view) = view(&Recorded { conda: true, ..recorded() }, &CONDA);
    let before = env(&[("PATH", "/usr/bin:/bin"), ("DROPPED", "1")]);
    let activation = Activation::for_view(&view, &before).unwrap();
    let after = activation.environment(&before).unwrap();
    let expected = format!("{} 0 j", view.display());
    assert_eq!(get(&after, "FROM_SCRIPT"), Some(&*expected));
    assert_eq!(get(&after, "MULTI"), Some("a\nb"));
    assert_eq!(get(&after, "DROPPED"), None);
    assert_eq!(get(&after, "SHLVL"), None, "what bash itself sets is no part of it");
}

#[test]
fn a_script_that_ends_the_shell_is_an_error() {
    let files = [("etc/conda/activate.d/a.sh", "exit 3\n")];
    let (_dir, view) = view(&Recorded { conda: true, ..recorded() }, &files);
    let before = env(&[("PATH", "/usr/bin:/bin")]);
    let error = Activation::for_view(&view, &before).unwrap().environment(&before).unwrap_err();
    assert!(matches!(error, ActivateError::ScriptExit { .. }), "{error}");
}

#[test]
fn a_damaged_or_newer_record_is_named() {
    let (_dir, path) = view(&recorded(), &[]);
    fs::write(path.join(PATH), "{\"format\": 99}").unwrap();
    let error = Activation::for_view(&path, &env(&[])).unwrap_err();
    assert!(matches!(error, ActivateError::Newer { found: 99, .. }), "{error}");
    fs::write(path.join(PATH), "{").unwrap();
    let error = Activation::for_view(&path, &env(&[])).unwrap_err();
    assert!(matches!(error, ActivateError::Damaged { .. }), "{error}");
    fs::remove_file(path.join(PATH)).unwrap();
    let error = Activation::for_view(&path, &env(&[])).unwrap_err();
    assert!(matches!(error, ActivateError::Read { .. }), "{error}");
    assert!(matches!(
        Activation::for_view(Path::new("/a:b"), &env(&[])),
        Err(ActivateError::BadPath(_))
    ));
}

/// Evaluates the text in a real shell, prints variables before, within and after.
fn in_shell(program: &str, shell: Shell, dump: &str) {
    let bash = env(&[("PATH", "/usr/bin:/bin:/usr/local/bin")]);
    let found = which(&bash, OsStr::new(program));
    let found = found.unwrap_or_else(|| panic!("{program} is not installed"));
    let (_dir, view) = view(&Recorded { conda: true, ld: true, ..recorded() }, &CONDA);
    let before = env(&[
        ("PATH", "/usr/bin:/bin"),
        ("PYTHONPATH", "/it's foreign"),
        ("LD_LIBRARY_PATH", "/old"),
        ("HOME", "/nonexistent"),
    ]);
    let activation = Activation::for_view(&view, &before).unwrap();
    let text = activation.render(shell);
    let script = format!("{dump}\n{text}\n{dump}\n{text}\n{dump}\ngpuenv_deactivate\n{dump}\n");
    let output =
        Command::new(found).args(["-c", &script]).env_clear().envs(&before).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    let faults = err.replace("from the script\n", "");
    assert!(output.status.success() && faults.is_empty(), "{err}\n{script}");
    let out = out.replace("from the script\n", "");
    let states: Vec<&str> = out.split("@@\n").skip(1).collect();
    assert_eq!(states.len(), 4, "{out}");
    assert_eq!(states[0], states[3], "what was there is there again");
    assert_eq!(states[1], states[2], "twice is once");
    let v = view.display();
    for line in [
        format!("PATH={v}/bin:/usr/bin:/bin"),
        format!("LD_LIBRARY_PATH={v}/ld"),
        "PYTHONPATH=unset".into(),
        "FLAGS_x=it's $HOME \\ \"1\"".into(),
        format!("CONDA_PREFIX={v}"),
    ] {
        assert!(states[1].lines().any(|l| l == line), "{line}\n{}", states[1]);
    }
    assert!(states[0].contains("PYTHONPATH=/it's foreign\n"), "{}", states[0]);
}

const POSIX_DUMP: &str = r#"echo @@
for n in PATH LD_LIBRARY_PATH PYTHONPATH FLAGS_x CONDA_PREFIX GPUENV_VIEW FROM_JSON PYTHONNOUSERSITE; do
  eval "if [ \"\${$n+set}\" = set ]; then printf '%s=%s\n' $n \"\$$n\"; else echo $n=unset; fi"
done"#;

#[test]
fn bash_evaluates_it() {
    in_shell("bash", Shell::Bash, POSIX_DUMP);
}

#[test]
#[ignore = "needs zsh"]
fn with_zsh_it_is_evaluated() {
    in_shell("zsh", Shell::Zsh, POSIX_DUMP);
}

#[test]
fn a_posix_shell_evaluates_it() {
    // Arrays are bash's: leave the script with one out.
    let (_dir, view) = view(&recorded(), &[]);
    let before = env(&[("PATH", "/usr/bin:/bin"), ("PYTHONPATH", "/x")]);
    let text = Activation::for_view(&view, &before).unwrap().render(Shell::Sh);
    let script = format!(
        "set -eu\n{text}\necho \"$PATH\" \"${{PYTHONPATH-unset}}\"\ngpuenv_deactivate\necho \"$PATH\" $PYTHONPATH"
    );
    let output =
        Command::new("sh").args(["-c", &script]).env_clear().envs(&before).output().unwrap();
    let expected = format!("{}/bin:/usr/bin:/bin unset\n/usr/bin:/bin /x\n", view.display());
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{err}");
}

#[test]
#[ignore = "needs fish"]
fn with_fish_it_is_evaluated() {
    let dump = r#"echo @@
for n in PATH LD_LIBRARY_PATH PYTHONPATH FLAGS_x CONDA_PREFIX GPUENV_VIEW FROM_JSON PYTHONNOUSERSITE
  if set -q $n; echo $n=(string join : $$n); else; echo $n=unset; end
end"#;
    in_shell("fish", Shell::Fish, dump);
}

#[test]
#[ignore = "needs fish"]
fn with_fish_what_scripts_for_bash_export_is_taken_over() {
    let before =
        env(&[("PATH", "/usr/bin:/bin"), ("HOME", "/nonexistent"), ("KEPT", "a b"), ("OLD", "o")]);
    let fish = which(&before, OsStr::new("fish")).expect("fish is not installed");
    let (_dir, view) = view(
        &Recorded { conda: true, ..recorded() },
        &[
            (
                "etc/conda/activate.d/a.sh",
                "echo talks; export FROM_SCRIPT=\"$CONDA_PREFIX = x\" MULTI='a\n\nb' NOTHING= OLD=new PATH=\"/extra:$PATH\"\n",
            ),
            ("etc/conda/activate.d/b.sh", "export TWIN=bash\n"),
            ("etc/conda/activate.d/b.fish", "set -gx TWIN fish\n"),
            ("etc/conda/deactivate.d/b.fish", "set -e TWIN\n"),
        ],
    );
    let activation = Activation::for_view(&view, &before).unwrap();
    let text = activation.render(Shell::Fish);
    let dump = "echo @@; for n in FROM_SCRIPT MULTI NOTHING OLD KEPT TWIN PATH; printenv $n; or echo unset; end";
    let script = format!(
        "{dump}\n{text}\n{dump}\n{text}\n{dump}\ngpuenv_deactivate\n{dump}\nset --names | string match '_GPUENV*'; true\n"
    );
    let output = Command::new(fish)
        .args(["--no-config", "-c", &script])
        .env_clear()
        .envs(&before)
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    let states: Vec<&str> = out.split("@@\n").skip(1).collect();
    assert_eq!(states.len(), 4, "{out}\n{err}");
    let v = view.display();
    assert_eq!(states[0], "unset\nunset\nunset\no\na b\nunset\n/usr/bin:/bin\n");
    assert_eq!(
        states[1],
        format!("{v} = x\na\n\nb\n\nnew\na b\nfish\n/extra:{v}/bin:/usr/bin:/bin\n"),
        "{err}"
    );
    assert_eq!(states[1], states[2], "twice is once");
    assert_eq!(states[0], states[3], "what was there is there again, and nothing is left over");
    assert_eq!(err, "talks\ntalks\n", "what scripts print is for the user, and not evaluated");
}

#[test]
fn shells_are_known_by_name_and_path() {
    assert_eq!("/usr/bin/zsh".parse(), Ok(Shell::Zsh));
    assert_eq!("dash".parse(), Ok(Shell::Sh));
    assert!("tcsh".parse::<Shell>().is_err());
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let error = launch(&env(&[("PATH", "/nonexistent")]), OsStr::new("nope"), &[]);
    assert!(matches!(error, ActivateError::NotFound(name) if name == "nope"));
    let error = launch(&env(&[]), OsStr::new("/nonexistent/x"), &[]);
    assert!(matches!(error, ActivateError::Exec { .. }));
}
