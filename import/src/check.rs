//! A first reading of a file, before anything of it is used.

use std::sync::Arc;

use celeris_model::Loss;

use crate::described::{Content, DescribedRow, DescribedRows, content};
use crate::error::{BadRow, Fault, ImportError, Place};
use crate::input::Input;
use crate::kinds::Kinds;
use crate::mapping::{Mapping, Role};
use crate::observations::{Observations, Taken};
use crate::repeats::Repeats;
use crate::rules::Rules;
use crate::times::TimeKind;

/// Rows that a check keeps to show.
const SHOWN: usize = 3;

/// What a first reading found.
#[derive(Debug, Clone)]
pub struct Checked {
    pub input: Input,
    /// What kind of file it is, for people.
    pub kind: String,
    /// Columns that cannot be read, with their types.
    pub unreadable: Vec<(String, String)>,
    pub content: Content,
    pub observations: Option<CheckedObservations>,
    pub items: Option<CheckedDescriptions>,
    pub users: Option<CheckedDescriptions>,
    /// Number of rows that cannot be taken.
    pub bad: u64,
    pub first_bad: Option<BadRow>,
}

/// The rows as observations.
#[derive(Debug, Clone)]
pub struct CheckedObservations {
    pub columns: Vec<String>,
    pub mapping: Mapping,
    /// Rows that can be taken.
    pub good: u64,
    /// Rows of kinds of feedback that are left out.
    pub left_out: u64,
    /// The first of them.
    pub first: Vec<(Place, Taken)>,
    /// The least and the greatest label.
    pub labels: Option<(f32, f32)>,
    /// The earliest and the latest time, in Unix milliseconds.
    pub times: Option<(i64, i64)>,
    pub time_kind: Option<TimeKind>,
    /// Rows without a time.
    pub untimed: u64,
    pub repeats: Arc<Repeats>,
    /// The columns of the context, in the order of [`Rules::context`].
    pub context: Vec<String>,
    /// Their types.
    pub context_kinds: Kinds,
}

impl CheckedObservations {
    /// The loss of a model that such labels suit: logistic for 0 and 1, implicit for other counts and for rows that are
    /// all alike, squared for others.
    #[must_use]
    pub fn suitable_loss(&self) -> Loss {
        match self.labels {
            _ if self.mapping.get(Role::Label).is_none() => Loss::Implicit,
            Some((0.0, 1.0)) => Loss::Logistic,
            _ if self.mapping.label_is_count() => Loss::Implicit,
            Some((low, high)) if low == high => Loss::Implicit,
            _ => Loss::Squared,
        }
    }
}

/// The rows as items or users.
#[derive(Debug, Clone)]
pub struct CheckedDescriptions {
    pub id_column: String,
    /// Rows with an id.
    pub good: u64,
    pub kinds: Kinds,
    pub first: Vec<DescribedRow>,
}

/// Reads an input to its end. `on_bad` gets every bad row, `progress` the bytes read so far.
///
/// # Errors
/// [`ImportError`] if the file as a whole cannot be taken: a column is missing, or its times are a
/// mixture of units.
pub fn check(
    input: &Input,
    rules: &Rules,
    on_bad: &mut dyn FnMut(&BadRow) -> Result<(), ImportError>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Checked, ImportError> {
    let content = content(input, rules)?;
    let mut ignore = |_: &BadRow| Ok(());
    let mut bad = BadRows { count: 0, first: None, on_bad };
    let (mut observations, mut items, mut users, mut table) = (None, None, None, TableOf::default());
    if content == Content::Users {
        let (found, checked) = check_described((input, content), rules, &mut bad, progress)?;
        (table, users) = (found, Some(checked));
    }
    if matches!(content, Content::Observations | Content::Both) {
        let (found, checked) = check_observations(input, rules, &mut bad, progress)?;
        (table, observations) = (found, Some(checked));
    }
    if content.has_items() {
        // Rows of feedback without an item were reported as such.
        let mut ignored = BadRows { count: 0, first: None, on_bad: &mut ignore };
        let bad = if content == Content::Both { &mut ignored } else { &mut bad };
        let (found, checked) = check_described((input, content), rules, bad, progress)?;
        if observations.is_none() {
            table = found;
        }
        items = Some(checked);
    }
    let BadRows { count, first, .. } = bad;
    let TableOf { kind, unreadable } = table;
    let (input, bad, first_bad) = (input.clone(), count, first);
    Ok(Checked { input, kind, unreadable, content, observations, items, users, bad, first_bad })
}

/// What a reading found of the file as a table.
#[derive(Default)]
struct TableOf {
    kind: String,
    unreadable: Vec<(String, String)>,
}

struct BadRows<'a> {
    count: u64,
    first: Option<BadRow>,
    on_bad: &'a mut dyn FnMut(&BadRow) -> Result<(), ImportError>,
}

