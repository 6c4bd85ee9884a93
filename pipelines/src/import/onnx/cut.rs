//! Graphs with operators that no operator of a pipeline stands for: the part of a graph that one node runs as a whole.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::super::ImportError;
use super::super::emit::{Form, Numbers};
use super::convert::{Converter, Value, unfit};
use crate::limits::{DENSE_MAX, INPUTS_MAX};
use crate::networks::{Network, Parts, is_runnable, model};
use crate::objects::Content;
use crate::onnx::model::{Graph, Node};
use crate::spec::{Onnx, Operator};

/// The nodes of a graph by what becomes of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    /// They become operators of a pipeline, before the others.
    pub before: Vec<usize>,
    /// They are run as a whole.
    pub whole: Vec<usize>,
    /// They become operators of a pipeline, with the output of the whole.
    pub after: Vec<usize>,
}

/// The ways to cut a graph with the nodes `needed`, of which `opaque` have no operator; the best one first: only what lies
/// between such nodes is run as a whole, then all that follows the first of them, then everything that can be.
pub(super) fn cuts(graph: &Graph<'_>, needed: &HashSet<usize>, opaque: &HashSet<usize>) -> Vec<Cut> {
    let nodes: Vec<&Node<'_>> = graph.nodes.iter().filter(|node| needed.contains(&node.index)).collect();
    let origins: HashMap<&str, usize> =
        nodes.iter().flat_map(|node| node.outputs.iter().map(|output| (*output, node.index))).collect();
    let inputs =
        |node: &Node<'_>| node.inputs.iter().filter_map(|input| origins.get(input).copied()).collect::<Vec<_>>();
    // Nodes follow their inputs, as conversion demands.
    let (mut below, mut above) = (opaque.clone(), opaque.clone());
    for node in &nodes {
        if inputs(node).iter().any(|input| below.contains(input)) {
            below.insert(node.index);
        }
    }
    for node in nodes.iter().rev() {
        if above.contains(&node.index) {
            above.extend(inputs(node));
        }
    }
    let cut = |whole: &dyn Fn(usize) -> bool| {
        let all = || nodes.iter().map(|node| node.index);
        let is_after = |index: &usize| below.contains(index) && !whole(*index);
        let is_before = |index: &usize| !below.contains(index) && !whole(*index);
        Cut {
            before: all().filter(is_before).collect(),
            whole: all().filter(|index| whole(*index)).collect(),
            after: all().filter(is_after).collect(),
        }
    };
    // Constants are given to the whole apart from its nodes, if they are tensors.
    let can_be = |index: usize| {
        let node = &graph.nodes[index];
        is_runnable(node) && !(node.operator == "Constant" && node.attributes.iter().any(|(name, _)| *name == "value"))
    };
    let mut cuts = vec![
        cut(&|node| below.contains(&node) && above.contains(&node)),
        cut(&|node| below.contains(&node) && can_be(node)),
        cut(&can_be),
    ];
    cuts.dedup();
    cuts
}

/// Adds the node that runs a part of the graph, whose value is used for `output`.
pub(super) fn run_whole<'a>(converter: &mut Converter<'a>, cut: &Cut, output: &'a str) -> Result<(), ImportError> {
    let graph = converter.graph();
    let nodes: Vec<&Node<'a>> = cut.whole.iter().map(|index| &graph.nodes[*index]).collect();
    let Some(first) = nodes.first().copied() else { return Ok(()) };
    let own: HashSet<&str> = nodes.iter().flat_map(|node| node.outputs.iter().copied()).collect();
    let result = result(graph, cut, &own, output)?;
    let (mut inputs, mut constants, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for node in &nodes {
        for (input, name) in node.inputs.iter().enumerate() {
            if name.is_empty() || own.contains(name) || !seen.insert(*name) {
                continue;
            }
            if let Some(constant) = converter.constant(node, input)? {
                constants.push((*name, constant));
                continue;
            }
            let numbers = converter.numbers(node, input)?;
            if numbers.dim > DENSE_MAX || inputs.len() == INPUTS_MAX {
                let problem =
                    format!("operators that are run as a whole take {INPUTS_MAX} inputs of {DENSE_MAX} columns");
                return Err(node.problem(name, problem));
            }
            if converter.emitter.may_be_missing(&numbers.node) {
                converter.emitter.note(format!("{name}: a missing number counts as 0, and stays missing in the model"));
            }
            inputs.push((*name, numbers.dim));
            names.push(numbers.node);
        }
    }
    constants.sort_by_key(|(name, _)| *name);
    let operators: BTreeSet<&str> = nodes.iter().map(|node| node.operator).collect();
    let parts = Parts { nodes, constants, inputs, output: result, opset: graph.opset };
    let network = Network::new(model(&parts)?)?;
    let dim = network.outputs();
    let id = converter.object(first, &Content::Onnx(Arc::new(network)))?;
    let node = converter.emitter.add(first.index, Operator::Onnx(Onnx { inputs: names, model: id }));
    let operators: Vec<&str> = operators.into_iter().collect();
    converter.emitter.note(format!("{node} runs these operators as a whole: {}", operators.join(", ")));
    converter.set(result, Value::Numbers(Numbers { node, dim, form: Form::Dense }));
    Ok(())
}

/// The only value of the part that is used outside of it.
fn result<'a>(graph: &Graph<'a>, cut: &Cut, own: &HashSet<&str>, output: &'a str) -> Result<&'a str, ImportError> {
    let used = cut.after.iter().flat_map(|index| graph.nodes[*index].inputs.iter().copied()).chain([output]);
    let results: BTreeSet<&str> = used.filter(|name| own.contains(name)).collect();
    let mut results = results.into_iter();
    match (results.next(), results.next()) {
        (Some(result), None) => Ok(result),
        _ => Err(unfit(output, "several values of operators that are run as a whole are used")),
    }
}
