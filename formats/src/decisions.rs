//! Decisions: sealed segments and exports. The columns are described in `docs/guides/decisions.md`.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use arrow_array::builder::{
    BooleanBuilder, Float32Builder, Float64Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder,
};
use arrow_array::{ArrayRef, ListArray};
use arrow_schema::{DataType, Field, Fields, Schema};
use celeris_model::{Decision, ModelName, RecordedCandidates, ShownSlot};

use crate::columns::{json, signed, struct_element, struct_lists};
use crate::error::FormatError;
use crate::rows::{self, RowWriter};

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
        optional("context", DataType::Utf8),
        required("candidates", DataType::Int32),
        optional("candidate_items", DataType::List(candidate_field())),
        optional("candidate_digest", DataType::Utf8),
        required("shown", DataType::List(struct_element(&SHOWN_FIELDS))),
    ]))
});

/// Buffered rows.
struct Columns {
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
    context: StringBuilder,
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
        struct_lists(&SHOWN_FIELDS, columns, std::mem::take(&mut self.lengths))
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self {
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
            context: StringBuilder::new(),
            candidates: Int32Builder::new(),
            candidate_items: ListBuilder::new(StringBuilder::new()).with_field(candidate_field()),
            candidate_digest: StringBuilder::new(),
            shown: ShownColumns::default(),
        }
    }
}

impl Columns {
    fn push(&mut self, decision: &Decision) {
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
        self.context.append_option(decision.context.as_deref().map(json));
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
}

impl rows::Columns for Columns {
    const ROWS_A_BATCH: usize = 1024;
    const ROWS_A_GROUP: usize = 16 << 10;

    fn schema() -> Arc<Schema> {
        SCHEMA.clone()
    }

    fn take(&mut self) -> Vec<ArrayRef> {
        vec![
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
            Arc::new(self.context.finish()),
            Arc::new(self.candidates.finish()),
            Arc::new(self.candidate_items.finish()),
            Arc::new(self.candidate_digest.finish()),
            Arc::new(self.shown.finish()),
        ]
    }
}

/// Writes a file of decisions row by row, in bounded memory.
pub struct DecisionsWriter(RowWriter<Columns>);

impl DecisionsWriter {
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

    /// Appends a decision.
    ///
    /// # Errors
    /// [`FormatError::Parquet`]; the file is then unusable.
    pub fn push(&mut self, decision: &Decision) -> Result<(), FormatError> {
        self.0.push(|columns| columns.push(decision))
    }

    /// Writes the remaining rows and the footer, and syncs the file to disk.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn finish(self) -> Result<(), FormatError> {
        self.0.finish()
    }
}
