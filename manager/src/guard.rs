//! The guard after a switch: the version that served before goes on predicting beside the new one, and if the new one
//! turns out worse on live traffic, the model goes back by itself.
//!
//! Both predict the same observations from what each would have known, so a drift of tastes, which makes both worse,
//! sets off nothing. The predictions of the version before are made off the way of requests, on a thread of its own that
//! reads a bounded queue; what does not fit is left out of the comparison. Shadow scoring before a switch is the same,
//! with the roles exchanged.

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

/// Observations that may wait to be predicted by the other version.
const WAITING_MAX: usize = 8192;

/// Before the end of a guard, fewer observations than this decide nothing: many looks at few observations are often wrong.
const LOOKED_AT_MIN: u64 = 50;

/// At its end, fewer than this decide nothing, nor is any guard shorter.
const WATCHED_MIN: u64 = 10;

/// The most observations of a guard, all of which are held and looked at again and again.
const WATCHED_MAX: u64 = 100_000;

/// The longest guard: a year.
const SECONDS_MAX: u64 = 365 * 24 * 3600;

/// The comparison is looked at after every so many observations.
const LOOK_EVERY: u64 = 10;

/// A version goes back only where it misses the margin by this many standard errors: the comparison is looked at many
/// times, and each look is a chance to be wrong.
const ERRORS_BEYOND: f64 = 3.0;

/// How long a thread waits for an observation before it looks whether it is still wanted.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long a version is guarded once it serves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardConfig {
    /// Observations after which the guard ends, from 10 to 100,000; 0 is no guard.
    pub observations: u64,
    /// Seconds after which it ends at the latest, at most a year; 0 is no guard.
    pub seconds: u64,
    /// The share of the loss of the version before by which the new one may be worse.
    pub margin: f64,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self { observations: 1000, seconds: 3600, margin: 0.05 }
    }
}

impl GuardConfig {
    /// Whether all values are in their ranges.
    ///
    /// # Errors
    /// `Setting`, naming the field.
    pub fn check(&self) -> Result<(), ManagerError> {
        let wrong = |setting, range, received| Err(ManagerError::Setting { setting, range, received });
        if self.observations != 0 && !(WATCHED_MIN..=WATCHED_MAX).contains(&self.observations) {
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

/// A guard under way, as the registry keeps it: a restart goes on with it, and counts from nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarding {
    /// The version that served before.
    pub against: VersionId,
    /// When the new one began to serve.
    pub since: Timestamp,
}

impl Guarding {
    /// The guard of a switch of this model to `version`, where there is to be one.
    pub(crate) fn beginning(record: &ModelRecord, version: VersionId) -> Option<Self> {
        let GuardConfig { observations, seconds, .. } = record.config.guard;
        let wanted = observations > 0 && seconds > 0 && record.active != version;
        wanted.then(|| Self { against: record.active, since: SystemTime::now().into() })
    }

    /// How much of its time is left.
    fn left(&self, config: &GuardConfig) -> Duration {
        let now = Timestamp::from(SystemTime::now());
        let passed = u64::try_from(now.0.saturating_sub(self.since.0)).unwrap_or(0);
        Duration::from_secs(config.seconds).saturating_sub(Duration::from_millis(passed))
    }
}

/// How a guard stands.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GuardStatus {
    /// The active version as the candidate, the one before as the incumbent; `None` before the first observation.
    pub comparison: Option<Comparison>,
}

/// What a look at live traffic comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The time or the observations are over.
    Over,
    /// The new version misses the margin.
    Worse,
    /// Nobody wants to know any more.
    Unwanted,
}

/// Two versions on the observations of live traffic, as they come.
struct LiveComparison<'a> {
    predictor: &'a Predictor,
    loss: Loss,
    /// The one that does not serve.
    other: &'a ServingVersion,
    /// The one that serves.
    active: VersionId,
    /// Whether the other is the candidate, as before a switch, or the incumbent, as after it.
    other_is_candidate: bool,
    paired: Paired,
}

