//! Late parts of decisions, expiry of decisions, and decisions of erased users.

use std::ops::ControlFlow;

use crate::scenario::{amendment, append, item, model, model_name, new, observation, open, user};
use celeris_model::{
    CandidateDigest, Decision, DecisionId, InputsDigest, RecordKind, RecordedCandidates, Sequence, ShownSlot,
    Timestamp, UserEpoch, VersionId,
};
use celeris_storage::{DecisionRange, LateCandidates, LatePropensity, Storage, StorageOptions};

/// A decision made at time `at`, in milliseconds.
fn decision(who: &str, at: i64) -> Decision {
    let slot = |name: &str| ShownSlot {
        item: item(name),
        score: 4.0,
        std_error: 0.5,
        propensity: None,
        propensity_std_error: None,
        explored: false,
    };
    Decision {
        id: DecisionId::first_at(Timestamp(at)),
        model: model_name("films"),
        model_id: model("films"),
        version: VersionId(1),
        user: user(who),
        user_epoch: UserEpoch(4),
        timestamp: Timestamp(at),
        seed: 7,
        seed_given: false,
        policy: r#"{"name":"thompson"}"#.to_owned(),
        pool_share: None,
        pool: false,
        shown: vec![slot("m1"), slot("m2")],
        candidates: RecordedCandidates::Count(3),
        inputs: InputsDigest::default(),
        selection: None,
        context: None,
    }
}

fn propensities() -> Vec<LatePropensity> {
    vec![LatePropensity { value: 0.5, std_error: Some(0.01) }, LatePropensity { value: 0.25, std_error: None }]
}

/// The times of a model's decisions after `after` and before `before`.
fn times(storage: &Storage, after: Option<i64>, before: i64) -> Vec<i64> {
    let after = after.map(|at| DecisionId::first_at(Timestamp(at)));
    let range = DecisionRange { model: model("films"), after, before: Timestamp(before) };
    let mut times = Vec::new();
    let outcome = storage.decisions().scan_in(&range, |decision| {
        times.push(decision.timestamp.0);
        ControlFlow::<()>::Continue(())
    });
    assert!(outcome.unwrap().is_continue());
    times
}

#[test]
fn candidates_and_propensities_that_come_late_are_part_of_the_decision() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let items = [item("m1"), item("m2"), item("m3")];
    let made = decision("alice", 1_000);
    let full = items.to_vec();
    let late = LateCandidates { bytes: 48, make: Box::new(move || RecordedCandidates::Full(full)) };
    assert!(storage.decisions().record(made.clone(), Some(late)));
    // An attribution needs no candidates, and finds the decision at once.
    assert!(storage.decisions().unwritten(made.model_id, &made.id).is_none_or(|found| found.shown == made.shown));
    let found = storage.decisions().get(made.model_id, &made.id).unwrap().unwrap();
    assert_eq!(found.candidates, RecordedCandidates::Full(items.to_vec()));
    let digest = RecordedCandidates::Digest { count: 3, digest: CandidateDigest::of(&items) };
    let (other, of_all) = (decision("alice", 2_000), digest.clone());
    let late = LateCandidates { bytes: 20, make: Box::new(move || of_all) };
    assert!(storage.decisions().record(other.clone(), Some(late)));
    assert!(storage.decisions().complete(other.model_id, &other.id, propensities()));
    storage.decisions().flush();
    let found = storage.decisions().get(other.model_id, &other.id).unwrap().unwrap();
    assert_eq!(found.candidates, digest);
    let shown: Vec<_> = found.shown.iter().map(|slot| (slot.propensity, slot.propensity_std_error)).collect();
    assert_eq!(shown, [(Some(0.5), Some(0.01)), (Some(0.25), None)]);
}

