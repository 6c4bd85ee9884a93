//! The extent of a stream's log.

use celeris_model::ids::PARTITIONS;
use celeris_model::{Partition, Sequence};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The last durable sequence of every partition of a stream; 0 for an empty one. In JSON, an array
/// of 64 numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    sequences: [u64; PARTITIONS as usize],
}

impl Watermark {
    /// The watermark of an empty log.
    #[must_use]
    pub fn start() -> Self {
        Self { sequences: [0; PARTITIONS as usize] }
    }

    /// The last sequence of one partition.
    #[must_use]
    pub fn get(&self, partition: Partition) -> Sequence {
        Sequence(self.sequences[usize::from(partition.index())])
    }

    /// The number of records at or below the watermark, in all partitions.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.sequences.iter().fold(0, |records, sequence| records.saturating_add(*sequence))
    }

    /// Sets the last sequence of one partition.
    pub fn set(&mut self, partition: Partition, sequence: Sequence) {
        self.sequences[usize::from(partition.index())] = sequence.0;
    }
}

impl Serialize for Watermark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.sequences.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Watermark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sequences = Vec::<u64>::deserialize(deserializer)?;
        let sequences = sequences
            .try_into()
            .map_err(|wrong: Vec<u64>| D::Error::invalid_length(wrong.len(), &"one sequence for each partition"))?;
        Ok(Self { sequences })
    }
}
