//! Exploration policies: given one user's scored candidates, they choose a ranking and return the
//! probability with which each slot was filled.
//!
//! Not in this crate: scoring, learning, logging, clocks. A policy is a pure function of the
//! candidates and of the random generator passed to it, so a decision can be drawn again from its
//! recorded seed.
//!
//! Modules: [`policy`] defines the trait and propensities, with one module per policy ([`greedy`],
//! [`epsilon_greedy`], [`softmax`], [`squarecb`], [`lin_ucb`], [`regcb`], [`thompson`]);
//! [`simulation`] estimates propensities without a closed form; [`pool`] is the uniformly random
//! share of traffic; [`ope`] evaluates policies off-policy; [`spec`] is the representation of a
//! policy in requests and configuration. [`selection`] chooses among models instead of items.

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
