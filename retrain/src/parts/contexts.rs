//! Contexts that are common in a training: those over which a version averages what a part is for an item
//! ([`celeris_features::parts`]).
//!
//! A version has nothing of single users. A context, reduced to the fields that the part reads, is therefore kept only if
//! several users had it. Where most contexts are of few users because numbers have many values, these are replaced by
//! means of ranges.

use std::collections::{BTreeMap, HashMap};

use celeris_features::{CONTEXTS_MAX, ContextShare};
use celeris_model::{Context, ContextValue};

/// Least number of users who had a context that is kept.
const USERS_MIN: usize = 5;

/// Maximum number of observations that are looked at, approximately. Of more, every n-th is.
const OBSERVED_MAX: usize = 1 << 18;

/// Least share of the observations whose contexts are kept as they are. With less, numbers are replaced.
const EXACT_SHARE_MIN: f64 = 0.9;

/// Number of ranges, equally full, that stand for the values of a number; a number of fewer values keeps them.
const RANGES: usize = 16;

/// The context of an observation.
pub(super) struct Observed<'a> {
    pub(super) user: u32,
    pub(super) weight: f32,
    pub(super) context: &'a Context,
}

/// The common contexts of observations by these fields, at most [`CONTEXTS_MAX`], with their shares. Of more, every n-th of
/// the weight is taken, in the order of the values.
pub(super) fn common(fields: &[String], observed: &[Observed<'_>]) -> Vec<ContextShare> {
    let step = observed.len().div_ceil(OBSERVED_MAX).max(1);
    let observed: Vec<&Observed<'_>> = observed.iter().step_by(step).collect();
    let total: f64 = observed.iter().map(|of| f64::from(of.weight)).sum();
    let exact = had_by_several(fields, &observed, &HashMap::new());
    if exact.iter().map(|had| had.weight).sum::<f64>() >= EXACT_SHARE_MIN * total {
        return shares(exact);
    }
    let ranges_of = |field: &String| {
        let number = |of: &&Observed<'_>| match of.context.get(field) {
            Some(ContextValue::Number(number)) => Some(*number),
            _ => None,
        };
        Ranges::of(observed.iter().filter_map(number).collect())
    };
    let ranges: HashMap<&str, Ranges> =
        fields.iter().filter_map(|field| Some((field.as_str(), ranges_of(field)?))).collect();
    shares(if ranges.is_empty() { exact } else { had_by_several(fields, &observed, &ranges) })
}

