//! Rewards by day, version and policy.

use std::collections::BTreeMap;

use celeris_tests::fixtures::{all_items, create_model};
use celeris_tests::{ModelClient, Node};
use serde_json::{Value, json};

fn ranking(films: &ModelClient, user: &str, policy: Option<&str>) -> Value {
    let mut body = json!({"user": user, "items": all_items(), "k": 3});
    if let Some(policy) = policy {
        body["policy"] = json!(policy);
    }
    films.post("topk", &body).expect(200)
}

fn reward(films: &ModelClient, user: &str, ranking: &Value, (slot, label): (usize, f64)) -> Value {
    let item = &ranking["items"][slot]["item"];
    let id = format!("{}-{slot}", ranking["decision_id"].as_str().unwrap());
    films.observe(&json!({"user": user, "item": item, "label": label, "decision_id": ranking["decision_id"], "observation_id": id}))
}

/// Sums by policy, counted one decision at a time as a client can: decisions, slots, rewards, and the sum of rewards.
fn counted_by_hand(films: &ModelClient) -> BTreeMap<(String, bool), (u64, u64, u64, f64)> {
    let mut sums = BTreeMap::new();
    for listed in films.get("decisions?limit=1000").expect(200)["decisions"].as_array().unwrap() {
        let decision = films.get(&format!("decisions/{}", listed["decision_id"].as_str().unwrap())).expect(200);
        let policy = (decision["policy"]["name"].as_str().unwrap().to_owned(), decision["pool"] == true);
        let sum: &mut (u64, u64, u64, f64) = sums.entry(policy).or_default();
        let slots = decision["slots"].as_array().unwrap();
        sum.0 += 1;
        sum.1 += slots.len() as u64;
        for label in slots.iter().filter_map(|slot| slot["reward"].as_f64()) {
            sum.2 += 1;
            sum.3 += label;
        }
    }
    sums
}

fn by_policy(reply: &Value) -> BTreeMap<(String, bool), (u64, u64, u64, f64)> {
    let mut sums = BTreeMap::new();
    for row in reply["rows"].as_array().unwrap() {
        let policy = (row["policy"].as_str().unwrap().to_owned(), row["pool"] == true);
        let sum: &mut (u64, u64, u64, f64) = sums.entry(policy).or_default();
        let count = |name: &str| row[name].as_u64().unwrap();
        (sum.0, sum.1, sum.2) = (sum.0 + count("decisions"), sum.1 + count("slots"), sum.2 + count("rewards"));
        sum.3 += row["reward"].as_f64().unwrap();
    }
    sums
}

#[test]
fn rewards_are_those_of_the_decisions_by_day_version_and_policy() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 5);
    let empty = films.get("rewards?days=7").expect(200);
    assert_eq!((&empty["rows"], &empty["decisions"], &empty["complete"]), (&json!([]), &json!(0), &json!(true)));
    let mut retracted = None;
    for number in 0..40 {
        let user = format!("u{}", number % 7);
        let policy = [None, Some("greedy"), Some("softmax"), Some("epsilon_greedy")][number % 4];
        let ranking = ranking(&films, &user, policy);
        for slot in 0..number % 4 {
            let reply = reward(&films, &user, &ranking, (slot, (number % 5) as f64 + 0.5));
            assert_eq!(reply["joined"], "slot");
            retracted = Some((user.clone(), reply["observation_id"].as_str().unwrap().to_owned()));
        }
    }
    let reply = films.get("rewards").expect(200);
    assert_eq!((&reply["days"], &reply["complete"], &reply["decisions"]), (&json!(30), &json!(true), &json!(40)));
    let by_hand = counted_by_hand(&films);
    // With rankings of the validation pool, if any was drawn.
    assert!(by_hand.len() >= 3, "{by_hand:?}");
    assert_eq!(by_policy(&reply), by_hand);
    for row in reply["rows"].as_array().unwrap() {
        assert_eq!((&row["scored_by"], &row["version"]), (&json!("films"), &json!(1)));
        let (sum, count) = (row["reward"].as_f64().unwrap(), row["rewards"].as_u64().unwrap());
        let mean = (count > 0).then(|| sum / count as f64);
        assert_eq!(row["mean_reward"].as_f64(), mean);
        assert!(row["day"].as_i64().unwrap() % 86_400_000 == 0 && row["day"].as_i64() >= reply["from"].as_i64());
    }
    // It is kept for a minute, and of another span counted again: a reward that was retracted does not count.
    let (user, id) = retracted.unwrap();
    let path = format!("observations/{id}?user={user}");
    node.client().try_json("DELETE", &format!("/v1/models/films/{path}"), &Value::Null).unwrap().expect(200);
    assert_eq!(films.get("rewards").expect(200), reply);
    let later = films.get("rewards?days=2").expect(200);
    assert_ne!(by_policy(&later), by_hand);
    assert_eq!(by_policy(&later), counted_by_hand(&films));
}

#[test]
fn days_and_models_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 5);
    for days in ["0", "91", "4294967296", "-1", "1.5", "x", ""] {
        let refused = films.get(&format!("rewards?days={days}"));
        assert!([400, 422].contains(&refused.status) && refused.text.contains("days"), "{days}: {refused:?}");
    }
    assert!([400, 422].contains(&films.get("rewards?day=1").status));
    assert_eq!(node.model("none").get("rewards").status, 404);
    // Many at once: each is answered, or asked to try again.
    let asking: Vec<_> = (1..=16)
        .map(|days| {
            let films = films.clone();
            std::thread::spawn(move || films.get(&format!("rewards?days={days}")).status)
        })
        .collect();
    let statuses: Vec<u16> = asking.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(statuses.contains(&200) && statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
}
