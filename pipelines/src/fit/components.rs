//! Principal components: eigenvectors of the covariance.

use nalgebra::{DMatrix, SymmetricEigen};

use crate::error::PipelineError;
use crate::objects::Components;
use crate::values::View;

/// Number of columns, at most: the covariance is solved densely.
const COLUMNS_MAX: usize = 1024;

/// Collects means and products of the entries of vectors.
pub(super) struct Directions {
    node: String,
    outputs: usize,
    count: f64,
    /// The first row: differences from it lose less to rounding than the entries themselves.
    origin: Vec<f64>,
    sums: Vec<f64>,
    /// Lower triangle, row-major `dim x dim`.
    products: Vec<f64>,
}

impl Directions {
    pub fn new(node: String, outputs: usize) -> Self {
        Self { node, outputs, count: 0.0, origin: Vec::new(), sums: Vec::new(), products: Vec::new() }
    }

    fn refused(&self, problem: String) -> PipelineError {
        PipelineError::Fit { node: self.node.clone(), problem }
    }

    /// Adds a vector, unless an entry is missing.
    pub fn add(&mut self, value: View) -> Result<(), PipelineError> {
        let numbers = match &value {
            View::Number(number) => std::slice::from_ref(number),
            View::Dense(numbers) => numbers,
            _ => return Ok(()),
        };
        if numbers.iter().any(|number| number.is_nan()) {
            return Ok(());
        }
        let dim = numbers.len();
        if self.origin.is_empty() {
            if dim > COLUMNS_MAX || self.outputs > dim {
                let problem = format!("{} of {dim} columns: there are at most {COLUMNS_MAX}", self.outputs);
                return Err(self.refused(problem));
            }
            self.origin = numbers.iter().map(|number| f64::from(*number)).collect();
            (self.sums, self.products) = (vec![0.0; dim], vec![0.0; dim * dim]);
        }
        self.count += 1.0;
        let differences: Vec<f64> =
            numbers.iter().zip(&self.origin).map(|(number, origin)| f64::from(*number) - origin).collect();
        for (row, difference) in differences.iter().enumerate() {
            self.sums[row] += difference;
            let products = &mut self.products[row * dim..=row * dim + row];
            products.iter_mut().zip(&differences).for_each(|(product, other)| *product += difference * other);
        }
        Ok(())
    }

    /// The directions of largest variance; the largest entry of each is positive, so that the sign is decided.
    pub fn finish(self) -> Result<Components, PipelineError> {
        let dim = self.origin.len();
        if self.count < 2.0 {
            return Err(self.refused("there are fewer than two rows without missing numbers".to_owned()));
        }
        let covariance = DMatrix::from_fn(dim, dim, |row, column| {
            let (row, column) = (row.max(column), row.min(column));
            self.products[row * dim + column] / self.count
                - self.sums[row] * self.sums[column] / self.count / self.count
        });
        let eigen = SymmetricEigen::new(covariance);
        let mut order: Vec<usize> = (0..dim).collect();
        order.sort_by(|one, other| eigen.eigenvalues[*other].total_cmp(&eigen.eigenvalues[*one]));
        let mut rows = Vec::with_capacity(self.outputs * dim);
        for direction in order.iter().take(self.outputs) {
            let vector = eigen.eigenvectors.column(*direction);
            let sign = vector.iter().copied().max_by(|one, other| one.abs().total_cmp(&other.abs())).unwrap_or(1.0);
            rows.extend(vector.iter().map(|entry| (entry * sign.signum()) as f32));
        }
        let mean = self.origin.iter().zip(&self.sums).map(|(origin, sum)| (origin + sum / self.count) as f32).collect();
        Components::new(mean, rows)
    }
}
