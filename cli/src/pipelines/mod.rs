//! `celeris pipelines`: pipelines of computed features, on this machine and on a node.
//!
//! Without a node a pipeline is a folder: `pipeline.json` and its objects (`folder.rs`).

mod folder;
mod rows;

use std::fs;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use celeris_model::ModelName;
use celeris_pipelines::fit::{FitOptions, Row, fit};
use celeris_pipelines::graph::Outline;
use celeris_pipelines::import::onnx::ImportInputs;
use celeris_pipelines::import::{ImportError, Imported, lightgbm, onnx};
use celeris_pipelines::{Catalog, PipelineError, PipelineSpec, Plan, Record, Scratch};
use clap::Subcommand;
use serde_json::Value;

use self::folder::Folder;
use self::rows::{InputRow, read};
use crate::Failure;
use crate::models::print;
use crate::node_client::{NodeArgs, NodeClient};

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Self {
        Self::bad_input(error)
    }
}

/// Fits, imports, tries and declares pipelines of computed features.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Learns what a declaration lacks from rows, and writes the pipeline as a folder.
    Fit(FitArgs),
    /// Turns a model of LightGBM (text) or an ONNX model into a pipeline, and writes it as a folder.
    Import(ImportArgs),
    /// Runs a pipeline on rows, and prints one list of numbers for each.
    Run(RunArgs),
    /// Shows the stages of a pipeline, and what the optimizer has changed.
    Explain(ExplainArgs),
    /// Declares a pipeline on a running node, with its objects.
    Declare(DeclareArgs),
}

#[derive(Debug, clap::Args)]
struct FitArgs {
    /// The declaration: a JSON file, or a folder.
    pipeline: PathBuf,
    /// JSON lines: objects with `item`, `context`, `label` and `weight`, each of which may be missing; - is standard input.
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,
    /// The folder for the pipeline; it must not exist.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// The seed of samples and first centers.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Debug, clap::Args)]
struct ImportArgs {
    /// The model: ONNX, or LightGBM's text.
    model: PathBuf,
    /// The name of the pipeline.
    #[arg(long)]
    name: String,
    /// The fields that are the columns of an input, such as x=item.price,context.hour. Of LightGBM's models the input has no
    /// name: item.price,context.hour.
    #[arg(long, value_name = "[NAME=]FIELD,...", required = true)]
    input: Vec<String>,
    /// The output of an ONNX model to take; the last one by default.
    #[arg(long, value_name = "NAME")]
    output: Option<String>,
    /// The folder for the pipeline; it must not exist.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// The pipeline: a folder, or a declaration that needs no objects.
    pipeline: PathBuf,
    /// JSON lines: objects with `item` and `context`, each of which may be missing; - is standard input.
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,
}

#[derive(Debug, clap::Args)]
struct ExplainArgs {
    /// The pipeline: a folder, or a declaration that needs no objects.
    pipeline: PathBuf,
}

#[derive(Debug, clap::Args)]
struct DeclareArgs {
    /// The pipeline: a folder, or a declaration that needs no objects.
    pipeline: PathBuf,
    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Fit(args) => fit_pipeline(args),
        Command::Import(args) => import(args),
        Command::Run(args) => run_rows(args),
        Command::Explain(args) => explain(args),
        Command::Declare(args) => declare(args),
    }
}

fn fit_pipeline(args: &FitArgs) -> Result<(), Failure> {
    let folder = Folder::open(&args.pipeline)?;
    let rows: Vec<InputRow> = read(&args.rows)?.collect::<Result<_, _>>()?;
    let keys: Vec<[u8; 8]> = (0..rows.len() as u64).map(u64::to_be_bytes).collect();
    let all = || {
        rows.iter().zip(&keys).map(|(row, key)| Row {
            key,
            item: &row.item,
            context: &row.context,
            label: row.label,
            target: None,
            weight: row.weight.unwrap_or(1.0),
        })
    };
    let options = FitOptions { seed: args.seed, ..FitOptions::default() };
    let fitted = fit(&folder.spec, &folder.objects, all, options)?;
    let mut bytes = folder.bytes;
    bytes.extend(fitted.objects.iter().map(|object| (object.id(), object.content().encode())));
    Folder::of(fitted.spec.clone(), bytes)?.write(&args.out)?;
    eprintln!(
        "fitted {} to {} rows; try it: celeris pipelines run {} --rows {}",
        fitted.spec.name,
        rows.len(),
        args.out.display(),
        args.rows.display()
    );
    Ok(())
}

