//! The numbers of one attribute by row, copied on write in chunks, so that readers keep their
//! snapshot.

use std::sync::Arc;

use crate::Row;
use crate::filter::Range;

/// Rows per chunk: copying one takes some microseconds. A multiple of 64.
const PIECE_ROWS: usize = 4096;

/// Numbers of consecutive rows; NaN if a row has none.
#[derive(Debug, Clone)]
struct Piece {
    values: [f64; PIECE_ROWS],
    /// Bounds of the numbers in the chunk. They are not tightened when numbers are removed.
    low: f64,
    high: f64,
}

/// One attribute's numbers. Chunks in which no row ever had a number are not allocated.
#[derive(Debug, Clone, Default)]
pub(super) struct Column {
    pieces: Vec<Option<Arc<Piece>>>,
}

impl Column {
    pub(super) fn set(&mut self, row: Row, number: f64) {
        let (at, within) = (row as usize / PIECE_ROWS, row as usize % PIECE_ROWS);
        if at >= self.pieces.len() {
            self.pieces.resize(at + 1, None);
        }
        let empty = || Piece { values: [f64::NAN; PIECE_ROWS], low: f64::INFINITY, high: f64::NEG_INFINITY };
        let piece = Arc::make_mut(self.pieces[at].get_or_insert_with(|| Arc::new(empty())));
        piece.values[within] = number;
        piece.low = piece.low.min(number);
        piece.high = piece.high.max(number);
    }

    pub(super) fn clear(&mut self, row: Row) {
        let (at, within) = (row as usize / PIECE_ROWS, row as usize % PIECE_ROWS);
        if let Some(Some(piece)) = self.pieces.get_mut(at)
            && !piece.values[within].is_nan()
        {
            Arc::make_mut(piece).values[within] = f64::NAN;
        }
    }

    /// Calls `visit` for every 64-row word with rows in `range`, with the bits of these rows.
    pub(super) fn matching(&self, range: Range, mut visit: impl FnMut(usize, u64)) {
        for (at, piece) in self.pieces.iter().enumerate() {
            let Some(piece) = piece else { continue };
            if piece.low > range.high || piece.high < range.low {
                continue;
            }
            for (word, values) in piece.values.chunks_exact(64).enumerate() {
                let bits = values.iter().rev().fold(0, |bits, value| bits << 1 | u64::from(range.contains(*value)));
                if bits != 0 {
                    visit(at * (PIECE_ROWS / 64) + word, bits);
                }
            }
        }
    }

    /// Number, minimum and maximum of the numbers; `None` if there are none.
    pub(super) fn extent(&self) -> Option<(usize, f64, f64)> {
        let numbers = self.pieces.iter().flatten().flat_map(|piece| &piece.values).filter(|value| !value.is_nan());
        let empty = (0, f64::INFINITY, f64::NEG_INFINITY);
        let extent = numbers.fold(empty, |(count, low, high), value| (count + 1, low.min(*value), high.max(*value)));
        (extent.0 > 0).then_some(extent)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.pieces) + self.pieces.iter().flatten().count() * size_of::<Piece>()
    }
}
