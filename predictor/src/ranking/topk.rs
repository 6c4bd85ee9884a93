//! Ranks given items by a policy (Velox §2.5, `topK`) and records each decision.

use celeris_bandits::PolicySpec;
use celeris_model::{Context, DecisionId, ItemId, Loss, ModelName, SelectionFacts, UserEpoch, UserId, VersionId};

use super::{Draw, RankedSlots, Ranker, RankingInput, ResolvedItems, Scored, Seed};
use crate::error::PredictorError;
use crate::selection::SelectedBy;
use crate::version::RankingDefaults;

/// A request to rank items for a user.
#[derive(Debug, Clone, PartialEq)]
pub struct TopkRequest {
    pub model: ModelName,
    pub user: UserId,
    /// The candidates; duplicates are ignored.
    pub items: Vec<ItemId>,
    /// Number of slots to fill.
    pub k: usize,
    /// The policy; `None` for the model's default, including the validation pool.
    pub policy: Option<PolicySpec>,
    /// The seed of the policy's random generator; `None` for a random one.
    pub seed: Option<u64>,
    /// The answer must reflect at least this epoch of the user.
    pub min_epoch: Option<UserEpoch>,
    /// The segment, for a selection with a state for each segment.
    pub segment: Option<ModelName>,
    /// The choice of the selection that chose the model, if any. The decision is then recorded
    /// under the selection.
    pub selection: Option<SelectionFacts>,
    /// The circumstances, which are recorded with the decision.
    pub context: Option<Box<Context>>,
}

impl TopkRequest {
    /// How the ranking is drawn. A policy named by the request is used as it is; the model's
    /// default policy shares its traffic with the validation pool.
    pub(crate) fn draw<'a>(&'a self, seed: Seed, defaults: &'a RankingDefaults) -> Draw<'a> {
        let (policy, pool_share) = match &self.policy {
            Some(named) => (named, None),
            None => (&defaults.policy, Some(defaults.pool_share)),
        };
        Draw { policy, pool_share, k: self.k, seed }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    pub scored: Scored,
    /// The probability of this item in this slot, given the slots above; `None` if the policy has
    /// no closed form.
    pub propensity: Option<f32>,
}

/// A ranking, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// The id that later observations refer to.
    pub decision_id: DecisionId,
    /// Whether the decision's record was accepted for writing.
    pub logged: bool,
    pub version: VersionId,
    /// The loss, which defines the unit of the scores.
    pub loss: Loss,
    /// The epoch of the user that the scores reflect.
    pub user_epoch: UserEpoch,
    /// Whether the user has no observations.
    pub cold: bool,
    /// The policy that ranked.
    pub policy: PolicySpec,
    pub seed: u64,
    /// Whether the caller supplied the seed.
    pub seed_given: bool,
    /// Whether the ranking was drawn uniformly for the validation pool.
    pub pool: bool,
    pub items: Vec<Ranked>,
    /// The computed parts that no candidate had, since the context or the attributes lack what they read.
    pub missing: Vec<String>,
    /// For a selection, the arm or arms that answered.
    pub selected: Option<SelectedBy>,
}

impl Ranker {
    /// Ranks items by a model for a user, and records the decision.
    ///
    /// # Errors
    /// `UnknownModel`, `EpochNotReached`, `Bandit` or `Storage`.
    pub(crate) async fn topk_by_model(&self, request: &TopkRequest, seed: Seed) -> Result<Ranking, PredictorError> {
        let subject = self.users.subject(self.models.get(&request.model)?, &request.user);
        self.users.reach(&subject, request.min_epoch).await?;
        let items = ResolvedItems::distinct(&subject.version, &request.items).in_context(request.context.as_deref());
        let draw = request.draw(seed, &subject.model.settings.ranking);
        let snapshot = self.users.snapshot(&subject)?;
        let scored = self.scorer.score_candidates(&subject, snapshot, &items, draw.policy.policy().wants())?;
        let ranking = draw.draw(&scored.candidates(&subject))?;
        let slots = RankedSlots::new(&subject, &items, scored, &ranking);
        self.users.settle(&subject, slots.snapshot.pending.as_ref()).await?;
        let selection = request.selection.as_ref();
        let context = request.context.as_deref();
        let input = RankingInput { subject: &subject, items: &items, draw, selection, arrangement: None, context };
        Ok(self.decisions.record(&input, slots))
    }
}
