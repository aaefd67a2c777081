//! Reading `gpuenv.lock`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

use rattler_conda_types::Subdir as Platform;
use toml_edit::{Document, Item, TableLike};

use super::check::{Place, check_places};
use super::error::{LockError, LockErrorKind as Kind};
use super::model::{
    ArtifactKind, FIRST_VIEW_FORMAT, Lock, LockedEnvironment, LockedPackage, PackageId, Source,
    SourceKind, VERSION, Verification,
};
use crate::manifest::mask_credentials;

/// Reads the text of a `gpuenv.lock`; `file` is what messages call it.
///
/// The parts may stand in any order, as merges leave them; the result is sorted. The version is
/// read before anything else, so that a newer format is refused as such even where it would not
/// parse. All that [`super::check`] asks is checked too.
///
/// # Errors
///
/// The first fault, with its line.
pub fn parse(text: &str, file: &str) -> Result<Lock, LockError> {
    let fail = |span: Range<usize>, kind| LockError::at(file, text, span, kind);
    if let Some(span) = conflict_marker(text) {
        return Err(fail(span, Kind::Conflict));
    }
    match version(text) {
        None => return Err(fail(0..text.find('\n').unwrap_or(text.len()), Kind::NoVersion)),
        Some((found, span)) if found > u64::from(VERSION) => {
            return Err(fail(span, Kind::Newer { found, known: VERSION }));
        }
        Some((0, span)) => return Err(fail(span, Kind::NoSuchVersion(0))),
        // Version 1 is the only one so far; readers of older ones branch off here.
        Some(_) => {}
    }
    let document = Document::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        fail(span, Kind::Syntax(error.message().replace('\n', "; ")))
    })?;
    let (mut lock, spans) =
        read(document.as_table()).map_err(|fault| fail(fault.span, fault.kind))?;
    check_places(&lock).map_err(|(place, kind)| fail(spans.of(&place), kind))?;
    lock.sort();
    Ok(lock)
}

/// The first line that git writes into a file that it could not merge.
fn conflict_marker(text: &str) -> Option<Range<usize>> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end();
        if ["<<<<<<< ", "||||||| ", ">>>>>>> "].iter().any(|m| bare.starts_with(m))
            || bare == "======="
        {
            return Some(at..at + bare.len());
        }
        at += line.len();
    }
    None
}

/// `lock-version` and its place: the first line that is no comment and not blank.
fn version(text: &str) -> Option<(u64, Range<usize>)> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        if !bare.is_empty() && !bare.starts_with('#') {
            let (key, value) = bare.split_once('=')?;
            let digits = value.split('#').next().unwrap_or("").trim();
            if key.trim() != "lock-version" {
                return None;
            }
            return digits.parse().ok().map(|version| (version, at..at + line.trim_end().len()));
        }
        at += line.len();
    }
    None
}

struct Fault {
    span: Range<usize>,
    kind: Kind,
}

type Read<T> = Result<T, Fault>;

#[derive(Default)]
struct Spans {
    head: Range<usize>,
    inputs: BTreeMap<String, Range<usize>>,
    sources: Vec<Range<usize>>,
    environments: Vec<Range<usize>>,
    packages: Vec<Range<usize>>,
    verifications: Vec<Range<usize>>,
}

impl Spans {
    fn of(&self, place: &Place) -> Range<usize> {
        let found = match place {
            Place::Inputs(key) => self.inputs.get(key),
            Place::Source(i) => self.sources.get(*i),
            Place::Environment(i) => self.environments.get(*i),
            Place::Package(i) => self.packages.get(*i),
            Place::Verification(i) => self.verifications.get(*i),
        };
        found.unwrap_or(&self.head).clone()
    }
}

/// One table of the lock.
struct Table<'t> {
    name: &'static str,
    table: &'t dyn TableLike,
    span: Range<usize>,
}

impl<'t> Table<'t> {
    fn fault<T>(&self, span: Range<usize>, kind: Kind) -> Read<T> {
        Err(Fault { span, kind })
    }

    fn only(&self, known: &[&str]) -> Read<()> {
        for (key, _) in self.table.iter() {
            if !known.contains(&key) {
                let span = self.table.key(key).and_then(|key| key.span());
                let kind = Kind::UnknownKey {
                    key: key.to_owned(),
                    table: self.name,
                    known: known.iter().map(|known| (*known).to_owned()).collect(),
                };
                return self.fault(span.unwrap_or(self.span.clone()), kind);
            }
        }
        Ok(())
    }

