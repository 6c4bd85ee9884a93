//! The row of an item in a table: looked up for many items at once, so that their cache misses
//! overlap.

use std::hash::BuildHasher;

use celeris_kernel as kernel;
use celeris_model::ItemId;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// An item's row, and enough bits of its id's hash that a match is almost always the same item.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Entry {
    slot: u32,
    tag: u32,
}

/// The rows by item.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    entries: HashTable<Entry>,
    hasher: RandomState,
}

/// Bits of the hash that the table does not use for the position.
fn tag(hash: u64) -> u32 {
    (hash >> 24) as u32
}

impl Slots {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { entries: HashTable::with_capacity(capacity), hasher: RandomState::default() }
    }

    /// Inserts the last of `items` with the row of its index; `false` if its id is already present.
    pub(crate) fn add_last(&mut self, items: &[ItemId]) -> bool {
        let Some((item, before)) = items.split_last() else { return true };
        let hash = self.hasher.hash_one(item);
        if self.find(hash, item, items).is_some() {
            return false;
        }
        let slot = u32::try_from(before.len()).expect("a table holds less than 2^32 items");
        let hasher = &self.hasher;
        self.entries
            .insert_unique(hash, Entry { slot, tag: tag(hash) }, |entry| hasher.hash_one(&items[entry.slot as usize]));
        true
    }

    /// The row of `item` in the table of `items`.
    pub(crate) fn get(&self, item: &ItemId, items: &[ItemId]) -> Option<u32> {
        self.find(self.hasher.hash_one(item), item, items)
    }

    fn find(&self, hash: u64, item: &ItemId, items: &[ItemId]) -> Option<u32> {
        let found = |entry: &Entry| entry.tag == tag(hash) && items[entry.slot as usize] == *item;
        self.entries.find(hash, found).map(|entry| entry.slot)
    }

    /// The rows of all `wanted`, in their order.
    ///
    /// A look-up has four dependent cache misses: the hash table, the id's header, the id's text,
    /// and the row. Each pass here takes one of them for all items together and prefetches the data
    /// of the next pass.
    pub(crate) fn get_all<'w>(
        &self,
        wanted: impl Iterator<Item = &'w ItemId> + Clone,
        items: &[ItemId],
    ) -> Vec<Option<u32>> {
        let hashes: Vec<u64> = wanted.clone().map(|item| self.hasher.hash_one(item)).collect();
        let mut slots: Vec<Option<u32>> = hashes
            .iter()
            .map(|hash| {
                // Compares the tag only; the last pass compares ids.
                let slot = self.entries.find(*hash, |entry| entry.tag == tag(*hash))?.slot;
                kernel::prefetch(&items[slot as usize..=slot as usize]);
                Some(slot)
            })
            .collect();
        for slot in slots.iter().flatten() {
            kernel::prefetch(items[*slot as usize].as_str().as_bytes());
        }
        for ((slot, item), hash) in slots.iter_mut().zip(wanted).zip(hashes) {
            if slot.is_some_and(|slot| items[slot as usize] != *item) {
                *slot = self.find(hash, item, items);
            }
        }
        slots
    }

    /// Size of the table on the heap, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.allocation_size()
    }
}
