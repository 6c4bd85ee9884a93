//! Pipelines on the command line and on nodes: learnt, declared, run, and there after restarts.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use celeris_tests::binary::{run, run_with_input};
use celeris_tests::{Client, Cluster, NodeProcess, eventually};
use serde_json::{Value, json};

/// A folder with a pipeline that was fitted to labelled titles and devices, and the rows.
fn fitted(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    let declaration = json!({"name": name, "output": "model", "nodes": {
        "words": {"op": "tokenize", "input": "item.title"},
        "grams": {"op": "word_ngrams", "input": "words", "n": [1, 2], "fit": {"min_count": 1}},
        "device": {"op": "one_hot", "input": "context.device", "categories": ["phone", "desktop"]},
        "hour": {"op": "scale", "input": "context.hour"},
        "all": {"op": "concat", "inputs": ["grams", "device", "hour"]},
        "model": {"op": "linear", "input": "all", "link": "logistic", "fit": "label"}}});
    let file = dir.join(format!("{name}.json"));
    fs::write(&file, declaration.to_string()).unwrap();
    let row = |row: usize| {
        let title = ["heat wave", "alien night", "cold night"][row % 3];
        let device = ["phone", "desktop"][row % 2];
        json!({"item": {"title": title}, "context": {"device": device, "hour": row % 24}, "label": (row / 2) % 2})
    };
    let rows = dir.join("rows.jsonl");
    fs::write(&rows, (0..40).map(|number| row(number).to_string() + "\n").collect::<String>()).unwrap();
    let out = dir.join(name);
    let args = ["pipelines", "fit", &text(&file), "--rows", &text(&rows), "--out", &text(&out)];
    let finished = run(args);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    (out, rows)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// What the pipeline in the folder gives for each row.
fn outputs(folder: &Path, rows: &Path) -> Vec<Value> {
    let finished = run(["pipelines", "run", &text(folder), "--rows", &text(rows)]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn records(rows: &Path) -> Value {
    let record = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        json!({"item": row["item"], "context": row["context"]})
    };
    json!({"records": fs::read_to_string(rows).unwrap().lines().map(record).collect::<Vec<_>>()})
}

fn declare(folder: &Path, url: &str) {
    let finished = run(["pipelines", "declare", &text(folder), "--url", url]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
}

fn run_on(client: &Client, name: &str, records: &Value) -> Value {
    client.post(&format!("/v1/pipelines/{name}/run"), records).expect(200)["outputs"].clone()
}

/// The objects of a pipeline, as a node describes them.
fn objects(client: &Client, name: &str) -> Vec<Value> {
    let described = client.get(&format!("/v1/pipelines/{name}?explain=true")).expect(200);
    described["plan"]["objects"].as_array().unwrap().clone()
}

#[test]
fn a_node_computes_what_the_command_line_does_also_after_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, rows) = fitted(dir.path(), "interest");
    let piped = run_with_input(["pipelines", "run", &text(&folder), "--rows", "-"], File::open(&rows).unwrap());
    let piped: Vec<Value> = piped.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (expected, records) = (Value::from(outputs(&folder, &rows)), records(&rows));
    assert_eq!(Value::from(piped), expected);
    let data = dir.path().join("data");
    let node = NodeProcess::serve(&data);
    declare(&folder, node.client().url());
    assert_eq!(run_on(&node.client(), "interest", &records), expected);
    let described = node.client().get("/v1/pipelines/interest?explain=true").expect(200);
    assert_eq!(described["depends_on"], "item_and_context");
    assert_eq!(
        (&described["item_fields"], &described["context_fields"]),
        (&json!(["title"]), &json!(["device", "hour"]))
    );
    let stages = described["plan"]["stages"].as_array().unwrap();
    let computed: Vec<&str> = stages.iter().map(|stage| stage["depends_on"].as_str().unwrap()).collect();
    assert!(computed.contains(&"item") && computed.contains(&"context"), "{computed:?}");
    let rewrites = described["plan"]["rewrites"].to_string();
    assert!(rewrites.contains("concat"), "the model is pushed through it: {rewrites}");
    // A pipeline with the same dictionary shares it.
    let (again, _) = fitted(dir.path(), "again");
    declare(&again, node.client().url());
    run_on(&node.client(), "again", &records);
    assert_eq!(objects(&node.client(), "again").len(), objects(&node.client(), "interest").len());
    assert!(objects(&node.client(), "again").iter().all(|object| object["shared_by"].as_u64() > Some(1)));
    let files = || fs::read_dir(data.join("objects")).unwrap().count();
    assert_eq!(files(), objects(&node.client(), "interest").len());
    node.kill_hard();
    let node = NodeProcess::serve(&data);
    let client = node.client();
    assert_eq!(run_on(&client, "interest", &records), expected);
    // The next revision needs fewer objects; those of the other pipeline stay.
    let simple = json!({"name": "interest", "output": "hour", "nodes": {
        "hour": {"op": "cyclic", "input": "context.hour", "period": 24}}});
    assert_eq!(client.post("/v1/pipelines", &simple).expect(201)["revision"], 2);
    assert_eq!(run_on(&client, "interest", &json!({"records": [{}]})), json!([[0.0, 0.0]]), "a missing hour");
    assert_eq!(run_on(&client, "again", &records), expected);
    assert_eq!(client.get("/v1/pipelines").expect(200)["pipelines"].as_array().map(Vec::len), Some(2));
    let delete = |name: &str| client.try_json("DELETE", &format!("/v1/pipelines/{name}"), &json!({})).unwrap().status;
    assert_eq!((delete("again"), delete("again")), (204, 404));
    let constant = |number: f64| json!({"name": "constant", "output": "c", "nodes": {"c": {"op": "constant", "numbers": [number]}}});
    for number in [1.0, 2.0] {
        assert_eq!(client.post("/v1/pipelines", &constant(number)).expect(201)["revision"], 1);
        assert_eq!(run_on(&client, "constant", &json!({"records": [{}]})), json!([[number]]), "not the one before it");
        assert_eq!(delete("constant"), 204);
    }
    assert_eq!(client.post("/v1/pipelines/again/run", &records).status, 404);
}

#[test]
fn a_node_killed_while_pipelines_are_declared_has_what_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut acknowledged = Vec::new();
    let mut expected = std::collections::BTreeMap::new();
    let mut number = 0;
    for round in 0..4 {
        // More declarations than are acknowledged before the node is killed.
        let folders: Vec<_> = (0..round + 3).map(|at| fitted(dir.path(), &format!("taste-{}", number + at))).collect();
        for (folder, rows) in &folders {
            let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
            expected.insert(name, (Value::from(outputs(folder, rows)), records(rows)));
        }
        number += folders.len();
        let node = NodeProcess::serve(&data);
        let url = node.client().url().to_owned();
        let (said, heard) = std::sync::mpsc::channel();
        let declaring = std::thread::spawn(move || {
            for (folder, _) in folders {
                let declared = run(["pipelines", "declare", &text(&folder), "--url", &url]).code == Some(0);
                let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
                if !declared || said.send(name).is_err() {
                    return;
                }
            }
        });
        acknowledged.extend(heard.iter().take(round));
        node.kill_hard();
        declaring.join().unwrap();
        acknowledged.extend(heard.try_iter());
        let node = NodeProcess::serve(&data);
        let client = node.client();
        let listed = client.get("/v1/pipelines").expect(200)["pipelines"].clone();
        let names: Vec<&str> =
            listed.as_array().unwrap().iter().map(|pipeline| pipeline["name"].as_str().unwrap()).collect();
        assert!(acknowledged.iter().all(|name| names.contains(&name.as_str())), "{acknowledged:?} {names:?}");
        for name in names {
            let (outputs, records) = &expected[name];
            assert_eq!(run_on(&client, name, records), *outputs, "{name}");
        }
        node.kill_hard();
    }
    assert!(acknowledged.len() >= 6, "{acknowledged:?}");
}

