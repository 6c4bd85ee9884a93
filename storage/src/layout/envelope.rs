//! The seal around a stored value: one format byte, the body, and the CRC-32C (little-endian) of
//! the *key*, the format byte and the body.
//!
//! RocksDB checks its blocks; this checksum is end to end, from the writer of a value to its
//! reader. Because it covers the key, an intact value under the wrong key is detected too.

use crc32c::{crc32c, crc32c_append};

use super::keys;
use crate::database::Column;
use crate::error::StorageError;

/// The format of the body of every value.
const FORMAT: u8 = 1;

const CHECKSUM_BYTES: usize = 4;

/// A new value with the format byte, to which the body is appended.
pub(crate) fn begin() -> Vec<u8> {
    let mut value = Vec::with_capacity(128);
    value.push(FORMAT);
    value
}

/// Completes a value created by [`begin`].
pub(crate) fn seal(key: &[u8], value: &mut Vec<u8>) {
    let checksum = crc32c_append(crc32c(key), value);
    value.extend_from_slice(&checksum.to_le_bytes());
}

/// The body of a value created by [`begin`] that is not sealed yet.
pub(crate) fn unsealed_body(value: &[u8]) -> &[u8] {
    &value[1..]
}

/// A sealed value with this body.
pub(crate) fn sealed(key: &[u8], body: &[u8]) -> Vec<u8> {
    let mut value = begin();
    value.extend_from_slice(body);
    seal(key, &mut value);
    value
}

/// The body of a sealed value.
///
/// # Errors
/// [`StorageError::Corrupt`].
pub(crate) fn unseal<'a>(column: Column, key: &[u8], value: &'a [u8]) -> Result<&'a [u8], StorageError> {
    opened(key, value).map_err(|reason| corrupt(column, key, &reason))
}

/// The body of a sealed value that is not in a database, or why it is damaged.
pub(crate) fn opened<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], String> {
    let (content, checksum) = value.split_last_chunk::<CHECKSUM_BYTES>().ok_or("it is cut short")?;
    if crc32c_append(crc32c(key), content) != u32::from_le_bytes(*checksum) {
        return Err("its checksum does not match".to_owned());
    }
    match content.split_first() {
        Some((&FORMAT, body)) => Ok(body),
        Some((other, _)) => Err(format!("it has the unknown format {other}")),
        None => Err("it is empty".to_owned()),
    }
}

/// The error for an entry that cannot be decoded.
pub(crate) fn corrupt(column: Column, key: &[u8], reason: &str) -> StorageError {
    StorageError::Corrupt { column: column.name(), key: keys::hex(key), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_other_key_is_detected() {
        let value = sealed(b"key", b"body");
        assert_eq!(keys::hex(&value), format!("01626f6479{}", keys::hex(&crc32c(b"key\x01body").to_le_bytes())));
        assert!(matches!(unseal(Column::Items, b"key", &value), Ok(b"body")));
        assert!(unseal(Column::Items, b"kez", &value).is_err());
        for bit in 0..value.len() * 8 {
            let mut damaged = value.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(unseal(Column::Items, b"key", &damaged).is_err(), "bit {bit}");
        }
        for length in 0..value.len() {
            assert!(unseal(Column::Items, b"key", &value[..length]).is_err(), "length {length}");
        }
    }

    #[test]
    fn a_value_of_a_later_format_is_refused() {
        let mut later = vec![FORMAT + 1];
        later.extend_from_slice(b"body");
        seal(b"key", &mut later);
        let refused = unseal(Column::Items, b"key", &later);
        assert!(refused.is_err_and(|error| error.to_string().contains("unknown format 2")));
    }
}
