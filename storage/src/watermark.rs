//! How far a stream's log goes.

use celeris_model::ids::PARTITIONS;
use celeris_model::{Partition, Sequence};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The last durable sequence of every partition of a stream; 0 where there is none. In JSON, an array of 64 numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    sequences: [u64; PARTITIONS as usize],
}

impl Watermark {
    /// Before the first record.
    #[must_use]
    pub fn start() -> Self {
        Self { sequences: [0; PARTITIONS as usize] }
    }

    /// The last sequence of one partition.
    #[must_use]
    pub fn get(&self, partition: Partition) -> Sequence {
        Sequence(self.sequences[usize::from(partition.index())])
    }

    /// How many records lie at or below it, in all partitions.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.sequences.iter().fold(0, |records, sequence| records.saturating_add(*sequence))
    }

    /// Puts one partition's last sequence where it belongs.
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
