//! Exploration policies: given one user's scored candidates, which to show in which order, and with what probability
//! each came to its slot.
//!
//! What this crate is not: it scores nothing, learns nothing, logs nothing and reads no clock. A policy is a pure
//! function of the candidates and of the random generator it is handed, so a decision can be drawn again from its
//! recorded seed.
//!
//! Where to look: [`policy`] for the trait and what a propensity means here, one module per policy ([`greedy`],
//! [`epsilon_greedy`], [`softmax`], [`squarecb`], [`lin_ucb`], [`regcb`], [`thompson`]), [`simulation`] for propensities
//! without a closed form, [`pool`] for the uniformly random share of traffic, [`ope`] for what a policy would have earned,
//! [`spec`] for how a policy is written in requests and configuration. [`selection`] chooses among whole models instead of
//! items.

pub mod candidates;
pub mod epsilon_greedy;
pub mod error;
pub mod greedy;
pub mod lin_ucb;
pub mod ope;
mod order;
pub mod policy;
pub mod pool;
pub mod regcb;
mod remaining;
pub mod selection;
pub mod simulation;
pub mod softmax;
pub mod spec;
pub mod squarecb;
pub mod thompson;

pub use candidates::{Candidates, Wants};
pub use epsilon_greedy::EpsilonGreedy;
pub use error::BanditError;
pub use greedy::Greedy;
pub use lin_ucb::LinUcb;
pub use policy::{Policy, Slot};
pub use pool::{PoolShare, Pooled, Ranking};
pub use regcb::RegCb;
pub use simulation::{Origin, Propensity, Simulation};
pub use softmax::Softmax;
pub use spec::PolicySpec;
pub use squarecb::SquareCb;
pub use thompson::Thompson;
