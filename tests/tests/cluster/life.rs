//! Nodes that come and go, copies of the store, and the loss of all logs.

use std::fs::{self, File};
use std::path::Path;

use celeris_tests::{Client, Cluster, binary, eventually};
use serde_json::{Value, json};

use crate::load::MODEL;

fn create_model(cluster: &Cluster) {
    cluster.client(0).post("/v1/models", &json!({"name": MODEL, "dim": 8})).expect(201);
    for node in 0..cluster.len() {
        await_model(&cluster.client(node));
    }
}

pub fn await_model(node: &Client) {
    let path = format!("/v1/models/{MODEL}/predict");
    let body = json!({"user": "nobody", "items": ["item-1"]});
    eventually("the node serves the model", || (node.post(&path, &body).status == 200).then_some(()));
}

/// Users `from..to` observe one item each.
fn observe(node: &Client, users: std::ops::Range<u32>) {
    for user in users {
        let body = json!({"user": format!("user-{user}"), "item": "item-1", "label": 4, "observation_id": format!("o-{user}")});
        node.post(&format!("/v1/models/{MODEL}/observe"), &body).expect(200);
    }
}

/// Each user has one event, whichever node is asked.
fn assert_users(cluster: &Cluster, users: std::ops::Range<u32>) {
    for user in users {
        for node in 0..cluster.len() {
            let view = cluster.model(node, MODEL).user(&format!("user-{user}"), 10);
            assert_eq!(view["user_epoch"], 1, "user-{user} by node {node}");
        }
    }
}

fn run(arguments: &[&str]) -> binary::Finished {
    binary::run(arguments)
}

#[test]
fn a_node_that_joins_late_gets_a_copy_and_users() {
    let Some(mut cluster) = Cluster::configured(2, 1, "trim_delay = \"1s\"") else { return };
    create_model(&cluster);
    observe(&cluster.client(0), 0..60);
    let is_trimmed = |node: &Client| {
        let metrics = node.get("/metrics").text;
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        let trimmed = metrics.lines().filter(|line| line.starts_with("celeris_cluster_trimmed_sequence{"));
        trimmed.filter_map(value).any(|first| first > 1.0)
    };
    eventually("a log is trimmed", || {
        observe(&cluster.client(1), 0..1);
        (0..2).any(|node| is_trimmed(&cluster.client(node))).then_some(())
    });
    let node = cluster.add_node();
    cluster.await_shards(node);
    await_model(&cluster.client(node));
    observe(&cluster.client(node), 60..70);
    assert_users(&cluster, 0..70);
}

#[test]
fn a_drained_node_owns_nothing_and_goes_on_answering() {
    let Some(mut cluster) = Cluster::start(3, 1) else { return };
    create_model(&cluster);
    let client = cluster.client(1);
    let drained = run(&["cluster", "drain", "--url", client.url()]);
    assert_eq!(drained.code, Some(0), "{}", drained.stderr);
    let (coordinator, owners) = cluster.await_owners();
    assert!(coordinator != 1 && !owners.contains(&1), "{owners:?}");
    observe(&client, 0..20);
    let status = run(&["cluster", "status", "--url", client.url()]);
    assert!(status.stdout.contains("draining") && status.stdout.contains("catalog"), "{}", status.stdout);
    assert_eq!(cluster.terminate(1).code, Some(0));
    cluster.start_node(1);
    cluster.await_shards(1);
    assert_users(&cluster, 0..20);
}

#[test]
fn a_cluster_goes_on_from_a_copy_after_the_loss_of_all_logs() {
    let Some(mut cluster) = Cluster::start(2, 1) else { return };
    create_model(&cluster);
    observe(&cluster.client(0), 0..30);
    for node in 0..2 {
        assert_eq!(cluster.terminate(node).code, Some(0));
    }
    cluster.nats.kill(0);
    fs::remove_dir_all(cluster.nats.store(0)).unwrap();
    cluster.nats.start_server(0);
    cluster.nats.await_ready();
    let (data_dir, config) = (cluster.data_dir(0).display().to_string(), cluster.config(0).display().to_string());
    let recover = ["cluster", "recover", "--data-dir", &data_dir, "--config", &config];
    let asked = run(&recover);
    assert_eq!(asked.code, Some(0), "{}", asked.stderr);
    assert!(asked.stdout.contains("incarnation 1, with 30 events"), "{}", asked.stdout);
    let other = cluster.data_dir(0).with_extension("other.toml");
    fs::write(&other, fs::read_to_string(&config).unwrap().replace("name = \"test\"", "name = \"other\"")).unwrap();
    let refused = run(&["cluster", "recover", "--data-dir", &data_dir, "--config", &other.display().to_string()]);
    assert_eq!(refused.code, Some(2), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("a copy of cluster test"), "{}", refused.stderr);
    let done = run(&[&recover[..], &["--yes"]].concat());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("incarnation 2"), "{}", done.stdout);
    cluster.start_node(0);
    let lock = File::options().write(true).open(cluster.data_dir(1).join("LOCK")).unwrap();
    lock.lock().unwrap();
    let exit = cluster.try_start_node(1).unwrap_err();
    assert!(exit.stderr.contains("in use by another process"), "{}", exit.stderr);
    assert!(!exit.stderr.contains("joins"), "{}", exit.stderr);
    assert!(cluster.data_dir(1).join("db").is_dir(), "what another process has open is left alone");
    drop(lock);
    cluster.start_node(1);
    cluster.await_owners();
    for node in 0..2 {
        await_model(&cluster.client(node));
    }
    assert!(cluster.data_dir(1).join("db-of-incarnation-1").is_dir(), "the other copy is set aside");
    observe(&cluster.client(1), 30..40);
    assert_users(&cluster, 0..40);
}

