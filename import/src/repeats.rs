//! Which rows of a file may occur more than once, found by a first reading in a memory that does not grow with the file.
//!
//! Two blocked Bloom filters (Putze, Sanders and Singler 2007): a content sets a few bits of one block of 512, so that a
//! look-up costs one access to memory. The first filter has the contents seen so far; a content that it knows already goes
//! to the second one, which alone is kept for the next reading. A content that occurs once and is taken for a repeated one costs an
//! entry among the counted ones, nothing else.

/// Bits of the first filter, at most: 64 MiB. A hundred million different rows have 5.4 bits each; some 3 % of them are then
/// taken for repeated ones.
const SEEN_BITS_MAX: u64 = 1 << 29;

/// Bits of the second filter, at most: 16 MiB.
const REPEATED_BITS_MAX: u64 = 1 << 27;

/// Bits of a filter, at least.
const BITS_MIN: u64 = 1 << 16;

/// Words of a block.
const BLOCK_WORDS: usize = 8;

/// Bits that a content sets. More would fill the filter of a large file sooner.
const BITS_A_CONTENT: u32 = 4;

/// Which contents may occur more than once.
#[derive(Debug, Clone)]
pub struct Repeats {
    /// Empty once the first reading is over.
    seen: Filter,
    repeated: Filter,
    /// How many contents the second filter has, roughly.
    contents: usize,
}

impl Repeats {
    /// For a file of this size.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        // A row takes 16 bytes or more, compressed about a fourth of that.
        let bits = bytes.saturating_mul(4);
        let (seen, repeated) = (Filter::new(bits.min(SEEN_BITS_MAX)), Filter::new((bits / 4).min(REPEATED_BITS_MAX)));
        Self { seen, repeated, contents: 0 }
    }

    /// Notes a content.
    pub fn note(&mut self, content: u128) {
        if self.seen.insert(content) && !self.repeated.insert(content) {
            self.contents += 1;
        }
    }

    /// Frees what only the first reading needs.
    #[must_use]
    pub fn complete(self) -> Self {
        Self { seen: Filter::new(0), ..self }
    }

    /// How many contents may have been noted more than once, roughly.
    #[must_use]
    pub fn contents(&self) -> usize {
        self.contents
    }

    /// Whether the content may have been noted more than once.
    #[must_use]
    pub fn possible(&self, content: u128) -> bool {
        self.repeated.contains(content)
    }
}

/// A set of contents that may say yes of a content that it has not.
#[derive(Debug, Clone)]
struct Filter {
    words: Vec<u64>,
}

impl Filter {
    fn new(bits: u64) -> Self {
        let words = bits.clamp(BITS_MIN, SEEN_BITS_MAX).next_power_of_two() / 64;
        // Zeroed pages of the system take no memory before they are used.
        Self { words: vec![0; usize::try_from(words).unwrap_or(usize::MAX)] }
    }

    /// Adds a content; returns whether the set may have had it.
    fn insert(&mut self, content: u128) -> bool {
        let (block, masks) = self.place(content);
        let words = &mut self.words[block..block + BLOCK_WORDS];
        let mut had = true;
        for (word, mask) in words.iter_mut().zip(masks) {
            had &= *word & mask == mask;
            *word |= mask;
        }
        had
    }

    fn contains(&self, content: u128) -> bool {
        let (block, masks) = self.place(content);
        self.words[block..block + BLOCK_WORDS].iter().zip(masks).all(|(word, mask)| word & mask == mask)
    }

    /// The first word of the content's block, and its bits there. The low half of the hash chooses the block, the high half the
    /// bits.
    #[expect(clippy::cast_possible_truncation, reason = "halves of the hash")]
    fn place(&self, content: u128) -> (usize, [u64; BLOCK_WORDS]) {
        let blocks = self.words.len() / BLOCK_WORDS;
        let block = (content as u64 % blocks as u64) as usize;
        let (mut bits, mut masks) = ((content >> 64) as u64, [0; BLOCK_WORDS]);
        for _ in 0..BITS_A_CONTENT {
            masks[(bits % BLOCK_WORDS as u64) as usize] |= 1 << ((bits >> 3) % 64);
            bits >>= 9;
        }
        (block * BLOCK_WORDS, masks)
    }
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_128;

    use super::*;

    fn content(number: u32) -> u128 {
        xxh3_128(&number.to_le_bytes())
    }

    #[test]
    fn every_repeated_content_is_found_and_few_others() {
        // 16 bytes a row, as short rows take.
        let rows = 100_000;
        let mut repeats = Repeats::new(u64::from(rows) * 16);
        (0..rows).for_each(|number| repeats.note(content(number)));
        (0..rows / 10).for_each(|number| repeats.note(content(number)));
        let repeats = repeats.complete();
        assert!((0..rows / 10).all(|number| repeats.possible(content(number))));
        let others = (rows / 10..rows).filter(|number| repeats.possible(content(*number))).count();
        assert!(others < 900, "{others} of 90000");
    }

    #[test]
    fn memory_does_not_grow_with_a_large_file() {
        let bytes = |repeats: &Repeats| (repeats.seen.words.len() + repeats.repeated.words.len()) * 8;
        let hundred_million = Repeats::new(100_000_000 * 40);
        assert_eq!(bytes(&hundred_million), 80 << 20);
        assert_eq!(bytes(&Repeats::new(u64::MAX)), 80 << 20);
        assert!(bytes(&hundred_million.complete()) < 17 << 20);
    }
}
