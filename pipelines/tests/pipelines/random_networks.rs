//! Random graphs of ONNX operators: an error or an object that runs, within the bounds, and never a panic.

use celeris_pipelines::Object;
use celeris_pipelines::objects::Content;
use proptest::prelude::*;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::networks::{field, object_of, tensor};

const OPERATORS: [&str; 65] = [
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "ArgMin",
    "BatchNormalization",
    "Cast",
    "Ceil",
    "Clip",
    "Concat",
    "Cos",
    "Div",
    "Dropout",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Expand",
    "Flatten",
    "Floor",
    "Gather",
    "Gelu",
    "Gemm",
    "Greater",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "Log",
    "MatMul",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "Reciprocal",
    "ReduceL2",
    "ReduceLogSumExp",
    "ReduceMean",
    "ReduceProd",
    "ReduceSum",
    "Relu",
    "Reshape",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sum",
    "Transpose",
    "Unsqueeze",
    "Where",
];

/// An attribute with an integer, or with integers.
fn attribute(name: &str, values: &[i64]) -> Vec<u8> {
    let varint = |value: i64| {
        let (mut bytes, mut rest) = (Vec::new(), value.cast_unsigned());
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    };
    let (tag, kind) = if values.len() == 1 && name != "axes" && name != "perm" { (24, 2) } else { (64, 7) };
    let values = values.iter().flat_map(|value| [vec![tag], varint(*value)].concat()).collect();
    field(5, &[field(1, name.as_bytes()), values, vec![0xa0, 1, kind]].concat())
}

/// Some attributes of the operator, with small integers.
fn attributes(operator: &str, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut one = |name: &str, range: std::ops::Range<i64>| attribute(name, &[rng.random_range(range)]);
    match operator {
        "ArgMax" | "ArgMin" => [one("axis", -2..2), one("keepdims", 0..2)].concat(),
        "Concat" | "Gather" | "Softmax" | "Split" | "LayerNormalization" => one("axis", -2..2),
        "Flatten" => one("axis", -2..3),
        "Cast" => attribute("to", &[*[1, 6, 7, 9, 11].choose(rng).unwrap()]),
        "Gemm" => [one("transA", 0..2), one("transB", 0..2)].concat(),
        "Transpose" => attribute("perm", if rng.random_bool(0.8) { &[1, 0] } else { &[0, 2, 1] }),
        name if name.starts_with("Reduce") => {
            let axes = attribute("axes", &[rng.random_range(-1..2)]);
            let keep = attribute("keepdims", &[rng.random_range(0..2)]);
            if name == "ReduceSum" { keep } else { [axes, keep].concat() }
        }
        _ => Vec::new(),
    }
}

