//! Recommendations of a node whose candidates have a part that crosses item and context, against a node without it.

use std::time::{Duration, Instant};

use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_cli::estimate::warm::Ids;
use celeris_features::parts::ItemMoments;
use celeris_features::{ColdItem, PartNotes, PartSpec, PartsFiles, Theta};
use celeris_model::ItemId;
use celeris_pipelines::objects::{Content, Weights};
use celeris_pipelines::{ObjectId, Objects, PipelineSpec};
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use serde_json::{Map, Value, json};

use crate::Settings;
use crate::load::{self, Sender, ask, connect};
use crate::ndjson::Lines;
use crate::process::{MODEL, Server, prepare_parts, prepare_table};
use crate::report::Report;
use crate::stopwatch::Durations;

const CATALOG: [usize; 2] = [10_000, 500];

/// Length of the features of the node with the part, which is one column.
const DIM: usize = 51;

const GENRES: usize = 20;

const DEVICES: [&str; 3] = ["phone", "tablet", "desktop"];

/// The columns of both crosses, a power of two each.
const HASH_BITS: u32 = 10;

/// Users who are requested in turn, and their observations.
const USERS: usize = 64;
const HISTORY: usize = 50;

/// Requests to each node, after as many uncounted ones.
const REQUESTS: [usize; 2] = [2_000, 20];

/// Slots of a recommendation.
const K: usize = 10;

/// Adds the cases `shortlist=200…`.
///
/// # Errors
/// If a node fails.
pub fn run(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    eprintln!("  recommending from a shortlist …");
    let theta = scene::theta(settings.pick(CATALOG[0], CATALOG[1]), DIM).map_err(Failure::other)?;
    let plain = narrower(&theta)?;
    let theta = with_empty_part(&theta)?;
    let folders = [tempfile::tempdir().map_err(Failure::other)?, tempfile::tempdir().map_err(Failure::other)?];
    prepare_parts(folders[0].path(), &theta, &parts(theta.items())?)?;
    prepare_table(folders[1].path(), &plain)?;
    let nodes = [Server::node(folders[0].path())?, Server::node(folders[1].path())?];
    let times = settings.pick(REQUESTS[0], REQUESTS[1]);
    let [mut with, mut without] = load::client()?.block_on(async {
        let mut senders = Vec::new();
        for node in &nodes {
            Lines::of_users(theta.items(), 0..USERS, HISTORY, Ids::None, 64)?.send(node).await?;
            senders.push(connect(node.address()).await?);
        }
        let mut taken: [Durations; 2] = Default::default();
        for turn in 0..2 * times {
            for (sender, durations) in senders.iter_mut().zip(&mut taken) {
                let took = recommend(sender, turn).await?;
                if turn >= times {
                    durations.add(took);
                }
            }
        }
        Ok::<_, Failure>(taken)
    })?;
    for node in nodes {
        node.stop()?;
    }
    let millis = |durations: &mut Durations, quantile: f64| durations.quantile_micros(quantile) / 1e3;
    for (suffix, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        report.compare(
            format!("shortlist=200/{suffix}"),
            "ms",
            millis(&mut with, quantile),
            millis(&mut without, quantile),
        );
    }
    report.single("shortlist=200/added", "ms", Some(millis(&mut with, 0.5) - millis(&mut without, 0.5)));
    Ok(())
}

/// The duration of a recommendation, from sending the request to reading the response.
async fn recommend(sender: &mut Sender, turn: usize) -> Result<Duration, Failure> {
    let context = json!({"device": DEVICES[turn % DEVICES.len()], "hour": turn % 24});
    let user = format!("user-{}", turn % USERS);
    let body = json!({"user": user, "k": K, "exclude_seen": false, "context": context}).to_string();
    let asked = Instant::now();
    ask(sender, &format!("/v1/models/{MODEL}/recommend"), body.into()).await?;
    Ok(asked.elapsed())
}

/// The table without the column before the constant.
fn narrower(theta: &Theta) -> Result<Theta, Failure> {
    let row = |row: &[f32]| [&row[..DIM - 2], &row[DIM - 1..]].concat();
    let features = theta.features().chunks_exact(DIM).flat_map(row).collect();
    let table = Theta::new(theta.items().to_vec(), theta.offsets().to_vec(), features, ColdItem::blank(DIM - 1));
    table.map_err(Failure::other)
}

/// The table with zero in the column of the part, which is computed.
fn with_empty_part(theta: &Theta) -> Result<Theta, Failure> {
    let mut features = theta.features().to_vec();
    features.chunks_exact_mut(DIM).for_each(|row| row[DIM - 2] = 0.0);
    let table = Theta::new(theta.items().to_vec(), theta.offsets().to_vec(), features, ColdItem::blank(DIM));
    table.map_err(Failure::other)
}

/// A linear model of the combinations of genre with device and with hour.
fn pipeline(weights: ObjectId) -> Result<PipelineSpec, Failure> {
    let genres: Vec<String> = (0..GENRES).map(genre).collect();
    let edges: Vec<usize> = (1..24).collect();
    let spec = json!({"name": "taste", "output": "liking", "nodes": {
        "genres": {"op": "multi_hot", "input": "item.genres", "categories": genres},
        "device": {"op": "one_hot", "input": "context.device", "categories": DEVICES},
        "hour": {"op": "bucketize", "input": "context.hour", "edges": edges},
        "on": {"op": "cross", "inputs": ["genres", "device"], "hash_bits": HASH_BITS},
        "at": {"op": "cross", "inputs": ["genres", "hour"], "hash_bits": HASH_BITS},
        "both": {"op": "concat", "inputs": ["on", "at"]},
        "liking": {"op": "linear", "input": "both", "weights": weights}}});
    Ok(PipelineSpec::parse(&spec)?)
}

/// The part with invented weights, and items of one to three genres.
fn parts(items: &[ItemId]) -> Result<PartsFiles, Failure> {
    let mut rng = scene::rng(65);
    let weights = (0..2 << HASH_BITS).map(|_| StandardNormal.sample(&mut rng)).collect();
    let weights = Objects::in_memory().add(&Content::Weights(Weights::new(vec![0.0], weights)?.into()))?;
    let pipeline = pipeline(weights.id())?;
    let part = PartSpec {
        part: "liking".to_owned(),
        pipeline,
        means: vec![0.0],
        deviations: vec![1.0],
        contexts: Vec::new(),
        item_effects: vec![0.0],
        noted: PartNotes::default(),
    };
    let mut attributes = || -> Map<String, Value> {
        let genres: Vec<String> = (0..rng.random_range(1..=3)).map(|_| genre(rng.random_range(0..GENRES))).collect();
        Map::from_iter([("genres".to_owned(), json!(genres))])
    };
    let described: Vec<Map<String, Value>> = items.iter().map(|_| attributes()).collect();
    // A mean and a variance for each, which are not used without common contexts.
    let moments = vec![0.0; 2 * items.len()];
    let moments = ItemMoments { items, moments: &moments, width: 2 };
    Ok(PartsFiles::of(vec![part], [&weights], items.iter().zip(&described), Some(moments)))
}

fn genre(number: usize) -> String {
    format!("genre-{number}")
}
