//! A disk that actually rejects a write: the child process may not write files beyond a limit.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails; the child reports on stdout"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scenario::{append, assert_consistent, crash_image, item, log_of, new, observation, open, stream, user};
use celeris_model::Record;
use celeris_storage::{ItemWrite, Storage, StorageError};

const CHILD_DIR: &str = "CELERIS_TEST_POISON_DIR";

/// Maximum number of appends per writer: far beyond the limit.
const EPOCHS_MAX: u64 = 2000;

/// Larger than RocksDB's other files, small enough to be reached soon: 1 MiB in the shell's unit of
/// 512 bytes.
const FILE_BLOCKS_MAX: &str = "2048";

#[test]
fn a_failed_write_poisons_the_log_and_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let limited = r#"trap "" XFSZ; ulimit -f "$1"; exec "$2" --exact poison::the_child_that_hits_the_limit --ignored --nocapture"#;
    let output = Command::new("sh")
        .args(["-c", limited, "sh", FILE_BLOCKS_MAX])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD_DIR, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let acknowledged = text.lines().filter(|line| line.starts_with("ack ")).count();
    assert!(acknowledged > 0 && text.contains("poisoned: "), "{text}");

    let storage = open(dir.path());
    assert_consistent(&storage, &stream("films"));
    let log = log_of(&storage, &stream("films"));
    assert!(log.len() >= acknowledged);
    for line in text.lines().filter_map(|line| line.strip_prefix("ack ")) {
        let (name, epoch) = line.split_once(' ').unwrap();
        let found = log.iter().any(|(.., r)| r.user == user(name) && r.user_epoch.0.to_string() == epoch);
        assert!(found, "{line} was acknowledged and is not there");
    }
}

#[test]
#[ignore = "runs as the child of the test above"]
fn the_child_that_hits_the_limit() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(write_until_it_fails(&PathBuf::from(dir)));
}

async fn write_until_it_fails(dir: &Path) {
    let storage = open(dir);
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let storage = storage.clone();
            tokio::spawn(async move { write_as(&storage, &format!("user-{writer}")).await })
        })
        .collect();
    for writer in writers {
        let cause = writer.await.unwrap();
        println!("poisoned: {cause}");
    }
    assert!(matches!(storage.health(), Err(StorageError::Poisoned { .. })));
    let after = storage.log().append(append(observation(&user("late"), 1)));
    assert!(matches!(after, Err(StorageError::Poisoned { .. })));
    let (name, nothing) = (item("i"), serde_json::Map::new());
    let put = storage.items().write(&stream("films"), [ItemWrite::Describe(&name, &nothing)]);
    assert!(matches!(put, Err(StorageError::Poisoned { .. })));
    // Durable data can still be read, and nothing else.
    assert_consistent(&storage, &stream("films"));
    assert_eq!(storage.log().watermark(&stream("films")).records(), storage.log().counters().records);
    assert!(matches!(storage.close(), Err(StorageError::Poisoned { .. })));
}

/// Appends and prints acknowledgements until the log is poisoned; returns the cause.
async fn write_as(storage: &Storage, name: &str) -> String {
    for epoch in 1..=EPOCHS_MAX {
        let record = Record { feedback: Some("x".repeat(2000)), ..observation(&user(name), epoch) };
        let outcome = match storage.log().append(append(record)) {
            Ok(appended) => new(appended).durable().await.map(drop),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => println!("ack {name} {epoch}"),
            Err(StorageError::Poisoned { cause }) => return cause.to_string(),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("no write failed")
}

#[tokio::test]
async fn a_torn_write_after_a_failed_one_is_truncated() {
    // A possible result of the failed write above: half of a record at the end of the file.
    let live = tempfile::tempdir().unwrap();
    let storage = open(live.path());
    for epoch in 1..=10 {
        new(storage.log().append(append(observation(&user("u"), epoch))).unwrap()).durable().await.unwrap();
    }
    let image = tempfile::tempdir().unwrap();
    crash_image(live.path(), image.path());
    let wal = crate::scenario::database_files(image.path(), "log").pop().unwrap();
    let mut data = std::fs::read(&wal).unwrap();
    let half = data[..20].to_vec();
    data.extend_from_slice(&half);
    std::fs::write(&wal, data).unwrap();
    assert_eq!(open(image.path()).log().watermark(&stream("films")).records(), 10);
}
