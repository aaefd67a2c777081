//! `list`, `tree`, `why`, `completions`, `man`: what the lock and the program say about themselves.

use std::io::Write as _;

use super::args::{CompletionsArgs, Global, ListArgs, TreeArgs, WhyArgs, command};
use super::ui::{Ui, packages};
use crate::error::{Exit, Result};
use crate::ops::project::Project;
use crate::ops::show::{self, Row};
use crate::ops::variant::given;

/// `gpuenv list`.
pub fn list(global: &Global, ui: &Ui, args: &ListArgs) -> Result<Exit> {
    let lock = Project::find(global.project.as_deref())?.require_lock()?;
    let environments = show::list(&lock, given(args.variant.variant.as_deref()))?;
    if ui.json() {
        ui.result("list", serde_json::json!({"environments": environments}))?;
        return Ok(Exit::Done);
    }
    for environment in environments {
        let width = |of: fn(&Row) -> &str| {
            environment.packages.iter().map(|r| of(r).len()).max().unwrap_or(0)
        };
        let (name, version) = (width(|r| &r.name), width(|r| &r.version));
        let build = width(|r| r.build.as_deref().unwrap_or(""));
        ui.out(format!(
            "{} ({}, {})",
            environment.place(),
            packages(environment.packages.len() as u64),
            size(environment.size)
        ))?;
        for row in &environment.packages {
            let line = format!(
                "  {:name$}  {:version$}  {:build$}  {:5}  {:>9}  {}",
                row.name,
                row.version,
                row.build.as_deref().unwrap_or(""),
                row.kind,
                size(row.size),
                row.source,
            );
            ui.out(line.trim_end())?;
        }
    }
    Ok(Exit::Done)
}

/// `gpuenv tree`.
pub fn tree(global: &Global, ui: &Ui, args: &TreeArgs) -> Result<Exit> {
    let lock = Project::find(global.project.as_deref())?.require_lock()?;
    let trees = show::tree(&lock, given(args.variant.variant.as_deref()), &args.names)?;
    if ui.json() {
        ui.result("tree", serde_json::json!({"environments": trees}))?;
        return Ok(Exit::Done);
    }
    for tree in trees {
        ui.out(tree.to_string())?;
    }
    Ok(Exit::Done)
}

/// `gpuenv why NAME`.
pub fn why(global: &Global, ui: &Ui, args: &WhyArgs) -> Result<Exit> {
    let lock = Project::find(global.project.as_deref())?.require_lock()?;
    let answers = show::why(&lock, given(args.variant.variant.as_deref()), &args.name)?;
    if ui.json() {
        ui.result("why", serde_json::json!({"answers": answers}))?;
        return Ok(Exit::Done);
    }
    for answer in answers {
        ui.out(answer.to_string())?;
    }
    Ok(Exit::Done)
}

/// `gpuenv completions SHELL`.
pub fn completions(args: &CompletionsArgs) {
    clap_complete::generate(args.shell, &mut command(), "gpuenv", &mut std::io::stdout());
}

/// `gpuenv man`: the main page, then one section a command, in roff.
pub fn man() -> Result<Exit> {
    let mut out = std::io::stdout().lock();
    let mut main = command();
    main.build();
    clap_mangen::Man::new(main.clone()).render(&mut out)?;
    for sub in main.get_subcommands().filter(|c| c.get_name() != "help") {
        let name: &'static str = Box::leak(format!("gpuenv {}", sub.get_name()).into_boxed_str());
        writeln!(out, ".SH {}", name.to_uppercase())?;
        let page = clap_mangen::Man::new(sub.clone().name(name));
        page.render_synopsis_section(&mut out)?;
        page.render_description_section(&mut out)?;
        page.render_options_section(&mut out)?;
    }
    Ok(Exit::Done)
}

/// Bytes for people: `1.2 MiB`.
pub fn size(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}
