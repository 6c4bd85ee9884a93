//! The engine `spark`: how `spark-submit` is called with our script.

use std::fs;
use std::path::Path;

use celeris_retrain::JobLimits;

use super::settings::SparkSettings;
use super::with_job;
use crate::error::ManagerError;

/// The script, written beside the job, so that the binary is all that has to be installed besides Spark.
const SCRIPT: &str = include_str!("../../../retrain/engines/spark_als.py");

/// The share of the memory limit that is Java's heap; code, threads and the Python beside it take the rest.
const HEAP_PERCENT: u64 = 60;

/// Program with arguments, and what to add to its environment.
pub(super) type Call = (Vec<String>, Vec<(String, String)>);

/// Writes the script into the job's folder and returns how to run it.
///
/// # Errors
/// `Io`.
pub(super) fn command(
    settings: &SparkSettings,
    limits: JobLimits,
    dir: &Path,
    job_file: &Path,
) -> Result<Call, ManagerError> {
    let script = dir.join("spark_als.py");
    fs::write(&script, SCRIPT).map_err(ManagerError::io(&script))?;
    let heap = (limits.memory_bytes / 100 * HEAP_PERCENT) >> 20;
    let mut command = vec![settings.submit.clone(), "--master".to_owned(), settings.master()];
    command.extend(["--driver-memory".to_owned(), format!("{heap}m")]);
    let mut configure = |name: &str, value: &str| command.extend(["--conf".to_owned(), format!("{name}={value}")]);
    configure("spark.ui.enabled", "false");
    configure("spark.log.level", "WARN");
    configure("spark.local.dir", &dir.join("spark").display().to_string());
    if settings.is_local() {
        // Nobody else has to reach it.
        configure("spark.driver.host", "127.0.0.1");
        configure("spark.driver.bindAddress", "127.0.0.1");
    }
    command.push(script.display().to_string());
    Ok((with_job(command, job_file), environment(settings)))
}

/// A Spark that is installed in a virtual environment runs on the Python of that environment.
fn environment(settings: &SparkSettings) -> Vec<(String, String)> {
    let beside = Path::new(&settings.submit).parent().map(|folder| folder.join("python"));
    match beside.filter(|python| python.is_absolute() && python.exists()) {
        Some(python) => vec![("PYSPARK_PYTHON".to_owned(), python.display().to_string())],
        None => Vec::new(),
    }
}