    fn item(&self, key: &str) -> Option<(&'t Item, Range<usize>)> {
        let item = self.table.get(key)?;
        Some((item, item.span().unwrap_or_else(|| self.span.clone())))
    }

    fn wrong<T>(&self, key: &str, span: Range<usize>, expected: &'static str) -> Read<T> {
        self.fault(span, Kind::WrongType { key: key.to_owned(), table: self.name, expected })
    }

    fn missing<T>(&self, key: &'static str) -> Read<T> {
        self.fault(self.span.clone(), Kind::Missing { key, table: self.name })
    }

    fn maybe_text(&self, key: &str) -> Read<Option<(&'t str, Range<usize>)>> {
        match self.item(key) {
            None => Ok(None),
            Some((item, span)) => match item.as_str() {
                Some(text) => Ok(Some((text, span))),
                None => self.wrong(key, span, "a string"),
            },
        }
    }

    fn maybe_string(&self, key: &str) -> Read<Option<String>> {
        Ok(self.maybe_text(key)?.map(|(text, _)| text.to_owned()))
    }

    fn text(&self, key: &'static str) -> Read<(&'t str, Range<usize>)> {
        match self.maybe_text(key)? {
            Some(found) => Ok(found),
            None => self.missing(key),
        }
    }

    fn string(&self, key: &'static str) -> Read<String> {
        Ok(self.text(key)?.0.to_owned())
    }

    fn parsed<T>(&self, text: &str, span: Range<usize>, what: &'static str) -> Read<T>
    where
        T: FromStr,
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        text.parse().map_err(|error| {
            let cause = Some(Box::new(error) as _);
            let value = mask_credentials(text);
            Fault { span, kind: Kind::Invalid { what, value, cause } }
        })
    }

    fn need<T>(&self, key: &'static str, what: &'static str) -> Read<T>
    where
        T: FromStr,
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        let (text, span) = self.text(key)?;
        self.parsed(text, span, what)
    }

    fn maybe<T>(&self, key: &'static str, what: &'static str) -> Read<Option<T>>
    where
        T: FromStr,
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        match self.maybe_text(key)? {
            Some((text, span)) => self.parsed(text, span, what).map(Some),
            None => Ok(None),
        }
    }

    fn strings(&self, key: &str) -> Read<Vec<String>> {
        let expected = "an array of strings";
        let Some((item, span)) = self.item(key) else { return Ok(Vec::new()) };
        let Some(array) = item.as_array() else { return self.wrong(key, span, expected) };
        let mut out = Vec::with_capacity(array.len());
        for value in array {
            match value.as_str() {
                Some(text) => out.push(text.to_owned()),
                None => return self.wrong(key, value.span().unwrap_or(span), expected),
            }
        }
        Ok(out)
    }

    fn tables(&self, key: &str, name: &'static str) -> Read<Vec<Table<'t>>> {
        let Some((item, span)) = self.item(key) else { return Ok(Vec::new()) };
        let Some(array) = item.as_array_of_tables() else {
            return self.wrong(key, span, "an array of tables");
        };
        Ok(array
            .iter()
            .map(|table| Table { name, table, span: table.span().unwrap_or(span.clone()) })
            .collect())
    }

    fn facts(&self, key: &'static str) -> Read<(BTreeMap<String, String>, Spans)> {
        let mut facts = BTreeMap::new();
        let mut spans = Spans::default();
        let Some((item, span)) = self.item(key) else { return Ok((facts, spans)) };
        let Some(table) = item.as_table_like() else { return self.wrong(key, span, "a table") };
        for (key, item) in table.iter() {
            let at = item.span().unwrap_or_else(|| span.clone());
            match item.as_str() {
                Some(text) => {
                    facts.insert(key.to_owned(), text.to_owned());
                    spans.inputs.insert(key.to_owned(), at);
                }
                None => return self.wrong(key, at, "a string"),
            }
        }
        spans.head = span;
        Ok((facts, spans))
    }
}

fn read(root: &toml_edit::Table) -> Read<(Lock, Spans)> {
    let root = Table { name: "the lock", table: root, span: 0..0 };
    root.only(&["lock-version", "inputs", "source", "environment", "package", "verification"])?;
    if !root.table.contains_key("inputs") {
        return root.missing("inputs");
    }
    let mut lock = Lock::default();
    let (inputs, mut spans) = root.facts("inputs")?;
    lock.inputs = inputs;
    for table in root.tables("source", "[[source]]")? {
        lock.sources.push(source(&table)?);
        spans.sources.push(table.span);
    }
    for table in root.tables("environment", "[[environment]]")? {
        lock.environments.push(environment(&table)?);
        spans.environments.push(table.span);
    }
    for table in root.tables("package", "[[package]]")? {
        lock.packages.push(package(&table)?);
        spans.packages.push(table.span);
    }
    for table in root.tables("verification", "[[verification]]")? {
        lock.verifications.push(verification(&table)?);
        spans.verifications.push(table.span);
    }
    Ok((lock, spans))
}

