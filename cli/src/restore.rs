//! `celeris restore`: a data directory from a backup, as it was then or at a point of the log before.
//!
//! Everything is brought into `incomplete/` in the folder, verified there, and moved out of it at the end, `FORMAT` last: no
//! command takes a folder without that file for a data directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use celeris_model::{Partition, Timestamp};
use celeris_storage::{CutAt, CutDone, Position, Storage, StorageOptions};

use crate::Failure;
use crate::backup::manifest::Manifest;
use crate::backup::place::{Place, shown};
use crate::backup::reading::{check_store, chosen, fetch};
use crate::interrupt::at_interrupt;
use crate::models::print;
use crate::progress::Report;

/// Where a data directory is until it is whole.
const INCOMPLETE: &str = "incomplete";

/// What it consists of, in the order in which it is moved into place.
const PARTS: [&str; 5] = ["versions", "objects", "decisions", "db", "FORMAT"];

/// The file of a point is small.
const POINT_BYTES_MAX: u64 = 64 << 20;

/// Makes a data directory from a backup.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the backups are: a folder, or a URL as s3://BUCKET/PATH.
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// The data directory; created if missing, otherwise it must be empty.
    #[arg(long)]
    data_dir: PathBuf,
    /// Which backup; by default the last, or with `--until` the first one that reaches to that point.
    #[arg(long, value_name = "ID")]
    backup: Option<String>,
    /// The point of the log at which the store is to be: a time as 2026-11-26T09:30:00Z, or a file with a position as
    /// `celeris backup list --json` shows it.
    #[arg(long, value_name = "POINT")]
    until: Option<String>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let place = Place::open(&args.from)?;
    let point = args.until.as_deref().map(Point::read).transpose()?;
    let (manifest, cut) = match point {
        None => (chosen(&place, args.backup.as_deref())?, None),
        Some(point) => {
            let (manifest, cut) = point.backup(&place, args.backup.as_deref())?;
            (manifest, Some(cut))
        }
    };
    prepare(&args.data_dir)?;
    let incomplete = args.data_dir.join(INCOMPLETE);
    stop_at_interrupt(&incomplete);
    let restored = restore(&place, &manifest, &incomplete, cut.as_ref()).and_then(|done| {
        finish(&args.data_dir, &incomplete)
            .map(|()| done)
            .map_err(|error| Failure::other(format!("{}: {error}", args.data_dir.display())))
    });
    match restored {
        Ok(done) => print(&summary(&args.data_dir, &manifest, done)),
        Err(failure) => {
            // Best effort; it is no data directory either way.
            let _ = fs::remove_dir_all(&incomplete);
            Err(failure)
        }
    }
}

fn summary(dir: &Path, manifest: &Manifest, done: Option<CutDone>) -> String {
    let Manifest { id, at, versions, records, cluster, .. } = manifest;
    let dir = dir.display();
    let at = shown(*at);
    let mut text = match done {
        None => format!("{dir}: backup {id} of {at}, with {records} records and {versions} versions, verified\n"),
        Some(CutDone { records, removed, uncorrected, erasures }) => format!(
            "{dir}: {records} records, and {versions} versions, of backup {id} of {at}, verified; {removed} later records were \
             removed, {uncorrected} corrections taken back, {erasures} erasures kept\n"
        ),
    };
    if cluster.is_some() {
        let advice = match done {
            None => "start a node of the cluster with it: see Backup and restore in docs/run/cluster.md",
            Some(_) => "the logs in NATS go on after it: celeris cluster recover --discard-logs --yes makes it the log",
        };
        text.push_str(advice);
        text.push('\n');
    }
    text
}

/// A point of the log.
enum Point {
    Time(Timestamp),
    Position(Position),
}

impl Point {
    fn read(text: &str) -> Result<Self, Failure> {
        if let Ok(time) = text.parse::<jiff::Timestamp>() {
            return Ok(Self::Time(Timestamp(time.as_millisecond())));
        }
        let wanted = "--until: expected a time as 2026-11-26T09:30:00Z, or a file with a position";
        let contents = match fs::metadata(text) {
            Ok(data) if data.len() <= POINT_BYTES_MAX => fs::read(text),
            Ok(_) => return Err(Failure::bad_input(format!("{wanted}; {text} is too long for one"))),
            Err(error) => Err(error),
        };
        let contents = contents.map_err(|error| Failure::bad_input(format!("{wanted}, got {text:?} ({error})")))?;
        let unreadable = |error: serde_json::Error| Failure::bad_input(format!("{wanted}; {text}: {error}"));
        let json: serde_json::Value = serde_json::from_slice(&contents).map_err(unreadable)?;
        let position = json.get("position").unwrap_or(&json).clone();
        serde_json::from_value(position).map(Self::Position).map_err(unreadable)
    }

