//! Rankings of given items by a policy (Velox §2.5, `topK`), each leaving a decision behind.

use std::time::SystemTime;

use celeris_bandits::{Candidates, PolicySpec, Pooled, Slot, Wants};
use celeris_model::{Decision, DecisionId, Estimate, ItemId, Loss, ModelName, ShownSlot, UserEpoch, UserId, VersionId};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::error::PredictorError;
use crate::features::Resolved;
use crate::node::{Predictor, Subject, compute};
use crate::predict::Scored;
use crate::scoring::{self, Picked};
use crate::users::Moment;

/// Seeds that the server draws stay below this, so that they survive a client that reads JSON numbers as doubles.
const SEED_BITS: u32 = 53;

/// What to rank, for whom, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct TopkRequest {
    /// The model.
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
    /// Whether the ranking was drawn uniformly for the validation pool.
    pub pool: bool,
    /// The slots.
    pub items: Vec<Ranked>,
}

/// Candidates with as much as the policy looks at.
struct Scene<'s> {
    moment: Moment,
    resolved: Vec<Resolved<'s>>,
    scores: Vec<f32>,
    /// Length `n`, or empty where the policy only looks at scores.
    estimates: Vec<Estimate>,
    std_errors: Vec<f32>,
    /// Length `n` and `n x dim`, or empty where the policy does not score by itself.
    offsets: Vec<f32>,
    features: Vec<f32>,
}

impl Predictor {
    /// Ranks items for a user and leaves a decision record.
    ///
    /// # Errors
    /// `UnknownModel`, `NoItems`, `EpochNotReached`, `Bandit` or `Storage`.
    pub async fn topk(&self, request: &TopkRequest) -> Result<Ranking, PredictorError> {
        if request.items.is_empty() {
            return Err(PredictorError::NoItems);
        }
        let subject = self.subject(&request.model, &request.user)?;
        self.reach(&subject, request.min_epoch).await?;
        let seed = request.seed.unwrap_or_else(|| rand::random::<u64>() >> (u64::BITS - SEED_BITS));
        let picked = Picked::distinct(&subject.version, &request.items);
        let policy = request.policy.as_ref().unwrap_or(&subject.model.defaults.policy);
        let wants = policy.policy().wants();
        let dim = subject.version.dim();
        let multiplications = picked.len() * if wants == Wants::Scores { dim } else { dim * dim };
        let (moment, drawn, shown) = compute(self.is_quick(&subject, &picked, multiplications), || {
            let scene = self.scene(&subject, &picked, wants)?;
            let drawn = draw(&subject, &scene, request, seed)?;
            let shown = shown(&subject, &scene, &picked, &drawn);
            Ok::<_, PredictorError>((scene.moment, drawn, shown))
        })?;
        self.settle(&subject, &moment).await?;
        let drawn = Drawn { policy: policy.clone(), seed, pool: drawn.pool, candidates: picked.len(), shown };
        Ok(self.decide(&subject, &moment, request.policy.is_none(), drawn))
    }

    fn scene<'s>(&self, subject: &'s Subject, picked: &Picked<'_>, wants: Wants) -> Result<Scene<'s>, PredictorError> {
        let moment = self.moment(subject)?;
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
    fn decide(&self, subject: &Subject, moment: &Moment, default_policy: bool, drawn: Drawn) -> Ranking {
        let Drawn { policy, seed, pool, candidates, shown: items } = drawn;
        let decision_id = DecisionId::new(uuid::Uuid::now_v7().to_string()).expect("a UUID is a valid id");
        let shown = items
            .iter()
            .map(|ranked| ShownSlot {
                item: ranked.scored.item.clone(),
                score: ranked.scored.estimate.score,
                std_error: ranked.scored.estimate.std_error,
                propensity: ranked.propensity,
            })
            .collect();
        let logged = self.storage.record_decision(Decision {
            id: decision_id.clone(),
            model: subject.model.name.clone(),
            version: subject.version.id,
            user: subject.key.user.clone(),
            user_epoch: moment.epoch,
            timestamp: SystemTime::now().into(),
            seed,
            policy: serde_json::to_string(&policy).expect("a policy has finite parameters"),
            pool_share: default_policy.then(|| subject.model.defaults.pool_share.into()),
            pool,
            shown,
            candidates: u32::try_from(candidates).unwrap_or(u32::MAX),
        });
        Ranking {
            decision_id,
            logged,
            version: subject.version.id,
            loss: subject.version.learning.loss(),
            user_epoch: moment.epoch,
            cold: moment.model.observations() == 0,
            policy,
            seed,
            pool,
            items,
        }
    }
}

/// A ranking as drawn, before it is a decision.
struct Drawn {
    policy: PolicySpec,
    seed: u64,
    pool: bool,
    candidates: usize,
    shown: Vec<Ranked>,
}

/// The slots with their estimates, which are computed only here where the policy did not ask for them.
fn shown(subject: &Subject, scene: &Scene<'_>, picked: &Picked<'_>, drawn: &celeris_bandits::Ranking) -> Vec<Ranked> {
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

/// A policy that the request names ranks as it is; the model's default shares its traffic with the validation pool.
fn draw(
    subject: &Subject,
    scene: &Scene<'_>,
    request: &TopkRequest,
    seed: u64,
) -> Result<celeris_bandits::Ranking, PredictorError> {
    let candidates = Candidates {
        scores: &scene.scores,
        std_errors: &scene.std_errors,
        offsets: &scene.offsets,
        features: &scene.features,
        posterior: &scene.moment.model,
        learning: &subject.version.learning,
    };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    if let Some(policy) = &request.policy {
        let slots = policy.policy().rank(&candidates, request.k, &mut rng)?;
        return Ok(celeris_bandits::Ranking { slots, pool: false });
    }
    let defaults = &subject.model.defaults;
    let pooled = Pooled { share: defaults.pool_share, policy: defaults.policy.policy() };
    Ok(pooled.draw(&candidates, request.k, &mut rng)?)
}
