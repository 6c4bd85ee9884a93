//! Decisions that a store has left when its database was replaced by that of another node.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use celeris_model::{ModelId, UserEpoch, UserId};

use crate::decisions::Decisions;
use crate::error::StorageError;
use crate::history::Histories;

/// The decisions, and the log that names the erased users.
pub(crate) struct LeftDecisions<'s> {
    pub(crate) decisions: &'s Decisions,
    pub(crate) histories: Histories<'s>,
}

impl LeftDecisions<'_> {
    /// See [`crate::Storage::erase_decisions_of_erased_users`].
    pub(crate) fn erase(&self) -> Result<u64, StorageError> {
        let mut erased = 0;
        for model in self.decisions.models()? {
            for (user, epoch) in self.erased_users_of(model)? {
                erased += self.decisions.erase(&[model], &user)?.finish(epoch);
            }
        }
        Ok(erased)
    }

    /// The erased users whom decisions of the model are for, with the epochs of their last erasures.
    fn erased_users_of(&self, model: ModelId) -> Result<BTreeMap<UserId, UserEpoch>, StorageError> {
        let (streams, histories) = (self.histories.log.streams(), self.histories);
        let erased = |user: &UserId| {
            let epochs = streams.iter().map(|stream| histories.last_erasure(stream, user));
            epochs.collect::<Result<Vec<_>, _>>().map(|epochs| epochs.into_iter().max().unwrap_or_default())
        };
        // Of each user that was looked up, the epoch of the last erasure; 0 if there was none.
        let mut users: BTreeMap<UserId, UserEpoch> = BTreeMap::new();
        let looked_up = self.decisions.scan(model, |decision| {
            if users.contains_key(&decision.user) {
                return ControlFlow::Continue(());
            }
            match erased(&decision.user) {
                Ok(epoch) => {
                    users.insert(decision.user, epoch);
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(error),
            }
        })?;
        if let ControlFlow::Break(error) = looked_up {
            return Err(error);
        }
        users.retain(|_, epoch| *epoch > UserEpoch(0));
        Ok(users)
    }
}
