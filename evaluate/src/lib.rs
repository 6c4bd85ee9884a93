//! Offline evaluation: how well the service would have predicted ratings that it has not seen, and what a policy would
//! have earned on the log of another ([`ope`]).
//!
//! [`split`] holds out a tenth; [`velox`] repeats the two experiments of Velox §2.4; [`cold_items`] leaves items out, and
//! [`ranking`] the last item of every user, to be found again among all. All judge what would be served, the posterior of
//! every user under the trained version's own prior; the first two print the trainer's own weights beside. Every setting
//! but `dim` and `seed` is the trainer's own choice. Scores are cut to the range of the labels trained on.

pub mod cold_items;
pub mod ope;
pub mod peers;
pub mod ranking;
pub mod split;
pub mod temporary_folder;
pub mod velox;

use std::collections::HashMap;
use std::num::NonZeroUsize;

use celeris_datasets::Rating as NamedRating;
use celeris_model::{Estimate, Example, ItemId, Learning, Loss, ModelError, UserId, UserModel};
use celeris_retrain::{Parent, Pinned, Rating, Ratings, RetrainError, Silent, TrainSettings, Trained, refresh, train};

/// What the caller of an evaluation chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvaluateSettings {
    /// The length of features and weights, the constant included.
    pub dim: usize,
    /// Seeds the choice of held-out ratings, the orders of ratings, and the trainer.
    pub seed: u64,
    /// Threads to train on.
    pub threads: NonZeroUsize,
}

/// The half-width of a 95 % interval in standard deviations.
const DEVIATIONS_95: f32 = 1.96;

/// Ratings with users and items numbered in the order of their first appearance.
#[derive(Debug, Default)]
struct Numbered {
    users: HashMap<UserId, u32>,
    items: HashMap<ItemId, u32>,
}

impl Numbered {
    /// Numbers the ratings, continuing from those numbered before.
    fn number(&mut self, ratings: &[NamedRating]) -> Vec<Rating> {
        ratings
            .iter()
            .map(|rating| {
                let (users, items) = (self.users.len(), self.items.len());
                let user = *self.users.entry(rating.user.clone()).or_insert_with(|| index(users));
                let item = *self.items.entry(rating.item.clone()).or_insert_with(|| index(items));
                Rating { user, item, label: rating.label, weight: 1.0 }
            })
            .collect()
    }

    /// Ratings whose users and items are numbered already.
    ///
    /// # Panics
    /// Where one is not.
    fn numbers(&self, ratings: &[NamedRating]) -> Vec<Rating> {
        let number = |rating: &NamedRating| Rating {
            user: self.users[&rating.user],
            item: self.items[&rating.item],
            label: rating.label,
            weight: 1.0,
        };
        ratings.iter().map(number).collect()
    }

    /// Trains on some of the ratings; users and items that are not among them are known to be there, and cold.
    fn train(&self, ratings: &[Rating], settings: &EvaluateSettings) -> Result<Trained, RetrainError> {
        let ratings = Ratings::new(self.users.len(), self.items.len(), ratings.to_vec())?;
        train(&ratings, &settings.of_trainer(), &Pinned::default(), &Silent)
    }

    /// Goes on from a training on the first `seen` of the ratings with all of them.
    fn refresh(
        &self,
        parent: &Trained,
        ratings: &[Rating],
        seen: usize,
        settings: &EvaluateSettings,
    ) -> Result<Trained, RetrainError> {
        let fresh: Vec<bool> = (0..ratings.len()).map(|row| row >= seen).collect();
        let ratings = Ratings::new(self.users.len(), self.items.len(), ratings.to_vec())?;
        let state = parent.state.as_ref().expect("the built-in trainer leaves what the next one goes on from");
        let parent = Parent { state, fresh: Some(&fresh) };
        refresh(&ratings, &settings.of_trainer(), &Pinned::default(), parent, &Silent)
    }
}

impl EvaluateSettings {
    fn of_trainer(&self) -> TrainSettings {
        TrainSettings { threads: self.threads, ..TrainSettings::new(self.dim, self.seed) }
    }
}

fn index(count: usize) -> u32 {
    u32::try_from(count).expect("ratings in memory have fewer than 2^32 users and items")
}

/// Ratings by user, each user's in the order given.
fn by_user(users: usize, ratings: &[Rating]) -> Vec<Vec<Rating>> {
    let mut rows = vec![Vec::new(); users];
    for rating in ratings {
        rows[rating.user as usize].push(*rating);
    }
    rows
}

/// One judged prediction.
struct Judged {
    label: f32,
    /// What is served.
    served: Estimate,
    /// The score of the trainer's own weights.
    own: f32,
}

/// What version `trained` predicts for `asked` of users who have told it `told`, both by user.
fn judge(trained: &Trained, told: &[Vec<Rating>], asked: &[Vec<Rating>]) -> Result<Vec<Judged>, ModelError> {
    let learning = Learning::from(trained.prior.clone());
    let mut judged = Vec::new();
    for (told, asked) in told.iter().zip(asked).filter(|(_, asked)| !asked.is_empty()) {
        let history = examples(trained, told);
        let model = UserModel::rebuild(&learning, history.as_slice(), history.len() as u64)?;
        for rating in asked {
            let example = trained.example(rating);
            let own = celeris_model::linear::dot(trained.own_weights(rating.user), example.features);
            judged.push(Judged {
                label: rating.label,
                served: model.estimate(&learning, example.offset, example.features),
                own: example.offset + own,
            });
        }
    }
    Ok(judged)
}

/// Ratings as a served user state absorbs them.
fn examples<'a>(trained: &'a Trained, ratings: &[Rating]) -> Vec<Example<'a>> {
    ratings.iter().map(|rating| trained.example(rating)).collect()
}

/// The mean of `loss(score, label)` with scores cut to `range`.
fn mean_loss(range: (f32, f32), pairs: impl Iterator<Item = (f32, f32)>, loss: impl Fn(f32, f32) -> f64) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for (label, score) in pairs {
        sum += loss(score.clamp(range.0, range.1), label);
        count += 1.0;
    }
    sum / count
}

fn mean_square(range: (f32, f32), pairs: impl Iterator<Item = (f32, f32)>) -> f64 {
    mean_loss(range, pairs, |score, label| Loss::Squared.prediction_loss(score, label))
}

fn absolute_error(score: f32, label: f32) -> f64 {
    (f64::from(score) - f64::from(label)).abs()
}
