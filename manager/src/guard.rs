//! The guard after a switch of versions: the previous version keeps predicting in shadow mode, and the model rolls back
//! automatically if the new version is worse on live traffic.
//!
//! Both versions predict the same observations from the state that each would have had, so a drift of tastes, which
//! affects both, does not cause a rollback. The shadow predictions run outside the request path, on a dedicated thread
//! with a bounded queue; samples that do not fit are left out of the comparison. The shadow mode before a switch works
//! likewise with the roles exchanged.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use celeris_model::{Loss, ModelId, Timestamp, VersionId};
use celeris_predictor::{Predictor, ServingVersion, ShadowSample};
use celeris_storage::RegistryBatch;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::comparison::{Comparison, Paired};
use crate::error::ManagerError;
use crate::events::Actor;
use crate::jobs::JobId;
use crate::manager::Manager;
use crate::quality::Metric;
use crate::records::{ModelRecord, VersionRecord, model_key, version_key};

/// Capacity of the queue of shadow samples.
const WAITING_MAX: usize = 8192;

/// Before the end of a guard, fewer observations than this decide nothing: repeated tests on few observations have many
/// false positives.
const EARLY_OBSERVATIONS_MIN: u64 = 50;

/// At the end of a guard, fewer observations than this decide nothing; also the shortest guard that can be configured.
const OBSERVATIONS_MIN: u64 = 10;

/// Longest guard in observations; the comparison holds and repeatedly evaluates all of them.
const OBSERVATIONS_MAX: u64 = 100_000;

/// Longest guard in seconds: a year.
const SECONDS_MAX: u64 = 365 * 24 * 3600;

/// Number of observations between two checks of the comparison.
const LOOK_EVERY: u64 = 10;

/// Number of standard errors by which a version must miss the margin to be rolled back: the comparison is checked many
/// times, and each check may be a false positive.
const ERRORS_BEYOND: f64 = 3.0;

/// Time that the thread waits for a sample before it checks whether the guard is still needed.
const PATIENCE: Duration = Duration::from_millis(250);

/// Settings of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardConfig {
    /// Observations after which the guard ends, from 10 to 100,000; 0 disables the guard.
    pub observations: u64,
    /// Seconds after which the guard ends at the latest, at most a year; 0 disables the guard.
    pub seconds: u64,
    /// Share of the previous version's loss by which the new version may be worse.
    pub margin: f64,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self { observations: 1000, seconds: 3600, margin: 0.05 }
    }
}

impl GuardConfig {
    /// Checks that all values are in range.
    ///
    /// # Errors
    /// `Setting` with the name of the field.
    pub fn check(&self) -> Result<(), ManagerError> {
        let wrong = |setting, range, received| Err(ManagerError::Setting { setting, range, received });
        if self.observations != 0 && !(OBSERVATIONS_MIN..=OBSERVATIONS_MAX).contains(&self.observations) {
            return wrong("guard.observations", "0, or from 10 to 100000", self.observations as f64);
        }
        if self.seconds > SECONDS_MAX {
            return wrong("guard.seconds", "at most 31536000", self.seconds as f64);
        }
        if !(0.0..=10.0).contains(&self.margin) {
            return wrong("guard.margin", "from 0 to 10", self.margin);
        }
        Ok(())
    }
}

/// A guard in progress, as stored in the registry. A restart continues it with a new comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarding {
    /// The version that was active before.
    pub against: VersionId,
    /// Time of the switch.
    pub since: Timestamp,
}

impl Guarding {
    /// The guard of a switch of this model to `version`, if one is configured.
    pub(crate) fn beginning(record: &ModelRecord, version: VersionId) -> Option<Self> {
        let GuardConfig { observations, seconds, .. } = record.config.guard;
        let wanted = observations > 0 && seconds > 0 && record.active != version;
        wanted.then(|| Self { against: record.active, since: SystemTime::now().into() })
    }

    /// Remaining time.
    fn left(&self, config: &GuardConfig) -> Duration {
        let now = Timestamp::from(SystemTime::now());
        let passed = u64::try_from(now.0.saturating_sub(self.since.0)).unwrap_or(0);
        Duration::from_secs(config.seconds).saturating_sub(Duration::from_millis(passed))
    }
}

/// Current figures of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GuardStatus {
    /// The active version is the candidate, the previous one the incumbent; `None` before the first observation.
    pub comparison: Option<Comparison>,
}

/// Outcome of a guard or a shadow comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The time or the number of observations is reached.
    Over,
    Worse,
    /// The comparison is no longer needed.
    Unwanted,
}

/// Comparison of two versions on live traffic.
struct LiveComparison<'a> {
    predictor: &'a Predictor,
    loss: Loss,
    /// The version that is not active.
    other: &'a ServingVersion,
    /// The active version.
    active: VersionId,
    /// Whether the other version is the candidate (before a switch) or the incumbent (after it).
    other_is_candidate: bool,
    paired: Paired,
}

