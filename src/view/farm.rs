//! The link farm `ld/`: the names that the loader would not find without it. Pure.
//!
//! A name is in the farm if a file of the environment needs it (`DT_NEEDED`), finds it in no
//! search path (ld.so(8): `DT_RPATH` of the file, of what loads it and of the program, unless
//! there is a `DT_RUNPATH`; else `DT_RUNPATH`), and a package of the environment provides it; or
//! if a package is known to open it by name (`dlopen.toml`) and would not find it. What a wheel
//! holds itself is the wheel's own business: it works where a wheel is installed alone, by
//! loading its libraries in an order that no search path betrays. What is in
//! the farm is opened there, so that `$ORIGIN` is the farm: all that it needs and opens in turn
//! is there too. Driver libraries, stubs and what host programs would pick up instead of their
//! own are never in it.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::LazyLock;

use rattler_conda_types::Subdir as Platform;
use uv_pep440::{Version, VersionSpecifiers};

use super::links;
use crate::elf::{self, Dynamic};
use crate::hash::Sha256;
use crate::lockfile::ArtifactKind;
use crate::package::PackageRecord;
use crate::relpath::RelPath;

/// An ELF file of the view.
#[derive(Clone, Debug)]
pub(super) struct Library<'a> {
    /// Where it is in the view.
    pub path: &'a RelPath,
    /// Index of the package it is taken from.
    pub package: usize,
    /// Its facts.
    pub dynamic: &'a Dynamic,
    /// Digest of its content in the package.
    pub sha256: Sha256,
    /// The prefix placeholder in it, if it is relocated.
    pub placeholder: Option<&'a str>,
}

/// What the farm is computed from.
pub(super) struct Input<'a> {
    /// All ELF files, sorted by path.
    pub libraries: &'a [Library<'a>],
    /// Symbolic links, and where each ends.
    pub links: BTreeMap<RelPath, RelPath>,
    /// All packages.
    pub packages: &'a [&'a PackageRecord],
    /// `e_machine` of the target.
    pub machine: u16,
    /// The environment's own interpreter: its `DT_RPATH` serves whatever it loads.
    pub interpreter: Option<RelPath>,
    /// `[view] allow-duplicate-sonames`.
    pub allowed_duplicates: &'a [String],
}

/// One soname, two packages, different content.
#[derive(Clone, Debug)]
pub(super) struct Duplicate<'a> {
    pub name: String,
    pub first: Library<'a>,
    pub second: Library<'a>,
    /// The name has to be in the farm, where there is room for one, and no search path says
    /// which of the two is meant.
    pub ambiguous: bool,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Farm<'a> {
    /// Name in `ld/` → path in the view.
    pub links: BTreeMap<String, RelPath>,
    /// Sorted by name.
    pub duplicates: Vec<Duplicate<'a>>,
}

/// `e_machine` of a platform; 0 where there is no such thing.
pub(super) fn machine(platform: Platform) -> u16 {
    match platform {
        Platform::Linux64 => elf::EM_X86_64,
        Platform::LinuxAarch64 => elf::EM_AARCH64,
        Platform::LinuxPpc64le => elf::EM_PPC64,
        _ => 0,
    }
}

/// `dlopen.toml`.
#[derive(Default)]
struct Table {
    opens: Vec<Row>,
    finds_own: Vec<Row>,
    library: Vec<Row>,
    bare: Vec<Row>,
}

/// A row of any of its tables; what a table has no use for is empty.
#[derive(Default)]
struct Row {
    /// `package`.
    package: Vec<String>,
    /// `versions`.
    versions: String,
    /// `openers`.
    openers: Vec<String>,
    /// `name` of a library.
    name: String,
    /// `names`, or `opens` of a library: what is opened.
    names: Vec<String>,
}

impl Table {
    /// Reads the text of `dlopen.toml`; the error says what is wrong with it.
    fn parse(text: &str) -> Result<Self, String> {
        let document = toml_edit::Document::parse(text).map_err(|e| e.to_string())?;
        let mut table = Table::default();
        for (kind, rows) in document.iter() {
            let rows = rows.as_array_of_tables().ok_or_else(|| format!("[[{kind}]] expected"))?;
            let into = match kind {
                "opens" => &mut table.opens,
                "finds-own" => &mut table.finds_own,
                "library" => &mut table.library,
                "bare" => &mut table.bare,
                _ => return Err(format!("unknown table {kind}")),
            };
            for row in rows {
                into.push(Row::parse(row).map_err(|e| format!("[[{kind}]]: {e}"))?);
            }
        }
        Ok(table)
    }
}

