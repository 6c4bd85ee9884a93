//! The form of a group in a replicated log.
//!
//! A sequence of entries. A record's entry has the record as it was requested, not the keys and
//! values that are written for it: an amendment depends on the records before it, which are the
//! same on every node.
//!
//! | entry  | form                                                                                  |
//! |--------|---------------------------------------------------------------------------------------|
//! | record | 0 or, if the item is to be noted, 1; stream, sequence, record; count, then keys and   |
//! |        | values of features to freeze                                                          |
//! | freeze | 2; key and value of features to freeze                                                |
//! | source | 3; the source and the position of a message, after its record if it has one           |
//! | user   | 4; key and value of the attributes of a user; an empty value if there are none now    |
//!
//! Texts, numbers and bytes are encoded as in [`celeris_model::wire`].

use celeris_model::{Record, Sequence, SourceId, StreamName};

use super::positions::SourcePosition;
use super::queue::{Group, Work};
use crate::layout::record;
use celeris_model::wire::{Reader, Writer};

const RECORD: u64 = 0;
const RECORD_AND_ITEM: u64 = 1;
const FREEZE: u64 = 2;
const SOURCE: u64 = 3;
const DESCRIBE: u64 = 4;

/// One entry of a group.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all are records")]
pub(super) enum Entry {
    Record(RecordEntry),
    /// Key and value of features to freeze.
    Freeze(Vec<u8>, Vec<u8>),
    Source(SourcePosition),
    /// Key and value of the attributes of a user.
    Describe(Vec<u8>, Option<Vec<u8>>),
}

#[derive(Debug, PartialEq)]
pub(super) struct RecordEntry {
    pub(super) stream: StreamName,
    pub(super) sequence: Sequence,
    /// As requested.
    pub(super) record: Record,
    /// Keys and values.
    pub(super) frozen: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) notes_item: bool,
}

/// Encodes a group without what each node derives itself; empty if nothing else is in it.
pub(super) fn encode(group: &Group) -> Vec<u8> {
    let mut entries = Writer(Vec::with_capacity(group.bytes));
    for work in &group.work {
        match work {
            Work::Append { sequence, prepared } => {
                entries.varint(if prepared.item.is_some() { RECORD_AND_ITEM } else { RECORD });
                entries.text(prepared.stream.as_str());
                entries.varint(sequence.0);
                let requested = prepared.amendment.as_ref().map(|amendment| amendment.requested.as_slice());
                entries.bytes(requested.unwrap_or(prepared.encoded.value()));
                entries.varint(prepared.frozen.len() as u64);
                for (key, value) in &prepared.frozen {
                    entries.bytes(key);
                    entries.bytes(value);
                }
                if let Some(source) = &prepared.source {
                    put_source(&mut entries, source);
                }
            }
            Work::PassOver(source) => put_source(&mut entries, source),
            Work::Freeze(key, value) => {
                entries.varint(FREEZE);
                entries.bytes(key);
                entries.bytes(value);
            }
            Work::Describe(key, value) => {
                entries.varint(DESCRIBE);
                entries.bytes(key);
                entries.bytes(value.as_deref().unwrap_or_default());
            }
            Work::Derived(_) | Work::NoteEnd => {}
        }
    }
    entries.0
}

fn put_source(entries: &mut Writer, SourcePosition { source, offset }: &SourcePosition) {
    entries.varint(SOURCE);
    entries.text(source.as_str());
    entries.varint(*offset);
}

/// Decodes a group; `None` if it is malformed.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut reader = Reader(bytes);
    let mut entries = Vec::new();
    while !reader.0.is_empty() {
        let kind = reader.varint()?;
        entries.push(match kind {
            RECORD | RECORD_AND_ITEM => {
                let stream = StreamName::new(reader.text()?).ok()?;
                let sequence = Sequence(reader.varint()?);
                let record = record::decode_unsealed(reader.bytes()?)?;
                let mut frozen = Vec::new();
                for _ in 0..reader.varint()? {
                    frozen.push((reader.bytes()?.to_vec(), reader.bytes()?.to_vec()));
                }
                Entry::Record(RecordEntry { stream, sequence, record, frozen, notes_item: kind == RECORD_AND_ITEM })
            }
            FREEZE => Entry::Freeze(reader.bytes()?.to_vec(), reader.bytes()?.to_vec()),
            SOURCE => {
                let source = SourceId::new(reader.text()?).ok()?;
                Entry::Source(SourcePosition { source, offset: reader.varint()? })
            }
            DESCRIBE => {
                let (key, value) = (reader.bytes()?.to_vec(), reader.bytes()?);
                Entry::Describe(key, (!value.is_empty()).then(|| value.to_vec()))
            }
            _ => return None,
        });
    }
    Some(entries)
}
