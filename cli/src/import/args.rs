//! The command line of `celeris import`.

use std::path::PathBuf;

use celeris_import::mapping::Wish;
use celeris_import::source::Delimiter;
use celeris_import::{Reading, Role, Rules, TimeUnit};
use celeris_model::ModelName;

use crate::Failure;
use crate::node_client::NodeArgs;

/// Reads CSV, TSV, JSON lines or Parquet, plain or gzip, and streams the rows into a running node.
///
/// Columns are recognised by usual names (user_id, product_id, rating, created_at, …), --map names others. A file
/// is read twice: if a row is bad, nothing is sent. Importing a file again counts nothing twice.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files, folders (Parquet, an export, MovieLens), or `-` for standard input.
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
    /// Reads everything, sends nothing, and shows the mapping, the first rows, and what is wrong.
    #[arg(long)]
    pub dry_run: bool,
    /// Columns by role, such as user=customer_id,label=stars; roles are user, item, label, time, weight, feedback, id,
    /// decision. `ROLE=` means no column, also not a guessed one.
    #[arg(long, value_name = "ROLE=COLUMN,…", value_delimiter = ',', value_parser = Wish::parse)]
    map: Vec<Wish>,
    /// The label of every row, for data where each row means that something happened.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, conflicts_with = "label_from")]
    label: Option<f32>,
    /// The column of labels: ratings or counts.
    #[arg(long, value_name = "COLUMN")]
    label_from: Option<String>,
    /// The names of the columns, for a file whose first line is data.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// What separates the columns: one character, `tab` or `::`; guessed by default.
    #[arg(long, value_name = "CHARACTER", value_parser = Delimiter::parse)]
    delimiter: Option<Delimiter>,
    /// The unit of times that are numbers: s, ms, us or ns; by default recognised by their magnitude.
    #[arg(long, value_name = "UNIT", value_parser = parse_unit)]
    time_unit: Option<TimeUnit>,
    /// The kind of feedback of every row, such as click.
    #[arg(long, value_name = "NAME")]
    feedback: Option<String>,
    /// The weight of every row; `--map weight=COLUMN` takes it from a column.
    #[arg(long, value_name = "NUMBER")]
    weight: Option<f32>,
    /// Columns that describe items: of a file of items, or of rows of feedback that repeat them. Lists are split at `|`.
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    attributes: Vec<String>,
    /// The column of ids of observations; by default, ids are made of the file's name and the row's content.
    #[arg(long, value_name = "COLUMN")]
    id_column: Option<String>,
    /// The beginning of ids, for files of one name whose equal rows should all count.
    #[arg(long, value_name = "PREFIX")]
    pub id_prefix: Option<String>,
    /// Writes bad rows to this CSV file (file, line, reason, row) and goes on without them.
    #[arg(long, value_name = "FILE")]
    pub skip_bad: Option<PathBuf>,
}

fn parse_unit(text: &str) -> Result<TimeUnit, String> {
    let known = TimeUnit::ALL.into_iter().find(|unit| unit.name() == text);
    known.ok_or_else(|| format!("expected s, ms, us or ns, got {text:?}"))
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
        let mut wishes = self.map.clone();
        let named = [(Role::Label, &self.label_from), (Role::Id, &self.id_column)];
        wishes
            .extend(named.into_iter().filter_map(|(role, column)| Some(Wish { role, column: Some(column.clone()?) })));
        if let Some(label) = self.label.filter(|label| !label.is_finite()) {
            return Err(Failure::bad_input(format!("--label: expected a finite number, got {label}")));
        }
        if let Some(weight) = self.weight.filter(|weight| !(*weight > 0.0 && *weight <= 1e6)) {
            return Err(Failure::bad_input(format!("--weight: must be above 0 and at most 1e6, got {weight}")));
        }
        Ok(Rules {
            reading: Reading { delimiter: self.delimiter, columns: self.columns.clone() },
            wishes,
            label: self.label,
            weight: self.weight,
            feedback: self.feedback.clone(),
            time_unit: self.time_unit,
            attributes: self.attributes.clone(),
            loss: None,
            latest: i64::MAX,
        })
    }
}
