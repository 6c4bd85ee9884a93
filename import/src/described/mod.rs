//! Rows of a file as attributes of items or users: rows that describe items or users, or rows of feedback that repeat
//! the description of their item.

mod gorse;

use std::collections::HashMap;

use celeris_datasets::movielens::ITEMS_MAX;
use celeris_model::{ItemId, UserId};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

use self::gorse::GorseColumns;
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
    Users,
}

impl Content {
    /// Whether the rows describe items.
    pub(crate) fn has_items(self) -> bool {
        matches!(self, Self::Items | Self::Both)
    }
}

/// What the rows of an input are.
///
/// # Errors
/// [`ImportError::File`] if columns are missing, or those of users are in a file of feedback; [`ImportError::Usage`] if those
/// of items describe users.
pub fn content(input: &Input, rules: &Rules) -> Result<Content, ImportError> {
    match input.layout.subject() {
        Some(Subject::Users) => return Ok(Content::Users),
        Some(Subject::Items) if !input.is_stream() => return Ok(Content::Items),
        _ => {}
    }
    if describes_users(input, rules)? {
        return Ok(Content::Users);
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
            "--attributes {name}: the column describes the user; name it by --user-attributes, in a file of users"
        )));
    }
    let rows = source::open(input, &rules.reading(input.layout))?;
    let (mapping, attributes) = (mapping_of(input, rules, rows.as_ref(), None)?.1, rules.attributes.iter());
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

/// Whether the rows describe users by the columns that the caller names for it.
fn describes_users(input: &Input, rules: &Rules) -> Result<bool, ImportError> {
    if rules.user_attributes.is_empty() || input.is_stream() {
        return Ok(false);
    }
    let rows = source::open(input, &rules.reading(input.layout))?;
    let columns = rows.columns();
    // Another file may have the attributes, or the columns that the caller maps.
    if !rules.user_attributes.iter().all(|name| column_of(columns, name).is_ok()) {
        return Ok(false);
    }
    let mut rules = rules.clone();
    rules.wishes.retain(|wish| wish.column.as_ref().is_none_or(|column| column_of(columns, column).is_ok()));
    let mapping = rules.mapping(columns).map_err(|problem| ImportError::file(&input.shown(), problem))?;
    if mapping.get(Role::Item).is_some() {
        let (file, names) = (input.shown(), rules.user_attributes.join(", "));
        let problem = format!(
            "--user-attributes {names}: its rows are about items; put the users into a file of their own, a row for each"
        );
        return Err(ImportError::file(&file, problem));
    }
    Ok(mapping.get(Role::User).is_some())
}

/// The rules of an input and its columns; of one that describes `subject` alone, the column of its ids.
fn mapping_of(
    input: &Input,
    rules: &Rules,
    rows: &dyn Rows,
    subject: Option<Subject>,
) -> Result<(Rules, Mapping), ImportError> {
    let problem = |problem| ImportError::file(&input.shown(), format!("{problem}{}", source::not_listed(rows)));
    let mut rules = rules.of(input, rows.columns()).map_err(problem)?;
    if let Some(subject) = subject.or(input.layout.subject()).filter(|subject| *subject != Subject::Feedback) {
        // The others are of the files of feedback.
        rules.wishes.retain(|wish| wish.role == role_of(subject));
    }
    let mapping = rules.mapping(rows.columns()).map_err(problem)?;
    Ok((rules, mapping))
}

/// The role of the ids of what rows describe.
fn role_of(subject: Subject) -> Role {
    if subject == Subject::Users { Role::User } else { Role::Item }
}

/// An item or user with its attributes.
#[derive(Debug, Clone, PartialEq)]
pub struct DescribedRow {
    pub id: String,
    pub attributes: Map<String, Value>,
}

