//! Fits the map from attributes to features (`celeris_features::cold_map`) at the end of every
//! training.
//!
//! A ridge regression of `[f_1 … f_(dim-1), offset]` on the encoded attributes of the trained
//! items, weighted by the certainty of their features. The ridge is chosen by cross-validation over
//! items: it minimises the squared error of scores by mapped features, averaged over the trained
//! users. The residuals of the held-out items' features give the residual covariance of the map.
//! Items with few observations get a low weight, since their features are shrunk to the average,
//! and the map would be too.

mod sums;

use std::collections::BTreeMap;

use celeris_features::{ColdMap, ColdMapParts};
use celeris_pipelines::AttributeEncoder;
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;
use serde_json::{Map, Value};

use self::sums::{Row, Solution, Sums};
use crate::trained::Trained;

/// Minimum number of items for a useful fit.
const ITEMS_MIN: usize = 20;

/// Maximum number of items, the most observed ones: enough to fit some hundred columns.
const ITEMS_MAX: usize = 100_000;

/// Number of folds of the cross-validation.
const FOLDS: usize = 5;

/// Number of observations at which an item has half of the maximum weight. Measured on
/// ml-latest-small: RMSE on left-out items 0.910 with 10, 0.897 with 100, 0.897 with 300.
const HALF_KNOWN: f64 = 100.0;

/// Ridges are powers of the square root of ten; the search starts at the given exponent and
/// descends.
const RIDGE_EXPONENTS: std::ops::RangeInclusive<i32> = -2..=8;
const RIDGE_EXPONENT_START: i32 = 1;

/// Maximum number of users whose weights are used to convert errors of features to errors of
/// scores.
const USERS_MAX: usize = 10_000;

/// Rows of residuals per matrix product.
const RESIDUALS_AT_ONCE: usize = 256;

/// Input of a fit.
#[derive(Debug, Clone, Copy)]
pub struct ColdMapInput<'a> {
    /// The training that provides the targets.
    pub trained: &'a Trained,
    /// Number of observations per item; 0 for items beyond its end.
    pub observed: &'a [u32],
    /// Attributes of each item, if known; one entry per item.
    pub attributes: &'a [Option<Map<String, Value>>],
    /// The ridge chosen by an earlier training; chosen by cross-validation if `None`.
    pub ridge: Option<f64>,
}

/// A fitted map and its quality.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedColdMap {
    pub map: ColdMap,
    /// Number of items in the fit.
    pub items: usize,
    /// Variance of a score that mapped features leave unexplained, averaged over users, for
    /// held-out items.
    pub score_variance: f64,
    /// The same with the average item's features in place of mapped ones.
    pub score_variance_of_average: f64,
}

