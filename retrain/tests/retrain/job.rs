//! The train job with real Parquet files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray};
use celeris_features::read_version;
use celeris_formats::{AttributesWriter, MANIFEST_FILE, ObservationRow, ObservationsWriter, ParquetOut, pinned_items};
use celeris_model::{
    ItemId, Loss, ObservationId, Record, RecordKind, Sequence, Timestamp, UserEpoch, UserId, VersionId,
};
use celeris_retrain::{Algorithm, InputFile, Job, JsonLines, Phase, RetrainError, Silent, Step, run_job};

fn item(number: u32) -> ItemId {
    ItemId::new(format!("film-{number}")).unwrap()
}

/// Thirty users and twenty films: every pair has a rating, one of them two.
fn write_observations(path: &Path) -> InputFile {
    write_ratings(path, 30, |user, film| 1.0 + ((user * 2 + film * film) % 9) as f32 * 0.5)
}

fn write_ratings(path: &Path, users: u32, label: impl Fn(u32, u32) -> f32) -> InputFile {
    let mut writer = ObservationsWriter::create(path).unwrap();
    let pairs = (0..users).flat_map(|user| (0..20_u32).map(move |film| (user, film))).chain([(0, 0)]);
    for (k, (user, film)) in pairs.enumerate() {
        let label = label(user, film);
        let record = Record {
            kind: RecordKind::Observe,
            user: UserId::new(format!("u{user}")).unwrap(),
            user_epoch: UserEpoch(k as u64 + 1),
            item: Some(item(film)),
            label,
            first_label: None,
            weight: 1.0,
            feedback: None,
            timestamp: Timestamp(i64::try_from(k).unwrap()),
            observation_id: None,
            decision: None,
            context: None,
            predictions: Vec::new(),
            targets: Vec::new(),
        };
        let observation_id = ObservationId::new(format!("o{k}")).unwrap();
        let sequence = Sequence(k as u64 + 1);
        writer.push(ObservationRow { sequence, observation_id: &observation_id, record: &record }).unwrap();
        // Records that are not observations are skipped.
        let retraction = Record { kind: RecordKind::Retract, targets: vec![sequence], ..record };
        writer.push(ObservationRow { sequence, observation_id: &observation_id, record: &retraction }).unwrap();
    }
    writer.finish().unwrap();
    InputFile::sealed(path).unwrap()
}

fn write_pinned(path: &Path, items: &[ItemId], features: &[f32]) -> InputFile {
    pinned_items::write(path, items, features).unwrap();
    InputFile::sealed(path).unwrap()
}

fn job(observations: InputFile) -> Job {
    Job {
        model: "films".parse().unwrap(),
        version: VersionId(4),
        dim: 5,
        seed: 1,
        threads: None,
        algorithm: Algorithm::default(),
        loss: Loss::Squared,
        observations,
        pinned_items: None,
        item_attributes: None,
        user_attributes: None,
        parts: Vec::new(),
        objects: None,
        parent: Some(VersionId(3)),
        warm_start: None,
        watermark: serde_json::json!({"partition 0": 17}),
        limits: None,
        output: "version".into(),
    }
}

fn write_job(folder: &Path, job: &Job) -> std::path::PathBuf {
    let path = folder.join("job.json");
    fs::write(&path, serde_json::to_vec(job).unwrap()).unwrap();
    path
}

/// Runs a job that must fail, checks that it left no version, and returns the error text.
fn refusal(folder: &Path, job: &Job) -> String {
    let error = run_job(&write_job(folder, job), &Silent).unwrap_err();
    assert!(!folder.join(&job.output).join(MANIFEST_FILE).exists(), "a failed job leaves no version");
    error.to_string()
}

