//! Sizes as the configuration shows them.

use bytesize::ByteSize;
use serde::Serializer;

/// Writes a size exactly, in the largest unit of which it is a multiple.
pub(super) fn serialize<S: Serializer>(size: &ByteSize, serializer: S) -> Result<S::Ok, S::Error> {
    let bytes = size.as_u64();
    let unit = [(30, "GiB"), (20, "MiB"), (10, "KiB")].into_iter().find(|(bits, _)| bytes.trailing_zeros() >= *bits);
    match unit.filter(|_| bytes > 0) {
        Some((bits, unit)) => serializer.collect_str(&format_args!("{} {unit}", bytes >> bits)),
        None => serializer.collect_str(&format_args!("{bytes} B")),
    }
}

pub(super) fn serialize_optional<S: Serializer>(size: &Option<ByteSize>, serializer: S) -> Result<S::Ok, S::Error> {
    match size {
        Some(size) => serialize(size, serializer),
        None => serializer.serialize_none(),
    }
}
