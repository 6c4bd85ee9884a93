//! Messages of workers on other machines: what they are answered, and what changes nothing.

use celeris_tests::{Client, Node, eventually};
use serde_json::{Value, json};

use crate::studies::{ended, events, rated, start};

/// A study whose trials are made elsewhere, after that of the present settings.
fn remote(films: &celeris_tests::ModelClient, settings: &Value) -> String {
    let mut body = json!({"space": {"dim": {"int": [3, 8]}}, "trials": 4, "workers": 0, "remote_workers": 2});
    for (name, value) in settings.as_object().unwrap() {
        body[name] = value.clone();
    }
    start(films, &body)
}

fn ask(client: &Client, study: &str, worker: &str) -> Value {
    client.post(&format!("/v1/studies/{study}/ask"), &json!({"worker": worker})).expect(200)
}

/// A trial for the worker, once the present settings have a loss.
fn trial(client: &Client, study: &str, worker: &str) -> Value {
    eventually("a trial", || Some(ask(client, study, worker)).filter(|asked| asked["do"] == "try"))
}

fn path(study: &str, trial: &Value, message: &str) -> String {
    format!("/v1/studies/{study}/trials/{}/{message}", trial["trial"])
}

#[test]
fn a_trial_is_asked_for_reported_and_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, client, films) = rated(dir.path(), &json!({"name": "films", "dim": 1}));
    let id = remote(&films, &json!({}));
    let first = trial(&client, &id, "a");
    assert_eq!((&first["trial"], &first["attempt"], &first["lease_seconds"]), (&json!(1), &json!(1), &json!(60)));
    assert!((3..=8).contains(&first["params"]["dim"].as_u64().unwrap()) && first["data"] == 0, "{first}");
    let other = trial(&client, &id, "b");
    assert_eq!(other["trial"], 2);
    let none = ask(&client, &id, "c");
    assert_eq!((&none["do"], &none["trial"], &none["params"]), (&json!("wait"), &json!(null), &json!(null)));

    let report = |trial: &Value, body: &Value| client.post(&path(&id, trial, "report"), body);
    let before = client.get(&format!("/v1/studies/{id}")).expect(200);
    let renewed = report(&first, &json!({"attempt": 1})).expect(200);
    assert!(renewed["lease_until"].as_i64() >= first["lease_until"].as_i64());
    for (body, pointer) in [(json!({}), "/attempt"), (json!({"attempt": 1, "value": 0.8}), "/value")] {
        let refused = report(&first, &body).expect(422);
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{body}: {refused}");
    }
    let tell = |trial: &Value, body: &Value| client.post(&path(&id, trial, "tell"), body);
    for (body, pointer) in [
        (json!({"attempt": 1}), "/value"),
        (json!({"attempt": 1, "value": null}), "/value"),
        (json!({"attempt": 1, "value": 0.5, "error": "both"}), "/error"),
        (json!({"attempt": 1, "error": "x".repeat(1001)}), "/error"),
        (json!({"attempt": 1, "value": 0.5, "standard_error": -0.1}), "/standard_error"),
        (json!({"attempt": 1, "value": "0.5"}), "/value"),
        (json!({"attempt": 1, "value": -5.0}), "/value"),
        (json!({"attempt": 1, "error": ""}), "/error"),
    ] {
        let refused = tell(&first, &body).expect(422);
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{body}: {refused}");
    }
    for number in ["NaN", "1e999", "Infinity"] {
        let body = format!(r#"{{"attempt": 1, "value": {number}}}"#);
        let refused = client.try_send("POST", &path(&id, &first, "tell"), "application/json", &body).unwrap();
        assert!([400, 422].contains(&refused.status), "{number}: {}", refused.status);
    }
    for (trial, attempt, status) in [(0, 1, 409), (1, 2, 409), (9, 1, 404)] {
        let refused = tell(&json!({"trial": trial}), &json!({"attempt": attempt, "value": 0.1})).expect(status);
        assert!(refused["detail"].as_str().unwrap().contains("trial"), "{refused}");
    }
    client.post(&format!("/v1/studies/{id}/trials/first/tell"), &json!({"attempt": 1, "value": 0.1})).expect(404);
    let after = client.get(&format!("/v1/studies/{id}")).expect(200);
    assert_eq!(after["trials"], before["trials"], "what was refused has changed nothing");

    tell(&first, &json!({"attempt": 1, "value": 0.25, "standard_error": 0.01, "difference_error": 0.005})).expect(200);
    let again = tell(&first, &json!({"attempt": 1, "value": 0.2})).expect(409);
    assert!(again["detail"].as_str().unwrap().contains("not running any more"), "{again}");
    tell(&other, &json!({"attempt": 1, "error": "out of memory"})).expect(200);
    let study = client.get(&format!("/v1/studies/{id}")).expect(200);
    let told = &study["trials"][1];
    assert_eq!((&told["state"], &told["value"], &told["worker"]), (&json!("complete"), &json!(0.25), &json!("a")));
    assert_eq!((&study["best"]["trial"], &study["best"]["difference_error"]), (&json!(1), &json!(0.005)));
    assert_eq!(
        (&study["trials"][2]["state"], &study["trials"][2]["error"]),
        (&json!("failed"), &json!("out of memory"))
    );
    for value in [0.5, 0.75] {
        let next = trial(&client, &id, "a");
        tell(&next, &json!({"attempt": 1, "value": value})).expect(200);
    }
    assert_eq!((&ended(&client, &id)["why_stopped"], &ask(&client, &id, "a")["do"]), (&json!("trials"), &json!("end")));
    assert!(!events(&films).contains(&"study_data_sent".to_owned()), "nobody has fetched the data");
}

