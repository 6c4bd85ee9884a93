//! The stored forms of keys and values that several components share.

pub(crate) mod envelope;
pub(crate) mod event;
pub(crate) mod features;
pub(crate) mod hashing;
pub(crate) mod keys;
pub(crate) mod record;
