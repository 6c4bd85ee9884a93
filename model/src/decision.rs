//! The record that every ranking leaves, so that it can be explained, replayed and learnt from, and what of it joins an
//! observation.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::ids::{DecisionId, ItemId, ModelId, ModelName, UserEpoch, UserId, VersionId};
use crate::observation::Timestamp;

/// One shown slot of a ranking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownSlot {
    /// What was shown there.
    pub item: ItemId,
    /// Its score at that moment.
    pub score: f32,
    /// The uncertainty of that score.
    pub std_error: f32,
    /// The probability of this item in this slot, given the slots above it; `None` where not yet computed.
    pub propensity: Option<f32>,
    /// The standard error of the propensity, where it is an estimate; `None` where it has a closed form or is not there.
    pub propensity_std_error: Option<f32>,
    /// Whether greedy would have shown it nowhere: at least as many candidates as there are slots score higher.
    pub explored: bool,
}

/// `xxh3_128` of the candidates in the order in which the policy saw them: of each, the `xxh3_64` of its id, little-endian.
/// Both with seed 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CandidateDigest(pub u128);

impl CandidateDigest {
    /// The digest of these items.
    #[must_use]
    pub fn of<'a>(items: impl IntoIterator<Item = &'a ItemId>) -> Self {
        let items = items.into_iter();
        let mut hashes = Vec::with_capacity(items.size_hint().0 * size_of::<u64>());
        for item in items {
            hashes.extend_from_slice(&xxh3_64(item.as_str().as_bytes()).to_le_bytes());
        }
        Self(xxh3_128(&hashes))
    }
}

impl fmt::Display for CandidateDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Debug for CandidateDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// What is kept of the candidates of a ranking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RecordedCandidates {
    /// All of them, in the order in which the policy saw them.
    Full(Vec<ItemId>),
    /// What tells whether a list is theirs.
    Digest {
        /// How many there were.
        count: u32,
        /// Of all of them.
        digest: CandidateDigest,
    },
    /// Their number alone, while the rest is still being worked out.
    Count(u32),
}

impl RecordedCandidates {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u32 {
        match self {
            Self::Full(items) => u32::try_from(items.len()).unwrap_or(u32::MAX),
            Self::Digest { count, .. } | Self::Count(count) => *count,
        }
    }

    /// All of them, where they are there.
    #[must_use]
    pub fn items(&self) -> Option<&[ItemId]> {
        match self {
            Self::Full(items) => Some(items),
            Self::Digest { .. } | Self::Count(_) => None,
        }
    }
}

/// `xxh3_64` of what a policy saw of all candidates: the scores, and of items outside of the version's table, which may
/// change under it, whatever they are scored by. Equal digests are equal scenes, as far as the same state scored them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SceneDigest(pub u64);

impl SceneDigest {
    /// The digest of `scores`, and of the offsets and features of `changeable` items as one list of numbers after the
    /// other.
    #[must_use]
    pub fn of(scores: &[f32], changeable: impl IntoIterator<Item = f32>) -> Self {
        let numbers = scores.iter().copied().chain(changeable);
        let mut bytes = Vec::with_capacity(size_of_val(scores));
        numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        Self(xxh3_64(&bytes))
    }
}

/// Hexadecimal digits of a decision id that are its time, before and behind the first dash.
const TIME_DIGITS: (usize, usize) = (8, 4);

impl DecisionId {
    /// When the ranking was made: decision ids are UUIDs of version 7, which begin with the milliseconds since 1970.
    /// `None` of a text that is none.
    #[must_use]
    pub fn made_at(&self) -> Option<Timestamp> {
        let (high, rest) = self.as_str().split_once('-')?;
        let (low, rest) = rest.split_once('-')?;
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if (high.len(), low.len()) != TIME_DIGITS || !is_hex(high) || !is_hex(low) || !rest.starts_with('7') {
            return None;
        }
        let millis = u64::from_str_radix(&format!("{high}{low}"), 16).ok()?;
        Some(Timestamp(i64::try_from(millis).ok()?))
    }

    /// Sorts before the id of every ranking made at `time` or later, and behind those of all earlier ones.
    #[must_use]
    pub fn first_at(time: Timestamp) -> Self {
        let millis = u64::try_from(time.0).unwrap_or(0).min((1 << 48) - 1);
        let text = format!("{:08x}-{:04x}-7000-8000-000000000000", millis >> 16, millis & 0xffff);
        Self::new(text).expect("digits and dashes are a valid id")
    }
}

