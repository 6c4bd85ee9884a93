//! The one error type of this crate.

use thiserror::Error;

/// What can be wrong with an id, a number or a shape. The value that was being changed is unchanged on error.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ModelError {
    /// An id or name is empty or too long.
    #[error("{kind} must be 1 to {max} bytes long, got {length}")]
    IdLength {
        /// Which kind of id.
        kind: &'static str,
        /// Bytes received.
        length: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// An id or name holds a character it may not hold.
    #[error("{kind} may not contain {character:?}; allowed are {allowed}")]
    IdCharacter {
        /// Which kind of id.
        kind: &'static str,
        /// The first offending character.
        character: char,
        /// The characters that are allowed, in words.
        allowed: &'static str,
    },
    /// A vector or matrix has the wrong number of entries.
    #[error("{what} must have {expected} entries, got {received}")]
    DimMismatch {
        /// Which vector or matrix.
        what: &'static str,
        /// Entries expected.
        expected: usize,
        /// Entries received.
        received: usize,
    },
    /// A number is NaN or infinite.
    #[error("{what} must be finite")]
    NonFinite {
        /// Which number.
        what: &'static str,
    },
    /// A number lies outside its range.
    #[error("{what} must be {range}, got {value}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// The range, in words.
        range: &'static str,
        /// The value received.
        value: f64,
    },
    /// A time is in the future, or before all times that can be written.
    #[error(
        "{what} must be from year 0 to now, which with the allowance for clocks is {latest} in Unix milliseconds, got {received}"
    )]
    Time {
        /// Which time.
        what: &'static str,
        /// The latest that is taken, in Unix milliseconds.
        latest: i64,
        /// The time received, in Unix milliseconds.
        received: i64,
    },
    /// A matrix that must be symmetric positive definite is not.
    #[error("{what} is not symmetric positive definite")]
    NotPositiveDefinite {
        /// Which matrix.
        what: &'static str,
    },
}
