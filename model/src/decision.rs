//! The decision record that every ranking leaves, so that it can be explained, replayed and learnt
//! from, and the facts that are copied into the observation attributed to it.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::context::Context;
use crate::ids::{DecisionId, ItemId, ModelId, ModelName, PARTITIONS, Partition, UserEpoch, UserId, VersionId};
use crate::time::Timestamp;

/// One shown slot of a ranking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownSlot {
    pub item: ItemId,
    /// The item's score at the time of the decision.
    pub score: f32,
    /// The standard error of the score.
    pub std_error: f32,
    /// The probability of this item in this slot, given the slots above it; `None` if not computed
    /// yet.
    pub propensity: Option<f32>,
    /// The standard error of the propensity if it is an estimate; `None` if it has a closed form or
    /// is not known.
    pub propensity_std_error: Option<f32>,
    /// Whether a greedy ranking would not contain the item: at least as many candidates as there
    /// are slots score higher.
    pub explored: bool,
}

/// `xxh3_128` over the `xxh3_64` of each candidate's id, little-endian, in the order in which the
/// policy received the candidates. Both with seed 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CandidateDigest(pub u128);

impl CandidateDigest {
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

/// The recorded form of a ranking's candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RecordedCandidates {
    /// All candidates, in the order in which the policy received them.
    Full(Vec<ItemId>),
    /// Count and digest, with which a list can be checked against the candidates.
    Digest {
        count: u32,
        /// Digest of all candidates.
        digest: CandidateDigest,
    },
    /// Only the number, until the rest has been computed.
    Count(u32),
}

impl RecordedCandidates {
    /// Number of candidates.
    #[must_use]
    pub fn count(&self) -> u32 {
        match self {
            Self::Full(items) => u32::try_from(items.len()).unwrap_or(u32::MAX),
            Self::Digest { count, .. } | Self::Count(count) => *count,
        }
    }

    /// All candidates, if they are recorded in full.
    #[must_use]
    pub fn items(&self) -> Option<&[ItemId]> {
        match self {
            Self::Full(items) => Some(items),
            Self::Digest { .. } | Self::Count(_) => None,
        }
    }
}

/// `xxh3_64` of the policy's inputs for all candidates: the scores, and the offset and features of
/// each item outside the version's table, since these may change. Equal digests mean equal inputs,
/// given the same user state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InputsDigest(pub u64);

impl InputsDigest {
    /// The digest of `scores` followed by the offsets and features of `changeable` items.
    #[must_use]
    pub fn of(scores: &[f32], changeable: impl IntoIterator<Item = f32>) -> Self {
        let numbers = scores.iter().copied().chain(changeable);
        let mut bytes = Vec::with_capacity(size_of_val(scores));
        numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        Self(xxh3_64(&bytes))
    }
}

/// Number of hexadecimal digits of a decision id that encode its time, before and after the first
/// dash.
const TIME_DIGITS: (usize, usize) = (8, 4);

/// Number of hexadecimal digits of a decision id after its last dash.
const NODE_DIGITS: usize = 12;

/// The bits of a decision id that hold the partition of its user.
const PARTITION_BITS: u128 = PARTITIONS as u128 - 1;

impl DecisionId {
    /// The time of the ranking: decision ids are UUIDs of version 7, which begin with the
    /// milliseconds since 1970. `None` if the text is not such a UUID.
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

    /// The id of a decision for a user of `partition`: a UUID of version 7 whose last six random bits
    /// are replaced by the number of the partition, so that the node that keeps the decision can be
    /// found by its id.
    #[must_use]
    pub fn in_partition(uuid: u128, partition: Partition) -> Self {
        let bits = (uuid & !PARTITION_BITS) | u128::from(partition.index());
        let group = |low: u32, digits: u32| (bits >> low) & ((1 << (4 * digits)) - 1);
        let (high, low, version) = (group(96, 8), group(80, 4), group(64, 4));
        let text = format!("{high:08x}-{low:04x}-{version:04x}-{:04x}-{:012x}", group(48, 4), group(0, 12));
        Self::new(text).expect("digits and dashes are a valid id")
    }

