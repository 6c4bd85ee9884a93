//! Serving a part of the stream by one version: each row is predicted, then learnt.

use std::collections::HashMap;

use celeris_model::{Example, History, Learning, ModelError, Timestamp, UserModel};
use celeris_retrain::{Rating, Trained};

use crate::DEVIATIONS_95;
use crate::progress::Part;

/// All rows in the order of their time, with their times.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) ratings: &'a [Rating],
    pub(super) times: &'a [Timestamp],
}

/// Positions of the rows that a version serves; all rows before them are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// A prediction of a row before it was learnt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scored {
    pub(super) score: f32,
    /// Whether the label is inside its 95 % interval.
    pub(super) covered: bool,
}

/// A user's rows so far, as positions.
struct Known<'a> {
    version: &'a Trained,
    rows: Rows<'a>,
    positions: &'a [usize],
}

impl History for Known<'_> {
    fn example(&self, index: u64) -> Example<'_> {
        let position = self.positions[usize::try_from(index).expect("an index into memory")];
        Example { timestamp: self.rows.times[position], ..self.version.example(&self.rows.ratings[position]) }
    }
}

/// Predicts each row of the segment by its user's state after all earlier rows of the user, and has
/// the state learn it.
///
/// # Errors
/// If a row cannot be learnt.
pub(super) fn serve(
    version: &Trained,
    learning: &Learning,
    (rows, segment): (Rows, Segment),
    part: Part,
) -> Result<Vec<Scored>, ModelError> {
    let mut known: HashMap<u32, Vec<usize>> = HashMap::new();
    for (position, row) in rows.ratings[..segment.from].iter().enumerate() {
        known.entry(row.user).or_default().push(position);
    }
    let mut states: HashMap<u32, UserModel> = HashMap::new();
    let mut scored = Vec::with_capacity(segment.to - segment.from);
    for position in segment.from..segment.to {
        let row = &rows.ratings[position];
        let positions = known.entry(row.user).or_default();
        let mut state = match states.remove(&row.user) {
            Some(state) => state,
            None => UserModel::rebuild(learning, &Known { version, rows, positions }, positions.len() as u64)?,
        };
        let estimate = version.estimate(&state, learning, row);
        let covered = (row.label - estimate.score).abs() <= DEVIATIONS_95 * estimate.label_std;
        scored.push(Scored { score: estimate.score, covered });
        positions.push(position);
        state.absorb(learning, &Known { version, rows, positions })?;
        states.insert(row.user, state);
        part.at(scored.len() as f64 / (segment.to - segment.from) as f64);
    }
    Ok(scored)
}
