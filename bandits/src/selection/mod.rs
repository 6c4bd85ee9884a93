//! Model selection (Clipper §5; Crankshaw et al., NSDI 2017): several models answer as one, and
//! feedback determines which of them answers, or their weights.
//!
//! The models are the *arms*. The [`State`] of a selection is a set of sums of losses. A
//! [`Strategy`] turns these sums into probabilities or weights ([`Strategy::weights`]), chooses the
//! arms that answer ([`Strategy::select`]), combines several answers ([`Strategy::combine`]), and
//! returns what an outcome adds to the sums ([`Strategy::observe`]).
//!
//! Sums are kept in whole units of `2^-30` ([`Fixed`]) and by blocks of the log ([`blocks`]), so
//! that they do not depend on the order in which outcomes were added: a state rebuilt from the log
//! is equal to the live one, bit for bit. Learning rates are functions of these sums too, so that
//! no horizon needs to be known.
//!
//! Modules: [`strategy`] defines the trait, with one module per strategy ([`exp3`], [`exp4`],
//! [`tsallis_inf`], [`ab`]); [`loss`] defines losses; [`state`] and [`blocks`] the sums and how
//! they fade; [`comparison`] the intervals of an A/B test; [`spec`] the representation of a
//! strategy; [`trial`] simulates queries to evaluate strategies.

pub mod ab;
pub mod blocks;
pub mod comparison;
pub mod exp3;
pub mod exp4;
pub mod fixed;
pub mod loss;
pub mod spec;
pub mod state;
pub mod strategy;
pub mod trial;
pub mod tsallis_inf;

pub use ab::Ab;
pub use blocks::HalfLifeRecords;
pub use comparison::Difference;
pub use exp3::Exp3;
pub use exp4::Exp4;
pub use fixed::Fixed;
pub use loss::{LossScale, Objective};
pub use spec::StrategySpec;
pub use state::{ArmSums, Faded, FadedArm, Layout, Place, State};
pub use strategy::{Combined, Labels, Lot, Outcome, Selected, Strategy};
pub use tsallis_inf::TsallisInf;
