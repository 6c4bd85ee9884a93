//! Keyed hashes of ids.
//!
//! SipHash-2-4 with 128 bits of output (Aumasson, Bernstein 2012), under a random key that each
//! store generates once and never discloses. Without the key a hash reveals nothing of the id, so
//! it may remain when the id must be removed. Collisions cannot be constructed, so a hash
//! identifies what it is of: among 10^9 users, or observations with their users, two collide by
//! chance in one of 10^20 stores.

use celeris_model::{ObservationId, StreamName, UserId};
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::hash::{Hash, Hasher};

use super::envelope::{corrupt, sealed, unseal};
use super::keys;
use crate::database::{Column, Database, Durability};
use crate::error::StorageError;

/// Size of the key and of a hash, in bytes.
const BYTES: usize = 16;

/// Size of the hash of an id without its user, in bytes. A collision costs a look-up by id one more
/// record to read.
const ID_BYTES: usize = 8;

/// Hash of an observation id of one user of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IdHash {
    /// Of the id alone: the same for all users of the stream, to find an observation by its id.
    id: u64,
    /// Of the user and the id: identifies the observation.
    observation: u128,
}

/// The hash of both parts is that of the second: it is uniform already, under a key unknown to
/// clients.
impl Hash for IdHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.observation);
    }
}

/// Hash of a user of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct UserHash(u128);

impl IdHash {
    /// Bytes in a key.
    pub(crate) const BYTES: usize = ID_BYTES + BYTES;

    /// The part that the observations of this id have in common.
    pub(crate) fn id_bytes(self) -> [u8; ID_BYTES] {
        self.id.to_be_bytes()
    }

    /// The part that distinguishes them.
    pub(crate) fn observation_bytes(self) -> [u8; BYTES] {
        self.observation.to_be_bytes()
    }
}

impl UserHash {
    pub(crate) fn bytes(self) -> [u8; BYTES] {
        self.0.to_be_bytes()
    }

    /// The id that replaces the user in the record of an erasure.
    pub(crate) fn pseudonym(self) -> UserId {
        UserId::new(format!("{:032x}", self.0)).expect("32 digits are a valid id")
    }
}

fn wrong_key(reason: &str) -> StorageError {
    corrupt(Column::Erasures, keys::HASH_KEY, reason)
}

/// The keyed hash function of a store.
pub(crate) struct Hashes {
    keyed: SipHasher24,
}

impl Hashes {
    pub(crate) fn new(key: [u8; BYTES]) -> Self {
        Self { keyed: SipHasher24::new_with_key(&key) }
    }

    /// The hash function of the store in `database`. A new store gets its key here: the one that is
    /// `given`, which the copies of a cluster share, or a random one.
    ///
    /// # Errors
    /// `Corrupt` if there are records but no key, `UnknownFormat` if it is another one than is given; `Io`,
    /// `CorruptLog` or `Database`.
    pub(crate) fn open(database: &Database, is_empty: bool, given: Option<[u8; BYTES]>) -> Result<Self, StorageError> {
        if let Some(key) = Self::stored_key(database)? {
            if given.is_some_and(|given| given != key) {
                return Err(StorageError::UnknownFormat {
                    dir: database.path().to_owned(),
                    reason: "it is a copy of another cluster of this name, founded at another time; keep it, and see \
                             `celeris cluster recover`, or start with an empty directory"
                        .to_owned(),
                });
            }
            return Ok(Self::new(key));
        }
        if !is_empty {
            return Err(wrong_key("the key of the hashes is missing"));
        }
        let key = match given {
            Some(key) => key,
            None => random_key()?,
        };
        let mut batch = database.batch();
        batch.put(Column::Erasures, keys::HASH_KEY, &sealed(keys::HASH_KEY, &key));
        batch.commit(Durability::Synced)?;
        Ok(Self::new(key))
    }

