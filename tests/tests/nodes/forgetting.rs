//! After corrections, retractions and erasures, user states are bit-identical to those of the
//! amended history.

use std::fs;
use std::path::Path;

use celeris_tests::fixtures::{
    DIM, ITEMS, any_item, any_label, config_file, create_model, features, weights, write_dataset,
};
use celeris_tests::trainer::{self, Trainers, item_features, write_parquet, write_success};
use celeris_tests::{Client, ModelClient, Node, NodeProcess, binary, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Observations of one user, in order: item and label.
type Past = Vec<(String, f32)>;

fn any_past(events: usize, random: &mut ChaCha8Rng) -> Past {
    (0..events).map(|_| (any_item(random), any_label(random))).collect()
}

fn id(user: &str, event: usize) -> String {
    format!("{user}-{event}")
}

fn observe_history(model: &ModelClient, user: &str, past: &Past) {
    for (event, (item, label)) in past.iter().enumerate() {
        let observation = json!({"user": user, "item": item, "label": label, "observation_id": id(user, event)});
        model.observe(&observation);
    }
}

/// Creates a second model on the stream of the first, with other features.
fn second_model(node: &Node) -> ModelClient {
    let client = node.client();
    client.post("/v1/models", &json!({"name": "others", "stream": "films", "dim": DIM})).expect(201);
    let model = client.model("others");
    let mut random = ChaCha8Rng::seed_from_u64(77);
    for item in 0..ITEMS {
        model.put(&format!("items/item-{item}"), &json!({"features": features(&mut random)})).expect(200);
    }
    model
}

/// A user with random amendments has the same weights as a user who only has the amended history:
/// under both models of the stream, live, after a restart, and after another observation.
#[test]
fn amended_states_equal_states_of_the_amended_history() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 4);
    second_model(&node);
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut users: Vec<(String, Past)> = Vec::new();
    for events in [1, 2, 5, 9, 33, 70] {
        let user = format!("amended-{events}");
        let mut past: Vec<Option<(String, f32)>> = any_past(events, &mut random).into_iter().map(Some).collect();
        let original: Past = past.iter().flatten().cloned().collect();
        observe_history(&films, &user, &original);
        for (event, remembered) in past.iter_mut().enumerate() {
            let path = format!("observations/{}", id(&user, event));
            if random.random_bool(0.3) {
                let label = any_label(&mut random);
                let before = remembered.as_ref().unwrap().1;
                let reply = films.put(&path, &json!({"label": label})).expect(200);
                assert_eq!(reply["duplicate"], (label - before).abs() < f32::EPSILON, "{reply}");
                remembered.as_mut().unwrap().1 = label;
            }
            if random.random_bool(0.3) {
                films.delete(&path).expect(200);
                *remembered = None;
            }
        }
        users.push((user, past.into_iter().flatten().collect()));
    }
    for (user, past) in &users {
        observe_history(&films, &format!("reference-{user}"), past);
    }
    let compare = |node: &Node, phase: &str| {
        for (user, past) in &users {
            for model in ["films", "others"].map(|name| node.model(name)) {
                let reference = weights(&model, &format!("reference-{user}"));
                assert_eq!(weights(&model, user), reference, "{user} under {} {phase}", model.name());
                assert_eq!(model.user(user, 0)["observations"], past.len(), "{user} {phase}");
            }
        }
    };
    compare(&node, "live");
    node.stop();
    let node = Node::serve(dir.path());
    compare(&node, "rebuilt");
    for (user, _) in &users {
        for user in [user.clone(), format!("reference-{user}")] {
            node.model("films").observe(&json!({"user": user, "item": "item-3", "label": 2.5}));
        }
    }
    for (user, _) in &users {
        for model in ["films", "others"].map(|name| node.model(name)) {
            assert_eq!(
                weights(&model, user),
                weights(&model, &format!("reference-{user}")),
                "{user} after another observation"
            );
        }
    }
}