impl Row {
    fn parse(table: &toml_edit::Table) -> Result<Self, String> {
        let mut row = Row::default();
        let mut source = false;
        for (key, item) in table {
            let one = || item.as_str().map(str::to_owned).ok_or(format!("{key} is no string"));
            let all = || {
                let array = item.as_array().ok_or(format!("{key} is no array"))?;
                let strings = array.iter().map(|v| v.as_str().map(str::to_owned));
                strings.collect::<Option<Vec<_>>>().ok_or(format!("{key} holds no strings"))
            };
            match key {
                "package" => row.package = all()?,
                "versions" => row.versions = one()?,
                "openers" => row.openers = all()?,
                "name" => row.name = one()?,
                "names" | "opens" => row.names = all()?,
                "source" => source = !one()?.is_empty(),
                _ => return Err(format!("unknown key {key}")),
            }
        }
        if !row.versions.is_empty() {
            VersionSpecifiers::from_str(&row.versions).map_err(|e| e.to_string())?;
        }
        if source { Ok(row) } else { Err("it names no source".into()) }
    }
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    Table::parse(include_str!("dlopen.toml"))
        .unwrap_or_else(|error| unreachable!("dlopen.toml is part of the program: {error}"))
});

/// What the C library and the compiler's run time bring, and what programs of the host would
/// take from `LD_LIBRARY_PATH` instead of their own. A `*` stands for any characters.
const HOST: [&str; 22] = [
    "ld-linux*",
    "libc.so.*",
    "libm.so.*",
    "libmvec.so.*",
    "libdl.so.*",
    "libpthread.so.*",
    "librt.so.*",
    "libutil.so.*",
    "libresolv.so.*",
    "libnsl.so.*",
    "libanl.so.*",
    "libcrypt.so.*",
    "libnss_*",
    "libthread_db.so.*",
    "libBrokenLocale.so.*",
    "libgcc_s.so*",
    "libstdc++.so*",
    "libssl.so*",
    "libcrypto.so*",
    "libtinfo*.so*",
    "libncurses*.so*",
    "libreadline.so*",
];

/// The driver's libraries: always the host's own.
const DRIVER: [&str; 9] = [
    "libcuda.so*",
    "libnvidia-*",
    "libnvcuvid.so*",
    "libnvoptix.so*",
    "libcudadebugger.so*",
    "libEGL_nvidia.so*",
    "libGLX_nvidia.so*",
    "libnvidia_*",
    "libGLESv*_nvidia.so*",
];

fn is_host(name: &str) -> bool {
    HOST.iter().chain(&DRIVER).any(|pattern| matches(pattern, name))
}

/// Whether `name` fits `pattern`, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|tail| {
            rest.is_empty()
                || (0..=tail.len())
                    .filter(|at| tail.is_char_boundary(*at))
                    .any(|at| matches(rest, &tail[at..]))
        }),
    }
}

/// The names of a view's libraries, and who is where.
struct Index<'i, 'a> {
    input: &'i Input<'a>,
    /// Path in the view (of a file or a link) → library.
    at: BTreeMap<RelPath, usize>,
    /// Name of a file or link, or soname → libraries, in link order of the packages.
    named: BTreeMap<String, Vec<usize>>,
}

impl<'i, 'a> Index<'i, 'a> {
    fn new(input: &'i Input<'a>) -> Self {
        let mut at = BTreeMap::new();
        for (index, library) in input.libraries.iter().enumerate() {
            if library.dynamic.is_native(input.machine) {
                at.insert(library.path.clone(), index);
            }
        }
        let links: Vec<_> = (input.links.iter())
            .filter_map(|(link, end)| Some((link.clone(), *at.get(end)?)))
            .collect();
        at.extend(links);
        let mut named: BTreeMap<String, BTreeSet<(usize, usize)>> = BTreeMap::new();
        for (path, index) in &at {
            let library = &input.libraries[*index];
            if is_stub(path) || is_stub(library.path) {
                continue;
            }
            let rank = (library.package, *index);
            named.entry(path.file_name().to_owned()).or_default().insert(rank);
            if let Some(soname) = &library.dynamic.soname {
                named.entry(soname.clone()).or_default().insert(rank);
            }
        }
        let named = named
            .into_iter()
            .map(|(name, all)| (name, all.into_iter().map(|(_, index)| index).collect()))
            .collect();
        Index { input, at, named }
    }