/// Which arm a selection served, and how probable that was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelectionFacts {
    /// The selection.
    pub model: ModelName,
    /// Its identity.
    pub model_id: ModelId,
    /// The model that answered; `None` where all arms answered together.
    pub arm: Option<ModelName>,
    /// The probability with which it was served; 1 where all answered.
    pub propensity: f32,
    /// The segment in which it was selected, where the selection has a state for each.
    pub segment: Option<ModelName>,
}

/// A ranking as it was drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Its id.
    pub id: DecisionId,
    /// The model that was asked.
    pub model: ModelName,
    /// Its identity, by which the decision is found.
    pub model_id: ModelId,
    /// The version that scored: of the arm, where the model is a selection.
    pub version: VersionId,
    /// For whom.
    pub user: UserId,
    /// How many of the user's events the scores reflect.
    pub user_epoch: UserEpoch,
    /// When.
    pub timestamp: Timestamp,
    /// The seed of the policy's random generator.
    pub seed: u64,
    /// Whether the caller chose the seed. Its propensities are then those of a draw that was not random: they are no part
    /// of [`DecisionFacts`], nor is the decision of any estimate.
    pub seed_given: bool,
    /// The policy with its parameters, as JSON.
    pub policy: String,
    /// The share of such rankings that are drawn uniformly for the validation pool; `None` where the request named its
    /// policy, which then drew alone. With the seed, this draws the ranking again.
    pub pool_share: Option<f64>,
    /// Whether this one was drawn for the pool.
    pub pool: bool,
    /// The slots in the order shown, best first.
    pub shown: Vec<ShownSlot>,
    /// What the policy chose from.
    pub candidates: RecordedCandidates,
    /// What it saw of these.
    pub scene: SceneDigest,
    /// Of a selection model: which arm it served.
    pub selection: Option<SelectionFacts>,
}

impl Decision {
    /// The model whose version scored; the selection itself where all its arms did together.
    #[must_use]
    pub fn scored_by(&self) -> &ModelName {
        self.selection.as_ref().and_then(|selection| selection.arm.as_ref()).unwrap_or(&self.model)
    }

    /// The slot that shows `item`, from 0.
    #[must_use]
    pub fn slot_of(&self, item: &ItemId) -> Option<u32> {
        let slot = self.shown.iter().position(|slot| slot.item == *item)?;
        u32::try_from(slot).ok()
    }
}

/// What became of an observation's reference to a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Joined {
    /// It is the reward of the slot that shows its item.
    Slot,
    /// That slot has a reward already.
    Repeated,
    /// The decision shows no such item.
    NotShown,
    /// The decision was made for another user.
    OtherUser,
    /// The decision is older than decisions are kept.
    Expired,
    /// No such decision is on record.
    Unknown,
}

impl Joined {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Slot, Self::Repeated, Self::NotShown, Self::OtherUser, Self::Expired, Self::Unknown];

    /// Its name in replies and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::Repeated => "repeated",
            Self::NotShown => "not_shown",
            Self::OtherUser => "other_user",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
        }
    }
}

/// The facts of the decision that an observation is the outcome of, copied when the two join, so that learners need
/// the log only.
///
/// Slot, propensity, pool and selection are those of the slot that the observation is the reward of. Where it is the
/// reward of none, whatever the reason, they are empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionFacts {
    /// The decision.
    pub id: DecisionId,
    /// What became of the reference to it.
    pub joined: Joined,
    /// The slot at which the item was shown, from 0.
    pub slot: Option<u32>,
    /// The probability with which that slot got that item, given the slots above it; `None` also where not known.
    pub propensity: Option<f32>,
    /// Whether the ranking was drawn uniformly for the validation pool.
    pub pool: bool,
    /// Of a decision of a selection model: which arm it served, and how likely that was.
    pub selection: Option<SelectionFacts>,
}

impl DecisionFacts {
    /// Of a reference that leads to no slot.
    #[must_use]
    pub fn without_slot(id: DecisionId, joined: Joined) -> Self {
        Self { id, joined, slot: None, propensity: None, pool: false, selection: None }
    }

