//! Attributes of users.
//!
//! They are no event: they take no epoch, and the log keeps nothing of earlier ones. They are written in the order of the
//! user's events, and the user's states are rebuilt with them, as if they had always been known.

use celeris_model::{ModelName, UserEpoch, UserId};
use celeris_retrieval::catalog::check_of_user;
use serde_json::{Map, Value};

use super::Ingest;
use crate::error::PredictorError;

impl Ingest {
    /// Replaces the attributes of a user of the model's stream, for every model of the stream; empty ones remove them, and those
    /// that are null are none.
    /// Returns the user's epoch, which does not change, once the attributes are durable.
    ///
    /// # Errors
    /// `Attributes` if they are too many, too large or have other values, `UnknownModel` or `Storage`.
    pub async fn describe_user(
        &self,
        model: &ModelName,
        user: &UserId,
        mut attributes: Map<String, Value>,
    ) -> Result<UserEpoch, PredictorError> {
        check_of_user(&attributes)?;
        attributes.retain(|_, value| !value.is_null());
        let subject = self.users.subject(self.models.on_stream_of(model)?, user);
        let (epoch, pending) = self.users.with_state(&subject, |state, _| {
            let is_known = match state.attributes() {
                Some(known) => *known == attributes,
                None => attributes.is_empty(),
            };
            if !is_known {
                let ticket = self.storage.user_attributes().put(&subject.key.stream, user, &attributes)?;
                state.describe(attributes, ticket);
            }
            Ok((state.epoch, state.pending()))
        })?;
        self.users.settle(&subject, pending.as_ref()).await?;
        Ok(epoch)
    }
}
