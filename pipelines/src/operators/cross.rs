//! Hashed combinations of features.

use hashbrown::HashTable;

use super::categorical::each_text;
use super::pairs::Pairs;
use super::{CrossPartOp, Inputs};
use crate::keys::{chain, column, key, mix};
use crate::limits::{COMBINATIONS_MAX, CROSS_FEATURES_MAX, CROSS_INPUTS_MAX};
use crate::values::{Slot, View, bounded};

/// Number of features whose sums a memo keeps; those of further ones are computed each time.
const MEMO_FEATURES_MAX: usize = 4096;

/// A feature of an input: the hash of its name, and its value.
type Feature = (u64, f32);

/// Buffers for the features of the inputs of a cross.
#[derive(Debug, Clone, Default)]
pub struct CrossScratch {
    features: [Vec<Feature>; CROSS_INPUTS_MAX],
    pub(super) pairs: Pairs,
}

/// For each feature `a` of one input of a cross, the sums over the features `b` of the other one of `value(b) weight(a,b)`.
/// While the other input stays the same, as the context does over the candidates of a request, they are computed once.
#[derive(Debug, Clone, Default)]
pub struct Memo {
    /// Which request the sums belong to.
    request: u64,
    /// Positions in `sums` by the hashes of features.
    positions: HashTable<(u64, u32)>,
    sums: Vec<f64>,
}

impl Memo {
    /// Forgets the sums of another request.
    pub fn begin(&mut self, request: u64) {
        if self.request != request {
            self.request = request;
            self.positions.clear();
            self.sums.clear();
        }
    }

    fn find(&self, hash: u64, outputs: usize) -> Option<&[f64]> {
        let (_, at) = self.positions.find(hash, |(of, _)| *of == hash)?;
        self.sums.get(*at as usize * outputs..)?.get(..outputs)
    }

    fn keep(&mut self, hash: u64, sums: &[f64]) {
        if self.positions.len() < MEMO_FEATURES_MAX {
            self.positions.insert_unique(hash, (hash, self.positions.len() as u32), |(of, _)| *of);
            self.sums.extend_from_slice(sums);
        }
    }
}

/// Collects the features of an input, at most [`CROSS_FEATURES_MAX`].
fn collect(input: View, features: &mut Vec<Feature>) {
    features.clear();
    let mut take = |hash: u64, value: f32| {
        if features.len() < CROSS_FEATURES_MAX && value != 0.0 && !value.is_nan() {
            features.push((hash, value));
        }
    };
    match input {
        View::Category(category) => take(mix(u64::from(category)), 1.0),
        View::Sparse(columns, values) => {
            columns.iter().zip(values).for_each(|(column, value)| take(mix(u64::from(*column)), *value));
        }
        texts => each_text(texts, |text| take(mix(key(text)), 1.0)),
    }
}

/// Calls `take` with the hash and the value of each combination, the last input varying fastest.
fn each_combination<I: Inputs + ?Sized>(inputs: &I, features: &mut [Vec<Feature>], mut take: impl FnMut(u64, f64)) {
    let features = &mut features[..inputs.count()];
    for (position, features) in features.iter_mut().enumerate() {
        collect(inputs.get(position), features);
    }
    let mut left = COMBINATIONS_MAX;
    combine(features, None, &mut |hash, value| {
        left = left.saturating_sub(1);
        take(hash, value);
        left > 0
    });
}

/// Combines what precedes with each feature of the next inputs; `take` returns whether to go on, as does this function.
fn combine(features: &[Vec<Feature>], before: Option<Feature64>, take: &mut dyn FnMut(u64, f64) -> bool) -> bool {
    let Some((next, rest)) = features.split_first() else {
        return before.is_none_or(|(hash, value)| take(hash, value));
    };
    next.iter().all(|(hash, value)| {
        let value = f64::from(*value);
        let joined = before.map_or((*hash, value), |(before, product)| (chain(before, *hash), product * value));
        combine(rest, Some(joined), take)
    })
}

type Feature64 = (u64, f64);

pub(super) fn cross<I: Inputs + ?Sized>(bits: u32, inputs: &I, scratch: &mut CrossScratch, out: &mut Slot) {
    let CrossScratch { features, pairs } = scratch;
    pairs.clear();
    each_combination(inputs, features, |hash, value| pairs.push(column(hash, bits), bounded(value)));
    let (columns, values) = out.sparse();
    pairs.merge_into(columns, values);
}

/// The sum of products of all combinations with their weights. That of two inputs is computed as the sum over the
/// features of the outer one of `value(a) sum_b value(b) weight(a,b)`, with the inner sums from the memo if there is one.
pub(super) fn cross_part<I: Inputs + ?Sized>(
    cross: &CrossPartOp,
    inputs: &I,
    scratch: &mut CrossScratch,
    memo: Option<&mut Memo>,
    out: &mut Slot,
) {
    let outputs = cross.part.weights.outputs();
    let sums = out.sums(outputs);
    if inputs.count() != 2 {
        return each_combination(inputs, &mut scratch.features, |hash, value| cross.add(hash, value, sums));
    }
    let [outer, inner, ..] = &mut scratch.features;
    collect(inputs.get(cross.outer), outer);
    inner.clear();
    let mut forgetful = Memo::default();
    let memo = memo.filter(|_| cross.shares_sums);
    let keeps = memo.is_some();
    let memo = memo.unwrap_or(&mut forgetful);
    for (hash, value) in outer.iter() {
        let mut own = [0.0; crate::limits::OUTPUTS_MAX];
        let own = &mut own[..outputs];
        if let Some(kept) = memo.find(*hash, outputs) {
            own.copy_from_slice(kept);
        } else {
            if inner.is_empty() {
                collect(inputs.get(1 - cross.outer), inner);
            }
            for (other, other_value) in inner.iter() {
                let joined = if cross.outer == 0 { chain(*hash, *other) } else { chain(*other, *hash) };
                cross.add(joined, f64::from(*other_value), own);
            }
            if keeps {
                memo.keep(*hash, own);
            }
        }
        sums.iter_mut().zip(own.iter()).for_each(|(sum, inner)| *sum += f64::from(*value) * inner);
    }
}

impl CrossPartOp {
    fn add(&self, hash: u64, value: f64, sums: &mut [f64]) {
        let outputs = sums.len();
        let column = (self.part.first + column(hash, self.bits)) as usize;
        let row = &self.part.weights.weights()[column * outputs..][..outputs];
        sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += f64::from(*weight) * value);
    }
}
