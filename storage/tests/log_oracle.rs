//! The log against a naive one in memory, under random appends, repeats, deletions and reopenings.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod scenario;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use celeris_model::{Partition, Record, RecordKind, Sequence, UserEpoch};
use celeris_storage::{Append, Appended, LogRange, Storage};
use proptest::prelude::*;
use scenario::{assert_consistent, id, log_of, observation, open, stream, user};

const STREAMS: [&str; 3] = ["a", "ab", "b"];
const USERS: usize = 5;

#[derive(Debug, Clone)]
enum Step {
    Append { stream: usize, user: usize, id: Option<u8>, kind: RecordKind },
    DeleteStream(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let kind =
        prop_oneof![4 => Just(RecordKind::Observe), 1 => Just(RecordKind::Correct), 1 => Just(RecordKind::Erase)];
    let append = (0..STREAMS.len(), 0..USERS, prop::option::of(0..12_u8), kind)
        .prop_map(|(stream, user, id, kind)| Step::Append { stream, user, id, kind });
    prop_oneof![60 => append, 1 => (0..STREAMS.len()).prop_map(Step::DeleteStream), 2 => Just(Step::Reopen)]
}

/// Records by stream, in order of arrival, with their places.
#[derive(Default)]
struct Oracle {
    log: BTreeMap<usize, Vec<(Partition, Sequence, Record)>>,
}

impl Oracle {
    fn epoch(&self, stream: usize, name: &str) -> u64 {
        self.log.get(&stream).map_or(0, |log| log.iter().filter(|(.., r)| r.user == user(name)).count() as u64)
    }

    fn named(&self, stream: usize, record: &Record) -> Option<&(Partition, Sequence, Record)> {
        record.observation_id.as_ref()?;
        let takes_name = |r: &Record| r.kind == RecordKind::Observe && r.observation_id == record.observation_id;
        self.log.get(&stream)?.iter().find(|(.., r)| takes_name(r)).filter(|_| record.kind == RecordKind::Observe)
    }

    fn push(&mut self, stream: usize, record: Record) -> (Partition, Sequence) {
        let log = self.log.entry(stream).or_default();
        let partition = Partition::of(&record.user);
        let sequence = Sequence(log.iter().filter(|(p, ..)| *p == partition).count() as u64 + 1);
        log.push((partition, sequence, record));
        (partition, sequence)
    }
}

fn record(oracle: &Oracle, stream: usize, user_number: usize, name: Option<u8>, kind: RecordKind) -> Record {
    let name_of_user = format!("user-{user_number}");
    let epoch = oracle.epoch(stream, &name_of_user) + 1;
    Record {
        kind,
        observation_id: name.map(|n| id(&format!("o-{n}"))),
        item: observation(&user("x"), epoch).item.filter(|_| kind != RecordKind::Erase),
        weight: if epoch.is_multiple_of(3) { 2.5 } else { 1.0 },
        ..observation(&user(&name_of_user), epoch)
    }
}

async fn apply(storage: &Storage, oracle: &mut Oracle, step: &Step) {
    match step {
        Step::Append { stream: number, user, id, kind } => {
            let record = record(oracle, *number, *user, *id, *kind);
            let append = Append { stream: stream(STREAMS[*number]), record: record.clone(), frozen: Vec::new() };
            match (storage.append(append).unwrap(), oracle.named(*number, &record).cloned()) {
                (Appended::Existing(existing), Some((partition, sequence, first))) => {
                    let committed = existing.ticket.durable().await.unwrap();
                    assert_eq!((committed.partition, committed.sequence), (partition, sequence));
                    assert_eq!(existing.record, first);
                }
                (Appended::New(ticket), None) => {
                    let place = oracle.push(*number, record);
                    // Waiting only now and then leaves work in the queue for the steps that follow.
                    if place.1.0.is_multiple_of(4) {
                        let committed = ticket.durable().await.unwrap();
                        assert_eq!((committed.partition, committed.sequence), place);
                    }
                }
                (appended, expected) => panic!("{appended:?} where {expected:?} was expected"),
            }
        }
        Step::DeleteStream(number) => {
            let deleted = storage.delete_stream(&stream(STREAMS[*number])).unwrap();
            storage.wait_durable(deleted).await.unwrap();
            oracle.log.remove(number);
        }
        Step::Reopen => unreachable!("done by the caller, who owns the store"),
    }
}

fn compare(storage: &Storage, oracle: &Oracle) {
    let streams: Vec<_> = oracle.log.keys().map(|number| stream(STREAMS[*number])).collect();
    assert_eq!(storage.streams(), streams);
    for (number, name) in STREAMS.iter().enumerate() {
        let name = stream(name);
        let mut expected = oracle.log.get(&number).cloned().unwrap_or_default();
        expected.sort_by_key(|(partition, sequence, _)| (*partition, *sequence));
        assert!(log_of(storage, &name) == expected, "the log of {name}");
        assert_consistent(storage, &name);
        for n in 0..USERS {
            let someone = user(&format!("user-{n}"));
            let epoch = UserEpoch(oracle.epoch(number, someone.as_str()));
            assert_eq!(storage.last_epoch(&name, &someone).unwrap(), epoch);
        }
        for n in 0..12 {
            let wanted = Record { observation_id: Some(id(&format!("o-{n}"))), ..observation(&user("x"), 1) };
            let found = storage.observation(&name, wanted.observation_id.as_ref().unwrap()).unwrap();
            assert_eq!(found.as_ref(), oracle.named(number, &wanted));
        }
        for (partition, sequence, record) in &expected {
            let by_place = id(&format!("~{}-{sequence}", partition.index()));
            let found = storage.observation(&name, &by_place).unwrap();
            assert_eq!(found.as_ref(), Some(&(*partition, *sequence, record.clone())));
            // A range ends where it says, and a visitor that breaks off is obeyed.
            let range = LogRange {
                stream: name.clone(),
                partition: *partition,
                after: Sequence(sequence.0 - 1),
                up_to: *sequence,
            };
            let mut visited = Vec::new();
            let outcome = storage
                .scan(&range, |at, _| {
                    visited.push(at);
                    ControlFlow::<()>::Continue(())
                })
                .unwrap();
            assert_eq!((outcome, visited), (ControlFlow::Continue(()), vec![*sequence]));
            let all = LogRange { after: Sequence(0), up_to: Sequence(u64::MAX), ..range };
            assert_eq!(storage.scan(&all, |at, _| ControlFlow::Break(at)).unwrap(), ControlFlow::Break(Sequence(1)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(5), ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_what_a_naive_one_is(steps in prop::collection::vec(step(), 1..120)) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut storage = open(dir.path());
        let mut oracle = Oracle::default();
        for step in &steps {
            if matches!(step, Step::Reopen) {
                drop(storage);
                storage = open(dir.path());
                compare(&storage, &oracle);
            } else {
                runtime.block_on(apply(&storage, &mut oracle, step));
            }
        }
        storage.close().unwrap();
        compare(&storage, &oracle);
    }
}
