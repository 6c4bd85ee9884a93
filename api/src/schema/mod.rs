//! Request and reply types: the JSON of the API as OpenAPI describes it.
//!
//! They are separate from the domain types, some of which are stored, so that the disk format and
//! the wire format can change independently. A conversion names every field of both types, so a
//! domain field that is missing here does not compile. Self-validating ids and numbers (`UserId`,
//! `PoolShare`) are used directly and described by `value_type`. So are policies, strategies and
//! filters in requests: their own crates define the syntax, with error messages that contain the
//! parameter or the position.
//!
//! Small types of a single route are in [`crate::routes`].

/// Defines a wire enum, serialized in snake case, with the variants of a domain enum. A variant
/// that is missing in one of them does not compile.
macro_rules! mirror_enum {
    ($(#[$about:meta])* $wire:ident = $domain:ty { $($(#[$of_variant:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $wire { $($(#[$of_variant])* $variant),+ }

        impl From<$domain> for $wire {
            fn from(domain: $domain) -> Self {
                type Domain = $domain;
                match domain { $(Domain::$variant => Self::$variant),+ }
            }
        }

        impl From<$wire> for $domain {
            fn from(wire: $wire) -> Self {
                match wire { $($wire::$variant => Self::$variant),+ }
            }
        }
    };
}

/// Conversions between a wire struct and a domain struct with the same fields.
macro_rules! same_fields {
    ($wire:ident = $domain:ty { $($field:ident),+ $(,)? }) => {
        impl From<$domain> for $wire {
            fn from(domain: $domain) -> Self {
                type Domain = $domain;
                let Domain { $($field),+ } = domain;
                Self { $($field: $field.into()),+ }
            }
        }

        impl From<$wire> for $domain {
            fn from(wire: $wire) -> Self {
                let $wire { $($field),+ } = wire;
                Self { $($field: $field.into()),+ }
            }
        }
    };
}

/// Implements `Deserialize` for wire structs within others, which `#[serde(remote = "Self")]`
/// leaves out. Unlike the derived implementation, it refuses arrays of the values of the fields.
macro_rules! objects {
    ($($wire:ty),+ $(,)?) => {$(
        impl<'de> serde::Deserialize<'de> for $wire {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;

                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $wire;

                    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
                        formatter.write_str("an object")
                    }

                    fn visit_map<M: serde::de::MapAccess<'de>>(self, map: M) -> Result<$wire, M::Error> {
                        <$wire>::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    }
                }

                deserializer.deserialize_map(Fields)
            }
        }
    )+};
}

/// Implements `Serialize` as derived, for the types of [`objects`].
macro_rules! serialized_objects {
    ($($wire:ty),+ $(,)?) => {$(
        impl serde::Serialize for $wire {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$wire>::serialize(self, serializer)
            }
        }
    )+};
}

pub mod attributes;
pub mod audience;
pub mod backups;
pub mod cluster;
pub mod consistency;
pub mod context;
pub mod decisions;
pub mod events;
pub mod features;
pub mod filters;
pub mod ids;
pub mod ingests;
pub mod items;
pub mod jobs;
pub mod keys;
pub mod models;
pub mod observations;
pub mod personalizer;
pub mod pipelines;
pub mod policies;
pub mod policy_evaluation;
pub mod predictions;
pub mod quality;
pub mod rankings;
pub mod rewards;
pub mod selections;
pub mod settings;
pub mod strategies;
pub mod studies;
pub mod time;
pub mod trials;
pub mod triggers;
pub mod versions;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod round_trips;

use serde::{Deserialize, Deserializer};

/// Deserializes a field in which null is distinct from a missing field.
///
/// # Errors
/// If the value cannot be deserialized.
pub fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}
