//! Physical stages: the operators of a plan, grouped so that each group is one pass over its input (PRETZEL, section 4.2).
//!
//! A stage knows its operators and objects but not the plan: plans whose stages are equal share them through a
//! [`Catalog`].

mod build;
mod catalog;
mod subplans;
mod text;

use crate::graph::{Depends, Fingerprint, NodeId};
use crate::operators::Op;

pub use build::{Built, Fusion, build};
pub use catalog::Catalog;
pub(crate) use subplans::Outcome;
pub use subplans::{SubPlanFacts, SubPlans};
pub use text::{Branch, FeaturizedText, TextRun, TextStage};

/// Where a step reads an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// An input of the stage.
    Input(u32),
    /// The value of a step of the stage.
    Local(u32),
}

/// One operator of a stage. Its value has the number of the step.
#[derive(Debug, Clone)]
pub struct Step {
    pub op: Op,
    pub inputs: Vec<Wire>,
}

/// The work of a stage.
#[derive(Debug, Clone)]
pub enum Work {
    /// One operator after the other, on one record.
    Steps(Vec<Step>),
    /// One pass over a text. Its values have the numbers of its branches.
    Text(TextStage),
}

/// A physical stage.
#[derive(Debug, Clone)]
pub struct Stage {
    pub work: Work,
    /// Of its operators, their parameters, and how they are connected.
    pub fingerprint: Fingerprint,
    /// The names of its operators.
    pub ops: Vec<&'static str>,
}

impl Stage {
    /// Whether its result is worth keeping: the work of its operators exceeds that of finding a result by its input. Only its
    /// last value is read by other stages.
    #[must_use]
    pub fn is_worth_keeping(&self) -> bool {
        let Work::Steps(steps) = &self.work else { return false };
        steps.iter().any(|step| {
            matches!(
                step.op,
                Op::Tokenize(_)
                    | Op::WordNgrams(_)
                    | Op::CharNgrams(_)
                    | Op::Cross(_)
                    | Op::Embedding(_)
                    | Op::Pca(_)
                    | Op::Kmeans(..)
                    | Op::Trees(_)
                    | Op::Onnx(_)
            )
        })
    }

    /// Number of values that it computes.
    #[must_use]
    pub fn values(&self) -> usize {
        match &self.work {
            Work::Steps(steps) => steps.len(),
            Work::Text(text) => text.branches.len(),
        }
    }
}

/// A stage at its place in a graph.
#[derive(Debug, Clone)]
pub struct Placed {
    pub stage: Stage,
    /// The nodes that it reads.
    pub inputs: Vec<NodeId>,
    /// The nodes that it computes, in the order of its values.
    pub nodes: Vec<NodeId>,
    pub depends: Depends,
}
