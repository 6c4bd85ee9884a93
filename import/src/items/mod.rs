//! Rows of a file as attributes of items: rows that describe items, or rows of feedback that repeat
//! the description of their item.

mod gorse;

use std::collections::HashMap;

use celeris_datasets::movielens::ITEMS_MAX;
use celeris_model::ItemId;
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

use self::gorse::ItemColumns;
use crate::display::name;
use crate::error::{BadRow, Fault, ImportError, Place};
use crate::input::Input;
use crate::kinds::Kinds;
use crate::layout::{Layout, Subject};
use crate::mapping::{Mapping, Role, column_of, describes_user, listed};
use crate::rules::Rules;
use crate::source::{self, Rows};

/// What the rows of a file are, given the columns of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Observations,
    Items,
    /// Feedback whose rows repeat the attributes of their item.
    Both,
    /// Descriptions of users, which are left out.
    Users,
}

/// What the rows of an input are.
///
/// # Errors
/// [`ImportError::File`] if columns are missing or describe users.
pub fn content(input: &Input, rules: &Rules) -> Result<Content, ImportError> {
    match input.layout.subject() {
        Some(Subject::Users) => return Ok(Content::Users),
        Some(Subject::Items) if !input.is_stream() => return Ok(Content::Items),
        _ => {}
    }
    if rules.attributes.is_empty() {
        return Ok(Content::Observations);
    }
    let file = input.shown();
    if input.is_stream() {
        return Err(ImportError::file(
            &file,
            "can be read only once, and --attributes needs the types of the columns first; save it to a file",
        ));
    }
    let of_user = rules.attributes.iter().find(|name| describes_user(name));
    if let Some(name) = of_user {
        return Err(ImportError::Usage(format!(
            "--attributes {name}: the column describes the user, and users have no attributes, only items do; leave it out"
        )));
    }
    let rows = source::open(input, &rules.reading(input.layout))?;
    let (mapping, attributes) = (mapping_of(&file, input, rules, rows.as_ref())?.1, rules.attributes.iter());
    let missing: Vec<String> = attributes.filter_map(|name| column_of(rows.columns(), name).err()).collect();
    let has_user = mapping.get(Role::User).is_some();
    match missing.first() {
        None if has_user => Ok(Content::Both),
        None => Ok(Content::Items),
        // Another file may have the attributes.
        Some(_) if has_user && missing.len() == rules.attributes.len() => Ok(Content::Observations),
        Some(problem) => {
            let note = source::not_listed(rows.as_ref());
            Err(ImportError::file(&file, format!("--attributes: {problem}{note}")))
        }
    }
}

fn mapping_of(file: &str, input: &Input, rules: &Rules, rows: &dyn Rows) -> Result<(Rules, Mapping), ImportError> {
    let problem = |problem| ImportError::file(file, format!("{problem}{}", source::not_listed(rows)));
    let mut rules = rules.of(input, rows.columns()).map_err(problem)?;
    if input.layout.subject() == Some(Subject::Items) {
        // The others are of the files of feedback.
        rules.wishes.retain(|wish| wish.role == Role::Item);
    }
    let mapping = rules.mapping(rows.columns()).map_err(problem)?;
    Ok((rules, mapping))
}

/// An item with its attributes.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemRow {
    pub item: String,
    pub attributes: Map<String, Value>,
}

/// The items of one file, each once.
pub struct ItemRows {
    file: String,
    rows: Box<dyn Rows>,
    item: usize,
    item_name: String,
    attributes: Vec<(String, usize)>,
    /// The types of the attributes, as far as a schema gives them.
    declared: Kinds,
    /// The attributes of items of Gorse.
    gorse: Option<ItemColumns>,
    /// A hash of the attributes by that of the item.
    seen: HashMap<u64, u64>,
    contradictions: u64,
}

impl ItemRows {
    /// Opens an input.
    ///
    /// # Errors
    /// [`ImportError::Io`] or [`ImportError::File`].
    pub fn open(input: &Input, rules: &Rules) -> Result<Self, ImportError> {
        let file = input.shown();
        let rows = source::open(input, &rules.reading(input.layout))?;
        let (rules, mapping) = mapping_of(&file, input, rules, rows.as_ref())?;
        let columns = rows.columns();
        let problem =
            |problem: String| ImportError::file(&file, format!("{problem}{}", source::not_listed(rows.as_ref())));
        let item = mapping.get(Role::Item).ok_or_else(|| {
            problem(format!("no column for the item among {}; name it by --map item=COLUMN", listed(columns)))
        })?;
        let mut attributes = Vec::new();
        for name in &rules.attributes {
            let index = column_of(columns, name).map_err(problem)?;
            attributes.push((rows.field(index).to_owned(), index));
        }
        let (item, item_name) = (item.index, item.name.clone());
        let declared = attributes.iter().map(|(name, _)| rules.kind_of(name)).collect();
        let is_of_gorse = input.layout == Layout::Gorse(Subject::Items) && attributes.is_empty();
        let gorse = is_of_gorse.then(|| ItemColumns::of(columns));
        let seen = HashMap::new();
        Ok(Self { file, rows, item, item_name, attributes, declared, gorse, seen, contradictions: 0 })
    }

