//! The `celeris-bench` binary.

use std::path::PathBuf;
use std::process::ExitCode;

use celeris_bench::{Bench, Settings, bare, document, pipelines};
use celeris_cli::{Failure, exit_code, start_measuring};
use clap::{Parser, ValueEnum};

/// Runs a bench on this machine against baselines of the same run, and prints a table.
#[derive(Debug, Parser)]
#[command(name = "celeris-bench", version, about)]
struct Args {
    /// The bench to run.
    name: Name,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// A smoke test of a few seconds, whose figures are meaningless.
    #[arg(long)]
    quick: bool,
    /// The documentation folder: figures are written to `benchmarks/` in it, and the page
    /// `benchmarks.md` beside it.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// The names on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    One(Bench),
    /// Every bench, one after the other.
    All,
    /// The baseline of the HTTP benches, started by them.
    BareHandler,
    /// A process that loads pipelines, started by the bench of them.
    LoadPipelines,
}

impl ValueEnum for Name {
    fn value_variants<'a>() -> &'a [Self] {
        const NAMES: [Name; 19] = [
            Name::One(Bench::Update),
            Name::One(Bench::Topk),
            Name::One(Bench::Observe),
            Name::One(Bench::Serve),
            Name::One(Bench::Secured),
            Name::One(Bench::Switch),
            Name::One(Bench::Size),
            Name::One(Bench::Memory),
            Name::One(Bench::Train),
            Name::One(Bench::Bandits),
            Name::One(Bench::Selection),
            Name::One(Bench::Ope),
            Name::One(Bench::Recommend),
            Name::One(Bench::Pipelines),
            Name::One(Bench::Tuning),
            Name::One(Bench::Cluster),
            Name::All,
            Name::BareHandler,
            Name::LoadPipelines,
        ];
        &NAMES
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        match self {
            Self::One(bench) => bench.to_possible_value(),
            Self::All => Some(clap::builder::PossibleValue::new("all").help("All of them, one after the other")),
            Self::BareHandler => Some(clap::builder::PossibleValue::new("bare-handler").hide(true)),
            Self::LoadPipelines => Some(clap::builder::PossibleValue::new("load-pipelines").hide(true)),
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    start_measuring();
    exit_code("celeris-bench", run(&args))
}

fn run(args: &Args) -> Result<(), Failure> {
    let settings = Settings { quick: args.quick, docs: args.docs.clone() };
    match args.name {
        Name::BareHandler => bare::run(),
        Name::LoadPipelines => pipelines::load(),
        Name::One(bench) => measure(bench, args, &settings),
        Name::All if args.json => Err(Failure::bad_input("--json prints one object: name one bench")),
        Name::All => Bench::ALL.into_iter().try_for_each(|bench| measure(bench, args, &settings)),
    }
}

fn measure(bench: Bench, args: &Args, settings: &Settings) -> Result<(), Failure> {
    let report = bench.run(settings)?;
    report.print(args.json)?;
    args.docs.as_ref().map_or(Ok(()), |folder| document(folder, &report))
}
