//! What fits learn from rows.

use std::sync::Arc;

use celeris_model::{Context, ContextValue};
use celeris_pipelines::fit::{FitOptions, Fitted, Row, fit};
use celeris_pipelines::objects::{Content, Objects};
use celeris_pipelines::spec::Operator;
use celeris_pipelines::{AttributeEncoder, Catalog, PipelineError, PipelineSpec, Plan, Record, Scratch};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

struct Data {
    key: String,
    item: Map<String, Value>,
    context: Context,
    label: Option<f32>,
    target: Option<Vec<f32>>,
}

fn data(key: usize, item: Value) -> Data {
    let Value::Object(item) = item else { panic!("{item} is no object") };
    Data { key: key.to_string(), item, context: Context::default(), label: None, target: None }
}

fn spec(nodes: Value) -> PipelineSpec {
    PipelineSpec::parse(&json!({"name": "test", "nodes": nodes, "output": "out"})).unwrap()
}

fn fit_to(spec: &PipelineSpec, data: &[Data], objects: &Objects, options: FitOptions) -> Result<Fitted, PipelineError> {
    let rows = || {
        data.iter().map(|data| Row {
            key: data.key.as_bytes(),
            item: &data.item,
            context: &data.context,
            label: data.label,
            target: data.target.as_deref(),
            weight: 1.0,
        })
    };
    fit(spec, objects, rows, options)
}

fn outputs(spec: &PipelineSpec, objects: &Objects, data: &[Data]) -> Vec<Vec<f32>> {
    let plan = Plan::compile(spec, objects, &Catalog::default()).unwrap();
    let mut scratch = Scratch::default();
    let mut run = |data: &Data| {
        let mut out = vec![0.0; plan.dim()];
        plan.run(Record { item: &data.item, context: &data.context }, &mut scratch, &mut out).unwrap();
        out
    };
    data.iter().map(&mut run).collect()
}

#[test]
fn vocabularies_have_what_is_frequent_in_alphabetical_order() {
    let objects = Objects::in_memory();
    let texts = ["b a", "a b", "c a c c", "d"];
    let data: Vec<Data> = texts.iter().enumerate().map(|(key, text)| data(key, json!({"text": text}))).collect();
    let spec = spec(json!({
        "words": {"op": "tokenize", "input": "item.text"},
        "out": {"op": "word_ngrams", "input": "words", "n": [1, 2], "fit": {"min_count": 1, "max_size": 3}}}));
    let fitted = fit_to(&spec, &data, &objects, FitOptions::default()).unwrap();
    let Content::Dictionary(dictionary) = fitted.objects[0].content() else { panic!("a dictionary") };
    // a is in three rows, b in two, and a b is the first of those in one.
    assert_eq!(dictionary.strings().collect::<Vec<_>>(), ["a", "a b", "b"]);
    let none = json!({"out": {"op": "multi_hot", "input": "item.tags", "fit": {"min_count": 5}}});
    let none = PipelineSpec::parse(&json!({"name": "test", "nodes": none, "output": "out"})).unwrap();
    let refused = fit_to(&none, &data, &objects, FitOptions::default()).unwrap_err();
    assert_eq!(refused.to_string(), "out: cannot be fitted: no string occurs in 5 rows");
}

#[test]
fn numbers_are_standardised_over_those_that_are_there() {
    let objects = Objects::in_memory();
    let numbers = [json!(1), json!(3), json!(null), json!("4")];
    let data: Vec<Data> = numbers.iter().enumerate().map(|(key, number)| data(key, json!({"n": number}))).collect();
    let standard = spec(json!({"out": {"op": "scale", "input": "item.n"}}));
    let fitted = fit_to(&standard, &data, &objects, FitOptions::default()).unwrap();
    assert_eq!(outputs(&fitted.spec, &objects, &data).concat(), [-1.0, 1.0, 0.0, 0.0]);
    let min_max = spec(json!({"out": {"op": "scale", "input": "item.n", "fit": "min_max"}}));
    let fitted = fit_to(&min_max, &data, &objects, FitOptions::default()).unwrap();
    assert_eq!(outputs(&fitted.spec, &objects, &data).concat(), [0.0, 1.0, 0.5, 0.5]);
}

