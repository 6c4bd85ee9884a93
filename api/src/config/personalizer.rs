//! The section `[personalizer]`.

use celeris_model::ModelName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most fields that together name a user.
const USER_FIELDS_MAX: usize = 8;

/// Requests in the form of Azure Personalizer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Personalizer {
    /// The model that answers `/personalizer/…`. Every model answers `/v1/models/MODEL/personalizer/…` as well.
    #[schema(value_type = Option<String>)]
    pub model: Option<ModelName>,
    /// The context features whose values name the user, such as `"user.id"`, or `"device"` for weights of each device.
    /// Requests without them, or all if there are none, are of one user.
    pub user_fields: Vec<String>,
    /// The context features that are recorded; if there are none, as many as fit into a context, in the order of their names.
    pub context_fields: Vec<String>,
    /// The most items that a stream may have for further actions to become items of it.
    pub actions: usize,
}

impl Default for Personalizer {
    fn default() -> Self {
        Self { model: None, user_fields: Vec::new(), context_fields: Vec::new(), actions: 10_000 }
    }
}

impl Personalizer {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.user_fields.len() > USER_FIELDS_MAX {
            return Err(format!("personalizer.user_fields: at most {USER_FIELDS_MAX} fields"));
        }
        if self.user_fields.iter().chain(&self.context_fields).any(String::is_empty) {
            return Err("personalizer: user_fields and context_fields hold names of context features".to_owned());
        }
        Ok(())
    }
}
