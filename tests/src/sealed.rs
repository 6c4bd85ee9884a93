//! Reads sealed segments as an external reader does: the files that the watermark lists, their
//! checksums, and their rows.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The compared fields of an observation.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedRow {
    pub user: String,
    /// Number of the event among the user's events.
    pub user_epoch: i64,
    pub item: String,
    pub label: f32,
    /// The label before corrections, if it was corrected.
    pub first_label: Option<f32>,
    pub observation_id: String,
    /// A JSON object.
    pub context: Option<String>,
    /// Model, version and prediction of each model.
    pub predictions: Vec<(i64, i64, f32)>,
}

/// A stream's sealed observations by partition and sequence.
pub type SealedRows = BTreeMap<(i32, i64), SealedRow>;

/// The contents of a stream's folder, as its watermark lists them.
pub struct SealedStream {
    /// Last sealed sequence of each of the 64 partitions.
    pub watermark: Vec<i64>,
    /// Names of the files that the watermark lists.
    pub files: Vec<String>,
    /// The rows of all listed files.
    pub rows: SealedRows,
}

/// The folder of a stream whose name needs no escapes.
#[must_use]
pub fn folder(data_dir: &Path, stream: &str) -> PathBuf {
    data_dir.join("observations").join(format!("stream={stream}"))
}

/// Reads a stream's segments; `None` if nothing has been sealed yet.
///
/// # Panics
/// If a listed file differs from its entry in the watermark, or a row occurs twice.
#[must_use]
pub fn read(data_dir: &Path, stream: &str) -> Option<SealedStream> {
    let folder = folder(data_dir, stream);
    let text = fs::read_to_string(folder.join("_watermark.json")).ok()?;
    let sealed: Value = serde_json::from_str(&text).expect("the watermark is JSON whenever it is there");
    assert_eq!(sealed["stream"], stream);
    let watermark: Vec<i64> = serde_json::from_value(sealed["watermark"].clone()).expect("an array of numbers");
    assert_eq!(watermark.len(), 64);
    let (mut files, mut rows) = (Vec::new(), SealedRows::new());
    for segment in sealed["segments"].as_array().expect("a list of segments") {
        let name = segment["file"].as_str().expect("a name").to_owned();
        let bytes = fs::read(folder.join(&name)).unwrap_or_else(|error| panic!("listed {name}: {error}"));
        let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(segment["sha256"], sha256, "{name}");
        assert_eq!(segment["bytes"], bytes.len(), "{name}");
        let before = rows.len();
        read_file(&folder.join(&name), &mut rows);
        assert_eq!(segment["rows"], rows.len() - before, "{name}");
        files.push(name);
    }
    Some(SealedStream { watermark, files, rows })
}

fn read_file(path: &Path, rows: &mut SealedRows) {
    let file = File::open(path).expect("a listed file is there");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|builder| builder.build());
    for batch in reader.expect("a listed file is Parquet") {
        let batch = batch.expect("a listed file is whole");
        for row in 0..batch.num_rows() {
            let (place, read) = read_row(&batch, row);
            assert!(rows.insert(place, read).is_none(), "{place:?} is there twice");
        }
    }
}

fn read_row(batch: &RecordBatch, row: usize) -> ((i32, i64), SealedRow) {
    let column = |name: &str| batch.column_by_name(name).unwrap_or_else(|| panic!("no column {name}"));
    let text = |name: &str| column(name).as_string::<i32>().value(row).to_owned();
    let long = |name: &str| column(name).as_primitive::<Int64Type>().value(row);
    let lists = column("predictions").as_list::<i32>().value(row);
    let (model, version, predicted) = {
        let fields = lists.as_struct();
        (fields.column(0).clone(), fields.column(1).clone(), fields.column(2).clone())
    };
    let predictions = (0..lists.len())
        .map(|k| {
            let model = model.as_primitive::<Int64Type>().value(k);
            let version = version.as_primitive::<Int64Type>().value(k);
            (model, version, predicted.as_primitive::<Float32Type>().value(k))
        })
        .collect();
    let first_label = column("first_label").as_primitive::<Float32Type>();
    let context = column("context").as_string::<i32>();
    let place = (column("partition").as_primitive::<Int32Type>().value(row), long("sequence"));
    let read = SealedRow {
        user: text("user"),
        user_epoch: long("user_epoch"),
        item: text("item"),
        label: column("label").as_primitive::<Float32Type>().value(row),
        first_label: first_label.is_valid(row).then(|| first_label.value(row)),
        observation_id: text("observation_id"),
        context: context.is_valid(row).then(|| context.value(row).to_owned()),
        predictions,
    };
    (place, read)
}
