//! What depends on neither item nor context is computed when the plan is made: constant folding.

use std::sync::Arc;

use celeris_model::Context;
use serde_json::Map;

use crate::graph::{Depends, Fingerprint};
use crate::operators::{CrossScratch, Op, Record, Surroundings};
use crate::optimizer::Draft;
use crate::text::TextScratch;
use crate::values::{Slot, View};

pub(in crate::optimizer) fn fold(draft: &mut Draft) -> bool {
    let mut changed = false;
    // Inputs come first, so that they are constants already.
    for id in 0..draft.graph.nodes.len() {
        let node = &draft.graph.nodes[id];
        if node.depends != Depends::Nothing || matches!(node.op, Op::Constant(_)) {
            continue;
        }
        let inputs: Vec<View> = node.inputs.iter().filter_map(|input| constant(draft, *input)).collect();
        let (item, context) = (Map::new(), Context::default());
        let (mut text, mut cross) = (TextScratch::default(), CrossScratch::default());
        let record = Record { item: &item, context: &context };
        let mut value = Slot::default();
        let around = Surroundings { record, text: &mut text, cross: &mut cross, row: &mut Vec::new(), memo: None };
        node.op.compute(&inputs[..], around, &mut value);
        let mut parts = vec![&node.fingerprint.0[..]];
        parts.extend(node.inputs.iter().map(|input| &draft.graph.nodes[*input].fingerprint.0[..]));
        let op = Op::Constant(Arc::new(value));
        let fingerprint = Fingerprint::of_rewrite(&op, &parts);
        draft.record(format!("{} is a constant", node.name));
        let node = &mut draft.graph.nodes[id];
        (node.op, node.fingerprint) = (op, fingerprint);
        node.inputs.clear();
        changed = true;
    }
    if changed {
        draft.settle();
    }
    changed
}

fn constant(draft: &Draft, id: usize) -> Option<View<'_>> {
    match &draft.graph.nodes[id].op {
        Op::Constant(value) => Some(value.view()),
        _ => None,
    }
}
