//! Properties of a version trained in memory.

use std::num::NonZeroUsize;

use celeris_model::{Example, Learning, UserModel};
use celeris_retrain::prior_fit::CONDITION_MAX;
use celeris_retrain::{Parent, Pinned, Rating, Ratings, RetrainError, Silent, TrainSettings, Trained, refresh, train};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Users, items and labels drawn from the model itself: `y = 3 + b_i + w_u·x_i + c_u + noise`.
struct World {
    users: usize,
    items: usize,
    ratings_a_user: usize,
    noise: f64,
    seed: u64,
}

/// Variance of a user's bias, and of the weight of each of the two true factors (which have unit
/// variance).
const BIAS_VARIANCE: f64 = 0.16;
const FACTOR_VARIANCE: f64 = 0.09;

impl World {
    const DEFAULT: Self = Self { users: 400, items: 120, ratings_a_user: 40, noise: 0.5, seed: 7 };

    /// Ratings to train on, and the same number of held-out ratings.
    fn draw(&self) -> (Ratings, Vec<Rating>) {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let mut normal = move |deviation: f64| -> f64 {
            let z: f64 = StandardNormal.sample(&mut random);
            deviation * z
        };
        let items: Vec<[f64; 3]> = (0..self.items).map(|_| [normal(1.0), normal(1.0), normal(0.4)]).collect();
        let mut random_item = ChaCha8Rng::seed_from_u64(self.seed + 1);
        let (mut shown, mut kept) = (Vec::new(), Vec::new());
        for user in 0..self.users {
            let deviation = FACTOR_VARIANCE.sqrt();
            let weights = [normal(deviation), normal(deviation), normal(BIAS_VARIANCE.sqrt())];
            for k in 0..2 * self.ratings_a_user {
                let item = random_item.random_range(0..self.items);
                let [x1, x2, bias] = items[item];
                let label = 3.0 + bias + weights[0] * x1 + weights[1] * x2 + weights[2] + normal(self.noise);
                let rating = Rating { user: user as u32, item: item as u32, label: label as f32, weight: 1.0 };
                if k % 2 == 0 { shown.push(rating) } else { kept.push(rating) }
            }
        }
        (Ratings::new(self.users, self.items, shown).unwrap(), kept)
    }
}

fn trained(ratings: &Ratings, settings: &TrainSettings) -> Trained {
    train(ratings, settings, &Pinned::default(), &Silent).unwrap()
}

#[test]
fn a_given_strength_of_the_prior_takes_the_place_of_the_tuned_one() {
    let (ratings, _) = World::DEFAULT.draw();
    let with = |prior_scale| trained(&ratings, &TrainSettings { prior_scale, ..TrainSettings::new(4, 1) });
    let (tuned, weak, strong) = (with(None), with(Some(0.1)), with(Some(10.0)));
    assert!((0.5..=4.0).contains(&tuned.metrics.prior_scale), "{}", tuned.metrics.prior_scale);
    assert_eq!((weak.metrics.prior_scale, strong.metrics.prior_scale), (0.1, 10.0));
    assert_eq!(weak.item_features, strong.item_features, "features do not depend on it");
    // The stronger the prior, the less a user's weights are moved by the same ratings.
    let history = &ratings.list()[..3];
    let moved = |version: &Trained| {
        let of = |history: &[Rating]| posterior(version, history).weights();
        let (before, after) = (of(&[]), of(history));
        before.iter().zip(&after).map(|(before, after)| (after - before).powi(2)).sum::<f64>()
    };
    assert!(moved(&strong) < moved(&tuned) && moved(&tuned) < moved(&weak));
}

fn posterior(version: &Trained, ratings: &[Rating]) -> UserModel {
    let history: Vec<Example> = ratings.iter().map(|rating| version.example(rating)).collect();
    UserModel::rebuild(&version.prior.clone().into(), history.as_slice(), history.len() as u64).unwrap()
}

fn of_user(ratings: &[Rating], user: usize) -> Vec<Rating> {
    ratings.iter().filter(|rating| rating.user as usize == user).copied().collect()
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let (ratings, _) = World { users: 150, ..World::DEFAULT }.draw();
    let on = |threads: usize| {
        let threads = NonZeroUsize::new(threads).unwrap();
        trained(&ratings, &TrainSettings { threads, ..TrainSettings::new(8, 5) })
    };
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let one = on(1);
    for threads in [2, 3] {
        let other = on(threads);
        assert_eq!(bits(&one.item_features), bits(&other.item_features), "{threads} threads");
        assert_eq!(bits(&one.user_weights), bits(&other.user_weights), "{threads} threads");
        assert_eq!(one, other, "{threads} threads");
    }
    let reseeded = trained(&ratings, &TrainSettings::new(8, 6));
    assert_ne!(one.item_features, reseeded.item_features, "the seed is used");
}

