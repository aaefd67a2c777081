//! The solves of one env.toml, a platform and a variant each, all at once.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::context::Context;
use super::problem::problem;
use super::project::MANIFEST;
use crate::error::{Exit, Failure, Report, Result, Snippet};
use crate::manifest::{Closure, Manifest, Variant, VariantGpu};
use crate::progress::Event;
use crate::resolve::{self, Chosen, Keep, Problem, Solution, SolveError};
use crate::sources::{Pinned, Sources, Universe};

/// One environment, solved.
pub(super) struct Solved {
    /// Which.
    pub(super) closure: Closure,
    /// What was asked.
    pub(super) problem: Problem,
    /// The answer in link order, each package pinned.
    pub(super) packages: Vec<(Chosen, Pinned)>,
}

/// Solves for every environment of `manifest`, in a lock's order. What one thread learns of the
/// sources, all know: each thing is asked for once.
///
/// # Errors
///
/// All solves that failed, in a lock's order, whichever failed first in time.
pub(super) fn all(
    ctx: &Context,
    manifest: &Manifest,
    keep: &(dyn Fn(&Closure) -> Keep + Sync),
) -> Result<Vec<Solved>> {
    let sources = ctx.sources()?;
    let closures = manifest.closures();
    match &closures[..] {
        [_] => ctx.progress.event(Event::Phase { name: "resolving", items: None, bytes: None }),
        several => {
            let names: Vec<String> = several.iter().map(|(c, _)| c.to_string()).collect();
            ctx.progress.event(Event::Resolving { environments: &names });
        }
    }
    let solve = |(closure, merged): &(Closure, Manifest)| {
        one(&sources, manifest, closure, merged, keep(closure))
    };
    let (mut solved, mut failed) = (Vec::new(), Vec::new());
    for ((closure, _), result) in closures.iter().zip(at_once(&closures, &solve)?) {
        match result {
            Ok(one) => solved.push((closure, one)),
            Err(failure) => failed.push((closure.clone(), failure)),
        }
    }
    if let Some(failure) = join(failed, closures.len()) {
        return Err(failure);
    }
    let mut out = Vec::new();
    for (closure, (universe, problem, solution)) in solved {
        let at = |text: &str| match closures.len() {
            1 => text.to_owned(),
            _ => format!("{closure}: {text}"),
        };
        for text in &solution.warnings {
            ctx.progress.event(Event::Warning { text: &at(text) });
        }
        for text in &solution.notes {
            ctx.progress.event(Event::Note { text: &at(text) });
        }
        // Where files must be fetched to be hashed, one closure after the other: they may be the
        // same files.
        let pins = universe.pin_all(&solution.packages)?;
        let packages = solution.packages.into_iter().zip(pins).collect();
        out.push(Solved { closure: closure.clone(), problem, packages });
    }
    Ok(out)
}

/// What is known of one environment before its packages are pinned. The universe is kept: as long
/// as it lives, others share what it knows.
type Answer = (Universe, Problem, Solution);

fn one(
    sources: &Sources,
    manifest: &Manifest,
    closure: &Closure,
    merged: &Manifest,
    keep: Keep,
) -> Result<Answer> {
    let universe = sources.universe(manifest, merged, closure.platform)?;
    let problem = problem(merged, closure.platform, keep);
    let solution = resolve::solve(&problem, &universe).map_err(|error| SolveFailure {
        error,
        text: manifest.text.clone(),
        tables: tables(manifest, closure),
    })?;
    Ok((universe, problem, solution))
}

/// Where a variant's own lines of a table of env.toml stand: both as messages write them.
fn tables(manifest: &Manifest, closure: &Closure) -> Vec<(String, String)> {
    let Some(name) = &closure.variant else { return Vec::new() };
    let own_gpu = |v: &Variant| matches!(v.gpu, VariantGpu::Other(_));
    let gpu = manifest.variants.get(name).is_some_and(own_gpu).then_some("gpu");
    let tables = ["dependencies", "pypi-dependencies"].into_iter().chain(gpu);
    tables.map(|table| (format!("[{table}]"), format!("[variants.{name}.{table}]"))).collect()
}

/// The machine gives no thread.
#[derive(Debug, thiserror::Error)]
#[error("no thread could be started to solve in")]
struct NoThread(#[source] std::io::Error);

impl Report for NoThread {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        Some("the limit on processes of this user (`ulimit -u`) may be too low".into())
    }
}

/// As much as the main thread of a program has: a solve goes deep.
const STACK: usize = 8 << 20;

/// Does `act` for each of `items`, on as many threads as there are processors; answers in the order
/// of the items.
fn at_once<I: Sync, T: Send>(
    items: &[I],
    act: &(dyn Fn(&I) -> Result<T> + Sync),
) -> Result<Vec<Result<T>>> {
    if let [only] = items {
        return Ok(vec![act(only)]);
    }
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = AtomicUsize::new(0);
    let answers: Mutex<BTreeMap<usize, Result<T>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            let work = || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    let answer = act(item);
                    answers.lock().unwrap_or_else(PoisonError::into_inner).insert(index, answer);
                }
            };
            std::thread::Builder::new()
                .name("solve".into())
                .stack_size(STACK)
                .spawn_scoped(scope, work)
                .map_err(NoThread)?;
        }
        Ok::<_, Failure>(())
    })?;
    Ok(answers.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect())
}

