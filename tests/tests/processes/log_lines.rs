//! An event is one log line, also if clients put line breaks into reasons and names.

use celeris_tests::NodeProcess;
use celeris_tests::fixtures::create_model;
use serde_json::json;

#[test]
fn clients_cannot_inject_log_lines() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", 91);
    let forged = "2026-01-01T00:00:00.000000Z ERROR celeris: forged";
    let why = format!("harmless\n{forged}\r{forged}\u{2028}{forged}\u{1b}[31m");
    films.post("retrain", &json!({"why": why})).expect(202);
    let refused = films.post("retrain", &json!({"why": "x".repeat(1_001)})).expect(422);
    assert!(refused["detail"].as_str().unwrap().contains("why"), "{refused}");

    let exit = node.terminate();
    let logged: Vec<&str> = exit.stderr.lines().filter(|line| line.contains("forged")).collect();
    assert_eq!(logged.len(), 1, "{}", exit.stderr);
    assert!(logged[0].contains(r"harmless\n2026-01-01T00:00:00.000000Z ERROR celeris: forged\r2026"), "{}", logged[0]);
    assert!(!exit.stderr.contains(['\u{1b}', '\r', '\u{2028}']), "{}", exit.stderr);
}
