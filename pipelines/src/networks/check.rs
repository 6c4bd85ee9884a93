//! What a graph may be before any other code reads it: its operators, the shapes of its values, memory and work.
//!
//! Shapes are computed here for every operator that is allowed, with one row as the input. So no length in a file decides
//! how much memory the library takes for it.

use std::collections::HashMap;

use super::shapes::{self, Shape};
use super::write::{self, Parts};
use crate::error::ImportError;
use crate::limits::{
    DENSE_MAX, INPUTS_MAX, NETWORK_BYTES_MAX, NETWORK_ELEMENTS_MAX, NETWORK_NODES_MAX, NETWORK_WORK_MAX,
};
use crate::onnx::model::{self, AttributeElement as _, Graph, LIST_MAX, Node, Tensor, element};

/// The versions of the operators that can be run.
const OPSETS: std::ops::RangeInclusive<i64> = 9..=23;

/// Number of attributes of a node.
const ATTRIBUTES_MAX: usize = 16;
/// Length of all attributes of a graph, in bytes. Large constants are apart from nodes.
const ATTRIBUTE_BYTES_MAX: usize = 1 << 20;

/// The columns of the inputs and of the output of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    pub inputs: Vec<usize>,
    pub outputs: usize,
    /// Number of elements of the largest value.
    pub elements: usize,
}

/// Values of a graph that are known before it is run.
pub struct Known<'a> {
    pub shapes: HashMap<&'a str, Shape>,
    pub constants: HashMap<&'a str, Tensor<'a>>,
    /// The version of the operators.
    pub opset: i64,
}

/// Checks the bytes of an object.
///
/// # Errors
/// Bytes that are not those of a graph within the bounds, in the form in which they are written.
pub fn check(bytes: &[u8]) -> Result<Columns, ImportError> {
    if bytes.len() > NETWORK_BYTES_MAX {
        return Err(ImportError::TooLarge { max: NETWORK_BYTES_MAX, received: bytes.len() });
    }
    let graph = model::read(bytes)?;
    let columns = check_graph(&graph)?;
    let mut constants: Vec<_> = graph.constants.iter().map(|(name, tensor)| (*name, *tensor)).collect();
    constants.sort_by_key(|(name, _)| *name);
    let inputs = graph.inputs.iter().map(|input| input.name).zip(columns.inputs.iter().copied()).collect();
    let output = graph.outputs.first().copied().unwrap_or_default();
    let nodes = graph.nodes.iter().collect();
    if write::model(&Parts { nodes, constants, inputs, output, opset: graph.opset })? != bytes {
        return Err(whole("the graph is not in the form in which an import writes it"));
    }
    Ok(columns)
}

/// An error of a graph as a whole.
pub fn whole(problem: impl Into<String>) -> ImportError {
    ImportError::Graph { name: "graph".to_owned(), problem: problem.into() }
}

fn check_graph(graph: &Graph<'_>) -> Result<Columns, ImportError> {
    if !OPSETS.contains(&graph.opset) {
        let (first, last) = (OPSETS.start(), OPSETS.end());
        return Err(whole(format!("the versions {first} to {last} of the operators can be run, not {}", graph.opset)));
    }
    if graph.nodes.is_empty() || graph.nodes.len() > NETWORK_NODES_MAX {
        return Err(whole(format!("it has {} nodes, not 1 to {NETWORK_NODES_MAX}", graph.nodes.len())));
    }
    let attributes = graph.nodes.iter().flat_map(|node| &node.attributes);
    let bytes: usize = attributes.map(|(_, attribute)| attribute.raw().len()).sum();
    if bytes > ATTRIBUTE_BYTES_MAX || graph.nodes.iter().any(|node| node.attributes.len() > ATTRIBUTES_MAX) {
        return Err(whole(format!(
            "nodes have at most {ATTRIBUTES_MAX} attributes, of {ATTRIBUTE_BYTES_MAX} bytes in all"
        )));
    }
    let mut known = Known { shapes: HashMap::new(), constants: graph.constants.clone(), opset: graph.opset };
    for (name, tensor) in &graph.constants {
        known.shapes.insert(name, tensor.shape()?);
        if has_nan(tensor)? {
            return Err(whole(format!("the constant {name:?} has an element that is not a number")));
        }
    }
    let inputs = read_inputs(graph, &mut known)?;
    let (mut elements, mut largest, mut work) = (0, 0, 0);
    for node in &graph.nodes {
        let results = compute(node, &mut known)?;
        work += results.work;
        for (name, shape) in node.outputs.iter().zip(results.shapes) {
            let count = shapes::volume(&shape);
            elements += count;
            largest = largest.max(count);
            if elements > NETWORK_ELEMENTS_MAX {
                return Err(node.problem(name, format!("the values have more than {NETWORK_ELEMENTS_MAX} elements")));
            }
            if name.is_empty() || known.shapes.insert(name, shape).is_some() {
                return Err(node.problem(name, "another value has the same name"));
            }
        }
        if work > NETWORK_WORK_MAX {
            return Err(node.problem("input", format!("a row takes more than {NETWORK_WORK_MAX} products")));
        }
    }
    let [output] = graph.outputs[..] else { return Err(whole("it must have one output")) };
    if !graph.nodes.iter().any(|node| node.outputs.contains(&output)) {
        return Err(whole("no node gives its output"));
    }
    match known.shapes.get(output).map(Vec::as_slice) {
        Some([1] | [1, 1]) => Ok(Columns { inputs, outputs: 1, elements: largest }),
        Some([1, outputs @ 1..=DENSE_MAX]) => Ok(Columns { inputs, outputs: *outputs, elements: largest }),
        other => Err(whole(format!("its output has the shape {:?}, not [1, 1 to {DENSE_MAX}]", other.unwrap_or(&[])))),
    }
}

