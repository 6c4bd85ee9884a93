//! Collaborative studies: trials continue from what an earlier one has learnt (Rafiki, algorithm 2).

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::error::StudyError;
use crate::space::Params;

/// Settings of a collaborative study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Collaborative {
    /// Probability that the first trial which could continue from another starts from nothing. A
    /// bad start would otherwise be inherited by all.
    pub alpha: f64,
    /// Factor by which that probability shrinks with each trial.
    pub decay: f64,
    /// A result is kept as a start for others if its loss is lower by more than this than that of
    /// the result which is kept so far.
    pub delta: f64,
    /// Settings that must be equal for a trial to continue from another, such as its dimension.
    pub same: Vec<String>,
}

impl Default for Collaborative {
    fn default() -> Self {
        Self { alpha: 0.5, decay: 0.9, delta: 0.0, same: Vec::new() }
    }
}

/// What a trial starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    #[default]
    Nothing,
    /// The result of the trial of this number.
    Trial(u32),
}

impl Collaborative {
    pub(crate) fn check(&self) -> Result<(), StudyError> {
        for (field, value) in [("collaborative.alpha", self.alpha), ("collaborative.decay", self.decay)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(StudyError::field(field, format!("must be from 0 to 1, got {value}")));
            }
        }
        if !(self.delta.is_finite() && self.delta >= 0.0) {
            return Err(StudyError::field("collaborative.delta", format!("must be 0 or above, got {}", self.delta)));
        }
        Ok(())
    }

    /// The start of a trial with `params`, when `kept` is the trial whose result is kept, and
    /// `decided` trials have had the choice before.
    pub(crate) fn start(&self, params: &Params, kept: (u32, &Params), decided: u32, rng: &mut impl Rng) -> Start {
        let (number, of_kept) = kept;
        if self.same.iter().any(|name| params.get(name) != of_kept.get(name)) {
            return Start::Nothing;
        }
        let alpha = self.alpha * self.decay.powf(f64::from(decided));
        if rng.random::<f64>() < alpha { Start::Nothing } else { Start::Trial(number) }
    }
}
