//! Attributes of users move their states: a new user with a profile is not the average user.

use celeris_tests::{Client, ModelClient, Node, eventually};
use serde_json::{Value, json};

const USERS: usize = 160;
const ITEMS: usize = 40;

/// States are held in `f32`; terms are of the size of labels.
const ROUNDING: f64 = 1e-4;

/// A number from 0 to 1 that depends on these.
fn noise(a: usize, b: usize) -> f64 {
    let mixed = ((a * 7_919 + b * 104_729 + 13) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// Readers like the first half of the items, players the second; the label of a user's item.
fn label(is_reader: bool, item: usize, of: usize) -> f64 {
    let likes = is_reader == (item < ITEMS / 2);
    (if likes { 4.2 } else { 1.8 }) + 0.8 * (noise(of, item) - 0.5)
}

fn attributes(is_reader: bool, of: usize) -> Value {
    let hobby = if is_reader { "reading" } else { "games" };
    json!({ "hobby": hobby, "age": 20 + of % 50, "name": format!("somebody {of}") })
}

fn retrain(client: &Client, model: &ModelClient) -> Value {
    let job = model.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    let ended = eventually("the end of the retraining", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    });
    assert_eq!(ended["state"], "succeeded", "{ended}");
    model.get("versions").expect(200)["versions"][0]["metrics"].clone()
}

/// A model trained on readers and players, nine in ten of whom are described as what they are, or, if `tells` is false, as
/// anything.
fn trained(client: &Client, tells: bool) -> (ModelClient, Value) {
    client.post("/v1/models", &json!({"name": "shop", "dim": 6, "triggers": {}})).expect(201);
    let shop = client.model("shop");
    let mut lines = String::new();
    for user in 0..USERS {
        let is_reader = user.is_multiple_of(2);
        for item in (0..ITEMS).filter(|item| noise(user + 1_000, *item) < 0.3) {
            let line =
                json!({"user": format!("u{user}"), "item": format!("i{item}"), "label": label(is_reader, item, user)});
            lines.push_str(&format!("{line}\n"));
        }
        if user % 10 != 9 {
            let described = if tells { is_reader } else { noise(user, 77) < 0.5 };
            let body = json!({"attributes": attributes(described, user)});
            shop.put(&format!("users/u{user}"), &body).expect(200);
        }
    }
    shop.observe_lines(&lines).unwrap().for_each(|line| drop(line.unwrap()));
    let metrics = retrain(client, &shop);
    (shop, metrics)
}

fn scores(model: &ModelClient, user: &str) -> Vec<f64> {
    let items: Vec<String> = (0..ITEMS).map(|item| format!("i{item}")).collect();
    let reply = model.post("predict", &json!({"user": user, "items": items})).expect(200);
    reply["scores"].as_array().unwrap().iter().map(|score| score["score"].as_f64().unwrap()).collect()
}

/// Root mean squared error of these scores for a new reader or player.
fn error(scores: &[f64], is_reader: bool) -> f64 {
    let squares = scores.iter().enumerate().map(|(item, score)| (score - label(is_reader, item, 5_000)).powi(2));
    (squares.sum::<f64>() / scores.len() as f64).sqrt()
}

fn describe(model: &ModelClient, user: &str, attributes: &Value) -> Value {
    model.put(&format!("users/{user}"), &json!({ "attributes": attributes })).expect(200)
}

fn hash(model: &ModelClient, user: &str) -> String {
    let user = model.user(user, 0);
    assert_eq!(user["weights"].as_array().unwrap().len(), 6);
    user["state_hash"].as_str().unwrap().to_owned()
}

#[test]
fn new_users_with_a_profile_are_predicted_better_than_without() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let (shop, metrics) = trained(&node.client(), true);
    let figure = |name: &str| metrics[name].as_f64().unwrap_or_else(|| panic!("{metrics}"));
    assert_eq!(figure("user_map_users"), (USERS * 9 / 10) as f64);
    assert!(figure("user_map_rmse") < 0.6 * figure("user_map_rmse_without"), "{metrics}");
    for (user, is_reader) in [("ann", true), ("bob", false)] {
        let without = scores(&shop, user);
        let reply = describe(&shop, user, &attributes(is_reader, 7));
        assert_eq!(reply, json!({"user": user, "user_epoch": 0}));
        let with = scores(&shop, user);
        let [without_error, with_error] = [&without, &with].map(|scores| error(scores, is_reader));
        assert!(with_error < 0.6 * without_error, "{user}: {with_error} with a profile, {without_error} without");
        let known = shop.user(user, 0);
        assert_eq!((&known["attributes"], &known["cold"]), (&attributes(is_reader, 7), &json!(true)));
        describe(&shop, user, &json!({}));
        assert_eq!(scores(&shop, user), without, "without attributes the user is as any new one");
        assert_eq!(shop.user(user, 0)["attributes"], json!(null));
    }
    // A profile that says nothing that the version knows.
    let average = scores(&shop, "nobody");
    describe(&shop, "ann", &json!({"shoe": 42, "hobby": null}));
    assert_eq!(scores(&shop, "ann"), average);
    assert_eq!(shop.user("ann", 0)["attributes"], json!({"shoe": 42}), "null is no value");
    for value in [json!({"name": "chess"}), json!([["chess"]]), json!(["chess", null])] {
        let refused = shop.put("users/ann", &json!({"attributes": {"hobby": value}})).expect(422);
        assert!(refused["detail"].as_str().unwrap().starts_with("attributes.hobby: must be a text"), "{refused}");
    }
    assert_eq!(shop.user("ann", 0)["attributes"], json!({"shoe": 42}), "a refused change changes nothing");
    shop.put("items/i1", &json!({"attributes": {"title": "One", "studio": null}})).expect(200);
    assert_eq!(shop.get("items/i1").expect(200)["attributes"], json!({"title": "One"}));
}

