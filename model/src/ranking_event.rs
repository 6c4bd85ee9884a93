//! A request for rankings under a name of the client's, by which it is repeated, activated and rewarded.

use serde::{Deserialize, Serialize};

use crate::ids::{DecisionId, ItemId, UserEpoch, UserId};

/// The probability with which an item is chosen for a slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chance {
    pub item: ItemId,
    pub probability: f32,
}

/// A slot of the request, for which one item was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventSlot {
    /// The client's name of the slot; empty if the request has one slot, without a name.
    pub name: String,
    /// The decision by which the item was chosen; `None` if there was nothing to choose from.
    pub decision: Option<DecisionId>,
    /// The candidates, the chosen one first, the others best first.
    pub chances: Vec<Chance>,
}

/// A reward that counts once the event is activated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HeldReward {
    /// The slot, from 0.
    pub slot: u32,
    pub label: f32,
}

/// What was answered to a request, and what became of it since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankingEvent {
    pub user: UserId,
    /// The epoch of the user when the event was made.
    pub user_epoch: UserEpoch,
    /// `xxh3_64` of the request: an event is repeated with the same request only.
    pub digest: u64,
    pub slots: Vec<EventSlot>,
    /// Whether what was chosen has been shown, or is taken to be: only then its slots get default rewards, and rewards
    /// are learnt from.
    pub is_active: bool,
    /// At most one for each slot; kept when they have been learnt from, so that a repeated activation completes one
    /// that was interrupted.
    pub held: Vec<HeldReward>,
}

impl RankingEvent {
    /// The slot of this name, from 0.
    #[must_use]
    pub fn slot_of(&self, name: &str) -> Option<u32> {
        let slot = self.slots.iter().position(|slot| slot.name == name)?;
        u32::try_from(slot).ok()
    }

    /// The item that was chosen for a slot.
    #[must_use]
    pub fn chosen(&self, slot: u32) -> Option<&ItemId> {
        self.slots.get(slot as usize)?.chances.first().map(|chance| &chance.item)
    }

    /// Keeps a reward until the event is activated; the first one of a slot counts.
    pub fn hold(&mut self, reward: HeldReward) {
        if !self.held.iter().any(|held| held.slot == reward.slot) {
            self.held.push(reward);
        }
    }
}
