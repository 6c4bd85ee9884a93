//! Functions whose minima are known; `optuna_best.py` has the same.

use celeris_study::{AxisSpec, Params, Space};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Sum of squares, in 5 dimensions from -5 to 5.
    Sphere,
    /// Rosenbrock's curved valley, in 4 dimensions from -5 to 10.
    Rosenbrock,
    /// Hartmann's sum of four hills, in 6 dimensions from 0 to 1.
    Hartmann,
}

impl Function {
    pub const ALL: [Self; 3] = [Self::Sphere, Self::Rosenbrock, Self::Hartmann];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sphere => "sphere",
            Self::Rosenbrock => "rosenbrock",
            Self::Hartmann => "hartmann",
        }
    }

    /// The lowest value.
    pub fn minimum(self) -> f64 {
        match self {
            Self::Sphere | Self::Rosenbrock => 0.0,
            Self::Hartmann => -3.322_368_01,
        }
    }

    pub fn space(self) -> Space {
        let (axes, low, high) = match self {
            Self::Sphere => (5, -5.0, 5.0),
            Self::Rosenbrock => (4, -5.0, 10.0),
            Self::Hartmann => (6, 0.0, 1.0),
        };
        let axis = |place| (format!("x{place}"), AxisSpec { float: Some([low, high]), ..AxisSpec::default() });
        let axes: std::collections::BTreeMap<String, AxisSpec> = (0..axes).map(axis).collect();
        Space::try_from(axes).expect("the axes are ranges")
    }

    pub fn value(self, params: &Params) -> f64 {
        // In the order of the axes' names.
        let x: Vec<f64> = params.values().filter_map(serde_json::Value::as_f64).collect();
        match self {
            Self::Sphere => x.iter().map(|x| x * x).sum(),
            Self::Rosenbrock => x.windows(2).map(|x| 100.0 * (x[1] - x[0] * x[0]).powi(2) + (1.0 - x[0]).powi(2)).sum(),
            Self::Hartmann => hartmann(&x),
        }
    }
}

fn hartmann(x: &[f64]) -> f64 {
    const ALPHA: [f64; 4] = [1.0, 1.2, 3.0, 3.2];
    const A: [[f64; 6]; 4] = [
        [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
        [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
        [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
        [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
    ];
    const P: [[f64; 6]; 4] = [
        [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
        [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
        [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
        [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
    ];
    let inner = |row: usize| -> f64 { (0..6).map(|axis| A[row][axis] * (x[axis] - P[row][axis]).powi(2)).sum() };
    -(0..4).map(|row| ALPHA[row] * (-inner(row)).exp()).sum::<f64>()
}
