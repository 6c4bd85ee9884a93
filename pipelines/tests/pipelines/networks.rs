//! Graphs of ONNX operators that run as a whole.

use celeris_model::Context;
use celeris_pipelines::objects::Content;
use celeris_pipelines::reference::Reference;
use celeris_pipelines::{Catalog, Graph, Object, Objects, PipelineSpec, Plan, Record, Scratch};
use serde_json::{Value, json};

/// A field with bytes.
pub fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut encoded = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        encoded.push(length as u8 | 0x80);
        length >>= 7;
    }
    encoded.push(length as u8);
    [&encoded, bytes].concat()
}

fn node(operator: &str, inputs: &[&str], output: &str) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|input| field(1, input.as_bytes())).collect();
    field(1, &[inputs, field(2, output.as_bytes()), field(4, operator.as_bytes())].concat())
}

/// A tensor of this type.
pub fn tensor(name: &str, kind: u8, dims: &[u8], raw: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|dim| [8, *dim]).collect();
    field(5, &[dims, vec![16, kind], field(9, raw), field(8, name.as_bytes())].concat())
}

fn matrix(name: &str, numbers: &[f32], columns: usize) -> Vec<u8> {
    let raw: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    tensor(name, 1, &[(numbers.len() / columns) as u8, columns as u8], &raw)
}

/// An object with these parts of a graph.
pub fn object_of(nodes: &[Vec<u8>], constants: &[Vec<u8>], inputs: &[(&str, u8)]) -> Vec<u8> {
    let input = |(name, columns): &(&str, u8)| {
        let shape = [field(1, &[8, 1]), field(1, &[8, *columns])].concat();
        let kind = field(1, &[vec![8, 1], field(2, &shape)].concat());
        field(11, &[field(1, name.as_bytes()), field(2, &kind)].concat())
    };
    let inputs = inputs.iter().flat_map(input).collect();
    let graph = [nodes.concat(), constants.concat(), inputs, field(12, &field(1, b"y"))].concat();
    let opset = field(8, &[field(1, b""), vec![16, 17]].concat());
    [b"CELO\x09\x01".to_vec(), vec![8, 8], field(7, &graph), opset].concat()
}

/// The hyperbolic tangents of two sums over all inputs, each with a matrix of two columns.
pub fn object(weights: &[Vec<f32>]) -> Vec<u8> {
    let names = |prefix: char| (0..weights.len()).map(|at| format!("{prefix}{at}")).collect::<Vec<_>>();
    let (x, w, h) = (names('x'), names('w'), names('h'));
    let products = (0..weights.len()).map(|at| node("MatMul", &[&x[at], &w[at]], &h[at]));
    let sums: Vec<&str> = h.iter().map(String::as_str).collect();
    let nodes: Vec<Vec<u8>> = products.chain([node("Sum", &sums, "s"), node("Tanh", &["s"], "y")]).collect();
    let matrices: Vec<Vec<u8>> = w.iter().zip(weights).map(|(name, weights)| matrix(name, weights, 2)).collect();
    let inputs: Vec<(&str, u8)> =
        x.iter().zip(weights).map(|(name, weights)| (name.as_str(), (weights.len() / 2) as u8)).collect();
    object_of(&nodes, &matrices, &inputs)
}

/// The plan and the graph of a node over `item.a` and `context.b`, or over the first of them.
fn compile(object: &[u8]) -> Result<(Plan, Graph), String> {
    let objects = Objects::in_memory();
    let object = objects.insert(object).map_err(|error| error.to_string())?;
    let Content::Onnx(network) = object.content() else { panic!("it is another kind") };
    let inputs = &["item.a", "context.b"][..network.inputs().len()];
    let spec = json!({"name": "net", "output": "net", "nodes": {
        "net": {"op": "onnx", "inputs": inputs, "model": object.id()}}});
    let spec = PipelineSpec::parse(&spec).map_err(|error| error.to_string())?;
    let graph = Graph::declared(&spec, &objects).map_err(|error| error.to_string())?;
    Ok((Plan::compile(&spec, &objects, &Catalog::default()).unwrap(), graph))
}

