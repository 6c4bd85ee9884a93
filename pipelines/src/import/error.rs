//! The errors of imports.

use thiserror::Error;

use crate::trees::TreeError;

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
