//! The core types of Celeris: ids, observations and their log records, the Gaussian prior, and
//! [`UserModel`], the online regression of one user's weights.
//!
//! This crate does no I/O, holds no lock, reads no clock and does not depend on serving. Everything
//! here is a value or a pure function, so that live, rebuilt and replayed states can be compared
//! bit for bit.
//!
//! Modules: [`ids`] has the newtypes, [`observation`] the observations of clients and the records
//! of the log, [`context`] the circumstances of requests, [`decision`] rankings and the attribution of rewards,
//! [`posterior`] the regression:
//! the prior of a new user, losses and half-lives, implicit feedback, the online regression, and
//! the rule that makes its bits reproducible; [`influence`] the contributions of observations to a
//! score; [`address`] the addresses of servers as people may see them; [`wire`] the encodings that stored values are composed of. The inner loops are in `celeris-kernel`.

pub mod address;
pub mod context;
pub mod decision;
pub mod error;
pub mod ids;
pub mod influence;
mod label_range;
pub mod linear;
pub mod observation;
mod origin;
mod placement;
pub mod posterior;
mod ranking_event;
mod sampler;
mod shards;
mod time;
pub mod wire;

pub use context::{
    Context, ContextType, ContextValue, FieldNumber, NumberedContext, RecordedContext, StreamField, StreamFields,
};
pub use decision::{
    CandidateDigest, Decision, DecisionFacts, InputsDigest, Joined, RecordedCandidates, SelectionFacts, ShownSlot,
};
pub use error::ModelError;
pub use ids::{
    DecisionId, EventId, ItemId, ModelId, ModelName, NodeName, ObservationId, Partition, Sequence, SourceId,
    StreamName, UserEpoch, UserId, VersionId,
};
pub use influence::Influence;
pub use label_range::LabelRange;
pub use observation::{Observation, Prediction, Record, RecordKind};
pub use origin::FeatureOrigin;
pub use placement::{ClusterView, Placement, PlacementRevision};
pub use posterior::canonical::GramSums;
pub use posterior::learning::{HalfLife, Learning, Loss};
pub use posterior::prediction_loss::PREDICTION_LOSS_MAX;
pub use posterior::prior::Prior;
pub use posterior::recent_bias::RecentBias;
pub use posterior::user_model::{Estimate, Example, History, UserModel};
pub use posterior::{canonical, learning, preference, prior, recent_bias, user_model};
pub use ranking_event::{Chance, EventSlot, HeldReward, RankingEvent};
pub use sampler::Sampler;
pub use shards::{LogId, Shard, Shards};
pub use time::Timestamp;
