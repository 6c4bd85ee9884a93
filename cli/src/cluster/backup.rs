//! `celeris cluster backup`: a verified copy of the store of a running node, with its versions.
//!
//! Everything is written into `incomplete/` in the folder, and moved out of it at the end, `FORMAT` last: no
//! command takes a folder without that file for a data directory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use celeris_api::cluster::{Downloader, Reply, receive};
use celeris_manager::{RemoteFile, VersionSource, VersionsKept, keep_objects, keep_versions};
use celeris_pipelines::ObjectId;
use celeris_storage::{DiskSpace, Storage, StorageOptions};
use serde_json::Value;
use ureq::http::{HeaderMap, HeaderValue, header};

use super::{cluster_of, events_of, list, text_of};
use crate::Failure;
use crate::interrupt::at_interrupt;
use crate::models::print;
use crate::node_client::{NodeArgs, NodeClient};
use crate::progress::Report;
use crate::serve::runtime;

/// Where a backup is until it is whole.
const INCOMPLETE: &str = "incomplete";

/// What a backup consists of, in the order in which it is moved into place.
const PARTS: [&str; 4] = ["versions", "objects", "db", "FORMAT"];

/// A copy that may be older than this is not taken.
const STALE_SECONDS: f64 = 60.0;

/// Bytes that stay free on the disk of the backup. What fetches versions leaves as much.
const RESERVE_BYTES: u64 = 1 << 30;

/// How long the copy waits while the node makes another one, and between two attempts.
const BUSY_MAX: Duration = Duration::from_secs(600);
const BUSY_RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(super) struct BackupArgs {
    /// The node whose store is copied. It goes on serving.
    #[command(flatten)]
    node: NodeArgs,
    /// The folder of the backup; created if missing, otherwise it must be empty.
    #[arg(long)]
    out: PathBuf,
}

pub(super) fn run(args: &BackupArgs) -> Result<(), Failure> {
    let client = NodeClient::new(&args.node);
    let reply = cluster_of(&client)?;
    check_is_whole(&args.node, &reply)?;
    prepare(&args.out)?;
    let incomplete = args.out.join(INCOMPLETE);
    stop_at_interrupt(&incomplete);
    let runtime = runtime()?;
    let downloader = {
        let _entered = runtime.enter();
        Downloader::start(authorization(&args.node))
    };
    let nodes = Nodes { urls: urls(&client, &reply), downloader };
    let made = make(&nodes, &incomplete).and_then(|summary| {
        finish(&args.out, &incomplete)
            .map(|()| summary)
            .map_err(|error| failed(&format!("{}: {error}", args.out.display())))
    });
    match made {
        Ok(summary) => print(&format!("{}: {summary}\n", args.out.display())),
        Err(failure) => {
            // Best effort; it is no backup either way.
            let _ = fs::remove_dir_all(&incomplete);
            Err(failure)
        }
    }
}

/// The header with the key.
fn authorization(args: &NodeArgs) -> HeaderMap {
    let value = args.authorization().and_then(|value| HeaderValue::from_str(&value).ok());
    value.map(|value| (header::AUTHORIZATION, value)).into_iter().collect()
}

fn failed(problem: &str) -> Failure {
    Failure::other(format!("there is no backup: {problem}"))
}

/// Why the copy of the node that gave this answer is not to be relied on.
fn flaw(reply: &Value) -> Option<String> {
    let status = &reply["status"];
    if let Some(failure) = status["failure"].as_str() {
        return Some(failure.to_owned());
    }
    list(&status["logs"]).find_map(|log| {
        let name = text_of(&log["log"]);
        match text_of(&log["phase"]) {
            "stuck" => Some(format!("{name}: {}", text_of(&log["problem"]))),
            "following" => match log["staleness_seconds"].as_f64() {
                Some(age) if age <= STALE_SECONDS => None,
                Some(age) => Some(format!("its copy of {name} may be {age:.0} seconds old")),
                None => Some(format!("it does not know how old its copy of {name} is")),
            },
            _ => None,
        }
    })
}

