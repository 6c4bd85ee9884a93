//! Implicit feedback of a user-item pair: the definition shared by the learner, trainers,
//! explanations and metrics.
//!
//! After Hu, Koren and Volinsky (2008), every pair has a preference, 1 if the user has taken the
//! item and otherwise 0, and a confidence in it, `c = 1 + sum e` over the observations of the pair,
//! where the *excess* `e` of an observation is `weight * label`. A pair costs `c (p - s)^2` for its
//! score `s`. The zeros of all items are in the prior; a taken pair adds to its `s^2`
//!
//! ```text
//! c (1 - s)^2 - s^2  =  E s^2 - 2 (E + 1) s + const,   with E = sum e:  weight E, target (E + 1) / E
//! ```
//!
//! However often a pair was observed, its preference counts once. As a sequence of observations,
//! that is the weight `e` with the target `(e + 1) / e` for the first one with a label above 0, and
//! with the target 1 for every other one.
//!
//! With a half-life both parts decay with age: each excess with that of its own observation, and
//! the preference with that of the *latest* observation of the pair. Taking a pair again restores
//! its preference; otherwise it decays back to the zero of the prior, `E s^2 - 2 (E + P) s` with `E
//! = sum rho e` and `P = max rho`, where `rho` is the remaining share of an observation. As a
//! sequence of observations: one at time `t` restores the share of the preference that the pair has
//! lost since it was last taken, at `t'`: `P` grows by `1 - 2^(-(t - t') / half-life)`, and by
//! nothing if the observation is late, `t < t'`.

use std::collections::HashMap;
use std::hash::Hash;

use super::learning::HalfLife;
use crate::time::Timestamp;

/// Whether an observation with this label means that the user has taken the item.
#[must_use]
pub fn is_taken(label: f32) -> bool {
    label > 0.0
}

/// The preference of an observation with this label: 1 or 0.
#[must_use]
pub fn preference(label: f32) -> f64 {
    f64::from(u8::from(is_taken(label)))
}

/// An observation's addition to the confidence of its pair: `weight * label`, at least 0. Exact,
/// and above 0 for every label above 0: the product of two `f32` fits an `f64`.
#[must_use]
pub fn excess(label: f32, weight: f32) -> f64 {
    if is_taken(label) { f64::from(weight) * f64::from(label) } else { 0.0 }
}

/// The addition of a user-item pair's observations, or of one of them, to the prior.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// `E`, the confidence beyond the 1 of every pair; above 0.
    pub excess: f64,
    /// `P`, the share of a preference of 1, from 0 to 1.
    pub preference: f64,
}

impl Pair {
    /// The addition of an observation to its pair, which was last taken at `taken_before`; `None`
    /// if the excess is 0.
    #[must_use]
    pub fn gained(
        excess: f64,
        taken_before: Option<Timestamp>,
        timestamp: Timestamp,
        half_life: Option<HalfLife>,
    ) -> Option<Self> {
        let left = taken_before.map_or(0.0, |before| half_life.map_or(1.0, |life| life.retained(before, timestamp)));
        (excess > 0.0).then_some(Self { excess, preference: 1.0 - left })
    }

    /// A taken pair without decay.
    #[must_use]
    pub fn taken(excess: f64) -> Self {
        Self { excess, preference: 1.0 }
    }

    /// `(E + P) / E`: the target of the score, with the weight `E`, in addition to the zero of
    /// every pair.
    #[must_use]
    pub fn target(self) -> f64 {
        (self.excess + self.preference) / self.excess
    }

    /// `E + P`: the weighted target of the pair.
    #[must_use]
    pub fn pull(self) -> f64 {
        self.excess + self.preference
    }
}

/// The latest time at which a user has taken each item, over the part of the history processed so
/// far.
#[derive(Debug, Clone)]
pub struct Takings<Item> {
    latest: HashMap<Item, Timestamp>,
}

impl<Item> Default for Takings<Item> {
    fn default() -> Self {
        Self { latest: HashMap::new() }
    }
}

impl<Item: Eq + Hash> Takings<Item> {
    /// Processes the next observation of the history, in sequence order, and returns when its item
    /// was taken before: [`crate::Example::taken_before`]. In amortised O(1).
    pub fn next(&mut self, item: Item, label: f32, timestamp: Timestamp) -> Option<Timestamp> {
        let before = self.last(&item);
        if is_taken(label) {
            self.latest.insert(item, before.map_or(timestamp, |before| before.max(timestamp)));
        }
        before
    }

    /// When the item was last taken; `None` if never.
    #[must_use]
    pub fn last(&self, item: &Item) -> Option<Timestamp> {
        self.latest.get(item).copied()
    }

    /// Number of items taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.latest.len()
    }

    /// Whether no item was taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.latest.is_empty()
    }

    /// Bytes of the table on the heap, without heap memory of the items themselves.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // One control byte per slot.
        self.latest.capacity() * (size_of::<(Item, Timestamp)>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takings_keep_the_latest_time_of_each_item() {
        let mut takings = Takings::default();
        assert_eq!(takings.next("a", 0.0, Timestamp(1)), None, "a label of 0 is not a taking");
        assert_eq!(takings.next("a", 2.0, Timestamp(5)), None);
        assert_eq!(takings.next("b", 1.0, Timestamp(3)), None);
        assert_eq!(takings.next("a", -1.0, Timestamp(9)), Some(Timestamp(5)));
        assert_eq!(takings.next("a", 1.0, Timestamp(4)), Some(Timestamp(5)), "a late observation");
        assert_eq!(takings.next("a", 1.0, Timestamp(7)), Some(Timestamp(5)));
        assert_eq!((takings.last(&"a"), takings.len()), (Some(Timestamp(7)), 2));
    }

    #[test]
    fn the_smallest_excess_is_above_zero_and_its_target_finite() {
        let least = f32::from_bits(1);
        let pair = Pair::taken(excess(least, least));
        assert!(pair.excess > 0.0 && pair.target().is_finite());
        assert!((pair.excess * pair.target() - 1.0).abs() < 1e-12);
    }
}
