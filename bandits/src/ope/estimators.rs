//! The estimators, their intervals, and the conditions under which they are refused.

use super::bootstrap::{Columns, quantile, resample};
use super::overlap::{Overlap, Refusal};
use super::rounds::{LoggedSlot, Rounds};

/// The share of the resampled values on each side outside the interval, which is one of 95 %.
const TAIL: f64 = 0.025;

/// An estimator of a policy's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Estimator {
    /// Rejection matching (Li et al., "Unbiased offline evaluation of contextual-bandit-based news
    /// article recommendation algorithms", WSDM 2011): the mean reward of the rounds in which a
    /// deterministic target would have shown the same ranking.
    Replay,
    /// Inverse propensity scoring (Dudík et al., "Doubly robust policy evaluation and
    /// optimization", Statistical Science 2014). For rankings, RIPS (McInerney et al.,
    /// "Counterfactual evaluation of slate recommendations with sequential reward interactions",
    /// KDD 2020).
    Ips,
    /// Self-normalised IPS (Swaminathan and Joachims, "The self-normalized estimator for
    /// counterfactual learning", NIPS 2015), normalised slot by slot.
    Snips,
    /// The direct method (Dudík et al. 2014): the reward model alone.
    Dm,
    /// Doubly robust (Dudík et al., "Doubly robust policy evaluation and learning", ICML 2011). For
    /// rankings, with cascade weights (Kiyohara et al., "Doubly robust off-policy evaluation for
    /// ranking policies under the cascade behavior model", WSDM 2022, with a model of each slot's
    /// own reward).
    Dr,
    /// Self-normalised DR, its correction normalised slot by slot (Kallus and Uehara,
    /// "Intrinsically efficient, stable, and bounded off-policy evaluation for reinforcement
    /// learning", NeurIPS 2019).
    Sndr,
    /// SWITCH-DR (Wang et al., "Optimal and adaptive off-policy evaluation in contextual bandits",
    /// ICML 2017): DR that uses only the model where the weight exceeds a threshold.
    SwitchDr,
}

impl Estimator {
    /// All estimators, in the order of [`values`].
    pub const ALL: [Self; 7] = [Self::Replay, Self::Ips, Self::Snips, Self::Dm, Self::Dr, Self::Sndr, Self::SwitchDr];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Ips => "ips",
            Self::Snips => "snips",
            Self::Dm => "dm",
            Self::Dr => "dr",
            Self::Sndr => "sndr",
            Self::SwitchDr => "switch_dr",
        }
    }
}

/// Settings of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpeSettings {
    /// Number of resamples of the rounds for the intervals; at least 1.
    pub resamples: usize,
    /// Seed of the resampling.
    pub seed: u64,
    /// The largest weight at which SWITCH-DR still corrects its model.
    pub switch_threshold: f64,
}

impl Default for OpeSettings {
    fn default() -> Self {
        Self { resamples: 1000, seed: 1, switch_threshold: 10.0 }
    }
}

impl OpeSettings {
    /// The weight by which SWITCH-DR corrects a slot with this importance weight.
    #[must_use]
    pub fn kept(&self, weight: f64) -> f64 {
        if weight <= self.switch_threshold { weight } else { 0.0 }
    }
}

/// One estimator's result, or the reason why it is refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    pub estimator: Estimator,
    /// The policy's value with its 95 % percentile interval, or the reason why there is none.
    pub outcome: Result<Interval, Refusal>,
    /// Kish's effective sample size of the weights that this estimator uses: for rankings that of
    /// the slot where it is lowest; for replay the number of rounds that agree, for the direct
    /// method that of the weights above.
    pub effective_sample_size: f64,
}

/// A value with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// The evaluation of a policy on a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The mean reward for each round of the log, with its interval: the value of the logging
    /// policy.
    pub logged: Interval,
    pub largest_weight: f64,
    /// The mean weight; for rankings that of the slot where it is farthest from its expectation of
    /// 1.
    pub mean_weight: f64,
    /// One for each of [`Estimator::ALL`], in that order.
    pub estimates: Vec<Estimate>,
}

/// The target policy's value for each round, by every estimator, with its interval or the reason
/// for refusal.
///
/// Rounds are resampled as if they were independent; if a user has several rounds, the intervals
/// are too narrow because of their correlation. `None` if there are no rounds.
#[must_use]
pub fn evaluate(rounds: &Rounds, settings: &OpeSettings) -> Option<Evaluation> {
    if rounds.is_empty() {
        return None;
    }
    let overlap = Overlap::of(rounds);
    let columns = columns(rounds, settings);
    let sums = columns.sums();
    let values = statistics(&sums, 0.0);
    // The model is not fitted on every resample; its noise enters by the derivative.
    let with_noise = |sums: &[f64]| statistics(sums, 1.0);
    let resampled = resample(&columns, settings.resamples, settings.seed, with_noise);
    let centre = with_noise(&sums);
    let interval = |index: usize| {
        // Under regularization the derivative's mean is not exactly zero, so the interval is
        // shifted back to the value.
        let shift = values[index] - centre[index];
        let end = |share| quantile(&resampled[index], share) + shift;
        Interval { value: values[index], low: end(TAIL), high: end(1.0 - TAIL) }
    };
    let of_all = overlap.refusal();
    let estimates = Estimator::ALL.into_iter().enumerate().map(|(index, estimator)| {
        let effective_sample_size = match estimator {
            Estimator::Replay => overlap.matches() as f64,
            Estimator::Dm => overlap.effective_above(),
            Estimator::SwitchDr => effective_kept(rounds, settings),
            Estimator::Ips | Estimator::Snips | Estimator::Dr | Estimator::Sndr => overlap.effective(),
        };
        let refusal = of_all.clone().or_else(|| match estimator {
            Estimator::Replay => overlap.no_replay(),
            // These two do not depend on the weights.
            Estimator::Dm | Estimator::SwitchDr => overlap.few_effective(overlap.effective_above()),
            _ => overlap.few_effective(effective_sample_size),
        });
        let span = interval(index);
        let refusal = refusal.or_else(|| (span.low == span.high).then_some(Refusal::NoVariation { value: span.value }));
        Estimate { estimator, outcome: refusal.map_or(Ok(span), Err), effective_sample_size }
    });
    Some(Evaluation {
        logged: interval(LOGGED),
        largest_weight: overlap.largest_weight,
        mean_weight: overlap.mean_weight(),
        estimates: estimates.collect(),
    })
}

