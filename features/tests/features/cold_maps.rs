//! A cold map states the variance of its scores, and reads back from its files unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use celeris_features::{
    AttributeEncoder, ColdItem, ColdMap, ColdMapParts, FeaturesError, Theta, TrainerPart, VersionContents,
    read_version, write_trained_version,
};
use celeris_formats::version_dir::ENCODER_FILE;
use celeris_formats::{FormatError, cold_map, sha256_of};
use celeris_model::{Example, Learning, ModelName, Prior, Timestamp, UserModel};
use serde_json::{Map, Value, json};

const DIM: usize = 3;

fn item(index: usize) -> Map<String, Value> {
    let title = format!("Number {index} of many");
    json!({"title": title, "year": index, "genres": ["Drama", "War"]}).as_object().unwrap().clone()
}

fn map() -> ColdMap {
    let items: Vec<_> = (0..30).map(item).collect();
    let encoder = AttributeEncoder::learn(&items);
    let coefficients = (0..encoder.width() * DIM).map(|at| (at as f32).sin()).collect();
    // `L L^T` of the lower triangle `L` that the sampling below uses.
    let residual_covariance = vec![0.25, 0.1, 0.15, 0.1, 0.13, 0.0, 0.15, 0.0, 0.22];
    ColdMap::new(ColdMapParts {
        encoder,
        intercept: vec![0.3, -0.1, 3.2],
        coefficients,
        residual_covariance,
        ridge: 3.0,
    })
    .unwrap()
}

fn learning() -> Learning {
    Prior::new(vec![0.8, -0.5, 0.3], vec![2.0, 0.5, 0.0, 0.5, 3.0, 0.1, 0.0, 0.1, 1.0], 0.7).unwrap().into()
}

fn write(dir: &Path, map: &ColdMap) {
    let prior = Prior::isotropic(DIM, 1.0, 0.5).unwrap();
    let contents = VersionContents {
        model: ModelName::new("films").unwrap(),
        theta: &Theta::untrained(DIM),
        choices: &[],
        prior: &prior,
        label_range: None,
        algorithm: "none".to_owned(),
        parent: None,
        watermark: Value::Null,
        created: Timestamp(0),
        metrics: BTreeMap::new(),
    };
    let (text, tables) = map.files();
    let part = TrainerPart { warm: None, tables: vec![(cold_map::FILE, tables)], texts: vec![(ENCODER_FILE, text)] };
    write_trained_version(dir, &contents, part).unwrap();
}

/// A small generator of numbers between 0 and 1 (a mixed Weyl sequence), so that the tests need no
/// further dependency.
struct Uniform(u64);

impl Uniform {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 29)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The sum of twelve uniforms has a variance of 1; only two moments are needed.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

#[test]
fn the_variance_is_that_of_scores_under_drawn_weights_and_drawn_residuals() {
    let (map, learning) = (map(), learning());
    let examples = [Example {
        features: &[1.0, -1.0, 1.0],
        label: 4.0,
        offset: 3.0,
        weight: 1.0,
        timestamp: Timestamp(0),
        taken_before: None,
        choice: &[],
    }];
    let user = UserModel::rebuild(&learning, examples.as_slice(), 1).unwrap();
    let mut sampler = user.sampler(&learning).unwrap();
    let mut random = Uniform(7);
    let lower = [[0.5, 0.0, 0.0], [0.2, 0.3, 0.0], [0.3, -0.2, 0.3]];
    let draws = 200_000;
    let (mut sum, mut squares) = (0.0, 0.0);
    for _ in 0..draws {
        let mut weights = sampler.draw(|| random.normal()).to_vec();
        weights[DIM - 1] = 1.0;
        let normals: [f64; DIM] = std::array::from_fn(|_| random.normal());
        let wrong: f64 = lower
            .iter()
            .zip(&weights)
            .map(|(row, weight)| weight * row.iter().zip(&normals).map(|(l, z)| l * z).sum::<f64>())
            .sum();
        sum += wrong;
        squares += wrong * wrong;
    }
    let (mean, found) = (sum / f64::from(draws), squares / f64::from(draws));
    let expected = map.variance(&user, &learning);
    // The relative standard error of a variance of this many draws, of a product with slightly
    // heavier tails: 0.4 %.
    assert!((found / expected - 1.0).abs() < 0.02 && mean.abs() < 0.01, "{found} drawn, {expected} expected");
}

#[test]
fn widening_adds_variances_and_leaves_scores() {
    let learning = learning();
    let user = UserModel::from_prior(&learning).unwrap();
    let sure = user.estimate(&learning, 3.0, &[1.0, 2.0, 1.0]);
    let wide = learning.widened(sure, 0.5);
    assert_eq!(wide.score, sure.score);
    let square = |value: f32| f64::from(value).powi(2);
    assert!((square(wide.std_error) - square(sure.std_error) - 0.5).abs() < 1e-5);
    assert!((square(wide.label_std) - square(sure.label_std) - 0.5).abs() < 1e-5);
    let same = learning.widened(sure, 0.0);
    assert!((same.std_error - sure.std_error).abs() < 1e-6 && (same.label_std - sure.label_std).abs() < 1e-6);
}

#[test]
fn a_map_reads_back_from_its_version_unchanged() {
    let (dir, map) = (tempfile::tempdir().unwrap(), map());
    write(dir.path(), &map);
    let read = read_version(dir.path()).unwrap();
    assert_eq!(read.cold_map.as_deref(), Some(&map));
    let ColdItem { offset, features } = read.cold_map.unwrap().map(&item(77));
    assert_eq!(ColdItem { offset, features }, map.map(&item(77)));
}

#[test]
fn rules_of_another_map_are_refused() {
    let (dir, map) = (tempfile::tempdir().unwrap(), map());
    let (text, tables) = map.files();
    let text = String::from_utf8(text).unwrap();
    for (from, to) in
        [("\"format\": 1", "\"format\": 2"), ("\"hashed\": 64", "\"hashed\": 128"), ("\"hashed\"", "\"hash\"")]
    {
        let dir = dir.path().join(to.replace(|letter: char| !letter.is_alphanumeric(), ""));
        write(&dir, &map);
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        // As a trainer would have written it, with a matching manifest.
        let manifest = fs::read_to_string(dir.join("_SUCCESS")).unwrap();
        let before = sha256_of(&dir.join(ENCODER_FILE)).unwrap();
        fs::write(dir.join(ENCODER_FILE), changed).unwrap();
        let after = sha256_of(&dir.join(ENCODER_FILE)).unwrap();
        fs::write(dir.join("_SUCCESS"), manifest.replace(&before, &after)).unwrap();
        let error = read_version(&dir).unwrap_err();
        assert!(
            matches!(error, FeaturesError::Format(FormatError::Manifest { .. }) | FeaturesError::Model(_)),
            "{error}"
        );
    }
    drop(tables);
}