/// Fails if the store of the node lacks what others have, and names a better node.
fn check_is_whole(args: &NodeArgs, reply: &Value) -> Result<(), Failure> {
    let Some(flaw) = flaw(reply) else { return Ok(()) };
    let better = list(&reply["map"]["nodes"]).find(|node| {
        let client = NodeClient::new(&args.at(text_of(&node["url"])));
        cluster_of(&client).is_ok_and(|reply| self::flaw(&reply).is_none())
    });
    let advice = match better {
        Some(node) => format!("node {} is up to date: --url {}", text_of(&node["node"]), text_of(&node["url"])),
        None => "no other node is known to be better; see `celeris cluster status`".to_owned(),
    };
    Err(Failure::other(format!("node {} is not up to date: {flaw}. {advice}", text_of(&reply["map"]["node"]))))
}

/// Creates the folder, which must be empty.
fn prepare(out: &Path) -> Result<(), Failure> {
    let in_folder = |error: io::Error| Failure::bad_input(format!("{}: {error}", out.display()));
    fs::create_dir_all(out).map_err(in_folder)?;
    let has_incomplete = out.join(INCOMPLETE).exists();
    if fs::read_dir(out).map_err(in_folder)?.next().is_some() {
        let what = if has_incomplete { "has a backup that was interrupted" } else { "is not empty" };
        return Err(Failure::bad_input(format!("{} {what}; name a new folder, or remove this one", out.display())));
    }
    Ok(())
}

fn stop_at_interrupt(incomplete: &Path) {
    let incomplete = incomplete.to_owned();
    at_interrupt(move || {
        // The other thread may still create files in it.
        match fs::remove_dir_all(&incomplete) {
            Ok(()) => "stopped; nothing is left of the backup".to_owned(),
            Err(_) => format!("stopped; {} is no backup and can be removed", incomplete.display()),
        }
    });
}

/// The node that was named, and then the other ones.
fn urls(client: &NodeClient, reply: &Value) -> Vec<String> {
    let this = &reply["map"]["node"];
    let others = list(&reply["map"]["nodes"]).filter(|node| node["node"] != *this);
    std::iter::once(client.url().to_owned()).chain(others.map(|node| text_of(&node["url"]).to_owned())).collect()
}

/// Copies the store and its versions into a folder, and returns what they are.
fn make(nodes: &Nodes, folder: &Path) -> Result<String, Failure> {
    let report = Report::new();
    let bytes = copy_store(nodes, folder, &report)?;
    let damaged = |error: &dyn std::fmt::Display| failed(&format!("the copy is not sound: {error}"));
    let storage = Storage::open_existing(folder, &StorageOptions::default()).map_err(|error| damaged(&error))?;
    report.at("verify", 0.0);
    storage.verify().map_err(|error| damaged(&error))?;
    let of = storage.cluster()?.ok_or_else(|| failed("the copy is of no cluster"))?;
    let events = events_of(&storage);
    let progress = |done: usize, all: usize| report.at("versions", done as f32 / all.max(1) as f32);
    let versions = keep_versions(&storage, nodes, &progress).map_err(|error| failed(&error.to_string()))?;
    report.at("objects", 0.0);
    keep_objects(&storage, nodes).map_err(|error| failed(&error.to_string()))?;
    storage.close()?;
    drop(storage);
    report.done();
    let VersionsKept { kept, missing } = versions;
    if !missing.is_empty() {
        eprintln!("celeris: removed meanwhile, and not in the backup: {}", missing.join(", "));
    }
    Ok(format!(
        "backup of cluster {}, incarnation {}, with {events} events, {kept} versions and {} in the store, verified",
        of.name,
        of.incarnation,
        ByteSize(bytes).display().si()
    ))
}

