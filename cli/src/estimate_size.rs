//! `celeris estimate-size`: estimates the memory and disk usage of a node.

use std::io::Write;

use crate::Failure;
use crate::estimate::{Plan, estimate};
use celeris_api::config;

/// Estimates memory and disk usage by running a small sample through the node's own code.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of users, all of them active.
    #[arg(long)]
    users: u64,
    /// The length of feature and weight vectors, including the constant.
    #[arg(long)]
    dim: usize,
    /// Number of observations of each user.
    #[arg(long)]
    history: u64,
    /// Number of items in each model's table.
    #[arg(long, default_value_t = 10_000)]
    items: u64,
    /// Number of models that learn from the stream.
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