impl LiveComparison<'_> {
    fn add(&mut self, witnessed: &ShadowSample) -> Result<(), ManagerError> {
        if witnessed.version != self.active {
            return Ok(());
        }
        let Some(other) = self.predictor.predict_beside(self.other, witnessed)? else { return Ok(()) };
        let loss = |predicted| self.loss.prediction_loss(predicted, witnessed.label);
        let (active, other) = (loss(witnessed.predicted), loss(other));
        self.paired.add([if self.other_is_candidate { (other, active) } else { (active, other) }]);
        Ok(())
    }

    fn comparison(&self) -> Option<Comparison> {
        self.paired.comparison(Metric::of(self.loss))
    }
}

/// The next observation, `None` where none came for a while; an error once none will come any more.
fn next(
    runtime: &tokio::runtime::Handle,
    queue: &mut mpsc::Receiver<ShadowSample>,
) -> Result<Option<ShadowSample>, ()> {
    match runtime.block_on(async { tokio::time::timeout(PATIENCE, queue.recv()).await }) {
        Ok(Some(witnessed)) => Ok(Some(witnessed)),
        Ok(None) => Err(()),
        Err(_elapsed) => Ok(None),
    }
}

impl Manager {
    /// How the guard of a model stands, where there is one.
    #[must_use]
    pub fn watch_status(&self, model: ModelId) -> Option<GuardStatus> {
        self.guards.lock().get(&model).copied()
    }

    /// Starts the guard that the record asks for, on a thread of its own.
    pub(crate) fn guard(self: &Arc<Self>, record: &ModelRecord) {
        let Some(guarding) = record.guarding.clone() else { return };
        let model = record.config.name.clone();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            tracing::warn!(%model, "a version is not guarded outside a runtime");
            return;
        };
        let other = match self.load(record, guarding.against) {
            Ok(other) => other,
            Err(error) => {
                tracing::warn!(%model, %error, "the version before cannot be read, so the new one is not guarded");
                return;
            }
        };
        let queue = match self.predictor.compare_with(&model, other.id, WAITING_MAX) {
            Ok(queue) => queue,
            Err(error) => {
                tracing::warn!(%model, %error, "the version is not guarded");
                return;
            }
        };
        self.guards.lock().insert(record.id, GuardStatus::default());
        let guard = Guard { manager: Arc::downgrade(self), record: record.clone(), guarding, other };
        let thread = std::thread::Builder::new().name("celeris-guard".to_owned());
        if let Err(error) = thread.spawn(move || guard.run(&runtime, queue)) {
            tracing::warn!(%model, %error, "no thread can be started, so the version is not guarded");
        }
    }

    /// Whether the model still serves the version that is guarded.
    fn is_watched(&self, guarded: &ModelRecord) -> bool {
        let record = self.current(guarded);
        record.is_ok_and(|record| record.active == guarded.active && record.guarding == guarded.guarding)
    }

    /// The guard is over, and the version stays.
    fn end_watch(&self, guarded: &ModelRecord) -> Result<(), ManagerError> {
        let _changing = self.changing.lock();
        let mut record = self.current(guarded)?;
        if record.active == guarded.active && record.guarding == guarded.guarding {
            record.guarding = None;
            let mut batch = RegistryBatch::new();
            batch.put(model_key(&record.config.name)?, &record)?;
            self.storage.commit_registry(&batch)?;
        }
        Ok(())
    }

    /// Lets a candidate predict live traffic beside the version that serves, for the configured time, and adds what came
    /// of it to its report. Whether it may serve.
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
        let mut queue = self.predictor.compare_with(&config.name, candidate.id, WAITING_MAX)?;
        let mut live = LiveComparison {
            predictor: &self.predictor,
            loss: config.loss,
            other: candidate,
            active: self.predictor.active(&config.name)?.id,
            other_is_candidate: true,
            paired: Paired::default(),
        };
        while started.elapsed() < length {
            self.jobs.progress(job, "shadow", started.elapsed().as_secs_f32() / length.as_secs_f32());
            match next(&runtime, &mut queue) {
                Ok(Some(witnessed)) => live.add(&witnessed)?,
                Ok(None) => {}
                Err(()) => break,
            }
        }
        self.predictor.compare_no_more(record.identity(), candidate.id);
        let Some(report) = &mut version.gate else { return Ok(true) };
        report.shadow = live.comparison();
        report.decide(&config.gate);
        self.jobs.judged(job, report);
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

