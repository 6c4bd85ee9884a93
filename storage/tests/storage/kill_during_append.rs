//! Kills the process with SIGKILL during appends, repeatedly on one directory.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails; the child reports on stdout"
)]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::scenario::{append, assert_consistent, id, log_of, new, observation, open, stream, user};
use celeris_model::Record;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

const CHILD_DIR: &str = "CELERIS_TEST_KILL_DIR";

#[test]
fn every_acknowledged_record_survives_kill_9_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut acknowledged: HashMap<String, String> = HashMap::new();
    for round in 0..6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill_during_append::the_child_that_is_killed", "--ignored", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        let acks = random.random_range(1..400);
        let mut seen = 0;
        // Lines still in the pipe after the kill were acknowledged too.
        for line in lines {
            let Some(ack) = line.strip_prefix("ack ") else { continue };
            let (place, name) = ack.split_once(' ').unwrap();
            assert_eq!(acknowledged.insert(place.to_owned(), name.to_owned()), None, "{place} was given twice");
            seen += 1;
            if seen == acks {
                child.kill().unwrap();
            }
        }
        assert!(seen >= acks, "round {round}: the child ended after {seen} acknowledgements");
        child.wait().unwrap();
        if round % 2 == 1 {
            let storage = open(dir.path());
            assert_consistent(&storage, &stream("films"));
            let mut found: HashMap<String, String> = HashMap::new();
            for (partition, sequence, record) in log_of(&storage, &stream("films")) {
                let name = record.observation_id.clone().unwrap().as_str().to_owned();
                let place = format!("{}-{sequence}", partition.index());
                let (.., indexed) = crate::scenario::found(
                    storage.log().observation(&stream("films"), &record.user, &id(&name)).unwrap(),
                );
                assert_eq!(indexed, record, "the id's index has another record");
                assert_eq!(found.insert(place, name), None);
            }
            for (place, name) in &acknowledged {
                assert_eq!(found.get(place), Some(name), "round {round}: {place} was acknowledged and is not there");
            }
        }
    }
}

#[test]
#[ignore = "runs as the child of the test above"]
fn the_child_that_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let storage = open(&PathBuf::from(dir));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let storage = storage.clone();
                tokio::spawn(async move {
                    let user = user(&format!("user-{writer}"));
                    let first = storage.histories().last_epoch(&stream("films"), &user).unwrap().0 + 1;
                    for epoch in first.. {
                        let name = format!("{user}-{epoch}");
                        let record = Record { observation_id: Some(id(&name)), ..observation(&user, epoch) };
                        let done = new(storage.log().append(append(record)).unwrap()).durable().await.unwrap();
                        println!("ack {}-{} {name}", done.partition.index(), done.sequence);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}
