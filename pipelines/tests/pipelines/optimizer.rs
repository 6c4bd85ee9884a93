//! What the optimizer makes of declarations.

use std::sync::Arc;

use celeris_pipelines::objects::{Content, Dictionary, Moments, Object, Objects, Weights};
use celeris_pipelines::{Catalog, Depends, PipelineSpec, Plan, Scratch};
use serde_json::{Value, json};

struct Made {
    objects: Objects,
    handles: Vec<Arc<Object>>,
}

impl Made {
    fn new() -> Self {
        Self { objects: Objects::in_memory(), handles: Vec::new() }
    }

    fn add(&mut self, content: Content) -> String {
        let object = self.objects.add(&content).unwrap();
        self.handles.push(object.clone());
        object.id().to_string()
    }

    fn weights(&mut self, columns: usize) -> String {
        let weights = (0..columns).map(|column| column as f32 / 10.0).collect();
        self.add(Content::Weights(Arc::new(Weights::new(vec![0.5], weights).unwrap())))
    }

    fn dictionary(&mut self, strings: &[&str]) -> String {
        self.add(Content::Dictionary(Arc::new(Dictionary::new(strings).unwrap())))
    }

    fn plan(&self, nodes: Value) -> Plan {
        let spec = PipelineSpec::parse(&json!({"name": "test", "nodes": nodes, "output": "out"})).unwrap();
        Plan::compile(&spec, &self.objects, &Catalog::default()).unwrap()
    }
}

fn ops(plan: &Plan) -> Vec<Vec<&'static str>> {
    plan.explain().stages.into_iter().map(|stage| stage.ops).collect()
}

#[test]
fn a_sentiment_pipeline_is_two_stages_without_its_concatenation() {
    let mut made = Made::new();
    let words = made.dictionary(&["good", "bad"]);
    let characters = made.dictionary(&["goo", "bad", "d f"]);
    let weights = made.weights(5);
    let plan = made.plan(json!({
        "words": {"op": "tokenize", "input": "item.text"},
        "word_grams": {"op": "word_ngrams", "input": "words", "n": [1, 2], "dictionary": words},
        "char_grams": {"op": "char_ngrams", "input": "item.text", "n": [3, 3], "dictionary": characters},
        "all": {"op": "concat", "inputs": ["word_grams", "char_grams"]},
        "out": {"op": "linear", "input": "all", "weights": weights, "link": "logistic"}}));
    let text = vec!["field", "tokenize", "word_ngrams", "linear_part", "char_ngrams", "linear_part"];
    assert_eq!(ops(&plan), [text, vec!["total", "linear_end"]]);
    let explained = plan.explain();
    assert_eq!(
        explained.rewrites,
        [
            "linear out is pushed through concat all: 2 branches",
            "all is removed: nothing reads it",
            "item.text is read in one pass for word_grams, char_grams",
            "out.total is computed in the stage of out",
        ]
    );
    assert_eq!(explained.objects.len(), 3);
    assert!(explained.stages.iter().all(|stage| stage.depends_on == Depends::Item));
}

#[test]
fn equal_nodes_are_computed_once() {
    let mut made = Made::new();
    let weights = made.weights(4);
    let plan = made.plan(json!({
        "one": {"op": "cyclic", "input": "context.hour", "period": 24},
        "same": {"op": "cyclic", "input": "context.hour", "period": 24},
        "all": {"op": "concat", "inputs": ["one", "same"]},
        "out": {"op": "linear", "input": "all", "weights": weights}}));
    let rewrites = plan.explain().rewrites;
    assert!(rewrites.contains(&"same equals one and is computed once".to_owned()), "{rewrites:?}");
    let cyclic = ops(&plan).concat().iter().filter(|op| **op == "cyclic").count();
    assert_eq!(cyclic, 1);
}

