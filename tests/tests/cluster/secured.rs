//! Keys in a cluster whose nodes know each other by a secret.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use celeris_tests::{Authority, Certificate, Client, Cluster, Nats, binary, eventually};
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

const SECRETS: [&str; 2] = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];

/// A file with a secret.
fn file(folder: &Path, name: &str, secret: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("{secret}\n")).unwrap();
    path
}

/// Lines of users of all nodes, so that some are forwarded.
fn observe_through_all(cluster: &Cluster, nodes: usize) {
    for node in 0..nodes {
        eventually("the node has the model", || {
            (cluster.client(node).get(&format!("/v1/models/{MODEL}")).status == 200).then_some(())
        });
        for user in 0..8 {
            let body = json!({"user": format!("u{user}"), "item": "i", "label": 1});
            cluster.model(node, MODEL).post("observe", &body).expect(200);
        }
        let lines: Vec<String> =
            (0..20).map(|user| json!({"user": format!("l{user}"), "item": "i", "label": 1}).to_string()).collect();
        assert!(cluster.model(node, MODEL).observe_lines(&lines.join("\n")).unwrap().all(|answer| answer.is_ok()));
    }
}

#[test]
fn nodes_and_servers_show_each_other_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let Some(authority) = Authority::unless_missing(dir.path(), "own") else { return };
    let Some(other) = Authority::unless_missing(dir.path(), "other") else { return };
    let (server, node) = (authority.issue("nats"), authority.issue("node"));
    let (secret, password) = (file(dir.path(), "secret", SECRETS[0]), file(dir.path(), "password", "open sesame"));
    let ca = authority.ca();
    let Certificate { cert, key } = &server;
    let settings = format!(
        "tls {{ cert_file: {cert:?}, key_file: {key:?}, ca_file: {ca:?}, verify: true }}\n\
         authorization {{ user: celeris, password: \"open sesame\" }}"
    );
    let Some(nats) = Nats::configured(1, &settings) else { return };
    let with = |password: &Path, ca: &Path| {
        let Certificate { cert, key } = &node;
        format!(
            "secret_file = {secret:?}\nnats_user = \"celeris\"\nnats_password_file = {password:?}\n\
             [cluster.tls]\nca = {ca:?}\ncert = {cert:?}\nkey = {key:?}\n\
             [server.tls]\ncert = {cert:?}\nkey = {key:?}\nclient_ca = {ca:?}\n"
        )
    };
    let mut cluster = Cluster::encrypted(nats, (&ca, node.clone()), &with(&password, &ca));
    for _ in 0..2 {
        cluster.add_node();
    }
    cluster.await_owners();
    assert!(cluster.client(0).url().starts_with("https://"));
    cluster.client(0).post("/v1/models", &json!({"name": MODEL, "dim": 4})).expect(201);
    observe_through_all(&cluster, 2);
    // In the clear, a node says nothing.
    let address = cluster.client(0).url().strip_prefix("https://").unwrap().to_owned();
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // It may be reset as well.
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1 200"), "{answer:?}");
    // A command that copies a node's store goes the same way, and is refused without a certificate.
    let url = cluster.client(0).url().to_owned();
    let out = dir.path().join("backup");
    let mut backup = binary::command();
    backup.args(["backup", "--url", &url, "--ca-file"]).arg(&ca).arg("--to").arg(&out);
    assert!(!backup.output().unwrap().status.success());
    // A node with a wrong password is refused; one with another authority waits for servers that it can trust.
    let wrong = file(dir.path(), "wrong", "open barley");
    let refusals =
        [(with(&wrong, &ca), 2, "refuse this node"), (with(&password, &other.ca()), 1, "invalid peer certificate")];
    for (settings, code, words) in refusals {
        cluster.set_settings(&settings);
        let exit = cluster.try_add_node().unwrap_err();
        assert!(exit.code == Some(code) && exit.stderr.contains(words), "{exit:?}");
        assert!(!exit.stderr.contains("sesame") && !exit.stderr.contains("barley"), "{exit:?}");
    }
    // A password that has changed is read for the next connection.
    cluster.set_settings(&with(&password, &ca));
    let late = cluster.add_node();
    cluster.await_shards(late);
    observe_through_all(&cluster, 3);
}

#[test]
fn a_node_without_the_secret_of_its_cluster_does_not_join() {
    let dir = tempfile::tempdir().unwrap();
    let secrets = [file(dir.path(), "first", SECRETS[0]), file(dir.path(), "second", SECRETS[1])];
    let with = |secret: &Path| format!("secret_file = {secret:?}\n");
    let Some(mut cluster) = Cluster::configured(1, 1, &with(&secrets[0])) else { return };
    cluster.client(0).post("/v1/models", &json!({"name": MODEL, "dim": 4})).expect(201);
    let refused = |cluster: &mut Cluster, settings: &str, why: &str| {
        cluster.set_settings(settings);
        let exit = cluster.try_add_node().unwrap_err();
        assert!(exit.code == Some(2) && exit.stderr.contains(why), "{why}: {exit:?}");
    };
    let set_secret = |cluster: &mut Cluster, settings: &str| {
        cluster.set_settings(settings);
        binary::command().args(["cluster", "secret", "--config"]).arg(cluster.config(0)).output().unwrap()
    };
    refused(&mut cluster, "", "cluster.secret_file");
    refused(&mut cluster, &with(&secrets[1]), "another secret");
    let nodes = cluster.client(0).get("/v1/cluster").expect(200)["map"]["nodes"].as_array().unwrap().len();
    assert_eq!(nodes, 1, "a node that was refused is none of the cluster");
    cluster.set_settings(&with(&secrets[0]));
    let second = cluster.add_node();
    cluster.await_shards(second);
    observe_through_all(&cluster, 2);
    // It is not changed below nodes that run.
    let output = set_secret(&mut cluster, &with(&secrets[1]));
    assert!(
        output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("these nodes"),
        "{output:?}"
    );
    for node in [second, 0] {
        assert_eq!(cluster.terminate(node).code, Some(0));
    }
    // Nor is a node let in that is the first to come.
    refused(&mut cluster, "", "cluster.secret_file");
    cluster.set_settings("");
    assert!(cluster.try_start_node(0).is_err());
    let output = set_secret(&mut cluster, &with(&secrets[1]));
    assert!(output.status.success(), "{output:?}");
    refused(&mut cluster, &with(&secrets[0]), "another secret");
    cluster.set_settings(&with(&secrets[1]));
    [0, second].into_iter().for_each(|node| cluster.start_node(node));
    cluster.await_owners();
    observe_through_all(&cluster, 2);
}

#[test]
fn a_cluster_without_a_secret_gets_one_once_all_nodes_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let secret = format!("secret_file = {:?}\n", file(dir.path(), "secret", SECRETS[0]));
    let Some(mut cluster) = Cluster::start(2, 1) else { return };
    cluster.client(0).post("/v1/models", &json!({"name": MODEL, "dim": 4})).expect(201);
    // As long as a node without it runs, a node with one does not join: they would not answer each other.
    cluster.set_settings(&secret);
    let exit = cluster.try_add_node().unwrap_err();
    assert!(exit.code == Some(2) && exit.stderr.contains("cluster.secret_file"), "{exit:?}");
    for node in [1, 0] {
        assert_eq!(cluster.terminate(node).code, Some(0));
    }
    [0, 1].into_iter().for_each(|node| cluster.start_node(node));
    cluster.await_owners();
    observe_through_all(&cluster, 2);
    cluster.set_settings("");
    assert!(cluster.try_add_node().is_err());
}
