//! Why a recommendation is empty.

use std::collections::BTreeSet;

use celeris_retrieval::catalog::UnknownAttribute;
use celeris_retrieval::{CandidateSet, Filter};

use super::{Recommender, Recommending};
use crate::users::Subject;

/// Why a recommendation has no items; the first reason that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyReason {
    /// The catalog has no items.
    NoItems,
    /// No item matches the filter, which names an attribute that no item has.
    FilterNamesUnknownAttribute,
    /// No item matches the filter.
    FilterMatchesNothing,
    /// The matching items are not available now.
    NoneAvailable,
    /// The request excludes the matching items, by `exclude` or as shown on earlier pages.
    AllExcluded,
    /// The user has seen all items that may be shown.
    AllSeen,
    /// The active version can score none of the items that may be shown: only another model was
    /// trained on them.
    Untrained,
}

impl Recommender {
    /// Why the ranking of the `allowed` rows is empty.
    pub(super) fn why_empty(
        &self,
        subject: &Subject,
        allowed: &CandidateSet,
        recommending: &Recommending<'_>,
    ) -> EmptyReason {
        let (catalog, filter) = (&subject.model.catalog, recommending.request.filter.as_ref());
        if !allowed.is_empty() {
            EmptyReason::Untrained
        } else if catalog.size().items == 0 {
            EmptyReason::NoItems
        } else if catalog.matching(filter).is_empty() {
            let names_unknown = filter.is_some_and(|filter| !catalog.unknown_attributes(&filter.fields()).is_empty());
            if names_unknown { EmptyReason::FilterNamesUnknownAttribute } else { EmptyReason::FilterMatchesNothing }
        } else if catalog.allowed(filter, recommending.now).is_empty() {
            EmptyReason::NoneAvailable
        } else if self.showable(subject, recommending).is_empty() {
            EmptyReason::AllExcluded
        } else {
            EmptyReason::AllSeen
        }
    }
}

/// The attributes that filter and boosts of a request name and no item has.
pub(super) fn unknown_attributes(subject: &Subject, recommending: &Recommending<'_>) -> Vec<UnknownAttribute> {
    let request = recommending.request;
    let filters = request.filter.iter().chain(request.boosts.iter().map(|boost| &boost.filter));
    let fields: BTreeSet<&str> = filters.flat_map(Filter::fields).collect();
    if fields.is_empty() { Vec::new() } else { subject.model.catalog.unknown_attributes(&fields) }
}
