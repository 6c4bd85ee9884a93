//! Requests in the form of Azure Personalizer: rank, reward, activation, several slots, settings and errors.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use celeris_tests::fixtures::config_file;
use celeris_tests::{Client, Divided, Node, NodeProcess, ProcessOptions, Reply, eventually};
use serde_json::{Value, json};

const HOME: &str = "[personalizer]\nmodel = \"home\"\n";

fn create(client: &Client, settings: &Value) {
    let mut model = json!({"name": "home", "dim": 33, "policy": {"name": "epsilon_greedy", "epsilon": 0.2},
        "triggers": {}});
    model.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    client.post("/v1/models", &model).expect(201);
}

/// A node whose model answers `/personalizer/…`.
fn node(dir: &Path, settings: &str) -> Node {
    let node = Node::configured(dir, &config_file(dir, format!("{HOME}{settings}")));
    create(&node.client(), &json!({}));
    node
}

fn rank(client: &Client, body: &Value) -> Reply {
    client.post("/personalizer/v1.0/rank", body)
}

fn reward(client: &Client, event: &str, value: f64) -> Reply {
    client.post(&format!("/personalizer/v1.0/events/{event}/reward"), &json!({ "value": value }))
}

fn activate(client: &Client, event: &str) -> Reply {
    post_nothing(client, &format!("/personalizer/v1.0/events/{event}/activate"))
}

/// Without a body, as the SDKs send it: with a length and no type.
fn post_nothing(client: &Client, path: &str) -> Reply {
    client.try_with(("POST", path), &[("content-length", "0")], &Value::Null).unwrap()
}

fn actions(ids: &[&str]) -> Value {
    ids.iter().map(|id| json!({"id": id, "features": [{"topic": format!("about {id}")}]})).collect()
}

/// The decision of an event whose id the node has made.
fn decision(client: &Client, event: &Value) -> Value {
    let id = event.as_str().unwrap().strip_suffix("-0").unwrap();
    client.get(&format!("/v1/models/home/decisions/{id}")).expect(200)
}

/// The error of a reply, which has their form.
#[track_caller]
fn error(reply: &Reply, status: u16) -> Value {
    let body: Value = serde_json::from_str(&reply.text).unwrap();
    assert_eq!(reply.status, status, "{body}");
    assert!(body["error"]["code"].is_string() && body["error"]["message"].is_string(), "{body}");
    assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
    body["error"].clone()
}

#[test]
fn a_ranking_has_the_probabilities_of_its_decision_and_its_first_reward_counts() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), "");
    let client = node.client();
    let body = json!({"contextFeatures": [{"timeOfDay": "morning", "user": {"age": 31}}],
        "actions": actions(&["news", "film", "sport"]), "excludedActions": ["sport", "other"]});
    for root in
        ["/personalizer/v1.0", "/personalizer/v1.1-preview.3", "/personalizer", "/v1/models/home/personalizer/v1.1"]
    {
        let ranked = client.post(&format!("{root}/rank"), &body).expect(201);
        let ranking = ranked["ranking"].as_array().unwrap();
        let chosen = &ranked["rewardActionId"];
        assert_eq!(ranking[0]["id"], *chosen);
        assert_eq!(ranking[2], json!({"id": "sport", "probability": 0.0}));
        let sum: f64 = ranking.iter().map(|action| action["probability"].as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "rounded to single precision: {sum}");
        let event = ranked["eventId"].as_str().unwrap();
        let made = decision(&client, &ranked["eventId"]);
        assert_eq!(made["slots"][0]["propensity"], ranking[0]["probability"]);
        assert_eq!(made["slots"][0]["item"], *chosen);
        assert_eq!(made["context"], json!({"timeOfDay": "morning", "user.age": 31}));
        assert_eq!(made["slots"][0]["reward"], Value::Null);
        let path = format!("{root}/events/{event}/reward");
        for value in [0.75, 0.75, -1.0] {
            assert_eq!(client.post(&path, &json!({ "value": value })).status, 204);
        }
        let rewarded = decision(&client, &ranked["eventId"]);
        assert_eq!(rewarded["slots"][0]["reward"], 0.75, "the first reward counts");
        assert_eq!(rewarded["outcomes"].as_array().unwrap().len(), 1, "others are not learnt");
    }
    let item = client.get("/v1/models/home/items/news").expect(200);
    assert_eq!(item["attributes"], json!({"topic": "about news"}));
    assert_eq!(item["features"].as_array().unwrap().len(), 33);
}

