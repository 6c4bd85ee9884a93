//! Opening and closing a data directory.

use std::fs;
use std::path::Path;

use crate::scenario::{append, assert_consistent, database_files, fill, new, observation, open, stream, user};
use celeris_storage::{ItemWrite, Storage, StorageError, StorageOptions};

fn refusal(dir: &Path) -> StorageError {
    match Storage::open(dir, &StorageOptions::default()) {
        Err(error) => error,
        Ok(_) => panic!("{} was opened", dir.display()),
    }
}

#[test]
fn a_second_opening_is_refused_until_the_first_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let clone = first.clone();
    drop(first);
    let error = refusal(dir.path());
    assert!(matches!(&error, StorageError::InUse { dir: named } if named == dir.path()), "{error}");
    assert!(error.to_string().contains(&*dir.path().to_string_lossy()));
    drop(clone);
    open(dir.path());
}

#[test]
fn unknown_formats_are_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let format = dir.path().join("FORMAT");
    assert_eq!(fs::read_to_string(&format).unwrap(), "{\"format\":3,\"partitions\":64}\n");
    for (text, expected) in [
        (r#"{"format":1,"partitions":64}"#, "run the version that wrote it"),
        (r#"{"format":3,"partitions":128}"#, "128 partitions"),
        ("gibberish", "restore that file"),
    ] {
        fs::write(&format, text).unwrap();
        let error = refusal(dir.path());
        assert!(matches!(error, StorageError::UnknownFormat { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    fs::remove_file(&format).unwrap();
    assert!(refusal(dir.path()).to_string().contains("no FORMAT file"));
    fs::write(&format, r#"{"format":3,"partitions":64}"#).unwrap();
    drop(open(dir.path()));
    fs::remove_dir_all(dir.path().join("db")).unwrap();
    assert!(refusal(dir.path()).to_string().contains("no database"));
}

#[test]
fn an_interrupted_creation_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    let (format, mark) = (dir.path().join("FORMAT"), dir.path().join("CREATING"));
    for _ in 0..2 {
        drop(open(dir.path()));
        assert!(format.exists() && !mark.exists());
        fs::remove_file(&format).unwrap();
        fs::write(&mark, "").unwrap();
    }
    drop(open(dir.path()));
    // With a FORMAT file it says nothing.
    fs::write(&mark, "").unwrap();
    drop(open(dir.path()));
    assert!(!mark.exists());
    fs::remove_file(&format).unwrap();
    assert!(refusal(dir.path()).to_string().contains("no FORMAT file"));
}

#[tokio::test]
async fn a_clean_stop_leaves_an_empty_write_ahead_log() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    fill(&storage, 0..50).await;
    assert!(!database_files(dir.path(), "log").is_empty());
    storage.close().unwrap();
    assert_eq!(database_files(dir.path(), "log"), Vec::<std::path::PathBuf>::new());
    assert!(matches!(storage.log().append(append(observation(&user("u"), 1))), Err(StorageError::Closed)));
    assert!(matches!(
        storage
            .items()
            .write(&stream("films"), [ItemWrite::Describe(&crate::scenario::item("i"), &serde_json::Map::new())]),
        Err(StorageError::Closed)
    ));
    assert_consistent(&storage, &stream("films"));
    storage.close().unwrap();
}

#[tokio::test]
async fn closing_commits_queued_records() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let appended: Vec<_> =
        (1..=500).map(|epoch| new(storage.log().append(append(observation(&user("u"), epoch))).unwrap())).collect();
    drop(storage);
    for placed in &appended {
        placed.durable().await.unwrap();
    }
    let storage = open(dir.path());
    assert_eq!(storage.histories().of(&stream("films"), &user("u")).unwrap().len(), 500);
    assert_eq!(storage.log().streams(), [stream("films")]);
}
