//! `celeris-bench train`: the built-in trainers against Spark and `implicit`, and a refresh against
//! a cold start.

mod data;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use celeris_model::Loss;
use celeris_retrain::{Algorithm, Job, Phase, Step};

use celeris_cli::Failure;
use celeris_evaluate::peers::data::{Data, write_job};
use celeris_evaluate::peers::judge::{Vectors, own_rmse, percentile_rank, served_rmse, served_weights};
use celeris_evaluate::peers::run as run_process;
use celeris_evaluate::peers::trainers::{PeerSettings, Peers};

use crate::Settings;
use crate::process::celeris_binary;
use crate::report::Report;

/// Graded labels: factors per row, iterations, and MLlib's `regParam`. Our trainer estimates its
/// ridge; the job only sets the share 1 of the partners' variances, as its model assumes.
const GRADED: PeerSettings = PeerSettings { factors: 20, iterations: 10, regularization: 0.1, seed: 1 };

/// Implicit feedback: both sides minimise the objective of Hu et al. (2008) with this `lambda`.
const IMPLICIT: PeerSettings = PeerSettings { factors: 64, iterations: 12, regularization: 4.0, seed: 1 };

/// One in this many ratings is newer than the version that a refresh starts from.
const FRESH_ONE_IN: usize = 100;

/// The job file, in the folder of its case.
const JOB_FILE: &str = "job.json";

/// Number of our runs and of cold starts; the fastest is reported, because disturbances only add
/// time.
const RUNS: usize = 3;

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("train");
    // Starting a JVM takes too long for a smoke test.
    let peers = if settings.quick { None } else { Peers::find() };
    let folder = tempfile::tempdir().map_err(Failure::other)?;
    for data in data::all(settings)? {
        let bench = Bench { peers: peers.as_ref(), folder: folder.path().join(data.name), data, settings };
        bench.graded(&mut report)?;
        bench.refresh(&mut report)?;
        bench.implicit(&mut report)?;
        std::fs::remove_dir_all(&bench.folder).map_err(Failure::other)?;
    }
    Ok(report)
}

/// The cases of one data set.
struct Bench<'a> {
    peers: Option<&'a Peers>,
    folder: PathBuf,
    data: Data,
    settings: &'a Settings,
}