/// How often each action was chosen in the last of `events`, of which those are rewarded that `is_good`.
fn learnt(client: &Client, context: &Value, is_good: impl Fn(&str) -> bool, events: usize) -> BTreeMap<String, usize> {
    let mut chosen = BTreeMap::new();
    for event in 0..events {
        let body = json!({"contextFeatures": [context], "actions": actions(&["tea", "coffee", "beer"])});
        let ranked = rank(client, &body).expect(201);
        let action = ranked["rewardActionId"].as_str().unwrap();
        let value = if is_good(action) { 1.0 } else { 0.0 };
        assert_eq!(reward(client, ranked["eventId"].as_str().unwrap(), value).status, 204);
        if event >= events / 2 {
            *chosen.entry(action.to_owned()).or_default() += 1;
        }
    }
    chosen
}

#[test]
fn the_rewarded_action_rises() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), "");
    let chosen = learnt(&node.client(), &json!({}), |action| action == "coffee", 200);
    // 87 % are expected, with a standard deviation of 3 %.
    assert!(chosen["coffee"] > 70, "{chosen:?}");
    // Other actions are explored on.
    assert!(chosen["tea"] + chosen["beer"] > 0, "{chosen:?}");
    let ranked = rank(&node.client(), &json!({"actions": actions(&["tea", "coffee"])})).expect(201);
    let probability = |id: &str| {
        let ranking = ranked["ranking"].as_array().unwrap();
        ranking.iter().find(|action| action["id"] == id).unwrap()["probability"].as_f64().unwrap()
    };
    assert!(probability("coffee") > 0.85 && probability("tea") > 0.05, "{ranked}");
}

#[test]
fn users_named_by_context_features_learn_for_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), "user_fields = [\"when.timeOfDay\", \"weekend\"]\n");
    let client = node.client();
    for (context, good) in [
        (json!({"when": {"timeOfDay": "morning"}, "weekend": false}), "tea"),
        (json!({"when": [{"timeOfDay": "evening"}], "weekend": false}), "beer"),
    ] {
        let chosen = learnt(&client, &context, |action| action == good, 200);
        assert!(chosen[good] > 70, "{good}: {chosen:?}");
    }
    for user in ["morning|false", "evening|false"] {
        let user = client.get(&format!("/v1/models/home/users/{}", user.replace('|', "%7C"))).expect(200);
        assert_eq!(user["user_epoch"], 200, "{user}");
    }
}

#[test]
fn an_event_id_names_one_request() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), "");
    let client = node.client();
    let body = json!({"eventId": "e-1", "actions": actions(&["a", "b", "c", "d", "e"])});
    let first = rank(&client, &body).expect(201);
    assert_eq!(first["eventId"], "e-1");
    for _ in 0..10 {
        assert_eq!(rank(&client, &body).expect(201), first, "the same request has the same answer");
    }
    let mut other = body.clone();
    other["excludedActions"] = json!(["a"]);
    assert_eq!(error(&rank(&client, &other), 409)["code"], "Conflict");
    let slots = json!({"eventId": "e-1", "actions": actions(&["a"]), "slots": [{"id": "s", "baselineAction": "a"}]});
    error(&client.post("/personalizer/v1.1/multislot/rank", &slots), 409);
    // At once: one decides, the others get its answer or are asked to come again.
    let body = json!({"eventId": "e-2", "actions": actions(&["a", "b", "c", "d", "e"])});
    let answers: Vec<Reply> = thread::scope(|scope| {
        let ask = || scope.spawn(|| rank(&client, &body));
        let asked: Vec<_> = (0..8).map(|_| ask()).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let answered: Vec<&str> = answers.iter().filter(|reply| reply.status == 201).map(|reply| &*reply.text).collect();
    assert!(!answered.is_empty() && answered.iter().all(|text| *text == answered[0]), "{answered:?}");
    assert!(answers.iter().all(|reply| [201, 409].contains(&reply.status)));
    assert_eq!(client.get("/v1/models/home/exploration").expect(200)["totals"]["decisions"], 2);
    // Ids that are like those of the node.
    for id in ["01930b1c-6d4e-7c50-9d1a-0123456789ab-0", "01930b1c-6d4e-7c50-9d1a-0123456789ab", "../x", "e 1/ü?"] {
        let body = json!({"eventId": id, "actions": actions(&["a", "b"])});
        assert_eq!(rank(&client, &body).expect(201)["eventId"], id);
    }
    assert_eq!(reward(&client, "01930b1c-6d4e-7c50-9d1a-0123456789ab-0", 1.0).status, 204);
    assert_eq!(reward(&client, "e%201%2F%C3%BC%3F", 1.0).status, 204);
}

#[test]
fn events_end_with_their_user_and_their_model() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), "user_fields = [\"user\"]\n");
    let client = node.client();
    let body = json!({"eventId": "e-1", "contextFeatures": [{"user": "alice"}], "actions": actions(&["a", "b"])});
    rank(&client, &body).expect(201);
    assert_eq!(reward(&client, "e-1", 1.0).status, 204);
    client.try_json("DELETE", "/v1/models/home/users/alice", &Value::Null).unwrap().expect(200);
    error(&reward(&client, "e-1", 1.0), 404);
    error(&activate(&client, "e-1"), 404);
    rank(&client, &body).expect(201);
    assert_eq!(reward(&client, "e-1", 1.0).status, 204, "the id names another event now");
    client.try_json("DELETE", "/v1/models/home", &Value::Null).unwrap();
    error(&reward(&client, "e-1", 1.0), 404);
    create(&client, &json!({}));
    error(&reward(&client, "e-1", 1.0), 404);
}

