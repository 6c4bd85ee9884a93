//! The demo is prepared once: a finished one is served again as it was, and one that broke off is not mistaken for it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use celeris_tests::scene::{DATASET_RATINGS, write_dataset};
use celeris_tests::{Node, binary};
use serde_json::Value;

/// The one model of a demo that has become ready.
fn model(node: &Node) -> Value {
    let models = node.client().get("/v1/models").expect(200)["models"].as_array().unwrap().clone();
    assert_eq!(models.len(), 1, "{models:?}");
    models[0].clone()
}

/// Starts a demo and kills it once it says that it has come to `phase`.
fn break_off(data_dir: &Path, dataset: &Path, phase: &str) {
    let mut command = binary::command();
    command.args(["demo", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data_dir).arg("--dataset").arg(dataset);
    let mut child = command.spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    // The last line of the preparation ends the wait where the phase went by unseen.
    let reached = said.take_while(|line| !line.starts_with("open ")).any(|line| line.starts_with(phase));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(reached, "the demo never came to {phase}");
}

#[test]
fn a_demo_that_broke_off_is_prepared_to_the_end() {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    for phase in ["loading", "observing"] {
        let dir = tempfile::tempdir().unwrap();
        break_off(dir.path(), dataset.path(), phase);
        let node = Node::demo(dir.path(), Some(dataset.path()));
        let model = model(&node);
        assert_eq!(model["observations"], DATASET_RATINGS, "broken off at {phase}: every rating is there once");
        assert!(model["active_version"].as_u64() > Some(1), "broken off at {phase}: what serves is trained: {model}");
    }
}

#[test]
fn a_finished_demo_is_served_again_as_it_was() {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    let dir = tempfile::tempdir().unwrap();
    let node = Node::demo(dir.path(), Some(dataset.path()));
    let first = model(&node);
    assert_eq!(node.terminate().code, Some(0));
    let node = Node::demo(dir.path(), Some(dataset.path()));
    let again = model(&node);
    for field in ["observations", "active_version", "versions", "created"] {
        assert_eq!(again[field], first[field], "{field}");
    }
}

#[test]
fn exit_when_ready_ends_in_order() {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    let dataset = dataset.path().to_str().unwrap();
    let finished = binary::run(["demo", "--listen", "127.0.0.1:0", "--dataset", dataset, "--exit-when-ready"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(
        finished.stdout.starts_with("ready http://127.0.0.1:") && finished.stdout.lines().count() == 1,
        "{finished:?}"
    );
}
