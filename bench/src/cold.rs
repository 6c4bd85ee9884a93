//! The cold-state cases of `celeris-bench topk`: long histories restored from snapshots, against
//! reading all events.

use celeris_model::VersionId;
use celeris_predictor::{PredictRequest, PredictorOptions};
use tokio::runtime::Runtime;

use crate::Settings;
use crate::report::Report;
use crate::stopwatch::Durations;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_cli::estimate::warm::{Ids, Warm};

const DIM: usize = 50;

const CATALOG: usize = 1_000;

/// Observations of a user.
const HISTORIES: [usize; 2] = [10_000, 100_000];

/// Users per history length; the median over them is reported.
const USERS: usize = 5;

/// Maximum number of a user's observations in the log's queue.
const QUEUED: usize = 10_000;

pub fn run(settings: &Settings, runtime: &Runtime, report: &mut Report) -> Result<(), Failure> {
    for history in HISTORIES {
        let warm = Warm::open(CATALOG, DIM, &PredictorOptions::default())?;
        let queued = settings.pick(QUEUED, QUEUED / 2);
        for _ in 0..settings.pick(history / QUEUED, 1) {
            runtime.block_on(warm.teach(USERS, queued, Ids::None))?;
        }
        let snapshot = first_touch(runtime, &warm, VersionId(1))?;
        // Another version has no snapshot yet.
        let whole = first_touch(runtime, &warm, VersionId(2))?;
        report.compare(format!("cold/n={history}"), "us", snapshot, whole);
    }
    Ok(())
}

/// The median time of the first prediction for a user, in microseconds.
fn first_touch(runtime: &Runtime, warm: &Warm, version: VersionId) -> Result<f64, Failure> {
    let predictor = warm.restarted(version)?;
    let mut durations = Durations::default();
    for number in 0..USERS {
        let user = scene::user(number).map_err(Failure::other)?;
        let items = warm.items[..1].to_vec();
        let request =
            PredictRequest { model: warm.model.clone(), user, items, min_epoch: None, segment: None, context: None };
        let answer = durations.time(|| runtime.block_on(predictor.predict(&request)));
        std::hint::black_box(answer.map_err(Failure::other)?);
    }
    Ok(durations.quantile_micros(0.5))
}
