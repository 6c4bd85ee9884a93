//! The core types of Celeris: ids, observations and their log records, the Gaussian prior, and [`UserModel`], the
//! online regression of one user's weights.
//!
//! This crate does no I/O, holds no lock, reads no clock and does not depend on serving. Everything here is a value or
//! a pure function, so that live, rebuilt and replayed states can be compared bit for bit.
//!
//! Modules: [`ids`] has the newtypes, [`observation`] the observations of clients and the records of the log, [`prior`]
//! the prior of a new user, [`decision`] rankings and the attribution of rewards, [`learning`] losses and half-lives,
//! [`preference`] implicit feedback, [`prediction_loss`] the loss of a prediction, [`user_model`] the online
//! regression, [`canonical`] the rule that makes its bits reproducible, [`influence`] the contributions of observations
//! to a score. The inner loops are in `celeris-kernel`.

pub mod canonical;
pub mod decision;
pub mod error;
pub mod ids;
pub mod influence;
pub mod learning;
pub mod linear;
pub mod observation;
mod origin;
pub mod prediction_loss;
pub mod preference;
pub mod prior;
mod rank_one;
mod sampler;
mod time;
pub mod user_model;

pub use canonical::GramSums;
pub use decision::{
    CandidateDigest, Decision, DecisionFacts, Joined, RecordedCandidates, SceneDigest, SelectionFacts, ShownSlot,
};
pub use error::ModelError;
pub use ids::{
    DecisionId, ItemId, ModelId, ModelName, ObservationId, Partition, Sequence, StreamName, UserEpoch, UserId,
    VersionId,
};
pub use influence::Influence;
pub use learning::{HalfLife, Learning, Loss};
pub use observation::{Observation, Prediction, Record, RecordKind};
pub use origin::FeatureOrigin;
pub use prediction_loss::PREDICTION_LOSS_MAX;
pub use prior::Prior;
pub use sampler::Sampler;
pub use time::Timestamp;
pub use user_model::{Estimate, Example, History, UserModel};
