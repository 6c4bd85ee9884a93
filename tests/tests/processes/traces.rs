//! Traces of a node, as a collector of OpenTelemetry gets them.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use celeris_tests::fixtures::create_model;
use celeris_tests::{Client, Collector, NodeProcess, ProcessOptions, Reply, eventually};
use serde_json::{Value, json};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A node that sends its spans to this collector, with further lines of the section `[tracing]`.
fn node(dir: &Path, collector: &Collector, settings: &str) -> NodeProcess {
    let config = dir.join("node.toml");
    fs::write(&config, format!("[tracing]\ninterval = \"20ms\"\n{}{settings}", collector.setting())).unwrap();
    ProcessOptions::default().config(config).serve(&dir.join("data"))
}

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

fn observe(client: &Client, headers: &[(&str, &str)], user: &str) -> Reply {
    let body = json!({"user": user, "item": "item-1", "label": 4});
    client.try_with(("POST", "/v1/models/films/observe"), headers, &body).unwrap()
}

#[test]
fn an_observation_is_traced_from_its_client_to_the_commit_of_the_log() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let node = node(dir.path(), &collector, "sample = 0\nservice = \"films\"\n");
    let client = node.client();
    create_model(&client, "films", 90);
    let parent = traceparent("01");
    let headers = [("traceparent", &*parent), ("tracestate", "vendor=7"), ("x-request-id", "order-1")];
    assert_eq!(observe(&client, &headers, "secret-person").status, 200);

    let commit = collector.await_span("the commit", |span| span.name == "log.commit");
    let named = |name: &str| collector.await_span(name, |span| span.name == name);
    let request = named("POST /v1/models/{model}/observe");
    let (compute, wait) = (named("compute"), named("log.wait"));
    assert_eq!((&*request.trace, &*request.parent, request.kind), (TRACE, PARENT, 2));
    for (span, parent) in [(&compute, &request), (&wait, &compute), (&commit, &compute)] {
        assert_eq!((&*span.trace, &span.parent), (TRACE, &parent.id), "{span:?}");
    }
    let of_request = |name: &str| request.attributes.get(name).map(String::as_str);
    assert_eq!(of_request("http.response.status_code"), Some("200"));
    assert_eq!(of_request("http.route"), Some("/v1/models/{model}/observe"));
    assert_eq!((of_request("celeris.model"), of_request("celeris.request_id")), (Some("films"), Some("order-1")));
    assert_eq!(commit.attributes["celeris.records"], "1");
    assert_eq!(request.resource["service.name"], "films");
    assert!(wait.nanoseconds > 0 && request.nanoseconds >= wait.nanoseconds, "{request:?} {wait:?}");

    // Neither users nor paths, and nothing of requests that are not recorded: the model was created by one.
    assert!(!collector.has_seen("secret-person") && !collector.has_seen("POST /v1/models\""));
    assert_eq!(observe(&client, &[("traceparent", &traceparent("00"))], "secret-person").status, 200);
    assert_eq!(observe(&client, &[], "secret-person").status, 200);
    let again = traceparent("01").replace(TRACE, "00000000000000000000000000000abc");
    assert_eq!(observe(&client, &[("traceparent", &again)], "secret-person").status, 200);
    let _ = collector.await_span("the last commit", |span| span.name == "log.commit" && span.trace.ends_with("abc"));
    let requests = collector.spans().into_iter().filter(|span| span.kind == 2).count();
    assert_eq!(requests, 2, "{:#?}", collector.spans());
}

#[test]
fn requests_that_share_a_commit_are_linked_by_it() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let node = node(dir.path(), &collector, "sample = 1\n");
    let client = node.client();
    create_model(&client, "films", 91);
    let shared = eventually("two requests share a commit", || {
        thread::scope(|scope| {
            for user in 0..16 {
                let client = &client;
                scope.spawn(move || assert_eq!(observe(client, &[], &format!("u{user}")).status, 200));
            }
        });
        collector.spans().into_iter().find(|span| span.name == "log.commit" && !span.links.is_empty())
    });
    for link in &shared.links {
        let _ = collector.await_span("the linked request", |span| span.name == "compute" && span.id == *link);
    }
    let records: usize = shared.attributes["celeris.records"].parse().unwrap();
    assert!(records > shared.links.len(), "{shared:?}");
}

