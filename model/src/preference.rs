//! What implicit feedback says of a pair of a user and an item: the one definition that learner, trainers, explanations
//! and measures share.
//!
//! After Hu, Koren and Volinsky (2008), every pair has a preference, 1 where the user has taken the item and 0 elsewhere,
//! and a confidence in it, `c = 1 + sum e` over the observations of the pair, where the *excess* `e` of an observation is
//! `weight * label`. A pair costs `c (p - s)^2` for its score `s`. The zeros of all items are in the prior; what a taken
//! pair adds to its `s^2` is
//!
//! ```text
//! c (1 - s)^2 - s^2  =  E s^2 - 2 (E + 1) s + const,   with E = sum e:  weight E, target (E + 1) / E
//! ```
//!
//! However often a pair was observed, its preference counts once. Observation by observation, in sequence order, that is
//! the weight `e` with the target `(e + 1) / e` for the first that says so, and with the target 1 for every other one.
//!
//! Under a half-life both parts of what was added fade by age: each excess by that of its own observation, and the
//! preference by that of the *latest* observation of the pair. A pair that is taken again is preferred as if new; one that
//! is not fades back to the zero that it was, `E s^2 - 2 (E + P) s` with `E = sum rho e` and `P = max rho`, where `rho` is
//! the share that an observation has left. Observation by observation: one that comes at the time `t` brings the share of
//! the preference that the pair had lost since it was last taken, at `t'`: `P` grows by `1 - 2^(-(t - t') / half-life)`,
//! and by nothing where it is late, `t < t'`.

use std::collections::HashMap;
use std::hash::Hash;

use crate::learning::HalfLife;
use crate::observation::Timestamp;

/// Whether an observation of this label says that the user has taken the item.
#[must_use]
pub fn is_taken(label: f32) -> bool {
    label > 0.0
}

/// The preference that an observation of this label tells of: 1 or 0.
#[must_use]
pub fn preference(label: f32) -> f64 {
    f64::from(u8::from(is_taken(label)))
}

/// What an observation adds to the confidence of its pair: `weight * label`, at least 0. Exact, and above 0 for every
/// label above 0: the product of two `f32` fits an `f64`.
#[must_use]
pub fn excess(label: f32, weight: f32) -> f64 {
    if is_taken(label) { f64::from(weight) * f64::from(label) } else { 0.0 }
}

/// What the observations of one user-item pair add to the prior, or what one of them adds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// `E`, the confidence beyond the 1 of every pair; above 0.
    pub excess: f64,
    /// `P`, the share of a preference of 1, from 0 to 1.
    pub preference: f64,
}

impl Pair {
    /// What an observation adds to its pair, which was last taken at `taken_before`; `None` where it says nothing.
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

    /// A pair that was taken and of which nothing has faded.
    #[must_use]
    pub fn taken(excess: f64) -> Self {
        Self { excess, preference: 1.0 }
    }

    /// `(E + P) / E`: what the score should be, with the weight `E`, beside the zero of every pair.
    #[must_use]
    pub fn target(self) -> f64 {
        (self.excess + self.preference) / self.excess
    }

    /// `E + P`: how hard the pair pulls at the weights.
    #[must_use]
    pub fn pull(self) -> f64 {
        self.excess + self.preference
    }
}

/// When a user has last taken each item, as far as the history has been gone through.
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
    /// Takes in the next observation of the history, in sequence order, and answers when its item was taken before: what
    /// [`crate::Example::taken_before`] is. In O(1), amortised.
    pub fn next(&mut self, item: Item, label: f32, timestamp: Timestamp) -> Option<Timestamp> {
        let before = self.last(&item);
        if is_taken(label) {
            self.latest.insert(item, before.map_or(timestamp, |before| before.max(timestamp)));
        }
        before
    }

    /// When the item was last taken; `None` where it was not.
    #[must_use]
    pub fn last(&self, item: &Item) -> Option<Timestamp> {
        self.latest.get(item).copied()
    }

    /// How many items were taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.latest.len()
    }

    /// Whether nothing was taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.latest.is_empty()
    }

    /// Bytes of the table on the heap, without what its items hold there themselves.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // One byte of control for each place.
        self.latest.capacity() * (size_of::<(Item, Timestamp)>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_taken_once_and_remembers_its_latest_time() {
        let mut takings = Takings::default();
        assert_eq!(takings.next("a", 0.0, Timestamp(1)), None, "a label of 0 says nothing");
        assert_eq!(takings.next("a", 2.0, Timestamp(5)), None);
        assert_eq!(takings.next("b", 1.0, Timestamp(3)), None);
        assert_eq!(takings.next("a", -1.0, Timestamp(9)), Some(Timestamp(5)));
        assert_eq!(takings.next("a", 1.0, Timestamp(4)), Some(Timestamp(5)), "a late one");
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
