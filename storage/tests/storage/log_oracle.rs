//! The log compared with a naive in-memory one, under random appends, repeats, amendments and
//! reopenings.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use crate::scenario::{amendment, append, assert_consistent, id, log_of, observation, open, stream, user};
use celeris_model::{Partition, Record, RecordKind, Sequence, UserEpoch, UserId};
use celeris_storage::{Append, Appended, Erasure, LogRange, Lookup, Storage, StorageError, Ticket};
use proptest::prelude::*;

const STREAMS: [&str; 3] = ["a", "ab", "b"];
const USERS: usize = 5;
const IDS: u8 = 12;

#[derive(Debug, Clone)]
enum Step {
    Observe {
        stream: usize,
        user: usize,
        id: Option<u8>,
    },
    /// A correction or retraction of any record of the user's partition, or of a missing one.
    Amend {
        stream: usize,
        user: usize,
        pick: prop::sample::Index,
        kind: RecordKind,
    },
    Erase {
        stream: usize,
        user: usize,
    },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..STREAMS.len(), 0..USERS);
    let observe =
        (place(), prop::option::of(0..IDS)).prop_map(|((stream, user), id)| Step::Observe { stream, user, id });
    let kind = prop_oneof![Just(RecordKind::Correct), Just(RecordKind::Retract)];
    let amend = (place(), any::<prop::sample::Index>(), kind).prop_map(|((stream, user), pick, kind)| Step::Amend {
        stream,
        user,
        pick,
        kind,
    });
    prop_oneof![
        60 => observe,
        30 => amend,
        4 => place().prop_map(|(stream, user)| Step::Erase { stream, user }),
        3 => Just(Step::Reopen),
    ]
}

/// One position of the log. A removed record is `None`.
type Place = (Partition, Sequence, Option<Record>);

/// The expected contents of one stream.
#[derive(Default)]
struct Stream {
    /// In order of arrival.
    places: Vec<Place>,
    /// The index in `places` of an id of a user.
    ids: BTreeMap<(UserId, String), usize>,
    epochs: HashMap<UserId, u64>,
    erasures: Vec<Erasure>,
}

impl Stream {
    fn sequence(&self, partition: Partition) -> Sequence {
        Sequence(self.places.iter().filter(|(p, ..)| *p == partition).count() as u64 + 1)
    }

    fn at(&self, partition: Partition, sequence: Sequence) -> Option<usize> {
        self.places.iter().position(|(p, s, _)| (*p, *s) == (partition, sequence))
    }

    fn epoch(&self, user: &UserId) -> u64 {
        self.epochs.get(user).copied().unwrap_or(0)
    }

    /// Appends a record of `user`.
    fn push(&mut self, user: &UserId, record: Record) -> (Partition, Sequence) {
        let partition = Partition::of(user);
        let sequence = self.sequence(partition);
        self.epochs.insert(user.clone(), record.user_epoch.0);
        self.places.push((partition, sequence, Some(record)));
        (partition, sequence)
    }

    /// Removes the records for which `goes` returns true; returns their sequences.
    fn blank(&mut self, goes: impl Fn(Sequence, &Record) -> bool) -> Vec<Sequence> {
        let mut blanked = Vec::new();
        for (_, sequence, record) in &mut self.places {
            if record.take_if(|record| goes(*sequence, record)).is_some() {
                blanked.push(*sequence);
            }
        }
        blanked
    }

    fn lookup(&self, user: &UserId, text: &str) -> Lookup {
        match self.ids.get(&(user.clone(), text.to_owned())).map(|at| &self.places[*at]) {
            None => Lookup::Unknown,
            Some((.., None)) => Lookup::Forgotten,
            Some((partition, sequence, Some(record))) => {
                Lookup::Found { partition: *partition, sequence: *sequence, record: record.clone() }
            }
        }
    }

