//! Types of values.

use std::fmt;

/// The type of a node's values. Numbers of columns are unknown until what they depend on is fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schema {
    /// One number, which may be missing.
    Number,
    /// A text, which may be missing.
    Text,
    /// A list of texts.
    Texts,
    /// The words of a text.
    Words,
    /// A number below this count, which may be missing.
    Category(Option<u32>),
    /// A vector of this length.
    Dense(Option<u32>),
    /// A vector of this length of which most entries are 0.
    Sparse(Option<u32>),
    /// Incomplete sums of a linear model with this number of outputs.
    Sums(u32),
}

impl Schema {
    /// Number of columns that it has in a concatenation.
    #[must_use]
    pub fn columns(self) -> Option<u32> {
        match self {
            Self::Number => Some(1),
            Self::Category(count) | Self::Dense(count) | Self::Sparse(count) => count,
            Self::Sums(outputs) => Some(outputs),
            Self::Text | Self::Texts | Self::Words => None,
        }
    }

    /// Whether it is a vector, or stands for one.
    #[must_use]
    pub fn is_vector(self) -> bool {
        matches!(self, Self::Number | Self::Category(_) | Self::Dense(_) | Self::Sparse(_))
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let (kind, count) = match self {
            Self::Number => return formatter.write_str("a number"),
            Self::Text => return formatter.write_str("a text"),
            Self::Texts => return formatter.write_str("a list of texts"),
            Self::Words => return formatter.write_str("words"),
            Self::Category(count) => ("a category", *count),
            Self::Dense(count) => ("a dense vector", *count),
            Self::Sparse(count) => ("a sparse vector", *count),
            Self::Sums(count) => ("sums", Some(*count)),
        };
        match count {
            Some(count) => write!(formatter, "{kind} of {count}"),
            None => formatter.write_str(kind),
        }
    }
}
