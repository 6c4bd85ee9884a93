//! Test data that many tests share: items with given features, so that an untrained model can learn
//! a user's weights, and a data set that is trained within a second.

use std::fs;
use std::path::{Path, PathBuf};

use celeris_datasets::{Dataset, SyntheticSettings};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::client::{Client, ModelClient};

/// Dimension of the models that tests create: large enough that a solve rounds, small enough to be
/// fast.
pub const DIM: usize = 8;

/// Number of items that [`create_model`] creates: `item-0`, `item-1`, ….
pub const ITEMS: usize = 24;

/// Writes these settings into a configuration file in `folder`; returns its path.
///
/// # Panics
/// If it cannot be written.
#[must_use]
pub fn config_file(folder: &Path, settings: impl AsRef<str>) -> PathBuf {
    let file = folder.join("celeris.toml");
    fs::write(&file, settings.as_ref()).expect("the folder is writable");
    file
}

/// All items that [`create_model`] creates.
#[must_use]
pub fn all_items() -> Vec<String> {
    (0..ITEMS).map(|item| format!("item-{item}")).collect()
}

/// Creates a model and its items, with features drawn from `seed`.
///
/// # Panics
/// If the node refuses a request.
#[track_caller]
pub fn create_model(client: &Client, name: &str, seed: u64) -> ModelClient {
    let created = client.post("/v1/models", &json!({"name": name, "dim": DIM})).expect(201);
    assert_eq!(created["name"], name);
    let model = client.model(name);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for item in 0..ITEMS {
        let described = json!({"features": features(&mut random), "attributes": {"title": format!("Film {item}")}});
        let put = model.put(&format!("items/item-{item}"), &described).expect(200);
        assert_eq!(put["effective"], "now");
    }
    model
}

/// Random features of one item, of length [`DIM`]: uniform from -1 to 1, the last one the constant
/// 1.
#[must_use]
pub fn features(random: &mut ChaCha8Rng) -> Vec<f32> {
    let mut features: Vec<f32> = (1..DIM).map(|_| random.random_range(-1.0..1.0)).collect();
    features.push(1.0);
    features
}

/// A random item id.
#[must_use]
pub fn any_item(random: &mut ChaCha8Rng) -> String {
    format!("item-{}", random.random_range(0..ITEMS))
}

/// A random rating from 0.5 to 5, in half stars.
#[must_use]
pub fn any_label(random: &mut ChaCha8Rng) -> f32 {
    f32::from(random.random_range(1_u8..=10)) / 2.0
}

/// The hash of the user's state and the weights as text; two texts are equal if and only if the
/// states are bit-identical.
///
/// # Panics
/// If the node does not return them.
#[track_caller]
#[must_use]
pub fn weights(model: &ModelClient, user: &str) -> String {
    let state: Value = model.user(user, 0);
    assert_eq!(state["weights"].as_array().map(Vec::len), Some(DIM), "{state}");
    format!("{} {}", state["state_hash"], state["weights"])
}

/// Number of ratings that [`write_dataset`] writes: few enough to train on within a second.
pub const DATASET_RATINGS: usize = 3000;

/// Number of items in that data set, all of them rated; their ids are `1`, `2`, ….
pub const DATASET_ITEMS: usize = 80;

/// Writes synthetic ratings and titles in the MovieLens format, and returns them.
///
/// # Panics
/// If a file operation fails.
pub fn write_dataset(folder: &Path) -> Dataset {
    let settings = SyntheticSettings {
        users: 100,
        items: DATASET_ITEMS,
        ratings: DATASET_RATINGS,
        ..SyntheticSettings::default()
    };
    let dataset = settings.generate().expect("the settings are in their ranges").dataset;
    let mut ratings = "userId,movieId,rating,timestamp\n".to_owned();
    for rating in &dataset.ratings {
        let seconds = rating.timestamp.0 / 1000;
        ratings.push_str(&format!("{},{},{},{seconds}\n", rating.user, rating.item, rating.label));
    }
    let mut movies = "movieId,title,genres\n".to_owned();
    for item in &dataset.items {
        movies.push_str(&format!("{},\"{}\",{}\n", item.id, item.title.replace('"', "\"\""), item.genres.join("|")));
    }
    fs::write(folder.join("ratings.csv"), ratings).expect("a scenario may write its files");
    fs::write(folder.join("movies.csv"), movies).expect("a scenario may write its files");
    dataset
}
