//! A linear model over a concatenation becomes the total of its parts over the inputs: dot products are commutative and
//! associative, so that the concatenated vector is not needed (PRETZEL, section 4.1.2).

use crate::graph::{Fingerprint, NodeId};
use crate::operators::{LinearOp, Op, PartOp};
use crate::optimizer::Draft;

pub(in crate::optimizer) fn push_through_concat(draft: &mut Draft) -> bool {
    let mut changed = false;
    for id in 0..draft.graph.nodes.len() {
        let node = &draft.graph.nodes[id];
        let (Op::Linear(linear), [input]) = (node.op.clone(), &node.inputs[..]) else { continue };
        let (name, input) = (node.name.clone(), *input);
        let sums = push(draft, &linear, input, id);
        let (name_of_input, branches) = (draft.graph.nodes[input].name.clone(), sums.len());
        let total = match sums[..] {
            [only] => only,
            _ => {
                draft.record(format!("linear {name} is pushed through concat {name_of_input}: {branches} branches"));
                draft.add(format!("{name}.total"), Op::Total, sums, &[])
            }
        };
        let op = Op::Finish(linear);
        let node = &mut draft.graph.nodes[id];
        node.fingerprint = Fingerprint::of_rewrite(&op, &[&node.fingerprint.0]);
        (node.op, node.inputs) = (op, vec![total]);
        changed = true;
    }
    if changed {
        let gone = draft.settle();
        let concats = gone.into_iter().filter(|name| !name.is_empty());
        concats.for_each(|name| draft.record(format!("{name} is removed: nothing reads it")));
    }
    changed
}

/// The parts of a model: one for each input of a concatenation, or one for any other input.
fn push(draft: &mut Draft, linear: &LinearOp, input: NodeId, model: NodeId) -> Vec<NodeId> {
    let branches: Vec<(NodeId, u32)> = match &draft.graph.nodes[input].op {
        Op::Concat(concat) => {
            draft.graph.nodes[input].inputs.iter().copied().zip(concat.begins.iter().copied()).collect()
        }
        _ => vec![(input, 0)],
    };
    let fingerprint = draft.graph.nodes[model].fingerprint;
    let part = |(input, first): (NodeId, u32)| {
        let name = format!("{}.{}", draft.graph.nodes[model].name, draft.graph.nodes[input].name);
        let op = Op::Part(PartOp { weights: linear.weights.clone(), first, scale: None });
        draft.add(name, op, vec![input], &[&fingerprint.0, &first.to_le_bytes()])
    };
    branches.into_iter().map(part).collect()
}
