//! Sealing one model's decisions.
//!
//! Decisions are ordered by time and do not change once their propensities are known, so a file
//! covers a time range. Files with erased decisions are rewritten without them, files older than
//! the retention period are removed, and small neighbouring files are merged.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use celeris_formats::{DecisionsWriter, sha256_of};
use celeris_model::{DecisionId, ModelId, ModelName, Timestamp};
use celeris_storage::{DecisionRange, Storage};
use serde::{Deserialize, Serialize};

use super::files::{self, WATERMARK_FILE, draft_of, segment_name};
use crate::error::ExportError;

/// Version of the layout that this program reads and writes.
const FORMAT: u32 = 1;

/// Number of rows at which a segment is closed.
const ROWS_MAX: u64 = 1 << 18;

/// Number of neighbouring segments of one tier that are merged; a tier is a power of this number,
/// in rows.
const MERGED: usize = 8;

/// Segments of this size and above are not merged, so that a merge stays below [`ROWS_MAX`].
const MERGEABLE_ROWS: u64 = ROWS_MAX / MERGED as u64;

/// Minimum age of a decision to be sealed: values that are computed after the response are present
/// by then.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// One file: the decisions after `after` up to and including `up_to`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Segment {
    file: String,
    sha256: String,
    rows: u64,
    bytes: u64,
    after: Option<DecisionId>,
    up_to: DecisionId,
}

/// The sealed part of a model's decisions: the contents of `_watermark.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    format: u32,
    model: ModelName,
    /// The model's id: the folder of another model of the same name is sealed again.
    model_id: ModelId,
    /// Time of writing.
    sealed: Timestamp,
    /// The last sealed decision.
    up_to: Option<DecisionId>,
    /// Number of the model's decisions that had been erased with their users by then.
    erased: u64,
    /// Number of the next segment; numbers are not reused.
    next_segment: u64,
    /// Oldest first.
    segments: Vec<Segment>,
}

impl Sealed {
    fn nothing((model, model_id): (ModelName, ModelId)) -> Self {
        let (sealed, up_to, segments) = (Timestamp(0), None, Vec::new());
        Self { format: FORMAT, model, model_id, sealed, up_to, erased: 0, next_segment: 1, segments }
    }

    /// The first run of neighbours that should be merged.
    fn to_merge(&self) -> Option<usize> {
        let tier = |segment: &Segment| segment.rows.max(1).ilog(MERGED as u64);
        let small = |segment: &Segment| segment.rows < MERGEABLE_ROWS;
        let same = |run: &[Segment]| run.iter().all(|one| small(one) && tier(one) <= tier(&run[0]));
        self.segments.windows(MERGED).position(same)
    }
}

/// State of the sealer of one model's folder.
pub(super) struct DecisionSealer {
    storage: Storage,
    folder: PathBuf,
    sealed: Sealed,
    opened: bool,
    last_attempt: Option<Instant>,
}

impl DecisionSealer {
    pub(super) fn new(storage: Storage, (model, id): (&ModelName, ModelId), root: &Path) -> Self {
        let folder = root.join(files::model_folder_name(model));
        Self { storage, folder, sealed: Sealed::nothing((model.clone(), id)), opened: false, last_attempt: None }
    }

    pub(super) fn is_due(&self, interval: Duration) -> bool {
        self.last_attempt.is_none_or(|last| last.elapsed() >= interval)
    }

    /// Seals all settled decisions.
    pub(super) fn seal(&mut self, stopping: &AtomicBool) -> Result<(), ExportError> {
        self.last_attempt = Some(Instant::now());
        files::check_room(self.storage.dir())?;
        if !self.opened {
            self.open()?;
            self.opened = true;
        }
        let outcome = self.attempt(stopping);
        if outcome.is_err() {
            // The watermark file may or may not have been replaced, so read it again.
            self.opened = false;
        }
        outcome
    }

