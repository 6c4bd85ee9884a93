#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Mutex;

use celeris_model::{Estimate, ItemId, Learning, UserId};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::Progress;
use crate::lists;
use crate::predict;
use crate::progress::Silent;

const DAY: i64 = 86_400_000;

fn row(user: u32, item: u32, label: f32, day: i64) -> NamedRating {
    NamedRating {
        user: UserId::new(format!("u{user}")).unwrap(),
        item: ItemId::new(format!("i{item}")).unwrap(),
        label,
        weight: 1.0,
        timestamp: Timestamp(day * DAY),
    }
}

fn settings(loss: Loss) -> EvaluateSettings<'static> {
    EvaluateSettings { dim: 8, seed: 5, threads: NonZeroUsize::MIN, loss, progress: &Silent }
}

/// What 120 users did with 40 items of two kinds, of which each user likes one: rows of clicks and
/// ignored items, or only of what they took, over a hundred days.
fn tastes(clicks: bool) -> Vec<NamedRating> {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut rows = Vec::new();
    for number in 0..4800 {
        let (user, item) = (random.random_range(0..120), random.random_range(0..40));
        // Items with a low number are more popular too.
        let rate = if user % 2 == item % 2 { 0.5 } else { 0.1 } - f64::from(item) / 500.0;
        let taken = random.random_bool(rate);
        if clicks || taken {
            rows.push(row(user, item, if taken { 1.0 } else { 0.0 }, 20_000 + number / 48));
        }
    }
    rows
}

#[test]
fn a_split_by_time_trains_on_what_was_earlier() {
    let mut rows: Vec<NamedRating> = (0..100).map(|n| row(n % 7, n % 9, 1.0, 20_000 + i64::from(n) / 4)).collect();
    rows.reverse();
    let parts = Holdout::Latest.parts(&rows, 1).unwrap();
    // The tenth begins in the middle of day 22, whose rows are all predicted.
    assert_eq!((parts.known.len(), parts.tested.len()), (88, 12));
    let header = parts.header("rows", Holdout::Latest, &settings(Loss::Squared));
    assert_eq!(header.test_from.as_deref(), Some("2024-10-26T00:00:00Z"), "20,022 days after the first of 1970");
    let later: Vec<NamedRating> = rows.iter().filter(|row| row.timestamp.0 >= 20_022 * DAY).cloned().collect();
    let mut numbered = parts.numbered;
    assert_eq!(numbered.number(&later), parts.tested);
}

#[test]
fn a_split_by_time_needs_times() {
    let mut rows: Vec<NamedRating> = (0..100).map(|n| row(n % 7, n % 9, 1.0, i64::from(n) + 1)).collect();
    rows[3].timestamp = Timestamp::default();
    let problem = |rows: &[NamedRating]| Holdout::Latest.parts(rows, 1).err().unwrap().to_string();
    assert!(problem(&rows).starts_with("1 rows have no time"), "{}", problem(&rows));
    rows.iter_mut().for_each(|row| row.timestamp = Timestamp(DAY));
    assert!(problem(&rows).contains("nearly all rows are equal"), "{}", problem(&rows));
    assert!(problem(&rows[..5]).contains("needs 10 rows"));
    assert!(Holdout::Random.parts(&rows[..5], 1).err().unwrap().to_string().contains("at least 10 rows"));
}

#[test]
fn rows_of_unseen_users_and_items_are_counted() {
    let rows = [row(1, 1, 1.0, 1), row(2, 2, 2.0, 1)];
    let test = [row(1, 2, 1.0, 2), row(3, 1, 1.0, 2), row(3, 2, 1.0, 2), row(3, 9, 1.0, 2), row(2, 8, 1.0, 2)];
    let parts = Holdout::File(&test).parts(&rows, 1).unwrap();
    let header = parts.header("rows", Holdout::File(&test), &settings(Loss::Squared));
    assert_eq!((header.test_ratings_of_unseen_users, header.test_ratings_of_unseen_items), (3, 2));
    let shown = header.to_string();
    assert!(shown.contains("who are scored as the average user"), "{shown}");
    assert!(shown.contains("the version's features for unknown items"), "{shown}");
}