#[test]
fn a_deferred_event_counts_once_it_is_activated() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), "");
    let client = node.client();
    let wait = json!({"rewardWaitTime": "PT3S", "defaultReward": -0.5});
    client.try_json("PUT", "/personalizer/v1.0/configurations/service", &wait).unwrap().expect(200);
    let ask = |defer: bool| {
        let body = json!({"actions": actions(&["a", "b"]), "deferActivation": defer});
        rank(&client, &body).expect(201)["eventId"].clone()
    };
    let (never, activated, rewarded) = (ask(true), ask(true), ask(true));
    assert_eq!(activate(&client, activated.as_str().unwrap()).status, 204);
    assert_eq!(activate(&client, activated.as_str().unwrap()).status, 204, "twice");
    assert_eq!(reward(&client, rewarded.as_str().unwrap(), 1.0).status, 204);
    assert_eq!(reward(&client, rewarded.as_str().unwrap(), -1.0).status, 204);
    let shown = ask(false);
    let reward_of = |event: &Value| decision(&client, event)["slots"][0]["reward"].clone();
    for event in [&activated, &shown] {
        eventually("the default reward", || (reward_of(event) == -0.5).then_some(()));
    }
    // Decisions are gone over in their order, and these were before the last.
    assert_eq!(reward_of(&never), Value::Null);
    assert_eq!(reward_of(&rewarded), Value::Null, "a reward waits for the activation");
    assert_eq!(activate(&client, rewarded.as_str().unwrap()).status, 204);
    assert_eq!(reward_of(&rewarded), 1.0, "the first one");
    assert_eq!(activate(&client, rewarded.as_str().unwrap()).status, 204);
    assert_eq!(decision(&client, &rewarded)["outcomes"].as_array().unwrap().len(), 1);
    // A late reward replaces the default one.
    assert_eq!(reward(&client, shown.as_str().unwrap(), 0.5).status, 204);
    assert_eq!(reward_of(&shown), 0.5);
}