/// Items of two groups, which differ along one direction.
#[test]
fn attributes_are_encoded_as_the_map_for_new_items_reads_them() {
    let objects = Objects::in_memory();
    let film = |number: usize| {
        json!({"title": format!("The number {number}"), "year": 1990 + number, "genres": ["Drama", "Crime"],
               "vector": [number, 1], "available_from": 7})
    };
    let items: Vec<Data> = (0..40).map(|number| data(number, film(number))).collect();
    // Each item has many rows. Counted by rows, its title would repeat, and be a keyword instead of a text.
    let rows: Vec<Data> = (0..400).map(|row| data(row, film(row % 40))).collect();
    let spec = spec(json!({"out": {"op": "attributes"}}));
    let fitted = fit_to(&spec, &rows, &objects, FitOptions::default()).unwrap();
    let encoder = AttributeEncoder::learn(items.iter().map(|data| &data.item));
    let Content::Attributes(learnt) = fitted.objects[0].content() else { panic!("rules") };
    assert_eq!(**learnt, encoder);
    let unlike = data(99, json!({"title": "Number 7", "year": null, "other": 3}));
    for item in items.iter().chain([&unlike]) {
        let mut expected = vec![0.0_f32; encoder.width()];
        encoder.encode(&item.item).into_iter().for_each(|(column, value)| expected[column as usize] = value);
        let out = outputs(&fitted.spec, &objects, std::slice::from_ref(item)).remove(0);
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&out), bits(&expected));
    }
    let plan = Plan::compile(&fitted.spec, &objects, &Catalog::default()).unwrap();
    assert!(plan.has_item(&unlike.item) && !plan.has_item(&data(0, json!({"year": null, "other": 3})).item));
    // An object that is not what the encoder writes is refused.
    let bytes = fitted.objects[0].content().encode();
    assert!(objects.insert(&bytes).is_ok());
    assert!(objects.insert(&[&bytes[..bytes.len() - 1], b" }"].concat()).is_err());
}

fn groups() -> Vec<Data> {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut noise = || rng.random_range(-0.1..0.1);
    (0..200)
        .map(|key| {
            let side = if key % 2 == 0 { 3.0 } else { -3.0 };
            data(key, json!({"list": [side + noise(), 1.0 + side + noise(), noise()]}))
        })
        .collect()
}

#[test]
fn clusters_and_components_find_the_groups_of_the_rows() {
    let objects = Objects::in_memory();
    let data = groups();
    let list = json!({"op": "field", "of": "item", "name": "list", "type": "numbers", "dim": 3});
    let clusters = spec(json!({"list": list, "out": {"op": "kmeans", "input": "list", "clusters": 2}}));
    let fitted = fit_to(&clusters, &data, &objects, FitOptions::default()).unwrap();
    let distances = outputs(&fitted.spec, &objects, &data);
    let own = usize::from(distances[0][0] > distances[0][1]);
    for (key, distances) in distances.iter().enumerate() {
        let cluster = (own + key) % 2;
        assert!(distances[cluster] < 0.3 && distances[1 - cluster] > 8.0, "{key}: {distances:?}");
    }
    let components = spec(json!({"list": list, "out": {"op": "pca", "input": "list", "dim": 1}}));
    let fitted = fit_to(&components, &data, &objects, FitOptions::default()).unwrap();
    for (key, coordinate) in outputs(&fitted.spec, &objects, &data).concat().into_iter().enumerate() {
        let side = if key % 2 == 0 { 1.0 } else { -1.0 };
        // (3, 3, 0) along (1, 1, 0) / sqrt 2.
        assert!((coordinate * side - 3.0 * 2.0_f32.sqrt()).abs() < 0.3, "{key}: {coordinate}");
    }
}

#[test]
fn target_vectors_are_learnt_with_their_bias() {
    let objects = Objects::in_memory();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let row = |key| {
        let (a, b) = (rng.random_range(-1.0..1.0_f32), rng.random_range(-1.0..1.0_f32));
        let target = Some(vec![2.0 * a - b + 0.5, b - 1.0]);
        Data { target, ..data(key, json!({"a": a, "b": b})) }
    };
    let data: Vec<Data> = (0..100).map(row).collect();
    let spec = spec(json!({
        "all": {"op": "concat", "inputs": ["item.a", "item.b"]},
        "out": {"op": "linear", "input": "all", "outputs": 2, "fit": "target", "regularization": 1e-6}}));
    let fitted = fit_to(&spec, &data, &objects, FitOptions::default()).unwrap();
    for (out, data) in outputs(&fitted.spec, &objects, &data).iter().zip(&data) {
        let target = data.target.as_ref().unwrap();
        assert!(out.iter().zip(target).all(|(out, target)| (out - target).abs() < 1e-5), "{out:?} {target:?}");
    }
}

