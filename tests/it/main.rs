//! End-to-end tests: the real binary in a scrubbed environment against loopback servers.
//!
//! Most tests are directories (`tests/cases/`, see [`case`]); those that need more than a
//! script are functions in the modules below. Each is reported under its own name; one that
//! cannot run on this machine is reported as ignored.
//!
//! | variable | effect |
//! |---|---|
//! | `SNAPSHOTS=overwrite` | writes `expected.txt` of each case |
//! | `GPUENV_TEST_NETWORK=1` | also runs the tests that download from the default wheel index |
//! | `GPUENV_TEST_DATA=DIR` | where the real packages are that some tests read |
//! | `GPUENV_TEST_PYTHON=EXE` | the CPython to use |
//! | `GPUENV_TEST_TMP=DIR` | where the sandboxes are made |
//! | `GPUENV_TEST_KEEP=1` | leaves the sandboxes there |

mod case;
mod index;
mod make;
mod makers;
mod real;
mod rooms;
mod sandbox;
mod serve;
mod together;

use libtest_mimic::{Arguments, Failed, Trial};

/// A test that is a function; `lacks` says why it cannot run here.
pub fn trial(name: &str, lacks: Option<&str>, test: fn()) -> Trial {
    let trial = Trial::test(name, move || {
        test();
        Ok::<(), Failed>(())
    });
    match lacks {
        Some(lacks) => trial.with_ignored_flag(true).with_kind(format!("needs {lacks}")),
        None => trial,
    }
}

fn main() {
    // The runner reports what a test panicked with, but not where.
    std::panic::set_hook(Box::new(|info| {
        if let Some(at) = info.location() {
            eprintln!("panicked at {at}");
        }
    }));
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for name in case::names() {
        let loaded = case::load(&name);
        let lacks = loaded.as_ref().ok().and_then(case::lacking);
        let run = name.clone();
        let mut trial = Trial::test(format!("case::{name}"), move || {
            case::run(&run);
            Ok(())
        });
        if let Some(lacks) = lacks {
            trial = trial.with_ignored_flag(true).with_kind(format!("needs {lacks}"));
        }
        trials.push(trial);
    }
    trials.extend(makers::trials());
    trials.extend(rooms::trials());
    trials.extend(together::trials());
    trials.extend(real::trials());
    let conclusion = libtest_mimic::run(&arguments, trials);
    real::clean_up();
    conclusion.exit();
}
