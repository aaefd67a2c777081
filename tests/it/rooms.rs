//! The map of rooms in `src/lib.rs` is kept: pure rooms import no input or output, clock,
//! environment or async; dependencies point down; only `cli` prints.
//!
//! The sources are parsed, not searched: comments, strings and test modules do not count,
//! and neither renaming nor grouping in a `use` hides anything.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use syn::visit::Visit;

use crate::trial;

/// The tests of this module.
pub fn trials() -> Vec<Trial> {
    vec![
        trial("rooms::pure_rooms_are_pure", None, pure_rooms_are_pure),
        trial("rooms::dependencies_point_down", None, dependencies_point_down),
        trial("rooms::only_cli_prints", None, only_cli_prints),
        trial("rooms::no_machine_or_host_is_named", None, no_machine_or_host_is_named),
        trial("rooms::the_check_itself_sees", None, the_check_itself_sees),
    ]
}

/// Rooms that only turn values into values.
const PURE: [&str; 5] = ["manifest", "lockfile", "resolve", "elf", "view/plan"];

/// What they may not name.
const IMPURE: [&str; 22] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::time",
    "std::process",
    "std::thread",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "std::os",
    "fs_err",
    "tempfile",
    "tokio",
    "futures",
    "reqwest",
    "reqwest_middleware",
    "rustix",
    "memmap2",
    "libloading",
    "uv_client",
    "uv_cache",
    "rattler_repodata_gateway",
];

/// Rooms from the top down; those of one layer do not know each other.
const LAYERS: [&[&str]; 5] = [
    &["cli"],
    &["ops"],
    &["sources", "store", "view", "machine", "verify"],
    &["resolve", "lockfile", "manifest", "elf", "package"],
    &["error", "hash", "relpath", "progress", "fs"],
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All source files: path below `src`, and text.
fn files() -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut pending = vec![source()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).expect("src is readable").flatten() {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(source()).expect("below src");
                let text = std::fs::read_to_string(&path).expect("sources are text");
                out.push((name.to_string_lossy().into_owned(), text));
            }
        }
    }
    out.sort();
    assert!(!out.is_empty());
    out
}

fn in_room(file: &str, room: &str) -> bool {
    file.strip_prefix(room).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
}

/// Files that a `#[cfg(test)] mod name;` elsewhere names hold tests only.
fn is_test_file(file: &str) -> bool {
    let stem = file.rsplit('/').next().unwrap_or(file);
    file.contains("/tests/")
        || stem.starts_with("tests")
        || stem.starts_with("test_")
        || stem.ends_with("_tests.rs")
        || stem == "testing.rs"
}

/// Every path of a file, outside tests, with imported names put back in full.
#[derive(Default)]
struct Paths {
    found: BTreeSet<String>,
    macros: BTreeSet<String>,
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("test")
            || (a.path().is_ident("cfg")
                && a.parse_args::<syn::Meta>().is_ok_and(|m| m.path().is_ident("test")))
    })
}

impl Paths {
    fn of(text: &str) -> Self {
        let file = syn::parse_file(text).expect("sources compile");
        let mut paths = Paths::default();
        paths.visit_file(&file);
        paths
    }

    fn tree(&mut self, prefix: &str, tree: &syn::UseTree) {
        let join = |name: &str| match prefix {
            "" => name.to_owned(),
            prefix => format!("{prefix}::{name}"),
        };
        match tree {
            syn::UseTree::Path(p) => self.tree(&join(&p.ident.to_string()), &p.tree),
            syn::UseTree::Name(n) if n.ident == "self" => drop(self.found.insert(prefix.into())),
            syn::UseTree::Name(n) => drop(self.found.insert(join(&n.ident.to_string()))),
            syn::UseTree::Rename(r) => drop(self.found.insert(join(&r.ident.to_string()))),
            syn::UseTree::Glob(_) => drop(self.found.insert(prefix.into())),
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.tree(prefix, t)),
        }
    }

    /// Whether `path` or something below it is named.
    fn names(&self, path: &str) -> bool {
        self.found
            .iter()
            .any(|p| p.strip_prefix(path).is_some_and(|r| r.is_empty() || r.starts_with("::")))
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(i) => &i.attrs,
            syn::Item::Fn(i) => &i.attrs,
            syn::Item::Use(i) => &i.attrs,
            syn::Item::Impl(i) => &i.attrs,
            syn::Item::Struct(i) => &i.attrs,
            syn::Item::Const(i) => &i.attrs,
            syn::Item::Static(i) => &i.attrs,
            _ => return syn::visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            syn::visit::visit_item(self, item);
        }
    }
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree("", &item.tree);
    }
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.found.insert(parts.join("::"));
        syn::visit::visit_path(self, path);
    }
    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        if let Some(name) = mac.path.segments.last() {
            self.macros.insert(name.ident.to_string());
        }
        // What stands in a macro call is tokens: paths in it are found by their text.
        let text = mac.tokens.to_string().replace(' ', "");
        for path in IMPURE.iter().copied().chain(LAYERS.concat()) {
            for path in [path.to_owned(), format!("crate::{path}")] {
                if path.contains("::") && text.contains(&format!("{path}::")) {
                    self.found.insert(path);
                }
            }
        }
        syn::visit::visit_macro(self, mac);
    }
}

