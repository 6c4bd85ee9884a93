//! Rankings of given items by a policy (Velox §2.5, `topK`), each leaving a decision behind.

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
use crate::propensities::Unknown;
use crate::recommend::arrangement::{Arrangement, recorded_policy};
use crate::scoring::{self, ResolvedItems};
use crate::selection::{SelectedBy, without_segment};
use crate::users::UserSnapshot;
use crate::version::{RankingDefaults, ServingVersion};

/// About the bytes of an id in a record.
const ID_BYTES: usize = 16;

/// Which decisions are recorded, and how much of them.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionLogging {
    /// Whether decisions are recorded at all.
    pub enabled: bool,
    /// Up to so many candidates are recorded with every decision.
    pub candidates_in_full: usize,
    /// The share of decisions over more candidates that are recorded with all of them; the others with a digest.
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

/// All candidates, to be looked up by whoever writes them: only their rows are copied here.
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

/// What to rank, for whom, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct TopkRequest {
    /// The model that scores.
    pub model: ModelName,
    /// The user.
    pub user: UserId,
    /// The candidates; a repeated one counts once.
    pub items: Vec<ItemId>,
    /// How many slots to fill.
    pub k: usize,
    /// The policy; where none is named the model's default ranks, validation pool included.
    pub policy: Option<PolicySpec>,
    /// The seed of the policy's random generator; the server draws one where it is missing.
    pub seed: Option<u64>,
    /// The answer must reflect at least that many of the user's events.
    pub min_epoch: Option<UserEpoch>,
    /// Where a selection model has chosen the model: its choice. The decision is then the selection model's.
    pub selection: Option<SelectionFacts>,
}

impl TopkRequest {
    /// What draws the ranking. A policy that the request names ranks as it is; the model's default shares its traffic with
    /// the pool.
    pub(crate) fn draw<'a>(&'a self, seed: Seed, defaults: &'a RankingDefaults) -> Draw<'a> {
        let (policy, pool_share) = match &self.policy {
            Some(named) => (named, None),
            None => (&defaults.policy, Some(defaults.pool_share)),
        };
        Draw { policy, pool_share, k: self.k, seed }
    }
}

/// One slot of a ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// The item and its score.
    pub scored: Scored,
    /// The probability of this item in this slot, given the slots above; `None` where the policy has no closed form.
    pub propensity: Option<f32>,
}

/// A ranking, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// What later observations refer to.
    pub decision_id: DecisionId,
    /// Whether the decision's record was accepted for writing.
    pub logged: bool,
    /// The version that scored.
    pub version: VersionId,
    /// What its scores mean.
    pub loss: Loss,
    /// How many of the user's events the scores reflect.
    pub user_epoch: UserEpoch,
    /// Whether nothing is known of the user.
    pub cold: bool,
    /// The policy that ranked.
    pub policy: PolicySpec,
    /// The seed it drew with.
    pub seed: u64,
    /// Whether that was the caller's choice.
    pub seed_given: bool,
    /// Whether the ranking was drawn uniformly for the validation pool.
    pub pool: bool,
    /// The slots.
    pub items: Vec<Ranked>,
    /// Of a selection: who answered.
    pub selected: Option<SelectedBy>,
}

/// Candidates with as much as the policy looks at.
pub(crate) struct Scene<'s> {
    pub(crate) moment: UserSnapshot,
    pub(crate) resolved: Vec<Resolved<'s>>,
    /// Length `n`: what the policy ranks by.
    pub(crate) scores: Vec<f32>,
    /// Length `n`, or empty where the policy only looks at scores.
    estimates: Vec<Estimate>,
    std_errors: Vec<f32>,
    /// Length `n` and `n x dim`, or empty where the policy does not score by itself.
    offsets: Vec<f32>,
    features: Vec<f32>,
}

impl Scene<'_> {
    /// Ranks each candidate as if it scored so much more; what is told of its score stays.
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

/// What a decision is about.
pub(crate) struct RankingInput<'a> {
    pub(crate) subject: &'a RequestContext,
    pub(crate) picked: &'a ResolvedItems<'a>,
    pub(crate) draw: Draw<'a>,
    pub(crate) selection: Option<&'a SelectionFacts>,
    /// What else of the request the ranking depends on.
    pub(crate) arrangement: Option<&'a Arrangement>,
}

/// A ranking as drawn, before it is a decision.
pub(crate) struct RankedSlots {
    pub(crate) moment: UserSnapshot,
    pub(crate) pool: bool,
    pub(crate) shown: Vec<Ranked>,
    /// Of each slot, whether greedy would have shown its item in none.
    pub(crate) explored: Vec<bool>,
    /// Of what the policy saw.
    pub(crate) scene: SceneDigest,
    /// Where propensities are not known yet, what they are computed from.
    pub(crate) unknown: Option<ScoredCandidates>,
}

/// What a policy has seen and chosen.
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

/// The digest of candidates as a policy sees them. What a version was trained on never changes under it, so that of those
/// items the scores tell all.
pub(crate) fn scene_digest(scores: &[f32], resolved: &[Resolved<'_>]) -> SceneDigest {
    let changeable = resolved.iter().filter(|item| !matches!(item, Resolved::Trained(_)));
    let numbers = changeable.flat_map(|item| std::iter::once(item.offset()).chain(item.features().iter().copied()));
    SceneDigest::of(scores, numbers)
}

impl Predictor {
    /// Ranks items for a user and leaves a decision record.
    ///
    /// # Errors
    /// `UnknownModel`, `NoItems`, `EpochNotReached`, `Bandit` or `Storage`.
    pub async fn topk(&self, request: &TopkRequest) -> Result<Ranking, PredictorError> {
        self.topk_in(request, None).await
    }

    /// [`Predictor::topk`] in a segment, for a selection that has a state for each.
    ///
    /// # Errors
    /// As there, and `Segment`.
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

    /// [`Predictor::topk`] of a model, with this seed instead of the request's.
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

    /// The candidates as the user's state of that moment scores them.
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

    /// Leaves the decision's record, and is the answer.
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

/// The record, but for what its candidates are.
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

/// The decision as its propensities are computed from it.
fn later(asked: &RankingInput<'_>, drawn: &RankedSlots, seen: ScoredCandidates, decision: &Decision) -> Unknown {
    let ScoredCandidates { ranking, scores, std_errors, offsets, features } = seen;
    Unknown {
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

/// The slots with their estimates, which are computed only here where the policy did not ask for them.
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
