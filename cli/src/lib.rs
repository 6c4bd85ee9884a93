//! The `celeris` command line: one file for each command, over the API library.
//!
//! `estimate` generates any number of users and items in process, for `estimate-size` and for the
//! benches, which are a separate binary: see `celeris-bench`.

mod backup;
mod check;
mod cluster;
mod completions;
mod config;
mod confined;
mod datasets;
mod demo;
pub mod estimate;
mod estimate_size;
mod evaluate;
mod export;
mod import;
mod ingest;
mod interrupt;
mod json_lines;
mod keys;
mod logging;
mod man_pages;
mod models;
mod node_client;
mod numbers;
mod pipelines;
mod progress;
mod restore;
mod retrain;
mod scratch;
pub mod serve;
mod status;
mod study;
mod traces;
mod train;
mod work;

use std::fmt::Display;
use std::io::ErrorKind;
use std::process::ExitCode;

use celeris_api::cluster::JoinError;
use celeris_api::node::StartError;
use celeris_datasets::DatasetError;
use celeris_export::ExportError;
use celeris_manager::ManagerError;
use celeris_retrain::RetrainError;
use celeris_sandbox::{BECOME, SUPERVISE};
use celeris_storage::StorageError;
use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use rustix::fs::Mode;
use rustix::process::umask;

