//! `celeris datasets`: downloads public data sets.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use celeris_datasets::fetch::{FetchOptions, Origin, PUBLISHED, fetch};
use clap::Subcommand;

use crate::Failure;
use crate::progress::Report;

/// Downloads public data sets.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Downloads a data set, verifies its checksum, unpacks it, and shows its licence.
    Fetch {
        /// The name of the data set, such as `ml-latest-small`.
        name: String,
        /// The folder to unpack it into.
        #[arg(long, default_value = ".")]
        to: PathBuf,
        /// The base URL of a mirror.
        #[arg(long)]
        base_url: Option<String>,
    },
    /// Lists the data sets that can be downloaded, with their ratings, sizes and terms of use.
    List,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    match args.action {
        Action::List => out.write_all(list().as_bytes()).map_err(Failure::other),
        Action::Fetch { name, to, base_url } => {
            let mut options = FetchOptions::default();
            if let Some(base_url) = base_url {
                options.base_url = base_url;
            }
            let report = Report::new();
            let fetched = fetch(&name, &to, &options, &mut |done, total| {
                report.at("downloading", total.map_or(0.0, |total| done as f32 / total.max(1) as f32));
            })?;
            report.done();
            if let Some(license) = &fetched.license {
                eprintln!("{license}");
            } else if let Some(readme) = &fetched.readme {
                eprintln!("its terms of use are in {}", readme.display());
            }
            if let Origin::Downloaded { sha256, .. } = &fetched.origin {
                eprintln!("verified; sha256 of the archive: {sha256}");
            }
            writeln!(out, "{}", fetched.folder.display()).map_err(Failure::other)
        }
    }
}

fn list() -> String {
    let mut text =
        format!("{:<16} {:>10} {:>8}  licence (GroupLens; `fetch` shows the whole)\n", "name", "ratings", "archive");
    for data in PUBLISHED {
        let archive = format!("{} MB", data.archive_mb);
        let _ = writeln!(text, "{:<16} {:>10} {archive:>8}  {}", data.name, data.ratings, data.terms.words());
    }
    text.push_str("commercial use of any of them needs the permission of GroupLens\n");
    text
}
