//! The configuration as a commented TOML file. The comments are the doc comments of [`Config`].

use std::fmt::Write;

use serde_json::{Map, Value};
use utoipa::PartialSchema;

use crate::config::Config;

/// Returns every key of the configuration with its doc comment, its default and its value, as a TOML
/// file that configures a node in the same way. Keys without a value are comments.
///
/// # Errors
/// A path that is not UTF-8.
pub fn listing(config: &Config) -> Result<String, serde_json::Error> {
    let mut listing = Listing(String::new());
    let section = Section {
        name: String::new(),
        schema: &serde_json::to_value(Config::schema())?,
        value: &serde_json::to_value(config)?,
        default: &serde_json::to_value(Config::default())?,
    };
    listing.keys(&section);
    Ok(listing.0)
}

/// A table of the configuration.
struct Section<'a> {
    /// The names from the root, with dots; empty for the root.
    name: String,
    schema: &'a Value,
    value: &'a Value,
    default: &'a Value,
}

/// A key as TOML writes it: quoted, unless it is of letters, digits, `-` and `_`.
fn toml_key(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { Value::from(key).to_string() }
}

impl Section<'_> {
    fn is_list_of_tables(&self) -> bool {
        self.schema["items"]["properties"].is_object()
    }

    fn child(&self, key: &str) -> Section<'_> {
        let name = if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) };
        let schema = &self.schema["properties"][key];
        // The schema of a table whose key has a comment of its own is wrapped.
        let schema = schema.pointer("/allOf/0").unwrap_or(schema);
        Section { name, schema, value: &self.value[key], default: &self.default[key] }
    }
}

struct Listing(String);

impl Listing {
    /// The keys of a section: first those with a value, then the tables.
    fn keys(&mut self, section: &Section<'_>) {
        let keys = section.schema["properties"].as_object().into_iter().flat_map(Map::keys);
        let (lists, keys): (Vec<_>, Vec<_>) = keys.partition(|key| section.child(key).is_list_of_tables());
        let (tables, values): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| section.value[*key].is_object());
        for key in values {
            let child = section.child(key);
            self.comment(&child);
            match child.default {
                Value::Null => self.line(&"# Not set by default."),
                default => self.line(&format_args!("# Default: {default}")),
            }
            // JSON's strings, numbers, booleans and lists of them are TOML.
            match child.value {
                Value::Null => self.line(&format_args!("# {key} =")),
                value => self.line(&format_args!("{key} = {value}")),
            }
        }
        for key in tables {
            self.table(&section.child(key));
        }
        for key in lists {
            self.list(&section.child(key));
        }
    }

    /// The tables of a list, each as it was given: what it leaves out is described in the documentation.
    fn list(&mut self, section: &Section<'_>) {
        self.line(&"");
        self.comment(section);
        let tables = section.value.as_array().map_or(&[][..], Vec::as_slice);
        if tables.is_empty() {
            self.line(&"# None by default.");
            self.line(&format_args!("# [[{}]]", section.name));
        }
        for table in tables {
            self.line(&format_args!("[[{}]]", section.name));
            self.entries(&section.name, table);
        }
    }

    /// The keys of a table without their comments: first values, then tables.
    fn entries(&mut self, name: &str, table: &Value) {
        let entries = || table.as_object().into_iter().flatten();
        for (key, value) in entries().filter(|(_, value)| !value.is_object()) {
            self.line(&format_args!("{} = {value}", toml_key(key)));
        }
        for (key, value) in entries().filter(|(_, value)| value.as_object().is_some_and(|table| !table.is_empty())) {
            let name = format!("{name}.{}", toml_key(key));
            self.line(&format_args!("[{name}]"));
            self.entries(&name, value);
        }
    }

    fn table(&mut self, section: &Section<'_>) {
        if !self.0.is_empty() {
            self.line(&"");
        }
        self.comment(section);
        self.line(&format_args!("[{}]", section.name));
        if section.schema["properties"].is_object() {
            self.keys(section);
        } else {
            for (key, value) in section.value.as_object().into_iter().flatten() {
                self.line(&format_args!("{key} = {value}"));
            }
        }
    }

    fn comment(&mut self, section: &Section<'_>) {
        for line in section.schema["description"].as_str().into_iter().flat_map(str::lines) {
            self.line(&format_args!("# {line}"));
        }
    }

    fn line(&mut self, text: &dyn std::fmt::Display) {
        writeln!(self.0, "{text}").expect("writing to a string does not fail");
    }
}