#[test]
fn slots_get_different_actions_and_rewards_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), "");
    let client = node.client();
    let root = "/personalizer/v1.1-preview.3/multislot";
    let slot = |id: &str, baseline: &str, excluded: &[&str]| json!({"id": id, "baselineAction": baseline, "excludedActions": excluded, "features": [{"size": "large"}]});
    let body = json!({"eventId": "m-1", "contextFeatures": [{"page": "home"}], "actions": actions(&["a", "b", "c"]),
        "slots": [slot("top", "a", &["b", "c"]), slot("left", "b", &[]), slot("right", "c", &["b"])]});
    let ranked = client.post(&format!("{root}/rank"), &body).expect(201);
    assert_eq!(ranked["slots"][0], json!({"id": "top", "rewardActionId": "a"}));
    let left = ranked["slots"][1]["rewardActionId"].as_str().unwrap();
    let right = &ranked["slots"][2];
    // What is left for the last slot may be excluded there.
    let expected = if left == "b" { json!({"id": "right", "rewardActionId": "c"}) } else { json!({"id": "right"}) };
    assert_eq!(*right, expected);
    assert_eq!(client.post(&format!("{root}/rank"), &body).expect(201), ranked);
    let path = format!("{root}/events/m-1/reward");
    let rewards = |rewards: &Value| client.post(&path, &json!({ "reward": rewards }));
    for (wrong, target) in [
        (json!([]), "/reward"),
        (json!([{"slotId": "none", "value": 1}]), "/reward/0/slotId"),
        (json!([{"slotId": "top", "value": 1}, {"slotId": "top", "value": 0}]), "/reward/1/slotId"),
        (json!([{"slotId": "top", "value": 1}, {"slotId": "left", "value": 1.5}]), "/reward/1/value"),
    ] {
        assert_eq!(error(&rewards(&wrong), 400)["target"], target);
    }
    assert_eq!(rewards(&json!([{"slotId": "left", "value": 1}])).status, 204);
    assert_eq!(rewards(&json!([{"slotId": "top", "value": -1}, {"slotId": "left", "value": 0}])).status, 204);
    error(&reward(&client, "m-1", 1.0), 409);
    let path = format!("{root}/events/m-1/activate");
    assert_eq!(post_nothing(&client, &path).status, 204);
    let user = client.get("/v1/models/home/users/anyone").expect(200);
    let history = user["history"].as_array().unwrap();
    let learnt: BTreeMap<&str, f64> =
        history.iter().map(|event| (event["item"].as_str().unwrap(), event["label"].as_f64().unwrap())).collect();
    assert_eq!(learnt, BTreeMap::from([(left, 1.0), ("a", -1.0)]), "{user}");
    let contexts: Vec<&Value> = history.iter().map(|event| &event["context"]).collect();
    assert!(contexts.contains(&&json!({"page": "home", "slot": "left", "slot.size": "large"})), "{contexts:?}");
    for (wrong, target) in [
        (json!([]), "/slots"),
        (json!([slot("x", "none", &[])]), "/slots/0/baselineAction"),
        (json!([slot("x", "a", &[]), slot("x", "b", &[])]), "/slots/1/id"),
        (json!([slot("x", "a", &[]), slot("y", "a", &[])]), "/slots/1/baselineAction"),
        (json!([slot("x", "a", &["a"])]), "/slots/0/baselineAction"),
    ] {
        let body = json!({"actions": actions(&["a", "b", "c"]), "slots": wrong});
        assert_eq!(error(&client.post(&format!("{root}/rank"), &body), 400)["target"], target);
    }
}

#[test]
fn an_event_that_was_answered_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let serve = || ProcessOptions::default().config(config_file(dir.path(), HOME)).serve(dir.path());
    let node: NodeProcess = serve();
    create(&node.client(), &json!({}));
    let named = json!({"eventId": "e-1", "actions": actions(&["a", "b", "c", "d"]), "deferActivation": true});
    let first = rank(&node.client(), &named).expect(201);
    assert_eq!(reward(&node.client(), "e-1", 0.5).status, 204);
    let last = rank(&node.client(), &json!({"actions": actions(&["a", "b", "c", "d"])})).expect(201);
    node.kill_hard();

    let node = serve();
    let client = node.client();
    assert_eq!(rank(&client, &named).expect(201), first);
    assert_eq!(activate(&client, "e-1").status, 204);
    assert_eq!(reward(&client, last["eventId"].as_str().unwrap(), 1.0).status, 204);
    assert_eq!(decision(&client, &last["eventId"])["slots"][0]["reward"], 1.0);
    assert_eq!(decision(&client, &last["eventId"])["outcomes"][0]["joined"], "slot");
    let labels = |client: &Client| {
        let user = client.get("/v1/models/home/users/anyone").expect(200);
        user["history"].as_array().unwrap().iter().map(|event| event["label"].clone()).collect::<Vec<_>>()
    };
    let before = labels(&client);
    assert!(before.len() == 2 && before.contains(&json!(0.5)), "{before:?}");
    node.kill_hard();

    let node = serve();
    for value in [1.0, -1.0] {
        assert_eq!(reward(&node.client(), last["eventId"].as_str().unwrap(), value).status, 204);
    }
    assert_eq!(activate(&node.client(), "e-1").status, 204);
    assert_eq!(labels(&node.client()), before, "nothing is learnt twice");
}

