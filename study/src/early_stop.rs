//! Early stopping: which trials are not worth their end, and what their end would have been.
//!
//! The rule is that of the median (Golovin et al. 2017, Google Vizier, section 3.2.2): a trial is stopped
//! at an epoch if its lowest report so far is above the median of the reports of complete trials at that
//! epoch. It has no parameter but the number of trials to compare with, and assumes nothing of the form
//! of learning curves, of which trainings have few points.

use crate::trial::{Report, Trial, TrialState};

/// Complete trials with a report at the epoch, from which on others are stopped: the first ones tell
/// what losses are usual.
pub const COMPARED_MIN: usize = 4;

/// Whether the trial of these reports is to be stopped at the last of them.
pub(crate) fn is_hopeless(trials: &[Trial], reports: &[Report]) -> bool {
    let Some(last) = reports.last() else { return false };
    let others: Vec<f64> = complete(trials).filter_map(|trial| trial.reported_at(last.epoch)).collect();
    let lowest = reports.iter().map(|report| report.value).fold(f64::INFINITY, f64::min);
    others.len() >= COMPARED_MIN && median(others).is_some_and(|median| lowest > median)
}

/// The loss that a pruned trial might have ended with, for samplers: its last report, lowered as the
/// losses of complete trials were from that epoch on, in the median.
pub(crate) fn expected_loss(trials: &[Trial], pruned: &Trial) -> Option<f64> {
    let last = pruned.reports.last()?;
    let changes = complete(trials).filter_map(|trial| Some(trial.loss()? - trial.reported_at(last.epoch)?));
    Some(last.value + median(changes.collect()).unwrap_or(0.0))
}

fn complete(trials: &[Trial]) -> impl Iterator<Item = &Trial> {
    trials.iter().filter(|trial| trial.state == TrialState::Complete)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}
