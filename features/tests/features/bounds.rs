//! The numbers of a version are bounded: a version that could make a score, an uncertainty or a
//! loss infinite is rejected when it is read, with an error that names the file and the figure.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use celeris_features::{ColdItem, Theta, VersionContents, read_version, write_version};
use celeris_model::{ItemId, Learning, Loss, ModelName, Prior, Timestamp, UserModel};

/// The figures of a version of dimension 2, with one item.
#[derive(Debug, Clone)]
struct Figures {
    mean: f64,
    precision: [f64; 2],
    noise: f64,
    offset: f32,
    cold_offset: f32,
    label_range: Option<(f32, f32)>,
    algorithm: String,
    metrics: BTreeMap<String, f64>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            mean: 0.5,
            precision: [2.0, 3.0],
            noise: 0.7,
            offset: 0.25,
            cold_offset: 0.1,
            label_range: Some((0.5, 5.0)),
            algorithm: "als".to_owned(),
            metrics: BTreeMap::from([("rmse".to_owned(), 0.9)]),
        }
    }
}

impl Figures {
    fn write(&self, dir: &Path) {
        let cold = ColdItem { offset: self.cold_offset, features: vec![0.0, 1.0] };
        let theta = Theta::new(vec![ItemId::new("a").unwrap()], vec![self.offset], vec![2.0, 1.0], cold).unwrap();
        let precision = vec![self.precision[0], 0.0, 0.0, self.precision[1]];
        let contents = VersionContents {
            model: ModelName::new("films").unwrap(),
            theta: &theta,
            choices: &[],
            prior: &Prior::new(vec![self.mean, 0.1], precision, self.noise).unwrap(),
            label_range: self.label_range,
            algorithm: self.algorithm.clone(),
            parent: None,
            watermark: serde_json::Value::Null,
            created: Timestamp(0),
            metrics: self.metrics.clone(),
        };
        write_version(dir, &contents).unwrap();
    }
}

#[test]
fn figures_beyond_their_bounds_are_refused_by_name() {
    let usual = Figures::default;
    let cases: Vec<(Figures, &[&str])> = vec![
        (Figures { mean: 1e42, ..usual() }, &["prior.parquet", "mean in row 0", "1e42"]),
        (Figures { mean: -1.1e7, ..usual() }, &["prior.parquet", "mean in row 0"]),
        (Figures { precision: [2e15, 2e15], ..usual() }, &["prior.parquet", "row sum of the precision is"]),
        (Figures { precision: [1e-10, 1e-10], ..usual() }, &["prior.parquet", "inverse"]),
        (Figures { precision: [1.0, 1.1e4], ..usual() }, &["prior.parquet", "condition"]),
        (Figures { noise: 1e14, ..usual() }, &["_SUCCESS", "noise_variance"]),
        (Figures { offset: 1.1e7, ..usual() }, &["item_features.parquet", "offset of item a"]),
        (Figures { offset: -3e38, ..usual() }, &["item_features.parquet", "offset of item a"]),
        (Figures { cold_offset: 2e7, ..usual() }, &["_SUCCESS", "cold_item_offset"]),
        (Figures { label_range: Some((0.0, 1.1e6)), ..usual() }, &["_SUCCESS", "upper end of label_range"]),
        (Figures { label_range: Some((5.0, 0.5)), ..usual() }, &["_SUCCESS", "label_range begins at 5"]),
        (Figures { algorithm: "als\nINFO all is well".to_owned(), ..usual() }, &["_SUCCESS", "algorithm"]),
        (Figures { algorithm: "x".repeat(300), ..usual() }, &["_SUCCESS", "algorithm"]),
        (
            Figures { metrics: (0..300).map(|metric| (metric.to_string(), 1.0)).collect(), ..usual() },
            &["_SUCCESS", "300 metrics"],
        ),
    ];
    for (figures, words) in cases {
        let dir = tempfile::tempdir().unwrap();
        figures.write(dir.path());
        let message = read_version(dir.path()).map(drop).expect_err(&format!("{figures:?}")).to_string();
        for word in words {
            assert!(message.contains(word), "no {word:?} in: {message}");
        }
    }
}

/// A number that overflows `f32` is not read as infinity.
#[test]
fn a_label_range_that_overflows_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    Figures::default().write(dir.path());
    let path = dir.path().join("_SUCCESS");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("5.0", "1e39")).unwrap();
    let message = read_version(dir.path()).unwrap_err().to_string();
    assert!(message.contains("_SUCCESS") && message.contains("out of range"), "{message}");
}

#[test]
fn a_metric_that_is_not_finite_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = [("rmse", 0.9), ("nothing", f64::NAN), ("everything", f64::INFINITY)];
    let metrics = metrics.map(|(name, figure)| (name.to_owned(), figure)).into();
    Figures { metrics, ..Figures::default() }.write(dir.path());
    let read = read_version(dir.path()).unwrap().manifest.metrics;
    assert_eq!(read, BTreeMap::from([("rmse".to_owned(), 0.9)]));
    // As trainers in other languages may write missing figures.
    let path = dir.path().join("_SUCCESS");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"rmse\": 0.9", "\"rmse\": null")).unwrap();
    assert_eq!(read_version(dir.path()).unwrap().manifest.metrics, BTreeMap::new());
}

#[test]
fn at_the_bounds_scores_and_losses_are_finite() {
    let figures = [
        Figures { mean: 1e7, precision: [1e15, 1e12], noise: 1e13, offset: 1e7, ..Figures::default() },
        Figures { mean: -1e7, precision: [1e-9, 1e-6], noise: 1e13, offset: -1e7, ..Figures::default() },
        Figures { precision: [1e-9, 1e-9], noise: 1.2e-38, ..Figures::default() },
    ];
    for figures in figures {
        let dir = tempfile::tempdir().unwrap();
        figures.write(dir.path());
        let read = read_version(dir.path()).unwrap();
        for loss in [Loss::Squared, Loss::Logistic, Loss::Implicit] {
            let learning = Learning::new(read.prior.clone(), loss, None);
            let user = UserModel::from_prior(&learning).unwrap();
            let row = read.theta.row(0);
            let extreme = [row.features, &[1e4, 1.0], &[-1e4, 1.0]];
            for features in extreme {
                let estimate = user.estimate(&learning, row.offset, features);
                let all = [estimate.score, estimate.std_error, estimate.label_std];
                assert!(all.iter().all(|figure| figure.is_finite()), "{figures:?}, {loss:?}: {estimate:?}");
                let cost = loss.prediction_loss(loss.expected_label(estimate.score), 1.0);
                assert!(cost.is_finite() && (cost as f32).is_finite(), "{figures:?}, {loss:?}: {cost}");
            }
        }
    }
}