#[test]
fn clicks_are_judged_by_the_probabilities_that_would_be_served() {
    let rows = tastes(true);
    let settings = settings(Loss::Logistic);
    let SplitReport::Clicks(report) = evaluate_split("clicks", &rows, Holdout::Latest, 10, &settings).unwrap() else {
        panic!("another report");
    };
    let parts = Holdout::Latest.parts(&rows, settings.seed).unwrap();
    let trained = parts.numbered.train(&parts.known, &settings, settings.part(0, 1)).unwrap();
    let [learnt, tested] = parts.by_user();
    let predictions = predict(&trained, Loss::Logistic, settings.part(0, 1), (&learnt, &tested)).unwrap();
    // MacKay's moderated probability, from score and standard error.
    let probability = |Estimate { score, std_error, .. }: Estimate| {
        let kappa = 1.0 / (1.0 + std::f64::consts::PI * f64::from(std_error).powi(2) / 8.0).sqrt();
        1.0 / (1.0 + (-kappa * f64::from(score)).exp())
    };
    let of_label = |label: f32, probability: f64| if label == 1.0 { probability } else { 1.0 - probability };
    let count = predictions.len() as f64;
    let surprise: f64 = predictions.iter().map(|one| -of_label(one.label, probability(one.served)).ln()).sum();
    // Served probabilities are single precision.
    assert!((report.ours.log_loss - surprise / count).abs() < 1e-6, "{report:?}");

    let clicked = parts.known.iter().filter(|row| row.label == 1.0).count();
    let rate = clicked as f64 / parts.known.len() as f64;
    let surprise: f64 = predictions.iter().map(|one| -of_label(one.label, rate).ln()).sum();
    assert!((report.train_rate - rate).abs() < 1e-12);
    assert!((report.base_rate.log_loss - surprise / count).abs() < 1e-12, "{report:?}");
    assert_eq!(report.base_rate.auc, Some(0.5));
    assert!((report.base_rate.calibration_error - (report.train_rate - report.test_rate).abs()).abs() < 1e-12);

    // The tastes are the users' own: only a personal model finds them.
    assert!(report.ours.log_loss < report.biases.log_loss - 0.02, "{report:?}");
    assert!(report.ours.auc.unwrap() > report.biases.auc.unwrap() + 0.1, "{report:?}");
    // The rate of clicks in 48 rows, a tenth, varies by 0.06.
    assert!(report.ours.calibration_error < 0.12, "{report:?}");
    assert_eq!(report.reliability.iter().map(|part| part.rows).sum::<usize>(), report.header.test_ratings);
}

#[test]
fn labels_of_one_kind_are_no_clicks() {
    let rows: Vec<NamedRating> = tastes(false);
    let problem = evaluate_split("takings", &rows, Holdout::Random, 10, &settings(Loss::Logistic)).unwrap_err();
    assert!(problem.to_string().contains("--loss implicit"), "{problem}");
}

/// The best items of a user by the definition: every allowed item scored, and sorted.
fn best_by_sorting(scores: &[f64], allowed: impl Fn(u32) -> bool, k: usize) -> Vec<u32> {
    let mut items: Vec<u32> = (0..scores.len() as u32).filter(|item| allowed(*item)).collect();
    items.sort_by(|one, other| scores[*other as usize].total_cmp(&scores[*one as usize]).then(one.cmp(other)));
    items.truncate(k);
    items
}

