//! Data directories that earlier versions wrote: those of the current format are opened and answer as they did, older ones are
//! refused, unchanged, with a way to take their observations along. `tests/fixtures/formats/README.md` says what is in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use celeris_tests::{Client, ModelClient, NodeProcess, binary, eventually};
use serde_json::{Value, json};

/// The format that the current version writes.
const CURRENT: u32 = 3;

/// Scores of other vector instructions than those of the writer differ in the last digits (`docs/run/backup.md`).
const TOLERANCE: f64 = 1e-4;

const ITEMS: usize = 8;

const KEY: &str = "a-key-of-this-test-which-opens-nothing-else";

/// The inputs of the trees.
const FIELDS: &str = "item.f0,item.f1,item.f2,item.f3,item.f4";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/formats")
}

fn unpack(format: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let archive = fixtures().join(format!("{format}.tar.gz"));
    let unpacked = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(dir.path()).status().unwrap();
    assert!(unpacked.success());
    dir
}

/// The contents of all files below a folder, by their paths.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

fn items() -> Vec<String> {
    (0..ITEMS).map(|item| format!("film-{item}")).collect()
}

/// Gives a new node one of everything that it stores.
fn fill(client: &Client) {
    let taste = json!({"name": "taste", "output": "liking", "nodes": {
        "genre": {"op": "one_hot", "input": "item.genre", "categories": ["drama", "comedy"]},
        "device": {"op": "one_hot", "input": "context.device", "categories": ["phone", "screen"]},
        "both": {"op": "cross", "inputs": ["genre", "device"], "hash_bits": 8},
        "liking": {"op": "linear", "input": "both", "fit": "label"}}});
    client.post("/v1/pipelines", &taste).expect(201);
    let parts = json!([{"part": "factors", "from": "table"}, {"part": "liking", "pipeline": "taste"}]);
    client.post("/v1/models", &json!({"name": "films", "dim": 4})).expect(201);
    client.post("/v1/models", &json!({"name": "shop", "dim": 4, "stream": "films", "features": parts})).expect(201);
    let films = client.model("films");
    for (number, item) in items().iter().enumerate() {
        let genre = ["drama", "comedy"][number % 2];
        let attributes = json!({"genre": genre, "year": 1990 + number});
        films.put(&format!("items/{item}"), &json!({"attributes": attributes})).expect(200);
    }
    for user in 0..6 {
        for item in (0..ITEMS).filter(|item| (user * 3 + item) % 4 != 0) {
            let device = ["phone", "screen"][(user + item) % 2];
            let label = f64::from(u32::try_from((user * item + user + 2 * item) % 9).unwrap()) / 2.0 + 1.0;
            films.observe(&json!({"user": format!("user-{user}"), "item": format!("film-{item}"), "label": label,
                "observation_id": format!("o-{user}-{item}"), "context": {"device": device}}));
        }
    }
    for name in ["films", "shop"] {
        train(client, &client.model(name));
    }
    let selection = json!({"name": "either", "kind": "selection", "arms": ["films", "shop"], "label_range": [1, 5]});
    client.post("/v1/models", &selection).expect(201);
    // A decision and its reward, a correction, a retraction and an erased user.
    let ranking = client.model("either").post("topk", &json!({"user": "user-1", "items": items(), "k": 2})).expect(200);
    films.observe(&json!({"user": "user-1", "item": ranking["items"][0]["item"], "label": 5,
        "decision_id": ranking["decision_id"]}));
    films.put("observations/o-1-0", &json!({"label": 2})).expect(200);
    assert_eq!(films.delete("observations/o-2-0").status, 200);
    assert_eq!(films.delete("users/user-5").status, 200);
    declare_trees(client);
    // The last: from here on, requests need it.
    let made = binary::command()
        .args(["keys", "create", "--role", "admin", "--name", "fixture", "--url", client.url()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// A pipeline with an object: the trees of a model of LightGBM.
fn declare_trees(client: &Client) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("trees");
    let folder = folder.to_str().unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../pipelines/tests/fixtures/lightgbm_regression.txt");
    let import = ["pipelines", "import", model, "--name", "trees", "--input", FIELDS, "--out", folder];
    for command in [import.as_slice(), &["pipelines", "declare", folder, "--url", client.url()]] {
        let finished = binary::run(command);
        assert_eq!(finished.code, Some(0), "{finished:?}");
    }
}

fn train(client: &Client, model: &ModelClient) {
    let job = model.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    let ended = eventually("the end of the training", || {
        let job = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(job["state"].as_str(), Some("queued" | "running"))).then_some(job)
    });
    assert_eq!(ended["state"], "succeeded", "{ended}");
}

/// What is asked of the node, and must be answered in the same way for ever.
fn questions() -> Vec<(&'static str, Value)> {
    let mut questions = Vec::new();
    for user in ["user-0", "user-1", "user-2", "user-5", "nobody"] {
        for device in ["phone", "screen"] {
            let ask = json!({"user": user, "items": items(), "context": {"device": device}});
            questions.push(("/v1/models/films/predict", ask.clone()));
            questions.push(("/v1/models/shop/predict", ask));
        }
    }
    let records =
        json!([{"item": {"f0": 0.5, "f1": -1.0}, "context": {}}, {"item": {"f0": -2, "f2": 3.5}, "context": {}}]);
    questions.push(("/v1/pipelines/trees/run", json!({"records": records})));
    questions
}

/// Whether two replies have the same fields and values, numbers within the tolerance.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            (one.as_f64().unwrap() - other.as_f64().unwrap()).abs() <= TOLERANCE
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            // Fields may have been added since.
            one.iter().all(|(name, one)| other.get(name).is_some_and(|other| same(one, other)))
        }
        (one, other) => one == other,
    }
}

