//! Newtypes for ids, names, versions and counters, and the partition of a user.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use ecow::EcoString;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::ModelError;

/// The longest id, in bytes.
pub const ID_BYTES_MAX: usize = 256;

/// The longest name of a model or stream, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// The number of partitions of the users. Part of every log key, so fixed for the life of a store.
pub const PARTITIONS: u8 = 64;

/// Header of a heap-allocated shared text: reference count and capacity.
const HEADER_BYTES: usize = 2 * size_of::<usize>();

/// Deserialises a string, or an integer as its decimal text.
struct IdText;

impl Visitor<'_> for IdText {
    type Value = EcoString;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a string or an integer")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<EcoString, E> {
        Ok(EcoString::from(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<EcoString, E> {
        Ok(EcoString::from(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<EcoString, E> {
        Ok(EcoString::from(value.to_string()))
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(EcoString);

        impl $name {
            /// Checks and wraps the text.
            ///
            /// # Errors
            /// [`ModelError::IdLength`] or [`ModelError::IdCharacter`].
            pub fn new(text: impl Into<EcoString>) -> Result<Self, ModelError> {
                let text = text.into();
                $check($kind, &text)?;
                Ok(Self(text))
            }

            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Bytes on the heap: 0 if the text is short enough to be stored inline. Clones share
            /// them.
            #[must_use]
            pub fn heap_bytes(&self) -> usize {
                if self.0.is_inline() { 0 } else { HEADER_BYTES + self.0.len() }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                write!(formatter, "{:?}", &*self.0)
            }
        }

        /// Hash, equality and order are those of the text.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ModelError;

            fn from_str(text: &str) -> Result<Self, ModelError> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // Only a self-describing format can carry an integer where an id is expected.
                let text = if deserializer.is_human_readable() {
                    deserializer.deserialize_any(IdText)?
                } else {
                    deserializer.deserialize_str(IdText)?
                };
                Self::new(text).map_err(de::Error::custom)
            }
        }
    };
}

fn check_id(kind: &'static str, text: &str) -> Result<(), ModelError> {
    if text.is_empty() || text.len() > ID_BYTES_MAX {
        return Err(ModelError::IdLength { kind, length: text.len(), max: ID_BYTES_MAX });
    }
    match text.chars().find(|c| c.is_control()) {
        Some(character) => Err(ModelError::IdCharacter { kind, character, allowed: "all but control characters" }),
        None => Ok(()),
    }
}

/// Names become parts of URLs and file paths, so their characters are restricted.
fn check_name(kind: &'static str, text: &str) -> Result<(), ModelError> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return Err(ModelError::IdLength { kind, length: text.len(), max: NAME_BYTES_MAX });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match text.chars().find(|c| !allowed(*c)) {
        Some(character) => {
            Err(ModelError::IdCharacter { kind, character, allowed: "ASCII letters, digits, `-` and `_`" })
        }
        None => Ok(()),
    }
}

text_id!(
    /// The id of a user.
    UserId, "user", check_id
);
text_id!(
    /// The id of an item.
    ItemId, "item", check_id
);
text_id!(
    /// The id of an observation, unique among those of its user in its stream.
    ObservationId, "observation_id", check_id
);
text_id!(
    /// The id of a ranking decision, to which later observations refer.
    DecisionId, "decision_id", check_id
);
text_id!(
    /// The name of a request for rankings, by which its client repeats, activates and rewards it.
    EventId, "event_id", check_id
);
text_id!(
    /// The name of a stream: the log to which observations and items belong; several models may
    /// learn from one stream.
    StreamName, "stream", check_name
);
text_id!(
    /// The name of a model.
    ModelName, "model", check_name
);
text_id!(
    /// A sequence of messages that observations are ingested from, such as a partition of a topic.
    SourceId, "source", check_id
);
text_id!(
    /// The name of a node in its cluster.
    NodeName, "node", check_name
);

/// Prefixes of the observation ids that only a node assigns: a record's position in the log, and
/// the default reward of a slot. Clients may refer to such observations but not assign such ids.
const RESERVED_PREFIXES: [&str; 2] = [SERVER_ID_PREFIX, DEFAULT_REWARD_PREFIX];

/// Prefix of the ids that a node assigns to observations without one.
pub const SERVER_ID_PREFIX: &str = "~";

const DEFAULT_REWARD_PREFIX: &str = "default-reward-";

impl ObservationId {
    /// Whether only a node may assign this id.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        RESERVED_PREFIXES.iter().any(|prefix| self.0.starts_with(prefix))
    }

    /// The partition of the user of an observation whose id a node assigned: the id names it. `None`
    /// for other ids.
    #[must_use]
    pub fn partition(&self) -> Option<Partition> {
        if let Some(place) = self.0.strip_prefix(SERVER_ID_PREFIX) {
            return Partition::from_index(place.split_once('-')?.0.parse().ok()?);
        }
        let (decision, _slot) = self.0.strip_prefix(DEFAULT_REWARD_PREFIX)?.rsplit_once('-')?;
        DecisionId::new(decision).ok()?.partition()
    }

    /// The id of a slot's default reward. It is a function of the slot, so a slot has at most one.
    ///
    /// # Errors
    /// [`ModelError::IdLength`] for a decision id longer than those that nodes create.
    pub fn of_default_reward(decision: &DecisionId, slot: u32) -> Result<Self, ModelError> {
        Self::new(format!("{DEFAULT_REWARD_PREFIX}{decision}-{slot}"))
    }
}

