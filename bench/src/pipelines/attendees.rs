//! The attendee-count pipelines of PRETZEL (section 5): numeric columns, three featurizers side by side, and a forest.

use std::sync::Arc;

use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_model::Context;
use celeris_pipelines::fit::{FitOptions, Row, fit};
use celeris_pipelines::objects::Content;
use celeris_pipelines::spec::{Operator, Trees};
use celeris_pipelines::{Catalog, Object, Objects, PipelineSpec, Plan, Scratch};
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use serde_json::{Map, json};

use super::fleet::{Fleet, Item, record};
use super::forests::{self, Size};
use crate::Settings;

/// Number of pipelines.
pub const PIPELINES: [usize; 2] = [250, 16];

const COLUMNS: usize = 40;

/// Rows that featurizers are fitted to, and rows that pipelines are run on.
const FITTED: usize = 2000;
const RUN: usize = 500;

/// Sets of featurizers that the pipelines share; each is fitted to its own part of the rows.
const FEATURIZERS: usize = 4;

const COORDINATES: usize = 10;
const CLUSTERS: usize = 10;

/// The trees that are features: their outputs are columns of the last forest.
const LEAVES: Size = Size { columns: COLUMNS, trees: 100, depth: 6, outputs: 10 };

/// The forest of each pipeline.
const FOREST: Size = Size { columns: COORDINATES + CLUSTERS + LEAVES.outputs, trees: 20, depth: 5, outputs: 1 };

/// Fits the featurizers to invented rows, and gives every pipeline a forest of its own over them.
///
/// # Errors
/// If a part cannot be made.
pub fn fleet(settings: &Settings) -> Result<Fleet, Failure> {
    let rows = rows(FITTED + RUN);
    let (fitted, run) = rows.split_at(FITTED);
    let objects = Objects::in_memory();
    let mut held = Vec::new();
    let mut featurizers = Vec::new();
    for (number, part) in fitted.chunks(FITTED / FEATURIZERS).enumerate() {
        featurizers.push(featurizer(number, part, &objects, &mut held)?);
    }
    let mut rng = scene::rng(94);
    let mut specs = Vec::new();
    for number in 0..settings.pick(PIPELINES[0], PIPELINES[1]) {
        let (featurizer, samples) = &featurizers[number % FEATURIZERS];
        let forest = forests::grow(FOREST, &mut rng, |rng, column| {
            let row = rng.random_range(0..samples.len() / FOREST.columns);
            f64::from(samples[row * FOREST.columns + column])
        })?;
        let forest = objects.add(&Content::Trees(Arc::new(forest)))?;
        let mut spec = featurizer.clone();
        spec.name = format!("attendees-{number}");
        let trees = Trees { input: spec.output.clone(), ensemble: forest.id() };
        spec.output = "attendees".to_owned();
        spec.nodes.insert(spec.output.clone(), Operator::Trees(trees));
        held.push(forest);
        specs.push(spec);
    }
    Ok(Fleet { specs, objects, held, items: run.to_vec() })
}

/// Rows of correlated columns, each with a location and a width of its own.
fn rows(count: usize) -> Vec<Item> {
    let mut rng = scene::rng(93);
    let columns: Vec<[f32; 3]> = (0..COLUMNS)
        .map(|_| [rng.random_range(-10.0..10.0), rng.random_range(0.5..5.0), rng.random_range(-0.8..0.8)])
        .collect();
    let row = |_| {
        let together: f32 = StandardNormal.sample(&mut rng);
        let mut number = |[location, width, share]: &[f32; 3]| {
            let own: f32 = StandardNormal.sample(&mut rng);
            location + width * (share * together + (1.0 - share * share).sqrt() * own)
        };
        Map::from_iter([("numbers".to_owned(), json!(columns.iter().map(&mut number).collect::<Vec<f32>>()))])
    };
    (0..count).map(row).collect()
}

/// A fitted declaration of the featurizers, and what it gives for its rows.
fn featurizer(
    number: usize,
    items: &[Item],
    objects: &Objects,
    held: &mut Vec<Arc<Object>>,
) -> Result<(PipelineSpec, Vec<f32>), Failure> {
    // The thresholds of standardised columns.
    let leaves = forests::grow(LEAVES, &mut scene::rng(95 + number as u64), |rng, _| StandardNormal.sample(rng))?;
    let leaves = objects.add(&Content::Trees(Arc::new(leaves)))?;
    let spec = PipelineSpec::parse(&json!({"name": "featurizers", "output": "all", "nodes": {
        "numbers": {"op": "field", "of": "item", "name": "numbers", "type": "numbers", "dim": COLUMNS},
        "scaled": {"op": "scale", "input": "numbers"},
        "components": {"op": "pca", "input": "scaled", "dim": COORDINATES},
        "clusters": {"op": "kmeans", "input": "scaled", "clusters": CLUSTERS},
        "leaves": {"op": "trees", "input": "scaled", "ensemble": leaves.id()},
        "all": {"op": "concat", "inputs": ["components", "clusters", "leaves"]}}}))?;
    held.push(leaves);
    let context = Context::default();
    let rows =
        || items.iter().map(|item| Row { key: b"", item, context: &context, label: None, target: None, weight: 1.0 });
    let fitted = fit(&spec, objects, rows, FitOptions { seed: number as u64, ..FitOptions::default() })?;
    held.extend(fitted.objects);
    let plan = Plan::compile(&fitted.spec, objects, &Catalog::default())?;
    let mut values = vec![0.0; items.len() * plan.dim()];
    let mut scratch = Scratch::default();
    for (item, out) in items.iter().zip(values.chunks_exact_mut(plan.dim())) {
        plan.run(record(item, &context), &mut scratch, out)?;
    }
    Ok((fitted.spec, values))
}
