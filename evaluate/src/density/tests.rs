#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::num::NonZeroUsize;

use celeris_datasets::synthetic::SyntheticSettings;
use celeris_model::Loss;

use super::*;
use crate::progress::Silent;

fn ratings() -> Vec<NamedRating> {
    let settings = SyntheticSettings { users: 60, items: 90, ratings: 1800, ..SyntheticSettings::default() };
    settings.generate().unwrap().dataset.ratings
}

fn settings() -> EvaluateSettings<'static> {
    EvaluateSettings { dim: 6, seed: 4, threads: NonZeroUsize::MIN, loss: Loss::Squared, progress: &Silent }
}

/// The stages of one order, whose labels are changed before everything is trained and predicted.
fn stages(change: impl Fn(&mut Parts)) -> Stages {
    let mut numbered = Numbered::default();
    let listed = numbered.number(&ratings());
    let mut parts = Parts::of(&by_user(numbered.users.len(), &listed), cut(10), Order { seed: 4, number: 0 });
    change(&mut parts);
    let versions = Versions::train(&numbered, &parts, &settings(), Part::unreported()).unwrap();
    versions.predict(&parts, &settings()).unwrap()
}

fn scores(predictions: &[Prediction]) -> Vec<(u32, u32, u32)> {
    predictions.iter().map(|one| (one.user, one.item, one.served.score.to_bits())).collect()
}

fn inverted(rows: &mut [Vec<Rating>]) {
    rows.iter_mut().flatten().for_each(|row| row.label = 5.5 - row.label);
}

#[test]
fn no_prediction_depends_on_labels_that_are_not_yet_known() {
    let as_given = stages(|_| ());
    let without_tested = stages(|parts| inverted(&mut parts.tested));
    let without_then = stages(|parts| inverted(&mut parts.then));
    for (one, other) in [
        (&as_given.initial, &without_tested.initial),
        (&as_given.online, &without_tested.online),
        (&as_given.retrained, &without_tested.retrained),
        (&as_given.initial, &without_then.initial),
    ] {
        assert_eq!(scores(one), scores(other));
    }
    // What was learnt does make a difference, so that the comparison above can fail.
    assert_ne!(scores(&as_given.online), scores(&without_then.online));
    assert_ne!(scores(&as_given.retrained), scores(&without_then.retrained));
}

#[test]
fn every_rating_of_an_included_user_is_used_once() {
    let ratings = ratings();
    let mut numbered = Numbered::default();
    let rows = by_user(60, &numbered.number(&ratings));
    let parts = Parts::of(&rows, cut(20), Order { seed: 4, number: 1 });
    for (user, row) in rows.iter().enumerate() {
        let mut used = [parts.first[user].as_slice(), &parts.then[user], &parts.tested[user]].concat();
        let sizes = [&parts.first, &parts.then, &parts.tested].map(|part| part[user].len());
        if row.len() < 28 {
            assert_eq!(sizes, [0; 3], "of {} ratings", row.len());
            continue;
        }
        assert_eq!(sizes, [20, 7, row.len() - 27]);
        let mut all = row.clone();
        all.sort_by_key(|row| row.item);
        used.sort_by_key(|row| row.item);
        assert_eq!(used, all);
    }
}

#[test]
fn the_report_counts_users_and_ratings_and_depends_on_the_seed_alone() {
    let ratings = ratings();
    let protocol = DensitySettings { densities: vec![5, 20, 5000], orders: 2 };
    let report = |seed| {
        let settings = EvaluateSettings { seed, ..settings() };
        evaluate_beside(None, ("synthetic", &ratings), &protocol, &settings).unwrap()
    };
    let first = report(4);
    assert_eq!(first, report(4));
    assert_ne!(first, report(5));
    let densities: Vec<usize> = first.densities.iter().map(|density| density.ratings_per_user).collect();
    assert_eq!(densities, [5, 20], "nobody has 5,008 ratings");
    for density in &first.densities {
        let of_user = |user: &celeris_model::UserId| ratings.iter().filter(|row| row.user == *user).count();
        let mut users: Vec<_> = ratings.iter().map(|row| row.user.clone()).collect();
        users.sort();
        users.dedup();
        let counts: Vec<usize> =
            users.iter().map(of_user).filter(|count| *count >= density.ratings_per_user + 8).collect();
        assert_eq!(density.users, counts.len());
        let tested = counts.iter().sum::<usize>() - counts.len() * (density.ratings_per_user + 7);
        assert_eq!(density.ratings, [counts.len() * density.ratings_per_user, 7 * counts.len(), tested]);
        // With twenty ratings of so few users, seven more say less than their noise.
        let noise = if density.ratings_per_user > 5 { density.initial.error.std_error } else { 0.0 };
        assert!(density.online.error.rmse < density.initial.error.rmse + noise, "{density}");
        assert!(density.retrained.error.rmse < density.initial.error.rmse, "{density}");
    }
}

#[test]
fn a_density_that_nobody_has_is_an_error() {
    let protocol = DensitySettings { densities: vec![4000], orders: 1 };
    let problem = evaluate_beside(None, ("synthetic", &ratings()), &protocol, &settings()).unwrap_err().to_string();
    assert!(problem.contains("n + 8 ratings"), "{problem}");
}
