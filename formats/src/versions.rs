//! The table of all versions of an export, `versions.parquet`. The columns are described in
//! `docs/reference/export.md`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float32Builder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Fields, Schema};
use celeris_model::{ModelName, Timestamp, VersionId};

use crate::columns::{ParquetOut, signed, struct_lists};
use crate::error::FormatError;

/// The name of the file.
pub const FILE: &str = "versions.parquet";

/// One row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionRow {
    pub model: ModelName,
    pub version: VersionId,
    /// Whether it is the model's active version.
    pub is_active: bool,
    /// The version that was active when its training began.
    pub parent: Option<VersionId>,
    pub algorithm: String,
    /// Time at which the training finished.
    pub created: Timestamp,
    pub dim: usize,
    /// Number of items in its feature table.
    pub items: u64,
    /// Smallest and largest label in the training data.
    pub label_range: Option<(f32, f32)>,
    /// Number of the log's records up to the end of its training data; `None` if it was not trained
    /// on the log.
    pub records: Option<u64>,
    pub metrics: BTreeMap<String, f64>,
}

/// Builders of the columns.
#[derive(Default)]
struct Columns {
    model: StringBuilder,
    version: Int64Builder,
    active: BooleanBuilder,
    parent: Int64Builder,
    algorithm: StringBuilder,
    created: Int64Builder,
    dim: Int64Builder,
    items: Int64Builder,
    label_min: Float32Builder,
    label_max: Float32Builder,
    records: Int64Builder,
    metric_counts: Vec<usize>,
    metric: StringBuilder,
    value: Float64Builder,
}

impl Columns {
    fn push(&mut self, row: &VersionRow) {
        self.model.append_value(row.model.as_str());
        self.version.append_value(signed(row.version.0));
        self.active.append_value(row.is_active);
        self.parent.append_option(row.parent.map(|parent| signed(parent.0)));
        self.algorithm.append_value(&row.algorithm);
        self.created.append_value(row.created.0);
        self.dim.append_value(signed(row.dim as u64));
        self.items.append_value(signed(row.items));
        self.label_min.append_option(row.label_range.map(|range| range.0));
        self.label_max.append_option(row.label_range.map(|range| range.1));
        self.records.append_option(row.records.map(signed));
        self.metric_counts.push(row.metrics.len());
        for (name, value) in &row.metrics {
            self.metric.append_value(name);
            self.value.append_value(*value);
        }
    }

    fn finish(mut self) -> RecordBatch {
        let fields = Fields::from(vec![
            Field::new("name", DataType::Utf8, false),
            Field::new("value", DataType::Float64, false),
        ]);
        let metrics: Vec<ArrayRef> = vec![Arc::new(self.metric.finish()), Arc::new(self.value.finish())];
        let columns: Vec<(&str, bool, ArrayRef)> = vec![
            ("model", false, Arc::new(self.model.finish())),
            ("version", false, Arc::new(self.version.finish())),
            ("active", false, Arc::new(self.active.finish())),
            ("parent", true, Arc::new(self.parent.finish())),
            ("algorithm", false, Arc::new(self.algorithm.finish())),
            ("created", false, Arc::new(self.created.finish())),
            ("dim", false, Arc::new(self.dim.finish())),
            ("items", false, Arc::new(self.items.finish())),
            ("label_min", true, Arc::new(self.label_min.finish())),
            ("label_max", true, Arc::new(self.label_max.finish())),
            ("records", true, Arc::new(self.records.finish())),
            ("metrics", false, Arc::new(struct_lists(&fields, metrics, self.metric_counts))),
        ];
        let field = |(name, nullable, column): &(&str, bool, ArrayRef)| {
            Field::new(*name, column.data_type().clone(), *nullable)
        };
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let columns = columns.into_iter().map(|(_, _, column)| column).collect();
        RecordBatch::try_new(schema, columns).expect("every row adds one value to every column")
    }
}

/// Writes the table.
///
/// # Errors
/// [`FormatError::Io`] or [`FormatError::Parquet`].
pub fn write<'a>(path: &Path, rows: impl IntoIterator<Item = &'a VersionRow>) -> Result<(), FormatError> {
    let mut columns = Columns::default();
    for row in rows {
        columns.push(row);
    }
    let table = columns.finish();
    let mut out = ParquetOut::create(path, table.schema())?;
    out.write(&table)?;
    out.finish().map(drop)
}
