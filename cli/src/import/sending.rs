//! Sends the rows of checked files in batches.

use std::thread;

use celeris_datasets::ItemInfo;
use celeris_import::check::{CheckedItems, CheckedObservations};
use celeris_import::error::{Fault, Place, PlaceUnit};
use celeris_import::items::Content;
use celeris_import::{BadRow, Input, ItemRows, Observations, Rules};
use serde_json::json;

use super::bad_rows::BadRowsFile;
use super::node::{Answer, Node, Still};
use super::progress::Progress;
use super::report;
use crate::Failure;
use crate::node_client::{RETRY_AFTER, TRIES};

/// Lines of a request: many enough to amortise it, few enough that a node sends all answers without
/// waiting for a reader.
const BATCH_LINES: usize = 2000;

/// Bytes of a request, roughly.
const BATCH_BYTES: usize = 512 * 1024;

/// What happened to the rows so far.
#[derive(Debug, Default, Clone)]
pub struct Counts {
    pub taken: u64,
    /// Taken by an earlier import.
    pub duplicates: u64,
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

/// Sends rows, and keeps count.
pub struct Sending<'a> {
    node: &'a Node,
    rules: &'a Rules,
    bad_rows: Option<BadRowsFile>,
    progress: &'a Progress,
    pub counts: Counts,
    /// Rows that certainly went to the model that the import began with.
    confirmed: usize,
    /// Rows sent since the model was last seen to be the same.
    unconfirmed: usize,
}

/// Lines that were read and not sent yet.
#[derive(Default)]
struct Batch {
    lines: Vec<u8>,
    /// The place of each line; with its row, if refused rows are set aside.
    places: Vec<(Place, Vec<u8>)>,
}

impl Batch {
    fn push(&mut self, line: &impl serde::Serialize, place: Place, raw: Vec<u8>) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.lines, line).map_err(Failure::other)?;
        self.lines.push(b'\n');
        self.places.push((place, raw));
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.places.len() >= BATCH_LINES || self.lines.len() >= BATCH_BYTES
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Resource {
    Items,
    Observations,
}

impl Resource {
    fn name(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Observations => "observations",
        }
    }
}

impl<'a> Sending<'a> {
    pub fn new(node: &'a Node, rules: &'a Rules, bad_rows: Option<BadRowsFile>, progress: &'a Progress) -> Self {
        Self { node, rules, bad_rows, progress, counts: Counts::default(), confirmed: 0, unconfirmed: 0 }
    }

    /// Sends the titles and genres beside a ratings file of MovieLens.
    pub fn titles(&mut self, input: &Input, titles: &[ItemInfo]) -> Result<(), Failure> {
        for chunk in titles.chunks(BATCH_LINES) {
            let mut batch = Batch::default();
            for title in chunk {
                let place = Place { file: format!("titles beside {}", input.shown()), number: 0, unit: PlaceUnit::Row };
                batch.push(&json!({"item": title.id, "attributes": title.attributes()}), place, Vec::new())?;
            }
            self.send(&mut batch, Resource::Items)?;
        }
        Ok(())
    }

    /// Sends the attributes of the items of a file.
    pub fn items(&mut self, input: &Input, checked: &CheckedItems, content: Content) -> Result<(), Failure> {
        self.progress.begin("describing", input);
        let mut rows = ItemRows::open(input, self.rules)?;
        let mut batch = Batch::default();
        loop {
            match rows.advance(&checked.kinds) {
                Ok(None) => break,
                Ok(Some(row)) => {
                    let line = json!({"item": row.item, "attributes": row.attributes});
                    let raw = if self.bad_rows.is_some() { rows.raw() } else { Vec::new() };
                    batch.push(&line, rows.place(), raw)?;
                }
                // Its observations are read next, and set it aside.
                Err(Fault::Row(_)) if content == Content::Both => {}
                Err(fault) => self.set_aside(fault)?,
            }
            if batch.is_full() {
                self.send(&mut batch, Resource::Items)?;
                self.progress.at(self.counts.described, rows.bytes_read());
            }
        }
        self.send(&mut batch, Resource::Items)?;
        self.counts.contradictions += rows.contradictions();
        Ok(())
    }

