//! Graphs of operators: a declaration with its names, types and objects resolved.
//!
//! [`Graph::declared`] checks everything that can be wrong with a declaration. Optimizer and engines work on its result
//! and check nothing again.

mod check;
mod declared;
mod outline;
mod resolve;
mod schema;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::objects::Object;
use crate::operators::Op;
use crate::spec::Side;

pub(crate) use declared::{Checked, CheckedGraph};
pub use outline::Outline;
pub use schema::Schema;

/// The position of a node in its graph.
pub type NodeId = usize;

/// SHA-256 over operators and their parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What the values of a node depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Depends {
    Nothing,
    Item,
    Context,
    ItemAndContext,
}

impl Depends {
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, one) | (one, Self::Nothing) => one,
            (one, other) if one == other => one,
            _ => Self::ItemAndContext,
        }
    }

    /// Whether they depend on the item.
    #[must_use]
    pub fn on_item(self) -> bool {
        matches!(self, Self::Item | Self::ItemAndContext)
    }

    /// Whether they depend on the context.
    #[must_use]
    pub fn on_context(self) -> bool {
        matches!(self, Self::Context | Self::ItemAndContext)
    }
}

/// An operator with its inputs.
#[derive(Debug, Clone)]
pub struct Node {
    /// As declared, or made up by the optimizer.
    pub name: String,
    pub op: Op,
    pub inputs: Vec<NodeId>,
    pub schema: Schema,
    pub depends: Depends,
    /// Of operator and parameters, without inputs.
    pub fingerprint: Fingerprint,
}

/// A graph of operators whose nodes follow their inputs.
#[derive(Debug, Clone)]
pub struct Graph {
    pub name: String,
    pub nodes: Vec<Node>,
    pub output: NodeId,
    /// Of the declaration in canonical form.
    pub fingerprint: Fingerprint,
    /// The objects of all operators, each once.
    pub objects: Vec<Arc<Object>>,
}

impl Graph {
    /// Number of columns of the output.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.nodes[self.output].schema.columns().unwrap_or(0) as usize
    }

    /// The nodes that read each node, each as often as it does.
    #[must_use]
    pub fn consumers(&self) -> Vec<Vec<NodeId>> {
        let mut consumers = vec![Vec::new(); self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|input| consumers[*input].push(id));
        }
        consumers
    }

    /// Removes the nodes that the output does not need, puts nodes behind their inputs, and returns the names of those
    /// that are gone. The graph has no cycles.
    pub fn tidy(&mut self) -> Vec<String> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut seen = vec![false; self.nodes.len()];
        let mut stack = vec![(self.output, 0)];
        seen[self.output] = true;
        while let Some((id, next)) = stack.pop() {
            match self.nodes[id].inputs.get(next) {
                Some(input) => {
                    stack.push((id, next + 1));
                    if !std::mem::replace(&mut seen[*input], true) {
                        stack.push((*input, 0));
                    }
                }
                None => order.push(id),
            }
        }
        let gone =
            self.nodes.iter().zip(&seen).filter(|(_, seen)| !**seen).map(|(node, _)| node.name.clone()).collect();
        let places: HashMap<NodeId, NodeId> = order.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let moved = |id: &NodeId| {
            let mut node = self.nodes[*id].clone();
            node.inputs.iter_mut().for_each(|input| *input = places[&*input]);
            node
        };
        self.nodes = order.iter().map(moved).collect();
        self.output = places[&self.output];
        gone
    }

    /// Replaces every use of a node by another one.
    pub fn redirect(&mut self, from: NodeId, to: NodeId) {
        let inputs = self.nodes.iter_mut().flat_map(|node| &mut node.inputs);
        inputs.filter(|input| **input == from).for_each(|input| *input = to);
        if self.output == from {
            self.output = to;
        }
    }

    /// The fields that it reads, by side.
    #[must_use]
    pub fn fields(&self) -> [BTreeSet<String>; 2] {
        let mut fields = [BTreeSet::new(), BTreeSet::new()];
        for node in &self.nodes {
            match &node.op {
                Op::Field(field) => {
                    fields[field.of as usize].insert(field.name.to_string());
                }
                Op::Attributes(rules) => fields[Side::Item as usize].extend(rules.fields().map(str::to_owned)),
                _ => {}
            }
        }
        fields
    }
}