#[test]
fn the_population_and_the_noise_variance_are_estimated() {
    let world = World::DEFAULT;
    let (ratings, kept) = world.draw();
    let version = trained(&ratings, &TrainSettings::new(6, 1));

    // 16,000 training ratings determine the noise variance to a few percent; the errors of items
    // count as noise too.
    let noise = version.prior.noise_variance();
    assert!((noise / world.noise.powi(2) - 1.0).abs() < 0.1, "noise {noise}");

    // The variance of scores between users: over all items, that of the prior equals the true one.
    // A covariance of 400 users is known to about 7 % (sqrt(2/400)), and the tuned scale has steps
    // of 1.41.
    let dim = version.dim;
    let variance = |features: &[f32]| -> f64 {
        let inverse = version.prior.inverse();
        let x: Vec<f64> = features.iter().map(|x| f64::from(*x)).collect();
        (0..dim).map(|i| (0..dim).map(|j| x[i] * inverse[i * dim + j] * x[j]).sum::<f64>()).sum::<f64>() * noise
    };
    let mean = version.item_features.chunks_exact(dim).map(variance).sum::<f64>() / world.items as f64;
    let truth = BIAS_VARIANCE + 2.0 * FACTOR_VARIANCE;
    assert!((0.65..1.5).contains(&(mean / truth)), "scores vary by {mean} between users, in truth by {truth}");

    // Mean and variance of the error of the prior alone, for users without observations.
    let nobody = UserModel::from_prior(&version.prior.clone().into()).unwrap();
    let (mut errors, mut squares) = (0.0, 0.0);
    for rating in &kept {
        let example = version.example(rating);
        let estimate = nobody.estimate(&Learning::from(version.prior.clone()), example.offset, example.features);
        errors += f64::from(rating.label - estimate.score);
        squares += (f64::from(rating.label - estimate.score) / f64::from(estimate.label_std)).powi(2);
    }
    let count = kept.len() as f64;
    // The mean over 400 users with a standard deviation of 0.6 has a standard deviation of 0.03.
    assert!((errors / count).abs() < 0.09, "biased by {}", errors / count);
    assert!((0.8..1.25).contains(&(squares / count)), "relative squares {}", squares / count);
}

#[test]
fn label_intervals_cover_and_learning_helps() {
    let world = World::DEFAULT;
    let (ratings, kept) = world.draw();
    let version = trained(&ratings, &TrainSettings::new(6, 1));
    let (mut covered, mut squares, mut prior_squares) = (0.0, 0.0, 0.0);
    let nobody = UserModel::from_prior(&version.prior.clone().into()).unwrap();
    for user in 0..world.users {
        let model = posterior(&version, &of_user(ratings.list(), user));
        for rating in of_user(&kept, user) {
            let example = version.example(&rating);
            let estimate = model.estimate(&Learning::from(version.prior.clone()), example.offset, example.features);
            covered += f64::from((rating.label - estimate.score).abs() <= 1.96 * estimate.label_std);
            squares += f64::from(rating.label - estimate.score).powi(2);
            let prior = nobody.estimate(&Learning::from(version.prior.clone()), example.offset, example.features);
            prior_squares += f64::from(rating.label - prior.score).powi(2);
        }
    }
    let count = kept.len() as f64;
    // With 16,000 Gaussian labels, the standard deviation of the share is 0.2 %; the rest allows
    // for the estimate of the noise.
    assert!((0.94..0.96).contains(&(covered / count)), "coverage {}", covered / count);
    let (rmse, prior_rmse) = ((squares / count).sqrt(), (prior_squares / count).sqrt());
    // The true model would reach 0.5, biases alone 0.66; forty ratings per user leave some error.
    assert!(rmse < 0.56, "rmse {rmse}");
    assert!(prior_rmse > 0.7, "rmse of the prior {prior_rmse}");
}

