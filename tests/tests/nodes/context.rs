//! The context of requests: where it is recorded, who inherits it, and what is refused.

use celeris_tests::fixtures::{all_items, config_file, create_model};
use celeris_tests::{ModelClient, Node, ProcessOptions, eventually, sealed};
use serde_json::{Value, json};

fn evening() -> Value {
    json!({"device": "phone", "hour": 21, "price": 2.5, "returning": true, "tags": ["sale", "home"]})
}

/// The contexts of a user's events, newest first.
fn history(films: &ModelClient, user: &str) -> Vec<Value> {
    let view = films.user(user, 100);
    view["history"].as_array().unwrap().iter().map(|event| event["context"].clone()).collect()
}

#[test]
fn an_observation_inherits_the_context_of_its_decision_unless_it_has_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let config = config_file(dir.path(), "[sealing]\ninterval = \"1s\"\n");
    let serve = || ProcessOptions::default().config(&config).serve(&dir.path().join("data"));
    let node = serve();
    let films = create_model(&node.client(), "films", 5);
    let ranked =
        films.post("topk", &json!({"user": "u", "items": all_items(), "k": 3, "context": evening()})).expect(200);
    let id = ranked["decision_id"].as_str().unwrap().to_owned();
    let shown = |slot: usize| ranked["items"][slot]["item"].clone();
    assert_eq!(films.get(&format!("decisions/{id}")).expect(200)["context"], evening());
    films.observe(&json!({"user": "u", "item": shown(0), "label": 5, "decision_id": id, "observation_id": "inherits"}));
    let own = json!({"hour": 3});
    films.observe(&json!({"user": "u", "item": shown(1), "label": 1, "decision_id": id, "context": own}));
    films.observe(&json!({"user": "u", "item": shown(2), "label": 1, "context": {"none": null}}));
    // The decision is of another user.
    films.observe(&json!({"user": "v", "item": shown(2), "label": 1, "decision_id": id}));
    let line = json!({"user": "u", "item": shown(2), "label": 2, "context": {"page": "home"}});
    assert!(films.observe_lines(&format!("{line}\n")).unwrap().all(|line| line.is_ok()));
    let expected = vec![json!({"page": "home"}), Value::Null, own, evening()];
    assert_eq!(history(&films, "u"), expected);
    assert_eq!(history(&films, "v"), [Value::Null]);
    // A repetition need not know what was inherited, and may not contradict it.
    let again = json!({"user": "u", "item": shown(0), "label": 5, "decision_id": id, "observation_id": "inherits"});
    assert_eq!(films.observe(&again)["duplicate"], true);
    let other = json!({"user": "u", "item": shown(0), "label": 5, "decision_id": id, "observation_id": "inherits", "context": {}});
    assert_eq!(films.observe(&other)["duplicate"], true, "an empty one is as none");
    let other = json!({"user": "u", "item": shown(0), "label": 5, "decision_id": id, "observation_id": "inherits", "context": {"hour": 1}});
    films.post("observe", &other).expect(409);
    // A correction keeps it.
    films.put("observations/inherits?user=u", &json!({"label": 2})).expect(200);
    let data = dir.path().join("data");
    let contexts = eventually("the observations are sealed", || {
        let rows = sealed::read(&data, "films")?.rows;
        let contexts = rows.into_values().map(|row| (row.observation_id, row.label, row.context)).collect::<Vec<_>>();
        contexts.iter().any(|(id, label, _)| id == "inherits" && *label == 2.0).then_some(contexts)
    });
    let (_, _, context) = contexts.iter().find(|(id, ..)| id == "inherits").unwrap();
    assert_eq!(serde_json::from_str::<Value>(context.as_deref().unwrap()).unwrap(), evening());
    assert_eq!(contexts.iter().filter(|(.., context)| context.is_none()).count(), 2);
    assert_eq!(node.terminate().code, Some(0));
    let node = serve();
    let films = node.model("films");
    assert_eq!(
        history(&films, "u").iter().filter(|context| !context.is_null()).cloned().collect::<Vec<_>>(),
        [expected[0].clone(), expected[2].clone(), expected[3].clone()]
    );
    let recommended = films.post("recommend", &json!({"user": "u", "k": 2, "context": evening()})).expect(200);
    let decision =
        films.get(&format!("decisions/{}?replay=true", recommended["decision_id"].as_str().unwrap())).expect(200);
    assert_eq!((&decision["context"], &decision["replay"]["same"]), (&evening(), &json!(true)));
    assert_eq!(films.get(&format!("decisions/{id}")).expect(200)["context"], evening());
}

