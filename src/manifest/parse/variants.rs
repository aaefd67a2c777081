//! `[variants]`.

use std::collections::BTreeMap;

use super::super::error::{FaultKind, nearest};
use super::super::model::{Manifest, Span};
use super::super::variants::{BadVariantName, Variant, VariantGpu, VariantName};
use super::reader::{Reader, Section};
use super::{conda, settings, wheels};

const KEYS: [&str; 4] = ["gpu", "platforms", "dependencies", "pypi-dependencies"];

/// The variants of a manifest whose other tables are read.
pub(super) fn variants<'t>(
    reader: &mut Reader<'t>,
    root: &Section<'t>,
    base: &Manifest,
) -> BTreeMap<VariantName, Variant> {
    let mut out = BTreeMap::new();
    let Some(section) = reader.section(root, "variants") else { return out };
    let mut lines = base.pypi_dependencies.len();
    for node in section.nodes() {
        let name = match node.key.parse::<VariantName>() {
            Ok(name) => Some(name),
            Err(error) => {
                let hint = match error {
                    BadVariantName::Default => {
                        "the lines outside of [variants] are the environment without a variant, and `default` is its name; give this one another"
                    }
                    BadVariantName::Characters => {
                        "use 1 to 32 of a-z 0-9 -, starting with a letter or digit"
                    }
                };
                reader.invalid(
                    node.key_span.clone(),
                    "the name of a variant",
                    node.key,
                    Some(hint.into()),
                    None,
                )
            }
        };
        let Some(table) = reader.section(&section, node.key) else { continue };
        let variant = variant(reader, &table, node.key, base, lines);
        lines += variant.pypi_dependencies.len();
        if let Some(name) = name {
            out.insert(name, variant);
        }
    }
    out
}

fn variant<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    name: &str,
    base: &Manifest,
    lines: usize,
) -> Variant {
    reader.only(section, &KEYS);
    let (dependencies, without) = conda::changes(reader, section, &base.env.channels);
    let (pypi_dependencies, without_pypi) =
        wheels::changes(reader, section, &base.pypi_options, lines);
    for removed in &without {
        let given = dependencies.iter().find(|line| line.name == removed.value);
        let given = given.map(|line| line.span.clone());
        let text = removed.value.as_normalized();
        twice(reader, "conda package", text, &removed.span, given);
        let there = base.dependencies.iter().map(|line| line.name.as_normalized());
        nothing(reader, name, text, "[dependencies]", &removed.span, there);
    }
    for removed in &without_pypi {
        let given = pypi_dependencies.iter().find(|line| line.name == removed.value);
        let given = given.map(|line| line.span.clone());
        let text = removed.value.as_str();
        twice(reader, "distribution", text, &removed.span, given);
        let there = base.pypi_dependencies.iter().map(|line| line.name.as_str());
        nothing(reader, name, text, "[pypi-dependencies]", &removed.span, there);
    }
    Variant {
        platforms: platforms(reader, section, base),
        gpu: gpu(reader, section),
        dependencies,
        without,
        pypi_dependencies,
        without_pypi,
        span: section.span.clone(),
    }
}

fn platforms<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    base: &Manifest,
) -> Vec<rattler_conda_types::Subdir> {
    let Some(node) = section.node("platforms") else { return base.env.platforms.clone() };
    let hint = "write some of [env] platforms, as `platforms = [\"linux-64\"]`, or leave the key out for all";
    let platforms = settings::platforms(reader, section, hint);
    if let Some(foreign) = platforms.iter().find(|p| !base.env.platforms.contains(p)) {
        let known = base.env.platforms.iter().map(|p| p.as_str().to_owned()).collect();
        let kind = FaultKind::ForeignPlatform { name: foreign.as_str().to_owned(), known };
        reader.fault(node.whole(), kind);
    }
    platforms
}

fn gpu<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> VariantGpu {
    let Some(node) = section.node("gpu") else { return VariantGpu::Same };
    match node.item.as_bool() {
        Some(false) => VariantGpu::Without,
        None if node.item.is_table_like() => match settings::gpu(reader, section) {
            Some(gpu) => VariantGpu::Other(gpu),
            // A fault is reported.
            None => VariantGpu::Same,
        },
        _ => {
            reader.wrong_type(&node, "false or a table");
            VariantGpu::Same
        }
    }
}

/// Reports a line that is both given and removed, in two spellings of its name.
fn twice(reader: &mut Reader, what: &'static str, name: &str, removed: &Span, given: Option<Span>) {
    if let Some(given) = given {
        let first = reader.line(given.start);
        let kind = FaultKind::Duplicate { what, name: name.to_owned(), first };
        reader.fault(removed.clone(), kind);
    }
}

/// Reports a removal of what is not there: most likely a misspelled name.
fn nothing<'n>(
    reader: &mut Reader,
    variant: &str,
    name: &str,
    table: &'static str,
    span: &Span,
    there: impl Iterator<Item = &'n str> + Clone,
) {
    if !there.clone().any(|known| known == name) {
        let kind = FaultKind::NothingToRemove {
            variant: variant.to_owned(),
            name: name.to_owned(),
            table,
            nearest: nearest(name, there),
        };
        reader.fault(span.clone(), kind);
    }
}
