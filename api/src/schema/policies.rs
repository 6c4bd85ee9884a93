//! Ranking policies.

use celeris_bandits::{EpsilonGreedy, LinUcb, PolicySpec, RegCb, Softmax, SquareCb, Thompson};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A policy with its parameters. Replies contain all parameters; in requests each has a default.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "name", rename_all = "snake_case")]
#[schema(example = json!({"name": "epsilon_greedy", "epsilon": 0.1}))]
pub enum Policy {
    /// Ranks by the highest score.
    #[schema(title = "GreedyPolicy")]
    Greedy,
    /// Picks the highest score, or with probability `epsilon` a uniformly random candidate.
    #[schema(title = "EpsilonGreedyPolicy")]
    EpsilonGreedy {
        /// The probability of a uniform draw, per slot.
        #[schema(required = false, minimum = 0, maximum = 1, default = json!(EpsilonGreedy::DEFAULT_EPSILON))]
        epsilon: f64,
    },
    /// Draws candidates in proportion to `exp(lambda * score)`.
    #[schema(title = "SoftmaxPolicy")]
    Softmax {
        /// The inverse temperature of the draw, in units of 1 / label.
        #[schema(required = false, minimum = 0, maximum = 1e6, default = json!(Softmax::DEFAULT_LAMBDA))]
        lambda: f64,
    },
    /// Draws candidates by how far their score is below the best. Exploration fades as the user's
    /// observations accumulate.
    #[schema(title = "SquareCbPolicy")]
    #[serde(rename = "squarecb")]
    SquareCb {
        /// The factor of `gamma`, in units of 1 / label.
        #[schema(required = false, minimum = 0, maximum = 1e9, default = json!(SquareCb::DEFAULT_GAMMA_SCALE))]
        gamma_scale: f64,
        /// The exponent of the user's observations in `gamma`.
        #[schema(required = false, minimum = 0, maximum = 1, default = json!(SquareCb::DEFAULT_GAMMA_EXPONENT))]
        gamma_exponent: f64,
    },
    /// Ranks by the highest `score + alpha * std_error`.
    #[schema(title = "LinUcbPolicy")]
    LinUcb {
        /// The width of the confidence bound, in standard errors.
        #[schema(required = false, minimum = 0, maximum = 100, default = json!(LinUcb::DEFAULT_ALPHA))]
        alpha: f64,
    },
    /// Ranks by the highest score under weights that explain the user's history about as well as
    /// the best weights.
    #[schema(title = "RegCbPolicy")]
    #[serde(rename = "regcb")]
    RegCb {
        /// The tolerated excess over the minimal loss, relative to noise variance and logarithm of
        /// rounds.
        #[schema(required = false, minimum = 0, maximum = 1000, default = json!(RegCb::DEFAULT_MELLOWNESS))]
        mellowness: f64,
    },
    /// Ranks by the highest score under weights drawn from the user's posterior.
    #[schema(title = "ThompsonPolicy")]
    Thompson {
        /// The width of the draw, in standard deviations of the posterior.
        #[schema(required = false, minimum = 0, maximum = 100, default = json!(Thompson::DEFAULT_ALPHA))]
        alpha: f64,
    },
}

impl From<PolicySpec> for Policy {
    fn from(spec: PolicySpec) -> Self {
        match spec {
            PolicySpec::Greedy(_) => Self::Greedy,
            PolicySpec::EpsilonGreedy(policy) => Self::EpsilonGreedy { epsilon: policy.epsilon() },
            PolicySpec::Softmax(policy) => Self::Softmax { lambda: policy.lambda() },
            PolicySpec::SquareCb(policy) => {
                Self::SquareCb { gamma_scale: policy.gamma_scale(), gamma_exponent: policy.gamma_exponent() }
            }
            PolicySpec::LinUcb(policy) => Self::LinUcb { alpha: policy.alpha() },
            PolicySpec::RegCb(policy) => Self::RegCb { mellowness: policy.mellowness() },
            PolicySpec::Thompson(policy) => Self::Thompson { alpha: policy.alpha() },
        }
    }
}

/// The recorded policy of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedPolicy {
    #[serde(flatten)]
    pub policy: Policy,
    /// Other settings that affected the order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arranged: Option<Arranged>,
}

