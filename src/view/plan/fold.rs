//! Which directories may be one link.
//!
//! A directory is folded if one package owns all that is in it and nothing of the package's
//! directory is missing; nothing below is relocated, generated or an executable program; no
//! link and no search path of an ELF file below leaves it through `..`, for the kernel resolves
//! `..` from the link's target.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::claim::{PackageInput, What};
use super::{NEVER_FOLDED, Op, Settled};
use crate::elf::Dynamic;
use crate::package::{EntryKind, PackageRecord};
use crate::relpath::RelPath;
use crate::view::links;

/// What is known of a directory of the view.
struct Dir {
    /// The package and directory there that it could be a link to; `None` once that is ruled out.
    candidate: Option<(usize, RelPath)>,
    /// Entries below that come from the package's directory.
    entries: usize,
}

/// The operations for a settled tree.
pub(super) fn fold(packages: &[PackageInput<'_>], tree: BTreeMap<RelPath, Settled>) -> Vec<Op> {
    let mut dirs: HashMap<RelPath, Dir> = HashMap::new();
    for (path, settled) in &tree {
        visit(packages, path, settled, &mut dirs);
    }
    let may_fold = |dir: &RelPath| {
        let first = dir.components().next().unwrap_or_default();
        let known = dirs.get(dir)?;
        let (package, from) = known.candidate.as_ref()?;
        let whole = below(packages[*package].record, from) == known.entries;
        (whole && !NEVER_FOLDED.contains(&first)).then(|| (*package, from.clone()))
    };

    let mut ops: BTreeMap<RelPath, super::OpKind> = BTreeMap::new();
    let mut folded: BTreeSet<RelPath> = BTreeSet::new();
    for (path, settled) in tree {
        let mut above: Vec<RelPath> =
            std::iter::successors(path.parent(), RelPath::parent).collect();
        above.reverse();
        let mut covered = false;
        for dir in above {
            if folded.contains(&dir) {
                covered = true;
                break;
            }
            if ops.contains_key(&dir) {
                continue;
            }
            if let Some((package, from)) = may_fold(&dir) {
                ops.insert(dir.clone(), super::OpKind::Fold { package, from });
                folded.insert(dir);
                covered = true;
                break;
            }
            ops.insert(dir, super::OpKind::Dir);
        }
        if !covered {
            let owner = settled.owners.first().copied();
            let is_elf = owner
                .zip(settled.what.source())
                .is_some_and(|(owner, (from, _))| elf(packages[owner].record, from).is_some());
            ops.insert(path, settled.what.into_op(owner, is_elf));
        }
    }
    ops.into_iter().map(|(path, kind)| Op { path, kind }).collect()
}

/// Tells all directories above `path` what stands there.
fn visit(
    packages: &[PackageInput<'_>],
    path: &RelPath,
    settled: &Settled,
    dirs: &mut HashMap<RelPath, Dir>,
) {
    // The depth down to which a directory above may be a link, and the place in the package.
    let depth = path.components().count() - 1;
    let (limit, from) = match (&settled.owners[..], &settled.what) {
        ([owner], What::File { from, executable, .. }) => {
            let limit = match elf(packages[*owner].record, from) {
                Some(dynamic) => elf_limit(from, dynamic, depth, *executable),
                None => depth,
            };
            (limit, Some((*owner, from)))
        }
        ([owner], What::PackageLink { from, target }) if target.starts_with('/') => {
            (depth, Some((*owner, from)))
        }
        ([owner], What::PackageLink { from, target }) => {
            (links::highest(depth, target).unwrap_or(0), Some((*owner, from)))
        }
        // An empty directory of a package is one of its entries; where it comes from is not
        // kept, so that its parents stay real.
        _ => (0, None),
    };
    let mut from = from.map(|(owner, from)| (owner, Some(from.clone())));
    let mut dir = path.parent();
    let mut at = depth;
    // The last component has to be the same in both trees, all the way up.
    let mut name = path.file_name().to_owned();
    while let Some(here) = dir {
        from = from.and_then(|(owner, from)| {
            let from = from.filter(|f| f.file_name() == name)?;
            Some((owner, from.parent()))
        });
        let candidate = match &from {
            Some((owner, Some(from))) if at <= limit => Some((*owner, from.clone())),
            _ => None,
        };
        match dirs.get_mut(&here) {
            Some(known) => {
                if known.candidate != candidate {
                    known.candidate = None;
                }
                known.entries += 1;
            }
            None => {
                dirs.insert(here.clone(), Dir { candidate, entries: 1 });
            }
        }
        name = here.file_name().to_owned();
        at -= 1;
        dir = here.parent();
    }
}

/// How deep a directory above an ELF file may be and still be a link.
fn elf_limit(from: &RelPath, dynamic: &Dynamic, depth: usize, executable: bool) -> usize {
    // A program finds its neighbours, and an interpreter its prefix, from its real path. One
    // that is linked statically has no PT_INTERP; a library's name says that it is one.
    let library = dynamic.soname.is_some() || from.file_name().contains(".so");
    if executable && (dynamic.interpreter.is_some() || !library) {
        return 0;
    }
    let entries = dynamic.rpath.iter().chain(&dynamic.runpath);
    entries
        .filter_map(|entry| {
            let rest = entry.strip_prefix("$ORIGIN").or_else(|| entry.strip_prefix("${ORIGIN}"))?;
            Some(links::highest(depth, rest).unwrap_or(0))
        })
        .min()
        .unwrap_or(depth)
}

fn elf<'a>(record: &'a PackageRecord, path: &RelPath) -> Option<&'a Dynamic> {
    let at = record.elf.binary_search_by(|elf| elf.path.cmp(path)).ok()?;
    Some(&record.elf[at].dynamic)
}

/// How many entries of the package lie below its directory `dir`.
fn below(record: &PackageRecord, dir: &RelPath) -> usize {
    let (start, end) = (format!("{dir}/"), format!("{dir}0"));
    let first = record.entries.partition_point(|e| e.path.as_str() < start.as_str());
    let last = record.entries.partition_point(|e| e.path.as_str() < end.as_str());
    debug_assert!(
        record.entries[first..last]
            .iter()
            .all(|e| { e.path.starts_with(dir) || matches!(e.kind, EntryKind::Dir) })
    );
    last - first
}
