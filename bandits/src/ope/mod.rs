//! Off-policy evaluation: estimates the value of a policy from the log of another policy.
//!
//! A log holds rounds: rankings that a *logging* policy showed, the reward of every slot, and the
//! propensity of every slot. The estimators weight them by how likely a *target* policy would have
//! shown the same. [`LoggedSlot`] contains everything that the estimators need, so that they are
//! independent of policies and candidates; [`target`] computes the target policy's probabilities,
//! and [`reward_model`] fits the model for the direct method and the doubly robust estimators.
//!
//! | estimator | value | source |
//! |---|---|---|
//! | [`Estimator::Replay`] | mean reward of the rounds in which both agree | Li et al. 2011 |
//! | [`Estimator::Ips`] | `E[w r]` | Horvitz and Thompson 1952; Dudík et al. 2014 |
//! | [`Estimator::Snips`] | `E[w r] / E[w]` | Swaminathan and Joachims 2015 |
//! | [`Estimator::Dm`] | `E[q(x, target)]` | Dudík et al. 2011 |
//! | [`Estimator::Dr`] | `E[q(x, target) + w (r - q(x, a))]` | Dudík et al. 2011, 2014 |
//! | [`Estimator::Sndr`] | the same with `w / E[w]` | Kallus and Uehara 2019 |
//! | [`Estimator::SwitchDr`] | the same with `w` where it is at most a threshold, else 0 | Wang et al. 2017 |
//!
//! Rankings are evaluated slot by slot under the cascade assumption: a slot's reward may depend on
//! the slots above it, not on those below. The weight of slot `k` is then the product of the ratios
//! of slots `1..=k` (RIPS: McInerney et al. 2020), and the model's term is weighted by the slots
//! above (cascade doubly robust: Kiyohara et al. 2022). A ranking's value is the sum over its
//! slots; decisions of one slot are the special case.
//!
//! If the overlap does not support an estimate, it is refused with a [`Refusal`] instead of
//! returned with a wide interval: percentile intervals do not cover what the log never showed.

mod bootstrap;
mod estimators;
mod overlap;
pub mod reward_model;
mod rounds;
pub mod target;

pub use estimators::{Estimate, Estimator, Evaluation, Interval, OpeSettings, evaluate, values};
pub use overlap::{EFFECTIVE_MIN, ROUNDS_MIN, Refusal};
pub use reward_model::{Expectation, RewardFeatures, RewardModel};
pub use rounds::{LoggedSlot, Rounds};
