//! When a user last took each item, for models with implicit loss ([`celeris_model::preference`]).
//! A view of the history, built when such a model first learns from it; users without such a model
//! pay nothing.

use std::borrow::Cow;

use celeris_model::preference::Takings;
use celeris_model::{ItemId, Loss, Timestamp, UserEpoch};
use celeris_storage::Event;

use super::{Sources, UserState};
use crate::error::PredictorError;
use crate::version::ServingVersion;

/// A run of a user's events, with the earlier takings that the version's loss needs.
pub(crate) struct Stretch<'a> {
    /// The index of its first event in the history.
    pub(super) first: u64,
    pub(super) events: &'a [Event],
    /// For each event, when its item was last taken before it; empty unless the loss is implicit.
    taken_before: Cow<'a, [Option<Timestamp>]>,
}

impl<'a> Stretch<'a> {
    /// A history from its start.
    pub(crate) fn whole(events: &'a [Event], version: &ServingVersion) -> Self {
        let mut taken_before = Vec::new();
        if asks(version) {
            let mut takings = Takings::default();
            taken_before.extend(events.iter().map(|event| takings.next(&event.item, event.label, event.timestamp)));
        }
        Self { first: 0, events, taken_before: taken_before.into() }
    }

    /// When the item of the event at this position of the stretch was last taken before it.
    pub(super) fn taken_before(&self, place: usize) -> Option<Timestamp> {
        self.taken_before.get(place).copied().flatten()
    }
}

/// Whether states of this version depend on what was taken before.
fn asks(version: &ServingVersion) -> bool {
    version.learning.loss() == Loss::Implicit
}

/// Takings up to the last event of a history.
pub(super) struct UserTakings {
    takings: Takings<ItemId>,
    /// For each event in memory, when its item was last taken before it.
    before: Vec<Option<Timestamp>>,
    /// Heap bytes of the long ids in `takings`; an upper bound, since they may be shared.
    item_bytes: usize,
}

impl UserTakings {
    /// Built from a history whose events `earlier` are no longer in memory and whose `events` are.
    fn of(earlier: &[Event], events: &[Event]) -> Self {
        let mut all = Self { takings: Takings::default(), before: Vec::with_capacity(events.len()), item_bytes: 0 };
        for event in earlier {
            all.take(event);
        }
        events.iter().for_each(|event| all.remember(event));
        all
    }

    fn take(&mut self, event: &Event) -> Option<Timestamp> {
        let items = self.takings.len();
        let before = self.takings.next(event.item.clone(), event.label, event.timestamp);
        if self.takings.len() > items {
            self.item_bytes += event.item.heap_bytes();
        }
        before
    }

    /// Adds the next event of the history, which is in memory.
    pub(super) fn remember(&mut self, event: &Event) {
        let before = self.take(event);
        self.before.push(before);
    }

    /// Drops the entries of all but the last `kept` events.
    pub(super) fn keep_last(&mut self, kept: usize) {
        self.before = self.before.split_off(self.before.len().saturating_sub(kept));
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.takings.bytes()
            + self.item_bytes
            + self.before.capacity() * size_of::<Option<Timestamp>>()
    }
}

impl UserState {
    /// Builds the takings if the loss of `version` needs them. Events that are no longer in memory
    /// are read from the log; later events are added one at a time.
    pub(super) fn know_takings(
        &mut self,
        version: &ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<(), PredictorError> {
        if self.takings.is_none() && asks(version) {
            let earlier = self.earlier(sources)?;
            self.takings = Some(Box::new(UserTakings::of(&earlier, &self.events)));
        }
        Ok(())
    }

    /// The events before those in memory, all of which are durable.
    pub(super) fn earlier(&self, sources: &Sources<'_>) -> Result<Vec<Event>, PredictorError> {
        if self.before == 0 {
            return Ok(Vec::new());
        }
        let first = self.events.first().map(|event| event.epoch);
        let mut all = sources
            .storage
            .histories()
            .events_after(&sources.key.stream, &sources.key.user, UserEpoch(0))?
            .observations;
        all.truncate(first.map_or(all.len(), |first| all.partition_point(|event| event.epoch < first)));
        debug_assert_eq!(all.len() as u64, self.before, "snapshots count what the log holds");
        Ok(all)
    }

    /// The events with index from `first` to `end`, exclusive, all of which are in memory. If
    /// `version` needs takings, they have been built.
    pub(super) fn stretch<'a>(&'a self, first: u64, end: u64, version: &ServingVersion) -> Stretch<'a> {
        let places = self.place(first)..self.place(end);
        let known = self.takings.as_deref().filter(|_| asks(version));
        debug_assert!(known.is_some() || !asks(version), "a state needs takings that have not been built");
        let taken_before = known.map_or(&[][..], |known| &known.before[places.clone()]);
        Stretch { first, events: &self.events[places], taken_before: taken_before.into() }
    }
}
