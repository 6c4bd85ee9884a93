//! A user map reads back from its files unchanged, is bounded, and is refused if it does not fit its version.

use std::collections::BTreeMap;
use std::path::Path;

use celeris_features::{
    AttributeEncoder, FeaturesError, Theta, TrainerPart, UserMap, VersionContents, read_version, write_trained_version,
};
use celeris_formats::user_map;
use celeris_formats::version_dir::USER_ENCODER_FILE;
use celeris_model::{ModelError, ModelName, Prior, Timestamp};
use serde_json::{Map, Value, json};

const DIM: usize = 3;

fn user(index: usize) -> Map<String, Value> {
    json!({"age": index, "langs": ["de", "en"]}).as_object().unwrap().clone()
}

fn encoder() -> AttributeEncoder {
    let users: Vec<_> = (0..30).map(user).collect();
    AttributeEncoder::learn(&users)
}

fn map(factor: f32) -> UserMap {
    let coefficients = (0..encoder().width() * DIM).map(|at| factor * (at as f32).sin()).collect();
    UserMap::new(encoder(), (vec![0.25, -0.5, 1.0], coefficients), 3.0).unwrap()
}

fn write(dir: &Path, map: &UserMap, dim: usize) {
    let contents = VersionContents {
        model: ModelName::new("films").unwrap(),
        theta: &Theta::untrained(dim),
        choices: &[],
        prior: &Prior::isotropic(dim, 1.0, 0.5).unwrap(),
        label_range: None,
        algorithm: "none".to_owned(),
        parent: None,
        watermark: Value::Null,
        created: Timestamp(0),
        metrics: BTreeMap::new(),
    };
    let (text, tables) = map.files();
    let part =
        TrainerPart { warm: None, tables: vec![(user_map::FILE, tables)], texts: vec![(USER_ENCODER_FILE, text)] };
    write_trained_version(dir, &contents, part).unwrap();
}

#[test]
fn a_map_reads_back_with_its_version_and_maps_known_attributes_only() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &map(1.0), DIM);
    let read = read_version(dir.path()).unwrap().user_map.unwrap();
    assert_eq!((&*read, read.dim()), (&map(1.0), DIM));
    assert_ne!(read.shift(&user(3)), read.shift(&user(20)));
    for nothing in [json!({}), json!({"shoe": 42}), json!({"age": null, "langs": {"de": 1}})] {
        assert_eq!(read.shift(nothing.as_object().unwrap()), None, "{nothing}");
    }
    let of_extremes = read.shift(json!({"age": 1e300}).as_object().unwrap()).unwrap();
    assert!(of_extremes.iter().all(|entry| entry.is_finite()), "{of_extremes:?}");
}

#[test]
fn a_map_that_does_not_fit_its_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &map(1.0), DIM + 1);
    let error = read_version(dir.path()).unwrap_err().to_string();
    assert!(error.contains("user_map.parquet") && error.contains("expected 4 numbers, got 3"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &map(1e9), DIM);
    let error = read_version(dir.path()).unwrap_err();
    assert!(
        matches!(&error, FeaturesError::OutOfBounds { .. }) && error.to_string().contains("user_map.parquet"),
        "{error}"
    );
    let width = encoder().width();
    for (coefficients, what) in [(vec![0.0; width], "lengths"), (vec![f32::NAN; width * DIM], "numbers")] {
        let refused = UserMap::new(encoder(), (vec![0.0; DIM], coefficients), 1.0);
        assert!(matches!(refused, Err(ModelError::DimMismatch { .. } | ModelError::NonFinite { .. })), "{what}");
    }
}
