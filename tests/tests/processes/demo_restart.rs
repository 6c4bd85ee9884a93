//! The demo is prepared once: a complete one is served again unchanged, and an interrupted one is
//! prepared to completion.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use celeris_tests::fixtures::{DATASET_RATINGS, write_dataset};
use celeris_tests::{NodeProcess, binary};
use serde_json::Value;

/// The only model of a ready demo.
fn model(node: &NodeProcess) -> Value {
    let models = node.client().get("/v1/models").expect(200)["models"].as_array().unwrap().clone();
    assert_eq!(models.len(), 1, "{models:?}");
    models[0].clone()
}

/// Starts a demo with these options and kills it once it reports `phase`.
fn interrupt(data_dir: &Path, options: &[&str], phase: &str) {
    let mut command = binary::command();
    command.args(["demo", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data_dir).args(options);
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    // The last line of the preparation ends the wait if the phase was not reported.
    let reached = lines.take_while(|line| !line.starts_with("open ")).any(|line| line.starts_with(phase));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(reached, "the demo never reported {phase}");
}

#[test]
fn an_interrupted_demo_is_prepared_to_completion() {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    for phase in ["loading", "observing"] {
        let dir = tempfile::tempdir().unwrap();
        interrupt(dir.path(), &["--dataset", dataset.path().to_str().unwrap()], phase);
        let node = NodeProcess::demo(dir.path(), Some(dataset.path()));
        let model = model(&node);
        assert_eq!(model["observations"], DATASET_RATINGS, "interrupted at {phase}: every rating is there once");
        assert!(
            model["active_version"].as_u64() > Some(1),
            "interrupted at {phase}: a trained version serves: {model}"
        );
    }
}

#[test]
fn a_complete_demo_is_served_again_unchanged() {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::demo(dir.path(), Some(dataset.path()));
    let first = model(&node);
    assert_eq!(node.terminate().code, Some(0));
    let node = NodeProcess::demo(dir.path(), Some(dataset.path()));
    let again = model(&node);
    for field in ["observations", "active_version", "versions", "created"] {
        assert_eq!(again[field], first[field], "{field}");
    }
    assert_eq!(node.terminate().code, Some(0));
    // Its ratings have no contexts, and get none.
    let path = dir.path().to_str().unwrap();
    let refused = binary::run(["demo", "--contexts", "--listen", "127.0.0.1:0", "--data-dir", path]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--data-dir"), "{refused:?}");
}

#[test]
fn an_interrupted_demo_with_contexts_is_resumed_with_them() {
    let dir = tempfile::tempdir().unwrap();
    interrupt(dir.path(), &["--contexts"], "observing");
    let path = dir.path().to_str().unwrap();
    let refused = binary::run(["demo", "--listen", "127.0.0.1:0", "--exit-when-ready", "--data-dir", path]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("start it with --contexts"), "{refused:?}");
    let node = NodeProcess::demo_in_contexts(dir.path());
    assert_eq!(model(&node)["features"][1]["part"], "moment");
}

#[test]
fn exit_when_ready_exits_cleanly() {
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
