//! The examples of the OpenAPI description are requests to a demo node and its replies.
//!
//! With `CELERIS_WRITE_EXAMPLES=1` the test writes the replies that it gets to the file.

use std::collections::BTreeMap;
use std::{env, fs};

use celeris_tests::{Client, NodeProcess, eventually};
use serde_json::Value;

/// Requests in order, each with `operation`, `method`, `path`, `request` unless there is no body,
/// and `reply`.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/openapi/examples.json");

/// Ids that nodes draw. Paths and requests contain those of earlier replies.
const IDS: [&str; 3] = ["decision_id", "job", "study"];

/// Values that differ from run to run: times, durations, and numbers drawn at random.
const VOLATILE: [&str; 7] = ["at", "created", "finished", "since", "seconds", "seed", "train_seconds"];

/// Two processors may round differently; training and replay multiply that.
const TOLERANCE: f64 = 1e-3;

fn is_close(example: f64, reply: f64) -> bool {
    (example - reply).abs() <= TOLERANCE * example.abs().max(1.0)
}

/// Asserts that the node replies as in the example; returns what the ids of the example are now.
fn compare(place: &str, example: &Value, reply: &Value, ids: &mut BTreeMap<String, String>) {
    let key = place.rsplit('/').next().unwrap();
    match (example, reply) {
        (Value::Object(example), Value::Object(reply)) => {
            assert!(example.keys().eq(reply.keys()), "{place}: {:?} and {:?}", example.keys(), reply.keys());
            for (name, value) in example {
                compare(&format!("{place}/{name}"), value, &reply[name], ids);
            }
        }
        (Value::Array(example), Value::Array(reply)) => {
            assert_eq!(example.len(), reply.len(), "{place}: {reply:?}");
            example.iter().zip(reply).for_each(|(example, reply)| compare(place, example, reply, ids));
        }
        (Value::String(example), Value::String(reply)) if IDS.contains(&key) => {
            ids.insert(example.clone(), reply.clone());
        }
        // The token of the next page contains the time.
        (Value::String(_), Value::String(_)) if key == "next" => {}
        (Value::Number(_), Value::Number(_)) if VOLATILE.contains(&key) => {}
        (Value::Number(example), Value::Number(reply)) => {
            let [example, reply] = [example, reply].map(|number| number.as_f64().unwrap());
            assert!(is_close(example, reply), "{place}: {example} and {reply}");
        }
        _ => assert_eq!(example, reply, "{place}"),
    }
}

/// The text with today's ids.
fn with_ids(text: &str, ids: &BTreeMap<String, String>) -> String {
    ids.iter().fold(text.to_owned(), |text, (example, now)| text.replace(example, now))
}

fn send(node: &Client, method: &str, path: &str, request: &Value) -> Value {
    let body = if request.is_null() { String::new() } else { request.to_string() };
    let reply = node.try_send(method, path, "application/json", &body).unwrap().json();
    assert!(reply["status"].is_null(), "{method} {path}: {reply}");
    reply
}

#[test]
fn examples_are_replies_of_a_demo_node() {
    let dir = tempfile::tempdir().unwrap();
    let demo = NodeProcess::demo(dir.path(), None);
    let mut examples: Vec<Value> = serde_json::from_str(&fs::read_to_string(EXAMPLES).unwrap()).unwrap();
    let writes = env::var_os("CELERIS_WRITE_EXAMPLES").is_some();
    let mut ids = BTreeMap::new();
    for example in &mut examples {
        let [operation, method, path] = ["operation", "method", "path"].map(|part| example[part].as_str().unwrap());
        let path = with_ids(path, &ids);
        let request: Value = serde_json::from_str(&with_ids(&example["request"].to_string(), &ids)).unwrap();
        let mut reply = send(&demo.client(), method, &path, &request);
        eventually("the job or the study ends", || {
            if ["get_job", "get_study"].contains(&operation) {
                reply = send(&demo.client(), method, &path, &request);
            }
            (!["queued", "running", "ending"].iter().any(|state| reply["state"] == *state)).then_some(())
        });
        if writes {
            for (id, now) in
                IDS.into_iter().filter_map(|id| Some((example["reply"][id].as_str()?, reply[id].as_str()?)))
            {
                ids.insert(id.to_owned(), now.to_owned());
            }
            example["path"] = path.into();
            if !request.is_null() {
                example["request"] = request;
            }
            example["reply"] = reply;
        } else {
            compare(operation, &example["reply"], &reply, &mut ids);
        }
    }
    assert!(examples.len() > 15, "only {} examples", examples.len());
    if writes {
        fs::write(EXAMPLES, serde_json::to_string_pretty(&examples).unwrap() + "\n").unwrap();
    }
}
