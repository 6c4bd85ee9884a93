//! Lines on their way to the node, and what becomes of them.

use celeris_import::Taken;
use celeris_import::error::Place;
use celeris_import::ids::Digest;

use super::resume::{Reached, shown};
use crate::Failure;

/// Lines of a request: many enough to amortise it, few enough that a node sends all answers without
/// waiting for a reader.
pub const BATCH_LINES: usize = 2000;

/// Bytes of a request, roughly.
const BATCH_BYTES: usize = 512 * 1024;

/// What happened to the rows so far.
#[derive(Debug, Default, Clone)]
pub struct Counts {
    /// Acknowledged to an earlier import, so that they were not sent again.
    pub before: u64,
    pub taken: u64,
    /// Taken by an earlier import.
    pub duplicates: u64,
    /// Not sent, because their kind of feedback is left out.
    pub left_out: u64,
    /// Users whose attributes were sent.
    pub users: u64,
    /// Rows that say nothing of their user.
    pub undescribed: u64,
    /// Not sent, because they are bad.
    pub skipped: u64,
    /// Sent, and refused by the node.
    pub refused: u64,
    /// Taken with a label of the model's range in place of their own.
    pub clipped: u64,
    /// Items whose attributes were sent.
    pub described: u64,
    /// Rows that describe their item differently from an earlier one.
    pub contradictions: u64,
    /// Observations without a time.
    pub untimed: u64,
    /// A user to ask for recommendations.
    pub example_user: Option<String>,
}

/// Lines that were read and not sent yet.
#[derive(Default)]
pub struct Batch {
    pub lines: Vec<u8>,
    /// The place of each line; with its row, if refused rows are set aside.
    pub places: Vec<(Place, Vec<u8>)>,
}

impl Batch {
    pub fn push(&mut self, line: &[u8], place: Place, raw: Vec<u8>) {
        self.lines.extend_from_slice(line);
        self.lines.push(b'\n');
        self.places.push((place, raw));
    }

    pub fn is_full(&self) -> bool {
        self.places.len() >= BATCH_LINES || self.lines.len() >= BATCH_BYTES
    }
}

/// How far the reading of an input is.
#[derive(Default)]
pub struct Position {
    /// Rows, bad ones too.
    pub rows: u64,
    /// Observations among them.
    pub lines: u64,
    pub digest: Digest,
    /// The last observation.
    pub line: Vec<u8>,
}

impl Position {
    pub fn add(&mut self, taken: &Taken) -> Result<(), Failure> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, taken).map_err(Failure::other)?;
        self.digest.add(&self.line);
        self.lines += 1;
        Ok(())
    }

    /// Whether the rows so far are those that were acknowledged.
    pub fn is_that_of(&self, reached: &Reached) -> bool {
        self.rows == reached.rows && self.lines == reached.lines && shown(self.digest.value()) == reached.digest
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Items,
    Observations,
}

impl Resource {
    pub fn name(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Observations => "observations",
        }
    }
}
