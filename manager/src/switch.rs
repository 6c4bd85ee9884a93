//! Registration and evaluation of candidates, activation of versions, and rollback, always with warm caches.
//!
//! A switch first computes the hot users, features and predictions under the new version, on a thread of low priority
//! and within a time limit. Then one atomic write activates it in the registry together with the event, and a pointer
//! is swapped. Switches of a node are serialised, so only one is prepared at a time.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celeris_features::{LoadedVersion, read_version};
use celeris_formats::{FormatError, MANIFEST_FILE, Manifest};
use celeris_model::{ModelName, Partition, VersionId};
use celeris_predictor::{Prepared, ServingVersion, Warmed};
use celeris_storage::{RegistryBatch, Watermark};

use crate::error::ManagerError;
use crate::events::{Actor, Event, EventKind};
use crate::gate::{GateReport, Verdict};
use crate::guard::Guarding;
use crate::jobs::JobId;
use crate::manager::{Manager, check_fits, remove_dir, serving, sync_dir};
use crate::pause::{self, Step};
use crate::records::{ModelConfig, ModelRecord, VersionRecord, model_key, version_key};
use crate::training::Made;

/// Time limit of the preparation; the switch then proceeds with the entries that are warm.
const WARMING_MAX: Duration = Duration::from_secs(20);

/// Nice value of preparation and evaluation, so that requests have priority.
const NICENESS: i32 = 15;

/// The outcome for a candidate.
pub(crate) struct Concluded {
    pub(crate) version: VersionRecord,
    /// Whether it was activated.
    pub(crate) serves: bool,
}

