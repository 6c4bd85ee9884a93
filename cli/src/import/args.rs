//! The command line of `celeris import`.

use std::path::PathBuf;

use celeris_import::mapping::Wish;
use celeris_import::{Role, Rules};
use celeris_model::{ModelName, Timestamp};

use super::row_args::RowArgs;
use crate::Failure;
use crate::node_client::NodeArgs;

/// 2000-01-01T00:00:00Z, the earliest time that nodes take by default.
const YEAR_2000: Timestamp = Timestamp(946_684_800_000);

/// Reads CSV, TSV, JSON lines or Parquet, plain or gzip, and streams the rows into a running node.
///
/// Columns are recognised by usual names (user_id, product_id, rating, created_at, ...), --map names others. A file
/// is read twice: if the first reading finds a bad row, nothing is sent. Importing a file again counts nothing twice.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files, folders (Parquet, an export, MovieLens), URLs of object stores (`s3://`, `gs://`, `az://`, `https://`), or `-` for
    /// standard input.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    pub node: NodeArgs,
    /// The model whose stream receives the observations; it must exist.
    #[arg(long)]
    model: Option<String>,
    /// The same as FILE.
    #[arg(long, value_name = "FILE")]
    dataset: Option<PathBuf>,
    /// Reads everything, sends nothing, and shows the mapping, the first rows, and what is wrong; with --model, labels are
    /// checked as that model takes them, if the node answers.
    #[arg(long)]
    pub dry_run: bool,
    /// Keeps how far the import has come in this file, and goes on from there.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub resume: Option<PathBuf>,
    /// How long to wait for a node that does not answer once the import has begun, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub wait: u64,
    #[command(flatten)]
    pub rows: RowArgs,
    /// Takes times before 2000 too, which the node must allow by `limits.earliest_time`.
    #[arg(long)]
    old_times: bool,
    /// The kind of feedback of every row, such as click.
    #[arg(long, value_name = "NAME")]
    feedback: Option<String>,
    /// The weight of every row; `--map weight=COLUMN` takes it from a column.
    #[arg(long, value_name = "NUMBER")]
    weight: Option<f32>,
    /// Columns that describe items: of a file of items, or of rows of feedback that repeat them. Lists are split at `|`.
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    attributes: Vec<String>,
    /// Columns that describe users: of a file of users, with a row for each. Lists are split at `|`.
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    user_attributes: Vec<String>,
    /// Columns that are fields of the context of their row, such as device,hour. Lists are split at `|`.
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    context: Vec<String>,
    /// The column of ids of observations; by default, ids are made of the file's name and the row's content.
    #[arg(long, value_name = "COLUMN")]
    id_column: Option<String>,
    /// The beginning of ids, for files of one name whose equal rows should all count.
    #[arg(long, value_name = "PREFIX")]
    pub id_prefix: Option<String>,
}

impl Args {
    /// # Errors
    /// If there is no path.
    pub fn paths(&self) -> Result<Vec<PathBuf>, Failure> {
        let paths: Vec<PathBuf> = self.files.iter().chain(&self.dataset).cloned().collect();
        if paths.is_empty() {
            return Err(Failure::bad_input(
                "no file to import; name files, or `-` for standard input: celeris import ratings.csv --model films",
            ));
        }
        Ok(paths)
    }

    /// # Errors
    /// If there is none, or it is invalid.
    pub fn model(&self) -> Result<ModelName, Failure> {
        let name = self.model.as_deref().ok_or_else(|| {
            Failure::bad_input(
                "--model names the model that receives the rows; without one, only --dry-run is possible",
            )
        })?;
        ModelName::new(name).map_err(|error| Failure::bad_input(format!("--model: {error}")))
    }

    /// # Errors
    /// If options contradict each other.
    pub fn rules(&self) -> Result<Rules, Failure> {
        let mut rules = self.rows.rules()?;
        rules.wishes.extend(self.id_column.clone().map(|column| Wish { role: Role::Id, column: Some(column) }));
        if let Some(weight) = self.weight.filter(|weight| !(*weight > 0.0 && *weight <= 1e6)) {
            return Err(Failure::bad_input(format!("--weight: must be above 0 and at most 1e6, got {weight}")));
        }
        rules.earliest = (!self.old_times).then_some(YEAR_2000.0);
        rules.weight = self.weight;
        rules.feedback = self.feedback.clone();
        rules.attributes = self.attributes.clone();
        rules.user_attributes = self.user_attributes.clone();
        rules.context = self.context.clone();
        Ok(rules)
    }
}