    /// Sends the observations of an input; without `checked`, it is read for the first time.
    pub fn observations(&mut self, input: &Input, checked: Option<CheckedObservations>) -> Result<(), Failure> {
        self.progress.begin("sending", input);
        let first_reading = checked.is_none();
        let mut rows = match checked {
            Some(checked) => Observations::open_again(input, self.rules, checked.repeats, checked.context_kinds)?,
            None => Observations::open(input, self.rules)?,
        };
        if first_reading {
            self.progress.say(&format!("{}: {}", input.shown(), rows.mapping()));
        }
        let (mut batch, mut number) = (Batch::default(), 0);
        loop {
            let row = rows.advance();
            number += 1;
            match row {
                Ok(None) => break,
                Ok(Some(taken)) => {
                    self.counts.untimed += u64::from(taken.timestamp.is_none());
                    if self.counts.example_user.is_none() {
                        self.counts.example_user = Some(taken.user.clone());
                    }
                    let raw = if self.bad_rows.is_some() { rows.raw() } else { Vec::new() };
                    batch.push(&taken, rows.place(), raw)?;
                }
                Err(fault) => {
                    // The rows before it are good, and are taken.
                    if self.bad_rows.is_none() || matches!(fault, Fault::File(_)) {
                        self.send(&mut batch, Resource::Observations)?;
                    }
                    self.set_aside(fault)?;
                }
            }
            if batch.is_full() {
                self.send(&mut batch, Resource::Observations)?;
                self.progress.at(number, rows.bytes_read());
            }
        }
        self.send(&mut batch, Resource::Observations)
    }

    /// Writes a bad row to the file for it, or fails.
    fn set_aside(&mut self, fault: Fault) -> Result<(), Failure> {
        match (fault, &mut self.bad_rows) {
            (Fault::File(error), _) => Err(error.into()),
            (Fault::Row(row), None) => Err(report::first_bad(&row, 1)),
            (Fault::Row(row), Some(file)) => {
                self.counts.skipped += 1;
                Ok(file.write(&row)?)
            }
        }
    }

    /// Sends a batch, and empties it. All of its answers are read, also after a refusal, so that
    /// the counts are true. Lines that the node could not take now are sent again.
    fn send(&mut self, batch: &mut Batch, resource: Resource) -> Result<(), Failure> {
        if batch.places.is_empty() {
            return Ok(());
        }
        self.check_model()?;
        let Batch { lines, places } = std::mem::take(batch);
        self.unconfirmed = places.len();
        let lines: Vec<&[u8]> = lines.split_inclusive(|byte| *byte == b'\n').collect();
        let mut first_refused: Option<BadRow> = None;
        let mut open: Vec<usize> = (0..places.len()).collect();
        for tries_left in (0..TRIES).rev() {
            let body: Vec<u8> = open.iter().flat_map(|line| lines[*line]).copied().collect();
            let (sent, mut refused) = (std::mem::take(&mut open), Vec::new());
            let counts = &mut self.counts;
            self.node.post_lines(resource.name(), &body, sent.len(), |index, answer| match (answer, resource) {
                (Answer::Taken { .. } | Answer::Duplicate, Resource::Items) => counts.described += 1,
                (Answer::Taken { clipped }, Resource::Observations) => {
                    counts.taken += 1;
                    counts.clipped += u64::from(clipped);
                }
                (Answer::Duplicate, Resource::Observations) => counts.duplicates += 1,
                (Answer::Unavailable(_), _) if tries_left > 0 => open.push(sent[index]),
                (Answer::Refused(reason) | Answer::Unavailable(reason), _) => refused.push((sent[index], reason)),
            })?;
            for (line, reason) in refused {
                self.counts.refused += 1;
                let (place, raw) = places[line].clone();
                let row = BadRow { place, reason: format!("the node refused the row: {reason}"), raw };
                if let Some(file) = &mut self.bad_rows {
                    file.write(&row)?;
                }
                first_refused.get_or_insert(row);
            }
            if open.is_empty() {
                break;
            }
            thread::sleep(RETRY_AFTER);
        }
        self.progress.taken(self.counts.taken + self.counts.duplicates);
        match first_refused {
            Some(row) if self.bad_rows.is_none() => Err(report::first_bad(&row, 1)),
            _ => Ok(()),
        }
    }

    /// Checks that the model which received the last batch is the one that the import began with.
    ///
    /// # Errors
    /// With how many rows went where, if it was deleted.
    pub fn check_model(&mut self) -> Result<(), Failure> {
        let (what, where_to) = match self.node.still()? {
            Still::Same => {
                self.confirmed += std::mem::take(&mut self.unconfirmed);
                return Ok(());
            }
            Still::Deleted => ("was deleted", "may be lost with it"),
            Still::CreatedAgain => ("was deleted and created again", "went to it or to the new one"),
        };
        let (model, confirmed, last) = (&self.node.model, self.confirmed, self.unconfirmed);
        Err(Failure::bad_input(format!(
            "the model {model} {what} during the import: {confirmed} rows went to the former model, the {last} rows after \
             them {where_to}, and no more were sent"
        )))
    }
}
