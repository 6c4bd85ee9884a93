//! Generated films, users and ratings with known true tastes.
//!
//! Every axis of true taste but the constant is a genre that titles and genre lists show, so that
//! results on this data are easy to interpret: a user who rates three horror films highly likes
//! horror.
//!
//! Ratings may be put into contexts ([`Synthetic::put_into_contexts`]). [`clicks`] generates something else: clicks on items
//! in contexts, with a known effect of item and context.

mod activity;
mod circumstances;
pub mod clicks;
mod films;
mod genres;
mod in_contexts;
mod titles;
mod truth;

use celeris_model::{Timestamp, UserId};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use self::activity::{Popularity, rating_times, ratings_per_user};
pub use self::circumstances::{Circumstances, DEVICES, HOUR_EDGES};
use self::films::Films;
use self::genres::GENRES;
pub use self::truth::Truth;
use crate::{Dataset, DatasetError, Rating};

/// The lowest and highest label, in stars; labels are multiples of half a star.
pub const LABEL_RANGE: (f32, f32) = (0.5, 5.0);

/// Standard deviation of the users' generosity, the weight of the constant.
const GENEROSITY_SPREAD: f64 = 0.35;

/// The share of a taste's variance due to temperament, which correlates the tastes for neighbouring
/// genres.
const TEMPERAMENT_SHARE: f64 = 0.4;

/// Settings of the generator. The default is that of the demo.
#[derive(Debug, Clone, PartialEq)]
pub struct SyntheticSettings {
    /// Users, 1 to 10 million; their ids are `1`, `2`, ….
    pub users: usize,
    /// Items, 1 to 5 million; their ids are `1`, `2`, ….
    pub items: usize,
    /// Ratings in all, at most 100 million and half of all pairs.
    pub ratings: usize,
    /// Length of the true weights and features, 2 to 256: the genres and the constant 1. Beyond the
    /// 12 genres, axes are style that no title shows.
    pub true_dim: usize,
    /// The probability that a user's next item is the `r`-th most popular is proportional to
    /// `r^-zipf_exponent`; the exponent is 0 to 2.
    pub zipf_exponent: f64,
    /// Standard deviation of the logarithm of a user's number of ratings, 0 to 3.
    pub activity_spread: f64,
    /// Standard deviation of a user's weight on a genre, in stars, 0 to 5.
    pub taste_spread: f64,
    /// Standard deviation of a label around its expectation before rounding, in stars, 0 to 5.
    pub noise: f64,
    /// Equal settings with equal seeds give equal data.
    pub seed: u64,
}

impl Default for SyntheticSettings {
    fn default() -> Self {
        Self {
            users: 600,
            items: 1_200,
            ratings: 60_000,
            true_dim: GENRES.len() + 1,
            zipf_exponent: 0.7,
            activity_spread: 0.9,
            taste_spread: 0.7,
            noise: 0.5,
            seed: 20_150_104,
        }
    }
}

/// Generated data with its true parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Synthetic {
    /// Ratings in ascending time, at most one for each pair; all items, with titles and genres.
    pub dataset: Dataset,
    pub truth: Truth,
}

/// Independent random streams, so that the number of ratings changes neither films nor tastes.
#[derive(Clone, Copy)]
enum Chance {
    Films,
    Tastes,
    Ratings,
}

impl Chance {
    fn generator(self, seed: u64) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(self as u64);
        rng
    }
}