impl StreamName {
    /// The default stream of a model: the one with the same name.
    #[must_use]
    pub fn of_model(model: &ModelName) -> Self {
        Self(model.0.clone())
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

counter!(
    /// A record's position in its partition of a stream, counted from 1; 0 means "before the
    /// first".
    Sequence
);
counter!(
    /// The count of one user's log events. Never decreases, never reused, independent of model
    /// versions.
    UserEpoch
);
counter!(
    /// A model version, counted from 1 within its model.
    VersionId
);
counter!(
    /// The identity of a model or a selection, assigned at creation and never reused: a model that
    /// is deleted and created again under the same name gets another one. Counted from 1 within a
    /// store.
    ModelId
);

/// A slice of the users: `xxh3_64(user id) mod 64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(u8);

impl Partition {
    /// The partition of `user`; stable across nodes and releases.
    #[must_use]
    pub fn of(user: &UserId) -> Self {
        let bucket = xxh3_64(user.as_str().as_bytes()) % u64::from(PARTITIONS);
        Self(u8::try_from(bucket).expect("a remainder of 64 fits a byte"))
    }

    /// The partition with this number; `None` if out of range.
    #[must_use]
    pub fn from_index(index: u8) -> Option<Self> {
        (index < PARTITIONS).then_some(Self(index))
    }

    /// All partitions in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..PARTITIONS).map(Self)
    }

    #[must_use]
    pub fn index(self) -> u8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_kept_as_their_decimal_text() {
        let user: UserId = serde_json::from_str("42").expect("an integer id");
        assert_eq!(user.as_str(), "42");
        assert_eq!(user, serde_json::from_str::<UserId>("\"42\"").expect("a text id"));
        assert!(serde_json::from_str::<UserId>("1.5").is_err());
        assert!(serde_json::from_str::<UserId>("null").is_err());
    }

    #[test]
    fn id_lengths_and_characters_are_bounded() {
        assert!(UserId::new("u".repeat(256)).is_ok());
        assert!(matches!(UserId::new("u".repeat(257)), Err(ModelError::IdLength { length: 257, .. })));
        assert!(matches!(UserId::new(""), Err(ModelError::IdLength { length: 0, .. })));
        assert!(matches!(ItemId::new("a\nb"), Err(ModelError::IdCharacter { character: '\n', .. })));
        assert!(ModelName::new("films-2_a").is_ok());
        assert!(matches!(ModelName::new("../x"), Err(ModelError::IdCharacter { character: '.', .. })));
    }

    #[test]
    fn ids_that_nodes_make_are_reserved() {
        let decision = DecisionId::new("01930b1c-6d4e-7c50-9d1a-0123456789ab").expect("valid");
        let default = ObservationId::of_default_reward(&decision, 3).expect("short enough");
        assert_eq!(default.as_str(), "default-reward-01930b1c-6d4e-7c50-9d1a-0123456789ab-3");
        let is_reserved = |text: &str| ObservationId::new(text).expect("valid").is_reserved();
        assert!(default.is_reserved());
        assert!(["~12-345", "~", "~mine", "default-reward-", "default-reward-x"].into_iter().all(is_reserved));
        assert!(!["o-1", "mine~", "my-default-reward-1", "default-reward", "default"].into_iter().any(is_reserved));
        let long = DecisionId::new("d".repeat(256)).expect("valid");
        assert!(ObservationId::of_default_reward(&long, 0).is_err());
    }

    #[test]
    fn ids_that_nodes_make_name_the_partition() {
        let partition = |text: &str| ObservationId::new(text).expect("valid").partition().map(Partition::index);
        assert_eq!(partition("~12-345"), Some(12));
        assert_eq!(partition("default-reward-01930b1c-6d4e-7c50-9d1a-0123456789e5-3"), Some(37));
        for other in ["~64-1", "~", "~12", "12-345", "default-reward-x-3", "o-1"] {
            assert_eq!(partition(other), None, "{other}");
        }
    }

    #[test]
    fn a_short_id_has_no_heap_memory() {
        let user = |length| UserId::new("u".repeat(length)).expect("valid");
        assert_eq!([user(1), user(15)].map(|user| user.heap_bytes()), [0, 0]);
        assert_eq!([user(16), user(256)].map(|user| user.heap_bytes()), [32, 272]);
        let long = user(16);
        assert!(std::ptr::eq(long.as_str(), long.clone().as_str()), "clones share a long text");
    }

    #[test]
    fn partitions_are_stable_for_the_life_of_a_store() {
        // Fixed by the stored format: a change makes the users of every existing store unreachable.
        let partition = |text: &str| Partition::of(&UserId::new(text).expect("valid")).index();
        assert_eq!([partition("1"), partition("alice"), partition("610")], PARTITION_FIXTURE);
    }

    const PARTITION_FIXTURE: [u8; 3] = [24, 48, 33];
}