/// A graph whose last node gives the output `y`.
fn graph(seed: u64) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let shapes: [&[u8]; 7] = [&[3, 4], &[4, 3], &[4], &[1, 4], &[1], &[], &[1, 2, 4]];
    let mut constants = Vec::new();
    let mut values = vec!["x".to_owned(), "z".to_owned()];
    for (at, shape) in shapes.iter().enumerate() {
        let count = shape.iter().map(|dim| usize::from(*dim)).product::<usize>();
        let raw: Vec<u8> = (0..count).flat_map(|_| rng.random_range(-2.0..2.0_f32).to_le_bytes()).collect();
        constants.push(tensor(&format!("w{at}"), 1, shape, &raw));
        values.push(format!("w{at}"));
    }
    let lists: [&[i64]; 6] = [&[0], &[1], &[-1, 4], &[2, 2], &[1, 2, 2], &[4, 1]];
    let mut whole = Vec::new();
    for (at, list) in lists.iter().enumerate() {
        let raw: Vec<u8> = list.iter().flat_map(|number| number.to_le_bytes()).collect();
        constants.push(tensor(&format!("i{at}"), 7, &[list.len() as u8], &raw));
        whole.push(format!("i{at}"));
    }
    let count = rng.random_range(1..7);
    let mut nodes = Vec::new();
    for at in 0..count {
        let operator = *OPERATORS.choose(&mut rng).unwrap();
        let recent = |rng: &mut ChaCha8Rng| match rng.random_range(0..3) {
            0 => values[rng.random_range(0..values.len())].clone(),
            _ if values.len() > 9 => values[rng.random_range(9..values.len())].clone(),
            _ => values[rng.random_range(0..2)].clone(),
        };
        let list = |rng: &mut ChaCha8Rng| whole.choose(rng).unwrap().clone();
        let mut inputs = vec![recent(&mut rng)];
        match operator {
            "Expand" | "Gather" | "Reshape" | "Split" | "Squeeze" | "Unsqueeze" | "ReduceSum" => {
                inputs.push(list(&mut rng));
            }
            "Slice" => inputs.extend((0..3).map(|_| list(&mut rng))),
            "BatchNormalization" => inputs.extend(["w2", "w2", "w2", "w2"].map(str::to_owned)),
            "Where" | "Gemm" | "LayerNormalization" | "Clip" => inputs.extend((0..2).map(|_| recent(&mut rng))),
            "Add" | "And" | "Concat" | "Div" | "Equal" | "Greater" | "Less" | "MatMul" | "Max" | "Mean" | "Min"
            | "Mul" | "Or" | "PRelu" | "Pow" | "Sum" => inputs.push(recent(&mut rng)),
            _ => {}
        }
        let last = if at + 1 == count { "y".to_owned() } else { format!("v{at}") };
        let outputs = if operator == "Split" { vec![last.clone(), format!("o{at}")] } else { vec![last.clone()] };
        let parts =
            |number: u8, names: &[String]| names.iter().flat_map(|name| field(number, name.as_bytes())).collect();
        let inputs: Vec<u8> = parts(1, &inputs);
        let outputs: Vec<u8> = parts(2, &outputs);
        let attributes = attributes(operator, &mut rng);
        nodes.push(field(1, &[inputs, outputs, field(4, operator.as_bytes()), attributes].concat()));
        values.push(last);
    }
    // In the order of their names.
    constants.rotate_left(shapes.len());
    object_of(&nodes, &constants, &[("x", 4), ("z", 3)])
}

/// Runs an object that was accepted.
fn run(object: &Object) {
    let Content::Onnx(network) = object.content() else { panic!("it is another kind") };
    let count: usize = network.inputs().iter().sum();
    for row in [vec![0.5; count], (0..count).map(|at| at as f32 - 3.0).collect(), vec![1e30; count]] {
        let outputs = || {
            let mut outputs = Vec::new();
            network.run(&row, &mut outputs);
            outputs.iter().map(|output| output.to_bits()).collect::<Vec<_>>()
        };
        let first = outputs();
        assert_eq!(first.len(), network.outputs());
        assert_eq!(outputs(), first);
        // Either the graph has failed for the row, or all outputs are finite.
        let missing = first.iter().filter(|bits| f32::from_bits(**bits).is_nan()).count();
        assert!(missing == 0 || missing == first.len());
        assert!(first.iter().all(|bits| !f32::from_bits(*bits).is_infinite()));
    }
}

#[test]
fn shapes_are_those_that_the_library_finds() {
    let mut accepted = 0;
    for seed in 0..4000 {
        match Object::decode(&graph(seed)) {
            Ok(object) => {
                accepted += 1;
                run(&object);
            }
            Err(error) => {
                let error = error.to_string();
                assert!(!error.contains("larger than its shape allows"), "{seed}: {error}");
                assert!(!error.contains("not in the form"), "{seed}: {error}");
            }
        }
    }
    assert!(accepted > 300, "{accepted}");
}

proptest! {
    #![proptest_config(crate::random::cases(3000))]

    #[test]
    fn damaged_graphs_are_refused_or_run(
        seed in 0..4000_u64,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = graph(seed);
        for (at, byte) in damage {
            let length = bytes.len();
            bytes[6 + at.index(length - 6)] = byte;
        }
        if let Ok(object) = Object::decode(&bytes) {
            prop_assert_eq!(object.content().encode(), bytes);
            run(&object);
        }
    }
}