/// One allocator for Rust and RocksDB: the feature `override` defines `malloc` and `free` of the
/// whole binary. glibc's arenas fragment when many threads replace the states of many users.
/// mimalloc asks Linux for huge pages, which insertions into RocksDB's memtables need: they follow
/// pointers all over them.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Online-learning personalization: predictions that learn from every observation.
#[derive(Debug, Parser)]
#[command(name = "celeris", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Writes log lines as JSON.
    #[arg(long, global = true)]
    log_json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Loads a data set, trains on it, serves it, and prints the address of the web page.
    Demo(demo::Args),
    /// Runs a node.
    Serve(serve::Args),
    /// Prints every key of the configuration with its default and the value in force.
    Config(config::Args),
    Check(check::Args),
    /// Trains a version in a separate process; called by the node.
    #[command(hide = true)]
    Train(train::Args),
    /// Runs a trainer confined; called by the node.
    #[command(hide = true, name = SUPERVISE)]
    Supervise(confined::SuperviseArgs),
    /// Becomes a trainer; called by its supervisor.
    #[command(hide = true, name = BECOME)]
    Become(confined::BecomeArgs),
    /// Streams feedback from files into a running node.
    Import(import::Args),
    /// Streams logs of decisions in dsjson, as Azure Personalizer stores them, into a running node.
    ///
    /// FILE is a file or the folder of the logs, with folders for years, months and days. Each slot of a decision becomes
    /// an observation: of the item that was shown, with minus its cost as the label and the fields of the context. The
    /// user is the field `User.id`, or the one that `--map user=context.NAME` names.
    #[command(long_about)]
    ImportPersonalizer(import::Args),
    /// Shows whether a running node is ready, its models and its latest jobs.
    Status(status::Args),
    /// Lists the models of a running node.
    Models(models::Args),
    /// Retrains a model of a running node.
    Retrain(retrain::Args),
    Study(study::Args),
    Work(work::Args),
    Ingest(ingest::Args),
    Keys(keys::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Cluster(cluster::Args),
    Pipelines(pipelines::Args),
    /// Exports the store of a stopped node as Parquet, or its decisions in dsjson for Vowpal Wabbit.
    Export(export::Args),
    Evaluate(evaluate::Args),
    EstimateSize(estimate_size::Args),
    /// Downloads public data sets.
    Datasets(datasets::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    ManPages(man_pages::Args),
}

impl Command {
    /// Whether the command may write data about users.
    fn writes_about_users(&self) -> bool {
        match self {
            Self::Demo(_)
            | Self::Serve(_)
            | Self::Train(_)
            | Self::Work(_)
            | Self::Supervise(_)
            | Self::Become(_)
            | Self::Keys(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Cluster(_)
            | Self::Export(_) => true,
            Self::Config(_)
            | Self::Check(_)
            | Self::Import(_)
            | Self::Ingest(_)
            | Self::ImportPersonalizer(_)
            | Self::Status(_)
            | Self::Models(_)
            | Self::Retrain(_)
            | Self::Study(_)
            | Self::Pipelines(_)
            | Self::Evaluate(_)
            | Self::EstimateSize(_)
            | Self::Datasets(_)
            | Self::Completions(_)
            | Self::ManPages(_) => false,
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Bad usage or bad input: exit code 2.
    BadInput(String),
    /// Anything else: exit code 1.
    Other(String),
}

impl Failure {
    /// Bad usage or bad input.
    pub fn bad_input(message: impl Display) -> Self {
        Self::BadInput(message.to_string())
    }

    /// Anything else.
    pub fn other(message: impl Display) -> Self {
        Self::Other(message.to_string())
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::InUse { .. }
            | StorageError::UnknownFormat { .. }
            | StorageError::CorruptLog { .. }
            | StorageError::Corrupt { .. } => Self::bad_input(error),
            // A data directory that is a file or not writable is the caller's mistake.
            StorageError::Io { ref source, .. }
                if matches!(
                    source.kind(),
                    ErrorKind::AlreadyExists | ErrorKind::NotADirectory | ErrorKind::PermissionDenied
                ) =>
            {
                Self::bad_input(error)
            }
            other => Self::other(other),
        }
    }
}

impl From<ManagerError> for Failure {
    fn from(error: ManagerError) -> Self {
        match error {
            ManagerError::Storage(error) => error.into(),
            ManagerError::ApiKey { .. } | ManagerError::NoAdminKey | ManagerError::UnknownApiKey { .. } => {
                Self::bad_input(error)
            }
            ManagerError::Features(_) | ManagerError::Format(_) | ManagerError::TrainerSetting { .. } => {
                Self::bad_input(error)
            }
            other => Self::other(other),
        }
    }
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Storage(error) => error.into(),
            ExportError::Format(_) | ExportError::FolderNotEmpty { .. } | ExportError::UnknownModel { .. } => {
                Self::bad_input(error)
            }
            other => Self::other(other),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Storage(error) => error.into(),
            StartError::Manager(error) => error.into(),
            StartError::Cluster(JoinError::Storage(error)) => error.into(),
            StartError::Cluster(JoinError::Cluster(ref cause)) if cause.is_configuration() => Self::bad_input(error),
            StartError::Setting(_) | StartError::DataDir { .. } | StartError::Cluster(JoinError::Directory(_)) => {
                Self::bad_input(error)
            }
            StartError::Cluster(_) | StartError::System(_) => Self::other(error),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(format!("{error:#}"))
    }
}

impl From<DatasetError> for Failure {
    fn from(error: DatasetError) -> Self {
        Self::bad_input(error)
    }
}

impl From<RetrainError> for Failure {
    fn from(error: RetrainError) -> Self {
        Self::bad_input(error)
    }
}

/// Starts the log of a measuring process, at level `warn`.
pub fn start_measuring() {
    logging::start(logging::Form::Text, "warn");
}

/// Parses and runs the command line, and maps the outcome to an exit code.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    if cli.command.writes_about_users() {
        // Only the user who runs the node may read what it writes: folders get mode 0700, files
        // 0600.
        umask(Mode::RWXG | Mode::RWXO);
    }
    // Stores that are opened and closed within a second should not log at level `info`.
    let measures = matches!(cli.command, Command::EstimateSize(_));
    let form = if cli.log_json { logging::Form::Json } else { logging::Form::Text };
    // A node starts its log by its configuration.
    if !matches!(cli.command, Command::Demo(_) | Command::Serve(_)) {
        logging::start(form, if measures { "warn" } else { "info" });
    }
    let outcome = match cli.command {
        Command::Demo(args) => demo::run(args, form),
        Command::Serve(args) => serve::run(args, form),
        Command::Config(args) => config::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Supervise(args) => confined::run_supervisor(&args),
        Command::Become(args) => confined::run_trainer(&args),
        Command::Import(args) => import::run(&args),
        Command::ImportPersonalizer(args) => import::run_personalizer(&args),
        Command::Status(args) => status::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Ingest(args) => ingest::run(&args),
        Command::Keys(args) => keys::run(&args),
        Command::Retrain(args) => retrain::run(&args),
        Command::Study(args) => study::run(&args),
        Command::Work(args) => work::run(&args),
        Command::Pipelines(args) => pipelines::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Evaluate(args) => evaluate::run(&args),
        Command::EstimateSize(args) => estimate_size::run(&args),
        Command::Datasets(args) => datasets::run(args),
        Command::Completions(args) => completions::run(&args),
        Command::ManPages(args) => man_pages::run(&args),
    };
    exit_code("celeris", outcome)
}

/// Prints the error of a failed command, and returns the exit code.
#[must_use]
pub fn exit_code(binary: &str, outcome: Result<(), Failure>) -> ExitCode {
    let (message, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::BadInput(message)) => (message, 2),
        Err(Failure::Other(message)) => (message, 1),
    };
    eprintln!("{binary}: {message}");
    ExitCode::from(code)
}
