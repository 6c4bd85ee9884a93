//! The items' half of a sweep: latent factors and biases.

use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;

use super::ridge::{Normal, solve_dual};
use super::{Als, BIAS_SHARE, CHUNK_ROWS, START_EVIDENCE, write_row};
use crate::ratings::Entry;

/// An item's latent factors, then its bias.
struct ItemPosterior {
    mean: DVector<f64>,
    variances: Vec<f64>,
}

/// One item's row of every table that the sweep writes.
struct ItemRow<'a> {
    features: &'a mut [f32],
    factor_variances: &'a mut [f32],
    bias: &'a mut f32,
    bias_variance: &'a mut f32,
}

impl Als {
    pub(super) fn solve_items(&mut self) {
        let (dim, latent) = (self.shape.dim(), self.shape.latent);
        let mut features = std::mem::take(&mut self.features);
        let mut factor_variances = std::mem::take(&mut self.factor_variances);
        let mut biases = std::mem::take(&mut self.biases);
        let mut bias_variances = std::mem::take(&mut self.bias_variances);
        let this = &*self;
        // Without latent factors their variances have no entries, and so no chunks to go along with the others.
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
        let sums: Vec<(f64, f64)> = rows
            .par_chunks_mut(CHUNK_ROWS)
            .enumerate()
            .map(|(chunk, rows)| {
                let mut normal = Normal::new(latent + 1);
                let items = rows.iter_mut().enumerate();
                items.fold((0.0, 0.0), |(count, square), (row, item)| {
                    let entries = this.by_item.row(chunk * CHUNK_ROWS + row);
                    this.solve_item(entries, item, &mut normal).map_or((count, square), |b| (count + 1.0, square + b))
                })
            })
            .collect();
        (self.features, self.factor_variances) = (features, factor_variances);
        (self.biases, self.bias_variances) = (biases, bias_variances);
        let (count, square) = sums.iter().fold((0.0, 0.0), |sum, chunk| (sum.0 + chunk.0, sum.1 + chunk.1));
        self.bias_variance = (square + START_EVIDENCE * BIAS_SHARE * self.label_variance) / (count + START_EVIDENCE);
    }

    /// Writes one item's posterior and returns the expected square of its bias; an item without ratings is zero.
    fn solve_item(&self, entries: &[Entry], item: &mut ItemRow, normal: &mut Normal) -> Option<f64> {
        let latent = self.shape.latent;
        if entries.is_empty() {
            item.features[..latent].fill(0.0);
            return None;
        }
        let posterior = self.item_posterior(entries, &item.features[latent..self.shape.dim() - 1], normal);
        let (bias, variance) = (posterior.mean[latent], posterior.variances[latent]);
        write_row(&mut item.features[..latent], posterior.mean.iter().copied());
        write_row(item.factor_variances, posterior.variances);
        write_row(std::slice::from_mut(item.bias), [bias]);
        write_row(std::slice::from_mut(item.bias_variance), [variance]);
        Some(bias * bias + variance)
    }

    fn item_posterior(&self, entries: &[Entry], traits: &[f32], normal: &mut Normal) -> ItemPosterior {
        let latent = self.shape.latent;
        let mut diagonal = vec![self.noise_variance; latent + 1];
        diagonal[latent] = self.noise_variance / self.bias_variance;
        for entry in entries {
            let variances = self.user_row(&self.weight_variances, entry.other);
            let charged = self.regularization * f64::from(entry.weight);
            for (d, variance) in diagonal[..latent].iter_mut().zip(variances) {
                *d += charged * f64::from(*variance);
            }
        }
        let regressors =
            |entry: &Entry| self.user_row(&self.weights, entry.other)[..latent].iter().copied().chain([1.0]);
        let (mean, variances) = if entries.len() <= latent {
            let root = |k: usize| f64::from(entries[k].weight).sqrt();
            let columns = entries.iter().flat_map(|entry| {
                let root = f64::from(entry.weight).sqrt();
                regressors(entry).map(move |w| root * f64::from(w))
            });
            let columns = DMatrix::from_iterator(latent + 1, entries.len(), columns);
            let targets = DVector::from_fn(entries.len(), |k, _| root(k) * self.item_target(&entries[k], traits));
            solve_dual(&columns, &targets, &diagonal)
        } else {
            let (mean, inverse) = normal.solve_row(|normal| {
                normal.begin_diagonal(&diagonal);
                for entry in entries {
                    normal.add(regressors(entry), self.item_target(entry, traits), entry.weight.sqrt());
                }
            });
            (DVector::from_column_slice(mean), inverse.iter().step_by(latent + 2).copied().collect())
        };
        ItemPosterior { mean, variances: variances.iter().map(|v| v * self.noise_variance).collect() }
    }

    /// What is left of a label for the item's own factors and bias to explain.
    fn item_target(&self, entry: &Entry, traits: &[f32]) -> f64 {
        let weights = &self.user_row(&self.weights, entry.other)[self.shape.latent..];
        let known = traits.iter().chain([&1.0]);
        let expected: f64 = weights.iter().zip(known).map(|(w, g)| f64::from(*w) * f64::from(*g)).sum();
        f64::from(entry.label) - self.mean - expected
    }
}
