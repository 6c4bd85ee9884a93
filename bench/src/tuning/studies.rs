//! Studies of a node: the time of collaborative ones and of several workers, and what tuning gains.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use celeris_cli::Failure;
use serde_json::{Value, json};

use crate::Settings;
use crate::places;
use crate::process::{Server, celeris_binary, command};
use crate::report::Report;

/// Dimension of the model, in all trials of the timed studies.
const DIM: usize = 20;

/// Trials of a study, and of the ones that compare workers.
const TRIALS: usize = 20;
const TRIALS_OF_WORKERS: usize = 8;

/// Relative difference below which losses are the same: a quarter of their standard error.
const INDIFFERENCE: f64 = 1e-3;

const POLL_EVERY: Duration = Duration::from_millis(50);

/// A study that has ended.
struct Ended(Value);

impl Ended {
    /// Seconds until the loss of a trial is at most this, trials one after the other; `None` if none
    /// is.
    fn seconds_to(&self, loss: f64) -> Option<f64> {
        let mut seconds = 0.0;
        for trial in self.0["trials"].as_array()? {
            seconds += trial["seconds"].as_f64()?;
            if trial["trial"] != 0 && trial["value"].as_f64()? <= loss {
                return Some(seconds);
            }
        }
        None
    }

    fn loss(&self, of: &str) -> Option<f64> {
        self.0[of]["value"].as_f64()
    }

    /// The lowest loss of a trial other than that of the present settings.
    fn lowest(&self) -> Option<f64> {
        let trials = self.0["trials"].as_array()?.iter().skip(1).filter(|trial| trial["state"] == "complete");
        trials.filter_map(|trial| trial["value"].as_f64()).reduce(f64::min)
    }

    /// Seconds from its start to its end.
    fn seconds(&self) -> Option<f64> {
        Some((self.0["finished"].as_f64()? - self.0["created"].as_f64()?) / 1e3)
    }
}

pub fn run(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let Some(dataset) = places::find("ml-latest-small", "ratings.csv") else {
        eprintln!("  no ml-latest-small: studies are left out; `celeris datasets fetch ml-latest-small` puts it here");
        return Ok(());
    };
    let dir = tempfile::tempdir().map_err(Failure::other)?;
    let node = Node::with(&dataset, &dir.path().join("data"))?;
    let regularization = || json!({"regularization": {"float": [0.1, 10.0], "log": true}});
    let trials = settings.pick(TRIALS, 2);
    let alone = node.study(&json!({"space": regularization(), "trials": trials}))?;
    let together = node.study(&json!({"space": regularization(), "trials": trials, "collaborative": true}))?;
    if let Some(lowest) = alone.lowest() {
        let target = lowest * (1.0 + INDIFFERENCE);
        let (theirs, ours) = (alone.seconds_to(target), together.seconds_to(target));
        report.measured("costudy/time_to_best", "s", ours.unwrap_or(f64::NAN), theirs);
        report.measured("costudy/best", "loss", together.lowest().unwrap_or(f64::NAN), Some(lowest));
    }
    let count = settings.pick(TRIALS_OF_WORKERS, 2);
    let of_workers = |workers: usize| {
        node.study(&json!({"space": regularization(), "trials": count, "sampler": "random", "workers": workers}))
    };
    let (one, two) = (of_workers(1)?, of_workers(2)?);
    // Times, so that more is better.
    report.measured("workers=2", "s", one.seconds().unwrap_or(f64::NAN), two.seconds());
    let wide = json!({"dim": {"int": [4, 48], "log": true}, "regularization": {"float": [0.1, 10.0], "log": true}});
    let tuned = node.study(&json!({"space": wide, "trials": trials}))?;
    report.measured("tuned/loss", "loss", tuned.loss("best").unwrap_or(f64::NAN), tuned.loss("baseline"));
    node.server.stop()
}

struct Node {
    server: Server,
}

impl Node {
    /// A node with the ratings of a data set.
    fn with(dataset: &Path, data_dir: &Path) -> Result<Self, Failure> {
        // The first ratings of the data set are of 1996.
        let server = Server::node_with(data_dir, &[("CELERIS_LIMITS__EARLIEST_TIME", "1990-01-01T00:00:00Z")])?;
        let node = Self { server };
        node.post("/v1/models", &json!({"name": "films", "dim": DIM, "triggers": {}}))?;
        let url = format!("http://{}", node.server.address());
        let mut import = command(celeris_binary()?);
        import.args(["import", "--url", &url, "--model", "films", "--old-times", "--dataset"]).arg(dataset);
        let status = import.stdout(Stdio::null()).stderr(Stdio::null()).status().map_err(Failure::other)?;
        if !status.success() {
            return Err(Failure::other(format!("the import of {} ended with {status}", dataset.display())));
        }
        Ok(node)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let url = format!("http://{}{path}", self.server.address());
        let reply = ureq::post(&url).send_json(body).and_then(|mut reply| reply.body_mut().read_json());
        reply.map_err(|error| Failure::other(format!("{url}: {error}")))
    }

    /// Runs a study to its end.
    fn study(&self, body: &Value) -> Result<Ended, Failure> {
        eprintln!("  a study: {body}");
        let accepted = self.post("/v1/models/films/studies", body)?;
        let id = accepted["study"].as_str().ok_or_else(|| Failure::other("a study has no id"))?.to_owned();
        let url = format!("http://{}/v1/studies/{id}", self.server.address());
        loop {
            let reply = ureq::get(&url).call().and_then(|mut reply| reply.body_mut().read_json::<Value>());
            let study = reply.map_err(|error| Failure::other(format!("{url}: {error}")))?;
            if study["state"] == "ended" {
                return Ok(Ended(study));
            }
            std::thread::sleep(POLL_EVERY);
        }
    }
}
