//! The prior of the weights of computed columns.
//!
//! The weights of a user are those of the factors, whose prior is fitted, and independent ones of the columns, `N(m_j, t_j)`.
//! `m` starts at the common effect: the regression on the columns of what the trained factors leave unexplained. Then both
//! are fitted by the marginal likelihood of users' ratings ([`super::marginal`]), together with the mean weight of the
//! constant: under logistic loss, a column with mean zero moves the mean of the probabilities.
//!
//! Under squared loss the noise is what the columns leave of that of the factors, which was measured on held-out labels: in
//! the proportion of the expected squared errors given a user's ratings, whose fixed point is expectation maximisation's.

use celeris_model::linear::{cholesky, symmetric_eigen};
use celeris_model::{Example, Learning, Loss, ModelError, Prior, UserModel};
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;

use super::columns::Columns;
use super::extended_prior;
use super::marginal::Marginal;
use crate::error::RetrainError;
use crate::prior_fit::CONDITION_TARGET;
use crate::ratings::{Rating, Ratings};
use crate::trained::Trained;

/// Maximum number of users whose posteriors are computed.
const USERS_MAX: usize = 2048;

/// Number of steps of the marginal likelihood.
const ITERATIONS: usize = 8;

/// Users per partial sum; fixed, so that sums do not depend on the number of threads.
const CHUNK_USERS: usize = 64;

/// Number of Newton steps of the common effect under logistic loss.
const STEPS: usize = 8;

/// Ridge of the common effect, in units of standardised squares: as strong as this many ratings.
const RIDGE: f64 = 1.0;

/// The smallest variance of a weight, relative to the mean variance of the factors' weights: users differ a little in
/// everything.
const VARIANCE_SHARE_MIN: f64 = 1e-3;

/// The smallest noise variance, relative to that of the factors alone: columns that tell the labels leave none.
const NOISE_SHARE_MIN: f64 = 1e-3;

/// What the prior is fitted to.
pub(super) struct Fitting<'a> {
    /// The training without the columns.
    pub(super) trained: &'a Trained,
    pub(super) loss: Loss,
    pub(super) ratings: &'a Ratings,
    /// Positions of the ratings that `columns` are of.
    pub(super) chosen: &'a [usize],
    pub(super) columns: Columns,
}

/// The fitted prior of all weights.
pub(super) struct Weights {
    pub(super) prior: Prior,
    means: Vec<f64>,
}

impl Weights {
    /// The mean weights of the columns.
    #[expect(clippy::cast_possible_truncation, reason = "weights are held in f32; rounding to the nearest is meant")]
    pub(super) fn mean(&self) -> Vec<f32> {
        self.means.iter().map(|mean| *mean as f32).collect()
    }
}

/// A user's ratings, as places among the chosen ones.
type OfUser = Vec<usize>;

