//! Roles: what a client may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a client may do. A key has one or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Predictions and rankings, and what they are made of.
    Predict,
    /// Observations, corrections and items.
    Observe,
    /// Models, versions, trainings, pipelines, quality, users' histories, metrics; and `Predict`.
    Operate,
    /// Keys, deletion of models, erasure of users; and all other roles.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Predict, Self::Observe, Self::Operate, Self::Admin];

    /// The name, as in `predict`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Predict => "predict",
            Self::Observe => "observe",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// Whether a client with this role may do what needs `other`.
    #[must_use]
    pub fn includes(self, other: Self) -> bool {
        self == other || self == Self::Admin || (self == Self::Operate && other == Self::Predict)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| format!("{text:?} is none of {names}"))
    }
}
