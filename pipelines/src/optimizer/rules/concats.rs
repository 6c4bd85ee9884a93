//! A concatenation of concatenations becomes one of all their inputs.

use crate::graph::{Fingerprint, NodeId};
use crate::operators::{ConcatOp, Op};
use crate::optimizer::Draft;

/// Number of inputs of the result, at most. Concatenations that repeat their inputs could have as many as columns.
const FLAT_INPUTS_MAX: usize = 256;

pub(in crate::optimizer) fn flatten(draft: &mut Draft) -> bool {
    let mut changed = false;
    for id in 0..draft.graph.nodes.len() {
        let Some((flat, inputs)) = flattened(draft, id) else { continue };
        let name = draft.graph.nodes[id].name.clone();
        draft.record(format!("{name} concatenates the inputs of its inputs itself"));
        let begins: Vec<u8> = flat.begins.iter().flat_map(|begin| begin.to_le_bytes()).collect();
        let op = Op::Concat(flat);
        let node = &mut draft.graph.nodes[id];
        node.fingerprint = Fingerprint::of_rewrite(&op, &[&node.fingerprint.0, &begins]);
        (node.op, node.inputs) = (op, inputs);
        changed = true;
    }
    if changed {
        draft.settle();
    }
    changed
}

/// The concatenation with the inputs of those of its inputs that are concatenations, if there is one.
fn flattened(draft: &Draft, id: NodeId) -> Option<(ConcatOp, Vec<NodeId>)> {
    let node = &draft.graph.nodes[id];
    let Op::Concat(outer) = &node.op else { return None };
    let inner = |input: NodeId| match &draft.graph.nodes[input].op {
        Op::Concat(inner) => Some(inner),
        _ => None,
    };
    node.inputs.iter().find(|input| inner(**input).is_some())?;
    let count = |input: &NodeId| inner(*input).map_or(1, |concat| concat.begins.len());
    if node.inputs.iter().map(count).sum::<usize>() > FLAT_INPUTS_MAX {
        return None;
    }
    let (mut begins, mut inputs) = (Vec::new(), Vec::new());
    for (input, begin) in node.inputs.iter().zip(&outer.begins) {
        match inner(*input) {
            Some(concat) => {
                begins.extend(concat.begins.iter().map(|inner| begin + inner));
                inputs.extend_from_slice(&draft.graph.nodes[*input].inputs);
            }
            None => {
                begins.push(*begin);
                inputs.push(*input);
            }
        }
    }
    Some((ConcatOp { begins, ..outer.clone() }, inputs))
}
