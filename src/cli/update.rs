//! `update`.

use super::args::{Global, UpdateArgs};
use super::lock::summary;
use super::ui::Ui;
use crate::error::{Exit, Result};
use crate::ops;
use crate::ops::context::Context;

/// `gpuenv update`.
pub fn update(global: &Global, ui: &Ui, args: &UpdateArgs) -> Result<Exit> {
    let ctx = Context::open(&global.options(), ui.progress())?;
    let done = ops::update::update(&ctx, &args.names, args.dry_run)?;
    for (name, versions) in &done.same {
        ui.say(match &versions[..] {
            [] => format!("{name} is not needed any more"),
            versions => format!("nothing newer fits: {name} stays at {}", versions.join(", ")),
        })?;
    }
    let locked = &done.locked;
    if locked.written {
        summary(ui, locked, args.dry_run)?;
    } else if args.names.is_empty() {
        ui.say("nothing newer: every package is the newest that fits env.toml")?;
    }
    let same: Vec<&String> = done.same.iter().map(|(name, _)| name).collect();
    ui.result(
        "update",
        serde_json::json!({
            "written": locked.written && !args.dry_run,
            "changes": locked.changes,
            "unchanged": same,
        }),
    )?;
    Ok(Exit::Done)
}
