//! States under versions that do not serve: prepared before a switch, kept for the way back, or compared with.

use std::sync::Arc;

use celeris_model::{History as _, ModelId, UserEpoch, UserModel, VersionId};

use super::{Event, HeldState, ResolvedEvents, Sources, Stretch, UserState};
use crate::error::PredictorError;
use crate::version::ServingVersion;

/// Histories up to this length are copied and rebuilt outside the user's lock; a longer one costs too much to copy. They
/// are whole in memory, too.
const COPIED_EVENTS_MAX: u64 = 4096;

/// What a state is built from, as it was at one moment.
pub(crate) struct Excerpt {
    amended: UserEpoch,
    events: Vec<Event>,
}

impl Excerpt {
    /// The state under `version` that these events amount to.
    pub(crate) fn rebuild(
        &self,
        version: &ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<Arc<UserModel>, PredictorError> {
        let history = ResolvedEvents::frozen(Stretch::whole(&self.events, version), version, sources)?;
        Ok(Arc::new(UserModel::rebuild(&version.learning, &history, self.events.len() as u64)?))
    }
}

/// What preparing a user's state takes.
pub(crate) enum Preparation {
    /// Nothing: it is there, or the user has said nothing.
    Done,
    /// Computing outside the lock, and [`UserState::put_prepared`].
    Copied(Excerpt),
    /// [`UserState::model`], under the lock.
    UnderLock,
}

impl UserState {
    pub(crate) fn preparation(&self, version: &ServingVersion) -> Preparation {
        if self.observations() == 0 || self.held(version).is_some() {
            Preparation::Done
        } else if self.states.iter().any(|held| held.is_of(version))
            || self.before > 0
            || self.observations() > COPIED_EVENTS_MAX
        {
            // Catching up is quick.
            Preparation::UnderLock
        } else {
            Preparation::Copied(Excerpt { amended: self.amended, events: self.events.clone() })
        }
    }

    /// Keeps a state that was built outside the lock from these sources, unless the past has changed meanwhile. Events
    /// that were only added leave it lagging.
    pub(crate) fn put_prepared(
        &mut self,
        version: &ServingVersion,
        (excerpt, state): (&Excerpt, Arc<UserModel>),
        sources: &Sources<'_>,
    ) {
        let only_added = self.amended == excerpt.amended && self.observations() >= excerpt.events.len() as u64;
        if only_added && !self.states.iter().any(|held| held.is_of(version)) {
            self.keep(version, state);
            self.wait_for_frozen(sources);
        }
    }

    /// Drops the states of `model` under other versions than `kept`.
    pub(crate) fn release(&mut self, model: ModelId, kept: &[VersionId]) {
        self.states.retain(|held| held.model != model || kept.contains(&held.version));
    }

    /// What `version` expected of the event of this epoch, had it predicted it before learning from it; learns from
    /// it afterwards. `None` where the event is gone, or the state has learnt from it already.
    pub(crate) fn predict_event(
        &mut self,
        epoch: UserEpoch,
        version: &ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<Option<f32>, PredictorError> {
        let Ok(place) = self.events.binary_search_by_key(&epoch, |event| event.epoch) else { return Ok(None) };
        let index = self.before + place as u64;
        let state = match self.take(version) {
            Some(ahead) if ahead.state.observations() > index => {
                self.states.push(ahead);
                return Ok(None);
            }
            Some(HeldState { state, .. }) => state,
            None => {
                self.read_back(sources, version)?;
                version.newcomer.clone()
            }
        };
        self.know_takings(version, sources)?;
        let before = self.caught_up(state, index, version, sources)?;
        let history = self.resolve_between(index, index + 1, version, sources)?;
        let example = history.example(index);
        let score = example.offset + before.response(example.features);
        drop(history);
        let after = self.caught_up(before, index + 1, version, sources)?;
        self.keep(version, after);
        self.wait_for_frozen(sources);
        Ok(Some(version.learning.loss().expected_label(score)))
    }
}
