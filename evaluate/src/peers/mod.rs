//! The Python peers that benches compare with, each run as a separate process.

pub mod data;
pub mod judge;
pub(crate) mod ratings;
pub mod trainers;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::Command;

/// Number of threads of every trainer, ours and the peers'.
pub const THREADS: NonZeroUsize = NonZeroUsize::new(2).expect("two is not zero");

/// The virtual environment made by `cargo xtask peers`.
pub struct Python {
    bin: PathBuf,
}

impl Python {
    /// The environment at `$CELERIS_PEERS` or at the default path; prints a message and returns
    /// `None` if there is none.
    pub fn find() -> Option<Self> {
        let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/celeris/peers"));
        let place = std::env::var_os("CELERIS_PEERS").map(PathBuf::from).or_else(usual)?;
        if place.join("bin/python").exists() {
            return Some(Self { bin: place.join("bin") });
        }
        eprintln!(
            "  no Python peers at {}: their columns stay empty; `cargo xtask peers` installs them",
            place.display()
        );
        None
    }

    /// As [`Python::find`], if it has these modules; prints a message and returns `None` if one is
    /// missing.
    pub fn with(modules: &[&str]) -> Option<Self> {
        let python = Self::find()?;
        let has = |module: &&&str| {
            let code = format!("import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)");
            let output = Command::new(python.program("python")).args(["-c", &code]).output();
            output.is_ok_and(|output| output.status.success())
        };
        match modules.iter().find(|module| !has(module)) {
            None => Some(python),
            Some(missing) => {
                eprintln!(
                    "  no {missing} among the Python peers: its columns stay empty; `cargo xtask peers` installs it"
                );
                None
            }
        }
    }

    /// The path of one of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}

/// Runs the command to its end; returns its standard output.
pub fn run(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| anyhow::anyhow!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = stderr.lines().rev().take(8).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Err(anyhow::anyhow!("{program} ended with {}: {}", output.status, last.join("\n")))
}
