//! Weighting, norms and concatenation of vectors.

use super::{ConcatOp, Inputs, TfIdfOp};
use crate::spec::Norm;
use crate::values::{Slot, View, bounded};

pub(super) fn tf_idf(weighting: &TfIdfOp, input: View, out: &mut Slot) {
    let View::Sparse(columns, counts) = input else { return out.set(input) };
    let (own_columns, values) = out.sparse();
    own_columns.extend_from_slice(columns);
    values.extend_from_slice(counts);
    weight_counts(weighting, columns, values);
}

/// Replaces counts by their weighted values.
pub fn weight_counts(weighting: &TfIdfOp, columns: &[u32], values: &mut [f32]) {
    let idf = weighting.idf.values();
    for (column, value) in columns.iter().zip(values.iter_mut()) {
        let count = f64::from(*value);
        let frequency = if weighting.sublinear && count > 0.0 { 1.0 + count.ln() } else { count };
        *value = bounded(frequency * f64::from(idf[*column as usize]));
    }
    if let Some(norm) = weighting.norm {
        normalize(norm, values);
    }
}

pub(super) fn normalized(norm: Norm, input: View, out: &mut Slot) {
    match input {
        View::Dense(numbers) => {
            let values = out.dense();
            values.extend(numbers.iter().map(|number| if number.is_nan() { 0.0 } else { *number }));
            normalize(norm, values);
        }
        View::Sparse(columns, numbers) => {
            let (own_columns, values) = out.sparse();
            own_columns.extend_from_slice(columns);
            values.extend(numbers.iter().map(|number| if number.is_nan() { 0.0 } else { *number }));
            normalize(norm, values);
        }
        other => out.set(other),
    }
}

/// Divides by a norm, which is 0 for a zero vector only, which stays as it is.
pub fn normalize(norm: Norm, values: &mut [f32]) {
    let magnitudes = values.iter().map(|value| f64::from(value.abs()));
    let length = match norm {
        Norm::L1 => magnitudes.sum(),
        Norm::L2 => magnitudes.map(|value| value * value).sum::<f64>().sqrt(),
        Norm::Max => magnitudes.fold(0.0, f64::max),
    };
    if length > 0.0 {
        values.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
}

/// Writes all columns, one input after the other. A category is a column of 1.
pub(super) fn concat<I: Inputs + ?Sized>(concat: &ConcatOp, inputs: &I, out: &mut Slot) {
    if concat.sparse {
        let (columns, values) = out.sparse();
        for (position, begin) in concat.begins.iter().enumerate() {
            let mut push = |column: u32, value: f32| {
                if value != 0.0 {
                    columns.push(begin + column);
                    values.push(value);
                }
            };
            match inputs.get(position) {
                View::Number(number) => push(0, number),
                View::Dense(numbers) => (0..).zip(numbers).for_each(|(column, number)| push(column, *number)),
                View::Sparse(of, numbers) => of.iter().zip(numbers).for_each(|(column, number)| push(*column, *number)),
                View::Category(category) => push(category, 1.0),
                _ => {}
            }
        }
        return;
    }
    let values = out.dense();
    values.resize(concat.columns as usize, 0.0);
    for (position, begin) in concat.begins.iter().enumerate() {
        let own = &mut values[*begin as usize..];
        match inputs.get(position) {
            View::Number(number) => own[0] = number,
            View::Dense(numbers) => own[..numbers.len()].copy_from_slice(numbers),
            View::Category(category) => own[category as usize] = 1.0,
            _ => {}
        }
    }
}
