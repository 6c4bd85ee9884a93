//! Clusters of three nodes over three NATS servers, under load and faults, and what a checker finds afterwards.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod backup;
mod checker;
mod context;
mod decisions;
mod faults;
mod ingest;
mod life;
mod load;
mod replay;
mod run;
mod secured;
mod traces;
