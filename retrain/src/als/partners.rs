//! What who has rated what says, whatever the labels.
//!
//! Who has rated an item says something about the item before any label does, and what a user has rated about the user. Prior
//! means therefore depend on the partners of a row (the implicit factors of Koren, KDD 2008, eq. 15, as the mean of a
//! Gaussian prior):
//!
//! - The *audience* of an item: the prior mean of its factors and bias is not zero, but `n_i^-1/2 sum_u z_u` over the `n_i`
//!   users who have rated it, with one vector `z_u` for each user.
//! - The *choices* of a user: the prior mean of the weights is not `w0`, but `w0 + n_u^-1/2 sum_j y_j` over the `n_u`
//!   items, with one choice vector `y_j` for each item.
//!
//! The vectors have a prior of their own, `N(0, rho)` times the prior covariance of what they move. Given the rows, they are a
//! ridge regression, the same for each coordinate, of which every iteration makes one sweep over the partners (Gauss and
//! Seidel).
//!
//! The vectors of users end with the training: an item's features contain what they say, and a version has nothing of
//! its users. The choice vectors of items are part of a version, whose states are shifted by them
//! ([`celeris_model::Example::choice`]).

use super::{Als, write_row};
use crate::ratings::Rows;

/// `rho` for the vectors of users and of items. Measured on ml-latest-small, where the error of a split is lowest
/// there, and rises by less than one percent for a third and for three times of them.
pub(super) const AUDIENCE_VARIANCE: f64 = 0.3;
const CHOICE_VARIANCE: f64 = 0.5;

/// Iterations that fit the vectors of users to the factors of an earlier training.
const SWEEPS_OF_RESUMED: usize = 5;

/// Vectors of partners, and what they add up to for the rows of the other side.
#[derive(Debug, Clone)]
pub(super) struct PartnerVectors {
    /// Number of entries of a vector.
    width: usize,
    /// `rho`.
    variance: f64,
    /// Row-major `partners x width`.
    pub(super) vectors: Vec<f32>,
    /// Row-major `rows x width`: what is added to the prior means of the rows.
    shifts: Vec<f32>,
}

impl PartnerVectors {
    /// Those of users, before the first iteration: all shifts are zero.
    pub(super) fn audience(users: usize, items: usize, latent: usize) -> Self {
        Self::unknown(AUDIENCE_VARIANCE, latent + 1, (users, items))
    }

    /// Those of items, before the first iteration.
    pub(super) fn choices(users: usize, items: usize, dim: usize) -> Self {
        Self::unknown(CHOICE_VARIANCE, dim, (items, users))
    }

    fn unknown(variance: f64, width: usize, (partners, rows): (usize, usize)) -> Self {
        Self { width, variance, vectors: vec![0.0; partners * width], shifts: vec![0.0; rows * width] }
    }

    /// What is added to the prior mean of a row.
    pub(super) fn shift_of(&self, row: usize) -> &[f32] {
        &self.shifts[row * self.width..][..self.width]
    }

    /// Sets the shifts to what the vectors add up to.
    pub(super) fn add_up(&mut self, by_row: &Rows) {
        for (row, shift) in self.shifts.chunks_exact_mut(self.width).enumerate() {
            let entries = by_row.row(row);
            let scale = scale_of(entries.len());
            shift.fill(0.0);
            for entry in entries {
                for (sum, z) in shift.iter_mut().zip(&self.vectors[entry.other as usize * self.width..]) {
                    *sum += scale * z;
                }
            }
        }
    }

    /// Goes once over the partners. `rest` are the rows less their prior means, and stays so.
    pub(super) fn sweep(&mut self, rest: &mut [f32], (by_partner, by_row): (&Rows, &Rows)) {
        let width = self.width;
        let scales: Vec<f32> = (0..rest.len() / width).map(|row| scale_of(by_row.row(row).len())).collect();
        let (mut moment, mut change) = (vec![0.0; width], vec![0.0; width]);
        // How often a partner and a row have met; zero between two partners.
        let mut met = vec![0.0_f64; scales.len()];
        for (partner, vector) in self.vectors.chunks_exact_mut(width).enumerate() {
            let entries = by_partner.row(partner);
            if entries.is_empty() {
                continue;
            }
            moment.fill(0.0);
            entries.iter().for_each(|entry| met[entry.other as usize] += 1.0);
            let mut square = 0.0;
            for entry in entries {
                let scale = scales[entry.other as usize];
                square += f64::from(scale).powi(2) * met[entry.other as usize];
                for (sum, rest) in moment.iter_mut().zip(&rest[entry.other as usize * width..][..width]) {
                    *sum += f64::from(scale * rest);
                }
            }
            entries.iter().for_each(|entry| met[entry.other as usize] = 0.0);
            let before = vector.to_vec();
            let solved = moment.iter().zip(&before).map(|(moment, z)| moment + square * f64::from(*z));
            write_row(vector, solved.map(|moment| moment / (square + self.variance.recip())));
            for ((change, after), before) in change.iter_mut().zip(&*vector).zip(&before) {
                *change = after - before;
            }
            for entry in entries {
                let (row, scale) = (entry.other as usize, scales[entry.other as usize]);
                let rows = rest[row * width..][..width].iter_mut().zip(&mut self.shifts[row * width..][..width]);
                for ((rest, shift), change) in rows.zip(&change) {
                    *rest -= scale * change;
                    *shift += scale * change;
                }
            }
        }
    }
}

/// The factor of each of `count` vectors in a shift.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^24, or rounded without harm")]
fn scale_of(count: usize) -> f32 {
    (count.max(1) as f32).sqrt().recip()
}

impl Als {
    /// One sweep over the choice vectors, given the users' weights.
    pub(super) fn solve_choices(&mut self) {
        let Some(choices) = &mut self.choices else { return };
        let dim = self.shape.dim();
        let mut mean = vec![0.0; dim];
        write_row(&mut mean, self.weight_mean.iter().copied());
        let rows = self.weights.chunks_exact(dim).zip(choices.shifts.chunks_exact(dim));
        let mut rest: Vec<f32> = rows
            .flat_map(|(row, shift)| row.iter().zip(shift).zip(&mean).map(|((w, shift), mean)| w - shift - mean))
            .collect();
        choices.sweep(&mut rest, (&self.by_item, &self.by_user));
    }

    /// One sweep over the vectors of users, given factors and biases.
    pub(super) fn solve_audience(&mut self) {
        self.sweep_audience(1);
    }

    /// Fits the vectors of users to factors and biases that are not those of this fit.
    pub(super) fn resume_audience(&mut self) {
        self.sweep_audience(SWEEPS_OF_RESUMED);
    }

    fn sweep_audience(&mut self, sweeps: usize) {
        let Some(audience) = &mut self.audience else { return };
        let (dim, latent) = (self.shape.dim(), self.shape.latent);
        let rows = self.features.chunks_exact(dim).zip(&self.biases).zip(audience.shifts.chunks_exact(latent + 1));
        let mut rest: Vec<f32> = rows
            .flat_map(|((row, bias), shift)| row[..latent].iter().chain([bias]).zip(shift).map(|(x, shift)| x - shift))
            .collect();
        for _ in 0..sweeps {
            audience.sweep(&mut rest, (&self.by_user, &self.by_item));
        }
    }
}