/// The output for `item.a` and `context.b`, of the plan and of the reference.
fn outputs(object: &[u8], a: &Value, b: f64) -> Vec<f32> {
    let (plan, graph) = compile(object).unwrap();
    let item = json!({ "a": a });
    let context = Context::new(vec![("b".to_owned(), celeris_model::ContextValue::Number(b))]).unwrap();
    let record = Record { item: item.as_object().unwrap(), context: &context };
    let mut outputs = vec![0.0; plan.dim()];
    plan.run(record, &mut Scratch::default(), &mut outputs).unwrap();
    assert_eq!(Reference::new(&graph).run(record), outputs);
    outputs
}

#[test]
fn a_graph_takes_all_its_inputs() {
    let object = object(&[vec![1.0, 0.5], vec![-1.0, 0.25]]);
    let expected = |a: f32, b: f32| vec![(a - b).tanh(), (0.5 * a + 0.25 * b).tanh()];
    let near = |one: &[f32], other: &[f32]| one.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-6);
    assert!(near(&outputs(&object, &json!(0.5), 0.25), &expected(0.5, 0.25)));
    // A missing entry counts as 0.
    assert!(near(&outputs(&object, &json!("none"), 0.25), &expected(0.0, 0.25)));
    let (plan, _) = compile(&object).unwrap();
    assert_eq!(plan.explain().depends_on, celeris_pipelines::Depends::ItemAndContext);
}

#[test]
fn plans_of_equal_objects_give_equal_bits() {
    let weights: Vec<f32> = (0..180).map(|at| ((at * 37 % 101) as f32 - 50.0) / 77.0).collect();
    let object = object(&[weights]);
    let row: Vec<f32> = (0..90).map(|at| ((at * 53 % 89) as f32 - 44.0) / 31.0).collect();
    let bits = || {
        let decoded = Object::decode(&object).unwrap();
        let Content::Onnx(network) = decoded.content() else { panic!("it is another kind") };
        let mut outputs = Vec::new();
        network.run(&row, &mut outputs);
        outputs.iter().map(|output| output.to_bits()).collect::<Vec<_>>()
    };
    let first = bits();
    assert!((0..20).all(|_| bits() == first));
}

#[test]
fn results_are_finite() {
    let log = object_of(&[node("Log", &["x"], "y")], &[], &[("x", 1)]);
    assert_eq!(outputs(&log, &json!(-1.0), 0.0), [0.0]);
    assert_eq!(outputs(&log, &json!(0.0), 0.0), [-1e30]);
}

#[test]
fn outputs_are_missing_where_a_graph_fails() {
    // A division of integers, by what may be 0.
    let cast = field(5, &[field(1, b"to"), vec![24, 6, 0xa0, 1, 2]].concat());
    let cast = field(1, &[field(1, b"x"), field(2, b"i"), field(4, b"Cast"), cast].concat());
    let nodes = [cast, node("Div", &["six", "i"], "y")];
    let object = object_of(&nodes, &[tensor("six", 6, &[1], &6_i32.to_le_bytes())], &[("x", 1)]);
    assert_eq!(outputs(&object, &json!(2.0), 0.0), [3.0]);
    assert_eq!(outputs(&object, &json!(0.0), 0.0), [0.0]);
    let objects = Objects::in_memory();
    let model = objects.insert(&object).unwrap();
    let spec = json!({"name": "net", "output": "there", "nodes": {
        "net": {"op": "onnx", "inputs": ["item.a"], "model": model.id()},
        "there": {"op": "impute", "input": "net", "value": 7}}});
    let plan = Plan::compile(&PipelineSpec::parse(&spec).unwrap(), &objects, &Catalog::default()).unwrap();
    let run = |item: Value| {
        let (mut outputs, context) = (vec![0.0], Context::default());
        let record = Record { item: item.as_object().unwrap(), context: &context };
        plan.run(record, &mut Scratch::default(), &mut outputs).unwrap();
        outputs[0]
    };
    assert_eq!((run(json!({"a": 2})), run(json!({"a": 0}))), (3.0, 7.0));
}

