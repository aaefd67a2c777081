//! Symbolic links, followed without a file system. Pure.

use std::collections::BTreeMap;

use crate::relpath::RelPath;

/// Most links followed for one path, as in the kernel (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// The symbolic links of a tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Links(BTreeMap<RelPath, String>);

impl Links {
    /// From each link's path and text.
    pub fn new(links: impl Iterator<Item = (RelPath, String)>) -> Self {
        Links(links.collect())
    }

    /// Whether `path` is a link or lies below one.
    pub fn on_a_link(&self, path: &RelPath) -> bool {
        let text = path.as_str();
        let ends = text.match_indices('/').map(|(at, _)| at).chain([text.len()]);
        !self.0.is_empty() && ends.into_iter().any(|end| self.0.contains_key(&text[..end]))
    }

    /// Where `path` ends when every link on it is followed; `None` where it leaves the tree,
    /// names its root, or never ends.
    pub fn resolve(&self, path: &RelPath) -> Option<RelPath> {
        if !self.on_a_link(path) {
            return Some(path.clone());
        }
        let mut todo: Vec<String> = path.components().rev().map(str::to_owned).collect();
        let mut done: Vec<String> = Vec::new();
        let mut followed = 0;
        while let Some(part) = todo.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    done.pop()?;
                    continue;
                }
                _ => done.push(part),
            }
            let here = done.join("/");
            if let Some(target) = self.0.get(here.as_str()) {
                followed += 1;
                if followed > MAX_LINKS || target.starts_with('/') {
                    return None;
                }
                done.pop();
                todo.extend(target.split('/').rev().map(str::to_owned));
            }
        }
        RelPath::new(&done.join("/")).ok()
    }
}

/// Walks the relative path `path` from a directory `depth` components below the root, by its text
/// alone. The first number is the depth of the highest directory on the way, `None` where it
/// climbs over the root.
pub(super) fn highest(depth: usize, path: &str) -> Option<usize> {
    let (mut at, mut highest) = (depth, depth);
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                at = at.checked_sub(1)?;
                highest = highest.min(at);
            }
            _ => at += 1,
        }
    }
    Some(highest)
}

/// `path` walked from the directory `dir` (`None`: the root) by its text alone; `None` where it
/// climbs over the root or ends there.
pub(super) fn join(dir: Option<&RelPath>, path: &str) -> Option<RelPath> {
    let mut parts: Vec<&str> = dir.map(|d| d.components().collect()).unwrap_or_default();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    RelPath::new(&parts.join("/")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn follows_links_at_every_component() {
        let links = [("lib64", "lib"), ("lib/a.so", "a.so.1"), ("x", "lib64/../lib64/a.so")];
        let links = Links::new(links.into_iter().map(|(p, t)| (path(p), t.to_owned())));
        assert_eq!(links.resolve(&path("x")), Some(path("lib/a.so.1")));
        assert_eq!(links.resolve(&path("lib64/b")), Some(path("lib/b")));
        assert_eq!(links.resolve(&path("y/z")), Some(path("y/z")));
    }

    #[test]
    fn gives_up_on_loops_and_ways_out() {
        let links = [("a", "b"), ("b", "a"), ("c", "/etc"), ("d", "../x")];
        let links = Links::new(links.into_iter().map(|(p, t)| (path(p), t.to_owned())));
        for lost in ["a", "a/x", "c/x", "d"] {
            assert_eq!(links.resolve(&path(lost)), None, "{lost}");
        }
    }

    #[test]
    fn the_highest_directory_on_the_way() {
        assert_eq!(highest(3, "../../q/lib"), Some(1));
        assert_eq!(highest(3, ""), Some(3));
        assert_eq!(highest(3, "x/.."), Some(3));
        assert_eq!(highest(1, "../../x"), None);
    }
}
