//! A training that goes on from an earlier one ends where a training from nothing does.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::num::NonZeroUsize;

use celeris_model::{Example, Loss, UserModel};
use celeris_retrain::{Parent, Pinned, Rating, Ratings, RetrainError, Silent, TrainSettings, Trained, refresh, train};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

const USERS: usize = 400;
const ITEMS: usize = 150;

/// Labels of two true factors, biases and noise; the second list is kept from every training.
fn world(seed: u64, loss: Loss) -> (Vec<Rating>, Vec<Rating>) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut normal = |deviation: f64| -> f64 {
        let z: f64 = StandardNormal.sample(&mut random);
        deviation * z
    };
    let items: Vec<[f64; 3]> = (0..ITEMS).map(|_| [normal(1.0), normal(1.0), normal(0.4)]).collect();
    let users: Vec<[f64; 3]> = (0..USERS).map(|_| [normal(0.4), normal(0.4), normal(0.4)]).collect();
    let noise: Vec<f64> = (0..USERS * 60).map(|_| normal(0.5)).collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed + 1);
    let (mut told, mut kept) = (Vec::new(), Vec::new());
    for (k, noise) in noise.into_iter().enumerate() {
        let (user, item) = (random.random_range(0..USERS), random.random_range(0..ITEMS));
        let ([w1, w2, generosity], [x1, x2, bias]) = (users[user], items[item]);
        let taste = w1 * x1 + w2 * x2 + bias + generosity;
        let label = match loss {
            Loss::Squared => 3.0 + taste + noise,
            // Tastes in log-odds, three times as strong.
            _ => f64::from(random.random::<f64>() < 1.0 / (1.0 + (1.0 - 3.0 * taste).exp())),
        };
        let rating = Rating { user: user as u32, item: item as u32, label: label as f32, weight: 1.0 };
        if k % 3 == 0 { kept.push(rating) } else { told.push(rating) }
    }
    (told, kept)
}

fn settings(loss: Loss) -> TrainSettings {
    // A strong ridge, where that of preferences would be tuned: under a weak one many factors fit as well, and a few
    // iterations need not end at those that many from nothing end at.
    let regularization = (loss == Loss::Implicit).then_some(64.0);
    TrainSettings { loss, regularization, threads: NonZeroUsize::new(2).unwrap(), ..TrainSettings::new(8, 3) }
}

fn all(list: &[Rating]) -> Ratings {
    Ratings::new(USERS, ITEMS, list.to_vec()).unwrap()
}

fn trained(list: &[Rating], loss: Loss) -> Trained {
    train(&all(list), &settings(loss), &Pinned::default(), &Silent).unwrap()
}

/// Goes on from a training on all but the last `fresh` ratings.
fn refreshed(list: &[Rating], fresh: usize, loss: Loss) -> Trained {
    let parent = trained(&list[..list.len() - fresh], loss);
    let rows: Vec<bool> = (0..list.len()).map(|row| row >= list.len() - fresh).collect();
    let parent = Parent { state: parent.state.as_ref().unwrap(), fresh: Some(&rows) };
    refresh(&all(list), &settings(loss), &Pinned::default(), parent, &Silent).unwrap()
}

/// The RMSE of served posteriors over what was told.
fn served_rmse(version: &Trained, told: &[Rating], kept: &[Rating]) -> f64 {
    let mut squares = 0.0;
    for user in 0..USERS as u32 {
        let history: Vec<Example> = told.iter().filter(|r| r.user == user).map(|r| version.example(r)).collect();
        let learning = version.prior.clone().into();
        let model = UserModel::rebuild(&learning, history.as_slice(), history.len() as u64).unwrap();
        for rating in kept.iter().filter(|r| r.user == user) {
            let example = version.example(rating);
            let score = model.estimate(&learning, example.offset, example.features).score;
            squares += f64::from(rating.label - score).powi(2);
        }
    }
    (squares / kept.len() as f64).sqrt()
}

#[test]
fn a_refresh_predicts_as_a_training_from_nothing_does() {
    let (told, kept) = world(11, Loss::Squared);
    // A hundredth is too little to hold out of, a tenth is not.
    for fresh in [told.len() / 100, told.len() / 10] {
        let (cold, warm) = (trained(&told, Loss::Squared), refreshed(&told, fresh, Loss::Squared));
        let (cold_rmse, warm_rmse) = (served_rmse(&cold, &told, &kept), served_rmse(&warm, &told, &kept));
        assert!((cold_rmse - warm_rmse).abs() <= 0.002, "{fresh} fresh: {warm_rmse} is not {cold_rmse}");
        assert!(cold_rmse < 0.6, "the noise is 0.5, and what was told is enough: {cold_rmse}");
        assert!(warm.metrics.iterations < cold.metrics.iterations / 2, "{:?}", warm.metrics);
        let noise = warm.prior.noise_variance() / cold.prior.noise_variance();
        assert!((noise - 1.0).abs() < 0.05, "{fresh} fresh: the noise is {noise} of the other's");
    }
}

