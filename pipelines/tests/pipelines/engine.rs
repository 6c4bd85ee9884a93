//! The batch engine under load.

use std::sync::Arc;

use celeris_pipelines::objects::Objects;
use celeris_pipelines::{Catalog, Engine, EngineSettings, OwnedRecord, PipelineError, PipelineSpec, Plan};
use serde_json::json;

fn plan(hash_bits: u32) -> Arc<Plan> {
    let spec = json!({"name": "hashes", "nodes": {
        "words": {"op": "tokenize", "input": "item.text"},
        "out": {"op": "word_ngrams", "input": "words", "n": [1, 3], "hash_bits": hash_bits}}, "output": "out"});
    let spec = PipelineSpec::parse(&spec).unwrap();
    Arc::new(Plan::compile(&spec, &Objects::in_memory(), &Catalog::default()).unwrap())
}

/// A record whose text takes about a millisecond.
fn slow() -> OwnedRecord {
    let item = serde_json::from_value(json!({"text": "some words ".repeat(1400)})).unwrap();
    OwnedRecord { item: Arc::new(item), ..OwnedRecord::default() }
}

#[test]
fn a_full_queue_refuses_whole_batches() {
    let settings = EngineSettings { queued_max: 8, chunk: 1, ..EngineSettings::default() };
    let engine = Engine::new(settings).unwrap();
    let plan = plan(4);
    assert!(matches!(engine.submit(&plan, vec![slow(); 9]), Err(PipelineError::Overloaded { queued: 0 })));
    let mut tickets = Vec::new();
    // Batches come faster than one executor runs them.
    let refused = loop {
        match engine.submit(&plan, vec![slow(); 2]) {
            Ok(ticket) => tickets.push(ticket),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, PipelineError::Overloaded { queued: 7 | 8 }), "{refused}");
    assert!(tickets.into_iter().all(|ticket| ticket.wait().unwrap().len() == 2 * plan.dim()));
}

#[test]
fn dropping_the_engine_gives_up_what_waits_and_ends() {
    let engine = Engine::new(EngineSettings { chunk: 1, ..EngineSettings::default() }).unwrap();
    let plan = plan(4);
    let tickets: Vec<_> = (0..1000).map(|_| engine.submit(&plan, vec![slow()]).unwrap()).collect();
    let reservation = engine.reserve(&plan, 2).unwrap();
    let reserved: Vec<_> = (0..1000).map(|_| engine.submit(&plan, vec![slow()]).unwrap()).collect();
    drop(engine);
    // Its chunks have no shared executors to go to any more.
    drop(reservation);
    let outcomes: Vec<_> = tickets.into_iter().chain(reserved).map(|ticket| ticket.wait()).collect();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(PipelineError::GivenUp { .. }))));
    assert!(outcomes.iter().any(Result::is_err));
}

#[test]
fn a_reserved_pipeline_does_not_wait_for_others() {
    let engine = Engine::new(EngineSettings { chunk: 1, queued_max: 10_000, ..EngineSettings::default() }).unwrap();
    let (busy, latency_critical) = (plan(4), plan(5));
    let _reservation = engine.reserve(&latency_critical, 1).unwrap();
    let others: Vec<_> = (0..500).map(|_| engine.submit(&busy, vec![slow(); 4]).unwrap()).collect();
    let out = engine.submit(&latency_critical, vec![slow()]).unwrap().wait().unwrap();
    assert_eq!(out.len(), 32);
    assert!(engine.waiting() > 0, "the shared executors still have 2000 records to do");
    drop(others);
}

#[test]
fn batches_whose_outputs_take_too_much_memory_are_refused() {
    let engine = Engine::new(EngineSettings::default()).unwrap();
    let refused = engine.submit(&plan(22), vec![OwnedRecord::default(); 17]).unwrap_err();
    assert_eq!(refused, PipelineError::BatchSize { received: 17 << 22, max: 1 << 26 });
}

#[test]
fn an_empty_batch_has_no_values() {
    let engine = Engine::new(EngineSettings::default()).unwrap();
    assert_eq!(engine.submit(&plan(4), Vec::new()).unwrap().wait().unwrap(), Vec::<f32>::new());
}
