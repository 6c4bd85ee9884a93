//! Functions with known minima.

use celeris_study::{AxisSpec, Params, Space, minima};

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
            Self::Sphere => minima::sphere(&x),
            Self::Rosenbrock => minima::rosenbrock(&x),
            Self::Hartmann => minima::hartmann(&x),
            Self::Mixed => unreachable!("handled above"),
        }
    }
}