    /// The library that a process gets for `name` in these directories.
    fn search(&self, dirs: &[RelPath], name: &str) -> Option<usize> {
        dirs.iter().find_map(|dir| {
            let path = dir.push(name).ok()?;
            self.at.get(&path).copied()
        })
    }

    /// The directories of the view in a search path of `library`.
    fn dirs(&self, library: &Library<'_>, entries: &[String]) -> Vec<RelPath> {
        let origin = library.path.parent();
        entries
            .iter()
            .filter_map(|entry| {
                let by_origin =
                    entry.strip_prefix("$ORIGIN").or_else(|| entry.strip_prefix("${ORIGIN}"));
                if let Some(rest) = by_origin {
                    return links::join(origin.as_ref(), rest);
                }
                links::join(None, entry.strip_prefix(library.placeholder?)?)
            })
            .collect()
    }

    /// The directories that serve `library` beside those of what loads it.
    fn own_dirs(&self, library: &Library<'_>) -> Vec<RelPath> {
        let mut dirs = self.dirs(library, library.dynamic.search_path());
        if library.dynamic.runpath.is_empty()
            && let Some(program) = &self.input.interpreter
            && let Some(index) = self.at.get(program)
        {
            let program = &self.input.libraries[*index];
            if program.dynamic.runpath.is_empty() {
                dirs.extend(self.dirs(program, &program.dynamic.rpath));
            }
        }
        dirs
    }

    /// The best provider of `name` for one who is of `package`: its own package's, else the last
    /// in link order.
    fn provider(&self, name: &str, package: Option<usize>) -> Option<usize> {
        let all = self.named.get(name)?;
        let own = all.iter().find(|i| Some(self.input.libraries[**i].package) == package);
        own.or_else(|| all.last()).copied()
    }

    /// Names that fit a pattern. An unversioned name that no file has stands for any version.
    fn expand(&self, pattern: &str) -> Vec<(String, usize)> {
        let fits = |pattern: &str| {
            let named = self.named.keys().filter(|name| matches(pattern, name));
            let named = named.filter(|name| !is_host(name));
            let mut found = Vec::new();
            for name in named {
                let Some(provider) = self.provider(name, None) else { continue };
                // `libx.so.1.2.3` is the file, `libx.so.1` the name that is asked for.
                let soname = self.input.libraries[provider].dynamic.soname.as_deref();
                if !pattern.contains('*') || soname.is_none_or(|soname| soname == name) {
                    found.push((name.clone(), provider));
                }
            }
            found
        };
        let found = fits(pattern);
        if !found.is_empty() || pattern.contains('*') {
            return found;
        }
        let versions = fits(&format!("{pattern}.*"));
        versions.last().map(|(_, index)| (pattern.to_owned(), *index)).into_iter().collect()
    }
}

/// A stand-in for the driver that only a linker may see.
fn is_stub(path: &RelPath) -> bool {
    path.components().any(|part| part == "stubs")
}

/// Computes the farm.
pub(super) fn farm<'a>(input: &Input<'a>) -> Farm<'a> {
    let index = Index::new(input);
    let inherited = inherited(&index);
    let found: Vec<BTreeMap<&str, usize>> = (input.libraries.iter().enumerate())
        .map(|(number, library)| {
            let mut dirs = index.own_dirs(library);
            dirs.extend(inherited[number].iter().cloned());
            let needed = library.dynamic.needed.iter();
            needed.filter_map(|n| Some((n.as_str(), index.search(&dirs, n)?))).collect()
        })
        .collect();
    let mut loaders: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); input.libraries.len()];
    for (loader, found) in found.iter().enumerate() {
        for library in found.values().filter(|library| **library != loader) {
            loaders[*library].insert(loader);
        }
    }
    let mut wanted: BTreeMap<String, usize> = BTreeMap::new();

    for (number, library) in input.libraries.iter().enumerate() {
        if !library.dynamic.is_native(input.machine) || is_stub(library.path) {
            continue;
        }
        for name in &library.dynamic.needed {
            if name.contains('/') || is_host(name) || found[number].contains_key(name.as_str()) {
                continue;
            }
            if loaded_before(number, name, &found, &loaders) {
                continue;
            }
            let Some(provider) = index.provider(name, Some(library.package)) else { continue };
            let own = input.libraries[provider].package == library.package;
            if own && input.packages[library.package].kind == ArtifactKind::Wheel {
                continue;
            }
            wanted.insert(name.clone(), provider);
        }
    }
    opened(&index, &mut wanted);
    let links = close(&index, wanted, &found);

    let mut farm = Farm::default();
    for (name, choice) in &links {
        farm.links.insert(name.clone(), input.libraries[choice.provider].path.clone());
    }
    farm.duplicates = duplicates(&index, &links);
    farm
}

