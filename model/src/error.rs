//! The error type of this crate.

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
    /// A time is in the future, or before the year 0.
    #[error(
        "{what} must be from year 0 to now, which with the allowance for clocks is {latest} in Unix milliseconds, got {received}"
    )]
    Time {
        /// The name of the time.
        what: &'static str,
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
