//! Policies: what ranks.

use celeris_bandits::{EpsilonGreedy, LinUcb, PolicySpec, RegCb, Softmax, SquareCb, Thompson};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A policy with its parameters. Replies hold all of them; in a request each has a default.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "name", rename_all = "snake_case")]
#[schema(example = json!({"name": "epsilon_greedy", "epsilon": 0.1}))]
pub enum Policy {
    /// The best score.
    Greedy,
    /// The best score, or with a probability any candidate.
    EpsilonGreedy {
        /// The probability of a uniform draw, in each slot.
        #[schema(required = false, minimum = 0, maximum = 1, default = json!(EpsilonGreedy::DEFAULT_EPSILON))]
        epsilon: f64,
    },
    /// A draw in proportion to `exp(lambda * score)`.
    Softmax {
        /// How sharp the draw is, in units of one by label.
        #[schema(required = false, minimum = 0, maximum = 1e6, default = json!(Softmax::DEFAULT_LAMBDA))]
        lambda: f64,
    },
    /// A draw by how much a score falls short of the best, which fades as the user becomes known.
    #[serde(rename = "squarecb")]
    SquareCb {
        /// The factor of `gamma`, in units of one by label.
        #[schema(required = false, minimum = 0, maximum = 1e9, default = json!(SquareCb::DEFAULT_GAMMA_SCALE))]
        gamma_scale: f64,
        /// The exponent of the user's observations in `gamma`.
        #[schema(required = false, minimum = 0, maximum = 1, default = json!(SquareCb::DEFAULT_GAMMA_EXPONENT))]
        gamma_exponent: f64,
    },
    /// The greatest `score + alpha * std_error`.
    LinUcb {
        /// The width of the confidence bound, in standard errors.
        #[schema(required = false, minimum = 0, maximum = 100, default = json!(LinUcb::DEFAULT_ALPHA))]
        alpha: f64,
    },
    /// The greatest score of weights that explain the user's history about as well as the best.
    #[serde(rename = "regcb")]
    RegCb {
        /// How much loss above the least is tolerated, by noise variance and logarithm of rounds.
        #[schema(required = false, minimum = 0, maximum = 1000, default = json!(RegCb::DEFAULT_MELLOWNESS))]
        mellowness: f64,
    },
    /// The best score of weights that are drawn from the user's posterior.
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

/// The policy of a decision, as it was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecordedPolicy {
    #[serde(flatten)]
    pub policy: Policy,
    /// What else decided on the order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arranged: Option<Arranged>,
}

/// What a recommendation was asked for besides its policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Arranged {
    /// What each boost added to the scores of its items.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boost: Vec<f64>,
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

/// A policy's name, with the parameters at their defaults, or an object of name and parameters.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum PolicyOrName {
    Name(PolicyName),
    Object(Policy),
}

/// The policy that shows every candidate alike.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Uniform {
    Uniform,
}

/// A policy, or `uniform`, which shows every candidate alike.
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
    fn every_policy_is_replied_as_a_request_can_write_it() {
        for (name, written) in PolicySpec::NAMES.into_iter().zip(written()) {
            assert_eq!(written["name"], name);
            let read: PolicySpec = serde_json::from_value(written.clone()).unwrap();
            assert_eq!(serde_json::to_value(Policy::from(read)).unwrap(), written);
        }
    }

    #[test]
    fn names_defaults_and_bounds_are_described_as_they_are_read() {
        let names = serde_json::to_value(PolicyName::schema()).unwrap();
        assert_eq!(names["enum"], json!(PolicySpec::NAMES));
        let described = serde_json::to_value(Policy::schema()).unwrap();
        for (name, object) in PolicySpec::NAMES.into_iter().zip(described["oneOf"].as_array().unwrap()) {
            assert_eq!(object["properties"]["name"]["enum"], json!([name]));
            assert_eq!(object["required"], json!(["name"]), "parameters have defaults");
            let usual = serde_json::to_value(Policy::from(PolicySpec::named(name).unwrap())).unwrap();
            for (parameter, usual) in usual.as_object().unwrap().iter().filter(|(parameter, _)| *parameter != "name") {
                let described = &object["properties"][parameter];
                assert_eq!(described["default"], *usual, "{name}.{parameter}");
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
