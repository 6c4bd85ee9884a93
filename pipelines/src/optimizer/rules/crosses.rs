//! A hashed cross that only a linear model reads is not written as a vector: weights are added where combinations occur.

use crate::graph::{Depends, Fingerprint};
use crate::operators::{CrossPartOp, Op};
use crate::optimizer::Draft;

pub(in crate::optimizer) fn fuse_into_parts(draft: &mut Draft) -> bool {
    let consumers = draft.graph.consumers();
    let mut changed = false;
    for id in 0..draft.graph.nodes.len() {
        let node = &draft.graph.nodes[id];
        let (Op::Part(part), [input]) = (&node.op, &node.inputs[..]) else { continue };
        let cross = &draft.graph.nodes[*input];
        let Op::Cross(bits) = cross.op else { continue };
        if consumers[*input].len() != 1
            || !cross.inputs.iter().all(|input| has_whole_values(&draft.graph.nodes[*input].op))
        {
            continue;
        }
        let depends: Vec<Depends> = cross.inputs.iter().map(|input| draft.graph.nodes[*input].depends).collect();
        // The candidates of a request share its context: sums over its features can be kept for them.
        let (outer, shares_sums) = match depends[..] {
            [_, Depends::Context] => (0, true),
            [Depends::Context, _] => (1, true),
            _ => (0, false),
        };
        let op = Op::CrossPart(CrossPartOp { bits, part: part.clone(), outer, shares_sums });
        let (inputs, name) = (cross.inputs.clone(), cross.name.clone());
        let fingerprint = Fingerprint::of_rewrite(
            &op,
            &[&node.fingerprint.0, &cross.fingerprint.0, &[outer as u8, u8::from(shares_sums)]],
        );
        draft.record(format!("the products of {name} are added where its combinations occur"));
        let node = &mut draft.graph.nodes[id];
        (node.op, node.inputs, node.fingerprint) = (op, inputs, fingerprint);
        changed = true;
    }
    if changed {
        draft.settle();
    }
    changed
}

/// Whether the features of a node are 1, -1 or counts. Products of others are rounded where they become entries of a vector,
/// which the sum without that vector would not do.
fn has_whole_values(op: &Op) -> bool {
    matches!(
        op,
        Op::Field(_)
            | Op::Tokenize(_)
            | Op::WordNgrams(_)
            | Op::CharNgrams(_)
            | Op::OneHot(_)
            | Op::MultiHot(_)
            | Op::Hash(_)
            | Op::Bucketize(_)
            | Op::Kmeans(..)
    )
}
