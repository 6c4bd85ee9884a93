//! Rows of a file as observations.

use std::sync::Arc;

use celeris_model::observation::{WEIGHT_MAX, check_label};
use celeris_model::{Context, DecisionId, ItemId, Loss, ObservationId, UserId};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::cell::Cell;
use crate::display::{self, name};
use crate::error::{BadRow, Fault, ImportError, Place};
use crate::ids::{self, COUNTED_MAX, Ids};
use crate::input::Input;
use crate::kinds::{Kind, Kinds};
use crate::layout::Layout;
use crate::mapping::{Mapped, Mapping, Role, plain};
use crate::repeats::Repeats;
use crate::rules::{Rules, check_complete, context_columns};
use crate::source::{self, Rows};
use crate::times::{self, TimeKind, TimeKinds};

/// Maximum length of a kind of feedback, as the API's.
const FEEDBACK_BYTES_MAX: usize = 64;

/// An observation as the API takes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Taken {
    pub user: String,
    pub item: String,
    pub label: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f32>,
    /// Unix milliseconds; if missing, the time of arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    pub observation_id: String,
}

/// The observations of one file.
pub struct Observations {
    file: String,
    rules: Rules,
    rows: Box<dyn Rows>,
    mapping: Mapping,
    layout: Layout,
    /// None if the caller needs no ids.
    ids: Option<Ids>,
    /// Notes contents in a first reading.
    noted: Option<Repeats>,
    kinds: TimeKinds,
    /// Name and index of the columns of the context.
    context: Vec<(String, usize)>,
    /// Their types: noted in a first reading, and used in the next one.
    context_kinds: Kinds,
    /// Whether a mixture of times must be found at once, since there was no first reading.
    only_reading: bool,
    /// Rows of kinds of feedback that have no label.
    left_out: u64,
}

impl Observations {
    /// Opens an input that was not read before.
    ///
    /// # Errors
    /// As [`source::open`]; [`ImportError::File`] if a column is missing.
    pub fn open(input: &Input, rules: &Rules) -> Result<Self, ImportError> {
        Self::open_with(input, rules, None)
    }

    /// Opens an input that was not read before, for observations whose ids are empty: those of a
    /// file need memory for its rows.
    ///
    /// # Errors
    /// As [`Observations::open`].
    pub fn open_without_ids(input: &Input, rules: &Rules) -> Result<Self, ImportError> {
        let mut observations = Self::open_with(input, rules, None)?;
        observations.ids = None;
        Ok(observations)
    }

    /// Opens an input again. `context_kinds` are the types of the columns of the context.
    ///
    /// # Errors
    /// As [`Observations::open`].
    pub fn open_again(
        input: &Input,
        rules: &Rules,
        repeats: Arc<Repeats>,
        context_kinds: Kinds,
    ) -> Result<Self, ImportError> {
        Ok(Self { context_kinds, ..Self::open_with(input, rules, Some(repeats))? })
    }

    /// Opens an input for a first reading, which notes the contents of the rows.
    pub(crate) fn open_first(input: &Input, rules: &Rules) -> Result<Self, ImportError> {
        let mut observations = Self::open_with(input, rules, None)?;
        // Ids of a column need no contents.
        let has_ids = observations.mapping.get(Role::Id).is_some();
        let bytes = if has_ids { 0 } else { input.bytes().unwrap_or(u64::MAX) };
        observations.noted = Some(Repeats::new(bytes));
        observations.only_reading = false;
        Ok(observations)
    }

    fn open_with(input: &Input, rules: &Rules, repeats: Option<Arc<Repeats>>) -> Result<Self, ImportError> {
        let file = input.shown();
        let rows = source::open(input, &rules.reading(input.layout))?;
        let problem =
            |problem: String| ImportError::file(&file, format!("{problem}{}", source::not_listed(rows.as_ref())));
        let rules = rules.of(input, rows.columns()).map_err(problem)?;
        let mapping = rules.mapping(rows.columns()).map_err(problem)?;
        check_complete(&mapping, &rules, rows.columns()).map_err(problem)?;
        let context = context_columns(input, &rules, rows.as_ref()).map_err(problem)?;
        let only_reading = repeats.is_none();
        let ids = Some(Ids::new(&input.name, input.part.as_deref(), repeats));
        let context_kinds = context.iter().map(|(name, _)| rules.kind_of(name)).collect();
        Ok(Self {
            file,
            rules,
            rows,
            mapping,
            layout: input.layout,
            ids,
            noted: None,
            kinds: TimeKinds::default(),
            context,
            context_kinds,
            only_reading,
            left_out: 0,
        })
    }

    #[must_use]
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(crate) fn rows(&self) -> &dyn Rows {
        self.rows.as_ref()
    }

