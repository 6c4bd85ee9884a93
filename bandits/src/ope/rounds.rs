//! Logged rounds with the probabilities under the logging and the target policy.

use crate::error::BanditError;

/// Tolerance for a probability above 1 due to rounding.
const ROUNDING: f64 = 1e-6;

/// One slot of a logged ranking under the logging and the target policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoggedSlot {
    /// The reward of the item shown in the slot.
    pub reward: f64,
    /// The probability with which the logging policy filled the slot, given the slots above; above
    /// 0.
    pub propensity: f64,
    /// The probability with which the target policy would have filled it in the same way, given the
    /// same slots above.
    pub target: f64,
    /// The reward model's prediction `q(x, a)` for the shown item.
    pub expected: f64,
    /// The mean of `q` over the target policy's choices for the slot, given the slots above.
    pub expected_target: f64,
    /// Derivative of the mean of `expected_target` over the log by this slot's reward, times the
    /// number of rounds: it carries the noise of the fitted model into the interval of
    /// [`super::Estimator::Dm`]. 0 for a model that was not fitted on this log.
    pub leverage: f64,
    /// The same for the part of [`super::Estimator::SwitchDr`] that the corrections leave to the
    /// model.
    pub leverage_switched: f64,
}

impl LoggedSlot {
    /// The importance ratio of this slot alone.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.target / self.propensity
    }

    fn check(&self) -> Result<(), BanditError> {
        let refuse = |parameter, range, value| Err(BanditError::OutOfRange { parameter, range, value });
        if !(self.propensity > 0.0 && self.propensity <= 1.0 + ROUNDING) {
            return refuse("the logged propensity", "above 0 and at most 1", self.propensity);
        }
        if !(0.0..=1.0 + ROUNDING).contains(&self.target) {
            return refuse("the target policy's probability", "from 0 to 1", self.target);
        }
        let others = [
            ("the reward", self.reward),
            ("the reward model's expectation", self.expected),
            ("the reward model's expectation of the target policy", self.expected_target),
            ("the reward model's leverage", self.leverage),
            ("the reward model's leverage", self.leverage_switched),
        ];
        match others.into_iter().find(|(_, value)| !value.is_finite()) {
            Some((parameter, value)) => refuse(parameter, "finite", value),
            None => Ok(()),
        }
    }
}

/// Logged rounds, each with one or more slots.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rounds {
    slots: Vec<LoggedSlot>,
    /// End of each round in `slots`.
    ends: Vec<usize>,
    /// How many rounds each of them stands for.
    weights: Vec<f64>,
    depth: usize,
}

impl Rounds {
    /// Adds a round, its slots from the top.
    ///
    /// # Errors
    /// [`BanditError::OutOfRange`] for an invalid probability, a number that is not finite, or a
    /// round without slots; nothing is added then.
    pub fn push(&mut self, slots: &[LoggedSlot]) -> Result<(), BanditError> {
        self.push_weighted(slots, 1.0)
    }

    /// Adds a round that stands for `weight` rounds, since a log keeps some of them only: the inverse of the probability
    /// with which it was kept.
    ///
    /// # Errors
    /// As [`Rounds::push`], also for a weight that is not above 0.
    pub fn push_weighted(&mut self, slots: &[LoggedSlot], weight: f64) -> Result<(), BanditError> {
        if !(weight > 0.0 && weight.is_finite()) {
            return Err(BanditError::OutOfRange { parameter: "a round's weight", range: "above 0", value: weight });
        }
        if slots.is_empty() {
            return Err(BanditError::OutOfRange { parameter: "a round's slots", range: "at least 1", value: 0.0 });
        }
        slots.iter().try_for_each(LoggedSlot::check)?;
        self.slots.extend_from_slice(slots);
        self.ends.push(self.slots.len());
        self.weights.push(weight);
        self.depth = self.depth.max(slots.len());
        Ok(())
    }

    /// Number of rounds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Number of slots of the longest ranking.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The rounds in the order they were added, with how many rounds each stands for.
    pub fn weighted(&self) -> impl Iterator<Item = (&[LoggedSlot], f64)> {
        self.iter().zip(self.weights.iter().copied())
    }

    /// The rounds in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = &[LoggedSlot]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.slots[start..*end])
    }
}
