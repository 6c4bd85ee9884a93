//! The stored form of a log record.
//!
//! Parts of the key (stream, partition, sequence) are not repeated, and usual values take no bytes:
//! two bytes of flags (one, if only bits of the first are set) state which of the rare parts are
//! present. In this order:
//!
//! | part           | present                                     | form                                            |
//! |----------------|---------------------------------------------|-------------------------------------------------|
//! | flags          | always                                      | varint: the kind in three bits, then [`Flags`]  |
//! | user, epoch    | always                                      | text, varint                                    |
//! | item           | unless `NO_ITEM`                            | text                                            |
//! | label          | always                                      | float                                           |
//! | weight         | `WEIGHT`: it is not 1                       | float                                           |
//! | feedback       | `FEEDBACK`                                  | text                                            |
//! | timestamp      | always                                      | signed milliseconds                             |
//! | observation id | `OBSERVATION_ID`: the client gave one       | text                                            |
//! | decision       | `DECISION`                                  | text, flags, then slot, propensity, selection   |
//! | context        | `CONTEXT`                                   | length, [`RecordedContext::encode`]             |
//! | predictions    | always one, …                               | model id, version, float                        |
//! |                | … unless `PREDICTIONS`                      | count, then the same for each                   |
//! | first label    | `FIRST_LABEL`                               | float                                           |
//! | targets        | `TARGETS`                                   | count, differences                              |
//!
//! The flags of a decision hold the outcome of the attribution in three bits, and which of its
//! parts are present; a selection is its name, its id, flags, the arm and the segment if present,
//! and a float. [`celeris_model::wire`] has the encodings. A *blank*, which replaces a removed record,
//! consists of its flags alone.

use celeris_model::{
    DecisionFacts, DecisionId, ItemId, Joined, ModelId, ModelName, ObservationId, Prediction, Record, RecordKind,
    RecordedContext, SelectionFacts, Sequence, Timestamp, UserEpoch, UserId, VersionId,
};

use super::envelope::{self, corrupt, unseal};
use crate::database::Column;
use crate::error::StorageError;
use celeris_model::wire::{Reader, Writer};

/// Bits for the parts that are present.
struct Flags;

impl Flags {
    const KIND: u64 = 0b111;
    const OBSERVATION_ID: u64 = 1 << 3;
    const PREDICTIONS: u64 = 1 << 4;
    const WEIGHT: u64 = 1 << 5;
    const FEEDBACK: u64 = 1 << 6;
    const DECISION: u64 = 1 << 7;
    const FIRST_LABEL: u64 = 1 << 8;
    const TARGETS: u64 = 1 << 9;
    const NO_ITEM: u64 = 1 << 10;
    const CONTEXT: u64 = 1 << 11;
    const ALL: u64 = (1 << 12) - 1;

    const SLOT: u64 = 1;
    const PROPENSITY: u64 = 1 << 1;
    const POOL: u64 = 1 << 2;
    const SELECTION: u64 = 1 << 3;
    /// The outcome of the attribution is stored from this bit on.
    const JOINED_SHIFT: u32 = 4;

    const ARM: u64 = 1;
    const SEGMENT: u64 = 1 << 1;
}

/// Stored in the bits of the kind.
const BLANK: u64 = 4;

fn kind_number(kind: RecordKind) -> u64 {
    match kind {
        RecordKind::Observe => 0,
        RecordKind::Correct => 1,
        RecordKind::Retract => 2,
        RecordKind::Erase => 3,
    }
}

fn kind_of(number: u64) -> Option<RecordKind> {
    let kinds = [RecordKind::Observe, RecordKind::Correct, RecordKind::Retract, RecordKind::Erase];
    kinds.get(usize::try_from(number).ok()?).copied()
}

/// With a slot, 0 means `Slot`; without one, 0 means `Unknown`, which used to be the only other
/// outcome.
fn joined_number(joined: Joined) -> u64 {
    match joined {
        Joined::Slot | Joined::Unknown => 0,
        Joined::Repeated => 1,
        Joined::NotShown => 2,
        Joined::OtherUser => 3,
        Joined::Expired => 4,
    }
}

fn joined_of(number: u64, has_slot: bool) -> Option<Joined> {
    match number {
        0 if has_slot => Some(Joined::Slot),
        0 => Some(Joined::Unknown),
        1 => Some(Joined::Repeated),
        2 => Some(Joined::NotShown),
        3 => Some(Joined::OtherUser),
        4 => Some(Joined::Expired),
        _ => None,
    }
}

