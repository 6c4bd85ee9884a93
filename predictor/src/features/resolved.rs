//! The features of one item under one version.

use std::sync::Arc;

use celeris_features::{ItemFeatures, ItemParts, MissingParts, Parts};
use celeris_model::FeatureOrigin;
use celeris_storage::Ticket;

use super::computed::{DescribedItem, InContext};
use crate::cache::Held;
use crate::index::FreshFeatures;
use crate::version::ServingVersion;

/// The features of one item under one version.
pub(crate) enum Resolved<'v> {
    /// A row of the version's table, and its number.
    Trained(ItemFeatures<'v>, u32),
    /// An item outside the table: added after training, or unknown.
    Later(Arc<LaterItem>),
    /// Either, with the columns that depend on a context.
    InContext(Box<InContext<'v>>),
}

/// The features of an item outside a version's table.
#[derive(Debug, Clone)]
pub(crate) struct LaterItem {
    pub(crate) offset: f32,
    pub(crate) features: Box<[f32]>,
    /// Whether the item has features or attributes.
    pub(crate) known: bool,
    /// Where its features come from; unchanged by freezing.
    pub(crate) origin: FeatureOrigin,
    /// What the computed parts of the version need to know of it; `None` if the version has none.
    pub(super) described: Option<Arc<DescribedItem>>,
    /// The item's revision, read before its features.
    pub(super) revision: u64,
    /// The write that froze the features; `None` if no user's state has learnt from them.
    pub(super) frozen: Option<Ticket>,
}

impl<'v> Resolved<'v> {
    /// The row of a version's table.
    pub(crate) fn trained(version: &'v ServingVersion, slot: u32) -> Self {
        Self::Trained(version.theta.row(slot as usize), slot)
    }

    pub(crate) fn offset(&self) -> f32 {
        match self {
            Self::Trained(row, _) => row.offset,
            Self::Later(item) => item.offset,
            Self::InContext(item) => item.of.offset(),
        }
    }

    pub(crate) fn features(&self) -> &[f32] {
        match self {
            Self::Trained(row, _) => row.features,
            Self::Later(item) => &item.features,
            Self::InContext(item) => &item.features,
        }
    }

    /// What having taken the item says of a user ([`ItemFeatures::choice`]); empty for an item outside the table.
    pub(crate) fn choice(&self) -> &[f32] {
        match self {
            Self::Trained(row, _) => row.choice,
            Self::Later(_) => &[],
            Self::InContext(item) => item.of.choice(),
        }
    }

    /// What the uncertainty of a row of the table of `version`, or of an unknown item, adds to the variance of a score
    /// ([`ItemFeatures::variance`]); 0 for features that are given or mapped from attributes.
    pub(crate) fn variance(&self, version: &ServingVersion) -> f32 {
        match self {
            Self::Trained(row, _) => row.variance,
            Self::Later(item) if item.origin == FeatureOrigin::StandIn => version.theta.cold_item().variance,
            Self::Later(_) => 0.0,
            Self::InContext(item) => item.of.variance(version),
        }
    }

    pub(crate) fn known(&self) -> bool {
        match self {
            Self::Trained(..) => true,
            Self::Later(item) => item.known,
            Self::InContext(item) => item.of.known(),
        }
    }

    /// The write that froze these features. The table's own features are durable from the start.
    pub(crate) fn frozen(&self) -> Option<&Ticket> {
        match self {
            Self::Trained(..) => Some(&Ticket::DURABLE),
            Self::Later(item) => item.frozen.as_ref(),
            Self::InContext(item) => item.of.frozen(),
        }
    }

    /// The item's revision at which the features were read; `None` for a row of the table, which
    /// never changes.
    pub(crate) fn revision(&self) -> Option<u64> {
        match self {
            Self::Trained(..) => None,
            Self::Later(item) => Some(item.revision),
            Self::InContext(item) => item.of.revision(),
        }
    }

    pub(crate) fn origin(&self) -> FeatureOrigin {
        match self {
            Self::Trained(..) => FeatureOrigin::Trained,
            Self::Later(item) => item.origin,
            Self::InContext(item) => item.of.origin(),
        }
    }

    /// Whether it is a row of the table.
    pub(crate) fn is_trained(&self) -> bool {
        self.origin() == FeatureOrigin::Trained
    }

    /// What the parts of its version need to know of it.
    pub(crate) fn parts<'a>(&'a self, parts: &'a Parts) -> &'a ItemParts {
        match self {
            Self::Trained(_, row) => parts.of_row(*row as usize),
            Self::Later(item) => {
                let described = item.described.as_ref();
                &described.expect("an item is resolved with what the parts of its version need").parts
            }
            Self::InContext(item) => item.of.parts(parts),
        }
    }

    /// The computed parts that it lacks; none unless it is in a context.
    pub(crate) fn missing(&self) -> MissingParts {
        match self {
            Self::InContext(item) => item.missing,
            _ => MissingParts::default(),
        }
    }

    /// Whether parts that are computed for one are those of the other.
    pub(crate) fn computes_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Trained(_, row), Self::Trained(_, other)) => row == other,
            (Self::Later(item), Self::Later(other)) => {
                item.features == other.features && item.described == other.described
            }
            _ => false,
        }
    }
}

impl LaterItem {
    pub(super) fn frozen_with(&self, ticket: Ticket) -> Self {
        Self { frozen: Some(ticket), ..self.clone() }
    }
}

impl FreshFeatures for LaterItem {
    fn offset(&self) -> f32 {
        self.offset
    }

    fn features(&self) -> &[f32] {
        &self.features
    }
}

impl Held for Arc<LaterItem> {
    fn bytes(&self) -> usize {
        let described = self.described.as_ref().map_or(0, |described| described.bytes());
        size_of::<LaterItem>() + size_of_val(&*self.features) + described
    }
}
