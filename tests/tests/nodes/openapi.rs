//! The description of the API is complete, and its bounds and defaults are those of the node.

use std::collections::BTreeSet;

use celeris_tests::Node;
use serde_json::{Value, json};

/// Schemas that allow any JSON, by the end of their path: attributes of items, also of those that a pipeline is run on,
/// details of events, and features in the form of Personalizer.
const FREE_FORM: [&str; 5] = [
    "/properties/attributes",
    "/properties/details",
    "RunRecord/properties/item",
    "/properties/contextFeatures/items",
    "/properties/features/items",
];

fn node() -> (tempfile::TempDir, Node, Value) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let description = node.client().get("/openapi.json").expect(200);
    (dir, node, description)
}

/// Calls `visit` with every schema below `schema`, and with the path to it.
fn walk(path: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    for keyword in ["properties", "$defs"] {
        for (name, inner) in schema[keyword].as_object().into_iter().flatten() {
            walk(&format!("{path}/{keyword}/{name}"), inner, visit);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if schema[keyword].is_object() {
            walk(&format!("{path}/{keyword}"), &schema[keyword], visit);
        }
    }
    for keyword in ["oneOf", "anyOf", "allOf", "prefixItems"] {
        for (index, inner) in schema[keyword].as_array().into_iter().flatten().enumerate() {
            walk(&format!("{path}/{keyword}/{index}"), inner, visit);
        }
    }
}

/// Every operation, with its path.
fn operations(description: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let paths = description["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, methods)| methods.as_object().unwrap().values().map(|method| (path.as_str(), method)))
}

/// The contents of a request or reply by media type.
fn contents(body: &Value) -> impl Iterator<Item = (&String, &Value)> {
    body["content"].as_object().into_iter().flatten()
}

/// The responses of an operation by status, with references resolved.
fn responses<'a>(description: &'a Value, operation: &'a Value) -> impl Iterator<Item = (&'a str, &'a Value)> {
    operation["responses"].as_object().unwrap().iter().map(|(status, response)| {
        let reference = response["$ref"].as_str().map(|reference| reference.strip_prefix('#').unwrap());
        (status.as_str(), reference.map_or(response, |pointer| description.pointer(pointer).unwrap()))
    })
}

/// Calls `visit` with every schema of the description: components, parameters, and the bodies of
/// requests and replies.
fn walk_all(description: &Value, visit: &mut impl FnMut(&str, &Value)) {
    for (name, schema) in description["components"]["schemas"].as_object().unwrap() {
        walk(name, schema, visit);
    }
    for (path, operation) in operations(description) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            walk(path, &parameter["schema"], visit);
        }
        let replies = responses(description, operation).map(|(_, response)| response);
        for body in std::iter::once(&operation["requestBody"]).chain(replies) {
            contents(body).for_each(|(_, content)| walk(path, &content["schema"], visit));
        }
    }
}

fn is_type(schema: &Value, name: &str) -> bool {
    let types = &schema["type"];
    *types == name || types.as_array().is_some_and(|types| types.contains(&json!(name)))
}

#[test]
fn every_value_is_described() {
    let (_dir, _node, description) = node();
    let (mut bare, mut seen) = (Vec::new(), 0);
    walk_all(&description, &mut |path, schema| {
        seen += 1;
        let keywords = ["type", "$ref", "oneOf", "anyOf", "allOf", "enum", "const"];
        let is_untyped = keywords.iter().all(|keyword| schema[keyword].is_null());
        let has = |keyword: &str| schema[keyword].as_object().is_some_and(|inner| !inner.is_empty());
        let is_bare_object = is_type(schema, "object") && !has("properties") && !has("additionalProperties");
        let place = path.trim_end_matches("/additionalProperties");
        if (is_untyped || is_bare_object) && !FREE_FORM.iter().any(|free| place.ends_with(free)) {
            bare.push(path.to_owned());
        }
    });
    assert!(seen > 500, "only {seen} schemas were seen");
    assert!(bare.is_empty(), "described as any JSON: {bare:#?}");
}

#[test]
fn references_lead_to_schemas() {
    let (_dir, _node, description) = node();
    let schemas = description["components"]["schemas"].as_object().unwrap();
    walk_all(&description, &mut |path, schema| {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(schemas.contains_key(name), "{path}: {reference}");
        }
    });
}

#[test]
fn every_operation_has_an_id_of_its_own_and_its_parameters() {
    let (_dir, _node, description) = node();
    let mut ids = BTreeSet::new();
    for (path, operation) in operations(&description) {
        let id = operation["operationId"].as_str().unwrap();
        assert!(ids.insert(id), "{path}: {id} is the id of another operation");
        let mut in_path = BTreeSet::new();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let (name, place) = (parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap());
            assert!(place == "query" || in_path.insert(name), "{path}: {name} twice");
            assert!(!parameter["description"].as_str().unwrap_or_default().is_empty(), "{path}: {name}");
            // A copy of observations names the worker that has asked for it.
            let needed = place == "path" || (path, name) == ("/v1/studies/{study}/data", "worker");
            assert_eq!(parameter["required"], needed, "{path}: {name}");
        }
        let template = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        assert_eq!(in_path, template.collect(), "{path}: parameters in the path");
    }
    assert!(ids.len() > 35, "only {ids:?}");
}