impl SyntheticSettings {
    /// Generates the data.
    ///
    /// # Errors
    /// [`DatasetError::Setting`] for a setting out of its range.
    pub fn generate(&self) -> Result<Synthetic, DatasetError> {
        self.check()?;
        let films = Films::draw(self, &mut Chance::Films.generator(self.seed));
        let user = |number: usize| UserId::new(number.to_string()).expect("a number is a valid id");
        let users: Vec<UserId> = (1..=self.users).map(user).collect();
        let truth = Truth {
            dim: self.true_dim,
            users: users.iter().cloned().zip(0..).collect(),
            items: films.items.iter().map(|item| item.id.clone()).zip(0..).collect(),
            weights: self.draw_weights(&mut Chance::Tastes.generator(self.seed)),
            offsets: films.offsets,
            features: films.features,
        };
        let mut ratings = Vec::with_capacity(self.ratings);
        self.rate(
            &truth,
            &films.by_rank,
            &mut Chance::Ratings.generator(self.seed),
            |(user, item), label, timestamp| {
                ratings.push(Rating {
                    user: users[user].clone(),
                    item: films.items[item].id.clone(),
                    label,
                    weight: 1.0,
                    timestamp,
                });
            },
        );
        // A stable sort, so that ties keep the order of the users.
        ratings.sort_by_key(|rating| rating.timestamp);
        Ok(Synthetic { dataset: Dataset { name: "synthetic".into(), ratings, items: films.items }, truth })
    }

    fn check(&self) -> Result<(), DatasetError> {
        let checks = [
            ("users", self.users as f64, 1.0, 1e7, "1 to 10 million"),
            ("items", self.items as f64, 1.0, 5e6, "1 to 5 million"),
            ("ratings", self.ratings as f64, 0.0, 1e8, "at most 100 million"),
            ("true_dim", self.true_dim as f64, 2.0, 256.0, "2 to 256"),
            ("zipf_exponent", self.zipf_exponent, 0.0, 2.0, "0 to 2"),
            ("activity_spread", self.activity_spread, 0.0, 3.0, "0 to 3"),
            ("taste_spread", self.taste_spread, 0.0, 5.0, "0 to 5"),
            ("noise", self.noise, 0.0, 5.0, "0 to 5"),
        ];
        for (setting, value, low, high, range) in checks {
            // NaN is in no range.
            if !(low..=high).contains(&value) {
                return Err(DatasetError::Setting { setting, range, value });
            }
        }
        if self.ratings > self.users * self.items / 2 {
            let range = "at most half of all pairs of a user and an item";
            return Err(DatasetError::Setting { setting: "ratings", range, value: self.ratings as f64 });
        }
        Ok(())
    }

    fn genres(&self) -> usize {
        GENRES.len().min(self.true_dim - 1)
    }

    /// Weights of all users, row-major.
    fn draw_weights(&self, rng: &mut ChaCha8Rng) -> Vec<f32> {
        let (shared, own) = (TEMPERAMENT_SHARE.sqrt(), (1.0 - TEMPERAMENT_SHARE).sqrt());
        let mut weights = Vec::with_capacity(self.users * self.true_dim);
        for _ in 0..self.users {
            let temperament: [f64; 3] = std::array::from_fn(|_| normal(rng));
            for genre in &GENRES[..self.genres()] {
                let length = dot(&genre.temperament, &genre.temperament).sqrt();
                let liking = dot(&genre.temperament, &temperament) / length;
                weights.push((self.taste_spread * (shared * liking + own * normal(rng))) as f32);
            }
            for _ in self.genres()..self.true_dim - 1 {
                weights.push((self.taste_spread * normal(rng)) as f32);
            }
            weights.push((GENEROSITY_SPREAD * normal(rng)) as f32);
        }
        weights
    }

    /// Passes every rating to `keep`, user by user, as rows of user and item; `by_rank` has the
    /// items' rows in descending order of popularity.
    fn rate(
        &self,
        truth: &Truth,
        by_rank: &[usize],
        rng: &mut ChaCha8Rng,
        mut keep: impl FnMut((usize, usize), f32, Timestamp),
    ) {
        let popularity = Popularity::new(self.items, self.zipf_exponent);
        for (user, count) in ratings_per_user(self, rng).into_iter().enumerate() {
            let ranks = popularity.draw_distinct(count, rng);
            for (rank, timestamp) in ranks.into_iter().zip(rating_times(count, rng)) {
                let item = by_rank[rank];
                let label = half_stars(truth.expected_at(user, item) + self.noise * normal(rng));
                keep((user, item), label, timestamp);
            }
        }
    }
}

/// The nearest label of the scale.
fn half_stars(stars: f64) -> f32 {
    let (lowest, highest) = LABEL_RANGE;
    ((stars * 2.0).round() as f32 / 2.0).clamp(lowest, highest)
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
