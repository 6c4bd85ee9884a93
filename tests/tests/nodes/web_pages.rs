//! Pages of other sites, in a browser on a machine that can reach the node, cannot observe, train
//! or read anything.

use celeris_tests::fixtures::{config_file, create_model};
use celeris_tests::{Node, Raw, RawReply};
use serde_json::json;

const OBSERVATION: &str = r#"{"user": "u", "item": "item-0", "label": 5}"#;

/// Sends one request on a new connection.
fn ask(node: &Node, request: &str, headers: &[&str], body: &str) -> RawReply {
    let mut raw = Raw::connect(&node.client());
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    raw.send(&format!("{request} HTTP/1.1\r\n{headers}{length}\r\n{body}")).unwrap();
    raw.reply().unwrap()
}

#[track_caller]
fn assert_problem(reply: &RawReply, status: u16, names: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{reply:?}");
    assert!(reply.json()["detail"].as_str().unwrap().contains(names), "no {names:?} in {reply:?}");
}

fn epoch(node: &Node) -> u64 {
    node.model("films").user("u", 0)["user_epoch"].as_u64().unwrap()
}

#[test]
fn a_body_without_a_json_content_type_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    create_model(&node.client(), "films", 61);
    let host = "host: localhost";
    // An escaped name is the same name.
    for model in ["films", "fi%6Cms"] {
        for call in ["observe", "retrain", "observations"] {
            let request = format!("POST /v1/models/{model}/{call}");
            for kind in ["text/plain", "application/x-www-form-urlencoded", "text/plain; charset=application/json"] {
                let reply = ask(&node, &request, &[host, &format!("content-type: {kind}")], OBSERVATION);
                assert_problem(&reply, 415, "content-type");
            }
            let reply = ask(&node, &request, &[host], OBSERVATION);
            assert_problem(&reply, 415, "content-type");
        }
        let observe = format!("POST /v1/models/{model}/observe");
        assert_problem(&ask(&node, &observe, &[host, "content-type: application/x-ndjson"], OBSERVATION), 415, "json");
    }
    for request in ["POST /v1/models/films/rollback", "DELETE /v1/models/films", "PUT /v1/models/films/items/new"] {
        assert_problem(&ask(&node, request, &[host, "content-type: text/plain"], "{}"), 415, "content-type");
    }
    assert_eq!(epoch(&node), 0);

    for kind in ["application/json", "Application/JSON; charset=utf-8"] {
        let reply = ask(&node, "POST /v1/models/films/observe", &[host, &format!("content-type: {kind}")], OBSERVATION);
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    for kind in ["application/x-ndjson", "application/ndjson; charset=utf-8"] {
        let kind = format!("content-type: {kind}");
        let reply = ask(&node, "POST /v1/models/films/observations", &[host, &kind, "connection: close"], OBSERVATION);
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    assert_eq!(epoch(&node), 4);
    // A request without a body needs no content type.
    assert_eq!(ask(&node, "POST /v1/models/films/retrain", &[host], "").status, 202);
    assert_problem(&ask(&node, "POST /v1/models/films/rollback", &[host, "content-length: 0"], ""), 409, "films");
}

#[test]
fn a_foreign_origin_and_a_foreign_host_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    create_model(&node.client(), "films", 62);
    let address = node.client().address().to_owned();
    let (host, json) = (format!("host: {address}"), "content-type: application/json");
    for model in ["films", "fi%6Cms"] {
        let observe = format!("POST /v1/models/{model}/observe");
        for origin in ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1"] {
            let reply = ask(&node, &observe, &[&host, json, &format!("origin: {origin}")], OBSERVATION);
            assert_problem(&reply, 403, "server.origins");
        }
        for name in ["evil.example", "evil.example:80", "localhost.evil.example", "192.0.2.1"] {
            let reply = ask(&node, &observe, &[&format!("host: {name}"), json], OBSERVATION);
            assert_problem(&reply, 421, "server.hosts");
        }
    }
    let foreign = "origin: https://evil.example";
    for request in
        ["POST /v1/models/films/rollback", "DELETE /v1/models/films", "GET /v1/models", "GET /metrics", "GET /"]
    {
        assert_problem(&ask(&node, request, &[&host, foreign], ""), 403, "origin");
        assert_problem(&ask(&node, request, &["host: evil.example"], ""), 421, "host");
    }
    // A target that names a host is no way around: neither beside a name of the node, nor beside its own.
    for (target, said) in
        [("evil.example", address.as_str()), ("evil.example", "evil.example"), (&address, "evil.example")]
    {
        let said = format!("host: {said}");
        let request = format!("POST http://{target}/v1/models/films/observe");
        assert_problem(&ask(&node, &request, &[&said, json], OBSERVATION), 421, "host");
        let request = format!("POST http://{target}/v1/models/films/personalizer/v1.0/rank");
        assert_eq!(ask(&node, &request, &[&said, json], "{}").status, 421);
    }
    assert_eq!(ask(&node, &format!("GET http://{address}/v1/models"), &[&host], "").status, 200);
    let preflight = [&host, foreign, "access-control-request-method: POST"];
    assert_problem(&ask(&node, "OPTIONS /v1/models/films/observe", &preflight, ""), 403, "origin");
    assert_eq!(epoch(&node), 0);

    let own = [format!("origin: http://{address}"), format!("host: {address}")];
    let reply = ask(&node, "POST /v1/models/films/observe", &[&own[0], &own[1], json], OBSERVATION);
    assert_eq!(reply.status, 200, "{reply:?}");
    for name in ["localhost", "LOCALHOST:7117", "127.0.0.1", "[::1]:80"] {
        assert_eq!(ask(&node, "GET /v1/models", &[&format!("host: {name}")], "").status, 200, "{name}");
    }
    // Health checks may use any host name.
    for path in ["/healthz", "/readyz"] {
        assert_eq!(ask(&node, &format!("GET {path}"), &["host: 10.1.2.3:7117"], "").status, 200, "{path}");
    }
}

