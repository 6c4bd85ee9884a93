//! `celeris ingest`: observations from message brokers.

use std::path::PathBuf;

use celeris_api::config::{self, Config};
use celeris_api::ingests::{broker_settings, observation};
use celeris_ingest::{Broker, IngestError, Message};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::Failure;
use crate::models::{aligned, print};
use crate::node_client::{NodeArgs, NodeClient};
use crate::serve::runtime;

/// Observations from NATS JetStream and Kafka, which the tables [[ingest]] of a node's configuration name.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(Status),
    Check(Check),
}

/// Shows how far a running node has read, and what it waits for.
#[derive(Debug, clap::Args)]
struct Status {
    #[command(flatten)]
    node: NodeArgs,
    /// Prints the reply of the API.
    #[arg(long)]
    json: bool,
}

/// Reads messages as a node would and shows what observations they are. Nothing is sent, and no position changes.
#[derive(Debug, clap::Args)]
struct Check {
    /// The configuration of the node.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The ingest to check; all of them by default.
    #[arg(long)]
    name: Option<String>,
    /// Messages of each partition.
    #[arg(long, value_name = "N", default_value_t = 10)]
    messages: usize,
    /// The messages after this offset of Kafka or sequence of NATS; by default the first ones.
    #[arg(long, value_name = "POSITION")]
    after: Option<u64>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Status(status) => status.run(),
        Command::Check(check) => check.run(),
    }
}

impl Status {
    fn run(&self) -> Result<(), Failure> {
        let client = NodeClient::new(&self.node);
        let reply = client.get("/v1/ingests")?;
        if self.json {
            return print(&format!("{reply:#}\n"));
        }
        let ingests = reply["ingests"].as_array().cloned().unwrap_or_default();
        if ingests.is_empty() {
            return print("no ingest; a table [[ingest]] in the configuration of the node makes one\n");
        }
        let mut text = String::new();
        for ingest in &ingests {
            text += &described(ingest);
        }
        print(&text)
    }
}

fn described(ingest: &Value) -> String {
    let word = |key: &str| ingest[key].as_str().unwrap_or_default().to_owned();
    let mut text = format!("{}: {} -> model {}, {}", word("name"), word("source"), word("model"), word("state"));
    if let Some(problem) = ingest["problem"].as_str() {
        text += &format!(": {problem}");
    }
    let count = |key: &str| ingest[key].as_u64().unwrap_or_default();
    text += &format!(
        "\n  {} observations, {} duplicates, {} dead letters ({}), {} removed by the broker before they were read\n",
        count("observations"),
        count("duplicates"),
        count("dead_letters"),
        word("dead_letters_to"),
        count("removed"),
    );
    let number = |value: &Value| value.as_u64().map_or("-".to_owned(), |number| number.to_string());
    let mut rows = vec![["  partition", "position", "lag", ""].map(str::to_owned)];
    for partition in ingest["partitions"].as_array().into_iter().flatten() {
        let name = format!("  {}", partition["partition"].as_str().unwrap_or_default());
        let problem = partition["problem"].as_str().unwrap_or_default().to_owned();
        rows.push([name, number(&partition["position"]), number(&partition["lag"]), problem]);
    }
    if rows.len() > 1 { text + &aligned(&rows) } else { text }
}

impl Check {
    fn run(&self) -> Result<(), Failure> {
        let config = config::load(Some(&self.config), None).map_err(Failure::bad_input)?;
        let chosen: Vec<&config::Ingest> =
            config.ingest.iter().filter(|ingest| self.name.as_ref().is_none_or(|name| *name == ingest.name)).collect();
        if chosen.is_empty() {
            let which = self.name.as_ref().map_or("no table [[ingest]]".to_owned(), |name| format!("no ingest {name}"));
            return Err(Failure::bad_input(format!("{}: it has {which}", self.config.display())));
        }
        let runtime = runtime()?;
        let mut bad = 0;
        for ingest in chosen {
            let checked = runtime.block_on(self.check(ingest, &config)).map_err(|error| match error {
                CheckError::Setting(problem) => Failure::bad_input(format!("ingest {}: {problem}", ingest.name)),
                CheckError::Broker(IngestError::Setting { setting, reason }) => {
                    Failure::bad_input(format!("ingest {}: {setting}: {reason}", ingest.name))
                }
                CheckError::Broker(error) => Failure::other(format!("ingest {}: {error}", ingest.name)),
                CheckError::Output(failure) => failure,
            })?;
            bad += checked;
        }
        if bad > 0 { Err(Failure::other(format!("{bad} of the messages are no observations"))) } else { Ok(()) }
    }

    /// Prints what the messages are; returns how many are no observations.
    async fn check(&self, ingest: &config::Ingest, config: &Config) -> Result<usize, CheckError> {
        let mapping = ingest.mapping().map_err(CheckError::Setting)?;
        let settings = broker_settings(ingest).map_err(CheckError::Setting)?;
        let broker = Broker::connect(&ingest.name, &settings).await?;
        let mut bad = 0;
        for mut reader in broker.readers().await? {
            let batch = reader.read_after(self.after).await?;
            let (partition, more) = (reader.partition(), batch.behind);
            for message in batch.messages.iter().take(self.messages) {
                let line = line(&partition, message, observation(&mapping, message, config.limits.line.as_u64()));
                bad += usize::from(line["problem"].is_string());
                print(&format!("{line}\n")).map_err(CheckError::Output)?;
            }
            let read = batch.messages.len();
            eprintln!("celeris: {}, partition {partition}: {} messages", ingest.name, read as u64 + more);
        }
        Ok(bad)
    }
}

enum CheckError {
    Setting(String),
    Broker(IngestError),
    Output(Failure),
}

impl From<IngestError> for CheckError {
    fn from(error: IngestError) -> Self {
        Self::Broker(error)
    }
}

fn line(
    partition: &str,
    message: &Message,
    observation: Result<celeris_model::Observation, celeris_ingest::Poison>,
) -> Value {
    let (partition, position) = (partition, message.offset);
    match observation {
        Ok(observation) => json!({
            "partition": partition, "position": position, "user": observation.user, "item": observation.item,
            "label": observation.label, "timestamp": observation.timestamp.map(|time| time.0),
            "observation_id": observation.observation_id,
        }),
        Err(poison) => json!({
            "partition": partition, "position": position, "problem": poison.reason, "field": poison.field,
            "message": String::from_utf8_lossy(message.payload.as_deref().unwrap_or_default()),
        }),
    }
}
