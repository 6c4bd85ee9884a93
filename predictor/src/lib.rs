//! One node's local state, and what is asked of it: `predict`, `topk`, `recommend`, `observe`, and what it
//! knows of a user.
//!
//! A [`Predictor`] holds the models that serve, each with one active version, and three bounded caches: user states,
//! features of items outside the trained tables, and predictions. Everything in memory is a view of the log: it can be
//! dropped at any moment and is rebuilt when touched.
//!
//! What this crate is not: it knows no HTTP, trains nothing, and decides nothing about versions. It tells whoever
//! listens how far predictions were from labels ([`LossEvent`]) and never calls upwards.
//!
//! The way of an observation: under the user's lock it is predicted, appended to the log's queue and learnt from; the
//! reply waits, outside the lock, until it is durable. A reply to a read waits the same way where it reflects an
//! observation that is not durable yet, so nobody ever sees what a crash could take back.

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
