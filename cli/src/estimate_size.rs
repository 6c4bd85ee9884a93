//! `celeris estimate-size`: the memory and disk that a node will take.

use std::io::Write;

use crate::Failure;
use crate::estimate::{Plan, estimate};
use celeris_api::config;

/// Predicts memory and disk, from a small sample that goes through the code that does the accounting on a node.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Users, all of them active.
    #[arg(long)]
    users: u64,
    /// The length of features and weights, the constant included.
    #[arg(long)]
    dim: usize,
    /// Observations of each user.
    #[arg(long)]
    history: u64,
    /// Items in each model's table.
    #[arg(long, default_value_t = 10_000)]
    items: u64,
    /// Models that learn from the one stream.
    #[arg(long, default_value_t = 1)]
    models: u64,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let config = config::load(None, None).map_err(Failure::BadInput)?;
    let plan = Plan { users: args.users, dim: args.dim, history: args.history, items: args.items, models: args.models };
    let estimate = estimate(&plan, &config)?;
    let text = if args.json { serde_json::to_string(&estimate).map_err(Failure::other)? } else { estimate.to_string() };
    writeln!(std::io::stdout().lock(), "{}", text.trim_end()).map_err(Failure::other)
}
