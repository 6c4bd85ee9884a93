//! The representation of a policy in requests, configuration and decisions.

use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::epsilon_greedy::EpsilonGreedy;
use crate::error::BanditError;
use crate::greedy::Greedy;
use crate::lin_ucb::LinUcb;
use crate::policy::Policy;
use crate::regcb::RegCb;
use crate::softmax::Softmax;
use crate::squarecb::SquareCb;
use crate::thompson::Thompson;

/// A policy with validated parameters.
///
/// Deserialized from a bare name (`"epsilon_greedy"`, with default parameters) or an object
/// (`{"name": "epsilon_greedy", "epsilon": 0.1}`), and serialized as the object, with every
/// parameter. Names and defaults follow Vowpal Wabbit and MABWiser. Requires a self-describing
/// format (JSON, TOML).
#[derive(Debug, Clone, PartialEq)]
pub enum PolicySpec {
    /// `greedy`
    Greedy(Greedy),
    /// `epsilon_greedy`, with `epsilon`
    EpsilonGreedy(EpsilonGreedy),
    /// `softmax`, with `lambda`
    Softmax(Softmax),
    /// `squarecb`, with `gamma_scale` and `gamma_exponent`
    SquareCb(SquareCb),
    /// `lin_ucb`, with `alpha`
    LinUcb(LinUcb),
    /// `regcb`, with `mellowness`
    RegCb(RegCb),
    /// `thompson`, with `alpha`
    Thompson(Thompson),
}

impl PolicySpec {
    /// The names of all policies.
    pub const NAMES: [&'static str; 7] =
        ["greedy", "epsilon_greedy", "softmax", "squarecb", "lin_ucb", "regcb", "thompson"];

    /// The policy of this name with default parameters.
    ///
    /// # Errors
    /// [`BanditError::UnknownPolicy`].
    pub fn named(name: &str) -> Result<Self, BanditError> {
        Self::with_parameters(name, Vec::new())
    }

    fn with_parameters(name: &str, given: Vec<(String, f64)>) -> Result<Self, BanditError> {
        let mut parameters = Parameters { given, known: Vec::new() };
        let spec = match name {
            "greedy" => Self::Greedy(Greedy),
            "epsilon_greedy" => {
                Self::EpsilonGreedy(EpsilonGreedy::new(parameters.take("epsilon", EpsilonGreedy::DEFAULT_EPSILON))?)
            }
            "softmax" => Self::Softmax(Softmax::new(parameters.take("lambda", Softmax::DEFAULT_LAMBDA))?),
            "squarecb" => Self::SquareCb(SquareCb::new(
                parameters.take("gamma_scale", SquareCb::DEFAULT_GAMMA_SCALE),
                parameters.take("gamma_exponent", SquareCb::DEFAULT_GAMMA_EXPONENT),
            )?),
            "lin_ucb" => Self::LinUcb(LinUcb::new(parameters.take("alpha", LinUcb::DEFAULT_ALPHA))?),
            "regcb" => Self::RegCb(RegCb::new(parameters.take("mellowness", RegCb::DEFAULT_MELLOWNESS))?),
            "thompson" => Self::Thompson(Thompson::new(parameters.take("alpha", Thompson::DEFAULT_ALPHA))?),
            _ => {
                return Err(BanditError::UnknownPolicy { name: name.to_owned(), known: Self::NAMES.join(", ") });
            }
        };
        parameters.finish(name)?;
        Ok(spec)
    }

    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Greedy(_) => "greedy",
            Self::EpsilonGreedy(_) => "epsilon_greedy",
            Self::Softmax(_) => "softmax",
            Self::SquareCb(_) => "squarecb",
            Self::LinUcb(_) => "lin_ucb",
            Self::RegCb(_) => "regcb",
            Self::Thompson(_) => "thompson",
        }
    }

    fn parameters(&self) -> Vec<(&'static str, f64)> {
        match self {
            Self::Greedy(_) => Vec::new(),
            Self::EpsilonGreedy(policy) => vec![("epsilon", policy.epsilon())],
            Self::Softmax(policy) => vec![("lambda", policy.lambda())],
            Self::SquareCb(policy) => {
                vec![("gamma_scale", policy.gamma_scale()), ("gamma_exponent", policy.gamma_exponent())]
            }
            Self::LinUcb(policy) => vec![("alpha", policy.alpha())],
            Self::RegCb(policy) => vec![("mellowness", policy.mellowness())],
            Self::Thompson(policy) => vec![("alpha", policy.alpha())],
        }
    }

    #[must_use]
    pub fn policy(&self) -> &dyn Policy {
        match self {
            Self::Greedy(policy) => policy,
            Self::EpsilonGreedy(policy) => policy,
            Self::Softmax(policy) => policy,
            Self::SquareCb(policy) => policy,
            Self::LinUcb(policy) => policy,
            Self::RegCb(policy) => policy,
            Self::Thompson(policy) => policy,
        }
    }
}

