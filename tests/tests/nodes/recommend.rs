//! Recommendations from the whole catalog: the best allowed items, never an excluded one, page by
//! page.

use std::collections::BTreeSet;

use celeris_tests::fixtures::{DATASET_ITEMS, ITEMS, any_label, create_model, features, write_dataset};
use celeris_tests::{Client, ModelClient, Node, binary, eventually};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// A model of [`ITEMS`] items with features, and a user who has rated the first five of them.
fn node() -> (tempfile::TempDir, Node, ModelClient) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 31);
    let mut random = ChaCha8Rng::seed_from_u64(32);
    for item in 0..5 {
        films.observe(&json!({"user": "u", "item": format!("item-{item}"), "label": any_label(&mut random)}));
    }
    (dir, node, films)
}

/// Recommends with `greedy` by default; `more` holds additional fields of the request.
fn recommend(films: &ModelClient, k: usize, more: &Value) -> Value {
    let mut request = json!({"user": "u", "k": k, "policy": "greedy"});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    if request["policy"].is_null() {
        request.as_object_mut().unwrap().remove("policy");
    }
    films.post("recommend", &request).expect(200)
}

fn items(reply: &Value) -> Vec<String> {
    reply["items"].as_array().unwrap().iter().map(|slot| slot["item"].as_str().unwrap().to_owned()).collect()
}

fn set(reply: &Value) -> BTreeSet<String> {
    items(reply).into_iter().collect()
}

fn all() -> Vec<String> {
    (0..ITEMS).map(|item| format!("item-{item}")).collect()
}

/// The items with their scores from `predict`, best first.
fn best_first(films: &ModelClient, candidates: &[String]) -> Vec<(String, f64)> {
    let predicted = films.post("predict", &json!({"user": "u", "items": candidates})).expect(200);
    let score = |score: &Value| (score["item"].as_str().unwrap().to_owned(), score["score"].as_f64().unwrap());
    let mut scored: Vec<(String, f64)> = predicted["scores"].as_array().unwrap().iter().map(score).collect();
    scored.sort_by(|left, right| right.1.total_cmp(&left.1));
    scored
}

