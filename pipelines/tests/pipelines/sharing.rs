//! Objects, stages and results that pipelines share.

use std::sync::Arc;

use celeris_model::Context;
use celeris_pipelines::objects::{Centroids, Content, Dictionary, Object, Objects, Weights};
use celeris_pipelines::{Catalog, PipelineError, PipelineSpec, Plan, Record, Scratch, SubPlans};
use serde_json::{Map, json};

/// A sentiment pipeline with weights of its own over a dictionary of all.
fn variant(objects: &Objects, dictionary: &Object, number: usize) -> (PipelineSpec, Arc<Object>) {
    let weights = Weights::new(vec![0.0], vec![number as f32, 1.0, 2.0]).unwrap();
    let weights = objects.add(&Content::Weights(Arc::new(weights))).unwrap();
    let spec = json!({"name": format!("variant {number}"), "nodes": {
        "words": {"op": "tokenize", "input": "item.text"},
        "grams": {"op": "word_ngrams", "input": "words", "n": [1, 1], "dictionary": dictionary.id()},
        "out": {"op": "linear", "input": "grams", "weights": weights.id()}}, "output": "out"});
    (PipelineSpec::parse(&spec).unwrap(), weights)
}

fn dictionary(objects: &Objects) -> Arc<Object> {
    let dictionary = Dictionary::new(["good", "bad", "film"]).unwrap();
    objects.add(&Content::Dictionary(Arc::new(dictionary))).unwrap()
}

#[test]
fn variants_share_dictionaries_and_equal_plans_share_stages() {
    let (objects, catalog) = (Objects::in_memory(), Catalog::default());
    let dictionary = dictionary(&objects);
    let plans: Vec<Plan> = (0..50)
        .map(|number| Plan::compile(&variant(&objects, &dictionary, number).0, &objects, &catalog).unwrap())
        .collect();
    let uses = objects.facts().into_iter().find(|facts| facts.sha256 == dictionary.id()).unwrap().uses;
    assert_eq!(uses, 51, "50 plans and this test hold one object");
    let stages = catalog.len();
    let again = Plan::compile(&variant(&objects, &dictionary, 7).0, &objects, &catalog).unwrap();
    assert_eq!(catalog.len(), stages, "a plan of equal stages adds none");
    assert!(again.explain().stages.iter().all(|stage| stage.shared_by >= 2));
    assert_eq!(again.fingerprint(), plans[7].fingerprint());
    drop((plans, again));
    assert!(catalog.is_empty(), "stages go with the last plan that has them");
}

#[test]
fn results_of_shared_ngrams_are_computed_once_within_their_budget() {
    let (objects, catalog) = (Objects::in_memory(), Catalog::default());
    let dictionary = dictionary(&objects);
    let plans: Vec<Plan> = (0..10)
        .map(|number| Plan::compile(&variant(&objects, &dictionary, number).0, &objects, &catalog).unwrap())
        .collect();
    let kept = SubPlans::new(10_000);
    let (mut scratch, context) = (Scratch::default(), Context::default());
    let mut run = |plan: &Plan, text: &str| {
        let item = Map::from_iter([("text".to_owned(), json!(text))]);
        let mut out = [0.0];
        plan.run_keeping(Record { item: &item, context: &context }, &mut scratch, Some(&kept), &mut out).unwrap();
        out[0]
    };
    for (number, plan) in plans.iter().enumerate() {
        assert_eq!(run(plan, "good film, bad film"), number as f32 + 1.0 + 4.0);
    }
    let facts = kept.facts();
    assert_eq!((facts.entries, facts.computed, facts.found), (1, 1, 9));
    (0..1000).for_each(|number| {
        run(&plans[0], &format!("good {number}"));
    });
    let facts = kept.facts();
    assert!(facts.bytes <= 10_000 && facts.entries > 10, "{facts:?}");
    let alone = Plan::compile(&variant(&objects, &dictionary, 99).0, &objects, &Catalog::default()).unwrap();
    run(&alone, "never seen by others");
    assert_eq!(kept.facts().computed, facts.computed, "nobody shares with a plan of another catalog");
}

#[test]
fn results_of_any_costly_shared_stage_are_computed_once() {
    let (objects, catalog) = (Objects::in_memory(), Catalog::default());
    let centroids = Centroids::new(2, vec![0.0, 0.0, 3.0, 4.0]).unwrap();
    let centroids = objects.add(&Content::Centroids(Arc::new(centroids))).unwrap();
    let plan = |link: &str| {
        let weights = Weights::new(vec![0.0], vec![1.0, 0.0]).unwrap();
        let weights = objects.add(&Content::Weights(Arc::new(weights))).unwrap();
        let spec = json!({"name": "clusters", "nodes": {
            "list": {"op": "field", "of": "item", "name": "list", "type": "numbers", "dim": 2},
            "clusters": {"op": "kmeans", "input": "list", "clusters": 2, "centroids": centroids.id()},
            "length": {"op": "normalize", "input": "clusters", "norm": "l1"},
            "out": {"op": "linear", "input": "length", "weights": weights.id(), "link": link}}, "output": "out"});
        Plan::compile(&PipelineSpec::parse(&spec).unwrap(), &objects, &catalog).unwrap()
    };
    let plans = ["identity", "logistic", "exp"].map(plan);
    let kept = SubPlans::new(10_000);
    let (mut scratch, context) = (Scratch::default(), Context::default());
    for list in [[3.0, 4.0], [0.0, 0.0], [3.0, 4.0]] {
        let item = Map::from_iter([("list".to_owned(), json!(list))]);
        for plan in &plans {
            let record = Record { item: &item, context: &context };
            let (mut computed, mut out) = ([0.0], [0.0]);
            plan.run(record, &mut scratch, &mut computed).unwrap();
            plan.run_keeping(record, &mut scratch, Some(&kept), &mut out).unwrap();
            assert_eq!(out, computed);
        }
    }
    let facts = kept.facts();
    assert_eq!((facts.entries, facts.computed, facts.found), (2, 2, 7));
}

#[test]
fn values_of_another_plan_are_refused() {
    let (objects, catalog) = (Objects::in_memory(), Catalog::default());
    let dictionary = dictionary(&objects);
    let [one, other] =
        [1, 2].map(|number| Plan::compile(&variant(&objects, &dictionary, number).0, &objects, &catalog).unwrap());
    let mut scratch = Scratch::default();
    let item = one.item_part(&Map::new(), &mut scratch);
    let context = other.context_part(&Context::default(), &mut scratch);
    let refused = other.pairs([&item].into_iter(), &context, &mut scratch, &mut [0.0]);
    assert_eq!(refused, Err(PipelineError::ForeignValues));
    let long = one.run(Record { item: &Map::new(), context: &Context::default() }, &mut scratch, &mut [0.0; 2]);
    assert_eq!(long, Err(PipelineError::OutputLength { expected: 1, received: 2 }));
}
