//! Studies find settings with a lower loss, and leave a model as it is where there are none.

use std::path::Path;

use celeris_tests::fixtures::write_dataset;
use celeris_tests::{Client, ModelClient, Node, binary, eventually};
use serde_json::{Value, json};

/// A node with a model of this dimension that has the data set's ratings.
pub fn rated(dir: &Path, settings: &Value) -> (Node, Client, ModelClient) {
    let dataset = dir.join("dataset");
    std::fs::create_dir(&dataset).unwrap();
    write_dataset(&dataset);
    let node = Node::serve(&dir.join("data"));
    let client = node.client();
    client.post("/v1/models", settings).expect(201);
    let imported =
        binary::run(["import", "--url", client.url(), "--model", "films", "--dataset", dataset.to_str().unwrap()]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let films = client.model("films");
    (node, client, films)
}

pub fn start(films: &ModelClient, study: &Value) -> String {
    films.post("studies", study).expect(202)["study"].as_str().unwrap().to_owned()
}

pub fn ended(client: &Client, study: &str) -> Value {
    eventually("the end of the study", || {
        let study = client.get(&format!("/v1/studies/{study}")).expect(200);
        (study["state"] == "ended").then_some(study)
    })
}

fn job_ended(client: &Client, job: &str) -> Value {
    eventually("the end of the retraining", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    })
}

pub fn events(films: &ModelClient) -> Vec<String> {
    let page = films.get("events").expect(200);
    page["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_model_gets_the_best_settings_and_a_version_with_them() {
    let dir = tempfile::tempdir().unwrap();
    // Without a factor, every other dimension is better.
    let (_node, client, films) = rated(dir.path(), &json!({"name": "films", "dim": 1, "gate": {"force": true}}));
    let body = json!({
        "space": {"dim": {"int": [3, 8]}, "regularization": {"float": [0.2, 5.0], "log": true},
                  "half_life": {"choice": [null, 31_536_000]}},
        "trials": 4, "then": "retrain", "why": "a test asked",
    });
    let id = start(&films, &body);
    let running = films.post("studies", &body).expect(409);
    assert!(running["detail"].as_str().unwrap().contains(&id), "{running}");
    let study = ended(&client, &id);
    assert_eq!(
        (&study["why_stopped"], &study["error"], &study["metric"]),
        (&json!("trials"), &json!(null), &json!("rmse"))
    );
    assert_eq!((&study["complete"], &study["trials_max"]), (&json!(5), &json!(4)), "{study}");
    let trials = study["trials"].as_array().unwrap();
    assert_eq!((&trials[0]["params"], trials.len()), (&json!({}), 5));
    let baseline = &study["baseline"];
    assert_eq!((&baseline["trial"], &baseline["value"]), (&json!(0), &trials[0]["value"]));
    assert_eq!(baseline["params"], json!({"dim": 1, "regularization": null, "half_life": null}));
    let (loss, error) = (baseline["value"].as_f64().unwrap(), baseline["standard_error"].as_f64().unwrap());
    assert!((0.1..2.0).contains(&loss) && (0.001..0.2).contains(&error), "{baseline}");
    let best = &study["best"];
    let lowest = trials.iter().map(|trial| trial["value"].as_f64().unwrap()).fold(f64::INFINITY, f64::min);
    assert_eq!(best["value"].as_f64(), Some(lowest));
    let difference_error = best["difference_error"].as_f64().unwrap();
    assert!(difference_error < error, "what is hard to predict is hard for both: {best} and {baseline}");
    assert!(lowest < loss - difference_error, "{best} is better than {baseline}");
    assert!(trials.iter().all(|trial| trial["attempts"] == 1 && trial["seconds"].as_f64().unwrap() > 0.0), "{study}");

    let applied = eventually("the use of the settings", || {
        let study = client.get(&format!("/v1/studies/{id}")).expect(200);
        (!study["applied"].is_null()).then(|| study["applied"].clone())
    });
    assert_eq!(applied["trial"], best["trial"]);
    let job = job_ended(&client, applied["job"].as_str().unwrap());
    assert_eq!(job["state"], "succeeded", "{job}");
    let model = films.get("").expect(200);
    assert_eq!(model["dim"], best["params"]["dim"]);
    assert_eq!(model["half_life"].as_f64(), best["params"]["half_life"].as_f64());
    assert_eq!(model["trainer"]["regularization"], best["params"]["regularization"]);
    let versions = films.get("versions").expect(200);
    let dims: Vec<&Value> = versions["versions"].as_array().unwrap().iter().map(|version| &version["dim"]).collect();
    assert_eq!(dims, [&best["params"]["dim"], &json!(1)], "a version has a dimension of its own");
    let weights = films.user("1", 0)["weights"].as_array().unwrap().len();
    assert_eq!(json!(weights), best["params"]["dim"]);
    films.post("rollback", &json!({})).expect(200);
    assert_eq!(films.user("1", 0)["weights"].as_array().unwrap().len(), 1, "the version before serves again");
    let kinds = events(&films);
    for kind in ["study_started", "study_ended", "tuned", "configured"] {
        assert!(kinds.iter().any(|of| of == kind), "no {kind} in {kinds:?}");
    }
    let listed = films.get("studies").expect(200);
    assert_eq!((&listed["studies"][0]["study"], listed["studies"].as_array().unwrap().len()), (&json!(id), 1));
    assert!(!dir.path().join("data/studies").join(&id).exists(), "no files are left");
}

#[test]
fn a_node_with_a_version_of_another_dimension_than_its_model_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let (node, client, films) = rated(dir.path(), &json!({"name": "films", "dim": 1, "gate": {"force": true}}));
    let id = start(&films, &json!({"space": {"dim": {"int": [6, 8]}}, "trials": 1}));
    let study = ended(&client, &id);
    assert_eq!(study["applied"], json!(null), "nothing follows unless it was asked for");
    assert_eq!(films.get("").expect(200)["dim"], 1);
    let applied = client.post(&format!("/v1/studies/{id}/apply"), &json!({})).expect(202);
    assert_eq!(job_ended(&client, applied["applied"]["job"].as_str().unwrap())["state"], "succeeded");
    let answer = |films: &ModelClient| films.post("predict", &json!({"user": "1", "items": ["1", "2"]})).expect(200);
    let before = answer(&films);
    drop(node);
    let node = Node::serve(&dir.path().join("data"));
    assert_eq!(answer(&node.model("films")), before);
    let dim = node.model("films").get("").expect(200)["dim"].as_u64().unwrap();
    assert!((6..=8).contains(&dim), "{dim}");
}

