//! Attributes of users: what is known of them beside their events.
//!
//! Attributes belong to a user of a stream, and replace each other as a whole. They pass through the queue of the user's
//! shard in the order of the user's events, are replicated with them, and an erasure of the user removes them in its own
//! atomic write. They are not records: nothing is kept of earlier attributes, and they take no epoch.

use std::ops::ControlFlow;

use celeris_model::{StreamName, UserId};
use serde_json::{Map, Value};

use crate::database::{Access, Column, Database, KeyRange};
use crate::error::StorageError;
use crate::layout::envelope::{corrupt, sealed, unseal};
use crate::layout::keys;
use crate::log::{Log, Ticket};

/// A user with attributes.
pub type DescribedUser = (UserId, Map<String, Value>);

/// Attributes of users. Reads return durable attributes only.
#[derive(Clone, Copy)]
pub struct UserAttributes<'s> {
    pub(crate) database: &'s Database,
    pub(crate) log: &'s Log,
}

impl UserAttributes<'_> {
    /// Replaces the attributes of a user, after all earlier appends for the user; empty ones remove them. Durable with the
    /// returned ticket.
    ///
    /// The caller bounds the attributes, and holds off other appends for the user.
    ///
    /// # Errors
    /// `Overloaded`, `StorageFull`, `Poisoned`, `Closed`, `NotOwner` or `Fenced`; nothing is changed then.
    pub fn put(
        &self,
        stream: &StreamName,
        user: &UserId,
        attributes: &Map<String, Value>,
    ) -> Result<Ticket, StorageError> {
        let key = keys::user_attributes(stream, user);
        let value = (!attributes.is_empty()).then(|| encode(&key, attributes));
        self.log.describe(user, (key, value))
    }

    /// The attributes of a user; `None` if there are none.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn get(&self, stream: &StreamName, user: &UserId) -> Result<Option<Map<String, Value>>, StorageError> {
        let key = keys::user_attributes(stream, user);
        let stored = self.database.get(Column::UserAttributes, &key)?;
        stored.map(|value| decode(&key, &value)).transpose()
    }

    /// Up to `limit` users of a stream with their attributes after `after`, in key order: by partition, then by length and
    /// bytes of their ids.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn list(
        &self,
        stream: &StreamName,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<DescribedUser>, StorageError> {
        let mut users = Vec::new();
        if limit == 0 {
            return Ok(users);
        }
        let all = KeyRange::prefix(keys::of_stream(stream));
        let range = match after {
            Some(user) => all.after(keys::user_attributes(stream, user)),
            None => all,
        };
        self.database.scan(Column::UserAttributes, range, Access::Sweep, |key, value| {
            let described = keys::described_user(key);
            let (_, user) = described.ok_or_else(|| corrupt(Column::UserAttributes, key, "its key names no user"))?;
            users.push((user, decode(key, value)?));
            Ok(if users.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(users)
    }
}

fn encode(key: &[u8], attributes: &Map<String, Value>) -> Vec<u8> {
    sealed(key, &serde_json::to_vec(attributes).expect("JSON values have text keys"))
}

fn decode(key: &[u8], value: &[u8]) -> Result<Map<String, Value>, StorageError> {
    let body = unseal(Column::UserAttributes, key, value)?;
    serde_json::from_slice(body).map_err(|error| corrupt(Column::UserAttributes, key, &error.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn attributes_keep_their_stored_format() {
        let attributes = serde_json::from_str(r#"{"age":31}"#).unwrap();
        let value = encode(b"k", &attributes);
        assert_eq!(unseal(Column::UserAttributes, b"k", &value).unwrap(), b"{\"age\":31}");
        assert_eq!(decode(b"k", &value).unwrap(), attributes);
    }
}
