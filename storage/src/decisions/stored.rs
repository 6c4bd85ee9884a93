//! How a decision is stored: postcard in a sealed value, in the second format. The first is read still.

use celeris_model::{
    Decision, DecisionId, ItemId, ModelName, RecordedCandidates, ShownSlot, Timestamp, UserEpoch, UserId, VersionId,
};
use serde::{Deserialize, Serialize};

use crate::database::Column;
use crate::envelope::{self, Format, corrupt};
use crate::error::StorageError;
use crate::keys;

/// What decisions are written in.
const SECOND: Format = Format(2);

/// A decision of the first format: of the candidates, their number alone.
#[derive(Serialize, Deserialize)]
struct FirstDecision {
    id: DecisionId,
    model: ModelName,
    version: VersionId,
    user: UserId,
    user_epoch: UserEpoch,
    timestamp: Timestamp,
    seed: u64,
    policy: String,
    pool_share: Option<f64>,
    pool: bool,
    shown: Vec<FirstSlot>,
    candidates: u32,
}

#[derive(Serialize, Deserialize)]
struct FirstSlot {
    item: ItemId,
    score: f32,
    std_error: f32,
    propensity: Option<f32>,
}

impl From<FirstDecision> for Decision {
    fn from(first: FirstDecision) -> Self {
        let slot = |FirstSlot { item, score, std_error, propensity }| ShownSlot {
            item,
            score,
            std_error,
            propensity,
            propensity_std_error: None,
            explored: false,
        };
        Self {
            id: first.id,
            model: first.model,
            version: first.version,
            user: first.user,
            user_epoch: first.user_epoch,
            timestamp: first.timestamp,
            seed: first.seed,
            policy: first.policy,
            pool_share: first.pool_share,
            pool: first.pool,
            shown: first.shown.into_iter().map(slot).collect(),
            candidates: RecordedCandidates::Count(first.candidates),
            selection: None,
        }
    }
}

/// Key and sealed value.
pub(super) fn encode(decision: &Decision) -> (Vec<u8>, Vec<u8>) {
    let key = keys::decision(&decision.model, &decision.id);
    let value = postcard::to_extend(decision, envelope::begin_in(SECOND));
    let mut value = value.expect("a vector takes any bytes, and every length is known");
    envelope::seal(&key, &mut value);
    (key, value)
}

/// The decision under a key.
///
/// # Errors
/// [`StorageError::Corrupt`].
pub(super) fn decode(key: &[u8], value: &[u8]) -> Result<Decision, StorageError> {
    let (format, body) = envelope::unseal_any(Column::Decisions, key, value)?;
    let decoded = match format {
        envelope::FORMAT => postcard::from_bytes::<FirstDecision>(body).map(Decision::from),
        SECOND => postcard::from_bytes(body),
        other => return Err(envelope::unknown_format(Column::Decisions, key, other)),
    };
    decoded.map_err(|error| corrupt(Column::Decisions, key, &error.to_string()))
}

