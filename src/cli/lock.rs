//! `lock`.

use super::args::{Global, LockArgs};
use super::ui::{Ui, packages};
use crate::error::{Exit, Result};
use crate::ops;
use crate::ops::context::{Context, Options};
use crate::ops::lock::{Change, Locked};
use crate::ops::update::Update;

impl Global {
    /// The options that verbs share.
    pub fn options(&self) -> Options {
        Options {
            project: self.project.clone(),
            store: self.store.clone(),
            config: self.config.clone(),
            offline: self.offline,
        }
    }
}

/// `gpuenv lock`.
pub fn lock(global: &Global, ui: &Ui, args: &LockArgs) -> Result<Exit> {
    let ctx = Context::open(&global.options(), ui.progress())?;
    if args.check {
        ops::lock::check(&ctx)?;
        ui.say("gpuenv.lock fits env.toml")?;
        ui.result("lock", serde_json::json!({"fits": true}))?;
        return Ok(Exit::Done);
    }
    let update = if args.fresh { Update::All } else { Update::Nothing };
    let locked = ops::lock::lock(&ctx, &update)?;
    summary(ui, &locked, false)?;
    ui.result("lock", serde_json::json!({"written": locked.written, "changes": locked.changes}))?;
    Ok(Exit::Done)
}

/// Says what a lock run did, or with `dry` would do.
pub fn summary(ui: &Ui, locked: &Locked, dry: bool) -> Result<()> {
    if !locked.written {
        ui.say("gpuenv.lock fits env.toml: nothing to do")?;
        return Ok(());
    }
    let several = locked.lock.environments.len() > 1;
    for environment in &locked.lock.environments {
        let changes: Vec<&Change> = locked
            .changes
            .iter()
            .filter(|c| {
                c.platform == environment.platform.as_str()
                    && c.variant.as_deref() == environment.variant.as_ref().map(|v| v.as_str())
            })
            .collect();
        let fresh = changes.iter().all(|c| c.was.is_none());
        if several {
            let nothing = if changes.is_empty() { " no version changed" } else { "" };
            ui.say(format!("{}:{nothing}", environment.closure()))?;
        }
        for change in &changes {
            ui.say(match (&change.was, &change.is) {
                (None, Some(is)) => format!("  + {} {is}", change.name),
                (Some(was), None) => format!("  - {} {was}", change.name),
                (Some(was), Some(is)) => format!("  ~ {} {was} -> {is}", change.name),
                (None, None) => continue,
            })?;
        }
        if !fresh && changes.is_empty() {
            ui.say("  no version changed")?;
        }
    }
    let done = if dry { "would write" } else { "wrote" };
    ui.say(format!("{done} gpuenv.lock ({})", packages(locked.lock.packages.len() as u64)))?;
    Ok(())
}