#[test]
fn a_version_is_complete_and_describes_its_training() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = job(write_observations(&folder.path().join("observations.parquet")));
    // As written by the manager: relative to the job file.
    job.observations.path = "observations.parquet".into();
    let pinned = [0.5, 0.0, -1.0, 2.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0];
    let items = [item(2), item(99)];
    job.pinned_items = Some(write_pinned(&folder.path().join("pinned.parquet"), &items, &pinned));

    let progress = tempfile::NamedTempFile::new().unwrap();
    let manifest = run_job(&write_job(folder.path(), &job), &JsonLines::new(progress.reopen().unwrap())).unwrap();
    let loaded = read_version(&folder.path().join("version")).unwrap();
    assert_eq!(loaded.manifest, manifest);
    assert_eq!((manifest.model.as_str(), manifest.dim, manifest.parent), ("films", 5, Some(VersionId(3))));
    assert_eq!(manifest.watermark, job.watermark);
    assert_eq!(manifest.label_range, Some((1.0, 5.0)));
    assert!((manifest.metrics["ratings"] - 601.0).abs() < 0.5, "both ratings of the repeated pair count");
    let files: Vec<&str> = manifest.files.keys().map(String::as_str).collect();
    let of_items = ["item_features.parquet", "prior.parquet", "trainer_items.parquet", "trainer_state.json"];
    assert_eq!(files, of_items, "no data of single users is published");
    assert_eq!(loaded.theta.items().len(), 21, "the pinned film without ratings is included");
    assert_eq!(loaded.theta.get(&item(2)).unwrap().features, &pinned[..5]);
    assert_eq!(loaded.theta.get(&item(99)).unwrap().features, &pinned[5..]);

    let steps: Vec<Step> =
        fs::read_to_string(progress.path()).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(steps.is_sorted_by(|a, b| (a.phase, a.fraction) <= (b.phase, b.fraction)), "progress never falls");
    assert_eq!(steps.last().unwrap(), &Step { phase: Phase::Writing, fraction: 1.0 });
    assert!(steps.iter().any(|step| step.phase == Phase::Tuning && step.fraction > 0.0 && step.fraction < 1.0));

    let again = run_job(&write_job(folder.path(), &job), &Silent).unwrap_err();
    assert!(again.to_string().contains("already holds a version"), "{again}");
}

#[test]
fn a_warm_version_records_its_parent_and_the_cold_watermark() {
    let folder = tempfile::tempdir().unwrap();
    let observations = write_observations(&folder.path().join("observations.parquet"));
    let run = |job: &Job| run_job(&write_job(folder.path(), job), &Silent).unwrap();
    let watermark = |sequence: u64| serde_json::json!(vec![sequence; 64]);
    let first = Job { watermark: watermark(600), output: "first".into(), ..job(observations) };
    let cold = run(&first);
    assert_eq!(cold.warm, None);
    let on_from = |parent: u64, dir: &str, output: &str| Job {
        parent: Some(VersionId(parent)),
        warm_start: Some(dir.into()),
        watermark: watermark(700 + parent),
        output: output.into(),
        ..first.clone()
    };
    let second = run(&on_from(4, "first", "second"));
    let third = run(&on_from(5, "second", "third"));
    for (manifest, from, refreshes) in [(&second, 4, 1), (&third, 5, 2)] {
        let warm = manifest.warm.as_ref().unwrap();
        assert_eq!((warm.from, warm.refreshes), (VersionId(from), refreshes));
        assert_eq!(warm.cold_watermark, first.watermark, "that of the cold training");
        assert!(manifest.metrics["iterations"] < cold.metrics["iterations"] / 2.0, "{:?}", manifest.metrics);
    }
    // There are no ratings after the first version, so there is little to change.
    let scores = |dir: &str| {
        let version = read_version(&folder.path().join(dir)).unwrap();
        let mean = version.prior.mean().to_vec();
        let score = |number| {
            let row = version.theta.get(&item(number)).unwrap();
            f64::from(row.offset) + row.features.iter().zip(&mean).map(|(x, w)| f64::from(*x) * w).sum::<f64>()
        };
        (0..20).map(score).collect::<Vec<f64>>()
    };
    for (a, b) in scores("first").iter().zip(scores("third")) {
        assert!((a - b).abs() < 0.05, "{a} became {b}");
    }

    // An unusable warm start still produces a version.
    fs::write(folder.path().join("first/trainer_state.json"), "{}").unwrap();
    for dir in ["first", "nowhere"] {
        let manifest = run(&on_from(4, dir, &format!("after {dir}")));
        assert_eq!(manifest.warm, None, "{dir}");
    }
    let other_dim = Job { dim: 6, ..on_from(4, "second", "other dim") };
    assert_eq!(run(&other_dim).warm, None);
}

