//! Scaling that only a linear model reads happens within its dot product, without a vector of its own.

use crate::graph::Fingerprint;
use crate::operators::{Op, PartOp};
use crate::optimizer::Draft;

pub(in crate::optimizer) fn fuse_into_parts(draft: &mut Draft) -> bool {
    let consumers = draft.graph.consumers();
    let mut changed = false;
    for id in 0..draft.graph.nodes.len() {
        let node = &draft.graph.nodes[id];
        let (Op::Part(part @ PartOp { scale: None, .. }), [input]) = (&node.op, &node.inputs[..]) else { continue };
        let scaling = &draft.graph.nodes[*input];
        let Op::Scale(scale) = &scaling.op else { continue };
        if consumers[*input].len() != 1 {
            continue;
        }
        let op = Op::Part(PartOp { scale: Some(scale.clone()), ..part.clone() });
        let (inputs, name) = (scaling.inputs.clone(), scaling.name.clone());
        let fingerprint = Fingerprint::of_rewrite(&op, &[&node.fingerprint.0, &scaling.fingerprint.0]);
        draft.record(format!("{name} is fused into the dot product that reads it"));
        let node = &mut draft.graph.nodes[id];
        (node.op, node.inputs, node.fingerprint) = (op, inputs, fingerprint);
        changed = true;
    }
    if changed {
        draft.settle();
    }
    changed
}