#[test]
fn what_is_no_pipeline_or_object_is_refused_by_node_and_field() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(&dir.path().join("data"));
    let client = node.client();
    let pipeline = |nodes: Value| json!({"name": "p", "nodes": nodes, "output": "a"});
    let missing = format!("sha256:{}", "0".repeat(64));
    for (body, pointer, words) in [
        (pipeline(json!({"a": {"op": "nothing"}})), "/nodes/a", "unknown variant"),
        (pipeline(json!({"a": {"op": "cyclic", "input": "b", "period": 24}})), "/nodes/a/input", "no node"),
        (pipeline(json!({"a": {"op": "cyclic", "input": "item.x", "period": -1}})), "/nodes/a/period", "period"),
        (
            pipeline(json!({"a": {"op": "trees", "input": "item.x", "ensemble": missing}})),
            "/nodes/a/ensemble",
            "no object",
        ),
    ] {
        let refused = client.post("/v1/pipelines", &body);
        let problem = refused.json();
        assert_eq!(
            (refused.status, &problem["errors"][0]["pointer"]),
            (422, &json!(pointer)),
            "{body}: {}",
            refused.text
        );
        assert!(refused.text.contains(words), "{body}: {}", refused.text);
    }
    let bad_name = json!({"name": "a/b", "nodes": {"a": {"op": "constant", "numbers": [1]}}, "output": "a"});
    assert_eq!(client.post("/v1/pipelines", &bad_name).status, 422);
    let put = |name: &str, media_type: &str, bytes: &str| {
        client.try_send("PUT", &format!("/v1/objects/{name}"), media_type, bytes).unwrap()
    };
    assert_eq!(put(&missing, "application/octet-stream", "x").status, 422, "another checksum");
    assert_eq!(put("sha256:12", "application/octet-stream", "x").status, 404);
    assert_eq!(put(&missing, "application/json", "{}").status, 415);
    // The right checksum of what is no object.
    let of_x = "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
    let refused = put(of_x, "application/octet-stream", "x");
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert_eq!(client.get(&format!("/v1/objects/{of_x}")).status, 404);
    // Wide outputs are bounded for all records together.
    let wide =
        json!({"name": "wide", "output": "a", "nodes": {"a": {"op": "hash", "input": "item.x", "hash_bits": 16}}});
    client.post("/v1/pipelines", &wide).expect(201);
    let rows = |count: usize| json!({"records": vec![json!({"item": {"x": "y"}}); count]});
    let outputs = run_on(&client, "wide", &rows(16));
    assert_eq!(outputs.as_array().map(Vec::len), Some(16));
    assert_eq!(outputs[0].as_array().map(Vec::len), Some(1 << 16));
    let refused = client.post("/v1/pipelines/wide/run", &rows(17));
    assert!(refused.status == 422 && refused.text.contains("at most 1048576 numbers"), "{}", refused.text);
    // Declared, and not to be run before it is fitted.
    let unfitted = json!({"name": "p", "nodes": {"a": {"op": "scale", "input": "item.x"}}, "output": "a"});
    let declared = client.post("/v1/pipelines", &unfitted).expect(201);
    assert_eq!(declared["unfitted"], json!(["a.moments"]));
    let refused = client.post("/v1/pipelines/p/run", &json!({"records": [{}]}));
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert!(refused.text.contains("not fitted"), "{}", refused.text);
}