    /// `None` if several users have an observation of this id.
    fn lookup_of_any_user(&self, text: &str) -> Option<Lookup> {
        let users = self.ids.keys().filter(|(_, id)| id == text).map(|(user, _)| user);
        let (mut found, others): (Vec<_>, Vec<_>) =
            users.map(|user| self.lookup(user, text)).partition(|lookup| matches!(lookup, Lookup::Found { .. }));
        match found.len() {
            0 => Some(others.into_iter().next().unwrap_or(Lookup::Unknown)),
            1 => Some(found.remove(0)),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Oracle {
    streams: BTreeMap<usize, Stream>,
    /// The ticket of the last append.
    last: Option<Ticket>,
}

impl Oracle {
    /// Waits until all appends are durable.
    async fn wait(&self) {
        if let Some(ticket) = &self.last {
            ticket.durable().await.unwrap();
        }
    }
}

fn numbered_user(number: usize) -> UserId {
    user(&format!("user-{number}"))
}

/// Replaces the hash in place of an erased user, which only the store can compute.
fn without_pseudonym(record: &Record) -> Record {
    if record.kind != RecordKind::Erase {
        return record.clone();
    }
    let text = record.user.as_str();
    assert!(text.len() == 32 && text.chars().all(|c| c.is_ascii_hexdigit()), "{text}");
    Record { user: user("erased"), ..record.clone() }
}

async fn observe(storage: &Storage, oracle: &mut Oracle, number: usize, who: &UserId, name: Option<u8>) {
    let log = oracle.streams.entry(number).or_default();
    let epoch = log.epoch(who) + 1;
    let text = name.map(|n| format!("o-{n}"));
    let record = Record {
        observation_id: text.as_deref().map(id),
        weight: if epoch.is_multiple_of(3) { 2.5 } else { 1.0 },
        ..observation(who, epoch)
    };
    let append = Append { stream: stream(STREAMS[number]), ..append(record.clone()) };
    let known = text.as_deref().map_or(Lookup::Unknown, |text| log.lookup(who, text));
    match (storage.log().append(append), known) {
        (Ok(Appended::Existing(existing)), Lookup::Found { partition, sequence, record: first }) => {
            let committed = existing.placed.durable().await.unwrap();
            assert_eq!((committed.partition, committed.sequence), (partition, sequence));
            assert_eq!(existing.record, first);
        }
        (Err(StorageError::ObservationForgotten { id }), Lookup::Forgotten) => assert_eq!(Some(id), text),
        (Ok(Appended::New(placed)), Lookup::Unknown) => {
            let place = log.push(who, record);
            if let Some(text) = text {
                log.ids.insert((who.clone(), text), log.places.len() - 1);
            }
            oracle.last = Some(placed.ticket().clone());
            // Waiting only sometimes leaves work in the queue for the next steps.
            if place.1.0.is_multiple_of(4) {
                let committed = placed.durable().await.unwrap();
                assert_eq!((committed.partition, committed.sequence), place);
            }
        }
        (appended, expected) => panic!("{appended:?} where {expected:?} was expected"),
    }
}

async fn amend(
    storage: &Storage,
    oracle: &mut Oracle,
    number: usize,
    who: &UserId,
    (kind, pick): (RecordKind, prop::sample::Index),
) {
    oracle.wait().await;
    let log = oracle.streams.entry(number).or_default();
    let partition = Partition::of(who);
    let target = Sequence(pick.index(usize::try_from(log.sequence(partition).0).unwrap()) as u64 + 1);
    let epoch = log.epoch(who) + 1;
    let record = Record { label: epoch as f32, ..amendment(kind, who, epoch, Some(target)) };
    let append = Append { stream: stream(STREAMS[number]), ..append(record.clone()) };
    let original = log.at(partition, target).map(|at| log.places[at].2.clone());
    match (storage.log().append(append), original) {
        (Ok(Appended::New(placed)), Some(Some(original))) => {
            assert!(original.kind == RecordKind::Observe && original.user == *who);
            let observation_id = original.observation_id.clone();
            let stored = if kind == RecordKind::Correct {
                let at = log.at(partition, target).unwrap();
                let first_label = Some(original.first_label.unwrap_or(original.label));
                log.places[at].2 = Some(Record { label: record.label, first_label, ..original.clone() });
                Record { item: original.item, observation_id, ..record }
            } else {
                let targets = log.blank(|sequence, record| {
                    let corrects = record.kind == RecordKind::Correct && record.targets == [target];
                    Partition::of(&record.user) == partition && (sequence == target || corrects)
                });
                Record { label: 0.0, observation_id, targets, ..record }
            };
            log.push(who, stored);
            // Until the amendment is durable, the removed records can be found.
            placed.durable().await.unwrap();
        }
        (Err(StorageError::ObservationForgotten { .. }), Some(None)) => {}
        (Err(StorageError::NotAnObservation { .. }), None) => {}
        (Err(StorageError::NotAnObservation { .. }), Some(Some(other))) => {
            assert!(other.kind != RecordKind::Observe || other.user != *who);
        }
        (appended, expected) => panic!("{appended:?} where {expected:?} was to be amended"),
    }
}

async fn erase(storage: &Storage, oracle: &mut Oracle, number: usize, who: &UserId) {
    oracle.wait().await;
    let log = oracle.streams.entry(number).or_default();
    let epoch = log.epoch(who) + 1;
    let record = amendment(RecordKind::Erase, who, epoch, None);
    let append = Append { stream: stream(STREAMS[number]), ..append(record.clone()) };
    let Appended::New(placed) = storage.log().append(append).unwrap() else { panic!("an erasure has no id") };
    placed.durable().await.unwrap();
    let observe = |(.., record): &&Place| {
        record.as_ref().is_some_and(|record| record.kind == RecordKind::Observe && record.user == *who)
    };
    let observations = log.places.iter().filter(observe).count() as u64;
    // Records blanked by the user's retractions are included: copies of the log may still contain
    // them.
    let of_user = |record: &Record| record.user == *who;
    let mut targets: BTreeSet<Sequence> = log
        .places
        .iter()
        .flat_map(|(.., record)| record)
        .filter(|r| of_user(r))
        .flat_map(|r| r.targets.clone())
        .collect();
    targets.extend(log.blank(|_, record| of_user(record)));
    let targets: Vec<Sequence> = targets.into_iter().collect();
    let first = targets.first().copied();
    let timestamp = record.timestamp;
    let (partition, at) = log.push(who, Record { user: user("erased"), label: 0.0, targets, ..record });
    log.erasures.push(Erasure { partition, first: first.unwrap_or(at), at, timestamp, observations });
}

async fn apply(storage: &Storage, oracle: &mut Oracle, step: &Step) {
    match step {
        Step::Observe { stream, user, id } => observe(storage, oracle, *stream, &numbered_user(*user), *id).await,
        Step::Amend { stream, user, pick, kind } => {
            amend(storage, oracle, *stream, &numbered_user(*user), (*kind, *pick)).await;
        }
        Step::Erase { stream, user } => erase(storage, oracle, *stream, &numbered_user(*user)).await,
        Step::Reopen => unreachable!("done by the caller, who owns the store"),
    }
}

fn compare(storage: &Storage, oracle: &Oracle) {
    let not_empty = |(_, log): &(&usize, &Stream)| !log.places.is_empty();
    let streams: Vec<_> = oracle.streams.iter().filter(not_empty).map(|(number, _)| stream(STREAMS[*number])).collect();
    assert_eq!(storage.log().streams(), streams);
    let nothing = Stream::default();
    for (number, name) in STREAMS.iter().enumerate() {
        let name = stream(name);
        let log = oracle.streams.get(&number).unwrap_or(&nothing);
        let mut places = log.places.clone();
        places.sort_by_key(|(partition, sequence, _)| (*partition, *sequence));
        let expected: Vec<(Partition, Sequence, Record)> =
            places.iter().filter_map(|(p, s, record)| Some((*p, *s, record.clone()?))).collect();
        let found: Vec<_> =
            log_of(storage, &name).into_iter().map(|(p, s, record)| (p, s, without_pseudonym(&record))).collect();
        assert!(found == expected, "the log of {name}");
        assert_consistent(storage, &name);
        for n in 0..USERS {
            let epoch = UserEpoch(log.epoch(&numbered_user(n)));
            assert_eq!(storage.histories().last_epoch(&name, &numbered_user(n)).unwrap(), epoch);
        }
        for n in 0..IDS {
            let text = format!("o-{n}");
            for n in 0..USERS {
                let who = numbered_user(n);
                assert_eq!(storage.log().observation(&name, &who, &id(&text)).unwrap(), log.lookup(&who, &text));
            }
            match (storage.log().observation_of_any_user(&name, &id(&text)), log.lookup_of_any_user(&text)) {
                (Ok(found), Some(expected)) => assert_eq!(found, expected),
                (Err(StorageError::AmbiguousId { .. }), None) => {}
                (found, expected) => panic!("{found:?} where {expected:?} was expected"),
            }
        }
        let mut erasures = log.erasures.clone();
        erasures.sort_by_key(|erasure| (erasure.partition, erasure.at));
        assert_eq!(storage.log().erasures(&name).unwrap(), erasures);
        for (partition, sequence, record) in places {
            compare_place(storage, &name, partition, sequence, record.as_ref());
        }
    }
}

fn compare_place(
    storage: &Storage,
    stream: &celeris_model::StreamName,
    partition: Partition,
    sequence: Sequence,
    record: Option<&Record>,
) {
    let by_place = id(&format!("~{}-{sequence}", partition.index()));
    match (storage.log().observation_of_any_user(stream, &by_place).unwrap(), record) {
        (Lookup::Found { record: found, .. }, Some(record)) => assert_eq!(without_pseudonym(&found), *record),
        (Lookup::Forgotten, None) => {}
        (found, expected) => panic!("{found:?} where {expected:?} was expected"),
    }
    // A range ends at its bound, and a visitor can break.
    let range = LogRange { stream: stream.clone(), partition, after: Sequence(sequence.0 - 1), up_to: sequence };
    let mut visited = Vec::new();
    let outcome = storage
        .log()
        .scan(&range, |at, _| {
            visited.push(at);
            ControlFlow::<()>::Continue(())
        })
        .unwrap();
    let expected = if record.is_some() { vec![sequence] } else { Vec::new() };
    assert_eq!((outcome, visited), (ControlFlow::Continue(()), expected));
    if record.is_some() {
        let all = LogRange { up_to: Sequence(u64::MAX), ..range };
        assert_eq!(storage.log().scan(&all, |at, _| ControlFlow::Break(at)).unwrap(), ControlFlow::Break(sequence));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(5),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_log_equals_a_naive_log(steps in prop::collection::vec(step(), 1..160)) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut storage = open(dir.path());
        let mut oracle = Oracle::default();
        for step in &steps {
            if matches!(step, Step::Reopen) {
                drop(storage);
                storage = open(dir.path());
                oracle.last = None;
                compare(&storage, &oracle);
            } else {
                runtime.block_on(apply(&storage, &mut oracle, step));
            }
        }
        storage.close().unwrap();
        compare(&storage, &oracle);
    }
}
