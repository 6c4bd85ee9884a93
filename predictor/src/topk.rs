//! Ranks given items by a policy (Velox §2.5, `topK`) and records each decision.

use std::sync::Arc;
use std::time::SystemTime;

use celeris_bandits::{Candidates, PolicySpec, PoolShare, Slot, Wants};
use celeris_model::{
    CandidateDigest, Decision, DecisionId, Estimate, ItemId, Loss, ModelName, RecordedCandidates, SceneDigest,
    SelectionFacts, ShownSlot, Timestamp, UserEpoch, UserId, VersionId,
};
use celeris_storage::LateCandidates;

use crate::drawing::{Draw, Seed, explored};
use crate::error::PredictorError;
use crate::exploration::ExplorationCounts;
use crate::features::Resolved;
use crate::node::{Persistence, Predictor, RequestContext, compute};
use crate::predict::Scored;
use crate::propensities::PendingPropensities;
use crate::recommend::arrangement::{Arrangement, recorded_policy};
use crate::scoring::{self, ResolvedItems};
use crate::selection::{SelectedBy, without_segment};
use crate::users::UserSnapshot;
use crate::version::{RankingDefaults, ServingVersion};

/// Approximate size of an id in a record, in bytes.
const ID_BYTES: usize = 16;

/// Which decisions are recorded, and with which candidates.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionLogging {
    pub enabled: bool,
    /// Decisions with at most this many candidates are recorded with all of them.
    pub candidates_in_full: usize,
    /// The share of decisions with more candidates that are recorded with all of them; the others store a digest.
    pub candidates_sampled: f64,
}

impl Default for DecisionLogging {
    fn default() -> Self {
        Self { enabled: true, candidates_in_full: 256, candidates_sampled: 0.01 }
    }
}

impl DecisionLogging {
    fn in_full(&self, count: usize) -> bool {
        count <= self.candidates_in_full || rand::random::<f64>() < self.candidates_sampled
    }
}

/// All candidates, looked up later by the writer: only their rows are copied here.
fn in_full_later(version: &Arc<ServingVersion>, picked: &ResolvedItems<'_>) -> LateCandidates {
    let (version, (rows, outside)) = (Arc::clone(version), picked.rows());
    let make = move || {
        let mut outside = outside.iter();
        let ids = version.theta.items();
        let id = |row: &Option<u32>| row.map_or_else(|| outside.next(), |row| ids.get(row as usize)).cloned();
        RecordedCandidates::Full(rows.iter().filter_map(id).collect())
    };
    LateCandidates { bytes: picked.len() * ID_BYTES, make: Box::new(make) }
}

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
    /// The choice of the selection that chose the model, if any. The decision is then recorded under the selection.
    pub selection: Option<SelectionFacts>,
}

impl TopkRequest {
    /// How the ranking is drawn. A policy named by the request is used as it is; the model's default policy shares its
    /// traffic with the validation pool.
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
    /// The probability of this item in this slot, given the slots above; `None` if the policy has no closed form.
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
    /// For a selection, the arm or arms that answered.
    pub selected: Option<SelectedBy>,
}

/// Candidates with the inputs that the policy needs.
pub(crate) struct Scene<'s> {
    pub(crate) moment: UserSnapshot,
    pub(crate) resolved: Vec<Resolved<'s>>,
    /// Length `n`: the scores that the policy ranks by.
    pub(crate) scores: Vec<f32>,
    /// Length `n`, or empty if the policy needs only scores.
    estimates: Vec<Estimate>,
    std_errors: Vec<f32>,
    /// Length `n` and `n x dim`, or empty if the policy does not compute scores itself.
    offsets: Vec<f32>,
    features: Vec<f32>,
}

