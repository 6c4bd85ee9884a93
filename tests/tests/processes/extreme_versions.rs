//! Versions with out-of-range numbers, from a trainer or from the import folder, are refused with
//! the reason, and the node keeps serving and restarts normally. A version that is within all
//! bounds but wrong is rolled back by the shortest guard.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{ArrayRef, Float32Array, Float64Array, RecordBatch};
use celeris_tests::fixtures::{config_file, write_dataset};
use celeris_tests::trainer::{table, write_parquet};
use celeris_tests::{Client, NodeProcess, ProcessOptions, binary, eventually};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

fn node(dir: &Path) -> NodeProcess {
    let imports = dir.join("imports");
    fs::create_dir_all(&imports).unwrap();
    let config = config_file(dir, format!("[training]\nimport_dir = {imports:?}\n"));
    ProcessOptions::default().binary(dir.join("celeris")).config(config).serve(&dir.join("data"))
}

fn retrained(client: &Client, model: &str) -> Value {
    let job = client.model(model).post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    eventually("the end of the retraining", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    })
}

/// A copy of the version directory `from`.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let file = entry.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn read(file: &Path) -> RecordBatch {
    let file = fs::File::open(file).unwrap();
    let batches = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().with_batch_size(1 << 20).build().unwrap();
    batches.map(Result::unwrap).next().unwrap()
}

/// Changes the manifest of a version directory.
fn change_manifest(version: &Path, change: impl FnOnce(&mut Value)) {
    let path = version.join("_SUCCESS");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut manifest);
    fs::write(path, manifest.to_string()).unwrap();
}