    /// The partition of the user that the ranking was for. `None` if the text is not the id of a
    /// decision.
    #[must_use]
    pub fn partition(&self) -> Option<Partition> {
        self.made_at()?;
        let (_, last) = self.as_str().rsplit_once('-')?;
        if last.len() != NODE_DIGITS {
            return None;
        }
        let bits = u128::from_str_radix(last, 16).ok()? & PARTITION_BITS;
        Partition::from_index(u8::try_from(bits).ok()?)
    }

    /// Sorts before the ids of all rankings made at `time` or later, and after those of all earlier
    /// ones.
    #[must_use]
    pub fn first_at(time: Timestamp) -> Self {
        let millis = u64::try_from(time.0).unwrap_or(0).min((1 << 48) - 1);
        let text = format!("{:08x}-{:04x}-7000-8000-000000000000", millis >> 16, millis & 0xffff);
        Self::new(text).expect("digits and dashes are a valid id")
    }
}

/// The arm that a selection served, and the probability of that choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelectionFacts {
    pub model: ModelName,
    pub model_id: ModelId,
    /// The model that served the request; `None` if all arms were combined.
    pub arm: Option<ModelName>,
    /// The probability with which the arm was chosen; 1 if all were combined.
    pub propensity: f32,
    /// The segment of the request, if the selection keeps a state for each segment.
    pub segment: Option<ModelName>,
}

/// One ranking decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    pub id: DecisionId,
    /// The requested model.
    pub model: ModelName,
    /// The identity of the requested model, part of the decision's key.
    pub model_id: ModelId,
    /// The version that scored the candidates: that of the arm if the model is a selection.
    pub version: VersionId,
    pub user: UserId,
    /// The user's epoch that the scores reflect.
    pub user_epoch: UserEpoch,
    pub timestamp: Timestamp,
    /// The seed of the policy's random generator.
    pub seed: u64,
    /// Whether the caller chose the seed. The propensities are then those of a draw that was not
    /// random: they are neither copied to [`DecisionFacts`] nor used in any estimate.
    pub seed_given: bool,
    /// The policy with its parameters, as JSON.
    pub policy: String,
    /// The share of such rankings that are drawn uniformly for the validation pool; `None` if the
    /// request named its policy, which was then always used. Together with the seed it reproduces
    /// the ranking.
    pub pool_share: Option<f64>,
    /// Whether this ranking was drawn for the pool.
    pub pool: bool,
    /// The slots in the order shown, best first.
    pub shown: Vec<ShownSlot>,
    /// The candidates that the policy chose from.
    pub candidates: RecordedCandidates,
    /// Digest of the policy's inputs.
    pub inputs: InputsDigest,
    /// For a selection model: the arm that it served.
    pub selection: Option<SelectionFacts>,
    /// The circumstances of the request, as its client has described them. The last field, so that without one the
    /// stored form has no byte of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Box<Context>>,
}

impl Decision {
    /// The model whose version scored the candidates; the selection itself if all its arms were
    /// combined.
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

/// The outcome of attributing an observation to a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Joined {
    /// The observation is the reward of the slot that shows its item.
    Slot,
    /// The slot has a reward already.
    Repeated,
    /// The decision does not show the item.
    NotShown,
    /// The decision was made for another user.
    OtherUser,
    /// The decision is older than the retention time of decisions.
    Expired,
    /// No such decision is stored.
    Unknown,
}

impl Joined {
    pub const ALL: [Self; 6] =
        [Self::Slot, Self::Repeated, Self::NotShown, Self::OtherUser, Self::Expired, Self::Unknown];

