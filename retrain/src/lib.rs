//! Trainers: compute the features, prior and noise variance of a model version from ratings.
//!
//! [`train`] works in memory; [`run_job`] does the same between Parquet files, in its own process.
//!
//! This crate does not serve, schedule or activate anything. The user weights that it computes are
//! not published: a user's served state is a function of the prior and the user's own observations,
//! and a version that contained users would have to be searched at every erasure.
//!
//! Modules: `trainer` (cold start) and `refresh` (warm start) choose by the loss: `squared` (graded
//! labels), `logistic` (clicks), or `implicit_train` with `implicit`, `conjugate` and `ranking`
//! (implicit feedback). These use `als` (factors, and who has rated what), `learn` (standardised features), `tuning`
//! (choice of settings on held-out ratings), `refit` (iterations from earlier factors),
//! `posterior_evaluation` (errors of the served posteriors) and [`prior_fit`] (prior of new users).
//! `popularity` fits offsets alone.
//! [`settings`], [`ratings`] and `side_features` are their input, `trained` and `state` the result.
//! [`mod@cold_map`] fits features from attributes, [`mod@user_map`] prior means from those of users, [`parts`] adds computed features;
//! `engine_output` and `calibration` make versions from external engines; [`job`], [`input`] and [`progress`] are the child process and its files,
//! in the formats of `celeris_formats`.

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
pub mod parts;
mod popularity;
mod posterior_evaluation;
pub mod prior_fit;
pub mod progress;
mod ranking;
pub mod ratings;
mod recent_bias;
mod refit;
mod refresh;
pub mod settings;
mod side_features;
mod squared;
mod state;
mod trained;
mod trainer;
mod tuning;
pub mod user_map;

pub use cold_map::{ColdMapInput, FittedColdMap, fit_cold_map};
pub use error::RetrainError;
pub use input::InputFile;
pub use job::{Algorithm, External, Job, JobLimits, run_job, spare_threads};
pub use learn::Pinned;
pub use parts::JobPart;
pub use popularity::{POPULARITY, train_popularity};
pub use progress::{JsonLines, Phase, Progress, Silent, Step};
pub use ratings::{Rating, Ratings};
pub use refresh::{Parent, refresh};
pub use settings::TrainSettings;
pub use state::TrainerState;
pub use trained::{Metrics, Trained};
pub use trainer::train;
pub use user_map::{FittedUserMap, UserMapInput, fit_user_map};
