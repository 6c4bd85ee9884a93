//! Model selection (Clipper §5; Crankshaw et al., NSDI 2017): several models answer for one, and feedback decides which of
//! them, or with what weights.
//!
//! The models are the *arms*. What is known of them is a [`State`]: sums of losses, and nothing else. A [`Strategy`] turns
//! these sums into probabilities or weights ([`Strategy::weights`]), says who answers ([`Strategy::select`]), makes one
//! answer of several ([`Strategy::combine`]), and says what an outcome adds to the sums ([`Strategy::observe`]).
//!
//! Sums are kept in whole units of `2^-30` ([`Fixed`]) and by blocks of the log ([`blocks`]), so that they do not depend on
//! the order in which outcomes were added: a state that is rebuilt from the log is equal to the live one, bit for bit.
//! Learning rates are functions of these sums too, so that no horizon needs to be known.
//!
//! Where to look: [`strategy`] for the trait, one module per strategy ([`exp3`], [`exp4`], [`tsallis_inf`], [`ab`]),
//! [`loss`] for what a loss is, [`state`] and [`blocks`] for the sums and how they fade, [`comparison`] for the intervals
//! of an A/B test, [`spec`] for how a strategy is written, [`trial`] for simulated queries to judge strategies on.

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
pub use loss::{LabelRange, LossScale, Objective};
pub use spec::StrategySpec;
pub use state::{ArmSums, Faded, FadedArm, Layout, Place, State};
pub use strategy::{Combined, Labels, Lot, Outcome, Selected, Strategy};
pub use tsallis_inf::TsallisInf;
