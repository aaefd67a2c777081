//! Reading `env.toml`.

mod conda;
mod newer;
mod reader;
mod settings;
mod variants;
mod wheels;

use toml_edit::Document;

pub(crate) use self::settings::is_env_name;
pub(super) use self::wheels::url_file_name;

use self::reader::{Reader, Section};
use super::error::{Fault, FaultKind, ManifestError};
use super::location::mask_credentials;
use super::model::{Manifest, Verify, VirtualOverrides};

/// The tables of env.toml.
const TABLES: [&str; 12] = [
    "env",
    "dependencies",
    "pypi-dependencies",
    "pypi-options",
    "conda-pypi-map",
    "gpu",
    "host",
    "system-requirements",
    "activation",
    "view",
    "verify",
    "variants",
];

/// Reads the text of an `env.toml`; `file` is what messages call it.
///
/// Grammar: `store-layout/env-toml.md`.
///
/// # Errors
///
/// All faults of the text at once, each with its place; credentials in URLs are masked in what
/// the error shows.
pub fn parse(text: &str, file: &str) -> Result<Manifest, ManifestError> {
    let document = Document::parse(text);
    let mut reader = Reader { text, faults: Vec::new() };
    let manifest = match &document {
        Ok(document) => {
            let root = Section {
                path: String::new(),
                table: document.as_table(),
                span: 0..text.find('\n').unwrap_or(text.len()),
            };
            read(&mut reader, &root)
        }
        Err(error) => {
            let span = error.span().unwrap_or(0..0);
            reader.fault(span, FaultKind::Syntax(error.message().replace('\n', "; ")));
            None
        }
    };
    match (ManifestError::new(file, &mask_credentials(text), reader.faults), manifest) {
        (Some(error), _) => Err(error),
        (None, Some(manifest)) => Ok(manifest),
        // `read` gives nothing only after it reported a fault.
        (None, None) => Err(ManifestError::of(
            file,
            text,
            Fault { kind: FaultKind::Syntax("nothing could be read".into()), span: 0..0 },
        )),
    }
}

fn read<'t>(reader: &mut Reader<'t>, root: &Section<'t>) -> Option<Manifest> {
    for node in root.nodes() {
        if matches!(node.key, "feature" | "environments" | "tasks" | "target") {
            let what = format!("[{}]", node.key);
            let instead = match node.key {
                "tasks" => "start programs with `gpuenv run -- …`".into(),
                _ => "write what differs into `[variants.NAME]`: its lines are added to those of env.toml or replace them".to_owned(),
            };
            reader.fault(node.key_span.clone(), FaultKind::Unsupported { what, instead });
        }
    }
    let known: Vec<&'static str> =
        TABLES.into_iter().chain(["feature", "environments", "tasks", "target"]).collect();
    let before = reader.faults.len();
    reader.only(root, &known);
    // What is listed as known to avoid a second message is not offered to the user.
    for fault in &mut reader.faults[before..] {
        if let FaultKind::UnknownKey { known, nearest, .. } = &mut fault.kind {
            known.retain(|key| TABLES.contains(&key.as_str()));
            *nearest = nearest.take().filter(|key| TABLES.contains(&key.as_str()));
        }
    }

    let env = settings::env(reader, root);
    let channels = env.as_ref().map(|env| env.channels.clone()).unwrap_or_default();
    let dependencies = conda::dependencies(reader, root, &channels);
    let pypi_options = wheels::options(reader, root);
    let pypi_dependencies = wheels::dependencies(reader, root, &pypi_options);
    let conda_pypi_map = conda::conda_pypi_map(reader, root);
    let gpu = settings::gpu(reader, root);
    let host = settings::host(reader, root);
    let system = settings::system(reader, root).unwrap_or_default();
    let activation = settings::activation(reader, root);
    let view = settings::view(reader, root);
    let verify: Verify = settings::verify(reader, root);

    let mut manifest = Manifest {
        text: mask_credentials(reader.text),
        env: env?,
        dependencies,
        pypi_dependencies,
        pypi_options,
        conda_pypi_map,
        gpu,
        host,
        system,
        virtual_overrides: VirtualOverrides::new(),
        activation,
        view,
        verify,
        variants: Default::default(),
    };
    manifest.variants = variants::variants(reader, root, &manifest);
    relations(reader, root, &manifest);
    Some(manifest)
}

/// What one table demands of another.
fn relations<'t>(reader: &mut Reader<'t>, root: &Section<'t>, manifest: &Manifest) {
    let span = |key: &str| root.node(key).map(|node| node.span).unwrap_or(0..0);
    let no_channels = manifest.env.channels.is_empty();
    // Looked for in the document too, so that a dependency with a fault of its own does not
    // raise a second, misleading one.
    let written = |key: &str| {
        root.table.get(key).and_then(|item| item.as_table_like()).is_some_and(|t| !t.is_empty())
    };
    let channels_written =
        root.table.get("env").and_then(|env| env.get("channels")).and_then(|c| c.as_array());
    let channels_absent = no_channels && channels_written.is_none_or(|array| array.is_empty());
    if channels_absent && written("dependencies") {
        reader.fault(span("dependencies"), FaultKind::NoChannels);
    }
    let host_written = root.table.contains_key("host");
    if channels_absent && !host_written && written("pypi-dependencies") && !written("dependencies")
    {
        reader.fault(span("pypi-dependencies"), FaultKind::NoPython);
    }
    let variants = manifest.variants.values();
    if channels_absent
        && let Some(first) = variants.clone().find_map(|variant| variant.dependencies.first())
    {
        reader.fault(first.span.clone(), FaultKind::NoChannels);
    }
    if channels_absent
        && !host_written
        && !written("pypi-dependencies")
        && let Some(first) = variants.clone().find_map(|variant| variant.pypi_dependencies.first())
    {
        reader.fault(first.span.clone(), FaultKind::NoPython);
    }
    let mut conda =
        manifest.dependencies.iter().chain(variants.flat_map(|variant| &variant.dependencies));
    if let Some(host) = &manifest.host
        && let Some(python) = conda.find(|dep| dep.name.as_normalized() == "python")
    {
        let kind = FaultKind::TwoPythons {
            host_line: reader.line(host.span.start),
            conda_line: reader.line(python.span.start),
        };
        reader.fault(python.span.clone(), kind);
    }
}
