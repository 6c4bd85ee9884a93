//! Where an item's features come from.

use serde::{Deserialize, Serialize};

/// Where the features come from that a version scores an item with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureOrigin {
    /// The version's table.
    Trained,
    /// A caller.
    Given,
    /// The item's attributes, by the version's map from attributes to features. Scores are less certain for it.
    Attributes,
    /// Nothing is known: the version's stand-in for the unknown.
    StandIn,
}
