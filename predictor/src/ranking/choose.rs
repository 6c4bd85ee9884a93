//! Chooses one of a few given items by a model's policy, with the probability of each, and records the decision.

use celeris_bandits::{BanditError, Candidates, Origin, Simulation};
use celeris_model::{Chance, Context, ItemId, ModelName, UserId};

use super::{Draw, RankedSlots, Ranker, Ranking, RankingInput, ResolvedItems, Seed};
use crate::error::PredictorError;

/// The weights that are drawn to estimate a probability without a closed form.
const DRAWS: f64 = celeris_bandits::simulation::DRAWS as f64;

/// A request to choose an item.
#[derive(Debug, Clone, PartialEq)]
pub struct ChooseRequest {
    pub model: ModelName,
    pub user: UserId,
    /// The candidates; duplicates are ignored.
    pub items: Vec<ItemId>,
    /// The circumstances, which are recorded with the decision. What does not fit the stream is left out.
    pub context: Option<Box<Context>>,
}

/// The chosen item.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The ranking with its only slot.
    pub ranking: Ranking,
    /// The probability of each candidate: the chosen one first, the others best first. They sum to 1. Those of a policy
    /// without a closed form are simulated.
    pub chances: Vec<Chance>,
}

impl Ranker {
    /// Chooses an item by the policy and the validation pool of the model, and records the decision.
    ///
    /// # Errors
    /// `UnknownModel`, `IsSelection`, `NoItems`, `Bandit` or `Storage`.
    pub(crate) async fn choose(&self, request: &ChooseRequest) -> Result<Choice, PredictorError> {
        if request.items.is_empty() {
            return Err(PredictorError::NoItems);
        }
        let subject = self.users.subject(self.models.get(&request.model)?, &request.user);
        self.users.reach(&subject, None).await?;
        let fields = subject.model.catalog.fields();
        let context = request.context.as_deref().map(|context| fields.fitting(context));
        let context = context.as_ref().filter(|context| !context.is_empty());
        let items = ResolvedItems::distinct(&subject.version, &request.items).in_context(context);
        let defaults = &subject.model.settings.ranking;
        let (policy, pool_share) = (&defaults.policy, Some(defaults.pool_share));
        let draw = Draw { policy, pool_share, k: 1, seed: Seed::of(None) };
        let snapshot = self.users.snapshot(&subject)?;
        let scored = self.scorer.score_candidates(&subject, snapshot, &items, policy.policy().wants())?;
        let candidates = scored.candidates(&subject);
        let ranking = draw.draw(&candidates)?;
        let chosen = ranking.slots.first().map_or(0, |slot| slot.candidate);
        let chances = chances(&draw, &candidates, (chosen, ranking.pool))?;
        let chances = in_order(&candidates, chosen, &chances, |candidate| items.item(candidate).clone());
        let slots = RankedSlots::new(&subject, &items, scored, &ranking);
        self.users.settle(&subject, slots.snapshot.pending.as_ref()).await?;
        let input =
            RankingInput { subject: &subject, items: &items, draw, selection: None, arrangement: None, context };
        Ok(Choice { ranking: self.decisions.record(&input, slots), chances })
    }
}

/// The probability with which each candidate is chosen, by policy and pool together.
fn chances(draw: &Draw<'_>, candidates: &Candidates, (chosen, pool): (usize, bool)) -> Result<Vec<f64>, BanditError> {
    let policy = draw.policy.policy();
    let simulation = Simulation { seed: draw.seed.value, origin: Origin::Given };
    let mut of_policy = policy.estimate_next_slot(candidates, &[], simulation)?;
    // The realised draw counts as one of the sample, as in the record of the decision.
    if !pool && policy.propensities(candidates, &[chosen]).is_none() {
        of_policy.iter_mut().for_each(|chance| *chance *= DRAWS / (DRAWS + 1.0));
        of_policy[chosen] += 1.0 / (DRAWS + 1.0);
    }
    let share = draw.pool_share.map_or(0.0, f64::from);
    let uniform = share / candidates.len() as f64;
    Ok(of_policy.into_iter().map(|chance| uniform + (1.0 - share) * chance).collect())
}

/// The chosen candidate, then the others by their scores.
fn in_order(candidates: &Candidates, chosen: usize, chances: &[f64], item: impl Fn(usize) -> ItemId) -> Vec<Chance> {
    let mut order: Vec<usize> = (0..candidates.len()).filter(|candidate| *candidate != chosen).collect();
    order.sort_by(|left, right| candidates.scores[*right].total_cmp(&candidates.scores[*left]));
    let chance = |candidate: usize| Chance { item: item(candidate), probability: chances[candidate] as f32 };
    std::iter::once(chosen).chain(order).map(chance).collect()
}
