//! The items' half of an iteration: latent factors, biases, and the noise variance.

use celeris_model::ModelError;
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;

use super::ridge::{Normal, Solved, VarianceSums, solve_dual};
use super::{Als, BIAS_SHARE, CHUNK_ROWS, NOISE_SHARE_MIN, START_EVIDENCE, write_row};
use crate::ratings::Entry;

/// Regression of an item's latent factors, followed by its bias: `(D + R^T R) z = q + R^T t`.
struct Fit {
    /// `z`.
    mean: Vec<f64>,
    /// The diagonal of the inverse.
    inverse: Vec<f64>,
    /// The diagonal of `R^T R`.
    squares: Vec<f64>,
    /// `z·R^T t`.
    explained: f64,
    /// `z·q`.
    expected: f64,
    targets: Targets,
}

/// Weighted sums over an item's ratings.
#[derive(Clone, Copy, Default)]
struct Targets {
    weight: f64,
    /// Weighted sum of `t^2`.
    square: f64,
}

impl Targets {
    fn add(&mut self, target: f64, weight: f32) {
        self.weight += f64::from(weight);
        self.square += f64::from(weight) * target * target;
    }
}

/// One item's row of every table that the iteration writes.
struct ItemRow<'a> {
    features: &'a mut [f32],
    factor_variances: &'a mut [f32],
    bias: &'a mut f32,
    bias_variance: &'a mut f32,
}

/// Expected squared residuals under the posteriors of both sides.
#[derive(Clone, Copy, Default)]
struct Residuals {
    /// Sum of the ratings' weights.
    weight: f64,
    square: f64,
}

/// Sums over the items of a chunk.
#[derive(Clone, Copy, Default)]
struct ItemSums {
    rated: f64,
    bias_square: f64,
    residuals: Residuals,
}

impl ItemSums {
    fn plus(self, other: Self) -> Self {
        Self {
            rated: self.rated + other.rated,
            bias_square: self.bias_square + other.bias_square,
            residuals: Residuals {
                weight: self.residuals.weight + other.residuals.weight,
                square: self.residuals.square + other.residuals.square,
            },
        }
    }
}

/// Buffers reused for all items.
struct Scratch {
    normal: Normal,
    /// Sums of the variances of the users' weights, for all coordinates.
    posterior_variance: VarianceSums,
    /// `D`.
    ridge: Vec<f64>,
    /// `q`.
    pull: Vec<f64>,
}

impl Als {
    /// Solves all items.
    ///
    /// # Errors
    /// [`ModelError`] on overflow.
    pub(super) fn solve_items(&mut self) -> Result<(), ModelError> {
        let (dim, latent) = (self.shape.dim(), self.shape.latent);
        let mut features = std::mem::take(&mut self.features);
        let mut factor_variances = std::mem::take(&mut self.factor_variances);
        let mut biases = std::mem::take(&mut self.biases);
        let mut bias_variances = std::mem::take(&mut self.bias_variances);
        let this = &*self;
        // Without latent factors the table of variances is empty, so it cannot be chunked along
        // with the others.
        let mut rest = factor_variances.as_mut_slice();
        let mut rows: Vec<ItemRow> = features
            .chunks_exact_mut(dim)
            .zip(&mut biases)
            .zip(&mut bias_variances)
            .map(|((features, bias), bias_variance)| {
                let (factor_variances, tail) = std::mem::take(&mut rest).split_at_mut(latent);
                rest = tail;
                ItemRow { features, factor_variances, bias, bias_variance }
            })
            .collect();
        let sums: Result<Vec<ItemSums>, ModelError> = rows
            .par_chunks_mut(CHUNK_ROWS)
            .enumerate()
            .map(|(chunk, rows)| {
                let mut scratch = Scratch {
                    normal: Normal::new(latent + 1),
                    posterior_variance: VarianceSums::new(dim),
                    ridge: vec![0.0; latent + 1],
                    pull: vec![0.0; latent + 1],
                };
                rows.iter_mut().enumerate().try_fold(ItemSums::default(), |sum, (row, item)| {
                    let entries = this.by_item.row(chunk * CHUNK_ROWS + row);
                    let means =
                        this.audience.as_ref().map_or(&[][..], |audience| audience.shift_of(chunk * CHUNK_ROWS + row));
                    this.set_pull(&mut scratch.pull, means);
                    Ok(sum.plus(this.solve_item(entries, item, &mut scratch)?))
                })
            })
            .collect();
        (self.features, self.factor_variances) = (features, factor_variances);
        (self.biases, self.bias_variances) = (biases, bias_variances);
        let sum = sums?.into_iter().fold(ItemSums::default(), ItemSums::plus);
        let started = START_EVIDENCE * BIAS_SHARE * self.label_variance;
        self.bias_variance = (sum.bias_square + started) / (sum.rated + START_EVIDENCE);
        let Residuals { weight, square } = sum.residuals;
        self.noise_variance = (square / weight).max(NOISE_SHARE_MIN * self.label_variance);
        Ok(())
    }

