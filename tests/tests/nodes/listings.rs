//! Lists of jobs, users and decisions, and the commands that show a node.

use std::collections::BTreeSet;

use celeris_tests::binary::{self, Finished};
use celeris_tests::fixtures::{all_items, create_model, write_dataset};
use celeris_tests::{Client, ModelClient, Node, eventually};
use serde_json::{Value, json};

/// All entries of a listing, read in pages of two, and the number of pages.
fn pages(client: &Client, path: &str, entries: &str, cursor: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut query = "limit=2".to_owned();
    loop {
        let separator = if path.contains('?') { '&' } else { '?' };
        let page = client.get(&format!("{path}{separator}{query}")).expect(200);
        let found = page[entries].as_array().unwrap();
        assert!(found.len() <= 2, "{page}");
        all.extend(found.iter().cloned());
        let Some(next) = page["next"].as_str() else { return all };
        query = format!("limit=2&{cursor}={}", percent_encoded(next));
    }
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn texts<'a>(entries: &'a [Value], field: &str) -> Vec<&'a str> {
    entries.iter().map(|entry| entry[field].as_str().unwrap()).collect()
}

#[test]
fn users_with_events_are_listed_once_whatever_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 1);
    let longest = "x".repeat(256);
    let users = ["a", "b", "ab", "ä", "7", "user with spaces", longest.as_str(), "erased", "retracted"];
    for user in users {
        films.observe(&json!({"user": user, "item": "item-1", "label": 4, "observation_id": user}));
    }
    films.observe(&json!({"user": "a", "item": "item-2", "label": 4}));
    films.delete("users/erased").expect(200);
    films.delete("observations/retracted").expect(200);
    films.post("predict", &json!({"user": "asked only", "item": "item-1"})).expect(200);
    create_model(&node.client(), "other", 2).observe(&json!({"user": "elsewhere", "item": "item-1", "label": 4}));

    let listed = eventually("the losses of both observations", || {
        let listed = pages(&node.client(), "/v1/models/films/users", "users", "after");
        let a = listed.iter().find(|user| user["user"] == "a").unwrap();
        (a["loss"]["count"] == 2).then(|| listed.clone())
    });
    let names = texts(&listed, "user");
    let expected: BTreeSet<&str> = users.into_iter().filter(|user| *user != "erased").collect();
    assert_eq!(names.iter().copied().collect::<BTreeSet<_>>(), expected);
    assert_eq!(names.len(), expected.len(), "each once: {names:?}");
    for (name, epoch) in [("a", 2), ("b", 1), ("retracted", 2)] {
        assert_eq!(listed.iter().find(|user| user["user"] == name).unwrap()["user_epoch"], epoch, "{name}");
    }
    let whole = films.get("users").expect(200);
    assert_eq!((whole["users"].as_array().unwrap(), &whole["next"]), (&listed, &Value::Null), "in the same order");
    for (query, status) in [("?limit=0", 422), ("?limit=1001", 422), ("?after=", 422), ("?offset=3", 422)] {
        assert_eq!(films.get(&format!("users{query}")).status, status, "{query}");
    }
    assert_eq!(node.client().get("/v1/models/nobody/users").status, 404);
}

#[test]
fn decisions_are_listed_latest_first_for_all_or_one_user() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 1);
    let other = create_model(&node.client(), "other", 2);
    let decide = |model: &ModelClient, user: &str| {
        let request = json!({"user": user, "items": all_items(), "k": 2});
        let reply = model.post("topk", &request).expect(200);
        let items: Vec<Value> = reply["items"].as_array().unwrap().iter().map(|slot| slot["item"].clone()).collect();
        (reply["decision_id"].as_str().unwrap().to_owned(), items)
    };
    let users = ["a", "b", "a", "c", "a"];
    let mut made: Vec<(String, Vec<Value>)> = users.iter().map(|user| decide(&films, user)).collect();
    decide(&other, "a");
    made.reverse();

    let listed = pages(&node.client(), "/v1/models/films/decisions", "decisions", "before");
    assert_eq!(texts(&listed, "decision_id"), made.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>());
    assert_eq!(texts(&listed, "user"), ["a", "c", "a", "b", "a"]);
    for (entry, (_, items)) in listed.iter().zip(&made) {
        assert_eq!((entry["items"].as_array().unwrap(), &entry["candidates"]), (items, &json!(24)));
    }
    let of_a = pages(&node.client(), "/v1/models/films/decisions?user=a", "decisions", "before");
    let expected: Vec<&str> = listed
        .iter()
        .zip(["a", "c", "a", "b", "a"])
        .filter(|(_, user)| *user == "a")
        .map(|(entry, _)| entry["decision_id"].as_str().unwrap())
        .collect();
    assert_eq!(texts(&of_a, "decision_id"), expected);
    films.delete("users/a").expect(200);
    assert_eq!(texts(&pages(&node.client(), "/v1/models/films/decisions", "decisions", "before"), "user"), ["c", "b"]);
    assert_eq!(films.get("decisions?user=a").expect(200)["decisions"], json!([]));
    assert_eq!(films.get("decisions?limit=x").status, 422);
}

