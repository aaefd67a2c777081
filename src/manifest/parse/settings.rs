//! The smaller tables: `[env]`, `[gpu]`, `[host]`, `[system-requirements]`, `[activation]`,
//! `[view]`, `[verify]`.

use std::collections::BTreeMap;

use rattler_conda_types::Subdir as Platform;
use url::Url;
use uv_pep440::Version;

use super::super::error::FaultKind;
use super::super::location::{LockLocation, has_credentials, lock_location, mask_credentials};
use super::super::model::{
    Activation, Env, Framework, Gpu, Host, Spanned, SystemRequirements, Verify, ViewOptions,
};
use super::conda::check_channel;
use super::newer;
use super::reader::{Reader, Section};
use crate::driver::Driver;
use crate::relpath::RelPath;

/// Platforms that gpuenv can resolve for. Views are built on those of Linux alone.
const PLATFORMS: [Platform; 6] = [
    Platform::Linux64,
    Platform::LinuxAarch64,
    Platform::LinuxPpc64le,
    Platform::Osx64,
    Platform::OsxArm64,
    Platform::Win64,
];

pub(super) fn env<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> Option<Env> {
    if !root.table.contains_key("env") {
        let kind = FaultKind::Missing {
            key: "env",
            table: "the file".into(),
            hint: "start with `[env]`, `name = \"…\"` and `platforms = [\"linux-64\"]`; `gpuenv init` writes a template",
        };
        reader.fault(root.span.clone(), kind);
        return None;
    }
    let section = reader.section(root, "env")?;
    reader.only(
        &section,
        &["name", "platforms", "channels", "exclude-newer", "exclude-newer-package"],
    );
    let mut env = Env {
        name: String::new(),
        platforms: Vec::new(),
        channels: Vec::new(),
        exclude_newer: newer::exclude_newer(reader, &section),
    };
    if !section.table.contains_key("name") {
        let hint = "write `name = \"my-env\"`";
        let kind = FaultKind::Missing { key: "name", table: section.name(), hint };
        reader.fault(section.span.clone(), kind);
    }
    if let Some(name) = reader.string(&section, "name") {
        if is_env_name(name.value) {
            env.name = name.value.to_owned();
        } else {
            let hint = "use 1 to 64 of a-z A-Z 0-9 . _ -, starting with a letter or digit";
            reader.invalid::<()>(
                name.span,
                "an environment name",
                name.value,
                Some(hint.into()),
                None,
            );
        }
    }
    let hint = "write `platforms = [\"linux-64\"]`: targets are declared, never taken from the machine that locks";
    env.platforms = match section.node("platforms") {
        Some(_) => platforms(reader, &section, hint),
        None => {
            let kind = FaultKind::Missing { key: "platforms", table: section.name(), hint };
            reader.fault(section.span.clone(), kind);
            Vec::new()
        }
    };
    let mut names: Vec<(LockLocation, usize)> = Vec::new();
    for channel in reader.strings(&section, "channels") {
        if check_channel(reader, &channel).is_none() {
            continue;
        }
        let location = lock_location(&channel.value);
        let line = reader.line(channel.span.start);
        if let Some((_, first)) = names.iter().find(|(known, _)| known.name == location.name) {
            let kind = FaultKind::Duplicate { what: "channel", name: location.name, first: *first };
            reader.fault(channel.span, kind);
            continue;
        }
        names.push((location, line));
        env.channels.push(channel);
    }
    Some(env)
}

/// 1 to 64 of `a-z A-Z 0-9 . _ -`, starting with a letter or digit.
pub(crate) fn is_env_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

/// The array `platforms` of a table, sorted, without repeats; `hint` is what to write into an
/// empty one.
pub(super) fn platforms<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    hint: &'static str,
) -> Vec<Platform> {
    let known: Vec<String> = PLATFORMS.iter().map(|p| p.as_str().to_owned()).collect();
    let Some(node) = section.node("platforms") else { return Vec::new() };
    let mut platforms = Vec::new();
    for text in reader.node_strings(&node) {
        match text.value.parse::<Platform>() {
            Ok(platform) if PLATFORMS.contains(&platform) => platforms.push(platform),
            Ok(_) => {
                let kind = FaultKind::Unsupported {
                    what: format!("platform `{}`", text.value),
                    instead: format!(
                        "environments are resolved for {}",
                        super::super::error::list(&known)
                    ),
                };
                reader.fault(text.span, kind);
            }
            Err(error) => {
                let hint = format!("write {}", super::super::error::list(&known));
                reader.invalid::<()>(
                    text.span,
                    "a platform (a conda subdir)",
                    &text.value,
                    Some(hint),
                    Some(Box::new(error)),
                );
            }
        }
    }
    if node.item.as_array().is_some_and(|array| array.is_empty()) {
        let kind = FaultKind::Missing { key: "platforms", table: section.name(), hint };
        reader.fault(node.span, kind);
    }
    platforms.sort();
    platforms.dedup();
    platforms
}

