//! Keyed hashes of ids.
//!
//! SipHash-2-4 with 128 bits of output (Aumasson, Bernstein 2012), under a random key that each
//! store generates once and never discloses. Without the key a hash reveals nothing of the id, so
//! it may remain when the id must be removed. Collisions cannot be constructed, so a hash
//! identifies its id: among 10^9 ids two collide by chance in one of 10^20 stores.

use celeris_model::{ObservationId, StreamName, UserId};
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::hash::Hasher as _;

use super::envelope::{corrupt, sealed, unseal};
use super::keys;
use crate::database::{Column, Database, Durability};
use crate::error::StorageError;

/// Size of the key and of a hash, in bytes.
const BYTES: usize = 16;

/// Hash of an observation id of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IdHash(u128);

/// Hash of a user of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct UserHash(u128);

impl IdHash {
    pub(crate) fn bytes(self) -> [u8; BYTES] {
        self.0.to_be_bytes()
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

/// The keyed hash function of a store.
pub(crate) struct Hashes {
    keyed: SipHasher24,
}

impl Hashes {
    pub(crate) fn new(key: [u8; BYTES]) -> Self {
        Self { keyed: SipHasher24::new_with_key(&key) }
    }

    /// The hash function of the store in `database`; a new store gets its key here.
    ///
    /// # Errors
    /// `Corrupt` if there are records but no key; `Io`, `CorruptLog` or `Database`.
    pub(crate) fn open(database: &Database, is_empty: bool) -> Result<Self, StorageError> {
        if let Some(value) = database.get(Column::Erasures, keys::HASH_KEY)? {
            let body = unseal(Column::Erasures, keys::HASH_KEY, &value)?;
            let key = body.try_into();
            return key.map(Self::new).map_err(|_| corrupt(Column::Erasures, keys::HASH_KEY, "it is not 16 bytes"));
        }
        if !is_empty {
            return Err(corrupt(Column::Erasures, keys::HASH_KEY, "the key of the hashes is missing"));
        }
        let mut key = [0; BYTES];
        getrandom::fill(&mut key)
            .map_err(|error| StorageError::io("read", "the system's source of randomness")(error.into()))?;
        let mut batch = database.batch();
        batch.put(Column::Erasures, keys::HASH_KEY, &sealed(keys::HASH_KEY, &key));
        batch.commit(Durability::Synced)?;
        Ok(Self::new(key))
    }

    pub(crate) fn id(&self, stream: &StreamName, id: &ObservationId) -> IdHash {
        IdHash(self.hash(1, stream, id.as_str()))
    }

    pub(crate) fn user(&self, stream: &StreamName, user: &UserId) -> UserHash {
        UserHash(self.hash(2, stream, user.as_str()))
    }

    /// The lengths delimit the texts; the domain separates users from observations of the same
    /// name.
    fn hash(&self, domain: u8, stream: &StreamName, text: &str) -> u128 {
        let stream = stream.as_str();
        let mut hasher = self.keyed;
        hasher.write(&[domain, u8::try_from(stream.len()).expect("names are short")]);
        hasher.write(stream.as_bytes());
        hasher.write(text.as_bytes());
        hasher.finish128().as_u128()
    }
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
        let all = [
            hashes.id(&films, &id("a")).bytes(),
            hashes.id(&films, &id("b")).bytes(),
            hashes.id(&film, &id("sa")).bytes(),
            hashes.user(&films, &user("a")).bytes(),
            Hashes::new([8; BYTES]).id(&films, &id("a")).bytes(),
        ];
        for (index, hash) in all.iter().enumerate() {
            assert!(!all[..index].contains(hash), "hash {index}");
        }
        assert_eq!(hashes.user(&films, &user("a")).pseudonym().as_str().len(), 2 * BYTES);
    }
}