#[test]
fn lists_are_judged_by_what_users_took_next() {
    let mut rows = tastes(false);
    // Of one user, a repeated item and a pair of equal rows in the end.
    let repeated = rows.iter().find(|row| row.user.as_str() == "u4").unwrap().item.clone();
    for _ in 0..2 {
        rows.push(NamedRating { item: repeated.clone(), ..row(4, 0, 2.0, 20_099) });
    }
    // Some users took more than two.
    let (k, settings) = (2, settings(Loss::Implicit));
    let SplitReport::Plays(report) = evaluate_split("takings", &rows, Holdout::Latest, k, &settings).unwrap() else {
        panic!("another report");
    };
    let parts = Holdout::Latest.parts(&rows, settings.seed).unwrap();
    let trained = parts.numbered.train(&parts.known, &settings, settings.part(0, 1)).unwrap();
    let learning = Learning::new(trained.prior.clone(), Loss::Implicit, None);
    let [known, tested] = parts.by_user();
    let mut popularity = vec![0.0; parts.numbered.items.len()];
    parts.known.iter().for_each(|row| popularity[row.item as usize] += 1.0);

    let mut sums = [0.0; 4];
    let (mut users, mut found_before) = (0, 0);
    for (known, tested) in known.iter().zip(&tested) {
        let before = |item: u32| known.iter().any(|row| row.item == item);
        found_before += tested.iter().filter(|row| before(row.item)).count();
        let mut relevant: Vec<u32> = tested.iter().map(|row| row.item).filter(|item| !before(*item)).collect();
        relevant.sort_unstable();
        relevant.dedup();
        if relevant.is_empty() {
            continue;
        }
        users += 1;
        let weights = lists::weights(&trained, &learning, known, &[]).unwrap();
        let score = |item: usize| {
            let features = &trained.item_features[item * trained.dim..][..trained.dim];
            weights.iter().zip(features).map(|(weight, feature)| f64::from(*weight) * f64::from(*feature)).sum()
        };
        let scores: Vec<f64> = (0..popularity.len()).map(score).collect();
        let allowed = |item: u32| popularity[item as usize] > 0.0 && !before(item);
        for (place, by) in [&scores, &popularity].into_iter().enumerate() {
            let list = best_by_sorting(by, allowed, k);
            let gains =
                |items: &mut dyn Iterator<Item = usize>| items.map(|n| 1.0 / (n as f64 + 2.0).log2()).sum::<f64>();
            let hits: Vec<usize> = (0..list.len()).filter(|n| relevant.contains(&list[*n])).collect();
            sums[2 * place] += hits.len() as f64 / relevant.len().min(k) as f64;
            sums[2 * place + 1] += gains(&mut hits.into_iter()) / gains(&mut (0..relevant.len().min(k)));
        }
    }
    assert_eq!((report.users, report.taken_before), (users, found_before));
    let figures = [report.ours.recall, report.ours.ndcg, report.popularity.recall, report.popularity.ndcg];
    for (figure, sum) in figures.iter().zip(sums) {
        assert!((figure - sum / users as f64).abs() < 1e-9, "{figure} {} {report:?}", sum / users as f64);
    }
    assert!(report.ours.recall > report.popularity.recall + 0.05, "{report:?}");
}

/// Notes the stages, and whether shares are shares.
#[derive(Default)]
struct Noted(Mutex<Vec<(String, Option<u64>)>>);

impl Progress for Noted {
    fn begin(&self, stage: &str, count: Option<u64>) {
        self.0.lock().unwrap().push((stage.to_owned(), count));
    }

    fn at(&self, share: f64) {
        assert!((0.0..=1.0).contains(&share), "{share}");
        assert!(!self.0.lock().unwrap().is_empty(), "no stage has begun");
    }
}

#[test]
fn every_stage_is_reported_before_it_runs() {
    let mut stages = HashMap::new();
    for loss in [Loss::Squared, Loss::Logistic, Loss::Implicit] {
        let noted = Noted::default();
        let settings = EvaluateSettings { progress: &noted, ..settings(loss) };
        evaluate_split("tastes", &tastes(loss != Loss::Implicit), Holdout::Random, 10, &settings).unwrap();
        stages.insert(format!("{loss:?}"), noted.0.into_inner().unwrap());
    }
    let trainings = [("training".to_owned(), None), ("training biases alone".to_owned(), None)];
    let predicting = ("predicting rows".to_owned(), Some(480));
    for graded in ["Squared", "Logistic"] {
        assert_eq!(stages[graded], [trainings[0].clone(), trainings[1].clone(), predicting.clone()]);
    }
    let implicit = &stages["Implicit"];
    assert_eq!(implicit[0], trainings[0]);
    assert_eq!(implicit[1].0, "listing for users");
}