#[test]
fn constants_are_computed_with_the_plan() {
    let mut made = Made::new();
    let (weights, whole) = (made.weights(2), made.weights(2));
    let plan = made.plan(json!({
        "constant": {"op": "constant", "numbers": [3, 4]},
        "length": {"op": "normalize", "input": "constant", "norm": "l2"},
        "offset": {"op": "linear", "input": "length", "weights": weights},
        "all": {"op": "concat", "inputs": ["offset", "item.x"]},
        "out": {"op": "linear", "input": "all", "weights": whole}}));
    let ops = ops(&plan).concat();
    assert!(!ops.contains(&"normalize") && !ops.contains(&"constant"), "{ops:?}");
    let rewrites = plan.explain().rewrites;
    assert!(rewrites.contains(&"offset is a constant".to_owned()), "{rewrites:?}");
}

#[test]
fn scaling_and_nested_concatenations_vanish_into_the_dot_product() {
    let mut made = Made::new();
    let moments = made.add(Content::Moments(Arc::new(Moments::new(vec![1.0], vec![2.0], vec![1.0]).unwrap())));
    let weights = made.weights(3);
    let plan = made.plan(json!({
        "year": {"op": "scale", "input": "item.year", "moments": moments},
        "inner": {"op": "concat", "inputs": ["year", "item.price"]},
        "all": {"op": "concat", "inputs": ["inner", "item.size"]},
        "out": {"op": "linear", "input": "all", "weights": weights}}));
    let ops = ops(&plan).concat();
    assert!(!ops.contains(&"concat") && !ops.contains(&"scale"), "{ops:?}");
}

#[test]
fn stages_do_not_mix_what_they_depend_on_and_an_item_keeps_one_sum() {
    let mut made = Made::new();
    let genres = made.dictionary(&["a", "b"]);
    let weights = made.weights(2 + 1024 + 2 + 256);
    let plan = made.plan(json!({
        "words": {"op": "tokenize", "input": "item.title"},
        "grams": {"op": "word_ngrams", "input": "words", "n": [1, 2], "hash_bits": 10},
        "genres": {"op": "multi_hot", "input": "item.genres", "dictionary": genres},
        "hour": {"op": "cyclic", "input": "context.hour", "period": 24},
        "cross": {"op": "cross", "inputs": ["genres", "context.device"], "hash_bits": 8},
        "all": {"op": "concat", "inputs": ["genres", "grams", "hour", "cross"]},
        "out": {"op": "linear", "input": "all", "weights": weights, "link": "logistic"}}));
    let stages = plan.explain().stages;
    for stage in &stages {
        let expected = match stage.depends_on {
            Depends::Item => "once for an item of a version",
            Depends::Context => "once for a request",
            Depends::ItemAndContext => "for each candidate",
            Depends::Nothing => panic!("constants are no stages"),
        };
        assert_eq!(stage.computed, expected);
    }
    let pairs: Vec<&str> = stages
        .iter()
        .filter(|stage| stage.depends_on == Depends::ItemAndContext)
        .flat_map(|stage| stage.ops.iter().copied())
        .collect();
    assert_eq!(pairs, ["cross_linear_part", "total", "linear_end"]);
    let item = json!({"title": "a title of some more words", "genres": ["a", "b"]});
    let Value::Object(item) = item else { panic!("an object") };
    let values = plan.item_part(&item, &mut Scratch::default());
    // One sum, the two genres that the cross reads, and their places.
    assert!(values.bytes() < 300, "{}", values.bytes());
}

#[test]
fn concatenations_that_repeat_their_inputs_are_not_unrolled() {
    let made = Made::new();
    let many = |input: &str| json!({"op": "concat", "inputs": vec![input; 64]});
    let plan = made.plan(json!({
        "a": {"op": "hash", "input": "item.a", "hash_bits": 1},
        "b": many("a"),
        "c": many("b"),
        "out": many("c")}));
    assert_eq!(plan.dim(), 2 << 18);
    assert_eq!(ops(&plan).concat().iter().filter(|op| **op == "concat").count(), 3);
}
