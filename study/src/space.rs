//! The search space: named axes, each a range of numbers or a list of choices.
//!
//! A point has two forms. Its *position* has one number from 0 to 1 for each axis, in the order of
//! their names; it is what samplers compute with. Its [`Params`] are the values of the settings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::error::StudyError;

/// Maximum number of axes.
pub const AXES_MAX: usize = 16;

/// Maximum number of choices of an axis.
pub const CHOICES_MAX: usize = 32;

/// Significant digits of a proposed number. More would not change a training, and are hard to read.
const DIGITS: i32 = 4;

/// Values of settings by name.
pub type Params = BTreeMap<String, Value>;

/// An axis as people write it: exactly one of `int`, `float` and `choice`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AxisSpec {
    /// Smallest and largest whole number, both included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int: Option<[i64; 2]>,
    /// Smallest and largest number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub float: Option<[f64; 2]>,
    /// Unordered values, each null, a boolean, a number or a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<Vec<Value>>,
    /// Whether equal ratios count as equal distances.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
}

/// A checked axis.
#[derive(Debug, Clone, PartialEq)]
pub enum Axis {
    Int { low: i64, high: i64, log: bool },
    Float { low: f64, high: f64, log: bool },
    Choice(Vec<Value>),
}

/// A checked search space; its axes are in the order of their names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, AxisSpec>", into = "BTreeMap<String, AxisSpec>")]
pub struct Space {
    axes: Vec<(String, Axis)>,
}

impl TryFrom<BTreeMap<String, AxisSpec>> for Space {
    type Error = StudyError;

    fn try_from(specs: BTreeMap<String, AxisSpec>) -> Result<Self, StudyError> {
        if specs.is_empty() || specs.len() > AXES_MAX {
            return Err(StudyError::field(
                "space",
                format!("names from 1 to {AXES_MAX} settings, got {}", specs.len()),
            ));
        }
        let axes = specs.into_iter().map(|(name, spec)| {
            let axis = Axis::try_from(spec).map_err(|(part, problem)| {
                let field = if part.is_empty() { format!("space.{name}") } else { format!("space.{name}.{part}") };
                StudyError::field(field, problem)
            })?;
            Ok((name, axis))
        });
        Ok(Self { axes: axes.collect::<Result<_, StudyError>>()? })
    }
}

impl From<Space> for BTreeMap<String, AxisSpec> {
    fn from(space: Space) -> Self {
        space.axes.into_iter().map(|(name, axis)| (name, axis.into())).collect()
    }
}

