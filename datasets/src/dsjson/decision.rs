//! One line of a log.

use celeris_model::observation::LABEL_ABS_MAX;
use serde_json::{Map, Value};

use super::fields;

/// Maximum number of actions of a decision, and of slots.
pub const ACTIONS_MAX: usize = 10_000;
pub const SLOTS_MAX: usize = 256;

/// Tolerance for a probability above 1 due to rounding.
const ROUNDING: f64 = 1e-6;

/// How long a value is in a message, at most.
const SHOWN_MAX: usize = 40;

/// What a line is.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    Decision(Box<LoggedDecision>),
    /// A reward that its service could not join to a decision.
    DanglingReward,
    /// Neither: a blank line, or a mark of the service.
    Nothing,
}

/// Which slots a decision has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    OneSlot,
    /// Slots that are filled from the top, each from the actions not chosen above.
    Ranking,
    /// Slots with actions of their own, and one cost for all.
    Slates,
}

/// A logged decision.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedDecision {
    pub event_id: Option<String>,
    /// As it is written.
    pub timestamp: Option<String>,
    /// The fields of the context.
    pub context: Map<String, Value>,
    pub actions: Vec<LoggedAction>,
    pub form: Form,
    /// What was chosen for each slot, from the top; empty if the line does not say.
    pub choices: Vec<Choice>,
    /// The probability with which such a decision was kept in the log: 1 minus `pdrop`.
    pub kept_probability: f64,
    /// Whether it counts: it was shown, and is not marked to be skipped.
    pub active: bool,
    /// Whether a reward came in, and the cost is not that of its absence.
    pub rewarded: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LoggedAction {
    pub id: Option<String>,
    /// Its fields, without the id.
    pub fields: Map<String, Value>,
}

/// What was chosen for a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The action, from 0 in [`LoggedDecision::actions`].
    pub action: usize,
    /// The probability of this action, given the slots above; above 0.
    pub probability: f64,
    /// Minus the reward.
    pub cost: f64,
    /// The actions that could have been chosen, given the slots above.
    pub candidates: Vec<usize>,
}

impl Line {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, with the name of the field.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let line = line.trim_ascii();
        if line.first() != Some(&b'{') {
            return Ok(Self::Nothing);
        }
        let object: Map<String, Value> = serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            let problem = text.split(" at line ").next().unwrap_or_default();
            format!("not a JSON object: {problem} at character {}", error.column())
        })?;
        if !object.contains_key("c") {
            let is_reward =
                ["RewardValue", "Observations", "ActionTaken", "v"].iter().any(|key| object.contains_key(*key));
            return if is_reward { Ok(Self::DanglingReward) } else { Err("has no field c, the context".to_owned()) };
        }
        Ok(Self::Decision(Box::new(LoggedDecision::of(&object)?)))
    }
}

impl LoggedDecision {
    fn of(object: &Map<String, Value>) -> Result<Self, String> {
        let context = object["c"].as_object().ok_or("c: expected an object, the context")?;
        if object.contains_key("_label_ca") {
            return Err("_label_ca: decisions on continuous actions are not supported".to_owned());
        }
        let multi = context.get("_multi").and_then(Value::as_array).ok_or("c._multi: expected the list of actions")?;
        if multi.is_empty() || multi.len() > ACTIONS_MAX {
            return Err(format!("c._multi: expected 1 to {ACTIONS_MAX} actions, got {}", multi.len()));
        }
        let actions = multi.iter().enumerate().map(|(index, action)| LoggedAction::of(index, action));
        let actions: Vec<LoggedAction> = actions.collect::<Result<_, _>>()?;
        let of_slots: Vec<Option<u64>> = multi.iter().map(|action| action["_slot_id"].as_u64()).collect();
        let outcomes = match object.get("_outcomes") {
            None => None,
            Some(outcomes) => Some(outcomes.as_array().ok_or("_outcomes: expected a list, one for each slot")?),
        };
        let form = match outcomes {
            None => Form::OneSlot,
            Some(_) if of_slots.iter().all(Option::is_some) => Form::Slates,
            Some(_) => Form::Ranking,
        };
        let choices = match outcomes {
            None => one_slot(object, actions.len())?,
            Some(outcomes) => {
                let slots = slots(context, outcomes.len(), actions.len())?;
                several_slots(object, outcomes, &slots, &of_slots)?
            }
        };
        let drop = optional_number(object, "pdrop")?.unwrap_or(0.0);
        if !(0.0..1.0).contains(&drop) {
            return Err(format!("pdrop: expected a probability below 1, got {drop:?}"));
        }
        Ok(Self {
            event_id: object.get("EventId").and_then(text),
            timestamp: object.get("Timestamp").and_then(text),
            context: fields::of_context(context),
            actions,
            form,
            choices,
            kept_probability: 1.0 - drop,
            active: is_active(object),
            rewarded: is_rewarded(object, outcomes.map_or(&[][..], Vec::as_slice)),
        })
    }
}

