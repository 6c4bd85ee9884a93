//! Declarations and records of a hostile client give errors or values, and no panic.

use celeris_model::{Context, ContextValue};
use celeris_pipelines::objects::Objects;
use celeris_pipelines::reference::Reference;
use celeris_pipelines::{Catalog, Graph, Level, PipelineSpec, Plan, Record, Scratch};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::random::Generated;

/// Any JSON, with words that declarations know.
fn value() -> impl Strategy<Value = Value> {
    let words =
        prop::sample::select(vec!["item.title", "context.x", "n1", "n2", "n3", "l2", "text", "sha256:00", "label"]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words.prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Fields of declarations that are replaced by anything.
const FIELDS: [&str; 12] = [
    "input",
    "inputs",
    "n",
    "hash_bits",
    "dictionary",
    "edges",
    "period",
    "weights",
    "norm",
    "categories",
    "op",
    "clamp",
];

/// The values of a record under every way to run it.
fn run_all(spec: &PipelineSpec, objects: &Objects, record: Record) {
    let Ok(graph) = Graph::declared(spec, objects) else { return };
    let expected = Reference::new(&graph).run(record);
    assert!(expected.iter().all(|value| value.is_finite()));
    for level in [Level::Full, Level::None] {
        let plan = Plan::of_graph(graph.clone(), level, &Catalog::default());
        let mut out = vec![f32::NAN; plan.dim()];
        plan.run(record, &mut Scratch::default(), &mut out).unwrap();
        assert!(out.iter().all(|value| value.is_finite()));
    }
}

proptest! {
    #![proptest_config(crate::random::cases(400))]

    #[test]
    fn mutated_declarations_are_refused_or_run(
        seed: u64,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..FIELDS.len(), value()), 1..4),
    ) {
        let generated = Generated::new(seed);
        let mut json = serde_json::to_value(&generated.spec).unwrap();
        let names: Vec<String> = generated.spec.nodes.keys().cloned().collect();
        for (node, field, value) in changes {
            json["nodes"][&names[node.index(names.len())]][FIELDS[field]] = value;
        }
        if let Ok(spec) = PipelineSpec::parse(&json) {
            let (item, context) = (Map::new(), Context::default());
            run_all(&spec, &generated.objects, Record { item: &item, context: &context });
        }
    }

    #[test]
    fn any_json_is_a_declaration_or_refused(json in value()) {
        let _ = PipelineSpec::parse(&json);
        let _ = PipelineSpec::parse(&json!({"name": "x", "nodes": json, "output": "n1"}));
    }

    #[test]
    fn any_record_has_finite_values(
        seed: u64,
        values in prop::collection::vec(value(), 9),
        numbers in prop::collection::vec(prop_oneof![Just(1e30), Just(-1e30), Just(0.0), any::<f32>().prop_map(f64::from)], 3),
        text in "\\PC{0,60}",
    ) {
        let names = ["title", "plot", "genres", "kind", "price", "flag", "vector", "other", ""];
        let mut item: Map<String, Value> = names.iter().map(|name| (*name).to_owned()).zip(values).collect();
        item.insert("vector".to_owned(), json!([1e300, -1e300, 1e-300]));
        item.insert("plot".to_owned(), json!(text.repeat(100)));
        let fields = ["hour", "tags", "device"].map(str::to_owned).into_iter().zip(numbers.into_iter().map(ContextValue::Number));
        let Ok(context) = Context::new(fields) else { return Ok(()) };
        let generated = Generated::new(seed);
        run_all(&generated.spec, &generated.objects, Record { item: &item, context: &context });
    }
}