#[test]
fn what_the_earlier_training_has_not_seen_is_learnt() {
    let (mut told, kept) = world(12, Loss::Squared);
    // The last films come with the fresh ratings only.
    let new = |rating: &Rating| rating.item >= 140;
    told.sort_by_key(new);
    let fresh = told.iter().filter(|rating| new(rating)).count();
    let (known, kept): (Vec<Rating>, Vec<Rating>) = (told[..told.len() - fresh].to_vec(), kept);
    let of_new: Vec<Rating> = kept.iter().filter(|rating| new(rating)).copied().collect();
    let before = trained(&known, Loss::Squared);
    let (cold, warm) = (trained(&told, Loss::Squared), refreshed(&told, fresh, Loss::Squared));
    let [before, cold, warm] = [&before, &cold, &warm].map(|version| served_rmse(version, &told, &of_new));
    assert!(cold < before - 0.05, "the new films can be learnt: {before} {cold}");
    assert!((before - warm) / (before - cold) > 0.9, "{before} {warm} {cold}");
}

#[test]
fn clicks_and_implicit_feedback_go_on_too() {
    let (told, kept) = world(13, Loss::Logistic);
    let fresh = told.len() / 20;
    let (cold, warm) = (trained(&told, Loss::Logistic), refreshed(&told, fresh, Loss::Logistic));
    // The trainers' own log-odds as chances, against what was clicked.
    let brier = |version: &Trained| {
        let error = |rating: &Rating| {
            let example = version.example(rating);
            let score = example.offset
                + version.own_weights(rating.user).iter().zip(example.features).map(|(w, x)| w * x).sum::<f32>();
            f64::from(rating.label - 1.0 / (1.0 + (-score).exp())).powi(2)
        };
        kept.iter().map(error).sum::<f64>() / kept.len() as f64
    };
    let (cold_loss, warm_loss) = (brier(&cold), brier(&warm));
    assert!((cold_loss - warm_loss).abs() < 0.004, "{warm_loss} is not {cold_loss}");
    assert!(warm.metrics.validation_log_loss.unwrap() < warm.metrics.base_rate_log_loss.unwrap());

    let (cold, warm) = (trained(&told, Loss::Implicit), refreshed(&told, fresh, Loss::Implicit));
    assert!(warm.metrics.iterations < cold.metrics.iterations / 2);
    // Factors are found up to a rotation; scores are not.
    let scores = |version: &Trained| -> Vec<f64> {
        kept.iter()
            .map(|rating| {
                let features = version.example(rating).features;
                version.own_weights(rating.user).iter().zip(features).map(|(w, x)| f64::from(w * x)).sum()
            })
            .collect()
    };
    let (a, b) = (scores(&cold), scores(&warm));
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(&a), mean(&b));
    let covariance: f64 = a.iter().zip(&b).map(|(x, y)| (x - ma) * (y - mb)).sum();
    let spread = |v: &[f64], m: f64| v.iter().map(|x| (x - m).powi(2)).sum::<f64>().sqrt();
    let correlation = covariance / (spread(&a, ma) * spread(&b, mb));
    assert!(correlation > 0.95, "{correlation}");
}

#[test]
fn a_refresh_is_the_same_on_any_number_of_threads() {
    let (told, _) = world(14, Loss::Squared);
    for loss in [Loss::Squared, Loss::Logistic, Loss::Implicit] {
        let parent = trained(&told[..told.len() - 600], loss);
        let rows: Vec<bool> = (0..told.len()).map(|row| row >= told.len() - 600).collect();
        let on = |threads: usize| {
            let settings = TrainSettings { threads: NonZeroUsize::new(threads).unwrap(), ..settings(loss) };
            let parent = Parent { state: parent.state.as_ref().unwrap(), fresh: Some(&rows) };
            refresh(&all(&told), &settings, &Pinned::default(), parent, &Silent).unwrap()
        };
        assert_eq!(on(1), on(3), "{loss:?}");
    }
}

#[test]
fn what_cannot_be_gone_on_from_is_refused_with_the_reason() {
    let (told, _) = world(15, Loss::Squared);
    let parent = trained(&told[..1000], Loss::Squared);
    let refused = |list: &[Rating], settings: TrainSettings| {
        let parent = Parent { state: parent.state.as_ref().unwrap(), fresh: None };
        let error = refresh(&all(list), &settings, &Pinned::default(), parent, &Silent).unwrap_err();
        assert!(matches!(error, RetrainError::WarmStart { .. }), "{error}");
        error.to_string()
    };
    assert!(refused(&told[..1100], settings(Loss::Logistic)).contains("another loss"));
    assert!(refused(&told[..1100], TrainSettings { dim: 9, ..settings(Loss::Squared) }).contains("dim 8, not 9"));
    assert!(refused(&told, settings(Loss::Squared)).contains("1000 ratings"));
}
