//! Generates the number, choice and times of each user's ratings.

use std::collections::HashSet;

use celeris_model::Timestamp;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Exp1, StandardNormal, Zipf};

use super::SyntheticSettings;

/// The first day of 2005, in seconds. Independent of the release years.
const FIRST_SECOND: i64 = 1_104_537_600;

/// The first day of 2025, in seconds: the latest rating, since a node rejects timestamps in the
/// future.
const LAST_SECOND: i64 = 1_735_689_600;

/// Users join over five years.
const JOINING_SECONDS: i64 = 5 * 365 * 86_400;

/// Mean number of ratings in one session.
const SESSION_RATINGS: f64 = 15.0;

/// Mean time between two ratings of one session, in seconds.
const RATING_GAP_SECONDS: f64 = 40.0;

/// Mean time between two sessions of one user, in seconds: 20 days.
const SESSION_GAP_SECONDS: f64 = 20.0 * 86_400.0;

/// Divisor of the catalog size: users who rate fewer items draw them one by one; others rank the
/// whole catalog.
const SPARSE_SHARE: usize = 64;

/// The number of ratings of each user: heavy-tailed (log-normal), with the sum `ratings`, each at
/// most the number of items.
///
/// The caller guarantees that `ratings <= users * items`.
pub(super) fn ratings_per_user(settings: &SyntheticSettings, rng: &mut impl Rng) -> Vec<usize> {
    let mut activity = Vec::with_capacity(settings.users);
    for _ in 0..settings.users {
        let z: f64 = StandardNormal.sample(rng);
        activity.push((settings.activity_spread * z).exp());
    }
    let total: f64 = activity.iter().sum();
    let share = |activity: &f64| (settings.ratings as f64 * activity / total) as usize;
    let mut counts: Vec<usize> = activity.iter().map(|user| share(user).min(settings.items)).collect();
    // Assign the rest, due to rounding and the cap, to the users in turn, starting with the most
    // active.
    let mut left = settings.ratings.saturating_sub(counts.iter().sum());
    let mut order: Vec<usize> = (0..settings.users).collect();
    order.sort_by(|a, b| activity[*b].total_cmp(&activity[*a]));
    while left > 0 {
        for user in &order {
            if left > 0 && counts[*user] < settings.items {
                counts[*user] += 1;
                left -= 1;
            }
        }
    }
    counts
}

/// Draws distinct popularity ranks, each with probability proportional to `rank^-exponent` among
/// those not yet drawn.
pub(super) struct Popularity {
    weights: Vec<f64>,
    zipf: Zipf<f64>,
}

impl Popularity {
    /// The caller guarantees at least one item and an exponent that is finite and not negative.
    pub(super) fn new(items: usize, exponent: f64) -> Self {
        let weights = (1..=items).map(|rank| (rank as f64).powf(-exponent)).collect();
        let zipf = Zipf::new(items as f64, exponent).expect("the settings have been checked");
        Self { weights, zipf }
    }

    /// `count` ranks, counted from 0, in the order drawn.
    ///
    /// The caller guarantees that `count` is at most the number of items.
    pub(super) fn draw_distinct(&self, count: usize, rng: &mut impl Rng) -> Vec<usize> {
        if count * SPARSE_SHARE <= self.weights.len() {
            let mut seen = HashSet::with_capacity(count);
            let mut drawn = Vec::with_capacity(count);
            while drawn.len() < count {
                let rank = self.zipf.sample(rng) as usize - 1;
                if seen.insert(rank) {
                    drawn.push(rank);
                }
            }
            return drawn;
        }
        // The smallest of independent exponential variables with these rates are a weighted draw
        // without replacement (Efraimidis and Spirakis, 2006).
        let ring = |weight: &f64, rng: &mut _| -> f64 { <Exp1 as Distribution<f64>>::sample(&Exp1, rng) / weight };
        let mut clocks: Vec<(f64, usize)> =
            self.weights.iter().enumerate().map(|(rank, weight)| (ring(weight, rng), rank)).collect();
        let earlier = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0);
        if count < clocks.len() {
            clocks.select_nth_unstable_by(count, earlier);
            clocks.truncate(count);
        }
        clocks.sort_unstable_by(earlier);
        clocks.into_iter().map(|(_, rank)| rank).collect()
    }
}

/// The times of one user's ratings, in order: sessions of a few films, weeks apart.
pub(super) fn rating_times(count: usize, rng: &mut impl Rng) -> Vec<Timestamp> {
    let mut seconds = FIRST_SECOND + rng.random_range(0..JOINING_SECONDS);
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        times.push(Timestamp(seconds.min(LAST_SECOND) * 1000));
        let same_sitting = rng.random::<f64>() > 1.0 / SESSION_RATINGS;
        let mean = if same_sitting { RATING_GAP_SECONDS } else { SESSION_GAP_SECONDS };
        let gap: f64 = Exp1.sample(rng);
        seconds += 1 + (gap * mean) as i64;
    }
    times
}
