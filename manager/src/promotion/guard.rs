//! The guard after a switch of versions: the previous version keeps predicting in shadow mode, and
//! the model rolls back automatically if the new version is worse on live traffic.
//!
//! Both versions predict the same observations from the state that each would have had, so a drift
//! of tastes, which affects both, does not cause a rollback. The shadow predictions run outside the
//! request path, on a dedicated thread with a bounded queue; samples that do not fit are left out
//! of the comparison. The shadow mode before a switch (`shadow.rs`) works likewise with the roles
//! exchanged.
//!
//! In a cluster the node that leads runs the guard, on the users that it owns: a share that is drawn
//! by a hash, so the comparison is unbiased, and each check sees fewer observations.
//!
//! Models of implicit feedback are not compared on live traffic: all of their observations are items
//! that were taken, and of two versions the one that predicts 1 for every item would look better.
//! Their gate ranks taken items among others instead.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use celeris_model::{Loss, ModelName, Timestamp, VersionId};
use celeris_predictor::{ServingVersion, ShadowSample};
use celeris_storage::RegistryBatch;

use super::Promotion;
use super::shadow::{LiveComparison, WAITING_MAX, next};
use crate::comparison::{Comparison, Paired};
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::metric::Metric;
use crate::registry::{Actor, Guarding, ModelRecord, model_key};
use crate::settings::GuardConfig;
use crate::settings::guard::OBSERVATIONS_MIN;

/// Before the end of a guard, fewer observations than this decide nothing: repeated tests on few
/// observations have many false positives.
const EARLY_OBSERVATIONS_MIN: u64 = 50;

/// Number of observations between two checks of the comparison.
const LOOK_EVERY: u64 = 10;

/// Number of standard errors by which a version must miss the margin to be rolled back: the
/// comparison is checked many times, and each check may be a false positive.
const ERRORS_BEYOND: f64 = 3.0;

/// The guard of a switch of this model to `version`, if one is configured.
pub(super) fn begin_guard(record: &ModelRecord, version: VersionId) -> Option<Guarding> {
    let GuardConfig { observations, seconds, .. } = record.config.guard;
    let wanted =
        Promotion::compares_live(record.config.loss) && observations > 0 && seconds > 0 && record.active != version;
    wanted.then(|| Guarding { against: record.active, since: SystemTime::now().into() })
}

/// Remaining time of a guard.
fn remaining(guarding: &Guarding, config: &GuardConfig) -> Duration {
    let now = Timestamp::from(SystemTime::now());
    let passed = u64::try_from(now.0.saturating_sub(guarding.since.0)).unwrap_or(0);
    Duration::from_secs(config.seconds).saturating_sub(Duration::from_millis(passed))
}

/// Current figures of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GuardStatus {
    /// The active version is the candidate, the previous one the incumbent; `None` before the first
    /// observation.
    pub comparison: Option<Comparison>,
}

/// A guard in progress.
pub(super) struct Guarded {
    pub(super) status: GuardStatus,
    model: ModelName,
    /// The version that is compared with the active one.
    other: VersionId,
}

/// Outcome of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The time or the number of observations is reached.
    Over,
    Worse,
    /// The comparison is no longer needed.
    Unwanted,
}

impl Promotion {
    /// Whether live observations tell which of two versions is better.
    pub(crate) fn compares_live(loss: Loss) -> bool {
        loss != Loss::Implicit
    }

    /// Starts the guard of the record, if any, on a dedicated thread. It stops when the term is over.
    pub(crate) fn guard(self: &Arc<Self>, record: &ModelRecord, term: &Term) {
        let Some(guarding) = record.guarding.clone() else { return };
        let model = record.config.name.clone();
        let other = match self.registry.load(record, guarding.against) {
            Ok(other) => other,
            Err(error) => {
                tracing::warn!(%model, %error, "cannot read the previous version, so the new one is not guarded");
                return;
            }
        };
        // A guard of an earlier term does not stop this one's comparison, see `stop_guards`.
        let mut guards = self.guards.lock();
        if term.is_over() {
            return;
        }
        let queue = match self.predictor.models().start_shadow(&model, other.id, WAITING_MAX) {
            Ok(queue) => queue,
            Err(error) => {
                tracing::warn!(%model, %error, "cannot guard the version");
                return;
            }
        };
        guards.insert(record.id, Guarded { status: GuardStatus::default(), model: model.clone(), other: other.id });
        drop(guards);
        let guard =
            Guard { promotion: Arc::downgrade(self), record: record.clone(), guarding, other, term: term.clone() };
        let thread = std::thread::Builder::new().name("celeris-guard".to_owned());
        if let Err(error) = thread.spawn(move || guard.run(&queue)) {
            tracing::warn!(%model, %error, "cannot start a thread, so the version is not guarded");
        }
    }

