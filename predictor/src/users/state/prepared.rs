//! States under versions that do not serve: prepared before a switch, kept for a rollback, or
//! compared with the active one.

use std::sync::Arc;

use celeris_model::{History as _, ModelId, UserEpoch, UserModel, VersionId};

use super::{Event, HeldState, ResolvedEvents, Sources, Stretch, UserState};
use crate::error::PredictorError;
use crate::users::profile::Profile;
use crate::version::ServingVersion;

/// Histories up to this length are copied and rebuilt outside the user's lock; longer ones are too
/// expensive to copy. They are also completely in memory.
const COPIED_EVENTS_MAX: u64 = 4096;

/// Copy of the events that a state is built from.
pub(crate) struct Excerpt {
    amended: UserEpoch,
    profile: Option<Arc<Profile>>,
    events: Vec<Event>,
}

impl Excerpt {
    /// Builds the state under `version` from these events.
    pub(crate) fn rebuild(
        &self,
        version: &ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<Arc<UserModel>, PredictorError> {
        let history = ResolvedEvents::frozen(Stretch::whole(&self.events, version), version, sources)?;
        let pull = self.profile.as_ref().and_then(|profile| version.profile(profile.attributes()));
        let state = UserModel::rebuild(&version.learning, &history, self.events.len() as u64)?;
        Ok(Arc::new(state.with_profile(&version.learning, pull)))
    }
}

/// How to prepare a user's state.
pub(crate) enum Preparation {
    /// Nothing to do: the state exists, or the user has no observations.
    Done,
    /// Build outside the lock, then [`UserState::put_prepared`].
    Copied(Excerpt),
    /// Call [`UserState::model`] under the lock.
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
            let (profile, events) = (self.profile.clone(), self.events.clone());
            Preparation::Copied(Excerpt { amended: self.amended, profile, events })
        }
    }

    /// Keeps a state that was built outside the lock from these sources, unless the history was
    /// amended, or other attributes given, meanwhile. If events were only added, the kept state lags behind.
    pub(crate) fn put_prepared(
        &mut self,
        version: &ServingVersion,
        (excerpt, state): (&Excerpt, Arc<UserModel>),
        sources: &Sources<'_>,
    ) {
        let same_profile =
            excerpt.profile.as_ref().map(|of| of.revision()) == self.profile.as_ref().map(|of| of.revision());
        let only_added =
            same_profile && self.amended == excerpt.amended && self.observations() >= excerpt.events.len() as u64;
        if only_added && !self.states.iter().any(|held| held.is_of(version)) {
            self.keep(version, state, sources);
            self.wait_for_frozen(sources);
        }
    }

    /// Drops the states of `model` under other versions than `kept`.
    pub(crate) fn release(&mut self, model: ModelId, kept: &[VersionId]) {
        self.states.retain(|held| held.model != model || kept.contains(&held.version));
    }

    /// The label that `version` predicts for the event of this epoch from the events before it; the
    /// state then learns from the event. `None` if the event is gone or the state has already
    /// learnt from it.
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
                self.newcomer(version)
            }
        };
        self.know_takings(version, sources)?;
        let before = self.caught_up(state, index, version, sources)?;
        let history = self.resolve_between(index, index + 1, version, sources)?;
        let example = history.example(index);
        let score = example.offset + before.response(example.features);
        drop(history);
        let after = self.caught_up(before, index + 1, version, sources)?;
        self.keep(version, after, sources);
        self.wait_for_frozen(sources);
        Ok(Some(version.learning.loss().expected_label(score)))
    }
}