/// At least the bytes that a decision costs with its keys, without encoding it.
pub(super) fn bytes_at_most(decision: &Decision) -> usize {
    /// Numbers, flags and seals at their longest, keys without their texts.
    const FIXED: usize = 128;
    /// The same of a slot.
    const SLOT: usize = 24;
    /// The length before a text.
    const PREFIX: usize = 2;
    let text = |text: &str| text.len() + PREFIX;
    // Model and id are in both keys and in the value, the user in one key and in the value.
    let names = 3 * (text(decision.model.as_str()) + text(decision.id.as_str())) + 2 * text(decision.user.as_str());
    let shown: usize = decision.shown.iter().map(|slot| SLOT + text(slot.item.as_str())).sum();
    let candidates: usize =
        decision.candidates.items().unwrap_or_default().iter().map(|item| text(item.as_str())).sum();
    let selection = decision.selection.as_ref();
    let selection = selection.map_or(0, |facts| {
        let names = facts.arm.iter().chain(&facts.context).map(|name| text(name.as_str()));
        text(facts.model.as_str()) + names.sum::<usize>()
    });
    FIXED + names + text(&decision.policy) + shown + candidates + selection
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::{CandidateDigest, SelectionFacts};

    use super::*;

    fn item(id: &str) -> ItemId {
        ItemId::new(id).unwrap()
    }

    fn decision(candidates: RecordedCandidates) -> Decision {
        Decision {
            id: DecisionId::new("d").unwrap(),
            model: ModelName::new("films").unwrap(),
            version: VersionId(2),
            user: UserId::new("alice").unwrap(),
            user_epoch: UserEpoch(300),
            timestamp: Timestamp(1_700_000_000_000),
            seed: 7,
            policy: "{}".to_owned(),
            pool_share: Some(0.5),
            pool: true,
            shown: vec![ShownSlot {
                item: item("m1"),
                score: 4.5,
                std_error: 0.5,
                propensity: Some(0.25),
                propensity_std_error: Some(0.125),
                explored: true,
            }],
            candidates,
            selection: None,
        }
    }

    #[test]
    fn decisions_are_what_existing_stores_hold() {
        // These bytes are on users' disks. A change needs a new format byte and a way to read the old one.
        let selection = SelectionFacts {
            model: ModelName::new("best").unwrap(),
            arm: Some(ModelName::new("films").unwrap()),
            propensity: 0.5,
            context: None,
        };
        let full =
            Decision { selection: Some(selection), ..decision(RecordedCandidates::Full(vec![item("m1"), item("m2")])) };
        let digest = decision(RecordedCandidates::Digest { count: 1000, digest: CandidateDigest(255) });
        for (decision, expected) in [(full, FULL), (digest, DIGEST)] {
            let (key, value) = encode(&decision);
            assert_eq!(keys::hex(&value), expected);
            assert_eq!(decode(&key, &value).unwrap(), decision);
            assert!(key.len() + value.len() <= bytes_at_most(&decision));
        }
    }

    #[test]
    fn decisions_of_the_first_format_are_read() {
        let first = FirstDecision {
            id: DecisionId::new("d").unwrap(),
            model: ModelName::new("films").unwrap(),
            version: VersionId(2),
            user: UserId::new("alice").unwrap(),
            user_epoch: UserEpoch(300),
            timestamp: Timestamp(1_700_000_000_000),
            seed: 7,
            policy: "{}".to_owned(),
            pool_share: Some(0.5),
            pool: true,
            shown: vec![FirstSlot { item: item("m1"), score: 4.5, std_error: 0.5, propensity: Some(0.25) }],
            candidates: 20,
        };
        let key = keys::decision(&first.model, &first.id);
        let body = postcard::to_extend(&first, Vec::new()).unwrap();
        let value = envelope::sealed(&key, &body);
        assert_eq!(keys::hex(&value), FIRST);
        let read = decode(&key, &value).unwrap();
        let slot = ShownSlot { propensity_std_error: None, explored: false, ..read.shown[0].clone() };
        assert_eq!(read, Decision { shown: vec![slot], ..decision(RecordedCandidates::Count(20)) });
        let mut later = envelope::begin_in(Format(3));
        envelope::seal(&key, &mut later);
        assert!(decode(&key, &later).is_err(), "what a later version wrote is refused");
    }

    const FULL: &str = "0201640566696c6d730205616c696365ac0280a0abfef96207027b7d01000000000000e03f0101026d31000090400000\
        003f010000803e010000003e010002026d31026d32010462657374010566696c6d730000003f000765c796";
    const DIGEST: &str = "0201640566696c6d730205616c696365ac0280a0abfef96207027b7d01000000000000e03f0101026d31000090400000\
        003f010000803e010000003e0101e807ff0100b010a8db";
    const FIRST: &str = "0101640566696c6d730205616c696365ac0280a0abfef96207027b7d01000000000000e03f0101026d31000090400000\
        003f010000803e1400cb5ff3";
}
