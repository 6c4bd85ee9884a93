//! Trainers: from ratings to the features, prior and noise of a model version.
//!
//! [`train`] works in memory; [`run_job`] is the same between Parquet files, for a process of its own.
//!
//! What this crate is not: it serves nothing, schedules nothing and activates nothing. User weights that it learns on
//! the way are not published: a user's served state is a function of the prior and the user's own observations, and a
//! version that named users would have to be looked through at every erasure.
//!
//! Where to look, in the order of the work: [`input`] and [`observations`] for the files, [`ratings`] for what is learnt from,
//! `side_features` for what is known of items beforehand, `als` for the factors, `learn` for standardised features, `tuning`
//! for the choice of settings on held-out ratings and `served` for how they are judged, [`prior_fit`] for what a new
//! user is, [`trainer`] for the whole,
//! `engine_output` and `finish` for what other engines bring, `logistic` for clicks, `implicit`, `conjugate`,
//! `implicit_train` and `ranking` for implicit feedback, [`mod@refresh`] for training that goes on from an earlier one and
//! `state` for what that needs, [`mod@cold_map`] for what attributes say of features and [`item_attributes`] for its input,
//! [`job`] for the child process and [`progress`] for what it says meanwhile.

mod als;
mod calibration;
pub mod cold_map;
mod conjugate;
mod engine_output;
pub mod error;
mod implicit;
mod implicit_train;
pub mod input;
pub mod item_attributes;
pub mod job;
mod learn;
mod logistic;
pub mod observations;
mod posterior_evaluation;
pub mod prior_fit;
pub mod progress;
mod ranking;
pub mod ratings;
pub mod refresh;
mod side_features;
mod state;
pub mod trainer;
mod tuning;

pub use cold_map::{ColdMapInput, FittedColdMap, fit_cold_map};
pub use engine_output::USER_WEIGHTS_FILE;
pub use error::RetrainError;
pub use input::{InputFile, write_pinned_items};
pub use item_attributes::AttributesWriter;
pub use job::{Algorithm, External, Job, JobLimits, be_nice, run_job, spare_threads};
pub use learn::Pinned;
pub use observations::{ObservationRow, ObservationsWriter};
pub use progress::{JsonLines, Phase, Progress, Silent, Step};
pub use ratings::{Rating, Ratings};
pub use refresh::{Parent, refresh};
pub use state::TrainerState;
pub use trainer::{Metrics, TrainSettings, Trained, train};
