//! `celeris status`: whether a node is ready, its models, and its latest jobs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::Failure;
use crate::models::{print, table};
use crate::node_client::{NodeArgs, NodeClient};

/// Number of jobs shown.
const JOBS: usize = 5;

/// Shows whether a running node is ready, its models, and its latest jobs.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
    /// Prints `ready`, `models` and `jobs` as one JSON object.
    #[arg(long)]
    json: bool,
}

/// # Errors
/// Also if the node is not ready, after the status was printed.
pub fn run(args: &Args) -> Result<(), Failure> {
    let client = NodeClient::new(&args.node);
    // Of a node that cannot be reached, only this is said.
    let models = client.get("/v1/models")?;
    let jobs = client.get(&format!("/v1/jobs?limit={JOBS}"))?;
    let ready = client.get("/readyz");
    if args.json {
        let status = json!({"ready": ready.is_ok(), "models": models["models"], "jobs": jobs["jobs"]});
        print(&format!("{status}\n"))?;
    } else {
        let mut text = format!("{}: {}\n\n", client.url(), if ready.is_ok() { "ready" } else { "NOT READY" });
        text.push_str(&table(&models));
        for job in jobs["jobs"].as_array().into_iter().flatten() {
            let _ = write!(text, "\n{}", of_job(job));
        }
        print(text.trim_end())?;
        print("\n")?;
    }
    ready.map(|_| ())
}

/// One line on a job.
fn of_job(job: &Value) -> String {
    let text = |name: &str| printable(job[name].as_str().unwrap_or_default());
    let mut line = format!("job {} of {}: {}", text("job"), text("model"), text("state"));
    match text("state").as_str() {
        "running" => {
            let percent = job["progress"].as_f64().unwrap_or(0.0) * 100.0;
            let _ = write!(line, ", {} {percent:.0} %", text("phase"));
        }
        "failed" => {
            let _ = write!(line, ": {}", text("error"));
        }
        _ => {}
    }
    if let Some(version) = job["version"].as_u64() {
        let _ = write!(line, ", version {version}");
    }
    let _ = write!(line, " ({})", text("why"));
    line
}

/// A text in one line, without the control characters that a terminal obeys.
fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
