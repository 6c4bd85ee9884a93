//! Generated data match their settings and true parameters.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use celeris_datasets::synthetic::LABEL_RANGE;
use celeris_datasets::{DatasetError, Synthetic, SyntheticSettings};
use celeris_model::{ItemId, UserId};

/// The default data, generated once for all tests.
fn demo() -> &'static Synthetic {
    static DEMO: LazyLock<Synthetic> = LazyLock::new(|| SyntheticSettings::default().generate().unwrap());
    &DEMO
}

fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (mean_x, mean_y) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let covariance: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    covariance / points.iter().map(|p| (p.0 - mean_x).powi(2)).sum::<f64>()
}

fn correlation(points: &[(f64, f64)]) -> f64 {
    let swapped: Vec<_> = points.iter().map(|p| (p.1, p.0)).collect();
    let product = slope(points) * slope(&swapped);
    product.sqrt() * slope(points).signum()
}

#[test]
fn equal_seeds_give_equal_data_and_others_differ() {
    assert_eq!(*demo(), SyntheticSettings::default().generate().unwrap());
    let other = SyntheticSettings { seed: 1, ..Default::default() }.generate().unwrap();
    assert_ne!(demo().dataset.ratings, other.dataset.ratings);
    assert_ne!(demo().dataset.items, other.dataset.items);
}

#[test]
fn the_default_data_are_pinned() {
    // Changing these values changes all results ever measured on synthetic data.
    let dataset = &demo().dataset;
    let items: Vec<String> =
        dataset.items[..3].iter().map(|item| format!("{} {} {}", item.id, item.title, item.genres.join("|"))).collect();
    assert_eq!(
        items,
        [
            "1 The Misplaced Best Man (1996) Comedy",
            "2 The Second-Best Wedding Planner (1972) Comedy",
            "3 The Unknown Trench (1947) War",
        ]
    );
    let ratings: Vec<String> = [0, 30_000, 59_999]
        .map(|row| &dataset.ratings[row])
        .map(|r| format!("{} {} {} {}", r.user, r.item, r.label, r.timestamp.0))
        .to_vec();
    assert_eq!(ratings, ["298 857 5 1104572653000", "460 522 2.5 1200865118000", "311 349 3.5 1327483677000"]);
}

#[test]
fn more_ratings_change_neither_films_nor_tastes() {
    let more = SyntheticSettings { ratings: 80_000, ..Default::default() }.generate().unwrap();
    assert_eq!(more.dataset.items, demo().dataset.items);
    assert_eq!(more.truth, demo().truth);
}

#[test]
fn counts_are_exact_and_no_pair_is_rated_twice() {
    let sparse = SyntheticSettings { users: 500, items: 20_000, ratings: 10_000, ..Default::default() };
    let dense = SyntheticSettings { users: 20, items: 30, ratings: 300, ..Default::default() };
    for settings in [SyntheticSettings::default(), sparse, dense] {
        let Synthetic { dataset, truth } = settings.generate().unwrap();
        assert_eq!(dataset.ratings.len(), settings.ratings);
        assert_eq!(dataset.items.len(), settings.items);
        let pairs: HashSet<_> = dataset.ratings.iter().map(|rating| (&rating.user, &rating.item)).collect();
        assert_eq!(pairs.len(), settings.ratings);
        assert!(dataset.ratings.is_sorted_by_key(|rating| rating.timestamp));
        // 2025 began.
        assert!(dataset.ratings.iter().all(|rating| rating.timestamp.0 <= 1_735_689_600_000));
        assert!(dataset.ratings.iter().all(|rating| truth.expected(&rating.user, &rating.item).is_some()));
        let (low, high) = LABEL_RANGE;
        let on_scale = |label: f32| (low..=high).contains(&label) && (label * 2.0).fract() == 0.0;
        assert!(dataset.ratings.iter().all(|rating| on_scale(rating.label)));
    }
}

#[test]
fn titles_are_unique_and_films_have_genres() {
    let many = SyntheticSettings { items: 50_000, ratings: 1_000, ..Default::default() }.generate().unwrap();
    for dataset in [&demo().dataset, &many.dataset] {
        let without_year = |title: &str| title.rsplit_once(" (").unwrap().0.to_owned();
        let titles: HashSet<String> = dataset.items.iter().map(|item| without_year(&item.title)).collect();
        assert_eq!(titles.len(), dataset.items.len());
        assert!(titles.iter().all(|title| !title.contains("  ") && !title.contains(char::is_control)));
        assert!(dataset.items.iter().all(|item| (1..=2).contains(&item.genres.len())));
    }
    let sequels = demo().dataset.items.iter().filter(|item| item.title.contains(", Part ")).count();
    assert_eq!(sequels, 0, "the demo's words suffice for its films");
}

