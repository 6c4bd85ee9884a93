//! faiss, as a process that takes turns with our searches.

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::world::World;
use crate::stopwatch::Durations;
use celeris_cli::Failure;
use celeris_evaluate::peers::Python;

const SCRIPT: &str = include_str!("faiss_search.py");

/// The faiss process with the same rows and queries.
pub struct Faiss {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The process's reply to a command.
#[derive(Debug, Deserialize)]
pub struct Answer {
    /// Seconds of each query.
    #[serde(default)]
    pub seconds: Vec<f64>,
    /// The rows found, by query.
    #[serde(default)]
    pub found: Vec<Vec<u32>>,
    /// Recall of the graph, at the smallest sufficient expansion.
    #[serde(default)]
    pub recall: f64,
}

impl Answer {
    /// Adds the seconds to `durations`.
    pub fn add_to(&self, durations: &mut Durations) {
        self.seconds.iter().for_each(|seconds| durations.add(Duration::from_secs_f64(*seconds)));
    }
}

impl Faiss {
    /// Starts the process on the rows of `world`; prints a message and returns `None` if faiss is
    /// not among the peers.
    ///
    /// # Errors
    /// If the rows cannot be written, or the process cannot be started.
    pub fn start(world: &World, folder: &Path, threads: usize) -> Result<Option<Self>, Failure> {
        let Some(python) = Python::find().map(|python| python.program("python")) else { return Ok(None) };
        let installed = Command::new(&python).args(["-c", "import faiss"]).output();
        if !installed.is_ok_and(|output| output.status.success()) {
            eprintln!("  no faiss among the Python peers: its columns stay empty; `cargo xtask peers` installs it");
            return Ok(None);
        }
        let script = folder.join("faiss_search.py");
        std::fs::write(&script, SCRIPT).map_err(Failure::other)?;
        world.write(folder).map_err(Failure::other)?;
        let mut process = Command::new(python)
            .arg(&script)
            .arg("--folder")
            .arg(folder)
            .args(["--dim", &world.dim.to_string(), "--threads", &threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::other)?;
        let commands = process.stdin.take().ok_or_else(|| Failure::other("faiss: no standard input"))?;
        let answers = process.stdout.take().ok_or_else(|| Failure::other("faiss: no standard output"))?;
        Ok(Some(Self { process, commands, answers: BufReader::new(answers) }))
    }

    /// Searches for these queries by an exact scan.
    ///
    /// # Errors
    /// If the process has ended; its output is on standard error.
    pub fn flat(&mut self, queries: Range<usize>) -> Result<Answer, Failure> {
        self.ask(&format!("flat {} {}", queries.start, queries.len()))
    }

    /// Builds a graph, and determines the number of candidates needed for a recall of 0.99.
    ///
    /// # Errors
    /// As [`Faiss::flat`].
    pub fn grow(&mut self) -> Result<Answer, Failure> {
        self.ask("grow")
    }

    /// Searches for these queries with the graph.
    ///
    /// # Errors
    /// As [`Faiss::flat`].
    pub fn graph(&mut self, queries: Range<usize>) -> Result<Answer, Failure> {
        self.ask(&format!("graph {} {}", queries.start, queries.len()))
    }

    fn ask(&mut self, command: &str) -> Result<Answer, Failure> {
        writeln!(self.commands, "{command}").and_then(|()| self.commands.flush()).map_err(Failure::other)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(Failure::other)?;
        serde_json::from_str(&line).map_err(|error| Failure::other(format!("faiss, asked for {command}: {error}")))
    }
}

impl Drop for Faiss {
    fn drop(&mut self) {
        // The process has no state to save.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
