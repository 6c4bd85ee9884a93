//! Clusters of real NATS servers and stores, with several nodes in the process of the test.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod faults;
mod joining;
mod nodes;
mod ownership;
mod servers;
mod trimming;