fn pure_rooms_are_pure() {
    let mut wrong = Vec::new();
    let effectful: Vec<String> =
        LAYERS[..3].concat().iter().chain(&["fs"]).map(|r| format!("crate::{r}")).collect();
    for (file, text) in files() {
        if !PURE.iter().any(|room| in_room(&file, room)) || is_test_file(&file) {
            continue;
        }
        let paths = Paths::of(&text);
        for impure in IMPURE.iter().copied().chain(effectful.iter().map(String::as_str)) {
            // The plan of a view lives in the view.
            if impure == "crate::view" && file.starts_with("view/") {
                continue;
            }
            if paths.names(impure) {
                wrong.push(format!("src/{file} names {impure}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn dependencies_point_down() {
    let mut wrong = Vec::new();
    for (file, text) in files() {
        let Some((layer, room)) = LAYERS.iter().enumerate().find_map(|(nth, rooms)| {
            rooms.iter().find(|room| in_room(&file, room)).map(|room| (nth, *room))
        }) else {
            continue;
        };
        if is_test_file(&file) {
            continue;
        }
        let paths = Paths::of(&text);
        let above = LAYERS[..layer].concat();
        // The effectful row: neighbours meet in ops.
        let beside = if layer == 2 { LAYERS[2].to_vec() } else { Vec::new() };
        for other in above.iter().chain(&beside).filter(|other| **other != room) {
            if paths.names(&format!("crate::{other}")) {
                wrong.push(format!("src/{file} ({room}) names {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn only_cli_prints() {
    let mut wrong = Vec::new();
    for (file, text) in files() {
        if in_room(&file, "cli") || is_test_file(&file) {
            continue;
        }
        let paths = Paths::of(&text);
        for name in ["print", "println", "eprint", "eprintln", "dbg", "todo", "unimplemented"] {
            if paths.macros.contains(name) {
                wrong.push(format!("src/{file} has {name}!"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Default locations come from the libraries that own them, and no path of the machine that
/// builds is anywhere.
fn no_machine_or_host_is_named() {
    let channels = rattler_conda_types::ChannelConfig::default_with_root_dir("/".into());
    let mut names: Vec<String> = [
        channels.channel_alias.host_str().map(str::to_owned),
        uv_distribution_types::PYPI_URL.host_str().map(str::to_owned),
        std::env::var("HOME").ok().filter(|h| h.len() > 1).map(|h| h + "/"),
        Some(format!("{}/", env!("CARGO_MANIFEST_DIR"))),
    ]
    .into_iter()
    .flatten()
    .collect();
    names.sort();
    assert!(names.len() >= 3, "{names:?}");
    let mut wrong = Vec::new();
    for (file, text) in files() {
        for name in &names {
            if text.contains(name.as_str()) {
                wrong.push(format!("src/{file} holds {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn the_check_itself_sees() {
    let text = r#"
        use std::{collections::BTreeMap, env as e, io};
        use fs_err as fs;
        // std::net in a comment, and "std::process" in a string
        fn f() { let _ = std::time::Instant::now(); format!("{}", tokio::task::id()); println!("x"); }
        #[cfg(test)]
        mod tests { use std::thread; use crate::sources::X; }
        fn g() -> crate::ops::Y { assert!(crate::store::has()); }
    "#;
    let paths = Paths::of(text);
    for seen in ["std::env", "fs_err", "std::time", "crate::ops", "crate::store"] {
        assert!(paths.names(seen), "{seen} is not seen in {:?}", paths.found);
    }
    for unseen in ["std::net", "std::process", "std::thread", "crate::sources", "std::fs"] {
        assert!(!paths.names(unseen), "{unseen} is seen in {:?}", paths.found);
    }
    assert!(paths.macros.contains("println"));
}
