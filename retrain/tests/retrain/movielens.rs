//! Accuracy on MovieLens ml-latest-small, if available in `../shared/data` next to the repository.

use std::collections::HashMap;
use std::fs;

use celeris_model::{Example, Learning, UserModel};
use celeris_retrain::{Pinned, Rating, Ratings, Silent, TrainSettings, Trained, train};
use celeris_skip::{Need, unless_downloaded};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

pub struct MovieLens {
    pub users: usize,
    pub ratings: Vec<Rating>,
    pub items: HashMap<String, u32>,
    genres: Vec<(u32, String)>,
}

/// The data; the test is skipped without it.
pub fn movielens() -> Option<MovieLens> {
    let folder = unless_downloaded(Need::MovieLens, "ml-latest-small")?;
    let [ratings, movies] = ["ratings.csv", "movies.csv"].map(|name| fs::read_to_string(folder.join(name)).unwrap());
    let (mut users, mut items) = (HashMap::new(), HashMap::new());
    let ratings = ratings
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let (next_user, next_item) = (users.len() as u32, items.len() as u32);
            let user = *users.entry(fields[0].to_owned()).or_insert(next_user);
            let item = *items.entry(fields[1].to_owned()).or_insert(next_item);
            Rating { user, item, label: fields[2].parse().unwrap(), weight: 1.0 }
        })
        .collect();
    let genres = movies
        .lines()
        .skip(1)
        .filter_map(|line| Some((*items.get(line.split(',').next()?)?, line.rsplit(',').next()?.to_owned())))
        .collect();
    Some(MovieLens { users: users.len(), ratings, items, genres })
}

fn trained(data: &MovieLens, ratings: &[Rating]) -> Trained {
    let ratings = Ratings::new(data.users, data.items.len(), ratings.to_vec()).unwrap();
    train(&ratings, &TrainSettings::new(20, 1), &Pinned::default(), &Silent).unwrap()
}

fn posterior(version: &Trained, ratings: &[Rating]) -> UserModel {
    let history: Vec<Example> = ratings.iter().map(|rating| version.example(rating)).collect();
    UserModel::rebuild(&version.prior.clone().into(), history.as_slice(), history.len() as u64).unwrap()
}

#[test]
fn a_held_out_tenth_is_predicted_and_covered_by_label_intervals() {
    let Some(data) = movielens() else { return };
    let mut ratings = data.ratings.clone();
    ratings.shuffle(&mut ChaCha8Rng::seed_from_u64(11));
    let (held_out, training) = ratings.split_at(ratings.len() / 10);
    let version = trained(&data, training);
    let (mut squares, mut covered) = (0.0, 0.0);
    for user in 0..u32::try_from(data.users).unwrap() {
        let of_user = |rating: &&Rating| rating.user == user;
        let model = posterior(&version, &training.iter().filter(of_user).copied().collect::<Vec<_>>());
        for rating in held_out.iter().filter(of_user) {
            let example = version.example(rating);
            let estimate = model.estimate(&Learning::from(version.prior.clone()), example.offset, example.features);
            squares += f64::from(rating.label - estimate.score.clamp(0.5, 5.0)).powi(2);
            covered += f64::from((rating.label - estimate.score).abs() <= 1.96 * estimate.label_std);
        }
    }
    let count = held_out.len() as f64;
    let (rmse, coverage) = ((squares / count).sqrt(), covered / count);
    // Biases alone reach 0.863. Ratings are not Gaussian, so the coverage of 95 % holds only to
    // about a percent.
    assert!(rmse <= 0.85, "rmse {rmse}");
    assert!((0.93..=0.97).contains(&coverage), "coverage {coverage}");
}

#[test]
fn three_good_labels_of_horror_raise_horror_more_than_films_for_children() {
    let Some(data) = movielens() else { return };
    let version = trained(&data, &data.ratings);
    let of_genre = |genre: &str, not: &str| -> Vec<u32> {
        let wanted = |genres: &str| genres.contains(genre) && !genres.contains(not);
        data.genres.iter().filter(|(_, genres)| wanted(genres)).map(|(item, _)| *item).collect()
    };
    let (horror, children) = (of_genre("Horror", "Children"), of_genre("Children", "Horror"));
    // Alien, Psycho and The Shining: well-known films, whose ratings say the least about the reason
    // for liking them.
    let rated = ["1214", "1219", "1258"].map(|id| data.items[id]);
    let ratings = rated.map(|item| Rating { user: 0, item, label: 5.0, weight: 1.0 });
    let (before, after) = (posterior(&version, &[]), posterior(&version, &ratings));
    let raised = |items: &[u32]| -> f64 {
        let others: Vec<u32> = items.iter().copied().filter(|item| !rated.contains(item)).collect();
        let raise = |item: &u32| {
            let features = version.example(&Rating { item: *item, ..ratings[0] }).features;
            f64::from(after.response(features) - before.response(features))
        };
        others.iter().map(raise).sum::<f64>() / others.len() as f64
    };
    let (horror, children) = (raised(&horror), raised(&children));
    assert!(horror > children && children > 0.0, "horror rises by {horror}, films for children by {children}");
}
