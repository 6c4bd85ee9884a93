//! Brings the files of a backup back, each compared with its checksum.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytesize::ByteSize;
use celeris_storage::{DiskSpace, Storage, StorageOptions};
use sha2::{Digest as _, Sha256};

use super::manifest::{Manifest, StoredFile};
use super::place::{Place, shown};
use super::{hex, on_threads};
use crate::Failure;
use crate::models::print;
use crate::progress::Report;
use crate::scratch::Folder;

/// Bytes that stay free on the disk.
const RESERVE_BYTES: u64 = 64 << 20;

const BLOCK_BYTES: usize = 256 << 10;

/// One backup: that of this id, or the last.
pub fn chosen(place: &Place, id: Option<&str>) -> Result<Manifest, Failure> {
    if let Some(id) = id {
        return place.manifest(id);
    }
    let last = place.manifests()?.pop();
    last.ok_or_else(|| Failure::bad_input(format!("{} has no backups; make one by celeris backup", place.name())))
}

/// Reads a backup back into a folder that is removed again, and verifies the store.
pub fn verify(place: &Place, id: Option<&str>, scratch: Option<&Path>) -> Result<(), Failure> {
    let manifest = chosen(place, id)?;
    let folder = Folder::new(scratch).map_err(|error| Failure::bad_input(format!("--scratch: {error}")))?;
    let report = Report::new();
    fetch(place, &manifest, folder.path(), &report)?;
    check_store(&manifest, folder.path(), &report)?;
    report.done();
    let Manifest { id, at, records, versions, .. } = &manifest;
    print(&format!(
        "{}: backup {id} of {}, with {records} records and {versions} versions in {} files and {}, is sound\n",
        place.name(),
        shown(*at),
        manifest.files.len(),
        ByteSize(manifest.bytes()).display().si(),
    ))
}

/// Opens a store that was brought back, verifies all of it, and compares it with its manifest.
pub fn check_store(manifest: &Manifest, folder: &Path, report: &Report) -> Result<(), Failure> {
    report.at("verify", 0.0);
    let unsound = |problem: &dyn std::fmt::Display| {
        Failure::bad_input(format!("backup {}: the store is not sound: {problem}", manifest.id))
    };
    let storage = Storage::open_existing(folder, &StorageOptions::default()).map_err(|error| unsound(&error))?;
    storage.verify().map_err(|error| unsound(&error))?;
    if storage.position() != manifest.position {
        return Err(unsound(&"its log does not end where the manifest says"));
    }
    storage.close()?;
    Ok(())
}

/// Brings the files of a backup back into a folder, which is created.
pub fn fetch(place: &Place, manifest: &Manifest, folder: &Path, report: &Report) -> Result<(), Failure> {
    let in_folder = |error: io::Error| Failure::other(format!("{}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(in_folder)?;
    let bytes = manifest.bytes();
    let DiskSpace { free, .. } = DiskSpace::of(folder).map_err(in_folder)?;
    if free < bytes.saturating_add(RESERVE_BYTES) {
        let [free, needed] = [free, bytes].map(|bytes| ByteSize(bytes).display().si().to_string());
        return Err(Failure::other(format!("{} has {free} free; the backup takes {needed}", folder.display())));
    }
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    report.at("read", 0.0);
    let work = || {
        while let Some(file) = manifest.files.get(next.fetch_add(1, Ordering::Relaxed)) {
            fetch_file(place, file, &folder.join(&file.name)).inspect_err(|_| {
                // The other threads need not go on.
                next.store(manifest.files.len(), Ordering::Relaxed);
            })?;
            let done = done.fetch_add(file.bytes, Ordering::Relaxed) + file.bytes;
            report.at("read", done as f32 / bytes.max(1) as f32);
        }
        Ok(())
    };
    on_threads(work)
}

fn fetch_file(place: &Place, file: &StoredFile, into: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::other(format!("{}: {error}", into.display()));
    if let Some(parent) = into.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let at = place.at_file(&file.sha256)?;
    let damaged = |problem: &str| {
        Failure::bad_input(format!(
            "{at}: {problem}; it is {} of the backup. Remove it: the next backup sends it again if the store still has it",
            file.name
        ))
    };
    let mut reader = match at.read() {
        Err(celeris_location::LocationError::NotFound { .. }) => return Err(damaged("the file is missing")),
        reader => reader?.take(file.bytes.saturating_add(1)),
    };
    let mut written = File::create_new(into).map_err(failed)?;
    let (mut digest, mut read) = (Sha256::new(), 0);
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let length = reader.read(&mut block).map_err(Failure::other)?;
        if length == 0 {
            break;
        }
        digest.update(&block[..length]);
        written.write_all(&block[..length]).map_err(failed)?;
        read += length as u64;
    }
    if read != file.bytes || hex(&digest.finalize()) != file.sha256 {
        return Err(damaged("the file is damaged: its length or checksum is another one"));
    }
    Ok(())
}