// OpenAPI describes `RecordedPolicy` so, because generators of clients cannot combine the alternatives of `Policy` with
// another field.
/// The recorded policy of a decision: its name, its parameters and other settings.
#[derive(ToSchema)]
#[schema(as = RecordedPolicy)]
pub struct RecordedPolicyFields {
    pub name: PolicyName,
    /// Of `epsilon_greedy`.
    #[schema(nullable = false)]
    pub epsilon: Option<f64>,
    /// Of `softmax`.
    #[schema(nullable = false)]
    pub lambda: Option<f64>,
    /// Of `squarecb`.
    #[schema(nullable = false)]
    pub gamma_scale: Option<f64>,
    /// Of `squarecb`.
    #[schema(nullable = false)]
    pub gamma_exponent: Option<f64>,
    /// Of `lin_ucb` and `thompson`.
    #[schema(nullable = false)]
    pub alpha: Option<f64>,
    /// Of `regcb`.
    #[schema(nullable = false)]
    pub mellowness: Option<f64>,
    /// Other settings that affected the order.
    #[schema(nullable = false)]
    pub arranged: Option<Arranged>,
}

/// Settings of a recommendation besides its policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Arranged {
    /// The amount that each boost added to the scores of its items.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boost: Vec<f64>,
    /// The diversity of the ranking, from 0 to 1; absent if none was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diversity: Option<f64>,
}

/// The name of a policy.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    Greedy,
    EpsilonGreedy,
    Softmax,
    #[serde(rename = "squarecb")]
    SquareCb,
    LinUcb,
    #[serde(rename = "regcb")]
    RegCb,
    Thompson,
}

/// The name of a policy with default parameters, or an object of name and parameters.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum PolicyOrName {
    Name(PolicyName),
    Object(Policy),
}

/// The policy that shows every candidate with the same probability.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Uniform {
    Uniform,
}

/// A policy, or `uniform`, which shows every candidate with the same probability.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum PolicyOrUniform {
    Uniform(Uniform),
    Policy(PolicyOrName),
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use serde_json::{Value, json};
    use utoipa::PartialSchema as _;

    use super::*;

    /// Every policy, with parameters that are not the defaults.
    fn written() -> [Value; PolicySpec::NAMES.len()] {
        [
            json!({"name": "greedy"}),
            json!({"name": "epsilon_greedy", "epsilon": 0.25}),
            json!({"name": "softmax", "lambda": 2.5}),
            json!({"name": "squarecb", "gamma_scale": 3.5, "gamma_exponent": 0.75}),
            json!({"name": "lin_ucb", "alpha": 1.5}),
            json!({"name": "regcb", "mellowness": 0.2}),
            json!({"name": "thompson", "alpha": 0.5}),
        ]
    }

    #[test]
    fn policies_round_trip_between_request_and_reply() {
        for (name, written) in PolicySpec::NAMES.into_iter().zip(written()) {
            assert_eq!(written["name"], name);
            let read: PolicySpec = serde_json::from_value(written.clone()).unwrap();
            assert_eq!(serde_json::to_value(Policy::from(read)).unwrap(), written);
        }
    }

    #[test]
    fn described_names_defaults_and_bounds_are_those_of_the_parser() {
        let names = serde_json::to_value(PolicyName::schema()).unwrap();
        assert_eq!(names["enum"], json!(PolicySpec::NAMES));
        let described = serde_json::to_value(Policy::schema()).unwrap();
        let recorded = serde_json::to_value(RecordedPolicyFields::schema()).unwrap();
        for (name, object) in PolicySpec::NAMES.into_iter().zip(described["oneOf"].as_array().unwrap()) {
            assert_eq!(object["properties"]["name"]["enum"], json!([name]));
            assert_eq!(object["required"], json!(["name"]), "parameters have defaults");
            let usual = serde_json::to_value(Policy::from(PolicySpec::named(name).unwrap())).unwrap();
            for (parameter, usual) in usual.as_object().unwrap().iter().filter(|(parameter, _)| *parameter != "name") {
                let described = &object["properties"][parameter];
                assert_eq!(described["default"], *usual, "{name}.{parameter}");
                assert!(recorded["properties"][parameter].is_object(), "{name}.{parameter} can be recorded");
                let accepts =
                    |value: f64| serde_json::from_value::<PolicySpec>(json!({"name": name, parameter: value}));
                let [least, most] = ["minimum", "maximum"].map(|bound| described[bound].as_f64().unwrap());
                for (value, fits) in [(least, true), (most, true), (least - 0.5, false), (most + 0.5, false)] {
                    assert_eq!(accepts(value).is_ok(), fits, "{name}.{parameter} = {value}");
                }
            }
        }
    }
}