#[test]
fn what_is_no_context_is_refused_by_the_name_of_its_field() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 5);
    let many: Value =
        (0..33).map(|field| (format!("field-{field}"), json!(1))).collect::<serde_json::Map<_, _>>().into();
    for (context, problem) in [
        (json!({"hour": {"of": "day"}}), "context.hour"),
        (json!({"tags": ["a", 1]}), "context.tags"),
        (json!({"price": 1e300}), "price"),
        (json!({"": 1}), "1 to 64 bytes"),
        (json!({"text": "x".repeat(1025)}), "1024 bytes"),
        (json!({"texts": vec![""; 1025]}), "1024 bytes"),
        (many, "32 fields"),
        (json!([1]), "context"),
        (json!("phone"), "context"),
    ] {
        let topk = json!({"user": "u", "items": all_items(), "k": 3, "context": context});
        let recommend = json!({"user": "u", "k": 3, "context": context});
        let observe = json!({"user": "u", "item": "item-1", "label": 1, "context": context});
        for (call, body) in [("topk", topk), ("recommend", recommend), ("observe", observe)] {
            let refused = films.post(call, &body);
            assert_eq!(refused.status, 422, "{call} {context}: {}", refused.text);
            assert!(
                refused.text.contains(problem) && refused.text.contains("context"),
                "{call} {context}: {}",
                refused.text
            );
        }
    }
    assert_eq!(films.user("u", 10)["user_epoch"], 0, "nothing was learnt");
}

#[test]
fn a_field_of_a_stream_keeps_its_type() {
    let dir = tempfile::tempdir().unwrap();
    let serve = || ProcessOptions::default().serve(&dir.path().join("data"));
    let node = serve();
    let films = create_model(&node.client(), "films", 5);
    let observe = |films: &ModelClient, context: Value| {
        films.post("observe", &json!({"user": "u", "item": "item-1", "label": 1, "context": context}))
    };
    observe(&films, json!({"hour": 21, "device": "phone"})).expect(200);
    observe(&films, json!({"tags": ["a"], "hour": 22})).expect(200);
    let fields = json!([
        {"name": "device", "type": "text"}, {"name": "hour", "type": "number"}, {"name": "tags", "type": "texts"}
    ]);
    assert_eq!(films.get("").expect(200)["context_fields"], fields);
    let refused = |films: &ModelClient| {
        let other = json!({"hour": "late", "page": "home"});
        let items = all_items();
        for (call, body) in [
            ("predict", json!({"user": "u", "items": items, "context": other})),
            ("topk", json!({"user": "u", "items": items, "k": 3, "context": other})),
            ("recommend", json!({"user": "u", "k": 3, "context": other})),
            ("observe", json!({"user": "u", "item": "item-1", "label": 1, "context": other})),
        ] {
            let reply = films.post(call, &body);
            assert_eq!(
                (reply.status, &reply.json()["errors"][0]["pointer"]),
                (422, &json!("/context")),
                "{call}: {}",
                reply.text
            );
            assert!(reply.text.contains("hour: the stream has a number in this field, got a string"), "{}", reply.text);
        }
    };
    refused(&films);
    let lines = [json!({"hour": true}), json!({"hour": 3})];
    let lines = lines.map(|context| json!({"user": "u", "item": "item-1", "label": 1, "context": context}).to_string());
    let answers: Vec<Value> = films.observe_lines(&lines.join("\n")).unwrap().map(Result::unwrap).collect();
    assert_eq!((&answers[0]["error"]["status"], &answers[1]["duplicate"]), (&json!(422), &json!(false)));
    assert_eq!(films.get("").expect(200)["context_fields"], fields, "what is refused defines nothing");
    // Another model of the stream has its fields; one of another stream has its own.
    node.client().post("/v1/models", &json!({"name": "other", "stream": "films", "dim": 4})).expect(201);
    node.client().post("/v1/models", &json!({"name": "books", "dim": 4})).expect(201);
    refused(&node.model("other"));
    observe(&node.model("books"), json!({"hour": "late"})).expect(200);
    drop(node);
    let node = serve();
    assert_eq!(node.model("films").get("").expect(200)["context_fields"], fields);
    refused(&node.model("films"));
}

#[test]
fn what_a_reward_inherits_is_what_fits_the_stream() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 5);
    let context = json!({"hour": "late", "page": "home"});
    let ranked =
        films.post("topk", &json!({"user": "u", "items": all_items(), "k": 1, "context": context})).expect(200);
    // Meanwhile the field gets another type.
    films.observe(&json!({"user": "v", "item": "item-1", "label": 1, "context": {"hour": 21}}));
    let (id, item) = (&ranked["decision_id"], &ranked["items"][0]["item"]);
    films.observe(&json!({"user": "u", "item": item, "label": 5, "decision_id": id}));
    assert_eq!(history(&films, "u"), [json!({"page": "home"})]);
}

#[test]
fn a_stream_has_a_bounded_number_of_fields() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 5);
    let context = |from: usize, count: usize| -> Value {
        (from..from + count).map(|field| (format!("f{field}"), json!(1))).collect::<serde_json::Map<_, _>>().into()
    };
    let observe =
        |context: Value| films.post("observe", &json!({"user": "u", "item": "item-1", "label": 1, "context": context}));
    (0..8).for_each(|part| drop(observe(context(32 * part, 32)).expect(200)));
    let refused = observe(context(255, 2));
    assert_eq!(refused.status, 422);
    assert!(
        refused.text.contains("f256: the contexts of a stream have at most 256 different fields"),
        "{}",
        refused.text
    );
    observe(context(255, 1)).expect(200);
    let ranked = films.post("topk", &json!({"user": "u", "items": all_items(), "k": 1, "context": context(256, 1)}));
    assert_eq!(ranked.status, 422);
}
