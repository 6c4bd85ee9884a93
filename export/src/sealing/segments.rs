//! The segments of a stream and the parts of its log that they cover: the contents of
//! `_watermark.json`.

use celeris_model::ids::PARTITIONS;
use celeris_model::{Partition, Sequence, StreamName, Timestamp};
use serde::{Deserialize, Serialize};

/// Version of the `_watermark.json` layout that this program reads and writes.
pub(super) const FORMAT: u32 = 1;

/// Number of rows at which a segment is closed; no merge produces a larger one.
pub(super) const ROWS_MAX: u64 = 1 << 20;

/// Number of segments of one tier that are merged; a tier is a power of this number, in rows.
pub(super) const MERGED: usize = 8;

/// Segments of this size and above are not merged, so that a merge stays below [`ROWS_MAX`].
const MERGEABLE_ROWS: u64 = ROWS_MAX / MERGED as u64;

/// A range of one partition: the sequences after `after`, up to and including `up_to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub(super) partition: Partition,
    pub(super) after: Sequence,
    pub(super) up_to: Sequence,
    /// Number of its records that are rows.
    pub(super) rows: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Segment {
    /// Name in the stream's folder.
    pub(super) file: String,
    /// SHA-256 in lower-case hexadecimal.
    pub(super) sha256: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// The parts of the log whose effective observations are the rows, in row order.
    pub(super) ranges: Vec<Run>,
}

/// The sealed part of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sealed {
    pub(super) format: u32,
    pub(super) stream: StreamName,
    /// Time of writing.
    pub(super) sealed: Timestamp,
    /// Last sealed sequence of each of the 64 partitions.
    pub(super) watermark: Vec<u64>,
    /// Number of the next segment; numbers are not reused.
    pub(super) next_segment: u64,
    pub(super) segments: Vec<Segment>,
}

impl Sealed {
    pub(super) fn nothing(stream: StreamName) -> Self {
        Self {
            format: FORMAT,
            stream,
            sealed: Timestamp(0),
            watermark: vec![0; usize::from(PARTITIONS)],
            next_segment: 1,
            segments: Vec::new(),
        }
    }

    pub(super) fn mark(&self, partition: Partition) -> Sequence {
        Sequence(self.watermark[usize::from(partition.index())])
    }

    pub(super) fn set_mark(&mut self, partition: Partition, sequence: Sequence) {
        self.watermark[usize::from(partition.index())] = sequence.0;
    }

    pub(super) fn records(&self) -> u64 {
        self.watermark.iter().sum()
    }

    /// The file that contains the record, if any.
    pub(super) fn holding(&self, partition: Partition, sequence: Sequence) -> Option<&Segment> {
        let within = |run: &Run| run.partition == partition && run.after < sequence && sequence <= run.up_to;
        self.segments.iter().find(|segment| segment.ranges.iter().any(within))
    }

    /// The segments to merge next, oldest first; empty if there are few enough.
    pub(super) fn to_merge(&self) -> Vec<&Segment> {
        let tier = |segment: &Segment| segment.rows.max(1).ilog(MERGED as u64);
        let small = || self.segments.iter().filter(|segment| segment.rows < MERGEABLE_ROWS);
        let full = (0..=MERGEABLE_ROWS.ilog(MERGED as u64))
            .rev()
            .find(|wanted| small().filter(|segment| tier(segment) == *wanted).count() >= MERGED);
        full.map_or_else(Vec::new, |full| small().filter(|segment| tier(segment) == full).take(MERGED).collect())
    }
}

/// Sorts the runs and joins adjacent ones.
pub(super) fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable();
    let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.partition == run.partition && last.up_to == run.after => {
                last.up_to = run.up_to;
                last.rows += run.rows;
            }
            _ => joined.push(run),
        }
    }
    joined
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn run(partition: u8, after: u64, up_to: u64) -> Run {
        let partition = Partition::from_index(partition).unwrap();
        Run { partition, after: Sequence(after), up_to: Sequence(up_to), rows: up_to - after }
    }

    fn segment(number: usize, rows: u64) -> Segment {
        let ranges = vec![run(0, number as u64 * 10, number as u64 * 10 + 10)];
        Segment { file: format!("s{number}"), sha256: String::new(), rows, bytes: 0, ranges }
    }

    #[test]
    fn adjacent_runs_are_joined_and_gaps_stay() {
        let runs = vec![run(1, 5, 9), run(0, 0, 4), run(1, 0, 5), run(0, 7, 8)];
        assert_eq!(joined(runs), [run(0, 0, 4), run(0, 7, 8), run(1, 0, 9)]);
    }

    #[test]
    fn the_number_of_files_stays_bounded_for_small_segments() {
        let mut sealed = Sealed::nothing(StreamName::new("films").unwrap());
        let (mut written, rounds, rows) = (0, 20_000, 300);
        for number in 0..rounds {
            sealed.segments.push(segment(number, rows));
            loop {
                let names: Vec<String> = sealed.to_merge().iter().map(|segment| segment.file.clone()).collect();
                if names.is_empty() {
                    break;
                }
                let merged = sealed.segments.iter().filter(|segment| names.contains(&segment.file));
                let merged =
                    Segment { file: format!("m{}", names[0]), ..segment(number, merged.map(|s| s.rows).sum()) };
                assert!(merged.rows <= ROWS_MAX);
                written += merged.rows;
                sealed.segments.retain(|segment| !names.contains(&segment.file));
                sealed.segments.push(merged);
            }
            let total = (number as u64 + 1) * rows;
            // At most seven of each of the six tiers, and those that are no longer merged.
            assert!(sealed.segments.len() as u64 <= 42 + total / MERGEABLE_ROWS, "{}", sealed.segments.len());
        }
        // Every row moves up one tier at a time, so it is rewritten no more often than there are
        // tiers.
        assert!(written <= 6 * rounds as u64 * rows, "{written} rows were written again");
    }
}
