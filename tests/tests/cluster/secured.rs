//! Keys in a cluster whose nodes know each other by a secret.

use std::fs;

use celeris_tests::{Client, Cluster, eventually};
use serde_json::{Value, json};

use crate::load::MODEL;

#[test]
fn a_key_is_in_force_on_every_node_and_nodes_answer_each_other_only() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    let Some(mut cluster) = Cluster::configured(3, 1, &format!("secret_file = {secret:?}\n")) else { return };
    // Before there is a key, too.
    let copy = |client: &Client| client.get("/v1/cluster/objects/x").status;
    assert_eq!(copy(&cluster.client(0)), 401);
    let hop = cluster.client(1).try_with(("GET", "/v1/models"), &[("celeris-hop", "1")], &Value::Null).unwrap();
    assert_eq!(hop.status, 401);
    let wrong = [("celeris-node-secret", "0123456789abcdef0123456789abcdeF")];
    // For the client of a node with another secret, it is not its key that is wrong.
    assert_eq!(cluster.client(1).try_with(("GET", "/v1/models"), &wrong, &Value::Null).unwrap().status, 503);
    let made = |client: &Client, body: &Value| {
        let made = client.post("/v1/keys", body).expect(201);
        made["key"].as_str().unwrap().to_owned()
    };
    let admin = made(&cluster.client(1), &json!({"name": "root", "roles": ["admin"]}));
    let is_closed = |client: &Client| (client.get("/v1/models").status == 401).then_some(());
    for node in 0..3 {
        eventually("the node has the key", || is_closed(&cluster.client(node)));
    }
    let keyed = |cluster: &Cluster, node: usize, key: &str| cluster.client(node).with_key(key);
    keyed(&cluster, 2, &admin).post("/v1/models", &json!({"name": MODEL, "dim": 8})).expect(201);
    let web =
        made(&keyed(&cluster, 0, &admin), &json!({"name": "web", "roles": ["observe", "predict"], "models": [MODEL]}));
    let status = |client: &Client, user: usize| {
        client.model(MODEL).post("observe", &json!({"user": format!("u{user}"), "item": "i", "label": 1})).status
    };
    for node in 0..3 {
        eventually("the node has key and model", || {
            (keyed(&cluster, node, &web).get(&format!("/v1/models/{MODEL}")).status == 200).then_some(())
        });
        // Users of all nodes, so that requests are forwarded.
        assert!((0..12).all(|user| status(&keyed(&cluster, node, &web), user) == 200));
        assert!((0..12).all(|user| status(&cluster.client(node), user) == 401));
        let lines: Vec<String> =
            (0..30).map(|user| json!({"user": format!("l{user}"), "item": "i", "label": 1}).to_string()).collect();
        let mut answers = keyed(&cluster, node, &web).model(MODEL).observe_lines(&lines.join("\n")).unwrap();
        assert!(answers.all(|answer| answer.is_ok()));
        assert_eq!(keyed(&cluster, node, &web).get("/v1/keys").status, 403);
    }
    // Changes name who made them, also through another node.
    let change = json!({"keep_versions": 4});
    for node in 0..3 {
        let path = format!("/v1/models/{MODEL}");
        keyed(&cluster, node, &admin).try_json("PATCH", &path, &change).unwrap().expect(200);
        let events = keyed(&cluster, node, &admin).get(&format!("{path}/events")).expect(200);
        assert!(events["events"][0]["principal"].as_str().unwrap().ends_with("(root)"), "{events}");
    }
    // A node that comes later gets the store, and the keys, of the others.
    let late = cluster.add_node();
    eventually("the late node has the keys", || {
        (keyed(&cluster, late, &web).get(&format!("/v1/models/{MODEL}")).status == 200).then_some(())
    });
    assert_eq!(cluster.client(late).get("/v1/models").status, 401);
    let id = web.split('_').nth(1).unwrap();
    keyed(&cluster, late, &admin).try_json("DELETE", &format!("/v1/keys/{id}"), &Value::Null).unwrap().expect(200);
    for node in 0..=late {
        eventually("the node refuses the key", || is_closed(&keyed(&cluster, node, &web)));
    }
}
