//! A user's events with the features of their items under one version.

use celeris_model::{Example, History, Timestamp};
use celeris_storage::Event;

use super::{Sources, Stretch};
use crate::error::PredictorError;
use crate::features::{Resolved, one_in_context};
use crate::version::ServingVersion;

/// Features resolved for the examples of a stretch.
pub(crate) struct ResolvedEvents<'a> {
    pub(super) stretch: Stretch<'a>,
    pub(super) resolved: Vec<Resolved<'a>>,
}

impl<'a> ResolvedEvents<'a> {
    /// Resolves the events without freezing features, for a single answer that is not kept.
    pub(crate) fn of(
        stretch: Stretch<'a>,
        version: &'a ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<Self, PredictorError> {
        let scope = sources.scope();
        Self::by(stretch, version, sources, |event| sources.features.resolve(version, scope, &event.item))
    }

    /// Resolves the events for a state that is about to learn from them under `version`, and
    /// freezes all their features, if this node owns the user.
    pub(super) fn frozen(
        stretch: Stretch<'a>,
        version: &'a ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<Self, PredictorError> {
        let scope = sources.scope();
        Self::by(stretch, version, sources, |event| {
            let resolved = sources.features.resolve_frozen(version, scope, &event.item)?;
            sources.wait_for(resolved.frozen());
            Ok(resolved)
        })
    }

    fn by(
        stretch: Stretch<'a>,
        version: &'a ServingVersion,
        sources: &Sources<'_>,
        resolve: impl Fn(&Event) -> Result<Resolved<'a>, PredictorError>,
    ) -> Result<Self, PredictorError> {
        let slots = version.theta.slots(stretch.events.iter().map(|event| &event.item));
        let resolve = |(event, slot): (&Event, Option<u32>)| match slot {
            Some(slot) => Ok(Resolved::trained(version, slot)),
            None => resolve(event),
        };
        let resolved: Result<Vec<_>, PredictorError> = stretch.events.iter().zip(slots).map(resolve).collect();
        let mut resolved = resolved?;
        if version.parts.is_some() {
            let computed = |(event, item)| {
                let context = sources.context_of(event)?;
                Ok(one_in_context(version, item, context.as_ref()))
            };
            resolved = stretch.events.iter().zip(resolved).map(computed).collect::<Result<_, PredictorError>>()?;
        }
        Ok(Self { stretch, resolved })
    }
}

impl History for ResolvedEvents<'_> {
    fn example(&self, index: u64) -> Example<'_> {
        let index = usize::try_from(index - self.stretch.first).expect("an index into memory");
        example(&self.stretch.events[index], &self.resolved[index], self.stretch.taken_before(index))
    }
}

/// The training example of an event, given its item's features and when the item was taken before.
pub(super) fn example<'a>(event: &Event, resolved: &'a Resolved<'_>, taken_before: Option<Timestamp>) -> Example<'a> {
    Example {
        features: resolved.features(),
        label: event.label,
        offset: resolved.offset(),
        weight: event.weight,
        timestamp: event.timestamp,
        taken_before,
        choice: resolved.choice(),
    }
}
