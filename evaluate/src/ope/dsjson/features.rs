//! Features of actions for the reward model and the scores of named policies: hashed into a few numbers (feature hashing:
//! Weinberger et al., ICML 2009), since logs name any number of them.

use celeris_datasets::dsjson::LoggedDecision;
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

/// Number of hashed features.
pub const DIM: usize = 64;

/// Maximum number of features of a context, and of an action, that count.
const TOKENS_MAX: usize = 256;

/// A feature: the hash of its name and, of a text, its value; and its size.
type Token = (u64, f64);

/// The features of the actions of one decision: those of the action with its id, and those of the context combined with
/// the action.
pub struct Featurizer<'a> {
    decision: &'a LoggedDecision,
    context: Vec<Token>,
}

impl<'a> Featurizer<'a> {
    #[must_use]
    pub fn new(decision: &'a LoggedDecision) -> Self {
        Self { decision, context: tokens(&decision.context) }
    }

    /// The features of an action.
    #[must_use]
    pub fn of(&self, action: usize) -> [f32; DIM] {
        let logged = &self.decision.actions[action];
        let mut own = tokens(&logged.fields);
        let id = logged.id.as_ref().map(|id| hash("", id));
        own.extend(id.map(|id| (id, 1.0)));
        // Actions without an id are known by what is said of them.
        let identity = id.unwrap_or_else(|| own.iter().fold(0, |all, (token, _)| all ^ token));
        let crossed = self.context.iter().map(|(token, size)| (token.rotate_left(17) ^ identity, *size));
        let mut features = [0.0; DIM];
        for (token, size) in own.iter().copied().chain(crossed) {
            let mixed = xxh3_64(&token.to_le_bytes());
            let sign = if mixed >> 63 == 0 { 1.0 } else { -1.0 };
            #[expect(clippy::cast_possible_truncation, reason = "sizes are logarithms, and buckets few")]
            let (bucket, size) = ((mixed % DIM as u64) as usize, (sign * size) as f32);
            features[bucket] += size;
        }
        features
    }
}

fn hash(name: &str, value: &str) -> u64 {
    xxh3_64(format!("{name}\u{0}{value}").as_bytes())
}

fn tokens(fields: &Map<String, Value>) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (name, value) in fields {
        match value {
            Value::String(text) => tokens.push((hash(name, text), 1.0)),
            Value::Bool(true) => tokens.push((hash(name, ""), 1.0)),
            Value::Number(number) => {
                // Logarithms, so that no single number decides the regression.
                let number = number.as_f64().unwrap_or(0.0);
                tokens.push((hash(name, ""), number.signum() * number.abs().ln_1p()));
            }
            Value::Array(texts) => {
                tokens.extend(texts.iter().filter_map(Value::as_str).map(|text| (hash(name, text), 1.0)));
            }
            Value::Bool(false) | Value::Null | Value::Object(_) => {}
        }
    }
    tokens.truncate(TOKENS_MAX);
    tokens
}
