//! Pipelines that compute parts of the features of models.

use celeris_pipelines::PipelineSpec;

use super::Manager;
use crate::error::ManagerError;
use crate::pipelines::DescribedPipeline;
use crate::registry::ModelRecord;
use crate::settings::ModelConfig;

impl Manager {
    /// Checks the computed parts of a model, and fills in their columns. The caller guarantees that it holds the lock of
    /// changes until the model is written, so that the pipelines stay.
    pub(super) fn complete_parts(&self, config: &mut ModelConfig) -> Result<(), ManagerError> {
        config.features.complete((config.dim, config.loss), |pipeline| self.pipelines.outline(pipeline))
    }

    /// Declares a pipeline, or its next revision.
    ///
    /// # Errors
    /// As [`Pipelines`] has them: `Pipeline` if the declaration is invalid or names an object that is not there,
    /// `TooManyPipelines`; `PipelineInUse` if models have a part of it whose columns it would change; or `Storage`, with
    /// `NotOwner` unless this node leads.
    pub fn declare_pipeline(&self, spec: PipelineSpec) -> Result<DescribedPipeline, ManagerError> {
        let _changing = self.registry.lock_changes()?;
        let dims = self.pipelines.columns_of(&spec)?;
        let differs = |columns: usize| dims.is_some_and(|dim| dim as usize != columns);
        self.check_unused(&spec.name, differs, "another number of columns needs another name")?;
        self.pipelines.declare(spec)
    }

    /// Deletes a pipeline, and the objects that no other one names. Versions that were trained with it keep what they need.
    ///
    /// # Errors
    /// `UnknownPipeline`, `PipelineInUse` if models have a part of it, or `Storage`, with `NotOwner` unless this node leads.
    pub fn delete_pipeline(&self, name: &str) -> Result<(), ManagerError> {
        let _changing = self.registry.lock_changes()?;
        self.check_unused(name, |_| true, "take it out of their `features` first")?;
        self.pipelines.delete(name)
    }

    /// Fails if models have a part of a pipeline for whose columns `matters` holds.
    fn check_unused(
        &self,
        pipeline: &str,
        matters: impl Fn(usize) -> bool,
        advice: &'static str,
    ) -> Result<(), ManagerError> {
        let uses = |record: &ModelRecord| {
            record.config.features.computed().any(|(_, of_part, columns)| of_part == pipeline && matters(columns))
        };
        let users: Vec<String> = self
            .registry
            .all_models()?
            .iter()
            .filter(|record| uses(record))
            .map(|record| record.config.name.to_string())
            .collect();
        if users.is_empty() {
            return Ok(());
        }
        Err(ManagerError::PipelineInUse { pipeline: pipeline.to_owned(), models: users.join(", "), advice })
    }
}
