//! Which rows are predicted.

use anyhow::ensure;
use celeris_datasets::Rating as NamedRating;
use celeris_model::Timestamp;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::Parts;
use crate::{Numbered, ensure_times};

/// One row in this many is held out if no test file is given.
const HELD_OUT_ONE_IN: usize = 10;

/// The choice of the predicted rows.
#[derive(Debug, Clone, Copy)]
pub enum Holdout<'a> {
    /// A seeded random tenth.
    Random,
    /// The latest tenth, and all rows of the time at which it begins: what is known before a moment
    /// predicts what happens from then on.
    Latest,
    /// These rows; all others are for training.
    File(&'a [NamedRating]),
}

impl Holdout<'_> {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Latest => "time",
            Self::File(_) => "file",
        }
    }

    /// Splits the rows.
    ///
    /// # Errors
    /// If one part would be empty, or a split by time has rows without a time.
    pub(super) fn parts(self, rows: &[NamedRating], seed: u64) -> anyhow::Result<Parts> {
        let mut numbered = Numbered::default();
        let mut known = numbered.number(rows);
        let mut test_from = None;
        let tested = match self {
            Self::File(test) => numbered.number(test),
            Self::Random => {
                known.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
                known.split_off(known.len() - known.len() / HELD_OUT_ONE_IN)
            }
            Self::Latest => {
                let from = latest_tenth(rows)?;
                test_from = Some(from);
                let mut is_tested = rows.iter().map(|row| row.timestamp >= from);
                let (tested, earlier) = known.into_iter().partition(|_| is_tested.next().unwrap_or_default());
                known = earlier;
                tested
            }
        };
        ensure!(!tested.is_empty(), "no rows to test on; give at least {HELD_OUT_ONE_IN} rows or a test file");
        Ok(Parts { numbered, known, tested, test_from })
    }
}

/// The time at which the latest tenth begins.
fn latest_tenth(rows: &[NamedRating]) -> anyhow::Result<Timestamp> {
    ensure_times(rows, "a split by time")?;
    ensure!(rows.len() >= HELD_OUT_ONE_IN, "no rows to test on; a split by time needs {HELD_OUT_ONE_IN} rows");
    let mut times: Vec<Timestamp> = rows.iter().map(|row| row.timestamp).collect();
    let first_tested = times.len() - times.len() / HELD_OUT_ONE_IN;
    let (earlier, from, _) = times.select_nth_unstable(first_tested);
    let from = *from;
    ensure!(
        earlier.iter().any(|time| *time < from),
        "the times of nearly all rows are equal, so that none are earlier than the latest tenth; split at random"
    );
    Ok(from)
}
