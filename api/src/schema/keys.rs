//! API keys.

use std::collections::BTreeSet;

use celeris_manager::{self as manager, ApiKey, Grant, MadeKey, NewKey};
use celeris_model::{ModelName, StreamName, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ids::Name;

mirror_enum! {
    /// What a key may be used for.
    Role = manager::Role {
        /// Predictions and rankings, and what they are made of.
        Predict,
        /// Observations, corrections and items.
        Observe,
        /// Models, versions, trainings, pipelines, quality, users' histories and metrics; includes `predict`.
        Operate,
        /// Keys, backups, deletion of models and erasure of users; includes all other roles.
        Admin,
    }
}

/// A key to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKeyBody {
    /// For people; 1 to 64 bytes.
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// What it may be used for; at least one role.
    #[schema(min_items = 1)]
    roles: Vec<Role>,
    /// The models and selections that it is for, by name; all, if there are no streams either.
    #[serde(default)]
    #[schema(value_type = Vec<Name>, max_items = 100)]
    models: BTreeSet<ModelName>,
    /// The streams whose models and selections it is for.
    #[serde(default)]
    #[schema(value_type = Vec<Name>, max_items = 100)]
    streams: BTreeSet<StreamName>,
    /// Requests a second on each node; unlimited if absent.
    #[serde(default)]
    requests_per_second: Option<f64>,
    /// Observations a second on each node; unlimited if absent.
    #[serde(default)]
    observations_per_second: Option<f64>,
    /// The time from which it is not valid any more, in Unix milliseconds; never, if absent.
    #[serde(default)]
    expires: Option<i64>,
}

impl From<NewKeyBody> for NewKey {
    fn from(body: NewKeyBody) -> Self {
        let NewKeyBody { name, roles, models, streams, requests_per_second, observations_per_second, expires } = body;
        let roles = roles.into_iter().map(Into::into).collect();
        let grant = Grant { roles, models, streams, requests_per_second, observations_per_second };
        Self { name, grant, expires: expires.map(Timestamp) }
    }
}

/// A key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct Key {
    /// Names the key, and begins it after `celeris_`.
    pub id: String,
    pub name: String,
    pub roles: Vec<Role>,
    /// The models and selections that it is for; all, if there are no streams either.
    #[schema(value_type = Vec<Name>)]
    pub models: Vec<ModelName>,
    /// The streams whose models and selections it is for.
    #[schema(value_type = Vec<Name>)]
    pub streams: Vec<StreamName>,
    /// Requests a second on each node; null if unlimited.
    pub requests_per_second: Option<f64>,
    /// Observations a second on each node; null if unlimited.
    pub observations_per_second: Option<f64>,
    /// In Unix milliseconds.
    pub created: i64,
    /// Who made it; null if that is not known.
    pub created_by: Option<String>,
    /// The time from which it is not valid any more, in Unix milliseconds; null for never.
    pub expires: Option<i64>,
    /// When it was revoked, in Unix milliseconds; null if it was not.
    pub revoked: Option<i64>,
    /// Who revoked it; null if that is not known.
    pub revoked_by: Option<String>,
}

impl From<&ApiKey> for Key {
    fn from(key: &ApiKey) -> Self {
        let Grant { roles, models, streams, requests_per_second, observations_per_second } = key.grant.clone();
        Self {
            id: key.id.clone(),
            name: key.name.clone(),
            roles: roles.into_iter().map(Into::into).collect(),
            models: models.into_iter().collect(),
            streams: streams.into_iter().collect(),
            requests_per_second,
            observations_per_second,
            created: key.created.0,
            created_by: key.created_by.clone(),
            expires: key.expires.map(|time| time.0),
            revoked: key.revoked.map(|time| time.0),
            revoked_by: key.revoked_by.clone(),
        }
    }
}

/// All keys, the latest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyList)]
pub struct Keys {
    pub keys: Vec<Key>,
}

/// A key that was made.
#[derive(Debug, Serialize, ToSchema)]
pub struct NewKeyReply {
    /// What a client sends as `Authorization: Bearer KEY`. It is shown this once, and not kept.
    pub key: String,
    #[serde(flatten)]
    pub about: Key,
}

impl From<MadeKey> for NewKeyReply {
    fn from(MadeKey { key, secret }: MadeKey) -> Self {
        Self { key: secret, about: Key::from(&key) }
    }
}
