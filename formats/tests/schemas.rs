//! The columns of every file, which programs outside read too: a column may be added, none may be
//! removed or change its type.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use celeris_formats::cold_map::ColdMapNumbers;
use celeris_formats::trainer_items::TrainerItems;
use celeris_formats::user_map::{self, UserMapNumbers};
use celeris_formats::versions::{self, VersionRow};
use celeris_formats::{DecisionsWriter, ParquetFile, VersionDirWriter, item_features, pinned_items, prior};
use celeris_model::{ItemId, Prior, Timestamp, VersionId};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// Name and type of every column, with `?` for nullable ones.
fn columns(schema: &Schema) -> Vec<String> {
    let column = |field: &arrow_schema::FieldRef| {
        format!("{}: {}{}", field.name(), field.data_type(), if field.is_nullable() { "?" } else { "" })
    };
    schema.fields().iter().map(column).collect()
}

fn columns_of_file(path: &Path) -> Vec<String> {
    columns(ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap().schema())
}

fn items() -> [ItemId; 2] {
    ["a", "b"].map(|item| ItemId::new(item).unwrap())
}

fn features() -> RecordBatch {
    let (items, features) = (items(), [1.0, 2.0, 3.0, 4.0]);
    let (offsets, features) = (&[0.5, 1.5], &features);
    item_features::table(item_features::ItemFeatureTable {
        items: &items,
        offsets,
        features,
        choices: &[],
        variances: &[],
        width: 2,
    })
}

fn cold_map() -> ColdMapNumbers {
    ColdMapNumbers {
        intercept: vec![0.25, 0.5],
        coefficients: vec![1.0, 2.0, 3.0, 4.0],
        residual_covariance: vec![2.0, 0.5, 0.5, 1.0],
    }
}

#[test]
fn decisions_have_the_columns_that_queries_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions.parquet");
    DecisionsWriter::create(&path).unwrap().finish().unwrap();
    let columns = columns_of_file(&path);
    let flat = [
        "decision_id: Utf8",
        "version: Int64",
        "user: Utf8",
        "user_epoch: Int64",
        "timestamp: Int64",
        "seed: Utf8",
        "seed_given: Boolean",
        "policy: Utf8",
        "pool_share: Float64?",
        "pool: Boolean",
        "selection_arm: Utf8?",
        "selection_propensity: Float32?",
        "context: Utf8?",
        "candidates: Int32",
    ];
    assert_eq!(columns[..flat.len()], flat);
    let names: Vec<&str> = columns[flat.len()..].iter().filter_map(|column| Some(column.split_once(':')?.0)).collect();
    assert_eq!(names, ["candidate_items", "candidate_digest", "shown"]);
    let shown = columns.last().unwrap();
    for name in ["item", "score", "std_error", "propensity", "propensity_std_error", "explored"] {
        assert!(shown.contains(&format!("\"{name}\"")), "{shown}");
    }
}

#[test]
fn tables_of_a_version_have_the_columns_that_trainers_write() {
    let prior = Prior::new(vec![0.0, 0.5], vec![2.0, 0.5, 0.5, 1.0], 0.7).unwrap();
    let list = |item: &str| format!("List({item})");
    let vectors = list("non-null Float32");
    assert_eq!(
        columns(&features().schema()),
        ["item: Utf8".to_owned(), "offset: Float32".to_owned(), format!("features: {vectors}")]
    );
    assert_eq!(
        columns(&prior::table(&prior, &[0.0, 1.0]).schema()),
        ["mean: Float64".to_owned(), format!("precision: {}", list("Float64")), "cold_feature: Float32".to_owned()]
    );
    assert_eq!(
        columns(&cold_map().table(2).schema()),
        ["part: Utf8".to_owned(), format!("values: {}", list("non-null Float64"))]
    );
    let trainer_items = TrainerItems {
        dim: 3,
        choices: None,
        items: &items(),
        latent: 1,
        biases: Some(&[0.5, 1.0]),
        bias_variances: Some(&[0.1, 0.2]),
        factors: Some(&[1.0, 2.0]),
        factor_variances: Some(&[0.3, 0.4]),
    };
    assert_eq!(
        columns(&trainer_items.table().schema()),
        [
            "item: Utf8".to_owned(),
            "bias: Float32".to_owned(),
            "bias_variance: Float32".to_owned(),
            format!("factors: {vectors}"),
            format!("factor_variances: {vectors}"),
        ]
    );
    let implicit = TrainerItems { latent: 0, biases: None, bias_variances: None, ..trainer_items };
    assert_eq!(columns(&implicit.table().schema()), ["item: Utf8"], "no column without values");
}

#[test]
fn versions_and_pinned_items_have_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    let pinned = folder.path().join("pinned_items.parquet");
    pinned_items::write(&pinned, &items(), &[1.0, 2.0]).unwrap();
    assert_eq!(columns_of_file(&pinned), ["item: Utf8", "features: List(non-null Float32)"]);

    let path = folder.path().join(versions::FILE);
    let row = VersionRow {
        model: "films".parse().unwrap(),
        version: VersionId(3),
        is_active: true,
        parent: None,
        algorithm: "als".to_owned(),
        created: Timestamp(7),
        dim: 2,
        items: 5,
        label_range: Some((1.0, 5.0)),
        records: Some(9),
        metrics: BTreeMap::from([("rmse".to_owned(), 0.5)]),
    };
    versions::write(&path, [&row]).unwrap();
    let columns = columns_of_file(&path);
    let flat = [
        "model: Utf8",
        "version: Int64",
        "active: Boolean",
        "parent: Int64?",
        "algorithm: Utf8",
        "created: Int64",
        "dim: Int64",
        "items: Int64",
        "label_min: Float32?",
        "label_max: Float32?",
        "records: Int64?",
    ];
    assert_eq!(columns[..flat.len()], flat);
    assert!(columns[flat.len()].starts_with("metrics: List("), "{columns:?}");
}

#[test]
fn tables_read_back_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = VersionDirWriter::create(folder.path()).unwrap();
    writer.table(item_features::FILE, [features()]).unwrap();
    writer.table(celeris_formats::cold_map::FILE, [cold_map().table(2)]).unwrap();
    let of_users = UserMapNumbers { intercept: vec![0.5, -1.0], coefficients: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0] };
    writer.table(user_map::FILE, [of_users.table()]).unwrap();
    let path = folder.path().join(user_map::FILE);
    assert_eq!(columns_of_file(&path), ["part: Utf8", "values: List(non-null Float64)"]);
    assert_eq!(UserMapNumbers::read(&path, 2).unwrap(), of_users);
    let error = UserMapNumbers::read(&path, 3).unwrap_err().to_string();
    assert!(error.contains("column values: expected 3 numbers, got 2"), "{error}");
    let mut file = ParquetFile::open(&folder.path().join(item_features::FILE)).unwrap();
    let batch = file.next_batch().unwrap().unwrap();
    let rows = item_features::read_rows(&batch, 2).unwrap();
    assert_eq!(rows.items, items());
    assert_eq!((rows.offsets, rows.features), (vec![0.5, 1.5], vec![1.0, 2.0, 3.0, 4.0]));
    let error = item_features::read_rows(&batch, 3).unwrap_err().to_string();
    assert!(error.contains("row 0: column features: expected 3 numbers, got 2"), "{error}");
    let read = ColdMapNumbers::read(&folder.path().join(celeris_formats::cold_map::FILE), 2).unwrap();
    assert_eq!(read, cold_map());
}
