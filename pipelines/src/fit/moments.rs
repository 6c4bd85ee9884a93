//! Statistics of columns.

use crate::error::PipelineError;
use crate::objects::{Idf, Moments};
use crate::spec::FitScale;
use crate::values::View;

/// Statistics of one column by Welford's method.
#[derive(Debug, Clone, Copy)]
struct Column {
    count: f64,
    mean: f64,
    squares: f64,
    least: f64,
    most: f64,
}

impl Default for Column {
    fn default() -> Self {
        Self { count: 0.0, mean: 0.0, squares: 0.0, least: f64::INFINITY, most: f64::NEG_INFINITY }
    }
}

/// Collects the moments of a number or of the entries of a vector; missing ones do not count.
pub(super) struct MomentsOf {
    fit: FitScale,
    columns: Vec<Column>,
}

impl MomentsOf {
    pub fn new(fit: FitScale, columns: usize) -> Self {
        Self { fit, columns: vec![Column::default(); columns] }
    }

    pub fn add(&mut self, value: View) {
        let numbers = match &value {
            View::Number(number) => std::slice::from_ref(number),
            View::Dense(numbers) => numbers,
            _ => return,
        };
        for (column, number) in self.columns.iter_mut().zip(numbers).filter(|(_, number)| !number.is_nan()) {
            let number = f64::from(*number);
            column.count += 1.0;
            let before = number - column.mean;
            column.mean += before / column.count;
            column.squares += before * (number - column.mean);
            column.least = column.least.min(number);
            column.most = column.most.max(number);
        }
    }

    /// Columns without a number have center and width 0, and so the scaled value 0.
    pub fn finish(self) -> Result<Moments, PipelineError> {
        let of = |value: fn(&Column) -> f64| -> Vec<f64> {
            let value = |column: &Column| if column.count > 0.0 { value(column) } else { 0.0 };
            self.columns.iter().map(value).collect()
        };
        let means = of(|column| column.mean);
        match self.fit {
            FitScale::Standard => {
                Moments::new(means.clone(), of(|column| (column.squares / column.count).sqrt()), means)
            }
            FitScale::MinMax => Moments::new(of(|column| column.least), of(|column| column.most - column.least), means),
        }
    }
}

/// Collects the number of rows that each column occurs in.
pub(super) struct Frequencies {
    rows: u64,
    counts: Vec<u32>,
}

impl Frequencies {
    pub fn new(columns: usize) -> Self {
        Self { rows: 0, counts: vec![0; columns] }
    }

    pub fn add(&mut self, value: View) {
        self.rows += 1;
        if let View::Sparse(columns, _) = value {
            columns.iter().for_each(|column| self.counts[*column as usize] += 1);
        }
    }

    /// `ln((1 + rows) / (1 + rows with the column)) + 1`, as scikit-learn smooths it.
    pub fn finish(self) -> Result<Idf, PipelineError> {
        let rows = 1.0 + self.rows as f64;
        let idf = |count: &u32| ((rows / (1.0 + f64::from(*count))).ln() + 1.0) as f32;
        Idf::new(self.counts.iter().map(idf).collect())
    }
}
