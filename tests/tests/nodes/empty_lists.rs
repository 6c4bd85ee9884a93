//! An empty recommendation says why, and what can be filtered by is listed.

use celeris_tests::{ModelClient, Node};
use serde_json::{Value, json};

fn node() -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    (dir, node)
}

/// A model with three described items.
fn films(node: &Node) -> ModelClient {
    node.client().post("/v1/models", &json!({"name": "films", "dim": 4})).expect(201);
    let films = node.model("films");
    for (item, genres, year) in [("a", json!(["Drama"]), 1950), ("b", json!(["Drama", "War"]), 1940)] {
        films.put(&format!("items/{item}"), &json!({"attributes": {"genres": genres, "year": year}})).expect(200);
    }
    let coming = json!({"attributes": {"genres": ["Noir"], "available_from": "2999-01-01T00:00:00Z", "new": true}});
    films.put("items/c", &coming).expect(200);
    films
}

/// Recommends to `u`; `more` holds further fields of the request.
fn recommend(films: &ModelClient, more: &Value) -> Value {
    let mut request = json!({"user": "u", "k": 5});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    films.post("recommend", &request).expect(200)
}

#[test]
fn an_empty_recommendation_has_the_first_reason_that_applies() {
    let (_dir, node) = node();
    node.client().post("/v1/models", &json!({"name": "empty", "dim": 4})).expect(201);
    let empty = recommend(&node.model("empty"), &json!({}));
    assert_eq!((&empty["items"], &empty["reason"]), (&json!([]), &json!("no_items")));

    let films = films(&node);
    let eq = |field: &str, value: &str| json!({"eq": {"field": field, "value": value}});
    for (more, reason) in [
        (json!({"filter": eq("genre", "Drama")}), "filter_names_unknown_attribute"),
        (json!({"filter": eq("genres", "drama")}), "filter_matches_nothing"),
        (json!({"filter": eq("genres", "Noir")}), "none_available"),
        (json!({"filter": eq("genres", "War"), "exclude": ["b"]}), "all_excluded"),
        (json!({"users": ["u", "v"], "user": null, "exclude": ["a", "b"]}), "all_excluded"),
        (json!({"history": [{"item": "b", "label": 1}], "user": null, "filter": eq("genres", "War")}), "all_seen"),
    ] {
        let reply = recommend(&films, &more);
        assert_eq!((&reply["items"], &reply["reason"]), (&json!([]), &json!(reason)), "{more}: {reply}");
        assert!(reply["reason_detail"].as_str().is_some_and(|detail| detail.len() > 20), "{reply}");
    }
    for item in ["a", "b"] {
        films.observe(&json!({"user": "u", "item": item, "label": 3}));
    }
    assert_eq!(recommend(&films, &json!({}))["reason"], "all_seen");
    let shown = recommend(&films, &json!({"exclude_seen": false}));
    assert_eq!(shown["items"].as_array().unwrap().len(), 2);
    for absent in ["reason", "reason_detail", "unknown_attributes"] {
        assert_eq!(shown.get(absent), None, "{absent}");
    }
}

#[test]
fn wrong_names_of_attributes_are_reported_with_the_nearest_also_where_items_match() {
    let (_dir, node) = node();
    let films = films(&node);
    let filter = json!({"any": [{"exists": {"field": "genre"}}, {"exists": {"field": "yaer"}}]});
    let reply = recommend(&films, &json!({"filter": filter}));
    let expected = json!([{"name": "genre", "nearest": ["genres"]}, {"name": "yaer", "nearest": ["year"]}]);
    assert_eq!(reply["unknown_attributes"], expected);
    let detail = reply["reason_detail"].as_str().unwrap();
    assert!(detail.contains(r#"no item has the attribute "genre"; the nearest names are genres"#), "{detail}");

    let boost = json!([{"filter": {"exists": {"field": "studio"}}, "add": 1}]);
    let reply = recommend(&films, &json!({"boost": boost}));
    assert_eq!(reply["items"].as_array().unwrap().len(), 2);
    assert_eq!(reply["unknown_attributes"], json!([{"name": "studio", "nearest": []}]));
}

#[test]
fn attributes_are_listed_with_kinds_counts_and_frequent_values() {
    let (_dir, node) = node();
    let films = films(&node);
    let listed = films.get("attributes").expect(200);
    let genres = json!({
        "name": "genres", "kinds": ["keyword"], "items": 3, "distinct": 3, "numbers": null,
        "values": [{"value": "Drama", "items": 2}, {"value": "Noir", "items": 1}, {"value": "War", "items": 1}],
    });
    let year = json!({
        "name": "year", "kinds": ["number"], "items": 2, "distinct": 0, "values": [],
        "numbers": {"items": 2, "min": 1940.0, "max": 1950.0},
    });
    let names: Vec<&Value> = listed["attributes"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["available_from", "genres", "new", "year"]);
    assert_eq!((&listed["attributes"][1], &listed["attributes"][3]), (&genres, &year));
    assert_eq!(listed["attributes"][0]["kinds"], json!(["keyword", "number"]), "a time is both");
    assert_eq!(listed["attributes"][2]["values"], json!([{"value": true, "items": 1}]));

    let one = films.get("attributes?values=1").expect(200);
    assert_eq!(one["attributes"][1]["values"], json!([{"value": "Drama", "items": 2}]));
    films.get("attributes?values=101").expect(422);
    node.model("nowhere").get("attributes").expect(404);
}
