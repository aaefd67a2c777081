//! Edits of `env.toml` that leave every other byte as it is: comments, order, layout, line ends.
//!
//! Places come from the parser's spans and the text is changed there; only entries in forms that
//! have no line of their own (inline tables, dotted keys, `[dependencies.NAME]`) are edited
//! through the document tree. Each result is read again and compared with what was meant.

use std::fmt;
use std::ops::Range;

use rattler_conda_types::{
    MatchSpec, PackageName as CondaName, ParseStrictness, Subdir as Platform,
};
use toml_edit::{Document, DocumentMut, InlineTable, Item, Table, TableLike, Value};
use url::Url;
use uv_distribution_filename::WheelFilename;
use uv_normalize::PackageName as DistName;
use uv_pep508::{Requirement, VersionOrUrl};

use super::error::{Cause, ManifestError, flat, list, nearest};
use super::location::{Place, mask_credentials, place};
use super::model::Manifest;
use super::parse::url_file_name;
use super::{inputs, parse};
use crate::error::{Exit, Report, Snippet};

/// The two tables of dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependencyTable {
    /// `[dependencies]`.
    Conda,
    /// `[pypi-dependencies]`.
    Wheels,
}

impl DependencyTable {
    /// The table's name.
    pub fn key(self) -> &'static str {
        match self {
            DependencyTable::Conda => "dependencies",
            DependencyTable::Wheels => "pypi-dependencies",
        }
    }

    /// Whether a key of the table means the package called `name`, however it is spelled.
    fn same(self, key: &str, name: &str) -> bool {
        self.normal(key).is_some_and(|key| Some(key) == self.normal(name))
    }

    fn normal(self, name: &str) -> Option<String> {
        match self {
            DependencyTable::Conda => {
                name.parse::<CondaName>().ok().map(|name| name.as_normalized().to_owned())
            }
            DependencyTable::Wheels => name.parse::<DistName>().ok().map(|name| name.to_string()),
        }
    }
}

impl fmt::Display for DependencyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.key())
    }
}

/// An edited env.toml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The new text.
    pub text: String,
    /// The table that was edited.
    pub table: DependencyTable,
    /// The name of the package, normalized.
    pub name: String,
    /// The requirement before, as [`inputs`] writes it; `None`: there was none.
    pub was: Option<String>,
    /// The requirement now; `None`: there is none.
    pub is: Option<String>,
}

/// Why an edit was refused; the text is as it was.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The text was refused before the edit.
    #[error("env.toml has a fault of its own and was left as it is")]
    Before(#[source] ManifestError),
    /// The text would be refused after the edit.
    #[error("with `{name}` env.toml would not be valid; it was left as it is")]
    After {
        /// The package.
        name: String,
        /// What would be wrong.
        #[source]
        source: ManifestError,
    },
    /// The argument is no requirement.
    #[error("`{value}` is not {what}")]
    Requirement {
        /// As given.
        value: String,
        /// What it should be, with an article.
        what: &'static str,
        /// What to write instead.
        hint: &'static str,
        /// Why it is refused.
        #[source]
        cause: Option<Cause>,
    },
    /// No table has the package.
    #[error("env.toml has no dependency `{name}`")]
    NotFound {
        /// The name.
        name: String,
        /// Names that look like it.
        nearest: Vec<String>,
    },
    /// Both tables have it.
    #[error("`{name}` is in both [dependencies] and [pypi-dependencies]")]
    Ambiguous {
        /// The name.
        name: String,
    },
    /// No way was found to write the edit down.
    #[error("the edit of `{name}` could not be placed; env.toml was left as it is")]
    NoPlace {
        /// The package.
        name: String,
    },
    /// The edit would have changed something else too.
    #[error("the edit of `{name}` would have changed {key} too; env.toml was left as it is")]
    Altered {
        /// The package.
        name: String,
        /// The first other fact that changed.
        key: String,
    },
}

