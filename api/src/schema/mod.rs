//! Request and reply types: the JSON of the API as OpenAPI describes it.
//!
//! They are apart from the types of the domain, some of which are stored: what is on the disk and what is on the wire change
//! independently. A conversion names every field of both, so that a field of the domain that is forgotten here does not
//! compile. Ids and numbers that check themselves (`UserId`, `PoolShare`) are used as they are and described by
//! `value_type`. So are policies, strategies and filters where a request is read: how they are written is defined by their
//! own crates, with messages that name the parameter or the place.
//!
//! Types of one route that are small stand beside it, in [`crate::routes`].

/// An enum on the wire, written in snake case, with the variants of an enum of the domain; a variant that one of them lacks
/// does not compile.
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

/// Conversions between a struct on the wire and one of the domain with the same fields.
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

pub mod audience;
pub mod decisions;
pub mod events;
pub mod filters;
pub mod items;
pub mod jobs;
pub mod models;
pub mod observations;
pub mod policies;
pub mod policy_evaluation;
pub mod predictions;
pub mod quality;
pub mod rankings;
pub mod selections;
pub mod settings;
pub mod strategies;
pub mod time;
pub mod triggers;
pub mod versions;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod round_trips;

use serde::{Deserialize, Deserializer};

/// Reads a field in which null is a value, apart from a field that is missing.
///
/// # Errors
/// Where the value cannot be read.
pub fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}
