//! How well each model has predicted lately what it then learnt.

use std::collections::{HashMap, VecDeque};

use celeris_model::ModelName;
use celeris_predictor::LossEvent;
use parking_lot::Mutex;

/// Observations that the recent loss is taken over.
pub const WINDOW: usize = 1000;

/// The error of the latest predictions, each made before its observation was learnt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecentLoss {
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Observations it is taken over, at most [`WINDOW`].
    pub count: usize,
}

/// Squared errors of the latest observations, by model.
#[derive(Default)]
pub(crate) struct LossWindows {
    windows: Mutex<HashMap<ModelName, VecDeque<f64>>>,
}

impl LossWindows {
    pub(crate) fn add(&self, event: &LossEvent) {
        let error = f64::from(event.predicted) - f64::from(event.label);
        let mut windows = self.windows.lock();
        let window = windows.entry(event.model.clone()).or_default();
        if window.len() == WINDOW {
            window.pop_front();
        }
        window.push_back(error * error);
    }

    pub(crate) fn recent(&self, model: &ModelName) -> Option<RecentLoss> {
        let windows = self.windows.lock();
        let window = windows.get(model).filter(|window| !window.is_empty())?;
        let mean = window.iter().sum::<f64>() / window.len() as f64;
        Some(RecentLoss { rmse: mean.sqrt(), count: window.len() })
    }

    pub(crate) fn forget(&self, model: &ModelName) {
        self.windows.lock().remove(model);
    }
}