/// Runs `work` on a dedicated thread with low priority.
pub(crate) fn at_low_priority<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, ManagerError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, || {
            if let Err(problem) = rustix::process::setpriority_process(None, NICENESS) {
                tracing::debug!(%problem, "cannot lower a thread's priority; it competes with serving");
            }
            work()
        });
        let thread = thread.map_err(ManagerError::io("thread"))?;
        thread.join().or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Manager {
    /// Activates a version. Online learning is kept: user states are rebuilt under the version from the log, those of
    /// the most recently active users before the switch. Ends a guard in progress.
    ///
    /// Blocks during the preparation, for slightly more than twenty seconds at most.
    ///
    /// # Errors
    /// `UnknownModel`, `UnknownVersion`, `Features` for a damaged version, or `Storage`.
    pub fn activate(&self, model: &ModelName, version: VersionId) -> Result<ModelRecord, ManagerError> {
        let _switching = self.switching.lock();
        let record = self.model(model)?;
        self.version(model, version)?;
        let prepared = self.prepare(&record, || self.load(&record, version))?;
        let activating = |record: ModelRecord| Ok(ModelRecord { guarding: None, ..record.activating(version) });
        self.flip(prepared, activating, EventKind::Activated, Actor::Operator, "on request".to_owned())
    }

    /// Activates the previously active version again.
    ///
    /// # Errors
    /// Same as [`Manager::activate`], and `NothingToRollBackTo`.
    pub fn roll_back(&self, model: &ModelName) -> Result<ModelRecord, ManagerError> {
        self.roll_back_for(Actor::Operator, model, None, "on request".to_owned())
    }

    /// Rolls back from the active version of the record `from`, or from any active version if `None`.
    pub(crate) fn roll_back_for(
        &self,
        by: Actor,
        model: &ModelName,
        from: Option<&ModelRecord>,
        why: String,
    ) -> Result<ModelRecord, ManagerError> {
        let _switching = self.switching.lock();
        let record = self.model(model)?;
        let nothing =
            |record: &ModelRecord| ManagerError::NothingToRollBackTo { model: model.clone(), version: record.active };
        if from.is_some_and(|from| (from.id, from.active) != (record.id, record.active)) {
            return Err(nothing(&record));
        }
        let version = *record.served.last().ok_or_else(|| nothing(&record))?;
        self.version(model, version)?;
        let prepared = self.prepare(&record, || self.load(&record, version))?;
        let going_back = |mut record: ModelRecord| {
            record.active = record.served.pop().ok_or_else(|| nothing(&record))?;
            record.guarding = None;
            Ok(record)
        };
        self.flip(prepared, going_back, EventKind::RolledBack, by, why)
    }

    /// Reads a version directory that is to become a version of the model, from a training of this node or an external
    /// job. Every version enters the registry through this function, which bounds its numbers. Its contents are untrusted: everything is checked here or by [`read_version`].
    ///
    /// # Errors
    /// `Features` if the directory is damaged, a number exceeds its bound, or it was trained on more than the log
    /// holds; `WrongVersion` if it belongs to another model.
    pub(crate) fn read_candidate(&self, config: &ModelConfig, dir: &Path) -> Result<LoadedVersion, ManagerError> {
        let loaded = read_version(dir)?;
        check_fits(config, &loaded)?;
        check_watermarks(&loaded.manifest, &self.storage.watermark(&config.stream))
            .map_err(|problem| ManagerError::from(FormatError::Manifest { path: dir.join(MANIFEST_FILE), problem }))?;
        Ok(loaded)
    }

    /// Registers a finished version directory as the model's newest version, without activating it. Move and
    /// registration are one step: the next start removes a directory that the registry does not name. `note` receives
    /// the active version and the new record to complete; the event that it returns is written with the registration.
    ///
    /// # Errors
    /// `UnknownModel`, `WrongVersion` if the directory belongs to another model, `Io` or `Storage`.
    pub(crate) fn admit(
        &self,
        record: &ModelRecord,
        finished: &Path,
        loaded: LoadedVersion,
        note: impl FnOnce(VersionId, &mut VersionRecord) -> Option<Event>,
    ) -> Result<(VersionRecord, ServingVersion), ManagerError> {
        let _changing = self.changing.lock();
        let mut record = self.current(record)?;
        check_fits(&record.config, &loaded)?;
        let version = record.newest.next();
        let dir = self.version_dir(&record, version);
        remove_dir(&dir)?;
        fs::create_dir_all(self.versions_dir(&record)).map_err(ManagerError::io(&dir))?;
        fs::rename(finished, &dir).map_err(ManagerError::io(&dir))?;
        sync_dir(&self.versions_dir(&record))?;
        let mut description = VersionRecord::new(version, loaded.theta.items().len(), &loaded.manifest);
        // Only the node's own jobs know which records the training left out, so assume none.
        let log = || self.storage.watermark(&record.config.stream);
        description.holdout_from = Some(description.watermark.clone().unwrap_or_else(log));
        let event = note(record.active, &mut description);
        let serving = serving(&record, version, loaded)?.kept_in(dir);
        record.newest = version;
        let model = &record.config.name;
        let mut batch = RegistryBatch::new();
        batch.put(version_key(model, version)?, &description)?;
        batch.put(model_key(model)?, &record)?;
        self.commit_noting(batch, event.as_slice())?;
        Ok((description, serving))
    }

    /// Evaluates the candidate of a job, registers it, and activates it if the gate passes it. Fails with `Outdated` if
    /// a user that it was trained on was erased meanwhile.
    pub(crate) fn conclude_candidate(
        self: &Arc<Self>,
        record: &ModelRecord,
        made: &Made,
        job: &JobId,
    ) -> Result<Concluded, ManagerError> {
        let Made { version: finished, holdout, reading } = made;
        let progress = |share| self.jobs.progress(job, "validate", share);
        progress(0.0);
        let record = self.current(record)?;
        let config = &record.config;
        let loaded = self.read_candidate(config, finished)?;
        pause::at(Step::Validation);
        // A number that no version has, so that nothing is cached for it.
        let unregistered = VersionId(u64::MAX);
        let (theta, learning) = (loaded.theta.clone(), config.learning(loaded.prior.clone()));
        let candidate = ServingVersion::new((config.name.clone(), record.id), unregistered, theta, learning)?;
        let candidate = candidate.with_cold_map(loaded.cold_map.clone());
        let report =
            at_low_priority("celeris-gate", || self.evaluate_candidate(config, holdout, &candidate, progress))??;
        drop(candidate);
        let passed = report.lets_pass();
        self.jobs.set_gate_report(job, &report);
        let (mut version, serving) = reading.conclude(|| {
            self.admit(&record, finished, loaded, |active, candidate_record| {
                let event = gate_event(&record, active, candidate_record.version, &report);
                candidate_record.gate = Some(report);
                candidate_record.holdout_from = Some(holdout.from.clone());
                Some(event)
            })
        })?;
        if !passed {
            self.prune(&record)?;
            return Ok(Concluded { version, serves: false });
        }
        let serving = if config.gate.shadow_seconds > 0 {
            let serving = Arc::new(serving);
            if !self.shadow(&record, &serving, &mut version, job)? {
                self.prune(&record)?;
                return Ok(Concluded { version, serves: false });
            }
            Arc::into_inner(serving).map_or_else(|| self.load(&record, version.version), Ok)?
        } else {
            serving
        };
        self.jobs.progress(job, "activate", 0.0);
        let (number, switching) = (version.version, self.switching.lock());
        let prepared = self.prepare(&record, || Ok(serving))?;
        let activating = |record: ModelRecord| {
            let guarding = Guarding::beginning(&record, number);
            Ok(ModelRecord { guarding, ..record.activating(number) })
        };
        let why = version.gate.as_ref().map(|report| report.why.clone()).unwrap_or_default();
        let record = self.flip(prepared, activating, EventKind::Activated, Actor::Job, why)?;
        drop(switching);
        self.guard(&record);
        self.prune(&record)?;
        Ok(Concluded { version, serves: true })
    }

    /// Loads a version and warms the caches for it, at low priority.
    fn prepare(
        &self,
        record: &ModelRecord,
        load: impl FnOnce() -> Result<ServingVersion, ManagerError> + Send,
    ) -> Result<Prepared, ManagerError> {
        let model = &record.config.name;
        let hot = self.predictor.hot(model)?;
        let prepared = at_low_priority("celeris-warm", || {
            pause::at(Step::Warming);
            let version = load()?;
            Ok::<_, ManagerError>(self.predictor.prepare(hot, version, Instant::now() + WARMING_MAX)?)
        })??;
        tell(model, prepared.version().id, &prepared.warmed);
        Ok(prepared)
    }

    /// Activates the prepared version in the registry and in the predictor. `change` is applied to the current record.
    fn flip(
        &self,
        prepared: Prepared,
        change: impl FnOnce(ModelRecord) -> Result<ModelRecord, ManagerError>,
        kind: EventKind,
        by: Actor,
        why: String,
    ) -> Result<ModelRecord, ManagerError> {
        let (model, id) = (prepared.version().model.clone(), prepared.version().model_id);
        let (version, warmed) = (prepared.version().id, prepared.warmed);
        let record = {
            let _changing = self.changing.lock();
            let before = self.model(&model)?;
            if before.id != id {
                return Err(ManagerError::UnknownModel { model });
            }
            // It may have been pruned meanwhile.
            self.version(&model, version)?;
            let event = Event::now(before.identity(), kind, by, why)
                .between(Some(before.active), Some(version))
                .with("users_prepared", warmed.users.prepared)
                .with("users_hot", warmed.users.of)
                .with("seconds_preparing", warmed.took.as_secs_f64());
            let record = change(before)?;
            let mut batch = RegistryBatch::new();
            batch.put(model_key(&model)?, &record)?;
            self.commit_noting(batch, &[event])?;
            pause::at(Step::Flip);
            self.predictor.switch(record.config.defaults(), prepared);
            record
        };
        tracing::info!(%model, %version, "version serves");
        let name = model.to_string();
        metrics::counter!("celeris_switches_total", "model" => name, "kind" => kind.name()).increment(1);
        let mut kept = vec![record.active];
        kept.extend(record.guarding.as_ref().map(|guarding| guarding.against));
        self.predictor.release((&model, id), &kept);
        Ok(record)
    }
}

