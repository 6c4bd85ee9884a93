//! Functions whose minima are known; `optuna_best.py` has the same.

use celeris_study::{AxisSpec, Params, Space, minima};

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
            Self::Hartmann => minima::HARTMANN_MIN,
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
            Self::Sphere => minima::sphere(&x),
            Self::Rosenbrock => minima::rosenbrock(&x),
            Self::Hartmann => minima::hartmann(&x),
        }
    }
}
