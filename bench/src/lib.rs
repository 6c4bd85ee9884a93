//! The benches: performance figures as ratios to baselines measured in the same run.
//!
//! Every bench fills a [`Report`] of cases; `report` prints it, `docs` turns all reports into
//! `docs/benchmarks.md`, and `plot` draws the figures. `stopwatch` measures code in process, and
//! `load` measures servers: a node against [`bare`], a handler that parses and returns the same
//! JSON without any other work.

mod bandits;
pub mod bare;
mod bytes;
mod caches;
mod cluster;
mod cold;
mod docs;
mod load;
mod logging;
mod memory;
mod ndjson;
mod observe;
mod ope;
pub mod pipelines;
mod places;
mod plot;
mod process;
mod recommend;
pub mod report;
mod requests;
mod script;
mod secured;
mod selection;
mod serve;
mod size;
mod stopwatch;
mod switch;
mod topk;
pub mod train;
mod tuning;
mod update;

use std::path::{Path, PathBuf};

use crate::report::Report;
use celeris_cli::Failure;

/// Settings of a bench run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A smoke test of a few seconds: every case runs once, and the figures are meaningless.
    pub quick: bool,
    /// The documentation folder; figures are written to `benchmarks/` in it.
    pub docs: Option<PathBuf>,
}

impl Settings {
    /// Returns `full`, or `quick` in a quick run.
    fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    fn figure(&self, name: &str) -> Option<PathBuf> {
        Some(self.docs.as_deref()?.join("benchmarks").join(name))
    }
}

/// The benches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bench {
    /// A rank-one update against solving from scratch, and against a pass over the matrix.
    Update,
    /// Rankings in process, with and without uncertainty, by items, catalog and dimension; caches.
    Topk,
    /// A node under feedback against a bare handler: HTTP, NDJSON, bytes written.
    Observe,
    /// A node under predict and topk against a bare handler.
    Serve,
    /// A node with keys and encrypted connections against one without, under predict, topk and observe.
    Secured,
    /// Switches, rollbacks and a training of a node under a constant load, against the seconds
    /// between them.
    Switch,
    /// The estimates of `estimate-size` against the sizes of a loaded node.
    Size,
    /// A million users on a node whose memory holds few of them. Takes about ten minutes and 5 GB
    /// of disk.
    Memory,
    /// The trainers against Spark, `implicit` and cold starts. Takes about ten minutes if the peers
    /// are installed.
    Train,
    /// Regret of the policies against MABWiser and Vowpal Wabbit. Takes about ten minutes if the
    /// peers are installed.
    Bandits,
    /// Selection among models of which one fails and recovers, and the cost of a choice.
    Selection,
    /// The off-policy estimators against those of obp: values and time.
    Ope,
    /// Top-k search in a million items, against faiss. Takes about ten minutes if the peers are
    /// installed.
    Recommend,
    /// Pipelines of computed features against their operators one at a time, scikit-learn and ONNX Runtime. Takes about
    /// five minutes if the peers are installed.
    Pipelines,
    /// What the samplers of studies find within 30 trials, against Optuna's.
    Tuning,
    /// A cluster of three nodes against raw appends to its NATS servers and against one node. Takes
    /// about six minutes, if there is a `nats-server`.
    Cluster,
}

impl Bench {
    /// All benches, in the order of the documentation.
    pub const ALL: [Self; 16] = [
        Self::Update,
        Self::Topk,
        Self::Observe,
        Self::Serve,
        Self::Secured,
        Self::Switch,
        Self::Size,
        Self::Memory,
        Self::Train,
        Self::Bandits,
        Self::Selection,
        Self::Ope,
        Self::Recommend,
        Self::Pipelines,
        Self::Tuning,
        Self::Cluster,
    ];

    /// The name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Topk => "topk",
            Self::Observe => "observe",
            Self::Serve => "serve",
            Self::Secured => "secured",
            Self::Switch => "switch",
            Self::Size => "size",
            Self::Memory => "memory",
            Self::Train => "train",
            Self::Bandits => "bandits",
            Self::Selection => "selection",
            Self::Ope => "ope",
            Self::Recommend => "recommend",
            Self::Pipelines => "pipelines",
            Self::Tuning => "tuning",
            Self::Cluster => "cluster",
        }
    }

    /// Runs the bench; progress is printed to standard error.
    ///
    /// # Errors
    /// If a node cannot be started, or replies unexpectedly.
    pub fn run(self, settings: &Settings) -> Result<Report, Failure> {
        eprintln!("bench {}", self.name());
        match self {
            Self::Update => update::run(settings),
            Self::Topk => topk::run(settings),
            Self::Observe => observe::run(settings),
            Self::Serve => serve::run(settings),
            Self::Secured => secured::run(settings),
            Self::Switch => switch::run(settings),
            Self::Size => size::run(settings),
            Self::Memory => memory::run(settings),
            Self::Train => train::run(settings),
            Self::Bandits => bandits::run(settings),
            Self::Selection => selection::run(settings),
            Self::Ope => ope::run(settings),
            Self::Recommend => recommend::run(settings),
            Self::Pipelines => pipelines::run(settings),
            Self::Tuning => tuning::run(settings),
            Self::Cluster => cluster::run(settings),
        }
    }
}

/// Replaces the bench's report on the benchmark page in `folder`.
///
/// # Errors
/// If a file cannot be written, or a stored report cannot be read.
pub fn document(folder: &Path, report: &Report) -> Result<(), Failure> {
    docs::keep(folder, report)
}
