//! `run`, `shell`, `activate`: the environment in use. They write nothing.

use super::args::{ActivateArgs, Global, RunArgs, ShellArgs, ShellName, VariantArgs};
use super::ui::Ui;
use crate::error::{Exit, Result};
use crate::ops;

/// `gpuenv run -- CMD`: becomes the command, so that exit code and signals are its own.
pub fn run(global: &Global, ui: &Ui, args: &RunArgs) -> Result<Exit> {
    let prepared = prepare(global, &args.variant)?;
    notes(ui, &prepared);
    Err(ops::run::exec(&prepared, &args.command))
}

/// `gpuenv shell`.
pub fn shell(global: &Global, ui: &Ui, args: &ShellArgs) -> Result<Exit> {
    let prepared = prepare(global, &args.variant)?;
    notes(ui, &prepared);
    Err(ops::run::shell(&prepared))
}

/// `gpuenv activate`.
pub fn activate(global: &Global, ui: &Ui, args: &ActivateArgs) -> Result<Exit> {
    let prepared = prepare(global, &args.variant)?;
    notes(ui, &prepared);
    let shell = args.shell.map(|s| match s {
        ShellName::Bash => ops::run::Shell::Bash,
        ShellName::Zsh => ops::run::Shell::Zsh,
        ShellName::Fish => ops::run::Shell::Fish,
        ShellName::Sh => ops::run::Shell::Sh,
    });
    ui.out(ops::run::script(&prepared, shell)?)?;
    Ok(Exit::Done)
}

fn prepare(global: &Global, variant: &VariantArgs) -> Result<ops::run::Prepared> {
    ops::run::prepare(global.project.as_deref(), variant.variant.as_deref())
}

fn notes(ui: &Ui, prepared: &ops::run::Prepared) {
    for note in prepared.notes() {
        ui.warn(&note);
    }
}
