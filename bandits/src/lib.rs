//! Exploration policies: given one user's scored candidates, which to show in which order, and with what probability
//! each came to its slot.
//!
//! What this crate is not: it scores nothing, learns nothing, logs nothing and reads no clock. A policy is a pure
//! function of the candidates and of the random generator it is handed, so a decision can be drawn again from its
//! recorded seed.
//!
//! Where to look: [`policy`] for the trait and what a propensity means here, one module per policy ([`greedy`],
//! [`epsilon_greedy`], [`lin_ucb`], [`thompson`]), [`ope`] for what a policy would have earned, [`pool`] for the uniformly random share of traffic, [`spec`] for how
//! a policy is written in requests and configuration.

pub mod candidates;
pub mod epsilon_greedy;
pub mod error;
pub mod greedy;
pub mod lin_ucb;
pub mod ope;
mod order;
pub mod policy;
pub mod pool;
pub mod spec;
pub mod thompson;

pub use candidates::{Candidates, Wants};
pub use epsilon_greedy::EpsilonGreedy;
pub use error::BanditError;
pub use greedy::Greedy;
pub use lin_ucb::LinUcb;
pub use policy::{Policy, Slot};
pub use pool::{PoolShare, Pooled, Ranking};
pub use spec::PolicySpec;
pub use thompson::Thompson;
