#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use celeris_model::{ItemId, Timestamp};

use super::*;

fn rating(user: &str, item: &str, time: i64) -> NamedRating {
    let (user, item) = (UserId::new(user).unwrap(), ItemId::new(item).unwrap());
    NamedRating { user, item, label: 4.0, weight: 1.0, timestamp: Timestamp(time) }
}

#[test]
fn the_latest_rating_of_a_user_is_left_out_and_a_lone_one_is_not() {
    let ratings =
        [rating("a", "1", 5), rating("b", "1", 9), rating("a", "2", 7), rating("a", "3", 7), rating("a", "4", 6)];
    let (known, last) = leave_last_out(&ratings);
    assert_eq!(last, [ratings[3].clone()], "of one time the later row");
    assert_eq!(known.len(), 4);
}

#[test]
fn places_become_recall_and_discounted_gain() {
    let tested = |users: u32| -> Vec<Rating> {
        (0..users).map(|user| Rating { user, item: 7, label: 1.0, weight: 1.0 }).collect()
    };
    let lists = Lists::of(&[vec![vec![7, 1], vec![1, 2], vec![1, 2, 7], vec![]]], &tested(4));
    assert!((lists.recall_at_10 - 0.5).abs() < 1e-12);
    assert!((lists.ndcg_at_10 - (1.0 + 0.5) / 4.0).abs() < 1e-12, "log2 of 2 and of 4");
    let twice = Lists::of(&[vec![vec![7], vec![]], vec![vec![], vec![1]]], &tested(2));
    assert!((twice.recall_at_10 - 0.25).abs() < 1e-12, "the mean over trainings");
    // The deviation of two 0 and two 1 is 0.5, over sqrt(4 - 1).
    assert!((lists.std_errors[0] - 0.5 / 3.0_f64.sqrt()).abs() < 1e-12);
}

#[test]
fn lists_of_twenty_find_what_lists_of_ten_do_not() {
    let tested = [Rating { user: 0, item: 12, label: 1.0, weight: 1.0 }];
    let lists = Lists::of(&[vec![(0..20).collect()]], &tested);
    assert_eq!((lists.recall_at_10, lists.ndcg_at_10, lists.recall_at_20), (0.0, 0.0, 1.0));
    assert!((lists.ndcg_at_20 - 1.0 / 14.0_f64.log2()).abs() < 1e-12, "{lists}");
}

#[test]
fn the_best_by_scores_are_sorted_and_not_yet_taken() {
    let pair = |user, item| Rating { user, item, label: 1.0, weight: 1.0 };
    let taken = Taken { counts: &[1, 2, 1, 0, 1], by_user: &[vec![pair(0, 1)]] };
    let scores = [0.5, 9.0, 0.5, 8.0, 0.7];
    assert_eq!(taken.best(0, &scores, 2), [4, 0], "the user has taken 1, and nobody 3");
    assert_eq!(taken.best(0, &scores, 9), [4, 0, 2]);
}

#[test]
fn ease_finds_what_similar_users_took_next_and_popularity_does_not() {
    // Twenty users take chains of four of forty items that follow each other; the last follows too.
    let rows = |user: u32| {
        (0..4).map(move |step| rating(&format!("u{user}"), &format!("{}", (user * 2 + step) % 40), step.into()))
    };
    let ratings: Vec<NamedRating> = (0..20).flat_map(rows).collect();
    let dataset = Dataset { name: "chains".into(), ratings, items: Vec::new() };
    let progress = &crate::progress::Silent;
    let settings =
        EvaluateSettings { dim: 4, seed: 1, threads: std::num::NonZeroUsize::MIN, loss: Loss::Implicit, progress };
    let (known, last) = leave_last_out(&dataset.ratings);
    let mut numbered = Numbered::default();
    let (pairs, tested) = (numbered.number(&known), numbered.number(&last));
    let seen = by_user(numbered.users.len(), &pairs);
    let counts = Ratings::new(numbered.users.len(), numbered.items.len(), pairs).unwrap().observed();
    let scene = Scene { taken: Taken { counts: &counts, by_user: &seen }, times: &[], tested: &tested };
    let baselines = Known { rows: &known, numbered: &numbered, settings: &settings };
    let (_, ease) = baselines.ease(&scene).unwrap().unwrap();
    let popular = Lists::of(&[scene.of_popularity()], &tested);
    // Two users share two items of each chain, so that the next of one is the third of another.
    assert!(ease.ndcg_at_20 > popular.ndcg_at_20 + 0.1, "{ease}\n{popular}");
}

#[test]
fn popularity_lists_what_others_took_and_the_user_has_not() {
    let pair = |user, item| Rating { user, item, label: 1.0, weight: 1.0 };
    let seen = [vec![pair(0, 0)], vec![pair(1, 0), pair(1, 1)], vec![pair(2, 1), pair(2, 2)]];
    let tested = [pair(0, 1), pair(1, 2), pair(2, 3)];
    let taken = [2, 2, 1, 0];
    let scene = Scene { taken: Taken { counts: &taken, by_user: &seen }, times: &[], tested: &tested };
    assert_eq!(scene.of_popularity(), [vec![1, 2], vec![2], vec![0]], "nobody took the last");
}
