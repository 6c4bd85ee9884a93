//! Fits the map from attributes of users to prior means (`celeris_features::user_map`) at the end of a training.
//!
//! The weights of a user are `w0 + p + q + d`: the mean of all users, what the user's choices say, what the attributes
//! say, and a deviation `d` that is distributed as under the prior. `q = M a` is linear in the encoded attributes `a`. `M` is
//! fitted to the posteriors of the trained users by expectation and maximisation: under the present `M`, the served posterior
//! expects `q + d = w' - w0 - p + A^-1 Lambda q`; a ridge regression of that on the attributes is the next `M`. A user of
//! whom labels say little expects what `M` says already, so users weigh as much as is known of them.
//!
//! The ridge is the one with the lowest error of the scores of held-out users who are new, while no label of theirs is known and
//! after the first few. The map is kept only if it lowers this error by more than the standard error of the difference.

mod described;
mod evaluation;
mod regression;

use std::collections::{BTreeMap, HashMap};

use celeris_features::{AttributeEncoder, UserMap};
use celeris_model::{Example, Learning, Loss, ModelError, UserModel, linear};
use nalgebra::DMatrix;
use rayon::prelude::*;
use serde_json::{Map, Value};

pub(crate) use self::described::DescribedUsers;
use self::evaluation::{HeldOutUser, Stages, error_of, helps, rmse_of};
use self::regression::{Columns, Design, Solution};
use crate::ratings::{Entry, Rating, Ratings, Rows};
use crate::trained::Trained;

/// Minimum number of users for a useful fit.
const USERS_MIN: usize = 50;

/// Maximum number of users of the fit, and of the choice of the ridge.
const USERS_MAX: usize = 20_000;
const EVALUATED_MAX: usize = 4_096;

/// Maximum size of the users' covariances, which are in memory together.
const COVARIANCE_BYTES_MAX: usize = 256 << 20;

/// Fields that fewer users have say something of these alone, and are no part of a version.
const FIELD_USERS_MIN: usize = 5;

/// Number of folds of the cross-validation.
const FOLDS: usize = 4;

/// Iterations of a fit. What remains after them is of users with few labels, and small.
const ITERATIONS: usize = 12;

/// Ridges are powers of the square root of ten; the first search starts at the given exponent, and all descend.
const RIDGE_EXPONENTS: std::ops::RangeInclusive<i32> = -2..=8;
const RIDGE_EXPONENT_START: i32 = 2;

/// Input of a fit.
#[derive(Debug, Clone, Copy)]
pub struct UserMapInput<'a> {
    /// The training whose users are explained.
    pub trained: &'a Trained,
    pub loss: Loss,
    /// The ratings that it was trained on.
    pub ratings: &'a Ratings,
    /// Attributes of each user, if known; one entry per user.
    pub attributes: &'a [Option<Map<String, Value>>],
    /// The ridge chosen by an earlier training, at which the search begins.
    pub ridge: Option<f64>,
}

/// A fitted map and its quality.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedUserMap {
    /// `None` if it does not help.
    pub map: Option<UserMap>,
    /// Number of users in the fit.
    pub users: usize,
    pub ridge: f64,
    /// RMSE of the scores of held-out users of whom no label is known: without a map, and with it.
    pub rmse_of_new: [f64; 2],
    /// The same after the first few labels.
    pub rmse_after_few: [f64; 2],
}

