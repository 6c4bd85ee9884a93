//! The contribution of each observation to a score.
//!
//! A user's weights are linear in the labels: `w = w0 + A^-1 sum_j residual_j x_j`, where the
//! *residual* of an observation is its weight times the difference between its label and the
//! prediction of the prior, `weight_j (y_j - offset_j - x_j·w0)`. The score of an item is therefore
//! a sum with one term for each observation, `offset + w0·f + sum_j f^T A^-1 x_j residual_j`.
//!
//! Under squared and implicit loss that is the posterior itself; with a half-life, the weights are
//! the decayed ones. Under logistic loss it is the Gaussian approximation that the state holds
//! (Laplace's): the residual of a click is `weight (slope + curvature x·(w' - w0))`, its working
//! response at the point `w'` around which it was added to the state: the mode of its block, or
//! after a checkpoint the mode at which its own step ended. The sum is then exact too; the
//! approximations are the state itself, and that the residual does not depend on the other clicks.
//!
//! `A` holds every observation, so a term is an observation's share of the score given all others.
//! It is not the change of the score without that observation: `A` would change too.

use crate::error::ModelError;
use crate::linear::dot;
use crate::posterior::canonical::{GramSums, last_checkpoint};
use crate::posterior::learning::{Learning, Loss};
use crate::posterior::user_model::{History, UserModel};
use crate::time::Timestamp;

/// The terms that sum to a score.
#[derive(Debug, Clone, PartialEq)]
pub struct Influence {
    /// The score of a user without observations: `offset + w0·f`.
    pub prior: f64,
    /// The contribution of each example by its label, in the order of the history. Together with
    /// `prior`, `choices`, `profile` and `recent_bias` they sum to the score, up to the rounding of the state.
    pub contributions: Vec<f64>,
    /// The contribution of each example by having been made, whatever its label: `n^-1/2 f^T A^-1 Lambda y_j`.
    /// Empty if no example has a choice vector.
    pub choices: Vec<f64>,
    /// The contribution of the user's profile, `f^T A^-1 Lambda q`; `None` without one.
    pub profile: Option<f64>,
    /// The contribution of each example to the recent bias ([`crate::recent_bias`]); empty under a version without.
    pub recent_bias: Vec<f64>,
}

impl UserModel {
    /// Decomposes the score of an item with this `offset` and these `features` into contributions
    /// of the examples of `history`.
    ///
    /// The caller guarantees that `history` holds the examples that this state has absorbed under
    /// `learning`, and that all features have `dim` entries. Takes `O(n dim)` for `n` examples, and
    /// under logistic loss as long as rebuilding the state.
    ///
    /// # Errors
    /// As [`UserModel::absorb`].
    pub fn influence<H: History + ?Sized>(
        &self,
        learning: &Learning,
        history: &H,
        offset: f32,
        features: &[f32],
    ) -> Result<Influence, ModelError> {
        let gram_inverse = self.gram_inverse();
        // A^-1 is symmetric, so its rows are its columns.
        let towards: Vec<f64> = gram_inverse.chunks_exact(self.dim()).map(|row| dot(row, features)).collect();
        let residuals = match learning.loss() {
            Loss::Squared | Loss::Implicit => gaussian_residuals(learning, history, self.observations()),
            Loss::Logistic => logistic_residuals(learning, history, self.observations())?,
        };
        let constant = features.last().copied().map_or(0.0, f64::from);
        let contribution = |(index, residual): (u64, f64)| {
            if residual == 0.0 { 0.0 } else { residual * dot(&towards, history.example(index).features) }
        };
        Ok(Influence {
            prior: f64::from(offset) + dot(learning.prior().mean(), features),
            contributions: (0..).zip(residuals).map(contribution).collect(),
            choices: self.choice_shares(learning, history, &towards),
            profile: self.profile().map(|pull| dot(&towards, pull)),
            recent_bias: self.bias_shares(learning, history).into_iter().map(|share| share * constant).collect(),
        })
    }

    /// The contribution of each example's choice vector to the score of an item with `A^-1 f = towards`.
    fn choice_shares<H: History + ?Sized>(&self, learning: &Learning, history: &H, towards: &[f64]) -> Vec<f64> {
        let Some(scale) = self.choice_scale() else { return Vec::new() };
        let latest = latest(history, self.observations());
        let share = |index| {
            let example = history.example(index);
            match learning.choice(&example) {
                [] => 0.0,
                choice => scale * retained(learning, example.timestamp, latest) * dot(towards, choice),
            }
        };
        (0..self.observations()).map(share).collect()
    }
}

/// Residuals under a Gaussian likelihood; they do not depend on the order of the examples.
fn gaussian_residuals<H: History + ?Sized>(learning: &Learning, history: &H, observations: u64) -> Vec<f64> {
    let latest = latest(history, observations);
    let residual = |index| {
        let example = history.example(index);
        let target = learning.weighted_target(&example);
        if target.weight <= 0.0 {
            return 0.0;
        }
        let difference = target.local(dot(learning.prior().mean(), example.features)).slope;
        target.weight * retained(learning, example.timestamp, latest) * difference
    };
    (0..observations).map(residual).collect()
}

/// The time of the latest example.
fn latest<H: History + ?Sized>(history: &H, observations: u64) -> Timestamp {
    (0..observations).map(|index| history.example(index).timestamp).max().unwrap_or_default()
}

/// Residuals under logistic loss, found by rebuilding the state and taking each example's residual
/// when it is added.
fn logistic_residuals<H: History + ?Sized>(
    learning: &Learning,
    history: &H,
    observations: u64,
) -> Result<Vec<f64>, ModelError> {
    let solved = if learning.half_life().is_some() { observations } else { last_checkpoint(observations) };
    let mut residuals = Vec::with_capacity(usize::try_from(observations).unwrap_or_default());
    let mut sums = GramSums::empty(learning.dim());
    sums.extend_with(learning, history, solved, |block, point| residuals.extend(block.residuals(point)))?;
    fade(learning, history, &mut residuals);
    let mut state = UserModel::solved(learning, sums)?;
    while state.observations() < observations {
        let example = history.example(state.observations());
        let target = learning.weighted_target(&example);
        let (response, spread) = state.response_and_variance(example.features);
        let spread = spread.max(0.0);
        let local = target.mode(response, spread);
        let at_mode = response + target.weight * spread * local.slope;
        let moved = at_mode - dot(learning.prior().mean(), example.features);
        residuals.push(target.weight * (local.slope + local.curvature * moved));
        state.absorb(learning, history)?;
    }
    Ok(residuals)
}

/// Decays residuals, each from the latest time when it was added to the sums to the latest time of
/// all.
fn fade<H: History + ?Sized>(learning: &Learning, history: &H, residuals: &mut [f64]) {
    let mut latest = None;
    let entered: Vec<Timestamp> = (0..residuals.len() as u64)
        .map(|index| {
            let time = history.example(index).timestamp;
            *latest.insert(latest.map_or(time, |latest: Timestamp| latest.max(time)))
        })
        .collect();
    let Some(latest) = latest else { return };
    for (residual, entered) in residuals.iter_mut().zip(entered) {
        *residual *= retained(learning, entered, latest);
    }
}

/// The remaining share of an observation's weight; 1 without a half-life.
fn retained(learning: &Learning, earlier: Timestamp, later: Timestamp) -> f64 {
    learning.half_life().map_or(1.0, |half_life| half_life.retained(earlier, later))
}
