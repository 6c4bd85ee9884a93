//! Makes a backup: the node holds a copy, and what is not in the place yet is fetched from it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use ureq::http::StatusCode;

use super::manifest::{Copy, CopyFile, Manifest, StoredFile, is_of_data_dir};
use super::place::{KnownFile, Making, Place, shown};
use super::{hex, on_threads};
use crate::Failure;
use crate::interrupt::at_interrupt;
use crate::models::print;
use crate::node_client::{NodeArgs, NodeClient};
use crate::progress::Report;
use crate::scratch;

/// How long a backup waits while others are made of the node, or files are removed from the place.
const BUSY_MAX: Duration = Duration::from_secs(600);
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// How often a file is fetched whose transfer breaks off.
const FETCHES_MAX: u32 = 4;

/// Between two notes of the files that are there.
const NOTE_EVERY: Duration = Duration::from_secs(2);

const BLOCK_BYTES: usize = 256 << 10;

pub fn run(args: &NodeArgs, place: &Place) -> Result<(), Failure> {
    let client = NodeClient::new(args);
    crate::cluster::check_is_whole(args, &client)?;
    let mark = Mark::set(place)?;
    let copy = begin(&client)?;
    give_up_at_interrupt(args, &copy.id);
    let made = Backup { client: &client, place, mark: &mark, copy: &copy }.make();
    match made {
        Ok(summary) => {
            mark.remove();
            print(&summary)
        }
        Err(failure) => {
            // Best effort: the node removes it after a while in any case. The mark stays: it has what is there already.
            let _ = client.delete(&format!("/v1/backups/{}", copy.id));
            Err(failed(&failure))
        }
    }
}

fn failed(failure: &Failure) -> Failure {
    let (Failure::BadInput(problem) | Failure::Other(problem)) = failure;
    let advice = "what was sent is used when the command is run again";
    Failure::other(format!("there is no backup: {problem}; {advice}"))
}

fn give_up_at_interrupt(args: &NodeArgs, id: &str) {
    let (args, path) = (args.clone(), format!("/v1/backups/{id}"));
    at_interrupt(move || {
        let _ = NodeClient::new(&args).delete(&path);
        "stopped; there is no backup, and what was sent is used when the command is run again".to_owned()
    });
}

/// Has the node make a copy, and waits while it holds others.
fn begin(client: &NodeClient) -> Result<Copy, Failure> {
    let until = Instant::now() + BUSY_MAX;
    let mut is_told = false;
    loop {
        let response = client.post_as("/v1/backups", "application/json", b"")?;
        if response.status() == StatusCode::SERVICE_UNAVAILABLE && Instant::now() < until {
            if !is_told {
                eprintln!("celeris: the node cannot make a copy now; waiting");
            }
            is_told = true;
            thread::sleep(BUSY_RETRY);
            continue;
        }
        let reply = client.accepted(response)?;
        let copy: Copy = serde_json::from_value(reply).map_err(|error| {
            Failure::other(format!("the answer of {} is not that of a node of this version: {error}", client.url()))
        })?;
        if let Some(odd) = copy.files.iter().find(|file| !is_of_data_dir(&file.name)) {
            return Err(Failure::other(format!(
                "the node offers {:?}, which is no file of a data directory",
                odd.name
            )));
        }
        return Ok(copy);
    }
}

/// Says in the place that a backup is being made.
struct Mark<'a> {
    place: &'a Place,
    name: String,
}

impl<'a> Mark<'a> {
    /// Waits while files are removed.
    fn set(place: &'a Place) -> Result<Self, Failure> {
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S");
        let mark = Self { place, name: format!("{now}-{:016x}.json", rand::random::<u64>()) };
        let until = Instant::now() + BUSY_MAX;
        let mut is_told = false;
        loop {
            mark.note(&Making::default())?;
            if !place.is_pruned()? {
                return Ok(mark);
            }
            if Instant::now() > until {
                mark.remove();
                return Err(Failure::other(format!("{}: files are being removed; try again later", place.name())));
            }
            if !is_told {
                eprintln!("celeris: files are being removed from {}; waiting", place.name());
            }
            is_told = true;
            thread::sleep(BUSY_RETRY);
        }
    }