fn flag(is_set: bool, flag: u64) -> u64 {
    if is_set { flag } else { 0 }
}

/// Encodes the record without its seal, which needs the key and so the sequence.
pub(crate) fn encode(record: &Record) -> Vec<u8> {
    let one = record.predictions.len() == 1;
    let flags = kind_number(record.kind)
        | flag(record.observation_id.is_some(), Flags::OBSERVATION_ID)
        | flag(!one, Flags::PREDICTIONS)
        | flag(record.weight != 1.0, Flags::WEIGHT)
        | flag(record.feedback.is_some(), Flags::FEEDBACK)
        | flag(record.decision.is_some(), Flags::DECISION)
        | flag(record.first_label.is_some(), Flags::FIRST_LABEL)
        | flag(!record.targets.is_empty(), Flags::TARGETS)
        | flag(record.item.is_none(), Flags::NO_ITEM)
        | flag(record.context.is_some(), Flags::CONTEXT);
    let mut value = Writer(envelope::begin());
    value.varint(flags);
    value.text(record.user.as_str());
    value.varint(record.user_epoch.0);
    if let Some(item) = &record.item {
        value.text(item.as_str());
    }
    value.float(record.label);
    if record.weight != 1.0 {
        value.float(record.weight);
    }
    if let Some(feedback) = &record.feedback {
        value.text(feedback);
    }
    value.signed(record.timestamp.0);
    if let Some(id) = &record.observation_id {
        value.text(id.as_str());
    }
    if let Some(decision) = &record.decision {
        encode_decision(&mut value, decision);
    }
    if let Some(context) = &record.context {
        value.bytes(&context.encode());
    }
    if !one {
        value.varint(record.predictions.len() as u64);
    }
    for Prediction { model, version, predicted } in &record.predictions {
        value.varint(model.0);
        value.varint(version.0);
        value.float(*predicted);
    }
    if let Some(label) = record.first_label {
        value.float(label);
    }
    if !record.targets.is_empty() {
        value.ascending(record.targets.iter().map(|sequence| sequence.0));
    }
    value.0
}

fn encode_decision(value: &mut Writer, facts: &DecisionFacts) {
    value.text(facts.id.as_str());
    value.varint(
        flag(facts.slot.is_some(), Flags::SLOT)
            | flag(facts.propensity.is_some(), Flags::PROPENSITY)
            | flag(facts.pool, Flags::POOL)
            | flag(facts.selection.is_some(), Flags::SELECTION)
            | joined_number(facts.joined) << Flags::JOINED_SHIFT,
    );
    if let Some(slot) = facts.slot {
        value.varint(u64::from(slot));
    }
    if let Some(propensity) = facts.propensity {
        value.float(propensity);
    }
    if let Some(selection) = &facts.selection {
        encode_selection(value, selection);
    }
}

fn encode_selection(value: &mut Writer, SelectionFacts { model, model_id, arm, propensity, segment }: &SelectionFacts) {
    value.text(model.as_str());
    value.varint(model_id.0);
    value.varint(flag(arm.is_some(), Flags::ARM) | flag(segment.is_some(), Flags::SEGMENT));
    for name in arm.iter().chain(segment) {
        value.text(name.as_str());
    }
    value.float(*propensity);
}

/// The value that replaces a removed record, without its seal.
pub(crate) fn blank() -> Vec<u8> {
    let mut value = Writer(envelope::begin());
    value.varint(BLANK);
    value.0
}

/// The record with the log key `key`; `None` for a blank.
///
/// # Errors
/// [`StorageError::Corrupt`].
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Option<Record>, StorageError> {
    let body = unseal(Column::Log, key, value)?;
    let mut body = Reader(body);
    let unreadable = || corrupt(Column::Log, key, "its body is not that of a record");
    let flags = body.varint().filter(|flags| flags & !Flags::ALL == 0).ok_or_else(unreadable)?;
    let record = match flags {
        BLANK => None,
        _ => Some(decode_body(flags, &mut body).ok_or_else(unreadable)?),
    };
    if body.0.is_empty() { Ok(record) } else { Err(unreadable()) }
}

/// Decodes the output of [`encode`] before it is sealed.
pub(crate) fn decode_unsealed(value: &[u8]) -> Option<Record> {
    let mut body = Reader(envelope::unsealed_body(value));
    let flags = body.varint()?;
    decode_body(flags, &mut body)
}

