//! The view manifest: what a view holds, wherever it lies. Its hash is the view hash.
//!
//! Grammar (also in `store-layout/view.md`): UTF-8 lines, fields separated by one TAB. The first
//! line is `gpuenv-view` and the format number. Then one line for each path, sorted bytewise by
//! path, a directory before what is in it:
//!
//! ```text
//! dir        PATH
//! fold       PATH  NAR  FROM            a link to the directory FROM of the package with this NAR hash
//! file       PATH  SHA256  MODE         content and mode (`r` 0444, `x` 0555)
//! link       PATH  TARGET               a symbolic link
//! python     PATH                       a symbolic link to the machine's interpreter
//! relocated  PATH  SHA256  MODE  RULE   this content, with the view's path put in by RULE:
//!                                       `text PLACEHOLDER`, `binary PLACEHOLDER`, `shebang`,
//!                                       `kernelspec [PLACEHOLDER]`
//! generated  PATH  MODE  WHAT           what gpuenv itself wrote
//! ```
//!
//! The view's own path and the interpreter's path are nowhere in it: a file that holds them is
//! described by what it is made from and by which rule. So two views of one environment in two
//! stores have one manifest, and what a file must hold can be derived again from the store.
//! `PLACEHOLDER` and `TARGET` are escaped: backslash as `\\`, control characters as `\u{HEX}`.
//! The manifest lies in the view at [`PATH`] and does not list itself.

use std::fmt::Write as _;

use super::plan::{OpKind, Plan, Relocate};
use crate::hash::Sha256;

/// Where the manifest lies in a view.
pub const PATH: &str = "share/gpuenv/manifest";

/// The manifest of a planned view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewManifest {
    text: String,
}

impl ViewManifest {
    /// The format this program writes. It is raised whenever the same packages and settings
    /// would give another manifest, be it for its grammar or for what a plan makes of them: a
    /// lock names the format that its view hash is of, and only hashes of one format are
    /// compared.
    pub const FORMAT: u32 = 1;

    /// Writes down what a plan makes.
    pub fn of(plan: &Plan) -> Self {
        let mut text = format!("gpuenv-view\t{}\n", Self::FORMAT);
        for op in &plan.ops {
            let path = &op.path;
            let line = match &op.kind {
                OpKind::Dir => format!("dir\t{path}"),
                OpKind::Fold { package, from } => {
                    format!("fold\t{path}\t{}\t{from}", plan.packages[*package].nar)
                }
                OpKind::File { sha256, executable, .. } => {
                    format!("file\t{path}\t{sha256}\t{}", mode(*executable))
                }
                OpKind::Symlink { target } => format!("link\t{path}\t{}", escape(target)),
                OpKind::HostPython => format!("python\t{path}"),
                OpKind::Relocated { sha256, executable, how, .. } => {
                    let rule = match how {
                        Relocate::Text { placeholder } => format!("text {}", escape(placeholder)),
                        Relocate::Binary { placeholder } => {
                            format!("binary {}", escape(placeholder))
                        }
                        Relocate::Kernelspec { placeholder: None } => "kernelspec".to_owned(),
                        Relocate::Kernelspec { placeholder: Some(placeholder) } => {
                            format!("kernelspec {}", escape(placeholder))
                        }
                        Relocate::PythonShebang => "shebang".to_owned(),
                    };
                    format!("relocated\t{path}\t{sha256}\t{}\t{rule}", mode(*executable))
                }
                OpKind::Generated { content, executable } => {
                    let what = content.canonical(|package| plan.packages[package].sha256);
                    format!("generated\t{path}\t{}\t{what}", mode(*executable))
                }
            };
            text.push_str(&line);
            text.push('\n');
        }
        ViewManifest { text }
    }

    /// Its canonical text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The view hash: SHA-256 over the canonical text.
    pub fn hash(&self) -> Sha256 {
        Sha256::of(&self.text)
    }
}

fn mode(executable: bool) -> char {
    if executable { 'x' } else { 'r' }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_would_break_a_line() {
        assert_eq!(escape("a\tb\\c\nd"), "a\\u{9}b\\\\c\\u{a}d");
        assert_eq!(escape("../lib x/é"), "../lib x/é");
    }
}