fn refusal(nodes: &[Vec<u8>], constants: &[Vec<u8>]) -> String {
    Object::decode(&object_of(nodes, constants, &[("x", 100)])).unwrap_err().to_string()
}

#[test]
fn graphs_beyond_the_bounds_are_refused() {
    // Each step squares the number of elements, or repeats them.
    let turned = node("Transpose", &["x"], "t");
    let product = node("MatMul", &["t", "x"], "p");
    let flat = node("Flatten", &["p"], "f");
    let error = refusal(&[turned.clone(), product.clone(), flat, node("Add", &["p", "f"], "y")], &[]);
    assert!(error.contains("its output has the shape [100, 100]"), "{error}");
    let shape: Vec<u8> = [1 << 30_i64, 1].iter().flat_map(|length: &i64| length.to_le_bytes()).collect();
    let shape = tensor("shape", 7, &[2], &shape);
    let error = refusal(&[node("Expand", &["x", "shape"], "y")], &[shape]);
    assert!(error.contains("the shape [1073741824, 100] is too large"), "{error}");
    let nodes: Vec<Vec<u8>> = (0..257).map(|at| node("Relu", &["x"], &format!("v{at}"))).collect();
    assert!(refusal(&nodes, &[]).contains("it has 257 nodes, not 1 to 256"));
    let grown = [turned, product];
    let many = (0..250).map(|at| node("Concat", &["p", "p"], &format!("p{at}")));
    let error = refusal(&grown.iter().cloned().chain(many).collect::<Vec<_>>(), &[]);
    assert!(error.contains("the values have more than 4194304 elements"), "{error}");
    let many = (0..70).map(|at| node("MatMul", &["p", "p"], &format!("p{at}")));
    let error = refusal(&grown.iter().cloned().chain(many).collect::<Vec<_>>(), &[]);
    assert!(error.contains("a row takes more than 67108864 products"), "{error}");
}

#[test]
fn graphs_of_other_forms_are_refused() {
    let relu = node("Relu", &["x"], "y");
    assert!(Object::decode(&object_of(std::slice::from_ref(&relu), &[], &[("x", 100)])).is_ok());
    let named = field(1, &[field(1, b"x"), field(2, b"y"), field(3, b"name"), field(4, b"Relu")].concat());
    assert!(refusal(&[named], &[]).contains("not in the form in which an import writes it"));
    assert!(refusal(&[node("If", &["x"], "y")], &[]).contains("node 0 (If), operator: it cannot be run"));
    assert!(refusal(&[node("Relu", &["z"], "y")], &[]).contains("no earlier node gives input 0"));
    assert!(refusal(&[relu.clone(), node("Relu", &["x"], "y")], &[]).contains("another value has the same name"));
    assert!(refusal(&[node("Reshape", &["x", "x"], "y")], &[]).contains("a shape depends on it"));
    let place = tensor("place", 7, &[1], &100_i64.to_le_bytes());
    assert!(
        refusal(&[node("Gather", &["x", "place"], "y")], &[place]).contains("indices: one of them is not within 1")
    );
    let short = tensor("w", 1, &[100, 100], &[0; 8]);
    assert!(refusal(std::slice::from_ref(&relu), &[short]).contains("2 elements, which are not those of its shape"));
    let elsewhere = field(5, &[vec![8, 1, 16, 1], field(9, &[0; 4]), field(8, b"w"), vec![112, 1]].concat());
    assert!(refusal(std::slice::from_ref(&relu), &[elsewhere]).contains("constants in other files are not supported"));
    let twice = field(1, &[field(1, b"x"), field(2, b"y"), field(4, b"Elu"), alpha(), alpha()].concat());
    assert!(refusal(&[twice], &[]).contains("the attribute is given twice"));
}

fn alpha() -> Vec<u8> {
    field(5, &[field(1, b"alpha"), vec![21], 1.0_f32.to_le_bytes().to_vec()].concat())
}