    fn note(&self, making: &Making) -> Result<(), Failure> {
        let text = serde_json::to_vec(making).map_err(Failure::other)?;
        Ok(self.place.at_making(&self.name)?.put(text)?)
    }

    /// Best effort: it is not heeded after a while.
    fn remove(&self) {
        let _ = self.place.at_making(&self.name).map(|at| at.delete());
    }
}

struct Backup<'a> {
    client: &'a NodeClient,
    place: &'a Place,
    mark: &'a Mark<'a>,
    copy: &'a Copy,
}

/// What has been done so far, by all threads.
struct Progress {
    stored: HashMap<usize, StoredFile>,
    making: Making,
    /// The contents that are there, with their lengths.
    present: HashMap<String, u64>,
    sent_files: usize,
    sent_bytes: u64,
    done_bytes: u64,
    noted: Instant,
}

impl Backup<'_> {
    fn make(&self) -> Result<String, Failure> {
        let Copy { id, files, .. } = self.copy;
        let known = self.known()?;
        let progress = Mutex::new(Progress {
            stored: HashMap::new(),
            making: Making::default(),
            present: self.place.files()?,
            sent_files: 0,
            sent_bytes: 0,
            done_bytes: 0,
            noted: Instant::now(),
        });
        let report = Report::new();
        report.at("copy", 0.0);
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((number, file)) = next_of(&next, files) {
                let stored = self.store(number, file, &known, &progress).inspect_err(|_| {
                    // The other threads need not go on.
                    next.store(files.len(), Ordering::Relaxed);
                })?;
                let mut progress = progress.lock();
                progress.done_bytes += stored.bytes;
                report.at("copy", progress.done_bytes as f32 / bytes.max(1) as f32);
                self.take(&mut progress, number, stored)?;
            }
            Ok(())
        };
        on_threads(work)?;
        let progress = progress.into_inner();
        let stored: Vec<StoredFile> =
            (0..files.len()).filter_map(|number| progress.stored.get(&number).cloned()).collect();
        let manifest = Manifest::of(self.copy, stored);
        self.finish(&manifest, &progress)?;
        report.done();
        for missing in &self.copy.missing {
            eprintln!("celeris: not to be had, and not in the backup: {missing}");
        }
        Ok(format!(
            "{}: backup {id} of {}, with {} records and {} versions; {} of {} files and {} of {} were sent\n",
            self.place.name(),
            shown(manifest.at),
            manifest.records,
            manifest.versions,
            progress.sent_files,
            files.len(),
            ByteSize(progress.sent_bytes).display().si(),
            ByteSize(bytes).display().si(),
        ))
    }

    /// The contents that earlier backups, also those that were interrupted, have stored.
    fn known(&self) -> Result<HashMap<String, KnownFile>, Failure> {
        let mut known = HashMap::new();
        for (name, _) in self.place.making()? {
            known.extend(self.place.left_by(&name).files);
        }
        for manifest in self.place.manifests()? {
            for StoredFile { known_by, sha256, bytes, .. } in manifest.files {
                known.extend(known_by.map(|known_by| (known_by, KnownFile { sha256, bytes })));
            }
        }
        Ok(known)
    }

    /// Sees to it that the contents of a file are there.
    fn store(
        &self,
        number: usize,
        file: &CopyFile,
        known: &HashMap<String, KnownFile>,
        progress: &Mutex<Progress>,
    ) -> Result<StoredFile, Failure> {
        let CopyFile { name, bytes, known_by } = file.clone();
        let stored = |sha256: String| StoredFile { name: name.clone(), bytes, sha256, known_by: known_by.clone() };
        if let Some(KnownFile { sha256, bytes: of_known }) = known_by.as_ref().and_then(|known_by| known.get(known_by))
            && *of_known == bytes
            && progress.lock().present.get(sha256) == Some(&bytes)
        {
            return Ok(stored(sha256.clone()));
        }
        let (mut spool, sha256) = self.fetch(number, file)?;
        if progress.lock().present.get(&sha256) == Some(&bytes) {
            return Ok(stored(sha256));
        }
        let failed = |error: io::Error| Failure::other(format!("{name}: {error}"));
        spool.rewind().map_err(failed)?;
        let mut writer = self.place.at_file(&sha256)?.write()?;
        io::copy(&mut spool, &mut writer).map_err(failed)?;
        writer.finish()?;
        let mut progress = progress.lock();
        progress.present.insert(sha256.clone(), bytes);
        progress.sent_files += 1;
        progress.sent_bytes += bytes;
        Ok(stored(sha256))
    }

    /// Fetches a file of the copy: its name in the place is the checksum of all of it.
    fn fetch(&self, number: usize, file: &CopyFile) -> Result<(File, String), Failure> {
        let path = format!("/v1/backups/{}/files/{number}", self.copy.id);
        let mut tries = 1;
        loop {
            let fetched = self.client.open(&path).and_then(|reply| {
                spool(reply, file.bytes).map_err(|error| Failure::other(format!("{}: {error}", file.name)))
            });
            match fetched {
                Err(Failure::Other(_)) if tries < FETCHES_MAX => tries += 1,
                fetched => return fetched,
            }
        }
    }

    /// Notes a file that is there, for the backup after this one if this one is interrupted.
    fn take(&self, progress: &mut Progress, number: usize, stored: StoredFile) -> Result<(), Failure> {
        if let Some(known_by) = &stored.known_by {
            let known = KnownFile { sha256: stored.sha256.clone(), bytes: stored.bytes };
            progress.making.files.insert(known_by.clone(), known);
        }
        progress.stored.insert(number, stored);
        if progress.noted.elapsed() >= NOTE_EVERY {
            self.mark.note(&progress.making)?;
            progress.noted = Instant::now();
        }
        Ok(())
    }

    /// Writes the manifest, once it is known that everything is there.
    fn finish(&self, manifest: &Manifest, progress: &Progress) -> Result<(), Failure> {
        self.mark.note(&progress.making)?;
        if self.place.is_pruned()? {
            return Err(Failure::other(format!("{}: files are being removed meanwhile", self.place.name())));
        }
        let present = self.place.files()?;
        if let Some(lost) = manifest.files.iter().find(|file| present.get(&file.sha256) != Some(&file.bytes)) {
            return Err(Failure::other(format!("{}: files/{} was removed meanwhile", self.place.name(), lost.sha256)));
        }
        self.place.at_manifest(&manifest.id)?.put(manifest.text())?;
        let done = json!({"to": self.place.name(), "bytes": manifest.bytes(), "sent_bytes": progress.sent_bytes});
        // It is complete whether or not the node takes note.
        if let Err(Failure::BadInput(problem) | Failure::Other(problem)) =
            self.client.post(&format!("/v1/backups/{}", manifest.id), &done)
        {
            eprintln!("celeris: the node does not know of the backup: {problem}");
        }
        Ok(())
    }
}

/// The next file that no thread has taken.
fn next_of<'a, T>(next: &AtomicUsize, of: &'a [T]) -> Option<(usize, &'a T)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    of.get(number).map(|item| (number, item))
}

/// Writes what is read into a file without a name, and returns it with its checksum.
fn spool(mut from: impl Read, bytes: u64) -> io::Result<(File, String)> {
    let mut file = scratch::file()?;
    let (mut digest, mut read) = (Sha256::new(), 0);
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let length = from.read(&mut block)?;
        if length == 0 {
            break;
        }
        digest.update(&block[..length]);
        file.write_all(&block[..length])?;
        read += length as u64;
    }
    if read != bytes {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("got {read} of {bytes} bytes")));
    }
    Ok((file, hex(&digest.finalize())))
}
