//! The optimizer: rules that rewrite a graph into one that gives the same values with less work, after PRETZEL's Oven
//! (section 4.1.2).
//!
//! The rules run in turn until none of them changes the graph. Each rewrite is recorded as a sentence. Results differ from
//! those of the declared graph by the order of sums in `f64` only: every value that the declared graph rounds to `f32`
//! is rounded in the rewritten one too.

mod rules;

use crate::graph::{Depends, Fingerprint, Graph, Node, NodeId, Schema};
use crate::operators::Op;

/// Number of rounds of all rules; each round that goes on has made the graph smaller or a node more special, so that far
/// fewer are needed.
const ROUNDS_MAX: usize = 1000;

/// A graph that was rewritten, and how.
#[derive(Debug, Clone)]
pub struct Optimized {
    pub graph: Graph,
    /// One sentence for each rewrite, in their order.
    pub rewrites: Vec<String>,
}

/// A rule rewrites all places of a graph that it fits, and records each; returns whether there was one.
type Rule = fn(&mut Draft) -> bool;

/// In the order in which they run.
const RULES: [Rule; 8] = [
    rules::constants::fold,
    rules::common::merge_equal_nodes,
    rules::concats::flatten,
    rules::linear::push_through_concat,
    rules::scales::fuse_into_parts,
    rules::crosses::fuse_into_parts,
    rules::sums::add_up_by_dependence,
    rules::dead::remove,
];

/// A graph that is being rewritten.
struct Draft {
    graph: Graph,
    rewrites: Vec<String>,
}

/// Applies all rules until none fits any more.
#[must_use]
pub fn optimize(graph: Graph) -> Optimized {
    apply(&RULES, graph)
}

/// Computes what depends on neither item nor context, and changes nothing else.
#[must_use]
pub fn fold_constants(graph: Graph) -> Graph {
    apply(&[rules::constants::fold], graph).graph
}

fn apply(rules: &[Rule], graph: Graph) -> Optimized {
    let mut draft = Draft { graph, rewrites: Vec::new() };
    for _ in 0..ROUNDS_MAX {
        let changes = rules.iter().filter(|rule| rule(&mut draft)).count();
        if changes == 0 {
            break;
        }
    }
    Optimized { graph: draft.graph, rewrites: draft.rewrites }
}

impl Draft {
    fn record(&mut self, rewrite: String) {
        self.rewrites.push(rewrite);
    }

    /// Adds a node that a rule makes. It may stand before its inputs until [`Draft::settle`].
    fn add(&mut self, name: String, op: Op, inputs: Vec<NodeId>, parameters: &[&[u8]]) -> NodeId {
        let depends = inputs.iter().map(|id| self.graph.nodes[*id].depends).fold(Depends::Nothing, Depends::and);
        let schema = match &op {
            Op::Part(part) => Schema::Sums(part.weights.outputs() as u32),
            Op::CrossPart(cross) => Schema::Sums(cross.part.weights.outputs() as u32),
            Op::Finish(linear) => Schema::Dense(Some(linear.weights.outputs() as u32)),
            // A total has the type of what it adds.
            _ => inputs.first().map_or(Schema::Sums(1), |input| self.graph.nodes[*input].schema),
        };
        let fingerprint = Fingerprint::of_rewrite(&op, parameters);
        self.graph.nodes.push(Node { name, op, inputs, schema, depends, fingerprint });
        self.graph.nodes.len() - 1
    }

    /// Restores the order of nodes after a rule.
    fn settle(&mut self) -> Vec<String> {
        self.graph.tidy()
    }
}
