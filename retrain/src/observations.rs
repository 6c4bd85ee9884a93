//! Parquet schema and writer of observations, shared by training input, sealed segments and exports.
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
//! | `predictions` | list of `{model_id: int64, version: int64, predicted: float}` | |
//!
//! Integers are signed and times are numbers, because Spark reads no unsigned 64-bit integers, and because timestamps
//! from clients may exceed the range of a reader's calendar.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arrow::array::{
    ArrayRef, BooleanBuilder, Float32Builder, Int32Builder, Int64Builder, ListArray, RecordBatch, StringBuilder,
    StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Schema};
use celeris_features::columns::ParquetOut;
use celeris_model::{DecisionFacts, ObservationId, Partition, Prediction, Record, RecordKind, Sequence};

use crate::error::RetrainError;
use crate::input::InputFile;

/// Rows buffered before they are written: together with [`ROWS_A_GROUP`], bounds the memory of writing a long log.
const ROWS_A_BATCH: usize = 8192;

/// Rows of a row group, which is compressed in memory before it is written: some ten megabytes.
const ROWS_A_GROUP: usize = 128 << 10;

static PREDICTION_FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    Fields::from(vec![
        Field::new("model_id", DataType::Int64, false),
        Field::new("version", DataType::Int64, false),
        Field::new("predicted", DataType::Float32, false),
    ])
});

fn prediction_field() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Struct(PREDICTION_FIELDS.clone()), false))
}

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let required = |name: &str, kind| Field::new(name, kind, false);
    let optional = |name: &str, kind| Field::new(name, kind, true);
    Arc::new(Schema::new(vec![
        required("partition", DataType::Int32),
        required("sequence", DataType::Int64),
        required("user", DataType::Utf8),
        required("user_epoch", DataType::Int64),
        required("item", DataType::Utf8),
        required("label", DataType::Float32),
        optional("first_label", DataType::Float32),
        required("weight", DataType::Float32),
        optional("feedback", DataType::Utf8),
        required("timestamp", DataType::Int64),
        required("observation_id", DataType::Utf8),
        optional("decision_id", DataType::Utf8),
        optional("decision_slot", DataType::Int32),
        optional("decision_propensity", DataType::Float32),
        optional("decision_pool", DataType::Boolean),
        required("predictions", DataType::List(prediction_field())),
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
    rows: usize,
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

/// A count as Parquet's signed integer; log sequences start at 1 and do not reach 2^63.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
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
        let structs = StructArray::new(PREDICTION_FIELDS.clone(), columns, None);
        let offsets = OffsetBuffer::from_lengths(std::mem::take(&mut self.lengths));
        ListArray::new(prediction_field(), offsets, Arc::new(structs), None)
    }
}

impl Columns {
    fn push(&mut self, row: ObservationRow, item: &str) {
        let ObservationRow { sequence, observation_id, record } = row;
        self.rows += 1;
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
        self.predictions.push(&record.predictions);
    }

    /// Returns the buffered rows and clears them; the buffers are reused.
    fn take(&mut self) -> RecordBatch {
        self.rows = 0;
        let columns: Vec<ArrayRef> = vec![
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
            Arc::new(self.predictions.finish()),
        ];
        RecordBatch::try_new(SCHEMA.clone(), columns).expect("every row adds one value to every column")
    }
}

/// Writes an observations file row by row, in bounded memory.
pub struct ObservationsWriter {
    path: PathBuf,
    out: ParquetOut,
    waiting: Columns,
    rows: u64,
}

impl ObservationsWriter {
    /// Creates or replaces the file at `path`.
    ///
    /// # Errors
    /// [`RetrainError::Files`].
    pub fn create(path: &Path) -> Result<Self, RetrainError> {
        let out = ParquetOut::create_grouped(path, SCHEMA.clone(), ROWS_A_GROUP)?;
        Ok(Self { path: path.to_owned(), out, waiting: Columns::default(), rows: 0 })
    }

    /// Number of rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends the record if it is an observation; records of other kinds are skipped.
    ///
    /// # Errors
    /// [`RetrainError::Files`]; the file is then unusable.
    pub fn push(&mut self, row: ObservationRow) -> Result<(), RetrainError> {
        let (RecordKind::Observe, Some(item)) = (row.record.kind, row.record.item.as_ref()) else { return Ok(()) };
        self.waiting.push(row, item.as_str());
        self.rows += 1;
        if self.waiting.rows >= ROWS_A_BATCH { self.write_waiting() } else { Ok(()) }
    }

    /// Writes the remaining rows, syncs the file to disk, and seals it.
    ///
    /// # Errors
    /// [`RetrainError::Files`].
    pub fn finish(mut self) -> Result<InputFile, RetrainError> {
        self.write_waiting()?;
        self.out.finish()?;
        InputFile::sealed(&self.path)
    }

    fn write_waiting(&mut self) -> Result<(), RetrainError> {
        Ok(self.out.write(&self.waiting.take())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_match_readers_and_existing_segments() {
        // External queries use these names. A column may be added; none may be removed or change its type.
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
        ];
        assert_eq!(columns[..flat.len()], flat);
        assert_eq!(columns.len(), flat.len() + 1);
        assert!(columns[flat.len()].starts_with("predictions List("), "{}", columns[flat.len()]);
        let names: Vec<&String> = PREDICTION_FIELDS.iter().map(|field| field.name()).collect();
        assert_eq!(names, ["model_id", "version", "predicted"]);
    }
}