/// Runs a command that talks to this node.
fn command(node: &Node, arguments: &[&str]) -> Finished {
    let client = node.client();
    binary::run(arguments.iter().copied().chain(["--url", client.url()]))
}

#[test]
fn commands_show_a_node_and_retrain_its_models() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let client = node.client();
    let empty = command(&node, &["models"]);
    assert_eq!((empty.code, empty.stdout.contains("no models")), (Some(0), true), "{empty:?}");

    client.post("/v1/models", &json!({"name": "films", "dim": 4})).expect(201);
    client.post("/v1/models", &json!({"name": "clicks", "dim": 4, "loss": "logistic"})).expect(201);
    let nothing = command(&node, &["retrain", "films", "--wait"]);
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.stderr.contains("no observations"), "{nothing:?}");
    let data = write_dataset(dir.path());
    let lines =
        data.ratings.iter().map(|one| json!({"user": one.user, "item": one.item, "label": one.label}).to_string());
    let lines: Vec<String> = lines.collect();
    assert_eq!(node.model("films").observe_lines(&lines.join("\n")).unwrap().count(), lines.len());

    let trained = command(&node, &["retrain", "films", "--wait", "--cold", "--why", "first files"]);
    assert_eq!(trained.code, Some(0), "{trained:?}");
    assert!(trained.stdout.starts_with("version 2 of films serves"), "{trained:?}");
    let started = command(&node, &["retrain", "films"]);
    let job = started.stdout.trim();
    eventually("the end of the job", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200)["state"].clone();
        (state != "queued" && state != "running").then_some(())
    });

    let models = command(&node, &["models"]);
    let row = |name: &str| models.stdout.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("films").contains("squared") && row("films").contains(&lines.len().to_string()), "{models:?}");
    assert!(row("films").contains("rmse ") && row("clicks").contains("logistic"), "{models:?}");
    let status = command(&node, &["status"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    for words in [": ready", "films", job, "(first files)", "failed: ", "of films: succeeded, version 2"] {
        assert!(status.stdout.contains(words), "no {words:?} in {status:?}");
    }
    let parsed: Value = serde_json::from_str(&command(&node, &["status", "--json"]).stdout).unwrap();
    assert_eq!((&parsed["ready"], parsed["jobs"].as_array().unwrap().len()), (&json!(true), 3));

    let jobs = pages(&client, "/v1/jobs", "jobs", "before");
    assert_eq!((jobs.len(), jobs[0]["job"].as_str().unwrap(), &jobs[1]["why"]), (3, job, &json!("first files")));
    assert_eq!(client.get("/v1/jobs?model=clicks").expect(200)["jobs"], json!([]));
    assert_eq!(client.get("/v1/jobs?model=nobody").status, 404);

    let unknown = command(&node, &["retrain", "nobody"]);
    assert_eq!((unknown.code, unknown.stderr.contains("nobody")), (Some(2), true), "{unknown:?}");
    node.stop();
    let nobody = binary::run(["status", "--url", client.url()]);
    assert_eq!((nobody.code, nobody.stderr.contains("celeris serve")), (Some(1), true), "{nobody:?}");
}

#[test]
fn a_model_that_is_created_again_has_no_jobs_of_the_deleted_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let create = || client.post("/v1/models", &json!({"name": "films", "dim": 4})).expect(201)["id"].clone();
    let id = create();
    client.post("/v1/models/films/retrain", &json!({})).expect(202);
    let jobs = eventually("the end of the job", || {
        let jobs = client.get("/v1/jobs?model=films").expect(200)["jobs"].clone();
        (jobs[0]["state"] == "failed").then_some(jobs)
    });
    assert_eq!(jobs[0]["model_id"], id);
    assert_eq!(node.model("films").delete("").status, 204);
    assert_ne!(create(), id);
    assert_eq!(client.get("/v1/jobs?model=films").expect(200)["jobs"], json!([]));
    assert_eq!(client.get("/v1/jobs").expect(200)["jobs"], jobs, "the job of the deleted model is still known");
}
