//! Boosts and diversity of a request, as the decision records them.
//!
//! They are stored in the record's `policy`, under [`KEY`]: `{"name": "greedy", "arranged":
//! {"diversity": 0.3}}`. The boosted items are not recorded, so such a decision cannot be replayed.

use celeris_bandits::PolicySpec;
use serde::Serialize;
use serde_json::Value;

/// Key in the recorded policy.
const KEY: &str = "arranged";

/// What the boosts of a request add, and its diversity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Arrangement {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    boost: Vec<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diversity: Option<f32>,
}

impl Arrangement {
    /// The arrangement of a request with these boosts and this diversity; `None` if it has neither.
    pub(crate) fn of(boost: Vec<f32>, diversity: Option<f32>) -> Option<Self> {
        let is_any = !boost.is_empty() || diversity.is_some();
        is_any.then_some(Self { boost, diversity })
    }
}

/// The policy as a decision records it.
pub(crate) fn recorded_policy(policy: &PolicySpec, arrangement: Option<&Arrangement>) -> String {
    let finite = "a policy has finite parameters";
    let Some(arrangement) = arrangement else { return serde_json::to_string(policy).expect(finite) };
    let mut policy = serde_json::to_value(policy).expect(finite);
    if let Value::Object(fields) = &mut policy {
        let arrangement = serde_json::to_value(arrangement).expect("requests are read from JSON");
        fields.insert(KEY.to_owned(), arrangement);
    }
    policy.to_string()
}

/// Whether boosts or diversity influenced the order.
pub(crate) fn is_arranged(recorded: &str) -> bool {
    // A value that is not an object was recorded by another program; the parser of the policy
    // rejects it.
    recorded.contains(KEY) && serde_json::from_str::<Value>(recorded).is_ok_and(|policy| policy.get(KEY).is_some())
}