#[test]
fn a_recovery_loses_nothing_that_the_logs_have_unasked() {
    let Some(mut cluster) = Cluster::start(1, 1) else { return };
    create_model(&cluster);
    observe(&cluster.client(0), 0..10);
    let saved = tempfile::tempdir().unwrap();
    let out = saved.path().join("backup").display().to_string();
    let backup = run(&["backup", "--url", cluster.client(0).url(), "--to", &out]);
    assert_eq!(backup.code, Some(0), "{}", backup.stderr);
    observe(&cluster.client(0), 10..20);
    assert_eq!(cluster.terminate(0).code, Some(0));
    let restore = |dir: &Path| {
        fs::remove_dir_all(dir).unwrap();
        let restored = run(&["restore", "--from", &out, "--data-dir", &dir.display().to_string()]);
        assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    };
    let (dir, config) = (cluster.data_dir(0), cluster.config(0).display().to_string());
    restore(&dir);
    let directory = dir.display().to_string();
    let recover = ["cluster", "recover", "--data-dir", &directory, "--config", &config];
    let asked = run(&recover);
    assert_eq!(asked.code, Some(0), "{}", asked.stderr);
    assert!(asked.stdout.contains("batches that this store lacks"), "{}", asked.stdout);
    let refused = run(&[&recover[..], &["--yes"]].concat());
    assert_eq!(refused.code, Some(2), "{}", refused.stdout);
    assert!(refused.stderr.contains("--discard-logs"), "{}", refused.stderr);
    // Without a recovery the node reads what was written after the backup.
    cluster.start_node(0);
    cluster.await_owners();
    assert_users(&cluster, 0..20);
    assert_eq!(cluster.terminate(0).code, Some(0));

    restore(&dir);
    let done = run(&[&recover[..], &["--yes", "--discard-logs"]].concat());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let store = cluster.nats.store(0);
    let stream = |name: &str| store.join("jetstream/$G/streams").join(name);
    eventually("the logs of before are deleted", || (!stream("celeris-test-1-s00").exists()).then_some(()));
    cluster.start_node(0);
    cluster.await_owners();
    assert!(stream("celeris-test-2-s00").exists());
    assert_users(&cluster, 0..10);
}

#[test]
fn the_receipt_of_an_erasure_says_when_the_logs_are_trimmed_of_the_user() {
    let Some(cluster) = Cluster::configured(2, 1, "trim_delay = \"90s\"") else { return };
    create_model(&cluster);
    observe(&cluster.client(0), 0..8);
    for user in 0..8 {
        let receipt = cluster.model(user % 2, MODEL).delete(&format!("users/user-{user}")).expect(200);
        let (erased, trimmed) = (receipt["erased"].as_i64().unwrap(), receipt["log_trimmed_by"].as_i64().unwrap());
        assert!((90_000..700_000).contains(&(trimmed - erased)), "{receipt}");
    }
}

#[test]
fn the_store_of_a_node_on_its_own_becomes_a_cluster() {
    let Some(mut cluster) = Cluster::prepared(1) else { return };
    let data_dir = cluster.data_dir(0);
    let alone = celeris_tests::NodeProcess::serve(&data_dir);
    alone.client().post("/v1/models", &json!({"name": MODEL, "dim": 8})).expect(201);
    observe(&alone.client(), 0..25);
    let before: Vec<Value> = (0..25).map(|user| alone.model(MODEL).user(&format!("user-{user}"), 10)).collect();
    assert_eq!(alone.terminate().code, Some(0));
    let (data, config) = (data_dir.display().to_string(), cluster.config(0).display().to_string());
    // A start before that founds no cluster that could not begin with the store any more.
    let refused = run(&["serve", "--config", &config, "--data-dir", &data, "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("celeris cluster recover"), "{}", refused.stderr);
    let founded = run(&["cluster", "recover", "--data-dir", &data, "--config", &config, "--yes"]);
    assert_eq!(founded.code, Some(0), "{}", founded.stderr);
    for _ in 0..3 {
        let node = cluster.add_node();
        await_model(&cluster.client(node));
    }
    cluster.await_owners();
    for (user, before) in before.iter().enumerate() {
        let now = cluster.model(2, MODEL).user(&format!("user-{user}"), 10);
        assert_eq!((&now["state_hash"], &now["user_epoch"]), (&before["state_hash"], &before["user_epoch"]));
    }
    observe(&cluster.client(1), 25..30);
    assert_users(&cluster, 0..30);
}
