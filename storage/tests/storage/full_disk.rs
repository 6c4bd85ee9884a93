//! Tests on a file system that is actually full.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::scenario::{append, assert_consistent, log_of, observation, stream, user};
use celeris_model::Record;
use celeris_skip::{self as skip, Need};
use celeris_storage::{Appended, RegistryBatch, RegistryKey, Storage, StorageError, StorageOptions};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// A small file system in memory, unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this process may not mount; the test is skipped.
    fn unless_forbidden() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=256m", "celeris-test"]).arg(dir.path()).output();
        let disk = mounted.is_ok_and(|output| output.status.success()).then(|| Self(dir));
        skip::unless(Need::Mount, disk, "a small file system cannot be mounted here")
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A mount that remains is gone at the latest when the machine stops.
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn options() -> StorageOptions {
    StorageOptions {
        write_buffer_bytes: 8 << 20,
        wal_bytes_max: 16 << 20,
        queue_bytes_max: 2 << 20,
        ..Default::default()
    }
}

/// Appends until the disk is reported as full; returns the number of acknowledged records.
async fn fill_up(storage: &Storage, first: u64) -> u64 {
    let mut epoch = first;
    let mut random = ChaCha8Rng::seed_from_u64(first);
    loop {
        let mut accepted = Vec::new();
        let full = loop {
            // Random, so that the data does not compress.
            let text = (0..4000).map(|_| random.random_range('!'..='~')).collect();
            let record = Record { feedback: Some(text), ..observation(&user("u"), epoch) };
            match storage.log().append(append(record)) {
                Ok(Appended::New(placed)) => {
                    epoch += 1;
                    accepted.push(placed);
                }
                Err(StorageError::StorageFull { free, needed }) => {
                    assert!(free < needed);
                    break true;
                }
                other => panic!("{other:?}"),
            }
            if accepted.len() == 400 {
                break false;
            }
        };
        for placed in accepted {
            placed.durable().await.unwrap();
        }
        if full {
            return epoch - first;
        }
    }
}

fn free_bytes(dir: &Path) -> usize {
    let output = Command::new("df").args(["--output=avail", "-B1"]).arg(dir).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().last().unwrap().trim().parse().unwrap()
}

/// Fills the disk up to `spare` bytes, while the store may use some of them too.
fn fill_but(dir: &Path, spare: usize) {
    let mut ballast = File::create(dir.join("more")).unwrap();
    loop {
        let excess = free_bytes(dir).saturating_sub(spare);
        if excess == 0 || ballast.write_all(&vec![1; excess.min(1 << 20)]).is_err() {
            return;
        }
    }
}

fn write_ballast(path: &Path, bytes: usize) {
    std::fs::write(path, vec![1; bytes]).unwrap();
}

#[tokio::test]
async fn a_full_disk_refuses_reads_on_and_recovers_by_itself() {
    let Some(disk) = SmallDisk::unless_forbidden() else { return };
    let dir = disk.path().join("data");
    let ballast = disk.path().join("ballast");
    write_ballast(&ballast, 24 << 20);
    let storage = Storage::open(&dir, &options()).unwrap();
    let mut acknowledged = fill_up(&storage, 1).await;
    assert!(acknowledged > 1000, "{acknowledged}");

    // Full: only new observations are rejected.
    storage.health().unwrap();
    let refused = storage.log().append(append(observation(&user("u"), acknowledged + 1)));
    assert!(matches!(refused, Err(StorageError::StorageFull { .. })), "{refused:?}");
    assert_eq!(storage.histories().of(&stream("films"), &user("u")).unwrap().len() as u64, acknowledged);

    // With space, observations are accepted again without a restart.
    std::fs::remove_file(&ballast).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match storage.log().append(append(observation(&user("u"), acknowledged + 1))) {
            Ok(Appended::New(placed)) => {
                placed.durable().await.unwrap();
                acknowledged += 1;
                break;
            }
            Err(StorageError::StorageFull { .. }) => assert!(Instant::now() < deadline, "never accepted again"),
            other => panic!("{other:?}"),
        }
    }
    acknowledged += fill_up(&storage, acknowledged + 1).await;
    storage.close().unwrap();
    drop(storage);
    let storage = Storage::open(&dir, &options()).unwrap();
    assert_eq!(log_of(&storage, &stream("films")).len() as u64, acknowledged);
    assert_consistent(&storage, &stream("films"));
}

#[tokio::test]
async fn a_full_disk_refuses_registry_changes_before_they_fail() {
    let Some(disk) = SmallDisk::unless_forbidden() else { return };
    let ballast = disk.path().join("ballast");
    let storage = Storage::open(disk.path().join("data"), &options()).unwrap();
    let key = RegistryKey::new(["model", "films"]).unwrap();
    let change = || {
        let mut batch = RegistryBatch::new();
        batch.put(key.clone(), &"settings".to_owned()).unwrap();
        batch
    };
    // While observations are rejected, there is still space for a registry change.
    write_ballast(&ballast, 12 << 20);
    fill_up(&storage, 1).await;
    assert!(storage.check_accepts().is_err());
    storage.registry().commit(&change()).unwrap();

    // Another program uses the rest, leaving too little to flush a write buffer.
    fill_but(&disk.path(), 2 << 20);
    let deadline = Instant::now() + Duration::from_secs(30);
    let refused = loop {
        match storage.registry().commit(&change()) {
            Ok(()) => assert!(Instant::now() < deadline, "never refused"),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StorageError::StorageFull { .. }), "{refused}");
    storage.health().unwrap();
    let mut deletion = RegistryBatch::new();
    deletion.delete(key.clone());
    storage.registry().commit(&deletion).unwrap();

    std::fs::remove_file(disk.path().join("more")).unwrap();
    std::fs::remove_file(&ballast).unwrap();
    while storage.registry().commit(&change()).is_err() {
        assert!(Instant::now() < deadline, "never accepted again");
    }
    assert_eq!(storage.registry().get::<String>(&key).unwrap().as_deref(), Some("settings"));
}