#[test]
fn the_best_unseen_items_are_returned_with_a_decision() {
    let (_dir, _node, films) = node();
    let reply = recommend(&films, 7, &json!({}));
    let scored: Vec<(String, f64)> = reply["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slot| (slot["item"].as_str().unwrap().to_owned(), slot["score"].as_f64().unwrap()))
        .collect();
    assert_eq!(scored, best_first(&films, &all()[5..])[..7], "bit-identical to predict");
    assert_eq!(
        (&reply["logged"], &reply["user_epoch"], &reply["policy"]["name"]),
        (&json!(true), &json!(5), &json!("greedy"))
    );
    let with_seen = recommend(&films, ITEMS, &json!({"exclude_seen": false}));
    assert_eq!(items(&with_seen).len(), ITEMS);
    assert_eq!(with_seen["next"], Value::Null);
    let cold = films.post("recommend", &json!({"user": "newcomer", "k": 3})).expect(200);
    assert_eq!((&cold["cold"], items(&cold).len()), (&json!(true), 3));
}

#[test]
fn filtered_excluded_and_deleted_items_are_never_returned() {
    let (_dir, _node, films) = node();
    for (at, item) in all().iter().enumerate() {
        let attributes = json!({"title": format!("Film {at}"), "even": at % 2 == 0, "number": at});
        films.put(&format!("items/{item}"), &json!({"attributes": attributes})).expect(200);
    }
    let even = json!({"filter": {"eq": {"field": "even", "value": true}}});
    let expected: BTreeSet<String> = (6..ITEMS).step_by(2).map(|at| format!("item-{at}")).collect();
    assert_eq!(set(&recommend(&films, ITEMS, &even)), expected);
    // For every random draw of the policy.
    for seed in 0..20 {
        let explored =
            json!({"filter": even["filter"], "policy": {"name": "epsilon_greedy", "epsilon": 1}, "seed": seed});
        assert!(set(&recommend(&films, 4, &explored)).is_subset(&expected));
    }
    let more = json!({"filter": even["filter"], "exclude": ["item-8", "item-9", "no such item"]});
    let without_8: BTreeSet<String> = expected.iter().filter(|item| *item != "item-8").cloned().collect();
    assert_eq!(set(&recommend(&films, ITEMS, &more)), without_8);

    assert_eq!(films.delete("items/item-6").status, 204);
    let left = set(&recommend(&films, ITEMS, &json!({})));
    assert!(!left.contains("item-6") && left.len() == ITEMS - 6, "{left:?}");
    films.put("items/item-6", &json!({"attributes": {"even": true}})).expect(200);
    assert!(set(&recommend(&films, ITEMS, &even)).contains("item-6"), "a PUT brings it back");
    let mut random = ChaCha8Rng::seed_from_u64(9);
    films.put("items/new", &json!({"features": features(&mut random), "attributes": {"even": true}})).expect(200);
    assert!(set(&recommend(&films, ITEMS, &even)).contains("new"), "at once");
}

#[test]
fn observed_items_count_as_seen_at_once_and_retracted_ones_do_not() {
    let (_dir, _node, films) = node();
    for _ in 0..6 {
        let first = items(&recommend(&films, 1, &json!({})))[0].clone();
        let epoch =
            films.observe(&json!({"user": "u", "item": first, "label": 4, "observation_id": first}))["user_epoch"]
                .clone();
        let after = recommend(&films, ITEMS, &json!({"min_epoch": epoch}));
        assert_eq!(after["user_epoch"], epoch);
        assert!(!items(&after).contains(&first));
        let others = recommend(&films, ITEMS, &json!({"user": "another"}));
        assert!(items(&others).contains(&first), "another user has not seen it");
        films.delete(&format!("observations/{first}")).expect(200);
        assert!(
            items(&recommend(&films, ITEMS, &json!({}))).contains(&first),
            "a retracted observation does not count"
        );
        films.observe(&json!({"user": "u", "item": first, "label": 4}));
    }
    assert_eq!(films.delete("users/u").status, 200);
    assert_eq!(items(&recommend(&films, ITEMS, &json!({}))).len(), ITEMS, "an erased user has seen nothing");
}

#[test]
fn a_window_and_kinds_of_feedback_define_the_seen_items() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 31);
    let old = "2020-02-29T12:00:00Z";
    for (item, feedback, timestamp) in
        [("item-0", "view", old), ("item-1", "buy", old), ("item-2", "view", ""), ("item-3", "buy", "")]
    {
        let mut observation = json!({"user": "u", "item": item, "label": 3, "feedback": feedback});
        if !timestamp.is_empty() {
            observation["timestamp"] = timestamp.into();
        }
        films.observe(&observation);
    }
    films.observe(&json!({"user": "u", "item": "item-4", "label": 3}));
    let cases = [
        (json!(true), vec![0, 1, 2, 3, 4]),
        (json!(false), vec![]),
        (json!({}), vec![0, 1, 2, 3, 4]),
        (json!({"window": "30d"}), vec![2, 3, 4]),
        (json!({"feedback": ["view"]}), vec![0, 2]),
        (json!({"feedback": ["view", "buy", "other"], "window": "1h"}), vec![2, 3]),
    ];
    for (rule, seen) in cases {
        let shown = set(&recommend(&films, ITEMS, &json!({"exclude_seen": rule})));
        let expected = (0..ITEMS).filter(|at| !seen.contains(at)).map(|at| format!("item-{at}")).collect();
        assert_eq!(shown, expected, "{rule}");
    }
}

#[test]
fn pages_show_each_item_once_despite_new_weights_and_a_restart() {
    let (dir, node, films) = node();
    let mut shown = Vec::new();
    let mut next = Value::Null;
    let mut films = films;
    let mut node = Some(node);
    for page in 0.. {
        let mut request = json!({"exclude_seen": false});
        if page > 0 {
            request["page"] = next;
        }
        let reply = recommend(&films, 4, &request);
        shown.extend(items(&reply));
        next = reply["next"].clone();
        if next.is_null() {
            break;
        }
        // The observation changes the order of the remaining items.
        films.observe(&json!({"user": "u", "item": shown[shown.len() - 1], "label": page % 5}));
        if page == 2 {
            node.take().unwrap().stop();
            let again = Node::serve(dir.path());
            films = again.model("films");
            node = Some(again);
        }
    }
    assert_eq!(shown.len(), ITEMS, "nothing twice");
    assert_eq!(shown.into_iter().collect::<BTreeSet<_>>(), all().into_iter().collect());
}

