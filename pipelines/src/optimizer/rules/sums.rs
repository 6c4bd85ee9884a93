//! Sums that depend on the item alone, or on the context alone, are added up before they meet the others, so that one sum
//! of each is kept and read for a candidate.

use crate::graph::{Depends, NodeId};
use crate::operators::Op;
use crate::optimizer::Draft;

pub(in crate::optimizer) fn add_up_by_dependence(draft: &mut Draft) -> bool {
    let mut changed = false;
    for id in 0..draft.graph.nodes.len() {
        let node = &draft.graph.nodes[id];
        if !matches!(node.op, Op::Total) || node.depends != Depends::ItemAndContext {
            continue;
        }
        for depends in [Depends::Nothing, Depends::Item, Depends::Context] {
            let node = &draft.graph.nodes[id];
            let is_one = |input: &NodeId| draft.graph.nodes[*input].depends == depends;
            let (group, mut others): (Vec<NodeId>, Vec<NodeId>) = node.inputs.iter().partition(|input| is_one(input));
            if group.len() < 2 {
                continue;
            }
            let (of, name) = (name_of(depends), node.name.clone());
            draft.record(format!("{} sums of {name} depend on {of} and are added up first", group.len()));
            let sum = draft.add(format!("{name}.{of}"), Op::Total, group, &[]);
            others.push(sum);
            draft.graph.nodes[id].inputs = others;
            changed = true;
        }
    }
    if changed {
        draft.settle();
    }
    changed
}

fn name_of(depends: Depends) -> &'static str {
    match depends {
        Depends::Nothing => "nothing",
        Depends::Item => "the item",
        Depends::Context => "the context",
        Depends::ItemAndContext => "both",
    }
}