    /// Stops the comparisons of all guards, whose term is over. The registry still names the guards,
    /// and the next node that leads continues them.
    pub(crate) fn stop_guards(&self) {
        let mut guards = self.guards.lock();
        for (model, Guarded { model: name, other, .. }) in guards.drain() {
            self.predictor.models().stop_shadow((&name, model), other);
        }
    }

    /// Whether the guarded version is still active and under this guard.
    fn is_guarded(&self, guarded: &ModelRecord) -> bool {
        let record = self.registry.current(guarded);
        record.is_ok_and(|record| record.active == guarded.active && record.guarding == guarded.guarding)
    }

    fn record_metrics(&self, record: &ModelRecord, comparison: Comparison) {
        if let Some(guarded) = self.guards.lock().get_mut(&record.id) {
            guarded.status.comparison = Some(comparison);
        }
        let name = record.config.name.to_string();
        let of = |which: &'static str| metrics::gauge!("celeris_guard_loss", "model" => name.clone(), "of" => which);
        of("active").set(comparison.candidate.unwrap_or(f64::NAN));
        of("before").set(comparison.incumbent.unwrap_or(f64::NAN));
    }

    /// Ends the guard and keeps the version.
    fn end_guard(&self, guarded: &ModelRecord, term: &Term) -> Result<(), ManagerError> {
        let _changing = self.registry.lock_changes_in(term)?;
        let mut record = self.registry.current(guarded)?;
        if record.active == guarded.active && record.guarding == guarded.guarding {
            record.guarding = None;
            let mut batch = RegistryBatch::new();
            batch.put(model_key(&record.config.name)?, &record)?;
            self.storage.registry().commit(&batch)?;
        }
        Ok(())
    }
}

struct Guard {
    /// Weak, so that a stopping node does not wait for its guards.
    promotion: Weak<Promotion>,
    record: ModelRecord,
    guarding: Guarding,
    other: ServingVersion,
    term: Term,
}

impl Guard {
    fn run(self, queue: &Receiver<ShadowSample>) {
        let model = self.record.config.name.clone();
        let mut paired = Paired::default();
        let outcome = self.follow(queue, &mut paired);
        let Some(promotion) = self.promotion.upgrade() else { return };
        {
            let _guards = promotion.guards.lock();
            if self.term.is_over() {
                return;
            }
            promotion.predictor.models().stop_shadow(self.record.identity(), self.other.id);
        }
        let comparison = paired.comparison(Metric::of(self.record.config.loss));
        let done = match outcome {
            Ok(Outcome::Worse) => self.go_back(&promotion, comparison),
            Ok(Outcome::Over) => {
                tracing::info!(%model, version = %self.record.active, ?comparison, "the guard ended; the version stays");
                promotion
                    .end_guard(&self.record, &self.term)
                    .map(|()| promotion.predictor.activation().release(self.record.identity(), &[self.record.active]))
            }
            Ok(Outcome::Unwanted) => Ok(()),
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => {}
            Err(error) if error.is_of_other_node() => {
                tracing::info!(%model, %error, "the guard goes on at the node that leads");
            }
            Err(error) => {
                tracing::error!(%model, version = %self.record.active, %error, "the guard after the switch failed");
            }
        }
        // Another guard of the model may have started.
        if !promotion.registry.current(&self.record).is_ok_and(|record| record.guarding.is_some()) {
            promotion.guards.lock().remove(&self.record.id);
        }
    }

