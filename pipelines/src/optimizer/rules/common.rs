//! Nodes with equal operators, parameters and inputs become one: common sub-expressions.

use std::collections::HashMap;

use crate::graph::{Fingerprint, NodeId};
use crate::optimizer::Draft;

pub(in crate::optimizer) fn merge_equal_nodes(draft: &mut Draft) -> bool {
    let mut first: HashMap<(Fingerprint, Vec<NodeId>), NodeId> = HashMap::new();
    let mut changed = false;
    // Inputs come first, so that equal ones are one node already.
    for id in 0..draft.graph.nodes.len() {
        let node = &draft.graph.nodes[id];
        match first.get(&(node.fingerprint, node.inputs.clone())) {
            Some(same) => {
                let (same, name) = (*same, node.name.clone());
                let kept = draft.graph.nodes[same].name.clone();
                draft.record(format!("{name} equals {kept} and is computed once"));
                draft.graph.redirect(id, same);
                changed = true;
            }
            None => {
                first.insert((node.fingerprint, node.inputs.clone()), id);
            }
        }
    }
    if changed {
        draft.settle();
    }
    changed
}
