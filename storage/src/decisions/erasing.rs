//! Erasure of a user's decisions.

use std::sync::Arc;

use celeris_model::{ModelId, UserEpoch, UserId};

use super::Shared;

/// A user's erasure in progress: while it exists, no decisions of the user are written.
pub struct ErasingDecisions {
    shared: Arc<Shared>,
    models: Vec<ModelId>,
    user: UserId,
    pub(super) erased: u64,
}

impl ErasingDecisions {
    pub(super) fn begin(shared: &Arc<Shared>, models: &[ModelId], user: &UserId) -> Self {
        for model in models {
            shared.erased_users.begin(model, user);
        }
        Self { shared: Arc::clone(shared), models: models.to_vec(), user: user.clone(), erased: 0 }
    }

    /// Completes the erasure after the log has recorded it as the event of epoch `erased`. Returns
    /// the number of erased decisions.
    #[must_use]
    pub fn finish(self, erased: UserEpoch) -> u64 {
        for model in &self.models {
            self.shared.erased_users.add(model, &self.user, erased);
        }
        self.erased
    }
}

impl Drop for ErasingDecisions {
    fn drop(&mut self) {
        for model in &self.models {
            self.shared.erased_users.end(model, &self.user);
        }
    }
}