    /// How many rows describe their item differently from the first row of it.
    #[must_use]
    pub fn contradictions(&self) -> u64 {
        self.contradictions
    }

    /// Bytes of the file read so far, roughly.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.rows.bytes_read()
    }

    /// What kind of file it is, for people.
    #[must_use]
    pub fn kind(&self) -> String {
        self.rows.kind()
    }

    /// The columns that cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> &[(String, String)] {
        self.rows.unreadable()
    }

    /// The column of the item.
    #[must_use]
    pub fn item_column(&self) -> &str {
        &self.item_name
    }

    /// Where the current row is.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { file: self.file.clone(), number: self.rows.number(), unit: self.rows.unit() }
    }

    /// The current row as it is in the file.
    #[must_use]
    pub fn raw(&self) -> Vec<u8> {
        self.rows.raw()
    }

    /// Notes the types of the next row's attributes; returns its item, or `None` at the end.
    pub(crate) fn note(&mut self, kinds: &mut Kinds) -> Result<Option<String>, Fault> {
        if kinds.is_empty() {
            kinds.clone_from(&self.declared);
        }
        if !self.rows.advance()? {
            return Ok(None);
        }
        self.described(kinds)?;
        for ((_, index), kind) in self.attributes.iter().zip(kinds) {
            kind.note(&self.rows.cell(*index), self.rows.decimal_comma());
        }
        self.id().map(Some)
    }

    /// The next item that no earlier row describes; `None` at the end.
    ///
    /// # Errors
    /// [`Fault::Row`] for a row without an item, [`Fault::File`] if reading cannot go on.
    pub fn advance(&mut self, kinds: &Kinds) -> Result<Option<ItemRow>, Fault> {
        while self.rows.advance()? {
            let item = self.id()?;
            let attributes = self.described(kinds)?;
            let described = xxh3_64(Value::from(attributes.clone()).to_string().as_bytes());
            let key = xxh3_64(item.as_bytes());
            match self.seen.get(&key) {
                Some(before) => self.contradictions += u64::from(*before != described),
                None if self.seen.len() == ITEMS_MAX => {
                    return Err(Fault::File(ImportError::file(&self.file, format!("has more than {ITEMS_MAX} items"))));
                }
                None => {
                    self.seen.insert(key, described);
                    return Ok(Some(ItemRow { item, attributes }));
                }
            }
        }
        Ok(None)
    }

    /// The attributes in the current row.
    fn described(&self, kinds: &Kinds) -> Result<Map<String, Value>, Fault> {
        let bad = |reason| Fault::Row(BadRow { place: self.place(), reason, raw: self.rows.raw() });
        if let Some(columns) = &self.gorse {
            return columns.attributes(self.rows.as_ref()).map_err(bad);
        }
        let (comma, mut attributes) = (self.rows.decimal_comma(), Map::new());
        for ((column, index), kind) in self.attributes.iter().zip(kinds) {
            let cell = self.rows.cell(*index);
            if let Some(problem) = kind.problem(&cell, comma) {
                return Err(bad(format!("column {}: {problem}", name(column))));
            }
            if let Some(value) = kind.value(&cell, comma) {
                attributes.insert(column.clone(), value);
            }
        }
        Ok(attributes)
    }

    fn id(&self) -> Result<String, Fault> {
        let cell = self.rows.cell(self.item);
        let shown = cell.quoted();
        let id = cell.id().and_then(|id| match ItemId::new(id.as_ref()) {
            Ok(_) => Ok(id.into_owned()),
            Err(_) => Err(format!("{shown} is not an id; ids have 1 to 256 bytes and no control characters")),
        });
        id.map_err(|problem| {
            let reason = format!("column {}: {problem}", name(&self.item_name));
            Fault::Row(BadRow { place: self.place(), reason, raw: self.rows.raw() })
        })
    }
}
