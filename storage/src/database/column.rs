//! The column families.

/// The column families; [`crate::layout::keys`] documents their contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Log,
    History,
    ObservationIds,
    Items,
    ObservedItems,
    ItemFeatures,
    Frozen,
    Registry,
    Erasures,
    Snapshots,
    Checkpoints,
    Cursors,
    UserAttributes,
    Decisions,
    DecidedFor,
    DecisionsErased,
    RankingEvents,
}

impl Column {
    /// The column families of the main database.
    pub(crate) const MAIN: &'static [Self] = &[
        Self::Log,
        Self::History,
        Self::ObservationIds,
        Self::Items,
        Self::ObservedItems,
        Self::ItemFeatures,
        Self::Frozen,
        Self::Registry,
        Self::Erasures,
        Self::Snapshots,
        Self::Checkpoints,
        Self::Cursors,
        Self::UserAttributes,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::History => "history",
            Self::ObservationIds => "observation_ids",
            Self::Items => "items",
            Self::ObservedItems => "observed_items",
            Self::ItemFeatures => "item_features",
            Self::Frozen => "frozen",
            Self::Registry => "registry",
            Self::Erasures => "erasures",
            Self::Snapshots => "snapshots",
            Self::Checkpoints => "checkpoints",
            Self::Cursors => "cursors",
            Self::UserAttributes => "user_attributes",
            Self::Decisions => "decisions",
            Self::DecidedFor => "decided_for",
            Self::DecisionsErased => "decisions_erased",
            Self::RankingEvents => "ranking_events",
        }
    }

    /// Whether its values are sealed ([`crate::layout::envelope`]).
    pub(crate) fn is_sealed(self) -> bool {
        !matches!(self, Self::History | Self::ObservationIds | Self::ObservedItems | Self::DecidedFor)
    }

    /// Whether point look-ups of absent keys are frequent, so that a bloom filter pays off.
    pub(super) fn wants_filter(self) -> bool {
        !matches!(
            self,
            Self::Log
                | Self::History
                | Self::ObservedItems
                | Self::Registry
                | Self::Checkpoints
                | Self::Cursors
                | Self::DecidedFor
        )
    }
}
