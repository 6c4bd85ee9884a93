//! Output of external engines: valid output becomes a version, invalid output is rejected with a
//! precise error.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{Float32Builder, Float64Builder, ListBuilder};
use arrow_array::{ArrayRef, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray};
use celeris_features::{LoadedVersion, read_version};
use celeris_formats::{ParquetOut, sha256_of};
use celeris_model::{ItemId, Loss, RecentBias, VersionId};
use celeris_retrain::{Algorithm, External, InputFile, Job, Silent, run_job};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const USERS: usize = 150;
const ITEMS: usize = 60;
const RANK: usize = 3;
const DIM: usize = RANK + 1;

/// Standard deviation of the noise of labels.
const NOISE: f64 = 0.5;

fn write(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let mut out = ParquetOut::create(path, rows.schema()).unwrap();
    out.write(&rows).unwrap();
    out.finish().unwrap();
}

fn item(number: usize) -> String {
    format!("film-{number}")
}

/// Factors on an arbitrary scale, and labels generated from them.
struct World {
    factors: Vec<[f32; RANK]>,
    ratings: Vec<(usize, usize, f32)>,
}

fn normal(random: &mut ChaCha8Rng) -> f64 {
    // A sum of twelve uniform numbers is close enough to a normal distribution.
    (0..12).map(|_| random.random_range(-0.5..0.5)).sum()
}

fn world() -> World {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let scales = [40.0, 0.02, 1.0];
    let factors: Vec<[f32; RANK]> =
        (0..ITEMS).map(|_| std::array::from_fn(|k| (scales[k] * normal(&mut random)) as f32)).collect();
    let weights: Vec<[f64; RANK]> =
        (0..USERS).map(|_| std::array::from_fn(|k| 0.7 * normal(&mut random) / scales[k])).collect();
    let mut ratings = Vec::new();
    for (user, weights) in weights.iter().enumerate() {
        for _ in 0..30 {
            let film = random.random_range(0..ITEMS);
            let taste: f64 = weights.iter().zip(&factors[film]).map(|(w, x)| w * f64::from(*x)).sum();
            ratings.push((user, film, (3.0 + taste + NOISE * normal(&mut random)) as f32));
        }
    }
    World { factors, ratings }
}

fn write_observations(path: &Path, ratings: &[(usize, usize, f32)]) -> InputFile {
    let count = ratings.len();
    write(
        path,
        vec![
            ("user", Arc::new(StringArray::from_iter_values(ratings.iter().map(|r| format!("u{}", r.0))))),
            ("item", Arc::new(StringArray::from_iter_values(ratings.iter().map(|r| item(r.1))))),
            ("label", Arc::new(Float32Array::from_iter_values(ratings.iter().map(|r| r.2)))),
            ("weight", Arc::new(Float32Array::from(vec![1.0; count]))),
            ("timestamp", Arc::new(Int64Array::from(vec![0; count]))),
        ],
    );
    InputFile::sealed(path).unwrap()
}

fn lists(rows: &[Vec<f32>]) -> ArrayRef {
    let mut lists = ListBuilder::new(Float32Builder::new());
    for row in rows {
        lists.values().append_slice(row);
        lists.append(true);
    }
    Arc::new(lists.finish())
}

fn write_features(path: &Path, rows: &[Vec<f32>]) {
    write_features_and(path, rows, Vec::new());
}

/// With further columns.
fn write_features_and(path: &Path, rows: &[Vec<f32>], further: Vec<(&str, ArrayRef)>) {
    let offsets: Vec<f32> = (0..rows.len()).map(|row| row as f32 / 100.0).collect();
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("item", Arc::new(StringArray::from_iter_values((0..rows.len()).map(item)))),
        ("offset", Arc::new(Float32Array::from(offsets))),
        ("features", lists(rows)),
    ];
    columns.extend(further);
    write(path, columns);
}

fn write_prior(path: &Path, precision: &[[f64; DIM]; DIM]) {
    let mut rows = ListBuilder::new(Float64Builder::new());
    for row in precision {
        rows.values().append_slice(row);
        rows.append(true);
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("mean", Arc::new(Float64Array::from(vec![0.5, 0.0, 0.0, 0.1]))),
        ("precision", Arc::new(rows.finish())),
        ("cold_feature", Arc::new(Float32Array::from(vec![0.0, 0.0, 0.0, 1.0]))),
    ];
    write(path, columns);
}

fn write_success(raw: &Path, rows: &[(&str, usize)], more: &Value) {
    let files: serde_json::Map<String, Value> = rows
        .iter()
        .map(|(name, rows)| ((*name).to_owned(), json!({"rows": rows, "sha256": sha256_of(&raw.join(name)).unwrap()})))
        .collect();
    let mut manifest = json!({"format": 1, "files": files});
    manifest.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fs::write(raw.join("_SUCCESS"), manifest.to_string()).unwrap();
}

