//! Regularised regression with sparse rows: Newton's method whose steps are solved by conjugate gradients (Lin, Weng,
//! Keerthi: "Trust region Newton method for logistic regression", JMLR 2008, with a line search for the trust region).

use super::linear::SparseRows;

const NEWTON_STEPS_MAX: usize = 50;
const GRADIENT_STEPS_MAX: usize = 500;
const HALVINGS_MAX: usize = 40;

/// The gradient that ends the iterations, relative to the first one.
const TOLERANCE: f64 = 1e-7;

/// Beyond this argument `exp` exceeds every useful rate.
const EXPONENT_MAX: f64 = 30.0;

/// The loss of a prediction `z` for a target `y`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// `(z - y)^2 / 2`
    Squared,
    /// `ln(1 + exp(z)) - y z`
    Logistic,
    /// `exp(z) - y z`
    Poisson,
}

impl Loss {
    /// Value, first and second derivative.
    fn at(self, z: f64, y: f64) -> [f64; 3] {
        match self {
            Self::Squared => [(z - y).powi(2) / 2.0, z - y, 1.0],
            Self::Logistic => {
                let share = 1.0 / (1.0 + (-z).exp());
                [z.max(0.0) + (-z.abs()).exp().ln_1p() - y * z, share - y, (share * (1.0 - share)).max(1e-12)]
            }
            Self::Poisson => {
                let rate = z.min(EXPONENT_MAX).exp();
                [rate - y * z, rate - y, rate.max(1e-12)]
            }
        }
    }
}

/// `minimise sum of weight loss(bias + row · x, target) + regularization/2 |x|^2`.
pub(super) struct Problem<'a> {
    pub rows: &'a SparseRows,
    pub targets: &'a [f64],
    pub weights: &'a [f32],
    /// Number of columns, without the bias.
    pub columns: usize,
    pub loss: Loss,
    pub regularization: f64,
}

