//! The report of a policy on a log of decisions.

use std::fmt;

use celeris_datasets::dsjson::LeftOut;
use serde::Serialize;

use crate::ope::Estimated;
use crate::ope::report::table;
use celeris_api::schema::policy_evaluation::Span;

/// The report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoggedReport {
    /// `"ope"`.
    pub protocol: &'static str,
    /// The path of the log.
    pub dataset: String,
    /// The name of the evaluated policy.
    pub policy: String,
    /// Number of evaluated decisions.
    pub rounds: usize,
    /// Number of their slots.
    pub slots: usize,
    /// Number of earlier decisions, from whose rewards a named policy has learnt its scores.
    pub learnt_from: usize,
    /// Number of decisions with the event id of an earlier one; they count too.
    pub repeated_events: u64,
    /// Lines that do not count.
    pub left_out: LeftOutReport,
    /// The least and the greatest probability with which decisions were kept in the log, 1 minus `pdrop`. Each counts by
    /// the inverse.
    pub kept_probability: Kept,
    /// The reward of the logging policy on these decisions.
    pub logged: Span,
    #[serde(flatten)]
    pub estimated: Estimated,
    /// The values alone, without a check whether the log supports them: for a comparison with other programs.
    pub plain: Plain,
}

/// Values without intervals; null if undefined.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Plain {
    pub ips: Option<f64>,
    pub snips: Option<f64>,
    pub dm: Option<f64>,
    pub dr: Option<f64>,
    pub sndr: Option<f64>,
    pub switch_dr: Option<f64>,
}

/// Lines that do not count, by the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LeftOutReport {
    /// Decisions that are marked to be skipped, or were never activated.
    pub inactive: u64,
    /// Decisions without an action or a cost.
    pub unlabelled: u64,
    /// Rewards whose decision is not in the log.
    pub dangling: u64,
    /// Lines that are no objects.
    pub others: u64,
}

impl From<LeftOut> for LeftOutReport {
    fn from(LeftOut { dangling, inactive, unlabelled, others }: LeftOut) -> Self {
        Self { inactive, unlabelled, dangling, others }
    }
}

/// A range of probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Kept {
    pub least: f64,
    pub greatest: f64,
}

impl From<(f64, f64)> for Kept {
    fn from((least, greatest): (f64, f64)) -> Self {
        Self { least, greatest }
    }
}

impl fmt::Display for LoggedReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dataset, policy, rounds, slots, left_out, kept_probability: kept, .. } = self;
        write!(out, "{policy} on the log {dataset}: {rounds} decisions")?;
        writeln!(out, "{}", if slots == rounds { String::new() } else { format!(", {slots} slots") })?;
        let LeftOutReport { inactive, unlabelled, dangling, others } = *left_out;
        let left_out = LeftOut { dangling, inactive, unlabelled, others };
        if !left_out.is_none() {
            writeln!(out, "  left out: {left_out}")?;
        }
        if self.repeated_events > 0 {
            writeln!(out, "  {} decisions repeat the event id of an earlier one, and count too", self.repeated_events)?;
        }
        if kept.least < kept.greatest {
            let Kept { least, greatest } = kept;
            writeln!(
                out,
                "  decisions were kept with probabilities from {least} to {greatest}, and count by the inverse"
            )?;
        }
        if self.learnt_from > 0 {
            writeln!(out, "  scores learnt from the {} decisions before", self.learnt_from)?;
        }
        writeln!(out, "  the log itself earned    {}", self.logged)?;
        writeln!(out, "  mean weight {:.3}, largest {:.3}", self.estimated.mean_weight, self.estimated.largest_weight)?;
        write!(out, "{}", table(&self.estimated.estimators))
    }
}
