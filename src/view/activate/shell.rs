//! Activation as text for a shell.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::Activation;

/// A shell that can be activated in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
    /// Any POSIX shell (dash, ash, ksh).
    Sh,
}

/// No shell that gpuenv knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no shell that gpuenv knows: expected bash, zsh, fish or sh")]
pub struct UnknownShell(pub String);

impl FromStr for Shell {
    type Err = UnknownShell;
    /// Reads a name or the path of a program, as `$SHELL` holds it.
    fn from_str(text: &str) -> Result<Self, UnknownShell> {
        match Path::new(text).file_name().and_then(|n| n.to_str()) {
            Some("bash") => Ok(Shell::Bash),
            Some("zsh") => Ok(Shell::Zsh),
            Some("fish") => Ok(Shell::Fish),
            Some("sh" | "dash" | "ash" | "ksh" | "busybox") => Ok(Shell::Sh),
            _ => Err(UnknownShell(text.to_owned())),
        }
    }
}

pub(super) fn render(activation: &Activation, shell: Shell) -> String {
    match shell {
        Shell::Fish => fish(activation),
        Shell::Bash | Shell::Zsh | Shell::Sh => posix(activation),
    }
}

/// Whether a shell has variables of this name. Others are left to `gpuenv run`.
pub(in crate::view) fn is_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}

fn with_extension<'a>(
    paths: &'a [PathBuf],
    extension: &'a str,
) -> impl DoubleEndedIterator<Item = &'a PathBuf> {
    paths.iter().filter(move |p| p.extension().is_some_and(|e| e == extension))
}

/// `text` as one word of a POSIX shell.
pub(in crate::view) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// `text` as one word of fish.
fn quote_fish(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}

fn quote_path(path: &Path, quote: fn(&str) -> String) -> String {
    quote(&path.to_string_lossy())
}

/// All variables that are touched, `PATH` first.
fn touched(activation: &Activation) -> Vec<&str> {
    let mut all = vec!["PATH"];
    all.extend(activation.set.keys().map(String::as_str));
    all.extend(activation.unset.iter().map(String::as_str));
    all.retain(|name| is_name(name));
    all
}

fn posix(activation: &Activation) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let mut line = |l: String| {
        let _ = writeln!(text, "{l}");
    };
    line("if command -v gpuenv_deactivate >/dev/null 2>&1; then gpuenv_deactivate; fi".into());
    for name in touched(activation) {
        let saved = format!("_GPUENV_SAVED_{name}");
        line(format!(
            "if [ \"${{{name}+set}}\" = set ]; then {saved}=\"${name}\"; else unset {saved}; fi"
        ));
    }
    for name in activation.unset.iter().filter(|name| is_name(name)) {
        line(format!("unset {name}"));
    }
    for (name, value) in activation.set.iter().filter(|(name, _)| is_name(name)) {
        line(format!("export {name}={}", quote(value)));
    }
    for dir in activation.path.iter().rev() {
        line(format!("export PATH={}\"${{PATH:+:$PATH}}\"", quote_path(dir, quote)));
    }
    for script in with_extension(&activation.scripts, "sh") {
        line(format!(". {}", quote_path(script, quote)));
    }
    line("gpuenv_deactivate() {".into());
    for script in with_extension(&activation.deactivate_scripts, "sh").rev() {
        line(format!("  . {}", quote_path(script, quote)));
    }
    for name in touched(activation) {
        let saved = format!("_GPUENV_SAVED_{name}");
        line(format!(
            "  if [ \"${{{saved}+set}}\" = set ]; then export {name}=\"${saved}\"; unset {saved}; \
             else unset {name}; fi"
        ));
    }
    line("  hash -r 2>/dev/null".into());
    line("  unset -f gpuenv_deactivate".into());
    line("}".into());
    line("hash -r 2>/dev/null".into());
    text
}

/// Scripts of conda packages that are there for POSIX shells only: bash sources them, and what
/// they export is taken over. Bash's own variables stay fish's.
const FROM_BASH: &str = r#"set -g _GPUENV_FROM_BASH
set -g _GPUENV_BASH_SAYS (command bash --noprofile --norc -c @source@ gpuenv @scripts@ </dev/null | string split0)
for _gpuenv_pair in $_GPUENV_BASH_SAYS
  string match -qr '(?s)^(?<_gpuenv_name>[A-Za-z_][A-Za-z0-9_]*)=(?<_gpuenv_value>.*)$' -- $_gpuenv_pair; or continue
  contains -- $_gpuenv_name _ SHLVL PWD OLDPWD; and continue
  set -qx $_gpuenv_name; and test (string join : -- $$_gpuenv_name | string collect --allow-empty) = "$_gpuenv_value"; and continue
  set -e _GPUENV_BASH_SAVED_$_gpuenv_name
  set -q $_gpuenv_name; and set -g _GPUENV_BASH_SAVED_$_gpuenv_name $$_gpuenv_name
  set -a _GPUENV_FROM_BASH $_gpuenv_name
  if test $_gpuenv_name = PATH; set -gx PATH (string split : -- $_gpuenv_value); else; set -gx $_gpuenv_name $_gpuenv_value; end
end
set -e _GPUENV_BASH_SAYS _gpuenv_name _gpuenv_value"#;

/// Undoes [`FROM_BASH`].
const UNDO_FROM_BASH: &str = r#"  for name in $_GPUENV_FROM_BASH
    set -l saved _GPUENV_BASH_SAVED_$name
    if set -q $saved; set -gx $name $$saved; set -e $saved; else; set -e $name; end
  end
  set -e _GPUENV_FROM_BASH"#;

fn fish(activation: &Activation) -> String {
    let mut text = String::new();
    let mut line = |l: String| {
        let _ = writeln!(text, "{l}");
    };
    line("functions -q gpuenv_deactivate; and gpuenv_deactivate".into());
    for name in touched(activation) {
        let saved = format!("_GPUENV_SAVED_{name}");
        line(format!("set -e {saved}; set -q {name}; and set -g {saved} ${name}"));
    }
    for name in activation.unset.iter().filter(|name| is_name(name)) {
        line(format!("set -e {name}"));
    }
    for (name, value) in activation.set.iter().filter(|(name, _)| is_name(name)) {
        line(format!("set -gx {name} {}", quote_fish(value)));
    }
    let dirs: Vec<_> = activation.path.iter().map(|d| quote_path(d, quote_fish)).collect();
    line(format!("set -gx PATH {} $PATH", dirs.join(" ")));
    for script in with_extension(&activation.scripts, "fish") {
        line(format!("source {}", quote_path(script, quote_fish)));
    }
    let lone: Vec<_> = with_extension(&activation.scripts, "sh")
        .filter(|script| !activation.scripts.contains(&script.with_extension("fish")))
        .map(|script| quote_path(script, quote_fish))
        .collect();
    if !lone.is_empty() {
        line(
            FROM_BASH
                .replace("@scripts@", &lone.join(" "))
                .replace("@source@", &quote_fish(super::SOURCE_ALL)),
        );
    }
    line("function gpuenv_deactivate".into());
    if !lone.is_empty() {
        line(UNDO_FROM_BASH.into());
    }
    for script in with_extension(&activation.deactivate_scripts, "fish").rev() {
        line(format!("  source {}", quote_path(script, quote_fish)));
    }
    for name in touched(activation) {
        let saved = format!("_GPUENV_SAVED_{name}");
        line(format!(
            "  if set -q {saved}; set -gx {name} ${saved}; set -e {saved}; else; set -e {name}; end"
        ));
    }
    line("  functions -e gpuenv_deactivate".into());
    line("end".into());
    text
}
