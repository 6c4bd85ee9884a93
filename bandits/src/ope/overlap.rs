//! Checks whether a log supports an estimate for a policy.

use thiserror::Error;

use super::rounds::Rounds;

/// Minimum number of rounds: resampling fewer gives no useful interval.
pub const ROUNDS_MIN: usize = 30;

/// Minimum effective sample size of estimates by weights, and minimum number of matches for replay.
pub const EFFECTIVE_MIN: f64 = 30.0;

/// Standard errors by which the mean weight must differ from 1 to be called wrong; correct logs are
/// refused once in 16,000.
const DEVIATIONS: f64 = 4.0;

/// Absolute tolerance of the mean weight: propensities are logged as `f32`, and policies round too.
const MEAN_WEIGHT_TOLERANCE: f64 = 0.01;

/// Why an estimate is refused.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Refusal {
    #[error("{rounds} rounds are too few; at least {ROUNDS_MIN} are needed")]
    FewRounds { rounds: usize },
    #[error("the policy would have shown nothing of what was logged; log with a policy that explores")]
    NoOverlap,
    /// The mean weight is below 1: some of the target policy's choices are hardly ever or never in
    /// the log.
    #[error(
        "at slot {slot} the mean weight is {mean_weight:.3} where 1 is expected: about {missing:.0} % of what the \
         policy would show never or hardly ever came up in the log; log with a policy that explores",
        missing = 100.0 * (1.0 - mean_weight)
    )]
    Unsupported {
        mean_weight: f64,
        /// The slot, from 1.
        slot: usize,
    },
    /// The mean weight is above 1, which correct propensities cannot cause.
    #[error(
        "at slot {slot} the mean weight is {mean_weight:.3} where 1 is expected: the logged propensities are not those \
         that the log was drawn with"
    )]
    WrongPropensities {
        mean_weight: f64,
        /// The slot, from 1.
        slot: usize,
    },
    /// A few rounds carry all the weight.
    #[error(
        "the effective sample size is {effective:.1} of {rounds} rounds, below {EFFECTIVE_MIN}: a few rounds carry all \
         the weight; gather more of the log, or judge a policy nearer to the one that logged"
    )]
    FewEffective { effective: f64, rounds: usize },
    /// All resamples would be equal.
    #[error(
        "all rounds that count brought the same reward, so that nothing can be said of how far {value} is from the \
         truth; gather more of the log"
    )]
    NoVariation { value: f64 },
    /// Replay needs a deterministic policy, and this one draws.
    #[error("the policy draws, and replay compares the choices of deterministic policies; read `snips` or `dr`")]
    NotDeterministic,
    /// Too few rounds in which both policies agree.
    #[error("the policy agrees with {matches} of {rounds} rounds, below {EFFECTIVE_MIN}; gather more of the log")]
    FewMatches {
        /// Rounds in which both agree.
        matches: usize,
        rounds: usize,
    },
    /// The rounds in which both agree are a biased sample.
    #[error(
        "the log showed what the policy would have with probabilities from {lowest:.3} to {highest:.3}; rounds that \
         agree are a fair sample only of a uniform log; read `snips`, which weighs them"
    )]
    UnevenMatches {
        /// The lowest probability of a round that agrees.
        lowest: f64,
        /// The highest.
        highest: f64,
    },
}

/// The sums of one slot, of the rounds that have it.
#[derive(Debug, Clone, Copy, Default)]
struct OfSlot {
    /// Number of rounds, as many as they stand for.
    count: f64,
    /// Importance weights, and their squares.
    sum: f64,
    squares: f64,
    /// Squares of what the rounds stand for, and of its product with the importance weight.
    count_squares: f64,
    product_squares: f64,
}

impl OfSlot {
    fn add(&mut self, weight: f64, stands_for: f64) {
        self.count += stands_for;
        self.sum += stands_for * weight;
        self.squares += stands_for * weight * weight;
        self.count_squares += stands_for * stands_for;
        let product = stands_for * weight;
        self.product_squares += product * product;
    }

    fn effective(&self) -> f64 {
        effective(self.sum, self.product_squares)
    }

    /// The number of independent rounds.
    fn rounds(&self) -> f64 {
        effective(self.count, self.count_squares)
    }
}

