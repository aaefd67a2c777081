//! Everything that reaches the terminal: results to stdout, progress and errors to stderr,
//! or JSON lines to stdout with `--json`.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource};
use owo_colors::OwoColorize as _;

use super::args::Global;
use crate::error::{Exit, Failure, Report};
use crate::progress::{Event, Progress};

/// How this run speaks.
pub struct Ui {
    json: bool,
    quiet: bool,
    progress: Arc<dyn Progress>,
}

/// Standard output could not be written.
#[derive(Debug, thiserror::Error)]
#[error("standard output could not be written")]
pub struct OutputError {
    #[source]
    pub source: io::Error,
}

impl Report for OutputError {
    fn exit(&self) -> Exit {
        Exit::User
    }
}

impl Ui {
    /// Chooses bars for a terminal, lines for a pipe, JSON where asked.
    pub fn new(global: &Global) -> Self {
        let progress: Arc<dyn Progress> = if global.json {
            Arc::new(JsonLines)
        } else if global.quiet {
            Arc::new(WarningsOnly)
        } else if io::stderr().is_terminal() {
            Arc::new(Bars::default())
        } else {
            Arc::new(Lines::default())
        };
        Ui { json: global.json, quiet: global.quiet, progress }
    }

    /// Whether results are to be JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Where rooms report to.
    pub fn progress(&self) -> Arc<dyn Progress> {
        Arc::clone(&self.progress)
    }

    /// A result in words; nothing with `--quiet` or `--json`.
    pub fn say(&self, text: impl AsRef<str>) -> io::Result<()> {
        if self.quiet || self.json {
            return Ok(());
        }
        self.out(text)
    }

    /// Output that was asked for as such (a list, a script): printed even with `--quiet`.
    pub fn out(&self, text: impl AsRef<str>) -> io::Result<()> {
        let mut out = anstream::stdout().lock();
        out.write_all(text.as_ref().as_bytes())?;
        if !text.as_ref().ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    /// The result for machines; nothing without `--json`.
    pub fn result(&self, command: &str, mut value: serde_json::Value) -> io::Result<()> {
        if !self.json {
            return Ok(());
        }
        if let Some(object) = value.as_object_mut() {
            object.shift_insert(0, "event".into(), "result".into());
            object.shift_insert(1, "command".into(), command.into());
        }
        self.out(value.to_string())
    }

    /// A warning on stderr.
    pub fn warn(&self, text: &str) {
        self.progress.event(Event::Warning { text });
    }

    /// The message of a failure: what, why, where, what next.
    pub fn failure(&self, failure: &Failure) {
        if self.json {
            let causes = chain(failure);
            let mut value = serde_json::json!({
                "event": "error",
                "exit": failure.exit() as u8,
                "message": causes.first(),
                "causes": causes.get(1..).unwrap_or_default(),
                "hint": failure.hint(),
            });
            if let Some(snippet) = failure.snippet() {
                let (line, column) = line_column(&snippet.text, snippet.span.start);
                value["file"] = snippet.file.into();
                value["line"] = line.into();
                value["column"] = column.into();
            }
            let _ = self.out(value.to_string());
            return;
        }
        let mut err = anstream::stderr().lock();
        let _ = write_failure(&mut err, failure);
    }
}

/// A number of packages in words: `1 package`, `3 packages`.
pub fn packages(count: u64) -> String {
    format!("{count} package{}", if count == 1 { "" } else { "s" })
}

fn chain(failure: &Failure) -> Vec<String> {
    let mut out = vec![failure.error().to_string()];
    let mut cause = failure.error().source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some foreign errors repeat their cause; once is enough.
        if out.last().is_none_or(|last| !last.contains(&text)) {
            out.push(text);
        }
        cause = error.source();
    }
    out
}

/// 1-based line and column (in characters) of a byte offset.
fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    (line, column)
}

