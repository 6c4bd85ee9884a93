//! Generated clicks of users on items in contexts, with a known effect of item and context.
//!
//! `P(click) = sigmoid(bias + taste(user, item) + effect(genre, device) + effect(genre, hours))`. A taste is the quality of
//! the item and the product of factors of user and item; items of one genre, and those of one maker, have similar factors.
//! Which users, items and contexts come together is independent.

use celeris_model::{ItemId, Timestamp, UserId};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde_json::{Map, Value, json};

use super::circumstances::{Circumstances, Effects, normals};
use crate::DatasetError;

/// The genres of items.
pub const GENRES: [&str; 6] = ["news", "film", "music", "sport", "science", "comedy"];

/// The makers of items.
pub const MAKERS: [&str; 8] = ["alder", "birch", "cedar", "elm", "hazel", "larch", "maple", "rowan"];

/// Number of factors of a taste.
const FACTORS: usize = 4;

/// The log-odds of a click without any effect.
const BIAS: f64 = -1.3;

/// Standard deviation of the qualities of items, and what a doubled price takes from it.
const QUALITY_SPREAD: f64 = 0.3;
const QUALITY_OF_PRICE: f64 = -0.2;

/// Standard deviation of tastes without the quality.
const TASTE_SPREAD: f64 = 0.7;

/// The shares of genre and maker in the variance of the factors of items.
const GENRE_SHARE: f64 = 0.4;
const MAKER_SHARE: f64 = 0.2;

/// Standard deviation of the effects of genre and device, and of genre and part of the day.
const EFFECT_SPREAD: f64 = 0.8;

/// Time of the first row, in Unix milliseconds, and between two rows.
const BEGIN: i64 = 1_767_225_600_000;
const STEP: i64 = 20_000;

/// Settings of the generator.
#[derive(Debug, Clone, PartialEq)]
pub struct ClickSettings {
    /// Users, 1 to 1 million; their ids are `u1`, `u2`, ….
    pub users: usize,
    /// Items, 1 to 1 million; their ids are `i1`, `i2`, ….
    pub items: usize,
    /// Rows, at most 10 million.
    pub rows: usize,
    /// Equal settings with equal seeds give equal data.
    pub seed: u64,
}

impl Default for ClickSettings {
    fn default() -> Self {
        Self { users: 3_000, items: 300, rows: 150_000, seed: 1 }
    }
}

/// An item with its attributes.
#[derive(Debug, Clone, PartialEq)]
pub struct ClickItem {
    pub id: ItemId,
    /// Its place in [`GENRES`].
    pub genre: usize,
    /// Its place in [`MAKERS`].
    pub maker: usize,
    pub price: f64,
}

impl ClickItem {
    /// As a client describes it.
    #[must_use]
    pub fn attributes(&self) -> Map<String, Value> {
        let fields =
            [("genre", json!(GENRES[self.genre])), ("maker", json!(MAKERS[self.maker])), ("price", json!(self.price))];
        fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
    }
}

/// A row: a user who was shown an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClickRow {
    /// Places of user and item.
    pub user: usize,
    pub item: usize,
    pub circumstances: Circumstances,
    pub clicked: bool,
    pub timestamp: Timestamp,
}

/// Generated clicks with their true parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Clicks {
    pub users: Vec<UserId>,
    pub items: Vec<ClickItem>,
    /// Ascending in time.
    pub rows: Vec<ClickRow>,
    pub truth: ClickTruth,
}

/// The true parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct ClickTruth {
    /// By user.
    tastes: Vec<[f64; FACTORS]>,
    /// By item.
    items: Vec<ItemTruth>,
    effects: Effects,
}

/// The true parameters of an item.
#[derive(Debug, Clone, PartialEq)]
struct ItemTruth {
    factors: [f64; FACTORS],
    quality: f64,
    genre: usize,
}

impl ClickTruth {
    /// The probability that the user clicks on the item, both by their places.
    #[must_use]
    pub fn probability(&self, user: usize, item: usize, circumstances: Circumstances) -> f64 {
        let ItemTruth { factors, quality, genre } = &self.items[item];
        let taste: f64 = self.tastes[user].iter().zip(factors).map(|(taste, factor)| taste * factor).sum();
        let effect = self.effects.of(*genre, circumstances);
        1.0 / (1.0 + (-(BIAS + quality + taste + effect)).exp())
    }
}

