//! What is asked for, and what is answered.

use std::time::Duration;

use celeris_bandits::PolicySpec;
use celeris_model::{ItemId, ModelName, Timestamp, UserEpoch, UserId};
use celeris_retrieval::Filter;

use crate::error::PredictorError;
use crate::recommend::page::Page;
use crate::topk::Ranking;

/// How many slots a recommendation may have.
pub const RECOMMENDED_MAX: usize = 1000;

/// How many items a request may exclude by id.
pub const EXCLUDED_MAX: usize = 10_000;

/// How many kinds of feedback a rule of what was seen may name.
pub const SEEN_KINDS_MAX: usize = 64;

/// How many boosts a request may bring: they are searched apart wherever they overlap, in up to 16 cells.
pub const BOOSTS_MAX: usize = 4;

/// The largest magnitude of what a boost adds: that of a label.
pub const BOOST_ABS_MAX: f32 = celeris_model::observation::LABEL_ABS_MAX;

/// What to recommend, to whom, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct RecommendRequest {
    /// The model that scores.
    pub model: ModelName,
    /// Who is to like it.
    pub audience: Audience,
    /// How many slots to fill: from 1 to [`RECOMMENDED_MAX`].
    pub k: usize,
    /// What may be shown; everything available where there is none.
    pub filter: Option<Filter>,
    /// What may not, by id; at most [`EXCLUDED_MAX`].
    pub exclude: Vec<ItemId>,
    /// What of the past may not be shown again; `None` where all of it may.
    pub exclude_seen: Option<SeenRule>,
    /// What is preferred, at most [`BOOSTS_MAX`].
    pub boosts: Vec<Boost>,
    /// How much the slots shall differ from each other, from 0 to 1; such a request is ranked greedily.
    pub diversity: Option<f32>,
    /// What earlier pages have shown.
    pub page: Option<Page>,
    /// The policy; where none is named the model's default ranks, validation pool included.
    pub policy: Option<PolicySpec>,
    /// Seeds what is drawn; the server draws one where it is missing.
    pub seed: Option<u64>,
    /// The answer must reflect at least that many of the user's events.
    pub min_epoch: Option<UserEpoch>,
}

/// Who is recommended to.
#[derive(Debug, Clone, PartialEq)]
pub enum Audience {
    /// A user, known or not.
    User(UserId),
    /// Somebody without a name, who brings their past along; nothing of it is kept.
    Anonymous(Vec<PastItem>),
    /// Several users at once.
    Group {
        /// The users.
        users: Vec<UserId>,
        /// What the group makes of their scores.
        by: Aggregate,
    },
}

/// One observation of a past that a request brings along.
#[derive(Debug, Clone, PartialEq)]
pub struct PastItem {
    /// The item.
    pub item: ItemId,
    /// The label.
    pub label: f32,
    /// How many times over it counts; 1 unless told.
    pub weight: f32,
    /// When it happened; now where the request does not say.
    pub timestamp: Option<Timestamp>,
    /// What kind of feedback it is.
    pub feedback: Option<String>,
}

/// What a group makes of its members' scores of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aggregate {
    /// Their mean.
    #[default]
    Mean,
    /// The least of them.
    LeastMisery,
}

/// What of a user's past counts as seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenRule {
    /// Only observations of the last so long, by their timestamps; all where there is none.
    pub window: Option<Duration>,
    /// Only observations of these kinds of feedback, at most `SEEN_KINDS_MAX`; of all kinds, and of none, where it is
    /// empty.
    pub feedback: Vec<String>,
}

/// A preference for some items: what matches is ranked as if it scored so much more.
#[derive(Debug, Clone, PartialEq)]
pub struct Boost {
    /// What is preferred.
    pub filter: Filter,
    /// Added to the score by which items are ranked; below zero to put them back.
    pub add: f32,
}

/// A page of recommendations.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// The ranking.
    pub ranking: Ranking,
    /// Asks for the next page; `None` where nothing is left, or more has been shown than a page can tell of.
    pub next: Option<Page>,
}

impl RecommendRequest {
    /// Refuses what is out of range, or does not go together.
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