#[test]
fn late_parts_do_not_restore_an_erased_decision() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let made = decision("alice", 1_000);
    assert!(storage.decisions().record(made.clone(), None));
    assert_eq!(storage.decisions().erased(made.model_id).unwrap(), 0);
    assert_eq!(storage.decisions().erase(&[made.model_id], &made.user).unwrap().finish(UserEpoch(2)), 1);
    assert!(storage.decisions().complete(made.model_id, &made.id, propensities()));
    storage.decisions().flush();
    assert_eq!(storage.decisions().get(made.model_id, &made.id).unwrap(), None);
    assert_eq!(storage.decisions().erased(made.model_id).unwrap(), 1, "copies can detect the erasure");
    drop(storage);
    assert_eq!(open(dir.path()).decisions().erased(made.model_id).unwrap(), 1);
}

#[test]
fn decisions_are_in_the_order_of_time_and_expire_by_it() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    // Written in another order than made, as by concurrent threads.
    for at in [5_000, 1_000, 3_000, 2_000, 4_000] {
        assert!(storage.decisions().record(decision("alice", at), None));
    }
    let other = Decision { model_id: model("books"), ..decision("alice", 500) };
    assert!(storage.decisions().record(other.clone(), None));
    assert_eq!(times(&storage, None, 10_000), [1_000, 2_000, 3_000, 4_000, 5_000]);
    assert_eq!(times(&storage, Some(2_000), 5_000), [3_000, 4_000], "both bounds are exclusive");
    assert_eq!(storage.decisions().models().unwrap(), [model("films"), model("books")]);
    assert_eq!(storage.decisions().expire(model("films"), Timestamp(3_000)).unwrap(), 2);
    assert_eq!(storage.decisions().expire(model("films"), Timestamp(3_000)).unwrap(), 0);
    assert_eq!(times(&storage, None, 10_000), [3_000, 4_000, 5_000]);
    assert_eq!(storage.decisions().counters().expired, 2);
    assert_eq!(storage.decisions().get(other.model_id, &other.id).unwrap().as_deref(), Some(&other));
    assert_eq!(
        storage.decisions().erase(&[model("films")], &user("alice")).unwrap().finish(UserEpoch(2)),
        3,
        "no index entries of expired decisions"
    );
}

#[tokio::test]
async fn decisions_of_users_whom_only_the_log_has_erased_are_erased() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    for (who, at) in [("alice", 1_000), ("bob", 2_000), ("carol", 3_000)] {
        new(storage.log().append(append(observation(&user(who), 1))).unwrap()).durable().await.unwrap();
        assert!(storage.decisions().record(decision(who, at), None));
    }
    // As when the database is replaced by one that has erased alice, and knows nothing of decisions.
    let erasure = amendment(RecordKind::Erase, &user("alice"), 2, None);
    new(storage.log().append(append(erasure)).unwrap()).durable().await.unwrap();
    // A retraction is no erasure.
    let retraction = amendment(RecordKind::Retract, &user("bob"), 2, Some(Sequence(1)));
    new(storage.log().append(append(retraction)).unwrap()).durable().await.unwrap();
    assert_eq!(storage.erase_decisions_of_erased_users().unwrap(), 1);
    assert_eq!(storage.erase_decisions_of_erased_users().unwrap(), 0);
    let mut left = Vec::new();
    let scanned = storage.decisions().scan(model("films"), |decision| {
        left.push(decision.user);
        ControlFlow::<()>::Continue(())
    });
    assert!(scanned.unwrap().is_continue());
    assert_eq!(left, [user("bob"), user("carol")]);
    assert_eq!(storage.decisions().erased(model("films")).unwrap(), 1, "sealed copies can detect it");
}

#[test]
fn bytes_beyond_the_rate_are_refused_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let options = StorageOptions { decision_bytes_per_second: 4_000, ..StorageOptions::default() };
    let storage = Storage::open(dir.path(), &options).unwrap();
    let offered = 1_000;
    let accepted = (0..offered).filter(|at| storage.decisions().record(decision("alice", *at), None)).count() as u64;
    storage.decisions().flush();
    let counters = storage.decisions().counters();
    assert_eq!((counters.accepted, counters.over_rate), (accepted, offered as u64 - accepted));
    assert!((1..offered as u64).contains(&accepted), "{accepted} of {offered}");
    assert_eq!(counters.dropped(), counters.over_rate);
    assert!(counters.bytes > 0);
}