impl Scene<'_> {
    /// Adds `add` to the score used for ranking; the reported estimates are unchanged.
    pub(crate) fn boost(&mut self, add: impl Fn(usize) -> f32) {
        self.scores.iter_mut().enumerate().for_each(|(candidate, score)| *score += add(candidate));
        self.offsets.iter_mut().enumerate().for_each(|(candidate, offset)| *offset += add(candidate));
    }

    pub(crate) fn candidates<'a>(&'a self, subject: &'a RequestContext) -> Candidates<'a> {
        Candidates {
            scores: &self.scores,
            std_errors: &self.std_errors,
            offsets: &self.offsets,
            features: &self.features,
            posterior: &self.moment.model,
            learning: &subject.version.learning,
        }
    }
}

/// Everything that a decision depends on.
pub(crate) struct RankingInput<'a> {
    pub(crate) subject: &'a RequestContext,
    pub(crate) picked: &'a ResolvedItems<'a>,
    pub(crate) draw: Draw<'a>,
    pub(crate) selection: Option<&'a SelectionFacts>,
    /// Boosts and diversity of the request.
    pub(crate) arrangement: Option<&'a Arrangement>,
}

/// A drawn ranking, before its decision is recorded.
pub(crate) struct RankedSlots {
    pub(crate) moment: UserSnapshot,
    pub(crate) pool: bool,
    pub(crate) shown: Vec<Ranked>,
    /// For each slot, whether greedy would have shown its item in no slot.
    pub(crate) explored: Vec<bool>,
    /// Digest of the policy's inputs.
    pub(crate) scene: SceneDigest,
    /// Inputs for computing propensities, if these are unknown.
    pub(crate) unknown: Option<ScoredCandidates>,
}

/// A policy's inputs and its ranking.
pub(crate) struct ScoredCandidates {
    ranking: Vec<usize>,
    scores: Vec<f32>,
    std_errors: Vec<f32>,
    offsets: Vec<f32>,
    features: Vec<f32>,
}

impl RankedSlots {
    pub(crate) fn new(
        subject: &RequestContext,
        picked: &ResolvedItems<'_>,
        scene: Scene<'_>,
        ranking: &celeris_bandits::Ranking,
    ) -> Self {
        let shown = shown(subject, &scene, picked, ranking);
        let explored = explored(&scene.scores, &ranking.slots);
        let digest = scene_digest(&scene.scores, &scene.resolved);
        let Scene { moment, scores, std_errors, offsets, features, .. } = scene;
        let is_unknown = ranking.slots.iter().any(|slot| slot.propensity.is_none());
        let unknown = is_unknown.then(|| ScoredCandidates {
            ranking: ranking.slots.iter().map(|slot| slot.candidate).collect(),
            scores,
            std_errors,
            offsets,
            features,
        });
        Self { moment, pool: ranking.pool, shown, explored, scene: digest, unknown }
    }
}