impl Problem<'_> {
    /// `bias + row · x` of each row.
    fn predictions(&self, x: &[f64], out: &mut [f64]) {
        for (row, out) in out.iter_mut().enumerate() {
            *out = x[self.columns] + self.rows.row(row).map(|(column, value)| value * x[column]).sum::<f64>();
        }
    }

    /// Adds `sum of factor row`, with the bias as a column of ones.
    fn add_transposed(&self, factors: impl Iterator<Item = f64>, out: &mut [f64]) {
        for (row, factor) in factors.enumerate() {
            self.rows.row(row).for_each(|(column, value)| out[column] += factor * value);
            out[self.columns] += factor;
        }
    }

    fn objective(&self, x: &[f64], predictions: &[f64]) -> f64 {
        let rows = predictions.iter().zip(self.targets).zip(self.weights);
        let losses: f64 = rows.map(|((z, y), weight)| f64::from(*weight) * self.loss.at(*z, *y)[0]).sum();
        losses + self.regularization / 2.0 * x[..self.columns].iter().map(|x| x * x).sum::<f64>()
    }

    fn gradient(&self, x: &[f64], predictions: &[f64]) -> Vec<f64> {
        let mut gradient: Vec<f64> = x.iter().map(|x| self.regularization * x).collect();
        gradient[self.columns] = 0.0;
        let rows = predictions.iter().zip(self.targets).zip(self.weights);
        let factors = rows.map(|((z, y), weight)| f64::from(*weight) * self.loss.at(*z, *y)[1]);
        self.add_transposed(factors, &mut gradient);
        gradient
    }

    /// The curvature of each row, and the diagonal of the Hessian.
    fn curvature(&self, predictions: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let rows = predictions.iter().zip(self.targets).zip(self.weights);
        let of_rows: Vec<f64> = rows.map(|((z, y), weight)| f64::from(*weight) * self.loss.at(*z, *y)[2]).collect();
        // A column without entries and without a penalty keeps weight 0.
        let mut diagonal = vec![self.regularization.max(1e-12); self.columns + 1];
        diagonal[self.columns] = 1e-12;
        for (row, curvature) in of_rows.iter().enumerate() {
            self.rows.row(row).for_each(|(column, value)| diagonal[column] += curvature * value * value);
            diagonal[self.columns] += curvature;
        }
        (of_rows, diagonal)
    }

    /// The Hessian times a vector.
    fn times_hessian(&self, curvature: &[f64], vector: &[f64], products: &mut [f64]) -> Vec<f64> {
        self.predictions(vector, products);
        let mut out: Vec<f64> = vector.iter().map(|x| self.regularization * x).collect();
        out[self.columns] = 0.0;
        self.add_transposed(products.iter().zip(curvature).map(|(product, curvature)| product * curvature), &mut out);
        out
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// The weights of the columns and the bias behind them. A pure function of the problem.
pub(super) fn solve(problem: &Problem) -> Vec<f64> {
    let mut x = vec![0.0; problem.columns + 1];
    let mut predictions = vec![0.0; problem.targets.len()];
    problem.predictions(&x, &mut predictions);
    let mut objective = problem.objective(&x, &predictions);
    let mut first = None;
    for _ in 0..NEWTON_STEPS_MAX {
        let gradient = problem.gradient(&x, &predictions);
        let length = dot(&gradient, &gradient).sqrt();
        let first = *first.get_or_insert(length);
        if length <= TOLERANCE * first || length == 0.0 {
            break;
        }
        // The nearer to the end, the more exact the step.
        let accuracy = if problem.loss == Loss::Squared { 1e-9 } else { (length / first).sqrt().min(0.1) * 0.1 };
        let step = newton_step(problem, &predictions, &gradient, accuracy);
        let slope = dot(&gradient, &step);
        let Some(next) = line_search(problem, &x, &step, slope, objective) else { break };
        (x, predictions, objective) = next;
    }
    x
}

/// Solves `Hessian step = -gradient` by preconditioned conjugate gradients.
fn newton_step(problem: &Problem, predictions: &[f64], gradient: &[f64], accuracy: f64) -> Vec<f64> {
    let (curvature, diagonal) = problem.curvature(predictions);
    let mut step = vec![0.0; gradient.len()];
    let mut residual: Vec<f64> = gradient.iter().map(|gradient| -gradient).collect();
    let conditioned =
        |residual: &[f64]| residual.iter().zip(&diagonal).map(|(of, diagonal)| of / diagonal).collect::<Vec<f64>>();
    let mut scaled = conditioned(&residual);
    let mut direction = scaled.clone();
    let mut power = dot(&residual, &scaled);
    let enough = accuracy * dot(gradient, gradient).sqrt();
    let mut products = vec![0.0; predictions.len()];
    for _ in 0..GRADIENT_STEPS_MAX {
        if dot(&residual, &residual).sqrt() <= enough {
            break;
        }
        let image = problem.times_hessian(&curvature, &direction, &mut products);
        let bend = dot(&direction, &image);
        if bend <= 0.0 {
            break;
        }
        let length = power / bend;
        step.iter_mut().zip(&direction).for_each(|(step, direction)| *step += length * direction);
        residual.iter_mut().zip(&image).for_each(|(residual, image)| *residual -= length * image);
        scaled = conditioned(&residual);
        let next = dot(&residual, &scaled);
        let turn = next / power;
        power = next;
        direction.iter_mut().zip(&scaled).for_each(|(direction, scaled)| *direction = scaled + turn * *direction);
    }
    step
}

/// Halves the step until the objective falls enough (Armijo). `None` if it does not fall any more.
fn line_search(
    problem: &Problem,
    x: &[f64],
    step: &[f64],
    slope: f64,
    objective: f64,
) -> Option<(Vec<f64>, Vec<f64>, f64)> {
    let mut predictions = vec![0.0; problem.targets.len()];
    let mut length = 1.0;
    for _ in 0..HALVINGS_MAX {
        let next: Vec<f64> = x.iter().zip(step).map(|(x, step)| x + length * step).collect();
        problem.predictions(&next, &mut predictions);
        let reached = problem.objective(&next, &predictions);
        if reached <= objective + 1e-4 * length * slope && reached < objective {
            return Some((next, predictions, reached));
        }
        length /= 2.0;
    }
    None
}