#[test]
fn every_response_is_described_and_every_problem_is_a_problem() {
    let (_dir, _node, description) = node();
    for (path, operation) in operations(&description) {
        let id = operation["operationId"].as_str().unwrap();
        let mut successes = 0;
        for (status, response) in responses(&description, operation) {
            assert!(!response["description"].as_str().unwrap_or_default().is_empty(), "{id}: {status}");
            if status.starts_with('2') {
                successes += 1;
                continue;
            }
            // Requests in the form of Personalizer have problems in that form.
            let (form, schema) = if path.contains("/personalizer/") {
                ("application/json", "PersonalizerFailure")
            } else {
                ("application/problem+json", "Problem")
            };
            let (problems, others): (Vec<_>, Vec<_>) =
                contents(response).partition(|(media_type, _)| *media_type == form);
            let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
            assert_eq!(problems.len(), 1, "{id}: {status}");
            assert_eq!(problems[0].1, &json!({"schema": schema}), "{id}: {status}");
            // Many lines that are all rejected are answered like lines that are taken.
            let of_lines = operation["responses"]["200"]["content"].get("application/x-ndjson").is_some();
            assert!(others.is_empty() || of_lines && others.len() == 2, "{id}: {status}");
        }
        assert_eq!(successes, 1, "{id}");
        let has = |status: &str| operation["responses"].get(status).is_some();
        // A node that is in no cluster has nothing to drain.
        let names_something = path.contains('{') || ["list_jobs", "drain"].contains(&id);
        assert_eq!(has("404"), names_something, "{id}: a name that does not exist");
        assert!(operation["requestBody"].is_null() || has("415"), "{id}: a body of another type");
        assert!(path == "/healthz" || has("503"), "{id}: an overloaded node");
    }
}

/// Settings of a model: name of the schema, path in the request, and required fields.
fn settings() -> [(&'static str, &'static [&'static str], Value); 12] {
    [
        ("ModelChange", &[], json!({})),
        ("Gate", &["gate"], json!({})),
        ("Guard", &["guard"], json!({})),
        ("Trainer", &["trainer"], json!({})),
        ("TrainerLimits", &["trainer", "limits"], json!({})),
        ("DefaultReward", &["default_reward"], json!({"label": 0, "after_seconds": 60})),
        ("TriggersChange", &["triggers"], json!({})),
        ("ThresholdTrigger", &["triggers", "threshold"], json!({})),
        ("DriftTrigger", &["triggers", "drift"], json!({})),
        ("ScheduleTrigger", &["triggers", "schedule"], json!({})),
        ("VolumeTrigger", &["triggers", "volume"], json!({"observations": 100})),
        ("PopularityTrigger", &["triggers", "popularity"], json!({})),
    ]
}

/// The documented bounds of a number, each as a value just within it and one just beyond.
fn bounds(property: &Value) -> Vec<(Value, Value)> {
    let step = |bound: &Value, sign: i64| match (bound.as_i64(), is_type(property, "integer")) {
        (Some(bound), true) => json!(bound + sign),
        _ => {
            let bound = bound.as_f64().unwrap();
            json!(bound + sign as f64 * (bound.abs() * 1e-6).max(1e-6))
        }
    };
    let mut bounds = Vec::new();
    for (keyword, sign) in [("minimum", -1), ("maximum", 1)] {
        let bound = &property[keyword];
        if bound.is_number() {
            bounds.push((bound.clone(), step(bound, sign)));
        }
    }
    if property["exclusiveMaximum"].is_number() {
        bounds.push((step(&property["exclusiveMaximum"], -1), property["exclusiveMaximum"].clone()));
    }
    bounds
}

#[test]
fn the_documented_bounds_of_settings_are_enforced() {
    let (_dir, node, description) = node();
    node.client().post("/v1/models", &json!({"name": "films", "dim": 4})).expect(201);
    let films = node.model("films");
    let mut tried = 0;
    for (schema, place, needed) in settings() {
        let schema = &description["components"]["schemas"][schema];
        for (name, property) in schema["properties"].as_object().unwrap() {
            let change = |value: &Value| {
                let mut settings = needed.clone();
                settings[name] = value.clone();
                films.patch("", &place.iter().rfold(settings, |inner, key| json!({*key: inner})))
            };
            for (within, beyond) in bounds(property) {
                change(&within).expect(200);
                let refused = change(&beyond).expect(422);
                assert!(refused["detail"].as_str().unwrap().contains(name.as_str()), "{beyond}: {refused}");
                tried += 1;
            }
        }
    }
    assert!(tried > 40, "only {tried} bounds were tried");
}

#[test]
fn a_new_model_has_the_documented_defaults() {
    let (_dir, node, description) = node();
    let created = node.client().post("/v1/models", &json!({"name": "films"})).expect(201);
    for (schema, settings) in
        [("Gate", &created["gate"]), ("Guard", &created["guard"]), ("Triggers", &created["triggers"])]
    {
        let described = description["components"]["schemas"][schema]["properties"].as_object().unwrap();
        let left_out = described.iter().filter(|(name, _)| settings.get(name.as_str()).is_none());
        for (name, property) in left_out {
            let default = property.get("default").unwrap_or(&Value::Null);
            assert!(default.is_null(), "{schema}.{name}: its default {default} is in no reply");
        }
        for (name, value) in settings.as_object().unwrap() {
            assert_eq!(described[name].get("default").unwrap_or(&Value::Null), value, "{schema}.{name}");
        }
    }
}

#[test]
fn every_kind_of_filter_is_described() {
    let (_dir, node, description) = node();
    node.client().post("/v1/models", &json!({"name": "films", "dim": 4})).expect(201);
    let kinds = description["components"]["schemas"]["Filter"]["properties"].as_object().unwrap();
    let request = json!({"user": "u", "k": 1, "filter": {}});
    let refused = node.model("films").post("recommend", &request).expect(422);
    let detail = refused["detail"].as_str().unwrap();
    let (_, named) = detail.split_once("one of ").unwrap();
    let (named, _) = named.split_once(" at").unwrap();
    let named: BTreeSet<&str> = named.split(", ").collect();
    assert_eq!(named, kinds.keys().map(String::as_str).collect(), "{detail:?}");
}