#[test]
fn popularity_follows_the_zipf_exponent() {
    // Few ratings for each user, so that drawing without replacement hardly flattens the head. In
    // the last case most users rate so large a share of the items that the generator ranks all of
    // them instead of drawing one by one.
    for (exponent, items, ratings) in [(0.6, 1_000, 100_000), (1.0, 1_000, 100_000), (0.6, 300, 200_000)] {
        let settings =
            SyntheticSettings { users: 20_000, items, ratings, zipf_exponent: exponent, ..Default::default() };
        let mut counts: HashMap<ItemId, u32> = HashMap::new();
        for rating in settings.generate().unwrap().dataset.ratings {
            *counts.entry(rating.item).or_default() += 1;
        }
        let mut counts: Vec<f64> = counts.into_values().map(f64::from).collect();
        counts.sort_by(|a, b| b.total_cmp(a));
        let points: Vec<(f64, f64)> = (10..200).map(|rank| ((rank as f64).ln(), counts[rank - 1].ln())).collect();
        let measured = -slope(&points);
        // Tolerance for the remaining flattening and the counting noise of some hundred ratings for
        // each item.
        assert!((measured - exponent).abs() < 0.1, "exponent {exponent} over {items} items, measured {measured}");
    }
}

#[test]
fn activity_is_heavy_tailed() {
    let mut counts: HashMap<&UserId, usize> = HashMap::new();
    for rating in &demo().dataset.ratings {
        *counts.entry(&rating.user).or_default() += 1;
    }
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable();
    let (median, busiest_tenth) = (counts[counts.len() / 2], counts[counts.len() * 9 / 10..].iter().sum::<usize>());
    // Log-normal with spread 0.9: the median is 0.67 of the mean, the busiest tenth have 0.35 of
    // the ratings.
    assert!((55..80).contains(&median), "median {median} of a mean of 100");
    assert!((0.28..0.42).contains(&(busiest_tenth as f64 / 60_000.0)), "busiest tenth {busiest_tenth}");
}

