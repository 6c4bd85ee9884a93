//! Values of operators on small numbers that were computed by hand.

use std::sync::Arc;

use celeris_model::{Context, ContextValue};
use celeris_pipelines::objects::{
    Centroids, Components, Content, Dictionary, EmbeddingTable, Idf, Moments, Object, Objects, Weights,
};
use celeris_pipelines::{Catalog, PipelineSpec, Plan, Record, Scratch};
use serde_json::{Map, Value, json};

/// Runs the node `out` of these nodes on a record.
fn run(nodes: Value, item: Value, objects: &Objects) -> Vec<f32> {
    run_with(nodes, item, Context::default(), objects)
}

fn run_with(nodes: Value, item: Value, context: Context, objects: &Objects) -> Vec<f32> {
    let spec = PipelineSpec::parse(&json!({"name": "test", "nodes": nodes, "output": "out"})).unwrap();
    let plan = Plan::compile(&spec, objects, &Catalog::default()).unwrap();
    let item: Map<String, Value> = serde_json::from_value(item).unwrap();
    let mut out = vec![f32::NAN; plan.dim()];
    plan.run(Record { item: &item, context: &context }, &mut Scratch::default(), &mut out).unwrap();
    out
}

fn add(objects: &Objects, content: Content) -> Arc<Object> {
    objects.add(&content).unwrap()
}

#[test]
fn categories_are_strings_numbers_and_booleans() {
    let objects = Objects::in_memory();
    let known = json!({"out": {"op": "one_hot", "input": "item.a", "categories": ["7", "true", "x", "0.5"]}});
    for (value, expected) in [
        (json!("x"), [0.0, 0.0, 1.0, 0.0]),
        (json!(7), [1.0, 0.0, 0.0, 0.0]),
        (json!(7.0), [1.0, 0.0, 0.0, 0.0]),
        (json!(0.5), [0.0, 0.0, 0.0, 1.0]),
        (json!(true), [0.0, 1.0, 0.0, 0.0]),
        (json!("other"), [0.0; 4]),
        (json!(["x"]), [0.0; 4]),
        (json!(null), [0.0; 4]),
    ] {
        assert_eq!(run(known.clone(), json!({"a": value}), &objects), expected, "{value}");
    }
}

#[test]
fn lists_have_a_column_for_each_known_element_once() {
    let objects = Objects::in_memory();
    let known = json!({"out": {"op": "multi_hot", "input": "item.genres", "categories": ["a", "b", "7"]}});
    let of = |genres: Value| run(known.clone(), json!({"genres": genres}), &objects);
    assert_eq!(of(json!(["b", "a", "b", "z"])), [1.0, 1.0, 0.0]);
    assert_eq!(of(json!(["b", 7])), [0.0, 1.0, 1.0]);
    assert_eq!(of(json!("a")), [1.0, 0.0, 0.0]);
    assert_eq!(of(json!([])), [0.0; 3]);
}

#[test]
fn hashed_columns_are_those_of_their_texts_with_signs_if_wanted() {
    let objects = Objects::in_memory();
    let hash = |signs: bool| json!({"out": {"op": "hash", "input": "item.tags", "hash_bits": 4, "signs": signs}});
    let plain = run(hash(false), json!({"tags": ["a", "b", "a"]}), &objects);
    assert_eq!(plain.iter().sum::<f32>(), 3.0);
    assert_eq!(plain.iter().filter(|value| **value == 2.0).count(), 1, "{plain:?}");
    let signed = run(hash(true), json!({"tags": ["a", "b", "a"]}), &objects);
    assert_eq!(signed.iter().map(|value| value.abs()).collect::<Vec<f32>>(), plain);
}

#[test]
fn numbers_fall_into_buckets_and_onto_circles() {
    let objects = Objects::in_memory();
    let nodes = json!({
        "buckets": {"op": "bucketize", "input": "item.n", "edges": [0, 10]},
        "out": {"op": "concat", "inputs": ["buckets"]}});
    let of = |number: Value| run(nodes.clone(), json!({"n": number}), &objects);
    assert_eq!(of(json!(-0.5)), [1.0, 0.0, 0.0]);
    assert_eq!(of(json!(0)), [0.0, 1.0, 0.0], "an edge belongs to the bucket above it");
    assert_eq!(of(json!(10.5)), [0.0, 0.0, 1.0]);
    assert_eq!(of(json!("10")), [0.0; 3], "a string is no number");
    let circle = json!({"out": {"op": "cyclic", "input": "item.n", "period": 24}});
    let of = |number: Value| run(circle.clone(), json!({"n": number}), &objects);
    let close =
        |of: Vec<f32>, expected: [f32; 2]| of.iter().zip(expected).all(|(of, expected)| (of - expected).abs() < 1e-6);
    assert!(close(of(json!(6)), [1.0, 0.0]) && close(of(json!(30)), [1.0, 0.0]) && close(of(json!(-12)), [0.0, -1.0]));
    assert_eq!(of(json!(null)), [0.0, 0.0]);
}

