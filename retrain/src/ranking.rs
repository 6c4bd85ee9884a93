//! Ranking metrics of an implicit fit on held-out pairs.

use rayon::prelude::*;

use crate::implicit::ImplicitFit;
use crate::ratings::{Rating, Rows};

/// Maximum number of evaluated users: each is scored on the whole catalog.
const USERS_MAX: usize = 1000;

/// Length of the list for recall.
const LIST_LENGTH: usize = 10;

/// Sums over held-out pairs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Ranks {
    confidence: f64,
    /// Percentile ranks, weighted by the excess confidence.
    percentiles: f64,
    users: f64,
    recall: f64,
    /// Squares of users' recalls.
    recall_squares: f64,
    pairs: f64,
    /// Squared errors of all pairs that are not known, weighted by their confidence.
    squares: f64,
}

impl Ranks {
    /// The expected percentile rank (Hu et al. 2008, eq. 8): 0 if the taken items lead every list,
    /// 0.5 for random lists.
    pub(crate) fn percentile(&self) -> f64 {
        self.percentiles / self.confidence
    }

    /// Recall at 10: the share of a user's held-out items among the first ten, relative to at most
    /// ten.
    pub(crate) fn recall(&self) -> f64 {
        self.recall / self.users
    }

    /// Standard error of [`Ranks::recall`], over users.
    pub(crate) fn recall_std_error(&self) -> f64 {
        let variance = self.recall_squares / self.users - self.recall().powi(2);
        (variance.max(0.0) / self.users).sqrt()
    }

    /// Variance of a preference around its score, in the units of `Lambda`.
    pub(crate) fn noise_variance(&self) -> f64 {
        self.squares / self.pairs
    }

    /// Whether any user was evaluated.
    pub(crate) fn any(&self) -> bool {
        self.users > 0.0
    }

    fn plus(self, other: Self) -> Self {
        Self {
            confidence: self.confidence + other.confidence,
            percentiles: self.percentiles + other.percentiles,
            users: self.users + other.users,
            recall: self.recall + other.recall,
            recall_squares: self.recall_squares + other.recall_squares,
            pairs: self.pairs + other.pairs,
            squares: self.squares + other.squares,
        }
    }
}

/// Evaluates a fit to `known` on `asked`, over the active items that the user has not taken in
/// `known`. Users without known pairs are skipped.
pub(crate) fn evaluate(
    fit: &ImplicitFit,
    (users, dim): (usize, usize),
    active: &[bool],
    known: &[Rating],
    asked: &[Rating],
) -> Ranks {
    let known = Rows::grouped(users, known, |pair| (pair.user, pair.item));
    let asked = Rows::grouped(users, asked, |pair| (pair.user, pair.item));
    let evaluated: Vec<usize> =
        (0..users).filter(|user| !known.row(*user).is_empty() && !asked.row(*user).is_empty()).collect();
    let stride = evaluated.len().div_ceil(USERS_MAX).max(1);
    let evaluated: Vec<usize> = evaluated.into_iter().step_by(stride).collect();
    let ranks: Vec<Ranks> = evaluated
        .par_iter()
        .map(|user| {
            let weights = &fit.weights[user * dim..][..dim];
            let mut scores: Vec<f32> =
                fit.features.chunks_exact(dim).map(|row| celeris_model::linear::dot(weights, row)).collect();
            // Excluded items rank below all others.
            let out = known.row(*user).iter().map(|entry| entry.other as usize);
            let inactive = active.iter().enumerate().filter(|(_, active)| !**active).map(|(item, _)| item);
            for item in out.chain(inactive) {
                scores[item] = f32::NEG_INFINITY;
            }
            user_ranks(&scores, asked.row(*user))
        })
        .collect();
    ranks.into_iter().fold(Ranks::default(), Ranks::plus)
}

fn user_ranks(scores: &[f32], asked: &[crate::ratings::Entry]) -> Ranks {
    let ranked: Vec<f32> = scores.iter().copied().filter(|score| *score > f32::NEG_INFINITY).collect();
    let others = (ranked.len() - 1).max(1) as f64;
    let mut ranks = Ranks { users: 1.0, pairs: ranked.len() as f64, ..Ranks::default() };
    ranks.squares = ranked.iter().map(|score| f64::from(*score).powi(2)).sum();
    let mut hits: f64 = 0.0;
    for entry in asked {
        let (score, beyond) = (scores[entry.other as usize], f64::from(entry.label));
        let above = ranked.iter().filter(|other| **other > score).count() as f64;
        // Ties count as the middle of their ranks.
        let equal = ranked.iter().filter(|other| **other == score).count() as f64;
        ranks.confidence += beyond;
        ranks.percentiles += beyond * (above + (equal - 1.0) / 2.0) / others;
        hits += f64::from(above + (equal - 1.0) / 2.0 < LIST_LENGTH as f64);
        // The sum above counted the pair as not taken; replace its term.
        ranks.squares += (1.0 + beyond) * (1.0 - f64::from(score)).powi(2) - f64::from(score).powi(2);
    }
    ranks.recall = hits / (asked.len().min(LIST_LENGTH) as f64);
    ranks.recall_squares = ranks.recall.powi(2);
    ranks
}
