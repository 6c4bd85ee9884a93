//! Events: requests for rankings under names of their clients, in the database of the decisions that answered them.
//!
//! A caller adds an event when its decisions are recorded, and waits for the write, so that an event that was answered
//! survives the end of the process, as its decisions do. It is deleted with the decisions: when they expire, with their
//! user, or with their model (RFC 010).

use std::ops::ControlFlow;

use celeris_model::{DecisionId, EventId, ModelId, RankingEvent, Timestamp};

use super::reading::EXPIRED_AT_ONCE;
use super::{Decisions, Shared};
use crate::database::{Access, Batch, Column, Durability, KeyRange};
use crate::error::StorageError;
use crate::layout::envelope::{self, corrupt, sealed, unseal};
use crate::layout::keys;

/// What became of an event that was to be added.
#[derive(Debug, Clone, PartialEq)]
pub enum AddedEvent {
    Added,
    /// There is one under this id.
    Exists(Box<RankingEvent>),
    /// The bytes of this second are spent, or its user is being erased.
    Refused,
}

impl Decisions {
    /// The event of this id.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn event(&self, model: ModelId, id: &EventId) -> Result<Option<RankingEvent>, StorageError> {
        self.shared.event(&keys::ranking_event(model, id))
    }

    /// Adds an event whose decisions were recorded, unless there is one under its id. On return it survives the end of
    /// the process, and so do its decisions. Blocks the thread.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn add_event(&self, model: ModelId, id: &EventId, event: &RankingEvent) -> Result<AddedEvent, StorageError> {
        self.flush();
        let shared = &self.shared;
        let key = keys::ranking_event(model, id);
        let _changing = shared.changing.lock();
        if let Some(there) = shared.event(&key)? {
            return Ok(AddedEvent::Exists(Box::new(there)));
        }
        let value = encode(&key, event);
        let has_room = shared.token_bucket.take(key.len() + value.len(), std::time::Instant::now());
        if !has_room || shared.erased_users.holds(&model, &event.user, event.user_epoch) {
            return Ok(AddedEvent::Refused);
        }
        let mut batch = shared.database.batch();
        batch.put(Column::RankingEvents, &key, &value);
        for decision in event.slots.iter().filter_map(|slot| slot.decision.as_ref()) {
            let key = keys::event_of_decision(model, decision);
            batch.put(Column::RankingEvents, &key, &sealed(&key, id.as_str().as_bytes()));
        }
        batch.commit(Durability::Buffered)?;
        Ok(AddedEvent::Added)
    }

    /// Changes an event and returns it; `None` if there is none of this id.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`; nothing is changed then.
    pub fn change_event(
        &self,
        model: ModelId,
        id: &EventId,
        change: impl FnOnce(&mut RankingEvent),
    ) -> Result<Option<RankingEvent>, StorageError> {
        let shared = &self.shared;
        let key = keys::ranking_event(model, id);
        let _changing = shared.changing.lock();
        let Some(before) = shared.event(&key)? else { return Ok(None) };
        let mut event = before.clone();
        change(&mut event);
        if event != before {
            let mut batch = shared.database.batch();
            batch.put(Column::RankingEvents, &key, &encode(&key, &event));
            batch.commit(Durability::Buffered)?;
        }
        Ok(Some(event))
    }

    /// Whether a decision is of an event that has not been activated.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn awaits_activation(&self, model: ModelId, decision: &DecisionId) -> Result<bool, StorageError> {
        let Some(id) = self.shared.event_of(model, decision)? else { return Ok(false) };
        Ok(self.event(model, &id)?.is_some_and(|event| !event.is_active))
    }
}

impl Shared {
    fn event(&self, key: &[u8]) -> Result<Option<RankingEvent>, StorageError> {
        let Some(value) = self.database.get(Column::RankingEvents, key)? else { return Ok(None) };
        let body = unseal(Column::RankingEvents, key, &value)?;
        let event = postcard::from_bytes(body);
        event.map(Some).map_err(|error| corrupt(Column::RankingEvents, key, &error.to_string()))
    }

    /// The event to which a decision belongs.
    fn event_of(&self, model: ModelId, decision: &DecisionId) -> Result<Option<EventId>, StorageError> {
        let key = keys::event_of_decision(model, decision);
        let value = self.database.get(Column::RankingEvents, &key)?;
        value.map(|value| event_id(&key, &value)).transpose()
    }

    /// Deletes the event to which a decision belongs, if there is one.
    pub(super) fn delete_event_of(
        &self,
        batch: &mut Batch,
        model: ModelId,
        decision: &DecisionId,
    ) -> Result<(), StorageError> {
        let Some(id) = self.event_of(model, decision)? else { return Ok(()) };
        batch.delete(Column::RankingEvents, &keys::event_of_decision(model, decision));
        batch.delete(Column::RankingEvents, &keys::ranking_event(model, &id));
        Ok(())
    }