/// Replaces the column named `replaced` by `column`, and updates the manifest.
fn replace(version: &Path, name: &str, (replaced, column): (&str, &ArrayRef)) {
    let file = version.join(name);
    let rows = read(&file);
    let schema = rows.schema();
    let columns = schema.fields().iter().zip(rows.columns());
    let columns = columns.map(|(field, was)| {
        let taken = if field.name() == replaced { column.clone() } else { was.clone() };
        (field.name().as_str(), taken)
    });
    write_parquet(&file, &table(columns.collect()));
    let sha256: String = Sha256::digest(fs::read(&file).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    change_manifest(version, |manifest| manifest["files"][name]["sha256"] = sha256.into());
}

/// Sets a mean of the prior that no training on labels up to a million can produce.
fn with_extreme_mean(version: &Path) {
    let prior = read(&version.join("prior.parquet"));
    let means = prior.column_by_name("mean").unwrap().as_primitive::<Float64Type>();
    let means: Vec<f64> =
        means.values().iter().enumerate().map(|(row, mean)| if row == 0 { 1e42 } else { *mean }).collect();
    replace(version, "prior.parquet", ("mean", &(Arc::new(Float64Array::from(means)) as ArrayRef)));
}

fn change_offsets(version: &Path, change: impl Fn(usize, f32) -> f32) {
    let theta = read(&version.join("item_features.parquet"));
    let offsets = theta.column_by_name("offset").unwrap().as_primitive::<Float32Type>();
    let offsets: Vec<f32> = offsets.values().iter().enumerate().map(|(row, offset)| change(row, *offset)).collect();
    replace(version, "item_features.parquet", ("offset", &(Arc::new(Float32Array::from(offsets)) as ArrayRef)));
}

fn with_extreme_offset(version: &Path) {
    change_offsets(version, |row, offset| if row == 0 { -3e38 } else { offset });
}

/// Replaces the binary by a script whose `train` command delivers this version directory. All other
/// commands are passed to the real binary.
fn hand_in(installed: &Path, version: &Path) {
    let script = format!(
        r#"#!/bin/sh
[ "$1" = train ] || exec {real} "$@"
while [ "$1" != --job ]; do shift || exit 9; done
mkdir -p "$(dirname "$2")/version"
cp {version}/* "$(dirname "$2")/version/"
"#,
        real = binary::path().display(),
        version = version.display(),
    );
    let aside = installed.with_extension("sh");
    fs::write(&aside, script).unwrap();
    binary::install(&aside, installed);
}

#[test]
fn an_out_of_range_version_is_refused_and_the_node_restarts() {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    let dir = tempfile::tempdir().unwrap();
    binary::install(&binary::path(), &dir.path().join("celeris"));
    let node = node(dir.path());
    let client = node.client();
    let _created = client.post("/v1/models", &json!({"name": "films", "dim": 8})).expect(201);
    let dataset = dataset.path().to_str().unwrap();
    let imported = binary::run(["import", "--url", client.url(), "--model", "films", "--dataset", dataset]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    assert_eq!(retrained(&client, "films")["state"], "succeeded");
    let films = client.model("films");
    let predict =
        || films.post("predict", &json!({"user": "1", "items": ["1", "2", "3"]})).expect(200)["scores"].clone();
    let before = predict();

    // Versions from an external batch job.
    let imports = dir.path().join("imports");
    let trained = dir.path().join("data/versions/films.1/2");
    let refused = |name: &str, harm: &dyn Fn(&Path), words: &[&str]| {
        copy(&trained, &imports.join(name));
        harm(&imports.join(name));
        let reply = films.post("versions", &json!({"path": name}));
        assert_eq!(reply.status, 422, "{name}: {}", reply.text);
        for word in words {
            assert!(reply.text.contains(word), "{name}: no {word:?} in {}", reply.text);
        }
    };
    refused("mean", &with_extreme_mean, &["prior.parquet", "mean in row 0", "1e42"]);
    refused("offset", &with_extreme_offset, &["item_features.parquet", "offset of item"]);
    let noise = |version: &Path| change_manifest(version, |manifest| manifest["noise_variance"] = json!(1e20));
    refused("noise", &noise, &["_SUCCESS", "noise_variance"]);
    let ahead = |version: &Path| change_manifest(version, |manifest| manifest["watermark"][3] = json!(1_000_000));
    refused("ahead", &ahead, &["_SUCCESS", "watermark", "partition 3"]);
    let unreadable = |version: &Path| change_manifest(version, |manifest| manifest["watermark"] = json!("all of it"));
    refused("unreadable", &unreadable, &["_SUCCESS", "watermark"]);

    // Versions from a trainer of this node.
    for (name, words) in [("mean", ["prior.parquet", "mean"]), ("offset", ["item_features.parquet", "offset"])] {
        hand_in(&dir.path().join("celeris"), &imports.join(name));
        let failed = retrained(&client, "films");
        assert_eq!(failed["state"], "failed", "{failed}");
        let error = failed["error"].as_str().unwrap();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    let listed = client.get("/v1/models").expect(200);
    assert_eq!((&listed["models"][0]["active_version"], &listed["models"][0]["versions"]), (&json!(2), &json!(2)));
    assert_eq!(predict(), before);
    node.kill_hard();
    let node = self::node(dir.path());
    let client = node.client();
    assert_eq!(client.get("/v1/models").expect(200)["models"][0]["active_version"], 2);
    let films = client.model("films");
    assert_eq!(films.post("predict", &json!({"user": "1", "items": ["1", "2", "3"]})).expect(200)["scores"], before);
}

#[test]
fn the_shortest_guard_rolls_a_version_back() {
    let dataset = tempfile::tempdir().unwrap();
    let ratings = write_dataset(dataset.path()).ratings;
    let dir = tempfile::tempdir().unwrap();
    binary::install(&binary::path(), &dir.path().join("celeris"));
    let node = node(dir.path());
    let client = node.client();
    let model = json!({"name": "films", "dim": 8, "gate": {"force": true}, "guard": {"observations": 12}});
    let _created = client.post("/v1/models", &model).expect(201);
    let films = client.model("films");
    let dataset = dataset.path().to_str().unwrap();
    let imported = binary::run(["import", "--url", client.url(), "--model", "films", "--dataset", dataset]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    assert_eq!(retrained(&client, "films")["state"], "succeeded");
    let wrong = dir.path().join("wrong");
    copy(&dir.path().join("data/versions/films.1/2"), &wrong);
    change_offsets(&wrong, |_, offset| offset + 4.0);
    hand_in(&dir.path().join("celeris"), &wrong);
    let forced = retrained(&client, "films");
    assert_eq!((&forced["gate"]["verdict"], &forced["version"]), (&json!("forced"), &json!(3)), "{forced}");
    assert_eq!(films.get("").expect(200)["guarding"]["against"], 2);

    // New users: the learned bias of existing users compensates for the offsets.
    let mut more = ratings.iter().zip(0..);
    eventually("the guard's rollback", || {
        let (rating, newcomer) = more.next()?;
        let seen = json!({"user": format!("newcomer-{newcomer}"), "item": rating.item, "label": rating.label});
        let _observed = films.observe(&seen);
        (films.get("").expect(200)["active_version"] == 2).then_some(())
    });
    let newest = films.get("events?limit=1").expect(200)["events"][0].clone();
    assert_eq!((&newest["kind"], &newest["by"]), (&json!("rolled_back"), &json!("guard")), "{newest}");
    let why = newest["why"].as_str().unwrap();
    assert!(why.contains("live loss") && why.contains("on 12 observations of the live traffic"), "{why}");
    assert_eq!(node.terminate().code, Some(0));
}

#[test]
fn a_model_whose_version_is_damaged_is_listed_with_the_reason_and_the_others_serve() {
    let dir = tempfile::tempdir().unwrap();
    binary::install(&binary::path(), &dir.path().join("celeris"));
    let node = node(dir.path());
    let client = node.client();
    for name in ["films", "books", "plays"] {
        let _created = client.post("/v1/models", &json!({"name": name, "stream": "all", "dim": 4})).expect(201);
    }
    let both = json!({"name": "both", "kind": "selection", "arms": ["films", "plays"], "label_range": [0, 5]});
    let _created = client.post("/v1/models", &both).expect(201);
    node.kill_hard();
    let prior = dir.path().join("data/versions/films.1/1/prior.parquet");
    let whole = fs::read(&prior).unwrap();
    fs::write(&prior, &whole[..whole.len() / 2]).unwrap();

    let node = self::node(dir.path());
    let client = node.client();
    let listed = client.get("/v1/models").expect(200)["models"].as_array().unwrap().clone();
    let of = |name: &str| listed.iter().find(|model| model["name"] == name).unwrap().clone();
    assert_eq!(listed.len(), 4);
    assert_eq!(of("films")["kind"], "model");
    assert!(of("films")["unavailable"].as_str().unwrap().contains("prior.parquet"), "{listed:?}");
    assert_eq!(of("both")["kind"], "selection");
    assert!(of("both")["unavailable"].as_str().unwrap().contains("films"), "{listed:?}");
    assert_eq!(of("books")["active_version"], 1);

    let request = json!({"user": "u", "items": ["a", "b"]});
    let seen = json!({"user": "u", "item": "a", "label": 3});
    for name in ["films", "both"] {
        let model = client.model(name);
        let topk = json!({"user": "u", "items": ["a", "b"], "k": 1});
        for reply in [
            model.get(""),
            model.get("versions"),
            model.get("quality"),
            model.post("predict", &request),
            model.post("topk", &topk),
            model.post("observe", &seen),
            model.post("retrain", &json!({})),
        ] {
            assert_eq!(reply.status, 503, "{name}: {}", reply.text);
            assert!(reply.text.contains("out-of-service") && reply.text.contains("films"), "{name}: {}", reply.text);
        }
        assert_eq!(client.post("/v1/models", &json!({"name": name})).status, 409, "the name is taken");
    }
    for name in ["books", "plays"] {
        let _observed = client.model(name).post("observe", &seen).expect(200);
        let _answer = client.model(name).post("predict", &request).expect(200);
    }
    assert_eq!(client.get("/metrics").status, 200);
    node.kill_hard();

    // Once the file is restored, the model serves normally, including the observations made in the
    // meantime.
    fs::write(&prior, &whole).unwrap();
    let node = self::node(dir.path());
    let client = node.client();
    let scores = |model: &str| client.model(model).post("predict", &request).expect(200)["scores"].clone();
    assert_eq!(scores("films"), scores("books"));
    let _answer = client.model("both").post("predict", &request).expect(200);
    node.kill_hard();

    // An unavailable model can be deleted.
    fs::write(&prior, &whole[..whole.len() / 2]).unwrap();
    let node = self::node(dir.path());
    let client = node.client();
    assert_eq!(client.model("both").delete("").status, 204);
    assert_eq!(client.model("films").delete("").status, 204);
    assert_eq!(client.get("/v1/models").expect(200)["models"].as_array().unwrap().len(), 2);
    assert_eq!(client.model("films").post("predict", &request).status, 404);
    assert_eq!(node.terminate().code, Some(0));
}
