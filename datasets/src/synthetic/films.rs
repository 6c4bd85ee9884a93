//! The generated films with their true offsets and features.

use celeris_model::ItemId;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::genres::GENRES;
use super::titles::Titles;
use super::{SyntheticSettings, normal};
use crate::ItemInfo;

/// The mean of the true offsets, in stars.
const MEAN_OFFSET: f64 = 3.4;

/// Standard deviation of the true offsets.
const QUALITY_SPREAD: f64 = 0.35;

/// Correlation of an item's quality with its popularity.
const QUALITY_OF_POPULAR: f64 = 0.3;

/// The share of films with a second genre.
const TWO_GENRES_SHARE: f64 = 0.45;

/// Standard deviation of a film's features on the axes of other genres.
const STRAY_SPREAD: f64 = 0.05;

/// Standard deviation of features on the axes beyond the genres.
const STYLE_SPREAD: f64 = 0.4;

/// Release years of the generated films; no synthetic rating is older.
const YEARS: std::ops::RangeInclusive<u16> = 1931..=2019;

pub(super) struct Films {
    pub(super) items: Vec<ItemInfo>,
    pub(super) offsets: Vec<f32>,
    /// Row-major, `items x true_dim`.
    pub(super) features: Vec<f32>,
    /// Rows in descending order of popularity.
    pub(super) by_rank: Vec<usize>,
}

impl Films {
    /// The caller guarantees settings within their ranges.
    pub(super) fn draw(settings: &SyntheticSettings, rng: &mut ChaCha8Rng) -> Self {
        let mut by_rank: Vec<usize> = (0..settings.items).collect();
        by_rank.shuffle(rng);
        let mut popularity = vec![0.0; settings.items];
        for (rank, row) in by_rank.iter().enumerate() {
            // Uniform over the ranks, with mean 0 and variance 1.
            popularity[*row] = 3_f64.sqrt() * (1.0 - 2.0 * (rank as f64 + 0.5) / settings.items as f64);
        }
        let mut films = Self { items: Vec::new(), offsets: Vec::new(), features: Vec::new(), by_rank };
        let mut titles = Titles::default();
        for popularity in popularity {
            films.draw_one(settings, popularity, &mut titles, rng);
        }
        films
    }

    fn draw_one(&mut self, settings: &SyntheticSettings, popularity: f64, titles: &mut Titles, rng: &mut ChaCha8Rng) {
        let genres = settings.genres();
        let main = rng.random_range(0..genres);
        let second = (genres > 1 && rng.random::<f64>() < TWO_GENRES_SHARE)
            .then(|| (main + rng.random_range(1..genres)) % genres);
        for axis in 0..settings.true_dim - 1 {
            let feature = if axis == main {
                rng.random_range(0.8..1.2)
            } else if Some(axis) == second {
                rng.random_range(0.4..0.7)
            } else {
                normal(rng) * if axis < genres { STRAY_SPREAD } else { STYLE_SPREAD }
            };
            self.features.push(feature as f32);
        }
        self.features.push(1.0);
        let chance = (1.0 - QUALITY_OF_POPULAR * QUALITY_OF_POPULAR).sqrt() * normal(rng);
        let quality = QUALITY_SPREAD * (QUALITY_OF_POPULAR * popularity + chance);
        self.offsets.push((MEAN_OFFSET + quality) as f32);
        // The later of two years, so that most films are recent.
        let year = rng.random_range(YEARS).max(rng.random_range(YEARS));
        let title = format!("{} ({year})", titles.draw(main, second, rng));
        let id = ItemId::new((self.items.len() + 1).to_string()).expect("a number is a valid id");
        let genres = std::iter::once(main).chain(second).map(|genre| GENRES[genre].name.to_owned()).collect();
        self.items.push(ItemInfo { id, title, genres });
    }
}
