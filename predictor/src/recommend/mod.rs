//! Recommendations from the whole catalog: the best items for a user among all that may be shown,
//! each recorded as a decision.
//!
//! The set of allowed rows is exact: the filter, current availability, the request's exclusions,
//! the user's seen items and the items of earlier pages are combined, and all searches and draws
//! stay within it. `candidates` then selects the policy's candidates; from there on a
//! recommendation is a ranking like any other.

mod anonymous;
mod boosts;
mod candidates;
mod diversity;
mod group;
mod page;
mod reason;
mod request;
mod sample;
mod seen;
mod similar;

use std::sync::Arc;

use celeris_bandits::selection::Selected;
use celeris_bandits::{Greedy, PolicySpec, Ranking as BanditRanking, Slot};
use celeris_model::{ModelName, SelectionFacts, Timestamp, UserId};
use celeris_retrieval::CandidateSet;
use celeris_storage::Storage;

use crate::accepted_times::AcceptedTimes;
use crate::error::PredictorError;
use crate::features::FeatureStore;
use crate::models::Models;
use crate::ranking::{Arrangement, DecisionLog, Draw, RankedSlots, Ranking, RankingInput, ResolvedItems, Scorer, Seed};
use crate::selection::{SelectedBy, Selection};
use crate::selections::{Selections, Turn};
use crate::users::{Subject, UserKey, UserSnapshot, UserStore};

use boosts::Boosts;
use candidates::{Search, Shortlist};
use diversity::{Relevant, marginal_relevance};
use reason::unknown_attributes;
pub(crate) use seen::SeenCache;

pub use anonymous::PAST_MAX;
pub use group::GROUP_SIZES;
pub use page::{Page, SHOWN_MAX};
pub use reason::EmptyReason;
pub use request::{
    Aggregate, Audience, BOOST_ABS_MAX, BOOSTS_MAX, Boost, EXCLUDED_MAX, PastItem, RECOMMENDED_MAX, RecommendRequest,
    Recommendation, SeenRule,
};
pub use similar::{Similar, SimilarItem, SimilarRequest};

static DIVERSE_POLICY: PolicySpec = PolicySpec::Greedy(Greedy);

/// A request in progress, as one model answers it.
#[derive(Clone, Copy)]
pub(crate) struct Recommending<'a> {
    pub(crate) request: &'a RecommendRequest,
    /// The model that answers.
    pub(crate) model: &'a ModelName,
    /// The choice of the selection that chose the model, if any.
    pub(crate) selection: Option<&'a SelectionFacts>,
    pub(crate) seed: Seed,
    pub(crate) now: Timestamp,
}

impl<'a> Recommending<'a> {
    /// How the ranking is drawn.
    fn draw(&self, subject: &'a Subject) -> Draw<'a> {
        let defaults = &subject.model.settings.ranking;
        let (policy, pool_share) = match (&self.request.policy, self.request.diversity) {
            (_, Some(_)) => (&DIVERSE_POLICY, None),
            (Some(named), None) => (named, None),
            (None, None) => (&defaults.policy, Some(defaults.pool_share)),
        };
        Draw { policy, pool_share, k: self.request.k, seed: self.seed }
    }
}

/// Answers `recommend` and `similar`.
pub struct Recommender {
    pub(crate) storage: Storage,
    pub(crate) models: Arc<Models>,
    pub(crate) selections: Arc<Selections>,
    pub(crate) users: Arc<UserStore>,
    pub(crate) features: Arc<FeatureStore>,
    pub(crate) scorer: Arc<Scorer>,
    pub(crate) decisions: Arc<DecisionLog>,
    pub(crate) seen: SeenCache,
    pub(crate) accepted_times: AcceptedTimes,
}

impl Recommender {
    /// Drops the seen items of a user.
    pub(crate) fn purge(&self, user: &UserKey) {
        self.seen.purge(user);
    }

