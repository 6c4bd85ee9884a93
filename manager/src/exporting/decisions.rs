//! Decisions as Parquet.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arrow::array::{
    ArrayRef, BooleanBuilder, Float32Builder, Float64Builder, Int32Builder, Int64Builder, ListArray, RecordBatch,
    StringBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Schema};
use celeris_features::columns::ParquetOut;
use celeris_model::{Decision, ModelName, ShownSlot};
use celeris_storage::Storage;

use crate::error::ManagerError;

/// Rows gathered before they are handed to the file.
const ROWS_A_BATCH: usize = 4096;

/// Rows of a row group, which is held in memory until it is whole.
const ROWS_A_GROUP: usize = 64 << 10;

/// Rows of a file.
const ROWS_A_FILE: u64 = 1 << 20;

static SHOWN_FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    Fields::from(vec![
        Field::new("item", DataType::Utf8, false),
        Field::new("score", DataType::Float32, false),
        Field::new("std_error", DataType::Float32, false),
        Field::new("propensity", DataType::Float32, true),
    ])
});

fn shown_field() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Struct(SHOWN_FIELDS.clone()), false))
}

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let required = |name: &str, kind| Field::new(name, kind, false);
    Arc::new(Schema::new(vec![
        required("decision_id", DataType::Utf8),
        required("version", DataType::Int64),
        required("user", DataType::Utf8),
        required("user_epoch", DataType::Int64),
        required("timestamp", DataType::Int64),
        required("seed", DataType::Utf8),
        required("policy", DataType::Utf8),
        Field::new("pool_share", DataType::Float64, true),
        required("pool", DataType::Boolean),
        required("candidates", DataType::Int32),
        required("shown", DataType::List(shown_field())),
    ]))
});

/// Rows that wait to be written.
#[derive(Default)]
struct Columns {
    rows: usize,
    id: StringBuilder,
    version: Int64Builder,
    user: StringBuilder,
    user_epoch: Int64Builder,
    timestamp: Int64Builder,
    seed: StringBuilder,
    policy: StringBuilder,
    pool_share: Float64Builder,
    pool: BooleanBuilder,
    candidates: Int32Builder,
    shown: ShownColumns,
}

#[derive(Default)]
struct ShownColumns {
    lengths: Vec<usize>,
    item: StringBuilder,
    score: Float32Builder,
    std_error: Float32Builder,
    propensity: Float32Builder,
}

impl ShownColumns {
    fn push(&mut self, shown: &[ShownSlot]) {
        self.lengths.push(shown.len());
        for slot in shown {
            self.item.append_value(slot.item.as_str());
            self.score.append_value(slot.score);
            self.std_error.append_value(slot.std_error);
            self.propensity.append_option(slot.propensity);
        }
    }

    fn finish(&mut self) -> ListArray {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.item.finish()),
            Arc::new(self.score.finish()),
            Arc::new(self.std_error.finish()),
            Arc::new(self.propensity.finish()),
        ];
        let structs = StructArray::new(SHOWN_FIELDS.clone(), columns, None);
        let offsets = OffsetBuffer::from_lengths(std::mem::take(&mut self.lengths));
        ListArray::new(shown_field(), offsets, Arc::new(structs), None)
    }
}

/// A count as Parquet's signed integer; nothing counted here reaches 2^63.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Columns {
    fn push(&mut self, decision: &Decision) {
        self.rows += 1;
        self.id.append_value(decision.id.as_str());
        self.version.append_value(signed(decision.version.0));
        self.user.append_value(decision.user.as_str());
        self.user_epoch.append_value(signed(decision.user_epoch.0));
        self.timestamp.append_value(decision.timestamp.0);
        // All 64 bits count, and readers know no unsigned integers.
        self.seed.append_value(decision.seed.to_string());
        self.policy.append_value(&decision.policy);
        self.pool_share.append_option(decision.pool_share);
        self.pool.append_value(decision.pool);
        self.candidates.append_value(i32::try_from(decision.candidates).unwrap_or(i32::MAX));
        self.shown.push(&decision.shown);
    }

    fn take(&mut self) -> RecordBatch {
        self.rows = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.id.finish()),
            Arc::new(self.version.finish()),
            Arc::new(self.user.finish()),
            Arc::new(self.user_epoch.finish()),
            Arc::new(self.timestamp.finish()),
            Arc::new(self.seed.finish()),
            Arc::new(self.policy.finish()),
            Arc::new(self.pool_share.finish()),
            Arc::new(self.pool.finish()),
            Arc::new(self.candidates.finish()),
            Arc::new(self.shown.finish()),
        ];
        RecordBatch::try_new(SCHEMA.clone(), columns).expect("every row adds one value to every column")
    }
}

/// Files of one model's decisions, one after the other.
struct Files {
    folder: PathBuf,
    open: Option<ParquetOut>,
    rows_in_file: u64,
    files: u32,
    waiting: Columns,
    rows: u64,
}

impl Files {
    fn push(&mut self, decision: &Decision) -> Result<(), ManagerError> {
        self.waiting.push(decision);
        self.rows += 1;
        if self.waiting.rows >= ROWS_A_BATCH { self.write_waiting() } else { Ok(()) }
    }

    fn write_waiting(&mut self) -> Result<(), ManagerError> {
        if self.waiting.rows == 0 {
            return Ok(());
        }
        let mut out = match self.open.take() {
            Some(out) => out,
            None => {
                self.files += 1;
                self.rows_in_file = 0;
                let path = self.folder.join(format!("decisions-{:06}.parquet", self.files));
                ParquetOut::create_grouped(&path, SCHEMA.clone(), ROWS_A_GROUP)?
            }
        };
        self.rows_in_file += self.waiting.rows as u64;
        out.write(&self.waiting.take())?;
        if self.rows_in_file < ROWS_A_FILE {
            self.open = Some(out);
            return Ok(());
        }
        out.finish()?;
        Ok(())
    }

    fn finish(mut self) -> Result<u64, ManagerError> {
        self.write_waiting()?;
        if let Some(out) = self.open {
            out.finish()?;
        }
        Ok(self.rows)
    }
}

/// Writes a model's decisions below `root` and returns how many there are.
///
/// # Errors
/// `Io`, `Features` or `Storage`.
pub(super) fn export(storage: &Storage, model: &ModelName, root: &Path) -> Result<u64, ManagerError> {
    let folder = root.join(format!("model={model}"));
    fs::create_dir_all(&folder).map_err(ManagerError::io(&folder))?;
    let mut files = Files { folder, open: None, rows_in_file: 0, files: 0, waiting: Columns::default(), rows: 0 };
    let outcome = storage.scan_decisions(model, |decision| match files.push(&decision) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    })?;
    match outcome {
        ControlFlow::Continue(()) => files.finish(),
        ControlFlow::Break(error) => Err(error),
    }
}
