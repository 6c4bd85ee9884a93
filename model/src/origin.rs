//! The origin of an item's features.

use serde::{Deserialize, Serialize};

/// The origin of the features with which a version scores an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureOrigin {
    /// The table of the version.
    Trained,
    /// Given by a caller.
    Given,
    /// Computed from the item's attributes by the version's map. Scores are less certain.
    Attributes,
    /// The version's default features for an unknown item.
    StandIn,
}
