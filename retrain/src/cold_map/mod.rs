//! The map from attributes to features (`celeris_features::cold_map`), fitted at the end of every training.
//!
//! A ridge regression of `[f_1 … f_(dim-1), offset]` on the encoded attributes of the trained items, each weighted by how
//! well its features are known. The ridge is chosen by cross-validation over items: the one under which a score by mapped
//! features is least wrong, averaged over the trained users. What is then left of the held-out items' features is the
//! residual covariance that the map brings along. Items whose features are not known well are drawn to the average, and
//! so would be the map: they count little.

mod sums;

use std::collections::BTreeMap;

use celeris_features::{ColdMap, ColdMapParts, Encoder};
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;
use serde_json::{Map, Value};

use self::sums::{Row, Solution, Sums};
use crate::trainer::Trained;

/// With fewer items a map would be guesswork.
const ITEMS_MIN: usize = 20;

/// The most observed items are enough to fit some hundred columns.
const ITEMS_MAX: usize = 100_000;

/// Parts of the items, each of which is held out once.
const FOLDS: usize = 5;

/// An item of so many observations counts half of what a perfectly known one does. Measured on ml-latest-small: RMSE on
/// left-out items 0.910 with 10, 0.897 with 100, 0.897 with 300.
const HALF_KNOWN: f64 = 100.0;

/// Ridges are powers of the root of ten; the search begins in the middle and goes downhill.
const RIDGE_EXPONENTS: std::ops::RangeInclusive<i32> = -2..=8;
const RIDGE_EXPONENT_START: i32 = 1;

/// Users whose weights say what errors of features amount to in a score.
const USERS_MAX: usize = 10_000;

/// Residuals whose products are added up at once.
const RESIDUALS_AT_ONCE: usize = 256;

/// What a map is fitted to.
#[derive(Debug, Clone, Copy)]
pub struct ColdMapInput<'a> {
    /// The training that gives the targets.
    pub trained: &'a Trained,
    /// How often each item was observed; items beyond its end were not.
    pub observed: &'a [u32],
    /// The attributes of each item, where they are known; as many as there are items.
    pub attributes: &'a [Option<Map<String, Value>>],
    /// The ridge that an earlier training has chosen; where it is missing, it is chosen here.
    pub ridge: Option<f64>,
}

/// A fitted map, and how good it is.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedColdMap {
    /// The map.
    pub map: ColdMap,
    /// How many items it was fitted to.
    pub items: usize,
    /// The variance of a score that mapped features leave unexplained, averaged over users: of items held out.
    pub score_variance: f64,
    /// The same of the average item's features in place of mapped ones.
    pub score_variance_of_average: f64,
}

impl FittedColdMap {
    /// Its figures by name, for a version's manifest.
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

/// Fits a map; `None` where too few of the trained items have attributes, or their features are not finite.
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
    let encoder = Encoder::learn(items.iter().map(attributes));
    let row = |item: &usize| row(input, *item, encoder.encode(attributes(item)));
    let rows: Vec<Row> = items.par_iter().map(row).collect();
    let folds = Folds::of(&rows, encoder.width(), dim);
    let users = second_moment(input.trained);
    let judged = match input.ridge {
        Some(ridge) => folds.judge(ridge, &users)?,
        None => folds.choose(&users)?,
    };
    let solution = folds.all.solve(judged.ridge)?;
    let average = Solution { intercept: folds.all.mean(), coefficients: DMatrix::zeros(dim, encoder.width()) };
    let score_variance_of_average = folds.covariance(|_| Some(&average))?.dot(&users);
    let map = ColdMap::new(ColdMapParts {
        encoder,
        intercept: rounded(solution.intercept.as_slice()),
        // Column-major `dim x width` is row-major `width x dim`.
        coefficients: rounded(solution.coefficients.as_slice()),
        residual_covariance: judged.covariance.as_slice().to_vec(),
        ridge: judged.ridge,
    });
    let map = map.inspect_err(|error| tracing::warn!(%error, "the version has no map from attributes")).ok()?;
    Some(FittedColdMap { map, items: items.len(), score_variance: judged.score_variance, score_variance_of_average })
}

fn rounded(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

/// The items to fit to: described, observed, and with features of their own; the most observed where there are many.
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

/// The mean of `w~ w~^T` over users, `w~` being the weights with 1 for the offset in the place of the constant's.
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

/// The rows in parts of which each is held out once.
struct Folds<'a> {
    rows: Vec<Vec<&'a Row>>,
    sums: Vec<Sums>,
    all: Sums,
    dim: usize,
}

/// What is left of the held-out items' targets under a ridge.
struct Judged {
    ridge: f64,
    covariance: DMatrix<f64>,
    score_variance: f64,
}

impl<'a> Folds<'a> {
    fn of(rows: &'a [Row], width: usize, dim: usize) -> Self {
        // Items are numbered as they were first observed, so that parts of every so many-th are alike.
        let part = |fold| rows.iter().skip(fold).step_by(FOLDS).collect::<Vec<_>>();
        let rows: Vec<Vec<&Row>> = (0..FOLDS).map(part).collect();
        let sums: Vec<Sums> = rows.par_iter().map(|rows| Sums::of(rows.iter().copied(), width, dim)).collect();
        let all = sums.iter().fold(Sums::of([], width, dim), Sums::plus);
        Self { rows, sums, all, dim }
    }

    /// The weighted covariance of residuals, each fold's under the solution for it.
    fn covariance<'s>(&self, solution: impl Fn(usize) -> Option<&'s Solution> + Sync) -> Option<DMatrix<f64>> {
        let parts: Option<Vec<DMatrix<f64>>> =
            (0..FOLDS).into_par_iter().map(|fold| Some(squares(&self.rows[fold], solution(fold)?, self.dim))).collect();
        let sum = parts?.iter().fold(DMatrix::zeros(self.dim, self.dim), |sum, part| sum + part);
        Some(sum / self.all.weight())
    }

    fn judge(&self, ridge: f64, users: &DMatrix<f64>) -> Option<Judged> {
        let solve = |fold: &Sums| self.all.minus(fold).solve(ridge);
        let solutions: Vec<Option<Solution>> = self.sums.par_iter().map(solve).collect();
        let covariance = self.covariance(|fold| solutions[fold].as_ref())?;
        let score_variance = covariance.dot(users);
        Some(Judged { ridge, covariance, score_variance })
    }

    /// The best ridge: downhill from the first, since the error falls and then rises with it.
    fn choose(&self, users: &DMatrix<f64>) -> Option<Judged> {
        let judge = |exponent: i32| self.judge(10_f64.powf(f64::from(exponent) / 2.0), users);
        let mut best = judge(RIDGE_EXPONENT_START)?;
        for direction in [1, -1] {
            let mut exponent = RIDGE_EXPONENT_START + direction;
            while RIDGE_EXPONENTS.contains(&exponent) {
                let tried = judge(exponent)?;
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
