//! Which parts of a stream's log lie in which file: the contents of `_watermark.json`.

use celeris_model::ids::PARTITIONS;
use celeris_model::{Partition, Sequence, StreamName, Timestamp};
use serde::{Deserialize, Serialize};

/// The layout of `_watermark.json` that this program writes and reads.
pub(super) const FORMAT: u32 = 1;

/// A segment is closed at so many rows, and no merge makes a larger one.
pub(super) const ROWS_MAX: u64 = 1 << 20;

/// So many segments of one tier are merged into one; a tier is a power of it in rows.
pub(super) const MERGED: usize = 8;

/// Segments of this size and above are left alone, so that a merge stays below [`ROWS_MAX`].
const MERGEABLE_ROWS: u64 = ROWS_MAX / MERGED as u64;

/// A run of one partition: the sequences above `after`, up to and including `up_to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub(super) partition: Partition,
    pub(super) after: Sequence,
    pub(super) up_to: Sequence,
    /// How many of its records are rows.
    pub(super) rows: u64,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Segment {
    /// Its name in the stream's folder.
    pub(super) file: String,
    /// SHA-256 in lower-case hexadecimal.
    pub(super) sha256: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// The parts of the log whose effective observations are its rows, in their order.
    pub(super) ranges: Vec<Run>,
}

/// What of a stream is sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sealed {
    pub(super) format: u32,
    pub(super) stream: StreamName,
    /// When this was written.
    pub(super) sealed: Timestamp,
    /// How far each partition is sealed: 64 sequences.
    pub(super) watermark: Vec<u64>,
    /// The number of the next segment; numbers are not used again.
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

    /// The file that the record is in, if there is one.
    pub(super) fn holding(&self, partition: Partition, sequence: Sequence) -> Option<&Segment> {
        let within = |run: &Run| run.partition == partition && run.after < sequence && sequence <= run.up_to;
        self.segments.iter().find(|segment| segment.ranges.iter().any(within))
    }

    /// The files that a merge would make one of, oldest first; none where they are few enough.
    pub(super) fn to_merge(&self) -> Vec<&Segment> {
        let tier = |segment: &Segment| segment.rows.max(1).ilog(MERGED as u64);
        let small = || self.segments.iter().filter(|segment| segment.rows < MERGEABLE_ROWS);
        let full = (0..=MERGEABLE_ROWS.ilog(MERGED as u64))
            .rev()
            .find(|wanted| small().filter(|segment| tier(segment) == *wanted).count() >= MERGED);
        full.map_or_else(Vec::new, |full| small().filter(|segment| tier(segment) == full).take(MERGED).collect())
    }
}

/// The same parts of the log in order, runs that meet made one.
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
    fn runs_that_meet_are_joined_and_gaps_stay() {
        let runs = vec![run(1, 5, 9), run(0, 0, 4), run(1, 0, 5), run(0, 7, 8)];
        assert_eq!(joined(runs), [run(0, 0, 4), run(0, 7, 8), run(1, 0, 9)]);
    }

    #[test]
    fn the_number_of_files_stays_bounded_however_small_the_seals() {
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
            // Seven at most of each of the six tiers, and those that are not merged any more.
            assert!(sealed.segments.len() as u64 <= 42 + total / MERGEABLE_ROWS, "{}", sealed.segments.len());
        }
        // Every row goes up a tier at a time, so it is written again no more often than there are tiers.
        assert!(written <= 6 * rounds as u64 * rows, "{written} rows were written again");
    }
}
