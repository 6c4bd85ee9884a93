//! A synthetic world with known values: contexts from a small set, so that the value of any policy
//! is a finite sum.

use celeris_bandits::ope::reward_model::RewardRow;
use celeris_bandits::ope::{LoggedSlot, OpeSettings, RewardFeatures, RewardModel, Rounds};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

pub const CONTEXTS: usize = 6;
pub const ACTIONS: usize = 4;

/// The probability of every action, by context.
pub type Distribution = [[f64; ACTIONS]; CONTEXTS];

/// The probability of a reward: linear in the context, with a line for every action.
pub fn chance(context: usize, action: usize) -> f64 {
    let x = context as f64 / (CONTEXTS - 1) as f64;
    let (base, slope) = [(0.15, 0.35), (0.45, -0.25), (0.25, 0.0), (0.1, 0.15)][action];
    base + slope * x
}

/// A softmax policy over `better`: `exp(sharpness better)`.
pub fn soft(sharpness: f64, better: impl Fn(usize, usize) -> f64) -> Distribution {
    std::array::from_fn(|context| {
        let weights: [f64; ACTIONS] = std::array::from_fn(|action| (sharpness * better(context, action)).exp());
        let sum: f64 = weights.iter().sum();
        weights.map(|weight| weight / sum)
    })
}

pub const UNIFORM: Distribution = [[1.0 / ACTIONS as f64; ACTIONS]; CONTEXTS];

/// The deterministic policy that always takes the better of two actions.
pub fn hard() -> Distribution {
    std::array::from_fn(|context| {
        let best = if chance(context, 0) > chance(context, 1) { 0 } else { 1 };
        std::array::from_fn(|action| f64::from(u8::from(action == best)))
    })
}

/// The value of a policy of one slot, for each round.
pub fn value(policy: &Distribution) -> f64 {
    let of_context =
        |context: usize| -> f64 { (0..ACTIONS).map(|action| policy[context][action] * chance(context, action)).sum() };
    (0..CONTEXTS).map(of_context).sum::<f64>() / CONTEXTS as f64
}

/// Reward of the second of two slots: half, and a quarter below the best action of the context, so
/// that it depends on the slot above.
pub fn second_chance(context: usize, above: usize, action: usize) -> f64 {
    let satisfied = (0..ACTIONS).all(|other| chance(context, other) <= chance(context, above));
    chance(context, action) * if satisfied { 0.25 } else { 0.5 }
}

/// The distribution of the second slot: that of the first, restricted to the remaining actions.
pub fn below(policy: &[f64; ACTIONS], above: usize) -> [f64; ACTIONS] {
    let rest = 1.0 - policy[above];
    std::array::from_fn(|action| if action == above { 0.0 } else { policy[action] / rest })
}

/// The value of a policy of two slots, for each round.
pub fn value_of_two(policy: &Distribution) -> f64 {
    let mut sum = 0.0;
    for (context, first) in policy.iter().enumerate() {
        for (above, probability) in first.iter().enumerate() {
            let second = below(first, above);
            let then: f64 = (0..ACTIONS).map(|action| second[action] * second_chance(context, above, action)).sum();
            sum += probability * (chance(context, above) + then);
        }
    }
    sum / CONTEXTS as f64
}

pub fn draw(probabilities: &[f64; ACTIONS], rng: &mut ChaCha8Rng) -> usize {
    let mut left = rng.random::<f64>();
    let chosen = probabilities.iter().position(|probability| {
        left -= probability;
        left < 0.0
    });
    chosen.unwrap_or_else(|| probabilities.iter().rposition(|probability| *probability > 0.0).unwrap())
}

fn happens(chance: f64, rng: &mut ChaCha8Rng) -> f64 {
    f64::from(u8::from(rng.random::<f64>() < chance))
}

/// One shown slot.
struct Shown {
    context: usize,
    action: usize,
    reward: f64,
    propensity: f64,
    /// The target policy's distribution for the slot.
    target: [f64; ACTIONS],
}

/// Features for one line for every action.
struct Lines<'a>(&'a [Shown]);

impl RewardFeatures for Lines<'_> {
    fn dim(&self) -> usize {
        2 * ACTIONS
    }

    fn write(&self, slot: usize, shown: &mut [f64], target: &mut [f64]) {
        let one = &self.0[slot];
        let x = one.context as f64 / (CONTEXTS - 1) as f64;
        (shown[2 * one.action], shown[2 * one.action + 1]) = (1.0, x);
        for (action, probability) in one.target.iter().enumerate() {
            (target[2 * action], target[2 * action + 1]) = (*probability, probability * x);
        }
    }
}

/// Weak enough not to change lines through hundreds of points.
const MODEL: RewardModel = RewardModel { folds: 5, regularization: 0.01, seed: 3 };

/// The logging and the target policy.
#[derive(Clone, Copy)]
pub struct Policies {
    pub logging: Distribution,
    pub target: Distribution,
}

/// A log of `count` rankings of `slots` slots, one or two, with the reward model's predictions.
pub fn log(slots: usize, policies: &Policies, count: usize, settings: &OpeSettings, rng: &mut ChaCha8Rng) -> Rounds {
    let Policies { logging, target } = policies;
    let mut shown = Vec::new();
    for _ in 0..count {
        let context = rng.random_range(0..CONTEXTS);
        let action = draw(&logging[context], rng);
        shown.push(Shown {
            context,
            action,
            reward: happens(chance(context, action), rng),
            propensity: logging[context][action],
            target: target[context],
        });
        if slots == 2 {
            let drawn_from = below(&logging[context], action);
            let second = draw(&drawn_from, rng);
            shown.push(Shown {
                context,
                action: second,
                reward: happens(second_chance(context, action, second), rng),
                propensity: drawn_from[second],
                target: below(&target[context], action),
            });
        }
    }
    let ratio = |one: &Shown| one.target[one.action] / one.propensity;
    let row = |(index, one): (usize, &Shown)| {
        let weight_above = if index % slots == 0 { 1.0 } else { ratio(&shown[index - 1]) };
        let kept_weight = settings.kept(weight_above * ratio(one));
        RewardRow { round: index / slots, position: index % slots, reward: one.reward, weight_above, kept_weight }
    };
    let rows: Vec<RewardRow> = shown.iter().enumerate().map(row).collect();
    let expectations = MODEL.cross_fit(&rows, &Lines(&shown)).unwrap();
    let logged: Vec<LoggedSlot> = shown
        .iter()
        .zip(expectations)
        .map(|(one, expectation)| LoggedSlot {
            reward: one.reward,
            propensity: one.propensity,
            target: one.target[one.action],
            expected: expectation.expected,
            expected_target: expectation.expected_target,
            leverage: expectation.leverage,
            leverage_switched: expectation.leverage_switched,
        })
        .collect();
    let mut rounds = Rounds::default();
    logged.chunks(slots).for_each(|round| rounds.push(round).unwrap());
    rounds
}