#[test]
#[ignore = "writes the fixture of the current format, once for each format"]
fn write() {
    let number = std::env::var("CELERIS_WRITE_FIXTURE").expect("the number of the new fixture");
    assert!(!fixtures().join(format!("{number}.tar.gz")).exists(), "a fixture is written once");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = NodeProcess::serve(&data);
    let client = node.client();
    fill(&client);
    assert_eq!(node.terminate().code, Some(0));
    // Answered by a node that has read it all from the disk, as the key of the test asks.
    let node = serve(&data, dir.path());
    let client = node.client().with_key(KEY);
    let answered: Vec<Value> = questions()
        .into_iter()
        .map(|(path, ask)| json!({"path": path, "ask": ask, "reply": client.post(path, &ask).expect(200)}))
        .collect();
    assert_eq!(node.terminate().code, Some(0));
    for log in ["db/LOG", "decisions/LOG"] {
        let _ = fs::remove_file(data.join(log));
    }
    let packed = Command::new("tar")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "-czf"])
        .arg(fixtures().join(format!("{number}.tar.gz")))
        .arg("-C")
        .arg(dir.path())
        .arg("data")
        .status()
        .unwrap();
    assert!(packed.success());
    let text = serde_json::to_string_pretty(&answered).unwrap();
    fs::write(fixtures().join(format!("{number}.json")), format!("{text}\n")).unwrap();
}

/// A node with a key from a file, since nobody has those of the store.
fn serve(data: &Path, folder: &Path) -> NodeProcess {
    fs::write(folder.join("key"), KEY).unwrap();
    let settings = format!("[auth]\nadmin_key_file = {:?}\n", folder.join("key"));
    let config = celeris_tests::fixtures::config_file(folder, settings);
    celeris_tests::ProcessOptions::default().config(config).serve(data)
}

