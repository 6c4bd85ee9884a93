//! `celeris demo`: loads a ratings file, trains a model and serves it with a web page, in one
//! command.

mod in_contexts;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use celeris_datasets::synthetic::Circumstances;
use celeris_datasets::{Dataset, ItemInfo, SyntheticSettings, TemporaryFolder};
use celeris_manager::{Cause, JobState, ManagerError, ModelConfig, TrainRequest};
use celeris_model::observation::EARLIEST;
use celeris_model::{ItemId, ModelName, Observation, ObservationId, VersionId};
use celeris_predictor::PredictorError;
use celeris_storage::AckMode;
use serde_json::{Map, Value};
use tokio::net::TcpListener;

use crate::Failure;
use crate::logging::{self, Form};
use crate::progress::Report;
use crate::serve::{announce, asked_to_stop, close, listen, open, runtime, serve};
use celeris_api::config;
use celeris_api::schema::models::DIM_DEFAULT;
use celeris_api::state::Node;

/// The model that the demo serves.
const MODEL: &str = "demo";

/// Maximum number of observations in flight while the data set is loaded.
const IN_FLIGHT: usize = 4096;

/// Polling interval of the training's progress.
const POLL: Duration = Duration::from_millis(50);

/// Runs the demo.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A MovieLens folder or ratings file; synthetic data by default.
    #[arg(long)]
    dataset: Option<PathBuf>,
    /// Puts each synthetic rating into a context of device and hour, on which rankings depend then.
    #[arg(long, conflicts_with = "dataset")]
    contexts: bool,
    /// Address and port; port 0 picks a free one.
    #[arg(long)]
    listen: Option<String>,
    /// The data directory; by default a temporary folder that is removed at the end.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The length of feature and weight vectors, including the constant.
    #[arg(long, default_value_t = DIM_DEFAULT)]
    dim: usize,
    /// Stops as soon as the node is ready.
    #[arg(long)]
    exit_when_ready: bool,
}

pub fn run(args: Args, form: Form) -> Result<(), Failure> {
    let mut config = config::load(None, args.listen.as_deref()).map_err(Failure::BadInput)?;
    // Data sets have ratings from before 2000.
    config.limits.earliest_time = EARLIEST;
    let _traces = logging::start_node(form, &config)?;
    let temporary = TemporaryFolder::new().map_err(Failure::other)?;
    let data_dir = args.data_dir.clone().unwrap_or_else(|| temporary.path().join("data"));
    runtime()?.block_on(async move {
        let listener = listen(&config).await?;
        let node = open(&data_dir, &config, &listener)?;
        let model = ModelName::new(MODEL).map_err(Failure::other)?;
        let ready = make_ready(&node, &listener, &model, &args).await;
        if ready.is_err() || args.exit_when_ready {
            close(&node)?;
            return ready;
        }
        serve(listener, node, &config).await
    })
}

/// Prepares the demo unless an earlier run has, and says how to use it.
async fn make_ready(node: &Node, listener: &TcpListener, model: &ModelName, args: &Args) -> Result<(), Failure> {
    if !is_prepared(node, (model, args))? {
        let asked_to_stop = asked_to_stop()?;
        tokio::select! {
            prepared = prepare(node, model, args) => prepared?,
            () = asked_to_stop => return Err(Failure::other("stopped before the demo was ready")),
        }
    }
    let address = listener.local_addr().map_err(Failure::other)?;
    eprintln!("open http://{address}/ in a browser; the API is described at http://{address}/docs");
    let recommend = format!("http://{address}/v1/models/{model}/recommend");
    eprintln!(
        r#"recommend to user 7: curl {recommend} -H 'content-type: application/json' -d '{{"user": "7", "k": 10}}'"#
    );
    if args.contexts {
        eprintln!("rankings depend on device (phone, tablet, desktop) and hour; the page has a field for each");
    }
    if args.exit_when_ready { announce(&format!("http://{address}")) } else { Ok(()) }
}

