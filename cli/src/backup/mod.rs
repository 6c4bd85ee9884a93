//! `celeris backup`: incremental backups of a running node, to a folder or an object store.
//!
//! `making` makes one, `place` is where they are, `manifest` what one says of itself, `reading` brings its files back, and
//! `pruning` removes old ones. `celeris restore` is `crate::restore`.

mod making;
pub mod manifest;
pub mod place;
mod pruning;
pub mod reading;

use std::thread;

use bytesize::ByteSize;
use serde_json::json;

use self::place::{Place, shown};
use crate::Failure;
use crate::models::{aligned, print};
use crate::node_client::NodeArgs;

/// Copies the store of a running node, with the versions of its models, to a folder or an object store, while it serves.
/// What is there from earlier backups is not sent again.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The node, which needs the role `admin`.
    #[command(flatten)]
    node: NodeArgs,
    /// Where: a folder, or a URL as s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH.
    #[arg(long, value_name = "PLACE", required = true)]
    to: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Lists the backups of a place.
    List(ListArgs),
    /// Reads a backup back, compares every file with its checksum, opens the store and verifies it.
    Verify(VerifyArgs),
    /// Removes all but the last backups of each store, and the files that no backup needs any more.
    Prune(PruneArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Where the backups are.
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Prints them as JSON, with their positions in the log.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// Where the backups are.
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Which one; by default the last.
    #[arg(long, value_name = "ID")]
    backup: Option<String>,
    /// A folder on a disk with room for the store; by default that for temporary files.
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<std::path::PathBuf>,
}

#[derive(Debug, clap::Args)]
struct PruneArgs {
    /// Where the backups are.
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// How many stay, of each store.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        None => making::run(&args.node, &Place::open(args.to.as_deref().unwrap_or_default())?),
        Some(Command::List(ListArgs { from, json })) => list(&Place::open(from)?, *json),
        Some(Command::Verify(VerifyArgs { from, backup, scratch })) => {
            reading::verify(&Place::open(from)?, backup.as_deref(), scratch.as_deref())
        }
        Some(Command::Prune(PruneArgs { from, keep })) => pruning::run(&Place::open(from)?, *keep as usize),
    }
}

fn list(place: &Place, as_json: bool) -> Result<(), Failure> {
    let manifests = place.manifests()?;
    if as_json {
        let of = |manifest: &manifest::Manifest| {
            json!({
                "id": manifest.id, "at": manifest.at, "store": manifest.store, "cluster": manifest.cluster,
                "celeris": manifest.celeris, "records": manifest.records, "versions": manifest.versions,
                "files": manifest.files.len(), "bytes": manifest.bytes(), "position": manifest.position,
            })
        };
        return print(&format!("{}\n", json!({"backups": manifests.iter().map(of).collect::<Vec<_>>()})));
    }
    if manifests.is_empty() {
        return print(&format!("{}: no backups; make one by celeris backup --to {}\n", place.name(), place.name()));
    }
    let header = ["BACKUP", "TIME", "STORE", "RECORDS", "VERSIONS", "FILES", "SIZE"].map(str::to_owned);
    let rows = manifests.iter().map(|manifest| {
        [
            manifest.id.clone(),
            shown(manifest.at),
            manifest.store.clone(),
            manifest.records.to_string(),
            manifest.versions.to_string(),
            manifest.files.len().to_string(),
            ByteSize(manifest.bytes()).display().si().to_string(),
        ]
    });
    print(&aligned(&std::iter::once(header).chain(rows).collect::<Vec<_>>()))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Files that are moved at a time: a place far away has long waits.
const THREADS: usize = 4;

/// Does the same work on several threads, which share out the files among themselves.
fn on_threads(work: impl Fn() -> Result<(), Failure> + Copy + Send) -> Result<(), Failure> {
    let outcomes: Vec<Result<(), Failure>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let outcome = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(Failure::other("a thread panicked")))
        };
        threads.into_iter().map(outcome).collect()
    });
    outcomes.into_iter().collect()
}
