//! The computed parts of the features that versions learn from.

use std::sync::Arc;

use celeris_model::{ItemId, RecordedContext};

use super::Ingest;
use crate::error::PredictorError;
use crate::features::{InContext, Resolved, one_in_context};
use crate::users::Subject;
use crate::version::ServingVersion;

impl Ingest {
    /// The features of an item for the versions that have computed parts, so that nothing is computed under the user's lock
    /// unless the item changes meanwhile. Empty if no version has parts: then nothing is done.
    pub(super) fn computed_ahead<'v>(
        &self,
        (versions, slots): (&'v [Arc<ServingVersion>], &[Option<u32>]),
        subject: &Subject,
        (item, context): (&ItemId, Option<&RecordedContext>),
    ) -> Result<Vec<Option<Resolved<'v>>>, PredictorError> {
        if versions.iter().all(|version| version.parts.is_none()) {
            return Ok(Vec::new());
        }
        let context = context.map(RecordedContext::named);
        let scope = self.features.scope_of(&subject.model.stream, &subject.key.user);
        let ahead = |(version, slot): (&'v Arc<ServingVersion>, &Option<u32>)| {
            if version.parts.is_none() {
                return Ok(None);
            }
            let resolved = match slot {
                Some(slot) => Resolved::trained(version, *slot),
                None => self.features.resolve(version, scope, item)?,
            };
            Ok(Some(one_in_context(version, resolved, context.as_ref())))
        };
        versions.iter().zip(slots).map(ahead).collect()
    }
}

/// The features that versions learn from: with their computed parts, which are those of `ahead`
/// ([`Ingest::computed_ahead`]) unless the item has changed.
pub(super) fn learnt_features<'v>(
    versions: &'v [Arc<ServingVersion>],
    resolved: Vec<Resolved<'v>>,
    ahead: impl ExactSizeIterator<Item = Option<Resolved<'v>>>,
    context: Option<&RecordedContext>,
) -> Vec<Resolved<'v>> {
    if ahead.len() == 0 {
        return resolved;
    }
    let computed =
        |((version, resolved), ahead): ((&'v Arc<ServingVersion>, Resolved<'v>), Option<Resolved<'v>>)| match ahead {
            _ if version.parts.is_none() => resolved,
            Some(Resolved::InContext(ahead)) if ahead.of.computes_as(&resolved) => {
                Resolved::InContext(Box::new(InContext { of: resolved, ..*ahead }))
            }
            _ => one_in_context(version, resolved, context.map(RecordedContext::named).as_ref()),
        };
    versions.iter().zip(resolved).zip(ahead).map(computed).collect()
}