impl EditError {
    fn manifest(&self) -> Option<&ManifestError> {
        match self {
            EditError::Before(source) | EditError::After { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Report for EditError {
    fn exit(&self) -> Exit {
        match self {
            EditError::Altered { .. } | EditError::NoPlace { .. } => Exit::Bug,
            _ => Exit::User,
        }
    }
    fn hint(&self) -> Option<String> {
        match self {
            EditError::Before(source) | EditError::After { source, .. } => source.hint(),
            EditError::Requirement { hint, .. } => Some((*hint).into()),
            EditError::NotFound { nearest, .. } if nearest.is_empty() => None,
            EditError::NotFound { nearest, .. } => Some(format!("did you mean {}?", list(nearest))),
            EditError::Ambiguous { .. } => Some("say which one is meant".into()),
            EditError::Altered { .. } | EditError::NoPlace { .. } => {
                Some("edit env.toml by hand".into())
            }
        }
    }
    fn snippet(&self) -> Option<Snippet> {
        self.manifest()?.snippet()
    }
}

/// What a new env.toml says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Init {
    /// `[env] name`; see [`env_name`].
    pub name: String,
    /// `[env] platforms`; must not be empty.
    pub platforms: Vec<Platform>,
    /// `[env] channels`.
    pub channels: Vec<String>,
    /// `[host] python`, such as `3.11`.
    pub host_python: Option<String>,
}

/// An environment name made from a directory's name.
pub fn env_name(directory: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let name: String = directory.chars().map(plain).collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    match name.len() {
        0 => "env".into(),
        len => name[..len.min(64)].to_owned(),
    }
}

/// The text of a new env.toml, with comments that say what may be written where.
pub fn init(init: &Init) -> String {
    let array = |items: Vec<&str>| {
        let mut array = toml_edit::Array::new();
        items.into_iter().for_each(|item| array.push(item));
        Value::from(array).to_string()
    };
    let platforms = array(init.platforms.iter().map(|platform| platform.as_str()).collect());
    let channels = array(init.channels.iter().map(String::as_str).collect());
    let name = Value::from(init.name.as_str());
    let mut out = format!(
        "\
# What the environment holds. `gpuenv lock` pins it in gpuenv.lock, `gpuenv realize` builds it.

[env]
name = {name}
# The systems it is for; the one that locks does not matter.
platforms = {platforms}
# Where conda packages come from, first to last: names, URLs or paths.
channels = {channels}
"
    );
    if let Some(python) = &init.host_python {
        let python = Value::from(python.as_str());
        out.push_str(&format!(
            "
# The Python of the machine, instead of a conda package.
[host]
python = {python}
"
        ));
    }
    out.push_str(
        "
# Conda packages: version bounds such as \"3.9.*\", \">=1.2,<2\" or \"*\".
[dependencies]

# Wheels: PEP 440 specifiers such as \"==2.6.2\", \">=1.2\" or \"*\".
[pypi-dependencies]

# For GPUs: the CUDA line, and the oldest driver that must run it.
# [gpu]
# cuda = \"11.8\"
# driver = \"450.80.02\"
",
    );
    out
}

/// Adds a conda package to `[dependencies]`, or replaces its requirement. `spec` is a MatchSpec
/// as conda's command line takes it: `numpy`, `python=3.9`, `numpy>=1.20,<2`,
/// `conda-forge::cudnn=8.1`.
///
/// # Errors
///
/// See [`EditError`]; among them that env.toml would not be valid, because it has no channels, say.
pub fn add_conda(text: &str, file: &str, spec: &str) -> Result<Edit, EditError> {
    let refused = |hint, cause| EditError::Requirement {
        value: mask_credentials(spec),
        what: "a conda package with its version",
        hint,
        cause,
    };
    let hint =
        "write the name and a version bound, such as `numpy`, `python=3.9` or `numpy>=1.20,<2`";
    let spec = MatchSpec::from_str(spec, ParseStrictness::Strict)
        .map_err(|error| refused(hint, Some(Box::new(error))))?;
    if spec.url.is_some() {
        return Err(refused(
            "list the channel under `channels` in [env], and name the package",
            None,
        ));
    }
    let Some(name) = spec.name.as_exact() else { return Err(refused(hint, None)) };
    let name = name.as_normalized().to_owned();
    let digest = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let mut more = InlineTable::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            more.insert(key, value.into());
        }
    };
    put("build", spec.build.as_ref().map(ToString::to_string));
    put("build-number", spec.build_number.as_ref().map(ToString::to_string));
    put("channel", spec.channel.as_ref().map(|channel| channel.name().to_owned()));
    put("subdir", spec.subdir.clone());
    put("file-name", spec.file_name.clone());
    put("md5", spec.md5.as_ref().map(|bytes| digest(bytes)));
    put("sha256", spec.sha256.as_ref().map(|bytes| digest(bytes)));
    let version = spec.version.as_ref().map_or("*".to_owned(), ToString::to_string);
    set(text, file, DependencyTable::Conda, &name, value(version, more))
}

/// Adds a wheel to `[pypi-dependencies]`, or replaces its requirement. `requirement` follows
/// PEP 508 (`torch==2.1.0`, `uvicorn[standard]>=0.20 ; python_version < "3.12"`,
/// `x @ https://….whl`), or is a wheel's URL, or its path relative to env.toml. `index` is a name
/// in `[pypi-options.indexes]`.
///
/// # Errors
///
/// See [`EditError`].
pub fn add_wheel(
    text: &str,
    file: &str,
    requirement: &str,
    index: Option<&str>,
) -> Result<Edit, EditError> {
    let (name, value) = wheel_value(requirement, index)?;
    set(text, file, DependencyTable::Wheels, &name, value)
}

/// A string where the version says all, else an inline table.
fn value(version: String, more: InlineTable) -> Value {
    if more.is_empty() {
        return version.into();
    }
    let mut table = InlineTable::new();
    if version != "*" {
        table.insert("version", version.into());
    }
    for (key, value) in more.iter() {
        table.insert(key, value.clone());
    }
    table.into()
}

fn wheel_value(text: &str, index: Option<&str>) -> Result<(String, Value), EditError> {
    let refused = |cause: Option<Cause>| EditError::Requirement {
        value: mask_credentials(text),
        what: "a requirement on a wheel",
        hint: "write name and specifiers, such as `torch==2.1.0` or `uvicorn[standard]>=0.20`; or the URL or path of a .whl file",
        cause,
    };
    let mut more = InlineTable::new();
    if let Some(index) = index {
        more.insert("index", index.into());
    }
    // `./dist/x-1.0-py3-none-any.whl`, `https://…/x-1.0-py3-none-any.whl#sha256=…`
    let bare = text.trim();
    let path = bare.split(['#', '?']).next().unwrap_or(bare);
    if !bare.contains(" @ ") && path.ends_with(".whl") && !bare.contains(char::is_whitespace) {
        let last = match bare.parse::<Url>() {
            Ok(url) => url_file_name(&url).unwrap_or_default(),
            Err(_) => path.rsplit('/').next().unwrap_or(path).to_owned(),
        };
        let wheel: WheelFilename = last.parse().map_err(|error| refused(Some(Box::new(error))))?;
        let key = if place(bare) == Place::Url { "url" } else { "path" };
        more.insert(key, bare.into());
        return Ok((wheel.name.to_string(), value("*".into(), more)));
    }
    let source = [".tar.gz", ".zip", ".tgz"].iter().any(|ending| path.ends_with(ending));
    if source || matches!(place(bare), Place::Relative | Place::Absolute) {
        return Err(EditError::Requirement {
            value: mask_credentials(text),
            what: "a wheel",
            hint: "building from source is not supported yet: build a wheel with `python -m pip wheel --no-deps …` and add the .whl file",
            cause: None,
        });
    }
    // A path after `@` is no URL, which PEP 508 wants there.
    if let Some((left, right)) = bare.split_once(" @ ")
        && place(right) != Place::Url
        && right.ends_with(".whl")
    {
        let left: Requirement<Url> = left.parse().map_err(|error| refused(Some(flat(error))))?;
        more.insert("path", right.into());
        extras(&left, &mut more);
        return Ok((left.name.to_string(), value("*".into(), more)));
    }
    let requirement: Requirement<Url> = bare.parse().map_err(|error| refused(Some(flat(error))))?;
    let version = match &requirement.version_or_url {
        None => "*".to_owned(),
        Some(VersionOrUrl::VersionSpecifier(bound)) if bound.is_empty() => "*".into(),
        Some(VersionOrUrl::VersionSpecifier(bound)) => bound.to_string(),
        Some(VersionOrUrl::Url(url)) => {
            more.insert("url", url.as_str().into());
            "*".into()
        }
    };
    extras(&requirement, &mut more);
    if let Some(marker) = requirement.marker.contents() {
        more.insert("markers", marker.to_string().into());
    }
    Ok((requirement.name.to_string(), value(version, more)))
}

fn extras(requirement: &Requirement<Url>, more: &mut InlineTable) {
    if !requirement.extras.is_empty() {
        let extras: toml_edit::Array = requirement.extras.iter().map(|e| e.as_str()).collect();
        more.insert("extras", extras.into());
    }
}

fn set(
    text: &str,
    file: &str,
    table: DependencyTable,
    name: &str,
    value: Value,
) -> Result<Edit, EditError> {
    let before = parse(text, file).map_err(EditError::Before)?;
    let edited = set_by_span(text, table, name, &value)
        .or_else(|| set_by_tree(text, table, name, value))
        .ok_or_else(|| EditError::NoPlace { name: name.to_owned() })?;
    let edit = finish(before, edited, file, table, name)?;
    match edit.is {
        Some(_) => Ok(edit),
        None => Err(EditError::NoPlace { name: edit.name }),
    }
}

/// Removes the dependency called `name` (in any spelling) from the table that has it, or from
/// `only`. Comments in lines of their own stay.
///
/// # Errors
///
/// See [`EditError`].
pub fn remove(
    text: &str,
    file: &str,
    name: &str,
    only: Option<DependencyTable>,
) -> Result<Edit, EditError> {
    let before = parse(text, file).map_err(EditError::Before)?;
    let holds = |table: DependencyTable| match table {
        DependencyTable::Conda => {
            before.dependencies.iter().any(|dep| table.same(dep.name.as_normalized(), name))
        }
        DependencyTable::Wheels => {
            before.pypi_dependencies.iter().any(|dep| table.same(dep.name.as_str(), name))
        }
    };
    let tables: Vec<DependencyTable> = [DependencyTable::Conda, DependencyTable::Wheels]
        .into_iter()
        .filter(|table| only.is_none_or(|only| only == *table) && holds(*table))
        .collect();
    let table = match tables[..] {
        [table] => table,
        [] => {
            let conda = before.dependencies.iter().map(|dep| dep.name.as_normalized());
            let wheels = before.pypi_dependencies.iter().map(|dep| dep.name.as_str());
            let nearest = nearest(name, conda.chain(wheels));
            return Err(EditError::NotFound { name: name.to_owned(), nearest });
        }
        _ => return Err(EditError::Ambiguous { name: name.to_owned() }),
    };
    let edited = remove_by_span(text, table, name)
        .or_else(|| remove_by_tree(text, table, name))
        .ok_or_else(|| EditError::NoPlace { name: name.to_owned() })?;
    let edit = finish(before, edited, file, table, name)?;
    match edit.is {
        None => Ok(edit),
        Some(_) => Err(EditError::NoPlace { name: edit.name }),
    }
}

/// Reads the edited text again, and refuses an edit that changed anything else.
fn finish(
    before: Manifest,
    text: String,
    file: &str,
    table: DependencyTable,
    name: &str,
) -> Result<Edit, EditError> {
    let name = table.normal(name).unwrap_or_else(|| name.to_owned());
    let after =
        parse(&text, file).map_err(|source| EditError::After { name: name.clone(), source })?;
    let key = format!("{}.{name}", table.key());
    let (mut was, mut is) = (inputs(&before), inputs(&after));
    let (old, new) = (was.remove(&key), is.remove(&key));
    let verify = |manifest: &Manifest| {
        let verify = &manifest.verify;
        let script = verify.script.as_ref().map(|script| script.value.clone());
        (verify.framework, script, verify.timeout)
    };
    if was != is || verify(&before) != verify(&after) {
        let differs = was.keys().chain(is.keys()).find(|key| was.get(*key) != is.get(*key));
        let key = differs.cloned().unwrap_or_else(|| "[verify]".into());
        return Err(EditError::Altered { name, key });
    }
    Ok(Edit { text, table, name, was: old, is: new })
}

/// The table as `[header]` with lines of its own.
fn plain_table<'d>(document: &'d Document<&str>, table: DependencyTable) -> Option<&'d Table> {
    let found = document.get(table.key())?.as_table()?;
    let header = found.span().is_some_and(|span| !span.is_empty());
    (header && !found.is_implicit() && !found.is_dotted()).then_some(found)
}

