//! The local state of one node and the operations on it: `predict`, `topk`, `recommend`, `observe`,
//! and a user's history.
//!
//! A [`Predictor`] answers the requests that span its components: the serving models by name
//! ([`Models`]), the users in memory, features of items outside the trained tables, the item
//! catalogs ([`ItemCatalog`]), rankings and their decisions, and [`Ingest`], which appends events
//! of users to the log and learns from them. Everything in memory is a view of the log: it can be
//! dropped at any moment and is rebuilt on the next access. A component does not know the
//! predictor.
//!
//! Not in this crate: HTTP, training, and the choice of versions. Prediction errors are published
//! as [`LossEvent`]s on a channel; the crate never calls upwards.
//!
//! An observation is predicted, appended to the log's queue and learnt from under the user's lock;
//! the reply waits, outside the lock, until the record is durable. A read waits the same way if it
//! reflects an observation that is not durable yet, so no client sees data that a crash could lose.

mod accepted_times;
mod activation;
pub mod attribution;
mod cache;
mod catalog;
pub mod error;
mod explain;
pub mod exploration;
mod features;
mod index;
mod ingest;
mod label_rule;
mod loss;
mod models;
mod predictor;
mod ranking;
pub mod recommend;
mod selection;
mod selections;
mod users;
mod version;

pub use activation::{Activation, Hot, Prepared, Share, Warmed};
pub use attribution::Attribution;
pub use catalog::{
    DefineElsewhere, Edited, FoundItems, ItemCatalog, ItemChange, ItemDescription, ItemEdit, ItemSearch, ItemView,
    ListedItem, SearchView,
};
pub use error::PredictorError;
pub use explain::{
    Because, DecisionReplay, Explainer, PartOfScore, Replay, ReplayOutcome, Replayed, ReplayedSlot, UserView, Why,
    WhyNot, WhyRequest, is_same,
};
pub use exploration::{ExplorationCounts, ExplorationSpan, ExplorationView};
pub use features::Effective;
pub use index::{CatalogView, RetrievalView};
pub use ingest::{Amended, DefaultReward, Erased, Ingest, Observed, PendingObservation};
pub use label_rule::{LabelRule, LabelsOutside};
pub use loss::LossEvent;
pub use models::{Models, ShadowSample, Unserved};
pub use predictor::{Predictor, PredictorOptions};
pub use ranking::{
    Choice, ChooseRequest, DecisionLogging, PolicyInputs, PredictRequest, Predictions, Ranked, Ranking, Scored,
    TopkRequest,
};
pub use recommend::{
    Aggregate, Audience, Boost, EmptyReason, Page, PastItem, RecommendRequest, Recommendation, Recommender, SeenRule,
    Similar, SimilarItem, SimilarRequest,
};
pub use selection::{ArmReport, CurvePoint, Scope, SelectedBy, SelectionReport, SelectionRule, WeightedArm};
pub use selections::Selections;
pub use version::{RankingDefaults, ServingSettings, ServingVersion};
