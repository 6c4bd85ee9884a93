//! Messages, and how many are read at once.

use std::time::Duration;

use celeris_model::Timestamp;

/// Messages that are read at once, at most.
pub(crate) const MESSAGES_MAX: usize = 1000;

/// Bytes that are read at once; a single message may be larger.
pub(crate) const BYTES_MAX: usize = 8 << 20;

/// How long a reading waits for the first message.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(2);

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its number in its source. Numbers grow, and may have gaps.
    pub offset: u64,
    /// `None` for a message of Kafka without a value.
    pub payload: Option<Vec<u8>>,
    /// When the broker or the producer says that it was published.
    pub timestamp: Timestamp,
}

/// Messages of one reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// In their order; empty if none came in time.
    pub messages: Vec<Message>,
    /// Messages that the source has after these, as far as the broker says.
    pub behind: u64,
    /// Messages before these that the broker has removed, at most: some of them may not have been for this ingest.
    pub removed: u64,
}
