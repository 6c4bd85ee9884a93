//! `celeris work`: makes trials of studies of a node on this machine.

mod heartbeat;
mod offer;
mod records;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use celeris_api::config;
use celeris_manager::{ManagerError, RemoteTrial, TrainingOptions};
use celeris_model::ModelName;
use celeris_study::Outcome;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::heartbeat::Heartbeat;
use self::offer::{Offer, Offers};
use self::records::{FetchError, Records};
use crate::Failure;
use crate::interrupt::at_interrupt;
use crate::node_client::{NodeArgs, NodeClient, Unanswered};
use crate::scratch::remove_folders;
use crate::serve::runtime;

/// Time between two looks for a trial.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long the result of a trial is offered to a node that does not answer.
const TELL_FOR: Duration = Duration::from_secs(600);

/// Makes trials of the studies of a node on this machine, until it is stopped.
///
/// It asks the studies with `remote_workers` for trials. The observations that a study reads come here, into a folder that is removed at the
/// end, or when users in it are erased. A worker that is stopped loses its trial; the study goes on. Start as many as
/// the machine has processors for, of the same version as the node.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
    /// One study; all that have trials for workers by default.
    #[arg(long, value_name = "ID", conflicts_with = "model")]
    study: Option<String>,
    /// The studies of one model.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The name of this worker in the record of a trial; host and process by default.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Number of training threads; all processors but one by default.
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// The folder for the observations and what is trained; that for temporary files by default.
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    /// A configuration file, in TOML, whose section `training` names trainers and limits.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ends when no study has trials for it any more, instead of waiting for the next.
    #[arg(long)]
    exit_when_idle: bool,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let model = args.model.as_deref().map(ModelName::new).transpose();
    let model = model.map_err(|error| Failure::bad_input(format!("--model: {error}")))?;
    let config = config::load(args.config.as_deref(), None).map_err(Failure::BadInput)?;
    let worker = Worker {
        client: Arc::new(NodeClient::new(&args.node)),
        name: args.name.clone().unwrap_or_else(own_name),
        threads: args.threads.unwrap_or_else(celeris_retrain::spare_threads),
        scratch: args.scratch.clone(),
        training: config.training.options().map_err(Failure::BadInput)?,
        runtime: runtime()?,
    };
    at_interrupt(|| {
        remove_folders();
        "stopped; a trial that was under way is lost, and the study goes on".to_owned()
    });
    let offers = Offers { study: args.study.clone(), model };
    // The first answer says whether node, key and study are right; a node that is away later is waited for.
    let mut found = offers.ask(&worker.client, &worker.name)?;
    let mut records: Option<Records> = None;
    match found {
        Offer::Trial(_) => {}
        Offer::None if args.exit_when_idle => {}
        Offer::Later(_) | Offer::None => tracing::info!("waiting for trials of {offers} at {}", worker.client.url()),
    }
    loop {
        match found {
            Offer::Trial(trial) => worker.make(&trial, &mut records)?,
            Offer::Later(waiting) => {
                // Users in others were erased, or no trial needs them.
                let is_needed = |held: &Records| waiting.iter().any(|(study, data)| held.are_of(study, *data));
                records = records.filter(is_needed);
                thread::sleep(LOOK_EVERY);
            }
            Offer::None if args.exit_when_idle => return Ok(()),
            Offer::None => {
                // No trial needs them.
                records = None;
                thread::sleep(LOOK_EVERY);
            }
        }
        found = offers.ask_patiently(&worker.client, &worker.name)?;
    }
}

/// The host and the process.
fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "worker" } else { host.trim() };
    format!("{host}/{}", std::process::id())
}

/// Makes trials, one after the other.
struct Worker {
    client: Arc<NodeClient>,
    name: String,
    threads: NonZeroUsize,
    scratch: Option<PathBuf>,
    training: TrainingOptions,
    runtime: Runtime,
}

/// A trial that this worker has.
#[derive(Debug, Clone)]
struct Assigned {
    study: String,
    trial: u32,
    attempt: u32,
    params: celeris_study::Params,
    data: u64,
    lease: Duration,
}

impl Assigned {
    fn path(&self, message: &str) -> String {
        format!("/v1/studies/{}/trials/{}/{message}", self.study, self.trial)
    }
}