/// Whether `name` is in the process by the time that the library needs it, whatever loads the
/// library: the loader opens all that a file needs before it looks at what those need in turn.
fn loaded_before(
    library: usize,
    name: &str,
    found: &[BTreeMap<&str, usize>],
    loaders: &[BTreeSet<usize>],
) -> bool {
    let mut seen = BTreeSet::from([library]);
    let mut todo = vec![library];
    while let Some(library) = todo.pop() {
        if loaders[library].is_empty() {
            return false;
        }
        for loader in &loaders[library] {
            if !found[*loader].contains_key(name) && seen.insert(*loader) {
                todo.push(*loader);
            }
        }
    }
    true
}

/// For each library without `DT_RUNPATH`, the directories it inherits: `DT_RPATH` of what loads
/// it, and of what loads that.
fn inherited(index: &Index<'_, '_>) -> Vec<BTreeSet<RelPath>> {
    let libraries = index.input.libraries;
    let mut inherited: Vec<BTreeSet<RelPath>> = vec![BTreeSet::new(); libraries.len()];
    let mut todo: Vec<usize> = (0..libraries.len())
        .filter(|i| {
            let dynamic = libraries[*i].dynamic;
            !dynamic.rpath.is_empty() && dynamic.runpath.is_empty()
        })
        .collect();
    // Sets only grow, and by members of one finite set: this ends.
    while let Some(number) = todo.pop() {
        let library = &libraries[number];
        if !library.dynamic.is_native(index.input.machine) {
            continue;
        }
        let own = index.dirs(library, library.dynamic.search_path());
        let handed: Vec<RelPath> = match library.dynamic.runpath.is_empty() {
            true => own.iter().chain(&inherited[number]).cloned().collect(),
            false => continue,
        };
        for name in &library.dynamic.needed {
            let Some(loaded) = index.search(&handed, name) else { continue };
            if loaded == number || !libraries[loaded].dynamic.runpath.is_empty() {
                continue;
            }
            let before = inherited[loaded].len();
            inherited[loaded].extend(handed.iter().cloned());
            if inherited[loaded].len() > before {
                todo.push(loaded);
            }
        }
    }
    inherited
}

/// Adds what the packages present are known to open by name.
fn opened(index: &Index<'_, '_>, wanted: &mut BTreeMap<String, usize>) {
    let input = index.input;
    let present = |names: &[String], versions: &str| {
        input.packages.iter().position(|record| {
            names.contains(&record.name) && version_fits(versions, &record.version)
        })
    };
    let mut known = false;
    for row in &TABLE.opens {
        let Some(package) = present(&row.package, &row.versions) else { continue };
        known = true;
        let openers: Vec<&Library<'_>> = (input.libraries.iter())
            .filter(|l| l.package == package)
            .filter(|l| row.openers.iter().any(|o| matches(o, l.path.file_name())))
            .collect();
        for (name, provider) in row.names.iter().flat_map(|pattern| index.expand(pattern)) {
            let found = !openers.is_empty()
                && openers.iter().all(|o| index.search(&index.own_dirs(o), &name).is_some());
            if !found {
                wanted.insert(name, provider);
            }
        }
    }
    known |= TABLE.finds_own.iter().any(|row| present(&row.package, &row.versions).is_some());
    if !known {
        let bare = TABLE.bare.iter().flat_map(|row| &row.names);
        for (name, provider) in bare.flat_map(|pattern| index.expand(pattern)) {
            let library = &input.libraries[provider];
            // Conda's own `lib` is where conda's programs look already.
            let by_program = (input.interpreter.is_some())
                .then(|| index.own_dirs(&Library { dynamic: &NO_FACTS, ..library.clone() }));
            if by_program.is_none_or(|dirs| index.search(&dirs, &name).is_none()) {
                wanted.insert(name, provider);
            }
        }
    }
}

static NO_FACTS: LazyLock<Dynamic> = LazyLock::new(Dynamic::default);

/// Who gives a name in the farm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    /// Library.
    provider: usize,
    /// How much is known about it.
    by: By,
}

/// Why it is this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    /// It has the name.
    Name,
    /// A member of the farm finds it by its own search path.
    SearchPath,
    /// Two members find different ones: the farm has room for one.
    Conflict,
}