#[test]
fn missing_numbers_are_their_means_and_presence_tells_them_apart() {
    let objects = Objects::in_memory();
    let moments = Moments::new(vec![4.0, 0.0], vec![2.0, 10.0], vec![4.0, 5.0]).unwrap();
    let one = add(&objects, Content::Moments(Arc::new(Moments::new(vec![4.0], vec![2.0], vec![4.0]).unwrap())));
    let both = add(&objects, Content::Moments(Arc::new(moments)));
    let nodes = json!({
        "list": {"op": "field", "of": "item", "name": "list", "type": "numbers", "dim": 2},
        "number": {"op": "field", "of": "item", "name": "n", "type": "number"},
        "scaled": {"op": "scale", "input": "number", "moments": one.id(), "clamp": 3},
        "there": {"op": "presence", "input": "number"},
        "scaled_list": {"op": "scale", "input": "list", "moments": both.id()},
        "imputed": {"op": "impute", "input": "number", "value": -1},
        "raw": {"op": "concat", "inputs": ["number", "list"]},
        "out": {"op": "concat", "inputs": ["scaled", "there", "scaled_list", "imputed", "raw"]}});
    let of = |item: Value| run(nodes.clone(), item, &objects);
    assert_eq!(of(json!({"n": 8, "list": [6, 5]})), [2.0, 1.0, 1.0, 0.5, 8.0, 8.0, 6.0, 5.0]);
    assert_eq!(of(json!({"n": 80, "list": [6]})), [3.0, 1.0, 0.0, 0.5, 80.0, 80.0, 0.0, 0.0]);
    assert_eq!(of(json!({})), [0.0, 0.0, 0.0, 0.5, -1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn counts_are_weighted_and_divided_by_their_length() {
    let objects = Objects::in_memory();
    let words = add(&objects, Content::Dictionary(Arc::new(Dictionary::new(["a", "b", "a b"]).unwrap())));
    let idf = add(&objects, Content::Idf(Arc::new(Idf::new(vec![1.0, 2.0, 3.0]).unwrap())));
    let nodes = |last: Value| {
        json!({
            "words": {"op": "tokenize", "input": "item.text"},
            "counts": {"op": "word_ngrams", "input": "words", "n": [1, 2], "dictionary": words.id()},
            "out": last})
    };
    let of = |last: Value| run(nodes(last), json!({"text": "A, a b? c"}), &objects);
    let counts = [2.0, 1.0, 1.0];
    assert_eq!(of(json!({"op": "concat", "inputs": ["counts"]})), counts);
    assert_eq!(of(json!({"op": "tf_idf", "input": "counts", "idf": idf.id()})), [2.0, 2.0, 3.0]);
    let sublinear = of(json!({"op": "tf_idf", "input": "counts", "idf": idf.id(), "sublinear": true}));
    assert_eq!(sublinear, [1.0 + 2.0_f32.ln(), 2.0, 3.0]);
    assert_eq!(of(json!({"op": "normalize", "input": "counts", "norm": "l1"})), [0.5, 0.25, 0.25]);
    assert_eq!(of(json!({"op": "normalize", "input": "counts", "norm": "max"})), [1.0, 0.5, 0.5]);
    let length = 6.0_f64.sqrt();
    assert_eq!(
        of(json!({"op": "normalize", "input": "counts", "norm": "l2"})),
        counts.map(|count| (f64::from(count) / length) as f32)
    );
}

#[test]
fn embeddings_are_averaged_over_the_known_categories_of_a_list() {
    let objects = Objects::in_memory();
    let keys = Dictionary::new(["a", "b"]).unwrap();
    let table = EmbeddingTable::new(keys, 2, vec![1.0, 2.0, 3.0, 6.0]).unwrap();
    let table = add(&objects, Content::Embedding(Arc::new(table)));
    let nodes = json!({"out": {"op": "embedding", "input": "item.tags", "table": table.id()}});
    let of = |tags: Value| run(nodes.clone(), json!({"tags": tags}), &objects);
    assert_eq!(of(json!("b")), [3.0, 6.0]);
    assert_eq!(of(json!(["a", "b", "c"])), [2.0, 4.0]);
    assert_eq!(of(json!(["c"])), [0.0, 0.0]);
}

#[test]
fn vectors_are_rotated_clustered_and_weighed() {
    let objects = Objects::in_memory();
    let components = Components::new(vec![1.0, 1.0], vec![0.6, 0.8]).unwrap();
    let components = add(&objects, Content::Components(Arc::new(components)));
    let centroids = Centroids::new(2, vec![0.0, 0.0, 4.0, 5.0]).unwrap();
    let centroids = add(&objects, Content::Centroids(Arc::new(centroids)));
    let weights = Weights::new(vec![0.5, 0.0], vec![1.0, 0.0, 2.0, -1.0]).unwrap();
    let weights = add(&objects, Content::Weights(Arc::new(weights)));
    let nodes = |last: Value| json!({"list": {"op": "field", "of": "item", "name": "list", "type": "numbers", "dim": 2}, "out": last});
    let of = |last: Value| run(nodes(last), json!({"list": [4, 2]}), &objects);
    let pca = of(json!({"op": "pca", "input": "list", "dim": 1, "components": components.id()}));
    assert!((pca[0] - 2.6).abs() < 1e-6, "0.6 * 3 + 0.8 * 1: {pca:?}");
    let kmeans = json!({"op": "kmeans", "input": "list", "clusters": 2, "centroids": centroids.id()});
    assert_eq!(of(kmeans.clone()), [20.0_f32.sqrt(), 3.0]);
    let linear =
        |link: &str| json!({"op": "linear", "input": "list", "weights": weights.id(), "outputs": 2, "link": link});
    assert_eq!(of(linear("identity")), [8.5, -2.0]);
    assert_eq!(of(linear("exp")), [8.5_f64.exp() as f32, (-2.0_f64).exp() as f32]);
    assert_eq!(of(linear("logistic"))[1], (1.0 / (1.0 + 2.0_f64.exp())) as f32);
    let mut nearest = nodes(json!({"op": "one_hot", "input": "cluster"}));
    nearest["cluster"] = kmeans;
    nearest["cluster"]["gives"] = json!("cluster");
    assert_eq!(run(nearest, json!({"list": [4, 2]}), &objects), [0.0, 1.0]);
}

#[test]
fn crosses_tell_combinations_apart() {
    let objects = Objects::in_memory();
    let nodes = json!({"out": {"op": "cross", "inputs": ["item.genres", "context.device"], "hash_bits": 12}});
    let of = |genres: Value, device: &str| {
        let device = ContextValue::Text(device.to_owned());
        let context = Context::new([("device".to_owned(), device)]).unwrap();
        run_with(nodes.clone(), json!({"genres": genres}), context, &objects)
    };
    let columns = |values: Vec<f32>| -> Vec<usize> {
        values.iter().enumerate().filter(|(_, value)| **value == 1.0).map(|(column, _)| column).collect()
    };
    let (a_phone, b_phone, a_tablet) = (of(json!("a"), "phone"), of(json!("b"), "phone"), of(json!("a"), "tablet"));
    let single = [columns(a_phone), columns(b_phone), columns(a_tablet)];
    assert!(single.iter().all(|columns| columns.len() == 1), "{single:?}");
    assert!(single[0] != single[1] && single[0] != single[2] && single[1] != single[2], "{single:?}");
    let mut both = [single[0].clone(), single[1].clone()].concat();
    both.sort_unstable();
    assert_eq!(columns(of(json!(["a", "b"]), "phone")), both);
}

#[test]
fn results_stay_finite_at_the_bounds_of_numbers() {
    let objects = Objects::in_memory();
    let weights = Weights::new(vec![f32::MAX], vec![f32::MAX, f32::MAX]).unwrap();
    let weights = add(&objects, Content::Weights(Arc::new(weights)));
    let nodes = |link: &str| {
        json!({
            "list": {"op": "field", "of": "item", "name": "list", "type": "numbers", "dim": 2},
            "out": {"op": "linear", "input": "list", "weights": weights.id(), "link": link}})
    };
    let of = |link: &str, list: Value| run(nodes(link), json!({"list": list}), &objects);
    assert_eq!(of("identity", json!([1e300, 1e300])), [1e30]);
    assert_eq!(of("identity", json!([-1e300, -1e300])), [-1e30]);
    assert_eq!(of("exp", json!([1e300, 1e300])), [1e30]);
    assert_eq!(of("logistic", json!([-1e300, 0])), [0.0]);
}
