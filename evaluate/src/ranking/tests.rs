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
fn popularity_lists_what_others_took_and_the_user_has_not() {
    let pair = |user, item| Rating { user, item, label: 1.0, weight: 1.0 };
    let seen = [vec![pair(0, 0)], vec![pair(1, 0), pair(1, 1)], vec![pair(2, 1), pair(2, 2)]];
    let tested = [pair(0, 1), pair(1, 2), pair(2, 3)];
    let taken = [2, 2, 1, 0];
    let scene = Scene { taken: Taken { counts: &taken, by_user: &seen }, times: &[], tested: &tested };
    assert_eq!(scene.of_popularity(), [vec![1, 2], vec![2], vec![0]], "nobody took the last");
}
