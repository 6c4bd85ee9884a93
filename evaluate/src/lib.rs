//! Offline evaluation: predictions of unseen ratings, and the value of a policy on the log of
//! another policy ([`ope`]).
//!
//! [`split`] holds out a tenth of the rows, for each loss; [`density`] varies the number of ratings that
//! are known of each user; [`prequential`] predicts the rows in the order of their time, each before it
//! is learnt; [`folds`] takes given pairs of files; [`velox`] repeats the two experiments of Velox §2.4;
//! [`cold_items`] leaves items out; [`ranking`] leaves out the last item of every
//! user and ranks it among all; and [`context`] generates clicks that depend on the context. All evaluate what would be served: the posterior of every user under
//! the trained version's own prior. For ratings, the first two also report the trainer's own
//! weights. All settings but `dim`, `loss` and `seed` are chosen by the trainer. Predicted ratings
//! are clamped to the range of the training labels. [`table`] runs several, and [`page`] writes their
//! figures into a document.
//!
//! Evaluations take minutes on large data; they report [`Progress`].

pub mod accuracy;
pub mod cold_items;
pub mod context;
pub mod density;
mod exported;
pub mod folds;
mod lists;
pub mod ope;
mod orders;
pub mod page;
pub mod peers;
pub mod prequential;
pub mod probabilities;
pub mod progress;
pub mod ranking;
pub mod split;
pub mod table;
pub mod velox;

use std::collections::HashMap;
use std::num::NonZeroUsize;

use celeris_datasets::Rating as NamedRating;
use celeris_model::{Estimate, Example, ItemId, Learning, Loss, ModelError, Timestamp, UserId, UserModel};
use celeris_retrain::{Parent, Pinned, Rating, Ratings, RetrainError, TrainSettings, Trained, refresh, train};

use self::progress::Part;
pub use self::progress::Progress;

/// Settings chosen by the caller of an evaluation.
#[derive(Clone, Copy)]
pub struct EvaluateSettings<'a> {
    /// The length of feature and weight vectors, including the constant.
    pub dim: usize,
    /// The seed of the held-out ratings, the orders of ratings, and the trainer.
    pub seed: u64,
    /// Number of training threads.
    pub threads: NonZeroUsize,
    /// The loss of the model. Protocols other than `split` have one of their own.
    pub loss: Loss,
    /// Receives the stages of the evaluation.
    pub progress: &'a dyn Progress,
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
    /// Numbers the users and items of the ratings, continuing from earlier calls.
    fn number(&mut self, ratings: &[NamedRating]) -> Vec<Rating> {
        ratings
            .iter()
            .map(|rating| {
                let (users, items) = (self.users.len(), self.items.len());
                let user = *self.users.entry(rating.user.clone()).or_insert_with(|| index(users));
                let item = *self.items.entry(rating.item.clone()).or_insert_with(|| index(items));
                Rating { user, item, label: rating.label, weight: rating.weight }
            })
            .collect()
    }

    /// Converts ratings whose users and items are already numbered.
    ///
    /// # Panics
    /// If one of them is not.
    fn numbers(&self, ratings: &[NamedRating]) -> Vec<Rating> {
        let number = |rating: &NamedRating| Rating {
            user: self.users[&rating.user],
            item: self.items[&rating.item],
            label: rating.label,
            weight: rating.weight,
        };
        ratings.iter().map(number).collect()
    }

    /// Trains on some of the ratings; users and items without ratings among them are cold.
    fn train(&self, ratings: &[Rating], settings: &EvaluateSettings, part: Part) -> Result<Trained, RetrainError> {
        let ratings = Ratings::new(self.users.len(), self.items.len(), ratings.to_vec())?;
        train(&ratings, &settings.of_trainer(), &Pinned::default(), &part)
    }

    /// Refreshes a version trained on the first `seen` of the ratings with all of them.
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
        refresh(&ratings, &settings.of_trainer(), &Pinned::default(), parent, &celeris_retrain::Silent)
    }
}

impl EvaluateSettings<'_> {
    fn of_trainer(&self) -> TrainSettings {
        TrainSettings { threads: self.threads, loss: self.loss, ..TrainSettings::new(self.dim, self.seed) }
    }
}

fn index(count: usize) -> u32 {
    u32::try_from(count).expect("ratings in memory have fewer than 2^32 users and items")
}

/// Fails if rows have no time; `what` needs it.
fn ensure_times(rows: &[NamedRating], what: &str) -> anyhow::Result<()> {
    let untimed = rows.iter().filter(|row| row.timestamp == Timestamp::default()).count();
    anyhow::ensure!(
        untimed == 0,
        "{untimed} rows have no time, which {what} needs; name the column of times by --map time=COLUMN, or split at random"
    );
    Ok(())
}

/// Ratings by user, in the given order.
fn by_user(users: usize, ratings: &[Rating]) -> Vec<Vec<Rating>> {
    let mut rows = vec![Vec::new(); users];
    for rating in ratings {
        rows[rating.user as usize].push(*rating);
    }
    rows
}

/// One evaluated prediction.
#[derive(Debug, Clone, Copy)]
struct Prediction {
    user: u32,
    item: u32,
    label: f32,
    /// The served estimate; under logistic loss its score is log-odds.
    served: Estimate,
    /// The score by the trainer's own weights.
    own: f32,
}

/// Predicts the ratings `tested` of users whose history is `learnt`, with the version `trained`.
/// Both are by user. Not for implicit loss, whose histories hold the pairs taken before.
fn predict(
    trained: &Trained,
    loss: Loss,
    part: Part,
    (learnt, tested): (&[Vec<Rating>], &[Vec<Rating>]),
) -> Result<Vec<Prediction>, ModelError> {
    let learning = Learning::new(trained.prior.clone(), loss, None);
    let mut predictions = Vec::new();
    let count: usize = tested.iter().map(Vec::len).sum();
    for (learnt, tested) in learnt.iter().zip(tested).filter(|(_, tested)| !tested.is_empty()) {
        let history = examples(trained, learnt);
        let model = UserModel::rebuild(&learning, history.as_slice(), history.len() as u64)?;
        for rating in tested {
            let example = trained.example(rating);
            let own = celeris_model::linear::dot(trained.own_weights(rating.user), example.features);
            predictions.push(Prediction {
                user: rating.user,
                item: rating.item,
                label: rating.label,
                served: trained.estimate(&model, &learning, rating),
                own: example.offset + own,
            });
        }
        part.at(predictions.len() as f64 / count as f64);
    }
    Ok(predictions)
}

/// Ratings as examples for a served user state.
fn examples<'a>(trained: &'a Trained, ratings: &[Rating]) -> Vec<Example<'a>> {
    ratings.iter().map(|rating| trained.example(rating)).collect()
}

/// The mean of `loss(score, label)`, with scores clamped to `range`.
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