#[test]
fn a_worker_that_is_not_heard_of_loses_its_trial_and_a_stopped_study_takes_no_result() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, client, films) = rated(dir.path(), &json!({"name": "films", "dim": 1}));
    let id = remote(&films, &json!({"lease_seconds": 5}));
    let silent = trial(&client, &id, "silent");
    let state = |trial: &Value| {
        let study = client.get(&format!("/v1/studies/{id}")).expect(200);
        study["trials"][trial["trial"].as_u64().unwrap() as usize].clone()
    };
    let lost = eventually("the end of the lease", || Some(state(&silent)).filter(|trial| trial["state"] != "running"));
    assert_eq!(lost["state"], "failed");
    assert!(lost["error"].as_str().unwrap().contains("worker silent was not heard of for 5 seconds"), "{lost}");
    let late = client.post(&path(&id, &silent, "tell"), &json!({"attempt": 1, "value": 0.1}));
    late.expect(409);
    let next = trial(&client, &id, "heard");
    assert_eq!(next["trial"], 2, "the study goes on with another");
    client.post(&format!("/v1/studies/{id}/stop"), &json!({})).expect(200);
    client.post(&path(&id, &next, "report"), &json!({"attempt": 1})).expect(409);
    client.post(&path(&id, &next, "tell"), &json!({"attempt": 1, "value": 0.1})).expect(409);
    assert_eq!(ended(&client, &id)["best"]["trial"], 0);
    assert_eq!(ask(&client, &id, "heard")["do"], "end");
}