impl LoggedAction {
    fn of(index: usize, action: &Value) -> Result<Self, String> {
        let action = action.as_object().ok_or_else(|| format!("c._multi[{index}]: expected an object, an action"))?;
        let places = [action.get("_tag"), action.get("i").map(|i| &i["id"]), action.get("id")];
        let others = ["_aid", "__aid", "ActionId"].map(|name| action.get(name));
        let id = places.into_iter().chain(others).flatten().find_map(text);
        Ok(Self { id, fields: fields::of_action(action) })
    }
}

/// A text that is not empty, or a whole number as text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

/// Whether the decision counts: it is not marked as one to skip, and was activated if it waited for that.
fn is_active(object: &Map<String, Value>) -> bool {
    let flag = |name: &str| object.get(name).and_then(Value::as_bool) == Some(true);
    let observations = object.get("o").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let activates = |one: &Value| one["ActionTaken"] == true || one["DeferredAction"] == false;
    let waits = flag("_deferred") || flag("DeferredAction");
    !flag("_skipLearn") && (!waits || observations.iter().any(activates))
}

fn is_rewarded(object: &Map<String, Value>, outcomes: &[Value]) -> bool {
    let has_value = |one: &Value| !one["v"].is_null() || one.is_number();
    let any = |list: Option<&Value>| list.and_then(Value::as_array).is_some_and(|list| list.iter().any(has_value));
    any(object.get("o")) || outcomes.iter().any(|outcome| any(outcome.get("_o")))
}

/// A number that a message names.
fn optional_number(object: &Map<String, Value>, name: &str) -> Result<Option<f64>, String> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match fields::number(value) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("{name}: expected a number, got {}", shown(value))),
        },
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn checked_cost(cost: f64) -> Result<f64, String> {
    let is_valid = cost.abs() <= f64::from(LABEL_ABS_MAX);
    if is_valid { Ok(cost) } else { Err(format!("_label_cost: expected a number between -1e6 and 1e6, got {cost:?}")) }
}

fn checked_probability(name: &str, probability: f64) -> Result<f64, String> {
    if probability > 0.0 && probability <= 1.0 + ROUNDING {
        return Ok(probability);
    }
    Err(format!("{name}: expected a probability above 0 and at most 1, got {probability:?}"))
}

/// The choice of a decision of one slot; none if the line has no label.
fn one_slot(object: &Map<String, Value>, actions: usize) -> Result<Vec<Choice>, String> {
    let Some(cost) = optional_number(object, "_label_cost")? else { return Ok(Vec::new()) };
    let index = index_of(object, "_labelIndex", 0, actions)?;
    let number = index_of(object, "_label_Action", 1, actions)?;
    if let (Some(index), Some(number)) = (index, number)
        && index != number
    {
        let number = number + 1;
        return Err(format!(
            "_labelIndex {index} and _label_Action {number} are two actions; the first counts from 0, the second from 1"
        ));
    }
    let Some(action) = index.or(number) else {
        return Err("has neither _labelIndex nor _label_Action, the action that was chosen".to_owned());
    };
    let probability = match optional_number(object, "_label_probability")? {
        Some(probability) => probability,
        None => return Err("has no _label_probability, with which the action was chosen".to_owned()),
    };
    let probability = checked_probability("_label_probability", probability)?;
    Ok(vec![Choice { action, probability, cost: checked_cost(cost)?, candidates: (0..actions).collect() }])
}

