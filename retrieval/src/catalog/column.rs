//! The numbers of one attribute by row, copied on write in pieces, so that a reader keeps what it has begun with.

use std::sync::Arc;

use crate::Row;
use crate::filter::Range;

/// Rows of a piece: a copy of one takes some microseconds. A multiple of 64.
const PIECE_ROWS: usize = 4096;

/// Numbers of consecutive rows; "not a number" where a row has none.
#[derive(Debug, Clone)]
struct Piece {
    values: [f64; PIECE_ROWS],
    /// No number in it is below or above these. Numbers that are taken out leave them as they are.
    low: f64,
    high: f64,
}

/// One attribute's numbers. Pieces in which no row ever had one take no memory.
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

    /// Calls `visit` with every word of rows of which some are in `range`, and these rows' bits.
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

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.pieces) + self.pieces.iter().flatten().count() * size_of::<Piece>()
    }
}
