//! The error type of this crate.

use std::ops::RangeInclusive;

use thiserror::Error;

/// An invalid id, number or shape. Operations that return it leave their target unchanged.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ModelError {
    /// An id or name is empty or too long.
    #[error("{kind} must be 1 to {max} bytes long, got {length}")]
    IdLength {
        /// The kind of id.
        kind: &'static str,
        /// Length in bytes.
        length: usize,
        /// Maximum length in bytes.
        max: usize,
    },
    /// An id or name contains a character that is not allowed.
    #[error("{kind} may not contain {character:?}; allowed are {allowed}")]
    IdCharacter {
        /// The kind of id.
        kind: &'static str,
        /// The first disallowed character.
        character: char,
        /// A description of the allowed characters.
        allowed: &'static str,
    },
    /// A vector or matrix has the wrong number of entries.
    #[error("{what} must have {expected} entries, got {received}")]
    DimMismatch {
        /// The name of the vector or matrix.
        what: &'static str,
        expected: usize,
        received: usize,
    },
    /// A number is NaN or infinite.
    #[error("{what} must be finite")]
    NonFinite {
        /// The name of the number.
        what: &'static str,
    },
    /// A number lies outside its range.
    #[error("{what} must be {range}, got {value}")]
    OutOfRange {
        /// The name of the number.
        what: &'static str,
        /// A description of the range.
        range: &'static str,
        value: f64,
    },
    /// A context is too large, or has a field that is not allowed.
    #[error("{problem}")]
    Context { problem: String },
    /// The range of labels is invalid.
    #[error("label_range must be two numbers from -1e6 to 1e6, the smaller one first, got [{low}, {high}]")]
    LabelRange { low: f32, high: f32 },
    /// A time is in the future, or too early.
    #[error("{what} must be from {earliest} to {latest} (now) in Unix milliseconds, got {received}{}", unit(*received, *earliest..=*latest))]
    Time {
        /// The name of the time.
        what: &'static str,
        /// The earliest accepted time, in Unix milliseconds.
        earliest: i64,
        /// The latest accepted time, in Unix milliseconds.
        latest: i64,
        /// The time received, in Unix milliseconds.
        received: i64,
    },
    /// A matrix that must be symmetric positive definite is not.
    #[error("{what} is not symmetric positive definite")]
    NotPositiveDefinite {
        /// The name of the matrix.
        what: &'static str,
    },
}

/// The likely cause of a time outside of the range: another unit.
fn unit(received: i64, accepted: RangeInclusive<i64>) -> &'static str {
    if accepted.contains(&received.saturating_mul(1000)) {
        ", which looks like seconds: multiply it by 1000"
    } else if accepted.contains(&(received / 1000)) && received > *accepted.end() {
        ", which looks like microseconds: divide it by 1000"
    } else if received < *accepted.start() {
        "; limits.earliest_time in the node's configuration allows earlier times"
    } else {
        ", which is ahead of the node's clock; limits.clock_skew in the node's configuration allows later times"
    }
}
