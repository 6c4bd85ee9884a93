//! The errors of tree ensembles.

use thiserror::Error;

/// An ensemble that is malformed or exceeds a bound.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum TreeError {
    /// A count or a size is outside its bounds.
    #[error("trees: {what} must be {min} to {max}, got {received}")]
    OutOfRange {
        /// The name of the count.
        what: &'static str,
        min: u64,
        max: u64,
        received: u64,
    },
    /// A node or the ensemble has an invalid part.
    #[error("tree {tree}, node {node}: {problem}")]
    Node {
        /// The index of the tree in the ensemble.
        tree: usize,
        /// The index of the node in the tree as its source counts.
        node: usize,
        problem: NodeProblem,
    },
    /// The base values are not finite.
    #[error("trees: the base value of output {output} must be finite")]
    Base { output: usize },
    /// The bytes of an encoded ensemble are damaged.
    #[error("trees: byte {offset}: {problem}")]
    Encoding {
        /// Bytes read before the damaged part.
        offset: usize,
        problem: &'static str,
    },
}

/// What is wrong with a node.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum NodeProblem {
    #[error("the feature {feature} does not exist: the ensemble has {inputs} inputs")]
    Feature { feature: u64, inputs: usize },
    #[error("the child {child} does not exist: the tree has {nodes} nodes")]
    Child { child: usize, nodes: usize },
    #[error("the node is the child of more than one node, or of itself")]
    Shared,
    #[error("the node is deeper than {max} levels below the root")]
    Depth { max: usize },
    #[error("the threshold is not a number that an f32 can be compared with")]
    Threshold,
    #[error("the vote for output {output} does not exist: the trees have {outputs} outputs")]
    Vote { output: u64, outputs: usize },
    #[error("the vote for output {output} must be finite")]
    VoteValue { output: u64 },
    #[error("the votes of the leaf do not exist")]
    Votes,
    #[error("the set of the node does not exist")]
    Set,
    #[error("a member of a set must be at most {max}, got {member}")]
    Member { member: u64, max: u32 },
}