/// Whether an earlier run has trained a version. An interrupted run is resumed: observation ids
/// derive from the row, so no rating is learnt twice.
///
/// # Errors
/// If an earlier run with other contexts is to be resumed, or has none of those that are asked for.
fn is_prepared(node: &Node, (model, args): (&ModelName, &Args)) -> Result<bool, Failure> {
    match node.manager.registry().model(model) {
        Ok(record) => {
            let (is_trained, has_contexts) = (record.active > VersionId(1), !record.config.features.is_empty());
            match (args.contexts, has_contexts) {
                (true, false) => Err(Failure::bad_input(
                    "the data directory has a demo without contexts; give another one by --data-dir",
                )),
                (false, true) if !is_trained => Err(Failure::bad_input(
                    "the data directory has an unfinished demo with contexts; start it with --contexts",
                )),
                _ => Ok(is_trained),
            }
        }
        Err(ManagerError::UnknownModel { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Loads the data set and trains a first version on it.
async fn prepare(node: &Node, model: &ModelName, args: &Args) -> Result<(), Failure> {
    let started = Instant::now();
    let report = Report::new();
    report.at("loading", 0.0);
    let (dataset, circumstances) = tokio::task::block_in_place(|| load(args))?;
    report.at("loading", 1.0);
    let mut config = ModelConfig::new(model.clone(), args.dim);
    if args.contexts {
        tokio::task::block_in_place(|| node.manager.declare_pipeline(in_contexts::pipeline()))?;
        config.features = in_contexts::features();
    }
    match tokio::task::block_in_place(|| node.manager.create(config)) {
        Ok(_) | Err(ManagerError::ModelExists { .. }) => {}
        Err(error @ (ManagerError::Dim { .. } | ManagerError::FeatureParts { .. })) => {
            return Err(Failure::bad_input(error));
        }
        Err(error) => return Err(error.into()),
    }
    describe(node, model, &dataset.items)?;
    take_in(node, model, (&dataset, &circumstances, args), &report).await?;
    train(node, model, &report).await?;
    report.done();
    let (ratings, seconds) = (dataset.ratings.len(), started.elapsed().as_secs_f64());
    eprintln!("{}: {ratings} ratings learnt from in {seconds:.1} s", dataset.name);
    Ok(())
}

/// The data set, and the circumstances of each rating if they are put into contexts.
fn load(args: &Args) -> Result<(Dataset, Vec<Circumstances>), Failure> {
    if let Some(path) = &args.dataset {
        return Ok((Dataset::load(path)?, Vec::new()));
    }
    let settings = SyntheticSettings::default();
    let mut synthetic = settings.generate()?;
    let circumstances = if args.contexts { synthetic.put_into_contexts(settings.seed) } else { Vec::new() };
    Ok((synthetic.dataset, circumstances))
}

fn describe(node: &Node, model: &ModelName, items: &[ItemInfo]) -> Result<(), Failure> {
    let described: Vec<(&ItemId, Map<String, Value>)> =
        items.iter().map(|item| (&item.id, item.attributes())).collect();
    let described = described.iter().map(|(item, attributes)| (*item, attributes));
    node.predictor.catalog().put_attributes(model, described).map_err(Failure::other)
}

/// The error of a rejected rating: bad input if its values are invalid.
fn refused(error: &PredictorError, args: &Args, number: usize) -> Failure {
    let file = args.dataset.as_deref().unwrap_or(Path::new("the synthetic data set")).display();
    match error {
        PredictorError::Model(error) => Failure::bad_input(format!("{file}: rating {}: {error}", number + 1)),
        error => Failure::other(error),
    }
}

async fn take_in(
    node: &Node,
    model: &ModelName,
    (dataset, circumstances, args): (&Dataset, &[Circumstances], &Args),
    report: &Report,
) -> Result<(), Failure> {
    let mut in_flight = std::collections::VecDeque::with_capacity(IN_FLIGHT);
    for (done, rating) in dataset.ratings.iter().enumerate() {
        let observation = Observation {
            user: rating.user.clone(),
            item: rating.item.clone(),
            label: rating.label,
            weight: 1.0,
            timestamp: Some(rating.timestamp),
            observation_id: Some(ObservationId::new(format!("{}-{done}", dataset.name)).map_err(Failure::bad_input)?),
            feedback: Some("rating".to_owned()),
            decision: None,
            context: circumstances.get(done).map(|circumstances| Box::new(circumstances.context())),
        };
        if in_flight.len() == IN_FLIGHT
            && let Some(oldest) = in_flight.pop_front()
        {
            node.predictor.ingest().finish_observe(oldest).await.map_err(Failure::other)?;
        }
        let begun = node.predictor.ingest().begin_observe(model, None, &observation, AckMode::Gather);
        in_flight.push_back(begun.map_err(|error| refused(&error, args, done))?);
        if done % IN_FLIGHT == 0 {
            report.at("observing", done as f32 / dataset.ratings.len() as f32);
        }
    }
    for pending in in_flight {
        node.predictor.ingest().finish_observe(pending).await.map_err(Failure::other)?;
    }
    report.at("observing", 1.0);
    Ok(())
}

async fn train(node: &Node, model: &ModelName, report: &Report) -> Result<(), Failure> {
    let record = node.manager.registry().model(model)?;
    let cause = Cause::Request("the demo's first training".to_owned());
    let id = node.manager.training().retrain(&record, TrainRequest::default(), cause)?.job;
    loop {
        let job = node.manager.training().jobs().get(id.as_str())?;
        if job.state.is_final() {
            return match job.state {
                JobState::Succeeded => Ok(()),
                JobState::Rejected => {
                    let why = job.gate.map_or_else(String::new, |gate| gate.why);
                    Err(Failure::other(format!(
                        "the trained version predicts no better than an untrained one and does not serve ({why}); choose a \
                         data set with more ratings"
                    )))
                }
                _ => Err(Failure::other(job.error.unwrap_or_else(|| "the training failed".to_owned()))),
            };
        }
        report.at(&job.phase, job.progress);
        tokio::time::sleep(POLL).await;
    }
}
