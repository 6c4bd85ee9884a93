//! The described users of a training.

use std::path::Path;

use celeris_formats::attributes::read_attributes;
use celeris_model::Loss;
use serde_json::{Map, Value};

use super::{FittedUserMap, UserMapInput, fit_user_map};
use crate::error::RetrainError;
use crate::input::TrainingInput;
use crate::ratings::Ratings;
use crate::trained::Trained;

/// Ratings and attributes of the users of a training, as they were read.
pub(crate) struct DescribedUsers {
    ratings: Ratings,
    attributes: Vec<Option<Map<String, Value>>>,
}

impl DescribedUsers {
    /// Reads the attributes of the users of `input`.
    ///
    /// # Errors
    /// [`RetrainError::Format`] with the position in the file.
    pub(crate) fn read(path: &Path, input: &TrainingInput) -> Result<Self, RetrainError> {
        Ok(Self { ratings: input.ratings.clone(), attributes: read_attributes(path, &input.users)? })
    }

    /// The map for the version `trained`, which was trained on these users.
    pub(crate) fn fit(&self, trained: &Trained, loss: Loss, ridge: Option<f64>) -> Option<FittedUserMap> {
        fit_user_map(&UserMapInput { trained, loss, ratings: &self.ratings, attributes: &self.attributes, ridge })
    }
}
