//! State of the monitors after a restart.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use celeris_model::{DecisionFacts, DecisionId, Joined, Prediction, RecordKind, UserEpoch};
use celeris_storage::{AckMode, Append, StorageOptions};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::settings::ModelConfig;

const VERSION: VersionId = VersionId(1);

const MODEL: ModelId = ModelId(7);

fn config() -> ModelConfig {
    ModelConfig::new(ModelName::new("films").unwrap(), 8)
}

/// The model's record.
fn record(config: ModelConfig) -> ModelRecord {
    let (created, active) = (Timestamp(0), VERSION);
    ModelRecord { id: MODEL, config, created, active, newest: active, served: Vec::new(), guarding: None }
}

/// Observations a millisecond apart, from `first` on, whose predictions are off by at most `error`;
/// every tenth belongs to the pool.
fn records(first: i64, count: i64, error: f32, random: &mut ChaCha8Rng) -> Vec<Record> {
    let facts = || {
        let id = DecisionId::new("d").unwrap();
        DecisionFacts { pool: true, ..DecisionFacts::without_slot(id, Joined::Slot) }
    };
    let record = |number: i64| Record {
        kind: RecordKind::Observe,
        user: UserId::new(random.random_range(0..20).to_string()).unwrap(),
        user_epoch: UserEpoch(1),
        item: Some("film".parse().unwrap()),
        label: 3.0,
        first_label: None,
        weight: 1.0,
        feedback: None,
        timestamp: Timestamp(number),
        observation_id: None,
        decision: (number % 10 == 0).then(facts),
        context: None,
        predictions: vec![Prediction {
            model: MODEL,
            version: VERSION,
            predicted: 3.0 + random.random_range(-error..error),
        }],
        targets: Vec::new(),
    };
    (first..first + count).map(record).collect()
}

/// Appends records to the log and sends them to the monitors, as the predictor does.
fn observe(storage: &Storage, monitors: &Monitoring, records: Vec<Record>) {
    let stream = config().stream;
    let wanted = storage.log().watermark(&stream).records() + records.len() as u64;
    for record in records {
        let event = LossEvent {
            model: MODEL,
            version: VERSION,
            user: record.user.clone(),
            user_epoch: record.user_epoch,
            predicted: record.predictions[0].predicted,
            label: record.label,
            timestamp: record.timestamp,
            pool: record.decision.is_some(),
        };
        let _placed = storage
            .log()
            .append(Append {
                stream: stream.clone(),
                record,
                frozen: Vec::new(),
                notes_item: false,
                source: None,
                ack: AckMode::Wait,
            })
            .unwrap();
        monitors.add(&[event], Timestamp(1_700_000_000_000), Behind::Events);
    }
    let begun = std::time::Instant::now();
    while storage.log().watermark(&stream).records() < wanted {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "the append timed out");
        std::thread::yield_now();
    }
}

fn known(monitors: &Monitoring) -> Quality {
    monitors.quality(MODEL, Timestamp(1_700_000_000_000)).unwrap()
}

fn restarted(storage: &Storage) -> Quality {
    let monitors = Monitoring::new(storage.clone());
    monitors.resume(&record(config())).unwrap();
    monitors.rebuild(Timestamp(1_700_000_000_000)).unwrap();
    known(&monitors)
}

#[test]
fn an_alarm_survives_a_restart_until_the_next_training() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let monitors = Monitoring::new(storage.clone());
    monitors.start(&record(config()));
    let mut batch = RegistryBatch::new();
    let version_baseline = monitors.begin_version(MODEL, (VERSION, None), &mut batch).unwrap().unwrap();
    storage.registry().commit(&batch).unwrap();
    monitors.serve(MODEL, version_baseline);

    observe(&storage, &monitors, records(0, 1500, 1.0, &mut random));
    assert_eq!(known(&monitors).rise, None);
    observe(&storage, &monitors, records(1500, 500, 2.5, &mut random));
    let before = known(&monitors);
    let rise = before.rise.unwrap();
    assert!((1510..1600).contains(&(rise.before + rise.after)), "the alarm comes soon: {rise:?}");
    assert_eq!(before.pool_observations, 200);

    // Nothing was written to the registry since the version began to serve: everything is read from
    // the log.
    let after = restarted(&storage);
    assert_eq!(after.rise, before.rise, "the same order gives identical results");
    assert_eq!((after.observations, after.pool_observations), (2000, 200));
    assert_eq!(after.baseline.map(|it| it.mean), before.baseline.map(|it| it.mean));
    let mean = |quality: &Quality| quality.windows[2].1.mean;
    assert!((mean(&after) - mean(&before)).abs() < f64::EPSILON, "the same losses");

    // A job ran and changed nothing. The rise that caused it must not cause another.
    monitors.trained(MODEL);
    monitors.keep().unwrap();
    observe(&storage, &monitors, records(2000, 20, 2.5, &mut random));
    let after = restarted(&storage);
    assert_eq!((after.rise, after.drift_observations, after.observations), (None, 20, 2020));
    assert_eq!(after.baseline, known(&monitors).baseline, "stored exactly");
    // 1500 squared errors with a mean of 1/3 and 520 with a mean of 6.25/3.
    assert!((mean(&after) - 0.784).abs() < 0.1, "windows include observations before the job");
}

#[test]
fn a_version_that_is_activated_again_keeps_its_first_baseline() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(6);
    let monitors = Monitoring::new(storage.clone());
    monitors.start(&record(config()));
    let switch = |version| {
        let mut batch = RegistryBatch::new();
        let version_baseline = monitors.begin_version(MODEL, (version, None), &mut batch).unwrap().unwrap();
        storage.registry().commit(&batch).unwrap();
        monitors.serve(MODEL, version_baseline);
    };
    switch(VERSION);
    observe(&storage, &monitors, records(0, 1200, 1.0, &mut random));
    monitors.keep().unwrap();
    let first = known(&monitors).baseline.unwrap();
    switch(VersionId(2));
    observe(&storage, &monitors, records(1200, 10, 1.0, &mut random));
    let second = known(&monitors);
    assert_eq!((second.version, second.baseline, second.observations), (VersionId(2), None, 0));
    assert!(second.windows.is_empty(), "predictions of version 1 do not count for version 2");
    switch(VERSION);
    let again = known(&monitors);
    assert_eq!((again.baseline, again.observations), (Some(first), 0));
    assert_eq!(
        monitors
            .begin_version(MODEL, (VERSION, None), &mut RegistryBatch::new())
            .unwrap()
            .map(|version_baseline| version_baseline.baseline),
        Some(Some(first))
    );
}