#[test]
fn features_have_unit_rms_and_end_in_one() {
    let (ratings, _) = World::DEFAULT.draw();
    let version = trained(&ratings, &TrainSettings::new(9, 2));
    let rows: Vec<&[f32]> = version.item_features.chunks_exact(9).collect();
    assert!(rows.iter().all(|row| row[8].to_bits() == 1.0_f32.to_bits()));
    assert_eq!(version.cold_item.features[8].to_bits(), 1.0_f32.to_bits());
    for j in 0..8 {
        let rms = (rows.iter().map(|row| f64::from(row[j]).powi(2)).sum::<f64>() / rows.len() as f64).sqrt();
        // A mean of 120 squares of f32.
        assert!((rms - 1.0).abs() < 1e-5, "feature {j} has rms {rms}");
    }
    assert!(version.prior.condition() <= CONDITION_MAX, "condition {}", version.prior.condition());
    assert!(version.metrics.prior_condition <= CONDITION_MAX);
}

#[test]
fn unrated_items_are_the_cold_item_and_unrated_users_the_mean() {
    let (ratings, _) = World { users: 60, ..World::DEFAULT }.draw();
    let wider = Ratings::new(61, 121, ratings.list().to_vec()).unwrap();
    let version = trained(&wider, &TrainSettings::new(5, 2));
    assert_eq!(version.item_features[120 * 5..], version.cold_item.features);
    assert_eq!(version.item_offsets[120].to_bits(), version.cold_item.offset.to_bits());
    for (weight, mean) in version.own_weights(60).iter().zip(version.prior.mean()) {
        assert!((f64::from(*weight) - mean).abs() < 1e-6, "{weight} is not {mean}");
    }
}

#[test]
fn pinned_features_replace_trained_ones_and_the_rest_is_fitted_to_them() {
    let (ratings, kept) = World::DEFAULT.draw();
    let settings = TrainSettings::new(5, 2);
    let free = trained(&ratings, &settings);
    let pinned =
        Pinned { items: vec![3, 8], features: [[0.5, -1.0, 2.0, 0.0, 1.0], [0.0, 0.0, -1.5, 1.0, 1.0]].concat() };
    let version = train(&ratings, &settings, &pinned, &Silent).unwrap();
    assert_eq!(version.item_features[3 * 5..4 * 5], pinned.features[..5]);
    assert_eq!(version.item_features[8 * 5..9 * 5], pinned.features[5..]);
    assert_eq!(version.item_features[..3 * 5], free.item_features[..3 * 5], "other items keep their trained features");
    assert_ne!(version.item_offsets, free.item_offsets, "offsets are fitted again");
    // Arbitrary vectors must not affect the scores: the offsets compensate, so the prior
    // predictions are not far off.
    let nobody = UserModel::from_prior(&version.prior.clone().into()).unwrap();
    let errors: Vec<f64> = kept
        .iter()
        .filter(|rating| rating.item == 3)
        .map(|rating| {
            let example = version.example(rating);
            f64::from(
                rating.label
                    - nobody.estimate(&Learning::from(version.prior.clone()), example.offset, example.features).score,
            )
        })
        .collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    // About 130 labels with a standard deviation of 0.7: three standard deviations of their mean,
    // and the same for the fit.
    assert!(mean.abs() < 0.35, "pinned item is off by {mean}");

    let short = Pinned { items: vec![3], features: vec![1.0; 4] };
    assert!(matches!(train(&ratings, &settings, &short, &Silent), Err(RetrainError::Prior(_))));
    let unknown = Pinned { items: vec![120], features: vec![1.0; 5] };
    assert!(matches!(train(&ratings, &settings, &unknown, &Silent), Err(RetrainError::IndexOutOfRange { .. })));
}

#[test]
fn the_smallest_data_sets_train() {
    let rating = |item, label| Rating { user: 0, item, label, weight: 1.0 };
    let three = vec![rating(0, 1.0), rating(0, 4.0), rating(0, 5.0)];
    let equal: Vec<Rating> = (0..200).map(|k| Rating { user: k % 7, item: k % 11, label: 3.0, weight: 1.0 }).collect();
    for dim in [1, 2, 3, 20] {
        let version = trained(&Ratings::new(1, 1, three.clone()).unwrap(), &TrainSettings::new(dim, 1));
        let score = posterior(&version, &three).estimate(
            &Learning::from(version.prior.clone()),
            version.item_offsets[0],
            &version.item_features,
        );
        assert!((1.0..=5.0).contains(&score.score), "dim {dim}: {score:?}");
        assert!(version.metrics.validation_rmse.is_none());

        let version = trained(&Ratings::new(7, 11, equal.clone()).unwrap(), &TrainSettings::new(dim, 1));
        let example = version.example(&equal[0]);
        let score = posterior(&version, &equal[..20])
            .estimate(&Learning::from(version.prior.clone()), example.offset, example.features)
            .score;
        // All labels are 3, and users and items are indistinguishable.
        assert!((score - 3.0).abs() < 1e-3, "dim {dim}: {score}");
    }
}