#[test]
fn failures_are_marked_and_who_asks_is_named_by_the_key() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let node = node(dir.path(), &collector, "sample = 1\nusers = true\n");
    let client = node.client();
    create_model(&client, "films", 92);
    let made = client.post("/v1/keys", &json!({"name": "root", "roles": ["admin"]})).expect(201);
    let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    observe(&client.with_key(key), &[], "ann");
    let observed = collector.await_span("the observation", |span| span.attributes.contains_key("celeris.user"));
    assert_eq!(observed.attributes["celeris.user"], "ann");
    assert!(observed.attributes["celeris.principal"].contains(id), "{observed:?}");
    assert_eq!(client.get("/v1/models").status, 401);
    let refused = collector.await_span("the refusal", |span| {
        span.attributes.get("http.response.status_code").is_some_and(|status| status == "401")
    });
    assert!(!refused.is_error && !refused.attributes.contains_key("celeris.principal"), "{refused:?}");
    assert!(!collector.has_seen(key));
}

#[test]
fn a_training_is_a_trace_that_refers_to_its_request() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let node = node(dir.path(), &collector, "sample = 0\n");
    let films = create_model(&node.client(), "films", 93);
    for user in 0..30 {
        films
            .observe(&json!({"user": format!("u{user}"), "item": format!("item-{}", user % 3), "label": 1 + user % 5}));
    }
    let parent = traceparent("01");
    let begun = node.client().try_with(("POST", "/v1/models/films/retrain"), &[("traceparent", &parent)], &json!({}));
    let job = begun.unwrap().expect(202)["job"].as_str().unwrap().to_owned();
    let retrain = collector.await_span("the training", |span| span.name == "retrain");
    assert_eq!((&*retrain.parent, &retrain.attributes["celeris.job"]), ("", &job));
    assert!(retrain.trace != TRACE && ["succeeded", "rejected"].contains(&&*retrain.attributes["celeris.outcome"]));
    let spans = collector.spans();
    for name in ["retrain.export", "retrain.train", "retrain.conclude"] {
        let step = spans.iter().find(|span| span.name == name).unwrap();
        assert_eq!((&step.trace, &step.parent), (&retrain.trace, &retrain.id), "{step:?}");
    }
    let linked = spans.iter().find(|span| span.id == retrain.links[0]).unwrap();
    assert_eq!(linked.trace, TRACE);
}