#[test]
fn rates_are_learnt_by_poisson_regression() {
    let objects = Objects::in_memory();
    let counts = [("a", [2.0, 4.0]), ("b", [10.0, 6.0])];
    let data: Vec<Data> = counts
        .iter()
        .flat_map(|(group, counts)| counts.map(|count| (group, count)))
        .enumerate()
        .map(|(key, (group, count))| Data { label: Some(count), ..data(key, json!({"group": group})) })
        .collect();
    let spec = spec(json!({
        "group": {"op": "one_hot", "input": "item.group", "categories": ["a", "b"]},
        "out": {"op": "linear", "input": "group", "link": "exp", "fit": "label", "regularization": 1e-9}}));
    let fitted = fit_to(&spec, &data, &objects, FitOptions::default()).unwrap();
    let rates = outputs(&fitted.spec, &objects, &data).concat();
    // The mean of each group.
    assert!(rates.iter().zip([3.0, 3.0, 8.0, 8.0]).all(|(rate, mean)| (rate - mean).abs() < 1e-3), "{rates:?}");
}

/// Rows with a category of their own each, whose labels are random: a model can only learn them by heart.
fn noise() -> (PipelineSpec, Vec<Data>) {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let row = |key: usize| {
        let context = [("page".to_owned(), ContextValue::Text("home".to_owned()))];
        let label = Some(f32::from(u8::from(rng.random_bool(0.5))));
        Data { label, context: Context::new(context).unwrap(), ..data(key, json!({"id": format!("id {key}")})) }
    };
    let data = (0..400).map(row).collect();
    let spec = spec(json!({
        "id": {"op": "one_hot", "input": "item.id", "fit": {"min_count": 1}},
        "page": {"op": "hash", "input": "context.page", "hash_bits": 4},
        "all": {"op": "concat", "inputs": ["id", "page"]},
        "out": {"op": "linear", "input": "all", "link": "logistic", "fit": "label", "regularization": 0.01}}));
    (spec, data)
}

#[test]
fn values_out_of_fold_know_nothing_of_their_labels() {
    let (spec, data) = noise();
    let objects = Objects::in_memory();
    let options = FitOptions { folds: 5, seed: 1, ..FitOptions::default() };
    let fitted = fit_to(&spec, &data, &objects, options).unwrap();
    let correct = |values: &[f32]| {
        let hits = values.iter().zip(&data).filter(|(value, data)| (**value > 0.5) == (data.label == Some(1.0)));
        hits.count() as f64 / data.len() as f64
    };
    let own = outputs(&fitted.spec, &objects, &data).concat();
    assert!(correct(&own) > 0.99, "the model knows the labels of its own rows");
    let out_of_fold = fitted.out_of_fold.unwrap();
    // A coin over 400 rows deviates from a half by 0.025.
    assert!((0.35..0.6).contains(&correct(&out_of_fold)), "{}", correct(&out_of_fold));
    let again = fit_to(&spec, &data, &objects, options).unwrap();
    assert_eq!(again.out_of_fold.unwrap(), out_of_fold);
    assert_eq!(again.spec, fitted.spec);
}

#[test]
fn fitted_nodes_are_kept_and_only_the_others_learnt() {
    let (spec, data) = noise();
    let objects = Objects::in_memory();
    let fitted = fit_to(&spec, &data, &objects, FitOptions::default()).unwrap();
    assert_eq!(fitted.objects.len(), 2);
    let mut partly = fitted.spec.clone();
    if let Some(Operator::Linear(linear)) = partly.nodes.get_mut("out") {
        linear.weights = None;
    }
    let again = fit_to(&partly, &data, &objects, FitOptions::default()).unwrap();
    assert_eq!((again.spec, again.objects.len()), (fitted.spec, 1));
    assert!(Arc::ptr_eq(&again.objects[0], &fitted.objects[1]));
}

#[test]
fn rows_that_a_model_cannot_learn_from_are_refused() {
    let (spec, mut data) = noise();
    let objects = Objects::in_memory();
    data[3].label = Some(2.0);
    let refused = fit_to(&spec, &data, &objects, FitOptions::default()).unwrap_err().to_string();
    assert!(refused.starts_with("out: cannot be fitted: label [2.0]"), "{refused}");
    data.iter_mut().for_each(|data| data.label = None);
    let refused = fit_to(&spec, &data, &objects, FitOptions::default()).unwrap_err().to_string();
    assert_eq!(refused, "out: cannot be fitted: no row has what it learns");
    let few = FitOptions { entries_max: 10, ..FitOptions::default() };
    data.iter_mut().for_each(|data| data.label = Some(1.0));
    let refused = fit_to(&spec, &data, &objects, few).unwrap_err().to_string();
    assert!(refused.contains("more than 10 entries"), "{refused}");
    let folds = FitOptions { folds: 1, ..FitOptions::default() };
    assert!(fit_to(&spec, &data, &objects, folds).is_err());
}