impl FittedUserMap {
    /// Its metrics by name, for a version's manifest.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<String, f64> {
        let figures = [
            ("user_map_users", self.users as f64),
            ("user_map_ridge", self.ridge),
            ("user_map_rmse", self.rmse_of_new[1]),
            ("user_map_rmse_without", self.rmse_of_new[0]),
            ("user_map_rmse_after_five", self.rmse_after_few[1]),
            ("user_map_rmse_after_five_without", self.rmse_after_few[0]),
        ];
        figures
            .into_iter()
            .filter(|(_, value)| value.is_finite())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// A user of the fit.
struct Known {
    columns: Columns,
    /// The deviation `w' - w0 - p` of the weights without attributes, length `dim`.
    deviation: Vec<f64>,
    /// `A^-1`, row-major `dim x dim`.
    gram_inverse: Vec<f32>,
    /// The user's number in the ratings.
    user: usize,
}

/// Fits a map. Returns `None` if too few of the trained users have attributes, or under a loss whose posterior is not
/// linear in the labels.
///
/// The result does not depend on the number of threads of the pool that it is called in.
#[must_use]
pub fn fit_user_map(input: &UserMapInput) -> Option<FittedUserMap> {
    if input.loss != Loss::Squared {
        return None;
    }
    let described = described(input);
    if described.len() < USERS_MIN {
        return None;
    }
    let (encoder, rows) = encoded(input, &described);
    let rated = Rows::by_user(input.ratings);
    // The recent bias says nothing of who a user is.
    let learning = Learning::from(input.trained.prior.clone().with_recent_bias(None));
    let prior = &input.trained.prior;
    let precision = DMatrix::from_row_slice(prior.dim(), prior.dim(), prior.precision());
    let newcomer = UserModel::from_prior(&learning).ok()?;
    let fit = Fit { input, rated: &rated, learning: &learning, precision, newcomer };
    let known: Option<Vec<Known>> =
        described.into_par_iter().zip(rows).map(|(user, columns)| fit.known(user, columns)).collect();
    let known: Vec<Known> = known?.into_iter().filter(|known| !known.columns.is_empty()).collect();
    if known.len() < USERS_MIN {
        return None;
    }
    let width = encoder.width();
    let stride = known.len().div_ceil(EVALUATED_MAX);
    let evaluated: Vec<&Known> = known.iter().step_by(stride).collect();
    let chosen = fit.choose(&evaluated, width)?;
    let mut map = None;
    if helps(&chosen.stages) {
        let all: Vec<&Known> = known.iter().collect();
        let solution = fit.solve(&all, (width, chosen.ridge))?;
        let numbers = (rounded(solution.intercept.as_slice()), rounded(solution.coefficients.as_slice()));
        // Column-major `dim x width` is row-major `width x dim`.
        map = UserMap::new(encoder, numbers, chosen.ridge).inspect_err(no_map).ok();
    }
    let rmse_of_new = rmse_of(&chosen.stages, |user| user.new);
    let rmse_after_few = rmse_of(&chosen.stages, |user| user.few);
    Some(FittedUserMap { map, users: known.len(), ridge: chosen.ridge, rmse_of_new, rmse_after_few })
}

/// The exponent that is nearest to that of a ridge above 0.
#[expect(clippy::cast_possible_truncation, reason = "it is within the range")]
fn exponent_of(ridge: f64) -> i32 {
    let (least, most) = (f64::from(*RIDGE_EXPONENTS.start()), f64::from(*RIDGE_EXPONENTS.end()));
    (2.0 * ridge.log10()).round().clamp(least, most) as i32
}

fn no_map(error: &ModelError) {
    tracing::warn!(%error, "the version has no map from attributes of users");
}

fn rounded(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

/// The users to fit to: those with attributes and ratings, evenly chosen if there are too many.
fn described(input: &UserMapInput) -> Vec<usize> {
    let mut rated = vec![false; input.ratings.users()];
    for rating in input.ratings.list() {
        rated[rating.user as usize] = true;
    }
    let is_described = |user: &usize| input.attributes[*user].as_ref().is_some_and(|attributes| !attributes.is_empty());
    let users: Vec<usize> = (0..rated.len()).filter(|user| rated[*user]).filter(is_described).collect();
    let dim = input.trained.dim;
    let max = (COVARIANCE_BYTES_MAX / (dim * dim * size_of::<f32>())).clamp(USERS_MIN, USERS_MAX);
    let stride = users.len().div_ceil(max).max(1);
    users.into_iter().step_by(stride).collect()
}

/// The encoder of these users' attributes, and a row for each.
fn encoded(input: &UserMapInput, users: &[usize]) -> (AttributeEncoder, Vec<Columns>) {
    let attributes = |user: &usize| input.attributes[*user].as_ref().expect("a user without is not chosen");
    let mut users_of: HashMap<&str, usize> = HashMap::new();
    for (field, value) in users.iter().flat_map(attributes) {
        if !value.is_null() {
            *users_of.entry(field).or_default() += 1;
        }
    }
    let is_common =
        |(field, _): &(&String, &Value)| users_of.get(field.as_str()).is_some_and(|users| *users >= FIELD_USERS_MIN);
    let common = |user: &usize| -> Map<String, Value> {
        attributes(user).iter().filter(is_common).map(|(field, value)| (field.clone(), value.clone())).collect()
    };
    let common: Vec<Map<String, Value>> = users.iter().map(common).collect();
    let encoder = AttributeEncoder::learn(&common);
    let rows = common.par_iter().map(|attributes| encoder.encode(attributes)).collect();
    (encoder, rows)
}

/// A fit and what it is fitted to.
struct Fit<'a> {
    input: &'a UserMapInput<'a>,
    rated: &'a Rows,
    learning: &'a Learning,
    /// `Lambda`.
    precision: DMatrix<f64>,
    /// The state of a user of whom nothing is known.
    newcomer: UserModel,
}

/// A ridge, and the errors of new users under it.
struct Tried {
    ridge: f64,
    stages: Vec<Stages>,
}

impl Fit<'_> {
    fn dim(&self) -> usize {
        self.input.trained.dim
    }

