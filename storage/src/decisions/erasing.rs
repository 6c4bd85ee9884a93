//! A user's decisions while the user is erased.

use std::sync::Arc;

use celeris_model::{ModelId, UserEpoch, UserId};

use super::Shared;

/// The erasure of a user, as far as it concerns decisions: while it lives, none of the user is written.
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

    /// The log has the erasure, as the event of this epoch. Returns how many decisions were erased.
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