#[test]
fn data_of_a_study_leave_the_node_for_a_trial_alone_and_anew_after_an_erasure() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, client, films) = rated(dir.path(), &json!({"name": "films", "dim": 1}));
    let local = start(&films, &json!({"space": {"dim": {"int": [3, 8]}}, "trials": 1}));
    let refused = client.get(&format!("/v1/studies/{local}/data?worker=a")).expect(409);
    assert!(refused["detail"].as_str().unwrap().contains("/ask"), "{refused}");
    assert_eq!(ask(&client, &local, "a")["do"], "end", "it has no trials for others");
    ended(&client, &local);

    let id = remote(&films, &json!({}));
    let first = trial(&client, &id, "a");
    let mut data = ureq::get(format!("{}/v1/studies/{id}/data?worker=a", client.url())).call().unwrap();
    assert_eq!(data.headers().get("content-type").unwrap(), "application/octet-stream");
    assert!(data.body_mut().read_to_vec().unwrap().len() > 10_000, "it has the observations");
    client.get(&format!("/v1/studies/{id}/data")).expect(422);
    client.get(&format!("/v1/studies/{id}/data?worker=b")).expect(409);
    assert_eq!(events(&films).iter().filter(|kind| *kind == "study_data_sent").count(), 1);
    films.delete("users/1").expect(200);
    let gone = eventually("the trial is given back", || {
        let reply = client.post(&path(&id, &first, "report"), &json!({"attempt": 1}));
        (reply.status != 200).then_some(reply.status)
    });
    assert_eq!(gone, 409);
    let again = trial(&client, &id, "a");
    assert_eq!((&again["trial"], &again["attempt"], &again["params"]), (&first["trial"], &json!(2), &first["params"]));
    assert_eq!(again["data"], 1, "the data that the worker has are not those that the trial needs");
    client.post(&format!("/v1/studies/{id}/stop"), &json!({})).expect(200);
}

#[test]
fn trials_of_other_machines_outlast_starts_after_an_erasure_and_erasures_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let (mut node, mut client, mut films) = rated(dir.path(), &json!({"name": "films", "dim": 1}));
    let id = remote(&films, &json!({}));
    // More erasures than workers may die of one trial.
    for user in 1..=6 {
        films.delete(&format!("users/{user}")).expect(200);
        let asked = trial(&client, &id, "a");
        assert_eq!((&asked["trial"], &asked["data"]), (&json!(1), &json!(user)));
        if user == 6 {
            let renew =
                |client: &Client| client.post(&path(&id, &asked, "report"), &json!({"attempt": asked["attempt"]}));
            client.post("/v1/models", &json!({"name": "books", "dim": 1})).expect(201);
            let books = client.model("books");
            books.observe(&json!({"user": "1", "item": "1", "label": 1.0}));
            books.delete("users/1").expect(200);
            for _start in 0..2 {
                drop(node);
                node = Node::serve(&dir.path().join("data"));
                client = node.client();
                films = client.model("films");
                renew(&client).expect(200);
            }
            // Later erasures are seen after these.
            films.delete("users/7").expect(200);
            eventually("the trial is taken back", || (renew(&client).status == 409).then_some(()));
        } else {
            client.post(&path(&id, &asked, "report"), &json!({"attempt": asked["attempt"]})).expect(200);
        }
    }
    let study = client.get(&format!("/v1/studies/{id}")).expect(200);
    assert_eq!((&study["trials"][1]["state"], study["trials"].as_array().unwrap().len()), (&json!("abandoned"), 2));
}

#[test]
fn workers_need_a_key_that_operates_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, client, films) = rated(dir.path(), &json!({"name": "films", "dim": 1}));
    let id = remote(&films, &json!({}));
    let first = client.post("/v1/keys", &json!({"name": "admin", "roles": ["admin"]})).expect(201);
    let admin = client.with_key(first["key"].as_str().unwrap());
    let made = |roles: Value, models: Value| {
        let body = json!({"name": "worker", "roles": roles, "models": models});
        let key = admin.post("/v1/keys", &body).expect(201)["key"].as_str().unwrap().to_owned();
        client.with_key(&key)
    };
    let ask = |client: &Client| client.post(&format!("/v1/studies/{id}/ask"), &json!({"worker": "a"}));
    ask(&client).expect(401);
    ask(&made(json!(["predict", "observe"]), json!([]))).expect(403);
    ask(&made(json!(["operate"]), json!(["books"]))).expect(404);
    let worker = made(json!(["operate"]), json!(["films"]));
    ask(&worker).expect(200);
    made(json!(["predict"]), json!([])).get(&format!("/v1/studies/{id}/data?worker=a")).expect(403);
}