fn decode_body(flags: u64, body: &mut Reader) -> Option<Record> {
    let has = |flag| flags & flag != 0;
    Some(Record {
        kind: kind_of(flags & Flags::KIND)?,
        user: UserId::new(body.text()?).ok()?,
        user_epoch: UserEpoch(body.varint()?),
        item: if has(Flags::NO_ITEM) { None } else { Some(ItemId::new(body.text()?).ok()?) },
        label: body.float()?,
        weight: if has(Flags::WEIGHT) { body.float()? } else { 1.0 },
        feedback: if has(Flags::FEEDBACK) { Some(body.text()?.to_owned()) } else { None },
        timestamp: Timestamp(body.signed()?),
        observation_id: match has(Flags::OBSERVATION_ID) {
            true => Some(ObservationId::new(body.text()?).ok()?),
            false => None,
        },
        decision: if has(Flags::DECISION) { Some(decode_decision(body)?) } else { None },
        context: match has(Flags::CONTEXT) {
            true => Some(Box::new(RecordedContext::decode(body.bytes()?)?)),
            false => None,
        },
        predictions: match has(Flags::PREDICTIONS) {
            true => decode_predictions(body)?,
            false => vec![decode_prediction(body)?],
        },
        first_label: if has(Flags::FIRST_LABEL) { Some(body.float()?) } else { None },
        targets: match has(Flags::TARGETS) {
            true => body.ascending()?.into_iter().map(Sequence).collect(),
            false => Vec::new(),
        },
    })
}

fn decode_decision(body: &mut Reader) -> Option<DecisionFacts> {
    let id = DecisionId::new(body.text()?).ok()?;
    let flags = body.varint()?;
    let has = |flag| flags & flag != 0;
    Some(DecisionFacts {
        id,
        joined: joined_of(flags >> Flags::JOINED_SHIFT, has(Flags::SLOT))?,
        slot: if has(Flags::SLOT) { Some(u32::try_from(body.varint()?).ok()?) } else { None },
        propensity: if has(Flags::PROPENSITY) { Some(body.float()?) } else { None },
        pool: has(Flags::POOL),
        selection: if has(Flags::SELECTION) { Some(decode_selection(body)?) } else { None },
    })
}

fn decode_selection(body: &mut Reader) -> Option<SelectionFacts> {
    let (model, model_id) = (ModelName::new(body.text()?).ok()?, ModelId(body.varint()?));
    let flags = body.varint()?;
    let mut name = |flag| if flags & flag == 0 { Some(None) } else { Some(Some(ModelName::new(body.text()?).ok()?)) };
    let (arm, segment) = (name(Flags::ARM)?, name(Flags::SEGMENT)?);
    Some(SelectionFacts { model, model_id, arm, propensity: body.float()?, segment })
}

fn decode_predictions(body: &mut Reader) -> Option<Vec<Prediction>> {
    let count = body.varint()?;
    (0..count).map(|_| decode_prediction(body)).collect()
}

