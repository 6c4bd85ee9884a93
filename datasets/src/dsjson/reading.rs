//! The decisions of a log, one at a time.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{LINE_BYTES_MAX, Line, LoggedDecision};
use crate::DatasetError;
use crate::lines::Lines;

/// Lines that are no decisions to learn from, by the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Rewards whose decision is not in the log.
    pub dangling: u64,
    /// Decisions that are marked to be skipped, or were never activated.
    pub inactive: u64,
    /// Decisions without an action or a cost.
    pub unlabelled: u64,
    /// Other lines: blank ones are not counted.
    pub others: u64,
}

impl LeftOut {
    /// Counts a line that is left out; returns the decision of another one.
    pub fn or_decision(&mut self, line: Line) -> Option<LoggedDecision> {
        let counter = match line {
            Line::Decision(decision) if !decision.active => &mut self.inactive,
            Line::Decision(decision) if decision.choices.is_empty() => &mut self.unlabelled,
            Line::Decision(decision) => return Some(*decision),
            Line::DanglingReward => &mut self.dangling,
            Line::Nothing => &mut self.others,
        };
        *counter += 1;
        None
    }

    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for LeftOut {
    /// The counts that are not 0, with words.
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let counts = [
            (self.inactive, "decisions never activated or to be skipped"),
            (self.unlabelled, "decisions without a label"),
            (self.dangling, "rewards without a decision"),
            (self.others, "lines that are no objects"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let shown: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
        out.write_str(&shown.join(", "))
    }
}

/// Reads the decisions of the files of a log, in order. Lines that are none are counted.
pub struct Decisions {
    files: std::vec::IntoIter<PathBuf>,
    lines: Option<Lines>,
    left_out: LeftOut,
}

impl Decisions {
    /// Opens a log: a file, or a folder of files ([`super::files::of_log`]).
    ///
    /// # Errors
    /// [`DatasetError::Io`]; [`DatasetError::Empty`] for a folder without a log.
    pub fn open(path: &Path) -> Result<Self, DatasetError> {
        let files = super::files::of_log(path)?;
        if files.is_empty() {
            return Err(DatasetError::Empty { file: path.to_owned(), what: "files of dsjson" });
        }
        Ok(Self { files: files.into_iter(), lines: None, left_out: LeftOut::default() })
    }

    /// The lines that were left out so far.
    #[must_use]
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// The next decision that counts; `None` at the end.
    ///
    /// # Errors
    /// [`DatasetError::BadLine`], with the line; [`DatasetError::Io`].
    pub fn advance(&mut self) -> Result<Option<LoggedDecision>, DatasetError> {
        loop {
            if self.lines.is_none() {
                let Some(file) = self.files.next() else { return Ok(None) };
                self.lines = Some(Lines::open_with(&file, LINE_BYTES_MAX)?);
            }
            let Some(lines) = &mut self.lines else { return Ok(None) };
            if !lines.advance_to_text()? {
                self.lines = None;
                continue;
            }
            let bad = |problem| DatasetError::BadLine { file: lines.file().to_owned(), line: lines.number(), problem };
            let line = Line::parse(lines.current()).map_err(bad)?;
            if let Some(decision) = self.left_out.or_decision(line) {
                return Ok(Some(decision));
            }
        }
    }
}
