//! A set of rows as a bitmap.

use crate::Row;

/// The rows that a search may return.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CandidateSet {
    /// Bit `row % 64` of word `row / 64`.
    words: Vec<u64>,
    count: usize,
}

impl CandidateSet {
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Every row below `rows`.
    #[must_use]
    pub fn all(rows: usize) -> Self {
        let mut words = vec![u64::MAX; rows.div_ceil(64)];
        if let Some(last) = words.last_mut().filter(|_| !rows.is_multiple_of(64)) {
            *last = (1 << (rows % 64)) - 1;
        }
        Self { words, count: rows }
    }

    /// The rows with a bit in `words`: bit `row % 64` of word `row / 64`.
    #[must_use]
    pub fn of_words(words: Vec<u64>) -> Self {
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        Self { words, count }
    }

    /// Number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[must_use]
    pub fn contains(&self, row: Row) -> bool {
        self.words.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    pub fn insert(&mut self, row: Row) {
        let at = row as usize / 64;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        let bit = 1 << (row % 64);
        self.count += usize::from(self.words[at] & bit == 0);
        self.words[at] |= bit;
    }

    pub fn remove(&mut self, row: Row) {
        if self.contains(row) {
            self.words[row as usize / 64] &= !(1 << (row % 64));
            self.count -= 1;
        }
    }

    /// The rows, ascending.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let ones = |(at, word): (usize, &u64)| {
            let (mut word, base) = (*word, at * 64);
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Row::try_from(base + bit as usize).ok()
            })
        };
        self.words.iter().enumerate().flat_map(ones)
    }

    /// The bits: bit `row % 64` of word `row / 64`; rows beyond the last word are not in the set.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_once_and_returned_in_order() {
        let mut rows = CandidateSet::none();
        for row in [200, 3, 63, 64, 3, 200] {
            rows.insert(row);
        }
        rows.remove(64);
        rows.remove(64);
        rows.remove(10_000);
        assert_eq!(rows.rows().collect::<Vec<_>>(), [3, 63, 200]);
        assert_eq!(rows.count(), 3);
        assert!(!rows.contains(64) && !rows.contains(1_000_000));
    }

    #[test]
    fn all_has_exactly_the_rows_below_its_end() {
        for rows in [0, 1, 63, 64, 65, 130] {
            let all = CandidateSet::all(rows);
            assert_eq!((all.count(), all.rows().count()), (rows, rows), "{rows}");
        }
    }
}