impl LiveComparison<'_> {
    fn add(&mut self, sample: &ShadowSample) -> Result<(), ManagerError> {
        if sample.version != self.active {
            return Ok(());
        }
        let Some(other) = self.predictor.activation().shadow_prediction(self.other, sample)? else { return Ok(()) };
        let loss = |predicted| self.loss.prediction_loss(predicted, sample.label);
        let (active, other) = (loss(sample.predicted), loss(other));
        self.paired.add([if self.other_is_candidate { (other, active) } else { (active, other) }]);
        Ok(())
    }

    fn comparison(&self) -> Option<Comparison> {
        self.paired.comparison(Metric::of(self.loss))
    }
}

/// Returns the next sample, `None` on a timeout, and an error once the channel is closed.
fn next(
    runtime: &tokio::runtime::Handle,
    queue: &mut mpsc::Receiver<ShadowSample>,
) -> Result<Option<ShadowSample>, ()> {
    match runtime.block_on(async { tokio::time::timeout(PATIENCE, queue.recv()).await }) {
        Ok(Some(sample)) => Ok(Some(sample)),
        Ok(None) => Err(()),
        Err(_elapsed) => Ok(None),
    }
}

impl Manager {
    /// The status of a model's guard, if there is one.
    #[must_use]
    pub fn watch_status(&self, model: ModelId) -> Option<GuardStatus> {
        self.guards.lock().get(&model).copied()
    }

    /// Starts the guard of the record, if any, on a dedicated thread.
    pub(crate) fn guard(self: &Arc<Self>, record: &ModelRecord) {
        let Some(guarding) = record.guarding.clone() else { return };
        let model = record.config.name.clone();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            tracing::warn!(%model, "cannot guard a version outside a runtime");
            return;
        };
        let other = match self.load(record, guarding.against) {
            Ok(other) => other,
            Err(error) => {
                tracing::warn!(%model, %error, "cannot read the previous version, so the new one is not guarded");
                return;
            }
        };
        let queue = match self.predictor.models().start_shadow(&model, other.id, WAITING_MAX) {
            Ok(queue) => queue,
            Err(error) => {
                tracing::warn!(%model, %error, "cannot guard the version");
                return;
            }
        };
        self.guards.lock().insert(record.id, GuardStatus::default());
        let guard = Guard { manager: Arc::downgrade(self), record: record.clone(), guarding, other };
        let thread = std::thread::Builder::new().name("celeris-guard".to_owned());
        if let Err(error) = thread.spawn(move || guard.run(&runtime, queue)) {
            tracing::warn!(%model, %error, "cannot start a thread, so the version is not guarded");
        }
    }

    /// Whether the guarded version is still active and under this guard.
    fn is_guarded(&self, guarded: &ModelRecord) -> bool {
        let record = self.current(guarded);
        record.is_ok_and(|record| record.active == guarded.active && record.guarding == guarded.guarding)
    }

    /// Ends the guard and keeps the version.
    fn end_guard(&self, guarded: &ModelRecord) -> Result<(), ManagerError> {
        let _changing = self.changing.lock();
        let mut record = self.current(guarded)?;
        if record.active == guarded.active && record.guarding == guarded.guarding {
            record.guarding = None;
            let mut batch = RegistryBatch::new();
            batch.put(model_key(&record.config.name)?, &record)?;
            self.storage.registry().commit(&batch)?;
        }
        Ok(())
    }

    /// Runs a candidate in shadow mode on live traffic for the configured time and adds the comparison to its report.
    /// Returns whether the candidate may serve.
    pub(crate) fn shadow(
        &self,
        record: &ModelRecord,
        candidate: &ServingVersion,
        version: &mut VersionRecord,
        job: &JobId,
    ) -> Result<bool, ManagerError> {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return Ok(true) };
        let config = &record.config;
        let started = Instant::now();
        let length = Duration::from_secs(config.gate.shadow_seconds);
        let mut queue = self.predictor.models().start_shadow(&config.name, candidate.id, WAITING_MAX)?;
        let mut live = LiveComparison {
            predictor: &self.predictor,
            loss: config.loss,
            other: candidate,
            active: self.predictor.models().active(&config.name)?.id,
            other_is_candidate: true,
            paired: Paired::default(),
        };
        while started.elapsed() < length {
            self.jobs.progress(job, "shadow", started.elapsed().as_secs_f32() / length.as_secs_f32());
            match next(&runtime, &mut queue) {
                Ok(Some(sample)) => live.add(&sample)?,
                Ok(None) => {}
                Err(()) => break,
            }
        }
        self.predictor.models().stop_shadow(record.identity(), candidate.id);
        let Some(report) = &mut version.gate else { return Ok(true) };
        report.shadow = live.comparison();
        report.decide(&config.gate);
        self.jobs.set_gate_report(job, report);
        let passed = report.lets_pass();
        let mut events = Vec::new();
        if !passed {
            events.push(crate::switch::gate_event(record, live.active, version.version, report));
        }
        let mut batch = RegistryBatch::new();
        batch.put(version_key(&config.name, version.version)?, version)?;
        self.commit_noting(batch, &events)?;
        Ok(passed)
    }
}

