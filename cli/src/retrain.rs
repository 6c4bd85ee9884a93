//! `celeris retrain`: retrains a model of a running node.

use std::time::Duration;

use celeris_model::ModelName;
use serde_json::{Value, json};

use crate::Failure;
use crate::models::print;
use crate::node_client::{NodeArgs, NodeClient};
use crate::progress::Report;

/// Time between two questions about a job.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// Retrains a model of a running node.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model.
    model: String,
    #[command(flatten)]
    node: NodeArgs,
    /// Waits for a training that is running and for this one, and fails unless its version serves.
    #[arg(long)]
    wait: bool,
    /// Trains from nothing and tunes all settings again.
    #[arg(long)]
    cold: bool,
    /// The trainer, if not the one of the model's settings.
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// The reason, for the record of the job.
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let model = ModelName::new(&args.model).map_err(|error| Failure::bad_input(format!("MODEL: {error}")))?;
    let client = NodeClient::new(&args.node);
    let mut body = json!({"cold": args.cold});
    for (name, value) in [("engine", &args.engine), ("why", &args.why)] {
        if let Some(value) = value {
            body[name] = value.as_str().into();
        }
    }
    if args.wait {
        // A trigger may have started a training, which perhaps does not know the latest observations.
        while let Some(job) = running(&client, &model)? {
            wait_for(&client, &job)?;
        }
    }
    let accepted = client.post(&format!("/v1/models/{model}/retrain"), &body)?;
    let Some(job) = accepted["job"].as_str() else {
        return Err(Failure::other(format!("{} answered without a job: {accepted}", client.url())));
    };
    if !args.wait {
        return print(&format!("{job}\n"));
    }
    let ended = wait_for(&client, job)?;
    let version =
        || ended["version"].as_u64().map_or_else(|| "no version".to_owned(), |number| format!("version {number}"));
    let why = || ended["gate"]["why"].as_str().unwrap_or("without a comparison").to_owned();
    match ended["state"].as_str() {
        Some("succeeded") => {
            let warning = warning(&client, &model, &ended["version"])?;
            let warning = warning.map(|warning| format!("warning: {warning}\n")).unwrap_or_default();
            print(&format!("{} of {model} serves: {}\n{warning}", version(), why()))
        }
        Some("rejected") => Err(Failure::other(format!(
            "{} of {model} was refused by the gate and does not serve: {}; the version before it serves on. Train again \
             with more observations, or let it serve by POST /v1/models/{model}/versions/N/activate",
            version(),
            why()
        ))),
        _ => {
            let error = ended["error"].as_str().unwrap_or("no reason given");
            Err(Failure::other(format!("the training of {model} failed: {error}")))
        }
    }
}

/// What the node warns of in a version.
fn warning(client: &NodeClient, model: &ModelName, version: &Value) -> Result<Option<String>, Failure> {
    let versions = client.get(&format!("/v1/models/{model}/versions"))?;
    let of_number = |of: &&Value| of["version"] == *version;
    let found = versions["versions"].as_array().and_then(|versions| versions.iter().find(of_number));
    Ok(found.and_then(|found| found["warning"].as_str()).map(str::to_owned))
}

/// The unfinished job of the model, if there is one.
fn running(client: &NodeClient, model: &ModelName) -> Result<Option<String>, Failure> {
    let jobs = client.get(&format!("/v1/jobs?model={model}&limit=1"))?;
    let latest = &jobs["jobs"][0];
    Ok(if is_unfinished(latest) { latest["job"].as_str().map(str::to_owned) } else { None })
}

fn is_unfinished(job: &Value) -> bool {
    matches!(job["state"].as_str(), Some("queued" | "running"))
}

/// Shows the progress of a job until it has ended, and returns it.
fn wait_for(client: &NodeClient, job: &str) -> Result<Value, Failure> {
    let report = Report::new();
    loop {
        let state = client.get(&format!("/v1/jobs/{job}")).inspect_err(|_| report.done())?;
        if !is_unfinished(&state) {
            report.done();
            return Ok(state);
        }
        #[expect(clippy::cast_possible_truncation, reason = "a share of 1 for people")]
        report.at(state["phase"].as_str().unwrap_or("running"), state["progress"].as_f64().unwrap_or(0.0) as f32);
        std::thread::sleep(POLL_EVERY);
    }
}