#[test]
fn what_is_wrong_is_said_in_their_form() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), "");
    let client = node.client();
    let long = "x".repeat(257);
    let many: Vec<Value> = (0..257).map(|id| json!({"id": id.to_string(), "features": []})).collect();
    for (body, target) in [
        (json!({}), "/actions"),
        (json!({"actions": []}), "/actions"),
        (json!({"actions": many}), "/actions"),
        (json!({"actions": [{"id": ""}]}), "/actions/0/id"),
        (json!({"actions": [{"id": long}]}), "/actions/0/id"),
        (json!({"actions": [{"id": "a"}, {"id": "a"}]}), "/actions/1/id"),
        (json!({"actions": [{"id": "a", "feature": []}]}), "/actions/0/feature"),
        (json!({"actions": [{"id": "a", "features": [1]}]}), "/actions/0/features/0"),
        (json!({"actions": [{"id": "a"}], "contextFeatures": {"a": 1}}), "/contextFeatures"),
        (json!({"actions": [{"id": "a"}], "eventId": long}), "/eventId"),
        (json!({"actions": [{"id": "a"}], "excludedActions": ["a"]}), "/excludedActions"),
        (json!({"actions": [{"id": "a"}], "defferActivation": true}), "/defferActivation"),
    ] {
        let error = error(&rank(&client, &body), 400);
        assert_eq!((&error["code"], &error["target"]), (&json!("BadRequest"), &json!(target)), "{error}");
    }
    let send = |body: &str| client.try_send("POST", "/personalizer/v1.0/rank", "application/json", body).unwrap();
    for body in ["{", "[]", "NaN", r#"{"actions": [{"id": "a"}], "contextFeatures": [{"x": NaN}]}"#] {
        error(&send(body), 400);
    }
    error(&client.try_send("POST", "/personalizer/v1.0/rank", "text/plain", "{}").unwrap(), 415);
    let nulls = json!({"actions": [{"id": "a", "features": null}], "contextFeatures": null, "excludedActions": null,
        "eventId": null, "deferActivation": null});
    let ranked = rank(&client, &nulls).expect(201);
    let event = ranked["eventId"].as_str().unwrap();
    for value in [1.01, -1.01, 1e300] {
        assert_eq!(error(&reward(&client, event, value), 400)["target"], "/value");
    }
    for body in [json!({}), json!({"value": "1"}), json!({"value": 1, "extra": 1}), json!({"value": null})] {
        error(&client.post(&format!("/personalizer/v1.0/events/{event}/reward"), &body), 400);
    }
    assert_eq!(error(&reward(&client, "none", 1.0), 404)["code"], "ResourceNotFound");
    error(&activate(&client, "none"), 404);
    error(&activate(&client, &long), 400);
    assert_eq!(error(&client.post("/personalizer/v1.0/evaluations", &json!({})), 501)["code"], "NotImplemented");
    error(&client.get("/personalizer/v1.0/model"), 501);
    error(&client.get("/personalizer/v1.0/ranks"), 404);
    error(&client.get("/personalizer/v1.0/rank"), 405);
    error(&client.post("/v1/models/none/personalizer/v1.0/rank", &json!({"actions": [{"id": "a"}]})), 404);
    // Rewards that the model does not take, also before they are learnt.
    client.post("/v1/models", &json!({"name": "clicks", "loss": "logistic"})).expect(201);
    for defer in [false, true] {
        let body = json!({"actions": [{"id": "a"}], "deferActivation": defer});
        let ranked = client.post("/v1/models/clicks/personalizer/v1.0/rank", &body).expect(201);
        let path = format!("/v1/models/clicks/personalizer/v1.0/events/{}/reward", ranked["eventId"].as_str().unwrap());
        assert_eq!(error(&client.post(&path, &json!({"value": -0.5})), 400)["target"], "/label");
        assert_eq!(client.post(&path, &json!({"value": 0.5})).status, 204);
    }
}

