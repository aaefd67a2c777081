//! `realize`.

use indicatif::HumanBytes;

use super::args::{Global, RealizeArgs};
use super::ui::{Ui, packages};
use crate::error::{Exit, Result};
use crate::ops;
use crate::ops::context::Context;
use crate::ops::realize::{RealizeOptions, Realized};

/// `gpuenv realize`.
pub fn realize(global: &Global, ui: &Ui, args: &RealizeArgs) -> Result<Exit> {
    let ctx = Context::open(&global.options(), ui.progress())?;
    let options = RealizeOptions {
        variant: args.variant.variant.clone(),
        locked: args.locked,
        dry_run: args.dry_run,
        no_verify: args.no_verify,
    };
    let ready = ops::realize::ready(&ctx, &options)?;
    if let Some(locked) = &ready.locked {
        super::lock::summary(ui, locked, args.dry_run)?;
    }
    let done = ops::realize::realize(&ctx, &options, &ready)?;
    for finding in &done.findings {
        ui.warn(finding);
    }
    words(ui, &done, args, ready.locked.is_some())?;
    let bytes: u64 = done.fetched.iter().map(|(_, size)| size).sum();
    ui.result(
        "realize",
        serde_json::json!({
            "dry-run": args.dry_run,
            "platform": done.platform.to_string(),
            "variant": done.variant,
            "env-id": done.env_id.to_string(),
            "view": done.view,
            "packages": done.packages,
            "fetched": done.fetched.iter().map(|(file, size)| serde_json::json!({"file": file, "size": size})).collect::<Vec<_>>(),
            "fetched-bytes": bytes,
            "built": done.built,
            "generation": done.generation,
            "verification": done.verification.as_ref().map(ToString::to_string),
            "lock-written": done.lock_written,
        }),
    )?;
    Ok(Exit::Done)
}

fn words(ui: &Ui, done: &Realized, args: &RealizeArgs, locked: bool) -> Result<()> {
    let bytes: u64 = done.fetched.iter().map(|(_, size)| size).sum();
    if args.dry_run {
        if !done.built && done.fetched.is_empty() {
            ui.say("the environment is built: nothing to do")?;
            return Ok(());
        }
        for (file, size) in &done.fetched {
            ui.say(format!("would download {file} ({})", HumanBytes(*size)))?;
        }
        ui.say(format!(
            "would download {} of {} packages ({}) {} {}",
            done.fetched.len(),
            done.packages,
            HumanBytes(bytes),
            if done.built { "and build" } else { "that are missing from" },
            done.view.display()
        ))?;
        return Ok(());
    }
    let nothing = !done.built
        && done.fetched.is_empty()
        && done.generation.is_none()
        && done.verification.is_none()
        && !locked;
    if nothing {
        ui.say(format!(
            "nothing to do: {} in {}",
            packages(done.packages as u64),
            done.view.display()
        ))?;
        return Ok(());
    }
    if done.built {
        ui.say(format!(
            "built {} ({}, {} downloaded)",
            done.view.display(),
            packages(done.packages as u64),
            HumanBytes(bytes)
        ))?;
    } else if !done.fetched.is_empty() {
        ui.say(format!(
            "brought back what was missing from {} ({})",
            done.view.display(),
            packages(done.fetched.len() as u64)
        ))?;
    } else {
        ui.say(format!("{} was built already", done.view.display()))?;
    }
    if let Some(outcome) = &done.verification {
        ui.say(format!("check {outcome}"))?;
    }
    if done.lock_written {
        ui.say("recorded in gpuenv.lock; commit it together with env.toml")?;
    }
    ui.say("next: `gpuenv run -- CMD`, or `eval \"$(gpuenv activate)\"`")?;
    Ok(())
}
