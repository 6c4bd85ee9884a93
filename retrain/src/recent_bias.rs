//! Chooses whether users have a recent bias, and its rule, on held-out ratings.
//!
//! A bias that forgets is of use only where the ratings come in the order in which they are predicted. So the ratings of each
//! user are replayed in their order, and each held-out one is predicted before it is learnt. The features were learnt
//! without it.

use celeris_model::{Learning, ModelError, Prior, RecentBias, UserModel};
use rayon::prelude::*;

use crate::error::RetrainError;
use crate::learn::Learnt;
use crate::posterior_evaluation::{Errors, evaluated};
use crate::prior_fit::fit_prior;
use crate::ratings::{Entry, Ratings};

/// Candidate shares of its weight that a label keeps at each later one.
const RETAINED: [f64; 5] = [0.7, 0.8, 0.9, 0.95, 0.98];

/// Candidate precisions, in labels.
const PRECISIONS: [f64; 4] = [2.0, 4.0, 8.0, 16.0];

/// A rule has to lower the error by more than this number of standard errors. By one, the best of all rules often lowers it where the order
/// says nothing.
const STANDARD_ERRORS: f64 = 2.0;

/// Maximum number of replayed ratings of a user: enough to tell rules apart.
const RATINGS_MAX: usize = 1024;

/// The ratings of users in their order, some of them held out.
pub(crate) struct Replay {
    label_range: (f32, f32),
    users: Vec<Vec<(Entry, Use)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Learnt,
    PredictedThenLearnt,
}

/// How users learn under a version: the scale of the prior precision, and the rule of the recent bias if they have one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Served {
    pub(crate) prior_scale: f64,
    pub(crate) recent_bias: Option<RecentBias>,
}

impl Replay {
    /// A replay of `ratings`, of which `held_out` are predicted, by users of whom there is a held-out rating among the first.
    pub(crate) fn new(ratings: &Ratings, held_out: &[bool]) -> Self {
        let mut users: Vec<Vec<(Entry, Use)>> = vec![Vec::new(); ratings.users()];
        for (rating, held_out) in ratings.list().iter().zip(held_out) {
            let rows = &mut users[rating.user as usize];
            if rows.len() < RATINGS_MAX {
                let entry = Entry { other: rating.item, label: rating.label, weight: rating.weight };
                rows.push((entry, if *held_out { Use::PredictedThenLearnt } else { Use::Learnt }));
            }
        }
        users.retain(|rows| rows.iter().any(|(_, used)| *used == Use::PredictedThenLearnt));
        Self { label_range: ratings.label_range(), users: evaluated(users) }
    }

    /// The errors of each user, in the same order for every fit.
    ///
    /// # Errors
    /// [`ModelError`] if a state cannot be computed.
    fn errors(&self, learnt: &Learnt, prior: &Prior) -> Result<Vec<Errors>, ModelError> {
        let learning = Learning::from(prior.clone());
        let pulls = learnt.pulls(prior);
        self.users.par_iter().map(|rows| self.user_errors(rows, (learnt, &pulls), &learning)).collect()
    }

    fn user_errors(
        &self,
        rows: &[(Entry, Use)],
        (learnt, pulls): (&Learnt, &[f32]),
        learning: &Learning,
    ) -> Result<Errors, ModelError> {
        let history: Vec<_> = rows.iter().map(|(entry, _)| learnt.example(entry, pulls)).collect();
        let mut model = UserModel::from_prior(learning)?;
        let mut errors = Errors::default();
        for (example, (entry, used)) in history.iter().zip(rows) {
            if *used == Use::PredictedThenLearnt {
                errors.add(learning, &learnt.estimate(&model, learning, entry), example, self.label_range);
            }
            model.absorb(learning, history.as_slice())?;
        }
        Ok(errors)
    }
}

/// The rule and the prior scale that predict the held-out ratings of these fits best, with their errors; `None` if no rule lowers
/// the error by more than [`STANDARD_ERRORS`].
///
/// The rules are compared under the prior of `scale`, which is the best one without a recent bias; then the scales under the
/// best rule.
///
/// # Errors
/// [`RetrainError::Prior`] if a prior or posterior overflows.
pub(crate) fn choose(
    fits: &[(&Replay, &Learnt)],
    scale: f64,
    scales: &[f64],
) -> Result<Option<(Served, Errors)>, RetrainError> {
    let errors = |served: Served| -> Result<Vec<Errors>, RetrainError> {
        let mut errors = Vec::new();
        for (replay, learnt) in fits {
            let prior = fit_prior(learnt, served.prior_scale, learnt.noise_variance)?;
            errors.extend(replay.errors(learnt, &prior.with_recent_bias(served.recent_bias))?);
        }
        Ok(errors)
    };
    let without = errors(Served { prior_scale: scale, recent_bias: None })?;
    let better = |best: Option<(Served, Vec<Errors>)>, served: Served| -> Result<_, RetrainError> {
        let found = errors(served)?;
        let is_lower = |(_, best): &(Served, Vec<Errors>)| Errors::sum(&found).rmse() < Errors::sum(best).rmse();
        Ok(if best.as_ref().is_none_or(is_lower) { Some((served, found)) } else { best })
    };
    let mut best = None;
    for (retained, precision) in RETAINED.iter().flat_map(|retained| PRECISIONS.map(|precision| (*retained, precision)))
    {
        let recent_bias = Some(RecentBias::new(retained, precision)?);
        best = better(best, Served { prior_scale: scale, recent_bias })?;
    }
    let recent_bias = best.as_ref().and_then(|(served, _)| served.recent_bias);
    for prior_scale in scales.iter().copied().filter(|other| *other != scale) {
        best = better(best, Served { prior_scale, recent_bias })?;
    }
    Ok(best.and_then(|(served, found)| {
        let (excess, deviation) = Errors::excess(&without, &found);
        (excess > STANDARD_ERRORS * deviation).then(|| (served, Errors::sum(&found)))
    }))
}