fn decode_prediction(body: &mut Reader) -> Option<Prediction> {
    Some(Prediction { model: ModelId(body.varint()?), version: VersionId(body.varint()?), predicted: body.float()? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::{Context, ContextValue, Partition, StreamFields, StreamName};

    use super::*;
    use crate::layout::keys;

    fn stream() -> StreamName {
        StreamName::new("films").unwrap()
    }

    fn usual() -> Record {
        Record {
            kind: RecordKind::Observe,
            user: UserId::new("alice").unwrap(),
            user_epoch: UserEpoch(300),
            item: Some(ItemId::new("m1").unwrap()),
            label: 4.5,
            weight: 1.0,
            feedback: None,
            timestamp: Timestamp(1_700_000_000_000),
            observation_id: None,
            decision: None,
            context: None,
            predictions: vec![Prediction { model: ModelId(7), version: VersionId(2), predicted: 3.25 }],
            first_label: None,
            targets: Vec::new(),
        }
    }

    fn full() -> Record {
        Record {
            kind: RecordKind::Correct,
            weight: 2.0,
            feedback: Some("click".to_owned()),
            timestamp: Timestamp(-1),
            observation_id: Some(ObservationId::new("o-1").unwrap()),
            decision: Some(DecisionFacts {
                id: DecisionId::new("d").unwrap(),
                joined: Joined::Slot,
                slot: Some(3),
                propensity: Some(0.5),
                pool: true,
                selection: None,
            }),
            predictions: [(7, 1, 0.0), (300, 2, 0.5)]
                .map(|(model, version, predicted)| Prediction {
                    model: ModelId(model),
                    version: VersionId(version),
                    predicted,
                })
                .to_vec(),
            first_label: Some(-1.0),
            targets: vec![Sequence(3), Sequence(300)],
            ..usual()
        }
    }

    fn stored(record: &Record) -> (Vec<u8>, Vec<u8>) {
        let key = keys::log(&stream(), Partition::of(&record.user), Sequence(9));
        let mut value = encode(record);
        envelope::seal(&key, &mut value);
        (key, value)
    }

    #[test]
    fn records_keep_their_stored_format() {
        // These bytes are on users' disks. A change needs a new format byte and a way to read the
        // old one.
        let cases = [(usual(), USUAL), (full(), FULL)];
        for (record, expected) in cases {
            let (key, value) = stored(&record);
            assert_eq!(keys::hex(&value), expected);
            assert_eq!(decode(&key, &value).unwrap(), Some(record));
        }
    }

    #[test]
    fn a_blank_has_no_record_and_lengths_must_match() {
        let key = keys::log(&stream(), Partition::of(&usual().user), Sequence(9));
        let mut value = blank();
        envelope::seal(&key, &mut value);
        assert_eq!(keys::hex(&value), "010469f650d7");
        assert_eq!(decode(&key, &value).unwrap(), None);
        for record in [usual(), full()] {
            let whole = encode(&record);
            for length in 1..=whole.len() + 1 {
                let mut value: Vec<u8> = whole.iter().copied().chain([0]).take(length).collect();
                envelope::seal(&key, &mut value);
                let decoded = decode(&key, &value);
                assert_eq!(decoded.is_ok(), length == whole.len(), "length {length}: {decoded:?}");
            }
        }
    }

    const USUAL: &str = "010005616c696365ac02026d310000904080a0abfef9620702000050401aadc0f5";
    const FULL: &str = "01f90705616c696365ac02026d31000090400000004005636c69636b01036f2d31016407030000003f02070100\
        000000ac02020000003f000080bf0203a9026b8f9641";

    #[test]
    fn every_attribution_outcome_and_selection_is_decoded() {
        let id = || DecisionId::new("d").unwrap();
        let name = |name: &str| ModelName::new(name).unwrap();
        let selection = |arm: Option<&str>, segment: Option<&str>| {
            let (arm, segment) = (arm.map(name), segment.map(name));
            Some(SelectionFacts { model: name("best"), model_id: ModelId(9), arm, propensity: 0.25, segment })
        };
        let joined = Joined::ALL.into_iter().filter(|joined| *joined != Joined::Slot);
        let mut all: Vec<DecisionFacts> = joined.map(|joined| DecisionFacts::without_slot(id(), joined)).collect();
        for selection in
            [selection(Some("films"), None), selection(Some("films"), Some("phone")), selection(None, None)]
        {
            all.push(DecisionFacts { joined: Joined::Slot, slot: Some(0), selection, ..all[0].clone() });
        }
        for facts in all {
            let record = Record { decision: Some(facts), ..usual() };
            let (key, value) = stored(&record);
            assert_eq!(decode(&key, &value).unwrap(), Some(record));
        }
    }

    #[test]
    fn a_context_is_stored_after_the_decision() {
        let context = Context::new([("device".to_owned(), ContextValue::Text("phone".to_owned()))]).unwrap();
        let fields = StreamFields::default();
        let context = fields.extended(&fields.missing(&context)).numbered(&context).unwrap();
        for record in [usual(), full()] {
            let record = Record { context: Some(Box::new(context.clone())), ..record };
            let (key, value) = stored(&record);
            assert_eq!(decode(&key, &value).unwrap(), Some(record));
        }
    }

    #[test]
    fn every_kind_and_a_missing_item_are_decoded() {
        for kind in [RecordKind::Observe, RecordKind::Correct, RecordKind::Retract, RecordKind::Erase] {
            let record = Record { kind, item: None, predictions: Vec::new(), ..usual() };
            let (key, value) = stored(&record);
            assert_eq!(decode(&key, &value).unwrap(), Some(record));
        }
    }
}