    /// Deletes some of a model's events made before `before`; returns their number.
    pub(super) fn expire_events(
        &self,
        batch: &mut Batch,
        model: ModelId,
        before: Timestamp,
    ) -> Result<usize, StorageError> {
        let range = KeyRange {
            from: keys::all_events_of_decisions(model),
            to: keys::event_of_decision(model, &DecisionId::first_at(before)),
        };
        let mut expired = 0;
        self.database.scan(Column::RankingEvents, range, Access::Sweep, |key, value| {
            batch.delete(Column::RankingEvents, key);
            batch.delete(Column::RankingEvents, &keys::ranking_event(model, &event_id(key, value)?));
            expired += 1;
            Ok(if expired < EXPIRED_AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(expired)
    }
}

fn encode(key: &[u8], event: &RankingEvent) -> Vec<u8> {
    let value = postcard::to_extend(event, envelope::begin());
    let mut value = value.expect("a vector takes any bytes, and every length is known");
    envelope::seal(key, &mut value);
    value
}

/// The value of an index entry.
fn event_id(key: &[u8], value: &[u8]) -> Result<EventId, StorageError> {
    let body = unseal(Column::RankingEvents, key, value)?;
    let id = std::str::from_utf8(body).ok().and_then(|text| EventId::new(text).ok());
    id.ok_or_else(|| corrupt(Column::RankingEvents, key, "it names no event"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::{Chance, EventSlot, HeldReward, ItemId, Partition, UserEpoch, UserId};

    use super::super::stored::tests::decision_of;
    use super::*;
    use crate::options::StorageOptions;
    use crate::store::Storage;

    const MODEL: ModelId = ModelId(7);

    fn event(decision: &DecisionId) -> RankingEvent {
        let chance = |item: &str, probability| Chance { item: ItemId::new(item).unwrap(), probability };
        let slot = EventSlot {
            name: "top".to_owned(),
            decision: Some(decision.clone()),
            chances: vec![chance("b", 0.75), chance("a", 0.25)],
        };
        RankingEvent {
            user: UserId::new("alice").unwrap(),
            user_epoch: UserEpoch(300),
            digest: 300,
            slots: vec![slot],
            is_active: false,
            held: vec![HeldReward { slot: 0, label: 0.5 }],
        }
    }

    /// A decision for `user` made at this time.
    fn decision_at(user: &str, millis: u128) -> celeris_model::Decision {
        let id = DecisionId::in_partition((millis << 80) | (7 << 76), Partition::of(&UserId::new(user).unwrap()));
        celeris_model::Decision { id, ..decision_of(user) }
    }

    #[test]
    fn events_keep_their_stored_format() {
        // These bytes are on users' disks. A change needs a new format byte and a way to read the old one.
        let decision = DecisionId::new("d").unwrap();
        let key = keys::ranking_event(MODEL, &EventId::new("e").unwrap());
        assert_eq!(keys::hex(&key), "0107000065");
        let expected = "0105616c696365ac02ac020103746f700101640201620000403f01610000803e0001000000003f";
        let value = encode(&key, &event(&decision));
        let found = keys::hex(&value);
        assert_eq!(&found[..found.len() - 8], expected);
        assert_eq!(keys::hex(&keys::event_of_decision(MODEL, &decision)), "0107010064");
    }

    #[test]
    fn an_event_is_added_once_changed_and_deleted_with_its_user_and_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
        let decisions = storage.decisions();
        let (old, new) = (decision_at("alice", 1_000), decision_at("alice", 2_000));
        let id = |text: &str| EventId::new(text).unwrap();
        for (decision, name) in [(&old, "old"), (&new, "new")] {
            assert!(decisions.record(decision.clone(), None));
            assert_eq!(decisions.add_event(MODEL, &id(name), &event(&decision.id)).unwrap(), AddedEvent::Added);
        }
        let exists = decisions.add_event(MODEL, &id("old"), &event(&new.id)).unwrap();
        assert_eq!(exists, AddedEvent::Exists(Box::new(event(&old.id))));
        assert!(decisions.awaits_activation(MODEL, &new.id).unwrap());
        let changed = decisions.change_event(MODEL, &id("new"), |event| event.is_active = true).unwrap().unwrap();
        assert!(changed.is_active && !decisions.awaits_activation(MODEL, &new.id).unwrap());
        assert_eq!(decisions.change_event(MODEL, &id("none"), |_| ()).unwrap(), None);
        assert_eq!(decisions.expire(MODEL, Timestamp(1_500)).unwrap(), 2, "the decision and its event");
        assert_eq!(decisions.expire(MODEL, Timestamp(1_500)).unwrap(), 0);
        assert_eq!(decisions.event(MODEL, &id("old")).unwrap(), None);
        drop(storage);

        let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
        let decisions = storage.decisions();
        assert_eq!(decisions.event(MODEL, &id("new")).unwrap(), Some(changed));
        let erased = decisions.erase(&[MODEL], &UserId::new("alice").unwrap()).unwrap();
        assert_eq!(decisions.event(MODEL, &id("new")).unwrap(), None);
        let refused = decisions.add_event(MODEL, &id("new"), &event(&new.id)).unwrap();
        assert_eq!(refused, AddedEvent::Refused, "no event of the user is added meanwhile");
        assert_eq!(erased.finish(UserEpoch(301)), 1);
    }
}
