//! Features with computed parts: the columns that depend on the context of a request or an observation, for its items.

use std::cell::OnceCell;

use celeris_features::{ItemParts, MissingParts, Parts, WeightMoments};
use celeris_model::{Context, UserModel};
use serde_json::{Map, Value};

use super::Resolved;
use crate::version::ServingVersion;

/// Features of an item in a context.
pub(crate) struct InContext<'v> {
    /// The features without the columns that depend on the context.
    pub(crate) of: Resolved<'v>,
    pub(crate) features: Box<[f32]>,
    /// The parts that could not be computed; their columns are zero.
    pub(crate) missing: MissingParts,
}

/// What the computed parts of a version need to know of an item outside of its table.
#[derive(Debug, PartialEq)]
pub(crate) struct DescribedItem {
    pub(crate) parts: ItemParts,
    /// The attributes that they are computed from, which are frozen with the features.
    pub(crate) attributes: Option<Map<String, Value>>,
}

impl DescribedItem {
    pub(crate) fn new(parts: &Parts, attributes: Option<Map<String, Value>>) -> Self {
        Self { parts: parts.item(attributes.as_ref()), attributes }
    }

    /// Memory that it takes, in bytes, approximately.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.parts.bytes() + self.attributes.as_ref().map_or(0, |of| of.len() * ATTRIBUTE_BYTES)
    }
}

/// Memory of an attribute with its value, approximately.
const ATTRIBUTE_BYTES: usize = 128;

/// The same items in a context; unchanged under a version without computed parts.
pub(crate) fn in_context<'v>(
    version: &'v ServingVersion,
    items: Vec<Resolved<'v>>,
    context: Option<&Context>,
) -> Vec<Resolved<'v>> {
    let Some(parts) = &version.parts else { return items };
    let mut rows: Vec<Box<[f32]>> = items.iter().map(|item| item.features().into()).collect();
    let of_items: Vec<&ItemParts> = items.iter().map(|item| item.parts(parts)).collect();
    let missing = parts.compute(&of_items, context, rows.iter_mut().map(|row| &mut **row));
    let item = |((of, features), missing)| Resolved::InContext(Box::new(InContext { of, features, missing }));
    items.into_iter().zip(rows).zip(missing).map(item).collect()
}

/// As [`in_context`] for one item.
pub(crate) fn one_in_context<'v>(
    version: &'v ServingVersion,
    item: Resolved<'v>,
    context: Option<&Context>,
) -> Resolved<'v> {
    in_context(version, vec![item], context).pop().expect("as many items come out as go in")
}

/// The additional variance of the scores of items without some parts, for one user.
pub(crate) struct MissingVariance<'u> {
    user: &'u UserModel,
    version: &'u ServingVersion,
    /// Set by the first item that lacks a part.
    weights: OnceCell<WeightMoments>,
}

impl<'u> MissingVariance<'u> {
    pub(crate) fn new(user: &'u UserModel, version: &'u ServingVersion) -> Self {
        Self { user, version, weights: OnceCell::new() }
    }

    /// 0 for an item that lacks none.
    pub(crate) fn of(&self, item: &Resolved<'_>) -> f64 {
        let missing = item.missing();
        let Some(parts) = self.version.parts.as_ref().filter(|_| !missing.is_empty()) else { return 0.0 };
        let weights = self.weights.get_or_init(|| WeightMoments::of(self.user, &self.version.learning));
        parts.variance(weights, (item.parts(parts), missing))
    }
}

/// The names of the parts that are missing for all of these items.
pub(crate) fn missing_parts<'a, 'v: 'a>(
    version: &ServingVersion,
    items: impl IntoIterator<Item = &'a Resolved<'v>>,
) -> Vec<String> {
    let Some(parts) = &version.parts else { return Vec::new() };
    let missing = items.into_iter().map(Resolved::missing).reduce(MissingParts::and).unwrap_or_default();
    parts.names(missing)
}