impl TryFrom<AxisSpec> for Axis {
    /// The part of the axis that is wrong, and the problem.
    type Error = (&'static str, String);

    fn try_from(spec: AxisSpec) -> Result<Self, (&'static str, String)> {
        match spec {
            AxisSpec { int: Some([low, high]), float: None, choice: None, log } => {
                // A position is a number of 53 bits.
                if low >= high {
                    return Err(("int", format!("must be a smaller and a larger number, got {low} and {high}")));
                }
                if low.unsigned_abs().max(high.unsigned_abs()) > 1 << 52 {
                    return Err(("int", format!("has numbers of at most 52 bits, got {low} and {high}")));
                }
                if log && low < 1 {
                    return Err(("int", format!("must begin at 1 or above if `log` is set, got {low}")));
                }
                Ok(Self::Int { low, high, log })
            }
            AxisSpec { int: None, float: Some([low, high]), choice: None, log } => {
                if !(low.is_finite() && high.is_finite() && low < high && (high - low).is_finite()) {
                    return Err(("float", format!("must be a smaller and a larger number, got {low} and {high}")));
                }
                if log && low <= 0.0 {
                    return Err(("float", format!("must begin above 0 if `log` is set, got {low}")));
                }
                Ok(Self::Float { low, high, log })
            }
            AxisSpec { int: None, float: None, choice: Some(choices), log: false } => choices_of(choices),
            AxisSpec { choice: Some(_), log: true, int: None, float: None } => {
                Err(("log", "belongs to `int` and `float`; leave it out".to_owned()))
            }
            _ => Err(("", "needs exactly one of `int`, `float` and `choice`".to_owned())),
        }
    }
}

fn choices_of(choices: Vec<Value>) -> Result<Axis, (&'static str, String)> {
    if !(2..=CHOICES_MAX).contains(&choices.len()) {
        return Err(("choice", format!("has from 2 to {CHOICES_MAX} values, got {}", choices.len())));
    }
    for (place, choice) in choices.iter().enumerate() {
        if choice.is_array() || choice.is_object() {
            return Err(("choice", format!("value {place} must be null, a boolean, a number or a text")));
        }
        if choices[..place].contains(choice) {
            return Err(("choice", format!("has {choice} twice")));
        }
    }
    Ok(Axis::Choice(choices))
}

impl From<Axis> for AxisSpec {
    fn from(axis: Axis) -> Self {
        match axis {
            Axis::Int { low, high, log } => Self { int: Some([low, high]), log, ..Self::default() },
            Axis::Float { low, high, log } => Self { float: Some([low, high]), log, ..Self::default() },
            Axis::Choice(choices) => Self { choice: Some(choices), ..Self::default() },
        }
    }
}

impl Axis {
    /// The ends of the axis in the scale of its positions. A whole number has the same room as its
    /// neighbours.
    fn ends(&self) -> (f64, f64) {
        match self {
            Self::Int { low, high, log } => {
                let (low, high) = (*low as f64 - 0.5, *high as f64 + 0.5);
                if *log { (low.ln(), high.ln()) } else { (low, high) }
            }
            Self::Float { low, high, log } => {
                if *log {
                    (low.ln(), high.ln())
                } else {
                    (*low, *high)
                }
            }
            Self::Choice(choices) => (0.0, choices.len() as f64),
        }
    }

    /// The value at a position from 0 to 1.
    fn value_at(&self, position: f64) -> Value {
        let (from, to) = self.ends();
        let at = from + position.clamp(0.0, 1.0) * (to - from);
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "limited to the ends, which are whole")]
            Self::Int { low, high, log } => {
                let value = if *log { at.exp() } else { at };
                Value::from((value.round() as i64).clamp(*low, *high))
            }
            Self::Float { low, high, log } => {
                let value = if *log { at.exp() } else { at };
                let value = rounded(value).clamp(*low, *high);
                Number::from_f64(value).map_or(Value::Null, Value::Number)
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to the last choice")]
            Self::Choice(choices) => choices[(at as usize).min(choices.len() - 1)].clone(),
        }
    }

    /// The position of a value; `None` if it is not on the axis.
    fn position_of(&self, value: &Value) -> Option<f64> {
        let (from, to) = self.ends();
        let at = match self {
            Self::Int { low, high, log } => {
                let value = value.as_i64().filter(|value| (low..=high).contains(&value))? as f64;
                if *log { value.ln() } else { value }
            }
            Self::Float { low, high, log } => {
                let value = value.as_f64().filter(|value| (low..=high).contains(&value))?;
                if *log { value.ln() } else { value }
            }
            Self::Choice(choices) => choices.iter().position(|choice| choice == value)? as f64 + 0.5,
        };
        Some(((at - from) / (to - from)).clamp(0.0, 1.0))
    }

    /// Number of values; `None` if they lie as close as numbers do.
    fn count(&self) -> Option<u64> {
        match self {
            Self::Int { low, high, .. } => high.abs_diff(*low).checked_add(1),
            Self::Float { .. } => None,
            Self::Choice(choices) => Some(choices.len() as u64),
        }
    }

    /// The value after this one, and the first after the last; `None` if there is none next to it.
    fn value_after(&self, value: &Value) -> Option<Value> {
        match self {
            Self::Int { low, high, .. } => {
                let value = value.as_i64()?;
                Some(if value < *high { value + 1 } else { *low }.into())
            }
            Self::Float { .. } => None,
            Self::Choice(choices) => {
                let place = choices.iter().position(|choice| choice == value)?;
                Some(choices[(place + 1) % choices.len()].clone())
            }
        }
    }

    /// The value with which the axis begins again.
    fn first(&self) -> Value {
        self.value_at(0.0)
    }

    /// Number of features of the axis for a Gaussian process.
    fn width(&self) -> usize {
        match self {
            Self::Int { .. } | Self::Float { .. } => 1,
            Self::Choice(choices) => choices.len(),
        }
    }
}

