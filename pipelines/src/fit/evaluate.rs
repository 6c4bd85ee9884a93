//! Values of nodes of a declaration that is not fitted yet.

use crate::graph::CheckedGraph;
use crate::operators::{CrossScratch, Inputs, Op, Record, Surroundings};
use crate::text::TextScratch;
use crate::values::{Slot, View};

/// Computes the nodes that some nodes need.
pub(super) struct Evaluator {
    /// By the node; `None` for nodes that are not needed.
    steps: Vec<Option<(Op, Vec<usize>)>>,
    slots: Vec<Slot>,
    text: TextScratch,
    cross: CrossScratch,
    row: Vec<f32>,
}

struct Values<'a> {
    inputs: &'a [usize],
    slots: &'a [Slot],
}

impl Inputs for Values<'_> {
    fn count(&self) -> usize {
        self.inputs.len()
    }

    fn get(&self, position: usize) -> View<'_> {
        self.slots[self.inputs[position]].view()
    }
}

impl Evaluator {
    /// Computes all that these nodes read.
    pub fn new(checked: &CheckedGraph, readers: &[usize]) -> Self {
        let mut needed = vec![false; checked.nodes.len()];
        readers.iter().flat_map(|reader| &checked.nodes[*reader].inputs).for_each(|input| needed[*input] = true);
        // Nodes follow their inputs.
        for node in (0..needed.len()).rev().filter(|node| !readers.contains(node)) {
            if needed[node] {
                checked.nodes[node].inputs.iter().for_each(|input| needed[*input] = true);
            }
        }
        let step = |(node, needed): (usize, &bool)| {
            let node = &checked.nodes[node];
            let op = node.resolved.op.clone().ok().filter(|_| *needed)?;
            Some((op, node.inputs.clone()))
        };
        let steps: Vec<_> = needed.iter().enumerate().map(step).collect();
        let slots = vec![Slot::default(); steps.len()];
        Self { steps, slots, text: TextScratch::default(), cross: CrossScratch::default(), row: Vec::new() }
    }

    pub fn evaluate(&mut self, record: Record) {
        for (node, step) in self.steps.iter().enumerate() {
            let Some((op, inputs)) = step else { continue };
            let mut out = std::mem::take(&mut self.slots[node]);
            let values = Values { inputs, slots: &self.slots };
            let (text, cross, row) = (&mut self.text, &mut self.cross, &mut self.row);
            op.compute(&values, Surroundings { record, text, cross, row, memo: None }, &mut out);
            self.slots[node] = out;
        }
    }

    pub fn value(&self, node: usize) -> View<'_> {
        self.slots[node].view()
    }
}
