//! Values of the computed columns for the ratings of a training.

use celeris_features::parts::VALUE_ABS_MAX;
use celeris_pipelines::fit::{Fitted, Row};
use celeris_pipelines::{PipelineError, Plan, Record, Scratch};

/// A column whose deviation is smaller than this is constant, and not scaled.
const DEVIATION_MIN: f64 = 1e-9;

/// What a pipeline gives for ratings.
#[derive(Debug)]
pub(super) struct Outputs {
    columns: Columns,
    given: Given,
}

/// Whether item and context of a rating have something that the pipeline reads, for each. Of the others the part is missing,
/// and what the pipeline gives for them is not used.
#[derive(Debug, Clone)]
pub(super) struct Given(Vec<bool>);

/// Values of columns, row-major `ratings x width`.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    width: usize,
    values: Vec<f32>,
}

/// The outputs of a fitted pipeline for these rows, by its plan: of models of the labels, those out of fold.
///
/// # Errors
/// [`PipelineError`] if the plan cannot be run.
pub(super) fn outputs<'a, R, I>(fitted: &Fitted, plan: &Plan, rows: R) -> Result<Outputs, PipelineError>
where
    R: Fn() -> I,
    I: Iterator<Item = Row<'a>>,
{
    let width = plan.dim();
    let (mut scratch, mut given, mut values) = (Scratch::default(), Vec::new(), Vec::new());
    for row in rows() {
        given.push(plan.has_item(row.item) && plan.has_context(row.context));
        if fitted.out_of_fold.is_some() {
            continue;
        }
        let begin = values.len();
        values.resize(begin + width, 0.0);
        if given.last() == Some(&true) {
            plan.run(Record { item: row.item, context: row.context }, &mut scratch, &mut values[begin..])?;
        }
    }
    let values = fitted.out_of_fold.clone().unwrap_or(values);
    Ok(Outputs { columns: Columns { width, values }, given: Given(given) })
}

impl Outputs {
    pub(super) fn width(&self) -> usize {
        self.columns.width
    }

    pub(super) fn given(&self) -> &Given {
        &self.given
    }

    /// Columns with deviation 1 over the ratings that have the part, by their weights, from the means of their items, which
    /// `means_of` gives by the place of a rating, or from those of all ratings. Zero where the part is missing.
    #[expect(clippy::cast_possible_truncation, reason = "features are held in f32; rounding to the nearest is meant")]
    pub(super) fn standardised<'a>(
        self,
        weights: &[f32],
        means_of: impl Fn(usize) -> Option<&'a [f32]>,
    ) -> Standardised {
        let Self { mut columns, given } = self;
        let width = columns.width.max(1);
        let weights: Vec<f64> = given.weights(weights).collect();
        let total: f64 = weights.iter().sum();
        let moment = |of: &dyn Fn(usize, usize, f64) -> f64| -> Vec<f64> {
            let mut sums = vec![0.0; width];
            for (place, (row, weight)) in columns.values.chunks_exact(width).zip(&weights).enumerate() {
                for (column, (sum, value)) in sums.iter_mut().zip(row).enumerate() {
                    *sum += weight * of(place, column, f64::from(*value));
                }
            }
            sums.iter().map(|sum| sum / total.max(f64::MIN_POSITIVE)).collect()
        };
        let means: Vec<f32> = moment(&|_, _, value| value).iter().map(|mean| *mean as f32).collect();
        let mean_of = |place: usize, column: usize| means_of(place).unwrap_or(&means)[column];
        let squares = moment(&|place, column, value| (value - f64::from(mean_of(place, column))).powi(2));
        let varies = |square: f64| square.sqrt() > DEVIATION_MIN;
        let is_constant = !squares.iter().any(|square| varies(*square));
        let deviation = |square: f64| if varies(square) { square.sqrt() } else { 1.0 };
        let deviations: Vec<f32> = squares.into_iter().map(|square| deviation(square) as f32).collect();
        for (place, (row, given)) in columns.values.chunks_exact_mut(width).zip(given.iter()).enumerate() {
            if !given {
                row.fill(0.0);
                continue;
            }
            for (column, (value, deviation)) in row.iter_mut().zip(&deviations).enumerate() {
                *value = ((*value - mean_of(place, column)) / deviation).clamp(-VALUE_ABS_MAX, VALUE_ABS_MAX);
            }
        }
        Standardised { columns, means, deviations, is_constant }
    }
}

/// Columns that were standardised, and what they were before.
pub(super) struct Standardised {
    pub(super) columns: Columns,
    /// Over all ratings that have the part.
    pub(super) means: Vec<f32>,
    pub(super) deviations: Vec<f32>,
    /// Whether no column varied.
    pub(super) is_constant: bool,
}

impl Given {
    pub(super) fn iter(&self) -> impl Iterator<Item = bool> {
        self.0.iter().copied()
    }

    /// The weights of ratings, zero of those that lack the part.
    fn weights(&self, weights: &[f32]) -> impl Iterator<Item = f64> {
        weights.iter().zip(self.iter()).map(|(weight, given)| if given { f64::from(*weight) } else { 0.0 })
    }
}

impl Columns {
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The columns of one rating, by its place among the chosen ones.
    pub(super) fn of(&self, place: usize) -> &[f32] {
        &self.values[place * self.width..][..self.width]
    }

    /// All columns in the order of the parts.
    pub(super) fn beside(parts: &[Self]) -> Self {
        let width = parts.iter().map(|part| part.width).sum();
        let ratings = parts.first().map_or(0, |part| part.values.len() / part.width.max(1));
        let mut values = Vec::with_capacity(ratings * width);
        for place in 0..ratings {
            parts.iter().for_each(|part| values.extend_from_slice(part.of(place)));
        }
        Self { width, values }
    }
}
