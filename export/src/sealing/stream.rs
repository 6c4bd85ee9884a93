//! Sealing one stream.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use celeris_formats::{ObservationRow, ObservationsWriter, sha256_of};
use celeris_model::{Partition, Record, RecordKind, Sequence, StreamName};
use celeris_storage::{LogRange, Storage, Watermark, observation_id};

use super::files::{self, draft_of, folder_name, segment_name};
use super::segments::{ROWS_MAX, Run, Sealed, Segment, joined};
use super::{Progress, SealingOptions, SealingStatus};
use crate::error::ExportError;

/// State of the sealer of one stream's folder.
pub(super) struct StreamSealer {
    storage: Storage,
    stream: StreamName,
    folder: PathBuf,
    /// The folder's watermark; `None` until it has been read.
    sealed: Option<Sealed>,
    /// Segments that differ from the watermark, to be rewritten.
    broken: BTreeSet<String>,
    last_attempt: Option<Instant>,
    last_failed: bool,
    caught_up: Instant,
    rewrites: u64,
    merges: u64,
    failures: u64,
}

/// Reason for an incomplete attempt.
enum Halt {
    /// The node is stopping.
    Stopped,
    Failed(ExportError),
}

impl<E: Into<ExportError>> From<E> for Halt {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A file under its draft name, removed on drop unless it was renamed.
struct DraftFile(PathBuf);

impl Drop for DraftFile {
    fn drop(&mut self) {
        // A file that cannot be removed now is removed when the folder is next opened.
        let _ = fs::remove_file(&self.0);
    }
}

/// A segment being written.
struct Draft {
    name: String,
    file: DraftFile,
    writer: ObservationsWriter,
    ranges: Vec<Run>,
}

impl Draft {
    fn push(&mut self, sequence: Sequence, record: &Record) -> Result<(), ExportError> {
        let observation_id = observation_id(sequence, record);
        Ok(self.writer.push(ObservationRow { sequence, observation_id: &observation_id, record })?)
    }

    fn is_full(&self) -> bool {
        self.writer.rows() >= ROWS_MAX
    }