#[test]
fn a_recommendation_is_a_decision_with_rewards_and_a_replay() {
    let (_dir, _node, films) = node();
    for policy in [json!("greedy"), json!("thompson"), json!({"name": "squarecb"}), json!("regcb"), Value::Null] {
        let reply = recommend(&films, 4, &json!({"policy": policy, "exclude_seen": false}));
        let id = reply["decision_id"].as_str().unwrap();
        let outcome = json!({"user": "u", "item": items(&reply)[1], "label": 5, "decision_id": id});
        assert_eq!(films.observe(&outcome)["joined"], "slot", "{policy}");
        let decision = films.get(&format!("decisions/{id}?replay=true")).expect(200);
        assert_eq!(decision["replay"]["same"], true, "{policy}: {decision}");
        assert_eq!(decision["candidates"]["count"], ITEMS, "all items are candidates");
    }
    // Boosts in the request are recorded, and such a decision is not replayed.
    let boost = json!([{"filter": {"eq": {"field": "title", "value": "Film 9"}}, "add": 100}]);
    let boosted = recommend(&films, 3, &json!({"boost": boost}));
    assert_eq!(items(&boosted)[0], "item-9");
    assert!(boosted["items"][0]["score"].as_f64().unwrap() < 50.0, "the score is the model's");
    let id = boosted["decision_id"].as_str().unwrap();
    let decision = films.get(&format!("decisions/{id}?replay=true")).expect(200);
    assert_eq!(decision["policy"], json!({"name": "greedy", "arranged": {"boost": [100.0]}}));
    assert_eq!(decision["replay"]["same"], Value::Null);
    assert!(decision["replay"]["why_not"].as_str().unwrap().contains("boosts"));
}

#[test]
fn diversity_trades_scores_for_difference() {
    let (_dir, _node, films) = node();
    let plain = recommend(&films, 5, &json!({}));
    assert_eq!(items(&recommend(&films, 5, &json!({"diversity": 0}))), items(&plain));
    let diverse = recommend(&films, 5, &json!({"diversity": 0.9}));
    assert_eq!(items(&diverse)[0], items(&plain)[0], "the first has nothing above it to differ from");
    assert_ne!(set(&diverse), set(&plain));
    assert!(diverse["items"].as_array().unwrap().iter().all(|slot| slot["propensity"] == 1.0));
    assert_eq!((&diverse["policy"]["name"], &diverse["pool"]), (&json!("greedy"), &json!(false)));
}

#[test]
fn a_selection_recommends_with_the_sampled_arm() {
    let (_dir, node, _films) = node();
    let client = node.client();
    client.post("/v1/models", &json!({"name": "small", "stream": "films", "dim": 4})).expect(201);
    let selection = json!({"name": "best", "kind": "selection", "arms": ["films", "small"], "strategy": "ab", "label_range": [1, 5]});
    client.post("/v1/models", &selection).expect(201);
    let request = json!({"user": "u", "k": 3, "policy": "greedy"});
    let reply = client.model("best").post("recommend", &request).expect(200);
    let arm = reply["arm"].as_str().unwrap();
    assert!(["films", "small"].contains(&arm) && reply["arm_propensity"] == 0.5, "{reply}");
    let outcome = json!({"user": "u", "item": items(&reply)[0], "label": 4, "decision_id": reply["decision_id"]});
    assert_eq!(client.model("best").observe(&outcome)["joined"], "slot");
    let combined = json!({"name": "all", "kind": "selection", "arms": ["films", "small"], "strategy": "exp4", "label_range": [1, 5]});
    client.post("/v1/models", &combined).expect(201);
    let refused = client.model("all").post("recommend", &request).expect(422);
    assert!(refused["detail"].as_str().unwrap().starts_with("model: "), "{refused}");
}

