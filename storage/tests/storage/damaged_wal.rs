//! Damage to the write-ahead log after a crash: opening fails unless only its end is torn.

use std::fs::{self, File};
use std::path::Path;

use crate::scenario::{
    append, assert_consistent, crash_image, database_files, fill, flip, log_of, new, observation, open,
};
use crate::scenario::{stream, user};
use celeris_storage::{Storage, StorageError, StorageOptions};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

/// A crashed store with `count` acknowledged records, and the offset of the last of them in the
/// write-ahead log.
async fn crashed(count: u64, feedback_bytes: usize) -> (TempDir, u64) {
    let live = tempfile::tempdir().unwrap();
    let storage = open(live.path());
    let mut last_start = 0;
    for n in 0..count {
        last_start = database_files(live.path(), "log").last().map_or(0, |file| fs::metadata(file).unwrap().len());
        let mut record = observation(&user(&format!("user-{}", n % 5)), n / 5 + 1);
        record.feedback = (feedback_bytes > 0).then(|| format!("{n}").repeat(feedback_bytes));
        new(storage.log().append(append(record)).unwrap()).durable().await.unwrap();
    }
    let image = tempfile::tempdir().unwrap();
    crash_image(live.path(), image.path());
    (image, last_start)
}

fn assert_refused(dir: &Path, what: &str) {
    match Storage::open(dir, &StorageOptions::default()) {
        Err(StorageError::CorruptLog { file, offset: Some(_), .. }) => assert!(file.exists(), "{what}"),
        Err(other) => panic!("{what}: refused for another reason: {other}"),
        Ok(storage) => panic!("{what}: opened with {} records", storage.log().watermark(&stream("films")).records()),
    }
}

#[tokio::test]
async fn every_flipped_bit_of_the_write_ahead_log_is_refused() {
    let (image, _) = crashed(6, 0).await;
    let wal = database_files(image.path(), "log").pop().unwrap();
    let intact = fs::read(&wal).unwrap();
    for bit in 0..intact.len() * 8 {
        flip(&wal, bit);
        assert_refused(image.path(), &format!("bit {bit}"));
        flip(&wal, bit);
    }
    assert_eq!(fs::read(&wal).unwrap(), intact, "a refused file is untouched");
    assert_eq!(log_of(&open(image.path()), &stream("films")).len(), 6);
}

#[tokio::test]
async fn flipped_bits_in_a_log_of_many_blocks_are_refused() {
    let (image, last_start) = crashed(60, 2500).await;
    let wal = database_files(image.path(), "log").pop().unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..300 {
        let bit = random.random_range(0..usize::try_from(last_start).unwrap() * 8);
        flip(&wal, bit);
        assert_refused(image.path(), &format!("bit {bit}"));
        flip(&wal, bit);
    }
    assert_eq!(log_of(&open(image.path()), &stream("films")).len(), 60);
}

#[tokio::test]
async fn a_cut_at_any_byte_of_the_last_record_cuts_only_that_record() {
    let (image, last_start) = crashed(12, 0).await;
    let length = fs::metadata(database_files(image.path(), "log").pop().unwrap()).unwrap().len();
    for cut in last_start..length {
        let torn = tempfile::tempdir().unwrap();
        crash_image(image.path(), torn.path());
        let wal = database_files(torn.path(), "log").pop().unwrap();
        File::options().write(true).open(wal).unwrap().set_len(cut).unwrap();
        let storage = open(torn.path());
        assert_consistent(&storage, &stream("films"));
        assert_eq!(storage.log().watermark(&stream("films")).records(), 11, "cut to {cut} of {length}");
        let again =
            new(storage.log().append(append(observation(&user("user-1"), 3))).unwrap()).durable().await.unwrap();
        drop(storage);
        let storage = open(torn.path());
        assert_eq!(storage.log().watermark(&stream("films")).get(again.partition), again.sequence);
    }
}

#[tokio::test]
async fn damage_in_an_older_file_is_refused_even_at_its_end() {
    let live = tempfile::tempdir().unwrap();
    // With a small buffer, RocksDB begins a new file while the old one still holds records of other
    // column families.
    let options = StorageOptions { write_buffer_bytes: 128 << 10, ..StorageOptions::default() };
    let storage = Storage::open(live.path(), &options).unwrap();
    let mut filled = 0;
    let image = loop {
        fill(&storage, filled..filled + 100).await;
        filled += 100;
        let image = tempfile::tempdir().unwrap();
        crash_image(live.path(), image.path());
        if database_files(image.path(), "log").len() >= 2 {
            break image;
        }
        assert!(filled < 10_000, "no second file was begun");
    };
    let older = database_files(image.path(), "log").remove(0);
    let length = usize::try_from(fs::metadata(&older).unwrap().len()).unwrap();
    for bit in [8 * length / 2, 8 * length - 1] {
        flip(&older, bit);
        assert_refused(image.path(), &format!("bit {bit} of the older file"));
        flip(&older, bit);
    }
    let intact = fs::read(&older).unwrap();
    File::options().write(true).open(&older).unwrap().set_len(length as u64 - 1).unwrap();
    assert_refused(image.path(), "the older file cut short");
    fs::write(&older, intact).unwrap();
    assert_consistent(&open(image.path()), &stream("films"));
}
