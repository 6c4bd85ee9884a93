//! External trainers produce versions that serve: a user's own Python program, and Spark.

use std::path::{Path, PathBuf};

use celeris_skip::{self as skip, Need};
use celeris_tests::fixtures::{DATASET_ITEMS as ITEMS, config_file, write_dataset};
use celeris_tests::trainer::{python, section};
use celeris_tests::{Client, Node, binary, eventually};
use serde_json::{Value, json};

fn node(dir: &Path, name: &str, command: &[&str]) -> Node {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    let limits = "[training.limits]\nmemory = \"3GiB\"\ntime = \"10m\"\n";
    let config = config_file(dir, section([(name, &command)]) + limits);
    Node::configured(&dir.join("data"), &config)
}

fn import(client: &Client, dataset: &Path) {
    let dataset = dataset.to_str().unwrap();
    let imported = binary::run(["import", "--url", client.url(), "--model", "films", "--dataset", dataset]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
}

fn retrain(client: &Client, model: &str, body: &Value) -> Value {
    let job = client.model(model).post("retrain", body).expect(202)["job"].as_str().unwrap().to_owned();
    // Spark alone takes ten seconds to start, and minutes on a busy machine: every change of the
    // job restarts the deadline.
    let mut last = Value::Null;
    loop {
        let state = eventually("a step of the training", || {
            let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
            (state != last).then_some(state)
        });
        if !matches!(state["state"].as_str(), Some("queued" | "running")) {
            return state;
        }
        last = state;
    }
}

fn rmse(job: &Value) -> f64 {
    assert_eq!(job["state"], "succeeded", "{job}");
    job["metrics"]["validation_rmse"].as_f64().unwrap_or_else(|| panic!("{job}"))
}

/// Trains `films` with the engine and with the built-in trainer, and checks the engine's version.
fn compare_with_built_in(client: &Client, engine: &str) {
    let theirs = retrain(client, "films", &json!({}));
    assert_eq!(theirs["engine"], engine);
    let items: Vec<String> = (1..=ITEMS).map(|item| item.to_string()).collect();
    let films = client.model("films");
    let answer = films.post("predict", &json!({"user": "1", "items": items})).expect(200);
    assert_eq!(answer["version"], theirs["version"]);
    for score in answer["scores"].as_array().unwrap() {
        assert!(score["known"] == true && score["std_error"].as_f64().unwrap() > 0.0, "{score}");
    }
    let versions = films.get("versions").expect(200);
    assert_eq!(versions["versions"][0]["algorithm"], format!("external: {engine}"));
    let ours = retrain(client, "films", &json!({"engine": "als"}));
    assert_eq!(ours["engine"], "als");
    eprintln!("validation RMSE: {engine} {:.4}, als {:.4}", rmse(&theirs), rmse(&ours));
    // Both evaluate the served posterior, on different tenths of 3000 ratings, whose errors differ
    // by some percent.
    assert!(rmse(&theirs) < 1.15 * rmse(&ours), "{theirs} {ours}");
}

/// Trains a model of implicit feedback on the same stream with the engine.
fn train_on_plays(client: &Client, trainer: &Value) {
    let implicit = json!({"name": "plays", "stream": "films", "dim": 8, "loss": "implicit", "trainer": trainer});
    let _created = client.post("/v1/models", &implicit).expect(201);
    let done = retrain(client, "plays", &json!({}));
    assert_eq!(done["state"], "succeeded", "{done}");
    assert!(done["metrics"]["validation_percentile_rank"].as_f64().unwrap() < 0.5, "better than chance: {done}");
}

#[test]
fn a_custom_trainer_produces_versions_that_serve() {
    let python = python(&["numpy", "pyarrow"]);
    let Some(python) = skip::unless(Need::Peers, python, "no Python with numpy and pyarrow") else { return };
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    let dir = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/trainer.py").canonicalize().unwrap();
    let node = node(dir.path(), "svd", &[&python, example.to_str().unwrap(), "--job", "{job}"]);
    let client = node.client();
    let trainer = json!({"engine": "svd"});
    let _created = client.post("/v1/models", &json!({"name": "films", "dim": 8, "trainer": trainer})).expect(201);
    import(&client, dataset.path());
    compare_with_built_in(&client, "svd");
    let versions = client.model("films").get("versions").expect(200);
    assert!(versions["versions"][1]["metrics"]["largest_singular_value"].is_f64(), "{versions}");
    train_on_plays(&client, &trainer);
}

#[test]
fn spark_produces_versions_that_serve() {
    let submit = python(&["pyspark"])
        .map(|python| PathBuf::from(python).with_file_name("spark-submit"))
        .filter(|submit| submit.is_absolute() && submit.is_file());
    let missing = "no spark-submit beside a Python with pyspark";
    let Some(submit) = skip::unless(Need::Peers, submit, missing) else { return };
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    let dir = tempfile::tempdir().unwrap();
    let beside = format!("PYSPARK_PYTHON={}", submit.with_file_name("python").display());
    let settings =
        ["--driver-memory", "1g", "--conf", "spark.ui.enabled=false", "--conf", "spark.local.dir={folder}/spark"];
    let alone = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"];
    let program = ["env", &beside, submit.to_str().unwrap(), "--master", "local[1]"];
    let command = [&program[..], &settings, &alone, &["{spark_als}", "--job", "{job}"]].concat();
    let node = node(dir.path(), "spark", &command);
    let client = node.client();
    let trainer = json!({"engine": "spark", "iterations": 5, "regularization": 0.1});
    let _created = client.post("/v1/models", &json!({"name": "films", "dim": 8, "trainer": trainer})).expect(201);
    import(&client, dataset.path());
    compare_with_built_in(&client, "spark");
    train_on_plays(&client, &trainer);
}
