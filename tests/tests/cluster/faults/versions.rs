//! Trainings and versions, while the coordinator dies.

use std::collections::BTreeSet;

use celeris_tests::{Client, Cluster, eventually};
use rand::seq::SliceRandom as _;
use serde_json::{Value, json};

use crate::load::MODEL;
use crate::run::{Run, scenarios};

scenarios! {
    Default: coordinators_are_killed_while_they_train_and_activate,
}

/// Points of a training at which a node pauses, until it is killed.
const POINTS: [&str; 5] = ["export", "training", "validation", "warming", "flip"];

/// Posts until it is done: with the new coordinator, and once it knows all.
fn post(node: &Client, call: &str, status: u16) -> Value {
    let path = format!("/v1/models/{MODEL}/{call}");
    eventually(call, || {
        let reply = node.try_json("POST", &path, &json!({})).ok()?;
        assert!(reply.status == status || reply.status >= 500, "{call}: {}: {}", reply.status, reply.text);
        (reply.status == status).then(|| reply.json())
    })
}

fn ended(node: &Client, job: &str) -> Value {
    eventually("the end of the training", || {
        let reply = node.try_send("GET", &format!("/v1/jobs/{job}"), "", "").ok()?;
        let state = (reply.status == 200).then(|| reply.json())?;
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    })
}

/// The numbers of the versions and the active one, as a node has them.
fn versions(node: &Client) -> Option<(BTreeSet<u64>, u64)> {
    let reply = node.try_send("GET", &format!("/v1/models/{MODEL}/versions"), "", "").ok()?;
    let reply = (reply.status == 200).then(|| reply.json())?;
    let versions = reply["versions"].as_array()?;
    let number = |version: &Value| version["version"].as_u64();
    let active: Vec<u64> = versions.iter().filter(|version| version["active"] == true).filter_map(number).collect();
    assert_eq!(active.len(), 1, "{versions:?}");
    Some((versions.iter().filter_map(number).collect(), active[0]))
}

/// The active version, once all running nodes list the same and predict by it.
fn active(cluster: &Cluster) -> u64 {
    let running: Vec<Client> =
        (0..cluster.len()).filter(|node| cluster.runs(*node)).map(|node| cluster.client(node)).collect();
    eventually("all nodes have the same versions, and serve the same", || {
        let (all, active) = versions(&running[0])?;
        let is_same = |node: &Client| {
            let body = json!({"user": "user-1", "items": ["item-1"]});
            let predicted = node.try_json("POST", &format!("/v1/models/{MODEL}/predict?staleness=1h"), &body).ok()?;
            (predicted.status == 200 && predicted.json()["version"] == active).then_some(())?;
            (versions(node)? == (all.clone(), active)).then_some(())
        };
        running.iter().map(is_same).collect::<Option<Vec<()>>>()?;
        Some(active)
    })
}

fn retrain(run: &Run, node: usize) -> String {
    let job = post(&run.cluster.client(node), "retrain", 202);
    job["job"].as_str().unwrap().to_owned()
}

fn coordinators_are_killed_while_they_train_and_activate(run: &mut Run) {
    let first = active(&run.cluster);
    let mut points = POINTS;
    points.shuffle(&mut run.rng);
    for (node, point) in points.iter().enumerate().take(run.cluster.len()) {
        run.terminate_node(node);
        run.cluster.pause_at(Some(point));
        run.start_node(node);
    }
    run.cluster.pause_at(None);
    let mut pausing: BTreeSet<usize> = (0..run.cluster.len()).collect();
    loop {
        let (coordinator, owners) = run.cluster.await_owners();
        let before = active(&run.cluster);
        let job = retrain(run, owners[0]);
        if !pausing.remove(&coordinator) {
            // A coordinator that does not pause trains.
            let done = ended(&run.cluster.client(owners[0]), &job);
            assert_eq!(done["state"], "succeeded", "{done}");
            assert_eq!(json!(active(&run.cluster)), done["version"]);
            let back = post(&run.cluster.client(owners[0]), "rollback", 200);
            assert_eq!(active(&run.cluster), before, "{back}");
            break;
        }
        let point = points[coordinator];
        run.cluster.await_stderr(coordinator, &format!("reached {point}"));
        run.kill_node(coordinator);
        let (next, _) = run.cluster.await_owners();
        let state = ended(&run.cluster.client(next), &job);
        let serves = active(&run.cluster);
        eprintln!("killed at {point}: version {before}, then {serves}; {}", state["state"]);
        assert_eq!(serves != before, point == "flip", "{point}: {before}, then {serves}; {state}");
        run.start_node(coordinator);
    }
    // The embedded node that the checker compares with has no trained version.
    let (_, owners) = run.cluster.await_owners();
    post(&run.cluster.client(owners[0]), &format!("versions/{first}/activate"), 200);
    assert_eq!(active(&run.cluster), first);
}