/// Independent random streams, so that the number of rows changes neither items nor tastes.
#[derive(Clone, Copy)]
enum Chance {
    Items,
    Tastes,
    Effects,
    Rows,
}

impl Chance {
    fn generator(self, seed: u64) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(self as u64);
        rng
    }
}

impl ClickSettings {
    /// Generates the clicks.
    ///
    /// # Errors
    /// [`DatasetError::Setting`] for a setting out of its range.
    pub fn generate(&self) -> Result<Clicks, DatasetError> {
        self.check()?;
        let (items, of_items) = self.draw_items(&mut Chance::Items.generator(self.seed));
        let mut tastes = Chance::Tastes.generator(self.seed);
        let truth = ClickTruth {
            tastes: (0..self.users).map(|_| normals(TASTE_SPREAD, &mut tastes)).collect(),
            items: of_items,
            effects: Effects::draw(GENRES.len(), EFFECT_SPREAD, &mut Chance::Effects.generator(self.seed)),
        };
        let user = |number: usize| UserId::new(format!("u{number}")).expect("a letter and a number are a valid id");
        let rows = self.draw_rows(&truth, &mut Chance::Rows.generator(self.seed));
        Ok(Clicks { users: (1..=self.users).map(user).collect(), items, rows, truth })
    }

    fn check(&self) -> Result<(), DatasetError> {
        let checks = [
            ("users", self.users, 1, 1_000_000, "1 to 1 million"),
            ("items", self.items, 1, 1_000_000, "1 to 1 million"),
            ("rows", self.rows, 0, 10_000_000, "at most 10 million"),
        ];
        match checks.into_iter().find(|(_, value, low, high, _)| !(low..=high).contains(&value)) {
            Some((setting, value, _, _, range)) => Err(DatasetError::Setting { setting, range, value: value as f64 }),
            None => Ok(()),
        }
    }

    /// Items, and the true parameters of each.
    fn draw_items(&self, rng: &mut ChaCha8Rng) -> (Vec<ClickItem>, Vec<ItemTruth>) {
        // A taste is a sum over the factors.
        let spread = |share: f64| (share / FACTORS as f64).sqrt();
        let of_genres: Vec<[f64; FACTORS]> = GENRES.iter().map(|_| normals(spread(GENRE_SHARE), rng)).collect();
        let of_makers: Vec<[f64; FACTORS]> = MAKERS.iter().map(|_| normals(spread(MAKER_SHARE), rng)).collect();
        let draw = |number: usize| {
            let (genre, maker) = (rng.random_range(0..GENRES.len()), rng.random_range(0..MAKERS.len()));
            let own: [f64; FACTORS] = normals(spread(1.0 - GENRE_SHARE - MAKER_SHARE), rng);
            let factors = std::array::from_fn(|k| of_genres[genre][k] + of_makers[maker][k] + own[k]);
            let doublings: f64 = rng.sample(StandardNormal);
            let chance: f64 = rng.sample(StandardNormal);
            let quality = QUALITY_OF_PRICE * doublings + QUALITY_SPREAD * chance;
            let id = ItemId::new(format!("i{number}")).expect("a letter and a number are a valid id");
            let price = (2_f64.powf(doublings) * 1_000.0).round() / 100.0;
            (ClickItem { id, genre, maker, price }, ItemTruth { factors, quality, genre })
        };
        (1..=self.items).map(draw).unzip()
    }

    fn draw_rows(&self, truth: &ClickTruth, rng: &mut ChaCha8Rng) -> Vec<ClickRow> {
        let draw = |number: usize| {
            let (user, item) = (rng.random_range(0..self.users), rng.random_range(0..self.items));
            let circumstances = Circumstances::draw(rng);
            let clicked = rng.random::<f64>() < truth.probability(user, item, circumstances);
            ClickRow { user, item, circumstances, clicked, timestamp: Timestamp(BEGIN + STEP * number as i64) }
        };
        (0..self.rows).map(draw).collect()
    }
}
