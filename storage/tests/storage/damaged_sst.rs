//! Damage to sorted files: the verification finds and names it, it is never served, and later
//! openings fail.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::scenario::{append, crash_image, database_files, fill, flip, new, observation, open, stream, user};
use celeris_model::Record;
use celeris_storage::{Storage, StorageError, StorageOptions, Verification};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

fn begins_at_once(bytes_per_second: u64) -> StorageOptions {
    StorageOptions {
        verification_delay: Duration::ZERO,
        verification_bytes_per_second: bytes_per_second,
        ..StorageOptions::default()
    }
}

/// Waits for a state of the verification.
fn verification_once(storage: &Storage, wanted: impl Fn(&Verification) -> bool) -> Verification {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = storage.verification();
        if wanted(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        std::thread::yield_now();
    }
}

#[track_caller]
fn assert_names(error: &StorageError, damaged: &Path) {
    match error {
        StorageError::CorruptLog { file, .. } => assert_eq!(file, damaged),
        other => panic!("refused for another reason: {other}"),
    }
}

#[tokio::test]
async fn a_flipped_bit_in_a_sorted_file_is_named_and_later_openings_fail() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    fill(&storage, 0..2000).await;
    drop(storage);
    let files = database_files(dir.path(), "sst");
    assert!(files.len() >= 2, "the log and its history");
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut opened = 0;
    for file in &files {
        // The data blocks come first; RocksDB checks what follows them (index, properties, footer)
        // on opening.
        let data_bits = usize::try_from(fs::metadata(file).unwrap().len()).unwrap() * 8 / 4;
        for _ in 0..10 {
            let bit = random.random_range(0..data_bits);
            flip(file, bit);
            match Storage::open(dir.path(), &StorageOptions::default()) {
                Err(error) => assert_names(&error, file),
                Ok(storage) => {
                    opened += 1;
                    assert_names(&storage.verify().unwrap_err(), file);
                    assert!(storage.verification().damage.unwrap().contains(file.to_str().unwrap()));
                    assert!(matches!(storage.health(), Err(StorageError::Poisoned { .. })));
                    drop(storage);
                    let again = Storage::open(dir.path(), &StorageOptions::default());
                    assert_names(&again.err().unwrap(), file);
                }
            }
            flip(file, bit);
        }
    }
    assert!(opened > 0, "opening found all damage");
    let storage = open(dir.path());
    assert_eq!(storage.log().watermark(&stream("films")).records(), 2000);
    storage.verify().unwrap();
    assert_eq!(storage.verification().damage, None);
}

#[tokio::test]
async fn damage_is_found_while_the_store_serves_and_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    fill(&storage, 0..2000).await;
    let sound: Vec<_> =
        (0..5).map(|n| storage.histories().of(&stream("films"), &user(&format!("user-{n}"))).unwrap()).collect();
    drop(storage);
    let mut served = 0;
    for file in database_files(dir.path(), "sst") {
        let image = tempfile::tempdir().unwrap();
        crash_image(dir.path(), image.path());
        let damaged = image.path().join("db").join(file.file_name().unwrap());
        flip(&damaged, 800);
        let Ok(storage) = Storage::open(image.path(), &begins_at_once(u64::MAX)) else { continue };
        served += 1;
        let found = verification_once(&storage, |found| found.damage.is_some());
        assert!(found.damage.unwrap().contains(damaged.to_str().unwrap()));
        let refused = storage.log().append(append(observation(&user("late"), 1)));
        assert!(matches!(refused, Err(StorageError::Poisoned { .. })));
        for (n, sound) in sound.iter().enumerate() {
            match storage.histories().of(&stream("films"), &user(&format!("user-{n}"))) {
                Ok(history) => assert_eq!(history, *sound),
                Err(error) => assert_names(&error, &damaged),
            }
        }
    }
    assert!(served > 0, "opening found all damage");
}

#[tokio::test]
async fn the_verification_continues_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    for epoch in 1..=200 {
        let record = Record { feedback: Some("x".repeat(30_000)), ..observation(&user("u"), epoch) };
        new(storage.log().append(append(record)).unwrap()).durable().await.unwrap();
    }
    drop(storage);
    // Its first step is followed by a pause of days.
    let storage = Storage::open(dir.path(), &begins_at_once(1)).unwrap();
    let first = verification_once(&storage, |found| found.bytes > 0);
    assert_eq!(first.last_pass, None);
    drop(storage);
    let storage = Storage::open(dir.path(), &begins_at_once(u64::MAX)).unwrap();
    let rest = verification_once(&storage, |found| found.last_pass.is_some());
    drop(storage);
    // The pass is complete, so the next one is not due.
    let storage = Storage::open(dir.path(), &begins_at_once(u64::MAX)).unwrap();
    assert_eq!(storage.verification(), Verification { bytes: 0, ..rest.clone() });
    storage.verify().unwrap();
    let whole = storage.verification().bytes;
    assert!(first.bytes >= 1 << 20 && first.bytes < whole / 2, "{} of {whole} bytes", first.bytes);
    // One entry is read twice.
    assert!(rest.bytes + first.bytes < whole + 40_000, "{} and {} of {whole} bytes", first.bytes, rest.bytes);
}

#[tokio::test]
async fn after_a_crash_everything_is_verified_again() {
    let live = tempfile::tempdir().unwrap();
    let storage = Storage::open(live.path(), &begins_at_once(u64::MAX)).unwrap();
    let first = verification_once(&storage, |found| found.last_pass.is_some());
    fill(&storage, 0..50).await;
    let image = tempfile::tempdir().unwrap();
    crash_image(live.path(), image.path());
    drop(storage);
    fs::copy(live.path().join("VERIFICATION"), image.path().join("VERIFICATION")).unwrap();
    let storage = Storage::open(image.path(), &begins_at_once(u64::MAX)).unwrap();
    let second = verification_once(&storage, |found| found.bytes > 0 && found.last_pass > first.last_pass);
    assert_eq!(second.damage, None);
}

#[tokio::test]
async fn a_missing_sorted_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    fill(&storage, 0..20).await;
    drop(storage);
    fs::remove_file(&database_files(dir.path(), "sst")[0]).unwrap();
    assert!(matches!(
        Storage::open(dir.path(), &StorageOptions::default()),
        Err(StorageError::CorruptLog { .. } | StorageError::Database { .. })
    ));
}
