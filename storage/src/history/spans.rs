//! Reads parts of a user's history, in bounded memory and time.

use std::ops::ControlFlow;

use celeris_model::{Partition, Record, Sequence, StreamName, UserEpoch, UserId};

use super::Histories;
use crate::database::{Access, Column, KeyRange};
use crate::error::StorageError;
use crate::layout::event::Entry;
use crate::layout::keys;
use crate::log::reading::{FETCH_RECORDS, read_at};

/// The events of one user in a range of epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistorySpan {
    /// Exclusive lower bound; 0 for all.
    pub after: UserEpoch,
    /// Inclusive upper bound.
    pub up_to: UserEpoch,
}

impl Histories<'_> {
    /// Visits the events of `span` that were not removed, in the order of their epochs; holds at
    /// most 1024 of them in memory.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn scan(
        &self,
        stream: &StreamName,
        user: &UserId,
        span: HistorySpan,
        mut visit: impl FnMut(Sequence, Record),
    ) -> Result<(), StorageError> {
        let mut after = span.after;
        while after < span.up_to {
            let page = self.page(stream, user, HistorySpan { after, ..span })?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = *last;
            let sequences: Vec<Sequence> = page.iter().map(|(_, sequence)| *sequence).collect();
            let records = read_at(self.database, stream, Partition::of(user), &sequences)?;
            records.into_iter().for_each(|(sequence, record)| visit(sequence, record));
        }
        Ok(())
    }

    /// At most `max` of a user's events up to epoch `up_to`, the latest first.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn latest(
        &self,
        stream: &StreamName,
        user: &UserId,
        up_to: UserEpoch,
        max: usize,
    ) -> Result<Vec<(Sequence, Record)>, StorageError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut sequences = Vec::with_capacity(max.min(FETCH_RECORDS));
        let prefix = keys::history_of(stream, user).len();
        let range = span_keys(stream, user, HistorySpan { after: UserEpoch(0), up_to });
        self.database.scan_back(Column::History, range, |key, value| {
            sequences.push(Entry::decode(key, prefix, value)?.sequence);
            Ok(if sequences.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        // Sequences of one user are in the order of epochs.
        sequences.reverse();
        let mut latest = read_at(self.database, stream, Partition::of(user), &sequences)?;
        latest.reverse();
        Ok(latest)
    }

    /// The first entries of a span, up to the batch size.
    fn page(
        &self,
        stream: &StreamName,
        user: &UserId,
        span: HistorySpan,
    ) -> Result<Vec<(UserEpoch, Sequence)>, StorageError> {
        let prefix = keys::history_of(stream, user).len();
        let range = span_keys(stream, user, span);
        let mut page = Vec::new();
        self.database.scan(Column::History, range, Access::Lookup, |key, value| {
            let entry = Entry::decode(key, prefix, value)?;
            page.push((entry.epoch, entry.sequence));
            Ok(if page.len() < FETCH_RECORDS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(page)
    }
}

fn span_keys(stream: &StreamName, user: &UserId, span: HistorySpan) -> KeyRange {
    let mut to = keys::history(stream, user, span.up_to);
    to.push(0);
    KeyRange { from: Vec::new(), to }.after(keys::history(stream, user, span.after))
}
