//! All ways to run a pipeline give the same values.

use std::sync::Arc;

use celeris_pipelines::reference::Reference;
use celeris_pipelines::{Catalog, Engine, EngineSettings, Graph, Level, OwnedRecord, Plan, Record, Scratch, SubPlans};
use proptest::prelude::*;

use crate::random::{Generated, record};

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn run(plan: &Plan, record: Record, scratch: &mut Scratch) -> Vec<f32> {
    let mut out = vec![f32::NAN; plan.dim()];
    plan.run(record, scratch, &mut out).unwrap();
    out
}

#[test]
fn batches_have_the_bits_of_single_requests() {
    for kept in [None, Some(Arc::new(SubPlans::new(1 << 20)))] {
        run_batches(EngineSettings { executors: 3, chunk: 7, kept, ..EngineSettings::default() });
    }
}

fn run_batches(settings: EngineSettings) {
    let engine = Engine::new(settings).unwrap();
    let catalog = Catalog::default();
    let mut scratch = Scratch::default();
    let mut batches = Vec::new();
    for seed in 0..60 {
        let generated = Generated::new(seed);
        let plan = Arc::new(Plan::compile(&generated.spec, &generated.objects, &catalog).unwrap());
        let records: Vec<OwnedRecord> = (0..50)
            .map(|number| {
                let (item, context) = record(seed * 1000 + number);
                OwnedRecord { item: Arc::new(item), context: Arc::new(context) }
            })
            .collect();
        let reservation = (seed % 5 == 0).then(|| engine.reserve(&plan, 1).unwrap());
        let ticket = engine.submit(&plan, records.clone()).unwrap();
        batches.push((plan, records, ticket, reservation));
    }
    for (plan, records, ticket, reservation) in batches {
        // Some reservations end while their chunks wait.
        drop(reservation);
        let out = ticket.wait().unwrap();
        for (of, out) in records.iter().zip(out.chunks_exact(plan.dim())) {
            let single = run(&plan, Record { item: &of.item, context: &of.context }, &mut scratch);
            assert_eq!(bits(out), bits(&single));
        }
    }
}

#[test]
fn memory_of_a_scratch_does_not_grow_with_runs() {
    let generated: Vec<Generated> = (0..30).map(Generated::new).collect();
    let catalog = Catalog::default();
    let compile = |generated: &Generated| Plan::compile(&generated.spec, &generated.objects, &catalog).unwrap();
    let plans: Vec<Plan> = generated.iter().map(compile).collect();
    let mut scratch = Scratch::default();
    let mut run_all = || {
        for seed in 0..20 {
            let (item, context) = record(seed);
            plans.iter().for_each(|plan| {
                run(plan, Record { item: &item, context: &context }, &mut scratch);
            });
        }
        scratch.bytes()
    };
    let bytes = run_all();
    assert_eq!(run_all(), bytes);
}

proptest! {
    #![proptest_config(crate::random::cases(500))]

    #[test]
    fn optimised_pipelines_equal_the_declared_ones(seed: u64) {
        let generated = Generated::new(seed);
        let graph = Graph::declared(&generated.spec, &generated.objects).unwrap();
        let reference = Reference::new(&graph);
        let catalog = Catalog::default();
        let optimised = Plan::of_graph(graph.clone(), Level::Full, &catalog);
        let declared = Plan::of_graph(graph, Level::None, &catalog);
        let mut scratch = Scratch::default();
        for number in 0..4 {
            let (item, context) = record(seed.wrapping_add(number));
            let record = Record { item: &item, context: &context };
            let expected = reference.run(record);
            prop_assert!(expected.iter().all(|value| value.is_finite()));
            prop_assert_eq!(bits(&run(&declared, record, &mut scratch)), bits(&expected));
            let values = run(&optimised, record, &mut scratch);
            for (value, expected) in values.iter().zip(&expected) {
                // Sums in another order differ by less than one rounding to `f32`, and a model over them by its weights.
                let tolerance = 1e-6 * expected.abs().max(1.0);
                prop_assert!((value - expected).abs() <= tolerance, "{} and {}", value, expected);
            }
        }
    }

    #[test]
    fn parts_of_item_and_context_compose_to_the_whole(seed: u64) {
        let generated = Generated::new(seed);
        let plan = Plan::compile(&generated.spec, &generated.objects, &Catalog::default()).unwrap();
        let mut scratch = Scratch::default();
        let (_, context) = record(seed);
        let context_values = plan.context_part(&context, &mut scratch);
        let items: Vec<_> = (0..5).map(|number| record(seed.wrapping_add(number)).0).collect();
        let parts: Vec<_> = items.iter().map(|item| plan.item_part(item, &mut scratch)).collect();
        let mut out = vec![f32::NAN; plan.dim() * items.len()];
        plan.pairs(parts.iter(), &context_values, &mut scratch, &mut out).unwrap();
        for (item, out) in items.iter().zip(out.chunks_exact(plan.dim())) {
            let whole = run(&plan, Record { item, context: &context }, &mut Scratch::default());
            prop_assert_eq!(bits(out), bits(&whole));
        }
    }

    #[test]
    fn kept_results_of_shared_stages_equal_computed_ones(seed: u64) {
        let generated = Generated::new(seed);
        let catalog = Catalog::default();
        let plan = Plan::compile(&generated.spec, &generated.objects, &catalog).unwrap();
        let other = Plan::compile(&generated.spec, &generated.objects, &catalog).unwrap();
        let kept = SubPlans::new(20_000);
        let mut scratch = Scratch::default();
        for number in 0..6 {
            // Each record twice, on both plans.
            let (item, context) = record(seed.wrapping_add(number / 2));
            let record = Record { item: &item, context: &context };
            let expected = run(&plan, record, &mut scratch);
            for plan in [&plan, &other] {
                let mut out = vec![f32::NAN; plan.dim()];
                plan.run_keeping(record, &mut scratch, Some(&kept), &mut out).unwrap();
                prop_assert_eq!(bits(&out), bits(&expected));
            }
        }
        prop_assert!(kept.facts().bytes <= 20_000);
    }
}