    /// Reads the watermark and removes unlisted files. Segments that differ from it are marked for
    /// rewriting.
    fn open(&mut self) -> Result<(), ExportError> {
        files::create_folder(&self.folder)?;
        let model = (self.sealed.model.clone(), self.sealed.model_id);
        let read = files::read_json::<Sealed>(&self.folder.join(WATERMARK_FILE));
        let read = read.filter(|sealed| sealed.format == FORMAT && sealed.model_id == model.1);
        let mut sealed = read.unwrap_or_else(|| Sealed::nothing(model));
        files::remove_unlisted(&self.folder, |name| sealed.segments.iter().any(|segment| segment.file == name))?;
        let whole = |segment: &Segment| {
            sha256_of(&self.folder.join(&segment.file)).is_ok_and(|sha256| sha256 == segment.sha256)
        };
        for number in 0..sealed.segments.len() {
            if !whole(&sealed.segments[number]) {
                tracing::warn!(file = sealed.segments[number].file, "sealed file differs; it is rewritten");
                // An impossible number of rows, so that the segment is found to differ and is
                // rewritten.
                sealed.segments[number].rows = u64::MAX;
                sealed.erased = u64::MAX;
            }
        }
        self.sealed = sealed;
        Ok(())
    }

    fn attempt(&mut self, stopping: &AtomicBool) -> Result<(), ExportError> {
        let now = Timestamp::from(SystemTime::now());
        self.drop_expired(now)?;
        self.rewrite_erased()?;
        while !stopping.load(Ordering::Acquire) && self.append(now)? {}
        while !stopping.load(Ordering::Acquire)
            && let Some(first) = self.sealed.to_merge()
        {
            self.merge(first)?;
        }
        Ok(())
    }

    /// Removes the files whose decisions are all older than the retention period.
    fn drop_expired(&mut self, now: Timestamp) -> Result<(), ExportError> {
        let kept = i64::try_from(self.storage.decisions().retention().as_millis()).unwrap_or(i64::MAX);
        let before = DecisionId::first_at(Timestamp(now.0.saturating_sub(kept)));
        let mut next = self.sealed.clone();
        next.segments.retain(|segment| segment.up_to >= before);
        self.replace(next)
    }

    /// Rewrites the files that contain erased decisions: those with more rows than there are
    /// decisions.
    fn rewrite_erased(&mut self) -> Result<(), ExportError> {
        // Read first, so that decisions erased meanwhile are found by the next attempt.
        let erased = self.storage.decisions().erased(self.sealed.model_id)?;
        if erased == self.sealed.erased {
            return Ok(());
        }
        let mut next = Sealed { erased, segments: Vec::new(), ..self.sealed.clone() };
        for segment in self.sealed.segments.clone() {
            let mut rows = 0;
            self.visit(segment.after.as_ref(), &segment.up_to, |_| {
                rows += 1;
                Ok(())
            })?;
            if rows == segment.rows {
                next.segments.push(segment);
            } else {
                next.segments.extend(self.write(&mut next.next_segment, segment.after.as_ref(), &segment.up_to)?);
            }
        }
        self.replace(next)
    }

