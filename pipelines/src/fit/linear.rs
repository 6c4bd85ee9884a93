//! Rows of a linear model, and its weights.

use super::solver::{Loss, Problem, solve};
use super::{FitOptions, Row};
use crate::error::PipelineError;
use crate::objects::Weights;
use crate::spec::{FitLinear, Linear, Link};
use crate::values::View;

/// Rows of sparse entries, one after the other.
#[derive(Debug, Default)]
pub(super) struct SparseRows {
    /// Where each row begins, and where the last one ends.
    pub begins: Vec<usize>,
    pub columns: Vec<u32>,
    pub values: Vec<f32>,
}

impl SparseRows {
    /// The entries of a row.
    pub fn row(&self, row: usize) -> impl Iterator<Item = (usize, f64)> {
        let range = self.begins[row]..self.begins[row + 1];
        let values = self.values[range.clone()].iter();
        self.columns[range].iter().zip(values).map(|(column, value)| (*column as usize, f64::from(*value)))
    }

    fn push(&mut self, value: View) {
        if self.begins.is_empty() {
            self.begins.push(0);
        }
        let mut push = |column: u32, value: f32| {
            if value != 0.0 && !value.is_nan() {
                self.columns.push(column);
                self.values.push(value);
            }
        };
        match value {
            View::Number(number) => push(0, number),
            View::Dense(numbers) => (0..).zip(numbers).for_each(|(column, number)| push(column, *number)),
            View::Sparse(columns, numbers) => {
                columns.iter().zip(numbers).for_each(|(column, number)| push(*column, *number));
            }
            View::Category(category) => push(category, 1.0),
            _ => {}
        }
        self.begins.push(self.columns.len());
    }
}

/// Collects the rows of a linear model with what it learns.
pub(super) struct LinearRows {
    node: String,
    outputs: usize,
    columns: usize,
    fit: FitLinear,
    loss: Loss,
    regularization: f64,
    entries_max: usize,
    rows: SparseRows,
    /// Row-major `rows x outputs`.
    targets: Vec<f32>,
    weights: Vec<f32>,
}

impl LinearRows {
    pub fn new(node: String, linear: &Linear, columns: usize, options: FitOptions) -> Result<Self, PipelineError> {
        let outputs = linear.outputs.unwrap_or(1) as usize;
        let fit = linear.fit.unwrap_or(FitLinear::Label);
        let refused = |problem: &str| PipelineError::Fit { node: node.clone(), problem: problem.to_owned() };
        if fit == FitLinear::Label && outputs != 1 {
            return Err(refused("a model of labels has one output"));
        }
        if fit == FitLinear::Target && linear.link != Link::Identity {
            return Err(refused("a model of target vectors has the link identity"));
        }
        let loss = match linear.link {
            Link::Identity => Loss::Squared,
            Link::Logistic => Loss::Logistic,
            Link::Exp => Loss::Poisson,
        };
        let regularization = linear.regularization.unwrap_or(1.0);
        let (rows, targets, weights) = (SparseRows::default(), Vec::new(), Vec::new());
        let entries_max = options.entries_max;
        Ok(Self { node, outputs, columns, fit, loss, regularization, entries_max, rows, targets, weights })
    }

    fn refused(&self, problem: String) -> PipelineError {
        PipelineError::Fit { node: self.node.clone(), problem }
    }

    /// Adds a row; one without a label, or without a target, is left out.
    pub fn add(&mut self, row: &Row, value: View) -> Result<(), PipelineError> {
        let label;
        let target: &[f32] = match self.fit {
            FitLinear::Target => row.target.unwrap_or_default(),
            FitLinear::Label => {
                label = row.label;
                label.as_slice()
            }
        };
        if target.is_empty() {
            return Ok(());
        }
        if target.len() != self.outputs {
            return Err(self.refused(format!("a target has {} numbers, not {}", target.len(), self.outputs)));
        }
        let fits = |target: f32| match self.loss {
            Loss::Squared => target.is_finite(),
            Loss::Logistic => (0.0..=1.0).contains(&target),
            Loss::Poisson => target.is_finite() && target >= 0.0,
        };
        if !target.iter().all(|target| fits(*target)) || !row.weight.is_finite() || row.weight < 0.0 {
            return Err(self.refused(format!("label {target:?} with weight {} does not fit its link", row.weight)));
        }
        self.rows.push(value);
        self.targets.extend_from_slice(target);
        self.weights.push(row.weight);
        if self.rows.columns.len() > self.entries_max {
            return Err(self.refused(format!("its rows have more than {} entries; take a sample", self.entries_max)));
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Weights, PipelineError> {
        if self.weights.iter().all(|weight| *weight <= 0.0) {
            return Err(self.refused("no row has what it learns".to_owned()));
        }
        let outputs = self.outputs;
        let (mut bias, mut weights) = (Vec::new(), vec![0.0; self.columns * outputs]);
        for output in 0..outputs {
            let targets: Vec<f64> =
                self.targets.iter().skip(output).step_by(outputs).map(|target| f64::from(*target)).collect();
            let (columns, regularization) = (self.columns, self.regularization);
            let problem = Problem {
                rows: &self.rows,
                targets: &targets,
                weights: &self.weights,
                columns,
                loss: self.loss,
                regularization,
            };
            let solution = solve(&problem);
            bias.push(solution[columns] as f32);
            let own = weights.iter_mut().skip(output).step_by(outputs);
            own.zip(&solution).for_each(|(weight, solved)| *weight = *solved as f32);
        }
        Weights::new(bias, weights)
    }
}
