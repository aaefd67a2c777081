//! `exclude-newer` and `exclude-newer-package` of `[env]`.

use super::super::model::Spanned;
use super::super::moment::{ExcludeNewer, Moment};
use super::reader::{Node, Reader, Section};

const HINT: &str = "write a date such as \"2024-05-01\" (all of that day, UTC), or an RFC 3339 time such as \"2024-05-01T12:00:00Z\"";

pub(super) fn exclude_newer<'t>(reader: &mut Reader<'t>, env: &Section<'t>) -> ExcludeNewer {
    let mut out = ExcludeNewer::default();
    if let Some(node) = env.node("exclude-newer") {
        out.all = moment(reader, &node, "a date or a time, in quotes");
    }
    let Some(packages) = reader.section(env, "exclude-newer-package") else { return out };
    for node in packages.nodes() {
        let own = match node.item.as_bool() {
            Some(false) => None,
            _ => match moment(reader, &node, "a date or a time in quotes, or false") {
                Some(moment) => Some(moment),
                None => continue,
            },
        };
        out.packages.insert(ExcludeNewer::key(node.key), own);
    }
    out
}

fn moment<'t>(reader: &mut Reader<'t>, node: &Node<'t>, expected: &'static str) -> Option<Moment> {
    // TOML has dates of its own: without quotes they mean the same.
    let text = match node.item.as_datetime() {
        Some(date) => Spanned { value: date.to_string(), span: node.span.clone() },
        None => {
            let text = reader.node_string(node, expected)?;
            Spanned { value: text.value.to_owned(), span: text.span }
        }
    };
    reader.parse_as(&text, "a date or a time", Some(HINT))
}