/// Copies the store; returns the bytes that were sent.
fn copy_store(nodes: &Nodes, folder: &Path, report: &Report) -> Result<u64, Failure> {
    let url = nodes.urls.first().map_or("", String::as_str);
    report.at("copy", 0.0);
    let reply = begin_copy(nodes, url).map_err(|error| failed(&error.to_string()))?;
    let bytes = reply.length().unwrap_or(0);
    fs::create_dir(folder).map_err(|error| failed(&format!("{}: {error}", folder.display())))?;
    let DiskSpace { free, .. } = DiskSpace::of(folder).map_err(|error| failed(&error.to_string()))?;
    if free < bytes.saturating_add(RESERVE_BYTES) {
        let (free, needed) = (ByteSize(free).display().si(), ByteSize(bytes).display().si());
        let reserve = ByteSize(RESERVE_BYTES).display().si();
        return Err(failed(&format!(
            "{} has {free} free; the store takes {needed}, and {reserve} are to stay free",
            folder.display()
        )));
    }
    let counted = Counted { reply, read: 0, bytes, report };
    receive(folder, counted).map_err(|error| failed(&format!("{}: {error}", folder.display())))?;
    Ok(bytes)
}

/// Asks for a copy, and again while the node makes another one.
fn begin_copy(nodes: &Nodes, url: &str) -> io::Result<Reply> {
    let until = Instant::now() + BUSY_MAX;
    let mut is_told = false;
    loop {
        match nodes.downloader.get(url, "/v1/cluster/copy?current=true") {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                if !is_told {
                    eprintln!("celeris: {error}; waiting");
                }
                is_told = true;
                thread::sleep(BUSY_RETRY);
            }
            outcome => return outcome,
        }
    }
}

/// Moves the parts of a backup out of `incomplete`, after all of them are synced.
fn finish(out: &Path, incomplete: &Path) -> io::Result<()> {
    for part in PARTS {
        let from = incomplete.join(part);
        if from.try_exists()? {
            sync_all(&from)?;
            fs::rename(&from, out.join(part))?;
            // Before the next one: the last makes it a backup.
            File::open(out)?.sync_all()?;
        }
    }
    fs::remove_dir_all(incomplete)?;
    File::open(out)?.sync_all()
}

/// Syncs a file, or a folder with all that is in it.
fn sync_all(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            sync_all(&entry?.path())?;
        }
    }
    File::open(path)?.sync_all()
}

/// Nodes that have the versions, the first one before the others.
struct Nodes {
    urls: Vec<String>,
    downloader: Downloader,
}

impl VersionSource for Nodes {
    fn fetch(&self, file: RemoteFile<'_>, into: &Path) -> io::Result<()> {
        let RemoteFile { model, version, name, bytes_max } = file;
        let path = format!("/v1/cluster/versions/{model}/{version}/{name}");
        // `NotFound` only if all say so.
        let mut failure = None;
        for url in &self.urls {
            match self.downloader.get(url, &path).and_then(|reply| save(reply, bytes_max, into)) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound && failure.is_some() => {}
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| io::ErrorKind::NotConnected.into()))
    }

    fn object(&self, id: ObjectId, bytes_max: usize) -> io::Result<Vec<u8>> {
        self.downloader.object(&self.urls, id, bytes_max)
    }
}

fn save(reply: impl Read, bytes_max: u64, into: &Path) -> io::Result<()> {
    // One byte more shows that it is too long.
    let copied = io::copy(&mut reply.take(bytes_max.saturating_add(1)), &mut File::create(into)?)?;
    if copied > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {bytes_max} bytes")));
    }
    Ok(())
}

/// Reports how much of a reply was read.
struct Counted<'a, R> {
    reply: R,
    read: u64,
    bytes: u64,
    report: &'a Report,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reply.read(buffer)?;
        self.read += read as u64;
        if self.bytes > 0 {
            self.report.at("copy", self.read as f32 / self.bytes as f32);
        }
        Ok(read)
    }
}
