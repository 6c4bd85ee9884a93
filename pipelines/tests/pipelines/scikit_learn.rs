//! What scikit-learn counts, weighs, learns and predicts (`tests/fixtures/sentiment.py`).

use std::sync::Arc;

use celeris_model::Context;
use celeris_pipelines::fit::{FitOptions, Row, fit};
use celeris_pipelines::objects::{Content, Dictionary, Idf, Objects, Weights};
use celeris_pipelines::{Catalog, PipelineSpec, Plan, Record, Scratch};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Expected {
    features: Vec<String>,
    idf: Vec<f32>,
    coefficients: Vec<f32>,
    intercept: f32,
    sums: Vec<f32>,
    probabilities: Vec<f32>,
    ridge: Vec<f32>,
}

#[derive(Deserialize)]
struct Fixture {
    texts: Vec<String>,
    labels: Vec<f32>,
    vectorizers: BTreeMap<String, Expected>,
    union: Vec<f32>,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("../fixtures/sentiment.json")).unwrap()
}

fn item(text: &str) -> Map<String, Value> {
    Map::from_iter([("text".to_owned(), json!(text))])
}

/// The nodes of a vectorizer, whose last one is `features`, without learnt parameters.
fn nodes(name: &str) -> Value {
    let words = json!({"op": "tokenize", "input": "item.text", "words": "two_or_more"});
    match name {
        "word_counts" => json!({
            "words": words,
            "features": {"op": "word_ngrams", "input": "words", "n": [1, 2], "fit": {"min_count": 2}}}),
        "char_counts" => json!({
            "features": {"op": "char_ngrams", "input": "item.text", "n": [2, 3], "fit": {"min_count": 3}}}),
        "word_tf_idf" => json!({
            "words": words,
            "grams": {"op": "word_ngrams", "input": "words", "n": [1, 3], "fit": {"min_count": 2}},
            "features": {"op": "tf_idf", "input": "grams", "norm": "l2"}}),
        "char_wb_tf_idf" => json!({
            "grams": {"op": "char_ngrams", "input": "item.text", "window": "char_wb", "n": [3, 5], "fit": {"min_count": 3}},
            "features": {"op": "tf_idf", "input": "grams", "sublinear": true, "norm": "l2"}}),
        other => panic!("no vectorizer {other}"),
    }
}

fn spec(nodes: Value, linear: Value) -> PipelineSpec {
    let mut nodes = nodes;
    nodes["out"] = linear;
    PipelineSpec::parse(&json!({"name": "sentiment", "nodes": nodes, "output": "out"})).unwrap()
}

fn outputs(plan: &Plan, texts: &[String]) -> Vec<f32> {
    let (context, mut scratch) = (Context::default(), Scratch::default());
    let mut run = |text: &String| {
        let mut out = [0.0];
        plan.run(Record { item: &item(text), context: &context }, &mut scratch, &mut out).unwrap();
        out[0]
    };
    texts.iter().map(&mut run).collect()
}

fn largest_difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max)
}

#[test]
fn imported_vectorizers_and_models_predict_as_scikit_learn_does() {
    let fixture = fixture();
    for (name, expected) in &fixture.vectorizers {
        let objects = Objects::in_memory();
        let dictionary = Dictionary::new(&expected.features).unwrap();
        let dictionary = objects.add(&Content::Dictionary(Arc::new(dictionary))).unwrap();
        let mut nodes = nodes(name);
        let grams = if expected.idf.is_empty() { "features" } else { "grams" };
        nodes[grams]["dictionary"] = json!(dictionary.id());
        let idf = objects.add(&Content::Idf(Arc::new(Idf::new(expected.idf.clone()).unwrap()))).unwrap();
        if !expected.idf.is_empty() {
            nodes["features"]["idf"] = json!(idf.id());
        }
        let of = |bias: f32, weights: Vec<f32>| {
            objects.add(&Content::Weights(Arc::new(Weights::new(vec![bias], weights).unwrap()))).unwrap()
        };
        let model = of(expected.intercept, expected.coefficients.clone());
        let ones = of(0.0, vec![1.0; expected.features.len()]);
        let linear =
            |weights: &str, link: &str| json!({"op": "linear", "input": "features", "weights": weights, "link": link});
        let compile =
            |linear: Value| Plan::compile(&spec(nodes.clone(), linear), &objects, &Catalog::default()).unwrap();
        let sums = outputs(&compile(linear(&ones.id().to_string(), "identity")), &fixture.texts);
        // Sums of some dozen numbers that were rounded to `f32`.
        assert!(largest_difference(&sums, &expected.sums) < 1e-5, "{name}");
        let probabilities = outputs(&compile(linear(&model.id().to_string(), "logistic")), &fixture.texts);
        assert!(largest_difference(&probabilities, &expected.probabilities) < 1e-6, "{name}");
    }
}

/// Fits a pipeline to the texts and runs it on them.
fn fitted(spec: &PipelineSpec, fixture: &Fixture, objects: &Objects) -> (PipelineSpec, Vec<f32>) {
    let items: Vec<Map<String, Value>> = fixture.texts.iter().map(|text| item(text)).collect();
    let context = Context::default();
    let rows = || {
        items.iter().zip(&fixture.labels).map(|(item, label)| Row {
            key: b"",
            item,
            context: &context,
            label: Some(*label),
            target: None,
            weight: 1.0,
        })
    };
    let fitted = fit(spec, objects, rows, FitOptions::default()).unwrap();
    let plan = Plan::compile(&fitted.spec, objects, &Catalog::default()).unwrap();
    (fitted.spec, outputs(&plan, &fixture.texts))
}

#[test]
fn fits_learn_what_scikit_learn_learns() {
    let fixture = fixture();
    for (name, expected) in &fixture.vectorizers {
        let objects = Objects::in_memory();
        let logistic = json!({"op": "linear", "input": "features", "fit": "label", "link": "logistic"});
        let (_, probabilities) = fitted(&spec(nodes(name), logistic), &fixture, &objects);
        // Both solvers stop at a gradient of about 1e-7 of the first one.
        assert!(largest_difference(&probabilities, &expected.probabilities) < 1e-5, "{name}");
        let ridge = json!({"op": "linear", "input": "features", "fit": "label"});
        let (_, predictions) = fitted(&spec(nodes(name), ridge), &fixture, &objects);
        assert!(largest_difference(&predictions, &expected.ridge) < 1e-5, "{name}");
    }
}

#[test]
fn a_fitted_union_of_words_and_characters_predicts_as_scikit_learns_does() {
    let fixture = fixture();
    let mut union = nodes("word_counts");
    union["word_grams"] = union["features"].clone();
    union["char_grams"] = nodes("char_counts")["features"].clone();
    union["features"] = json!({"op": "concat", "inputs": ["word_grams", "char_grams"]});
    let logistic = json!({"op": "linear", "input": "features", "fit": "label", "link": "logistic"});
    let (_, probabilities) = fitted(&spec(union, logistic), &fixture, &Objects::in_memory());
    assert!(largest_difference(&probabilities, &fixture.union) < 1e-5);
}
