//! A version directory reads back as written, and any damage is reported by name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use celeris_features::{ColdItem, FeaturesError, LoadedVersion, Theta, VersionContents, read_version, write_version};
use celeris_formats::FormatError;
use celeris_model::{ItemId, ModelName, Prior, Timestamp, VersionId};

const DIM: usize = 3;
const ITEMS: usize = 40_000;

fn theta() -> Theta {
    let items = (0..ITEMS).map(|i| ItemId::new(format!("item {i} ü")).unwrap()).collect();
    let offsets = (0..ITEMS).map(|i| i as f32 / 7.0).collect();
    let features = (0..ITEMS).flat_map(|i| [i as f32 / 1e4, -1.0 / (i + 1) as f32, 1.0]).collect();
    let theta = Theta::new(items, offsets, features, ColdItem { offset: 3.5, features: vec![0.1, 0.2, 1.0] }).unwrap();
    theta.with_variances((0..ITEMS).map(|i| 1.0 / (i + 1) as f32).collect(), 1.5).unwrap()
}

fn prior() -> Prior {
    Prior::new(vec![0.1, -0.2, 0.3], vec![2.0, 0.5, 0.0, 0.5, 3.0, 0.1, 0.0, 0.1, 1.0], 0.7).unwrap()
}

fn write(dir: &Path) {
    write_with_choices(dir, &[]);
}

fn write_with_choices(dir: &Path, choices: &[f32]) {
    let contents = VersionContents {
        model: ModelName::new("films").unwrap(),
        theta: &theta(),
        choices,
        prior: &prior(),
        label_range: Some((0.5, 5.0)),
        algorithm: "als".to_owned(),
        parent: Some(VersionId(1)),
        watermark: serde_json::json!({"films": [1, 2, 3]}),
        created: Timestamp(1_700_000_000_000),
        metrics: BTreeMap::from([("rmse".to_owned(), 0.123_456_789_012_345_67)]),
    };
    write_version(dir, &contents).unwrap();
}

#[test]
fn a_version_reads_back_as_written() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let LoadedVersion { manifest, theta: read, prior: read_prior, cold_map, user_map, parts } =
        read_version(dir.path()).unwrap();
    assert!(parts.is_none());
    assert_eq!(read, theta());
    assert_eq!((read.row(3).variance, read.cold_item().variance), (0.25, 1.5));
    assert_eq!(read_prior, prior());
    assert_eq!(cold_map, None, "the training knew no attributes");
    assert_eq!(user_map, None);
    assert_eq!(manifest.parent, Some(VersionId(1)));
    assert_eq!(manifest.metrics["rmse"].to_bits(), 0.123_456_789_012_345_67_f64.to_bits());
}

#[test]
fn choice_vectors_read_back_times_the_precision_of_the_prior() {
    let dir = tempfile::tempdir().unwrap();
    let choices: Vec<f32> = (0..ITEMS * DIM).map(|k| (k % 17) as f32 / 8.0 - 1.0).collect();
    write_with_choices(dir.path(), &choices);
    let read = read_version(dir.path()).unwrap().theta;
    let pulls = prior().pulls(&choices);
    for slot in [0, 1, ITEMS / 2, ITEMS - 1] {
        assert_eq!(read.row(slot).choice, &pulls[slot * DIM..][..DIM]);
    }
    // `Lambda` times (-1, -7/8, -6/8), by hand.
    assert_eq!(read.row(0).choice, [-2.4375, -3.2, -0.8375]);
    assert!(read.bytes() > theta().bytes() + 4 * ITEMS * DIM - 1, "they are counted");
    let without = tempfile::tempdir().unwrap();
    write(without.path());
    assert_eq!(read_version(without.path()).unwrap().theta.row(1).choice, [0.0_f32; 0]);
}

#[test]
fn a_choice_vector_out_of_bounds_is_refused_with_its_row() {
    for worst in [f32::NAN, 2e7, f32::NEG_INFINITY] {
        let dir = tempfile::tempdir().unwrap();
        let mut choices = vec![0.0; ITEMS * DIM];
        choices[5 * DIM + 1] = worst;
        write_with_choices(dir.path(), &choices);
        let error = read_version(dir.path()).unwrap_err().to_string();
        assert!(error.contains("choices") && error.contains("row 5"), "{error}");
    }
}

#[test]
fn a_variance_that_is_none_is_refused() {
    for wrong in [-0.1, f32::NAN, f32::INFINITY, 2e14] {
        let items = || vec![ItemId::new("a").unwrap()];
        let table = || Theta::new(items(), vec![1.0], vec![1.0], ColdItem::blank(1)).unwrap();
        assert!(table().with_variances(vec![wrong], 0.0).is_err(), "{wrong}");
        assert!(table().with_variances(vec![0.5], wrong).is_err(), "{wrong} of an unknown item");
        assert!(table().with_variances(vec![0.5, 0.5], 0.0).is_err(), "one too many");
    }
}

#[test]
fn a_version_is_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let contents = VersionContents {
        model: ModelName::new("films").unwrap(),
        theta: &Theta::untrained(DIM),
        choices: &[],
        prior: &prior(),
        label_range: None,
        algorithm: "none".to_owned(),
        parent: None,
        watermark: serde_json::Value::Null,
        created: Timestamp(0),
        metrics: BTreeMap::new(),
    };
    assert!(matches!(write_version(dir.path(), &contents), Err(FeaturesError::Format(FormatError::Manifest { .. }))));
    assert_eq!(read_version(dir.path()).unwrap().theta, theta());
}

#[test]
fn a_directory_without_a_manifest_is_not_a_version() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    fs::remove_file(dir.path().join("_SUCCESS")).unwrap();
    assert!(read_version(dir.path()).unwrap_err().to_string().contains("not a finished version"));
}

#[test]
fn one_flipped_bit_in_any_file_is_detected() {
    for name in ["item_features.parquet", "prior.parquet"] {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path());
        let path = dir.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(&path, bytes).unwrap();
        let error = read_version(dir.path()).unwrap_err();
        assert!(
            matches!(&error, FeaturesError::Format(FormatError::Mismatch { path, .. }) if path.ends_with(name)),
            "{error}"
        );
    }
}

#[test]
fn manifests_that_contradict_their_files_are_rejected() {
    type Change = fn(&mut serde_json::Value);
    let changes: [(&str, Change); 6] = [
        ("format", |m| m["format"] = 2.into()),
        ("unknown field", |m| m["surprise"] = true.into()),
        ("expected 4 numbers", |m| m["dim"] = 4.into()),
        ("number of rows", |m| m["files"]["item_features.parquet"]["rows"] = 7.into()),
        ("no file of a version", |m| {
            m["files"]["../outside"] = m["files"]["prior.parquet"].clone();
        }),
        // An erasure does not search versions.
        ("nothing of single users", |m| {
            m["files"]["user_weights.parquet"] = m["files"]["prior.parquet"].clone();
        }),
    ];
    for (expected, change) in changes {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path());
        let path = dir.path().join("_SUCCESS");
        let mut manifest = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut manifest);
        fs::write(&path, serde_json::to_vec(&manifest).unwrap()).unwrap();
        let message = read_version(dir.path()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