fn source(table: &Table) -> Read<Source> {
    table.only(&["name", "kind", "url"])?;
    let (kind, span) = table.text("kind")?;
    let Some(kind) = SourceKind::from_name(kind) else {
        let kind =
            Kind::Invalid { what: "the kind of a source", value: kind.to_owned(), cause: None };
        return table.fault(span, kind);
    };
    Ok(Source { name: table.string("name")?, kind, url: table.maybe_string("url")? })
}

fn environment(table: &Table) -> Read<LockedEnvironment> {
    table.only(&[
        "platform",
        "variant",
        "env-id",
        "host-python",
        "virtual-packages",
        "packages",
        "view-hash",
        "view-format",
    ])?;
    let view_format = match table.item("view-format") {
        None => FIRST_VIEW_FORMAT,
        Some((item, span)) => match item.as_integer().map(u32::try_from) {
            Some(Ok(format)) if format >= FIRST_VIEW_FORMAT => format,
            _ => return table.wrong("view-format", span, "a number from 1"),
        },
    };
    Ok(LockedEnvironment {
        platform: table.need::<Platform>("platform", "a conda subdir")?,
        variant: table.maybe("variant", "the name of a variant")?,
        env_id: table.need("env-id", "an env id")?,
        host_python: table.maybe_string("host-python")?,
        virtual_packages: table.strings("virtual-packages")?,
        packages: table.strings("packages")?.into_iter().map(PackageId).collect(),
        view_hash: table.maybe("view-hash", "a SHA-256 digest")?,
        view_format,
    })
}

fn package(table: &Table) -> Read<LockedPackage> {
    table.only(&[
        "id",
        "kind",
        "name",
        "version",
        "build",
        "subdir",
        "file",
        "source",
        "location",
        "size",
        "sha256",
        "hash-computed",
        "nar",
        "requires",
        "edges",
        "yanked",
    ])?;
    let (kind, span) = table.text("kind")?;
    let Some(kind) = ArtifactKind::from_name(kind) else {
        let what = "the kind of an artifact";
        return table.fault(span, Kind::Invalid { what, value: kind.to_owned(), cause: None });
    };
    let size = match table.item("size") {
        None => return table.missing("size"),
        Some((item, span)) => match item.as_integer().map(u64::try_from) {
            Some(Ok(size)) => size,
            _ => return table.wrong("size", span, "a number of bytes"),
        },
    };
    let hash_computed = match table.item("hash-computed") {
        None => false,
        Some((item, span)) => match item.as_bool() {
            Some(value) => value,
            None => return table.wrong("hash-computed", span, "a boolean"),
        },
    };
    Ok(LockedPackage {
        id: PackageId(table.string("id")?),
        kind,
        name: table.string("name")?,
        version: table.string("version")?,
        build: table.maybe_string("build")?,
        subdir: table.maybe_string("subdir")?,
        file: table.string("file")?,
        source: table.string("source")?,
        location: table.maybe_string("location")?,
        size,
        sha256: table.need("sha256", "a SHA-256 digest")?,
        hash_computed,
        nar: table.maybe("nar", "a SHA-256 digest")?,
        requires: table.strings("requires")?,
        edges: table.strings("edges")?,
        yanked: table.maybe_string("yanked")?,
    })
}

fn verification(table: &Table) -> Read<Verification> {
    table.only(&["env-id", "gpu", "driver", "checks", "facts"])?;
    let mut checks = Vec::new();
    if let Some((item, span)) = table.item("checks") {
        let expected = "an array of pairs [name, outcome]";
        let Some(array) = item.as_array() else { return table.wrong("checks", span, expected) };
        for value in array {
            let pair: Option<Vec<&str>> =
                value.as_array().and_then(|pair| pair.iter().map(|part| part.as_str()).collect());
            match pair.as_deref() {
                Some([name, outcome]) => checks.push(((*name).into(), (*outcome).into())),
                _ => return table.wrong("checks", value.span().unwrap_or(span), expected),
            }
        }
    }
    Ok(Verification {
        env_id: table.need("env-id", "an env id")?,
        gpu: table.string("gpu")?,
        driver: table.string("driver")?,
        checks,
        facts: table.facts("facts")?.0,
    })
}