#[test]
fn a_store_of_the_current_format_answers_as_it_did() {
    let dir = unpack(CURRENT);
    let data = dir.path().join("data");
    let checked = binary::run(["check", "--data-dir", data.to_str().unwrap(), "--json"]);
    let checked: Value = serde_json::from_str(&checked.stdout).unwrap();
    let finding =
        |name: &str| checked["findings"].as_array().unwrap().iter().find(|found| found["check"] == name).cloned();
    assert_eq!(finding("data directory").unwrap()["state"], "ok", "{checked}");
    assert_eq!(finding("versions").unwrap()["state"], "ok", "{checked}");

    let answered: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(fixtures().join(format!("{CURRENT}.json"))).unwrap()).unwrap();
    assert_eq!(answered.len(), questions().len());
    // A second start reads what the first has written.
    for _ in 0..2 {
        let node = serve(&data, dir.path());
        assert_eq!(node.client().get("/v1/models").status, 401, "the key of the store is there");
        let client = node.client().with_key(KEY);
        assert_eq!(client.get("/readyz").status, 200);
        for known in &answered {
            let reply = client.post(known["path"].as_str().unwrap(), &known["ask"]).expect(200);
            assert!(same(&known["reply"], &reply), "{}\n{known}\n{reply}", known["path"]);
        }
        let models = client.get("/v1/models").expect(200);
        assert_eq!(models["models"].as_array().unwrap().len(), 3, "{models}");
        assert!(models["models"].as_array().unwrap().iter().all(|model| model["unavailable"].is_null()), "{models}");
        let repeated = json!({"user": "user-0", "item": "film-1", "label": 2, "observation_id": "o-0-1",
            "context": {"device": "screen"}});
        let repeated = client.model("films").post("observe", &repeated).expect(200);
        assert_eq!(repeated["duplicate"], true, "an id of then counts once: {repeated}");
        let new = client.model("films").post("observe", &json!({"user": "new", "item": "film-1", "label": 1}));
        assert_eq!(new.status, 200, "{}", new.text);
        assert_eq!(node.terminate().code, Some(0));
    }
}

#[test]
fn older_stores_are_refused_unchanged_with_a_way_to_take_them_along() {
    let dir = unpack(2);
    let data = dir.path().join("data");
    let first = dir.path().join("first");
    fs::create_dir_all(first.join("db")).unwrap();
    fs::write(first.join("FORMAT"), "{\"format\":1,\"partitions\":64}\n").unwrap();
    for (format, data) in [(1, &first), (2, &data)] {
        let before = contents(data);
        let folder = data.to_str().unwrap();
        for command in [["serve", "--listen", "127.0.0.1:0"], ["check", "--listen", "127.0.0.1:0"]] {
            let refused = binary::run([command.as_slice(), &["--data-dir", folder]].concat());
            let (code, said) = if command[0] == "serve" { (2, &refused.stderr) } else { (1, &refused.stdout) };
            assert_eq!(refused.code, Some(code), "{refused:?}");
            for words in [&format!("has format {format}"), "celeris export", "celeris import"] {
                assert!(said.contains(words), "no {words:?} in {said}");
            }
        }
        let mut after = contents(data);
        // The lock of a directory is taken before anything is read.
        after.retain(|path, _| !path.ends_with("LOCK") || before.contains_key(path));
        assert!(before == after, "format {format}: {:?}", after.keys());
    }
}

#[test]
fn the_export_of_an_older_version_becomes_a_model_of_this_one() {
    let dir = unpack(2);
    let node = NodeProcess::serve(&dir.path().join("new"));
    let client = node.client();
    client.post("/v1/models", &json!({"name": "films", "dim": 4})).expect(201);
    let export = dir.path().join("export");
    let arguments = ["import", export.to_str().unwrap(), "--model", "films", "--url", client.url()];
    for _ in 0..2 {
        let imported = binary::run(arguments);
        assert_eq!(imported.code, Some(0), "{imported:?}");
    }
    let user = client.model("films").user("user-1", 10);
    assert_eq!(user["history"].as_array().unwrap().len(), 6, "each counts once: {user}");
    train(&client, &client.model("films"));
    let predicted = client.model("films").post("predict", &json!({"user": "user-1", "items": items()})).expect(200);
    assert!(predicted["scores"].as_array().unwrap().iter().all(|score| score["known"] == true), "{predicted}");
}
