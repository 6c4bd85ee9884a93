//! A warm training gives the same result as a cold one.

use std::num::NonZeroUsize;

use celeris_model::{Example, Loss, UserModel};
use celeris_retrain::{Parent, Pinned, Rating, Ratings, RetrainError, Silent, TrainSettings, Trained, refresh, train};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

const USERS: usize = 400;
const ITEMS: usize = 150;

/// Labels from two true factors, biases and noise; the second list is held out from every training.
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
    let (mut observed, mut kept) = (Vec::new(), Vec::new());
    for (k, noise) in noise.into_iter().enumerate() {
        let (user, item) = (random.random_range(0..USERS), random.random_range(0..ITEMS));
        let ([w1, w2, generosity], [x1, x2, bias]) = (users[user], items[item]);
        let taste = w1 * x1 + w2 * x2 + bias + generosity;
        let label = match loss {
            Loss::Squared => 3.0 + taste + noise,
            // Log-odds, three times the taste.
            _ => f64::from(random.random::<f64>() < 1.0 / (1.0 + (1.0 - 3.0 * taste).exp())),
        };
        let rating = Rating { user: user as u32, item: item as u32, label: label as f32, weight: 1.0 };
        if k % 3 == 0 { kept.push(rating) } else { observed.push(rating) }
    }
    (observed, kept)
}

fn settings(loss: Loss) -> TrainSettings {
    // A strong ridge instead of a tuned one for preferences: under a weak ridge many factors fit
    // equally well, and a few iterations need not converge to the same ones as many from a cold
    // start.
    let regularization = (loss == Loss::Implicit).then_some(64.0);
    TrainSettings { loss, regularization, threads: NonZeroUsize::new(2).unwrap(), ..TrainSettings::new(8, 3) }
}

fn all(list: &[Rating]) -> Ratings {
    Ratings::new(USERS, ITEMS, list.to_vec()).unwrap()
}

fn trained(list: &[Rating], loss: Loss) -> Trained {
    train(&all(list), &settings(loss), &Pinned::default(), &Silent).unwrap()
}

/// Warm start from a training on all but the last `fresh` ratings.
fn refreshed(list: &[Rating], fresh: usize, loss: Loss) -> Trained {
    let parent = trained(&list[..list.len() - fresh], loss);
    let rows: Vec<bool> = (0..list.len()).map(|row| row >= list.len() - fresh).collect();
    let parent = Parent { state: parent.state.as_ref().unwrap(), fresh: Some(&rows) };
    refresh(&all(list), &settings(loss), &Pinned::default(), parent, &Silent).unwrap()
}

/// The RMSE of served posteriors on `kept`, given `observed`.
fn served_rmse(version: &Trained, observed: &[Rating], kept: &[Rating]) -> f64 {
    let mut squares = 0.0;
    for user in 0..USERS as u32 {
        let history: Vec<Example> = observed.iter().filter(|r| r.user == user).map(|r| version.example(r)).collect();
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
fn a_refresh_predicts_as_well_as_a_cold_training() {
    let (observed, kept) = world(11, Loss::Squared);
    // A hundredth is too few ratings to hold some out, a tenth is enough.
    for fresh in [observed.len() / 100, observed.len() / 10] {
        let (cold, warm) = (trained(&observed, Loss::Squared), refreshed(&observed, fresh, Loss::Squared));
        let (cold_rmse, warm_rmse) = (served_rmse(&cold, &observed, &kept), served_rmse(&warm, &observed, &kept));
        assert!((cold_rmse - warm_rmse).abs() <= 0.002, "{fresh} fresh: {warm_rmse} is not {cold_rmse}");
        assert!(cold_rmse < 0.6, "the noise is 0.5, and there are enough ratings: {cold_rmse}");
        assert!(warm.metrics.iterations < cold.metrics.iterations / 2, "{:?}", warm.metrics);
        let noise = warm.prior.noise_variance() / cold.prior.noise_variance();
        assert!((noise - 1.0).abs() < 0.05, "{fresh} fresh: the noise is {noise} times the other");
    }
}

#[test]
fn items_new_since_the_earlier_training_are_learnt() {
    let (mut observed, kept) = world(12, Loss::Squared);
    // Only the fresh ratings contain the last films.
    let new = |rating: &Rating| rating.item >= 140;
    observed.sort_by_key(new);
    let fresh = observed.iter().filter(|rating| new(rating)).count();
    let (known, kept): (Vec<Rating>, Vec<Rating>) = (observed[..observed.len() - fresh].to_vec(), kept);
    let of_new: Vec<Rating> = kept.iter().filter(|rating| new(rating)).copied().collect();
    let before = trained(&known, Loss::Squared);
    let (cold, warm) = (trained(&observed, Loss::Squared), refreshed(&observed, fresh, Loss::Squared));
    let [before, cold, warm] = [&before, &cold, &warm].map(|version| served_rmse(version, &observed, &of_new));
    assert!(cold < before - 0.05, "the new films can be learnt: {before} {cold}");
    assert!((before - warm) / (before - cold) > 0.9, "{before} {warm} {cold}");
}

#[test]
fn clicks_and_implicit_feedback_warm_start_too() {
    let (observed, kept) = world(13, Loss::Logistic);
    let fresh = observed.len() / 20;
    let (cold, warm) = (trained(&observed, Loss::Logistic), refreshed(&observed, fresh, Loss::Logistic));
    // Brier score of the trainers' own log-odds on the held-out clicks.
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

    let (cold, warm) = (trained(&observed, Loss::Implicit), refreshed(&observed, fresh, Loss::Implicit));
    assert!(warm.metrics.iterations < cold.metrics.iterations / 2);
    // Factors are unique up to a rotation; scores are unique.
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
fn a_refresh_does_not_depend_on_the_number_of_threads() {
    let (observed, _) = world(14, Loss::Squared);
    for loss in [Loss::Squared, Loss::Logistic, Loss::Implicit] {
        let parent = trained(&observed[..observed.len() - 600], loss);
        let rows: Vec<bool> = (0..observed.len()).map(|row| row >= observed.len() - 600).collect();
        let on = |threads: usize| {
            let settings = TrainSettings { threads: NonZeroUsize::new(threads).unwrap(), ..settings(loss) };
            let parent = Parent { state: parent.state.as_ref().unwrap(), fresh: Some(&rows) };
            refresh(&all(&observed), &settings, &Pinned::default(), parent, &Silent).unwrap()
        };
        assert_eq!(on(1), on(3), "{loss:?}");
    }
}

#[test]
fn an_unusable_warm_start_is_rejected_with_the_reason() {
    let (observed, _) = world(15, Loss::Squared);
    let parent = trained(&observed[..1000], Loss::Squared);
    let refused = |list: &[Rating], settings: TrainSettings| {
        let parent = Parent { state: parent.state.as_ref().unwrap(), fresh: None };
        let error = refresh(&all(list), &settings, &Pinned::default(), parent, &Silent).unwrap_err();
        assert!(matches!(error, RetrainError::WarmStart { .. }), "{error}");
        error.to_string()
    };
    assert!(refused(&observed[..1100], settings(Loss::Logistic)).contains("another loss"));
    assert!(refused(&observed[..1100], TrainSettings { dim: 9, ..settings(Loss::Squared) }).contains("dim 8, not 9"));
    assert!(refused(&observed, settings(Loss::Squared)).contains("1000 ratings"));
}