fn write_failure(out: &mut impl io::Write, failure: &Failure) -> io::Result<()> {
    let causes = chain(failure);
    let (first, rest) = causes.split_first().map_or(("", &[][..]), |(f, r)| (f.as_str(), r));
    writeln!(out, "{} {}", "error:".red().bold(), first)?;
    for cause in rest {
        writeln!(out, "  {} {}", "because:".bold(), cause.trim_end().replace('\n', "\n    "))?;
    }
    if let Some(snippet) = failure.snippet() {
        let diagnostic = MietteDiagnostic::new(String::new())
            .with_label(LabeledSpan::at(snippet.span.clone(), snippet.label.clone()));
        let report = miette::Report::new(diagnostic)
            .with_source_code(NamedSource::new(&snippet.file, snippet.text.clone()));
        let theme = if io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
            GraphicalTheme::unicode()
        } else {
            GraphicalTheme::unicode_nocolor()
        };
        let mut text = String::new();
        let handler = GraphicalReportHandler::new_themed(theme).with_width(100);
        if handler.render_report(&mut text, report.as_ref()).is_ok() {
            // The handler opens with the (empty) message line; the place is what is wanted.
            for line in text.lines().skip_while(|l| !l.contains('[')) {
                writeln!(out, "{}", line.trim_end())?;
            }
        }
    }
    if let Some(hint) = failure.hint() {
        let mut lines = hint.trim_end().lines();
        writeln!(out, "{} {}", "help:".cyan().bold(), lines.next().unwrap_or_default())?;
        for line in lines {
            writeln!(out, "      {line}")?;
        }
    }
    out.flush()
}

/// Bars on a terminal: one line that says the phase, how far, how fast.
#[derive(Default)]
struct Bars {
    state: Mutex<BarState>,
}

#[derive(Default)]
struct BarState {
    bar: Option<ProgressBar>,
    /// Things of the phase, and how many of them are in the store.
    items: Option<u64>,
    stored: u64,
    /// Whether the bar counts bytes.
    bytes: bool,
}

const BYTES: &str = "{msg:12} {wide_bar} {bytes:>10} of {total_bytes} {bytes_per_sec:>12} {eta:>4}";
const ITEMS: &str = "{msg:12} {wide_bar} {pos:>5} of {len}";
const SPINNER: &str = "{spinner} {wide_msg}";

impl BarState {
    fn begin(
        &mut self,
        name: impl Into<std::borrow::Cow<'static, str>>,
        len: Option<u64>,
        template: &str,
    ) {
        if let Some(old) = self.bar.take() {
            old.finish_and_clear();
        }
        let bar = len.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸ "));
        }
        bar.set_message(name);
        bar.enable_steady_tick(Duration::from_millis(120));
        self.bar = Some(bar);
    }

    /// When the last byte is here, what is waited for is the unpacking.
    fn unpacking(&mut self) {
        let done = self.bar.as_ref().is_some_and(|bar| Some(bar.position()) >= bar.length());
        if let Some(items) = self.items.filter(|_| self.bytes && done) {
            self.begin("unpacking", Some(items), ITEMS);
            self.bytes = false;
            if let Some(bar) = &self.bar {
                bar.set_position(self.stored);
            }
        }
    }
}

