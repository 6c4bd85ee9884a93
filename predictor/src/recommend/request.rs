//! Request and reply types of recommendations.

use std::time::Duration;

use celeris_bandits::PolicySpec;
use celeris_model::{Context, ItemId, ModelName, Timestamp, UserEpoch, UserId};
use celeris_retrieval::Filter;
use celeris_retrieval::catalog::UnknownAttribute;
use serde_json::{Map, Value};

use super::{EmptyReason, Page};
use crate::error::PredictorError;
use crate::ranking::Ranking;

/// Maximum number of slots of a recommendation.
pub const RECOMMENDED_MAX: usize = 1000;

/// Maximum number of items that a request may exclude by id.
pub const EXCLUDED_MAX: usize = 10_000;

/// Maximum number of feedback kinds in a [`SeenRule`].
pub const SEEN_KINDS_MAX: usize = 64;

/// Maximum number of boosts in a request: overlaps are searched separately, in up to 16 cells.
pub const BOOSTS_MAX: usize = 4;

/// Maximum magnitude of a boost: that of a label.
pub const BOOST_ABS_MAX: f32 = celeris_model::observation::LABEL_ABS_MAX;

#[derive(Debug, Clone, PartialEq)]
pub struct RecommendRequest {
    /// The model that scores.
    pub model: ModelName,
    pub audience: Audience,
    /// Number of slots to fill: from 1 to [`RECOMMENDED_MAX`].
    pub k: usize,
    /// Restricts the items; `None` for all available ones.
    pub filter: Option<Filter>,
    /// Items not to be shown; at most [`EXCLUDED_MAX`].
    pub exclude: Vec<ItemId>,
    /// Which seen items are not shown again; `None` to allow all.
    pub exclude_seen: Option<SeenRule>,
    /// At most [`BOOSTS_MAX`].
    pub boosts: Vec<Boost>,
    /// Weight of diversity, from 0 to 1; a request with diversity is ranked greedily.
    pub diversity: Option<f32>,
    /// The items of earlier pages.
    pub page: Option<Page>,
    /// The policy; `None` for the model's default, including the validation pool.
    pub policy: Option<PolicySpec>,
    /// The seed of all draws; `None` for a random one.
    pub seed: Option<u64>,
    /// The answer must reflect at least this epoch of the user.
    pub min_epoch: Option<UserEpoch>,
    /// The segment, for a selection with a state for each segment.
    pub segment: Option<ModelName>,
    /// The circumstances, which are recorded with the decision.
    pub context: Option<Box<Context>>,
}

/// The user or users to recommend to.
#[derive(Debug, Clone, PartialEq)]
pub enum Audience {
    /// A user, known or unknown.
    User(UserId),
    /// An anonymous user; nothing is kept of them.
    Anonymous {
        /// Their history, in its order.
        past: Vec<PastItem>,
        /// What is known of them besides.
        attributes: Map<String, Value>,
    },
    Group {
        users: Vec<UserId>,
        /// How the users' scores are combined.
        by: Aggregate,
    },
}

/// One observation of an anonymous user's history.
#[derive(Debug, Clone, PartialEq)]
pub struct PastItem {
    pub item: ItemId,
    pub label: f32,
    /// The observation's weight; 1 by default.
    pub weight: f32,
    /// When it happened; now if `None`.
    pub timestamp: Option<Timestamp>,
    /// The kind of feedback.
    pub feedback: Option<String>,
    /// The circumstances of the observation.
    pub context: Option<Context>,
}

/// How the scores of a group's members are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aggregate {
    #[default]
    Mean,
    /// The minimum.
    LeastMisery,
}

/// Which of a user's observations count as seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenRule {
    /// Only observations within this window before now, by their timestamps; `None` for all.
    pub window: Option<Duration>,
    /// Only observations with these kinds of feedback, at most `SEEN_KINDS_MAX`; if empty, all
    /// observations, with or without a kind.
    pub feedback: Vec<String>,
}

/// A preference for items: matching items are ranked as if their score were higher by `add`.
#[derive(Debug, Clone, PartialEq)]
pub struct Boost {
    /// The preferred items.
    pub filter: Filter,
    /// Added to the score used for ranking; negative to demote.
    pub add: f32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    pub ranking: Ranking,
    /// The next page; `None` if nothing is left, or more was shown than a page token can hold.
    pub next: Option<Page>,
    /// Why there are no items; `None` if there are some.
    pub empty: Option<EmptyReason>,
    /// Attributes that the filter or a boost names and no item has.
    pub unknown_attributes: Vec<UnknownAttribute>,
}

impl RecommendRequest {
    /// Rejects fields that are out of range or contradict each other.
    ///
    /// # Errors
    /// `Field`.
    pub(crate) fn check(&self) -> Result<(), PredictorError> {
        let refuse = |field, problem: String| Err(PredictorError::Field { field, problem });
        if !(1..=RECOMMENDED_MAX).contains(&self.k) {
            return refuse("k", format!("must be from 1 to {RECOMMENDED_MAX}, got {}", self.k));
        }
        if self.exclude.len() > EXCLUDED_MAX {
            return refuse("exclude", format!("at most {EXCLUDED_MAX} items, got {}", self.exclude.len()));
        }
        let kinds = self.exclude_seen.as_ref().map_or(0, |rule| rule.feedback.len());
        if kinds > SEEN_KINDS_MAX {
            return refuse("exclude_seen.feedback", format!("at most {SEEN_KINDS_MAX} kinds, got {kinds}"));
        }
        if self.boosts.len() > BOOSTS_MAX {
            return refuse("boost", format!("at most {BOOSTS_MAX}, got {}", self.boosts.len()));
        }
        if let Some(Boost { add, .. }) =
            self.boosts.iter().find(|boost| !(-BOOST_ABS_MAX..=BOOST_ABS_MAX).contains(&boost.add))
        {
            return refuse("boost", format!("add must be between -{BOOST_ABS_MAX} and {BOOST_ABS_MAX}, got {add}"));
        }
        if let Some(diversity) = self.diversity {
            if !(0.0..=1.0).contains(&diversity) {
                return refuse("diversity", format!("must be from 0 to 1, got {diversity}"));
            }
            if let Some(policy) = self.policy.as_ref().filter(|policy| !matches!(policy, PolicySpec::Greedy(_))) {
                let name = policy.name();
                return refuse("diversity", format!("goes with the policy greedy, not with {name}; leave one out"));
            }
        }
        Ok(())
    }
}
