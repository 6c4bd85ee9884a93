//! Shards: the ranges of partitions that have a log of their own.

use std::fmt;
use std::ops::Range;

use crate::ids::{PARTITIONS, Partition};

/// A contiguous range of partitions with one log and, at any time, at most one owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(u8);

impl Shard {
    /// Its number, from 0.
    #[must_use]
    pub fn index(self) -> u8 {
        self.0
    }
}

/// A log of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogId {
    /// The registry and the items.
    Catalog,
    /// The observations of the users of a shard.
    Shard(Shard),
}

impl fmt::Display for LogId {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Catalog => formatter.write_str("catalog"),
            Self::Shard(shard) => write!(formatter, "shard {}", shard.index()),
        }
    }
}

/// The division of the partitions into shards, as evenly as possible and in order. Fixed for the
/// life of a cluster; a node on its own has one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    count: u8,
}

impl Shards {
    /// One shard with all partitions.
    pub const ONE: Self = Self { count: 1 };

    /// A division into `count` shards; `None` unless it is 1 to [`PARTITIONS`].
    #[must_use]
    pub fn new(count: u8) -> Option<Self> {
        (1..=PARTITIONS).contains(&count).then_some(Self { count })
    }

    /// The number of shards.
    #[must_use]
    pub fn count(self) -> u8 {
        self.count
    }

    /// The shard with this number.
    #[must_use]
    pub fn get(self, index: u8) -> Option<Shard> {
        (index < self.count).then_some(Shard(index))
    }

    /// All shards, in order.
    pub fn all(self) -> impl Iterator<Item = Shard> {
        (0..self.count).map(Shard)
    }

    /// The shard of a partition.
    #[must_use]
    pub fn of(self, partition: Partition) -> Shard {
        let index = u16::from(partition.index()) * u16::from(self.count) / u16::from(PARTITIONS);
        Shard(u8::try_from(index).expect("less than the count"))
    }

    /// The partitions of a shard.
    pub fn partitions(self, shard: Shard) -> impl Iterator<Item = Partition> {
        self.range(shard).filter_map(Partition::from_index)
    }

    fn range(self, shard: Shard) -> Range<u8> {
        let first = |index: u8| {
            let first = (u16::from(index) * u16::from(PARTITIONS)).div_ceil(u16::from(self.count));
            u8::try_from(first).expect("at most the number of partitions")
        };
        first(shard.0)..first(shard.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_contiguous_even_and_cover_all_partitions() {
        for shards in (1..=PARTITIONS).filter_map(Shards::new) {
            let mut covered = Vec::new();
            for shard in shards.all() {
                let partitions: Vec<Partition> = shards.partitions(shard).collect();
                let even = PARTITIONS / shards.count();
                assert!(
                    (usize::from(even)..=usize::from(even) + 1).contains(&partitions.len()),
                    "{shards:?} {shard:?}"
                );
                assert!(partitions.iter().all(|partition| shards.of(*partition) == shard), "{shards:?} {shard:?}");
                covered.extend(partitions);
            }
            assert!(covered.into_iter().eq(Partition::all()), "{shards:?}");
        }
        assert_eq!([0, PARTITIONS + 1].map(Shards::new), [None, None]);
        assert_eq!(Shards::ONE.get(1), None);
    }
}