    /// Writes one item's posterior. An item without ratings gets zeros and adds nothing to the
    /// sums.
    fn solve_item(&self, entries: &[Entry], item: &mut ItemRow, scratch: &mut Scratch) -> Result<ItemSums, ModelError> {
        let latent = self.shape.latent;
        if entries.is_empty() {
            item.features[..latent].fill(0.0);
            return Ok(ItemSums::default());
        }
        // Side features and the constant.
        let known = &item.features[latent..];
        let fit = if entries.len() > latent {
            self.fit_many(entries, known, scratch)?
        } else {
            self.fit_few(entries, known, scratch)?
        };
        let variances: Vec<f64> = fit.inverse.iter().map(|entry| entry * self.noise_variance).collect();
        let residuals = fit.residuals(known, &variances, scratch);
        let (bias, variance) = (fit.mean[latent], variances[latent]);
        let deviation = bias - self.bias_variance / self.noise_variance * scratch.pull[latent];
        write_row(&mut item.features[..latent], fit.mean);
        write_row(item.factor_variances, variances);
        write_row(std::slice::from_mut(item.bias), [bias]);
        write_row(std::slice::from_mut(item.bias_variance), [variance]);
        Ok(ItemSums { rated: 1.0, bias_square: deviation * deviation + variance, residuals })
    }

    /// Regression of an item with more ratings than latent factors.
    fn fit_many(&self, entries: &[Entry], known: &[f32], scratch: &mut Scratch) -> Result<Fit, ModelError> {
        let Scratch { normal, posterior_variance, ridge, pull } = scratch;
        let latent = self.shape.latent;
        let mut targets = Targets::default();
        let Solved { solution, moment, diagonal, inverse } = normal.solve_row(|normal| {
            // Called a second time if `f32` was not accurate enough.
            targets = Targets::default();
            posterior_variance.begin();
            normal.begin_from_nothing();
            let dim = self.shape.dim();
            for entry in Self::fetching(entries, [(&self.weights, dim), (&self.weight_variances, dim)]) {
                let (weights, target) = self.seen_by(entry, known);
                normal.add((weights, &[1.0]), target, entry.weight.sqrt());
                posterior_variance.add(self.user_row(&self.weight_variances, entry.other), entry.weight);
                targets.add(target, entry.weight);
            }
            self.set_ridge(ridge, posterior_variance.finish());
            normal.add_ridge(ridge.iter().copied());
            normal.add_moment(pull);
        })?;
        let expected = product(solution, pull);
        Ok(Fit {
            mean: solution.to_vec(),
            inverse: inverse.iter().step_by(latent + 2).copied().collect(),
            squares: diagonal.iter().zip(&*ridge).map(|(sum, ridge)| sum - ridge).collect(),
            explained: product(solution, moment) - expected,
            expected,
            targets,
        })
    }

