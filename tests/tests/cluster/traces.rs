//! One trace over the nodes of a cluster.

use celeris_tests::{Cluster, Collector, Received, eventually};
use serde_json::json;

use crate::load::MODEL;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

#[test]
fn an_observation_that_is_forwarded_is_one_trace_up_to_the_commit_on_its_owner() {
    let collector = Collector::start();
    let settings = format!("[tracing]\nsample = 0\ninterval = \"20ms\"\n{}", collector.setting());
    let Some(cluster) = Cluster::configured(2, 1, &settings) else { return };
    cluster.client(0).post("/v1/models", &json!({"name": MODEL, "dim": 8})).expect(201);
    for node in 0..2 {
        eventually("the node has the model", || {
            (cluster.client(node).get(&format!("/v1/models/{MODEL}")).status == 200).then_some(())
        });
    }
    let observe = |user: usize, flags: &str| {
        let body = json!({"user": format!("u{user}"), "item": "i", "label": 1});
        let path = format!("/v1/models/{MODEL}/observe");
        let parent = format!("00-{TRACE}-{PARENT}-{flags}");
        let headers = [("traceparent", &*parent), ("x-request-id", "order-3")];
        let reply = cluster.client(0).try_with(("POST", &path), &headers, &body).unwrap();
        assert_eq!((reply.status, reply.header("x-request-id")), (200, Some("order-3")), "{}", reply.text);
        let owner = reply.header("celeris-owner").unwrap().to_owned();
        !owner.starts_with(cluster.client(0).url())
    };
    // What this node does not record, the owner does not either.
    let forwarded = (0..50).find(|user| observe(*user, "00")).expect("the other node owns a user");
    assert!(observe(forwarded, "01"));

    let commit = collector.await_span("the commit", |span| span.name == "log.commit");
    let _ = collector.await_span("the replication", |span| span.name == "log.replicate" && span.parent == commit.id);
    let _ = collector.await_span("the first request", |span| span.kind == 2 && span.parent == PARENT);
    let spans = collector.spans();
    let observe = "POST /v1/models/{model}/observe";
    let expected = [("log.commit", "b"), ("compute", "b"), (observe, "b"), ("forward", "a"), (observe, "a")];
    assert_eq!(path(&spans, &commit.id), expected.map(|(name, node)| (name.to_owned(), node.to_owned())));
    let forward = spans.iter().find(|span| span.name == "forward").unwrap();
    assert_eq!((forward.kind, &*forward.attributes["celeris.node"]), (3, "b"));
    let of_owner = spans.iter().find(|span| span.parent == forward.id).unwrap();
    assert_eq!(of_owner.attributes["celeris.request_id"], "order-3");
    assert_eq!(spans.iter().filter(|span| span.kind == 2).count(), 2, "{spans:#?}");
}

/// From a span up: each with its node.
fn path(spans: &[Received], from: &str) -> Vec<(String, String)> {
    let (mut span, mut path) = (from, Vec::new());
    while span != PARENT {
        let found = by_id(spans, span);
        assert_eq!(found.trace, TRACE);
        path.push((found.name.clone(), found.resource["service.instance.id"].clone()));
        span = &found.parent;
    }
    path
}

fn by_id<'a>(spans: &'a [Received], id: &str) -> &'a Received {
    spans.iter().find(|span| span.id == id).unwrap_or_else(|| panic!("no {id} in {spans:#?}"))
}
