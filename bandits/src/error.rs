//! The one error type of this crate.

use celeris_model::ModelError;
use thiserror::Error;

/// An invalid policy, strategy or parameter, or candidates that cannot be ranked.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum BanditError {
    /// No policy has this name.
    #[error("unknown policy {name:?}; choose one of {known}")]
    UnknownPolicy {
        name: String,
        /// All names, separated by commas.
        known: String,
    },
    /// The policy has no such parameter.
    #[error("policy {policy} has no parameter {parameter:?}; {known}")]
    UnknownParameter {
        policy: String,
        parameter: String,
        /// The parameters that it has, as text.
        known: String,
    },
    /// A parameter is out of range, or not a number.
    #[error("{parameter} must be {range}, got {value}")]
    OutOfRange {
        parameter: &'static str,
        /// The range, as text.
        range: &'static str,
        value: f64,
    },
    /// A candidate cannot be ranked.
    #[error("the {what} of candidate {candidate} is not finite; drop the candidate or mend its features")]
    NonFinite {
        /// Name of the number.
        what: &'static str,
        candidate: usize,
    },
    /// The policy draws weights from one posterior, and several models have answered together.
    #[error(
        "policy {policy} draws from one model's posterior, and several answer here; choose one that looks at scores"
    )]
    NoPosterior { policy: &'static str },
    /// The shares of an A/B split do not match its arms.
    #[error("strategy.shares: give {arms} shares above 0 whose sum is 1, one for each arm, got {received:?}")]
    Shares { arms: usize, received: Vec<f64> },
    /// The user's posterior cannot be sampled.
    #[error(transparent)]
    Model(#[from] ModelError),
}
