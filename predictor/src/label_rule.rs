//! Which labels a model takes.

use celeris_model::{LabelRange, Loss, ModelError, ModelName};
use serde::{Deserialize, Serialize};

use crate::error::PredictorError;

/// What happens to a label outside the range of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelsOutside {
    /// The observation is rejected.
    #[default]
    Refuse,
    /// The nearest label of the range is recorded instead.
    Clip,
}

/// The labels that a model takes, as far as its loss does not determine them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LabelRule {
    /// `None` if the model takes every label that its loss takes.
    pub range: Option<LabelRange>,
    pub outside: LabelsOutside,
}

impl LabelRule {
    /// The label to record for `label`.
    ///
    /// # Errors
    /// `Model` if the loss has no such labels, `LabelRange` if the model refuses it.
    pub(crate) fn accepted(&self, model: &ModelName, loss: Loss, label: f32) -> Result<f32, PredictorError> {
        let Some(range) = self.range else {
            loss.check_label(label)?;
            return Ok(label);
        };
        if label.is_nan() {
            return Err(ModelError::NonFinite { what: "label" }.into());
        }
        if range.contains(label) {
            return Ok(label);
        }
        match self.outside {
            LabelsOutside::Clip => Ok(range.nearest(label)),
            LabelsOutside::Refuse => {
                let [low, high] = range.into();
                Err(PredictorError::LabelRange { model: model.clone(), low, high, received: label })
            }
        }
    }
}
