//! What parts need to know of an item.

use celeris_pipelines::ItemValues;

/// A set of parts, by their places among the parts of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MissingParts(u16);

impl MissingParts {
    pub(super) fn add(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    pub(super) fn has(self, place: usize) -> bool {
        self.0 & (1 << place) != 0
    }

    /// The parts that both have.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What the parts of a version need to know of an item.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemParts {
    /// The parts that read attributes which the item does not have.
    pub(super) missing: MissingParts,
    /// For each part that depends on item and context, what depends on the item; `None` if it is missing.
    pub(super) values: Box<[Option<ItemOutputs>]>,
}

/// What is known of the outputs of a part for an item before the context is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ItemOutputs {
    pub(super) values: ItemValues,
    /// Means and covariances over the common contexts ([`super::contexts`]).
    pub(super) moments: Box<[f32]>,
}

impl ItemParts {
    /// Memory that it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_value = |value: &Option<ItemOutputs>| {
            let behind = value.as_ref().map_or(0, |value| value.values.bytes() + size_of_val(&*value.moments));
            size_of::<Option<ItemOutputs>>() + behind
        };
        size_of::<Self>() + self.values.iter().map(of_value).sum::<usize>()
    }
}
