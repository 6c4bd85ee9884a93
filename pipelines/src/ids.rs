//! Names and kinds of objects.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// The SHA-256 of an object's bytes; `sha256:` and 64 hexadecimal digits in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub [u8; 32]);

impl ObjectId {
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads `sha256:` and 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_hex(text.strip_prefix("sha256:")?)
    }

    /// The 64 lower-case hexadecimal digits, which name the file of the object.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn from_hex(digits: &str) -> Option<Self> {
        let digits = digits.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(id))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "sha256:{}", self.hex())
    }
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom("an object is named by sha256: and 64 lower-case hexadecimal digits")
        })
    }
}

/// What an object is; the number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Dictionary = 1,
    Weights = 2,
    Idf = 3,
    Moments = 4,
    Centroids = 5,
    Components = 6,
    Embedding = 7,
    Trees = 8,
    Onnx = 9,
    Attributes = 10,
}

impl Kind {
    pub(crate) const ALL: [Self; 10] = [
        Self::Dictionary,
        Self::Weights,
        Self::Idf,
        Self::Moments,
        Self::Centroids,
        Self::Components,
        Self::Embedding,
        Self::Trees,
        Self::Onnx,
        Self::Attributes,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dictionary => "dictionary",
            Self::Weights => "weights",
            Self::Idf => "idf",
            Self::Moments => "moments",
            Self::Centroids => "centroids",
            Self::Components => "components",
            Self::Embedding => "embedding",
            Self::Trees => "trees",
            Self::Onnx => "onnx",
            Self::Attributes => "attributes",
        }
    }

    /// The format that is written, and the only one that is read so far.
    pub(crate) fn format(self) -> u8 {
        1
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
