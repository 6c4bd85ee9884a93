//! Clusters of three nodes over three NATS servers, under load and faults, and what a checker finds afterwards.

mod checker;
mod faults;
mod life;
mod load;
