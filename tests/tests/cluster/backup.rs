//! Backups of running nodes, and clusters that go on from them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use celeris_tests::{Cluster, binary, eventually};
use serde_json::{Value, json};

use crate::life::await_model;
use crate::load::MODEL;

const USERS: u32 = 30;

fn run(arguments: &[&str]) -> binary::Finished {
    binary::run(arguments)
}

fn backup(url: &str, to: &Path) -> binary::Finished {
    run(&["backup", "--url", url, "--to", &to.display().to_string()])
}

fn restore(from: &Path, to: &Path) -> binary::Finished {
    run(&["restore", "--from", &from.display().to_string(), "--data-dir", &to.display().to_string()])
}

/// A model whose trained version serves on every node, and what its users were like then.
fn trained(cluster: &Cluster) -> Vec<Value> {
    let model = cluster.model(0, MODEL);
    cluster.client(0).post("/v1/models", &json!({"name": MODEL, "dim": 4, "gate": {"force": true}})).expect(201);
    (0..cluster.len()).for_each(|node| await_model(&cluster.client(node)));
    let observation = |user: u32, item: u32| {
        let label = if (user + item).is_multiple_of(2) { 5 } else { 1 };
        let (user, item) = (format!("user-{user}"), format!("item-{item}"));
        format!("{}\n", json!({"observation_id": format!("{user}-{item}"), "user": user, "item": item, "label": label}))
    };
    let lines: String = (0..USERS).flat_map(|user| (0..20).map(move |item| observation(user, item))).collect();
    assert!(model.observe_lines(&lines).unwrap().all(|line| line.is_ok()));
    let _job = model.post("retrain", &json!({})).expect(202);
    for node in 0..cluster.len() {
        let serves = || (cluster.model(node, MODEL).get("").expect(200)["active_version"] == 2).then_some(());
        eventually("the trained version serves", serves);
    }
    (0..USERS).map(|user| model.user(&format!("user-{user}"), 10)).collect()
}

/// Waits until every node answers with the trained version, and compares the users with those of before.
fn assert_as_before(cluster: &Cluster, before: &[Value]) {
    for node in 0..cluster.len() {
        for (user, before) in before.iter().enumerate() {
            // A node that has just joined owns users before it has fetched the versions.
            let now = eventually("the owner of the user serves the model", || {
                let reply = cluster.model(node, MODEL).get(&format!("users/user-{user}?history=10"));
                (reply.status == 200).then(|| reply.json())
            });
            for field in ["version", "user_epoch", "state_hash", "history"] {
                assert_eq!(now[field], before[field], "{field} of user-{user} by node {node}");
            }
        }
    }
}

#[test]
fn a_cluster_goes_on_from_the_backup_of_a_running_node_after_the_loss_of_everything() {
    let Some(mut cluster) = Cluster::start(3, 1) else { return };
    let before = trained(&cluster);
    let saved = tempfile::tempdir().unwrap();
    let out = saved.path().join("backup");
    let (writing, client) = (AtomicBool::new(true), cluster.client(2));
    let (url, path) = (cluster.client(1).url().to_owned(), format!("/v1/models/{MODEL}/observe"));
    let observe = |user: u32| {
        let (user, id) = (format!("later-{user}"), format!("later-{user}"));
        client.post(&path, &json!({"user": user, "item": "item-1", "label": 4, "observation_id": id})).expect(200);
    };
    (0..10).for_each(observe);
    let (done, written) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut next = 10;
            while writing.load(Ordering::Relaxed) {
                observe(next);
                next += 1;
            }
            next
        });
        let done = backup(&url, &out);
        writing.store(false, Ordering::Relaxed);
        (done, writer.join().unwrap())
    });
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("2 versions"), "{}", done.stdout);

    for node in 0..3 {
        cluster.kill(node);
        fs::remove_dir_all(cluster.data_dir(node)).unwrap();
    }
    cluster.nats.kill(0);
    fs::remove_dir_all(cluster.nats.store(0)).unwrap();
    cluster.nats.start_server(0);
    cluster.nats.await_ready();

    let restored = restore(&out, &cluster.data_dir(0));
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    assert!(restored.stdout.contains("verified"), "{}", restored.stdout);
    let (data, config) = (cluster.data_dir(0).display().to_string(), cluster.config(0).display().to_string());
    // Without a recovery, the node founds nothing that would stand in its way.
    let forgotten = cluster.try_start_node(0).unwrap_err();
    assert_eq!(forgotten.code, Some(2), "{}", forgotten.stderr);
    assert!(forgotten.stderr.contains("celeris cluster recover"), "{}", forgotten.stderr);
    let recover = |dir: &str| run(&["cluster", "recover", "--data-dir", dir, "--config", &config, "--yes"]);
    assert_eq!(recover("/missing").code, Some(2), "there is no store");
    let recovered = recover(&data);
    assert_eq!(recovered.code, Some(0), "{}", recovered.stderr);
    (0..3).for_each(|node| cluster.start_node(node));
    cluster.await_owners();
    // Nodes that run are not stopped by it.
    let again = tempfile::tempdir().unwrap();
    assert_eq!(restore(&out, &again.path().join("data")).code, Some(0));
    let refused = recover(&again.path().join("data").display().to_string());
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("Stop them first"), "{}", refused.stderr);
    assert_as_before(&cluster, &before);
    let epoch = |user: u32| cluster.model(1, MODEL).user(&format!("later-{user}"), 1)["user_epoch"].clone();
    assert!((0..10).all(|user| epoch(user) == 1), "what was acknowledged before the backup is in it");
    let restored = (0..written).take_while(|user| epoch(*user) == 1).count();
    assert!((restored as u32..written).all(|user| epoch(user) == 0), "the rest is not, without gaps");
    // As a client would, send everything again: what is there counts once.
    let client = cluster.client(2);
    for user in 0..written {
        let body = json!({"user": format!("later-{user}"), "item": "item-1", "label": 4, "observation_id": format!("later-{user}")});
        client.post(&path, &body).expect(200);
        assert_eq!(epoch(user), 1);
    }
}

#[test]
fn backups_at_the_same_time_do_not_disturb_each_other() {
    let Some(cluster) = Cluster::start(1, 1) else { return };
    trained(&cluster);
    let (saved, url) = (tempfile::tempdir().unwrap(), cluster.client(0).url().to_owned());
    let folders: Vec<_> = (0..4).map(|number| saved.path().join(number.to_string())).collect();
    thread::scope(|scope| {
        for out in &folders {
            let url = &url;
            scope.spawn(move || {
                let done = backup(url, out);
                assert_eq!(done.code, Some(0), "{}", done.stderr);
                assert!(done.stdout.contains(&format!("with {} records", USERS * 20)), "{}", done.stdout);
            });
        }
    });
    eventually("the copies are removed", || {
        (fs::read_dir(cluster.data_dir(0).join("backup-outgoing")).is_ok_and(|held| held.count() == 0)).then_some(())
    });
}
