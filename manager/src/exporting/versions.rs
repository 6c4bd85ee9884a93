//! Export of versions: a table of all versions, and their directories.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Float32Builder, Float64Builder, Int64Builder, ListArray, RecordBatch, StringBuilder,
    StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Schema};
use celeris_features::columns::ParquetOut;
use celeris_features::manifest::MANIFEST_FILE;
use celeris_features::read_manifest;
use celeris_model::ModelName;
use celeris_storage::Storage;

use super::readable;
use crate::error::ManagerError;
use crate::registry::{ModelRecord, VersionRecord, versions_dir, versions_key};

/// Column builders of the table of versions.
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

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Columns {
    fn push(&mut self, model: &ModelRecord, version: &VersionRecord) {
        self.model.append_value(model.config.name.as_str());
        self.version.append_value(signed(version.version.0));
        self.active.append_value(version.version == model.active);
        self.parent.append_option(version.parent.map(|parent| signed(parent.0)));
        self.algorithm.append_value(&version.algorithm);
        self.created.append_value(version.created.0);
        self.dim.append_value(signed(version.dim as u64));
        self.items.append_value(signed(version.items));
        self.label_min.append_option(version.label_range.map(|range| range.0));
        self.label_max.append_option(version.label_range.map(|range| range.1));
        self.records.append_option(version.watermark.as_ref().map(|watermark| signed(watermark.records())));
        self.metric_counts.push(version.metrics.len());
        for (name, value) in &version.metrics {
            self.metric.append_value(name);
            self.value.append_value(*value);
        }
    }

    fn finish(mut self) -> RecordBatch {
        let fields = Fields::from(vec![
            Field::new("name", DataType::Utf8, false),
            Field::new("value", DataType::Float64, false),
        ]);
        let element = Arc::new(Field::new("element", DataType::Struct(fields.clone()), false));
        let metrics: Vec<ArrayRef> = vec![Arc::new(self.metric.finish()), Arc::new(self.value.finish())];
        let metrics = StructArray::new(fields, metrics, None);
        let metrics = ListArray::new(element, OffsetBuffer::from_lengths(self.metric_counts), Arc::new(metrics), None);
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
            ("metrics", false, Arc::new(metrics)),
        ];
        let field = |(name, nullable, column): &(&str, bool, ArrayRef)| {
            Field::new(*name, column.data_type().clone(), *nullable)
        };
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let columns = columns.into_iter().map(|(_, _, column)| column).collect();
        RecordBatch::try_new(schema, columns).expect("every row adds one value to every column")
    }
}

/// Writes `versions.parquet` and `versions/` into `out`, and returns the number of versions of each model.
///
/// # Errors
/// `Io`, `Features` or `Storage`.
pub(super) fn export(
    storage: &Storage,
    models: &[ModelRecord],
    out: &Path,
    unreadable: &mut Vec<String>,
) -> Result<BTreeMap<ModelName, u64>, ManagerError> {
    let mut columns = Columns::default();
    let mut counts = BTreeMap::new();
    for model in models {
        let name = &model.config.name;
        let versions = readable::<VersionRecord>(storage, &versions_key(name)?, unreadable)?;
        counts.insert(name.clone(), versions.len() as u64);
        for version in &versions {
            columns.push(model, version);
            let number = version.version.to_string();
            let from = versions_dir(storage, model.identity()).join(&number);
            copy_version(&from, &out.join("versions").join(name.as_str()).join(&number))?;
        }
    }
    let table = columns.finish();
    let mut file = ParquetOut::create(&out.join("versions.parquet"), table.schema())?;
    file.write(&table)?;
    file.finish()?;
    Ok(counts)
}

/// Copies the files that the manifest of a version directory lists, then the manifest. Other files, such as search
/// indexes, are not part of the version.
fn copy_version(from: &Path, to: &Path) -> Result<(), ManagerError> {
    let manifest = read_manifest(from)?;
    fs::create_dir_all(to).map_err(ManagerError::io(to))?;
    for name in manifest.files.keys().map(String::as_str).chain([MANIFEST_FILE]) {
        let file = from.join(name);
        fs::copy(&file, to.join(name)).map_err(ManagerError::io(file))?;
    }
    Ok(())
}