    /// Of the reward of this slot of a decision. Where the caller of the ranking chose its seed, nothing was drawn at random:
    /// propensity, pool and selection are empty then, so that no learner weighs by them.
    ///
    /// The caller guarantees that the decision has the slot.
    #[must_use]
    pub fn of_slot(decision: &Decision, slot: u32) -> Self {
        let is_drawn = !decision.seed_given;
        Self {
            id: decision.id.clone(),
            joined: Joined::Slot,
            slot: Some(slot),
            propensity: decision.shown.get(slot as usize).and_then(|shown| shown.propensity).filter(|_| is_drawn),
            pool: decision.pool && is_drawn,
            selection: decision.selection.clone().filter(|_| is_drawn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_their_time_and_sort_by_it() {
        let id = DecisionId::new("01930b1c-6d4e-7c50-9d1a-0123456789ab").expect("valid");
        let time = id.made_at().expect("a UUID of version 7");
        assert_eq!(time, Timestamp(0x0193_0b1c_6d4e));
        assert!(DecisionId::first_at(time) < id);
        assert!(DecisionId::first_at(Timestamp(time.0 + 1)) > id);
        for other in ["d", "01930b1c-6d4e-4c50-9d1a-0123456789ab", "01930b1c6d4e7c50", "0193zb1c-6d4e-7c50-9d1a-0"] {
            assert_eq!(DecisionId::new(other).expect("valid").made_at(), None, "{other}");
        }
    }

    #[test]
    fn a_scene_differs_by_any_candidate() {
        let scene = SceneDigest::of(&[1.0, 2.0, 3.0], [0.5, 0.25]);
        assert_eq!(scene, SceneDigest::of(&[1.0, 2.0, 3.0], [0.5, 0.25]));
        let other_scores = [[1.0, 2.0, 3.5], [2.0, 1.0, 3.0]].map(|scores| SceneDigest::of(&scores, [0.5, 0.25]));
        let other_features = SceneDigest::of(&[1.0, 2.0, 3.0], [0.5, 0.5]);
        assert!(other_scores.into_iter().chain([other_features]).all(|other| other != scene));
    }

    #[test]
    fn a_decision_whose_seed_was_given_gives_learners_nothing_to_weigh_by() {
        let shown = ShownSlot {
            item: ItemId::new("m1").expect("valid"),
            score: 1.0,
            std_error: 0.5,
            propensity: Some(0.25),
            propensity_std_error: None,
            explored: false,
        };
        let model = ModelName::new("films").expect("valid");
        let drawn = Decision {
            id: DecisionId::new("d").expect("valid"),
            model: model.clone(),
            model_id: ModelId(1),
            version: VersionId(1),
            user: UserId::new("u").expect("valid"),
            user_epoch: UserEpoch(0),
            timestamp: Timestamp(0),
            seed: 7,
            seed_given: false,
            policy: "{}".to_owned(),
            pool_share: Some(0.5),
            pool: true,
            shown: vec![shown],
            candidates: RecordedCandidates::Count(1),
            scene: SceneDigest::default(),
            selection: Some(SelectionFacts {
                model: model.clone(),
                model_id: ModelId(2),
                arm: Some(model),
                propensity: 0.5,
                segment: None,
            }),
        };
        let facts = DecisionFacts::of_slot(&drawn, 0);
        assert_eq!((facts.propensity, facts.pool, facts.selection.is_some()), (Some(0.25), true, true));
        let facts = DecisionFacts::of_slot(&Decision { seed_given: true, ..drawn }, 0);
        assert_eq!((facts.slot, facts.joined), (Some(0), Joined::Slot), "it is a reward of its slot all the same");
        assert_eq!((facts.propensity, facts.pool, facts.selection), (None, false, None));
    }

    #[test]
    fn digests_are_what_other_programs_compute() {
        let items = ["m1", "a-longer-id", "7"].map(|id| ItemId::new(id).expect("valid"));
        // By Python's `xxhash`, as `docs/decisions.md` has it.
        assert_eq!(CandidateDigest::of(&items).to_string(), "e6c282ea53b8963e783cfcafba103944");
        let swapped = [items[1].clone(), items[0].clone(), items[2].clone()];
        assert_ne!(CandidateDigest::of(&items), CandidateDigest::of(&swapped), "order counts");
    }
}