#[test]
fn a_model_keeps_settings_that_no_trial_has_improved() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, client, films) = rated(dir.path(), &json!({"name": "films", "dim": 8}));
    // Labels of the last second alone count: worse than all labels.
    let id = start(&films, &json!({"space": {"half_life": {"choice": [1, 2]}}, "trials": 1, "then": "retrain"}));
    let study = ended(&client, &id);
    assert_eq!((&study["best"]["trial"], &study["why_stopped"]), (&json!(0), &json!("trials")), "{study}");
    let refused = client.post(&format!("/v1/studies/{id}/apply"), &json!({})).expect(409);
    assert!(refused["detail"].as_str().unwrap().contains("no settings with a lower loss"), "{refused}");
    let model = films.get("").expect(200);
    assert_eq!((&model["half_life"], &model["versions"]), (&json!(null), &json!(1)));
    assert_eq!(client.get("/v1/jobs").expect(200)["jobs"], json!([]), "trials are no jobs");
}

#[test]
fn a_study_that_is_stopped_has_no_sequel() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, client, films) = rated(dir.path(), &json!({"name": "films", "dim": 1}));
    let body = json!({"space": {"dim": {"int": [3, 60]}, "iterations": {"int": [5, 20]}}, "trials": 400, "workers": 2,
                      "sampler": "random", "then": "retrain"});
    let id = start(&films, &body);
    eventually("two trials", || {
        let study = client.get(&format!("/v1/studies/{id}")).expect(200);
        (study["complete"].as_u64() >= Some(2)).then_some(())
    });
    let refused = films.delete("").expect(409);
    assert!(refused["detail"].as_str().unwrap().contains(&id), "{refused}");
    client.post(&format!("/v1/studies/{id}/stop"), &json!({})).expect(200);
    let study = ended(&client, &id);
    assert_eq!(
        (&study["why_stopped"], &study["then"], &study["applied"]),
        (&json!("stopped"), &json!(null), &json!(null))
    );
    assert!(study["trials"].as_array().unwrap().len() < 400);
    assert!(study["trials"].as_array().unwrap().iter().all(|trial| trial["state"] != "running"), "{study}");
    // Stopping it again changes nothing, and another can start.
    assert_eq!(client.post(&format!("/v1/studies/{id}/stop"), &json!({})).expect(200)["finished"], study["finished"]);
    let next = start(&films, &json!({"space": {"dim": {"int": [3, 4]}}, "trials": 1, "seed": 2}));
    assert_eq!(ended(&client, &next)["why_stopped"], "trials");
    let applied = client.post(&format!("/v1/studies/{id}/apply"), &json!({})).expect(202);
    assert_eq!(applied["applied"]["trial"], study["best"]["trial"], "what it has found can be applied still");
}

