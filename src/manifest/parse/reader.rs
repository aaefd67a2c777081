//! Walking a TOML document with spans, collecting faults instead of stopping at the first.

use toml_edit::{Item, TableLike, Value};

use super::super::error::{Cause, Fault, FaultKind, flat, line_column, nearest};
use super::super::location::mask_credentials;
use super::super::model::{Span, Spanned};

/// Collects faults while the tables are read.
pub(super) struct Reader<'t> {
    pub(super) text: &'t str,
    pub(super) faults: Vec<Fault>,
}

/// A table of the document.
#[derive(Clone)]
pub(super) struct Section<'t> {
    /// `env`, `pypi-options.indexes`; empty for the document.
    pub(super) path: String,
    pub(super) table: &'t dyn TableLike,
    pub(super) span: Span,
}

/// A key with its value.
pub(super) struct Node<'t> {
    pub(super) key: &'t str,
    pub(super) key_span: Span,
    pub(super) path: String,
    pub(super) item: &'t Item,
    pub(super) span: Span,
}

impl Node<'_> {
    /// Key and value together.
    pub(super) fn whole(&self) -> Span {
        if self.item.is_value() && self.span.start >= self.key_span.start {
            self.key_span.start..self.span.end
        } else {
            self.key_span.clone()
        }
    }
}

impl<'t> Section<'t> {
    /// As messages name it.
    pub(super) fn name(&self) -> String {
        match &*self.path {
            "" => "env.toml".into(),
            path => format!("[{path}]"),
        }
    }

    /// The value of `key`.
    pub(super) fn node(&self, key: &str) -> Option<Node<'t>> {
        let (key, item) = self.table.get_key_value(key)?;
        let key_span = key.span().unwrap_or_else(|| self.span.clone());
        // Tables made by dotted keys have no span of their own.
        let span = item.span().filter(|span| !span.is_empty()).unwrap_or_else(|| key_span.clone());
        let path = match &*self.path {
            "" => key.get().to_owned(),
            path => format!("{path}.{}", key.get()),
        };
        Some(Node { key: key.get(), key_span, path, item, span })
    }

    /// All values, in file order.
    pub(super) fn nodes(&self) -> Vec<Node<'t>> {
        self.table.iter().filter_map(|(key, _)| self.node(key)).collect()
    }
}

impl<'t> Reader<'t> {
    pub(super) fn fault(&mut self, span: Span, kind: FaultKind) {
        self.faults.push(Fault { kind, span });
    }

    /// Line of a byte offset, from 1.
    pub(super) fn line(&self, offset: usize) -> usize {
        line_column(self.text, offset).0
    }

    pub(super) fn wrong_type(&mut self, node: &Node, expected: &'static str) {
        let kind =
            FaultKind::WrongType { key: node.path.clone(), expected, found: type_of(node.item) };
        self.fault(node.span.clone(), kind);
    }

    /// Reports a value of the right type and the wrong range.
    pub(super) fn wrong_type_or_range(&mut self, node: &Node, expected: &'static str) {
        let found = match node.item.as_value() {
            Some(Value::Integer(number)) => number.value().to_string(),
            Some(Value::Boolean(value)) => value.value().to_string(),
            _ => return self.wrong_type(node, expected),
        };
        let hint = Some(format!("write {expected}"));
        self.invalid::<()>(node.span.clone(), expected, &found, hint, None);
    }

    /// Reports a value that its type refuses; returns `None` for use in `?` chains.
    pub(super) fn invalid<T>(
        &mut self,
        span: Span,
        what: &'static str,
        value: &str,
        hint: Option<String>,
        cause: Option<Cause>,
    ) -> Option<T> {
        let value = mask_credentials(value);
        self.fault(span, FaultKind::Invalid { what, value, hint, cause });
        None
    }

    /// Reports keys that are not among `known`.
    pub(super) fn only(&mut self, section: &Section, known: &[&'static str]) {
        for node in section.nodes() {
            if !known.contains(&node.key) {
                let kind = FaultKind::UnknownKey {
                    key: node.key.to_owned(),
                    table: section.name(),
                    nearest: nearest(node.key, known.iter().copied()).into_iter().next(),
                    known: known.iter().map(|known| (*known).to_owned()).collect(),
                };
                self.fault(node.key_span.clone(), kind);
            }
        }
    }

    /// The table at `key`, if there is one.
    pub(super) fn section(&mut self, parent: &Section<'t>, key: &str) -> Option<Section<'t>> {
        let node = parent.node(key)?;
        match node.item.as_table_like() {
            Some(table) => Some(Section { path: node.path, table, span: node.span }),
            None => {
                self.wrong_type(&node, "a table");
                None
            }
        }
    }

    /// The string at `key`, if there is one.
    pub(super) fn string(&mut self, section: &Section<'t>, key: &str) -> Option<Spanned<&'t str>> {
        let node = section.node(key)?;
        self.node_string(&node, "a string")
    }

    /// The boolean at `key`, if there is one.
    pub(super) fn boolean(&mut self, section: &Section<'t>, key: &str) -> Option<bool> {
        let node = section.node(key)?;
        let value = node.item.as_bool();
        if value.is_none() {
            self.wrong_type(&node, "true or false");
        }
        value
    }

    /// A node as a string.
    pub(super) fn node_string(
        &mut self,
        node: &Node<'t>,
        expected: &'static str,
    ) -> Option<Spanned<&'t str>> {
        match node.item.as_str() {
            Some(value) => Some(Spanned { value, span: node.span.clone() }),
            None => {
                self.wrong_type(node, expected);
                None
            }
        }
    }

    /// The strings of the array at `key`; empty when it is not there.
    pub(super) fn strings(&mut self, section: &Section<'t>, key: &str) -> Vec<Spanned<String>> {
        match section.node(key) {
            Some(node) => self.node_strings(&node),
            None => Vec::new(),
        }
    }

    /// A node as an array of strings.
    pub(super) fn node_strings(&mut self, node: &Node<'t>) -> Vec<Spanned<String>> {
        let Some(array) = node.item.as_array() else {
            self.wrong_type(node, "an array of strings");
            return Vec::new();
        };
        let mut out = Vec::with_capacity(array.len());
        for value in array {
            let span = value.span().unwrap_or_else(|| node.span.clone());
            match value.as_str() {
                Some(text) => out.push(Spanned { value: text.to_owned(), span }),
                None => self.fault(
                    span,
                    FaultKind::WrongType {
                        key: node.path.clone(),
                        expected: "an array of strings",
                        found: value_type(value),
                    },
                ),
            }
        }
        out
    }

    /// Parses a string by its type's `FromStr`, reporting what it refuses.
    pub(super) fn parse_as<T>(
        &mut self,
        text: &Spanned<impl AsRef<str>>,
        what: &'static str,
        hint: Option<&str>,
    ) -> Option<T>
    where
        T: std::str::FromStr,
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        let value = text.value.as_ref();
        match value.parse() {
            Ok(parsed) => Some(parsed),
            Err(error) => {
                let drawn = error.to_string().contains('\n');
                let cause: Cause = if drawn { flat(error) } else { Box::new(error) };
                self.invalid(text.span.clone(), what, value, hint.map(str::to_owned), Some(cause))
            }
        }
    }
}

fn type_of(item: &Item) -> &'static str {
    match item {
        Item::None => "nothing",
        Item::Value(value) => value_type(value),
        Item::Table(_) => "a table",
        Item::ArrayOfTables(_) => "an array of tables",
    }
}

fn value_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Boolean(_) => "a boolean",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "an array",
        Value::InlineTable(_) => "a table",
    }
}