#[test]
fn a_damaged_object_is_named_and_comes_back_when_it_is_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, rows) = fitted(dir.path(), "interest");
    let records = records(&rows);
    let data = dir.path().join("data");
    let node = NodeProcess::serve(&data);
    declare(&folder, node.client().url());
    let expected = run_on(&node.client(), "interest", &records);
    assert_eq!(node.terminate().code, Some(0));
    let file = fs::read_dir(data.join("objects")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let node = NodeProcess::serve(&data);
    let refused = node.client().post("/v1/pipelines/interest/run", &records);
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(refused.status >= 400 && refused.text.contains(name), "{}: {}", refused.status, refused.text);
    declare(&folder, node.client().url());
    assert_eq!(run_on(&node.client(), "interest", &records), expected);
}

#[test]
fn every_node_of_a_cluster_runs_the_pipelines_and_keeps_their_objects() {
    let Some(mut cluster) = Cluster::start(3, 1) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (folder, rows) = fitted(dir.path(), "interest");
    let (expected, records) = (Value::from(outputs(&folder, &rows)), records(&rows));
    // Through a node that need not be the coordinator.
    let (coordinator, _) = cluster.await_owners();
    let other = (coordinator + 1) % 3;
    declare(&folder, cluster.client(other).url());
    for node in 0..3 {
        let runs = || {
            let reply = cluster.client(node).post("/v1/pipelines/interest/run", &records);
            (reply.status == 200).then(|| reply.json()["outputs"].clone())
        };
        assert_eq!(eventually("the node runs the pipeline", runs), expected);
    }
    let absent = json!({"name": "absent", "output": "a", "nodes": {
        "a": {"op": "trees", "input": "item.x", "ensemble": format!("sha256:{}", "0".repeat(64))}}});
    for node in 0..3 {
        let refused = cluster.client(node).post("/v1/pipelines", &absent);
        assert!(refused.status == 422 && refused.text.contains("there is no object"), "{}", refused.text);
    }
    // A damaged copy of an object is replaced by that of another node.
    assert_eq!(cluster.terminate(other).code, Some(0));
    for object in fs::read_dir(cluster.data_dir(other).join("objects")).unwrap() {
        fs::write(object.unwrap().path(), "damaged").unwrap();
    }
    cluster.start_node(other);
    cluster.await_owners();
    assert_eq!(run_on(&cluster.client(other), "interest", &records), expected);
    // The node that has taken the objects dies, and with it its disk.
    let (coordinator, _) = cluster.await_owners();
    cluster.kill(coordinator);
    cluster.await_owners();
    for node in (0..3).filter(|node| *node != coordinator) {
        assert_eq!(run_on(&cluster.client(node), "interest", &records), expected);
    }
}