/// The contexts that several users had, reduced to the fields, with means of ranges in place of numbers that have some.
fn had_by_several(fields: &[String], observed: &[&Observed<'_>], ranges: &HashMap<&str, Ranges>) -> Vec<Had> {
    let mut by_value: BTreeMap<Vec<u8>, Had> = BTreeMap::new();
    for Observed { user, weight, context } in observed {
        let of_fields = fields.iter().filter_map(|field| {
            let value = match (context.get(field)?, ranges.get(field.as_str())) {
                (ContextValue::Number(number), Some(ranges)) => ContextValue::Number(ranges.mean(*number)),
                (value, _) => value.clone(),
            };
            Some((field.clone(), value))
        });
        // Part of a context is within its limits.
        let Ok(context) = Context::new(of_fields) else { continue };
        let had = by_value.entry(context.encode()).or_insert_with(|| Had { context, users: Vec::new(), weight: 0.0 });
        had.weight += f64::from(*weight);
        if had.users.len() < USERS_MIN && !had.users.contains(user) {
            had.users.push(*user);
        }
    }
    by_value.into_values().filter(|had| had.users.len() >= USERS_MIN).collect()
}

/// A context and who had it.
struct Had {
    context: Context,
    users: Vec<u32>,
    weight: f64,
}

#[expect(clippy::cast_possible_truncation, reason = "shares are held in f32; rounding to the nearest is meant")]
fn shares(common: Vec<Had>) -> Vec<ContextShare> {
    let total: f64 = common.iter().map(|had| had.weight).sum();
    // Systematic sampling: equal steps through the weights.
    let step = total / CONTEXTS_MAX as f64;
    let steps_to = |weight: f64| (weight / step + 0.5).floor();
    let is_sample = common.len() > CONTEXTS_MAX;
    let mut before = 0.0;
    let share = |Had { context, weight, .. }: Had| {
        let taken = if is_sample { (steps_to(before + weight) - steps_to(before)) * step } else { weight };
        before += weight;
        ContextShare { context, share: (taken / total) as f32 }
    };
    common.into_iter().map(share).filter(|of| of.share > 0.0).collect()
}

/// Ranges of the values of a number, equally full.
struct Ranges {
    /// The last value of each, ascending.
    ends: Vec<f64>,
    /// Without the lowest and the highest quarter of each: a value far away counts for nothing.
    means: Vec<f64>,
}

impl Ranges {
    /// `None` if there are few different values.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let different = values.chunk_by(|left, right| left == right).count();
        if different <= 2 * RANGES {
            return None;
        }
        let mut ranges = Self { ends: Vec::new(), means: Vec::new() };
        for range in values.chunks(values.len().div_ceil(RANGES)) {
            // Of a value that fills several ranges, the first has them.
            let end = range[range.len() - 1];
            if ranges.ends.last() != Some(&end) {
                ranges.ends.push(end);
                let middle = &range[range.len() / 4..range.len() - range.len() / 4];
                ranges.means.push(middle.iter().sum::<f64>() / middle.len() as f64);
            }
        }
        Some(ranges)
    }

    fn mean(&self, number: f64) -> f64 {
        let range = self.ends.partition_point(|end| *end < number);
        self.means[range.min(self.means.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use serde_json::{Value, json};

    /// The common contexts of observations of users 0, 1, … in turn, of which each has weight 1.
    fn common_of(users: u32, contexts: &[Value]) -> Vec<(Value, f32)> {
        let contexts: Vec<Context> =
            contexts.iter().map(|context| serde_json::from_value(context.clone()).unwrap()).collect();
        let observed: Vec<Observed<'_>> =
            (0..users).cycle().zip(&contexts).map(|(user, context)| Observed { user, weight: 1.0, context }).collect();
        let fields = ["device".to_owned(), "hour".to_owned()];
        let value = |of: ContextShare| (serde_json::to_value(of.context).unwrap(), of.share);
        common(&fields, &observed).into_iter().map(value).collect()
    }

    #[test]
    fn shares_are_those_of_the_fields_that_are_read() {
        let device = |k: usize| if k.is_multiple_of(4) { "phone" } else { "desktop" };
        let contexts: Vec<Value> = (0..80).map(|k| json!({"device": device(k), "session": k})).collect();
        assert_eq!(common_of(7, &contexts), [(json!({"device": "phone"}), 0.25), (json!({"device": "desktop"}), 0.75)]);
    }

    #[test]
    fn what_fewer_than_five_users_have_is_not_kept() {
        let contexts: Vec<Value> =
            (0..40).map(|k| json!({"device": if k % 8 < 4 { "own" } else { "usual" }})).collect();
        // Users 0 to 3 have the first, as often as the five others have the second.
        assert_eq!(common_of(8, &contexts), []);
        let contexts: Vec<Value> =
            (0..45).map(|k| json!({"device": if k % 9 < 4 { "own" } else { "usual" }})).collect();
        assert_eq!(common_of(9, &contexts), [(json!({"device": "usual"}), 1.0)]);
    }

    #[test]
    fn a_number_of_many_values_becomes_means_of_ranges() {
        let contexts: Vec<Value> = (0..1600).map(|k| json!({"hour": f64::from(k) + 0.5})).collect();
        let kept = common_of(50, &contexts);
        let expected: Vec<(Value, f32)> = (0..16).map(|range| (json!({"hour": 100 * range + 50}), 0.0625)).collect();
        let by_hour = |(of, _): &(Value, f32)| of["hour"].as_f64().unwrap();
        let mut sorted = kept;
        sorted.sort_by(|left, right| by_hour(left).total_cmp(&by_hour(right)));
        assert_eq!(sorted, expected);
    }

    #[test]
    fn a_code_keeps_its_values_and_an_outlier_counts_for_nothing() {
        let codes: Vec<Value> = (0..4000).map(|k| json!({"hour": k / 11 % 40})).collect();
        let kept = common_of(11, &codes);
        assert_eq!(kept.len(), 40);
        assert!(kept.iter().all(|(context, _)| context["hour"].as_f64().is_some_and(|code| code.fract() == 0.0)));
        let amounts: Vec<Value> =
            (0..1600).map(|k| json!({"hour": if k % 100 == 0 { 1e6 } else { f64::from(k % 97) / 9.7 }})).collect();
        let kept = common_of(50, &amounts);
        assert!(kept.iter().all(|(context, _)| context["hour"].as_f64().unwrap() < 10.0), "{kept:?}");
    }

    #[test]
    fn of_many_contexts_a_sample_has_the_same_shares() {
        let (devices, hours) = (50, 24);
        // The first device has half of the observations.
        let contexts: Vec<Value> = (0..devices * hours * 20)
            .map(|k| {
                let device = if k % 2 == 0 { 0 } else { k / 2 % devices };
                json!({"device": format!("d{device}"), "hour": k / 2 / devices % hours})
            })
            .collect();
        let kept = common_of(11, &contexts);
        assert!(kept.len() <= CONTEXTS_MAX && kept.len() > CONTEXTS_MAX / 2, "{}", kept.len());
        let total: f32 = kept.iter().map(|(_, share)| share).sum();
        let of_first: f32 = kept.iter().filter(|(of, _)| of["device"] == "d0").map(|(_, share)| share).sum();
        assert!((total - 1.0).abs() < 1e-6 && (of_first - 0.51).abs() < 0.02, "{total} {of_first}");
    }
}
