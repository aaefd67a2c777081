//! `init`, `add`, `remove`: they edit env.toml and nothing else.

use super::args::{AddArgs, Global, InitArgs, RemoveArgs};
use super::ui::Ui;
use crate::error::{Exit, Result};
use crate::ops;

/// `gpuenv init`.
pub fn init(global: &Global, ui: &Ui, args: InitArgs) -> Result<Exit> {
    let done = ops::edit::init(
        global.project.as_deref(),
        &ops::edit::Init {
            name: args.name,
            channels: args.channel,
            platforms: args.platform,
            python: args.python,
            host_python: args.host_python,
        },
    )?;
    ui.say(format!("wrote {}", done.path.display()))?;
    ui.say("next: `gpuenv add NAME` (conda) or `gpuenv add --pypi NAME` (wheels), then `gpuenv realize`")?;
    ui.result("init", serde_json::json!({"path": done.path}))?;
    Ok(Exit::Done)
}

/// `gpuenv add`.
pub fn add(global: &Global, ui: &Ui, args: AddArgs) -> Result<Exit> {
    let done = ops::edit::add(
        global.project.as_deref(),
        &ops::edit::Add { specs: args.specs, pypi: args.pypi, index: args.index },
    )?;
    for line in &done.lines {
        ui.say(line)?;
    }
    if done.changed {
        ui.say("next: `gpuenv realize`")?;
    }
    ui.result("add", serde_json::json!({"changed": done.changed, "lines": done.lines}))?;
    Ok(Exit::Done)
}

/// `gpuenv remove`.
pub fn remove(global: &Global, ui: &Ui, args: RemoveArgs) -> Result<Exit> {
    let done = ops::edit::remove(global.project.as_deref(), &args.names)?;
    for line in &done.lines {
        ui.say(line)?;
    }
    ui.say("next: `gpuenv realize`")?;
    ui.result("remove", serde_json::json!({"changed": done.changed, "lines": done.lines}))?;
    Ok(Exit::Done)
}
