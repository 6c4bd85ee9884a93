//! The predicted value of a policy equals the reward that it then earns.

use celeris_bandits::ope::reward_model::RewardRow;
use celeris_bandits::ope::target::next_slot;
use celeris_bandits::ope::{Estimator, LoggedSlot, OpeSettings, RewardFeatures, RewardModel, Rounds, evaluate};
use celeris_bandits::{Candidates, EpsilonGreedy, Greedy, LinUcb, Policy};
use celeris_model::{Estimate, Example, Learning, Prior, Timestamp, UserModel};
use rand::seq::index;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const DIM: usize = 4;
const ITEMS: usize = 40;
const CANDIDATES: usize = 8;
const SLOTS: usize = 2;
const ROUNDS: usize = 4_000;

/// A user with few observations, and the user's true weights.
struct World {
    items: Vec<Vec<f32>>,
    likes: Vec<f32>,
    learning: Learning,
    user: UserModel,
}

/// Some of the items, with scores.
struct Offer {
    items: Vec<usize>,
    scores: Vec<f32>,
    std_errors: Vec<f32>,
}

impl World {
    fn new(rng: &mut ChaCha8Rng) -> Self {
        let mut vector = |length: usize| -> Vec<f32> { (0..length).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let items: Vec<Vec<f32>> = (0..ITEMS).map(|_| vector(DIM)).collect();
        let likes = vector(DIM);
        let learning = Learning::from(Prior::isotropic(DIM, 1.0, 0.5).unwrap());
        let examples: Vec<Example> = items[..6]
            .iter()
            .map(|features| Example {
                features,
                label: dot(features, &likes),
                offset: 0.0,
                weight: 1.0,
                timestamp: Timestamp(0),
                taken_before: None,
                choice: &[],
            })
            .collect();
        let user = UserModel::rebuild(&learning, examples.as_slice(), 6).unwrap();
        Self { items, likes, learning, user }
    }

    fn offer(&self, rng: &mut ChaCha8Rng) -> Offer {
        let items = index::sample(rng, ITEMS, CANDIDATES).into_vec();
        let estimate = |item: &usize| -> Estimate { self.user.estimate(&self.learning, 0.0, &self.items[*item]) };
        let estimates: Vec<Estimate> = items.iter().map(estimate).collect();
        let scores = estimates.iter().map(|estimate| estimate.score).collect();
        let std_errors = estimates.iter().map(|estimate| estimate.std_error).collect();
        Offer { items, scores, std_errors }
    }

    fn candidates<'a>(&'a self, offer: &'a Offer) -> Candidates<'a> {
        Candidates {
            scores: &offer.scores,
            std_errors: &offer.std_errors,
            offsets: &[],
            features: &[],
            posterior: &self.user,
            learning: &self.learning,
        }
    }

    /// Rewards of the shown items: each is lower, the better the one above was.
    fn rewards(&self, shown: &[usize], rng: &mut ChaCha8Rng) -> Vec<f64> {
        let mut patience = 1.0;
        let mut rewards = Vec::new();
        for item in shown {
            let liked = f64::from(dot(&self.items[*item], &self.likes));
            rewards.push(patience * liked + 0.3 * rng.sample::<f64, _>(StandardNormal));
            patience = if liked > 0.3 { 0.4 } else { 0.8 };
        }
        rewards
    }

    /// A policy's mean reward for each round, over enough rounds to be accurate.
    fn earned(&self, policy: &dyn Policy, rng: &mut ChaCha8Rng) -> f64 {
        let round = |_: usize| -> f64 {
            let offer = self.offer(rng);
            let slots = policy.rank(&self.candidates(&offer), SLOTS, rng).unwrap();
            let shown: Vec<usize> = slots.iter().map(|slot| offer.items[slot.candidate]).collect();
            self.rewards(&shown, rng).iter().sum()
        };
        let rounds = 20 * ROUNDS;
        (0..rounds).map(round).sum::<f64>() / rounds as f64
    }
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

/// Score and standard error, for the shown item and the target's expectation.
struct Scored(Vec<[[f64; 2]; 2]>);

impl RewardFeatures for Scored {
    fn dim(&self) -> usize {
        2
    }

    fn write(&self, slot: usize, shown: &mut [f64], target: &mut [f64]) {
        shown.copy_from_slice(&self.0[slot][0]);
        target.copy_from_slice(&self.0[slot][1]);
    }
}

/// A log of `logging`, evaluated for `target`.
fn log(world: &World, logging: &dyn Policy, target: &dyn Policy, rng: &mut ChaCha8Rng) -> Rounds {
    let (mut rows, mut features, mut slots) = (Vec::new(), Scored(Vec::new()), Vec::new());
    for round in 0..ROUNDS {
        let offer = world.offer(rng);
        let candidates = world.candidates(&offer);
        let ranking = logging.rank(&candidates, SLOTS, rng).unwrap();
        let chosen: Vec<usize> = ranking.iter().map(|slot| slot.candidate).collect();
        let shown: Vec<usize> = chosen.iter().map(|candidate| offer.items[*candidate]).collect();
        let rewards = world.rewards(&shown, rng);
        let mut weight_above = 1.0;
        for (position, slot) in ranking.iter().enumerate() {
            let likely = next_slot(target, &candidates, &chosen[..position], 0).unwrap();
            let of = |candidate: usize| [f64::from(offer.scores[candidate]), f64::from(offer.std_errors[candidate])];
            let mean = |index: usize| -> f64 { (0..CANDIDATES).map(|other| likely[other] * of(other)[index]).sum() };
            features.0.push([of(slot.candidate), [mean(0), mean(1)]]);
            let (propensity, target) = (f64::from(slot.propensity.unwrap()), likely[slot.candidate]);
            let weight = weight_above * target / propensity;
            let kept_weight = OpeSettings::default().kept(weight);
            rows.push(RewardRow { round, position, reward: rewards[position], weight_above, kept_weight });
            slots.push((rewards[position], propensity, target));
            weight_above = weight;
        }
    }
    let expectations = RewardModel::default().cross_fit(&rows, &features).unwrap();
    let logged: Vec<LoggedSlot> = slots
        .into_iter()
        .zip(expectations)
        .map(|((reward, propensity, target), found)| LoggedSlot {
            reward,
            propensity,
            target,
            expected: found.expected,
            expected_target: found.expected_target,
            leverage: found.leverage,
            leverage_switched: found.leverage_switched,
        })
        .collect();
    let mut rounds = Rounds::default();
    logged.chunks(SLOTS).for_each(|round| rounds.push(round).unwrap());
    rounds
}

#[test]
fn policies_earn_their_predicted_value() {
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let world = World::new(&mut rng);
    let logging = EpsilonGreedy::new(0.5).unwrap();
    let logging_earns = world.earned(&logging, &mut rng);
    let (uniform, greedy, lin_ucb) = (EpsilonGreedy::new(1.0).unwrap(), Greedy, LinUcb::new(1.0).unwrap());
    let targets: [(&str, &dyn Policy); 3] = [("uniform", &uniform), ("greedy", &greedy), ("lin_ucb", &lin_ucb)];
    for (name, target) in targets {
        let evaluation =
            evaluate(&log(&world, &logging, target, &mut rng), &OpeSettings { resamples: 500, ..Default::default() })
                .unwrap();
        let earned = world.earned(target, &mut rng);
        for estimate in &evaluation.estimates {
            let applies = match estimate.estimator {
                // Replay needs a uniform log.
                Estimator::Replay => false,
                // The direct method ignores that a slot's reward depends on the slots above.
                Estimator::Dm => false,
                // Items shown by `lin_ucb` are rare in the log, and for these it uses the same
                // model.
                Estimator::SwitchDr => name != "lin_ucb",
                Estimator::Ips | Estimator::Snips | Estimator::Dr | Estimator::Sndr => true,
            };
            if !applies {
                continue;
            }
            let span = estimate.outcome.as_ref().unwrap();
            let half_width = (span.high - span.low) / 2.0;
            eprintln!("{name} {}: {:.3} ± {half_width:.3}, earned {earned:.3}", estimate.estimator.name(), span.value);
            // Three standard errors, so that about one seed in a few hundred would fail.
            assert!((span.value - earned).abs() < 1.5 * half_width, "{name}: {estimate:?}, earned {earned}");
            assert!(
                (logging_earns - earned).abs() > half_width || name == "lin_ucb",
                "{name}: the log's own {logging_earns} would be no worse a guess"
            );
        }
    }
}