impl BadRows<'_> {
    /// Notes a bad row; other faults end the reading.
    fn note(&mut self, fault: Fault) -> Result<(), ImportError> {
        match fault {
            Fault::File(error) => Err(error),
            Fault::Row(row) => {
                self.count += 1;
                (self.on_bad)(&row)?;
                self.first.get_or_insert(row);
                Ok(())
            }
        }
    }
}

/// Rows between two reports of the progress.
const PROGRESS_ROWS: u64 = 4096;

fn check_observations(
    input: &Input,
    rules: &Rules,
    bad: &mut BadRows<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(TableOf, CheckedObservations), ImportError> {
    let mut reader = Observations::open_first(input, rules)?;
    let (mut good, mut untimed) = (0, 0);
    let mut labels: Option<(f32, f32)> = None;
    let mut times: Option<(i64, i64)> = None;
    let mut first = Vec::new();
    loop {
        match reader.advance() {
            Ok(None) => break,
            Ok(Some(taken)) => {
                good += 1;
                let label = taken.label;
                labels = Some(labels.map_or((label, label), |(low, high)| (low.min(label), high.max(label))));
                match taken.timestamp {
                    Some(time) => {
                        times = Some(times.map_or((time, time), |(low, high)| (low.min(time), high.max(time))));
                    }
                    None => untimed += 1,
                }
                if first.len() < SHOWN {
                    first.push((reader.place(), taken));
                }
            }
            Err(fault) => bad.note(fault)?,
        }
        if (good + bad.count).is_multiple_of(PROGRESS_ROWS) {
            progress(good + bad.count, reader.bytes_read());
        }
    }
    let file = input.shown();
    if let Some(problem) = reader.mixture() {
        return Err(ImportError::file(&file, problem));
    }
    let left_out = reader.left_out();
    if good + bad.count + left_out == 0 && input.layout.subject().is_none() {
        return Err(ImportError::file(&file, "holds no rows"));
    }
    let mapping = reader.mapping().clone();
    let table = TableOf { kind: reader.rows().kind(), unreadable: reader.rows().unreadable().to_vec() };
    let columns = reader.rows().columns().to_vec();
    let context = reader.context_columns();
    let (kinds, context_kinds, repeats) = reader.into_noted();
    let repeats = Arc::new(repeats.unwrap_or_else(|| Repeats::new(0)));
    let time_kind = kinds.kind();
    if !context.is_empty() {
        first = first_again(input, rules, &context_kinds)?;
    }
    let checked = CheckedObservations {
        columns,
        mapping,
        good,
        left_out,
        first,
        labels,
        times,
        time_kind,
        untimed,
        repeats,
        context,
        context_kinds,
    };
    Ok((table, checked))
}

/// The first rows that can be taken, now that the types of the context's columns are known.
fn first_again(input: &Input, rules: &Rules, kinds: &Kinds) -> Result<Vec<(Place, Taken)>, ImportError> {
    let mut reader = Observations::open_again(input, rules, Repeats::new(0).into(), kinds.clone())?;
    let mut first = Vec::new();
    while first.len() < SHOWN {
        match reader.advance() {
            Ok(Some(taken)) => first.push((reader.place(), taken)),
            Ok(None) | Err(Fault::File(_)) => break,
            Err(Fault::Row(_)) => {}
        }
    }
    Ok(first)
}

fn check_described(
    (input, content): (&Input, Content),
    rules: &Rules,
    bad: &mut BadRows<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(TableOf, CheckedDescriptions), ImportError> {
    let mut reader = DescribedRows::open(input, rules, content)?;
    let table = TableOf { kind: reader.kind(), unreadable: reader.unreadable().to_vec() };
    let id_column = reader.id_column().to_owned();
    let (mut good, mut kinds) = (0, Kinds::new());
    loop {
        match reader.note(&mut kinds) {
            Ok(None) => break,
            Ok(Some(_)) => good += 1,
            Err(fault) => bad.note(fault)?,
        }
        if (good + bad.count).is_multiple_of(PROGRESS_ROWS) {
            progress(good + bad.count, reader.bytes_read());
        }
    }
    if good + bad.count == 0 && input.layout.subject().is_none() {
        return Err(ImportError::file(&input.shown(), "holds no rows"));
    }
    let mut again = DescribedRows::open(input, rules, content)?;
    let mut first = Vec::new();
    while first.len() < SHOWN {
        match again.advance(&kinds) {
            Ok(Some(row)) => first.push(row),
            Ok(None) | Err(Fault::File(_)) => break,
            Err(Fault::Row(_)) => {}
        }
    }
    Ok((table, CheckedDescriptions { id_column, good, kinds, first }))
}
