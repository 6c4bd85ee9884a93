//! The chain of the batches of a log: each says what it follows on, and a reader checks it.
//!
//! The stream may lose messages silently, when a server's file is damaged. So nothing is read over:
//! a batch that does not continue the chain ends the reading of its log.

use bytes::{Buf as _, BufMut as _};
use celeris_model::{LogId, NodeName};
use thiserror::Error;

use crate::batch::{Batch, BatchError, Body, Header, Writer, checksum};

/// The position after a batch of a log, with what the next one must follow on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The sequence of the batch in the stream, from 1.
    pub sequence: u64,
    /// Its checksum.
    pub checksum: u32,
    /// The epoch, from 1; 0 before the first claim.
    pub epoch: u64,
    /// The number of the batch in the epoch.
    pub number: u64,
    /// The owner in the epoch.
    pub writer: Option<Writer>,
    /// Whether the owner has ended its term.
    pub is_released: bool,
}

/// Why a message does not continue the chain.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Break {
    #[error("message {found} follows on {last}: those between are lost")]
    Gap { last: u64, found: u64 },
    #[error("message {sequence}: {source}")]
    NoBatch { sequence: u64, source: BatchError },
    #[error("message {sequence} belongs to {log} of incarnation {incarnation}")]
    Misplaced { sequence: u64, log: LogId, incarnation: u64 },
    #[error("message {sequence} follows on a message with checksum {named:08x}, and the one before has {last:08x}")]
    Previous { sequence: u64, named: u32, last: u32 },
    #[error("message {sequence} ({kind} {number} of epoch {epoch}, by {node}) does not follow on {last}")]
    Rule { sequence: u64, kind: &'static str, epoch: u64, number: u64, node: NodeName, last: String },
}

const VERSION: u8 = 1;

impl Cursor {
    /// The form in the store.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_u8(VERSION);
        bytes.put_u8(u8::from(self.is_released));
        for number in [self.sequence, self.epoch, self.number] {
            bytes.put_u64_le(number);
        }
        bytes.put_u32_le(self.checksum);
        if let Some(writer) = &self.writer {
            bytes.put_u64_le(writer.process);
            bytes.put_slice(writer.node.as_str().as_bytes());
        }
        bytes
    }

    /// Reads the form in the store; `None` if it is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (fixed, mut writer) = bytes.split_at_checked(30)?;
        let mut fixed = fixed;
        if fixed.get_u8() != VERSION {
            return None;
        }
        let is_released = fixed.get_u8() != 0;
        let [sequence, epoch, number] = [(); 3].map(|()| fixed.get_u64_le());
        let checksum = fixed.get_u32_le();
        let writer = if writer.is_empty() {
            None
        } else {
            let process = writer.try_get_u64_le().ok()?;
            Some(Writer { node: NodeName::new(str::from_utf8(writer).ok()?).ok()?, process })
        };
        Some(Self { sequence, checksum, epoch, number, writer, is_released })
    }

    /// The node that owns the log as far as it was read.
    #[must_use]
    pub fn owner(&self) -> Option<&NodeName> {
        let writer = self.writer.as_ref()?;
        (!self.is_released).then_some(&writer.node)
    }

    /// The header of the next batch by `writer`: its claim, or the next of its epoch.
    pub(crate) fn next(&self, log: LogId, incarnation: u64, next: Next) -> Header {
        let (epoch, number, catalog, writer) = match next {
            Next::Claim { writer, catalog } => (self.epoch + 1, 0, catalog, writer),
            Next::InEpoch { writer, catalog } => (self.epoch, self.number + 1, catalog, writer),
        };
        Header { incarnation, log, writer, epoch, number, catalog, previous: self.checksum }
    }

    /// The position after the batch with this message, which is checked, and the batch.
    ///
    /// # Errors
    /// [`Break`].
    pub fn follow(
        &self,
        (log, incarnation): (LogId, u64),
        sequence: u64,
        message: &[u8],
    ) -> Result<(Self, Batch), Break> {
        if sequence != self.sequence + 1 {
            return Err(Break::Gap { last: self.sequence, found: sequence });
        }
        let batch = Batch::decode(message).map_err(|source| Break::NoBatch { sequence, source })?;
        let header = &batch.header;
        if header.log != log || header.incarnation != incarnation {
            return Err(Break::Misplaced { sequence, log: header.log, incarnation: header.incarnation });
        }
        if header.previous != self.checksum {
            return Err(Break::Previous { sequence, named: header.previous, last: self.checksum });
        }
        let follows = match batch.body {
            Body::Epoch => header.epoch == self.epoch + 1 && header.number == 0,
            Body::Release | Body::Alive | Body::Group(_) => {
                !self.is_released
                    && header.epoch == self.epoch
                    && Some(&header.writer) == self.writer.as_ref()
                    && header.number == self.number + 1
            }
        };
        if !follows {
            return Err(Break::Rule {
                sequence,
                kind: batch.body.name(),
                epoch: header.epoch,
                number: header.number,
                node: header.writer.node.clone(),
                last: self.to_string(),
            });
        }
        let next = Self {
            sequence,
            checksum: checksum(message),
            epoch: header.epoch,
            number: header.number,
            writer: Some(header.writer.clone()),
            is_released: batch.body == Body::Release,
        };
        Ok((next, batch))
    }
}

