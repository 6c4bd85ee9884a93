//! What the optimizer has made of a declaration, for people.

use std::sync::Arc;

use serde::Serialize;

use super::Plan;
use crate::graph::{Depends, Fingerprint};
use crate::objects::{Kind, ObjectId};

/// Stages, rewrites and objects of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    pub name: String,
    pub fingerprint: Fingerprint,
    pub dim: usize,
    pub depends_on: Depends,
    pub item_fields: Vec<String>,
    pub context_fields: Vec<String>,
    pub stages: Vec<StageExplanation>,
    /// What the optimizer changed, one sentence each.
    pub rewrites: Vec<String>,
    pub objects: Vec<ObjectUse>,
}

/// A stage of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageExplanation {
    /// `s1`, `s2`, …, in the order of execution.
    pub stage: String,
    /// Its operators.
    pub ops: Vec<&'static str>,
    /// The nodes whose values it gives.
    pub nodes: Vec<String>,
    pub depends_on: Depends,
    /// When it is computed.
    pub computed: &'static str,
    /// Number of places in plans that have this stage.
    pub shared_by: usize,
    pub fingerprint: Fingerprint,
}

/// An object of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObjectUse {
    pub sha256: ObjectId,
    pub kind: Kind,
    pub bytes: usize,
    /// Number of handles that hold it, one for each plan and some of its makers.
    pub shared_by: usize,
}

impl Plan {
    /// Explains the plan.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        let stage = |(number, placed): (usize, &super::PlacedStage)| StageExplanation {
            stage: format!("s{number}"),
            ops: placed.stage.ops.clone(),
            nodes: placed.nodes.clone(),
            depends_on: placed.area,
            computed: match placed.area {
                Depends::Nothing => "with the plan",
                Depends::Item => "once for an item of a version",
                Depends::Context => "once for a request",
                Depends::ItemAndContext => "for each candidate",
            },
            shared_by: Arc::strong_count(&placed.stage),
            fingerprint: placed.stage.fingerprint,
        };
        let object = |object: &Arc<crate::objects::Object>| ObjectUse {
            sha256: object.id(),
            kind: object.content().kind(),
            bytes: object.encoded_bytes(),
            shared_by: Arc::strong_count(object),
        };
        Explanation {
            name: self.name.clone(),
            fingerprint: self.fingerprint,
            dim: self.dim(),
            depends_on: self.depends,
            item_fields: self.fields[0].clone(),
            context_fields: self.fields[1].clone(),
            stages: (1..).zip(&self.stages).map(stage).collect(),
            rewrites: self.rewrites.clone(),
            objects: self.objects.iter().map(object).collect(),
        }
    }
}