    fn example(&self, entry: &Entry) -> Example<'_> {
        let Entry { other, label, weight } = *entry;
        self.input.trained.example(&Rating { user: 0, item: other, label, weight })
    }

    fn state(&self, entries: &[Entry]) -> Option<UserModel> {
        if entries.is_empty() {
            return Some(self.newcomer.clone());
        }
        let history: Vec<Example> = entries.iter().map(|entry| self.example(entry)).collect();
        UserModel::rebuild(self.learning, history.as_slice(), history.len() as u64).inspect_err(no_map).ok()
    }

    fn known(&self, user: usize, columns: Columns) -> Option<Known> {
        let entries = self.rated.row(user);
        let state = self.state(entries)?;
        let mean = self.learning.prior().mean();
        let chosen = self.chosen(entries);
        let weights = state.weights().into_iter();
        let deviation = weights.zip(mean).zip(&chosen).map(|((weight, mean), p)| weight - mean - p).collect();
        Some(Known { columns, deviation, gram_inverse: rounded(&state.gram_inverse()), user })
    }

    /// `p`, by which the choices of a user move the prior mean.
    fn chosen(&self, entries: &[Entry]) -> Vec<f64> {
        let (dim, choices) = (self.dim(), &self.input.trained.choices);
        let mut sum = vec![0.0; dim];
        if choices.is_empty() || entries.is_empty() {
            return sum;
        }
        let scale = (entries.len() as f64).sqrt().recip();
        for entry in entries {
            for (sum, y) in sum.iter_mut().zip(&choices[entry.other as usize * dim..]) {
                *sum += scale * f64::from(*y);
            }
        }
        sum
    }

    /// The map fitted to these users.
    fn solve(&self, users: &[&Known], (width, ridge): (usize, f64)) -> Option<Solution> {
        let design = Design::of(users.iter().map(|known| &known.columns).collect(), width, ridge)?;
        let mut solution = Solution::zero(self.dim(), width);
        for _ in 0..ITERATIONS {
            let pulls = solution.times(&self.precision);
            let expected = |known: &&Known| {
                let pull = rounded(&pulls.targets(&known.columns));
                let rows = known.gram_inverse.chunks_exact(self.dim());
                let moved = rows.map(|row| f64::from(linear::dot(row, &pull)));
                known.deviation.iter().zip(moved).map(|(deviation, moved)| deviation + moved).collect()
            };
            let targets: Vec<Vec<f64>> = users.par_iter().map(expected).collect();
            solution = design.solve(&targets, self.dim());
        }
        let is_finite = solution.intercept.iter().chain(&solution.coefficients).all(|entry| entry.is_finite());
        is_finite.then_some(solution)
    }

    /// The errors of held-out users under a ridge.
    fn stages(&self, users: &[&Known], settings: (usize, f64)) -> Option<Vec<Stages>> {
        let mut stages: Vec<Stages> = Vec::with_capacity(users.len());
        for fold in 0..FOLDS {
            // Users are numbered in the order of their first observation, so interleaved folds are similar.
            let is_held = |(at, _): &(usize, &&Known)| at % FOLDS == fold;
            let (held, rest): (Vec<_>, Vec<_>) = users.iter().enumerate().partition(is_held);
            let rest: Vec<&Known> = rest.into_iter().map(|(_, known)| *known).collect();
            let pulls = self.solve(&rest, settings)?.times(&self.precision);
            let held_out = |(_, user): &(usize, &&Known)| {
                let pull = rounded(&pulls.targets(&user.columns)).into();
                HeldOutUser { fit: self, entries: self.rated.row(user.user), pull }.stages()
            };
            let of_fold: Option<Vec<Stages>> = held.par_iter().map(held_out).collect();
            stages.extend(of_fold?);
        }
        Some(stages)
    }

    /// The best ridge by descent from the start, since the error first falls and then rises with the ridge.
    fn choose(&self, users: &[&Known], width: usize) -> Option<Tried> {
        let evaluate = |exponent: i32| {
            let ridge = 10_f64.powf(f64::from(exponent) / 2.0);
            Some(Tried { ridge, stages: self.stages(users, (width, ridge))? })
        };
        let error = |tried: &Tried| error_of(&tried.stages);
        let start = self.input.ridge.map_or(RIDGE_EXPONENT_START, exponent_of);
        let mut best = evaluate(start)?;
        for direction in [1, -1] {
            let mut exponent = start + direction;
            while RIDGE_EXPONENTS.contains(&exponent) {
                let tried = evaluate(exponent)?;
                if error(&tried) >= error(&best) {
                    break;
                }
                best = tried;
                exponent += direction;
            }
            if exponent != start + direction {
                break;
            }
        }
        Some(best)
    }
}

#[cfg(test)]
mod tests;
