//! The data sets of the trainer comparison.

use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_datasets::synthetic::SyntheticSettings;
use celeris_datasets::{Dataset, Rating};
use celeris_evaluate::peers::data::Data;
use rand::seq::SliceRandom;

use crate::Settings;
use crate::places;

/// One in this many ratings is held out for prediction.
const TEST_ONE_IN: usize = 10;

fn split(name: &'static str, mut ratings: Vec<Rating>) -> Data {
    ratings.shuffle(&mut scene::rng(40));
    let test = ratings.split_off(ratings.len() - ratings.len() / TEST_ONE_IN);
    Data { name, train: ratings, test }
}

/// The data sets of this run: MovieLens if it is found, and five million synthetic ratings.
pub fn all(settings: &Settings) -> Result<Vec<Data>, Failure> {
    let mut all = Vec::new();
    match places::find("ml-latest-small", "ratings.csv") {
        Some(folder) => all.push(split("ml-latest-small", Dataset::load(&folder)?.ratings)),
        None => eprintln!(
            "  no ml-latest-small: its cases are left out; `celeris datasets fetch ml-latest-small` puts it here, or \
             CELERIS_DATA names the folder that holds it"
        ),
    }
    let settings = SyntheticSettings {
        users: settings.pick(50_000, 300),
        items: settings.pick(10_000, 200),
        ratings: settings.pick(5_000_000, 12_000),
        seed: scene::SEED,
        ..SyntheticSettings::default()
    };
    all.push(split("synthetic-5m", settings.generate()?.dataset.ratings));
    Ok(all)
}
