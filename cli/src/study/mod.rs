//! `celeris study`: searches for the settings of a model of a running node.

mod space;
mod table;

use std::time::Duration;

use celeris_model::ModelName;
use serde_json::{Map, Value, json};

use self::space::{Search, search};
use crate::Failure;
use crate::models::print;
use crate::node_client::{NodeArgs, NodeClient};
use crate::progress::Report;

/// Time between two questions about a study.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// Searches for settings of a model that give a lower loss.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Start(StartArgs),
    /// Lists the studies of a model, the latest first.
    List {
        /// The model.
        model: String,
        #[command(flatten)]
        node: NodeArgs,
    },
    /// Shows a study and its best trials.
    Show {
        #[command(flatten)]
        of: OneArgs,
        /// Prints the reply of the API.
        #[arg(long)]
        json: bool,
    },
    /// Shows the progress of a study until it has ended, then its best trials.
    Watch(OneArgs),
    /// Ends a study; its running trials are stopped.
    Stop(OneArgs),
    /// Gives the model the best settings of a study that has ended, and retrains it with them.
    Apply(OneArgs),
}

/// Starts a study, and prints its id.
///
/// Each trial trains the model with other settings and judges it on observations that were held out. Trial 0 has the
/// present settings.
#[derive(Debug, clap::Args)]
struct StartArgs {
    /// The model.
    model: String,
    #[command(flatten)]
    node: NodeArgs,
    /// What to search, once for each setting: a range of whole numbers as `dim=8..64`, of other numbers as
    /// `regularization=0.1..10.0:log`, where `:log` counts equal ratios as equal distances, or values as
    /// `half_life=null,604800`. The settings are `dim`, `regularization`, `iterations`, `half_life`, `prior_scale` and
    /// `attributes`, and of trainers that are not built in `alpha`.
    #[arg(long, value_name = "NAME=VALUES", required = true, value_parser = search)]
    search: Vec<Search>,
    /// Number of trials besides that of the present settings; 30 by default.
    #[arg(long, value_name = "N")]
    trials: Option<u32>,
    /// Seconds after which no trial begins.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Number of trials at a time of the node; 1 by default.
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    /// Number of trials at a time of workers on other machines (`celeris work`); 0 by default.
    #[arg(long, value_name = "N")]
    remote_workers: Option<u32>,
    /// Seconds without a message after which a trial of such a worker is lost; 60 by default.
    #[arg(long, value_name = "N")]
    lease_seconds: Option<u64>,
    /// How trials are chosen: `gp`, which is the default, `tpe` or `random`.
    #[arg(long, value_name = "NAME")]
    sampler: Option<String>,
    /// Ends the study after this many trials in a row without a lower loss.
    #[arg(long, value_name = "N")]
    patience: Option<u32>,
    /// Lets trials continue from what the best one so far has learnt.
    #[arg(long)]
    collaborative: bool,
    /// The seed of the choices; 1 by default.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Gives the model the best settings at the end, and retrains it with them.
    #[arg(long)]
    retrain: bool,
    /// The reason, for the record of the study.
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Waits until the study has ended, and shows its best trials.
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The id of the study.
    study: String,
    #[command(flatten)]
    node: NodeArgs,
}

impl OneArgs {
    fn client(&self) -> NodeClient {
        NodeClient::new(&self.node)
    }

    fn path(&self) -> Result<String, Failure> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if self.study.is_empty() || !self.study.bytes().all(plain) {
            return Err(Failure::bad_input(
                "STUDY: the id of a study has letters, digits and -; `celeris study list` shows it",
            ));
        }
        Ok(format!("/v1/studies/{}", self.study))
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.action {
        Action::Start(args) => start(args),
        Action::List { model, node } => {
            let studies = NodeClient::new(node).get(&format!("/v1/models/{}/studies", name_of(model)?))?;
            let lines: Vec<String> = studies["studies"].as_array().into_iter().flatten().map(table::line).collect();
            let none = || format!("no studies of {model}; `celeris study start {model}` starts one\n");
            print(&if lines.is_empty() { none() } else { lines.join("\n") })
        }
        Action::Show { of, json } => {
            let study = of.client().get(&of.path()?)?;
            print(&if *json { format!("{study}\n") } else { shown(&study) })
        }
        Action::Watch(of) => {
            let study = ended(&of.client(), &of.path()?)?;
            print(&shown(&study))
        }
        Action::Stop(of) => {
            let study = of.client().post(&format!("{}/stop", of.path()?), &Value::Null)?;
            print(&table::line(&study))
        }
        Action::Apply(of) => {
            let study = of.client().post(&format!("{}/apply", of.path()?), &Value::Null)?;
            print(&table::line(&study))
        }
    }
}

fn name_of(model: &str) -> Result<ModelName, Failure> {
    ModelName::new(model).map_err(|error| Failure::bad_input(format!("MODEL: {error}")))
}

fn start(args: &StartArgs) -> Result<(), Failure> {
    let model = name_of(&args.model)?;
    let mut space = Map::new();
    for Search { name, axis } in &args.search {
        if space.insert(name.clone(), axis.clone()).is_some() {
            return Err(Failure::bad_input(format!("--search: {name} twice")));
        }
    }
    let mut body = json!({"space": space, "collaborative": args.collaborative});
    let numbers = [
        ("trials", args.trials.map(u64::from)),
        ("seconds", args.seconds),
        ("workers", args.workers.map(u64::from)),
        ("remote_workers", args.remote_workers.map(u64::from)),
        ("lease_seconds", args.lease_seconds),
        ("patience", args.patience.map(u64::from)),
        ("seed", args.seed),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            body[name] = number.into();
        }
    }
    let then = args.retrain.then(|| "retrain".to_owned());
    for (name, text) in [("sampler", &args.sampler), ("why", &args.why), ("then", &then)] {
        if let Some(text) = text {
            body[name] = text.as_str().into();
        }
    }
    let client = NodeClient::new(&args.node);
    let accepted = client.post(&format!("/v1/models/{model}/studies"), &body)?;
    let Some(study) = accepted["study"].as_str() else {
        return Err(Failure::other(format!("{} answered without a study: {accepted}", client.url())));
    };
    if !args.wait {
        return print(&format!("{study}\n"));
    }
    let ended = ended(&client, &format!("/v1/studies/{study}"))?;
    print(&shown(&ended))?;
    match ended["error"].as_str().filter(|_| ended["why_stopped"] == "failures") {
        Some(error) => Err(Failure::other(format!("the study failed: {error}"))),
        None => Ok(()),
    }
}

fn shown(study: &Value) -> String {
    format!("{}\n{}", table::line(study), table::trials(study))
}

/// Shows the progress of a study until it has ended, and returns it.
fn ended(client: &NodeClient, path: &str) -> Result<Value, Failure> {
    let report = Report::new();
    loop {
        let study = client.get(path).inspect_err(|_| report.done())?;
        if study["state"] == "ended" {
            report.done();
            return Ok(study);
        }
        let all = study["trials_max"].as_u64().unwrap_or(1) + 1;
        let phase =
            study["best"]["value"].as_f64().map_or_else(|| "trials".to_owned(), |best| format!("best {best:.4}"));
        #[expect(clippy::cast_possible_truncation, reason = "a share of 1 for people")]
        report.at(&phase, (study["complete"].as_f64().unwrap_or(0.0) / all as f64) as f32);
        std::thread::sleep(POLL_EVERY);
    }
}
