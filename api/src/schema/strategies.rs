//! Strategies by which a selection chooses or combines its models.

use celeris_bandits::selection::{Ab, Exp3, Exp4, StrategySpec, TsallisInf};
use serde::Serialize;
use utoipa::ToSchema;

/// A strategy with its parameters. Replies contain all parameters; in requests each has a default.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "name", rename_all = "snake_case")]
#[schema(example = json!({"name": "exp3", "floor": 0.05}))]
pub enum Strategy {
    /// EXP3: one model answers, drawn with exponential weights.
    #[schema(title = "Exp3Strategy")]
    Exp3 {
        /// The share of the requests for which a model is drawn uniformly.
        #[schema(required = false, minimum = 0.001, maximum = 1, default = 0.01)]
        floor: f64,
    },
    /// EXP4: all models answer together, combined with exponential weights.
    #[schema(title = "Exp4Strategy")]
    Exp4 {
        /// The share of the label range by which a model may differ from the answer and still agree
        /// with it.
        #[schema(required = false, minimum = 0, maximum = 1, default = 0.1)]
        tolerance: f64,
    },
    /// Tsallis-INF: one model answers, drawn by mirror descent with the Tsallis entropy.
    #[schema(title = "TsallisInfStrategy")]
    TsallisInf {
        /// The share of the requests for which a model is drawn uniformly.
        #[schema(required = false, minimum = 0.001, maximum = 1, default = 0.01)]
        floor: f64,
    },
    /// A/B split: each user is answered by one model, drawn once.
    #[schema(title = "AbStrategy")]
    Ab {
        /// The share of users of each model, in the order of the arms; must sum to 1; equal shares
        /// by default.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(min_items = 2, max_items = 8)]
        shares: Option<Vec<f64>>,
    },
}

impl From<StrategySpec> for Strategy {
    fn from(spec: StrategySpec) -> Self {
        match spec {
            StrategySpec::Exp3(Exp3 { floor }) => Self::Exp3 { floor },
            StrategySpec::Exp4(Exp4 { tolerance }) => Self::Exp4 { tolerance },
            StrategySpec::TsallisInf(TsallisInf { floor }) => Self::TsallisInf { floor },
            StrategySpec::Ab(Ab { shares }) => Self::Ab { shares },
        }
    }
}

/// The name of a strategy.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StrategyName {
    Exp3,
    Exp4,
    TsallisInf,
    Ab,
}

/// The name of a strategy with default parameters, or an object of name and parameters.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum StrategyOrName {
    Name(StrategyName),
    Object(Strategy),
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use serde_json::json;
    use utoipa::PartialSchema as _;

    use super::*;

    const ARMS: usize = 2;

    #[test]
    fn strategies_round_trip_between_request_and_reply() {
        let all = [
            json!({"name": "exp3", "floor": 0.25}),
            json!({"name": "exp4", "tolerance": 0.5}),
            json!({"name": "tsallis_inf", "floor": 0.125}),
            json!({"name": "ab", "shares": [0.75, 0.25]}),
            json!({"name": "ab"}),
        ];
        for written in all {
            let read: StrategySpec = serde_json::from_value(written.clone()).unwrap();
            assert_eq!(serde_json::to_value(Strategy::from(read)).unwrap(), written);
        }
    }

    #[test]
    fn described_names_defaults_and_bounds_are_those_of_the_parser() {
        let names = serde_json::to_value(StrategyName::schema()).unwrap();
        let described = serde_json::to_value(Strategy::schema()).unwrap();
        let objects = described["oneOf"].as_array().unwrap();
        for (name, object) in names["enum"].as_array().unwrap().iter().zip(objects) {
            assert_eq!(object["properties"]["name"]["enum"], json!([name]));
            assert_eq!(object["required"], json!(["name"]), "parameters have defaults");
            let usual = Strategy::from(serde_json::from_value::<StrategySpec>(name.clone()).unwrap());
            let usual = serde_json::to_value(usual).unwrap();
            for (parameter, usual) in usual.as_object().unwrap().iter().filter(|(parameter, _)| *parameter != "name") {
                let described = &object["properties"][parameter];
                assert_eq!(described["default"], *usual, "{name}.{parameter}");
                let accepts = |value: f64| {
                    let spec: StrategySpec = serde_json::from_value(json!({"name": name, parameter: value})).unwrap();
                    spec.check(ARMS).is_ok()
                };
                let [least, most] = ["minimum", "maximum"].map(|bound| described[bound].as_f64().unwrap());
                for (value, fits) in [(least, true), (most, true), (least / 2.0 - 1e-9, false), (most + 0.5, false)] {
                    assert_eq!(accepts(value), fits, "{name}.{parameter} = {value}");
                }
            }
        }
        assert_eq!(names["enum"].as_array().unwrap().len(), objects.len());
    }
}