fn find<'d>(
    table: &'d dyn TableLike,
    which: DependencyTable,
    name: &str,
) -> Option<(&'d toml_edit::Key, &'d Item)> {
    let key = table.iter().map(|(key, _)| key).find(|key| which.same(key, name))?;
    table.get_key_value(key)
}

fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// The offset after the line that `at` is in.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

fn splice(text: &str, range: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..range.start], &text[range.end..])
}

fn set_by_span(text: &str, which: DependencyTable, name: &str, value: &Value) -> Option<String> {
    let document = Document::parse(text).ok()?;
    let newline = newline(text);
    let key = toml_edit::Key::new(name);
    let value = value.clone().decorated("", "").to_string();
    let line = format!("{} = {value}", key.display_repr());
    if !document.contains_key(which.key()) {
        let gap = match text {
            "" => String::new(),
            text if text.ends_with('\n') => newline.to_owned(),
            _ => newline.repeat(2),
        };
        let header = format!("[{}]", which.key());
        return Some(format!("{text}{gap}{header}{newline}{line}{newline}"));
    }
    let table = plain_table(&document, which)?;
    if let Some((_, item)) = find(table, which, name) {
        let span = item.as_value()?.span()?;
        return Some(splice(text, span, &value));
    }
    let values = table.get_values();
    let last =
        values.iter().filter_map(|(keys, value)| Some((keys.first()?.span()?, value.span()?)));
    let (indent, after) = match last.max_by_key(|(_, value)| value.end) {
        Some((key, value)) => (text.get(line_start(text, key.start)..key.start)?, value.end),
        None => ("", table.span()?.end),
    };
    let at = line_end(text, after);
    let lead = if text[..at].ends_with('\n') { "" } else { newline };
    Some(splice(text, at..at, &format!("{lead}{indent}{line}{newline}")))
}

