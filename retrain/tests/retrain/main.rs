//! Tests of the trainers and of the training job.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod external;
mod extremes;
mod job;
mod losses;
mod movielens;
mod parts;
mod popularity;
mod refresh;
mod training;
