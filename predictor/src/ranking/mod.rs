//! Predictions and rankings of given items.

mod arrangement;
mod by_selection;
mod choose;
mod decision_log;
mod drawing;
mod inputs;
mod predict;
mod predictions;
mod propensities;
mod scorer;
mod topk;

use std::sync::Arc;

use crate::models::Models;
use crate::selections::Selections;
use crate::users::UserStore;

pub(crate) use arrangement::{Arrangement, is_arranged};
pub use choose::{Choice, ChooseRequest};
pub use decision_log::DecisionLogging;
pub(crate) use decision_log::{DecisionLog, RankedSlots, RankingInput, inputs_digest, new_decision_id};
pub(crate) use drawing::{Draw, Seed, explored};
pub use inputs::PolicyInputs;
pub use predict::{PredictRequest, Predictions, Scored};
pub(crate) use predictions::CachedPredictions;
pub(crate) use scorer::{ResolvedItems, Scorer, estimates, scores};
pub use topk::{Ranked, Ranking, TopkRequest};

/// Answers `predict` and `topk`, for models and selections.
pub(crate) struct Ranker {
    pub(crate) models: Arc<Models>,
    pub(crate) selections: Arc<Selections>,
    pub(crate) users: Arc<UserStore>,
    pub(crate) scorer: Arc<Scorer>,
    pub(crate) decisions: Arc<DecisionLog>,
}