/// The values alone, one for each of [`Estimator::ALL`], regardless of the overlap; NaN if
/// undefined: without rounds and, for replay, without a round that agrees.
#[must_use]
pub fn values(rounds: &Rounds, settings: &OpeSettings) -> [f64; 7] {
    let columns = columns(rounds, settings);
    let [values @ .., _logged] = statistics(&columns.sums(), 0.0);
    values
}

// The columns of every round; then, for every slot, the four of `of_slot`.
const MATCHES: usize = 0;
const MATCHED_REWARD: usize = 1;
const IPS: usize = 2;
const DM: usize = 3;
/// Effect of the round's noise on the direct method through the fitted model.
const DM_NOISE: usize = 4;
const DR: usize = 5;
const SWITCH_DR: usize = 6;
/// The same for the part of SWITCH-DR that depends on the model.
const SWITCH_DR_NOISE: usize = 7;
const REWARD: usize = 8;
/// How many rounds the round stands for.
const WEIGHT: usize = 9;
const OF_ROUND: usize = 10;
const OF_SLOT: usize = 4;

/// Index of the log's mean reward in [`statistics`]: after all estimators.
const LOGGED: usize = Estimator::ALL.len();

fn columns(rounds: &Rounds, settings: &OpeSettings) -> Columns {
    let width = OF_ROUND + OF_SLOT * rounds.depth();
    let mut values = vec![0.0; rounds.len() * width];
    for ((round, stands_for), row) in rounds.weighted().zip(values.chunks_exact_mut(width)) {
        let (of_round, of_slots) = row.split_at_mut(OF_ROUND);
        of_round[WEIGHT] = 1.0;
        let mut above = 1.0;
        let mut agrees = true;
        for (slot, of_slot) in round.iter().zip(of_slots.chunks_exact_mut(OF_SLOT)) {
            let weight = above * slot.ratio();
            let residual = slot.reward - slot.expected;
            let switched = settings.kept(weight);
            let modelled = above * slot.expected_target;
            of_round[IPS] += weight * slot.reward;
            of_round[DM] += modelled;
            of_round[DM_NOISE] += slot.leverage * residual;
            of_round[DR] += modelled + weight * residual;
            of_round[SWITCH_DR] += modelled + switched * residual;
            of_round[SWITCH_DR_NOISE] += slot.leverage_switched * residual;
            of_round[REWARD] += slot.reward;
            of_slot.copy_from_slice(&[1.0, weight, weight * slot.reward, weight * residual]);
            agrees &= slot.target == 1.0;
            above = weight;
        }
        if agrees {
            of_round[MATCHES] = 1.0;
            of_round[MATCHED_REWARD] = of_round[REWARD];
        }
        for (column, value) in row.iter_mut().enumerate() {
            // The derivatives are by the reward of the round itself, and know what the rounds stand for.
            if column != DM_NOISE && column != SWITCH_DR_NOISE {
                *value *= stands_for;
            }
        }
    }
    Columns { values, width }
}

/// One value for each estimator and the mean reward of the log, from the sums of the columns.
/// `noise` is the share of the fitted model's noise in the estimators that depend on it: 0 for
/// values, 1 for resamples.
fn statistics(sums: &[f64], noise: f64) -> [f64; LOGGED + 1] {
    let rounds = sums[WEIGHT];
    let mean = |column: usize| sums[column] / rounds;
    // A slot that not all rankings have is weighted by the share of rankings that have it.
    let normalised = |column: usize| -> f64 {
        let slots = sums[OF_ROUND..].chunks_exact(OF_SLOT).filter(|slot| slot[1] > 0.0);
        slots.map(|slot| slot[0] / rounds * slot[column] / slot[1]).sum()
    };
    let replay = sums[MATCHED_REWARD] / sums[MATCHES];
    let (snips, correction) = (normalised(2), normalised(3));
    let dm = mean(DM) + noise * mean(DM_NOISE);
    let switch_dr = mean(SWITCH_DR) + noise * mean(SWITCH_DR_NOISE);
    [replay, mean(IPS), snips, dm, mean(DR), mean(DM) + correction, switch_dr, mean(REWARD)]
}

/// The effective sample size of the weights that SWITCH-DR keeps, of the slot where it is lowest.
fn effective_kept(rounds: &Rounds, settings: &OpeSettings) -> f64 {
    let mut sums = vec![(0.0, 0.0); rounds.depth()];
    for (round, stands_for) in rounds.weighted() {
        let weights = round.iter().scan(1.0, |above, slot: &LoggedSlot| {
            *above *= slot.ratio();
            Some(*above)
        });
        for (weight, (sum, squares)) in weights.zip(&mut sums) {
            let kept = stands_for * settings.kept(weight);
            *sum += kept;
            *squares += kept * kept;
        }
    }
    let effective = sums.iter().map(|(sum, squares)| if *squares > 0.0 { sum * sum / squares } else { 0.0 });
    effective.fold(f64::INFINITY, f64::min)
}