#[test]
fn input_with_a_wrong_checksum_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("observations.parquet");
    let sealed = write_observations(&path);

    let mut bytes = fs::read(&path).unwrap();
    bytes[1000] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let said = refusal(folder.path(), &job(sealed));
    assert!(said.contains("observations.parquet") && said.contains("sha-256"), "{said}");

    let missing = InputFile { path: "nowhere.parquet".into(), sha256: String::new() };
    let said = refusal(folder.path(), &job(missing));
    assert!(said.contains("nowhere.parquet"), "{said}");
}

#[test]
fn truncated_parquet_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("observations.parquet");
    write_observations(&path);
    let bytes = fs::read(&path).unwrap();
    for length in [bytes.len() - 1, bytes.len() / 2, 3, 0] {
        fs::write(&path, &bytes[..length]).unwrap();
        // The checksum is that of the truncated file, so the reader has to detect the damage.
        let said = refusal(folder.path(), &job(InputFile::sealed(&path).unwrap()));
        assert!(said.contains("observations.parquet"), "{length} bytes: {said}");
    }
}

/// A file of one row, with some columns replaced.
fn write_row(path: &Path, exchanged: &[(&str, ArrayRef)]) -> InputFile {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("user", Arc::new(StringArray::from(vec!["ann"]))),
        ("item", Arc::new(StringArray::from(vec!["film"]))),
        ("label", Arc::new(Float32Array::from(vec![3.0]))),
        ("weight", Arc::new(Float32Array::from(vec![1.0]))),
        ("timestamp", Arc::new(Int64Array::from(vec![0]))),
    ];
    let exchange = |(name, column): (&'static str, ArrayRef)| {
        let other = exchanged.iter().find(|(exchanged, _)| *exchanged == name);
        (name, other.map_or(column, |(_, other)| other.clone()))
    };
    let batch = RecordBatch::try_from_iter(columns.into_iter().map(exchange)).unwrap();
    let mut out = ParquetOut::create(path, batch.schema()).unwrap();
    out.write(&batch).unwrap();
    out.finish().unwrap();
    InputFile::sealed(path).unwrap()
}

#[test]
fn bad_values_are_named_by_file_row_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("observations.parquet");
    let cases: [(&str, ArrayRef, &str); 5] = [
        ("label", Arc::new(Float32Array::from(vec![f32::NAN])), "row 0: column label: label must be finite"),
        ("weight", Arc::new(Float32Array::from(vec![-1.0])), "row 0: column weight: weight must be above 0"),
        ("user", Arc::new(StringArray::from(vec![""])), "row 0: column user: user must be 1 to 256 bytes"),
        ("label", Arc::new(StringArray::from(vec!["good"])), "column label: has type Utf8"),
        ("timestamp", Arc::new(StringArray::from(vec!["noon"])), "column timestamp: has type Utf8"),
    ];
    for (column, values, expected) in cases {
        let said = refusal(folder.path(), &job(write_row(&path, &[(column, values)])));
        assert!(said.contains("observations.parquet") && said.contains(expected), "{said}");
    }
    let short = write_pinned(&folder.path().join("pinned.parquet"), &[item(1)], &[1.0, 2.0, 1.0]);
    let said = refusal(folder.path(), &Job { pinned_items: Some(short), ..job(write_row(&path, &[])) });
    assert!(said.contains("pinned.parquet") && said.contains("expected 5 numbers, got 3"), "{said}");
}

#[test]
fn an_empty_log_and_unknown_settings_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("observations.parquet");
    ObservationsWriter::create(&path).unwrap().finish().unwrap();
    let empty = job(InputFile::sealed(&path).unwrap());
    assert_eq!(refusal(folder.path(), &empty), RetrainError::NoRatings.to_string());
    let said = refusal(folder.path(), &Job { dim: 0, ..empty.clone() });
    assert!(said.contains("dim must be"), "{said}");

    let path = write_job(folder.path(), &empty);
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    text["dimension"] = 7.into();
    fs::write(&path, text.to_string()).unwrap();
    let said = run_job(&path, &Silent).unwrap_err().to_string();
    assert!(said.contains("job.json") && said.contains("dimension"), "{said}");
}