/// A number with [`DIGITS`] significant digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    // Through text: a product of powers of ten is not the decimal that it stands for.
    let digits = usize::try_from(DIGITS - 1).unwrap_or_default();
    format!("{value:.digits$e}").parse().unwrap_or(value)
}

impl Space {
    /// The axes in the order of their names.
    #[must_use]
    pub fn axes(&self) -> &[(String, Axis)] {
        &self.axes
    }

    /// The names of the settings.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().map(|(name, _)| name.as_str())
    }

    /// The values at a position.
    ///
    /// # Panics
    /// Unless the position has a number for every axis.
    #[must_use]
    pub fn params_at(&self, position: &[f64]) -> Params {
        assert_eq!(position.len(), self.axes.len(), "a number for every axis");
        self.axes.iter().zip(position).map(|((name, axis), at)| (name.clone(), axis.value_at(*at))).collect()
    }

    /// The position of values; `None` if a setting is missing or outside of the space.
    #[must_use]
    pub fn position_of(&self, params: &Params) -> Option<Vec<f64>> {
        self.axes.iter().map(|(name, axis)| axis.position_of(params.get(name)?)).collect()
    }

    /// Number of points; `None` if an axis has a range of numbers that are not whole, or beyond 64 bits.
    #[must_use]
    pub fn points(&self) -> Option<u64> {
        self.axes.iter().try_fold(1_u64, |points, (_, axis)| points.checked_mul(axis.count()?))
    }

    /// These values, or if they were tried the next ones in the order of the axes that were not, the last axis first. All
    /// may have been tried, and in a space without a number of points the values are taken as they are.
    pub(crate) fn untried(&self, mut params: Params, tried: &[&Params]) -> Params {
        if self.points().is_none() {
            return params;
        }
        // Each step meets another of those that were tried.
        for _ in 0..tried.len() {
            if !tried.contains(&&params) {
                break;
            }
            self.step(&mut params);
        }
        params
    }

    /// Takes the next value of the last axis; after its last value also that of the axis before, and so on.
    fn step(&self, params: &mut Params) {
        for (name, axis) in self.axes.iter().rev() {
            let next = params.get(name).and_then(|value| axis.value_after(value)).unwrap_or_else(|| axis.first());
            let begins_again = next == axis.first();
            params.insert(name.clone(), next);
            if !begins_again {
                break;
            }
        }
    }

    /// The position of the point that a position stands for, once its values are rounded.
    pub(crate) fn snapped(&self, position: &[f64]) -> Vec<f64> {
        let snap = |((_, axis), at): (&(String, Axis), &f64)| axis.position_of(&axis.value_at(*at)).unwrap_or(*at);
        self.axes.iter().zip(position).map(snap).collect()
    }

    /// The features of a snapped position for a Gaussian process: numbers as they are, choices one
    /// of many.
    pub(crate) fn features_of(&self, position: &[f64]) -> Vec<f64> {
        let mut features = Vec::with_capacity(self.axes.iter().map(|(_, axis)| axis.width()).sum());
        for ((_, axis), at) in self.axes.iter().zip(position) {
            match axis {
                Axis::Int { .. } | Axis::Float { .. } => features.push(*at),
                Axis::Choice(choices) => {
                    let count = choices.len() as f64;
                    features.extend((0..choices.len()).map(|place| {
                        let (from, to) = (place as f64 / count, (place + 1) as f64 / count);
                        f64::from(u8::from((from..to).contains(at)))
                    }));
                }
            }
        }
        features
    }
}
