//! What can be wrong with a pipeline, its objects, its training and its execution.

use thiserror::Error;

use crate::ids::{Kind, ObjectId};
use crate::trees::TreeError;

/// Errors of this crate. Those of declarations name the node and its field.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PipelineError {
    /// The declaration as a whole is malformed.
    #[error("pipeline: {problem}")]
    Declaration { problem: String },
    /// A node is not an operator with its parameters.
    #[error("{node}: {problem}")]
    Node { node: String, problem: String },
    /// A parameter is out of range, or does not go with another one.
    #[error("{node}.{field}: {problem}")]
    Parameter { node: String, field: String, problem: String },
    #[error("{node}.{field}: there is no node {input:?}, and it is neither item.NAME nor context.NAME")]
    UnknownInput { node: String, field: String, input: String },
    #[error("{node}.{field}: takes {expected}, and {input} gives {received}")]
    TypeMismatch { node: String, field: String, input: String, expected: String, received: String },
    #[error("nodes need one another: {}", nodes.join(" -> "))]
    Cycle { nodes: Vec<String> },
    #[error("nodes that the output does not need: {}", nodes.join(", "))]
    Unused { nodes: Vec<String> },
    /// The parameter is learnt by a fit that has not been run.
    #[error("{node}.{field}: is not fitted yet")]
    NotFitted { node: String, field: String },
    #[error("{node}.{field}: there is no object {id}")]
    MissingObject { node: String, field: String, id: ObjectId },
    #[error("{node}.{field}: {id} is an object of kind {received}, needed is {expected}")]
    WrongKind { node: String, field: String, id: ObjectId, expected: Kind, received: Kind },
    /// The object does not have the columns, rows or entries that its node needs.
    #[error("{node}.{field}: object {id} has {problem}")]
    WrongShape { node: String, field: String, id: ObjectId, problem: String },
    /// The bytes are not those of an object.
    #[error("object: {problem}")]
    Object { problem: String },
    /// The bytes of an object have another checksum than the one they were asked for by.
    #[error("object: the bytes have the checksum {received}, not {expected}")]
    Checksum { expected: ObjectId, received: ObjectId },
    /// The bytes of an object could not be loaded.
    #[error("object {id}: cannot be loaded: {problem}")]
    Load { id: ObjectId, problem: String },
    /// The buffer of a result has another length than the result.
    #[error("the output has {expected} numbers per record, the buffer has room for {received}")]
    OutputLength { expected: usize, received: usize },
    /// Values were computed by another plan.
    #[error("the values are those of another plan")]
    ForeignValues,
    /// The outputs of a batch would take too much memory.
    #[error("the outputs of a batch are at most {max} numbers, these are {received}")]
    BatchSize { received: usize, max: usize },
    /// The queue of the batch engine is full.
    #[error("the queue of the batch engine holds {queued} parts of batches, the maximum; try again later")]
    Overloaded { queued: usize },
    #[error("the batch engine cannot start a thread: {problem}")]
    Threads { problem: String },
    /// The batch engine was shut down, or an operator panicked.
    #[error("the batch was given up: {problem}")]
    GivenUp { problem: String },
    /// A fit has too few rows, or rows without what it learns from.
    #[error("{node}: cannot be fitted: {problem}")]
    Fit { node: String, problem: String },
}

impl PipelineError {
    pub(crate) fn parameter(node: &str, field: &str, problem: impl Into<String>) -> Self {
        Self::Parameter { node: node.to_owned(), field: field.to_owned(), problem: problem.into() }
    }

    pub(crate) fn object(problem: impl Into<String>) -> Self {
        Self::Object { problem: problem.into() }
    }
}

/// A foreign model that cannot be imported.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ImportError {
    /// The file is too large.
    #[error("a model must have at most {max} bytes, got {received}")]
    TooLarge { max: usize, received: usize },
    /// A line of a LightGBM model is damaged, or says something that is not supported.
    #[error("line {line}, {key}: {problem}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The key of the line, or of the one that is missing there.
        key: String,
        problem: String,
    },
    /// An ONNX file is damaged, or exceeds a bound.
    #[error("byte {offset}: {problem}")]
    Encoding {
        /// Where the damaged part begins.
        offset: usize,
        problem: String,
    },
    /// A node of an ONNX graph is damaged, or has a part that is not supported.
    #[error("node {node} ({operator}), {part}: {problem}")]
    Node {
        /// The index of the node in the graph, from 0.
        node: usize,
        operator: String,
        /// An input or an attribute.
        part: String,
        problem: String,
    },
    /// The output of an ONNX graph depends on operators that no operator of a pipeline stands for or can run.
    #[error("the model needs the operators {}, which cannot be imported", operators.join(", "))]
    Opaque {
        /// In alphabetical order.
        operators: Vec<String>,
    },
    /// The inputs that were given, or the output, do not fit the graph.
    #[error("{name}: {problem}")]
    Graph {
        /// The name of an input or of an output.
        name: String,
        problem: String,
    },
    /// The trees are malformed or exceed a bound.
    #[error(transparent)]
    Trees(#[from] TreeError),
}