/// One guard.
struct Guard {
    /// A node that stops does not wait for its guards.
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
        manager.predictor.compare_no_more(self.record.identity(), self.other.id);
        let comparison = paired.comparison(Metric::of(self.record.config.loss));
        let done = match outcome {
            Ok(Outcome::Worse) => self.go_back(&manager, comparison),
            Ok(Outcome::Over) => {
                tracing::info!(%model, version = %self.record.active, ?comparison, "the guard is over, and the version stays");
                manager
                    .end_watch(&self.record)
                    .map(|()| manager.predictor.release(self.record.identity(), &[self.record.active]))
            }
            Ok(Outcome::Unwanted) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::error!(%model, version = %self.record.active, %error, "the guard after the switch failed");
        }
        // Another guard of the model may have begun.
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
                return Ok(self.verdict(paired, WATCHED_MIN).unwrap_or(Outcome::Over));
            }
            let Some(witnessed) = next else {
                if manager.is_watched(&self.record) {
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
            let added = live.add(&witnessed);
            *paired = live.paired;
            added?;
            if paired.observations().is_multiple_of(LOOK_EVERY) {
                if let Some(comparison) = paired.comparison(Metric::of(self.record.config.loss)) {
                    manager.tell_watch(&self.record, comparison);
                }
                if let Some(worse) = self.verdict(paired, LOOKED_AT_MIN) {
                    return Ok(worse);
                }
            }
        }
    }

    /// `Worse` where at least so many observations show that the new version misses the margin.
    fn verdict(&self, paired: &Paired, observations_min: u64) -> Option<Outcome> {
        let config = &self.record.config;
        verdict(paired.comparison(Metric::of(config.loss))?, config.guard.margin, observations_min)
    }

    fn go_back(&self, manager: &Manager, comparison: Option<Comparison>) -> Result<(), ManagerError> {
        let Some(comparison) = comparison else { return Ok(()) };
        let figures = comparison.told(self.guarding.against, "live traffic", self.record.config.guard.margin);
        let why = format!("the live loss of version {} was {figures}", self.record.active);
        tracing::warn!(model = %self.record.config.name, version = %self.record.active, %why, "the guard rolls back");
        manager.roll_back_for(Actor::Guard, &self.record.config.name, Some(&self.record), why).map(drop)
    }
}

fn verdict(comparison: Comparison, margin: f64, observations_min: u64) -> Option<Outcome> {
    // A bound that misses the margin even with its error taken off.
    let worse = comparison.observations >= observations_min && comparison.misses(-margin, ERRORS_BEYOND);
    worse.then_some(Outcome::Worse)
}

impl Manager {
    fn tell_watch(&self, record: &ModelRecord, comparison: Comparison) {
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

    /// Observations of which the new version misses each by about 2 and the one before by about 1.
    fn much_worse(observations: u64) -> Comparison {
        let mut paired = Paired::default();
        (0..observations).for_each(|index| paired.add([(4.0 + (index % 3) as f64 / 2.0, 1.0)]));
        paired.comparison(Metric::Rmse).expect("there are observations")
    }

    #[test]
    fn every_watch_that_can_be_asked_for_can_take_a_version_back() {
        for observations in [0, 10, 30, 49, 50, 1000, WATCHED_MAX] {
            let guard = GuardConfig { observations, ..GuardConfig::default() };
            assert!(guard.check().is_ok(), "{observations}");
            if observations > 0 {
                let at_the_end = verdict(much_worse(observations.min(1000)), guard.margin, WATCHED_MIN);
                assert_eq!(at_the_end, Some(Outcome::Worse), "{observations}");
            }
        }
        for observations in [1, 9, WATCHED_MAX + 1] {
            let refused = GuardConfig { observations, ..GuardConfig::default() }.check();
            let named = matches!(refused, Err(ManagerError::Setting { setting: "guard.observations", .. }));
            assert!(named, "{observations}");
        }
        let forever = GuardConfig { seconds: u64::MAX, ..GuardConfig::default() }.check();
        assert!(matches!(forever, Err(ManagerError::Setting { setting: "guard.seconds", .. })));
        assert_eq!(verdict(much_worse(40), 0.05, LOOKED_AT_MIN), None, "early looks want more");
    }
}