#[test]
fn attributes_of_items_give_a_map_for_new_items() {
    let folder = tempfile::tempdir().unwrap();
    let observations = write_observations(&folder.path().join("observations.parquet"));
    let described: Vec<(ItemId, serde_json::Map<String, serde_json::Value>)> = (0..21)
        .map(|film| (item(film), serde_json::json!({"shelf": film * film % 9}).as_object().unwrap().clone()))
        .collect();
    let path = folder.path().join("item_attributes.parquet");
    let mut writer = AttributesWriter::create(&path).unwrap();
    for page in described.chunks(8) {
        writer.write(page.iter().map(|(item, attributes)| (item, attributes))).unwrap();
    }
    writer.finish().unwrap();
    let job = Job { item_attributes: Some(InputFile::sealed(&path).unwrap()), ..job(observations) };
    let manifest = run_job(&write_job(folder.path(), &job), &Silent).unwrap();
    assert!((manifest.metrics["cold_map_items"] - 20.0).abs() < 0.5, "the last film has no ratings: {manifest:?}");
    let map = read_version(&folder.path().join("version")).unwrap().cold_map.unwrap();
    assert_eq!(map.map(&described[20].1).features.len(), 5);
}

#[test]
fn attributes_of_users_give_a_map_for_new_users() {
    let folder = tempfile::tempdir().unwrap();
    let likes = |user: u32, film: u32| user.is_multiple_of(2) == (film < 10);
    let label = |user, film| if likes(user, film) { 4.0 } else { 2.0 } + ((user * 7 + film * 3) % 5) as f32 * 0.1;
    let observations = write_ratings(&folder.path().join("observations.parquet"), 80, label);
    let kind = |user: u32| serde_json::json!({ "kind": user.is_multiple_of(2) }).as_object().unwrap().clone();
    let path = folder.path().join("user_attributes.parquet");
    let mut writer = AttributesWriter::create(&path).unwrap();
    let described: Vec<_> = (0..100).map(|user| (UserId::new(format!("u{user}")).unwrap(), kind(user))).collect();
    writer.write(described.iter().map(|(user, attributes)| (user, attributes))).unwrap();
    writer.finish().unwrap();
    let job = Job { user_attributes: Some(InputFile::sealed(&path).unwrap()), ..job(observations) };
    let manifest = run_job(&write_job(folder.path(), &job), &Silent).unwrap();
    assert!((manifest.metrics["user_map_users"] - 80.0).abs() < 0.5, "the others have no ratings: {manifest:?}");
    assert!(manifest.metrics["user_map_rmse"] < 0.5 * manifest.metrics["user_map_rmse_without"], "{manifest:?}");
    let version = read_version(&folder.path().join("version")).unwrap();
    let map = version.user_map.unwrap();
    let score = |shift: &[f32], film: u32| -> f64 {
        let row = version.theta.get(&item(film)).unwrap();
        let weights = version.prior.mean().iter().zip(shift).map(|(mean, shift)| mean + f64::from(*shift));
        f64::from(row.offset) + weights.zip(row.features).map(|(w, x)| w * f64::from(*x)).sum::<f64>()
    };
    for user in [0, 1] {
        let shift = map.shift(&kind(user)).unwrap();
        let (liked, other) = if user == 0 { (3, 13) } else { (13, 3) };
        assert!(score(&shift, liked) - score(&shift, other) > 1.5, "user {user}");
    }
    // Other losses ignore the attributes.
    let implicit = Job { loss: Loss::Implicit, output: "implicit".into(), ..job };
    let manifest = run_job(&write_job(folder.path(), &implicit), &Silent).unwrap();
    assert!(!manifest.files.contains_key("user_map.parquet") && !manifest.metrics.contains_key("user_map_users"));
}

#[test]
fn attributes_that_are_no_object_are_rejected_with_file_and_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("item_attributes.parquet");
    let text = |values: [&str; 2]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    let columns = [("item", text(["film-0", "film-1"])), ("attributes", text(["{}", "[1]"]))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut out = ParquetOut::create(&path, batch.schema()).unwrap();
    out.write(&batch).unwrap();
    out.finish().unwrap();
    let observations = write_observations(&folder.path().join("observations.parquet"));
    let job = Job { item_attributes: Some(InputFile::sealed(&path).unwrap()), ..job(observations) };
    let said = refusal(folder.path(), &job);
    assert!(said.contains("item_attributes.parquet") && said.contains("row 1: column attributes"), "{said}");
}
