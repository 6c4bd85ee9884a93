//! Observations: training input, sealed segments and exports.
//!
//! | column | type | null if |
//! |---|---|---|
//! | `partition` | int32 | |
//! | `sequence` | int64 | |
//! | `user` | utf8 | |
//! | `user_epoch` | int64 | |
//! | `item` | utf8 | |
//! | `label` | float | |
//! | `first_label` | float | no correction has replaced the label |
//! | `weight` | float | |
//! | `feedback` | utf8 | the client gave none |
//! | `timestamp` | int64, Unix milliseconds | |
//! | `observation_id` | utf8 | |
//! | `decision_id` | utf8 | it is not the outcome of a decision |
//! | `decision_slot` | int32 | … or the item was not shown |
//! | `decision_propensity` | float | … or the propensity is unknown |
//! | `decision_pool` | bool | it is not the outcome of a decision |
//! | `context` | utf8, a JSON object | neither the client nor the decision has described the circumstances |
//! | `predictions` | list of `{model_id: int64, version: int64, predicted: float}` | |
//!
//! Integers are signed and times are numbers, because Spark reads no unsigned 64-bit integers, and
//! because timestamps from clients may exceed the range of a reader's calendar.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use arrow_array::builder::{BooleanBuilder, Float32Builder, Int32Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, ListArray};
use arrow_schema::{DataType, Field, Fields, Schema};
use celeris_model::{DecisionFacts, ObservationId, Partition, Prediction, Record, RecordKind, Sequence};

use crate::columns::{json, signed, struct_element, struct_lists};
use crate::error::FormatError;
use crate::rows::{self, RowWriter};

pub const PARTITION: &str = "partition";
pub const SEQUENCE: &str = "sequence";
pub const USER: &str = "user";
pub const ITEM: &str = "item";
pub const LABEL: &str = "label";
pub const WEIGHT: &str = "weight";
pub const TIMESTAMP: &str = "timestamp";
pub const CONTEXT: &str = "context";

/// The columns that trainings read, including those with the position in the log.
pub const TRAINING_COLUMNS: [&str; 7] = [USER, ITEM, LABEL, WEIGHT, TIMESTAMP, PARTITION, SEQUENCE];

static PREDICTION_FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    Fields::from(vec![
        Field::new("model_id", DataType::Int64, false),
        Field::new("version", DataType::Int64, false),
        Field::new("predicted", DataType::Float32, false),
    ])
});

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let required = |name: &str, kind| Field::new(name, kind, false);
    let optional = |name: &str, kind| Field::new(name, kind, true);
    Arc::new(Schema::new(vec![
        required(PARTITION, DataType::Int32),
        required(SEQUENCE, DataType::Int64),
        required(USER, DataType::Utf8),
        required("user_epoch", DataType::Int64),
        required(ITEM, DataType::Utf8),
        required(LABEL, DataType::Float32),
        optional("first_label", DataType::Float32),
        required(WEIGHT, DataType::Float32),
        optional("feedback", DataType::Utf8),
        required(TIMESTAMP, DataType::Int64),
        required("observation_id", DataType::Utf8),
        optional("decision_id", DataType::Utf8),
        optional("decision_slot", DataType::Int32),
        optional("decision_propensity", DataType::Float32),
        optional("decision_pool", DataType::Boolean),
        optional(CONTEXT, DataType::Utf8),
        required("predictions", DataType::List(struct_element(&PREDICTION_FIELDS))),
    ]))
});

/// One row of an observations file: a record of the log with its position and id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObservationRow<'a> {
    /// Sequence in the partition of its user.
    pub sequence: Sequence,
    /// Id given by the client or the server.
    pub observation_id: &'a ObservationId,
    pub record: &'a Record,
}

/// Buffered rows.
#[derive(Default)]
struct Columns {
    partition: Int32Builder,
    sequence: Int64Builder,
    user: StringBuilder,
    user_epoch: Int64Builder,
    item: StringBuilder,
    label: Float32Builder,
    first_label: Float32Builder,
    weight: Float32Builder,
    feedback: StringBuilder,
    timestamp: Int64Builder,
    observation_id: StringBuilder,
    decision: DecisionColumns,
    context: StringBuilder,
    predictions: PredictionColumns,
}

#[derive(Default)]
struct DecisionColumns {
    id: StringBuilder,
    slot: Int32Builder,
    propensity: Float32Builder,
    pool: BooleanBuilder,
}

#[derive(Default)]
struct PredictionColumns {
    lengths: Vec<usize>,
    model: Int64Builder,
    version: Int64Builder,
    predicted: Float32Builder,
}

impl DecisionColumns {
    fn push(&mut self, facts: Option<&DecisionFacts>) {
        self.id.append_option(facts.map(|facts| facts.id.as_str()));
        // Slots are indexes within a ranking, whose length is bounded far below 2^31.
        self.slot.append_option(facts.and_then(|facts| facts.slot).and_then(|slot| i32::try_from(slot).ok()));
        self.propensity.append_option(facts.and_then(|facts| facts.propensity));
        self.pool.append_option(facts.map(|facts| facts.pool));
    }
}

