//! Installs the Python peers of benches and engines in a virtual environment.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The installed packages, in the versions of the figures in `docs/benchmarks.md` and
/// `docs/guides/evaluation.md`.
const PINNED: [&str; 17] = [
    "duckdb==2.0.0",
    "faiss-cpu==1.15.1",
    "implicit==0.7.3",
    "lightgbm==4.7.0",
    "myfm==0.4.0",
    "numpy==2.4.6",
    "onnx==1.23.2",
    "onnxmltools==1.16.0",
    "onnxruntime==1.32.0",
    "optuna==5.0.0",
    "pandas==3.1.1",
    "pyarrow==26.0.1",
    "pyspark==4.1.4",
    "river==0.26.1",
    "scikit-learn==1.9.1",
    "scipy==1.17.1",
    "skl2onnx==1.20.0",
];

/// Packages installed without their dependencies: plotting, and others that the benches do not
/// need. Needed ones are above.
const ALONE: [&str; 2] = ["mabwiser==2.7.4", "vowpalwabbit==9.11.9"];

/// Installed without its dependencies and its Python version limit: the estimators need only numpy
/// and scikit-learn of any version; torch and plotting are for other parts of the package.
const OF_ANOTHER_PYTHON: &str = "obp==0.5.7";

/// The package without wheels. All others must have one, so that nothing is compiled
/// unintentionally.
const BUILT_FROM_SOURCE: &str = "pyspark";

/// Lists the installed packages of an environment, so that a second run need not run pip.
const RECORD: &str = "celeris-peers.txt";

/// Installs the peers at `$CELERIS_PEERS`, or by default at `~/.cache/celeris/peers`, unless they
/// are installed already.
///
/// # Errors
/// If there is no Python 3.11 or later, or pip fails; pip's output has the reason.
pub fn install() -> Result<()> {
    let place = place()?;
    let python = place.join("bin/python");
    let record = place.join(RECORD);
    let count = PINNED.len() + ALONE.len() + 1;
    let wanted = [PINNED.as_slice(), &ALONE, &[OF_ANOTHER_PYTHON]].concat().join("\n") + "\n";
    if fs::read_to_string(&record).is_ok_and(|found| found == wanted) && python.exists() {
        println!("{}: all {count} peers are there", place.display());
        return Ok(());
    }
    if !python.exists() {
        println!("making a virtual environment at {}", place.display());
        let base = std::env::var_os("CELERIS_PYTHON").unwrap_or_else(|| OsString::from("python3"));
        run(Command::new(&base).args(["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]))
            .context("the peers need Python 3.11 or later; CELERIS_PYTHON can name one")?;
        run(Command::new(&base).args(["-m", "venv"]).arg(&place)).context("cannot make a virtual environment")?;
    }
    println!("installing {} {} {OF_ANOTHER_PYTHON}", PINNED.join(" "), ALONE.join(" "));
    let only_wheels = ["--only-binary", ":all:", "--no-binary", BUILT_FROM_SOURCE];
    let pip = ["-m", "pip", "install", "--quiet"];
    run(Command::new(&python).args(pip).args(only_wheels).args(PINNED))
        .and_then(|()| run(Command::new(&python).args(pip).args(["--only-binary", ":all:", "--no-deps"]).args(ALONE)))
        .and_then(|()| {
            run(Command::new(&python).args(pip).args(["--no-deps", "--ignore-requires-python", OF_ANOTHER_PYTHON]))
        })
        .context("pip could not install the peers; run the command again once its complaint is settled")?;
    fs::write(&record, wanted).with_context(|| format!("cannot write {}", record.display()))?;
    println!("{}: {count} peers installed", place.display());
    if !Command::new("java").arg("-version").output().is_ok_and(|java| java.status.success()) {
        println!("there is no java on the path: Spark needs Java 17 or later, the others do without");
    }
    Ok(())
}

fn place() -> Result<PathBuf> {
    if let Some(place) = std::env::var_os("CELERIS_PEERS") {
        return Ok(std::path::absolute(PathBuf::from(place))?);
    }
    let home = std::env::var_os("HOME").context("there is no HOME; name a folder with CELERIS_PEERS")?;
    Ok(Path::new(&home).join(".cache/celeris/peers"))
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_owned();
    let status = command.status().with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    Ok(())
}
