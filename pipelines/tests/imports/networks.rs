//! Graphs with operators that are run as a whole.

use super::hostile::{field, integers, node};
use super::*;

fn imported(name: &str) -> (Case, Imported) {
    let case = cases("onnx").into_iter().find(|case| case.name == name).unwrap();
    let imported = onnx::import(&case.model, &case.import_inputs()).unwrap();
    (case, imported)
}

/// The operators of an imported graph, in alphabetical order, each once.
fn operators(imported: &Imported) -> Vec<&'static str> {
    let mut names: Vec<_> = imported.nodes.values().map(|operator| operator.name()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn operators_before_and_after_stay_ours() {
    let (_, simple) = imported("onnx_network");
    assert_eq!(operators(&simple), ["concat", "field", "linear", "onnx"]);
    let note = "onnx_0 runs these operators as a whole: Gemm, Relu";
    assert_eq!(simple.notes.last().unwrap(), note);
    let (_, mixed) = imported("onnx_network_mixed");
    assert_eq!(operators(&mixed).iter().filter(|name| **name == "onnx").count(), 1);
    for ours in ["one_hot", "impute", "scale"] {
        assert!(operators(&mixed).contains(&ours), "{:?}", operators(&mixed));
    }
    let (_, attention) = imported("onnx_network_attention");
    assert_eq!(operators(&attention), ["concat", "field", "onnx"]);
}

#[test]
fn batches_give_the_bits_of_single_runs() {
    use celeris_pipelines::{Engine, EngineSettings, OwnedRecord};
    for name in ["onnx_network_mixed", "onnx_network_attention"] {
        let (case, imported) = imported(name);
        let plan = std::sync::Arc::new(compile(imported).unwrap());
        let single = |Fields { item, context }: &Fields| {
            let mut outputs = vec![0.0; plan.dim()];
            plan.run(Record { item, context }, &mut Scratch::default(), &mut outputs).unwrap();
            outputs
        };
        let expected: Vec<f32> = case.facts.records.iter().flat_map(single).collect();
        let records = case.facts.records.iter();
        let records = records
            .map(|Fields { item, context }| OwnedRecord { item: item.clone().into(), context: context.clone().into() });
        let engine = Engine::new(EngineSettings::default()).unwrap();
        let outputs = engine.submit(&plan, records.collect()).unwrap().wait().unwrap();
        assert_eq!(outputs, expected, "{name}");
    }
}

/// What becomes of a graph with the input `x` of one number and the output `y`.
fn import(opset: u8, nodes: &[Vec<u8>]) -> Result<Imported, ImportError> {
    let float = field(2, &field(1, &[8, 1]));
    let input = field(11, &[field(1, b"x"), float].concat());
    let graph = [nodes.concat(), input, field(12, &field(1, b"y"))].concat();
    let model = [field(7, &graph), field(8, &[16, opset])].concat();
    let inputs = BTreeMap::from([("x".to_owned(), vec!["item.price".to_owned()])]);
    onnx::import(&model, &ImportInputs { inputs, output: None })
}

#[test]
fn graphs_that_cannot_be_run_are_refused() {
    assert!(import(17, &[node("Relu", &["x"], "y", &[])]).is_ok());
    let error = |opset, nodes: &[Vec<u8>]| import(opset, nodes).unwrap_err().to_string();
    let refused = error(17, &[node("Relu", &["x"], "h", &[]), node("Loop", &["h"], "y", &[])]);
    assert_eq!(refused, "the model needs the operators Loop, which cannot be imported");
    let refused = error(99, &[node("Relu", &["x"], "y", &[])]);
    assert_eq!(refused, "graph: the versions 9 to 23 of the operators can be run, not 99");
    let refused = error(17, &[node("Relu", &["x"], "h", &[]), node("Reshape", &["h", "h"], "y", &[])]);
    assert_eq!(refused, "node 1 (Reshape), input: input 1 must be a constant");
    let perm = integers("perm", &[1, 0]);
    let refused = error(17, &[node("Transpose", &["h"], "y", &[perm]), node("Relu", &["x"], "h", &[])]);
    assert!(refused.contains("no earlier node gives"), "{refused}");
}

#[test]
fn parameters_are_numbers() {
    let sloped = |alpha: f32| {
        let alpha = [field(1, b"alpha"), [&[0x15], alpha.to_le_bytes().as_slice(), &[0xA0, 1, 1]].concat()].concat();
        import(17, &[node("LeakyRelu", &["x"], "h", &[alpha]), node("Tanh", &["h"], "y", &[])])
    };
    sloped(0.5).unwrap();
    let refused = sloped(f32::NAN).unwrap_err().to_string();
    assert_eq!(refused, "node 0 (LeakyRelu), alpha: it is not a number");

    let file = cases("onnx").into_iter().find(|case| case.name == "onnx_network").unwrap();
    let weight = file.model.windows(4).position(|bytes| bytes == 0.768_911_2_f32.to_le_bytes()).unwrap();
    let weighted = |number: f32| {
        let mut model = file.model.clone();
        model[weight..weight + 4].copy_from_slice(&number.to_le_bytes());
        onnx::import(&model, &file.import_inputs())
    };
    weighted(f32::INFINITY).unwrap();
    let refused = weighted(f32::NAN).unwrap_err().to_string();
    assert_eq!(refused, "graph: the constant \"A\" has an element that is not a number");
}
