//! The trainers that ours are compared with, each a process: Spark's MLlib and the library `implicit`.

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

/// What both sides of a comparison are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub factors: usize,
    pub iterations: usize,
    pub regularization: f64,
    /// Of `implicit`'s random start; Spark has none.
    pub seed: u64,
}

/// Spark and `implicit` in the environment that `cargo xtask peers` makes.
pub struct Peers(Python);

impl Peers {
    /// What is there; `None`, saying so, where there is none.
    pub fn find() -> Option<Self> {
        Python::find().map(Self)
    }

    /// Trains by Spark on all cores that ours has; answers the seconds from start to end of the process.
    ///
    /// # Errors
    /// Where it fails, with what it said last.
    pub fn spark(&self, job: &Job, asked: Asked, folder: &Path) -> anyhow::Result<f64> {
        let script = folder.join("spark_als.py");
        std::fs::write(&script, SPARK_SCRIPT)?;
        let mut job = serde_json::to_value(job)?;
        job["algorithm"] = json!({
            "name": "spark",
            "rank": asked.factors,
            "iterations": asked.iterations,
            "regularization": asked.regularization,
        });
        job["output"] = json!(folder.join("spark"));
        let file = folder.join("spark.json");
        std::fs::write(&file, job.to_string())?;
        let mut command = Command::new(self.0.program("spark-submit"));
        command
            .arg("--master")
            .arg(format!("local[{}]", super::THREADS))
            // Memory enough, no page, and no more partitions than so few cores can use: kind to Spark.
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

    /// Trains by `implicit`; answers the seconds of every iteration.
    ///
    /// # Errors
    /// As [`Peers::spark`].
    pub fn implicit(&self, job_file: &Path, asked: Asked, folder: &Path) -> anyhow::Result<Vec<f64>> {
        #[derive(Deserialize)]
        struct Said {
            iteration_seconds: Vec<f64>,
        }
        let script = folder.join("implicit_als.py");
        std::fs::write(&script, IMPLICIT_SCRIPT)?;
        let mut command = Command::new(self.0.program("python"));
        command
            .arg(&script)
            .arg("--job")
            .arg(job_file)
            .args(["--factors", &asked.factors.to_string(), "--iterations", &asked.iterations.to_string()])
            .args(["--regularization", &asked.regularization.to_string()])
            .args(["--threads", &super::THREADS.to_string(), "--seed", &asked.seed.to_string()]);
        let said: Said = serde_json::from_slice(&run(&mut command)?)?;
        Ok(said.iteration_seconds)
    }
}
