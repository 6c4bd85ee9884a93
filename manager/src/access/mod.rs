//! API keys: who may use the node, for what, and how much.
//!
//! Keys are documents of the registry, so every node of a cluster has them. A node without any key that was ever made is
//! open to every client that reaches it; once there was one, it stays closed also when all are revoked.

mod principal;
mod role;
mod secret;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::{ModelName, StreamName, Timestamp};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

pub use self::principal::acting_for;
pub(crate) use self::principal::principal;
pub use self::role::Role;
pub use self::secret::SecretHash;
use self::secret::{NewSecret, is_hash_of};
use crate::error::ManagerError;
use crate::leadership::Leadership;

/// Maximum number of keys, revoked ones included.
pub const KEYS_MAX: usize = 10_000;

/// Maximum length of the name of a key, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Maximum number of models and of streams of a key.
const BOUNDS_MAX: usize = 100;

/// The range of a rate of a key.
const RATE_MIN: f64 = 0.01;
const RATE_MAX: f64 = 1e9;

const KIND: &str = "api_key";

fn key(id: &str) -> Result<RegistryKey, StorageError> {
    RegistryKey::new([KIND, id])
}

/// What a client may do, and how much of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    pub roles: BTreeSet<Role>,
    /// The models and selections that it may use, by name; with `streams` empty too, all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub models: BTreeSet<ModelName>,
    /// The streams whose models and selections it may use.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub streams: BTreeSet<StreamName>,
    /// Requests a second, on one node; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<f64>,
    /// Observations a second, on one node; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observations_per_second: Option<f64>,
}

impl Grant {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self {
            roles: BTreeSet::from([Role::Admin]),
            models: BTreeSet::new(),
            streams: BTreeSet::new(),
            requests_per_second: None,
            observations_per_second: None,
        }
    }

    /// Whether one of its roles includes this one.
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        self.roles.iter().any(|own| own.includes(role))
    }

    /// Whether it is for some models or streams only.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        !self.models.is_empty() || !self.streams.is_empty()
    }

    /// Whether it is for this model, or selection, of this stream.
    #[must_use]
    pub fn covers(&self, model: &ModelName, stream: Option<&StreamName>) -> bool {
        !self.is_bounded() || self.models.contains(model) || stream.is_some_and(|stream| self.streams.contains(stream))
    }

    fn check(&self) -> Result<(), ManagerError> {
        let wrong = |field: &'static str, problem: String| Err(ManagerError::ApiKey { field, problem });
        if self.roles.is_empty() {
            return wrong("roles", format!("give at least one of {}", Role::ALL.map(Role::name).join(", ")));
        }
        for (field, count) in [("models", self.models.len()), ("streams", self.streams.len())] {
            if count > BOUNDS_MAX {
                return wrong(field, format!("at most {BOUNDS_MAX}, got {count}"));
            }
        }
        if self.is_bounded() && self.roles.contains(&Role::Admin) {
            return wrong("roles", "a key that is bounded to models or streams cannot have the role admin".to_owned());
        }
        let rates = [
            ("requests_per_second", self.requests_per_second),
            ("observations_per_second", self.observations_per_second),
        ];
        for (field, rate) in rates {
            if rate.is_some_and(|rate| !(RATE_MIN..=RATE_MAX).contains(&rate)) {
                return wrong(field, format!("must be from {RATE_MIN} to {RATE_MAX:.0}"));
            }
        }
        Ok(())
    }
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApiKey {
    pub id: String,
    /// For people; not unique.
    pub name: String,
    /// Hash of the secret: SHA-256, in hexadecimal.
    hash: String,
    #[serde(flatten)]
    pub grant: Grant,
    pub created: Timestamp,
    /// Who made it; absent on a node that was open, and for the command without a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<String>,
}

impl ApiKey {
    /// Whether it can be used at this time.
    #[must_use]
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}

/// A key to make.
#[derive(Debug, Clone, PartialEq)]
pub struct NewKey {
    pub name: String,
    pub grant: Grant,
    pub expires: Option<Timestamp>,
}

/// Who changes keys. That they may is checked again where the change is made: they may have lost the right since.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changer {
    /// As records name them; absent on a node that is open.
    pub name: Option<String>,
    /// The id of their key, if they have one.
    pub key: Option<String>,
    /// Whether the configuration of the node has a key that may make others.
    pub has_other_admin: bool,
}

/// A key that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct MadeKey {
    pub key: ApiKey,
    /// As its client sends it. It is not kept.
    pub secret: String,
}

/// The keys of a node.
pub struct ApiKeys {
    storage: Storage,
    leadership: Arc<Leadership>,
    /// All keys by their ids, revoked ones too.
    keys: RwLock<HashMap<String, Arc<ApiKey>>>,
    /// Held while keys are changed.
    changing: Mutex<()>,
}

impl ApiKeys {
    /// # Errors
    /// `Storage`: also for a key that cannot be read, since the node could take itself for one without keys.
    pub(crate) fn open(storage: Storage, leadership: Arc<Leadership>) -> Result<Self, ManagerError> {
        let keys = Self { storage, leadership, keys: RwLock::default(), changing: Mutex::default() };
        keys.reload()?;
        Ok(keys)
    }

    /// The keys of a store that no node has open, and that is in no cluster.
    ///
    /// # Errors
    /// `Storage`.
    pub fn of_store(storage: Storage) -> Result<Self, ManagerError> {
        let leadership = Arc::<Leadership>::default();
        leadership.begin();
        Self::open(storage, leadership)
    }

    /// Takes in documents of the registry that another node has changed.
    pub(crate) fn take_in(&self, documents: &[RegistryKey]) {
        let is_key = |document: &RegistryKey| document.parts().first().is_some_and(|kind| kind == KIND);
        if documents.iter().any(is_key)
            && let Err(error) = self.reload()
        {
            tracing::error!(%error, "API keys cannot be read; those known before remain in force");
        }
    }