#[test]
fn labels_are_the_expectation_plus_noise() {
    let Synthetic { dataset, truth } = demo();
    // Away from the ends of the scale, where clipping has no effect.
    let residuals: Vec<f64> = dataset
        .ratings
        .iter()
        .filter_map(|rating| {
            let expected = truth.expected(&rating.user, &rating.item).unwrap();
            (2.0..3.5).contains(&expected).then(|| f64::from(rating.label) - expected)
        })
        .collect();
    let n = residuals.len() as f64;
    let mean = residuals.iter().sum::<f64>() / n;
    let variance = residuals.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / n;
    // Rounding to a grid of step 0.5 adds the variance of a uniform, 0.5^2 / 12.
    let expected_variance = SyntheticSettings::default().noise.powi(2) + 0.25 / 12.0;
    // Five standard errors of a mean and of a variance over some 20,000 residuals.
    assert!(n > 15_000.0);
    assert!(mean.abs() < 5.0 * (expected_variance / n).sqrt(), "mean {mean}");
    assert!((variance / expected_variance - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "variance {variance}");
}

#[test]
fn expectation_is_offset_plus_weights_times_features() {
    let Synthetic { dataset, truth } = demo();
    let rating = &dataset.ratings[0];
    let (weights, features) = (truth.weights(&rating.user).unwrap(), truth.features(&rating.item).unwrap());
    assert_eq!((weights.len(), features.len(), features.last()), (truth.dim(), truth.dim(), Some(&1.0)));
    let response: f64 = weights.iter().zip(features).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
    let expected = f64::from(truth.offset(&rating.item).unwrap()) + response;
    assert_eq!(truth.expected(&rating.user, &rating.item), Some(expected));
    assert_eq!(truth.expected(&UserId::new("unknown").unwrap(), &rating.item), None);
}

#[test]
fn mean_ratings_by_genre_match_tastes() {
    let Synthetic { dataset, truth } = demo();
    let items = dataset.items_by_id();
    // A user's mean rating of horror minus that of all other films, against the true weight of
    // horror.
    for genre in ["Horror", "Children's", "Space Opera"] {
        let axis = truth.axis_of(genre).unwrap();
        let mut sums: HashMap<&UserId, [(f64, f64); 2]> = HashMap::new();
        for rating in &dataset.ratings {
            let of_genre = items[&rating.item].genres[0] == genre;
            let (sum, count) = &mut sums.entry(&rating.user).or_default()[usize::from(of_genre)];
            (*sum, *count) = (*sum + f64::from(rating.label), *count + 1.0);
        }
        let points: Vec<(f64, f64)> = sums
            .into_iter()
            .filter(|(_, [others, own])| others.1 >= 10.0 && own.1 >= 5.0)
            .map(|(user, [others, own])| {
                (f64::from(truth.weights(user).unwrap()[axis]), own.0 / own.1 - others.0 / others.1)
            })
            .collect();
        assert!(points.len() > 200);
        let measured = correlation(&points);
        assert!(measured > 0.85, "{genre}: correlation {measured}");
        // Films of the genre have a large feature on its axis, others do not.
        for item in &dataset.items {
            let feature = truth.features(&item.id).unwrap()[axis];
            assert_eq!(feature >= 0.35, item.genres.iter().any(|own| own == genre), "{} at {feature}", item.title);
        }
    }
}

#[test]
fn settings_out_of_range_are_named() {
    let sound = SyntheticSettings::default();
    let cases = [
        (SyntheticSettings { users: 0, ..sound.clone() }, "users must be 1 to 10 million, got 0"),
        (SyntheticSettings { true_dim: 1, ..sound.clone() }, "true_dim must be 2 to 256, got 1"),
        (SyntheticSettings { noise: f64::NAN, ..sound.clone() }, "noise must be 0 to 5, got NaN"),
        (SyntheticSettings { zipf_exponent: -1.0, ..sound.clone() }, "zipf_exponent must be 0 to 2, got -1"),
        (
            SyntheticSettings { users: 10, ..sound.clone() },
            "ratings must be at most half of all pairs of a user and an item, got 60000",
        ),
    ];
    for (settings, expected) in cases {
        let error = settings.generate().unwrap_err();
        assert!(matches!(error, DatasetError::Setting { .. }));
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn dimensions_beyond_and_below_the_genres_work() {
    for true_dim in [2, 5, 13, 50] {
        let settings = SyntheticSettings { true_dim, users: 50, items: 80, ratings: 500, ..Default::default() };
        let Synthetic { dataset, truth } = settings.generate().unwrap();
        assert_eq!(truth.dim(), true_dim);
        assert_eq!(truth.features(&dataset.items[79].id).unwrap().len(), true_dim);
        let genres: HashSet<&String> = dataset.items.iter().flat_map(|item| &item.genres).collect();
        assert_eq!(genres.len(), (true_dim - 1).min(12));
    }
}

#[test]
fn ratings_in_contexts_depend_on_genre_and_device_together() {
    let before = demo();
    let mut after = before.clone();
    let circumstances = after.put_into_contexts(3);
    assert_eq!(circumstances.len(), after.dataset.ratings.len());
    let mut again = before.clone();
    assert_eq!((again.put_into_contexts(3), &again), (circumstances.clone(), &after), "equal seeds give equal ratings");

    let items = before.dataset.items_by_id();
    // How much labels of a genre are moved on a device, on average.
    let moved = |genre: &str, device: usize| {
        let ratings = before.dataset.ratings.iter().zip(&after.dataset.ratings).zip(&circumstances);
        let moves: Vec<f64> = ratings
            .filter(|((before, _), at)| at.device == device && items[&before.item].genres == [genre])
            .map(|((before, after), _)| {
                assert!((LABEL_RANGE.0..=LABEL_RANGE.1).contains(&after.label) && (after.label * 2.0).fract() == 0.0);
                f64::from(after.label - before.label)
            })
            .collect();
        assert!(moves.len() > 50, "{genre}: {}", moves.len());
        moves.iter().sum::<f64>() / moves.len() as f64
    };
    let of_device = |genre: &str| moved(genre, 0) - moved(genre, 2);
    let (horror, comedy) = (of_device("Horror"), of_device("Comedy"));
    assert!((horror - comedy).abs() > 0.3, "{horror} {comedy}");
}
