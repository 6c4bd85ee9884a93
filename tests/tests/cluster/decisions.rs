//! Decisions of users who have moved to another node.

use celeris_tests::{Cluster, eventually};
use serde_json::{Value, json};

use crate::load::MODEL;

/// The decision about a user's ranking, and the item at its first place.
fn decide(cluster: &Cluster, user: &str) -> (String, String) {
    let body = json!({"user": user, "items": ["item-1", "item-2", "item-3"], "k": 2});
    let ranked = cluster.model(0, MODEL).post("topk", &body).expect(200);
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&ranked["decision_id"]), text(&ranked["items"][0]["item"]))
}

#[test]
fn rewards_find_the_decisions_of_users_who_have_moved() {
    let Some(mut cluster) = Cluster::start(3, 1) else { return };
    cluster.client(0).post("/v1/models", &json!({"name": MODEL, "dim": 8})).expect(201);
    for node in 0..3 {
        let serves = || (cluster.client(node).get(&format!("/v1/models/{MODEL}")).status == 200).then_some(());
        eventually("the node has the model", serves);
    }
    let users: Vec<String> = (0..24).map(|user| format!("user-{user}")).collect();
    let decided: Vec<(String, String)> = users.iter().map(|user| decide(&cluster, user)).collect();
    // All users of a node move, and its process stays; then the node is started again.
    cluster.client(1).post("/v1/cluster/drain", &json!({})).expect(202);
    eventually("the node owns nothing", || (!cluster.await_owners().1.contains(&1)).then_some(()));
    let reward = |user: usize| {
        let (decision, item) = &decided[user];
        json!({"user": users[user], "item": item, "label": 4, "decision_id": decision, "observation_id": format!("o-{user}")})
    };
    for user in 0..12 {
        cluster.model(user % 3, MODEL).post("observe", &reward(user)).expect(200);
    }
    let lines: Vec<String> = (12..24).map(|user| reward(user).to_string()).collect();
    let mut answers = cluster.model(2, MODEL).observe_lines(&lines.join("\n")).unwrap();
    assert!(answers.all(|answer| answer.is_ok_and(|answer| answer["user_epoch"] == 1)));
    assert_eq!(cluster.terminate(1).code, Some(0));
    cluster.start_node(1);
    cluster.await_owners();
    for (user, (decision, item)) in decided.iter().enumerate() {
        let found = cluster.model(1, MODEL).get(&format!("decisions/{decision}")).expect(200);
        assert_eq!(found["user"], users[user].as_str());
        let outcomes = found["outcomes"].as_array().expect("a list");
        assert_eq!(outcomes.len(), 1, "{found}");
        assert_eq!((&outcomes[0]["item"], &outcomes[0]["joined"]), (&json!(item), &json!("slot")), "{found}");
    }
    // A decision that no node has made stays unknown.
    let never =
        json!({"user": "user-1", "item": "item-1", "label": 1, "decision_id": "0199aa00-0000-7000-8000-000000000000"});
    cluster.model(2, MODEL).post("observe", &never).expect(200);
}
