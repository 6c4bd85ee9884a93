//! `celeris estimate-size`: estimates the memory and disk usage of a node.

use std::io::Write;

use crate::Failure;
use crate::estimate::{Plan, estimate};
use crate::numbers::{count, whole};
use celeris_api::config;

/// Estimates the memory and disk usage of a node.
///
/// A small sample runs through the node's own code, and its sizes are scaled up. Numbers may be written as 1000000, 1_000_000 or 1e6.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of users, all of them active.
    #[arg(long, value_parser = whole)]
    users: u64,
    /// The length of feature and weight vectors, including the constant.
    #[arg(long, value_parser = count)]
    dim: usize,
    /// Number of observations of each user.
    #[arg(long, value_parser = whole)]
    history: u64,
    /// Number of items in each model's table.
    #[arg(long, default_value_t = 10_000, value_parser = whole)]
    items: u64,
    /// Number of models that learn from the stream.
    #[arg(long, default_value_t = 1, value_parser = whole)]
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
