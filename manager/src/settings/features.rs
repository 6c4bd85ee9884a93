//! The parts of a model's features.

use std::collections::BTreeSet;

use celeris_features::parts::{CONTEXT_COLUMNS_MAX, PARTS_MAX};
use celeris_model::{Loss, ModelName};
use celeris_pipelines::graph::Outline;
use serde::{Deserialize, Serialize};

use crate::error::ManagerError;

/// Range of `candidates`.
const CANDIDATES: (u32, u32) = (1, 2048);

/// Number of candidates of a recommendation that computed parts score, unless the model says otherwise.
pub const CANDIDATES_DEFAULT: u32 = 200;

/// Where the columns of a part come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureSource {
    /// The factors that the trainer fits, and the constant.
    Table,
}

/// A part of a model's features: the table, or columns that a pipeline computes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeaturePart {
    /// Its name, unique in the model.
    pub part: String,
    /// Where the columns come from, unless a pipeline computes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<FeatureSource>,
    /// The pipeline that computes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// The number of columns; that of the pipeline, or what the other parts leave to the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dim: Option<usize>,
}

impl FeaturePart {
    /// Name of the part, of its pipeline, and its columns, if a pipeline computes it.
    pub(crate) fn computed(&self) -> Option<(&str, &str, usize)> {
        Some((&self.part, self.pipeline.as_deref()?, self.dim.unwrap_or_default()))
    }
}

/// The parts of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FeatureParts(pub Vec<FeaturePart>);

fn wrong(place: usize, problem: impl std::fmt::Display) -> ManagerError {
    ManagerError::FeatureParts { field: format!("features[{place}]"), problem: problem.to_string() }
}

impl FeatureParts {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts that pipelines compute.
    pub(crate) fn computed(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        self.0.iter().filter_map(FeaturePart::computed)
    }

    /// The number of columns that are not computed, of features of length `dim`.
    pub(crate) fn table_dim(&self, dim: usize) -> usize {
        dim.saturating_sub(self.computed().map(|(_, _, columns)| columns).sum())
    }

    /// Gives the table the columns that the computed parts leave, of features of length `dim`.
    pub(crate) fn fit_table(&mut self, dim: usize) {
        let left = self.table_dim(dim);
        for part in self.0.iter_mut().filter(|part| part.from == Some(FeatureSource::Table)) {
            part.dim = Some(left);
        }
    }

    /// Checks the parts of a model with this dimension and loss, and fills in their columns. `outline` describes a pipeline;
    /// it returns `None` if there is none of the name.
    ///
    /// # Errors
    /// `FeatureParts`, or an error of `outline`.
    pub(crate) fn complete(
        &mut self,
        (dim, loss): (usize, Loss),
        outline: impl Fn(&str) -> Result<Option<Outline>, ManagerError>,
    ) -> Result<(), ManagerError> {
        let (mut names, mut of_context, mut computed) = (BTreeSet::new(), 0, 0);
        if self.0.len() > PARTS_MAX {
            return Err(wrong(PARTS_MAX, format!("a model has at most {PARTS_MAX} parts")));
        }
        let mut table = None;
        for (place, part) in self.0.iter_mut().enumerate() {
            if ModelName::new(&part.part).is_err() || !names.insert(part.part.clone()) {
                return Err(wrong(
                    place,
                    "the name of a part has up to 64 ASCII letters, digits, - and _, and is unique",
                ));
            }
            let pipeline = match (&part.from, &part.pipeline) {
                (None, Some(pipeline)) => pipeline,
                (Some(FeatureSource::Table), None) if table.is_none() => {
                    table = Some(place);
                    continue;
                }
                (Some(FeatureSource::Table), None) => return Err(wrong(place, "only one part is the table")),
                _ => return Err(wrong(place, "a part has either a `pipeline`, or `\"from\": \"table\"`")),
            };
            if loss == Loss::Implicit {
                return Err(wrong(place, "computed parts need the loss squared or logistic"));
            }
            let Some(described) = outline(pipeline)? else {
                return Err(wrong(place, format!("no pipeline is named {pipeline}; GET /v1/pipelines lists them")));
            };
            let columns = columns_of(part.dim, &described).map_err(|problem| wrong(place, problem))?;
            part.dim = Some(columns);
            computed += columns;
            if described.depends_on.on_context() {
                of_context += columns;
            }
            if of_context > CONTEXT_COLUMNS_MAX {
                let problem = format!("parts have at most {CONTEXT_COLUMNS_MAX} columns that depend on the context");
                return Err(wrong(place, problem));
            }
        }
        if computed + 1 > dim {
            let last = self.0.len() - 1;
            let problem = format!("computed parts have {computed} columns, and dim {dim} has room for {}", dim - 1);
            return Err(wrong(last, problem));
        }
        if let Some(place) = table {
            let part = &mut self.0[place];
            if part.dim.is_some_and(|given| given != dim - computed) {
                return Err(wrong(place, format!("the other parts leave {} columns to the table", dim - computed)));
            }
            part.dim = Some(dim - computed);
        }
        Ok(())
    }
}

/// The columns of a part: those of its pipeline, which are known before the fit or given.
fn columns_of(given: Option<usize>, pipeline: &Outline) -> Result<usize, String> {
    let known = pipeline.dim.map(|dim| dim as usize);
    match (given, known) {
        (Some(given), Some(known)) if given != known => {
            Err(format!("pipeline {} has {known} columns, got dim {given}", pipeline.name))
        }
        (Some(0), _) | (_, Some(0)) => Err(format!("pipeline {} has no columns", pipeline.name)),
        (Some(columns), _) | (None, Some(columns)) => Ok(columns),
        (None, None) => Err(format!(
            "the columns of pipeline {} are known after its fit: declare it as `celeris pipelines fit` writes it, or give \
             the `dim` of this part",
            pipeline.name
        )),
    }
}

/// Checks the number of candidates.
///
/// # Errors
/// `Setting`.
pub(crate) fn check_candidates(candidates: u32) -> Result<(), ManagerError> {
    if (CANDIDATES.0..=CANDIDATES.1).contains(&candidates) {
        return Ok(());
    }
    Err(ManagerError::Setting { setting: "candidates", range: "from 1 to 2048", received: f64::from(candidates) })
}