#[test]
fn extreme_labels_and_weights_train() {
    let list = (0..400_u32)
        .map(|k| Rating {
            user: k % 20,
            item: k * 7 % 30,
            label: if k % 3 == 0 { 1e6 } else { -1e6 },
            weight: if k % 5 == 0 { 1e6 } else { 1e-6 },
        })
        .collect();
    let version = trained(&Ratings::new(20, 30, list).unwrap(), &TrainSettings::new(6, 1));
    assert!(version.item_features.iter().chain(&version.item_offsets).all(|value| value.is_finite()));
    assert!(version.prior.condition() <= CONDITION_MAX);
}

#[test]
fn bad_input_is_rejected_by_name() {
    let rating = Rating { user: 0, item: 0, label: 1.0, weight: 1.0 };
    assert!(matches!(Ratings::new(1, 1, vec![]), Err(RetrainError::NoRatings)));
    let refused = |rating: Rating| Ratings::new(1, 1, vec![rating]).unwrap_err().to_string();
    assert_eq!(refused(Rating { item: 5, ..rating }), "rating 0: item index 5 is out of range; there are 1");
    assert_eq!(refused(Rating { label: f32::NAN, ..rating }), "rating 0: label must be finite");
    assert!(refused(Rating { weight: 0.0, ..rating }).contains("weight must be above 0"));
    let ratings = Ratings::new(1, 1, vec![rating]).unwrap();
    let refused = |settings| train(&ratings, &settings, &Pinned::default(), &Silent).unwrap_err().to_string();
    assert_eq!(refused(TrainSettings::new(0, 1)), "dim must be 1 to 512, got 0");
    assert!(
        refused(TrainSettings { iterations_max: 0, ..TrainSettings::new(2, 1) }).starts_with("iterations_max must be")
    );
    let prior_scale = Some(0.0);
    assert!(refused(TrainSettings { prior_scale, ..TrainSettings::new(2, 1) }).starts_with("prior_scale must be"));
    let regularization = Some(f64::NAN);
    assert!(
        refused(TrainSettings { regularization, ..TrainSettings::new(2, 1) }).starts_with("regularization must be")
    );
}

/// Users like the first forty items and dislike the next forty, or the reverse. Of the others, which all users like
/// alike, the former take the first half and the latter the second: what they take says what they like.
fn telling_choices() -> (Ratings, Vec<Rating>) {
    let mut random = ChaCha8Rng::seed_from_u64(41);
    let (mut known, mut asked) = (Vec::new(), Vec::new());
    for user in 0..3000_u32 {
        let liking = if user.is_multiple_of(2) { 0.8 } else { -0.8 };
        let mut rate = |items: std::ops::Range<u32>, ratings: &mut Vec<Rating>| {
            let (item, noise): (u32, f64) = (random.random_range(items), StandardNormal.sample(&mut random));
            let taste = if item < 40 {
                liking
            } else if item < 80 {
                -liking
            } else {
                0.0
            };
            ratings.push(Rating { user, item, label: (3.0 + taste + noise) as f32, weight: 1.0 });
        };
        let first = 80 + user % 2 * 20;
        (0..4).for_each(|_| rate(first..first + 20, &mut known));
        (0..4).for_each(|_| rate(0..80, &mut known));
        rate(0..80, &mut asked);
    }
    (Ratings::new(3000, 120, known).unwrap(), asked)
}

#[test]
fn what_users_take_is_learnt_where_it_says_something() {
    let (ratings, asked) = telling_choices();
    let settings = TrainSettings::new(5, 3);
    let version = trained(&ratings, &settings);
    assert_eq!(version.choices.len(), ratings.items() * version.dim, "the trainer finds that choices help");
    let rmse = |version: &Trained| {
        let learning = Learning::from(version.prior.clone());
        let square = |rating: &Rating| {
            let known: Vec<Rating> = ratings.list().iter().filter(|one| one.user == rating.user).copied().collect();
            let example = version.example(rating);
            let score = posterior(version, &known).estimate(&learning, example.offset, example.features).score;
            f64::from(rating.label - score).powi(2)
        };
        (asked.iter().map(square).sum::<f64>() / asked.len() as f64).sqrt()
    };
    // The deviation of the noise is 1, and the labels alone leave most of a liking of 0.8 unknown.
    let without = rmse(&Trained { choices: Vec::new(), pulls: Vec::new(), ..version.clone() });
    let with = rmse(&version);
    assert!(with < 1.1 && without > 1.15, "{with} with choices, {without} without");
    let parent = Parent { state: version.state.as_ref().unwrap(), fresh: None };
    let again = rmse(&refresh(&ratings, &settings, &Pinned::default(), parent, &Silent).unwrap());
    assert!(again < 1.02 * with, "{again} after a refresh, {with} before");
}