#[test]
fn a_study_without_observations_or_with_invalid_settings_is_refused_by_field() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    client.post("/v1/models", &json!({"name": "films", "dim": 4})).expect(201);
    let films = client.model("films");
    let space = json!({"dim": {"int": [2, 8]}});
    let valid = json!({"space": space});
    assert!(films.post("studies", &valid).expect(422)["detail"].as_str().unwrap().contains("no observations"));
    for (change, pointer) in [
        (json!({"space": {}}), "/space"),
        (json!({"space": {"dims": {"int": [2, 8]}}}), "/space/dims"),
        (json!({"space": {"dim": {"int": [8, 2]}}}), "/space/dim/int"),
        (json!({"space": {"dim": {"int": [2, 100_000]}}}), "/space/dim"),
        (json!({"space": {"dim": {"int": [0, 4]}}}), "/space/dim"),
        (json!({"space": {"dim": {"int": [2, 8], "choice": [2, 8]}}}), "/space/dim"),
        (json!({"space": {"alpha": {"float": [1.0, 8.0]}}}), "/space/alpha"),
        (json!({"trials": 0}), "/trials"),
        (json!({"trials": 501}), "/trials"),
        (json!({"seconds": 0}), "/seconds"),
        (json!({"workers": 33}), "/workers"),
        (json!({"patience": 0}), "/patience"),
        (json!({"sampler": "grid"}), "/sampler"),
        (json!({"then": "activate"}), "/then"),
        (json!({"seeds": 3}), "/seeds"),
        (json!({"why": "x".repeat(1001)}), "/why"),
    ] {
        let mut body = valid.clone();
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        let refused = films.post("studies", &body);
        assert!([400, 422].contains(&refused.status), "{change}: {}", refused.status);
        assert_eq!(refused.json()["errors"][0]["pointer"], pointer, "{change}: {}", refused.json());
    }
    films.patch("", &json!({"gate": {"holdout_share": 0}})).expect(200);
    let refused = films.post("studies", &valid).expect(422);
    assert!(refused["detail"].as_str().unwrap().contains("gate.holdout_share"), "{refused}");
    for path in ["/v1/studies/none", "/v1/studies/01a217af-8ffb-7310-8999-c9585a9d307c"] {
        client.get(path).expect(404);
        client.post(&format!("{path}/stop"), &json!({})).expect(404);
        client.post(&format!("{path}/apply"), &json!({})).expect(404);
    }
    client.get("/v1/models/none/studies").expect(404);
}

#[test]
fn the_command_starts_watches_and_applies_a_study() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, client, films) = rated(dir.path(), &json!({"name": "films", "dim": 1, "gate": {"force": true}}));
    let run = |arguments: &[&str]| {
        let mut all = vec!["study"];
        all.extend(arguments);
        all.extend(["--url", client.url()]);
        let finished = binary::run(all);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        finished.stdout
    };
    let id = run(&["start", "films", "--search", "dim=4..8", "--search", "half_life=null,31536000", "--trials", "2"]);
    let id = id.trim();
    let watched = run(&["watch", id]);
    for part in ["ended (trials), 3 trials complete", "present settings: rmse ", "best: rmse ", "dim=", "TRIAL"] {
        assert!(watched.contains(part), "{part} in {watched}");
    }
    assert!(run(&["list", "films"]).contains(id));
    assert!(run(&["apply", id]).contains("applied by job "));
    assert!(run(&["show", id]).contains("applied by job "));
    assert!(run(&["stop", id]).contains("ended (trials)"));
    assert!((4..=8).contains(&films.get("").expect(200)["dim"].as_u64().unwrap()));
    for (arguments, problem) in [
        (vec!["study", "start", "films", "--search", "dim=4"], "expected NAME="),
        (
            vec!["study", "start", "films", "--search", "dim=2..4", "--search", "dim=2..5", "--url", client.url()],
            "dim twice",
        ),
        (vec!["study", "show", "a/b", "--url", client.url()], "STUDY: "),
    ] {
        let refused = binary::run(arguments);
        assert!(refused.code == Some(2) && refused.stderr.contains(problem), "{refused:?}");
    }
}

#[test]
fn users_who_are_erased_meanwhile_end_no_study() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, client, films) = rated(dir.path(), &json!({"name": "films", "dim": 1}));
    let body = json!({"space": {"dim": {"int": [3, 8]}}, "trials": 6, "collaborative": true});
    let id = start(&films, &body);
    // Those of the first trial are more than the attempts of a retraining.
    for user in 11..=16 {
        films.delete(&format!("users/{user}")).expect(200);
    }
    let complete = || client.get(&format!("/v1/studies/{id}")).expect(200)["complete"].as_u64().unwrap();
    for (user, before) in [(1, 0), (2, 1), (3, 3)] {
        eventually("trials", || (complete() >= before).then_some(()));
        films.delete(&format!("users/{user}")).expect(200);
    }
    let study = ended(&client, &id);
    assert_eq!((&study["why_stopped"], &study["complete"]), (&json!("trials"), &json!(7)), "{study}");
}
