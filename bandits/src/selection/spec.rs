//! The representation of a strategy in requests and in the registry.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::BanditError;
use crate::selection::ab::Ab;
use crate::selection::exp3::Exp3;
use crate::selection::exp4::Exp4;
use crate::selection::strategy::{Learns, Strategy};
use crate::selection::tsallis_inf::TsallisInf;

/// A strategy with its parameters.
///
/// Deserialized from a bare name (`"exp3"`, with default parameters) or an object (`{"name":
/// "exp3", "floor": 0.05}`), and serialized as the object, with every parameter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum StrategySpec {
    /// `exp3`, with `floor`
    Exp3(Exp3),
    /// `exp4`, with `tolerance`
    Exp4(Exp4),
    /// `tsallis_inf`, with `floor`
    TsallisInf(TsallisInf),
    /// `ab`, with `shares`
    Ab(Ab),
}

impl Default for StrategySpec {
    /// The strategy if none is configured.
    fn default() -> Self {
        Self::TsallisInf(TsallisInf::default())
    }
}

impl StrategySpec {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exp3(_) => "exp3",
            Self::Exp4(_) => "exp4",
            Self::TsallisInf(_) => "tsallis_inf",
            Self::Ab(_) => "ab",
        }
    }

    #[must_use]
    pub fn strategy(&self) -> &dyn Strategy {
        match self {
            Self::Exp3(strategy) => strategy,
            Self::Exp4(strategy) => strategy,
            Self::TsallisInf(strategy) => strategy,
            Self::Ab(strategy) => strategy,
        }
    }

    /// Whether all arms answer together.
    #[must_use]
    pub fn combines(&self) -> bool {
        self.strategy().learns() == Learns::FromEvery
    }

    /// Checks the parameters for `arms` arms.
    ///
    /// # Errors
    /// [`BanditError::OutOfRange`] or [`BanditError::Shares`].
    pub fn check(&self, arms: usize) -> Result<(), BanditError> {
        match self {
            Self::Exp3(strategy) => strategy.check(),
            Self::Exp4(strategy) => strategy.check(),
            Self::TsallisInf(strategy) => strategy.check(),
            Self::Ab(strategy) => strategy.check(arms),
        }
    }
}

/// The object form.
#[derive(Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
enum Object {
    Exp3(Exp3),
    Exp4(Exp4),
    TsallisInf(TsallisInf),
    Ab(Ab),
}

impl From<Object> for StrategySpec {
    fn from(object: Object) -> Self {
        match object {
            Object::Exp3(strategy) => Self::Exp3(strategy),
            Object::Exp4(strategy) => Self::Exp4(strategy),
            Object::TsallisInf(strategy) => Self::TsallisInf(strategy),
            Object::Ab(strategy) => Self::Ab(strategy),
        }
    }
}

impl<'de> Deserialize<'de> for StrategySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpecVisitor)
    }
}

struct SpecVisitor;

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = StrategySpec;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a strategy: its name, or an object of `name` and parameters")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<StrategySpec, E> {
        let object = MapDeserializer::new(std::iter::once(("name", name)));
        Object::deserialize(object).map(StrategySpec::from)
    }

    fn visit_map<M: de::MapAccess<'de>>(self, map: M) -> Result<StrategySpec, M::Error> {
        Object::deserialize(MapAccessDeserializer::new(map)).map(StrategySpec::from)
    }
}