#[test]
fn attributes_that_say_nothing_of_taste_make_no_map() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let (shop, metrics) = trained(&node.client(), false);
    assert!(metrics["user_map_users"].as_f64().is_some(), "{metrics}");
    let without = scores(&shop, "ann");
    describe(&shop, "ann", &attributes(true, 7));
    assert_eq!(scores(&shop, "ann"), without);
}

#[test]
fn states_do_not_depend_on_when_a_profile_became_known() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let (shop, _) = trained(&node.client(), true);
    let observe = |user: &str, count: usize| {
        for item in 0..count {
            let (id, time) = (format!("o{item}"), 1_700_000_000_000_i64 + item as i64);
            shop.observe(&json!({"user": user, "item": format!("i{}", item % ITEMS), "label": label(false, item, 1),
                "observation_id": id, "timestamp": time}));
        }
    };
    let reader = attributes(true, 7);
    describe(&shop, "first", &reader);
    for user in ["first", "last", "twice", "never"] {
        observe(user, 12);
    }
    describe(&shop, "last", &reader);
    describe(&shop, "twice", &attributes(false, 30));
    let _read_between = scores(&shop, "twice");
    describe(&shop, "twice", &reader);
    let users = ["first", "last", "twice"];
    let same = |moment: &str| {
        let hashes = users.map(|user| hash(&shop, user));
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{moment}: {hashes:?}");
        assert_ne!(hashes[0], hash(&shop, "never"), "{moment}: the profile counts");
        hashes[0].clone()
    };
    same("after describing");
    for user in users.into_iter().chain(["never"]) {
        shop.put(&format!("observations/o3?user={user}"), &json!({"label": 1.5})).expect(200);
    }
    same("after a correction");
    for user in users {
        observe_one_more(&shop, user);
    }
    let before = same("after another observation");
    drop(node);
    let node = Node::serve(dir.path());
    let shop = node.client().model("shop");
    for user in users {
        assert_eq!(hash(&shop, user), before, "{user} after a restart");
    }
    // An erased user is a new one, also to the map.
    assert_eq!(shop.delete("users/first").status, 200);
    assert_eq!(shop.user("first", 0)["attributes"], json!(null));
    assert_eq!(scores(&shop, "first"), scores(&shop, "unknown"));
    drop(node);
    let node = Node::serve(dir.path());
    let shop = node.client().model("shop");
    assert_eq!(scores(&shop, "first"), scores(&shop, "unknown"), "after a restart");
}

fn observe_one_more(shop: &ModelClient, user: &str) {
    let body = json!({"user": user, "item": "i30", "label": 4, "timestamp": 1_700_000_100_000_i64});
    shop.observe(&body);
}

#[test]
fn what_a_profile_adds_is_part_of_the_explanation_and_of_anonymous_requests() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let (shop, _) = trained(&node.client(), true);
    describe(&shop, "ann", &attributes(true, 7));
    let alone = shop.get("users/ann/why/i3").expect(200);
    assert!(alone["of_attributes"].as_f64().unwrap() > 0.5, "readers like it: {alone}");
    for (item, score) in [("i1", 4.0), ("i25", 2.5), ("i26", 3.0)] {
        shop.observe(&json!({"user": "ann", "item": item, "label": score}));
        let why = shop.get("users/ann/why/i3?limit=1").expect(200);
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {why}"));
        let named: f64 = why["because"].as_array().unwrap().iter().map(|reason| number(&reason["contribution"])).sum();
        let sum = number(&why["prior"]) + number(&why["of_attributes"]) + named + number(&why["others"]);
        assert!((sum - number(&why["score"])).abs() < ROUNDING, "{sum}: {why}");
    }
    let of_nobody = shop.get("users/nobody/why/i3").expect(200);
    assert_eq!(of_nobody.get("of_attributes"), None, "{of_nobody}");

    let body = |attributes: Value| json!({"history": [], "attributes": attributes, "k": 5, "policy": "greedy"});
    let shown = |attributes: Value| {
        let reply = shop.post("recommend", &body(attributes)).expect(200);
        let items = reply["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["item"].as_str().unwrap()[1..].parse::<usize>().unwrap()).collect::<Vec<_>>()
    };
    assert!(shown(attributes(true, 7)).iter().all(|item| *item < ITEMS / 2));
    assert!(shown(attributes(false, 7)).iter().all(|item| *item >= ITEMS / 2));
    let refused = shop.post("recommend", &json!({"user": "ann", "attributes": {}, "k": 5}));
    assert_eq!(refused.status, 422);
    assert!(
        refused.json()["detail"].as_str().unwrap().contains("attributes: only valid with `history`"),
        "{}",
        refused.text
    );
}

#[test]
fn a_refresh_fits_the_map_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let (shop, first) = trained(&node.client(), true);
    let lines: String = (0..ITEMS)
        .map(|item| format!("{}\n", json!({"user": "late", "item": format!("i{item}"), "label": label(true, item, 3)})))
        .collect();
    shop.observe_lines(&lines).unwrap().for_each(|line| drop(line.unwrap()));
    describe(&shop, "late", &attributes(true, 7));
    let second = retrain(&node.client(), &shop);
    assert_eq!(second["user_map_users"].as_f64(), first["user_map_users"].as_f64().map(|users| users + 1.0));
    let average = scores(&shop, "nobody");
    describe(&shop, "ann", &attributes(true, 7));
    assert!(error(&scores(&shop, "ann"), true) < 0.6 * error(&average, true));
}
