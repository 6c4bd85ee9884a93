//! Parquet schema and writer of decisions, shared by sealed segments and exports. The columns are described in
//! `docs/decisions.md`.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use arrow::array::{
    ArrayRef, BooleanBuilder, Float32Builder, Float64Builder, Int32Builder, Int64Builder, ListArray, ListBuilder,
    RecordBatch, StringBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Schema};
use celeris_features::columns::ParquetOut;
use celeris_model::{Decision, ModelName, RecordedCandidates, ShownSlot};

use crate::error::ManagerError;

/// Rows buffered before they are written to the file.
const ROWS_A_BATCH: usize = 1024;

/// Rows of a row group, which is held in memory until it is complete.
const ROWS_A_GROUP: usize = 16 << 10;

static SHOWN_FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    Fields::from(vec![
        Field::new("item", DataType::Utf8, false),
        Field::new("score", DataType::Float32, false),
        Field::new("std_error", DataType::Float32, false),
        Field::new("propensity", DataType::Float32, true),
        Field::new("propensity_std_error", DataType::Float32, true),
        Field::new("explored", DataType::Boolean, false),
    ])
});

fn shown_field() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Struct(SHOWN_FIELDS.clone()), false))
}

fn candidate_field() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Utf8, false))
}

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let required = |name: &str, kind| Field::new(name, kind, false);
    let optional = |name: &str, kind| Field::new(name, kind, true);
    Arc::new(Schema::new(vec![
        required("decision_id", DataType::Utf8),
        required("version", DataType::Int64),
        required("user", DataType::Utf8),
        required("user_epoch", DataType::Int64),
        required("timestamp", DataType::Int64),
        required("seed", DataType::Utf8),
        required("seed_given", DataType::Boolean),
        required("policy", DataType::Utf8),
        optional("pool_share", DataType::Float64),
        required("pool", DataType::Boolean),
        optional("selection_arm", DataType::Utf8),
        optional("selection_propensity", DataType::Float32),
        required("candidates", DataType::Int32),
        optional("candidate_items", DataType::List(candidate_field())),
        optional("candidate_digest", DataType::Utf8),
        required("shown", DataType::List(shown_field())),
    ]))
});

/// Buffered rows.
struct Columns {
    rows: usize,
    id: StringBuilder,
    version: Int64Builder,
    user: StringBuilder,
    user_epoch: Int64Builder,
    timestamp: Int64Builder,
    seed: StringBuilder,
    seed_given: BooleanBuilder,
    policy: StringBuilder,
    pool_share: Float64Builder,
    pool: BooleanBuilder,
    arm: StringBuilder,
    arm_propensity: Float32Builder,
    candidates: Int32Builder,
    candidate_items: ListBuilder<StringBuilder>,
    candidate_digest: StringBuilder,
    shown: ShownColumns,
}

#[derive(Default)]
struct ShownColumns {
    lengths: Vec<usize>,
    item: StringBuilder,
    score: Float32Builder,
    std_error: Float32Builder,
    propensity: Float32Builder,
    propensity_std_error: Float32Builder,
    explored: BooleanBuilder,
}

impl ShownColumns {
    fn push(&mut self, shown: &[ShownSlot]) {
        self.lengths.push(shown.len());
        for slot in shown {
            self.item.append_value(slot.item.as_str());
            self.score.append_value(slot.score);
            self.std_error.append_value(slot.std_error);
            self.propensity.append_option(slot.propensity);
            self.propensity_std_error.append_option(slot.propensity_std_error);
            self.explored.append_value(slot.explored);
        }
    }

    fn finish(&mut self) -> ListArray {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.item.finish()),
            Arc::new(self.score.finish()),
            Arc::new(self.std_error.finish()),
            Arc::new(self.propensity.finish()),
            Arc::new(self.propensity_std_error.finish()),
            Arc::new(self.explored.finish()),
        ];
        let structs = StructArray::new(SHOWN_FIELDS.clone(), columns, None);
        let offsets = OffsetBuffer::from_lengths(std::mem::take(&mut self.lengths));
        ListArray::new(shown_field(), offsets, Arc::new(structs), None)
    }
}

