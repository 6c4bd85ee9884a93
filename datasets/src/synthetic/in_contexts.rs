//! Ratings in contexts, whose labels depend on genres and context together.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::circumstances::{Circumstances, Effects};
use super::genres::GENRES;
use super::{Synthetic, half_stars};
use crate::{ItemInfo, Rating};

/// Standard deviation of the effects of device and part of the day on a genre, in stars each.
const EFFECT_SPREAD: f64 = 0.6;

impl Synthetic {
    /// Draws device and hour of each rating, in the order of the ratings, and moves its label by the mean of their effects
    /// on the genres of the film. The truth stays that of the films without a context.
    pub fn put_into_contexts(&mut self, seed: u64) -> Vec<Circumstances> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let effects = Effects::draw(GENRES.len(), EFFECT_SPREAD, &mut rng);
        let items = &self.dataset.items;
        let place = |name: &String| GENRES.iter().position(|genre| genre.name == name);
        let genres = |item: &ItemInfo| item.genres.iter().filter_map(place).collect::<Vec<_>>();
        let genres: Vec<Vec<usize>> = items.iter().map(genres).collect();
        let mut put = |rating: &mut Rating| {
            let circumstances = Circumstances::draw(&mut rng);
            let genres = self.truth.items.get(&rating.item).map_or(&[][..], |item| &genres[*item]);
            let effect: f64 = genres.iter().map(|genre| effects.of(*genre, circumstances)).sum();
            rating.label = half_stars(f64::from(rating.label) + effect / genres.len().max(1) as f64);
            circumstances
        };
        self.dataset.ratings.iter_mut().map(&mut put).collect()
    }
}
