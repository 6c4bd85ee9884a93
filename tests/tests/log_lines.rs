//! An event is one line of the log, whatever clients write into reasons and names.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use celeris_tests::Node;
use celeris_tests::scene::create_model;
use serde_json::json;

#[test]
fn no_client_writes_lines_of_its_own_into_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 91);
    let forged = "2026-01-01T00:00:00.000000Z ERROR celeris: forged";
    let why = format!("harmless\n{forged}\r{forged}\u{2028}{forged}\u{1b}[31m");
    films.post("retrain", &json!({"why": why})).expect(202);
    let refused = films.post("retrain", &json!({"why": "x".repeat(1_001)})).expect(422);
    assert!(refused["detail"].as_str().unwrap().contains("why"), "{refused}");

    let exit = node.terminate();
    let told: Vec<&str> = exit.stderr.lines().filter(|line| line.contains("forged")).collect();
    assert_eq!(told.len(), 1, "{}", exit.stderr);
    assert!(told[0].contains(r"harmless\n2026-01-01T00:00:00.000000Z ERROR celeris: forged\r2026"), "{}", told[0]);
    assert!(!exit.stderr.contains(['\u{1b}', '\r', '\u{2028}']), "{}", exit.stderr);
}