    fn follow(&self, queue: &Receiver<ShadowSample>, paired: &mut Paired) -> Result<Outcome, ManagerError> {
        let GuardConfig { observations, .. } = self.record.config.guard;
        let deadline = Instant::now() + remaining(&self.guarding, &self.record.config.guard);
        loop {
            let Ok(next) = next(queue) else { return Ok(Outcome::Unwanted) };
            let Some(promotion) = self.promotion.upgrade() else { return Ok(Outcome::Unwanted) };
            if self.term.is_over() {
                return Ok(Outcome::Unwanted);
            }
            if Instant::now() >= deadline || paired.observations() >= observations {
                return Ok(self.verdict(paired, OBSERVATIONS_MIN).unwrap_or(Outcome::Over));
            }
            let Some(sample) = next else {
                if promotion.is_guarded(&self.record) {
                    continue;
                }
                return Ok(Outcome::Unwanted);
            };
            let mut live = LiveComparison {
                predictor: &promotion.predictor,
                loss: self.record.config.loss,
                other: &self.other,
                active: self.record.active,
                other_is_candidate: false,
                paired: std::mem::take(paired),
            };
            let added = live.add(&sample);
            *paired = live.paired;
            added?;
            if paired.observations().is_multiple_of(LOOK_EVERY) {
                if let Some(comparison) = paired.comparison(Metric::of(self.record.config.loss)) {
                    promotion.record_metrics(&self.record, comparison);
                }
                if let Some(worse) = self.verdict(paired, EARLY_OBSERVATIONS_MIN) {
                    return Ok(worse);
                }
            }
        }
    }

    /// Returns `Worse` if at least `observations_min` observations show that the new version misses
    /// the margin.
    fn verdict(&self, paired: &Paired, observations_min: u64) -> Option<Outcome> {
        let config = &self.record.config;
        verdict(paired.comparison(Metric::of(config.loss))?, config.guard.margin, observations_min)
    }

    fn go_back(&self, promotion: &Promotion, comparison: Option<Comparison>) -> Result<(), ManagerError> {
        let Some(comparison) = comparison else { return Ok(()) };
        let figures = comparison.describe(self.guarding.against, "live traffic", self.record.config.guard.margin);
        let why = format!("the live loss of version {} was {figures}", self.record.active);
        tracing::warn!(model = %self.record.config.name, version = %self.record.active, %why, "the guard rolls back");
        let from = Some((&self.record, &self.term));
        promotion.roll_back_from(&self.record.config.name, from, (Actor::Guard, why)).map(drop)
    }
}

fn verdict(comparison: Comparison, margin: f64, observations_min: u64) -> Option<Outcome> {
    // The version must miss the margin even after subtracting the error.
    let worse = comparison.observations >= observations_min && comparison.misses(-margin, ERRORS_BEYOND);
    worse.then_some(Outcome::Worse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::guard::OBSERVATIONS_MAX;

    /// Observations on which the new version is off by about 2 and the previous one by about 1.
    fn much_worse(observations: u64) -> Comparison {
        let mut paired = Paired::default();
        (0..observations).for_each(|index| paired.add([(4.0 + (index % 3) as f64 / 2.0, 1.0)]));
        paired.comparison(Metric::Rmse).expect("there are observations")
    }

    #[test]
    fn every_configurable_guard_can_roll_back() {
        for observations in [0, 10, 30, 49, 50, 1000, OBSERVATIONS_MAX] {
            let guard = GuardConfig { observations, ..GuardConfig::default() };
            assert!(guard.check().is_ok(), "{observations}");
            if observations > 0 {
                let at_the_end = verdict(much_worse(observations.min(1000)), guard.margin, OBSERVATIONS_MIN);
                assert_eq!(at_the_end, Some(Outcome::Worse), "{observations}");
            }
        }
        for observations in [1, 9, OBSERVATIONS_MAX + 1] {
            let refused = GuardConfig { observations, ..GuardConfig::default() }.check();
            let named = matches!(refused, Err(ManagerError::Setting { setting: "guard.observations", .. }));
            assert!(named, "{observations}");
        }
        let forever = GuardConfig { seconds: u64::MAX, ..GuardConfig::default() }.check();
        assert!(matches!(forever, Err(ManagerError::Setting { setting: "guard.seconds", .. })));
        assert_eq!(verdict(much_worse(40), 0.05, EARLY_OBSERVATIONS_MIN), None, "early checks need more observations");
    }
}
