//! The command line: arguments in, words out. The only place that prints or knows colours.
//!
//! One file a command. Each takes its parsed arguments, calls one verb of [`crate::ops`], and
//! says what happened. Errors of all rooms arrive here as [`Failure`] and leave as a message
//! and an exit status ([`Exit`]).

mod args;
mod edit;
mod lock;
mod realize;
mod run;
mod show;
mod ui;
mod update;

use std::process::ExitCode;

use clap::FromArgMatches as _;

pub use args::command;
use args::{Cli, Command};
use ui::Ui;

use crate::error::{Exit, Failure, Result};

/// Runs the program and returns its exit status.
pub fn main() -> ExitCode {
    restore_sigpipe();
    let parsed = args::command_for(|name| std::env::var_os(name))
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` are "errors" of clap that go to stdout with status 0.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    let ui = Ui::new(&cli.global);
    match dispatch(cli, &ui) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failure) => {
            ui.failure(&failure);
            ExitCode::from(failure.exit() as u8)
        }
    }
}

fn dispatch(cli: Cli, ui: &Ui) -> Result<Exit> {
    let global = &cli.global;
    match cli.command {
        Command::Init(args) => edit::init(global, ui, args),
        Command::Add(args) => edit::add(global, ui, args),
        Command::Remove(args) => edit::remove(global, ui, args),
        Command::Lock(args) => lock::lock(global, ui, &args),
        Command::Update(args) => update::update(global, ui, &args),
        Command::Realize(args) => realize::realize(global, ui, &args),
        Command::Run(args) => run::run(global, ui, &args),
        Command::Shell(args) => run::shell(global, ui, &args),
        Command::Activate(args) => run::activate(global, ui, &args),
        Command::List(args) => show::list(global, ui, &args),
        Command::Tree(args) => show::tree(global, ui, &args),
        Command::Why(args) => show::why(global, ui, &args),
        Command::Completions(args) => {
            show::completions(&args);
            Ok(Exit::Done)
        }
        Command::Man => show::man(),
    }
}

/// Lets a reader that goes away (`gpuenv list | head`) end the program quietly, as other
/// programs of a pipe do; Rust's runtime ignores the signal by default.
fn restore_sigpipe() {
    // SAFETY: no other thread runs yet, and SIG_DFL installs no handler of ours.
    #[allow(unsafe_code)]
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

impl From<std::io::Error> for Failure {
    fn from(source: std::io::Error) -> Self {
        ui::OutputError { source }.into()
    }
}
