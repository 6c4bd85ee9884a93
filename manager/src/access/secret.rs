//! Keys as clients send them: `celeris_ID_SECRET`. The store has the hash of the secret only.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Begins every key, so that scanners of repositories find one.
const PREFIX: &str = "celeris_";

/// Random bytes of an id and of a secret. A secret of 256 random bits needs no slow hash.
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// A key that was just made.
pub(super) struct NewSecret {
    pub(super) id: String,
    /// As its client sends it.
    pub(super) text: String,
    /// Of the secret.
    pub(super) hash: String,
}

impl NewSecret {
    pub(super) fn random() -> Self {
        let id = hex(&rand::random::<[u8; ID_BYTES]>());
        let secret = hex(&rand::random::<[u8; SECRET_BYTES]>());
        Self { text: format!("{PREFIX}{id}_{secret}"), hash: hash(&secret), id }
    }
}

/// Id and secret of a key; `None` if the text has not the form of one.
pub(super) fn parts(text: &str) -> Option<(&str, &str)> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    (id.len() == 2 * ID_BYTES && secret.len() == 2 * SECRET_BYTES).then_some((id, secret))
}

/// Whether the hash is that of this secret; takes the same time for all secrets.
pub(super) fn is_hash_of(stored: &str, secret: &str) -> bool {
    hash(secret).as_bytes().ct_eq(stored.as_bytes()).into()
}

/// The hash of a secret of the configuration, by which those of requests are compared.
#[derive(Clone)]
pub struct SecretHash(String);

impl SecretHash {
    #[must_use]
    pub fn of(secret: &str) -> Self {
        Self(hash(secret))
    }

    /// Whether this is the secret; takes the same time for all texts of a length.
    #[must_use]
    pub fn is_of(&self, sent: &str) -> bool {
        is_hash_of(&self.0, sent)
    }
}

fn hash(secret: &str) -> String {
    hex(&Sha256::digest(secret.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