pub(super) struct Overlap {
    rounds: usize,
    slots: Vec<OfSlot>,
    pub(super) largest_weight: f64,
    deterministic: bool,
    matches: usize,
    /// The lowest and highest probability of the rounds in which both agree.
    matched: (f64, f64),
}

impl Overlap {
    pub(super) fn of(rounds: &Rounds) -> Self {
        let mut overlap = Self {
            rounds: rounds.len(),
            slots: vec![OfSlot::default(); rounds.depth()],
            largest_weight: 0.0,
            deterministic: true,
            matches: 0,
            matched: (f64::INFINITY, 0.0),
        };
        for (round, stands_for) in rounds.weighted() {
            let (mut weight, mut propensity, mut agrees) = (1.0, 1.0, true);
            for (slot, sums) in round.iter().zip(&mut overlap.slots) {
                weight *= slot.ratio();
                propensity *= slot.propensity;
                agrees &= slot.target == 1.0;
                overlap.deterministic &= slot.target == 0.0 || slot.target == 1.0;
                overlap.largest_weight = overlap.largest_weight.max(weight);
                sums.add(weight, stands_for);
            }
            if agrees {
                overlap.matches += 1;
                overlap.matched.0 = overlap.matched.0.min(propensity);
                overlap.matched.1 = overlap.matched.1.max(propensity);
            }
        }
        overlap
    }

    /// Kish's effective sample size `(sum w)^2 / sum w^2` (Kish 1965), of the slot where it is
    /// lowest.
    pub(super) fn effective(&self) -> f64 {
        self.slots.iter().map(OfSlot::effective).fold(f64::INFINITY, f64::min)
    }

    /// The effective sample size of the weights of the slots above, by which the model's term is
    /// weighted.
    pub(super) fn effective_above(&self) -> f64 {
        let above = self.slots.split_last().map_or(&[][..], |(_, above)| above);
        above.iter().map(OfSlot::effective).fold(self.rounds as f64, f64::min)
    }

    pub(super) fn matches(&self) -> usize {
        self.matches
    }

    /// The mean weight of the slot where it is farthest from 1.
    pub(super) fn mean_weight(&self) -> f64 {
        let means = self.slots.iter().map(|slot| slot.sum / slot.count);
        means.max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs())).unwrap_or(1.0)
    }

    /// A reason to refuse every estimate.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        if self.rounds < ROUNDS_MIN {
            return Some(Refusal::FewRounds { rounds: self.rounds });
        }
        if self.largest_weight == 0.0 {
            return Some(Refusal::NoOverlap);
        }
        self.slots.iter().enumerate().find_map(|(index, of_slot)| {
            let mean_weight = of_slot.sum / of_slot.count;
            let variance = (of_slot.squares / of_slot.count - mean_weight * mean_weight).max(0.0);
            let allowed = MEAN_WEIGHT_TOLERANCE + DEVIATIONS * (variance / of_slot.rounds()).sqrt();
            let slot = index + 1;
            if mean_weight < 1.0 - allowed {
                Some(Refusal::Unsupported { mean_weight, slot })
            } else if mean_weight > 1.0 + allowed {
                Some(Refusal::WrongPropensities { mean_weight, slot })
            } else {
                None
            }
        })
    }

    /// A reason to refuse estimates whose weights are unbounded.
    pub(super) fn few_effective(&self, effective: f64) -> Option<Refusal> {
        (effective < EFFECTIVE_MIN).then_some(Refusal::FewEffective { effective, rounds: self.rounds })
    }

    /// A reason to refuse replay.
    pub(super) fn no_replay(&self) -> Option<Refusal> {
        let (lowest, highest) = self.matched;
        if !self.deterministic {
            Some(Refusal::NotDeterministic)
        } else if (self.matches as f64) < EFFECTIVE_MIN {
            Some(Refusal::FewMatches { matches: self.matches, rounds: self.rounds })
        } else if highest - lowest > MEAN_WEIGHT_TOLERANCE * highest {
            Some(Refusal::UnevenMatches { lowest, highest })
        } else {
            None
        }
    }
}

fn effective(sum: f64, squares: f64) -> f64 {
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}