    /// Seals the next settled decisions. Returns whether there may be more.
    fn append(&mut self, now: Timestamp) -> Result<bool, ExportError> {
        let settled = i64::try_from(SETTLED_AFTER.as_millis()).unwrap_or(i64::MAX);
        let range = DecisionRange {
            model: self.sealed.model_id,
            after: self.sealed.up_to.clone(),
            before: Timestamp(now.0 - settled),
        };
        let (mut rows, mut last) = (0, None);
        let _full_or_done = self.storage.decisions().scan_in(&range, |decision| {
            rows += 1;
            last = Some(decision.id);
            if rows < ROWS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let Some(last) = last else { return Ok(false) };
        let mut next = self.sealed.clone();
        next.segments.extend(self.write(&mut next.next_segment, range.after.as_ref(), &last)?);
        next.up_to = Some(last);
        self.replace(next)?;
        Ok(rows == ROWS_MAX)
    }

    fn merge(&mut self, first: usize) -> Result<(), ExportError> {
        let mut next = self.sealed.clone();
        let merged: Vec<Segment> = next.segments.drain(first..first + MERGED).collect();
        let after = merged[0].after.clone();
        let written = self.write(&mut next.next_segment, after.as_ref(), &merged[MERGED - 1].up_to)?;
        next.segments.splice(first..first, written);
        self.replace(next)
    }

    /// Visits the decisions after `after` up to and including `up_to`.
    fn visit(
        &self,
        after: Option<&DecisionId>,
        up_to: &DecisionId,
        mut visit: impl FnMut(&celeris_model::Decision) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let end = up_to.made_at().map_or(i64::MAX, |made| made.0.saturating_add(1));
        let range = DecisionRange { model: self.sealed.model_id, after: after.cloned(), before: Timestamp(end) };
        let outcome = self.storage.decisions().scan_in(&range, |decision| {
            if decision.id > *up_to {
                return ControlFlow::Break(Ok(()));
            }
            match visit(&decision) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(Err(error)),
            }
        })?;
        match outcome {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(result) => result,
        }
    }

    /// Writes a file of the current decisions of a range; `None` if there are none.
    fn write(
        &self,
        number: &mut u64,
        after: Option<&DecisionId>,
        up_to: &DecisionId,
    ) -> Result<Option<Segment>, ExportError> {
        let file = segment_name(*number);
        *number += 1;
        let draft = draft_of(&self.folder, &file);
        let mut writer = DecisionsWriter::create(&draft)?;
        self.visit(after, up_to, |decision| Ok(writer.push(decision)?))?;
        let rows = writer.rows();
        writer.finish()?;
        if rows == 0 {
            fs::remove_file(&draft).map_err(ExportError::io(&draft))?;
            return Ok(None);
        }
        let bytes = fs::metadata(&draft).map_err(ExportError::io(&draft))?.len();
        let sha256 = sha256_of(&draft)?;
        files::publish(&self.folder, &file)?;
        Ok(Some(Segment { file, sha256, rows, bytes, after: after.cloned(), up_to: up_to.clone() }))
    }

    /// Commits `next` as the sealed state, then removes the files that it does not list.
    fn replace(&mut self, mut next: Sealed) -> Result<(), ExportError> {
        if next == self.sealed {
            return Ok(());
        }
        next.sealed = SystemTime::now().into();
        files::write_watermark(&self.folder, &next)?;
        let before = std::mem::replace(&mut self.sealed, next);
        for old in before.segments {
            if self.sealed.segments.iter().all(|segment| segment.file != old.file) {
                let path = self.folder.join(&old.file);
                match fs::remove_file(&path) {
                    Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => {}
                    other => other.map_err(ExportError::io(path))?,
                }
            }
        }
        files::sync_dir(&self.folder)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn small_neighbours_are_merged() {
        let mut sealed = Sealed::nothing((ModelName::new("films").unwrap(), ModelId(1)));
        let id = |n: u64| DecisionId::first_at(Timestamp(n as i64));
        let (rounds, rows) = (3_000, 40);
        for n in 0..rounds {
            let segment = Segment {
                file: String::new(),
                sha256: String::new(),
                rows,
                bytes: 0,
                after: (n > 0).then(|| id(n - 1)),
                up_to: id(n),
            };
            sealed.segments.push(segment);
            while let Some(first) = sealed.to_merge() {
                let merged: Vec<Segment> = sealed.segments.drain(first..first + MERGED).collect();
                let rows = merged.iter().map(|segment| segment.rows).sum();
                assert!(rows <= ROWS_MAX);
                let last = merged[MERGED - 1].up_to.clone();
                sealed.segments.insert(first, Segment { rows, up_to: last, ..merged[0].clone() });
            }
            let total = (n + 1) * rows;
            assert!(sealed.segments.len() as u64 <= 42 + total / MERGEABLE_ROWS, "{}", sealed.segments.len());
        }
        assert_eq!(sealed.segments.iter().map(|segment| segment.rows).sum::<u64>(), rounds * rows);
        assert!(sealed.segments.windows(2).all(|pair| pair[1].after.as_ref() == Some(&pair[0].up_to)), "no gaps");
    }
}
