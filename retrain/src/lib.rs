//! Trainers: compute the features, prior and noise variance of a model version from ratings.
//!
//! [`train`] works in memory; [`run_job`] does the same between Parquet files, in its own process.
//!
//! This crate does not serve, schedule or activate anything. The user weights that it computes are not published: a
//! user's served state is a function of the prior and the user's own observations, and a version that contained users
//! would have to be searched at every erasure.
//!
//! Modules: [`input`] (files, in the formats of `celeris_formats`), [`ratings`] (training data), `side_features` (known features of
//! items), `als` (factors), `learn` (standardised features), `tuning` (choice of settings on held-out ratings),
//! `posterior_evaluation` (errors of the served posteriors), [`prior_fit`] (prior of new users), [`trainer`] (the whole
//! training), `engine_output` and `calibration` (external engines), `logistic` (clicks), `implicit`, `conjugate`,
//! `implicit_train` and `ranking` (implicit feedback), [`mod@refresh`] and `state` (warm start), [`mod@cold_map`] (features
//! from attributes), [`job`] and [`progress`] (child process).

mod als;
mod calibration;
pub mod cold_map;
mod conjugate;
mod engine_output;
pub mod error;
mod implicit;
mod implicit_train;
pub mod input;
pub mod job;
mod learn;
mod logistic;
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
pub use error::RetrainError;
pub use input::InputFile;
pub use job::{Algorithm, External, Job, JobLimits, run_job, spare_threads};
pub use learn::Pinned;
pub use progress::{JsonLines, Phase, Progress, Silent, Step};
pub use ratings::{Rating, Ratings};
pub use refresh::{Parent, refresh};
pub use state::TrainerState;
pub use trainer::{Metrics, TrainSettings, Trained, train};
