//! Which observation has moved a score how far.
//!
//! A user's weights are linear in what the user has said: `w = w0 + A^-1 sum_j pull_j x_j`, where the *pull* of an
//! observation is its weight times what it asked of the prior, `weight_j (y_j - offset_j - x_j·w0)`. The score of an
//! item is therefore a sum with one term for each observation, `offset + w0·f + sum_j f^T A^-1 x_j pull_j`.
//!
//! Under squared and implicit loss that is the posterior itself, and where observations fade their weights are what is
//! left of them. Under logistic loss it is the Gaussian that the state is (Laplace's approximation): a click pulls by
//! `weight (slope + curvature x·(w' - w0))`, its working response at the point `w'` around which it entered the state:
//! the mode of its block, or after a checkpoint the mode that its own step ended at. The sum is then as exact; what is
//! approximate is the state, and that a pull would be the same had other clicks been otherwise.
//!
//! `A` holds every observation, so a term says how much the score owes to one of them beside all others. It is not what
//! the score would lose without it: `A` would change too.

use crate::canonical::{GramSums, last_checkpoint};
use crate::error::ModelError;
use crate::learning::{Learning, Loss};
use crate::linear::dot;
use crate::observation::Timestamp;
use crate::user_model::{History, UserModel};

/// The terms that a score is the sum of.
#[derive(Debug, Clone, PartialEq)]
pub struct Influence {
    /// The score of who has said nothing: `offset + w0·f`.
    pub prior: f64,
    /// By how much each example has moved the score from there, in the order of the history. With `prior` they sum to
    /// the score, but for the rounding of the state.
    pub contributions: Vec<f64>,
}

impl UserModel {
    /// How the examples of `history` make up the score of an item of this `offset` and these `features`.
    ///
    /// The caller guarantees that `history` is what this state has learnt from under `learning`, and that all features
    /// have `dim` entries. It takes `O(n dim)` for `n` examples, and under logistic loss as long as building the state
    /// anew.
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
        let pulls = match learning.loss() {
            Loss::Squared | Loss::Implicit => gaussian_pulls(learning, history, self.observations()),
            Loss::Logistic => logistic_pulls(learning, history, self.observations())?,
        };
        let contribution = |(index, pull): (u64, f64)| {
            if pull == 0.0 { 0.0 } else { pull * dot(&towards, history.example(index).features) }
        };
        Ok(Influence {
            prior: f64::from(offset) + dot(learning.prior().mean(), features),
            contributions: (0..).zip(pulls).map(contribution).collect(),
        })
    }
}

/// Of a likelihood that is Gaussian: the same whenever the example came.
fn gaussian_pulls<H: History + ?Sized>(learning: &Learning, history: &H, observations: u64) -> Vec<f64> {
    let latest = (0..observations).map(|index| history.example(index).timestamp).max().unwrap_or_default();
    let pull = |index| {
        let example = history.example(index);
        let lesson = learning.lesson(&example);
        if lesson.weight <= 0.0 {
            return 0.0;
        }
        let asked = lesson.local(dot(learning.prior().mean(), example.features)).slope;
        lesson.weight * retained(learning, example.timestamp, latest) * asked
    };
    (0..observations).map(pull).collect()
}

/// Of clicks: as each entered the state, which is found by building the state again.
fn logistic_pulls<H: History + ?Sized>(
    learning: &Learning,
    history: &H,
    observations: u64,
) -> Result<Vec<f64>, ModelError> {
    let solved = if learning.half_life().is_some() { observations } else { last_checkpoint(observations) };
    let mut pulls = Vec::with_capacity(usize::try_from(observations).unwrap_or_default());
    let mut sums = GramSums::empty(learning.dim());
    sums.extend_telling(learning, history, solved, |block, point| pulls.extend(block.pulls(point)))?;
    fade(learning, history, &mut pulls);
    let mut state = UserModel::solved(learning, sums)?;
    while state.observations() < observations {
        let example = history.example(state.observations());
        let lesson = learning.lesson(&example);
        let (response, spread) = state.belief(example.features);
        let spread = spread.max(0.0);
        let local = lesson.mode(response, spread);
        let at_mode = response + lesson.weight * spread * local.slope;
        let moved = at_mode - dot(learning.prior().mean(), example.features);
        pulls.push(lesson.weight * (local.slope + local.curvature * moved));
        state.absorb(learning, history)?;
    }
    Ok(pulls)
}

/// Fades pulls, each from the latest time when it entered the sums to the latest of all.
fn fade<H: History + ?Sized>(learning: &Learning, history: &H, pulls: &mut [f64]) {
    let mut latest = None;
    let entered: Vec<Timestamp> = (0..pulls.len() as u64)
        .map(|index| {
            let time = history.example(index).timestamp;
            *latest.insert(latest.map_or(time, |latest: Timestamp| latest.max(time)))
        })
        .collect();
    let Some(latest) = latest else { return };
    for (pull, entered) in pulls.iter_mut().zip(entered) {
        *pull *= retained(learning, entered, latest);
    }
}

/// The share of its weight that an observation has left; all of it where nothing is forgotten.
fn retained(learning: &Learning, earlier: Timestamp, later: Timestamp) -> f64 {
    learning.half_life().map_or(1.0, |half_life| half_life.retained(earlier, later))
}
