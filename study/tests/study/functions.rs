//! Functions with known minima.

use celeris_study::{AxisSpec, Params, Space};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Function {
    /// Sum of squares in 5 dimensions from -5 to 5; minimum 0.
    Sphere,
    /// In 4 dimensions from -2 to 2; minimum 0.
    Rosenbrock,
    /// In 6 dimensions from 0 to 1; minimum -3.32.
    Hartmann,
    /// Whole numbers, a logarithmic axis and choices; minimum 0 at `{dim: 32, rate: 0.01, kind: "b"}`.
    Mixed,
}

impl Function {
    pub fn space(self) -> Space {
        let (axes, low, high) = match self {
            Self::Sphere => (5, -5.0, 5.0),
            Self::Rosenbrock => (4, -2.0, 2.0),
            Self::Hartmann => (6, 0.0, 1.0),
            Self::Mixed => {
                let text = r#"{"dim": {"int": [2, 256], "log": true}, "rate": {"float": [1e-5, 1], "log": true},
                               "kind": {"choice": ["a", "b", null]}}"#;
                return serde_json::from_str(text).unwrap();
            }
        };
        let axis = |place| (format!("x{place}"), AxisSpec { float: Some([low, high]), ..AxisSpec::default() });
        Space::try_from((0..axes).map(axis).collect::<std::collections::BTreeMap<_, _>>()).unwrap()
    }

    pub fn value(self, params: &Params) -> f64 {
        if self == Self::Mixed {
            let dim = (params["dim"].as_f64().unwrap() / 32.0).log2();
            let rate = (params["rate"].as_f64().unwrap() / 0.01).log10();
            return dim.powi(2) + rate.powi(2) + if params["kind"] == "b" { 0.0 } else { 4.0 };
        }
        // In the order of the names.
        let x: Vec<f64> = params.values().map(|value| value.as_f64().unwrap()).collect();
        match self {
            Self::Sphere => x.iter().map(|x| x * x).sum(),
            Self::Rosenbrock => x.windows(2).map(|x| 100.0 * (x[1] - x[0] * x[0]).powi(2) + (1.0 - x[0]).powi(2)).sum(),
            Self::Hartmann => hartmann(&x),
            Self::Mixed => unreachable!("handled above"),
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
