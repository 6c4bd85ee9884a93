//! Values of the computed columns for the ratings of a training.

use celeris_features::parts::VALUE_ABS_MAX;
use celeris_pipelines::fit::{Fitted, Row};
use celeris_pipelines::{Catalog, Objects, PipelineError, Plan, Record, Scratch};

/// A column whose deviation is smaller than this is constant, and not scaled.
const DEVIATION_MIN: f64 = 1e-9;

/// What a pipeline gives for ratings.
#[derive(Debug)]
pub(super) struct Outputs {
    columns: Columns,
    /// Whether item and context have something that the pipeline reads, for each rating. Of the others the part is missing,
    /// and what the pipeline gives for them is not used.
    given: Vec<bool>,
}

/// Values of columns, row-major `ratings x width`.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    width: usize,
    values: Vec<f32>,
}

/// The outputs of a fitted pipeline for these rows: of models of the labels, those out of fold.
///
/// # Errors
/// As [`Plan::compile`].
pub(super) fn outputs<'a, R, I>(fitted: &Fitted, objects: &Objects, rows: R) -> Result<Outputs, PipelineError>
where
    R: Fn() -> I,
    I: Iterator<Item = Row<'a>>,
{
    let plan = Plan::compile(&fitted.spec, objects, &Catalog::default())?;
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
    Ok(Outputs { columns: Columns { width, values }, given })
}

impl Outputs {
    pub(super) fn width(&self) -> usize {
        self.columns.width
    }

    /// Columns with mean zero and deviation 1 over the ratings that have the part, by their weights, and zero where it is
    /// missing; also the means and deviations that they had.
    #[expect(clippy::cast_possible_truncation, reason = "features are held in f32; rounding to the nearest is meant")]
    pub(super) fn standardised(self, weights: &[f32]) -> (Columns, Vec<f32>, Vec<f32>) {
        let Self { mut columns, given } = self;
        let width = columns.width.max(1);
        let weight = |(weight, given): (&f32, &bool)| if *given { f64::from(*weight) } else { 0.0 };
        let weights: Vec<f64> = weights.iter().zip(&given).map(weight).collect();
        let total: f64 = weights.iter().sum();
        let moment = |of: &dyn Fn(usize, f64) -> f64| -> Vec<f64> {
            let mut sums = vec![0.0; width];
            for (row, weight) in columns.values.chunks_exact(width).zip(&weights) {
                for (column, (sum, value)) in sums.iter_mut().zip(row).enumerate() {
                    *sum += weight * of(column, f64::from(*value));
                }
            }
            sums.iter().map(|sum| sum / total.max(f64::MIN_POSITIVE)).collect()
        };
        let means = moment(&|_, value| value);
        let squares = moment(&|column, value| (value - means[column]).powi(2));
        let deviation = |square: f64| if square.sqrt() > DEVIATION_MIN { square.sqrt() } else { 1.0 };
        let means: Vec<f32> = means.iter().map(|mean| *mean as f32).collect();
        let deviations: Vec<f32> = squares.into_iter().map(|square| deviation(square) as f32).collect();
        for (row, given) in columns.values.chunks_exact_mut(width).zip(given) {
            if !given {
                row.fill(0.0);
                continue;
            }
            for (value, (mean, deviation)) in row.iter_mut().zip(means.iter().zip(&deviations)) {
                *value = ((*value - mean) / deviation).clamp(-VALUE_ABS_MAX, VALUE_ABS_MAX);
            }
        }
        (columns, means, deviations)
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
