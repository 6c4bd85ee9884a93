//! Workers on other machines: `celeris work` makes trials of a study as the node itself does, and one that is killed
//! costs its trial.

use std::path::Path;
use std::process::{Child, Command};

use celeris_tests::fixtures::write_dataset;
use celeris_tests::{NodeProcess, binary, eventually};
use serde_json::{Value, json};

/// Trials of a study besides the first.
const TRIALS: usize = 8;

/// A worker that is killed at the end.
struct Worker(Child);

impl Worker {
    fn start(node: &NodeProcess, name: &str, scratch: &Path) -> Self {
        std::fs::create_dir_all(scratch).unwrap();
        let mut command = binary::command();
        command.args(["work", "--url", node.client().url(), "--name", name, "--threads", "1", "--exit-when-idle"]);
        let child = command.arg("--scratch").arg(scratch).stderr(std::process::Stdio::inherit()).spawn();
        Self(child.unwrap())
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node with the ratings of the data set.
fn rated(dir: &Path) -> NodeProcess {
    let ratings = write_dataset(dir).ratings;
    let node = NodeProcess::serve(&dir.join("data"));
    node.client().post("/v1/models", &json!({"name": "films", "dim": 4})).expect(201);
    let lines: String = ratings
        .iter()
        .map(|rating| format!("{}\n", json!({"user": rating.user, "item": rating.item, "label": rating.label})))
        .collect();
    assert_eq!(node.model("films").observe_lines(&lines).unwrap().map(Result::unwrap).count(), ratings.len());
    // What is known of items beside observations comes along.
    for rating in ratings.iter().take(30) {
        let described = json!({"attributes": {"kind": rating.item.as_str().len(), "first": rating.item.as_str()[..1]}});
        node.model("films").put(&format!("items/{}", rating.item), &described).expect(200);
    }
    node
}

fn study(node: &NodeProcess, id: &str) -> Value {
    node.client().get(&format!("/v1/studies/{id}")).expect(200)
}

/// A study whose trials depend on nothing but the seed.
fn start(node: &NodeProcess, workers: &Value) -> String {
    let mut body = json!({
        "space": {"dim": {"int": [2, 12]}, "regularization": {"float": [0.1, 10.0], "log": true},
                  "half_life": {"choice": [null, 31_536_000]}},
        "trials": TRIALS, "sampler": "random", "seed": 5,
    });
    for (name, value) in workers.as_object().unwrap() {
        body[name] = value.clone();
    }
    node.model("films").post("studies", &body).expect(202)["study"].as_str().unwrap().to_owned()
}

fn ended(node: &NodeProcess, id: &str) -> Value {
    eventually("the end of the study", || {
        let study = study(node, id);
        (study["state"] == "ended").then_some(study)
    })
}

fn trials(study: &Value) -> &Vec<Value> {
    study["trials"].as_array().unwrap()
}

#[test]
fn two_workers_find_what_the_node_finds_and_one_that_is_killed_costs_its_trial() {
    let dir = tempfile::tempdir().unwrap();
    let node = rated(dir.path());
    let here = ended(&node, &start(&node, &json!({})));

    let id = start(&node, &json!({"workers": 0, "remote_workers": 2, "lease_seconds": 5}));
    let mut staying = Worker::start(&node, "staying", &dir.path().join("staying"));
    let killed = Worker::start(&node, "killed", &dir.path().join("killed"));
    // Stopped while it has a trial, so that it is killed in the middle of one.
    let lost = eventually("a trial of the worker", || {
        let running = |study: &Value| {
            let found = trials(study).iter().find(|trial| trial["worker"] == "killed" && trial["state"] == "running");
            found.map(|trial| trial["trial"].as_u64().unwrap())
        };
        running(&study(&node, &id))?;
        killed.signal("-STOP");
        let found = running(&study(&node, &id));
        if found.is_none() {
            killed.signal("-CONT");
        }
        found
    });
    killed.signal("-KILL");
    let study = ended(&node, &id);
    assert_eq!((&study["why_stopped"], trials(&study).len()), (&json!("trials"), TRIALS + 1));
    for (ours, theirs) in trials(&here).iter().zip(trials(&study)) {
        assert_eq!(ours["params"], theirs["params"]);
        if theirs["trial"] == lost {
            let error = theirs["error"].as_str().unwrap();
            assert!(theirs["state"] == "failed" && error.contains("killed was not heard of for 5 seconds"), "{theirs}");
            continue;
        }
        // To the bit: the same trainer, the same records, the same posteriors.
        for figure in ["state", "value", "standard_error", "difference_error"] {
            assert_eq!(ours[figure], theirs[figure], "{figure} of {theirs}, and of the node {ours}");
        }
        // The present settings are tried by the node.
        assert_eq!(theirs["worker"].is_null(), theirs["trial"] == 0, "{theirs}");
    }
    let staying_made = trials(&study).iter().filter(|trial| trial["worker"] == "staying").count();
    assert!(staying_made >= TRIALS / 2 - 1, "{study}");
    let exit = eventually("the end of the worker", || staying.0.try_wait().unwrap());
    assert!(exit.success());
    let left = std::fs::read_dir(dir.path().join("staying")).unwrap().count();
    assert_eq!(left, 0, "no observations are left on the worker's machine");
    let events = node.model("films").get("events").expect(200);
    let sent = events["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "study_data_sent");
    let to_staying = sent.filter(|event| event["details"]["worker"] == "staying").count();
    assert_eq!(to_staying, 1, "it has fetched the data once: {events}");
}

#[test]
fn a_worker_goes_on_after_a_restart_of_the_node_and_loses_a_trial_that_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let node = rated(dir.path());
    let remote = json!({"workers": 0, "remote_workers": 1, "trials": 400});
    let id = start(&node, &remote);
    let address = node.client().address().to_owned();
    let worker = Worker::start(&node, "steady", &dir.path().join("steady"));
    let complete = |node: &NodeProcess| {
        let all = study(node, &id);
        trials(&all).iter().filter(|trial| trial["worker"] == "steady" && trial["value"].is_f64()).count()
    };
    eventually("a trial", || (complete(&node) >= 1).then_some(()));
    node.kill_hard();
    let node = celeris_tests::ProcessOptions::default().listen(&address).serve(&dir.path().join("data"));
    let before = complete(&node);
    eventually("further trials", || (complete(&node) >= before + 2).then_some(()));
    let all = study(&node, &id);
    assert!(trials(&all).iter().all(|trial| trial["attempts"] == 1), "no trial was lost: {all}");
    node.client().post(&format!("/v1/studies/{id}/stop"), &json!({})).expect(200);
    let ended = ended(&node, &id);
    assert!(trials(&ended).iter().all(|trial| trial["state"] != "running"), "{ended}");
    drop(worker);
}

#[test]
fn a_worker_of_a_node_that_refuses_it_ends_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(&dir.path().join("data"));
    let url = node.client().url().to_owned();
    for (arguments, problem) in [
        (vec!["work", "--url", "http://127.0.0.1:1", "--exit-when-idle"], "no node answers"),
        (vec!["work", "--url", &url, "--study", "none"], "no study is named none"),
        (vec!["work", "--url", &url, "--model", "a/b"], "--model: "),
        (vec!["work", "--url", &url, "--name", "", "--study", "none"], "no study is named none"),
    ] {
        let refused = binary::run(&arguments);
        assert!(refused.code != Some(0) && refused.stderr.contains(problem), "{arguments:?}: {refused:?}");
    }
    assert_eq!(binary::run(["work", "--url", &url, "--exit-when-idle"]).code, Some(0), "there is no study");
}

#[test]
fn a_worker_that_is_asked_to_end_leaves_no_observations() {
    let dir = tempfile::tempdir().unwrap();
    let node = rated(dir.path());
    let id = start(&node, &json!({"workers": 0, "remote_workers": 2, "lease_seconds": 5, "trials": 400}));
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let scratch = dir.path().join(signal);
        let mut worker = Worker::start(&node, signal, &scratch);
        eventually("a trial", || {
            let all = study(&node, &id);
            trials(&all).iter().any(|trial| trial["worker"] == signal && trial["value"].is_f64()).then_some(())
        });
        assert!(std::fs::read_dir(&scratch).unwrap().count() > 0, "it has the observations");
        worker.signal(&format!("-{signal}"));
        let exit = eventually("the end of the worker", || worker.0.try_wait().unwrap());
        assert_eq!((exit.code(), std::fs::read_dir(&scratch).unwrap().count()), (Some(code), 0), "{signal}");
    }
    node.client().post(&format!("/v1/studies/{id}/stop"), &json!({})).expect(200);
}