fn import(args: &ImportArgs) -> Result<(), Failure> {
    ModelName::new(args.name.as_str()).map_err(|error| Failure::bad_input(format!("--name: {error}")))?;
    let refused = |error: &dyn std::fmt::Display| Failure::bad_input(format!("{}: {error}", args.model.display()));
    let bytes = fs::read(&args.model).map_err(|error| refused(&error))?;
    let imported = imported(&bytes, args).map_err(|error| refused(&error))?;
    let Imported { nodes, output, objects, notes } = imported;
    let spec = PipelineSpec { name: args.name.clone(), nodes, output };
    let folder = Folder::of(spec, objects)?;
    let outline = Outline::of(&folder.spec, &folder.objects)?;
    folder.write(&args.out)?;
    notes.iter().for_each(|note| eprintln!("celeris: {note}"));
    let dim = outline.dim.map_or_else(String::new, |dim| format!(" of {dim} numbers"));
    eprintln!("imported {} with {} nodes and an output{dim}", args.name, folder.spec.nodes.len());
    Ok(())
}

fn imported(bytes: &[u8], args: &ImportArgs) -> Result<Imported, ImportError> {
    let fields = |fields: &str| fields.split(',').map(|field| field.trim().to_owned()).collect::<Vec<_>>();
    if bytes.starts_with(b"tree") {
        return lightgbm::import(bytes, &args.input.iter().flat_map(|input| fields(input)).collect::<Vec<_>>());
    }
    let input = |input: &String| match input.split_once('=') {
        Some((name, columns)) => (name.trim().to_owned(), fields(columns)),
        // The name that exports of scikit-learn usually have.
        None => ("X".to_owned(), fields(input)),
    };
    onnx::import(bytes, &ImportInputs { inputs: args.input.iter().map(input).collect(), output: args.output.clone() })
}

fn compile(folder: &Folder) -> Result<Plan, Failure> {
    Ok(Plan::compile(&folder.spec, &folder.objects, &Catalog::default())?)
}

fn run_rows(args: &RunArgs) -> Result<(), Failure> {
    let plan = compile(&Folder::open(&args.pipeline)?)?;
    let mut scratch = Scratch::default();
    let mut row = vec![0.0; plan.dim()];
    let mut out = BufWriter::new(std::io::stdout().lock());
    for input in read(&args.rows)? {
        let InputRow { item, context, .. } = input?;
        plan.run(Record { item: &item, context: &context }, &mut scratch, &mut row)?;
        let line = serde_json::to_string(&row).map_err(Failure::other)?;
        match writeln!(out, "{line}") {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(Failure::other)?,
        }
    }
    match out.flush() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::other(error)),
        _ => Ok(()),
    }
}

fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let explanation = compile(&Folder::open(&args.pipeline)?)?.explain();
    let json = serde_json::to_string_pretty(&explanation).map_err(Failure::other)?;
    print(&format!("{json}\n"))
}

fn declare(args: &DeclareArgs) -> Result<(), Failure> {
    let folder = Folder::open(&args.pipeline)?;
    let client = NodeClient::new(&args.node);
    for (id, bytes) in &folder.bytes {
        client.put_bytes(&format!("/v1/objects/{id}"), bytes)?;
    }
    let declaration: Value = serde_json::to_value(&folder.spec).map_err(Failure::other)?;
    let declared = client.post("/v1/pipelines", &declaration)?;
    eprintln!("declared revision {} of {} on {}", declared["revision"], folder.spec.name, client.url());
    Ok(())
}
