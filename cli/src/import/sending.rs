//! Sends the rows of checked files in batches.

use std::time::Duration;

use celeris_datasets::ItemInfo;
use celeris_import::check::{CheckedDescriptions, CheckedObservations};
use celeris_import::described::Content;
use celeris_import::error::{Fault, Place, PlaceUnit};
use celeris_import::{BadRow, DescribedRows, Input, Observations, Rules};
use serde_json::json;

use super::bad_rows::BadRowsFile;
use super::batch::{BATCH_LINES, Batch, Counts, Position, Resource};
use super::node::{Answer, Node, Still};
use super::patience::Patience;
use super::progress::Progress;
use super::report;
use super::resume::{Fingerprint, Reached, Resume, shown};
use crate::Failure;
use crate::node_client::{RETRY_AFTER, Unanswered};

/// Rows between two reports of the progress, while nothing is sent.
const PROGRESS_ROWS: u64 = 4096;

/// Sends rows, and keeps count.
pub struct Sending<'a> {
    pub(super) node: &'a Node,
    pub rules: &'a Rules,
    pub(super) bad_rows: Option<BadRowsFile>,
    pub(super) progress: &'a Progress,
    pub resume: Option<Resume>,
    /// How long a node that does not answer is waited for.
    wait: Duration,
    pub counts: Counts,
    /// The last line of the latest request that the node has.
    last_held: Option<String>,
    /// Rows that certainly went to the model that the import began with.
    confirmed: usize,
    /// Rows sent since the model was last seen to be the same.
    unconfirmed: usize,
}

/// Whether an input has the rows that were acknowledged before.
#[derive(PartialEq, Eq)]
enum Beginning {
    Same,
    Different,
}

impl<'a> Sending<'a> {
    pub fn new(node: &'a Node, rules: &'a Rules, progress: &'a Progress, wait: Duration) -> Self {
        let (bad_rows, resume, counts) = (None, None, Counts::default());
        let (last_held, confirmed, unconfirmed) = (None, 0, 0);
        Self { node, rules, bad_rows, progress, resume, wait, counts, last_held, confirmed, unconfirmed }
    }

    /// Bad rows go to this file. In a resumed import it goes on where it was.
    pub fn set_bad_rows(&mut self, mut file: BadRowsFile) -> Result<(), Failure> {
        if let Some(length) = self.resume.as_ref().and_then(Resume::bad_rows) {
            file.go_on_after(length)?;
        }
        self.bad_rows = Some(file);
        Ok(())
    }

    /// Sends the titles and genres beside a ratings file of MovieLens.
    pub fn titles(&mut self, input: &Input, titles: &[ItemInfo]) -> Result<(), Failure> {
        for chunk in titles.chunks(BATCH_LINES) {
            let mut batch = Batch::default();
            for title in chunk {
                let place = Place { file: format!("titles beside {}", input.shown()), number: 0, unit: PlaceUnit::Row };
                let line = json!({"item": title.id, "attributes": title.attributes()}).to_string();
                batch.push(line.as_bytes(), place, Vec::new());
            }
            self.send(&mut batch, Resource::Items)?;
        }
        Ok(())
    }