#[test]
fn ids_of_retracted_observations_stay_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 4);
    let first = json!({"user": "u", "item": "item-1", "label": 4, "observation_id": "first"});
    films.observe(&first);
    let second = films.observe(&json!({"user": "u", "item": "item-2", "label": 2}));
    let made = second["observation_id"].as_str().unwrap().to_owned();

    // After a correction, the original observation is still a duplicate; a different one with the
    // same id is a conflict.
    films.put("observations/first", &json!({"label": 3})).expect(200);
    assert_eq!(films.observe(&first)["duplicate"], true);
    let other = json!({"user": "u", "item": "item-1", "label": 1, "observation_id": "first"});
    films.post("observe", &other).expect(409);
    films.put(&format!("observations/{made}"), &json!({"label": 1})).expect(200);
    let of_history = |films: &ModelClient| {
        let events = films.user("u", 100)["history"].as_array().unwrap().clone();
        events.iter().map(|event| json!([event["kind"], event["observation_id"], event["label"]])).collect::<Vec<_>>()
    };
    let corrected = [
        json!(["correct", made, 1.0]),
        json!(["correct", "first", 3.0]),
        json!(["observe", made, 1.0]),
        json!(["observe", "first", 3.0]),
    ];
    assert_eq!(of_history(&films), corrected);

    for id in ["first", made.as_str()] {
        let forgotten = films.delete(&format!("observations/{id}")).expect(200);
        assert_eq!(forgotten["observation_id"], id);
    }
    let check = |films: &ModelClient| {
        films.post("observe", &first).expect(410);
        for id in ["first", made.as_str()] {
            films.delete(&format!("observations/{id}")).expect(410);
            films.put(&format!("observations/{id}"), &json!({"label": 3})).expect(410);
        }
        films.delete("observations/never").expect(404);
        films.put("observations/never", &json!({"label": 3})).expect(404);
        let user = films.user("u", 100);
        assert_eq!((&user["cold"], &user["user_epoch"]), (&json!(true), &json!(6)), "{user}");
        assert_eq!(of_history(films), [json!(["retract", made, 0.0]), json!(["retract", "first", 0.0])]);
    };
    check(&films);
    for bad in [json!({}), json!({"label": "x"}), json!({"label": 1e7}), json!({"label": 1, "weight": 2})] {
        let problem = films.put("observations/first", &bad).expect(422);
        assert!(problem["detail"].as_str().unwrap().contains("label") || bad.get("weight").is_some(), "{problem}");
    }
    node.stop();
    node = Node::serve(dir.path());
    check(&node.model("films"));
}

/// Trains a version on a user's ratings, then erases the user: the receipt and the list of versions
/// mark the version, a rollback to it returns a warning, and the user has the state of an unknown
/// user.
#[test]
fn an_erased_user_is_unknown_and_the_receipt_lists_versions_trained_on_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = write_dataset(dir.path());
    let data_dir = dir.path().join("data");
    let node = NodeProcess::demo(&data_dir, Some(dir.path()));
    let films = node.model("demo");
    let rating = dataset.ratings.first().unwrap();
    let user = rating.user.as_str();
    let unknown = films.user("nobody", 0);
    let known = films.user(user, 10_000);
    let events = known["history"].as_array().unwrap().len();
    assert!(events > 0 && known["cold"] == false, "{known}");
    films.post("topk", &json!({"user": user, "items": ["1", "2", "3"], "k": 2})).expect(200);

    let receipt = films.delete(&format!("users/{user}")).expect(200);
    assert_eq!(receipt["observations"], events, "{receipt}");
    assert_eq!(receipt["user_epoch"], events + 1, "{receipt}");
    assert_eq!(receipt["decisions"], 1, "{receipt}");
    let affected: Vec<&Value> = receipt["versions"].as_array().unwrap().iter().collect();
    assert_eq!(affected.len(), 1, "only the trained version is listed: {receipt}");
    let trained = affected[0]["version"].as_u64().unwrap();
    assert_eq!(affected[0]["active"], true, "{receipt}");
    assert!(receipt["segments_rewritten_by"].as_i64() > receipt["erased"].as_i64(), "{receipt}");
    assert!(receipt.get("log_trimmed_by").is_none(), "a node on its own has no other log: {receipt}");
    assert_eq!(receipt["trainings"], json!([]), "{receipt}");
    assert!(receipt["copies"].as_str().unwrap().contains("backups"), "{receipt}");

    let check = |films: &ModelClient| {
        let erased = films.user(user, 10_000);
        assert_eq!(erased["weights"], unknown["weights"]);
        assert_eq!((&erased["cold"], &erased["history"]), (&json!(true), &json!([])));
        assert_eq!(erased["user_epoch"], events + 1, "epochs are never used twice");
    };
    check(&films);
    node.kill_hard();
    let node = NodeProcess::demo(&data_dir, Some(dir.path()));
    let films = node.model("demo");
    check(&films);

    // A warm start of the next training would use a version trained on the erased user, so it
    // starts cold; the one after it starts warm. Neither needs to be better than the active
    // version.
    films.patch("", &json!({"gate": {"force": true}})).expect(200);
    let retrain = |body: Value| {
        let job = films.post("retrain", &body).expect(202)["job"].as_str().unwrap().to_owned();
        let done = eventually("the retraining ends", || {
            let job = node.client().get(&format!("/v1/jobs/{job}")).expect(200);
            (job["state"] != "queued" && job["state"] != "running").then_some(job)
        });
        assert_eq!(done["state"], "succeeded", "{done}");
        (done["version"].as_u64().unwrap(), done["why"].as_str().unwrap().to_owned())
    };
    let (clean, why) = retrain(json!({}));
    let from_nothing = format!("from nothing, since version {trained} was trained on users who were erased");
    assert!(why.ends_with(&from_nothing), "{why}");
    let (warm, why_warm) = retrain(json!({}));
    assert!(!why_warm.contains("from nothing"), "{why_warm}");
    let life = films.get("events").expect(200);
    let starts = life["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "training_started");
    assert_eq!(starts.filter(|event| event["why"] == why.as_str()).count(), 1, "{life}");
    let versions = films.get("versions").expect(200);
    for version in versions["versions"].as_array().unwrap() {
        let is_affected = version["version"] == trained;
        assert_eq!(version["erased_users"], u64::from(is_affected), "{version}");
        assert_eq!(version["warning"].is_string(), is_affected, "{version}");
        let from = if version["version"] == warm { json!(clean) } else { Value::Null };
        assert_eq!(version["warm_from"], from, "{version}");
    }
    assert!(versions["versions"][0]["version"] == warm && versions["versions"][0]["active"] == true, "{versions}");
    films.post("rollback", &json!({})).expect(200);
    let back = films.post("rollback", &json!({})).expect(200);
    assert_eq!(back["active_version"], trained);
    assert!(back["warning"].as_str().unwrap().contains("erased"), "{back}");

    let again = films.observe(&json!({"user": user, "item": "1", "label": 5}));
    assert_eq!(again["user_epoch"], events + 2);
    assert_eq!(films.user(user, 10)["observations"], 1);
}

