//! The stages of all plans, each once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{FeaturizedText, Stage, Work};
use crate::graph::Fingerprint;

type Grams = (Fingerprint, FeaturizedText);

/// Stages by their fingerprints. A stage lives as long as a plan that has it.
#[derive(Debug, Default)]
pub struct Catalog(Mutex<Shared>);

#[derive(Debug, Default)]
struct Shared {
    stages: HashMap<Fingerprint, Weak<Stage>>,
    /// N-grams of texts are shared by themselves too: the weights of the models behind them differ.
    grams: HashMap<Fingerprint, Weak<Grams>>,
}

impl Catalog {
    /// The stage that equals this one, which becomes it if it is the first.
    #[must_use]
    pub fn share(&self, mut stage: Stage) -> Arc<Stage> {
        let mut shared = self.0.lock();
        if let Some(first) = shared.stages.get(&stage.fingerprint).and_then(Weak::upgrade) {
            return first;
        }
        if let Work::Text(text) = &mut stage.work {
            for branch in &mut text.branches {
                branch.grams = first_of(&mut shared.grams, branch.grams.0, branch.grams.clone());
            }
        }
        let fingerprint = stage.fingerprint;
        first_of(&mut shared.stages, fingerprint, Arc::new(stage))
    }

    /// Number of stages that plans have.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().stages.values().filter(|stage| stage.strong_count() > 0).count()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn first_of<T>(shared: &mut HashMap<Fingerprint, Weak<T>>, fingerprint: Fingerprint, one: Arc<T>) -> Arc<T> {
    if let Some(first) = shared.get(&fingerprint).and_then(Weak::upgrade) {
        return first;
    }
    // What no plan has any more goes whenever the table would grow.
    if shared.len() == shared.capacity() {
        shared.retain(|_, one| one.strong_count() > 0);
    }
    shared.insert(fingerprint, Arc::downgrade(&one));
    one
}