impl Fitting<'_> {
    fn rating(&self, place: usize) -> &Rating {
        &self.ratings.list()[self.chosen[place]]
    }

    pub(super) fn weights(&self) -> Result<Weights, RetrainError> {
        let mut prior = self.trained.prior.clone();
        let users = self.users();
        // The noise of other losses is given by the loss.
        let error_before = if self.loss == Loss::Squared { self.error_without_columns(&users)? } else { 0.0 };
        let typical = self.typical_variance();
        // The last mean is that of the constant.
        let mut means = self.common_effect()?;
        let width = means.len();
        let constant = prior.mean()[prior.dim() - 1];
        let centers = [&vec![0.0; width], &[constant][..]].concat();
        means.push(constant);
        let mut variances = vec![typical; width];
        let precisions = |prior: &Prior, variances: &[f64]| {
            let wanted = variances.iter().map(|variance| prior.noise_variance() / variance);
            Ok::<_, RetrainError>(Conditioning::of(prior)?.bounded(wanted))
        };
        for _ in 0..ITERATIONS {
            let noise = prior.noise_variance();
            let precisions = precisions(&prior, &variances)?;
            let learning = Learning::new(extended_prior(&prior, &means, &precisions)?, self.loss, None);
            // Those that the bounds allow.
            variances = precisions.iter().map(|precision| noise / precision).collect();
            let marginal = self.marginal(&users, &learning)?;
            means = marginal.next_means(&means, &centers, RIDGE / noise)?;
            variances = marginal.next_variances(&variances, VARIANCE_SHARE_MIN * typical)?;
            if error_before > 0.0 {
                let share = self.expected_error(&users, &learning, |place| self.features(place))? / error_before;
                prior = with_noise(&self.trained.prior, share.clamp(NOISE_SHARE_MIN, 1.0))?;
            }
        }
        let prior = extended_prior(&prior, &means, &precisions(&prior, &variances)?)?;
        means.truncate(width);
        Ok(Weights { prior, means })
    }

    /// Ratings of some users, each in the order of the log.
    fn users(&self) -> Vec<OfUser> {
        let mut by_user: Vec<OfUser> = vec![Vec::new(); self.ratings.users()];
        (0..self.chosen.len()).for_each(|place| by_user[self.rating(place).user as usize].push(place));
        by_user.retain(|places| !places.is_empty());
        let stride = by_user.len().div_ceil(USERS_MAX).max(1);
        by_user.into_iter().step_by(stride).collect()
    }

    /// The mean variance of the weights of the factors, or of the constant's if there are none.
    fn typical_variance(&self) -> f64 {
        let prior = &self.trained.prior;
        let dim = prior.dim();
        let diagonal: Vec<f64> = (0..dim).map(|j| prior.noise_variance() * prior.inverse()[j * dim + j]).collect();
        let of_factors = &diagonal[..dim - 1];
        if of_factors.is_empty() { diagonal[0] } else { of_factors.iter().sum::<f64>() / of_factors.len() as f64 }
    }

    /// The weights that are the same for all users: a regression on the columns, given the scores of the factors.
    fn common_effect(&self) -> Result<Vec<f64>, RetrainError> {
        let width = self.columns.width();
        let scores: Vec<f64> = (0..self.chosen.len()).map(|place| self.score_of_factors(place)).collect();
        let mut effect = DVector::zeros(width);
        let steps = if self.loss == Loss::Logistic { STEPS } else { 1 };
        for _ in 0..steps {
            let mut gram = DMatrix::identity(width, width) * RIDGE;
            let mut gradient = -RIDGE * &effect;
            for (place, score) in scores.iter().enumerate() {
                let rating = self.rating(place);
                let row = DVector::from_iterator(width, self.columns.of(place).iter().map(|value| f64::from(*value)));
                let score = score + effect.dot(&row);
                let expected = f64::from(self.loss.expected_label(score as f32));
                let curvature = if self.loss == Loss::Logistic { expected * (1.0 - expected) } else { 1.0 };
                let weight = f64::from(rating.weight);
                gradient.axpy(weight * (self.loss.outcome(rating.label) - expected), &row, 1.0);
                gram.ger(weight * curvature, &row, &row, 1.0);
            }
            let not_definite = ModelError::NotPositiveDefinite { what: "the squares of the computed columns" };
            effect += cholesky(gram.as_slice(), width).ok_or(not_definite)?.solve(&gradient);
        }
        Ok(effect.iter().copied().collect())
    }

    /// The score by the trainer's own weights.
    fn score_of_factors(&self, place: usize) -> f64 {
        let rating = self.rating(place);
        let example = self.trained.example(rating);
        let weights = self.trained.own_weights(rating.user);
        f64::from(example.offset) + f64::from(celeris_model::linear::dot(weights, example.features))
    }

    /// The features of a rating with its columns.
    fn features(&self, place: usize) -> Vec<f32> {
        let factors = self.trained.example(self.rating(place)).features;
        let latent = factors.len() - 1;
        [&factors[..latent], self.columns.of(place), &factors[latent..]].concat()
    }

    /// The marginal likelihood of users' ratings under this prior, by the means of the weights of the columns and of the
    /// constant.
    fn marginal(&self, users: &[OfUser], learning: &Learning) -> Result<Marginal, RetrainError> {
        let (width, dim, latent) = (self.columns.width(), learning.dim(), self.trained.dim - 1);
        let (prior, noise) = (learning.prior(), learning.noise_variance());
        let fitted = DMatrix::from_fn(width + 1, dim, |j, k| prior.precision()[(latent + j) * dim + k] / noise);
        let own = fitted.columns(latent, width + 1);
        let of_user = |marginal: &mut Marginal, places: &OfUser| {
            let rows: Vec<Vec<f32>> = places.iter().map(|place| self.features(*place)).collect();
            let history = self.history(places, &rows);
            let model = UserModel::rebuild(learning, history.as_slice(), history.len() as u64)?;
            let (weights, gram_inverse) = (model.weights(), model.gram_inverse());
            let deviations = DVector::from_fn(dim, |j, _| weights[j] - prior.mean()[j]);
            let covariance = DMatrix::from_row_slice(dim, dim, &gram_inverse) * noise;
            marginal.add(&(&fitted * deviations), &(own - &fitted * covariance * fitted.transpose()));
            Ok::<(), ModelError>(())
        };
        let of_chunk = |users: &[OfUser]| {
            let mut marginal = Marginal::new(width + 1, width);
            users.iter().try_for_each(|places| of_user(&mut marginal, places))?;
            Ok::<Marginal, ModelError>(marginal)
        };
        // In the order of the users, whatever the number of threads.
        let chunks: Vec<Marginal> = users.par_chunks(CHUNK_USERS).map(of_chunk).collect::<Result<_, ModelError>>()?;
        Ok(chunks.into_iter().fold(Marginal::new(width + 1, width), Marginal::plus))
    }

    /// [`Fitting::expected_error`] of the factors alone.
    fn error_without_columns(&self, users: &[OfUser]) -> Result<f64, RetrainError> {
        let learning = Learning::new(self.trained.prior.clone(), self.loss, None);
        self.expected_error(users, &learning, |place| self.features_of_factors(place))
    }

    /// The mean squared error of the scores that is expected given all ratings of each user.
    fn expected_error(
        &self,
        users: &[OfUser],
        learning: &Learning,
        features: impl Fn(usize) -> Vec<f32> + Sync,
    ) -> Result<f64, RetrainError> {
        let of_user = |places: &OfUser| {
            let rows: Vec<Vec<f32>> = places.iter().map(|place| features(*place)).collect();
            let history = self.history(places, &rows);
            let model = UserModel::rebuild(learning, history.as_slice(), history.len() as u64)?;
            let (mut sum, mut count) = (0.0, 0.0);
            for example in &history {
                let estimate = model.estimate(learning, example.offset, example.features);
                let error = f64::from(example.label) - f64::from(estimate.score);
                sum += f64::from(example.weight) * (error.powi(2) + f64::from(estimate.std_error).powi(2));
                count += f64::from(example.weight);
            }
            Ok((sum, count))
        };
        mean_over(users, of_user)
    }

    fn features_of_factors(&self, place: usize) -> Vec<f32> {
        self.trained.example(self.rating(place)).features.to_vec()
    }

    fn history<'r>(&self, places: &OfUser, rows: &'r [Vec<f32>]) -> Vec<Example<'r>> {
        let example = |(place, row): (&usize, &'r Vec<f32>)| {
            let rating = self.rating(*place);
            let Example { label, offset, weight, timestamp, taken_before, .. } = self.trained.example(rating);
            Example { features: row, label, offset, weight, timestamp, taken_before, choice: &[] }
        };
        places.iter().zip(rows).map(example).collect()
    }

    /// Mean losses of predictions that were made from the user's earlier ratings, with the columns and without. The factors
    /// know these ratings, so that only their difference has a meaning.
    pub(super) fn figures(&self, weights: &Weights) -> Result<[(&'static str, f64); 2], RetrainError> {
        let users = self.users();
        let with = Learning::new(weights.prior.clone(), self.loss, None);
        let without = Learning::new(self.trained.prior.clone(), self.loss, None);
        Ok([
            ("sequential_loss", self.sequential_loss(&users, &with, |place| self.features(place))?),
            (
                "sequential_loss_without_parts",
                self.sequential_loss(&users, &without, |place| self.features_of_factors(place))?,
            ),
        ])
    }

    fn sequential_loss(
        &self,
        users: &[OfUser],
        learning: &Learning,
        features: impl Fn(usize) -> Vec<f32> + Sync,
    ) -> Result<f64, RetrainError> {
        let of_user = |places: &OfUser| {
            let rows: Vec<Vec<f32>> = places.iter().map(|place| features(*place)).collect();
            let history = self.history(places, &rows);
            let mut model = UserModel::from_prior(learning)?;
            let mut sum = 0.0;
            for example in &history {
                let score = model.estimate(learning, example.offset, example.features).score;
                sum += self.loss.prediction_loss(self.loss.expected_label(score), example.label);
                model.absorb(learning, history.as_slice())?;
            }
            Ok((sum, history.len() as f64))
        };
        mean_over(users, of_user)
    }
}

