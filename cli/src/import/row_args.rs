//! The options that say how the rows of a file are read, which `import` and `evaluate` share.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

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
    #[arg(long, value_name = "ROLE=COLUMN,…", value_delimiter = ',', value_parser = Wish::parse)]
    map: Vec<Wish>,
    /// The label of every row, for data where each row means that something happened.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, conflicts_with = "label_from")]
    label: Option<f32>,
    /// The column of labels: ratings or counts.
    #[arg(long, value_name = "COLUMN")]
    label_from: Option<String>,
    /// The names of the columns, for a file whose first line is data; of JSON lines, fields that the first lines do not have.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// What separates the columns: one character, `tab` or `::`; guessed by default.
    #[arg(long, value_name = "CHARACTER", value_parser = Delimiter::parse)]
    delimiter: Option<Delimiter>,
    /// The unit of times that are numbers: s, ms, us or ns; by default recognised by their magnitude.
    #[arg(long, value_name = "UNIT", value_parser = parse_unit)]
    time_unit: Option<TimeUnit>,
    /// Writes bad rows, if there are any, to this CSV file (file, line, reason, row) and goes on without them.
    #[arg(long, value_name = "FILE")]
    pub skip_bad: Option<PathBuf>,
}

fn parse_unit(text: &str) -> Result<TimeUnit, String> {
    let known = TimeUnit::ALL.into_iter().find(|unit| unit.name() == text);
    known.ok_or_else(|| format!("expected s, ms, us or ns, got {text:?}"))
}

impl RowArgs {
    /// # Errors
    /// If options contradict each other.
    pub fn rules(&self) -> Result<Rules, Failure> {
        let mut wishes = self.map.clone();
        let label = self.label_from.clone().map(|column| Wish { role: Role::Label, column: Some(column) });
        wishes.extend(label);
        if let Some(label) = self.label.filter(|label| !label.is_finite()) {
            return Err(Failure::bad_input(format!("--label: expected a finite number, got {label}")));
        }
        Ok(Rules {
            reading: Reading { delimiter: self.delimiter, columns: self.columns.clone() },
            wishes,
            label: self.label,
            time_unit: self.time_unit,
            latest: Timestamp::from(SystemTime::now() + AHEAD_MAX).0,
            ..Rules::default()
        })
    }
}