    /// The names of the columns of the context.
    pub(crate) fn context_columns(&self) -> Vec<String> {
        self.context.iter().map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn into_noted(self) -> (TimeKinds, Kinds, Option<Repeats>) {
        (self.kinds, self.context_kinds, self.noted.map(Repeats::complete))
    }

    /// How many rows were left out so far, because their kind of feedback has no label.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Bytes of the file read so far, roughly.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.rows.bytes_read()
    }

    /// Where the current row is.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { file: self.file.clone(), number: self.rows.number(), unit: self.rows.unit() }
    }

    /// The current row as a bad row, for a reason found elsewhere.
    #[must_use]
    pub fn raw(&self) -> Vec<u8> {
        self.rows.raw()
    }

    /// The next observation; `None` at the end.
    ///
    /// # Errors
    /// [`Fault::Row`] for a row that is not an observation, [`Fault::File`] if reading cannot go on.
    pub fn advance(&mut self) -> Result<Option<Taken>, Fault> {
        loop {
            if !self.rows.advance()? {
                return Ok(None);
            }
            if let Some(problem) = self.late_field() {
                return Err(Fault::File(ImportError::file(&self.place().to_string(), problem)));
            }
            match self.take() {
                Ok(taken) => {
                    if self.only_reading
                        && let Some(problem) = self.mixture()
                    {
                        return Err(Fault::File(ImportError::file(&self.file, problem)));
                    }
                    return Ok(Some(taken));
                }
                Err(Refused::LeftOut) => self.left_out += 1,
                Err(Refused::Row(reason)) => {
                    return Err(Fault::Row(BadRow { place: self.place(), reason, raw: self.rows.raw() }));
                }
                Err(Refused::File(problem)) => return Err(Fault::File(ImportError::file(&self.file, problem))),
            }
        }
    }

    /// The problem of times of several kinds among the rows so far.
    pub(crate) fn mixture(&self) -> Option<String> {
        let time = self.mapping.get(Role::Time)?;
        self.kinds.mixture(&time.name, self.rows.unit().word())
    }

    /// The problem of a field that would have had a role, had the columns been known to hold it.
    fn late_field(&self) -> Option<String> {
        let has_no_value = |role: Role| {
            self.mapping.get(role).is_none_or(|mapped| mapped.guessed && self.rows.cell(mapped.index) == Cell::Missing)
        };
        let (field, role) = self.rows.late_fields().into_iter().find_map(|field| {
            let role = self.rules.role_of(field, self.rows.columns()).filter(|role| has_no_value(*role))?;
            Some((field, role))
        })?;
        let (field, role) = (name(field), role.name());
        Some(format!(
            "the field {field} is in none of the first lines, and would be the {role}; name the fields that follow later \
             by --columns {field} to take it, or leave it out by --map {role}="
        ))
    }

    fn take(&mut self) -> Result<Taken, Refused> {
        let user = self.id(Role::User, |id| UserId::new(id).map(drop))?;
        let item = self.id(Role::Item, |id| ItemId::new(id).map(drop))?;
        let feedback = match &self.rules.feedback {
            Some(feedback) => Some(feedback.clone()),
            None => self.feedback()?,
        };
        let label = self.label(feedback.as_deref())?;
        // A negative zero is a zero.
        let label = label + 0.0;
        self.check_label(label)?;
        let weight = match self.number(Role::Weight)? {
            Some(weight) if weight > 0.0 && weight <= WEIGHT_MAX => Some(weight),
            None => self.rules.weight,
            Some(weight) => {
                return Err(self.refuse(Role::Weight, &format!("{weight} must be above 0 and at most 1e6")));
            }
        };
        let timestamp = self.time()?;
        let decision_id = match self.mapping.get(Role::Decision) {
            Some(column) if self.rows.cell(column.index) != Cell::Missing => {
                Some(self.id(Role::Decision, |id| DecisionId::new(id).map(drop))?)
            }
            _ => None,
        };
        let (is_first, comma) = (self.noted.is_some(), self.rows.decimal_comma());
        for ((column, index), kind) in self.context.iter().zip(&mut self.context_kinds) {
            let cell = self.rows.cell(*index);
            if let Some(problem) = kind.problem(&cell, comma) {
                return Err(Refused::Row(format!("column {}: {problem}", name(column))));
            }
            if is_first {
                kind.note(&cell, comma);
            }
        }
        let context = self.context()?;
        let key = self.key(&user, &item, feedback.as_deref(), timestamp.map(|(time, _)| time));
        let observation_id = self.observation_id(key)?;
        // The kind of a time counts only in rows that are taken.
        if let (Some((_, kind)), Some(column)) = (timestamp, self.mapping.get(Role::Time)) {
            self.kinds.note(kind, self.rows.number(), &self.rows.cell(column.index));
        }
        let timestamp = timestamp.map(|(time, _)| time);
        Ok(Taken { user, item, label, weight, timestamp, feedback, decision_id, context, observation_id })
    }

    fn refuse(&self, role: Role, problem: &str) -> Refused {
        let column = self.mapping.get(role).map_or(role.name(), |mapped| &mapped.name);
        Refused::Row(format!("column {}: {problem}", name(column)))
    }

    fn id<E: std::fmt::Display>(&self, role: Role, check: impl Fn(&str) -> Result<(), E>) -> Result<String, Refused> {
        let Some(Mapped { index, .. }) = self.mapping.get(role) else { return Err(self.refuse(role, "is missing")) };
        let cell = self.rows.cell(*index);
        let shown = cell.quoted();
        let id = cell.id().map_err(|problem| self.refuse(role, &problem))?;
        check(&id).map_err(|_| {
            self.refuse(role, &format!("{shown} is not an id; ids have 1 to 256 bytes and no control characters"))
        })?;
        Ok(id.into_owned())
    }

    fn number(&self, role: Role) -> Result<Option<f32>, Refused> {
        let Some(Mapped { index, .. }) = self.mapping.get(role) else { return Ok(None) };
        let cell = self.rows.cell(*index);
        if cell == Cell::Missing {
            return Ok(None);
        }
        let number = cell.number(self.rows.decimal_comma()).map_err(|problem| self.refuse(role, &problem))?;
        #[expect(clippy::cast_possible_truncation, reason = "labels and weights are f32; too large ones are refused")]
        Ok(Some(number as f32))
    }

    /// The label: that of all rows, that of the kind of feedback, or the one in its column.
    fn label(&self, feedback: Option<&str>) -> Result<f32, Refused> {
        if let Some(label) = self.rules.label {
            return Ok(label);
        }
        if self.rules.labels_of.is_empty() {
            let label = self.number(Role::Label)?;
            return label.ok_or_else(|| self.refuse(Role::Label, "is empty; a label is a number"));
        }
        let Some(kind) = feedback else {
            return Err(self.refuse(Role::Feedback, "is empty, and --label-of needs the kind of feedback"));
        };
        match self.rules.labels_of.get(kind) {
            Some(Some(label)) => Ok(label),
            Some(None) => Err(Refused::LeftOut),
            None => {
                let kind = display::quoted(kind);
                let problem = format!(
                    "{kind} has no label; give it one by --label-of, or leave such rows out by an empty one (KIND=)"
                );
                Err(self.refuse(Role::Feedback, &problem))
            }
        }
    }

    /// What makes an observation of Gorse one, whatever file it is from; `None` for others, which their whole row makes.
    fn key(&self, user: &str, item: &str, feedback: Option<&str>, time: Option<i64>) -> Option<u128> {
        if !matches!(self.layout, Layout::Gorse(_)) {
            return None;
        }
        let value = self.rows.columns().iter().position(|column| plain(column) == "value");
        let value = value.and_then(|index| self.rows.cell(index).number(self.rows.decimal_comma()).ok());
        let time = time.map(|time| time.to_string()).unwrap_or_default();
        let value = (value.unwrap_or_default() + 0.0).to_string();
        let parts = [feedback.unwrap_or_default(), user, item, &time, &value];
        Some(ids::content(parts.into_iter().map(Into::into)))
    }

    fn check_label(&self, label: f32) -> Result<(), Refused> {
        if check_label(label).is_err() {
            return Err(self.refuse(Role::Label, &format!("{label} is not between -1e6 and 1e6")));
        }
        match self.rules.loss {
            Some(Loss::Logistic) if !(0.0..=1.0).contains(&label) => Err(self.refuse(
                Role::Label,
                &format!(
                    "{label} is not from 0 to 1, which the model's loss \"logistic\" needs; import ratings into a model \
                     with \"loss\": \"squared\", counts into one with \"implicit\", or name a column of 0 and 1 by --label-from"
                ),
            )),
            Some(Loss::Implicit) if label < 0.0 => Err(self.refuse(
                Role::Label,
                &format!(
                    "{label} is below 0, and the model's loss \"implicit\" counts; leave returned goods out, or import \
                     into a model with \"loss\": \"squared\""
                ),
            )),
            _ => self.check_range(label),
        }
    }

    fn check_range(&self, label: f32) -> Result<(), Refused> {
        let Some(range) = self.rules.label_range.filter(|range| !range.contains(label)) else { return Ok(()) };
        let [low, high] = range.into();
        Err(self.refuse(
            Role::Label,
            &format!(
                "{label} is not from {low} to {high}, the model's label_range; correct it, or have the model clip such \
                 labels by \"labels_outside\": \"clip\""
            ),
        ))
    }

    fn time(&self) -> Result<Option<(i64, TimeKind)>, Refused> {
        let Some(Mapped { index, .. }) = self.mapping.get(Role::Time) else { return Ok(None) };
        let cell = self.rows.cell(*index);
        if self.rules.no_time.is_some_and(|none| cell.content() == none) {
            return Ok(None);
        }
        let time = times::read(&cell, self.rules.time_unit).map_err(|problem| self.refuse(Role::Time, &problem))?;
        match time {
            Some((time, kind)) if time > self.rules.latest => {
                let shown = shown_time(&cell, time, kind);
                Err(self.refuse(
                    Role::Time,
                    &format!("{shown}, in the future; correct it, or name the unit by --time-unit"),
                ))
            }
            Some((time, kind)) if self.rules.earliest.is_some_and(|earliest| time < earliest) => {
                let (shown, earliest) =
                    (shown_time(&cell, time, kind), display::time(self.rules.earliest.unwrap_or(time)));
                Err(self.refuse(
                    Role::Time,
                    &format!(
                        "{shown}, before {earliest}; correct it, name the unit by --time-unit, or take old times by \
                         --old-times, if limits.earliest_time of the node's configuration allows them"
                    ),
                ))
            }
            time => Ok(time),
        }
    }

    fn feedback(&self) -> Result<Option<String>, Refused> {
        let Some(Mapped { index, .. }) = self.mapping.get(Role::Feedback) else { return Ok(None) };
        let cell = self.rows.cell(*index);
        if cell == Cell::Missing {
            return Ok(None);
        }
        let feedback = cell.content().into_owned();
        if feedback.len() > FEEDBACK_BYTES_MAX {
            return Err(
                self.refuse(Role::Feedback, &format!("a kind of feedback has at most {FEEDBACK_BYTES_MAX} bytes"))
            );
        }
        Ok(Some(feedback))
    }

    /// The context: the object in the column of that role, and the columns that are its fields.
    fn context(&self) -> Result<Option<Context>, Refused> {
        let mut fields = Map::new();
        if let Some(Mapped { index, .. }) = self.mapping.get(Role::Context) {
            let cell = self.rows.cell(*index);
            fields = match &cell {
                Cell::Missing => fields,
                Cell::Object(json) => serde_json::from_str(json).unwrap_or(fields),
                Cell::Text(json) => serde_json::from_str(json)
                    .map_err(|_| self.refuse(Role::Context, &format!("{} is not a JSON object", cell.quoted())))?,
                other => return Err(self.refuse(Role::Context, &format!("{} is not a JSON object", other.quoted()))),
            };
        }
        // In a first reading the types are those of the rows so far.
        let value = |((name, index), kind): (&(String, usize), &Kind)| {
            Some((name.clone(), kind.value(&self.rows.cell(*index), self.rows.decimal_comma())?))
        };
        fields.extend(self.context.iter().zip(&self.context_kinds).filter_map(value));
        let context: Context = serde_json::from_value(Value::Object(fields)).map_err(|error| {
            let remedy = "leave it out by --map context=, and name some fields by --context";
            Refused::Row(format!("the context: {error}; {remedy}"))
        })?;
        Ok(Some(context).filter(|context| !context.is_empty()))
    }

    fn observation_id(&mut self, key: Option<u128>) -> Result<String, Refused> {
        if self.mapping.get(Role::Id).is_some() {
            let id = self.id(Role::Id, |id| ObservationId::new(id).map(drop))?;
            let is_reserved = ObservationId::new(id.as_str()).is_ok_and(|id| id.is_reserved());
            return Ok(match &self.ids {
                Some(ids) if is_reserved => ids.of_other_node(&id),
                _ => id,
            });
        }
        let Some(ids) = &mut self.ids else { return Ok(String::new()) };
        let content = key.unwrap_or_else(|| self.rows.content());
        if let Some(noted) = &mut self.noted {
            noted.note(content);
            return Ok(String::new());
        }
        ids.of_content(content).map_err(|_| {
            Refused::File(format!(
                "has more than {COUNTED_MAX} rows whose ids must be counted; import it in parts, or name a column of ids by \
                 --id-column"
            ))
        })
    }
}

/// A time as it is written, and as it is read where that differs.
fn shown_time(cell: &Cell, time: i64, kind: TimeKind) -> String {
    let (value, read_as) = (cell.quoted(), display::time(time));
    match kind {
        TimeKind::Number(_) => format!("{value} in {} is {read_as}", kind.words()),
        TimeKind::Typed | TimeKind::Iso if value == read_as => value,
        TimeKind::Typed | TimeKind::Iso => format!("{value} is {read_as}"),
    }
}

/// Why a row is no observation.
enum Refused {
    /// Its kind of feedback has no label.
    LeftOut,
    Row(String),
    File(String),
}
