//! The form of a message in the stream of a log: one batch.
//!
//! All numbers are little-endian. A batch says where it belongs and what it follows on, so that a
//! reader notices a lost, doubled, foreign or damaged one ([`crate::chain`]).
//!
//! | bytes | contents                                                      |
//! |-------|---------------------------------------------------------------|
//! | 4     | `CLSB`                                                        |
//! | 1     | format, 1                                                     |
//! | 1     | log: the number of the shard, or 255 for the catalog          |
//! | 1     | kind of the body                                              |
//! | 1     | length of the writer's name                                   |
//! | 8     | incarnation of the cluster                                    |
//! | 8     | process of the writer                                         |
//! | 8     | epoch                                                         |
//! | 8     | number in the epoch, from 0                                   |
//! | 8     | sequence in the catalog that the writer has applied           |
//! | 4     | CRC-32C of the previous batch, 0 before the first             |
//! | 4     | length of the body before compression                         |
//! | …     | name of the writer, body                                      |
//! | 4     | CRC-32C of everything before                                  |

use bytes::{Buf as _, BufMut as _, Bytes};
use celeris_model::ids::PARTITIONS;
use celeris_model::{LogId, NodeName, Shards};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The format that this version writes, and the only one that it reads.
pub const FORMAT: u8 = 1;

const MAGIC: &[u8; 4] = b"CLSB";
const CATALOG: u8 = 255;
const FIXED: usize = 56;
const CHECKSUM: usize = 4;

/// The maximum size of a body before compression, in bytes: bounds what a damaged length allocates.
const BODY_BYTES_MAX: usize = 64 << 20;

/// A process of a node, which differs from that before a restart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Writer {
    pub node: NodeName,
    /// The time of its start in Unix milliseconds, and 20 random bits. Numbers are compared only of
    /// processes with the same name.
    pub process: u64,
}

/// Where a batch belongs, and what it follows on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub incarnation: u64,
    pub log: LogId,
    pub writer: Writer,
    pub epoch: u64,
    /// Counts the batches of the epoch; that of the claim is 0.
    pub number: u64,
    /// The sequence in the catalog's stream that the writer has applied: a reader applies it first.
    pub catalog: u64,
    /// The checksum of the previous batch.
    pub previous: u32,
}

/// What a batch says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The writer owns the log from here on.
    Epoch,
    /// The writer has ended its term and appends nothing more.
    Release,
    /// The writer still owns the log.
    Alive,
    /// A group of the store.
    Group(Bytes),
}

impl Body {
    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Epoch => "epoch",
            Self::Release => "release",
            Self::Alive => "alive",
            Self::Group(_) => "group",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub header: Header,
    pub body: Body,
}

/// Why bytes are no batch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BatchError {
    #[error("{bytes} bytes are too few for a batch")]
    TooShort { bytes: usize },
    #[error("it does not begin as a batch")]
    Foreign,
    #[error("format {format} is not known to this version; update this node")]
    UnknownFormat { format: u8 },
    #[error("its checksum is {computed:08x} instead of {stored:08x}: it is damaged")]
    Damaged { stored: u32, computed: u32 },
    #[error("it cannot be decoded: {reason}")]
    Malformed { reason: &'static str },
}

/// The checksum that the next batch names: that of an encoded batch.
#[must_use]
pub fn checksum(encoded: &[u8]) -> u32 {
    encoded.last_chunk().map_or(0, |last| u32::from_le_bytes(*last))
}

