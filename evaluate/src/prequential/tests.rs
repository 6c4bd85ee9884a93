#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::num::NonZeroUsize;

use celeris_datasets::synthetic::SyntheticSettings;
use celeris_model::{Loss, UserModel};

use super::*;
use crate::progress::Silent;

const PROTOCOL: PrequentialSettings = PrequentialSettings { first_share: 0.3, retrainings: 2 };

fn settings() -> EvaluateSettings<'static> {
    EvaluateSettings { dim: 6, seed: 4, threads: NonZeroUsize::MIN, loss: Loss::Squared, progress: &Silent }
}

/// Rows in the order of their time.
fn rows() -> Vec<NamedRating> {
    let settings = SyntheticSettings { users: 60, items: 90, ratings: 1200, ..SyntheticSettings::default() };
    settings.generate().unwrap().dataset.ratings
}

fn scores(rows: &[NamedRating], way: Way) -> Vec<u32> {
    let settings = settings();
    let scene = Scene::new(rows, PROTOCOL, &settings).unwrap();
    scene.scored(way).unwrap().0.iter().map(|one| one.score.to_bits()).collect()
}

#[test]
fn a_row_is_predicted_without_its_label_and_without_later_ones() {
    let rows = rows();
    let first = 360;
    // A row in the middle of each version's segment of 280 rows, and the first of one.
    for changed in [first + 140, first + 280, first + 700] {
        let mut other = rows.clone();
        other[changed..].iter_mut().for_each(|row| row.label = 5.5 - row.label);
        for way in Way::ALL {
            let (before, after) = (scores(&rows, way), scores(&other, way));
            let until = changed - first + 1;
            assert_eq!(before[..until], after[..until], "{way:?}, row {changed}");
            // The labels do count later, so that the comparison above can fail.
            assert_ne!(before[until..], after[until..], "{way:?}, row {changed}");
        }
    }
}

#[test]
fn a_fixed_version_predicts_by_the_state_rebuilt_from_earlier_rows() {
    let rows = rows();
    let settings = settings();
    let scene = Scene::new(&rows, PROTOCOL, &settings).unwrap();
    let version = scene.trained(&scene.ratings[..scene.first]).unwrap();
    let learning = version.learning();
    let scored = scene.scored(Way::Fixed).unwrap().0;
    assert_eq!(scored.len(), 840);
    for number in [0, 100, 839] {
        let position = scene.first + number;
        let row = scene.ratings[position];
        let earlier = scene.ratings[..position].iter().filter(|other| other.user == row.user);
        let history: Vec<_> = earlier.map(|other| version.version.example(other)).collect();
        let state = UserModel::rebuild(&learning, history.as_slice(), history.len() as u64).unwrap();
        let example = version.version.example(&row);
        let estimate = state.estimate(&learning, example.offset, example.features);
        assert_eq!(scored[number].score, estimate.score, "row {position}");
    }
}

#[test]
fn the_report_counts_unseen_users_and_depends_on_the_seed_alone() {
    let rows = rows();
    let report = ours("synthetic", &rows, PROTOCOL, &settings()).unwrap();
    assert_eq!(report, ours("synthetic", &rows, PROTOCOL, &settings()).unwrap());
    assert_eq!((report.train_ratings, report.stream_ratings), (360, 840));
    let unseen = rows[360..].iter().filter(|row| rows[..360].iter().all(|known| known.user != row.user)).count();
    assert!(unseen > 0, "the generator has users who come later");
    assert_eq!(report.stream_ratings_of_unseen_users, unseen);
    for line in &report.ours {
        assert_eq!(line.rmse_so_far.len(), 10);
        assert!((line.rmse_so_far[9] - line.error.rmse).abs() < 1e-12, "{line}");
    }
    let names: Vec<_> = report.ours.iter().map(|line| line.name).collect();
    assert_eq!(names, ["fixed", "refreshed", "retrained", "tuned"]);
    assert!(report.ours[2].error.rmse < report.ours[0].error.rmse, "more data are better: {report}");
}

#[test]
fn errors_so_far_are_those_of_the_rows_until_then() {
    let row = |user, label| Rating { user, item: 0, label, weight: 1.0 };
    let stream: Vec<Rating> = (0..20).map(|number| row(number % 3, number as f32)).collect();
    let scores: Vec<f32> = (0..20).map(|number| number as f32 + if number < 10 { 1.0 } else { 0.0 }).collect();
    let line = Line::of("line", &stream, &scores, (0.0, 20.0));
    assert_eq!(line.rmse_so_far[..5], [1.0; 5]);
    assert!((line.rmse_so_far[9] - 0.5_f64.sqrt()).abs() < 1e-12);
}

#[test]
fn rows_without_times_and_too_few_rows_are_refused() {
    let mut rows = rows();
    let problem =
        |rows: &[NamedRating]| evaluate_prequential("rows", rows, PROTOCOL, &settings()).unwrap_err().to_string();
    assert!(problem(&rows[..12]).contains("too few"), "{}", problem(&rows[..12]));
    rows[7].timestamp = Timestamp::default();
    assert!(problem(&rows).starts_with("1 rows have no time"), "{}", problem(&rows));
}