impl Worker {
    /// Makes a trial and tells its result. A trial that fails or is lost is no failure of the worker.
    fn make(&self, assigned: &Assigned, records: &mut Option<Records>) -> Result<(), Failure> {
        let Assigned { study, trial, .. } = assigned;
        tracing::info!(%study, trial, params = %json!(assigned.params), "trial");
        let heartbeat = Heartbeat::start(&self.client, assigned);
        let made = self.outcome_of(assigned, &heartbeat, records);
        let Some(made) = made.transpose().filter(|_| !heartbeat.is_lost()) else {
            tracing::warn!(%study, trial, "the trial is not this worker's any more: it was stopped, or its lease ran out");
            // Users in them may have been erased.
            *records = None;
            return Ok(());
        };
        let body = match &made {
            Ok(Outcome { value, standard_error, difference_error }) => json!({
                "attempt": assigned.attempt, "value": value, "standard_error": standard_error,
                "difference_error": difference_error,
            }),
            Err(error) => json!({"attempt": assigned.attempt, "error": shortened(&error.to_string())}),
        };
        match &made {
            Ok(outcome) => tracing::info!(%study, trial, loss = outcome.value, "trial is complete"),
            Err(error) => tracing::warn!(%study, trial, %error, "trial has no loss"),
        }
        self.tell(assigned, &body)?;
        // Without its records no trial of the study can be made here.
        match made {
            Err(NoLoss::Records(failure)) => Err(failure),
            _ => Ok(()),
        }
    }

    /// The loss of a trial; `None` if it is not this worker's any more.
    fn outcome_of(
        &self,
        assigned: &Assigned,
        heartbeat: &Heartbeat,
        records: &mut Option<Records>,
    ) -> Result<Option<Outcome>, NoLoss> {
        if !records.as_ref().is_some_and(|records| records.are_of(&assigned.study, assigned.data)) {
            // The old ones go before the new ones come.
            *records = None;
            *records = self.fetched(assigned, heartbeat).map_err(NoLoss::Records)?;
        }
        let Some(records) = records else { return Ok(None) };
        let trial = RemoteTrial { params: assigned.params.clone(), threads: self.threads, stop: heartbeat.stop() };
        self.runtime.block_on(records.worker().run(trial)).map(Some).map_err(NoLoss::Trial)
    }

    /// The records for a trial, from a node that may restart meanwhile; `None` if the trial is not this worker's any more.
    fn fetched(&self, assigned: &Assigned, heartbeat: &Heartbeat) -> Result<Option<Records>, Failure> {
        let of_worker = (self.name.as_str(), self.scratch.as_deref(), &self.training);
        loop {
            let why = match Records::fetch(&self.client, &assigned.study, of_worker) {
                Ok(records) => return Ok(Some(records)),
                Err(FetchError::Failed(failure)) => return Err(failure),
                Err(FetchError::Refused(why)) => {
                    tracing::warn!(why, "the observations were refused");
                    return Ok(None);
                }
                Err(FetchError::Cut(_)) if heartbeat.is_lost() => return Ok(None),
                Err(FetchError::Cut(why)) => why,
            };
            tracing::warn!(node = self.client.url(), why, "the observations did not come; trying again");
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Tells the result, for a while also to a node that does not answer.
    fn tell(&self, assigned: &Assigned, body: &Value) -> Result<(), Failure> {
        let until = Instant::now() + TELL_FOR;
        loop {
            match sent_once(&self.client, &assigned.path("tell"), body) {
                Ok(_) => return Ok(()),
                Err(Unanswered::Away { after, .. }) if Instant::now() < until => thread::sleep(after),
                Err(Unanswered::Away { why, .. }) => {
                    return Err(Failure::other(format!("{} does not take the result: {why}", self.client.url())));
                }
                Err(Unanswered::Refused(Failure::BadInput(why))) => {
                    tracing::warn!(study = assigned.study, trial = assigned.trial, why, "the result was refused");
                    return Ok(());
                }
                Err(Unanswered::Refused(failure)) => return Err(failure),
            }
        }
    }
}

/// Why a trial has no loss.
#[derive(Debug)]
enum NoLoss {
    /// What it reads cannot be kept here.
    Records(Failure),
    Trial(ManagerError),
}

impl std::fmt::Display for NoLoss {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Records(Failure::BadInput(why) | Failure::Other(why)) => formatter.write_str(why),
            Self::Trial(error) => error.fmt(formatter),
        }
    }
}

/// Posts a message and returns the reply.
fn sent_once(client: &NodeClient, path: &str, body: &Value) -> Result<Value, Unanswered> {
    let response = client.post_once(path, "application/json", body.to_string().as_bytes())?;
    client.accepted(response).map_err(Unanswered::Refused)
}

/// As much of a text as the node takes.
fn shortened(text: &str) -> &str {
    const BYTES_MAX: usize = 1000;
    &text[..text.floor_char_boundary(BYTES_MAX)]
}