impl Bars {
    fn with(&self, act: impl FnOnce(&mut BarState)) {
        // A poisoned lock only means that another thread panicked while drawing.
        act(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.with(|state| {
            if let Some(bar) = state.bar.take() {
                bar.finish_and_clear();
            }
        });
    }
}

impl Progress for Bars {
    fn event(&self, event: Event<'_>) {
        self.with(|state| match event {
            Event::Phase { name, items, bytes } => {
                let (len, template) = match (bytes, items) {
                    (Some(bytes), _) => (Some(bytes), BYTES),
                    (None, Some(items)) => (Some(items), ITEMS),
                    (None, None) => (None, SPINNER),
                };
                (state.items, state.stored, state.bytes) = (items, 0, bytes.is_some());
                state.begin(name, len, template);
                // What a hook prints must not meet a bar that moves.
                if let Some(bar) = state.bar.as_ref().filter(|_| name == "verifying") {
                    bar.disable_steady_tick();
                    bar.finish_and_clear();
                    anstream::eprintln!("{name}");
                }
            }
            Event::Resolving { environments } => {
                (state.items, state.stored, state.bytes) = (None, 0, false);
                state.begin(resolving(environments), None, SPINNER);
            }
            Event::Bytes { delta, .. } => {
                if let Some(bar) = state.bar.as_ref().filter(|_| state.bytes) {
                    bar.inc(delta);
                }
                state.unpacking();
            }
            Event::Done { .. } => {}
            Event::Stored { .. } => {
                state.stored += 1;
                if let Some(bar) = state.bar.as_ref().filter(|_| !state.bytes) {
                    bar.set_position(state.stored);
                }
            }
            Event::Note { text } => {
                show(state.bar.as_ref(), &format!("{} {text}", "note:".bold()));
            }
            Event::Warning { text } => {
                show(state.bar.as_ref(), &format!("{} {text}", "warning:".yellow().bold()));
            }
        });
    }
}

fn resolving(environments: &[String]) -> String {
    format!("resolving {}", environments.join(", "))
}

fn show(bar: Option<&ProgressBar>, text: &str) {
    match bar {
        Some(bar) => bar.suspend(|| anstream::eprintln!("{text}")),
        None => anstream::eprintln!("{text}"),
    }
}

/// Plain lines in a pipe: one a phase and one an item, nothing that moves.
#[derive(Default)]
struct Lines {
    sizes: Mutex<BTreeMap<String, u64>>,
}

impl Progress for Lines {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Phase { name, items, bytes } => {
                let mut text = name.to_owned();
                if let Some(items) = items {
                    text += &format!(" {}", packages(items));
                }
                if let Some(bytes) = bytes {
                    text += &format!(" ({})", HumanBytes(bytes));
                }
                anstream::eprintln!("{text}");
            }
            Event::Resolving { environments } => anstream::eprintln!("{}", resolving(environments)),
            Event::Bytes { item, delta } => {
                let mut sizes =
                    self.sizes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                *sizes.entry(item.to_owned()).or_default() += delta;
            }
            Event::Done { item } => {
                let mut sizes =
                    self.sizes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                match sizes.remove(item) {
                    Some(size) => anstream::eprintln!("  {item} ({})", HumanBytes(size)),
                    None => anstream::eprintln!("  {item}"),
                }
            }
            Event::Stored { .. } => {}
            Event::Note { text } => anstream::eprintln!("note: {text}"),
            Event::Warning { text } => anstream::eprintln!("{} {text}", "warning:".yellow().bold()),
        }
    }
}

/// With `--quiet`: warnings alone.
struct WarningsOnly;

impl Progress for WarningsOnly {
    fn event(&self, event: Event<'_>) {
        if let Event::Warning { text } = event {
            anstream::eprintln!("{} {text}", "warning:".yellow().bold());
        }
    }
}

/// With `--json`: events as JSON lines on stdout; bytes are summed up per item.
struct JsonLines;

impl Progress for JsonLines {
    fn event(&self, event: Event<'_>) {
        let value = match event {
            Event::Phase { name, items, bytes } => {
                serde_json::json!({"event": "phase", "name": name, "items": items, "bytes": bytes})
            }
            Event::Resolving { environments } => {
                serde_json::json!({"event": "phase", "name": "resolving", "items": null, "bytes": null, "environments": environments})
            }
            Event::Bytes { .. } => return,
            Event::Done { item } => serde_json::json!({"event": "done", "item": item}),
            Event::Stored { item } => serde_json::json!({"event": "stored", "item": item}),
            Event::Note { text } => serde_json::json!({"event": "note", "text": text}),
            Event::Warning { text } => serde_json::json!({"event": "warning", "text": text}),
        };
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_and_column_count_characters() {
        assert_eq!(line_column("a\nüb = 1", 4), (2, 2));
        assert_eq!(line_column("abc", 0), (1, 1));
        assert_eq!(line_column("abc", 99), (1, 4));
    }
}