    /// Regression of an item with at most as many ratings as latent factors.
    fn fit_few(&self, entries: &[Entry], known: &[f32], scratch: &mut Scratch) -> Result<Fit, ModelError> {
        let Scratch { posterior_variance, ridge, pull, .. } = scratch;
        let (mut targets, mut roots_of_targets) = (Targets::default(), Vec::with_capacity(entries.len()));
        let mut columns = Vec::with_capacity(entries.len() * ridge.len());
        posterior_variance.begin();
        for entry in entries {
            let (weights, target) = self.seen_by(entry, known);
            let root = f64::from(entry.weight).sqrt();
            columns.extend(weights.iter().chain(&[1.0]).map(|w| root * f64::from(*w)));
            roots_of_targets.push(root * target);
            posterior_variance.add(self.user_row(&self.weight_variances, entry.other), entry.weight);
            targets.add(target, entry.weight);
        }
        self.set_ridge(ridge, posterior_variance.finish());
        let columns = DMatrix::from_vec(ridge.len(), entries.len(), columns);
        let weighed = DVector::from_vec(roots_of_targets);
        // The solution without ratings, and how these change it.
        let prior = DVector::from_iterator(ridge.len(), pull.iter().zip(&*ridge).map(|(pull, ridge)| pull / ridge));
        let (change, inverse) = solve_dual(&columns, &(&weighed - columns.tr_mul(&prior)), ridge)?;
        let mean = prior + change;
        Ok(Fit {
            explained: mean.dot(&(&columns * &weighed)),
            squares: columns.row_iter().map(|row| row.norm_squared()).collect(),
            expected: product(mean.as_slice(), pull),
            mean: mean.as_slice().to_vec(),
            inverse,
            targets,
        })
    }

    /// Sets the prior's part of the regression's moment, for these prior means of factors and bias; none are zeros.
    fn set_pull(&self, pull: &mut [f64], means: &[f32]) {
        let latent = self.shape.latent;
        for (pull, mean) in pull.iter_mut().zip(means) {
            *pull = self.noise_variance * f64::from(*mean);
        }
        pull[latent] /= self.bias_variance;
    }

    /// Sets the ridge of the regression: the priors of factors and bias, plus the posterior
    /// variance of the users' weights.
    fn set_ridge(&self, ridge: &mut [f64], posterior_variances: &[f64]) {
        let latent = self.shape.latent;
        for (ridge, posterior_variance) in ridge.iter_mut().zip(posterior_variances) {
            *ridge = self.noise_variance + self.regularization * posterior_variance;
        }
        ridge[latent] = self.noise_variance / self.bias_variance;
    }

    /// The user's latent weights, and the residual of the label for the item's factors and bias to
    /// explain.
    fn seen_by(&self, entry: &Entry, known: &[f32]) -> (&[f32], f64) {
        let (latent, others) = self.user_row(&self.weights, entry.other).split_at(self.shape.latent);
        let expected: f32 = others.iter().zip(known).map(|(w, g)| w * g).sum();
        (latent, f64::from(entry.label) - self.mean - f64::from(expected))
    }
}

fn product(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

impl Fit {
    /// Expected squared residuals, from sums that the regression has already computed.
    ///
    /// With `(D + R^T R) z = q + R^T t`, the squares of `t - R z` add up to `t·t - z·R^T t + z·q - z·D z`.
    /// The variance of `w·x + b` is `sum v_w x^2 + sum v_x (w^2 + v_w) + v_b`.
    fn residuals(&self, known: &[f32], variances: &[f64], scratch: &mut Scratch) -> Residuals {
        let latent = self.mean.len() - 1;
        let Targets { weight, square } = self.targets;
        let penalty: f64 = self.mean.iter().zip(&scratch.ridge).map(|(z, ridge)| z * z * ridge).sum();
        let posterior_variances = scratch.posterior_variance.finish();
        let features = self.mean[..latent].iter().copied().chain(known.iter().map(|x| f64::from(*x)));
        let of_weights: f64 =
            features.zip(posterior_variances).map(|(x, posterior_variance)| x * x * posterior_variance).sum();
        let spread = self.squares[..latent]
            .iter()
            .zip(posterior_variances)
            .map(|(square, posterior_variance)| square + posterior_variance);
        let of_factors: f64 = spread.zip(variances).map(|(spread, variance)| spread * variance).sum();
        let fitted = (square - self.explained + self.expected - penalty).max(0.0);
        Residuals { weight, square: fitted + of_weights + of_factors + weight * variances[latent] }
    }
}
