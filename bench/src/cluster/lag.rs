//! How long after its acknowledgement an observation is in the copies of the other nodes, at half of
//! the load that the cluster takes.

use std::time::{Duration, Instant};

use celeris_model::UserId;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::runtime::Runtime;

use super::Scene;
use super::rounds::Client;
use super::writing::observations;
use crate::load::{ask, connect};
use crate::process::MODEL;
use crate::report::Report;
use crate::stopwatch::Durations;
use celeris_cli::Failure;

/// Clients of the load.
const CLIENTS: usize = 32;

/// Observations that are looked for, one after the other.
const SAMPLES: usize = 600;

/// Between two looks at a copy.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How long a copy may lack an observation.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Epoch {
    user_epoch: u64,
}

fn epoch(reply: &Bytes) -> Result<u64, Failure> {
    Ok(serde_json::from_slice::<Epoch>(reply).map_err(Failure::other)?.user_epoch)
}

/// Measures the lag while `rate` observations a second are sent.
///
/// # Errors
/// If a request fails.
pub fn run(scene: &Scene<'_>, client: &Runtime, rate: f64, report: &mut Report) -> Result<(), Failure> {
    let samples = scene.settings.pick(SAMPLES, 12);
    let mut lags = client.block_on(async {
        let period = Duration::from_secs_f64(CLIENTS as f64 / rate);
        let mut load = Vec::with_capacity(CLIENTS);
        for number in 0..CLIENTS {
            load.push(begin(scene, number, period).await?);
        }
        let lags = measure(scene, samples).await;
        for task in &load {
            task.abort();
        }
        for task in load {
            // A load that was aborted has had no failure.
            if let Ok(Err(failure)) = task.await {
                return Err(failure);
            }
        }
        lags
    })?;
    report.single("lag/p50", "ms", Some(lags.quantile_micros(0.5) / 1e3));
    report.single("lag/p99", "ms", Some(lags.quantile_micros(0.99) / 1e3));
    Ok(())
}

/// Begins one client of the load.
async fn begin(
    scene: &Scene<'_>,
    number: usize,
    period: Duration,
) -> Result<tokio::task::JoinHandle<Result<(), Failure>>, Failure> {
    let shard = number % scene.owners.len();
    let bodies = observations(scene, &scene.users[shard], 900 + number as u64)?;
    let mut client = Client::connect(scene.nodes.address(scene.owners[shard]), bodies).await?;
    let path = format!("/v1/models/{MODEL}/observe");
    Ok(tokio::spawn(async move { client.paced(&path, period).await }))
}

async fn measure(scene: &Scene<'_>, samples: usize) -> Result<Durations, Failure> {
    let mut senders = Vec::new();
    for node in scene.nodes.running() {
        senders.push(connect(scene.nodes.address(node)).await?);
    }
    let (observe, look) = (format!("/v1/models/{MODEL}/observe"), format!("/v1/models/{MODEL}/predict?staleness=1m"));
    let item = &scene.nodes.items()[0];
    let mut lags = Durations::default();
    for sample in 0..samples {
        let (shard, round) = (sample % scene.owners.len(), sample / scene.owners.len());
        let owner = scene.owners[shard];
        let follower = (owner + 1 + round % (senders.len() - 1)) % senders.len();
        let user = user_in(scene, shard, round)?;
        let observation = json!({ "user": user, "item": item, "label": 3 }).to_string();
        let written = epoch(&ask(&mut senders[owner], &observe, observation.into()).await?)?;
        let acknowledged = Instant::now();
        let question = Bytes::from(json!({ "user": user, "item": item }).to_string());
        while epoch(&ask(&mut senders[follower], &look, question.clone()).await?)? < written {
            if acknowledged.elapsed() > TIMEOUT {
                return Err(Failure::other("an observation did not reach a copy"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        lags.add(acknowledged.elapsed());
    }
    Ok(lags)
}

/// A user of a shard whom the load does not observe.
fn user_in(scene: &Scene<'_>, shard: usize, number: usize) -> Result<UserId, Failure> {
    let spare = &scene.spare[shard];
    spare.get(number % spare.len().max(1)).cloned().ok_or_else(|| Failure::other("a shard has no users"))
}