/// The items or users of one file, each once.
pub struct DescribedRows {
    file: String,
    rows: Box<dyn Rows>,
    subject: Subject,
    id: usize,
    id_name: String,
    attributes: Vec<(String, usize)>,
    /// The types of the attributes, as far as a schema gives them.
    declared: Kinds,
    /// The attributes of items or users of Gorse.
    gorse: Option<GorseColumns>,
    /// A hash of the attributes by that of the id.
    seen: HashMap<u64, u64>,
    contradictions: u64,
}

impl DescribedRows {
    /// Opens an input that has these contents.
    ///
    /// # Errors
    /// [`ImportError::Io`] or [`ImportError::File`].
    pub fn open(input: &Input, rules: &Rules, content: Content) -> Result<Self, ImportError> {
        let file = input.shown();
        let subject = if content == Content::Users { Subject::Users } else { Subject::Items };
        let rows = source::open(input, &rules.reading(input.layout))?;
        let alone = (content == Content::Users).then_some(subject);
        let (rules, mapping) = mapping_of(input, rules, rows.as_ref(), alone)?;
        let columns = rows.columns();
        let problem =
            |problem: String| ImportError::file(&file, format!("{problem}{}", source::not_listed(rows.as_ref())));
        let role = role_of(subject);
        let id = mapping.get(role).ok_or_else(|| {
            let role = role.name();
            problem(format!("no column for the {role} among {}; name it by --map {role}=COLUMN", listed(columns)))
        })?;
        let mut attributes = Vec::new();
        for name in rules.attributes_of(subject) {
            let index = column_of(columns, name).map_err(problem)?;
            attributes.push((rows.field(index).to_owned(), index));
        }
        let (id, id_name) = (id.index, id.name.clone());
        let declared = attributes.iter().map(|(name, _)| rules.kind_of(name)).collect();
        let is_of_gorse = input.layout == Layout::Gorse(subject) && attributes.is_empty();
        let gorse = is_of_gorse.then(|| GorseColumns::of(columns));
        let seen = HashMap::new();
        Ok(Self { file, rows, subject, id, id_name, attributes, declared, gorse, seen, contradictions: 0 })
    }

    /// How many rows describe their item or user differently from the first row of it.
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

    /// The column of the ids.
    #[must_use]
    pub fn id_column(&self) -> &str {
        &self.id_name
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

    /// Notes the types of the next row's attributes; returns its id, or `None` at the end.
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

    /// The next item or user that no earlier row describes; `None` at the end.
    ///
    /// # Errors
    /// [`Fault::Row`] for a row without an id, [`Fault::File`] if reading cannot go on.
    pub fn advance(&mut self, kinds: &Kinds) -> Result<Option<DescribedRow>, Fault> {
        while self.rows.advance()? {
            let id = self.id()?;
            let attributes = self.described(kinds)?;
            let described = xxh3_64(Value::from(attributes.clone()).to_string().as_bytes());
            let key = xxh3_64(id.as_bytes());
            match self.seen.get(&key) {
                Some(before) => self.contradictions += u64::from(*before != described),
                None if self.seen.len() == ITEMS_MAX => {
                    let what = if self.subject == Subject::Users { "users" } else { "items" };
                    return Err(Fault::File(ImportError::file(
                        &self.file,
                        format!("has more than {ITEMS_MAX} {what}"),
                    )));
                }
                None => {
                    self.seen.insert(key, described);
                    return Ok(Some(DescribedRow { id, attributes }));
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
        let cell = self.rows.cell(self.id);
        let shown = cell.quoted();
        let is_valid = |id: &str| match self.subject {
            Subject::Users => UserId::new(id).is_ok(),
            Subject::Items | Subject::Feedback => ItemId::new(id).is_ok(),
        };
        let id = cell.id().and_then(|id| match is_valid(id.as_ref()) {
            true => Ok(id.into_owned()),
            false => Err(format!("{shown} is not an id; ids have 1 to 256 bytes and no control characters")),
        });
        id.map_err(|problem| {
            let reason = format!("column {}: {problem}", name(&self.id_name));
            Fault::Row(BadRow { place: self.place(), reason, raw: self.rows.raw() })
        })
    }
}