/// A folder with observations, nine tenths of which are passed to the engine, and the job that
/// makes a version from its output.
fn prepare(folder: &Path, loss: Loss) -> (World, Job) {
    let world = world();
    let (held_out, known): (Vec<_>, Vec<_>) = world.ratings.iter().enumerate().partition(|(row, _)| row % 10 == 0);
    let ratings = |rows: Vec<(usize, &(usize, usize, f32))>| rows.into_iter().map(|(_, r)| *r).collect::<Vec<_>>();
    let observations = write_observations(&folder.join("observations.parquet"), &ratings(known));
    let held_out = write_observations(&folder.join("held_out.parquet"), &ratings(held_out));
    fs::create_dir(folder.join("raw")).unwrap();
    let external = External {
        engine: "test".to_owned(),
        rank: RANK,
        iterations: None,
        regularization: None,
        alpha: None,
        raw: Some("raw".into()),
        held_out: Some(held_out),
    };
    let job = json!({
        "model": "films", "version": 2, "dim": DIM, "seed": 1, "loss": loss, "observations": observations,
        "parent": 1, "watermark": [7], "output": "version", "algorithm": Algorithm::External(external),
    });
    (world, serde_json::from_value(job).unwrap())
}

fn finish(folder: &Path, job: &Job) -> Result<LoadedVersion, String> {
    let path = folder.join("finish.json");
    fs::write(&path, serde_json::to_vec(job).unwrap()).unwrap();
    run_job(&path, &Silent).map_err(|error| error.to_string())?;
    Ok(read_version(&folder.join("version")).unwrap())
}

