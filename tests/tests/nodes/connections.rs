//! Connections and streams are bounded in number and in time, a close is announced, and the health
//! routes answer however many connections are open.

use std::path::Path;

use celeris_tests::fixtures::{config_file, create_model};
use celeris_tests::{Client, Node, NodeProcess, ProcessOptions, Raw, eventually};
use serde_json::Value;

fn serve(dir: &Path, text: &str) -> Node {
    let config = config_file(dir, text);
    Node::configured(&dir.join("data"), &config)
}

fn get(client: &Client, path: &str) -> u16 {
    let mut raw = Raw::connect(client);
    raw.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).unwrap();
    raw.reply().unwrap().status
}

/// Opens a stream of observations and reads the result of its first line, so that the stream is
/// certainly open.
fn open_stream(client: &Client, user: usize) -> Raw {
    let mut raw = Raw::connect(client);
    let line = format!("{{\"user\": \"u-{user}\", \"item\": \"item-0\", \"label\": 3}}\n");
    let head = "POST /v1/models/films/observations HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    raw.send(&format!("{head}{:x}\r\n{line}\r\n", line.len())).unwrap();
    assert_eq!(raw.head().unwrap().status, 200);
    let mut answer = Vec::new();
    raw.chunk(&mut answer).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&answer).unwrap()["user_epoch"], 1);
    raw
}

#[test]
fn idle_streams_do_not_count_as_requests_and_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), "[limits]\nrequests = 2\nstreams = 3\n");
    let client = node.client();
    create_model(&client, "films", 71);
    let mut streams: Vec<Raw> = (0..3).map(|user| open_stream(&client, user)).collect();
    for _ in 0..20 {
        assert_eq!(get(&client, "/v1/models/films"), 200);
    }
    let refused = client.try_send("POST", "/v1/models/films/observations", "application/x-ndjson", "{}").unwrap();
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(refused.expect(503)["detail"].as_str().unwrap().contains("streams"));
    // A stream that ends frees its place.
    streams.pop().unwrap().send("0\r\n\r\n").unwrap();
    eventually("room for another stream", || {
        let reply = client.try_send("POST", "/v1/models/films/items", "application/x-ndjson", "\n").unwrap();
        // The request is admitted, and has no lines.
        (reply.status == 422).then_some(())
    });
}

#[test]
fn an_idle_stream_ends_with_an_error_after_its_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), "[limits]\nstream_idle_timeout = \"200ms\"\n");
    let client = node.client();
    create_model(&client, "films", 72);
    let mut stream = open_stream(&client, 0);
    let mut answer = Vec::new();
    while stream.chunk(&mut answer).unwrap() {}
    let last: Vec<Value> = serde_json::Deserializer::from_slice(&answer).into_iter().map(Result::unwrap).collect();
    assert_eq!((&last[0]["line"], &last[0]["error"]["status"]), (&2.into(), &408.into()), "{last:?}");
    assert_eq!(last[1]["summary"]["rejected"], 1, "{last:?}");
    stream.closed();
}

/// Limit of open files, smaller than that of a typical system service.
const FILES: u32 = 256;

#[test]
fn idle_connections_do_not_block_the_health_routes() {
    let dir = tempfile::tempdir().unwrap();
    let node = ProcessOptions::default().open_files_max(FILES).serve(dir.path());
    let client = node.client();
    let idle: Vec<Raw> = (0..FILES).map(|_| Raw::connect(&client)).collect();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(&client, path), 200, "{path}");
    }
    let mut crowded = Raw::connect(&client);
    crowded.send("GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let refused = crowded.reply().unwrap();
    assert_eq!((refused.status, refused.header("connection")), (503, Some("close")), "{refused:?}");
    assert!(refused.json()["detail"].as_str().unwrap().contains("connections"), "{refused:?}");
    drop(idle);
    eventually("accepted connections", || (get(&client, "/v1/models") == 200).then_some(()));
}

#[test]
fn the_number_of_connections_is_bounded_as_configured() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), "[server]\nconnections = 4\n");
    let client = node.client();
    let mut held: Vec<Raw> = (0..4).map(|_| Raw::connect(&client)).collect();
    // Connections are accepted in order: once the last is answered, all are.
    for raw in &mut held {
        raw.send("GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        assert_eq!(raw.reply().unwrap().status, 200);
    }
    assert_eq!(get(&client, "/v1/models"), 503);
    assert_eq!(get(&client, "/metrics"), 503);
    assert_eq!(get(&client, "/healthz"), 200);
    held.pop();
    eventually("room for another", || (get(&client, "/v1/models") == 200).then_some(()));
}

#[test]
fn a_connection_without_a_whole_head_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), "[server]\nidle_timeout = \"500ms\"\n");
    let client = node.client();
    // A request that exceeds the timeout, on a busy machine, is repeated.
    let ask = || {
        let mut raw = Raw::connect(&client);
        raw.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").ok()?;
        (raw.reply().ok()?.status == 200).then_some(raw)
    };
    let mut answered = eventually("an answer", ask);
    let mut half = Raw::connect(&client);
    // The connection may be closed already.
    let _ = half.send("GET /healthz HTTP/1.1\r\nhost: local");
    let mut silent = Raw::connect(&client);
    for raw in [&mut answered, &mut half, &mut silent] {
        raw.closed();
    }
    eventually("an answer", ask);
}