    /// Recommends by one model.
    ///
    /// # Errors
    /// `UnknownModel`, `Field`, `EpochNotReached`, `Bandit` or `Storage`.
    pub(crate) async fn recommend_by_model(
        &self,
        recommending: Recommending<'_>,
    ) -> Result<Recommendation, PredictorError> {
        match &recommending.request.audience {
            Audience::User(user) => self.recommend_to_user(user, recommending).await,
            Audience::Anonymous { past, attributes } => self.recommend_to_anonymous((past, attributes), recommending),
            Audience::Group { users, by } => self.recommend_to_group(users, *by, recommending).await,
        }
    }

    /// Recommends by the arm that the selection draws.
    ///
    /// # Errors
    /// `UnknownModel`, `Field`, `Segment`, `EpochNotReached`, `Bandit` or `Storage`.
    pub(crate) async fn recommend_by_selection(
        &self,
        selection: &Selection,
        recommending: Recommending<'_>,
    ) -> Result<Recommendation, PredictorError> {
        let request = recommending.request;
        let segment = request.segment.as_ref();
        let refused = |problem: &str| PredictorError::Field { field: "model", problem: problem.to_owned() };
        let Audience::User(user) = &request.audience else {
            return Err(refused("a selection recommends to one known user; ask one of its arms"));
        };
        let turn = Turn { user, min_epoch: request.min_epoch, segment, seed: Some(recommending.seed.value) };
        let Selected::One { arm, propensity } = self.selections.choose(selection, &turn).await? else {
            return Err(refused(
                "the arms of this selection answer together, and each would search for itself; ask one \
                of its arms, or rank a list by topk",
            ));
        };
        let (arm, propensity) = (selection.rule.arms[arm].clone(), propensity as f32);
        let facts = selection.facts(Some(&arm), propensity, segment);
        let by_arm = Recommending { model: &arm, selection: Some(&facts), ..recommending };
        let mut recommendation = self.recommend_by_model(by_arm).await?;
        recommendation.ranking.selected = Some(SelectedBy::Arm { arm, propensity });
        Ok(recommendation)
    }

    async fn recommend_to_user(
        &self,
        user: &UserId,
        recommending: Recommending<'_>,
    ) -> Result<Recommendation, PredictorError> {
        let subject = self.users.subject(self.models.get(recommending.model)?, user);
        self.users.reach(&subject, recommending.request.min_epoch).await?;
        let snapshot = self.users.snapshot(&subject)?;
        // Seen items are read from the log, which has only durable records; the reply waits for
        // these anyway.
        self.users.settle(&subject, snapshot.pending.as_ref()).await?;
        let mut allowed = self.showable(&subject, &recommending);
        if let Some(rule) = &recommending.request.exclude_seen {
            let catalog = &subject.model.catalog;
            let seen = self.seen.of(&subject.key, snapshot.epoch, &self.storage, catalog)?;
            seen.take_out(rule, recommending.now, &mut allowed, catalog);
        }
        self.recommend_at(&subject, snapshot, &allowed, recommending)
    }

    /// The rows that may be shown, apart from seen items: those that pass the filter, are
    /// available, not excluded, and not on an earlier page.
    pub(crate) fn showable(&self, subject: &Subject, recommending: &Recommending<'_>) -> CandidateSet {
        let (request, catalog) = (recommending.request, &subject.model.catalog);
        let mut allowed = catalog.allowed(request.filter.as_ref(), recommending.now);
        catalog.rows_of(&request.exclude).into_iter().flatten().for_each(|row| allowed.remove(row));
        if let Some(page) = &request.page {
            page.take_out(&mut allowed, catalog);
        }
        allowed
    }