impl Default for PolicySpec {
    /// The policy if neither the request nor the model names one: it explores, and its propensities
    /// have a closed form and a lower bound.
    fn default() -> Self {
        Self::EpsilonGreedy(EpsilonGreedy::default())
    }
}

/// The parameters received, of which the policy takes those that it knows.
struct Parameters {
    given: Vec<(String, f64)>,
    known: Vec<&'static str>,
}

impl Parameters {
    fn take(&mut self, name: &'static str, default: f64) -> f64 {
        self.known.push(name);
        match self.given.iter().position(|(given, _)| given == name) {
            Some(position) => self.given.swap_remove(position).1,
            None => default,
        }
    }

    fn finish(mut self, policy: &str) -> Result<(), BanditError> {
        let Some((parameter, _)) = self.given.pop() else { return Ok(()) };
        let known = if self.known.is_empty() {
            "it takes none".to_owned()
        } else {
            format!("it takes {}", self.known.join(", "))
        };
        Err(BanditError::UnknownParameter { policy: policy.to_owned(), parameter, known })
    }
}

impl Serialize for PolicySpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parameters = self.parameters();
        let mut map = serializer.serialize_map(Some(1 + parameters.len()))?;
        map.serialize_entry("name", self.name())?;
        for (name, value) in parameters {
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for PolicySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpecVisitor)
    }
}

/// Written by hand because a derived untagged enum reports every error as "did not match any
/// variant".
struct SpecVisitor;

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = PolicySpec;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a policy: its name, or an object of `name` and parameters")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<PolicySpec, E> {
        PolicySpec::named(name).map_err(E::custom)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<PolicySpec, M::Error> {
        let mut name: Option<String> = None;
        let mut parameters: Vec<(String, f64)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "name" {
                if name.replace(map.next_value_seed(NameSeed)?).is_some() {
                    return Err(de::Error::duplicate_field("name"));
                }
            } else if parameters.iter().any(|(given, _)| *given == key) {
                return Err(de::Error::custom(format_args!("duplicate policy parameter {key:?}")));
            } else {
                let value = map.next_value_seed(ParameterSeed { name: &key })?;
                parameters.push((key, value));
            }
        }
        let name = name.ok_or_else(|| de::Error::missing_field("name"))?;
        PolicySpec::with_parameters(&name, parameters).map_err(de::Error::custom)
    }
}

/// Reads the name, and names the field in the error if it is not a string.
struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a string as the `name` of the policy")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<String, E> {
        Ok(name.to_owned())
    }
}

/// Reads a number, and names the parameter in the error if it is not a number.
struct ParameterSeed<'a> {
    name: &'a str,
}

impl<'de> DeserializeSeed<'de> for ParameterSeed<'_> {
    type Value = f64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<f64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for ParameterSeed<'_> {
    type Value = f64;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "a number as the policy parameter {:?}", self.name)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }
}
