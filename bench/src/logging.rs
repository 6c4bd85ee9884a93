//! The cost of decision records: rankings with and without one, and bytes written at a high rate.

use std::time::{Duration, Instant, SystemTime};

use celeris_model::{
    Decision, DecisionId, InputsDigest, ItemId, ModelId, ModelName, RecordedCandidates, ShownSlot, Timestamp,
    UserEpoch, VersionId,
};
use celeris_predictor::{DecisionLogging, PredictorOptions};
use celeris_storage::{Storage, StorageOptions};
use tokio::runtime::Runtime;

use crate::Settings;
use crate::report::Report;
use crate::requests::{SLOTS, request};
use crate::stopwatch::Durations;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_cli::estimate::warm::{Ids, Warm};

const DIM: usize = 50;

const CATALOG: usize = 10_000;

const USERS: usize = 64;

const HISTORY: usize = 50;

/// Consecutive rankings of one side, before the other side's turn.
const TURN: usize = 20;

/// Candidates of the compared rankings: all recorded, and mostly recorded as a digest.
const COUNTS: [usize; 2] = [100, 1_000];

/// Decisions offered per second when bytes are measured.
const RATE: usize = 10_000;

/// Candidates of these decisions.
const CANDIDATES: usize = 100;

pub fn run(settings: &Settings, runtime: &Runtime, report: &mut Report) -> Result<(), Failure> {
    eprintln!("  decisions …");
    latencies(settings, runtime, report)?;
    bytes(settings, report)
}

fn latencies(settings: &Settings, runtime: &Runtime, report: &mut Report) -> Result<(), Failure> {
    let open = |enabled| {
        let decisions = DecisionLogging { enabled, ..DecisionLogging::default() };
        let options = PredictorOptions { prediction_items_max: 0, decisions, ..PredictorOptions::default() };
        let warm = Warm::open(settings.pick(CATALOG, 2_000), DIM, &options)?;
        runtime.block_on(warm.teach(USERS, HISTORY, Ids::None))?;
        Ok::<_, Failure>(warm)
    };
    let sides = [open(true)?, open(false)?];
    for count in COUNTS {
        let mut rng = scene::rng(6);
        let mut durations = [Durations::default(), Durations::default()];
        for _ in 0..settings.pick(200, 1) {
            for (warm, durations) in sides.iter().zip(&mut durations) {
                for _ in 0..TURN {
                    let request = request(warm, &mut rng, USERS, count, None)?;
                    let ranking = durations.time(|| runtime.block_on(warm.predictor.topk(&request)));
                    std::hint::black_box(ranking.map_err(Failure::other)?);
                }
            }
        }
        let [ours, baseline] = durations.map(|mut durations| durations.quantile_micros(0.5));
        report.compare(format!("logging/n={count}/d={DIM}"), "us", ours, baseline);
    }
    Ok(())
}

/// A current decision over [`CANDIDATES`] items with ids of 12 characters.
fn decision(number: usize, model: &ModelName, items: &[ItemId]) -> Result<Decision, Failure> {
    let slot = |item: &ItemId| ShownSlot {
        item: item.clone(),
        score: 3.5,
        std_error: 0.5,
        propensity: Some(0.95),
        propensity_std_error: None,
        explored: false,
    };
    let now = Timestamp::from(SystemTime::now());
    Ok(Decision {
        // A unique id of the usual length.
        id: DecisionId::first_at(Timestamp(now.0 + number as i64)),
        model: model.clone(),
        model_id: ModelId(1),
        version: VersionId(2),
        user: scene::user(number).map_err(Failure::other)?,
        user_epoch: UserEpoch(20),
        timestamp: now,
        seed: number as u64,
        seed_given: false,
        policy: r#"{"name":"epsilon_greedy","epsilon":0.05}"#.to_owned(),
        pool_share: Some(0.01),
        pool: false,
        shown: items.iter().take(SLOTS).map(slot).collect(),
        candidates: RecordedCandidates::Full(items.to_vec()),
        inputs: InputsDigest::default(),
        selection: None,
        context: None,
    })
}

/// Offers decisions at a constant rate, and compares the bytes written per second with the
/// configured limit.
fn bytes(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let dir = tempfile::tempdir().map_err(Failure::other)?;
    let options = StorageOptions::default();
    let storage = Storage::open(dir.path(), &options)?;
    let model = ModelName::new("bench").map_err(Failure::other)?;
    let mut rng = scene::rng(7);
    let items = (0..CANDIDATES).map(|_| ItemId::new(scene::text(&mut rng, 12)));
    let items: Vec<ItemId> = items.collect::<Result<_, _>>().map_err(Failure::other)?;
    let seconds = settings.pick(6, 1);
    let started = Instant::now();
    let (mut logged, mut burst) = (0, (0, 0.0));
    for number in 0..RATE * seconds {
        if number == RATE {
            // The initial burst of the full token bucket is over.
            burst = (storage.decisions().counters().bytes, started.elapsed().as_secs_f64());
        }
        // Send in bursts of ten milliseconds, because a thread cannot sleep for less reliably.
        if number.is_multiple_of(RATE / 100) {
            let due = started + Duration::from_secs_f64(number as f64 / RATE as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        logged += usize::from(storage.decisions().record(decision(number, &model, &items)?, None));
    }
    storage.decisions().flush();
    let elapsed = started.elapsed().as_secs_f64();
    let written = (storage.decisions().counters().bytes - burst.0) as f64 / (elapsed - burst.1);
    report.compare("decisions/bytes", "bytes/s", written, options.decision_bytes_per_second as f64);
    let offered = (RATE * seconds) as f64;
    report.compare("decisions/logged", "1/s", logged as f64 / elapsed, offered / elapsed);
    storage.close().map_err(Failure::from)
}