fn retrained(client: &Client, films: &ModelClient) {
    let job = films.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    let done = eventually("the end of the retraining", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    });
    assert_eq!(done["state"], "succeeded", "{done}");
}

#[test]
fn each_version_recommends_by_its_own_scores_and_the_same_history() {
    let dir = tempfile::tempdir().unwrap();
    write_dataset(dir.path());
    let node = Node::serve(&dir.path().join("data"));
    let client = node.client();
    client.post("/v1/models", &json!({"name": "films", "dim": 8, "gate": {"force": true}})).expect(201);
    let films = client.model("films");
    let dataset = dir.path().to_str().unwrap().to_owned();
    let imported = binary::run(["import", "--url", client.url(), "--model", "films", "--dataset", &dataset]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    retrained(&client, &films);
    films.put("items/later", &json!({"attributes": {"title": "Later"}})).expect(200);
    assert_eq!(films.delete("items/7").status, 204);
    let everything: Vec<String> = (1..=DATASET_ITEMS)
        .filter(|item| *item != 7)
        .map(|item| item.to_string())
        .chain(["later".to_owned()])
        .collect();
    films.observe(&json!({"user": "u", "item": "3", "label": 5}));
    films.observe(&json!({"user": "u", "item": "4", "label": 1}));
    let mut orders = BTreeSet::new();
    for version in [2, 1, 2] {
        films.post(&format!("versions/{version}/activate"), &json!({})).expect(200);
        let reply = recommend(&films, 100, &json!({}));
        assert_eq!(reply["version"], version);
        let candidates: Vec<String> =
            everything.iter().filter(|item| !["3", "4"].contains(&item.as_str())).cloned().collect();
        let expected = best_first(&films, &candidates);
        assert_eq!(set(&reply), candidates.into_iter().collect(), "version {version}");
        let scores: Vec<f64> =
            reply["items"].as_array().unwrap().iter().map(|slot| slot["score"].as_f64().unwrap()).collect();
        assert_eq!(scores, expected.into_iter().map(|(_, score)| score).collect::<Vec<f64>>());
        orders.insert(items(&reply));
    }
    assert_eq!(orders.len(), 2);
}

#[test]
fn invalid_requests_are_refused_with_the_name_of_the_field() {
    let (_dir, _node, films) = node();
    let many: Vec<String> = (0..10_001).map(|item| item.to_string()).collect();
    let boost = json!({"filter": {"exists": {"field": "title"}}, "add": 1});
    let cases = [
        (json!({"k": 0}), "k: "),
        (json!({"k": 1001}), "k: "),
        (json!({"k": "ten"}), "k: "),
        (json!({"exclude": many}), "exclude: "),
        (json!({"exclude": [""]}), "exclude[0]"),
        (json!({"exclude_seen": 7}), "exclude_seen: "),
        (json!({"exclude_seen": {"window": "a while"}}), "exclude_seen.window: "),
        (json!({"exclude_seen": {"windows": "1d"}}), "exclude_seen.windows"),
        (json!({"filter": {"equals": {}}}), "filter: "),
        (json!({"filter": {"all": [{"eq": {"field": "title"}}]}}), "all[0].eq"),
        (json!({"boost": [boost, boost, boost, boost, boost]}), "boost: "),
        (json!({"boost": [{"filter": boost["filter"], "add": 1e9}]}), "boost: "),
        (json!({"boost": [{"add": 1}]}), "boost[0]: "),
        (json!({"diversity": 1.5}), "diversity: "),
        (json!({"diversity": 0.5, "policy": "thompson"}), "diversity: "),
        (json!({"page": "no token"}), "page: "),
        (json!({"policy": "best"}), "policy: "),
        (json!({"items": ["item-1"]}), "items"),
        (json!({"segment": "mobile"}), "segment"),
    ];
    for (more, names) in cases {
        let mut request = json!({"user": "u", "k": 3});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let problem = films.post("recommend", &request).expect(422);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(names), "{names:?} in {detail:?}");
    }
    assert_eq!(films.post("recommend", &json!({"k": 3})).status, 422, "the user is missing");
    let later = films.post("recommend", &json!({"user": "u", "k": 3, "min_epoch": 99}));
    assert_eq!(later.status, 409, "{}", later.text);
}