    /// The backup to restore, and where to cut it.
    fn backup(&self, place: &Place, id: Option<&str>) -> Result<(Manifest, CutAt), Failure> {
        let mut manifests = place.manifests()?;
        let store = match id {
            Some(id) => Some(place.manifest(id)?.store),
            None => manifests.last().map(|manifest| manifest.store.clone()),
        };
        if id.is_none() && manifests.iter().any(|manifest| Some(&manifest.store) != store.as_ref()) {
            let problem = "it has backups of several stores; name one of the backups by --backup";
            return Err(Failure::bad_input(format!("{}: {problem}", place.name())));
        }
        manifests.retain(|manifest| Some(&manifest.store) == store.as_ref());
        let reaches = |manifest: &Manifest| match self {
            Self::Time(time) => manifest.at >= *time,
            Self::Position(position) => is_before(position, &manifest.position),
        };
        let found = match id {
            Some(id) => manifests.iter().find(|manifest| manifest.id == id && reaches(manifest)),
            None => manifests.iter().find(|manifest| reaches(manifest)),
        };
        let Some(found) = found else {
            let last =
                manifests.last().map_or_else(String::new, |last| format!("; the last one is of {}", shown(last.at)));
            let problem = match id {
                Some(id) => format!("backup {id} does not reach to that point"),
                None => format!("no backup reaches to that point{last}"),
            };
            return Err(Failure::bad_input(format!("{}: {problem}", place.name())));
        };
        let cut = match self {
            Self::Position(position) => CutAt::Position(position.clone()),
            Self::Time(time) => {
                let earlier = manifests.iter().rev().find(|earlier| {
                    earlier.at <= *time && earlier.at < found.at && is_before(&earlier.position, &found.position)
                });
                let kept = earlier.map_or_else(Position::new, |earlier| earlier.position.clone());
                CutAt::Time { time: *time, kept }
            }
        };
        Ok((found.clone(), cut))
    }
}

/// Whether a log that ends at `position` is the beginning of one that ends at `later`.
fn is_before(position: &Position, later: &Position) -> bool {
    position.iter().all(|(stream, end)| {
        let reaches = |partition| later.get(stream).is_some_and(|later| end.get(partition) <= later.get(partition));
        end.records() == 0 || Partition::all().all(reaches)
    })
}

/// Brings a backup back into `folder`, verified, and cuts it.
fn restore(place: &Place, manifest: &Manifest, folder: &Path, cut: Option<&CutAt>) -> Result<Option<CutDone>, Failure> {
    let report = Report::new();
    fetch(place, manifest, folder, &report)?;
    check_store(manifest, folder, &report)?;
    let mut done = None;
    if let Some(cut) = cut {
        report.at("cut", 0.0);
        done = Some(Storage::cut(folder, &StorageOptions::default(), cut)?);
        let storage = Storage::open_existing(folder, &StorageOptions::default())?;
        storage.verify()?;
        storage.close()?;
    }
    report.done();
    Ok(done)
}

/// Creates the folder, which must be empty.
fn prepare(dir: &Path) -> Result<(), Failure> {
    let in_folder = |error: io::Error| Failure::bad_input(format!("{}: {error}", dir.display()));
    fs::create_dir_all(dir).map_err(in_folder)?;
    let has_incomplete = dir.join(INCOMPLETE).exists();
    if fs::read_dir(dir).map_err(in_folder)?.next().is_some() {
        let what = if has_incomplete { "has a restore that was interrupted" } else { "is not empty" };
        return Err(Failure::bad_input(format!("{} {what}; name a new folder, or remove this one", dir.display())));
    }
    Ok(())
}

fn stop_at_interrupt(incomplete: &Path) {
    let incomplete = incomplete.to_owned();
    at_interrupt(move || {
        // The other threads may still create files in it.
        match fs::remove_dir_all(&incomplete) {
            Ok(()) => "stopped; nothing is restored".to_owned(),
            Err(_) => format!("stopped; {} is no data directory and can be removed", incomplete.display()),
        }
    });
}

/// Moves the parts of a data directory out of `incomplete`, after all of them are synced.
fn finish(dir: &Path, incomplete: &Path) -> io::Result<()> {
    for part in PARTS {
        let from = incomplete.join(part);
        if from.try_exists()? {
            sync_all(&from)?;
            fs::rename(&from, dir.join(part))?;
            // Before the next one: the last makes it a data directory.
            File::open(dir)?.sync_all()?;
        }
    }
    fs::remove_dir_all(incomplete)?;
    File::open(dir)?.sync_all()
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
