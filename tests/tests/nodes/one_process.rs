//! Nodes in one process: several at once, and one after another on the same data directory.

use celeris_tests::Node;
use celeris_tests::fixtures::{create_model, weights};
use serde_json::json;

#[test]
fn a_stopped_node_opens_again_with_the_same_states() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::serve(dir.path());
    create_model(&node.client(), "films", 1);
    let mut learnt = Vec::new();
    for round in 0..5 {
        node.model("films").observe(&json!({"user": "ann", "item": format!("item-{round}"), "label": 4}));
        learnt.push(weights(&node.model("films"), "ann"));
        node.stop();
        node = Node::serve(dir.path());
        assert_eq!(weights(&node.model("films"), "ann"), learnt[round]);
    }
    learnt.dedup();
    assert_eq!(learnt.len(), 5, "every observation changes the weights");
}

#[test]
fn nodes_of_one_process_have_separate_models_and_states() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [first, second] = [&dirs[0], &dirs[1]].map(|dir| Node::serve(dir.path()));
    for node in [&first, &second] {
        create_model(&node.client(), "films", 1);
    }
    first.model("films").observe(&json!({"user": "ann", "item": "item-1", "label": 4}));
    let epochs = [&first, &second].map(|node| node.model("films").user("ann", 0)["user_epoch"].clone());
    assert_eq!(epochs, [json!(1), json!(0)]);
    first.stop();
    second.model("films").observe(&json!({"user": "ann", "item": "item-1", "label": 4}));
    assert_eq!(second.model("films").user("ann", 0)["user_epoch"], 1, "it serves after the other has stopped");
}
