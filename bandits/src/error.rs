//! The one error type of this crate.

use celeris_model::ModelError;
use thiserror::Error;

/// What can be wrong with a policy's description or with what it is asked to choose from.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum BanditError {
    /// No policy has this name.
    #[error("unknown policy {name:?}; choose one of {known}")]
    UnknownPolicy {
        /// The name received.
        name: String,
        /// All names, in words.
        known: String,
    },
    /// The policy has no such parameter.
    #[error("policy {policy} has no parameter {parameter:?}; {known}")]
    UnknownParameter {
        /// The policy's name.
        policy: String,
        /// The parameter received.
        parameter: String,
        /// The parameters it has, in words.
        known: String,
    },
    /// A parameter lies outside its range, or is not a number.
    #[error("{parameter} must be {range}, got {value}")]
    OutOfRange {
        /// Which parameter.
        parameter: &'static str,
        /// The range, in words.
        range: &'static str,
        /// The value received.
        value: f64,
    },
    /// A candidate cannot be ranked.
    #[error("the {what} of candidate {candidate} is not finite; drop the candidate or mend its features")]
    NonFinite {
        /// Which number.
        what: &'static str,
        /// The index of the candidate.
        candidate: usize,
    },
    /// The policy draws weights from a posterior, and several models have answered together.
    #[error(
        "policy {policy} draws from one model's posterior, and several answer here; choose one that looks at scores"
    )]
    NoPosterior {
        /// The policy's name.
        policy: &'static str,
    },
    /// The shares of an A/B split are not those of its arms.
    #[error("strategy.shares: give {arms} shares above 0 whose sum is 1, one for each arm, got {received:?}")]
    Shares {
        /// How many arms there are.
        arms: usize,
        /// As received.
        received: Vec<f64>,
    },
    /// Labels have no such range.
    #[error("label_range must be two finite numbers, the smaller one first, got [{low}, {high}]")]
    LabelRange {
        /// The first.
        low: f32,
        /// The second.
        high: f32,
    },
    /// The user's posterior cannot be drawn from.
    #[error(transparent)]
    Model(#[from] ModelError),
}
