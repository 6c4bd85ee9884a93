//! `celeris config`: prints the configuration of a node.

use std::io::Write;
use std::path::PathBuf;

use celeris_api::config;
use celeris_api::config_listing::listing;

use crate::Failure;

/// Prints every key of the configuration with its default and the value in force, as TOML.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration file, in TOML.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Address and port, as for `celeris serve`.
    #[arg(long)]
    listen: Option<String>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let config = config::load(args.config.as_deref(), args.listen.as_deref()).map_err(Failure::BadInput)?;
    let text = listing(&config).map_err(Failure::other)?;
    std::io::stdout().lock().write_all(text.as_bytes()).map_err(Failure::other)
}