    /// Ranks the allowed rows for a user with this state.
    fn recommend_at(
        &self,
        subject: &Subject,
        snapshot: UserSnapshot,
        allowed: &CandidateSet,
        recommending: Recommending<'_>,
    ) -> Result<Recommendation, PredictorError> {
        let request = recommending.request;
        let boosts = self.boosts(subject, &recommending);
        let mut draw = recommending.draw(subject);
        let search = Search {
            subject,
            snapshot: &snapshot,
            allowed,
            boosts: &boosts,
            draw,
            context: request.context.as_deref(),
        };
        let shortlist = match request.diversity {
            Some(_) => search.diverse_shortlist(),
            None => self.shortlist(&search)?,
        };
        draw.pool_share = shortlist.pool_share;
        count(&request.model, allowed, &shortlist);
        let context = request.context.as_deref();
        let picked = ResolvedItems::all(&subject.version, &shortlist.items).in_context(context);
        let mut scored = self.scorer.score_candidates(subject, snapshot, &picked, draw.policy.policy().wants())?;
        if !boosts.is_empty() {
            scored.inputs.boost(|candidate| boosts.of(shortlist.rows[candidate]));
        }
        let ranking = match request.diversity {
            Some(diversity) => {
                let features = scored.resolved.iter().map(|item| without_constant(item.features())).collect();
                let relevant = Relevant { scores: &scored.inputs.scores, features };
                certain(&marginal_relevance(&relevant, diversity, request.k))
            }
            None => draw.draw(&scored.candidates(subject))?,
        };
        let rows: Vec<_> = ranking.slots.iter().map(|slot| shortlist.rows[slot.candidate]).collect();
        let slots = RankedSlots::new(subject, &picked, scored, &ranking);
        let boosted = request.boosts.iter().map(|boost| boost.add).collect();
        let arrangement = Arrangement::of(boosted, request.diversity);
        let input = RankingInput {
            subject,
            items: &picked,
            draw,
            selection: recommending.selection,
            arrangement: arrangement.as_ref(),
            context,
        };
        let ranking = self.decisions.record(&input, slots);
        let shown = rows.into_iter().zip(ranking.items.iter().map(|ranked| &ranked.scored.item));
        let is_more = ranking.items.len() == request.k && allowed.count() > request.k;
        let next = is_more.then(|| request.page.clone().unwrap_or_default().after(shown)).flatten();
        Ok(self.recommendation(subject, allowed, &recommending, (ranking, next)))
    }

    /// A recommendation, with the reason if it is empty.
    fn recommendation(
        &self,
        subject: &Subject,
        allowed: &CandidateSet,
        recommending: &Recommending<'_>,
        (ranking, next): (Ranking, Option<Page>),
    ) -> Recommendation {
        let empty = ranking.items.is_empty().then(|| self.why_empty(subject, allowed, recommending));
        let unknown_attributes = unknown_attributes(subject, recommending);
        Recommendation { ranking, next, empty, unknown_attributes }
    }

    fn boosts(&self, subject: &Subject, recommending: &Recommending<'_>) -> Boosts {
        let compiled =
            |boost: &Boost| (subject.model.catalog.allowed(Some(&boost.filter), recommending.now), boost.add);
        Boosts::new(recommending.request.boosts.iter().map(compiled).collect())
    }
}

/// A deterministic ranking.
fn certain(order: &[usize]) -> BanditRanking {
    let slot = |candidate: &usize| Slot { candidate: *candidate, propensity: Some(1.0) };
    BanditRanking { slots: order.iter().map(slot).collect(), pool: false }
}

fn without_constant(features: &[f32]) -> &[f32] {
    features.split_last().map_or(features, |(_, others)| others)
}

fn count(model: &ModelName, allowed: &CandidateSet, shortlist: &Shortlist) {
    let model = model.to_string();
    metrics::counter!("celeris_recommendations_total", "model" => model.clone()).increment(1);
    metrics::counter!("celeris_recommend_allowed_total", "model" => model.clone()).increment(allowed.count() as u64);
    metrics::counter!("celeris_recommend_candidates_total", "model" => model).increment(shortlist.items.len() as u64);
}
