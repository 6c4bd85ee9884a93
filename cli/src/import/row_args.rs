//! The options that say how the rows of a file are read, which `import` and `evaluate` share.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use celeris_import::labels::{LabelOf, LabelsOf};
use celeris_import::layout::Program;
use celeris_import::layout::personalize::Schema;
use celeris_import::mapping::Wish;
use celeris_import::source::Delimiter;
use celeris_import::{Reading, Role, Rules, TimeUnit};
use celeris_model::Timestamp;

use crate::Failure;

/// How far ahead of this machine's clock a time may be: the clocks of two machines differ, and a
/// local time without a zone is read as UTC.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone, PartialEq, Default, clap::Args)]
pub struct RowArgs {
    /// Columns by role, such as user=customer_id,label=stars; roles are user, item, label, time, weight, feedback, id,
    /// decision, context. `ROLE=` means no column, also not a guessed one.
    #[arg(long, value_name = "ROLE=COLUMN,...", value_delimiter = ',', value_parser = Wish::parse)]
    map: Vec<Wish>,
    /// The label of every row, for data where each row means that something happened.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, conflicts_with = "label_from")]
    label: Option<f32>,
    /// The label of each kind of feedback, such as read=0.2,like=1; `KIND=` leaves rows of the kind out, and `*` stands for all others.
    #[arg(long, value_name = "KIND=LABEL,...", value_delimiter = ',', value_parser = LabelOf::parse, conflicts_with_all = ["label", "label_from"])]
    label_of: Vec<LabelOf>,
    /// The column of labels: ratings or counts.
    #[arg(long, value_name = "COLUMN")]
    label_from: Option<String>,
    /// The names of the columns, for a file whose first line is data; of JSON lines, fields that the first lines do not have.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// What separates the columns: one character, `tab` or `::`; guessed by default.
    #[arg(long, value_name = "CHARACTER", value_parser = Delimiter::parse)]
    delimiter: Option<Delimiter>,
    /// The unit of times that are numbers: s, ms, us or ns; by default recognised by their magnitude.
    #[arg(long, value_name = "UNIT", value_parser = parse_unit)]
    time_unit: Option<TimeUnit>,
    /// The program that wrote the files, gorse or personalize; by default recognised by their columns.
    #[arg(long, value_name = "PROGRAM", value_parser = parse_program)]
    from: Option<Program>,
    /// The Avro schema of a dataset of Amazon Personalize, once for each kind of dataset: it gives the types of columns.
    #[arg(long, value_name = "FILE", value_parser = Schema::read)]
    schema: Vec<Schema>,
    /// Writes bad rows, if there are any, to this CSV file (file, line, reason, row) and goes on without them.
    #[arg(long, value_name = "FILE")]
    pub skip_bad: Option<PathBuf>,
}

fn parse_unit(text: &str) -> Result<TimeUnit, String> {
    let known = TimeUnit::ALL.into_iter().find(|unit| unit.name() == text);
    known.ok_or_else(|| format!("expected s, ms, us or ns, got {text:?}"))
}

fn parse_program(text: &str) -> Result<Program, String> {
    let known = Program::ALL.into_iter().find(|program| program.name() == text);
    known.ok_or_else(|| format!("expected gorse or personalize, got {text:?}"))
}

impl RowArgs {
    /// The program that wrote the files, if the caller says it.
    pub fn program(&self) -> Option<Program> {
        self.from.or_else(|| (!self.schema.is_empty()).then_some(Program::Personalize))
    }

    /// # Errors
    /// If options contradict each other.
    pub fn rules(&self) -> Result<Rules, Failure> {
        let mut wishes = self.map.clone();
        let label = self.label_from.clone().map(|column| Wish { role: Role::Label, column: Some(column) });
        wishes.extend(label);
        if let Some(label) = self.label.filter(|label| !label.is_finite()) {
            return Err(Failure::bad_input(format!("--label: expected a finite number, got {label}")));
        }
        if self.from == Some(Program::Gorse) && !self.schema.is_empty() {
            return Err(Failure::bad_input("--schema is of Amazon Personalize, and cannot be given with --from gorse"));
        }
        let labels_of = LabelsOf::new(self.label_of.clone());
        let labels_of = labels_of.map_err(|problem| Failure::bad_input(format!("--label-of: {problem}")))?;
        Ok(Rules {
            reading: Reading { delimiter: self.delimiter, columns: self.columns.clone() },
            wishes,
            label: self.label,
            labels_of,
            schemas: self.schema.clone(),
            time_unit: self.time_unit,
            latest: Timestamp::from(SystemTime::now() + AHEAD_MAX).0,
            ..Rules::default()
        })
    }
}