fn bring_factors(folder: &Path, world: &World) {
    let raw = folder.join("raw");
    let rows: Vec<Vec<f32>> = world.factors.iter().map(|row| row.to_vec()).collect();
    write_features(&raw.join("item_features.parquet"), &rows);
    fs::write(raw.join("metrics.json"), r#"{"engine_iterations": 12}"#).unwrap();
    write_success(&raw, &[("item_features.parquet", ITEMS)], &json!({}));
}

#[test]
fn factors_on_any_scale_become_an_accurate_version() {
    let folder = tempfile::tempdir().unwrap();
    let (world, job) = prepare(folder.path(), Loss::Squared);
    bring_factors(folder.path(), &world);
    let LoadedVersion { manifest, theta, prior, .. } = finish(folder.path(), &job).unwrap();
    assert_eq!((manifest.algorithm.as_str(), manifest.parent), ("external: test", Some(VersionId(1))));
    assert_eq!(manifest.watermark, json!([7]));
    assert!((manifest.metrics["engine_iterations"] - 12.0).abs() < 1e-9);
    assert!((manifest.metrics["ratings"] - world.ratings.len() as f64).abs() < 0.5, "the final fit uses all");
    for column in 0..RANK {
        let squares: f64 = (0..ITEMS)
            .map(|row| f64::from(theta.get(&ItemId::new(item(row)).unwrap()).unwrap().features[column]).powi(2))
            .sum();
        // Only rounding to f32.
        assert!((squares / ITEMS as f64 - 1.0).abs() < 1e-4, "column {column}: {squares}");
    }
    // With the true features, the error consists of the noise and of the uncertainty of four
    // weights given 27 ratings: some 8 %.
    let rmse = manifest.metrics["validation_rmse"];
    assert!((0.85 * NOISE..1.2 * NOISE).contains(&rmse), "{rmse}");
    assert!((prior.noise_variance() / (NOISE * NOISE) - 1.0).abs() < 0.25, "{}", prior.noise_variance());
    // The variance of weights on features of unit scale is that of the users' true weights, 0.7
    // squared.
    let precision = prior.precision();
    for k in 0..RANK {
        let spread = prior.noise_variance() / precision[k * DIM + k];
        assert!((0.2..2.0).contains(&spread), "weight {k} has variance {spread}");
    }
}

#[test]
fn implicit_factors_are_calibrated_by_their_ranking() {
    let folder = tempfile::tempdir().unwrap();
    let (world, job) = prepare(folder.path(), Loss::Implicit);
    bring_factors(folder.path(), &world);
    let LoadedVersion { manifest, prior, .. } = finish(folder.path(), &job).unwrap();
    assert!(manifest.metrics.contains_key("validation_percentile_rank"), "{:?}", manifest.metrics);
    assert!(prior.mean().iter().all(|w| *w == 0.0), "the prior mean is zero");
}

#[test]
fn choice_vectors_and_variances_of_the_engine_are_taken_with_its_prior() {
    const PRECISION: [[f64; DIM]; DIM] =
        [[2.0, 0.5, 0.0, 0.0], [0.5, 3.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
    let folder = tempfile::tempdir().unwrap();
    let (world, job) = prepare(folder.path(), Loss::Squared);
    bring_factors(folder.path(), &world);
    let raw = folder.path().join("raw");
    let table = raw.join("item_features.parquet");
    let variances = |last: f32| -> ArrayRef {
        Arc::new((0..ITEMS).map(|n| Some(if n + 1 == ITEMS { last } else { n as f32 })).collect::<Float32Array>())
    };
    write_features_and(
        &table,
        &world.factors.iter().map(|row| row.to_vec()).collect::<Vec<_>>(),
        vec![("variance", variances(1.0))],
    );
    write_success(&raw, &[("item_features.parquet", ITEMS)], &json!({}));
    let refused = finish(folder.path(), &job).unwrap_err();
    assert!(refused.contains("variance") && refused.contains("prior.parquet"), "{refused}");

    let rows: Vec<Vec<f32>> = world.factors.iter().map(|row| vec![row[0] / 40.0, row[1] / 0.02, row[2], 1.0]).collect();
    let choices: Vec<Vec<f32>> = (0..ITEMS).map(|n| vec![n as f32 / 64.0, 0.25, -0.5, 0.125]).collect();
    write_prior(&raw.join("prior.parquet"), &PRECISION);
    let files = [("item_features.parquet", ITEMS), ("prior.parquet", DIM)];
    let more = json!({"noise_variance": 0.3, "cold_item_variance": 2.5});
    write_features_and(&table, &rows, vec![("choices", lists(&choices)), ("variance", variances(-1.0))]);
    write_success(&raw, &files, &more);
    let refused = finish(folder.path(), &job).unwrap_err();
    assert!(refused.contains("variance") && refused.contains(&format!("row {}", ITEMS - 1)), "{refused}");

    write_features_and(&table, &rows, vec![("choices", lists(&choices)), ("variance", variances(7.5))]);
    write_success(&raw, &files, &more);
    let LoadedVersion { theta, prior, .. } = finish(folder.path(), &job).unwrap();
    let seventh = theta.get(&ItemId::new(item(7)).unwrap()).unwrap();
    assert_eq!((seventh.choice, seventh.variance), (prior.pulls(&choices[7]).as_slice(), 7.0));
    assert_eq!(theta.cold_item().variance, 2.5);
}

#[test]
fn a_prior_from_the_engine_is_used_unchanged() {
    const PRECISION: [[f64; DIM]; DIM] =
        [[2.0, 0.5, 0.0, 0.0], [0.5, 3.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
    // An engine's own prior works for any loss, including those that cannot be calibrated here.
    let folder = tempfile::tempdir().unwrap();
    let (world, job) = prepare(folder.path(), Loss::Logistic);
    bring_factors(folder.path(), &world);
    let refused = finish(folder.path(), &job).unwrap_err();
    assert!(refused.contains("loss") && refused.contains("prior.parquet"), "{refused}");

    let raw = folder.path().join("raw");
    let rows: Vec<Vec<f32>> = world.factors.iter().map(|row| vec![row[0] / 40.0, row[1] / 0.02, row[2], 1.0]).collect();
    write_features(&raw.join("item_features.parquet"), &rows);
    write_prior(&raw.join("prior.parquet"), &PRECISION);
    let files = [("item_features.parquet", ITEMS), ("prior.parquet", DIM)];
    write_success(&raw, &files, &json!({}));
    let refused = finish(folder.path(), &job).unwrap_err();
    assert!(refused.contains("noise_variance"), "{refused}");
    write_success(
        &raw,
        &files,
        &json!({"noise_variance": 0.3, "cold_item_offset": 2.5,
        "recent_bias": {"retained": 0.8, "precision": 4.0}}),
    );
    let LoadedVersion { theta, prior, .. } = finish(folder.path(), &job).unwrap();
    assert_eq!(prior.precision(), PRECISION.concat());
    assert_eq!(prior.recent_bias(), Some(RecentBias::new(0.8, 4.0).unwrap()));
    assert!((prior.noise_variance() - 0.3).abs() < 1e-12 && (theta.cold_item().offset - 2.5).abs() < 1e-6);
    let seventh = theta.get(&ItemId::new(item(7)).unwrap()).unwrap();
    assert_eq!((seventh.features, seventh.offset), (rows[7].as_slice(), 0.07));

    fs::remove_dir_all(folder.path().join("version")).unwrap();
    let mut stretched = PRECISION;
    stretched[2][2] = 1e6;
    write_prior(&raw.join("prior.parquet"), &stretched);
    write_success(&raw, &files, &json!({"noise_variance": 0.3}));
    let refused = finish(folder.path(), &job).unwrap_err();
    assert!(refused.contains("prior.parquet") && refused.contains("condition"), "{refused}");
    write_prior(&raw.join("prior.parquet"), &PRECISION);
    let unscaled: Vec<Vec<f32>> = rows.iter().map(|row| vec![row[0], row[1] * 1e4, row[2], 1.0]).collect();
    write_features(&raw.join("item_features.parquet"), &unscaled);
    write_success(&raw, &files, &json!({"noise_variance": 0.3}));
    let refused = finish(folder.path(), &job).unwrap_err();
    assert!(refused.contains("column 1") && refused.contains("scale"), "{refused}");
}

#[test]
fn the_built_in_trainer_rejects_a_job_for_an_engine() {
    let folder = tempfile::tempdir().unwrap();
    let (_, job) = prepare(folder.path(), Loss::Squared);
    let Algorithm::External(external) = job.algorithm.clone() else { panic!("{:?}", job.algorithm) };
    let own = Job { algorithm: Algorithm::External(External { raw: None, ..external }), ..job };
    let refused = finish(folder.path(), &own).unwrap_err();
    assert!(refused.contains("test") && refused.contains("raw"), "{refused}");
}
