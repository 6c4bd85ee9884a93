//! The stored form of a decision: postcard in a sealed value.

use celeris_model::Decision;

use crate::database::Column;
use crate::error::StorageError;
use crate::layout::envelope::{self, corrupt};
use crate::layout::keys;

/// How postcard writes that there is no context.
const NO_CONTEXT: u8 = 0;

/// Key and sealed value.
pub(super) fn encode(decision: &Decision) -> (Vec<u8>, Vec<u8>) {
    let key = keys::decision(decision.model_id, &decision.id);
    let value = postcard::to_extend(decision, envelope::begin());
    let mut value = value.expect("a vector takes any bytes, and every length is known");
    envelope::seal(&key, &mut value);
    (key, value)
}

/// The decision under a key.
///
/// # Errors
/// [`StorageError::Corrupt`].
pub(super) fn decode(key: &[u8], value: &[u8]) -> Result<Decision, StorageError> {
    let body = envelope::unseal(Column::Decisions, key, value)?;
    // A decision without a context ends before it.
    let body = [body, &[NO_CONTEXT]].concat();
    postcard::from_bytes(&body).map_err(|error| corrupt(Column::Decisions, key, &error.to_string()))
}

/// An upper bound of the bytes that a decision takes with its keys, without encoding it.
pub(super) fn bytes_at_most(decision: &Decision) -> usize {
    /// Numbers, flags and seals at their longest, and keys without their texts.
    const FIXED: usize = 144;
    /// The same for a slot.
    const SLOT: usize = 24;
    /// The length prefix of a text.
    const PREFIX: usize = 2;
    let text = |text: &str| text.len() + PREFIX;
    // The id is in both keys and in the value, the user in one key and in the value, the model's
    // name in the value.
    let names = text(decision.model.as_str()) + 3 * text(decision.id.as_str()) + 2 * text(decision.user.as_str());
    let shown: usize = decision.shown.iter().map(|slot| SLOT + text(slot.item.as_str())).sum();
    let candidates: usize =
        decision.candidates.items().unwrap_or_default().iter().map(|item| text(item.as_str())).sum();
    let selection = decision.selection.as_ref();
    let selection = selection.map_or(0, |facts| {
        let names = facts.arm.iter().chain(&facts.segment).map(|name| text(name.as_str()));
        text(facts.model.as_str()) + names.sum::<usize>()
    });
    let context = decision.context.as_ref().map_or(0, |context| context.encoded_bytes_max());
    FIXED + names + text(&decision.policy) + shown + candidates + selection + context
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
pub(super) mod tests {
    use celeris_model::{
        CandidateDigest, Context, ContextValue, DecisionId, InputsDigest, ItemId, ModelId, ModelName,
        RecordedCandidates, SelectionFacts, ShownSlot, Timestamp, UserEpoch, UserId, VersionId,
    };

    use super::*;

    fn item(id: &str) -> ItemId {
        ItemId::new(id).unwrap()
    }

    /// A decision for this user, without candidates.
    pub(in super::super) fn decision_of(user: &str) -> Decision {
        Decision { user: UserId::new(user).unwrap(), ..decision(RecordedCandidates::Count(0)) }
    }

    fn decision(candidates: RecordedCandidates) -> Decision {
        Decision {
            id: DecisionId::new("d").unwrap(),
            model: ModelName::new("films").unwrap(),
            model_id: ModelId(7),
            version: VersionId(2),
            user: UserId::new("alice").unwrap(),
            user_epoch: UserEpoch(300),
            timestamp: Timestamp(1_700_000_000_000),
            seed: 7,
            seed_given: false,
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
            inputs: InputsDigest(300),
            selection: None,
            context: None,
        }
    }

    #[test]
    fn decisions_keep_their_stored_format() {
        // These bytes are on users' disks. A change needs a new format byte and a way to read the
        // old one.
        let selection = SelectionFacts {
            model: ModelName::new("best").unwrap(),
            model_id: ModelId(8),
            arm: Some(ModelName::new("films").unwrap()),
            propensity: 0.5,
            segment: None,
        };
        let full =
            Decision { selection: Some(selection), ..decision(RecordedCandidates::Full(vec![item("m1"), item("m2")])) };
        let digest = decision(RecordedCandidates::Digest { count: 1000, digest: CandidateDigest(255) });
        let context = Context::new([("device".to_owned(), ContextValue::Text("phone".to_owned()))]).unwrap();
        let with_context = Decision { context: Some(Box::new(context)), ..digest.clone() };
        for (decision, expected) in [(full, Some(FULL)), (digest, Some(DIGEST)), (with_context, None)] {
            let (key, value) = encode(&decision);
            assert!(expected.is_none_or(|expected| keys::hex(&value) == expected), "{}", keys::hex(&value));
            assert_eq!(decode(&key, &value).unwrap(), decision);
            assert!(key.len() + value.len() <= bytes_at_most(&decision));
        }
    }

    const FULL: &str = "0101640566696c6d73070205616c696365ac0280a0abfef9620700027b7d01000000000000e03f0101026d3100009040\
        0000003f010000803e010000003e010002026d31026d32ac0201046265737408010566696c6d730000003f0028ffdc26";
    const DIGEST: &str = "0101640566696c6d73070205616c696365ac0280a0abfef9620700027b7d01000000000000e03f0101026d3100\
        0090400000003f010000803e010000003e0101e807ff01ac0200f7d0a14a";
}
