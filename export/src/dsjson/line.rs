//! One decision as a line.
//!
//! The fields come in the order in which Personalizer writes them, since some readers look for them by place. Contexts
//! and attributes are where Personalizer puts what its clients send: `FromUrl` of the context, and `j` of an action,
//! beside its id in `i`.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;

use celeris_model::{Decision, ItemId, StreamName};
use celeris_storage::Storage;
use serde_json::{Map, Value, json};

use super::rewards::Reward;
use crate::error::ExportError;

/// Bytes of attributes that are kept for later decisions, at most.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// A decision with what became of it.
pub(super) struct Logged<'a> {
    pub(super) decision: &'a Decision,
    pub(super) candidates: &'a [ItemId],
    /// The candidate shown in each slot.
    pub(super) shown: &'a [usize],
    /// The propensity of each slot, given the slots above.
    pub(super) propensities: &'a [f64],
    /// The reward of each slot.
    pub(super) rewards: &'a [Reward],
}

impl Logged<'_> {
    pub(super) fn write(&self, attributes: &mut Attributes, line: &mut Vec<u8>) -> Result<(), ExportError> {
        let context = self.context(attributes)?;
        let event = text(self.decision.id.as_str());
        let time = jiff::Timestamp::from_millisecond(self.decision.timestamp.0).unwrap_or_default();
        let when = format!(r#""Timestamp":"{time:.7}","Version":"1","EventId":{event}"#);
        let state = format!(
            r#""VWState":{{"m":{}}}"#,
            text(&format!("{}/{}", self.decision.scored_by(), self.decision.version))
        );
        let written = match (self.shown, self.propensities, self.rewards) {
            ([action], [propensity], [reward]) => {
                let (cost, likely, count) = (number(cost(*reward)), number(*propensity), action + 1);
                let observed = observed(*reward, &event);
                let (order, probabilities) = (self.order(*action), self.probabilities(*propensity));
                write!(
                    line,
                    r#"{{"_label_cost":{cost},"_label_probability":{likely},"_label_Action":{count},"_labelIndex":{action},{observed}{when},"a":[{order}],"c":{{{context}}},"p":[{probabilities}],{state},"_original_label_cost":{cost}}}"#
                )
            }
            _ => {
                let slots: Vec<String> =
                    (1..=self.shown.len()).map(|slot| format!(r#"{{"Slot":{{"position={slot}":1}}}}"#)).collect();
                let outcomes: Vec<String> = (0..self.shown.len()).map(|slot| self.outcome(slot)).collect();
                let (slots, outcomes) = (slots.join(","), outcomes.join(","));
                write!(line, r#"{{{when},"c":{{{context},"_slots":[{slots}]}},"_outcomes":[{outcomes}],{state}}}"#)
            }
        };
        written.expect("a vector takes any bytes");
        Ok(())
    }

    fn outcome(&self, slot: usize) -> String {
        let (action, propensity, reward) = (self.shown[slot], self.propensities[slot], self.rewards[slot]);
        let id = text(&format!("{}/{slot}", self.decision.id));
        let cost = number(cost(reward));
        let observed = if reward.is_observed { number(f64::from(reward.value)) } else { String::new() };
        let propensity = number(propensity);
        format!(r#"{{"_label_cost":{cost},"_id":{id},"_a":[{action}],"_p":[{propensity}],"_o":[{observed}]}}"#)
    }

    /// All actions from 1: the shown one, and the others in the order of the candidates.
    fn order(&self, shown: usize) -> String {
        let others = (0..self.candidates.len()).filter(|action| *action != shown);
        let numbers: Vec<String> =
            std::iter::once(shown).chain(others).map(|action| (action + 1).to_string()).collect();
        numbers.join(",")
    }

    /// The probabilities in that order, as far as they are known: a record has that of what was shown. Those of others
    /// follow from it if nothing or one is left.
    fn probabilities(&self, shown: f64) -> String {
        let rest = (1.0 - shown).max(0.0);
        let others = match self.candidates.len() - 1 {
            others if rest == 0.0 => vec![rest; others],
            1 => vec![rest],
            _ => Vec::new(),
        };
        let all: Vec<String> = std::iter::once(shown).chain(others).map(number).collect();
        all.join(",")
    }

    /// The context with the user and the actions, without its braces.
    fn context(&self, attributes: &mut Attributes) -> Result<String, ExportError> {
        let fields = match self.decision.context.as_deref().map(serde_json::to_value) {
            Some(Ok(Value::Object(fields))) => features(&fields),
            _ => String::new(),
        };
        let user = text(self.decision.user.as_str());
        let mut actions = String::new();
        for item in self.candidates {
            let separator = if actions.is_empty() { "" } else { "," };
            let (id, described) = (text(item.as_str()), attributes.of(item)?);
            actions.push_str(&format!(
                r#"{separator}{{"_tag":{id},"i":{{"constant":1,"id":{id}}},"j":[{{{described}}}]}}"#
            ));
        }
        Ok(format!(r#""FromUrl":[{{{fields}}}],"User":{{"id":{user}}},"_multi":[{actions}]"#))
    }
}

/// Minus the reward.
fn cost(reward: Reward) -> f64 {
    0.0 - f64::from(reward.value)
}

/// The reward as the service would have received it; nothing if it received none.
fn observed(reward: Reward, event: &str) -> String {
    if !reward.is_observed {
        return String::new();
    }
    format!(r#""o":[{{"v":{},"EventId":{event},"ActionTaken":false}}],"#, number(f64::from(reward.value)))
}

fn number(value: f64) -> String {
    json!(value).to_string()
}

fn text(value: &str) -> String {
    Value::from(value).to_string()
}

/// Features as the inside of a JSON object. Vowpal Wabbit reads names with an underscore as instructions, and no lists of
/// texts: those become features of value 1.
fn features(fields: &Map<String, Value>) -> String {
    let mut parts: Vec<String> = Vec::with_capacity(fields.len());
    for (name, value) in fields.iter().filter(|(name, _)| !name.starts_with('_')) {
        match value {
            Value::Null => {}
            Value::Array(values) => {
                let texts = values.iter().filter_map(|value| match value {
                    Value::String(text) => Some(text.clone()),
                    Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
                    Value::Null | Value::Array(_) | Value::Object(_) => None,
                });
                parts.extend(texts.map(|one| format!("{}:1", text(&format!("{name}={one}")))));
            }
            Value::Object(inner) => parts.push(format!("{}:{{{}}}", text(name), features(inner))),
            scalar => parts.push(format!("{}:{scalar}", text(name))),
        }
    }
    parts.join(",")
}

/// The attributes of items as features.
pub(super) struct Attributes<'a> {
    storage: &'a Storage,
    stream: &'a StreamName,
    known: HashMap<ItemId, Arc<str>>,
    bytes: usize,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(storage: &'a Storage, stream: &'a StreamName) -> Self {
        Self { storage, stream, known: HashMap::new(), bytes: 0 }
    }

    fn of(&mut self, item: &ItemId) -> Result<Arc<str>, ExportError> {
        if let Some(known) = self.known.get(item) {
            return Ok(Arc::clone(known));
        }
        let record = self.storage.items().get(self.stream, item)?;
        let described: Arc<str> = record.map_or_else(String::new, |record| features(&record.attributes)).into();
        if self.bytes > KEPT_BYTES_MAX {
            self.known.clear();
            self.bytes = 0;
        }
        // An entry has a hundred bytes beside its texts.
        self.bytes += described.len() + item.as_str().len() + 100;
        self.known.insert(item.clone(), Arc::clone(&described));
        Ok(described)
    }
}