    /// The key of the store in `database`.
    ///
    /// # Errors
    /// `Corrupt` if it has none; `CorruptLog` or `Database`.
    pub(crate) fn key(database: &Database) -> Result<[u8; BYTES], StorageError> {
        Self::stored_key(database)?.ok_or_else(|| wrong_key("the key of the hashes is missing"))
    }

    fn stored_key(database: &Database) -> Result<Option<[u8; BYTES]>, StorageError> {
        let Some(value) = database.get(Column::Erasures, keys::HASH_KEY)? else { return Ok(None) };
        let body = unseal(Column::Erasures, keys::HASH_KEY, &value)?;
        body.try_into().map(Some).map_err(|_| wrong_key("it is not 16 bytes"))
    }

    pub(crate) fn id(&self, stream: &StreamName, user: &UserId, id: &ObservationId) -> IdHash {
        let observation = self.hash(3, stream, [user.as_str(), id.as_str()]);
        IdHash { id: u64::from_be_bytes(self.id_bytes(stream, id)), observation }
    }

    /// See [`IdHash::id_bytes`].
    pub(crate) fn id_bytes(&self, stream: &StreamName, id: &ObservationId) -> [u8; ID_BYTES] {
        let hash = self.hash(1, stream, [id.as_str()]);
        ((hash >> u64::BITS) as u64).to_be_bytes()
    }

    pub(crate) fn user(&self, stream: &StreamName, user: &UserId) -> UserHash {
        UserHash(self.hash(2, stream, [user.as_str()]))
    }

    /// The lengths delimit the texts; the domain separates users from observations of the same
    /// name.
    fn hash<const TEXTS: usize>(&self, domain: u8, stream: &StreamName, texts: [&str; TEXTS]) -> u128 {
        let mut hasher = self.keyed;
        hasher.write(&[domain]);
        for text in std::iter::once(stream.as_str()).chain(texts) {
            hasher.write(&u16::try_from(text.len()).expect("ids are short").to_le_bytes());
            hasher.write(text.as_bytes());
        }
        hasher.finish128().as_u128()
    }
}

/// A new key.
///
/// # Errors
/// `Io`.
fn random_key() -> Result<[u8; BYTES], StorageError> {
    let mut key = [0; BYTES];
    let failed = StorageError::io("read", "the system's source of randomness");
    getrandom::fill(&mut key).map_err(|error| failed(error.into()))?;
    Ok(key)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn hashes_depend_on_key_stream_kind_and_text() {
        let (films, film) = (StreamName::new("films").unwrap(), StreamName::new("film").unwrap());
        let hashes = Hashes::new([7; BYTES]);
        let id = |text: &str| ObservationId::new(text).unwrap();
        let user = |text: &str| UserId::new(text).unwrap();
        let hash = |user_name: &str, text: &str| hashes.id(&films, &user(user_name), &id(text)).observation_bytes();
        let all = [
            hash("u", "a"),
            hash("u", "b"),
            hash("v", "a"),
            hash("ua", "b"),
            hash("u", "ab"),
            hashes.id(&film, &user("su"), &id("a")).observation_bytes(),
            hashes.user(&films, &user("a")).bytes(),
            Hashes::new([8; BYTES]).id(&films, &user("u"), &id("a")).observation_bytes(),
        ];
        for (index, hash) in all.iter().enumerate() {
            assert!(!all[..index].contains(hash), "hash {index}");
        }
        let of_id = |user_name: &str, text: &str| hashes.id(&films, &user(user_name), &id(text)).id_bytes();
        assert_eq!(of_id("u", "a"), of_id("v", "a"), "an id has one hash for all users");
        assert_eq!(of_id("u", "a"), hashes.id_bytes(&films, &id("a")));
        assert_ne!(of_id("u", "a"), of_id("u", "b"));
        assert_eq!(hashes.user(&films, &user("a")).pseudonym().as_str().len(), 2 * BYTES);
    }
}
