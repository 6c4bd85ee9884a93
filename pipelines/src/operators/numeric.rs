//! Operators over numbers.

use super::{ImputeOp, ScaleOp};
use crate::values::{Slot, View, bounded};

/// The number of edges that are not above the number; nothing for a missing one.
pub(super) fn bucketize(edges: &[f64], input: View, out: &mut Slot) {
    match input {
        View::Number(number) if !number.is_nan() => {
            out.set_category(edges.partition_point(|edge| *edge <= f64::from(number)) as u32);
        }
        _ => out.set_missing(),
    }
}

/// Sine and cosine of the position in the period; zeros for a missing number.
pub(super) fn cyclic(period: f64, input: View, out: &mut Slot) {
    let entries = out.dense();
    match input {
        View::Number(number) if !number.is_nan() => {
            let angle = std::f64::consts::TAU * (f64::from(number) / period).fract();
            entries.extend([angle.sin() as f32, angle.cos() as f32]);
        }
        _ => entries.extend([0.0, 0.0]),
    }
}

impl ScaleOp {
    /// The scaled value of a column.
    #[inline]
    pub fn apply(&self, column: usize, value: f32) -> f32 {
        let value = if value.is_nan() { self.moments.mean(column) } else { f64::from(value) };
        let scaled = self.moments.scaled(column, value);
        bounded(self.clamp.map_or(scaled, |clamp| scaled.clamp(-clamp, clamp)))
    }
}

pub(super) fn scale(scale: &ScaleOp, input: View, out: &mut Slot) {
    each_entry(input, out, |column, value| scale.apply(column, value));
}

pub(super) fn impute(impute: &ImputeOp, input: View, out: &mut Slot) {
    each_entry(input, out, |column, value| match impute {
        _ if !value.is_nan() => value,
        ImputeOp::Value(value) => *value,
        ImputeOp::Means(moments) => bounded(moments.mean(column)),
    });
}

/// Maps each entry to one of the same type.
fn each_entry(input: View, out: &mut Slot, map: impl Fn(usize, f32) -> f32) {
    match input {
        View::Number(number) => out.set_number(Some(map(0, number))),
        View::Dense(numbers) => {
            let mapped = numbers.iter().enumerate().map(|(column, number)| map(column, *number));
            out.dense().extend(mapped);
        }
        other => out.set(other),
    }
}

pub(super) fn presence(input: View, out: &mut Slot) {
    let there = match input {
        View::Missing => false,
        View::Number(number) => !number.is_nan(),
        View::Text(_) | View::Category(_) | View::Sums(_) => true,
        View::Texts(_, spans) => !spans.is_empty(),
        View::Dense(numbers) => !numbers.iter().all(|number| number.is_nan()),
        View::Sparse(columns, _) => !columns.is_empty(),
    };
    out.set_number(Some(f32::from(u8::from(there))));
}