    /// Finishes the segment and renames it; its directory entry is not yet durable. `None` if it
    /// has no rows.
    fn finish(self, folder: &Path) -> Result<Option<Segment>, ExportError> {
        let rows = self.writer.rows();
        self.writer.finish()?;
        if rows == 0 {
            return Ok(None);
        }
        let bytes = fs::metadata(&self.file.0).map_err(ExportError::io(&self.file.0))?.len();
        let sha256 = sha256_of(&self.file.0)?;
        files::publish(folder, &self.name)?;
        Ok(Some(Segment { file: self.name, sha256, rows, bytes, ranges: joined(self.ranges) }))
    }
}

impl StreamSealer {
    pub(super) fn new(storage: Storage, stream: StreamName, root: &Path, started: Instant) -> Self {
        Self {
            folder: root.join(folder_name(&stream)),
            storage,
            stream,
            sealed: None,
            broken: BTreeSet::new(),
            last_attempt: None,
            last_failed: false,
            caught_up: started,
            rewrites: 0,
            merges: 0,
            failures: 0,
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let segments = self.sealed.as_ref().map_or(&[][..], |sealed| sealed.segments.as_slice());
        let status = SealingStatus {
            segments: segments.len() as u64,
            rows: segments.iter().map(|segment| segment.rows).sum(),
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            rewrites: self.rewrites,
            merges: self.merges,
            failures: self.failures,
            ..SealingStatus::default()
        };
        let sealed_records = self.sealed.as_ref().map_or(0, Sealed::records);
        Progress { status, sealed_records, caught_up: self.caught_up }
    }

    pub(super) fn is_due(&self, options: SealingOptions) -> bool {
        let Some(last_attempt) = self.last_attempt else { return true };
        let waited = last_attempt.elapsed() >= options.interval;
        if self.last_failed || !self.broken.is_empty() {
            return waited;
        }
        let records = self.storage.log().watermark(&self.stream).records();
        let sealed = self.sealed.as_ref().map_or(0, Sealed::records);
        // A log that is shorter than the sealed part is another log.
        records != sealed && (waited || records.saturating_sub(sealed) >= options.records)
    }

    /// Removes everything sealed, after the stream was deleted.
    pub(super) fn remove_all(&mut self) {
        self.sealed = None;
        if let Err(error) = files::remove_all(&self.folder) {
            tracing::warn!(stream = %self.stream, %error, "cannot remove the sealed segments of a deleted stream");
        }
    }

    /// Seals the log up to its current end.
    pub(super) fn seal(&mut self, stopping: &AtomicBool) -> Result<(), ExportError> {
        let begun = Instant::now();
        self.last_attempt = Some(begun);
        let outcome = self.attempt(stopping);
        self.last_failed = matches!(outcome, Err(Halt::Failed(_)));
        match outcome {
            Ok(()) => self.caught_up = begun,
            Err(Halt::Stopped) => {}
            Err(Halt::Failed(error)) => {
                self.failures += 1;
                if !matches!(error, ExportError::NoRoomToSeal { .. }) {
                    // The watermark file may or may not have been replaced, so read it again.
                    self.sealed = None;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn attempt(&mut self, stopping: &AtomicBool) -> Result<(), Halt> {
        files::check_room(self.storage.dir())?;
        let target = self.storage.log().watermark(&self.stream);
        let sealed = match self.sealed.take() {
            Some(sealed) => sealed,
            None => self.open()?,
        };
        let sealed = self.of_this_log(sealed, &target)?;
        let dirty = self.broken.clone();
        let mut round = Round { sealer: self, sealed, dirty, stopping };
        let outcome = round.advance(&target).and_then(|()| round.merge());
        let sealed = round.sealed;
        self.sealed = Some(sealed);
        outcome
    }

    /// Reads the watermark, removes unlisted files, and finds damaged files.
    fn open(&mut self) -> Result<Sealed, ExportError> {
        files::create_folder(&self.folder)?;
        let sealed = files::read_watermark(&self.folder, &self.stream);
        let sealed = sealed.unwrap_or_else(|| Sealed::nothing(self.stream.clone()));
        files::remove_unlisted(&self.folder, |name| sealed.segments.iter().any(|segment| segment.file == name))?;
        self.broken.clear();
        for segment in &sealed.segments {
            let path = self.folder.join(&segment.file);
            if sha256_of(&path).is_ok_and(|sha256| sha256 == segment.sha256) {
                continue;
            }
            tracing::warn!(path = %path.display(), "the file differs from its checksum; it is rewritten from the log");
            self.broken.insert(segment.file.clone());
        }
        Ok(sealed)
    }

    /// Returns the sealed state if the log can be the one that it was sealed from, which a shorter
    /// log cannot; otherwise discards it.
    fn of_this_log(&mut self, sealed: Sealed, target: &Watermark) -> Result<Sealed, ExportError> {
        if Partition::all().all(|partition| sealed.mark(partition) <= target.get(partition)) {
            return Ok(sealed);
        }
        tracing::warn!(stream = %self.stream, "the log is shorter than its sealed segments; sealing the stream again");
        files::remove_all(&self.folder)?;
        files::create_folder(&self.folder)?;
        self.broken.clear();
        // Numbers are not reused, so that no reader mistakes a new file for an old one.
        Ok(Sealed { next_segment: sealed.next_segment, ..Sealed::nothing(self.stream.clone()) })
    }
}

/// An attempt in progress.
struct Round<'a> {
    sealer: &'a mut StreamSealer,
    sealed: Sealed,
    /// Files whose observations were amended since they were written.
    dirty: BTreeSet<String>,
    stopping: &'a AtomicBool,
}

impl Round<'_> {
    /// Seals new records up to `target`, and applies the amendments among them.
    fn advance(&mut self, target: &Watermark) -> Result<(), Halt> {
        if self.dirty.is_empty() && Partition::all().all(|p| self.sealed.mark(p) == target.get(p)) {
            return Ok(());
        }
        let mut marks = self.sealed.clone();
        let mut draft = self.draft()?;
        for partition in Partition::all() {
            while marks.mark(partition) < target.get(partition) {
                let run = Run { partition, after: marks.mark(partition), up_to: target.get(partition), rows: 0 };
                let before = draft.writer.rows();
                let up_to = self.append(&mut draft, run)?;
                draft.ranges.push(Run { up_to, rows: draft.writer.rows() - before, ..run });
                marks.set_mark(partition, up_to);
                if draft.is_full() {
                    let next = self.draft()?;
                    self.commit(std::mem::replace(&mut draft, next), &marks)?;
                }
            }
        }
        self.commit(draft, &marks)
    }

    fn draft(&mut self) -> Result<Draft, ExportError> {
        let name = segment_name(self.sealed.next_segment);
        self.sealed.next_segment += 1;
        let file = DraftFile(draft_of(&self.sealer.folder, &name));
        let writer = ObservationsWriter::create(&file.0)?;
        Ok(Draft { name, file, writer, ranges: Vec::new() })
    }

    /// Writes the effective observations of new records until the segment is full, and collects the
    /// sealed files that amendments among them change. Returns the last sequence processed.
    fn append(&mut self, draft: &mut Draft, run: Run) -> Result<Sequence, Halt> {
        let (sealed, dirty) = (&self.sealed, &mut self.dirty);
        let mut hidden = false;
        let up_to = walk(self.sealer, run, self.stopping, |sequence, record| {
            // An erasure may blank an amendment that was never sealed, and with it the information
            // which record it amended.
            hidden |= record.kind == RecordKind::Erase && record.targets.iter().any(|target| *target > run.after);
            for target in &record.targets {
                // Targets that are not sealed yet will be read in their amended form.
                if let Some(segment) = sealed.holding(run.partition, *target)
                    && !dirty.contains(&segment.file)
                {
                    dirty.insert(segment.file.clone());
                }
            }
            draft.push(sequence, &record)?;
            Ok(if draft.is_full() { ControlFlow::Break(sequence) } else { ControlFlow::Continue(()) })
        })?;
        if hidden {
            self.recount(run.partition)?;
        }
        Ok(up_to)
    }

    /// Finds the sealed files with rows of a partition that the log no longer contains.
    fn recount(&mut self, partition: Partition) -> Result<(), Halt> {
        for segment in &self.sealed.segments {
            if self.dirty.contains(&segment.file) {
                continue;
            }
            for run in segment.ranges.iter().filter(|run| run.partition == partition) {
                let mut rows = 0;
                walk(self.sealer, *run, self.stopping, |_, record| {
                    rows += u64::from(record.kind == RecordKind::Observe);
                    Ok(ControlFlow::Continue(()))
                })?;
                if rows != run.rows {
                    self.dirty.insert(segment.file.clone());
                }
            }
        }
        Ok(())
    }

    /// Commits a draft together with the rewritten dirty files, in one atomic step.
    fn commit(&mut self, draft: Draft, marks: &Sealed) -> Result<(), Halt> {
        let (dirty, mut segments): (Vec<Segment>, Vec<Segment>) =
            self.sealed.segments.clone().into_iter().partition(|segment| self.dirty.contains(&segment.file));
        for segment in &dirty {
            segments.extend(self.write_segment(segment.ranges.clone())?);
        }
        segments.extend(draft.finish(&self.sealer.folder)?);
        self.replace(Sealed { watermark: marks.watermark.clone(), segments, ..self.sealed.clone() }, &dirty)?;
        self.sealer.rewrites += dirty.len() as u64;
        self.dirty.clear();
        self.sealer.broken.clear();
        Ok(())
    }

    /// Merges small segments until there are few enough.
    fn merge(&mut self) -> Result<(), Halt> {
        loop {
            let merged: Vec<Segment> = self.sealed.to_merge().into_iter().cloned().collect();
            if merged.is_empty() {
                return Ok(());
            }
            let ranges = merged.iter().flat_map(|segment| &segment.ranges).copied().collect();
            let written = self.write_segment(joined(ranges))?;
            let mut next = self.sealed.clone();
            next.segments.retain(|segment| !merged.contains(segment));
            next.segments.extend(written);
            self.replace(next, &merged)?;
            self.sealer.merges += 1;
        }
    }

    /// Writes a segment of the current effective observations of these ranges; `None` if there are
    /// none.
    fn write_segment(&mut self, ranges: Vec<Run>) -> Result<Option<Segment>, Halt> {
        let mut draft = self.draft()?;
        for run in ranges {
            let before = draft.writer.rows();
            walk(self.sealer, run, self.stopping, |sequence, record| {
                draft.push(sequence, &record)?;
                Ok(ControlFlow::Continue(()))
            })?;
            draft.ranges.push(Run { rows: draft.writer.rows() - before, ..run });
        }
        Ok(draft.finish(&self.sealer.folder)?)
    }

    /// Commits `next` as the sealed state, then removes the files that it no longer lists.
    fn replace(&mut self, mut next: Sealed, old: &[Segment]) -> Result<(), ExportError> {
        let folder = &self.sealer.folder;
        next.sealed = SystemTime::now().into();
        files::write_watermark(folder, &next)?;
        self.sealed = next;
        for segment in old {
            let path = folder.join(&segment.file);
            match fs::remove_file(&path) {
                Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => {}
                other => other.map_err(ExportError::io(path))?,
            }
        }
        if old.is_empty() { Ok(()) } else { files::sync_dir(folder) }
    }
}

/// Visits the records of a run in log order until `visit` breaks, and returns the last sequence
/// visited.
fn walk(
    sealer: &StreamSealer,
    run: Run,
    stopping: &AtomicBool,
    mut visit: impl FnMut(Sequence, Record) -> Result<ControlFlow<Sequence>, ExportError>,
) -> Result<Sequence, Halt> {
    let range =
        LogRange { stream: sealer.stream.clone(), partition: run.partition, after: run.after, up_to: run.up_to };
    let outcome = sealer.storage.log().scan(&range, |sequence, record| {
        if stopping.load(Ordering::Relaxed) {
            return ControlFlow::Break(Err(Halt::Stopped));
        }
        match visit(sequence, record) {
            Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
            Ok(ControlFlow::Break(reached)) => ControlFlow::Break(Ok(reached)),
            Err(error) => ControlFlow::Break(Err(Halt::Failed(error))),
        }
    })?;
    match outcome {
        ControlFlow::Continue(()) => Ok(run.up_to),
        ControlFlow::Break(reached) => reached,
    }
}
