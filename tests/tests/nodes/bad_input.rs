//! Invalid input is refused with the name of the field, and changes nothing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use celeris_tests::fixtures::{DIM, create_model};
use celeris_tests::{Client, Node, Reply, eventually};
use serde_json::{Value, json};

/// A request and its expected error.
struct Refused {
    method: &'static str,
    path: &'static str,
    body: String,
    status: u16,
    /// Text that the detail must contain.
    names: &'static str,
}

fn refused(request: &'static str, body: impl Into<String>, status: u16, names: &'static str) -> Refused {
    let (method, path) = request.split_once(' ').unwrap();
    Refused { method, path, body: body.into(), status, names }
}

/// Sends every request, and checks that each is refused as a problem (RFC 9457) that names its
/// field.
#[track_caller]
fn assert_refused(client: &Client, requests: &[Refused]) {
    for request in requests {
        let Refused { method, path, body, status, names } = request;
        let shown = format!("{method} {path} {}", body.chars().take(200).collect::<String>());
        let reply = client.try_send(method, path, "application/json", body).unwrap();
        assert_eq!(reply.status, *status, "{shown}: {}", reply.text);
        assert_problem(&reply, names, &shown);
    }
}

#[track_caller]
fn assert_problem(reply: &Reply, names: &str, shown: &str) {
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{shown}: {}", reply.text);
    let problem = reply.json();
    assert_eq!(problem["status"], reply.status, "{shown}");
    for field in ["type", "title", "detail"] {
        assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{shown}: {problem}");
    }
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(names), "{shown}: no {names:?} in {detail:?}");
}

/// A node with a model `films` and a user `u` with two observations.
fn node() -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 6);
    films.observe(&json!({"user": "u", "item": "item-0", "label": 4.5, "observation_id": "first"}));
    films.observe(&json!({"user": "u", "item": "item-1", "label": 1}));
    // Losses are counted after the response; the visible state is stable once both are counted.
    eventually("both observations count in the recent loss", || {
        (node.client().get("/v1/models/films").expect(200)["recent_loss"]["count"] == 2).then_some(())
    });
    (dir, node)
}

fn visible_state(client: &Client) -> String {
    let calls = ["", "/films/users/u", "/films/users", "/films/items?limit=1000", "/films/versions"];
    calls.map(|call| client.get(&format!("/v1/models{call}")).text).join("\n")
}

/// Sends the requests to a new node and compares its visible state before and after.
fn assert_refused_and_unchanged(requests: &[Refused]) {
    let (_dir, node) = node();
    let before = visible_state(&node.client());
    assert_refused(&node.client(), requests);
    assert_eq!(visible_state(&node.client()), before);
    let next = node.model("films").observe(&json!({"user": "u", "item": "item-2", "label": 3}));
    assert_eq!(next["user_epoch"], 3, "refused observations use no epoch");
}