/// Checks that a version was not trained on more than the log holds: triggers and erasure receipts rely on it.
fn check_watermarks(manifest: &Manifest, log: &Watermark) -> Result<(), String> {
    let of_training = watermark("watermark", &manifest.watermark, log)?;
    let Some(warm) = &manifest.warm else { return Ok(()) };
    watermark("warm.cold_watermark", &warm.cold_watermark, of_training.as_ref().unwrap_or(log)).map(drop)
}

/// A watermark of a manifest, which must be at or before `end`; `None` for null.
fn watermark(field: &str, value: &serde_json::Value, end: &Watermark) -> Result<Option<Watermark>, String> {
    if value.is_null() {
        return Ok(None);
    }
    let read: Watermark = serde_json::from_value(value.clone())
        .map_err(|error| format!("{field} is not null and not one sequence for each partition: {error}"))?;
    match Partition::all().find(|partition| read.get(*partition) > end.get(*partition)) {
        None => Ok(Some(read)),
        Some(partition) => Err(format!(
            "{field} says {} in partition {}, where there are {} records to train on; register a version that was \
             trained on this model's stream",
            read.get(partition).0,
            partition.index(),
            end.get(partition).0
        )),
    }
}

/// The audit event of a gate verdict.
pub(crate) fn gate_event(record: &ModelRecord, active: VersionId, version: VersionId, report: &GateReport) -> Event {
    let kind = if report.lets_pass() { EventKind::GatePassed } else { EventKind::GateRefused };
    let why = match report.verdict {
        Verdict::Forced => format!("gate.force, in spite of {}", report.why),
        Verdict::Passed | Verdict::Refused | Verdict::NotJudged => report.why.clone(),
    };
    let report = serde_json::to_value(report).expect("a report is plain data");
    Event::now(record.identity(), kind, Actor::Job, why)
        .between(Some(active), report_leads_to(kind, version))
        .with("version", version.0)
        .with("report", report)
}

/// The version that the event leads to: the candidate if it passed, none if it was refused.
fn report_leads_to(kind: EventKind, version: VersionId) -> Option<VersionId> {
    (kind == EventKind::GatePassed).then_some(version)
}

fn tell(model: &ModelName, version: VersionId, warmed: &Warmed) {
    let Warmed { users, features, predictions, took } = warmed;
    tracing::info!(
        %model, %version, ?took,
        users = users.prepared, users_hot = users.of,
        features = features.prepared, features_hot = features.of,
        predictions = predictions.prepared, predictions_hot = predictions.of,
        "caches are warm"
    );
    for (what, share) in [("users", users), ("features", features), ("predictions", predictions)] {
        let name = model.to_string();
        metrics::gauge!("celeris_switch_prepared", "model" => name.clone(), "what" => what).set(share.prepared as f64);
        metrics::gauge!("celeris_switch_hot", "model" => name, "what" => what).set(share.of as f64);
    }
    metrics::gauge!("celeris_switch_preparing_seconds", "model" => model.to_string()).set(took.as_secs_f64());
}
