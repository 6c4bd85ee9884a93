//! Mistakes of a first hour: each answer names the cause and what to do about it, in the words of
//! the request.

use celeris_tests::binary;
use celeris_tests::fixtures::create_model;
use celeris_tests::{Client, Node};
use serde_json::json;

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

/// Words of the implementation that no answer may contain.
const FOREIGN: [&str; 9] =
    ["f32", "f64", "u64", "usize", "expected ident", "four digit integer", "parsable string", "invalid type", "serde"];

struct Mistake {
    path: &'static str,
    media_type: &'static str,
    body: &'static str,
    status: u16,
    /// What the answer says.
    words: &'static [&'static str],
}

fn mistake(path: &'static str, body: &'static str, status: u16, words: &'static [&'static str]) -> Mistake {
    Mistake { path, media_type: JSON, body, status, words }
}

fn lines(path: &'static str, body: &'static str, status: u16, words: &'static [&'static str]) -> Mistake {
    Mistake { media_type: LINES, ..mistake(path, body, status, words) }
}

fn mistakes() -> Vec<Mistake> {
    let observe = |body, words| mistake("films/observe", body, 422, words);
    vec![
        observe(r#"{"user": 1, "item": 2, "label": 500}"#, &["label", "500", "0.5 to 5", "label_range"]),
        observe(r#"{"user": 1, "item": 2, "label": "five"}"#, &["label: expected a number, got string \\\"five\\\""]),
        observe(r#"{"user": 1, "item": 2}"#, &["missing field `label`"]),
        observe(
            r#"{"user": 1, "item": 2, "label": 4, "timestamp": 1700000000}"#,
            &["timestamp", "seconds", "milliseconds"],
        ),
        observe(
            r#"{"user": 1, "item": 2, "label": 4, "timestamp": 1700000000000000}"#,
            &["timestamp", "microseconds", "milliseconds"],
        ),
        observe(
            r#"{"user": 1, "item": 2, "label": 4, "timestamp": "2100-01-01T00:00:00Z"}"#,
            &["timestamp", "ahead of the node's clock", "limits.clock_skew"],
        ),
        observe(r#"{"user": 1, "item": 2, "label": 4, "timestamp": "last week"}"#, &["timestamp", "last week", "T"]),
        observe(r#"{"user": 1, "item": 2, "rating": 4}"#, &["rating", "label"]),
        observe(r#"{"user": 1, "item": 2, "label": true}"#, &["label", "number"]),
        observe(
            r#"{"user": {"id": 1}, "item": 2, "label": 4}"#,
            &["user: expected a string or an integer, got object"],
        ),
        observe("", &["no body", "user"]),
        mistake("films/observe", r#"{"user": 1, "item": 2, "label": }"#, 400, &["JSON"]),
        mistake("films/observe", "user=1&item=2", 400, &["JSON"]),
        mistake("film/observe", r#"{"user": 1, "item": 2, "label": 4}"#, 404, &["film;", "GET /v1/models lists them"]),
        mistake("films/observations", r#"[{"user": 1, "item": 2, "label": "x"}]"#, 422, &["label", "\"rejected\":1"]),
        lines(
            "films/observations",
            "{\"user\": 1, \"item\": 2, \"label\": 1}{\"user\": 1}",
            400,
            &["\"line\":1", "more text after the end", "each line must be one JSON object"],
        ),
        lines(
            "films/observations",
            "user,item,label\n1,2,3\n",
            400,
            &["\"line\":1", "each line must be one JSON object", "celeris import"],
        ),
        lines("films/items", "{\"item\": 1, \"title\": \"Heat\"}\n", 422, &["title", "attributes"]),
        mistake(
            "films/recommend",
            r#"{"user": 1, "k": 10, "policy": "thomson"}"#,
            422,
            &["policy", "thomson", "thompson"],
        ),
        mistake("films/recommend", r#"{"user": 1, "k": "ten"}"#, 422, &["k", "number"]),
        mistake("films/recommend", r#"{"user": 1, "n": 10}"#, 422, &["`n`", "`k`"]),
        mistake(
            "films/recommend",
            r#"{"user": 1, "k": 10, "filter": {"genres": "Drama"}}"#,
            422,
            &["filter", "genres", "eq"],
        ),
        mistake(
            "films/recommend",
            r#"{"user": 1, "k": 10, "filter": {"eq": {"field": "gendre", "value": "Drama"}}}"#,
            200,
            &["\"items\":[]", "gendre", "genre"],
        ),
        mistake("films/retrain", r#"{"engine": "spark"}"#, 422, &["spark", "als", "[training.trainers]"]),
    ]
}

fn node() -> (tempfile::TempDir, Node, Client) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let films = create_model(&client, "films", 1);
    films.patch("", &json!({"label_range": [0.5, 5]})).expect(200);
    films.put("items/item-1", &json!({"attributes": {"genre": "Drama"}})).expect(200);
    films.observe(&json!({"user": "u", "item": "item-2", "label": 4}));
    (dir, node, client)
}

#[test]
fn answers_to_mistakes_name_cause_and_remedy_in_the_words_of_the_request() {
    let (_dir, _node, client) = node();
    let mut wrong = Vec::new();
    for Mistake { path, media_type, body, status, words } in mistakes() {
        let reply = client.try_send("POST", &format!("/v1/models/{path}"), media_type, body).unwrap();
        let missing: Vec<&str> = words.iter().copied().filter(|word| !reply.text.contains(word)).collect();
        // The random id of the request may contain any short word of hexadecimal digits.
        let said = reply.text.split("\"request_id\"").next().unwrap_or_default();
        let foreign: Vec<&str> = FOREIGN.into_iter().filter(|word| said.contains(word)).collect();
        if reply.status != status || !missing.is_empty() || !foreign.is_empty() {
            wrong.push(format!(
                "{path} {body}: {} {}\n  without {missing:?}, with {foreign:?}",
                reply.status, reply.text
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn mistakes_in_urls_are_named() {
    let (_dir, _node, client) = node();
    for (path, status, words) in [
        ("/v1/models/films/items?limit=lots", 422, ["limit", "number"]),
        ("/v1/models/films/items?size=3", 422, ["size", "limit"]),
        ("/v1/models/films/items/nothing", 404, ["nothing", "item"]),
        ("/v1/model/films", 404, ["no such path", "/openapi.json"]),
        ("/v1/jobs/7", 404, ["7", "job"]),
    ] {
        let reply = client.get(path);
        assert_eq!(reply.status, status, "{path}: {}", reply.text);
        for word in words.iter().chain(FOREIGN.iter().filter(|word| reply.text.contains(**word))) {
            assert!(reply.text.contains(word) && !FOREIGN.contains(word), "{path}: {word:?} and {}", reply.text);
        }
    }
    let reply = client.try_send("GET", "/v1/models/films/observe", JSON, "").unwrap();
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")), "{}", reply.text);
}

#[test]
fn mistakes_on_the_command_line_are_named() {
    let (dir, _node, client) = node();
    let file = dir.path().join("r.csv");
    std::fs::write(&file, "user,item,rating\na,1,3\n").unwrap();
    let file = file.to_str().unwrap();
    let import = |more: &[&str]| binary::run([&["import", file], more].concat());
    for (finished, words) in [
        (import(&["--model", "films", "--url", "127.0.0.1:1"]), &["127.0.0.1:1", "celeris serve", "--url"][..]),
        (import(&["--model", "films", "--url", "ftp://x"]), &["--url ftp://x", "http://127.0.0.1:7117"]),
        (import(&["--model", "film", "--url", client.url()]), &["no model film", "curl"]),
        (import(&["--url", client.url()]), &["--model", "--dry-run"]),
        (import(&["--map", "user=customer", "--dry-run"]), &["customer", "user, item, rating"]),
        (import(&["--map", "who=user", "--dry-run"]), &["who", "user, item, label"]),
        (binary::run(["serve", "--data-dir", "/proc/celeris"]), &["/proc/celeris"]),
    ] {
        assert_ne!(finished.code, Some(0), "{finished:?}");
        for word in words {
            assert!(finished.stderr.contains(word), "no {word:?} in {}", finished.stderr);
        }
    }
}

#[test]
fn a_model_whose_loss_does_not_suit_the_labels_is_noted() {
    let (dir, _node, client) = node();
    let file = dir.path().join("purchases.csv");
    std::fs::write(&file, "customer_id,product_id,qty\na,1,3\nb,1,1\n").unwrap();
    let import = |model: &str| binary::run(["import", file.to_str().unwrap(), "--url", client.url(), "--model", model]);
    let missing = import("shop");
    assert!(missing.stderr.contains(r#"{"loss":"implicit","name":"shop"}"#), "{}", missing.stderr);
    let unsuitable = import("films");
    assert_eq!(unsuitable.code, Some(0), "{unsuitable:?}");
    let note = r#"suit a model with "loss": "implicit", and this one has "squared""#;
    assert!(unsuitable.stderr.contains(note), "{}", unsuitable.stderr);
    client.post("/v1/models", &json!({"name": "shop", "loss": "implicit"})).expect(201);
    assert!(!import("shop").stderr.contains("note:"));
}