#[test]
fn items_with_fewer_labels_are_less_certain_and_unknown_ones_least() {
    let (ratings, _) = World::DEFAULT.draw();
    let version = trained(&ratings, &TrainSettings::new(4, 1));
    let mut counts = vec![0_u32; ratings.items()];
    ratings.list().iter().for_each(|rating| counts[rating.item as usize] += 1);
    assert_eq!(version.variances.len(), counts.len());
    let mean = |of: &dyn Fn(u32) -> bool| {
        let chosen: Vec<f32> = counts
            .iter()
            .zip(&version.variances)
            .filter(|(count, _)| of(**count))
            .map(|(_, variance)| *variance)
            .collect();
        assert!(!chosen.is_empty(), "the data has such items");
        chosen.iter().sum::<f32>() / chosen.len() as f32
    };
    let mut sorted = counts.clone();
    sorted.sort_unstable();
    let (few, many) = (sorted[sorted.len() / 4], sorted[3 * sorted.len() / 4]);
    let (rare, popular) = (mean(&|count| count > 0 && count <= few), mean(&|count| count >= many));
    assert!(
        0.0 < popular && popular < rare && rare < version.cold_variance,
        "{popular}, {rare}, {}",
        version.cold_variance
    );
}

/// Users rate in sessions of a dozen, with a mood that is another in each.
fn moody_users(rng: &mut ChaCha8Rng) -> Ratings {
    let (users, items, sessions, each) = (150_u32, 60_u32, 5, 12);
    let mut normal = || -> f64 { StandardNormal.sample(rng) };
    let worth: Vec<f64> = (0..items).map(|_| 0.5 * normal()).collect();
    let mut list = Vec::new();
    for user in 0..users {
        for session in 0..sessions {
            let mood = normal();
            for turn in 0..each {
                let item = (user * 7 + session * 13 + turn * 5) % items;
                let label = 3.0 + worth[item as usize] + mood + 0.5 * normal();
                list.push(Rating { user, item, label: label as f32, weight: 1.0 });
            }
        }
    }
    Ratings::new(users as usize, items as usize, list).unwrap()
}

#[test]
fn users_have_a_recent_bias_where_the_order_of_labels_says_something() {
    let mut rng = ChaCha8Rng::seed_from_u64(51);
    let ratings = moody_users(&mut rng);
    let settings = TrainSettings::new(4, 3);
    let version = trained(&ratings, &settings);
    let rule = version.prior.recent_bias().expect("the trainer finds the moods");
    assert!(rule.retained() < 0.95, "{rule:?} forgets within a session");
    let rmse = |learning: &Learning| {
        let (mut squares, mut count) = (0.0, 0.0);
        for user in 0..ratings.users() as u32 {
            let rows: Vec<&Rating> = ratings.list().iter().filter(|rating| rating.user == user).collect();
            let history: Vec<_> = rows.iter().map(|rating| version.example(rating)).collect();
            let mut state = UserModel::from_prior(learning).unwrap();
            for example in &history {
                let score = state.estimate(learning, example.offset, example.features).score;
                squares += f64::from(example.label - score).powi(2);
                count += 1.0;
                state.absorb(learning, history.as_slice()).unwrap();
            }
        }
        (squares / count).sqrt()
    };
    let with = rmse(&Learning::from(version.prior.clone()));
    let without = rmse(&Learning::from(version.prior.clone().with_recent_bias(None)));
    // The moods have a deviation of 1 and the noise 0.5; the first label of a session is always a surprise.
    assert!(with < 0.85 * without, "{with} with a recent bias, {without} without");
    let parent = Parent { state: version.state.as_ref().unwrap(), fresh: None };
    let again = refresh(&ratings, &settings, &Pinned::default(), parent, &Silent).unwrap();
    assert_eq!(again.prior.recent_bias(), Some(rule), "a refresh takes it over");

    let mut list = ratings.list().to_vec();
    list.shuffle(&mut rng);
    let shuffled = Ratings::new(ratings.users(), ratings.items(), list).unwrap();
    assert_eq!(trained(&shuffled, &settings).prior.recent_bias(), None, "in a random order there is nothing to find");
}
