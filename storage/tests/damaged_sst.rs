//! Damage to the sorted files: found when the store is opened, not on the day the record is asked for.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod scenario;

use std::fs;

use celeris_storage::{Storage, StorageError, StorageOptions};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use scenario::{database_files, fill, flip, open, stream};

#[tokio::test]
async fn a_flipped_bit_in_a_sorted_file_is_refused_and_the_file_named() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    fill(&storage, 0..200).await;
    drop(storage);
    let files = database_files(dir.path(), "sst");
    assert!(files.len() >= 2, "the log and its history");
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for file in &files {
        // The data blocks come first; what follows them (index, properties, footer) is checked by RocksDB as it opens.
        let data_bits = usize::try_from(fs::metadata(file).unwrap().len()).unwrap() * 8 / 4;
        for _ in 0..10 {
            let bit = random.random_range(0..data_bits);
            flip(file, bit);
            match Storage::open(dir.path(), &StorageOptions::default()) {
                Err(StorageError::CorruptLog { file: named, .. }) => assert_eq!(named, *file),
                Err(other) => panic!("refused for another reason: {other}"),
                Ok(_) => panic!("opened with bit {bit} of {} flipped", file.display()),
            }
            flip(file, bit);
        }
    }
    assert_eq!(open(dir.path()).watermark(&stream("films")).records(), 200);
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
