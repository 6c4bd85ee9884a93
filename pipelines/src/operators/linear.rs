//! Linear models, whole and in parts.

use super::{Inputs, LinearOp, PartOp, ScaleOp};
use crate::objects::Weights;
use crate::spec::Link;
use crate::values::{Slot, View, bounded};

/// Beyond this argument `exp` exceeds every bound.
const EXPONENT_MAX: f64 = 80.0;

pub(super) fn linear(linear: &LinearOp, input: View, out: &mut Slot) {
    let outputs = linear.weights.outputs();
    let mut own = [0.0; crate::limits::OUTPUTS_MAX];
    add_products(&linear.weights, 0, input, None, &mut own[..outputs]);
    finish(linear, &own[..outputs], out.dense());
}

pub(super) fn part(part: &PartOp, input: View, out: &mut Slot) {
    part.add(input, out.sums(part.weights.outputs()));
}

impl PartOp {
    /// Adds the products of the entries of a value, in ascending order of its columns.
    pub fn add(&self, input: View, sums: &mut [f64]) {
        add_products(&self.weights, self.first, input, self.scale.as_ref(), sums);
    }
}

/// Adds the products of the entries of a value, in ascending order of its columns.
fn add_products(weights: &Weights, first: u32, input: View, scale: Option<&ScaleOp>, sums: &mut [f64]) {
    let outputs = weights.outputs();
    let rows = &weights.weights()[first as usize * outputs..];
    let mut add = |column: usize, value: f32| {
        let value = scale.map_or(value, |scale| scale.apply(column, value));
        if !value.is_nan() {
            let row = &rows[column * outputs..(column + 1) * outputs];
            sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += f64::from(*weight) * f64::from(value));
        }
    };
    match input {
        View::Number(number) => add(0, number),
        View::Dense(numbers) => numbers.iter().enumerate().for_each(|(column, number)| add(column, *number)),
        View::Sparse(columns, numbers) => {
            columns.iter().zip(numbers).for_each(|(column, number)| add(*column as usize, *number));
        }
        View::Category(category) => add(category as usize, 1.0),
        _ => {}
    }
}

/// Calls that give columns.
pub trait EachColumn {
    fn each(self, take: impl FnMut(u32));
}

/// Writes the sums of the weights of columns, each as often as it is given.
#[inline]
pub fn add_part(part: &PartOp, out: &mut Slot, columns: impl EachColumn) {
    let outputs = part.weights.outputs();
    let rows = &part.weights.weights()[part.first as usize * outputs..];
    let sums = out.sums(outputs);
    if let [sum] = sums {
        let mut own = 0.0;
        columns.each(|column| own += f64::from(rows[column as usize]));
        *sum = own;
        return;
    }
    columns.each(|column| {
        let row = &rows[column as usize * outputs..][..outputs];
        sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += f64::from(*weight));
    });
}

/// Adds up several sums, in the order of the inputs.
pub(super) fn total<I: Inputs + ?Sized>(inputs: &I, out: &mut Slot) {
    let outputs = match inputs.get(0) {
        View::Sums(first) => first.len(),
        _ => 0,
    };
    let sums = out.sums(outputs);
    for position in 0..inputs.count() {
        if let View::Sums(part) = inputs.get(position) {
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
    }
}

pub(super) fn finish_sums(linear: &LinearOp, input: View, out: &mut Slot) {
    if let View::Sums(sums) = input {
        finish(linear, sums, out.dense());
    }
}

/// Appends the outputs: bias and sum under the link.
pub fn finish(linear: &LinearOp, sums: &[f64], out: &mut Vec<f32>) {
    out.extend(linear.weights.bias().iter().zip(sums).map(|(bias, sum)| link(linear.link, f64::from(*bias) + sum)));
}

/// The value of a link function.
#[must_use]
pub fn link(link: Link, sum: f64) -> f32 {
    bounded(match link {
        Link::Identity => sum,
        Link::Logistic => 1.0 / (1.0 + (-sum).exp()),
        Link::Exp => sum.min(EXPONENT_MAX).exp(),
    })
}
