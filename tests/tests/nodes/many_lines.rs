//! Many observations in one request: as lines or as an array, with a status that tells whether anything
//! was taken, a summary, and the field of each error.

use celeris_tests::fixtures::create_model;
use celeris_tests::{Client, ModelClient, Node, Reply};
use serde_json::{Value, json};

fn node() -> (tempfile::TempDir, Node, ModelClient) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 121);
    (dir, node, films)
}

fn send(client: &Client, kind: &str, body: &str) -> Reply {
    client.try_send("POST", "/v1/models/films/observations", kind, body).unwrap()
}

fn lines(reply: &Reply) -> Vec<Value> {
    reply.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const NDJSON: &str = "application/x-ndjson";
const JSON: &str = "application/json";

fn observation(id: &str, label: &Value) -> Value {
    json!({"user": "u", "item": "item-1", "label": label, "observation_id": id})
}

#[test]
fn a_reply_ends_with_the_counts_of_its_lines() {
    let (_dir, node, _films) = node();
    let body = [observation("a", &json!(4)), observation("b", &json!("four")), observation("a", &json!(4))];
    let body = body.map(|line| line.to_string()).join("\n");
    let reply = send(&node.client(), NDJSON, &body);
    assert_eq!(reply.status, 200, "one line was taken: {}", reply.text);
    let replies = lines(&reply);
    assert_eq!(replies.len(), 4, "{replies:?}");
    assert_eq!(replies[3], json!({"summary": {"taken": 1, "duplicates": 1, "rejected": 1}}));
    assert_eq!(replies[1]["line"], 2);
}

#[test]
fn a_request_of_which_nothing_is_taken_is_an_error() {
    let (_dir, node, films) = node();
    let bad = observation("a", &json!("four")).to_string();
    for body in [bad.clone(), [bad.as_str(); 3].join("\n"), "[1, 2]".to_owned(), "{} {}".to_owned()] {
        let reply = send(&node.client(), NDJSON, &body);
        assert!([400, 422].contains(&reply.status), "{body}: {} {}", reply.status, reply.text);
        let replies = lines(&reply);
        assert_eq!(replies.last().unwrap()["summary"]["taken"], 0, "{body}");
        assert!(replies[0]["error"]["detail"].is_string(), "{body}");
    }
    assert_eq!(films.user("u", 1)["user_epoch"], 0);
    // A repeated request took nothing new, and is none the worse.
    let good = observation("a", &json!(4)).to_string();
    assert_eq!(send(&node.client(), NDJSON, &good).status, 200);
    let repeated = send(&node.client(), NDJSON, &good);
    assert_eq!(repeated.status, 200);
    assert_eq!(lines(&repeated)[1]["summary"]["duplicates"], 1);
}

#[test]
fn an_array_is_taken_like_lines() {
    let (_dir, node, films) = node();
    let count = 200;
    let mut body: Vec<Value> = (0..count).map(|n| observation(&format!("o-{n}"), &json!(n % 5 + 1))).collect();
    body.insert(7, observation("wrong", &json!(null)));
    let reply = send(&node.client(), JSON, &json!(body).to_string());
    assert_eq!((reply.status, reply.header("content-type")), (200, Some(JSON)), "{}", reply.text);
    let reply = reply.json();
    let results = reply["results"].as_array().unwrap();
    assert_eq!(results.len(), count + 1);
    assert_eq!(results[7]["line"], 8);
    assert_eq!(results[6]["observation_id"], "o-6");
    assert_eq!(results[8]["observation_id"], "o-7");
    assert_eq!(reply["summary"], json!({"taken": count, "duplicates": 0, "rejected": 1}));
    assert_eq!(films.user("u", 1)["user_epoch"], count);
    let refused = send(&node.client(), JSON, &json!([observation("wrong", &json!(null))]).to_string());
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert_eq!(refused.json()["summary"]["rejected"], 1);
    for (body, status) in [("[]", 422), ("{}", 422), ("[{]", 400), ("", 400)] {
        assert_eq!(send(&node.client(), JSON, body).status, status, "{body}");
    }
    let items = json!([{"item": "new", "attributes": {"title": "New"}}]).to_string();
    let edited = node.client().try_send("POST", "/v1/models/films/items", JSON, &items).unwrap();
    assert_eq!(edited.expect(200)["results"][0]["item"], "new");
}

#[test]
fn errors_point_to_the_field_in_words_of_json() {
    let (_dir, node, films) = node();
    let pointed = |reply: Reply, pointer: &str, words: &str| {
        let problem = reply.json();
        let error = &problem["errors"][0];
        assert_eq!(error["pointer"], pointer, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{words:?}: {problem}");
        for foreign in ["f32", "u64", "usize", "struct", "line 1"] {
            assert!(!problem["detail"].as_str().unwrap().contains(foreign), "{problem}");
        }
    };
    let observe = |body: Value| films.post("observe", &body);
    pointed(observe(json!({"user": "u", "item": "i", "label": "four"})), "/label", "expected a number");
    pointed(observe(json!({"user": "u", "item": "i", "label": 1e9})), "/label", "-1e6");
    pointed(observe(json!({"user": "u", "item": "i", "label": 1, "weight": 0})), "/weight", "above 0");
    pointed(observe(json!({"item": "i", "label": 1})), "/user", "missing field `user`");
    pointed(
        observe(json!({"user": "u", "item": "i", "label": 1, "timestamp": "yesterday"})),
        "/timestamp",
        "2026-11-22T09:30:00Z",
    );
    let topk = |body: Value| films.post("topk", &body);
    pointed(topk(json!({"user": "u", "items": ["a", {}], "k": 1})), "/items/1", "expected");
    pointed(topk(json!({"user": "u", "items": ["a"], "k": 0})), "/k", "at least 1");
    pointed(topk(json!({"user": "u", "items": ["a"], "k": -1})), "/k", "expected a whole number");
    pointed(films.patch("", &json!({"gate": {"margin": 7}})), "/gate/margin", "below 1");
    pointed(films.get("events?limit=0"), "/limit", "from 1");
    let line = send(&node.client(), NDJSON, "\n\n{\"user\": \"u\", \"item\": \"i\", \"label\": 1,}");
    let rejected = lines(&line)[0].clone();
    assert_eq!(rejected["line"], 3);
    let detail = rejected["error"]["detail"].as_str().unwrap();
    assert!(detail.contains("column") && !detail.contains("line 1"), "{detail}");
}
