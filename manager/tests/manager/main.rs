//! Tests of the life cycle of models over a store.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cluster;
mod damaged_documents;
mod default_rewards;

use celeris_manager::NewSelection;
use celeris_model::LabelRange;

/// The selection `both` among the models `films` and `twins`.
fn both() -> NewSelection {
    NewSelection {
        name: "both".parse().unwrap(),
        arms: ["films", "twins"].map(|arm| arm.parse().unwrap()).into(),
        strategy: None,
        scope: None,
        segments: Vec::new(),
        objective: None,
        label_range: Some(LabelRange::new(0.0, 5.0).unwrap()),
        half_life_records: None,
        policy: None,
        pool_share: None,
        default_reward: None,
    }
}
