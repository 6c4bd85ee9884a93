//! The local state of one node and the operations on it: `predict`, `topk`, `recommend`, `observe`, and a user's
//! history.
//!
//! A [`Predictor`] holds the serving models, each with one active version, and three bounded caches: user states,
//! features of items outside the trained tables, and predictions. Everything in memory is a view of the log: it can be
//! dropped at any moment and is rebuilt on the next access.
//!
//! Not in this crate: HTTP, training, and the choice of versions. Prediction errors are published as [`LossEvent`]s on
//! a channel; the crate never calls upwards.
//!
//! An observation is predicted, appended to the log's queue and learnt from under the user's lock; the reply waits,
//! outside the lock, until the record is durable. A read waits the same way if it reflects an observation that is not
//! durable yet, so no client sees data that a crash could lose.

pub mod amend;
pub mod attribution;
mod cache;
mod catalog;
mod decision_replay;
mod drawing;
pub mod error;
pub mod exploration;
mod features;
mod items;
pub mod loss;
mod node;
pub mod observe;
mod out_of_service;
pub mod predict;
mod predictions;
mod propensities;
pub mod recommend;
pub mod replay;
mod scoring;
pub mod selection;
pub mod shadow;
pub mod similar;
pub mod topk;
pub mod user_view;
mod users;
pub mod version;
pub mod warm;
pub mod why;

pub use amend::{Amended, Erased};
pub use catalog::{CatalogView, RetrievalView, SearchView};
pub use decision_replay::{DecisionReplay, ReplayOutcome, ReplayedSlot, WhyNot, is_same};
pub use error::PredictorError;
pub use exploration::{ExplorationCounts, ExplorationSpan, ExplorationView};
pub use features::Effective;
pub use items::{Edited, FoundItems, ItemChange, ItemEdit, ItemSearch, ItemView, ListedItem};
pub use loss::LossEvent;
pub use node::{Predictor, PredictorOptions};
pub use observe::{DefaultReward, Observed, PendingObservation};
pub use out_of_service::Unserved;
pub use predict::{PredictRequest, Predictions, Scored};
pub use recommend::{Aggregate, Audience, Boost, Page, PastItem, RecommendRequest, Recommendation, SeenRule};
pub use replay::{Replay, Replayed};
pub use selection::{ArmReport, CurvePoint, Scope, SelectedBy, SelectionReport, SelectionRule, WeightedArm};
pub use shadow::ShadowSample;
pub use similar::{Similar, SimilarItem, SimilarRequest};
pub use topk::{DecisionLogging, Ranked, Ranking, TopkRequest};
pub use user_view::UserView;
pub use version::{RankingDefaults, ServingVersion};
pub use warm::{Hot, Prepared, Share, Warmed};
pub use why::{Because, Why, WhyRequest};