#[test]
fn hosts_and_origins_that_the_configuration_names_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        config_file(dir.path(), "[server]\nhosts = [\"celeris.example\"]\norigins = [\"https://app.example\"]\n");
    let node = Node::configured(&dir.path().join("data"), &config);
    create_model(&node.client(), "films", 63);
    let (host, site) = ("host: Celeris.example:443", "origin: https://app.example");
    let observe = "POST /v1/models/films/observe";
    let preflight =
        ask(&node, "OPTIONS /v1/models/films/observe", &[host, site, "access-control-request-method: POST"], "");
    assert_eq!(preflight.status, 200, "{preflight:?}");
    assert_eq!(preflight.header("access-control-allow-origin"), Some("https://app.example"));
    let allowed = preflight.header("access-control-allow-headers").unwrap();
    for name in ["content-type", "authorization", "x-request-id", "traceparent", "ocp-apim-subscription-key"] {
        assert!(allowed.split(',').any(|header| header == name), "{name} is not among {allowed}");
    }
    assert!(preflight.header("access-control-allow-methods").unwrap().contains("POST"), "{preflight:?}");
    for (status, body) in [(200, OBSERVATION), (422, "{}")] {
        let reply = ask(&node, observe, &[host, site, "content-type: application/json"], body);
        assert_eq!(reply.status, status, "{reply:?}");
        assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"), "{reply:?}");
    }
    let other =
        ask(&node, observe, &[host, "origin: http://app.example", "content-type: application/json"], OBSERVATION);
    assert_problem(&other, 403, "origin");
    assert!(other.header("access-control-allow-origin").is_none(), "{other:?}");
    assert_eq!(epoch(&node), 1);

    for (setting, value) in
        [("origins", json!(["app.example"])), ("origins", json!(["https://a/"])), ("hosts", json!(["*"]))]
    {
        std::fs::write(&config, format!("[server]\n{setting} = {value}\n")).unwrap();
        let data = dir.path().join("other");
        let arguments =
            ["serve".as_ref(), "--data-dir".as_ref(), data.as_os_str(), "--config".as_ref(), config.as_os_str()];
        let refused = celeris_tests::binary::run(arguments);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(&format!("server.{setting}")), "{refused:?}");
    }
}