/// `major.minor`, both decimal.
fn major_minor(
    reader: &mut Reader,
    text: &Spanned<impl AsRef<str>>,
    what: &'static str,
    example: &str,
) -> Option<(u16, u16)> {
    let value = text.value.as_ref();
    let parsed = value.split_once('.').and_then(|(major, minor)| {
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(major) || !digits(minor) {
            return None;
        }
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    match parsed {
        Some(pair) => Some(pair),
        None => {
            let hint = format!("write major and minor, such as \"{example}\"");
            reader.invalid(text.span.clone(), what, value, Some(hint), None)
        }
    }
}

pub(super) fn gpu<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> Option<Gpu> {
    let section = reader.section(root, "gpu")?;
    reader.only(&section, &["cuda", "driver", "archs", "allow-mixed-cuda"]);
    if !section.table.contains_key("cuda") {
        let hint = "write the CUDA runtime line, as `cuda = \"11.8\"`; without [gpu] the environment is for CPUs";
        let kind = FaultKind::Missing { key: "cuda", table: section.name(), hint };
        reader.fault(section.span.clone(), kind);
    }
    let text = reader.string(&section, "cuda");
    let span = text.as_ref().map(|text| text.span.clone());
    let cuda = text.and_then(|text| major_minor(reader, &text, "a CUDA version", "11.8"));
    let driver = reader.string(&section, "driver").and_then(|text| {
        let hint = Some("write the oldest driver that must run it, such as \"450.80.02\"");
        reader.parse_as::<Driver>(&text, "a driver version", hint)
    });
    let mut archs: Vec<(u16, u16)> = reader
        .strings(&section, "archs")
        .iter()
        .filter_map(|text| major_minor(reader, text, "a compute capability", "8.0"))
        .collect();
    archs.sort_unstable();
    archs.dedup();
    let mixed = reader.boolean(&section, "allow-mixed-cuda").unwrap_or(false);
    Some(Gpu { cuda: cuda?, driver, archs, mixed, span: span? })
}

/// Numbers and dots alone.
fn is_release(version: &Version) -> bool {
    version.epoch() == 0
        && version.pre().is_none()
        && version.post().is_none()
        && version.dev().is_none()
        && version.local().is_empty()
}

pub(super) fn host<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> Option<Host> {
    let section = reader.section(root, "host")?;
    reader.only(&section, &["python"]);
    let hint = "write the interpreter's version, as `python = \"3.11\"`";
    if !section.table.contains_key("python") {
        let kind = FaultKind::Missing { key: "python", table: section.name(), hint };
        reader.fault(section.span.clone(), kind);
    }
    let text = reader.string(&section, "python")?;
    let version: Version = reader.parse_as(&text, "a Python version", Some(hint))?;
    let parts = version.release().len();
    if is_release(&version) && (2..=3).contains(&parts) && version.release()[0] == 3 {
        Some(Host { python: version, span: text.span })
    } else {
        reader.invalid(text.span, "a Python version", text.value, Some(hint.into()), None)
    }
}

pub(super) fn system<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
) -> Option<SystemRequirements> {
    let section = reader.section(root, "system-requirements")?;
    reader.only(&section, &["libc", "linux", "macos", "archspec"]);
    let mut system = SystemRequirements::default();
    if let Some(text) = reader.string(&section, "libc")
        && let Some(glibc) = major_minor(reader, &text, "a glibc version", "2.28")
    {
        system.glibc = glibc;
    }
    if let Some(text) = reader.string(&section, "linux") {
        let hint = "write the oldest kernel, such as \"4.18\"";
        if let Some(version) = reader.parse_as::<Version>(&text, "a kernel version", Some(hint)) {
            if is_release(&version) {
                system.linux = version;
            } else {
                reader.invalid::<()>(
                    text.span,
                    "a kernel version",
                    text.value,
                    Some(hint.into()),
                    None,
                );
            }
        }
    }
    if let Some(text) = reader.string(&section, "macos") {
        system.macos = major_minor(reader, &text, "a macOS version", "13.0");
    }
    if let Some(text) = reader.string(&section, "archspec") {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !text.value.is_empty() && text.value.chars().all(plain) {
            system.archspec = Some(text.value.to_owned());
        } else {
            let hint = "write an archspec name such as \"x86_64_v3\"".to_owned();
            reader.invalid::<()>(text.span, "a microarchitecture", text.value, Some(hint), None);
        }
    }
    Some(system)
}

/// Variables that the view sets or clears itself.
const RESERVED: [&str; 8] = [
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONNOUSERSITE",
    "PYTHONPYCACHEPREFIX",
    "CONDA_PREFIX",
    "VIRTUAL_ENV",
];

pub(super) fn activation<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> Activation {
    let mut env = BTreeMap::new();
    let Some(section) = reader.section(root, "activation") else { return Activation { env } };
    reader.only(&section, &["env"]);
    let Some(variables) = reader.section(&section, "env") else { return Activation { env } };
    for node in variables.nodes() {
        let Some(value) = reader.node_string(&node, "a string (in quotes, numbers too)") else {
            continue;
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if node.key.is_empty()
            || !node.key.chars().all(plain)
            || node.key.starts_with(|c: char| c.is_ascii_digit())
        {
            let hint = "use letters, digits and _, not starting with a digit".to_owned();
            reader.invalid::<()>(
                node.key_span.clone(),
                "the name of an environment variable",
                node.key,
                Some(hint),
                None,
            );
        } else if RESERVED.contains(&node.key) {
            let kind = FaultKind::ReservedVariable(node.key.to_owned());
            reader.fault(node.key_span.clone(), kind);
        } else if value.value.contains('\0') {
            reader.invalid::<()>(
                value.span,
                "the value of an environment variable",
                "a text with a NUL byte",
                None,
                None,
            );
        } else if mask_credentials(value.value) != value.value {
            let kind = FaultKind::Credentials { place: format!("`{}`", node.path) };
            reader.fault(value.span, kind);
        } else {
            env.insert(node.key.to_owned(), value.value.to_owned());
        }
    }
    Activation { env }
}

pub(super) fn view<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> ViewOptions {
    let mut view = ViewOptions::default();
    let Some(section) = reader.section(root, "view") else { return view };
    reader.only(
        &section,
        &["winners", "allow-external-links", "skip-link-scripts", "allow-duplicate-sonames"],
    );
    if let Some(winners) = reader.section(&section, "winners") {
        for node in winners.nodes() {
            let key = Spanned { value: node.key, span: node.key_span.clone() };
            let hint = "write the path below the view, in quotes, such as \"bin/tool\"";
            let path: Option<RelPath> = reader.parse_as(&key, "a path in the view", Some(hint));
            let owner = reader.node_string(&node, "the name of a package");
            let (Some(path), Some(owner)) = (path, owner) else { continue };
            let owner = Spanned { value: owner.value.to_owned(), span: owner.span };
            if let Some(owner) = package_name(reader, &owner) {
                view.winners.insert(path, owner);
            }
        }
    }
    let mut names = |key: &str| {
        let mut names: Vec<String> = reader
            .strings(&section, key)
            .iter()
            .filter_map(|text| package_name(reader, text))
            .collect();
        names.sort();
        names.dedup();
        names
    };
    view.allow_external_links = names("allow-external-links");
    view.skip_link_scripts = names("skip-link-scripts");
    view.allow_duplicate_sonames = names("allow-duplicate-sonames");
    view
}

/// A package name of either world or a soname: no blank, no separator, no control character.
fn package_name(reader: &mut Reader, text: &Spanned<String>) -> Option<String> {
    let name = text.value.trim();
    let bad = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    if name.is_empty() || name.contains(bad) {
        return reader.invalid(text.span.clone(), "a name", &text.value, None, None);
    }
    Some(name.to_owned())
}

pub(super) fn verify<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> Verify {
    let mut verify = Verify::default();
    let Some(section) = reader.section(root, "verify") else { return verify };
    reader.only(&section, &["framework", "script", "timeout"]);
    if let Some(text) = reader.string(&section, "framework") {
        match Framework::from_name(text.value) {
            Some(framework) => verify.framework = Some(framework),
            None => {
                let known: Vec<String> =
                    Framework::ALL.iter().map(|f| f.as_str().to_owned()).collect();
                let hint = format!("write {}", super::super::error::list(&known));
                reader.invalid::<()>(
                    text.span,
                    "a framework with built-in checks",
                    text.value,
                    Some(hint),
                    None,
                );
            }
        }
    }
    if let Some(text) = reader.string(&section, "script") {
        let hint = "write a path relative to env.toml, such as \"verify.py\"";
        verify.script = reader
            .parse_as(&text, "a relative path", Some(hint))
            .map(|value| Spanned { value, span: text.span });
    }
    if let Some(node) = section.node("timeout") {
        match node.item.as_integer().map(u64::try_from) {
            Some(Ok(seconds)) if seconds > 0 => verify.timeout = Some(seconds),
            _ => reader.wrong_type_or_range(&node, "a positive number of seconds"),
        }
    }
    verify
}

/// An `http` or `https` URL without credentials.
pub(super) fn http_url(
    reader: &mut Reader,
    text: &Spanned<impl AsRef<str>>,
    place: &str,
) -> Option<Url> {
    let hint = "write an http or https URL";
    let url: Url = reader.parse_as(text, "a URL", Some(hint))?;
    if has_credentials(&url) {
        reader.fault(text.span.clone(), FaultKind::Credentials { place: format!("`{place}`") });
        return None;
    }
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        let value = text.value.as_ref();
        return reader.invalid(
            text.span.clone(),
            "a URL that can be fetched",
            value,
            Some(hint.into()),
            None,
        );
    }
    Some(url)
}
