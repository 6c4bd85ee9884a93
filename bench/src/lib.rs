//! The benches: claims of speed as ratios against baselines that are measured in the same run.
//!
//! Every bench fills a [`Report`] of cases; `report` prints it, `docs` turns all of them into `docs/benchmarks.md`, and
//! `plot` draws the figures. `scene` makes the data, `stopwatch` measures code in process, `load` measures servers:
//! a node against [`bare`], a handler that parses and answers the same JSON and does nothing else.

mod bandits;
pub mod bare;
mod bytes;
mod caches;
mod cold;
mod docs;
mod load;
mod logging;
mod memory;
mod ndjson;
mod observe;
mod ope;
mod plot;
mod process;
mod recommend;
pub mod report;
mod selection;
mod serve;
mod size;
mod stopwatch;
mod switch;
mod topk;
pub mod train;
mod update;

use std::path::{Path, PathBuf};

use crate::report::Report;
use celeris_cli::Failure;

/// How thoroughly a bench measures, and where its figures go.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A smoke run of seconds: every case once, with figures that mean nothing.
    pub quick: bool,
    /// The folder of documents; figures go into `benchmarks/` in it.
    pub docs: Option<PathBuf>,
}

impl Settings {
    /// The full value, or the quick run's.
    fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    fn figure(&self, name: &str) -> Option<PathBuf> {
        Some(self.docs.as_deref()?.join("benchmarks").join(name))
    }
}

/// The benches there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bench {
    /// One rank-one update against solving again, and against a pass over the matrix.
    Update,
    /// Rankings in process, with and without uncertainty, by items, catalog and dimension; caches.
    Topk,
    /// A node under feedback against a bare handler: HTTP, NDJSON, bytes written.
    Observe,
    /// A node under predict and topk against a bare handler.
    Serve,
    /// Switches, rollbacks and a training of a node under a constant load, against the seconds between them.
    Switch,
    /// What `estimate-size` says against what a loaded node takes.
    Size,
    /// A million users on a node whose memory holds few of them. Takes some ten minutes and 5 GB of disk.
    Memory,
    /// The trainers against Spark, `implicit` and training from nothing. Takes some ten minutes where the peers are there.
    Train,
    /// Regret of the policies against MABWiser's and Vowpal Wabbit's. Takes some ten minutes where the peers are there.
    Bandits,
    /// Selection among models of which one fails and recovers, and what choosing costs.
    Selection,
    /// The off-policy estimators against those of obp, in value and in time.
    Ope,
    /// The best of a million items, exactly and by an index, against faiss. Takes some ten minutes where the peers are there.
    Recommend,
}

impl Bench {
    /// All of them, in the order of the documents.
    pub const ALL: [Self; 12] = [
        Self::Update,
        Self::Topk,
        Self::Observe,
        Self::Serve,
        Self::Switch,
        Self::Size,
        Self::Memory,
        Self::Train,
        Self::Bandits,
        Self::Selection,
        Self::Ope,
        Self::Recommend,
    ];

    /// Its name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Topk => "topk",
            Self::Observe => "observe",
            Self::Serve => "serve",
            Self::Switch => "switch",
            Self::Size => "size",
            Self::Memory => "memory",
            Self::Train => "train",
            Self::Bandits => "bandits",
            Self::Selection => "selection",
            Self::Ope => "ope",
            Self::Recommend => "recommend",
        }
    }

    /// Runs it; progress goes to standard error.
    ///
    /// # Errors
    /// Where a node cannot be started, or answers what it should not.
    pub fn run(self, settings: &Settings) -> Result<Report, Failure> {
        eprintln!("bench {}", self.name());
        match self {
            Self::Update => update::run(settings),
            Self::Topk => topk::run(settings),
            Self::Observe => observe::run(settings),
            Self::Serve => serve::run(settings),
            Self::Switch => switch::run(settings),
            Self::Size => size::run(settings),
            Self::Memory => memory::run(settings),
            Self::Train => train::run(settings),
            Self::Bandits => bandits::run(settings),
            Self::Selection => selection::run(settings),
            Self::Ope => ope::run(settings),
            Self::Recommend => recommend::run(settings),
        }
    }
}

/// Puts a report into the page of benchmarks in `folder`, in place of the bench's report before.
///
/// # Errors
/// Where a file cannot be written, or an earlier report cannot be read.
pub fn document(folder: &Path, report: &Report) -> Result<(), Failure> {
    docs::keep(folder, report)
}