/// The mean of what all users have, given the sum and the count of each; 0 if there is nothing. In the order of the users,
/// whatever the number of threads.
fn mean_over(
    users: &[OfUser],
    of_user: impl Fn(&OfUser) -> Result<(f64, f64), ModelError> + Sync,
) -> Result<f64, RetrainError> {
    let sums: Vec<(f64, f64)> = users.par_iter().map(&of_user).collect::<Result<_, _>>()?;
    let (sum, count) = sums.iter().fold((0.0, 0.0), |(sum, count), (of, number)| (sum + of, count + number));
    Ok(if count > 0.0 { sum / count } else { 0.0 })
}

/// A prior of the same weights with this share of its noise.
fn with_noise(prior: &Prior, share: f64) -> Result<Prior, ModelError> {
    let precision = prior.precision().iter().map(|precision| precision * share).collect();
    let narrowed = Prior::new(prior.mean().to_vec(), precision, prior.noise_variance() * share)?;
    Ok(narrowed.with_recent_bias(prior.recent_bias()))
}

/// Which precisions of the weights of columns leave the prior well conditioned.
struct Conditioning {
    /// The smallest and the largest eigenvalue of the precision of the factors' weights.
    factors: (f64, f64),
}

impl Conditioning {
    fn of(prior: &Prior) -> Result<Self, RetrainError> {
        let dim = prior.dim();
        let eigen = symmetric_eigen(DMatrix::from_row_slice(dim, dim, prior.precision()));
        let not_definite = ModelError::NotPositiveDefinite { what: "the precision of the prior" };
        let values = eigen.ok_or(not_definite)?.eigenvalues;
        Ok(Self { factors: (values.min(), values.max()) })
    }

    /// The nearest precisions that do: columns in which users do not differ get a weaker prior than fitted.
    fn bounded(&self, precisions: impl Iterator<Item = f64>) -> Vec<f64> {
        let (least, most) = self.factors;
        let mut bounded: Vec<f64> = precisions.map(|precision| precision.max(most / CONDITION_TARGET)).collect();
        let smallest = bounded.iter().fold(least, |smallest, precision| smallest.min(*precision));
        bounded.iter_mut().for_each(|precision| *precision = precision.min(smallest * CONDITION_TARGET));
        bounded
    }
}