fn observation(field: &str, value: &str) -> String {
    let mut fields = vec![("user", r#""u""#), ("item", r#""item-0""#), ("label", "4")];
    fields.retain(|(name, _)| *name != field);
    fields.push((field, value));
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}: {value}")).collect();
    format!("{{{}}}", fields.join(", "))
}

#[test]
fn bad_observations_are_refused() {
    let long_id = format!("{:?}", "x".repeat(257));
    let one =
        |field, value: &str, status| refused("POST /v1/models/films/observe", observation(field, value), status, field);
    assert_refused_and_unchanged(&[
        refused("POST /v1/models/films/observe", r#"{"user": "u", "item": "#, 400, "column"),
        refused("POST /v1/models/films/observe", "[]", 422, ""),
        refused("POST /v1/models/films/observe", "\u{feff}rating", 400, ""),
        refused("POST /v1/models/films/observe", "", 422, "user"),
        refused("POST /v1/models/films/observe", r#"{"user": "u", "item": "item-0"}"#, 422, "label"),
        one("label", "NaN", 400),
        one("label", "1e999", 422),
        one("label", "1e39", 422),
        one("label", "-1e7", 422),
        one("label", r#""NaN""#, 422),
        one("label", "null", 422),
        one("weight", "0", 422),
        one("weight", "-1", 422),
        one("weight", "1e39", 422),
        one("lable", "4", 422),
        one("user", r#""""#, 422),
        one("user", &long_id, 422),
        one("user", "1.5", 422),
        one("user", "true", 422),
        one("item", r#""a\u0000b""#, 422),
        one("item", &long_id, 422),
        one("observation_id", r#""""#, 422),
        one("observation_id", &long_id, 422),
        one("observation_id", r#""~mine""#, 422),
        one("observation_id", r#""first""#, 409),
        one("decision_id", &long_id, 422),
        one("timestamp", r#""yesterday""#, 422),
        one("timestamp", "9000000000000", 422),
        one("timestamp", "9223372036854775807", 422),
        one("timestamp", "-9223372036854775808", 422),
        one("timestamp", r#""2260-01-01T00:00:00Z""#, 422),
        one("feedback", &long_id, 422),
    ]);
}

#[test]
fn bad_predictions_and_rankings_are_refused() {
    let crowd: Vec<String> = (0..10_001).map(|item| format!("item-{item}")).collect();
    let predict = |body: Value, names| refused("POST /v1/models/films/predict", body.to_string(), 422, names);
    let topk = |body: Value, names| refused("POST /v1/models/films/topk", body.to_string(), 422, names);
    let with_policy = |policy: Value, names| {
        topk(json!({"user": "u", "items": ["item-0", "item-1"], "k": 1, "policy": policy}), names)
    };
    assert_refused_and_unchanged(&[
        predict(json!({"user": "u"}), "item"),
        predict(json!({"user": "u", "items": []}), "items"),
        predict(json!({"user": "u", "items": crowd}), "items"),
        predict(json!({"user": "u", "item": "item-0", "items": ["item-1"]}), "item"),
        predict(json!({"user": "u", "items": ["item-0", ""]}), "items[1]"),
        predict(json!({"user": "u", "itmes": ["item-0"]}), "itmes"),
        predict(json!({"item": "item-0"}), "user"),
        predict(json!({"user": "u", "item": "item-0", "min_epoch": -1}), "min_epoch"),
        refused(
            "POST /v1/models/films/predict",
            r#"{"user": "u", "item": "item-0", "min_epoch": 3}"#,
            409,
            "min_epoch",
        ),
        refused(
            "POST /v1/models/films/predict",
            r#"{"user": "u", "item": "item-0"}{}"#,
            400,
            "more text after the end",
        ),
        topk(json!({"user": "u", "items": ["item-0"], "k": 0}), "k"),
        topk(json!({"user": "u", "items": ["item-0"], "k": -1}), "k"),
        topk(json!({"user": "u", "items": ["item-0"]}), "k"),
        topk(json!({"user": "u", "items": [], "k": 1}), "items"),
        topk(json!({"user": "u", "items": crowd, "k": 1}), "items"),
        topk(json!({"user": "u", "items": ["item-0"], "k": 1, "seed": -1}), "seed"),
        with_policy(json!("gready"), "gready"),
        with_policy(json!({"name": "gready"}), "gready"),
        with_policy(json!({"epsilon": 0.1}), "name"),
        with_policy(json!({"name": "epsilon_greedy", "epsilon": 1.5}), "epsilon"),
        with_policy(json!({"name": "epsilon_greedy", "epsilon": -0.1}), "epsilon"),
        with_policy(json!({"name": "epsilon_greedy", "epsilon": "much"}), "epsilon"),
        with_policy(json!({"name": "epsilon_greedy", "epsilno": 0.1}), "epsilno"),
        with_policy(json!({"name": "lin_ucb", "alpha": -1}), "alpha"),
        with_policy(json!({"name": "greedy", "alpha": 1}), "alpha"),
        with_policy(json!(7), "policy"),
    ]);
}

#[test]
fn bad_items_are_refused() {
    let put = |body: Value, names| refused("PUT /v1/models/films/items/item-0", body.to_string(), 422, names);
    let mut constant_missing = vec![0.5; DIM];
    constant_missing[DIM - 1] = 0.0;
    let mut too_large = vec![1.0; DIM];
    too_large[0] = 1e39;
    assert_refused_and_unchanged(&[
        put(json!({"features": vec![1.0; DIM - 1]}), "features"),
        put(json!({"features": vec![1.0; DIM + 1], "attributes": {"title": "Wrong"}}), "features"),
        put(json!({"features": []}), "features"),
        put(json!({"features": constant_missing}), "features"),
        refused("PUT /v1/models/films/items/item-0", json!({"features": too_large}).to_string(), 422, "features[0]"),
        put(json!({"features": ["a"]}), "features[0]"),
        put(json!({"feature": [1.0]}), "feature"),
        put(json!({"attributes": ["a"]}), "attributes"),
        put(json!({}), "features"),
        put(json!({"attributes": {"title": "x".repeat(70_000)}}), "attributes"),
        refused("PUT /v1/models/films/items/item-0", r#"{"features": [NaN]}"#, 400, "features[0]"),
        refused("GET /v1/models/films/items?limit=0", "", 422, "limit"),
        refused("GET /v1/models/films/items?limit=1000000", "", 422, "limit"),
        refused("GET /v1/models/films/items?page=2", "", 422, "page"),
        refused("GET /v1/models/films/items/nobody-described-it", "", 404, "nobody-described-it"),
        refused("DELETE /v1/models/films/items/nobody-described-it", "", 404, "nobody-described-it"),
    ]);
}

#[test]
fn lists_reasons_and_settings_have_bounds() {
    let post = |request, body: Value, names| refused(request, body.to_string(), 422, names);
    let kinds: Vec<String> = (0..65).map(|kind| format!("kind-{kind}")).collect();
    let past = json!([{"item": "item-0", "label": 4, "feedback": "x".repeat(65)}]);
    let guard = json!({"guard": {"seconds": u64::MAX}});
    assert_refused_and_unchanged(&[
        post(
            "POST /v1/models/films/recommend",
            json!({"user": "u", "k": 1, "exclude_seen": {"feedback": kinds}}),
            "exclude_seen.feedback",
        ),
        post("POST /v1/models/films/recommend", json!({"history": past, "k": 1}), "feedback"),
        post("POST /v1/models/films/retrain", json!({"why": "x".repeat(1_001)}), "why"),
        post("PATCH /v1/models/films", guard, "guard.seconds"),
        post(
            "POST /v1/models/films/evaluate-policy",
            json!({"policy": "uniform", "missing_reward": 1e300}),
            "missing_reward",
        ),
        post(
            "POST /v1/models/films/evaluate-policy",
            json!({"policy": "uniform", "switch_threshold": 1e300}),
            "switch_threshold",
        ),
    ]);
    // Quotes from the request in a problem are truncated.
    let (_dir, node) = node();
    let long = format!("{{\"{}\": 1}}", "x".repeat(1_000_000));
    let reply = node.client().try_send("POST", "/v1/models/films/observe", "application/json", &long).unwrap();
    assert_eq!(reply.status, 422);
    assert!(reply.text.len() < 4_000, "{} bytes", reply.text.len());
}

#[test]
fn bad_models_and_unknown_names_are_refused() {
    let create = |body: Value, names| refused("POST /v1/models", body.to_string(), 422, names);
    let predict = r#"{"user": "u", "item": "item-0"}"#;
    let observe = r#"{"user": "u", "item": "item-0", "label": 4}"#;
    assert_refused_and_unchanged(&[
        create(json!({}), "name"),
        create(json!({"name": ""}), "name"),
        create(json!({"name": "a/b"}), "name"),
        create(json!({"name": "other", "dim": 0}), "dim"),
        create(json!({"name": "other", "dim": 1_000_000}), "dim"),
        create(json!({"name": "other", "dim": 2.5}), "dim"),
        create(json!({"name": "other", "dimension": 8}), "dimension"),
        create(json!({"name": "other", "loss": "hinge"}), "loss"),
        create(json!({"name": "other", "policy": {"name": "epsilon_greedy", "epsilon": 2}}), "epsilon"),
        create(json!({"name": "other", "pool_share": 1.5}), "pool_share"),
        create(json!({"name": "other", "gate": []}), "gate"),
        create(json!({"name": "other", "trainer": {"limits": [null, null]}}), "trainer.limits"),
        refused("POST /v1/models", r#"{"name": "films"}"#, 409, "films"),
        refused("GET /v1/models/flims", "", 404, "flims"),
        refused("DELETE /v1/models/flims", "", 404, "flims"),
        refused("POST /v1/models/flims/predict", predict, 404, "flims"),
        refused("POST /v1/models/flims/topk", r#"{"user": "u", "items": ["item-0"], "k": 1}"#, 404, "flims"),
        refused("POST /v1/models/flims/observe", observe, 404, "flims"),
        refused("POST /v1/models/flims/observations", observe, 404, "flims"),
        refused("PUT /v1/models/flims/items/item-0", r#"{"attributes": {}}"#, 404, "flims"),
        refused("GET /v1/models/flims/items", "", 404, "flims"),
        refused("GET /v1/models/flims/items/item-0", "", 404, "flims"),
        refused("GET /v1/models/flims/users/u", "", 404, "flims"),
        refused("GET /v1/models/flims/versions", "", 404, "flims"),
        refused("POST /v1/models/flims/retrain", "{}", 404, "flims"),
        refused("POST /v1/models/flims/rollback", "{}", 404, "flims"),
        refused("POST /v1/models/not%20a%20name/predict", predict, 404, "not a name"),
        refused("POST /v1/models/films/retrain", r#"{"engine": "spark-typo"}"#, 422, "engine"),
        refused("POST /v1/models/films/retrain", r#"{"speed": "fast"}"#, 422, "speed"),
        refused("POST /v1/models/films/versions/99/activate", "{}", 404, "99"),
        refused("POST /v1/models/films/versions/first/activate", "{}", 404, "first"),
        refused("POST /v1/models/films/rollback", "{}", 409, "films"),
        refused("GET /v1/models/films/users/u?history=all", "", 422, "history"),
        refused("GET /v1/models/films/users/u?history=1000000", "", 422, "history"),
        refused("GET /v1/models/films/users/%FF", "", 404, ""),
        refused("GET /v1/jobs/none-of-this-name", "", 404, "none-of-this-name"),
        refused("GET /v1/jobs/%FF", "", 404, ""),
        refused("GET /v2/models", "", 404, ""),
        refused("GET /v1/models/films/predict", "", 405, ""),
        refused("PUT /v1/models", "{}", 405, ""),
    ]);
}

/// The client sends the whole body before it reads, and must still receive the response.
#[test]
fn a_body_of_10_megabytes_is_refused() {
    let (_dir, node) = node();
    let client = node.client();
    let before = visible_state(&client);
    let items = format!("\"item-0\"{}", ", \"item-1\"".repeat(1_000_000));
    for call in ["predict", "topk", "observe"] {
        let body = format!(r#"{{"user": "u", "items": [{items}], "k": 1}}"#);
        assert!(body.len() >= 10_000_000);
        let mut socket = TcpStream::connect(client.address()).unwrap();
        let mut writing = socket.try_clone().unwrap();
        let request = format!(
            "POST /v1/models/films/{call} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        // The node may close the connection before it has read the whole body.
        let writer = thread::spawn(move || drop(writing.write_all(request.as_bytes())));
        let mut answer = Vec::new();
        // The connection may be reset after the response.
        let _ = socket.read_to_end(&mut answer);
        writer.join().unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 413 "), "{call}: {answer:?}");
        assert!(answer.contains("application/problem+json") && answer.contains("body"), "{call}: {answer}");
    }
    assert_eq!(visible_state(&client), before);
}

#[test]
fn an_invalid_line_is_reported_with_its_number_and_the_others_are_stored() {
    let (_dir, node) = node();
    let films = node.model("films");
    let good = |label: u32| json!({"user": "lines", "item": "item-3", "label": label}).to_string();
    let over_long = format!(r#"{{"user": "lines", "item": "{}", "label": 3}}"#, "x".repeat(100_000));
    let body = [
        good(1),
        r#"{"user": "lines", "item": "item-3""#.to_owned(),
        good(2),
        r#"{"user": "lines", "item": "item-3", "label": NaN}"#.to_owned(),
        over_long,
        String::new(),
        r#"{"user": "lines", "item": "item-3", "label": 3, "wieght": 1}"#.to_owned(),
        good(3),
        // The last line needs no line break.
        good(4),
    ]
    .join("\n");
    let answers: Vec<Value> = films.observe_lines(&body).unwrap().map(Result::unwrap).collect();
    let epochs_or_lines: Vec<Value> = answers
        .iter()
        .map(|answer| if answer["error"].is_null() { answer["user_epoch"].clone() } else { answer["line"].clone() })
        .collect();
    assert_eq!(epochs_or_lines, [1, 2, 2, 4, 5, 7, 3, 4], "{answers:?}");
    for (answer, names) in
        [(&answers[1], "column"), (&answers[3], "label"), (&answers[4], "65536"), (&answers[5], "wieght")]
    {
        let problem = &answer["error"];
        assert!(problem["status"].as_u64().is_some_and(|status| (400..500).contains(&status)), "{answer}");
        assert!(problem["detail"].as_str().unwrap().contains(names), "no {names:?} in {answer}");
    }
    assert_eq!(films.user("lines", 0)["user_epoch"], 4);
}

#[test]
fn attributes_of_users_are_bounded() {
    let attributes = |attributes: String| format!("{{\"attributes\": {attributes}}}");
    let put = |body: String, status, names| refused("PUT /v1/models/films/users/u", body, status, names);
    let many: Vec<String> = (0..257).map(|n| format!("\"a{n}\": 1")).collect();
    let tags = vec!["\"tag\""; 257].join(",");
    let deep = format!("{{\"a\": {}1{}}}", "[".repeat(200), "]".repeat(200));
    assert_refused_and_unchanged(&[
        put(attributes(format!("{{\"a\": \"{}\"}}", "x".repeat(64 << 10))), 422, "at most 65536 bytes"),
        put(attributes(format!("{{{}}}", many.join(","))), 422, "at most 256, got 257"),
        put(attributes(format!("{{\"{}\": 1}}", "n".repeat(300))), 422, "names have 1 to"),
        put(attributes("{\"\": 1}".to_owned()), 422, "names have 1 to"),
        put(attributes(format!("{{\"a\": [{tags}]}}")), 422, "attributes.a: a list of tags"),
        put(attributes(deep), 422, "recursion"),
        put(attributes("{\"a\": NaN}".to_owned()), 400, "attributes.a"),
        put(attributes("{\"a\": 1e999}".to_owned()), 422, "attributes.a: number out of range"),
        put(attributes("[1]".to_owned()), 422, "attributes: expected an object"),
        put(attributes("null".to_owned()), 422, "attributes: expected an object"),
        put("{}".to_owned(), 422, "missing field `attributes`"),
        put("{\"attributes\": {}, \"features\": [1]}".to_owned(), 422, "features"),
        refused("PUT /v1/models/none/users/u", "{\"attributes\": {}}", 404, "none"),
    ]);
}
