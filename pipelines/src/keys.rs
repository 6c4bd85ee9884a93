//! Keys of strings: 64-bit numbers that dictionaries look up and hashed columns are taken from.
//!
//! A string of at most seven bytes is its own key, so that most words and character n-grams are compared without
//! reading them. Columns of hashed features depend on these functions: they must not change.

use xxhash_rust::xxh3::xxh3_64;

/// The longest string that its key holds, in bytes.
pub const EXACT_BYTES_MAX: usize = 7;

/// Set in keys that are hashes.
const HASHED: u64 = 1 << 63;

/// The bytes and their number, if they are at most [`EXACT_BYTES_MAX`]; otherwise a hash with the first bit set.
#[inline]
#[must_use]
pub fn key(bytes: &[u8]) -> u64 {
    if bytes.len() <= EXACT_BYTES_MAX {
        let packed = bytes.iter().rev().fold(0, |packed, byte| packed << 8 | u64::from(*byte));
        packed | (bytes.len() as u64) << 56
    } else {
        xxh3_64(bytes) | HASHED
    }
}

/// Whether equal keys mean equal strings.
#[inline]
#[must_use]
pub fn is_exact(key: u64) -> bool {
    key & HASHED == 0
}

/// A bijection that spreads the bits (the finaliser of SplitMix64; Steele et al., OOPSLA 2014).
#[inline]
#[must_use]
pub fn mix(mut key: u64) -> u64 {
    key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// The hash of a sequence, from that of all but its last element and that of the last.
#[inline]
#[must_use]
pub fn chain(before: u64, last: u64) -> u64 {
    mix(before.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ last)
}

/// The column of a hash among `2^bits`: its first bits. `bits` is from 1 to 32.
#[inline]
#[must_use]
pub fn column(hash: u64, bits: u32) -> u32 {
    (hash >> (u64::BITS - bits)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_short_strings_differ_in_length_and_bytes() {
        let strings: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"abcdefg"];
        let keys: Vec<u64> = strings.iter().map(|string| key(string)).collect();
        assert!(keys.iter().all(|key| is_exact(*key)));
        assert!((0..6).all(|one| (0..one).all(|other| keys[one] != keys[other])), "{keys:x?}");
        assert!(!is_exact(key(b"abcdefgh")));
    }

    #[test]
    fn columns_of_stored_weights_keep_their_meaning() {
        assert_eq!(mix(key(b"good")), 0x4c53_41e0_f22e_7b50);
        assert_eq!(chain(mix(key(b"very")), mix(key(b"good"))), 0xd117_c89f_8556_c3e9);
        assert_eq!(key(b"a longer string"), 0xc578_e9fc_44e7_2dbf);
        assert_eq!(column(0x8000_0000_0000_0000, 4), 8);
    }
}
