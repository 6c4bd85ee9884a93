//! The baseline trainers, each a process: Spark's MLlib and the library `implicit`.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use celeris_retrain::Job;
use serde::Deserialize;
use serde_json::json;

use crate::peers::{Python, run};

/// The trainer of the engine `spark`.
const SPARK_SCRIPT: &str = include_str!("../../../retrain/engines/spark_als.py");
const IMPLICIT_SCRIPT: &str = include_str!("implicit_als.py");

/// Settings of both sides of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct PeerSettings {
    pub factors: usize,
    pub iterations: usize,
    pub regularization: f64,
    /// The seed of `implicit`'s random initialization; Spark has none.
    pub seed: u64,
}

/// Spark and `implicit` in the environment that `cargo xtask peers` makes.
pub struct Peers(Python);

impl Peers {
    /// Finds the environment; prints a message and returns `None` if there is none.
    pub fn find() -> Option<Self> {
        Python::find().map(Self)
    }

    /// Trains with Spark on as many cores as ours; returns the seconds from process start to end.
    ///
    /// # Errors
    /// If it fails, with the last lines of its output.
    pub fn spark(&self, job: &Job, settings: PeerSettings, folder: &Path) -> anyhow::Result<f64> {
        let script = folder.join("spark_als.py");
        std::fs::write(&script, SPARK_SCRIPT)?;
        let mut job = serde_json::to_value(job)?;
        job["algorithm"] = json!({
            "name": "spark",
            "rank": settings.factors,
            "iterations": settings.iterations,
            "regularization": settings.regularization,
        });
        job["output"] = json!(folder.join("spark"));
        let file = folder.join("spark.json");
        std::fs::write(&file, job.to_string())?;
        let mut command = Command::new(self.0.program("spark-submit"));
        command
            .arg("--master")
            .arg(format!("local[{}]", super::THREADS))
            // Enough memory, no web UI, and no more partitions than the cores can use, in Spark's
            // favour.
            .args(["--driver-memory", "4g", "--conf", "spark.ui.enabled=false"])
            .args(["--conf", "spark.sql.shuffle.partitions=8", "--conf", "spark.default.parallelism=8"])
            .arg(&script)
            .arg("--job")
            .arg(&file)
            .env("PYSPARK_PYTHON", self.0.program("python"))
            .env("PYSPARK_DRIVER_PYTHON", self.0.program("python"))
            .env("SPARK_LOCAL_IP", "127.0.0.1");
        let started = Instant::now();
        run(&mut command)?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Trains with `implicit`; returns the seconds of every iteration.
    ///
    /// # Errors
    /// As [`Peers::spark`].
    pub fn implicit(&self, job_file: &Path, settings: PeerSettings, folder: &Path) -> anyhow::Result<Vec<f64>> {
        #[derive(Deserialize)]
        struct Output {
            iteration_seconds: Vec<f64>,
        }
        let script = folder.join("implicit_als.py");
        std::fs::write(&script, IMPLICIT_SCRIPT)?;
        let mut command = Command::new(self.0.program("python"));
        command
            .arg(&script)
            .arg("--job")
            .arg(job_file)
            .args(["--factors", &settings.factors.to_string(), "--iterations", &settings.iterations.to_string()])
            .args(["--regularization", &settings.regularization.to_string()])
            .args(["--threads", &super::THREADS.to_string(), "--seed", &settings.seed.to_string()]);
        let output: Output = serde_json::from_slice(&run(&mut command)?)?;
        Ok(output.iteration_seconds)
    }
}