#[test]
fn features_of_any_form_are_ranked() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), "actions = 6\n");
    let client = node.client();
    let mut deep = json!("end");
    for _ in 0..60 {
        deep = json!({"x": deep, "y": [deep]});
        if deep.to_string().len() > 100_000 {
            break;
        }
    }
    let wide: Value =
        (0..2_000).map(|number| (format!("field {number}"), json!(number))).collect::<serde_json::Map<_, _>>().into();
    let features = json!([wide, {"deep": deep}, {"available_from": "never", "text": "x".repeat(10_000), "n\u{0}l": "\u{1f600}",
        "huge": 1e300, "list": [1, "a", null, [1], {"b": 2}]}]);
    let body = json!({"contextFeatures": features, "actions": [{"id": "a", "features": features}, {"id": "b"}]});
    let ranked = rank(&client, &body).expect(201);
    assert_eq!(reward(&client, ranked["eventId"].as_str().unwrap(), 1.0).status, 204);
    // A field has the type of its first observation; of another one it is left out.
    for value in [json!(1), json!("one"), json!(true), json!([1])] {
        let body = json!({"contextFeatures": [{ "mixed": value }], "actions": [{"id": "a"}, {"id": "b"}]});
        let ranked = rank(&client, &body).expect(201);
        assert_eq!(reward(&client, ranked["eventId"].as_str().unwrap(), 1.0).status, 204);
    }
    // Actions beyond the setting are ranked without becoming items.
    let many: Vec<Value> = (0..200).map(|id| json!({"id": format!("many-{id}")})).collect();
    rank(&client, &json!({ "actions": many })).expect(201);
    assert_eq!(client.get("/v1/models/home/items?limit=1").expect(200)["total"], 6);
    // What an operator has deleted stays deleted.
    client.try_json("DELETE", "/v1/models/home/items/b", &Value::Null).unwrap();
    rank(&client, &json!({"actions": [{"id": "b", "features": [{"new": 1}]}]})).expect(201);
    assert_eq!(client.get("/v1/models/home/items/b").status, 404);
}

#[test]
fn a_subscription_key_is_a_key_of_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), "");
    let open = node.client();
    let key =
        |client: &Client, body: &Value| client.post("/v1/keys", body).expect(201)["key"].as_str().unwrap().to_owned();
    let admin = open.with_key(&key(&open, &json!({"name": "admin", "roles": ["admin"]})));
    let predict = key(&admin, &json!({"name": "p", "roles": ["predict"], "models": ["home"]}));
    let observe = key(&admin, &json!({"name": "o", "roles": ["observe"]}));
    let other = key(&admin, &json!({"name": "x", "roles": ["predict", "observe"], "models": ["other"]}));
    let send = |key: Option<&str>, path: &str, body: &Value| {
        let headers: Vec<(&str, &str)> = key.map(|key| ("Ocp-Apim-Subscription-Key", key)).into_iter().collect();
        open.try_with(("POST", path), &headers, body).unwrap()
    };
    let (path, body) = ("/personalizer/v1.0/rank", json!({"actions": actions(&["a"])}));
    assert_eq!(error(&send(None, path, &body), 401)["code"], "Unauthorized");
    error(&send(Some("wrong"), path, &body), 401);
    error(&send(Some(&other), path, &body), 403);
    let ranked = send(Some(&predict), path, &body).expect(201);
    let path = format!("/personalizer/v1.0/events/{}/reward", ranked["eventId"].as_str().unwrap());
    error(&send(Some(&predict), &path, &json!({"value": 1})), 403);
    assert_eq!(send(Some(&observe), &path, &json!({"value": 1})).status, 204);
    let other_call =
        open.try_with(("GET", "/v1/models/home"), &[("Ocp-Apim-Subscription-Key", &predict)], &Value::Null);
    assert_eq!(other_call.unwrap().status, 401, "only requests in their form have keys in their form");
}