/// The names of all files below a folder.
fn names_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => names.extend(names_below(&entry.path())),
            false => names.push(entry.file_name().into_string().unwrap()),
        }
    }
    names
}

/// No version holds data of individual users: not one that a training publishes, nor its export,
/// nor a registered one.
#[test]
fn no_version_holds_data_of_individual_users() {
    let dir = tempfile::tempdir().unwrap();
    write_dataset(dir.path());
    let (data, imports, out) = (dir.path().join("data"), dir.path().join("imports"), dir.path().join("out"));
    NodeProcess::demo(&data, Some(dir.path())).kill_hard();
    let trained = data.join("versions/demo.1/2");
    let of_versions = ["_SUCCESS", "cold_map.json", "cold_map.parquet", "item_features.parquet", "prior.parquet"];
    let check = |folder: &Path| {
        for name in names_below(folder) {
            let known = of_versions.contains(&name.as_str()) || name.starts_with("trainer_");
            assert!(known, "{name} in {}", folder.display());
        }
    };
    assert!(names_below(&trained).contains(&"item_features.parquet".to_owned()));
    check(&data.join("versions"));

    // Extra files in the folder of a version are not part of it.
    fs::write(trained.join("user_weights.parquet"), "7").unwrap();
    let done = binary::run(["export", "--data-dir", data.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(names_below(&out.join("versions")).contains(&"item_features.parquet".to_owned()));
    check(&out.join("versions"));

    // A version that lists a file of user data is not registered.
    let nightly = imports.join("nightly");
    fs::create_dir_all(&nightly).unwrap();
    for name in names_below(&out.join("versions/demo/2")) {
        fs::copy(out.join("versions/demo/2").join(&name), nightly.join(&name)).unwrap();
    }
    let mut manifest: Value = serde_json::from_slice(&fs::read(nightly.join("_SUCCESS")).unwrap()).unwrap();
    fs::copy(nightly.join("prior.parquet"), nightly.join("user_weights.parquet")).unwrap();
    manifest["files"]["user_weights.parquet"] = manifest["files"]["prior.parquet"].clone();
    fs::write(nightly.join("_SUCCESS"), manifest.to_string()).unwrap();
    let config = config_file(dir.path(), format!("[training]\nimport_dir = {imports:?}\n"));
    let node = Node::configured(&data, &config);
    let refused = node.model("demo").post("versions", &json!({"path": "nightly"}));
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert!(refused.text.contains("user_weights.parquet") && refused.text.contains("single users"), "{}", refused.text);
    manifest["files"].as_object_mut().unwrap().remove("user_weights.parquet");
    fs::write(nightly.join("_SUCCESS"), manifest.to_string()).unwrap();
    let registered = node.model("demo").post("versions", &json!({"path": "nightly"})).expect(201);
    check(&data.join(format!("versions/demo.1/{}", registered["version"])));
}

/// A trainer that counts its runs, copies its input, and waits for a file before it continues.
const WAITING: &str = r#"
prepared=$1 gate=$2
while [ "$1" != --job ]; do shift; done
folder=$(dirname "$2")
echo run >> "$gate/runs"
run=$(wc -l < "$gate/runs")
cp "$folder/observations.parquet" "$gate/reading"
mv "$gate/reading" "$gate/read-$run"
while [ ! -e "$gate/go-$run" ]; do sleep 0.05; done
cp "$prepared"/* "$folder/raw/"
"#;

struct Waiting<'a> {
    client: Client,
    gate: &'a Path,
}

impl Waiting<'_> {
    fn runs(&self) -> usize {
        (1..9).take_while(|run| self.gate.join(format!("read-{run}")).exists()).count()
    }

    fn wait_for_run(&self, run: usize) {
        eventually("the trainer to run", || (self.runs() >= run).then_some(()));
    }

    fn erase(&self, user: &str) -> Value {
        self.client.model("films").delete(&format!("users/{user}")).expect(200)
    }

    fn train(&self) -> String {
        let job = self.client.model("films").post("retrain", &json!({})).expect(202);
        job["job"].as_str().unwrap().to_owned()
    }

    fn ended(&self, job: &str) -> Value {
        let done = eventually("the end of the training", || {
            let state = self.client.get(&format!("/v1/jobs/{job}")).expect(200);
            (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
        });
        assert_eq!(done["state"], "succeeded", "{done}");
        done
    }

    fn newest(&self) -> Value {
        self.client.model("films").get("versions").expect(200)["versions"][0].clone()
    }
}

/// An erasure during a training on the user's observations restarts the training without them. The
/// third attempt is published, and its version is marked as trained on an erased user. Every
/// receipt lists the running training.
#[test]
fn an_erasure_during_a_training_restarts_it() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    fs::create_dir_all(&gate).unwrap();
    let trainers = Trainers::new(dir.path().join("trainers"));
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut command = trainers.copying("prepared", |folder| {
        let items: Vec<String> = (0..ITEMS).map(|item| format!("item-{item}")).collect();
        let rows: Vec<Vec<f32>> =
            (0..ITEMS).map(|_| (1..DIM).map(|_| random.random_range(-1.0..1.0)).collect()).collect();
        write_parquet(&folder.join("item_features.parquet"), &item_features(&items, &rows));
        write_success(folder, &[("item_features.parquet", ITEMS)]);
    });
    command[1] = trainers.script("waiting", WAITING)[1].clone();
    command.insert(3, gate.to_str().unwrap().to_owned());
    let config = config_file(dir.path(), trainer::section([("waiting", &command)]));
    let data = dir.path().join("data");
    let node = Node::configured(&data, &config);
    let model = json!({"name": "films", "dim": DIM, "trainer": {"engine": "waiting"}, "gate": {"force": true}});
    node.client().post("/v1/models", &model).expect(201);
    let films = node.model("films");
    let lines: String = (0..600)
        .map(|n| {
            format!(
                "{}\n",
                json!({"user": format!("u{}", n % 30), "item": any_item(&mut random), "label": any_label(&mut random)})
            )
        })
        .collect();
    assert_eq!(films.observe_lines(&lines).unwrap().map(Result::unwrap).count(), 600);
    let waiting = Waiting { client: node.client(), gate: &gate };

    let job = waiting.train();
    waiting.wait_for_run(1);
    let receipt = waiting.erase("u7");
    assert_eq!(receipt["trainings"][0]["job"], job, "{receipt}");
    assert!(receipt["trainings"][0]["input_removed_by"].as_i64() > receipt["erased"].as_i64(), "{receipt}");
    waiting.wait_for_run(2);
    let rows = |run: usize| {
        let file = fs::File::open(gate.join(format!("read-{run}"))).unwrap();
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        reader.metadata().file_metadata().num_rows()
    };
    assert!(rows(2) < rows(1), "the second input lacks the user's observations: {} and {}", rows(1), rows(2));
    fs::write(gate.join("go-2"), "").unwrap();
    waiting.ended(&job);
    let newest = waiting.newest();
    assert_eq!((&newest["erased_users"], &newest["warning"]), (&json!(0), &Value::Null), "{newest}");
    assert_eq!(waiting.runs(), 2);

    let job = waiting.train();
    for run in 3..=5 {
        waiting.wait_for_run(run);
        let receipt = waiting.erase(&format!("u{run}"));
        assert_eq!(receipt["trainings"][0]["job"], job, "{receipt}");
    }
    fs::write(gate.join("go-5"), "").unwrap();
    waiting.ended(&job);
    let newest = waiting.newest();
    assert_eq!(newest["erased_users"], 1, "the last of three attempts is published and marked: {newest}");
    assert!(newest["warning"].is_string(), "{newest}");
    assert_eq!(waiting.runs(), 5);
    let left: Vec<_> = fs::read_dir(data.join("jobs")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
