//! An upper bound of a score, given the codes.
//!
//! Let `v` be the weights with a 1 for the offset, `m` the columns' means, `r = step * c + e` a
//! row's residual with codes `c` and error `e`, and `v = t * q + d` the weights with entries `q`
//! and error `d`, over the coded columns. Then
//!
//! ```text
//! score = v·m + v·r = v·m + step * t * (q·c) + v·e + d·(step * c)
//!      <= v·m + step * t * (q·c) + |v| |e| + |d| |step * c|            (Cauchy-Schwarz, twice)
//! ```
//!
//! in real numbers, where `q·c` is a sum of integers and so exact. A score in `f32` differs from
//! the real one by at most `(dim + 2) * 2^-23 * |w 1| |f o|`, whatever the order of its sum
//! (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1), which is added,
//! as is a bound of the rounding errors of this computation in `f64`. A row is skipped only if the
//! bound is below the scores of `k` allowed rows. So rows with an equal score are never skipped,
//! and the result equals that of computing every score.

use celeris_kernel::codes::QUERY_MAX;

use super::codes::{BIAS, Block, Codes};

/// Bound of the relative rounding error of the bound's own computation: far more than `dim *
/// 2^-53`, far less than the error of the codes.
const LOST_IN_F64: f64 = 1e-11;

/// Bound of the error by underflow of products: many times the least positive `f32`.
const UNDERFLOW: f64 = 1e-35;

/// The greatest product of lengths for which no sum of `f32` overflows, with a margin.
const PRODUCT_MAX: f64 = 1e37;

/// Quantized weights of a scan.
#[derive(Debug)]
pub(crate) struct Query {
    /// Integers, padded with zeros to the codes' width.
    pub(super) entries: Vec<i8>,
    /// The value of an entry of 1: `t`.
    step: f64,
    /// `v·m` over all columns.
    base: f64,
    /// `|v|` over the coded columns.
    length: f64,
    /// `|d|`
    loss: f64,
    /// Contribution of the codes' bias to a sum of products.
    bias: f64,
    /// Bound of the rounding error of a score in `f32`, per unit of a row's length.
    rounding: f64,
    /// Bound of the errors by `f64` rounding and underflow, for any score.
    lost: f64,
}

impl Query {
    /// The query of `weights`; `None` if scores could overflow, for which the bound does not hold.
    pub(crate) fn new(codes: &Codes, weights: &[f32]) -> Option<Self> {
        let weight = |column: usize| weights.get(column).map_or(1.0, |weight| f64::from(*weight));
        let whole = (0..codes.centre.len()).map(|column| weight(column).powi(2)).sum::<f64>().sqrt();
        let product = whole * codes.length_max;
        if product.is_nan() || product >= PRODUCT_MAX {
            return None;
        }
        let base = codes.centre.iter().enumerate().map(|(column, mean)| weight(column) * f64::from(*mean)).sum();
        let coded = || codes.columns.iter().map(|column| weight(*column));
        let largest = coded().fold(0.0_f64, |largest, weight| largest.max(weight.abs()));
        let step = if largest > 0.0 { largest / f64::from(QUERY_MAX) } else { 1.0 };
        let rounded = |weight: f64| (weight / step).round().clamp(-f64::from(QUERY_MAX), f64::from(QUERY_MAX));
        let mut entries: Vec<i8> = coded().map(|weight| entry(rounded(weight))).collect();
        entries.resize(codes.width, 0);
        let above = 1.0 + LOST_IN_F64;
        Some(Self {
            step,
            base,
            length: coded().map(|weight| weight * weight).sum::<f64>().sqrt() * above,
            loss: coded().map(|weight| (weight - step * rounded(weight)).powi(2)).sum::<f64>().sqrt() * above,
            bias: f64::from(BIAS) * entries.iter().map(|entry| f64::from(*entry)).sum::<f64>(),
            rounding: (weights.len() + 2) as f64 * f64::from(f32::EPSILON) * whole,
            lost: LOST_IN_F64 * whole * codes.length_max + UNDERFLOW,
            entries,
        })
    }

    /// An upper bound of the scores in this block and all later ones.
    pub(super) fn reach(&self, block: &Block) -> f64 {
        self.base + self.length * block.residual + self.rounding * block.length + self.lost
    }

    /// The least sum of products of entries and codes, including the bias, of a row of the block
    /// whose score may be at least `floor`.
    pub(super) fn least(&self, block: &Block, floor: f64) -> i32 {
        let slack = self.length * block.loss + self.loss * block.coded + self.rounding * block.length + self.lost;
        // Rounded down once more, for the rounding of the quotient itself.
        let least = ((floor - self.base - slack) / (block.step * self.step)).floor() - 1.0;
        saturated(least + self.bias)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a whole number of magnitude 63 at most")]
fn entry(rounded: f64) -> i8 {
    rounded as i8
}

#[expect(clippy::cast_possible_truncation, reason = "values beyond all sums saturate")]
fn saturated(least: f64) -> i32 {
    least as i32
}