    fn reload(&self) -> Result<(), ManagerError> {
        let mut keys = HashMap::new();
        for (_, record) in self.storage.registry().list::<ApiKey>(&RegistryKey::new([KIND])?)? {
            let record = record?;
            keys.insert(record.id.clone(), Arc::new(record));
        }
        *self.keys.write() = keys;
        Ok(())
    }

    /// Whether a key was ever made: requests need one then.
    #[must_use]
    pub fn are_required(&self) -> bool {
        !self.keys.read().is_empty()
    }

    /// The key that a client has sent, if it is valid at this time.
    #[must_use]
    pub fn find(&self, sent: &str, now: Timestamp) -> Option<Arc<ApiKey>> {
        let (id, secret) = secret::parts(sent)?;
        let found = self.keys.read().get(id).cloned()?;
        (is_hash_of(&found.hash, secret) && found.is_valid(now)).then_some(found)
    }

    /// All keys, the latest first.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<ApiKey>> {
        let mut keys: Vec<Arc<ApiKey>> = self.keys.read().values().cloned().collect();
        keys.sort_by(|one, other| other.created.cmp(&one.created).then_with(|| one.id.cmp(&other.id)));
        keys
    }

    /// Makes a key; durable when it returns. Unless the configuration of the node has a key that may make others, the first one
    /// has to be one.
    ///
    /// # Errors
    /// `ApiKey` for a field that is not valid, `NoRight`, `NoAdminKey`, `TooManyApiKeys`, or `Storage`, with `NotOwner` unless this node
    /// leads.
    pub fn create(&self, new: NewKey, by: Changer) -> Result<MadeKey, ManagerError> {
        let NewKey { name, grant, expires } = new;
        let now = Timestamp::from(SystemTime::now());
        let wrong = |field, problem: String| Err(ManagerError::ApiKey { field, problem });
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return wrong("name", format!("1 to {NAME_BYTES_MAX} bytes without control characters"));
        }
        if expires.is_some_and(|expires| expires <= now) {
            return wrong("expires", "lies in the past".to_owned());
        }
        grant.check()?;
        let _changing = self.changing.lock();
        self.leadership.term()?;
        self.check_right(&by, now)?;
        if self.keys.read().len() >= KEYS_MAX {
            return Err(ManagerError::TooManyApiKeys { max: KEYS_MAX });
        }
        let makes_others =
            grant.roles.contains(&Role::Admin) && expires.is_none() && grant.requests_per_second.is_none();
        if !by.has_other_admin && !makes_others && !self.has_admin(now, None) {
            return Err(ManagerError::NoAdminKey);
        }
        let NewSecret { id, text, hash } = NewSecret::random();
        let key = ApiKey {
            id,
            name,
            hash,
            grant,
            created: now,
            created_by: by.name,
            expires,
            revoked: None,
            revoked_by: None,
        };
        self.write(key.clone())?;
        Ok(MadeKey { key, secret: text })
    }

    /// Whether a key with the role admin is valid for good and without a limit, apart from the one of this id.
    fn has_admin(&self, now: Timestamp, without: Option<&str>) -> bool {
        let is_admin = |key: &Arc<ApiKey>| {
            let lasts = key.is_valid(now) && key.expires.is_none() && key.grant.requests_per_second.is_none();
            lasts && key.grant.has(Role::Admin) && Some(key.id.as_str()) != without
        };
        self.keys.read().values().any(is_admin)
    }

    /// Fails unless who changes keys still may: without a key only while there is none.
    fn check_right(&self, by: &Changer, now: Timestamp) -> Result<(), ManagerError> {
        let is_refused = match (&by.key, &by.name) {
            (Some(id), _) => self.is_refused(id, now),
            (None, Some(_)) => false,
            (None, None) => by.has_other_admin || self.are_required(),
        };
        if is_refused { Err(ManagerError::NoRight) } else { Ok(()) }
    }

    /// Whether a key of this id is revoked or has expired. One that is not known may be newer than this copy of the registry.
    #[must_use]
    pub fn is_refused(&self, id: &str, now: Timestamp) -> bool {
        self.keys.read().get(id).is_some_and(|key| !key.is_valid(now))
    }

    /// Revokes a key: no request can use it from now on. Revoking it again changes nothing.
    ///
    /// # Errors
    /// `UnknownApiKey`, `NoRight`, `NoAdminKey` for the last one that may make others for good, or `Storage`, with `NotOwner` unless this node
    /// leads.
    pub fn revoke(&self, id: &str, by: Changer) -> Result<Arc<ApiKey>, ManagerError> {
        let _changing = self.changing.lock();
        self.leadership.term()?;
        let now = Timestamp::from(SystemTime::now());
        self.check_right(&by, now)?;
        let found = self.keys.read().get(id).cloned();
        let found = found.ok_or_else(|| ManagerError::UnknownApiKey { id: id.to_owned() })?;
        if found.revoked.is_some() {
            return Ok(found);
        }
        if !by.has_other_admin && !self.has_admin(now, Some(id)) {
            return Err(ManagerError::NoAdminKey);
        }
        self.write(ApiKey { revoked: Some(now), revoked_by: by.name, ..ApiKey::clone(&found) })
    }

    fn write(&self, key_record: ApiKey) -> Result<Arc<ApiKey>, ManagerError> {
        let mut batch = RegistryBatch::new();
        batch.put(key(&key_record.id)?, &key_record)?;
        self.storage.registry().commit(&batch)?;
        let record = Arc::new(key_record);
        self.keys.write().insert(record.id.clone(), Arc::clone(&record));
        Ok(record)
    }
}