/// Closes the farm under what its members need and open. What a member finds by its own search
/// path where it really is, it is given in the farm too, whoever else has a library of that name.
fn close(
    index: &Index<'_, '_>,
    wanted: BTreeMap<String, usize>,
    found: &[BTreeMap<&str, usize>],
) -> BTreeMap<String, Choice> {
    let libraries = index.input.libraries;
    let mut links: BTreeMap<String, Choice> = BTreeMap::new();
    let guess = |(name, provider)| (name, Choice { provider, by: By::Name });
    let mut todo: Vec<(String, Choice)> = wanted.into_iter().rev().map(guess).collect();
    while let Some((name, choice)) = todo.pop() {
        if is_host(&name) {
            continue;
        }
        // Each name only ever goes from one reason to a stronger one: this ends.
        if let Some(there) = links.get_mut(&name) {
            if there.provider == choice.provider {
                there.by = there.by.max(choice.by);
                continue;
            }
            if there.by == By::SearchPath && choice.by == By::SearchPath {
                there.by = By::Conflict;
            }
            if there.by >= choice.by {
                continue;
            }
        }
        let provider = choice.provider;
        let library = &libraries[provider];
        let soname = library.dynamic.soname.as_deref();
        let names: BTreeSet<&str> = [Some(name.as_str()), soname].into_iter().flatten().collect();
        for row in &TABLE.library {
            if names.iter().any(|name| matches(&row.name, name)) {
                let opened = row.names.iter().flat_map(|pattern| index.expand(pattern));
                todo.extend(opened.map(guess));
            }
        }
        for needed in &library.dynamic.needed {
            let own = found[provider].get(needed.as_str()).copied();
            if let Some(next) = own.or_else(|| index.provider(needed, Some(library.package))) {
                todo.push((
                    needed.clone(),
                    Choice {
                        provider: next,
                        by: if own.is_some() { By::SearchPath } else { By::Name },
                    },
                ));
            }
        }
        // By its own name too, for who asks for that one; the loader knows a file that it has.
        if let Some(soname) = soname.filter(|soname| *soname != name) {
            todo.push((soname.to_owned(), choice));
        }
        links.insert(name, choice);
    }
    links
}

/// Sonames that two packages give with different content. Two that have one file of that name
/// in common are no duplicates, whatever else they hold.
fn duplicates<'a>(index: &Index<'_, 'a>, links: &BTreeMap<String, Choice>) -> Vec<Duplicate<'a>> {
    let libraries = index.input.libraries;
    let mut found = Vec::new();
    for (name, all) in &index.named {
        if index.input.allowed_duplicates.contains(name) {
            continue;
        }
        let same_name = |i: &usize| libraries[*i].dynamic.soname.as_deref() == Some(name.as_str());
        let all: Vec<&Library<'_>> =
            all.iter().filter(|i| same_name(i)).map(|i| &libraries[*i]).collect();
        let Some(first) = all.first() else { continue };
        if all.iter().all(|library| is_mangled(library)) {
            continue;
        }
        let of_first: BTreeSet<Sha256> =
            all.iter().filter(|l| l.package == first.package).map(|l| l.sha256).collect();
        let shared: BTreeSet<usize> =
            all.iter().filter(|l| of_first.contains(&l.sha256)).map(|l| l.package).collect();
        if let Some(second) = all.iter().find(|l| !shared.contains(&l.package)) {
            found.push(Duplicate {
                name: name.clone(),
                first: (*first).clone(),
                second: (*second).clone(),
                ambiguous: links.get(name).is_some_and(|choice| choice.by != By::SearchPath),
            });
        }
    }
    found
}

/// Whether a wheel's repair tool gave the library its name: in a directory `*.libs`, and with the
/// first eight hexadecimal digits of a digest before the first dot (`libz-eb09ad1d.so.1.2.3`).
/// Equal names then mean copies of one library, which differ in what the tool wrote into each.
fn is_mangled(library: &Library<'_>) -> bool {
    let stem = library.path.file_name().split('.').next().unwrap_or_default();
    let digest = stem.rsplit_once('-').map_or("", |(_, digest)| digest);
    let dir = library.path.parent();
    digest.len() == 8
        && digest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        && dir.is_some_and(|dir| dir.file_name().ends_with(".libs"))
}

/// Whether a version is in a range. A conda version that is none of PEP 440 is in no range.
fn version_fits(range: &str, version: &str) -> bool {
    if range.is_empty() {
        return true;
    }
    match (VersionSpecifiers::from_str(range), Version::from_str(version)) {
        (Ok(range), Ok(version)) => range.contains(&version),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