    /// Sends the attributes of the items of a file.
    pub fn items(&mut self, input: &Input, checked: &CheckedDescriptions, content: Content) -> Result<(), Failure> {
        self.progress.begin("describing", input);
        let mut rows = DescribedRows::open(input, self.rules, content)?;
        let mut batch = Batch::default();
        loop {
            match rows.advance(&checked.kinds) {
                Ok(None) => break,
                Ok(Some(row)) => {
                    let line = json!({"item": row.id, "attributes": row.attributes}).to_string();
                    let raw = if self.bad_rows.is_some() { rows.raw() } else { Vec::new() };
                    batch.push(line.as_bytes(), rows.place(), raw);
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

    /// Sends the observations of an input; without `checked`, it is read for the first time. Those that were acknowledged
    /// before are left out.
    pub fn observations(
        &mut self,
        input: &Input,
        checked: Option<&CheckedObservations>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<(), Failure> {
        let reached = self.resume.as_ref().and_then(|resume| resume.reached(input)).cloned();
        let before = (self.counts.before, self.counts.skipped, self.counts.left_out);
        if self.observations_after(input, checked, reached.as_ref(), fingerprint.clone())? == Beginning::Same {
            return Ok(());
        }
        let shown = input.shown();
        if input.is_stream() {
            return Err(Failure::bad_input(format!(
                "{shown}: does not begin with the rows that were imported before, or is imported with other options; delete the \
                 --resume file, and what was taken is not taken twice"
            )));
        }
        self.progress.say(&format!(
            "{shown}: does not begin with the rows that were imported before, or is imported with other options: it is sent from \
             its beginning"
        ));
        (self.counts.before, self.counts.skipped, self.counts.left_out) = before;
        if let (Some(resume), Some(reached)) = (&mut self.resume, reached) {
            resume.forget(input)?;
            if let Some(file) = &mut self.bad_rows {
                file.go_on_after(reached.bad_rows.0)?;
            }
        }
        self.observations_after(input, checked, None, fingerprint).map(drop)
    }

    fn observations_after(
        &mut self,
        input: &Input,
        checked: Option<&CheckedObservations>,
        reached: Option<&Reached>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Beginning, Failure> {
        self.progress.begin(if reached.is_some() { "resuming" } else { "sending" }, input);
        let mut rows = match checked {
            Some(checked) => {
                Observations::open_again(input, self.rules, checked.repeats.clone(), checked.context_kinds.clone())?
            }
            None => Observations::open(input, self.rules)?,
        };
        if checked.is_none() {
            self.progress.say(&format!("{}: {}", input.shown(), rows.mapping()));
        }
        let bad_rows_before = reached.map_or_else(|| self.bad_rows_length(), |reached| reached.bad_rows.0);
        let (mut batch, mut at) = (Batch::default(), Position::default());
        let mut reached_now = Reached::nothing(bad_rows_before);
        reached_now.last = reached.map(|reached| reached.last.clone()).unwrap_or_default();
        loop {
            let row = rows.advance();
            // The row was read and acknowledged before.
            let is_known = reached.is_some_and(|reached| at.rows < reached.rows);
            at.rows += 1;
            match row {
                Ok(None) => break,
                Ok(Some(taken)) => {
                    at.add(&taken)?;
                    self.counts.example_user.get_or_insert_with(|| taken.user.clone());
                    if is_known {
                        self.counts.before += 1;
                    } else {
                        self.counts.untimed += u64::from(taken.timestamp.is_none());
                        let raw = if self.bad_rows.is_some() { rows.raw() } else { Vec::new() };
                        batch.push(&at.line, rows.place(), raw);
                    }
                }
                Err(Fault::Row(_)) if is_known && self.bad_rows.is_some() => self.counts.skipped += 1,
                Err(fault) => {
                    // The rows before it are good, and are taken.
                    if self.bad_rows.is_none() || matches!(fault, Fault::File(_)) {
                        self.send(&mut batch, Resource::Observations)?;
                    }
                    self.set_aside(fault)?;
                }
            }
            if reached.is_some_and(|reached| is_known && at.rows == reached.rows && !at.is_that_of(reached)) {
                return Ok(Beginning::Different);
            }
            if batch.is_full() {
                self.send(&mut batch, Resource::Observations)?;
                self.acknowledged(input, &at, &mut reached_now)?;
            }
            if batch.places.is_empty() && at.rows.is_multiple_of(PROGRESS_ROWS)
                || at.rows.is_multiple_of(BATCH_LINES as u64)
            {
                self.progress.at(at.rows, rows.bytes_read());
            }
        }
        at.rows -= 1;
        if reached.is_some_and(|reached| at.rows < reached.rows) {
            return Ok(Beginning::Different);
        }
        self.send(&mut batch, Resource::Observations)?;
        self.counts.left_out += rows.left_out();
        (reached_now.complete, reached_now.fingerprint) = (true, fingerprint);
        self.acknowledged(input, &at, &mut reached_now)?;
        Ok(Beginning::Same)
    }

    fn bad_rows_length(&self) -> u64 {
        self.bad_rows.as_ref().map_or(0, BadRowsFile::length)
    }

    /// Notes that the node has all rows up to a position.
    fn acknowledged(&mut self, input: &Input, at: &Position, reached: &mut Reached) -> Result<(), Failure> {
        let bad_rows = self.bad_rows_length();
        let Some(resume) = &mut self.resume else { return Ok(()) };
        (reached.rows, reached.lines, reached.digest) = (at.rows, at.lines, shown(at.digest.value()));
        if let Some(line) = self.last_held.take() {
            reached.last = line;
        }
        reached.bad_rows.1 = bad_rows;
        resume.note(input, reached.clone())
    }

    /// Notes that a file without observations is complete.
    pub fn complete(&mut self, input: &Input, fingerprint: Option<Fingerprint>) -> Result<(), Failure> {
        let bad_rows = self.bad_rows_length();
        let Some(resume) = &mut self.resume else { return Ok(()) };
        resume.note(input, Reached { complete: true, fingerprint, ..Reached::nothing(bad_rows) })
    }

    /// Whether the node has the last line that it had acknowledged.
    pub fn has(&mut self, reached: &Reached) -> Result<bool, Failure> {
        if reached.last.is_empty() {
            return Ok(true);
        }
        let line = format!("{}\n", reached.last);
        let (mut has, mut taken) = (false, 0);
        let mut patience = self.patience();
        loop {
            let mut busy = None;
            let answered =
                self.node.post_lines(Resource::Observations.name(), line.as_bytes(), 1, |_, answer| match answer {
                    Answer::Taken { .. } => taken += 1,
                    Answer::Duplicate => has = true,
                    // It was there, and was deleted since, or it is there with another label.
                    Answer::Refused { is_known, .. } => has = is_known,
                    Answer::Unavailable(why) => busy = Some(why),
                });
            match (answered, busy) {
                (Ok(()), None) => break,
                (Ok(()), Some(why)) => patience.pause(&why, RETRY_AFTER)?,
                (Err(Unanswered::Away { why, after }), _) => patience.pause(&why, after)?,
                (Err(Unanswered::Refused(failure)), _) => return Err(failure),
            }
        }
        self.counts.taken += taken;
        Ok(has)
    }

    pub(super) fn patience(&self) -> Patience<'a> {
        Patience::new(self.node.client.url(), self.wait, self.progress)
    }

    /// Writes a bad row to the file for it, or fails.
    pub(super) fn set_aside(&mut self, fault: Fault) -> Result<(), Failure> {
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
        let mut patience = self.patience();
        while !open.is_empty() {
            let body: Vec<u8> = open.iter().flat_map(|line| lines[*line]).copied().collect();
            let (sent, mut refused, mut answered, mut busy) = (std::mem::take(&mut open), Vec::new(), 0, None);
            let (counts, mut held) = (&mut self.counts, None);
            let outcome = self.node.post_lines(resource.name(), &body, sent.len(), |index, answer| {
                answered = index + 1;
                match (answer, resource) {
                    (Answer::Taken { .. } | Answer::Duplicate, Resource::Items) => counts.described += 1,
                    (Answer::Taken { clipped }, Resource::Observations) => {
                        held = Some(sent[index]);
                        counts.taken += 1;
                        counts.clipped += u64::from(clipped);
                    }
                    (Answer::Duplicate, Resource::Observations) => {
                        held = Some(sent[index]);
                        counts.duplicates += 1;
                    }
                    (Answer::Unavailable(why), _) => {
                        open.push(sent[index]);
                        busy = Some(why);
                    }
                    (Answer::Refused { reason, .. }, _) => refused.push((sent[index], reason)),
                }
            });
            open.extend(&sent[answered..]);
            if let Some(line) = held.filter(|_| self.resume.is_some()) {
                self.last_held = Some(String::from_utf8_lossy(lines[line].trim_ascii_end()).into_owned());
            }
            if open.len() < sent.len() {
                patience.answered();
            }
            for (line, reason) in refused {
                self.counts.refused += 1;
                let (place, raw) = places[line].clone();
                let row = BadRow { place, reason: format!("the node refused the row: {reason}"), raw };
                if let Some(file) = &mut self.bad_rows {
                    file.write(&row)?;
                }
                first_refused.get_or_insert(row);
            }
            match (outcome, busy) {
                (Ok(()), None) => {}
                (Ok(()), Some(why)) => patience.pause(&why, RETRY_AFTER)?,
                (Err(Unanswered::Away { why, after }), _) => patience.pause(&why, after)?,
                (Err(Unanswered::Refused(failure)), _) => return Err(failure),
            }
        }
        self.progress.taken(self.counts.taken + self.counts.duplicates + self.counts.before);
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
        let mut patience = self.patience();
        let still = loop {
            match self.node.still() {
                Ok(still) => break still,
                Err(Unanswered::Away { why, after }) => patience.pause(&why, after)?,
                Err(Unanswered::Refused(failure)) => return Err(failure),
            }
        };
        let (what, where_to) = match still {
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
