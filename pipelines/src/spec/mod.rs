//! Declarations of pipelines, as they are written in JSON.
//!
//! ```json
//! {"name": "clicks", "nodes": {
//!    "words":  {"op": "tokenize", "input": "item.title"},
//!    "grams":  {"op": "word_ngrams", "input": "words", "n": [1, 2], "hash_bits": 18},
//!    "device": {"op": "one_hot", "input": "context.device", "categories": ["mobile", "desktop"]},
//!    "all":    {"op": "concat", "inputs": ["grams", "device"]},
//!    "ctr":    {"op": "linear", "input": "all", "weights": "sha256:…", "link": "logistic"}},
//!  "output": "ctr"}
//! ```
//!
//! An input is the name of a node, or `item.NAME` or `context.NAME` for a field whose type is the one that the operator
//! takes. A parameter that is learnt may be left out, with settings of its fit under `fit`.

mod operator;
mod parameters;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::PipelineError;
use crate::limits::{NAME_BYTES_MAX, NODES_MAX};
use crate::objects::ObjectId;

pub use operator::Operator;
pub use parameters::*;

/// A declared pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineSpec {
    pub name: String,
    /// Operators by the names of their nodes.
    pub nodes: BTreeMap<String, Operator>,
    /// The node whose values are the pipeline's.
    pub output: String,
}

impl PipelineSpec {
    /// Whether an operator is fitted to labels as probabilities, which must be 0 to 1.
    #[must_use]
    pub fn fits_probabilities(&self) -> bool {
        let is_fitted = |operator: &Operator| match operator {
            Operator::Linear(linear) => linear.fit == Some(FitLinear::Label) && linear.link == Link::Logistic,
            _ => false,
        };
        self.nodes.values().any(is_fitted)
    }
}

/// The declaration with its nodes still unread, so that errors can name them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unread {
    name: String,
    nodes: BTreeMap<String, Value>,
    output: String,
}

impl PipelineSpec {
    /// Reads a declaration; errors name the node.
    ///
    /// # Errors
    /// [`PipelineError::Declaration`] and [`PipelineError::Node`].
    pub fn parse(json: &Value) -> Result<Self, PipelineError> {
        let declaration = |problem: String| PipelineError::Declaration { problem };
        let unread = Unread::deserialize(json).map_err(|error| declaration(error.to_string()))?;
        let read = |(name, node): (String, Value)| match Operator::deserialize(&node) {
            Ok(operator) => Ok((name, operator)),
            Err(error) => Err(PipelineError::Node { node: name, problem: error.to_string() }),
        };
        let nodes = unread.nodes.into_iter().map(read).collect::<Result<_, _>>()?;
        let spec = Self { name: unread.name, nodes, output: unread.output };
        spec.check_names()?;
        Ok(spec)
    }

    /// The objects that its nodes name.
    #[must_use]
    pub fn objects(&self) -> BTreeSet<ObjectId> {
        self.nodes.values().filter_map(Operator::object).collect()
    }

    /// Checks number and names of nodes.
    ///
    /// # Errors
    /// [`PipelineError::Declaration`].
    pub fn check_names(&self) -> Result<(), PipelineError> {
        let refuse = |problem: String| Err(PipelineError::Declaration { problem });
        let bad = |name: &str| name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('.');
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX {
            return refuse(format!("its name has 1 to {NAME_BYTES_MAX} bytes, got {}", self.name.len()));
        }
        if self.nodes.len() > NODES_MAX {
            return refuse(format!("it has {} nodes, the maximum is {NODES_MAX}", self.nodes.len()));
        }
        match self.nodes.keys().find(|name| bad(name)) {
            Some(name) => {
                refuse(format!("the name {name:?} of a node has not 1 to {NAME_BYTES_MAX} bytes without a dot"))
            }
            None => Ok(()),
        }
    }
}
