//! Pipelines of computed features, and their objects.

use std::collections::BTreeMap;

use celeris_manager::{DescribedPipeline, PipelineRecord, StoredObject};
use celeris_model::Context;
use celeris_pipelines::objects::Kind;
use celeris_pipelines::plan::{Explanation, ObjectUse, StageExplanation};
use celeris_pipelines::{Depends, PipelineSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::context::ContextFields;
use super::ids::Name;

/// The name of an object: the SHA-256 of its bytes.
#[derive(ToSchema)]
#[schema(pattern = "^sha256:[0-9a-f]{64}$")]
pub struct ObjectName(pub String);

/// A pipeline: operators over the attributes of an item, the context of a request, and each other's values.
#[derive(ToSchema)]
pub struct PipelineBody {
    pub name: Name,
    /// The operators by the names of their nodes.
    pub nodes: BTreeMap<String, PipelineNode>,
    /// The node whose values are the pipeline's.
    pub output: String,
}

/// An operator: its name, and its parameters, which docs/guides/pipelines.md lists.
#[derive(ToSchema)]
pub struct PipelineNode {
    /// The name of the operator.
    pub op: String,
    #[serde(flatten)]
    pub parameters: BTreeMap<String, PipelineParameter>,
}

/// A parameter of an operator: `input` or `inputs`, the names of objects, numbers, texts, and settings of its fit.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum PipelineParameter {
    Number(f64),
    Text(String),
    Boolean(bool),
    Numbers(Vec<f64>),
    Texts(Vec<String>),
    FitDictionary(FitDictionary),
}

/// How a dictionary is learnt.
#[derive(ToSchema)]
pub struct FitDictionary {
    /// Number of rows that a string occurs in, at least.
    pub min_count: Option<u32>,
    /// Number of strings, at most.
    pub max_size: Option<u32>,
}

/// A declared pipeline.
#[derive(Debug, Serialize, ToSchema)]
pub struct Pipeline {
    #[schema(value_type = Name)]
    name: String,
    /// Counts the declarations of this name, from 1.
    revision: u64,
    /// When this revision was declared, in Unix milliseconds.
    declared: i64,
    /// Equal for pipelines that compute the same in the same way, whatever their nodes are called.
    fingerprint: String,
    /// Number of columns of the output; null before it is fitted, if that decides it.
    dim: Option<u32>,
    /// Learnt parameters that are not there yet, as `NODE.FIELD`. A pipeline without any can be run.
    unfitted: Vec<String>,
    /// What the output depends on.
    depends_on: Dependence,
    /// The attributes of items that it reads.
    item_fields: Vec<String>,
    /// The fields of contexts that it reads.
    context_fields: Vec<String>,
    /// The declaration.
    #[schema(value_type = PipelineBody)]
    declaration: PipelineSpec,
    /// What the optimizer has made of it; null unless it was asked for, or if it is not fitted.
    plan: Option<PipelinePlan>,
}

/// The execution of a pipeline.
#[derive(Debug, Serialize, ToSchema)]
pub struct PipelinePlan {
    /// In the order of execution.
    stages: Vec<PipelineStage>,
    /// What the optimizer has changed.
    rewrites: Vec<String>,
    /// The objects of the pipeline.
    objects: Vec<PipelineObject>,
}

/// A part of a pipeline that is one pass over its input.
#[derive(Debug, Serialize, ToSchema)]
pub struct PipelineStage {
    stage: String,
    ops: Vec<String>,
    /// The nodes whose values it gives.
    nodes: Vec<String>,
    depends_on: Dependence,
    /// When it is computed.
    computed: String,
    /// Number of pipelines on this node that have this stage.
    shared_by: usize,
}

/// An object of a pipeline.
#[derive(Debug, Serialize, ToSchema)]
pub struct PipelineObject {
    #[schema(value_type = ObjectName)]
    sha256: String,
    kind: ObjectKind,
    bytes: usize,
    /// Number of uses by pipelines on this node.
    shared_by: usize,
}