impl Bench<'_> {
    fn case(&self, kind: &str, what: &str) -> String {
        format!("{kind}/{}{what}", self.data.name)
    }

    /// Our trainer and MLlib's on the same file, measured from process start to end.
    fn graded(&self, report: &mut Report) -> Result<(), Failure> {
        let folder = self.folder.join("graded");
        let mut job = write_job(&folder, &self.data, self.data.train.len(), GRADED.factors + 1)?;
        job.algorithm =
            Algorithm::Als { iterations_max: GRADED.iterations, regularization: Some(1.0), prior_scale: None };
        let seconds = self.fastest(&job, &folder)?;
        let rmse = served_rmse(&job.output, &self.data, self.data.train.len())?;
        let (mut spark_seconds, mut spark_rmse) = (None, None);
        if let Some(peers) = self.peers {
            spark_seconds = Some(peers.spark(&job, GRADED, &folder)?);
            let spark = folder.join("spark");
            let items = Vectors::of_items(&spark, GRADED.factors)?;
            spark_rmse = Some(own_rmse(&items, &Vectors::of_users(&spark, GRADED.factors)?, &self.data));
        }
        report.measured(self.case("als", ""), "s", seconds, spark_seconds);
        report.measured(self.case("als", "/rmse"), "stars", rmse, spark_rmse);
        Ok(())
    }

    /// A refresh after a hundredth of new observations, against a cold start on all of them.
    fn refresh(&self, report: &mut Report) -> Result<(), Failure> {
        let (before, after) = (self.folder.join("before"), self.folder.join("after"));
        let count = self.data.train.len();
        let parent = write_job(&before, &self.data, count - count / FRESH_ONE_IN, GRADED.factors + 1)?;
        train(&parent, &before)?;
        let cold = write_job(&after, &self.data, count, GRADED.factors + 1)?;
        let warm = Job { warm_start: Some(parent.output.clone()), output: after.join("warm"), ..cold.clone() };
        let (mut cold_seconds, mut warm_seconds) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..self.settings.pick(RUNS, 1) {
            // In turn, so that disturbances affect both.
            cold_seconds = cold_seconds.min(train(&cold, &after)?);
            warm_seconds = warm_seconds.min(train(&warm, &after)?);
        }
        report.measured(self.case("refresh", ""), "s", warm_seconds, Some(cold_seconds));
        let rmse = |job: &Job| served_rmse(&job.output, &self.data, count);
        report.measured(self.case("refresh", "/rmse"), "stars", rmse(&warm)?, Some(rmse(&cold)?));
        Ok(())
    }

    /// The median duration of an iteration over implicit feedback, and the percentile rank of the
    /// held-out items.
    fn implicit(&self, report: &mut Report) -> Result<(), Failure> {
        let folder = self.folder.join("implicit");
        let mut job = write_job(&folder, &self.data, self.data.train.len(), IMPLICIT.factors)?;
        job.loss = Loss::Implicit;
        job.algorithm = Algorithm::Als {
            iterations_max: IMPLICIT.iterations,
            regularization: Some(IMPLICIT.regularization),
            prior_scale: None,
        };
        let iterations = sweep_seconds(&job, &folder)?;
        let items = Vectors::of_items(&job.output, IMPLICIT.factors)?;
        let rank = percentile_rank(&items, &served_weights(&job.output, &self.data)?, &self.data);
        let (mut peer_seconds, mut peer_rank) = (None, None);
        if let Some(peers) = self.peers {
            peer_seconds = Some(median(peers.implicit(&folder.join(JOB_FILE), IMPLICIT, &folder)?));
            let items = Vectors::of_items(&folder, IMPLICIT.factors)?;
            let users = Vectors::of_users(&folder, IMPLICIT.factors)?;
            peer_rank = Some(percentile_rank(&items, &users, &self.data));
        }
        report.measured(self.case("implicit", "/iteration"), "s", median(iterations), peer_seconds);
        report.measured(self.case("implicit", "/rank"), "share", rank, peer_rank);
        Ok(())
    }

    /// The fastest of several trainings in a separate process, in seconds.
    fn fastest(&self, job: &Job, folder: &Path) -> Result<f64, Failure> {
        let mut fastest = f64::INFINITY;
        for _ in 0..self.settings.pick(RUNS, 1) {
            fastest = fastest.min(train(job, folder)?);
        }
        Ok(fastest)
    }
}

/// Writes the job file and removes an earlier output folder.
fn write(job: &Job, folder: &Path) -> Result<PathBuf, Failure> {
    if job.output.exists() {
        std::fs::remove_dir_all(&job.output).map_err(Failure::other)?;
    }
    let file = folder.join(JOB_FILE);
    std::fs::write(&file, serde_json::to_vec(job).map_err(Failure::other)?).map_err(Failure::other)?;
    Ok(file)
}

/// Runs the train job as the node does; returns the seconds from process start to end.
fn train(job: &Job, folder: &Path) -> Result<f64, Failure> {
    let file = write(job, folder)?;
    let mut command = Command::new(celeris_binary()?);
    command.args(["train", "--job"]).arg(&file);
    let started = Instant::now();
    run_process(&mut command)?;
    Ok(started.elapsed().as_secs_f64())
}

/// The seconds of every iteration of a train job except the first, whose start is not reported.
fn sweep_seconds(job: &Job, folder: &Path) -> Result<Vec<f64>, Failure> {
    let file = write(job, folder)?;
    let mut command = Command::new(celeris_binary()?);
    command.args(["train", "--job"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(Failure::other)?;
    let stdout = child.stdout.take().expect("standard output is piped");
    let steps = BufReader::new(stdout).lines().map_while(Result::ok);
    let trained = |line: &String| serde_json::from_str::<Step>(line).is_ok_and(|step| step.phase == Phase::Training);
    let ends: Vec<Instant> = steps.filter(trained).map(|_| Instant::now()).collect();
    let status = child.wait().map_err(Failure::other)?;
    if !status.success() {
        return Err(Failure::other(format!("a train job ended with {status}")));
    }
    Ok(ends.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
