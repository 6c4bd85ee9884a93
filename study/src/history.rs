//! What samplers know of a study.

/// What is known of a space: positions with their losses, and positions under evaluation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    pub complete: Vec<(Vec<f64>, f64)>,
    pub pending: Vec<Vec<f64>>,
}