impl Batch {
    /// The message.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let Self { header, body } = self;
        let name = header.writer.node.as_str().as_bytes();
        let compressed;
        let (kind, length, stored): (u8, usize, &[u8]) = match body {
            Body::Epoch => (0, 0, &[]),
            Body::Release => (1, 0, &[]),
            Body::Alive => (2, 0, &[]),
            Body::Group(group) => {
                compressed = lz4_flex::block::compress(group);
                if compressed.len() < group.len() { (4, group.len(), &compressed) } else { (3, group.len(), group) }
            }
        };
        let mut bytes = Vec::with_capacity(FIXED + name.len() + stored.len() + CHECKSUM);
        bytes.put_slice(MAGIC);
        bytes.put_u8(FORMAT);
        bytes.put_u8(code(header.log));
        bytes.put_u8(kind);
        bytes.put_u8(u8::try_from(name.len()).expect("names have at most 255 bytes"));
        for number in [header.incarnation, header.writer.process, header.epoch, header.number, header.catalog] {
            bytes.put_u64_le(number);
        }
        bytes.put_u32_le(header.previous);
        bytes.put_u32_le(u32::try_from(length).expect("groups are far smaller than 4 GiB"));
        bytes.put_slice(name);
        bytes.put_slice(stored);
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32_le(checksum);
        bytes.into()
    }

    /// Reads a message, whose checksum is checked first.
    ///
    /// # Errors
    /// [`BatchError`].
    pub fn decode(message: &[u8]) -> Result<Self, BatchError> {
        let too_short = BatchError::TooShort { bytes: message.len() };
        let (content, stored) = message.split_last_chunk::<CHECKSUM>().ok_or(too_short.clone())?;
        if content.len() < FIXED {
            return Err(too_short);
        }
        let (magic, mut rest) = content.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(BatchError::Foreign);
        }
        let (stored, computed) = (u32::from_le_bytes(*stored), crc32c::crc32c(content));
        if stored != computed {
            return Err(BatchError::Damaged { stored, computed });
        }
        let format = rest.get_u8();
        if format != FORMAT {
            return Err(BatchError::UnknownFormat { format });
        }
        let malformed = |reason| BatchError::Malformed { reason };
        let log = log_of(rest.get_u8()).ok_or(malformed("there is no such log"))?;
        let (kind, name_length) = (rest.get_u8(), usize::from(rest.get_u8()));
        let [incarnation, process, epoch, number, catalog] = [(); 5].map(|()| rest.get_u64_le());
        let (previous, length) = (rest.get_u32_le(), rest.get_u32_le() as usize);
        let (name, body) = rest.split_at_checked(name_length).ok_or(malformed("the writer's name is cut off"))?;
        let name = str::from_utf8(name).map_err(|_| malformed("the writer's name is no text"))?;
        let node = NodeName::new(name).map_err(|_| malformed("the writer's name is no name"))?;
        let body = match kind {
            0 => Body::Epoch,
            1 => Body::Release,
            2 => Body::Alive,
            3 if body.len() == length => Body::Group(Bytes::copy_from_slice(body)),
            4 if length <= BODY_BYTES_MAX => match lz4_flex::block::decompress(body, length) {
                Ok(group) if group.len() == length => Body::Group(group.into()),
                _ => return Err(malformed("its group cannot be decompressed")),
            },
            _ => return Err(malformed("its kind is not known, or its length is wrong")),
        };
        let writer = Writer { node, process };
        Ok(Self { header: Header { incarnation, log, writer, epoch, number, catalog, previous }, body })
    }
}

fn code(log: LogId) -> u8 {
    match log {
        LogId::Catalog => CATALOG,
        LogId::Shard(shard) => shard.index(),
    }
}

fn log_of(code: u8) -> Option<LogId> {
    if code == CATALOG {
        return Some(LogId::Catalog);
    }
    Shards::new(PARTITIONS)?.get(code).map(LogId::Shard)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn batch(body: Body) -> Batch {
        let writer = Writer { node: NodeName::new("n1").unwrap(), process: 7 };
        let log = LogId::Shard(Shards::new(6).unwrap().get(5).unwrap());
        let header = Header { incarnation: 2, log, writer, epoch: 3, number: 4, catalog: 5, previous: 0xa1b2_c3d4 };
        Batch { header, body }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn batches_keep_their_form() {
        let encoded = batch(Body::Group(Bytes::from_static(b"abc"))).encode();
        let expected = "434c53420105030202000000000000000700000000000000030000000000000004000000000000000500000000000000\
                        d4c3b2a1030000006e31616263";
        assert_eq!(hex(&encoded[..encoded.len() - 4]), expected);
        assert_eq!(checksum(&encoded), crc32c::crc32c(&encoded[..encoded.len() - 4]));
    }

    #[test]
    fn every_body_is_read_back() {
        let long = Bytes::from(b"observation ".repeat(1000));
        for body in [Body::Epoch, Body::Release, Body::Alive, Body::Group(Bytes::new()), Body::Group(long.clone())] {
            let batch = batch(body);
            assert_eq!(Batch::decode(&batch.encode()), Ok(batch));
        }
        assert!(batch(Body::Group(long.clone())).encode().len() < long.len() / 10, "it is compressed");
        let catalog = Batch { header: Header { log: LogId::Catalog, ..batch(Body::Epoch).header }, body: Body::Epoch };
        assert_eq!(Batch::decode(&catalog.encode()), Ok(catalog));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let encoded = batch(Body::Group(Bytes::from_static(b"some records"))).encode();
        for bit in 0..8 * encoded.len() {
            let mut damaged = encoded.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Batch::decode(&damaged).is_err(), "bit {bit}");
        }
        for length in 0..encoded.len() {
            assert!(Batch::decode(&encoded[..length]).is_err(), "length {length}");
        }
    }
}
