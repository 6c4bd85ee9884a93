//! Tests of user states and predictions, against independent computations.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod batches;
mod choices;
mod drift;
mod extremes;
mod influence;
mod logistic_reference;
mod losses;
mod preferences;
mod profiles;
mod recent_bias;
mod ridge_oracle;