/// The columns of the inputs, which are rows of f32 of known length.
fn read_inputs<'a>(graph: &Graph<'a>, known: &mut Known<'a>) -> Result<Vec<usize>, ImportError> {
    if graph.inputs.is_empty() || graph.inputs.len() > INPUTS_MAX {
        return Err(whole(format!("it has {} inputs, not 1 to {INPUTS_MAX}", graph.inputs.len())));
    }
    let mut inputs = Vec::with_capacity(graph.inputs.len());
    for input in &graph.inputs {
        let columns = input.columns.and_then(|columns| usize::try_from(columns).ok());
        let columns = columns.filter(|columns| (1..=DENSE_MAX).contains(columns));
        let Some(columns) = columns.filter(|_| input.element == Some(element::FLOAT)) else {
            return Err(whole(format!("the input {:?} is not a row of 1 to {DENSE_MAX} numbers", input.name)));
        };
        inputs.push(columns);
        if input.name.is_empty() || known.shapes.insert(input.name, vec![1, columns]).is_some() {
            return Err(whole(format!("the name {:?} of an input is empty or not its own", input.name)));
        }
    }
    Ok(inputs)
}

/// The shapes of the outputs of a node.
fn compute<'a>(node: &Node<'a>, known: &mut Known<'a>) -> Result<shapes::Results, ImportError> {
    if !is_runnable(node) {
        return Err(node.problem("operator", "it cannot be run"));
    }
    if node.outputs.is_empty() || (node.outputs.len() > 1 && node.operator != "Split") {
        return Err(node.problem("output", format!("there are {} outputs, not 1", node.outputs.len())));
    }
    for (name, attribute) in &node.attributes {
        let tensor = node.tensor(name)?;
        tensor.map_or(Ok(Vec::new()), |tensor| tensor.shape())?;
        let numbers: Vec<f32> = [attribute.list(f32::SINGLE, 1)?, attribute.list(f32::LIST, LIST_MAX)?].concat();
        if numbers.iter().any(|number| number.is_nan()) || tensor.map_or(Ok(false), |tensor| has_nan(&tensor))? {
            return Err(node.problem(name, "it is not a number"));
        }
    }
    let results = shapes::compute(node, known)?;
    if results.shapes.len() != node.outputs.len() {
        return Err(node.problem("output", format!("there must be {} outputs", results.shapes.len())));
    }
    if node.operator == "Constant"
        && let Some(tensor) = node.tensor("value")?
    {
        known.constants.insert(node.outputs[0], tensor);
    }
    Ok(results)
}

/// Whether an element is NaN, from which operators make NaN or numbers that mean nothing. Infinite elements are bounds and
/// masks.
fn has_nan(tensor: &Tensor<'_>) -> Result<bool, ImportError> {
    let is_float = matches!(tensor.element, element::FLOAT | element::DOUBLE);
    Ok(is_float && tensor.numbers(LIST_MAX)?.iter().any(|number| number.is_nan()))
}

/// Whether an operator can be run: one of the main domain whose shapes are known.
pub fn is_runnable(node: &Node<'_>) -> bool {
    matches!(node.domain, "" | "ai.onnx") && shapes::is_known(node.operator)
}