/// Whose batch is next.
pub(crate) enum Next {
    /// A new owner's.
    Claim { writer: Writer, catalog: u64 },
    /// The owner's.
    InEpoch { writer: Writer, catalog: u64 },
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Self { sequence, epoch, number, .. } = self;
        match &self.writer {
            None => formatter.write_str("the beginning"),
            Some(writer) if self.is_released => {
                write!(formatter, "message {sequence} (release of epoch {epoch} by {})", writer.node)
            }
            Some(writer) => write!(formatter, "message {sequence} ({number} of epoch {epoch}, by {})", writer.node),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use bytes::Bytes;

    use super::*;

    const PLACE: (LogId, u64) = (LogId::Catalog, 1);

    fn writer(name: &str, process: u64) -> Writer {
        Writer { node: NodeName::new(name).unwrap(), process }
    }

    fn group() -> Body {
        Body::Group(Bytes::from_static(b"records"))
    }

    fn claim(cursor: &Cursor, by: &Writer) -> Bytes {
        let header = cursor.next(PLACE.0, PLACE.1, Next::Claim { writer: by.clone(), catalog: 0 });
        Batch { header, body: Body::Epoch }.encode()
    }

    fn message(cursor: &Cursor, by: &Writer, body: Body) -> Bytes {
        let header = cursor.next(PLACE.0, PLACE.1, Next::InEpoch { writer: by.clone(), catalog: 0 });
        Batch { header, body }.encode()
    }

    fn follow(cursor: &Cursor, message: &[u8]) -> Result<Cursor, Break> {
        cursor.follow(PLACE, cursor.sequence + 1, message).map(|(next, _)| next)
    }

    #[test]
    fn epochs_follow_on_each_other_and_cursors_are_read_back() {
        let (a, b) = (writer("a", 1), writer("b", 2));
        let mut cursor = Cursor::default();
        assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor.clone()));
        let steps = [(&a, Body::Epoch), (&a, group()), (&a, Body::Alive), (&b, Body::Epoch), (&b, group())];
        for (by, body) in steps.into_iter().chain([(&b, Body::Release), (&a, Body::Epoch), (&a, group())]) {
            let next = if body == Body::Epoch { claim(&cursor, by) } else { message(&cursor, by, body) };
            cursor = follow(&cursor, &next).unwrap();
            assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor.clone()));
        }
        assert_eq!((cursor.sequence, cursor.epoch, cursor.number), (8, 3, 1));
        assert_eq!(cursor.owner(), Some(&a.node));
    }

    #[test]
    fn what_does_not_follow_is_a_break() {
        let (a, b) = (writer("a", 1), writer("b", 2));
        let start = Cursor::default();
        assert!(matches!(follow(&start, &message(&start, &a, group())), Err(Break::Rule { .. })));
        let owned = follow(&start, &claim(&start, &a)).unwrap();
        let first = message(&owned, &a, group());
        let after = follow(&owned, &first).unwrap();
        // Doubled, skipped, of another process, of another writer, after the release.
        assert!(matches!(follow(&after, &first), Err(Break::Previous { .. })));
        assert!(matches!(owned.follow(PLACE, 3, &first), Err(Break::Gap { last: 1, found: 3 })));
        let restarted = message(&after, &writer("a", 9), group());
        assert!(matches!(follow(&after, &restarted), Err(Break::Rule { .. })));
        assert!(matches!(follow(&after, &message(&after, &b, group())), Err(Break::Rule { .. })));
        let released = follow(&after, &message(&after, &a, Body::Release)).unwrap();
        assert!(matches!(follow(&released, &message(&released, &a, group())), Err(Break::Rule { .. })));
        assert_eq!(released.owner(), None);
        let misnumbered = Cursor { number: 4, ..after.clone() };
        assert!(matches!(follow(&after, &message(&misnumbered, &a, group())), Err(Break::Rule { .. })));
        let ahead = Cursor { epoch: 5, ..after.clone() };
        assert!(matches!(follow(&after, &claim(&ahead, &b)), Err(Break::Rule { .. })));
        // Of another log or incarnation.
        let misplaced = after.follow((LogId::Catalog, 2), 3, &message(&after, &a, group()));
        assert!(matches!(misplaced, Err(Break::Misplaced { .. })));
        let mut flipped = message(&after, &a, group()).to_vec();
        flipped[20] ^= 4;
        assert!(matches!(follow(&after, &flipped), Err(Break::NoBatch { sequence: 3, .. })));
    }
}
