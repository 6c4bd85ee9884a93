//! The rewards of decisions, read from the histories of their users.

use std::collections::HashMap;

use celeris_model::{Decision, DecisionId, RecordKind, StreamName, UserEpoch, UserId};
use celeris_storage::{HistorySpan, Storage};

use crate::error::ExportError;

/// Rewards join within so many events of the user after the decision; `attribution.rs` of the predictor has the same.
const FOLLOWED_MAX: u64 = 1 << 14;

/// Rewards that are kept for later decisions of their users, at most: some 200 MB.
const KEPT_MAX: usize = 1_000_000;

/// The kind of feedback of default rewards.
const DEFAULT_FEEDBACK: &str = "default";

/// The reward of a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reward {
    pub(super) value: f32,
    /// Whether a client gave it.
    pub(super) is_observed: bool,
}

impl Reward {
    /// The value of a slot without a reward.
    pub(super) fn missing(value: f32) -> Self {
        Self { value, is_observed: false }
    }
}

/// What was read of a user's history.
struct OfUser {
    /// Events up to this one were read.
    up_to: UserEpoch,
    of_decisions: HashMap<DecisionId, Vec<(u32, Reward)>>,
}

/// Decisions come in the order of time, so that each event of a user is read once for all of their decisions.
pub(super) struct Rewards<'a> {
    storage: &'a Storage,
    stream: &'a StreamName,
    users: HashMap<UserId, OfUser>,
    /// Number of users and rewards that are kept.
    kept: usize,
}

impl<'a> Rewards<'a> {
    pub(super) fn new(storage: &'a Storage, stream: &'a StreamName) -> Self {
        Self { storage, stream, users: HashMap::new(), kept: 0 }
    }

    /// The reward of each slot.
    pub(super) fn of(&mut self, decision: &Decision) -> Result<Vec<Option<Reward>>, ExportError> {
        if self.kept >= KEPT_MAX {
            self.users.clear();
            self.kept = 0;
        }
        let after = decision.user_epoch;
        let of_user = self.users.entry(decision.user.clone()).or_insert_with(|| {
            self.kept += 1;
            OfUser { up_to: after, of_decisions: HashMap::new() }
        });
        let span =
            HistorySpan { after: of_user.up_to.max(after), up_to: UserEpoch(after.0.saturating_add(FOLLOWED_MAX)) };
        let (of_decisions, kept) = (&mut of_user.of_decisions, &mut self.kept);
        self.storage.histories().scan(self.stream, &decision.user, span, |_, record| {
            let Some(facts) = record.decision.filter(|_| record.kind == RecordKind::Observe) else { return };
            let Some(slot) = facts.slot else { return };
            let is_observed = record.feedback.as_deref() != Some(DEFAULT_FEEDBACK);
            of_decisions.entry(facts.id).or_default().push((slot, Reward { value: record.label, is_observed }));
            *kept += 1;
        })?;
        of_user.up_to = of_user.up_to.max(span.up_to);
        let mut rewards = vec![None; decision.shown.len()];
        for (slot, reward) in of_user.of_decisions.remove(&decision.id).unwrap_or_default() {
            self.kept -= 1;
            if let Some(place) = rewards.get_mut(slot as usize) {
                *place = Some(reward);
            }
        }
        Ok(rewards)
    }
}
