//! faiss, as a process that takes turns with our searches.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::world::World;
use crate::script::{Script, Source};
use crate::stopwatch::Durations;
use celeris_cli::Failure;
use celeris_evaluate::peers::Python;

const SOURCE: Source = Source { name: "faiss_search.py", text: include_str!("faiss_search.py") };

/// The faiss process with the same rows and queries.
pub struct Faiss(Script);

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
        let Some(python) = Python::with(&["faiss"]) else { return Ok(None) };
        world.write(folder).map_err(Failure::other)?;
        let arguments = ["--dim", &world.dim.to_string(), "--threads", &threads.to_string()];
        Ok(Some(Self(Script::start(&python, &SOURCE, folder, &arguments)?)))
    }

    /// Searches for these queries by an exact scan.
    ///
    /// # Errors
    /// If the process has ended; its output is on standard error.
    pub fn flat(&mut self, queries: Range<usize>) -> Result<Answer, Failure> {
        self.0.ask(&format!("flat {} {}", queries.start, queries.len()))
    }

    /// Builds a graph, and determines the number of candidates needed for a recall of 0.99.
    ///
    /// # Errors
    /// As [`Faiss::flat`].
    pub fn grow(&mut self) -> Result<Answer, Failure> {
        self.0.ask("grow")
    }

    /// Searches for these queries with the graph.
    ///
    /// # Errors
    /// As [`Faiss::flat`].
    pub fn graph(&mut self, queries: Range<usize>) -> Result<Answer, Failure> {
        self.0.ask(&format!("graph {} {}", queries.start, queries.len()))
    }
}
