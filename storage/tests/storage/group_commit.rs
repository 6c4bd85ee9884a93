//! Concurrent writers share syncs, and the queue is bounded.

use crate::scenario::{append, assert_consistent, id, item, new, observation, open, stream, user};
use celeris_model::Sequence;
use celeris_storage::{Appended, Placed, Storage, StorageError, StorageOptions};

#[tokio::test]
async fn concurrent_writers_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let storage = storage.clone();
            tokio::spawn(async move {
                for epoch in 1..=50 {
                    let record = observation(&user(&format!("user-{writer}")), epoch);
                    new(storage.log().append(append(record)).unwrap()).durable().await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let counters = storage.log().counters();
    assert_eq!(counters.records, 64 * 50);
    // Each of the 50 rounds needs one or two syncs; a quarter of the records is far more than that
    // on any machine.
    assert!(counters.commits * 4 < counters.records, "{counters:?}");
    assert_consistent(&storage, &stream("films"));
}

#[tokio::test]
async fn appends_of_one_caller_keep_their_order_and_waits_are_monotonic() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let placed: Vec<_> =
        (1..=300).map(|epoch| new(storage.log().append(append(observation(&user("u"), epoch))).unwrap())).collect();
    let tickets: Vec<_> = placed.iter().map(Placed::ticket).collect();
    tickets[150].durable().await.unwrap();
    assert!(tickets[..=150].iter().all(|ticket| ticket.is_durable()));
    for (index, placed) in placed.iter().enumerate() {
        assert_eq!(placed.durable().await.unwrap().sequence, Sequence(index as u64 + 1));
    }
}

#[tokio::test]
async fn a_full_queue_refuses_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = StorageOptions { queue_records_max: 4, commit_records_max: 2, ..StorageOptions::default() };
    let storage = Storage::open(dir.path(), &options).unwrap();
    let mut accepted = Vec::new();
    let mut refused = 0;
    let mut epoch = 1;
    // A push takes a microsecond and a sync far longer, so the queue fills up at once.
    while refused < 100 || accepted.len() < 20 {
        match storage.log().append(append(observation(&user("u"), epoch))) {
            Ok(Appended::New(placed)) => {
                accepted.push(placed);
                epoch += 1;
            }
            Err(StorageError::Overloaded { queued }) => {
                assert_eq!(queued, 4);
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    for (index, placed) in accepted.iter().enumerate() {
        assert_eq!(placed.durable().await.unwrap().sequence, Sequence(index as u64 + 1));
    }
    assert_eq!(storage.log().counters().records, accepted.len() as u64);
    assert_consistent(&storage, &stream("films"));
}

#[tokio::test]
async fn a_lone_append_is_committed_alone() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    for writers in [1, 2, 64] {
        let before = storage.log().counters();
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let storage = storage.clone();
                tokio::spawn(async move {
                    for epoch in 1..=30 {
                        let name = format!("user-{writer}-of-{writers}");
                        new(storage.log().append(append(observation(&user(&name), epoch))).unwrap())
                            .durable()
                            .await
                            .unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        // Each writer waits for its own record before it sends the next, so it takes part in 30
        // commits; without concurrent writers, each record has its own commit.
        let commits = storage.log().counters().commits - before.commits;
        assert!((30..=30 * writers).contains(&commits), "{commits} commits with {writers} writers");
    }
}

/// Bytes of write-ahead log and flushes per observation, over `count` observations.
async fn cost(ids: bool, count: u64) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let mut waiting = Vec::new();
    for n in 0..count {
        let mut record = observation(&user(&format!("user-{:05}", n % 10_000)), n / 10_000 + 1);
        record.item = Some(item(&format!("{:06}", n * 7919 % 5000)));
        record.predictions[0].predicted = (n * 7919 % 1000) as f32 / 777.0;
        // Half of the digits are generated, so that nothing repeats: ids do not compress.
        let hash =
            |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        record.observation_id = ids.then(|| id(&format!("{:016x}{:016x}", hash(n), hash(n + count))));
        waiting.push(new(storage.log().append(append(record)).unwrap()));
        if waiting.len() == 4096 {
            for placed in waiting.drain(..) {
                placed.durable().await.unwrap();
            }
        }
    }
    storage.close().unwrap();
    let written = storage.bytes_written();
    (written.wal + written.flush) as f64 / count as f64
}

#[tokio::test]
async fn an_observation_costs_few_bytes() {
    // The guarantee of the project. The first commits of a store cost more, so long runs are
    // cheaper.
    let (without, with) = (cost(false, 50_000).await, cost(true, 50_000).await);
    assert!(without <= 200.0, "{without} bytes without an id");
    assert!(with <= 300.0, "{with} bytes with an id of 32 characters");
}

#[tokio::test]
async fn an_oversized_record_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let mut record = observation(&user("u"), 1);
    record.feedback = Some("x".repeat(70_000));
    assert!(matches!(storage.log().append(append(record)), Err(StorageError::RecordTooLarge { bytes: 70_000.., .. })));
    let committed = new(storage.log().append(append(observation(&user("u"), 1))).unwrap()).durable().await.unwrap();
    assert_eq!(committed.sequence, Sequence(1), "a refused record takes no sequence");
}