/// The pipelines, by name.
#[derive(Debug, Serialize, ToSchema)]
pub struct PipelineList {
    pub pipelines: Vec<PipelineSummary>,
}

/// A pipeline in the list.
#[derive(Debug, Serialize, ToSchema)]
pub struct PipelineSummary {
    #[schema(value_type = Name)]
    name: String,
    /// Counts the declarations of this name, from 1.
    revision: u64,
    /// When this revision was declared, in Unix milliseconds.
    declared: i64,
    /// Number of nodes.
    nodes: usize,
}

/// An object on this node.
#[derive(Debug, Serialize, ToSchema)]
pub struct ObjectReply {
    #[schema(value_type = ObjectName)]
    sha256: String,
    bytes: u64,
    /// The pipelines that name it.
    #[schema(value_type = Vec<Name>)]
    used_by: Vec<String>,
}

/// The inputs to run a pipeline on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunBody {
    #[schema(max_items = 1000)]
    pub records: Vec<RunRecord>,
}

/// One input.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// The attributes of the item.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub item: Map<String, Value>,
    /// The circumstances.
    #[serde(default)]
    #[schema(value_type = ContextFields)]
    pub context: Context,
}

/// The outputs, in the order of the inputs.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunReply {
    /// `dim` numbers for each record.
    pub outputs: Vec<Vec<f32>>,
}

mirror_enum! {
    /// What a value depends on, and hence when it is computed.
    Dependence = Depends {
        /// The same for all.
        Nothing,
        /// The attributes of the item: computed once for an item.
        Item,
        /// The context: computed once for a request.
        Context,
        /// Both: computed for each candidate of a request.
        ItemAndContext,
    }
}

mirror_enum! {
    /// What an object is.
    ObjectKind = Kind {
        Dictionary,
        Weights,
        Idf,
        Moments,
        Centroids,
        Components,
        Embedding,
        Trees,
        Onnx,
        Attributes,
    }
}

impl From<DescribedPipeline> for Pipeline {
    fn from(DescribedPipeline { record, outline, explanation }: DescribedPipeline) -> Self {
        let PipelineRecord { spec, revision, declared } = record;
        Self {
            name: spec.name.clone(),
            revision,
            declared: declared.0,
            fingerprint: outline.fingerprint.to_string(),
            dim: outline.dim,
            unfitted: outline.unfitted,
            depends_on: outline.depends_on.into(),
            item_fields: outline.item_fields,
            context_fields: outline.context_fields,
            declaration: spec,
            plan: explanation.map(Into::into),
        }
    }
}

impl From<Explanation> for PipelinePlan {
    fn from(explanation: Explanation) -> Self {
        let stage = |stage: StageExplanation| PipelineStage {
            stage: stage.stage,
            ops: stage.ops.into_iter().map(str::to_owned).collect(),
            nodes: stage.nodes,
            depends_on: stage.depends_on.into(),
            computed: stage.computed.to_owned(),
            shared_by: stage.shared_by,
        };
        let object = |object: ObjectUse| PipelineObject {
            sha256: object.sha256.to_string(),
            kind: object.kind.into(),
            bytes: object.bytes,
            shared_by: object.shared_by,
        };
        Self {
            stages: explanation.stages.into_iter().map(stage).collect(),
            rewrites: explanation.rewrites,
            objects: explanation.objects.into_iter().map(object).collect(),
        }
    }
}

impl From<PipelineRecord> for PipelineSummary {
    fn from(PipelineRecord { spec, revision, declared }: PipelineRecord) -> Self {
        Self { nodes: spec.nodes.len(), name: spec.name, revision, declared: declared.0 }
    }
}

impl From<StoredObject> for ObjectReply {
    fn from(StoredObject { id, bytes, used_by }: StoredObject) -> Self {
        Self { sha256: id.to_string(), bytes, used_by }
    }
}
