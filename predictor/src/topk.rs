//! Rankings of given items by a policy (Velox §2.5, `topK`), each leaving a decision behind.

use std::time::SystemTime;

use celeris_bandits::{Candidates, PolicySpec, Pooled};
use celeris_model::{Decision, DecisionId, Estimate, ItemId, ModelName, ShownSlot, UserEpoch, UserId, VersionId};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::error::PredictorError;
use crate::node::{Predictor, Subject, compute};
use crate::predict::Scored;
use crate::users::Snapshot;

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

/// Candidates with everything a policy may look at.
struct Scene {
    snapshot: Snapshot,
    scored: Vec<Scored>,
    estimates: Vec<Estimate>,
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
        let items = distinct(&request.items);
        let seed = request.seed.unwrap_or_else(|| rand::random::<u64>() >> (u64::BITS - SEED_BITS));
        let (scene, drawn) = compute(self.is_quick(&subject, &items), || {
            let scene = self.scene(&subject, &items)?;
            let drawn = draw(&subject, &scene, request, seed)?;
            Ok::<_, PredictorError>((scene, drawn))
        })?;
        self.settle(&subject, &scene.snapshot).await?;
        Ok(self.decide(&subject, &scene, request, &drawn, seed))
    }

    fn scene(&self, subject: &Subject, items: &[ItemId]) -> Result<Scene, PredictorError> {
        let snapshot = self.snapshot(subject)?;
        let scored = self.score(subject, &snapshot, items)?;
        let mut offsets = Vec::with_capacity(items.len());
        let mut features = Vec::with_capacity(items.len() * subject.version.dim());
        for item in items {
            let resolved = self.features.resolve(&subject.version, &subject.model.stream, item)?;
            offsets.push(resolved.offset());
            features.extend_from_slice(resolved.features());
        }
        let estimates = scored.iter().map(|scored| scored.estimate).collect();
        Ok(Scene { snapshot, scored, estimates, offsets, features })
    }

    fn decide(
        &self,
        subject: &Subject,
        scene: &Scene,
        request: &TopkRequest,
        drawn: &celeris_bandits::Ranking,
        seed: u64,
    ) -> Ranking {
        let items: Vec<Ranked> = drawn
            .slots
            .iter()
            .map(|slot| Ranked { scored: scene.scored[slot.candidate].clone(), propensity: slot.propensity })
            .collect();
        let policy = request.policy.clone().unwrap_or_else(|| subject.model.defaults.policy.clone());
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
            user_epoch: scene.snapshot.epoch,
            timestamp: SystemTime::now().into(),
            seed,
            policy: serde_json::to_string(&policy).expect("a policy has finite parameters"),
            pool_share: request.policy.is_none().then(|| subject.model.defaults.pool_share.into()),
            pool: drawn.pool,
            shown,
            candidates: u32::try_from(scene.scored.len()).unwrap_or(u32::MAX),
        });
        Ranking {
            decision_id,
            logged,
            version: subject.version.id,
            user_epoch: scene.snapshot.epoch,
            cold: scene.snapshot.model.observations() == 0,
            policy,
            seed,
            pool: drawn.pool,
            items,
        }
    }
}

/// A policy that the request names ranks as it is; the model's default shares its traffic with the validation pool.
fn draw(
    subject: &Subject,
    scene: &Scene,
    request: &TopkRequest,
    seed: u64,
) -> Result<celeris_bandits::Ranking, PredictorError> {
    let candidates = Candidates {
        estimates: &scene.estimates,
        offsets: &scene.offsets,
        features: &scene.features,
        posterior: &scene.snapshot.model,
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

fn distinct(items: &[ItemId]) -> Vec<ItemId> {
    let mut seen = std::collections::HashSet::with_capacity(items.len());
    items.iter().filter(|item| seen.insert(*item)).cloned().collect()
}