/// A [`SolveError`] with the text that its span points into.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
struct SolveFailure {
    error: SolveError,
    text: String,
    /// Advice that names a table is to name the variant's, where a change is felt by it alone.
    tables: Vec<(String, String)>,
}

impl Report for SolveFailure {
    fn exit(&self) -> Exit {
        self.error.exit()
    }
    fn hint(&self) -> Option<String> {
        let hint = self.error.hint()?;
        Some(self.tables.iter().fold(hint, |hint, (table, own)| hint.replace(table, own)))
    }
    fn snippet(&self) -> Option<Snippet> {
        let span = self.error.span()?;
        Some(Snippet {
            file: MANIFEST.into(),
            text: self.text.clone(),
            span,
            label: "asked for here".into(),
        })
    }
}

/// Failures of several environments, the first in full.
#[derive(Debug)]
struct Failures {
    /// In a lock's order; never empty. Environments that failed in the same words stand together.
    groups: Vec<(Vec<Closure>, Failure)>,
}

/// `None` where nothing failed; the failure itself where there is one environment in all.
fn join(failed: Vec<(Closure, Failure)>, of: usize) -> Option<Failure> {
    let mut groups: Vec<(Vec<Closure>, Failure)> = Vec::new();
    for (closure, failure) in failed {
        // What is wrong in env.toml's own lines is mended there, whatever variants say.
        let same = |other: &&mut (Vec<Closure>, Failure)| {
            other.1.error().to_string() == failure.error().to_string()
        };
        match groups.iter_mut().find(same) {
            Some((closures, _)) => closures.push(closure),
            None => groups.push((vec![closure], failure)),
        }
    }
    match groups.len() {
        0 => None,
        1 if of == 1 => groups.pop().map(|(_, failure)| failure),
        _ => Some(Failures { groups }.into()),
    }
}

fn names<'c>(closures: impl IntoIterator<Item = &'c Closure>) -> String {
    closures.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (closures, failure)) in self.groups.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            let message = failure.error().to_string();
            let named = match &closures[..] {
                // A message of the solver names the platform itself.
                [one] => one.variant.is_none() && message.contains(one.platform.as_str()),
                _ => false,
            };
            if !named {
                write!(f, "{}: ", names(closures))?;
            }
            f.write_str(&message)?;
            if at > 0 {
                let mut cause = failure.error().source();
                while let Some(error) = cause {
                    write!(f, ": {error}")?;
                    cause = error.source();
                }
            }
        }
        Ok(())
    }
}

impl Error for Failures {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.groups.first().and_then(|(_, failure)| failure.error().source())
    }
}

impl Report for Failures {
    fn exit(&self) -> Exit {
        self.groups.first().map_or(Exit::Bug, |(_, failure)| failure.exit())
    }
    fn hint(&self) -> Option<String> {
        let mut hints: Vec<(Vec<&Closure>, String)> = Vec::new();
        for (closures, failure) in &self.groups {
            let Some(hint) = failure.hint() else { continue };
            match hints.iter_mut().find(|(_, known)| *known == hint) {
                Some((of, _)) => of.extend(closures),
                None => hints.push((closures.iter().collect(), hint)),
            }
        }
        let several = hints.len() > 1;
        let hints = hints.into_iter().map(|(of, hint)| match several {
            true => format!("{}: {hint}", names(of)),
            false => hint,
        });
        Some(hints.collect::<Vec<_>>().join("\n")).filter(|hint| !hint.is_empty())
    }
    fn snippet(&self) -> Option<Snippet> {
        self.groups.first().and_then(|(_, failure)| failure.snippet())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Said(&'static str, Exit);

    impl Report for Said {
        fn exit(&self) -> Exit {
            self.1
        }
        fn hint(&self) -> Option<String> {
            Some("do this".into())
        }
    }

    fn closure(platform: &str, variant: Option<&str>) -> Closure {
        let variant = variant.map(|name| name.parse().unwrap());
        Closure { platform: platform.parse().unwrap(), variant }
    }

    #[test]
    fn answers_come_in_the_order_of_the_questions() {
        let items: Vec<usize> = (0..50).collect();
        let act = |item: &usize| match item % 7 {
            3 => Err(Said("x", Exit::User).into()),
            _ => Ok(*item),
        };
        let answers = at_once(&items, &act).unwrap();
        for (item, answer) in items.iter().zip(&answers) {
            assert_eq!(answer.as_ref().ok(), (item % 7 != 3).then_some(item));
        }
        assert_eq!(answers.len(), 50);
    }

    #[test]
    fn every_failure_is_told_once() {
        let failed = vec![
            (closure("linux-64", None), Said("cannot be had on linux-64", Exit::User).into()),
            (closure("linux-64", Some("cpu")), Said("no answer", Exit::Source).into()),
            (closure("win-64", Some("cpu")), Said("no answer", Exit::Source).into()),
        ];
        let failure = join(failed, 4).unwrap();
        assert_eq!(
            failure.error().to_string(),
            "cannot be had on linux-64\nlinux-64 cpu, win-64 cpu: no answer"
        );
        assert_eq!(failure.exit(), Exit::User);
        assert_eq!(failure.hint().unwrap(), "do this");
        assert!(join(Vec::new(), 4).is_none());
        let alone = vec![(closure("linux-64", None), Said("x", Exit::User).into())];
        assert_eq!(join(alone, 1).unwrap().error().to_string(), "x");
    }
}