#[test]
fn a_head_that_is_too_long_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let mut raw = Raw::connect(&node.client());
    // The node may close the connection before it has read the whole head.
    let _ = raw.send(&format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(100_000)));
    assert_eq!(raw.head().unwrap().status, 431);
}

/// Whether a route has answered with this status.
fn answered(client: &Client, route: &str, status: u16) -> bool {
    let labels = format!(r#"method="POST",route="{route}",status="{status}""#);
    client.get("/metrics").text.contains(&format!("celeris_http_request_seconds_count{{{labels}}}"))
}

/// The body is sent only once the node has answered the head.
#[test]
fn a_response_before_the_body_keeps_the_connection_or_announces_its_close() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let client = node.client();
    let json = "host: localhost\r\ncontent-type: application/json\r\n";
    let refused = [
        ("/v1/nowhere", "none", 404, json.to_owned()),
        ("/v1/models/flims/observations", "/v1/models/{model}/observations", 404, json.replace("json", "x-ndjson")),
        (
            "/v1/models/films/topk",
            "/v1/models/{model}/topk",
            415,
            "host: localhost\r\ncontent-type: text/plain\r\n".to_owned(),
        ),
        ("/v1/models", "/v1/models", 415, "host: localhost\r\n".to_owned()),
        ("/v1/elsewhere", "none", 421, json.replace("localhost", "evil.example")),
        ("/v1/elsewhere", "none", 403, format!("{json}origin: https://evil.example\r\n")),
    ];
    let body = "{}".repeat(500);
    for (path, route, status, headers) in refused {
        let mut raw = Raw::connect(&client);
        raw.send(&format!("POST {path} HTTP/1.1\r\n{headers}content-length: {}\r\n\r\n", body.len())).unwrap();
        eventually("an answer without the body", || answered(&client, route, status).then_some(()));
        raw.send(&body).unwrap_or_else(|error| panic!("{path} {status}: the body was not taken: {error}"));
        let reply = raw.reply().unwrap();
        assert_eq!(reply.status, status, "{path}: {reply:?}");
        if reply.header("connection") == Some("close") {
            raw.closed();
            continue;
        }
        raw.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let next = raw.reply().unwrap_or_else(|error| panic!("{path} {status}: the next request failed: {error}"));
        assert_eq!(next.status, 200, "{path} {status}");
    }
}

#[test]
fn a_response_before_a_long_body_announces_the_close() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    for (expect, sent) in [("", 1_000_000), ("expect: 100-continue\r\n", 10)] {
        let mut raw = Raw::connect(&client);
        let head = format!("POST /v1/nowhere HTTP/1.1\r\nhost: localhost\r\n{expect}content-length: {sent}\r\n\r\n");
        raw.send(&head).unwrap();
        let reply = raw.reply().unwrap();
        assert_eq!((reply.status, reply.header("connection")), (404, Some("close")), "{reply:?}");
        // The node reads the rest of the body before it closes: a reset would lose the response.
        raw.send(&"x".repeat(sent)).unwrap();
        raw.closed();
    }
}

fn half_sent(client: &Client, body: &str) -> Raw {
    let mut raw = Raw::connect(client);
    let head = "POST /v1/models/films/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    raw.send(&format!("{head}content-length: {}\r\n\r\n{}", body.len(), &body[..1])).unwrap();
    raw
}

#[test]
fn incomplete_bodies_do_not_count_as_requests() {
    let body = r#"{"user": "u", "item": "item-0"}"#;
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), "[limits]\nrequests = 2\n");
    let client = node.client();
    create_model(&client, "films", 73);
    let mut waiting: Vec<Raw> = (0..8).map(|_| half_sent(&client, body)).collect();
    for _ in 0..50 {
        assert_eq!(client.model("films").post("predict", &serde_json::from_str(body).unwrap()).status, 200);
    }
    for raw in &mut waiting {
        raw.send(&body[1..]).unwrap();
        assert_eq!(raw.reply().unwrap().status, 200);
    }
}

#[test]
fn incomplete_bodies_are_bounded_in_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), "[limits]\narriving = \"64KiB\"\n");
    let client = node.client();
    create_model(&client, "films", 74);
    let long = format!("{{\"user\": \"u\", \"items\": [\"{}\"]}}", "x".repeat(100 << 10));
    let mut raw = half_sent(&client, &long);
    raw.send(&long[1..80 << 10]).unwrap();
    let refused = raw.reply().unwrap();
    assert_eq!(refused.status, 503);
    assert!(refused.text.contains("limits.arriving"), "{}", refused.text);
    assert_eq!(get(&client, "/v1/models/films"), 200);
}

#[test]
fn a_half_closed_connection_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    create_model(&client, "films", 75);
    let mut raw = Raw::connect(&client);
    raw.send("GET /v1/models/films HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    raw.finish_sending().unwrap();
    assert_eq!(raw.reply().unwrap().status, 200);
    raw.closed();
}