    /// The name in replies and metrics.
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

/// The facts of the decision to which an observation is attributed, copied into its record so that
/// learners need to read the log only.
///
/// Slot, propensity, pool and selection are those of the rewarded slot. They are empty if the
/// observation is not the reward of any slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionFacts {
    pub id: DecisionId,
    /// The outcome of the attribution.
    pub joined: Joined,
    /// The slot that showed the item, from 0.
    pub slot: Option<u32>,
    /// The probability of the item in its slot, given the slots above it; `None` also if not known.
    pub propensity: Option<f32>,
    /// Whether the ranking was drawn uniformly for the validation pool.
    pub pool: bool,
    /// For a decision of a selection model: the served arm and its probability.
    pub selection: Option<SelectionFacts>,
}

impl DecisionFacts {
    /// The facts of a reference that leads to no slot.
    #[must_use]
    pub fn without_slot(id: DecisionId, joined: Joined) -> Self {
        Self { id, joined, slot: None, propensity: None, pool: false, selection: None }
    }

    /// The facts for the reward of a slot. If the caller of the ranking chose its seed, nothing was
    /// drawn at random: propensity, pool and selection are then empty, so that no learner uses them
    /// as weights.
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
    fn ids_encode_their_time_and_sort_by_it() {
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
    fn ids_encode_the_partition_of_their_user() {
        let uuid = 0x0193_0b1c_6d4e_7c50_9d1a_0123_4567_89ff_u128;
        for partition in Partition::all() {
            let id = DecisionId::in_partition(uuid, partition);
            assert_eq!(id.partition(), Some(partition));
            assert_eq!(id.made_at(), Some(Timestamp(0x0193_0b1c_6d4e)));
        }
        let last = Partition::from_index(37).expect("in range");
        assert_eq!(DecisionId::in_partition(uuid, last).as_str(), "01930b1c-6d4e-7c50-9d1a-0123456789e5");
        for other in ["d", "01930b1c-6d4e-4c50-9d1a-0123456789ab", "01930b1c-6d4e-7c50-9d1a-01", "01930b1c-6d4e-7"] {
            assert_eq!(DecisionId::new(other).expect("valid").partition(), None, "{other}");
        }
    }

    #[test]
    fn the_digest_differs_with_any_candidate() {
        let inputs = InputsDigest::of(&[1.0, 2.0, 3.0], [0.5, 0.25]);
        assert_eq!(inputs, InputsDigest::of(&[1.0, 2.0, 3.0], [0.5, 0.25]));
        let other_scores = [[1.0, 2.0, 3.5], [2.0, 1.0, 3.0]].map(|scores| InputsDigest::of(&scores, [0.5, 0.25]));
        let other_features = InputsDigest::of(&[1.0, 2.0, 3.0], [0.5, 0.5]);
        assert!(other_scores.into_iter().chain([other_features]).all(|other| other != inputs));
    }

    #[test]
    fn a_decision_with_a_given_seed_has_no_propensity() {
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
            inputs: InputsDigest::default(),
            selection: Some(SelectionFacts {
                model: model.clone(),
                model_id: ModelId(2),
                arm: Some(model),
                propensity: 0.5,
                segment: None,
            }),
            context: None,
        };
        let facts = DecisionFacts::of_slot(&drawn, 0);
        assert_eq!((facts.propensity, facts.pool, facts.selection.is_some()), (Some(0.25), true, true));
        let facts = DecisionFacts::of_slot(&Decision { seed_given: true, ..drawn }, 0);
        assert_eq!((facts.slot, facts.joined), (Some(0), Joined::Slot), "it is still a reward of its slot");
        assert_eq!((facts.propensity, facts.pool, facts.selection), (None, false, None));
    }

    #[test]
    fn digests_equal_those_of_other_implementations() {
        let items = ["m1", "a-longer-id", "7"].map(|id| ItemId::new(id).expect("valid"));
        // Computed with Python's `xxhash` as described in `docs/guides/decisions.md`.
        assert_eq!(CandidateDigest::of(&items).to_string(), "e6c282ea53b8963e783cfcafba103944");
        let swapped = [items[1].clone(), items[0].clone(), items[2].clone()];
        assert_ne!(CandidateDigest::of(&items), CandidateDigest::of(&swapped), "order counts");
    }
}