#[test]
fn a_dead_collector_delays_neither_requests_nor_the_end_and_what_is_lost_is_counted() {
    let (dir, stuck) = (tempfile::tempdir().unwrap(), Collector::stuck());
    let node = node(dir.path(), &stuck, "sample = 1\nqueue = 20\ntimeout = \"5m\"\n");
    let client = node.client();
    create_model(&client, "films", 94);
    let begun = Instant::now();
    for user in 0..200 {
        assert_eq!(observe(&client, &[], &format!("u{user}")).status, 200);
    }
    // Far less than one attempt to send may take, and far more than two hundred observations do.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let dropped = eventually("spans are dropped", || {
        let metrics = client.get("/metrics").text;
        let line = metrics.lines().find(|line| line.starts_with("celeris_trace_spans_dropped_total"))?.to_owned();
        Some(line)
    });
    assert!(dropped.contains(r#"reason="queue_full""#), "{dropped}");
    let asked = Instant::now();
    let exit = node.terminate();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    // Two seconds for the collector, and the closing of a small store.
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
}

#[test]
fn a_collector_that_is_not_there_is_reported_once_and_found_when_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("node.toml");
    fs::write(
        &config,
        "[tracing]\nsample = 1\ninterval = \"20ms\"\ntimeout = \"200ms\"\nendpoint = \"http://127.0.0.1:1/v1/traces\"\n",
    )
    .unwrap();
    let node = ProcessOptions::default().config(config).serve(&dir.path().join("data"));
    let client = node.client();
    let failed = |client: &Client| {
        let metrics = client.get("/metrics").text;
        let line = metrics.lines().find(|line| line.contains(r#"reason="not_taken""#))?.to_owned();
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    eventually("several batches have failed", || failed(&client).filter(|spans| *spans > 5.0));
    let exit = node.terminate();
    assert_eq!(exit.stderr.matches("takes no traces").count(), 1, "{}", exit.stderr);
}

#[test]
fn settings_of_traces_that_cannot_be_used_end_the_start_with_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |lines: &str| {
        let config = dir.path().join("node.toml");
        fs::write(&config, format!("[tracing]\n{lines}")).unwrap();
        let exit = ProcessOptions::default().config(config).try_serve(&dir.path().join("data")).err().unwrap();
        assert_eq!(exit.code, Some(2), "{}", exit.stderr);
        exit.stderr
    };
    let endpoint = "endpoint = \"http://127.0.0.1:1/v1/traces\"\n";
    assert!(refused("endpoint = \"127.0.0.1:4318\"").contains("tracing.endpoint"));
    assert!(refused("sample = nan").contains("tracing.sample"));
    assert!(refused(&format!("{endpoint}headers_file = \"/nowhere\"")).contains("tracing.headers_file: /nowhere"));
    assert!(refused(&format!("{endpoint}ca_file = \"/nowhere\"")).contains("tracing.ca_file: /nowhere"));
    assert!(!dir.path().join("data").exists(), "nothing is half done");
}

/// The log lines of a node as JSON, by message.
fn lines<'a>(stderr: &'a str, message: &str) -> Vec<Value> {
    let parsed = |line: &'a str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    stderr.lines().map(parsed).filter(|line| line["message"] == message).collect()
}

#[test]
fn log_lines_of_a_request_have_its_ids_under_stable_names() {
    let dir = tempfile::tempdir().unwrap();
    let options = ProcessOptions::default().json_log().variable("RUST_LOG", "info,celeris_api::middleware=debug");
    let node = options.serve(dir.path());
    let client = node.client();
    create_model(&client, "films", 95);
    observe(&client, &[("x-request-id", "order-9"), ("traceparent", &traceparent("01"))], "ann");
    let exit = node.terminate();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    let requests = lines(&exit.stderr, "request");
    let ours: Vec<&Value> = requests.iter().filter(|line| line["request_id"] == "order-9").collect();
    let [line] = *ours else { panic!("{requests:#?}") };
    // Without a collector nothing is recorded, and the trace of the client is there.
    assert_eq!((&line["trace_id"], line.get("span_id")), (&json!(TRACE), None));
    assert_eq!((&line["level"], &line["target"]), (&json!("DEBUG"), &json!("celeris_api::middleware::metrics")));
    assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    assert_eq!((&line["fields"]["status"], &line["fields"]["method"]), (&json!(200), &json!("POST")));
    assert!(requests.iter().all(|line| line["request_id"].as_str().is_some_and(|id| !id.is_empty())));
    let page = include_str!("../../../docs/run/monitoring.md");
    for line in exit.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        for name in line.as_object().unwrap().keys() {
            assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/run/monitoring.md");
        }
    }
}

#[test]
fn every_answer_has_an_id_and_those_of_problems_are_in_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let client = node.client();
    create_model(&client, "films", 96);
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let reply = client.try_with((method, path), headers, &Value::Null).unwrap();
        let id = reply.header("x-request-id").map(str::to_owned).unwrap_or_else(|| panic!("{method} {path}: no id"));
        if reply.status >= 400 {
            assert_eq!(reply.json()["request_id"], *id, "{method} {path}");
        }
        (reply.status, id)
    };
    for (method, path, status) in [
        ("GET", "/healthz", 200),
        ("GET", "/metrics", 200),
        ("GET", "/", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/v1/models/none", 404),
        ("GET", "/nowhere", 404),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/models/films/recommend", 405),
    ] {
        assert_eq!(ask(method, path, &[("x-request-id", "a-1")]), (status, "a-1".to_owned()), "{method} {path}");
        assert_ne!(ask(method, path, &[]).1, ask(method, path, &[]).1);
    }
    assert_eq!(ask("GET", "/v1/models", &[("host", "evil.example"), ("x-request-id", "b")]), (421, "b".to_owned()));
    assert_eq!(ask("GET", "/v1/models", &[("origin", "http://evil.example")]).0, 403);
    let long = "x".repeat(129);
    for hostile in ["two words", "a,b", "<script>", "%0d%0a", &long] {
        let (status, id) = ask("GET", "/v1/models", &[("x-request-id", hostile)]);
        assert!(status == 200 && id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hostile}: {id}");
    }
}