fn set_by_tree(text: &str, which: DependencyTable, name: &str, value: Value) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let table = document.get_mut(which.key())?.as_table_like_mut()?;
    let key = find(table, which, name).map(|(key, _)| key.get().to_owned());
    match key {
        Some(key) => match table.get_mut(&key)? {
            Item::Value(old) => {
                let mut value = value;
                *value.decor_mut() = old.decor().clone();
                *old = value;
            }
            _ => {
                table.remove(&key);
                table.insert(&key, Item::Value(value));
            }
        },
        None => {
            table.insert(name, Item::Value(value));
        }
    }
    Some(document.to_string())
}

fn remove_by_span(text: &str, which: DependencyTable, name: &str) -> Option<String> {
    let document = Document::parse(text).ok()?;
    let (key, item) = find(plain_table(&document, which)?, which, name)?;
    let value = item.as_value()?.span()?;
    let range = line_start(text, key.span()?.start)..line_end(text, value.end);
    Some(splice(text, range, ""))
}

fn remove_by_tree(text: &str, which: DependencyTable, name: &str) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let table = document.get_mut(which.key())?.as_table_like_mut()?;
    let key = find(table, which, name).map(|(key, _)| key.get().to_owned())?;
    table.remove(&key);
    Some(document.to_string())
}