impl FittedColdMap {
    /// Its metrics by name, for a version's manifest.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<String, f64> {
        let figures = [
            ("cold_map_items", self.items as f64),
            ("cold_map_ridge", self.map.ridge()),
            ("cold_map_score_variance", self.score_variance),
            ("cold_map_score_variance_of_average", self.score_variance_of_average),
        ];
        figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Fits a map. Returns `None` if too few of the trained items have attributes, or their features
/// are not finite.
///
/// The result does not depend on the number of threads of the pool that it is called in.
#[must_use]
pub fn fit_cold_map(input: &ColdMapInput) -> Option<FittedColdMap> {
    let items = chosen_items(input);
    if items.len() < ITEMS_MIN {
        return None;
    }
    let dim = input.trained.dim;
    let attributes = |item: &usize| input.attributes[*item].as_ref().expect("an item without is not chosen");
    let encoder = AttributeEncoder::learn(items.iter().map(attributes));
    let row = |item: &usize| row(input, *item, encoder.encode(attributes(item)));
    let rows: Vec<Row> = items.par_iter().map(row).collect();
    let folds = Folds::of(&rows, encoder.width(), dim);
    let users = second_moment(input.trained);
    let evaluated = match input.ridge {
        Some(ridge) => folds.evaluate(ridge, &users)?,
        None => folds.choose(&users)?,
    };
    let solution = folds.all.solve(evaluated.ridge)?;
    let average = Solution { intercept: folds.all.mean(), coefficients: DMatrix::zeros(dim, encoder.width()) };
    let score_variance_of_average = folds.covariance(|_| Some(&average))?.dot(&users);
    let map = ColdMap::new(ColdMapParts {
        encoder,
        intercept: rounded(solution.intercept.as_slice()),
        // Column-major `dim x width` is row-major `width x dim`.
        coefficients: rounded(solution.coefficients.as_slice()),
        residual_covariance: evaluated.covariance.as_slice().to_vec(),
        ridge: evaluated.ridge,
    });
    let map = map.inspect_err(|error| tracing::warn!(%error, "the version has no map from attributes")).ok()?;
    Some(FittedColdMap { map, items: items.len(), score_variance: evaluated.score_variance, score_variance_of_average })
}

fn rounded(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

/// The items to fit to: those with attributes, observations and features of their own; the most
/// observed ones if there are too many.
fn chosen_items(input: &ColdMapInput) -> Vec<usize> {
    let Trained { dim, item_features, item_offsets, cold_item, .. } = input.trained;
    let own = |item: usize| {
        item_features[item * dim..][..*dim] != cold_item.features || item_offsets[item] != cold_item.offset
    };
    let described = |item: &usize| input.attributes[*item].as_ref().is_some_and(|attributes| !attributes.is_empty());
    let observed = input.observed.iter().enumerate().filter(|(_, count)| **count > 0).map(|(item, _)| item);
    let mut items: Vec<usize> = observed.filter(described).filter(|item| own(*item)).collect();
    if items.len() > ITEMS_MAX {
        items.sort_by_key(|item| (std::cmp::Reverse(input.observed[*item]), *item));
        items.truncate(ITEMS_MAX);
        items.sort_unstable();
    }
    items
}

fn row(input: &ColdMapInput, item: usize, columns: Vec<(u32, f32)>) -> Row {
    let dim = input.trained.dim;
    let mut targets = input.trained.item_features[item * dim..][..dim].to_vec();
    if let Some(last) = targets.last_mut() {
        *last = input.trained.item_offsets[item];
    }
    let observed = f64::from(input.observed[item]);
    Row { columns, targets, weight: observed / (observed + HALF_KNOWN) }
}

/// The mean of `w~ w~^T` over users, where `w~` are the weights with the constant's entry replaced
/// by 1 for the offset.
fn second_moment(trained: &Trained) -> DMatrix<f64> {
    let dim = trained.dim;
    let users = trained.user_weights.len() / dim;
    let step = users.div_ceil(USERS_MAX).max(1);
    let mut moment = DMatrix::zeros(dim, dim);
    let mut count = 0.0;
    for weights in trained.user_weights.chunks_exact(dim).step_by(step) {
        let mut weights = DVector::from_iterator(dim, weights.iter().map(|w| f64::from(*w)));
        weights[dim - 1] = 1.0;
        moment.ger(1.0, &weights, &weights, 1.0);
        count += 1.0;
    }
    moment / f64::max(count, 1.0)
}

/// The folds of the cross-validation.
struct Folds<'a> {
    rows: Vec<Vec<&'a Row>>,
    sums: Vec<Sums>,
    all: Sums,
    dim: usize,
}

/// Residual covariance of held-out items under a ridge.
struct Evaluated {
    ridge: f64,
    covariance: DMatrix<f64>,
    score_variance: f64,
}

impl<'a> Folds<'a> {
    fn of(rows: &'a [Row], width: usize, dim: usize) -> Self {
        // Items are numbered in order of their first observation, so interleaved folds are similar.
        let part = |fold| rows.iter().skip(fold).step_by(FOLDS).collect::<Vec<_>>();
        let rows: Vec<Vec<&Row>> = (0..FOLDS).map(part).collect();
        let sums: Vec<Sums> = rows.par_iter().map(|rows| Sums::of(rows.iter().copied(), width, dim)).collect();
        let all = sums.iter().fold(Sums::of([], width, dim), Sums::plus);
        Self { rows, sums, all, dim }
    }

    /// The weighted covariance of residuals, each fold under the solution for it.
    fn covariance<'s>(&self, solution: impl Fn(usize) -> Option<&'s Solution> + Sync) -> Option<DMatrix<f64>> {
        let parts: Option<Vec<DMatrix<f64>>> =
            (0..FOLDS).into_par_iter().map(|fold| Some(squares(&self.rows[fold], solution(fold)?, self.dim))).collect();
        let sum = parts?.iter().fold(DMatrix::zeros(self.dim, self.dim), |sum, part| sum + part);
        Some(sum / self.all.weight())
    }

    fn evaluate(&self, ridge: f64, users: &DMatrix<f64>) -> Option<Evaluated> {
        let solve = |fold: &Sums| self.all.minus(fold).solve(ridge);
        let solutions: Vec<Option<Solution>> = self.sums.par_iter().map(solve).collect();
        let covariance = self.covariance(|fold| solutions[fold].as_ref())?;
        let score_variance = covariance.dot(users);
        Some(Evaluated { ridge, covariance, score_variance })
    }

    /// The best ridge by descent from the start, since the error first falls and then rises with
    /// the ridge.
    fn choose(&self, users: &DMatrix<f64>) -> Option<Evaluated> {
        let evaluate = |exponent: i32| self.evaluate(10_f64.powf(f64::from(exponent) / 2.0), users);
        let mut best = evaluate(RIDGE_EXPONENT_START)?;
        for direction in [1, -1] {
            let mut exponent = RIDGE_EXPONENT_START + direction;
            while RIDGE_EXPONENTS.contains(&exponent) {
                let tried = evaluate(exponent)?;
                if tried.score_variance >= best.score_variance {
                    break;
                }
                best = tried;
                exponent += direction;
            }
            if exponent != RIDGE_EXPONENT_START + direction {
                break;
            }
        }
        Some(best)
    }
}

/// `sum w r r^T` of the rows' residuals.
fn squares(rows: &[&Row], solution: &Solution, dim: usize) -> DMatrix<f64> {
    let mut sum = DMatrix::zeros(dim, dim);
    for rows in rows.chunks(RESIDUALS_AT_ONCE) {
        let columns: Vec<DVector<f64>> = rows.iter().map(|row| solution.residual(row) * row.weight.sqrt()).collect();
        let residuals = DMatrix::from_columns(&columns);
        sum.gemm(1.0, &residuals, &residuals.transpose(), 1.0);
    }
    sum
}

#[cfg(test)]
mod tests;