struct Guard {
    /// Weak, so that a stopping node does not wait for its guards.
    manager: Weak<Manager>,
    record: ModelRecord,
    guarding: Guarding,
    other: ServingVersion,
}

impl Guard {
    fn run(self, runtime: &tokio::runtime::Handle, mut queue: mpsc::Receiver<ShadowSample>) {
        let model = self.record.config.name.clone();
        let mut paired = Paired::default();
        let outcome = self.follow(runtime, &mut queue, &mut paired);
        let Some(manager) = self.manager.upgrade() else { return };
        manager.predictor.models().stop_shadow(self.record.identity(), self.other.id);
        let comparison = paired.comparison(Metric::of(self.record.config.loss));
        let done = match outcome {
            Ok(Outcome::Worse) => self.go_back(&manager, comparison),
            Ok(Outcome::Over) => {
                tracing::info!(%model, version = %self.record.active, ?comparison, "the guard ended; the version stays");
                manager
                    .end_guard(&self.record)
                    .map(|()| manager.predictor.activation().release(self.record.identity(), &[self.record.active]))
            }
            Ok(Outcome::Unwanted) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::error!(%model, version = %self.record.active, %error, "the guard after the switch failed");
        }
        // Another guard of the model may have started.
        if !manager.current(&self.record).is_ok_and(|record| record.guarding.is_some()) {
            manager.guards.lock().remove(&self.record.id);
        }
    }

    fn follow(
        &self,
        runtime: &tokio::runtime::Handle,
        queue: &mut mpsc::Receiver<ShadowSample>,
        paired: &mut Paired,
    ) -> Result<Outcome, ManagerError> {
        let GuardConfig { observations, .. } = self.record.config.guard;
        let deadline = Instant::now() + self.guarding.left(&self.record.config.guard);
        loop {
            let Ok(next) = next(runtime, queue) else { return Ok(Outcome::Unwanted) };
            let Some(manager) = self.manager.upgrade() else { return Ok(Outcome::Unwanted) };
            if Instant::now() >= deadline || paired.observations() >= observations {
                return Ok(self.verdict(paired, OBSERVATIONS_MIN).unwrap_or(Outcome::Over));
            }
            let Some(sample) = next else {
                if manager.is_guarded(&self.record) {
                    continue;
                }
                return Ok(Outcome::Unwanted);
            };
            let mut live = LiveComparison {
                predictor: &manager.predictor,
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
                    manager.record_metrics(&self.record, comparison);
                }
                if let Some(worse) = self.verdict(paired, EARLY_OBSERVATIONS_MIN) {
                    return Ok(worse);
                }
            }
        }
    }

    /// Returns `Worse` if at least `observations_min` observations show that the new version misses the margin.
    fn verdict(&self, paired: &Paired, observations_min: u64) -> Option<Outcome> {
        let config = &self.record.config;
        verdict(paired.comparison(Metric::of(config.loss))?, config.guard.margin, observations_min)
    }

    fn go_back(&self, manager: &Manager, comparison: Option<Comparison>) -> Result<(), ManagerError> {
        let Some(comparison) = comparison else { return Ok(()) };
        let figures = comparison.describe(self.guarding.against, "live traffic", self.record.config.guard.margin);
        let why = format!("the live loss of version {} was {figures}", self.record.active);
        tracing::warn!(model = %self.record.config.name, version = %self.record.active, %why, "the guard rolls back");
        manager.roll_back_for(Actor::Guard, &self.record.config.name, Some(&self.record), why).map(drop)
    }
}

fn verdict(comparison: Comparison, margin: f64, observations_min: u64) -> Option<Outcome> {
    // The version must miss the margin even after subtracting the error.
    let worse = comparison.observations >= observations_min && comparison.misses(-margin, ERRORS_BEYOND);
    worse.then_some(Outcome::Worse)
}

impl Manager {
    fn record_metrics(&self, record: &ModelRecord, comparison: Comparison) {
        self.guards.lock().insert(record.id, GuardStatus { comparison: Some(comparison) });
        let name = record.config.name.to_string();
        let of = |which: &'static str| metrics::gauge!("celeris_guard_loss", "model" => name.clone(), "of" => which);
        of("active").set(comparison.candidate.unwrap_or(f64::NAN));
        of("before").set(comparison.incumbent.unwrap_or(f64::NAN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