/// The digest of candidates as a policy sees them. Features of trained items never change under a version, so their
/// scores suffice.
pub(crate) fn scene_digest(scores: &[f32], resolved: &[Resolved<'_>]) -> SceneDigest {
    let changeable = resolved.iter().filter(|item| !matches!(item, Resolved::Trained(_)));
    let numbers = changeable.flat_map(|item| std::iter::once(item.offset()).chain(item.features().iter().copied()));
    SceneDigest::of(scores, numbers)
}

impl Predictor {
    /// Ranks items for a user and records the decision.
    ///
    /// # Errors
    /// `UnknownModel`, `NoItems`, `EpochNotReached`, `Bandit` or `Storage`.
    pub async fn topk(&self, request: &TopkRequest) -> Result<Ranking, PredictorError> {
        self.topk_in(request, None).await
    }

    /// [`Predictor::topk`] in a segment, for a selection with a state for each segment.
    ///
    /// # Errors
    /// As [`Predictor::topk`], and `Segment`.
    pub async fn topk_in(&self, request: &TopkRequest, segment: Option<&ModelName>) -> Result<Ranking, PredictorError> {
        if request.items.is_empty() {
            return Err(PredictorError::NoItems);
        }
        match self.selection(&request.model) {
            Some(selection) => self.topk_among(&selection, request, segment).await,
            None => {
                without_segment(&request.model, segment)?;
                self.topk_by_model(request, Seed::of(request.seed)).await
            }
        }
    }

    /// [`Predictor::topk`] for a model, with this seed instead of the request's.
    pub(crate) async fn topk_by_model(&self, request: &TopkRequest, seed: Seed) -> Result<Ranking, PredictorError> {
        let subject = self.subject(&request.model, &request.user)?;
        self.reach(&subject, request.min_epoch).await?;
        let picked = ResolvedItems::distinct(&subject.version, &request.items);
        let draw = request.draw(seed, &subject.model.defaults);
        let wants = draw.policy.policy().wants();
        let dim = subject.version.dim();
        let multiplications = picked.len() * if wants == Wants::Scores { dim } else { dim * dim };
        let drawn = compute(self.is_quick(&subject, &picked, multiplications), || {
            let moment = self.moment(&subject)?;
            let scene = self.scene(&subject, moment, &picked, wants)?;
            let ranking = draw.draw(&scene.candidates(&subject))?;
            Ok::<_, PredictorError>(RankedSlots::new(&subject, &picked, scene, &ranking))
        })?;
        self.settle(&subject, drawn.moment.pending.as_ref()).await?;
        let selection = request.selection.as_ref();
        let asked = RankingInput { subject: &subject, picked: &picked, draw, selection, arrangement: None };
        Ok(self.decide(&asked, drawn))
    }

    /// Computes the policy's inputs from the user's state `moment`.
    pub(crate) fn scene<'s>(
        &self,
        subject: &'s RequestContext,
        moment: UserSnapshot,
        picked: &ResolvedItems<'_>,
        wants: Wants,
    ) -> Result<Scene<'s>, PredictorError> {
        let resolved = self.resolve_all(subject, picked)?;
        let (scores, estimates) = if wants == Wants::Scores {
            (scoring::scores(&moment.model, &resolved), Vec::new())
        } else {
            let estimates = self.estimate_all(subject, &moment, picked, &resolved);
            (estimates.iter().map(|estimate| estimate.score).collect(), estimates)
        };
        let (mut offsets, mut features) = (Vec::new(), Vec::new());
        if wants == Wants::Features {
            offsets.extend(resolved.iter().map(Resolved::offset));
            features.reserve(resolved.len() * subject.version.dim());
            resolved.iter().for_each(|item| features.extend_from_slice(item.features()));
        }
        let std_errors = estimates.iter().map(|estimate| estimate.std_error).collect();
        Ok(Scene { moment, resolved, scores, estimates, std_errors, offsets, features })
    }

    /// Records the decision and returns the answer.
    pub(crate) fn decide(&self, asked: &RankingInput<'_>, mut drawn: RankedSlots) -> Ranking {
        let RankingInput { subject, draw, .. } = asked;
        let decision_id = DecisionId::new(uuid::Uuid::now_v7().to_string()).expect("a UUID is a valid id");
        let timestamp = Timestamp::from(SystemTime::now());
        let unknown = drawn.unknown.take();
        let logged = self.logging.enabled && subject.persistence == Persistence::Kept && {
            let mut decision = decision_of(asked, &drawn, decision_id.clone(), timestamp);
            let later = unknown.map(|seen| later(asked, &drawn, seen, &decision));
            let logged = if self.logging.in_full(asked.picked.len()) {
                self.storage.record_decision_with(decision, in_full_later(&subject.version, asked.picked))
            } else {
                let (count, digest) = (decision.candidates.count(), CandidateDigest::of(asked.picked.items()));
                decision.candidates = RecordedCandidates::Digest { count, digest };
                self.storage.record_decision(decision)
            };
            if let Some(later) = later.filter(|_| logged) {
                self.estimator.offer(later);
            }
            logged
        };
        subject.model.exploration.count(timestamp, &counts(&drawn, logged));
        Ranking {
            decision_id,
            logged,
            version: subject.version.id,
            loss: subject.version.learning.loss(),
            user_epoch: drawn.moment.epoch,
            cold: drawn.moment.model.observations() == 0,
            policy: draw.policy.clone(),
            seed: draw.seed.value,
            seed_given: draw.seed.given,
            pool: drawn.pool,
            items: drawn.shown,
            selected: None,
        }
    }
}