/// A count as Parquet's signed integer; the counts here never reach 2^63.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Columns {
    fn new() -> Self {
        Self {
            rows: 0,
            id: StringBuilder::new(),
            version: Int64Builder::new(),
            user: StringBuilder::new(),
            user_epoch: Int64Builder::new(),
            timestamp: Int64Builder::new(),
            seed: StringBuilder::new(),
            seed_given: BooleanBuilder::new(),
            policy: StringBuilder::new(),
            pool_share: Float64Builder::new(),
            pool: BooleanBuilder::new(),
            arm: StringBuilder::new(),
            arm_propensity: Float32Builder::new(),
            candidates: Int32Builder::new(),
            candidate_items: ListBuilder::new(StringBuilder::new()).with_field(candidate_field()),
            candidate_digest: StringBuilder::new(),
            shown: ShownColumns::default(),
        }
    }

    fn push(&mut self, decision: &Decision) {
        self.rows += 1;
        self.id.append_value(decision.id.as_str());
        self.version.append_value(signed(decision.version.0));
        self.user.append_value(decision.user.as_str());
        self.user_epoch.append_value(signed(decision.user_epoch.0));
        self.timestamp.append_value(decision.timestamp.0);
        // Stored as text: all 64 bits are significant, and many readers have no unsigned integers.
        self.seed.append_value(decision.seed.to_string());
        self.seed_given.append_value(decision.seed_given);
        self.policy.append_value(&decision.policy);
        self.pool_share.append_option(decision.pool_share);
        self.pool.append_value(decision.pool);
        self.arm.append_option(
            decision.selection.as_ref().and_then(|selection| selection.arm.as_ref()).map(ModelName::as_str),
        );
        self.arm_propensity.append_option(decision.selection.as_ref().map(|selection| selection.propensity));
        self.push_candidates(&decision.candidates);
        self.shown.push(&decision.shown);
    }

    fn push_candidates(&mut self, candidates: &RecordedCandidates) {
        self.candidates.append_value(i32::try_from(candidates.count()).unwrap_or(i32::MAX));
        let items = candidates.items();
        for item in items.unwrap_or_default() {
            self.candidate_items.values().append_value(item.as_str());
        }
        self.candidate_items.append(items.is_some());
        let digest = match candidates {
            RecordedCandidates::Digest { digest, .. } => Some(digest.to_string()),
            RecordedCandidates::Full(_) | RecordedCandidates::Count(_) => None,
        };
        self.candidate_digest.append_option(digest);
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
            Arc::new(self.seed_given.finish()),
            Arc::new(self.policy.finish()),
            Arc::new(self.pool_share.finish()),
            Arc::new(self.pool.finish()),
            Arc::new(self.arm.finish()),
            Arc::new(self.arm_propensity.finish()),
            Arc::new(self.candidates.finish()),
            Arc::new(self.candidate_items.finish()),
            Arc::new(self.candidate_digest.finish()),
            Arc::new(self.shown.finish()),
        ];
        RecordBatch::try_new(SCHEMA.clone(), columns).expect("every row adds one value to every column")
    }
}

/// Writer of a Parquet file of decisions.
pub(crate) struct DecisionsWriter {
    out: ParquetOut,
    waiting: Columns,
    rows: u64,
}

impl DecisionsWriter {
    /// Creates the file.
    ///
    /// # Errors
    /// `Features`.
    pub(crate) fn create(path: &Path) -> Result<Self, ManagerError> {
        let out = ParquetOut::create_grouped(path, SCHEMA.clone(), ROWS_A_GROUP)?;
        Ok(Self { out, waiting: Columns::new(), rows: 0 })
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends a decision.
    ///
    /// # Errors
    /// `Features`.
    pub(crate) fn push(&mut self, decision: &Decision) -> Result<(), ManagerError> {
        self.waiting.push(decision);
        self.rows += 1;
        if self.waiting.rows >= ROWS_A_BATCH { self.write_waiting() } else { Ok(()) }
    }

    fn write_waiting(&mut self) -> Result<(), ManagerError> {
        if self.waiting.rows > 0 {
            self.out.write(&self.waiting.take())?;
        }
        Ok(())
    }

    /// Writes the remaining rows and the footer, and syncs the file to disk.
    ///
    /// # Errors
    /// `Features`.
    pub(crate) fn finish(mut self) -> Result<(), ManagerError> {
        self.write_waiting()?;
        self.out.finish()?;
        Ok(())
    }
}
