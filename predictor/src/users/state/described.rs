//! States of users of whom something is known beside their events.

use std::sync::Arc;

use celeris_model::UserModel;
use celeris_storage::Ticket;
use serde_json::{Map, Value};

use super::{Sources, UserState};
use crate::users::profile::Profile;
use crate::version::ServingVersion;

impl UserState {
    /// The user's attributes, `None` if there are none.
    pub(crate) fn attributes(&self) -> Option<&Map<String, Value>> {
        self.profile.as_ref().map(|profile| profile.attributes())
    }

    /// The revision of the user's attributes.
    pub(crate) fn profile(&self) -> u64 {
        self.profile.as_ref().map_or(Profile::NONE, |profile| profile.revision())
    }

    /// Replaces the attributes by those whose write was appended; states are rebuilt on the next access.
    pub(crate) fn describe(&mut self, attributes: Map<String, Value>, ticket: Ticket) {
        self.profile = Profile::of(attributes);
        let pending = self.pending.take().unwrap_or(Ticket::DURABLE);
        self.pending = Some(pending.latest(ticket));
        self.states.clear();
    }

    /// What the user's attributes move states under `version` by.
    pub(super) fn pull(&self, version: &ServingVersion) -> Option<Arc<[f32]>> {
        version.profile(self.attributes()?)
    }

    /// The state under `version` without observations.
    pub(super) fn newcomer(&self, version: &ServingVersion) -> Arc<UserModel> {
        match self.pull(version) {
            None => version.newcomer.clone(),
            pull => Arc::new(UserModel::clone(&version.newcomer).with_profile(&version.learning, pull)),
        }
    }

    /// [`UserState::newcomer`], kept if the user's attributes have moved it.
    pub(super) fn described_newcomer(&mut self, version: &ServingVersion, sources: &Sources<'_>) -> Arc<UserModel> {
        let newcomer = self.newcomer(version);
        if !Arc::ptr_eq(&newcomer, &version.newcomer) {
            self.keep(version, newcomer.clone(), sources);
        }
        newcomer
    }
}
