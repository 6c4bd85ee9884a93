//! The parts of a model's features.

use celeris_manager::{FeaturePart, FeatureParts, FeatureSource};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ids::Name;

/// Where the columns of a part come from.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartSource {
    /// The factors that the trainer fits, and the constant.
    Table,
}

/// A part of the features: the table, or columns that a pipeline computes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartOfFeatures {
    /// Its name, unique in the model.
    #[schema(value_type = Name)]
    pub part: String,
    /// `table`, unless a pipeline computes the columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub from: Option<PartSource>,
    /// The pipeline that computes the columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Name>)]
    pub pipeline: Option<String>,
    /// The number of columns: that of the pipeline, or what the other parts leave to the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub dim: Option<usize>,
}

impl From<PartOfFeatures> for FeaturePart {
    fn from(PartOfFeatures { part, from, pipeline, dim }: PartOfFeatures) -> Self {
        Self { part, from: from.map(|PartSource::Table| FeatureSource::Table), pipeline, dim }
    }
}

impl From<FeaturePart> for PartOfFeatures {
    fn from(FeaturePart { part, from, pipeline, dim }: FeaturePart) -> Self {
        Self { part, from: from.map(|FeatureSource::Table| PartSource::Table), pipeline, dim }
    }
}

/// The parts as a model has them.
pub fn parts(of: Vec<PartOfFeatures>) -> FeatureParts {
    FeatureParts(of.into_iter().map(Into::into).collect())
}
