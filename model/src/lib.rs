//! The shared vocabulary of Celeris: ids, observations and their log records, the Gaussian prior, and [`UserModel`],
//! the online regression that one user's weights are.
//!
//! What this crate is not: it does no I/O, holds no lock, reads no clock and knows no serving. Everything here is a
//! value or a pure function, so that live, rebuilt and replayed states can be compared bit for bit.
//!
//! Where to look: [`ids`] for the newtypes, [`observation`] for what clients say and what the log keeps, [`prior`] for
//! what a new user is, [`decision`] for rankings and what joins them, [`learning`] for what labels mean and how they fade,
//! [`preference`] for what implicit feedback says of a pair, [`prediction_loss`] for how far a prediction was from its
//! label, [`user_model`] for learning, [`canonical`] for the rule that makes learning reproducible, [`influence`] for which
//! observation moved a score how far, [`kernel`] for its inner loops.

pub mod canonical;
pub mod decision;
pub mod error;
pub mod ids;
pub mod influence;
pub mod kernel;
pub mod learning;
pub mod linear;
pub mod observation;
mod origin;
pub mod prediction_loss;
pub mod preference;
pub mod prior;
mod rank_one;
mod sampler;
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
pub use observation::{Observation, Prediction, Record, RecordKind, Timestamp};
pub use origin::FeatureOrigin;
pub use prediction_loss::PREDICTION_LOSS_MAX;
pub use prior::Prior;
pub use sampler::Sampler;
pub use user_model::{Estimate, Example, History, UserModel};
