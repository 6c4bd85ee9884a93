//! How often each of many contents has occurred, in eight bytes for each.

/// Slots of the first table, at least.
const SLOTS_MIN: usize = 1 << 10;

/// How much larger the next table is.
const GROWTH: usize = 4;

/// Bits of the count in a slot; the others are a part of the hash.
const COUNT_BITS: u32 = 24;

/// How often a content is counted, at most.
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// Tables of counts, each larger than the one before it. An entry stays where it is, so that nothing is copied when the
/// next table is needed: the memory has no peaks.
#[derive(Debug)]
pub(crate) struct Occurrences {
    tables: Vec<Table>,
    counted: usize,
}

impl Occurrences {
    /// For this many contents, and more.
    pub(crate) fn new(contents: usize) -> Self {
        Self { tables: vec![Table::new(contents.saturating_mul(5) / 4)], counted: 0 }
    }

    /// Counts a content once more, and returns how often it has occurred; `None` if it cannot be counted, because `max`
    /// others are, or it occurred too often.
    pub(crate) fn count(&mut self, content: u128, max: usize) -> Option<u32> {
        for table in &mut self.tables {
            let slot = table.find(content);
            if table.slots[slot] != 0 {
                return table.add(slot, content);
            }
        }
        if self.counted >= max {
            return None;
        }
        self.counted += 1;
        if let Some(last) = self.tables.last().filter(|last| last.is_full()) {
            let larger = Table::new(last.slots.len().saturating_mul(GROWTH));
            self.tables.push(larger);
        }
        let table = self.tables.last_mut()?;
        let slot = table.find(content);
        table.filled += 1;
        table.add(slot, content)
    }
}

/// A hash table with linear probing. A slot has 40 bits of the hash and a count, or is 0. Two contents that look the same there count
/// as one: with the position they share more than 50 bits, and it costs them the numbers at the end of their ids, not that these differ.
#[derive(Debug)]
struct Table {
    slots: Vec<u64>,
    filled: usize,
}

impl Table {
    fn new(slots: usize) -> Self {
        Self { slots: vec![0; slots.max(SLOTS_MIN).next_power_of_two()], filled: 0 }
    }

    /// Whether a look-up would meet many slots.
    fn is_full(&self) -> bool {
        self.filled >= self.slots.len() / 8 * 7
    }

    fn tag(content: u128) -> u64 {
        (content >> 64) as u64 & !COUNT_MAX
    }

    /// The slot of a content, or the free one where it belongs.
    fn find(&self, content: u128) -> usize {
        let (tag, mask) = (Self::tag(content), self.slots.len() - 1);
        let mut slot = content as usize & mask;
        while self.slots[slot] != 0 && self.slots[slot] & !COUNT_MAX != tag {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn add(&mut self, slot: usize, content: u128) -> Option<u32> {
        let before = self.slots[slot] & COUNT_MAX;
        if before == COUNT_MAX {
            return None;
        }
        self.slots[slot] = Self::tag(content) | (before + 1);
        u32::try_from(before + 1).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use xxhash_rust::xxh3::xxh3_128;

    use super::*;

    #[test]
    fn counts_are_those_of_a_map_through_all_tables() {
        let (mut ours, mut theirs) = (Occurrences::new(0), HashMap::<u64, u32>::new());
        for number in 0..60_000_u64 {
            // Some contents occur once, others up to hundreds of times.
            let key = if number % 3 == 0 { number } else { number * number % 1009 };
            let expected = theirs.entry(key).or_default();
            *expected += 1;
            assert_eq!(ours.count(xxh3_128(&key.to_le_bytes()), usize::MAX), Some(*expected));
        }
        assert_eq!(ours.counted, theirs.len());
        assert!(ours.tables.len() > 2);
    }

    #[test]
    fn a_content_beyond_the_bound_is_refused_and_known_ones_are_counted_on() {
        let mut counts = Occurrences::new(0);
        assert_eq!(counts.count(1, 1), Some(1));
        assert_eq!(counts.count(2, 1), None);
        assert_eq!(counts.count(1, 1), Some(2));
    }
}