impl PredictionColumns {
    fn push(&mut self, predictions: &[Prediction]) {
        self.lengths.push(predictions.len());
        for prediction in predictions {
            self.model.append_value(signed(prediction.model.0));
            self.version.append_value(signed(prediction.version.0));
            self.predicted.append_value(prediction.predicted);
        }
    }

    fn finish(&mut self) -> ListArray {
        let columns: Vec<ArrayRef> =
            vec![Arc::new(self.model.finish()), Arc::new(self.version.finish()), Arc::new(self.predicted.finish())];
        struct_lists(&PREDICTION_FIELDS, columns, std::mem::take(&mut self.lengths))
    }
}

impl Columns {
    fn push(&mut self, row: ObservationRow, item: &str) {
        let ObservationRow { sequence, observation_id, record } = row;
        self.partition.append_value(i32::from(Partition::of(&record.user).index()));
        self.sequence.append_value(signed(sequence.0));
        self.user.append_value(record.user.as_str());
        self.user_epoch.append_value(signed(record.user_epoch.0));
        self.item.append_value(item);
        self.label.append_value(record.label);
        self.first_label.append_option(record.first_label);
        self.weight.append_value(record.weight);
        self.feedback.append_option(record.feedback.as_deref());
        self.timestamp.append_value(record.timestamp.0);
        self.observation_id.append_value(observation_id.as_str());
        self.decision.push(record.decision.as_ref());
        self.context.append_option(record.context.as_deref().map(json));
        self.predictions.push(&record.predictions);
    }
}

impl rows::Columns for Columns {
    const ROWS_A_BATCH: usize = 8192;
    // Some ten megabytes.
    const ROWS_A_GROUP: usize = 128 << 10;

    fn schema() -> Arc<Schema> {
        SCHEMA.clone()
    }

    fn take(&mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.partition.finish()),
            Arc::new(self.sequence.finish()),
            Arc::new(self.user.finish()),
            Arc::new(self.user_epoch.finish()),
            Arc::new(self.item.finish()),
            Arc::new(self.label.finish()),
            Arc::new(self.first_label.finish()),
            Arc::new(self.weight.finish()),
            Arc::new(self.feedback.finish()),
            Arc::new(self.timestamp.finish()),
            Arc::new(self.observation_id.finish()),
            Arc::new(self.decision.id.finish()),
            Arc::new(self.decision.slot.finish()),
            Arc::new(self.decision.propensity.finish()),
            Arc::new(self.decision.pool.finish()),
            Arc::new(self.context.finish()),
            Arc::new(self.predictions.finish()),
        ]
    }
}

/// Writes an observations file row by row, in bounded memory.
pub struct ObservationsWriter(RowWriter<Columns>);

impl ObservationsWriter {
    /// Creates or replaces the file at `path`.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn create(path: &Path) -> Result<Self, FormatError> {
        RowWriter::create(path).map(Self)
    }

    /// Number of rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.0.rows()
    }

    /// Appends the record if it is an observation; records of other kinds are skipped.
    ///
    /// # Errors
    /// [`FormatError::Parquet`]; the file is then unusable.
    pub fn push(&mut self, row: ObservationRow) -> Result<(), FormatError> {
        let (RecordKind::Observe, Some(item)) = (row.record.kind, row.record.item.as_ref()) else { return Ok(()) };
        self.0.push(|columns| columns.push(row, item.as_str()))
    }

    /// Writes the remaining rows and the footer, and syncs the file to disk.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn finish(self) -> Result<(), FormatError> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_match_readers_and_existing_segments() {
        // External queries use these names. A column may be added; none may be removed or change
        // its type.
        let columns: Vec<String> = SCHEMA
            .fields()
            .iter()
            .map(|field| {
                format!("{} {}{}", field.name(), field.data_type(), if field.is_nullable() { "?" } else { "" })
            })
            .collect();
        let flat = [
            "partition Int32",
            "sequence Int64",
            "user Utf8",
            "user_epoch Int64",
            "item Utf8",
            "label Float32",
            "first_label Float32?",
            "weight Float32",
            "feedback Utf8?",
            "timestamp Int64",
            "observation_id Utf8",
            "decision_id Utf8?",
            "decision_slot Int32?",
            "decision_propensity Float32?",
            "decision_pool Boolean?",
            "context Utf8?",
        ];
        assert_eq!(columns[..flat.len()], flat);
        assert_eq!(columns.len(), flat.len() + 1);
        assert!(columns[flat.len()].starts_with("predictions List("), "{}", columns[flat.len()]);
        let names: Vec<&String> = PREDICTION_FIELDS.iter().map(|field| field.name()).collect();
        assert_eq!(names, ["model_id", "version", "predicted"]);
    }
}