/// The record, with only the number of its candidates.
fn decision_of(asked: &RankingInput<'_>, drawn: &RankedSlots, id: DecisionId, timestamp: Timestamp) -> Decision {
    let RankingInput { subject, picked, draw, .. } = asked;
    let selection = asked.selection.cloned();
    Decision {
        id,
        model: selection.as_ref().map_or(&subject.model.name, |selection| &selection.model).clone(),
        model_id: selection.as_ref().map_or(subject.model.id, |selection| selection.model_id),
        version: subject.version.id,
        user: subject.key.user.clone(),
        user_epoch: drawn.moment.epoch,
        timestamp,
        seed: draw.seed.value,
        seed_given: draw.seed.given,
        policy: recorded_policy(draw.policy, asked.arrangement),
        pool_share: draw.pool_share.map(PoolShare::into),
        pool: drawn.pool,
        shown: recorded_slots(drawn),
        candidates: RecordedCandidates::Count(u32::try_from(picked.len()).unwrap_or(u32::MAX)),
        scene: drawn.scene,
        selection,
    }
}

/// The inputs for computing the decision's propensities.
fn later(
    asked: &RankingInput<'_>,
    drawn: &RankedSlots,
    seen: ScoredCandidates,
    decision: &Decision,
) -> PendingPropensities {
    let ScoredCandidates { ranking, scores, std_errors, offsets, features } = seen;
    PendingPropensities {
        decided_by: decision.model_id,
        id: decision.id.clone(),
        pool: decision.pool,
        seed: decision.seed,
        version: asked.subject.version.clone(),
        posterior: drawn.moment.model.clone(),
        policy: asked.draw.policy.clone(),
        pool_share: asked.draw.pool_share,
        ranking,
        scores,
        std_errors,
        offsets,
        features,
    }
}

fn recorded_slots(drawn: &RankedSlots) -> Vec<ShownSlot> {
    let slot = |(ranked, explored): (&Ranked, &bool)| ShownSlot {
        item: ranked.scored.item.clone(),
        score: ranked.scored.estimate.score,
        std_error: ranked.scored.estimate.std_error,
        propensity: ranked.propensity,
        propensity_std_error: None,
        explored: *explored,
    };
    drawn.shown.iter().zip(&drawn.explored).map(slot).collect()
}

fn counts(drawn: &RankedSlots, logged: bool) -> ExplorationCounts {
    ExplorationCounts {
        decisions: 1,
        logged: u64::from(logged),
        pool: u64::from(drawn.pool),
        slots: drawn.shown.len() as u64,
        explored: drawn.explored.iter().filter(|explored| **explored).count() as u64,
        ..ExplorationCounts::default()
    }
}

/// The slots with their estimates, computed here only if the policy did not need them.
fn shown(
    subject: &RequestContext,
    scene: &Scene<'_>,
    picked: &ResolvedItems<'_>,
    drawn: &celeris_bandits::Ranking,
) -> Vec<Ranked> {
    let resolved = drawn.slots.iter().map(|slot| &scene.resolved[slot.candidate]);
    let estimates: Vec<Estimate> = if scene.estimates.is_empty() {
        scoring::estimates(&scene.moment.model, &subject.version, resolved.clone())
    } else {
        drawn.slots.iter().map(|slot| scene.estimates[slot.candidate]).collect()
    };
    let ranked = |((slot, resolved), estimate): ((&Slot, &Resolved<'_>), Estimate)| Ranked {
        scored: Scored { item: picked.item(slot.candidate).clone(), estimate, known: resolved.known() },
        propensity: slot.propensity,
    };
    drawn.slots.iter().zip(resolved).zip(estimates).map(ranked).collect()
}