#[test]
fn the_settings_that_a_model_has_are_read_and_changed() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), "");
    let client = node.client();
    let path = "/personalizer/v1.1/configurations/service";
    let put = |body: &Value| client.try_json("PUT", path, body).unwrap();
    let settings = client.get(path).expect(200);
    let expected = json!({"rewardWaitTime": null, "defaultReward": null, "rewardAggregation": "earliest",
        "explorationPercentage": 0.2, "modelExportFrequency": "PT0S", "logMirrorEnabled": false, "logRetentionDays": 30,
        "learningMode": "Online"});
    assert_eq!(settings, expected);
    error(&put(&json!({"defaultReward": 0})), 400);
    let changed =
        put(&json!({"rewardWaitTime": "P1DT10M", "defaultReward": -1, "explorationPercentage": 0.5})).expect(200);
    assert_eq!((&changed["defaultReward"], &changed["explorationPercentage"]), (&json!(-1.0), &json!(0.5)));
    assert_eq!(put(&changed).expect(200), changed, "what is read can be written");
    let model = client.get("/v1/models/home").expect(200);
    assert_eq!(model["default_reward"], json!({"label": -1.0, "after_seconds": 87_000.0, "slots": 1}));
    assert_eq!(model["policy"], json!({"name": "epsilon_greedy", "epsilon": 0.5}));
    for (body, target) in [
        (json!({"rewardWaitTime": "ten minutes"}), "/rewardWaitTime"),
        (json!({"rewardWaitTime": "P1Y"}), "/rewardWaitTime"),
        (json!({"rewardAggregation": "sum"}), "/rewardAggregation"),
        (json!({"learningMode": "Apprentice"}), "/learningMode"),
        (json!({"explorationPercentage": 1.5}), "/explorationPercentage"),
        (json!({"defaultReward": 1.5}), "/defaultReward"),
        (json!({"logRetentionDays": 90, "explorationPercentage": 0.1}), "/logRetentionDays"),
    ] {
        assert_eq!(error(&put(&body), 400)["target"], target);
    }
    error(&put(&json!({"rewardWaitTime": "PT0S"})), 400);
    error(&put(&json!({"rewardWaitTime": "P31D"})), 400);
    assert_eq!(client.get(path).expect(200), changed, "nothing of these was changed");
    let beyond = json!({"default_reward": {"label": 5, "after_seconds": 60, "slots": 1}});
    client.try_json("PATCH", "/v1/models/home", &beyond).unwrap().expect(200);
    let settings = client.get(path).expect(200);
    assert_eq!(settings["defaultReward"], 5.0);
    assert_eq!(put(&settings).expect(200), settings, "also what was set elsewhere");
}

#[test]
fn any_node_of_a_cluster_ranks_and_rewards() {
    let dir = tempfile::tempdir().unwrap();
    let config = config_file(dir.path(), "[personalizer]\nmodel = \"films\"\nuser_fields = [\"user\"]\n");
    let mut cluster = Divided::among(3, Some(&config));
    let users: Vec<String> = (0..6).map(|shard| cluster.user_of(shard)).collect();
    let epoch = |node: &Client, user: &str| {
        let user = node.get(&format!("/v1/models/films/users/{user}"));
        if user.status == 404 { 0 } else { user.expect(200)["history"].as_array().unwrap().len() }
    };
    for (number, user) in users.iter().enumerate() {
        let event = format!("e-{number}");
        let body = json!({"eventId": event, "contextFeatures": [{ "user": user }],
            "actions": actions(&["item-1", "item-2", "item-3"])});
        let first = rank(cluster.client(0), &body).expect(201);
        assert_eq!(rank(cluster.client(1), &body).expect(201), first, "the owner of the user knows the event");
        assert_eq!(reward(cluster.client(2), &event, 1.0).status, 204);
        assert_eq!(reward(cluster.client(1), &event, 0.0).status, 204);
        assert_eq!(epoch(cluster.client(0), user), 1);
        error(&reward(cluster.client(0), &event, 2.0), 400);
    }
    error(&reward(cluster.client(1), "none", 1.0), 404);
    // An id that the node has made, and a user who has moved between ranking and reward.
    let body = json!({"contextFeatures": [{ "user": users[0] }], "actions": actions(&["item-1", "item-2"]), "deferActivation": true});
    let made = rank(cluster.client(1), &body).expect(201);
    let of_another = json!({"eventId": made["eventId"], "contextFeatures": [{ "user": users[1] }],
        "actions": actions(&["item-1"])});
    assert_eq!(error(&rank(cluster.client(0), &of_another), 400)["target"], "/eventId");
    let mut named = body.clone();
    named["eventId"] = json!("moved");
    rank(cluster.client(1), &named).expect(201);
    let to = (cluster.owner_of(&users[0]) + 1) % 3;
    cluster.place(&[to; 6], 0);
    for event in ["moved", made["eventId"].as_str().unwrap()] {
        let before = epoch(cluster.client(to), &users[0]);
        assert_eq!(reward(cluster.client(0), event, 0.5).status, 204);
        assert_eq!(epoch(cluster.client(to), &users[0]), before, "it is not active");
        assert_eq!(activate(cluster.client(1), event).status, 204);
        assert_eq!(epoch(cluster.client(to), &users[0]), before + 1, "{event}");
    }
}