/// The index of an action, which the file counts from `first`.
fn index_of(object: &Map<String, Value>, name: &str, first: u64, actions: usize) -> Result<Option<usize>, String> {
    let Some(value) = object.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let index = value.as_u64().and_then(|number| usize::try_from(number.checked_sub(first)?).ok());
    let last = actions as u64 + first - 1;
    let problem = || format!("{name}: expected an action from {first} to {last}, got {}", shown(value));
    index.filter(|index| *index < actions).map(Some).ok_or_else(problem)
}

/// For each slot the only actions that may fill it; all if it names none.
fn slots(context: &Map<String, Value>, outcomes: usize, actions: usize) -> Result<Vec<Vec<usize>>, String> {
    if outcomes == 0 || outcomes > SLOTS_MAX {
        return Err(format!("_outcomes: expected 1 to {SLOTS_MAX} slots, got {outcomes}"));
    }
    let Some(slots) = context.get("_slots").and_then(Value::as_array) else {
        return Ok(vec![(0..actions).collect(); outcomes]);
    };
    if slots.len() != outcomes {
        return Err(format!(
            "_outcomes: expected one for each of the {} slots of c._slots, got {outcomes}",
            slots.len()
        ));
    }
    let included = |(slot, value): (usize, &Value)| {
        let Some(included) = value.get("_inc").and_then(Value::as_array).filter(|list| !list.is_empty()) else {
            return Ok((0..actions).collect());
        };
        let index = |value: &Value| {
            value.as_u64().and_then(|index| usize::try_from(index).ok()).filter(|index| *index < actions)
        };
        let indexes: Option<Vec<usize>> = included.iter().map(index).collect();
        indexes.ok_or_else(|| format!("c._slots[{slot}]._inc: expected actions from 0 to {}", actions - 1))
    };
    slots.iter().enumerate().map(included).collect()
}

/// The choices of a decision of several slots; none if a slot has no label.
fn several_slots(
    object: &Map<String, Value>,
    outcomes: &[Value],
    slots: &[Vec<usize>],
    of_slots: &[Option<u64>],
) -> Result<Vec<Choice>, String> {
    let is_slates = of_slots.iter().all(Option::is_some);
    let of_all = optional_number(object, "_label_cost")?;
    let mut choices: Vec<Choice> = Vec::with_capacity(outcomes.len());
    let mut taken = vec![false; of_slots.len()];
    for (slot, outcome) in outcomes.iter().enumerate() {
        let place = |problem: String| format!("_outcomes[{slot}].{problem}");
        let outcome = outcome.as_object().ok_or_else(|| format!("_outcomes[{slot}]: expected an object"))?;
        let cost = if is_slates { of_all } else { optional_number(outcome, "_label_cost").map_err(place)? };
        let (Some(cost), Some(top)) = (cost, first(outcome, "_a")) else { return Ok(Vec::new()) };
        let candidates: Vec<usize> = if is_slates {
            (0..of_slots.len()).filter(|action| of_slots[*action] == Some(slot as u64)).collect()
        } else {
            slots[slot].iter().copied().filter(|action| !taken[*action]).collect()
        };
        let index = top.as_u64().and_then(|index| usize::try_from(index).ok());
        let action = if is_slates { index.and_then(|index| candidates.get(index).copied()) } else { index };
        let action = action.filter(|action| candidates.contains(action)).ok_or_else(|| {
            let problem = "expected an action, from 0, that the slot may have and that is not chosen above";
            place(format!("_a: {problem}, got {}", shown(top)))
        })?;
        let probability = first(outcome, "_p").and_then(fields::number);
        let probability = probability.ok_or_else(|| place("_p: expected the probability of the action".to_owned()))?;
        let probability = checked_probability("_p", probability).map_err(place)?;
        // One cost for all slots is that of the last, which has the weight of all.
        let cost = if is_slates && slot + 1 < outcomes.len() { 0.0 } else { checked_cost(cost).map_err(place)? };
        taken[action] = true;
        choices.push(Choice { action, probability, cost, candidates });
    }
    Ok(choices)
}

/// A value, or the first one of a list.
fn first<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    match object.get(name)? {
        Value::Array(values) => values.first(),
        value => Some(value),
    }
}
