//! Attribution of rewards to decisions: each reward has a documented result, whenever and however
//! it arrives, and the totals add up.

use std::collections::BTreeMap;
use std::path::Path;

use celeris_tests::fixtures::{all_items, config_file, create_model};
use celeris_tests::{ModelClient, Node, NodeProcess, ProcessOptions, eventually};
use serde_json::{Value, json};

fn serve(dir: &Path, decisions: &str) -> NodeProcess {
    let config = config_file(dir, format!("[decisions]\n{decisions}\n"));
    ProcessOptions::default().config(config).serve(dir)
}

/// A ranking of three of the items for `user`.
fn ranking(films: &ModelClient, user: &str) -> Value {
    let ranking = films.post("topk", &json!({"user": user, "items": all_items(), "k": 3})).expect(200);
    assert_eq!(ranking["logged"], true);
    ranking
}

fn shown(ranking: &Value, slot: usize) -> &str {
    ranking["items"][slot]["item"].as_str().unwrap()
}

fn decision(films: &ModelClient, ranking: &Value) -> Value {
    films.get(&format!("decisions/{}", ranking["decision_id"].as_str().unwrap())).expect(200)
}

/// Observes, and counts the attribution results.
struct Counter<'a> {
    films: &'a ModelClient,
    counts: &'a mut BTreeMap<String, u64>,
}

impl Counter<'_> {
    #[track_caller]
    fn observe(&mut self, observation: &Value, joined: &str) -> Value {
        let reply = self.films.observe(observation);
        assert_eq!(reply["joined"], joined, "{observation}: {reply}");
        if reply["duplicate"] == false {
            *self.counts.entry(joined.to_owned()).or_default() += 1;
        }
        reply
    }
}

fn reward(user: &str, ranking: &Value, item: &str, label: u32) -> Value {
    json!({"user": user, "item": item, "label": label, "decision_id": ranking["decision_id"]})
}

/// Number of the outcomes of these decisions by attribution result.
fn outcomes(films: &ModelClient, rankings: &[&Value]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for ranking in rankings {
        for outcome in decision(films, ranking)["outcomes"].as_array().unwrap() {
            *counts.entry(outcome["joined"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn every_reward_has_its_documented_result_and_the_totals_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", 5);
    let mut counts = BTreeMap::new();
    let mut counter = Counter { films: &films, counts: &mut counts };
    let first = ranking(&films, "u");
    // Immediately: the decision need not be on disk yet.
    let mut named = reward("u", &first, shown(&first, 0), 5);
    named["observation_id"] = json!("r-1");
    counter.observe(&named, "slot");
    assert_eq!(counter.observe(&named, "slot")["duplicate"], true, "the same reward again is answered like the first");
    counter.observe(&reward("u", &first, shown(&first, 0), 1), "repeated");
    let not_shown = all_items().into_iter().find(|item| (0..3).all(|slot| shown(&first, slot) != item)).unwrap();
    counter.observe(&reward("u", &first, &not_shown, 3), "not_shown");
    counter.observe(&reward("v", &first, shown(&first, 1), 3), "other_user");
    counter.observe(&json!({"user": "u", "item": "item-1", "label": 3, "decision_id": "long-forgotten"}), "unknown");
    let old = json!({"user": "u", "item": "item-1", "label": 3, "decision_id": "00000000-0001-7000-8000-000000000000"});
    counter.observe(&old, "expired");
    assert_eq!(films.observe(&json!({"user": "u", "item": "item-1", "label": 3})).get("joined"), None);
    // Out of order, and as a stream.
    let (second, third) = (ranking(&films, "u"), ranking(&films, "u"));
    counter.observe(&reward("u", &third, shown(&third, 0), 4), "slot");
    counter.observe(&reward("u", &second, shown(&second, 2), 4), "slot");
    let line = format!("{}\n", reward("u", &second, shown(&second, 2), 2));
    let answered: Vec<Value> = films.observe_lines(&line).unwrap().map(Result::unwrap).collect();
    assert_eq!(answered[0]["joined"], "repeated");
    *counts.entry("repeated".to_owned()).or_default() += 1;

    let explored = films.get("exploration").expect(200);
    let counted: BTreeMap<String, u64> = serde_json::from_value(explored["joined"].clone()).unwrap();
    assert_eq!(
        counted
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(joined, count)| (joined.clone(), *count))
            .collect::<BTreeMap<_, _>>(),
        counts
    );
    assert_eq!(explored["totals"]["decisions"], 3);
    assert_eq!(explored["totals"]["slots"], 9);
    assert_eq!(explored["totals"]["mean_reward"], 13.0 / 3.0);
    let metrics = node.client().get("/metrics").text;
    for (joined, count) in &counts {
        let line = format!("celeris_rewards_total{{model=\"films\",joined=\"{joined}\"}} {count}");
        assert!(metrics.contains(&line), "{line} is not among the metrics");
    }
    let explained = decision(&films, &first);
    assert_eq!(explained["slots"][0]["reward"], 5.0, "the first reward counts");
    assert_eq!(explained["slots"][1]["reward"], Value::Null, "another user's reward does not count");
    let before = outcomes(&films, &[&first, &second, &third]);
    // Rewards of another user, and those for an unknown decision, are outcomes of no decision.
    assert_eq!(
        before,
        BTreeMap::from([("slot".to_owned(), 3), ("repeated".to_owned(), 2), ("not_shown".to_owned(), 1)])
    );

    node.kill_hard();
    let node = NodeProcess::serve(dir.path());
    let films = node.model("films");
    assert_eq!(outcomes(&films, &[&first, &second, &third]), before, "the outcomes are stored");
    let mut counter = Counter { films: &films, counts: &mut counts };
    assert_eq!(counter.observe(&named, "slot")["duplicate"], true);
    counter.observe(&reward("u", &first, shown(&first, 0), 2), "repeated");
    // Late, and after the crash.
    counter.observe(&reward("u", &first, shown(&first, 1), 2), "slot");
    counter.observe(&reward("u", &first, shown(&first, 1), 2), "repeated");
    assert_eq!(outcomes(&films, &[&first])["slot"], 2);
}

#[test]
fn a_retracted_reward_leaves_its_slot_free() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 5);
    let first = ranking(&films, "u");
    let given = films.observe(&reward("u", &first, shown(&first, 0), 1));
    assert_eq!(films.observe(&reward("u", &first, shown(&first, 0), 2))["joined"], "repeated");
    films.delete(&format!("observations/{}", given["observation_id"].as_str().unwrap())).expect(200);
    assert_eq!(films.observe(&reward("u", &first, shown(&first, 0), 3))["joined"], "slot");
    assert_eq!(decision(&films, &first)["slots"][0]["reward"], 3.0);
}

#[test]
fn rewards_of_expired_decisions_are_learnt_from_but_not_attributed() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), "retention = \"1s\"");
    let films = create_model(&node.client(), "films", 5);
    let first = ranking(&films, "u");
    assert_eq!(films.observe(&reward("u", &first, shown(&first, 0), 3))["joined"], "slot");
    let path = format!("decisions/{}", first["decision_id"].as_str().unwrap());
    eventually("the end of the decision", || (films.get(&path).status == 404).then_some(()));
    let late = films.observe(&reward("u", &first, shown(&first, 1), 3));
    assert_eq!((&late["joined"], &late["user_epoch"]), (&json!("expired"), &json!(2)));
    assert!(node.client().get("/metrics").text.contains("celeris_decisions_expired_total 1"));
}

#[test]
fn slots_without_a_reward_get_the_default_once_and_a_true_one_replaces_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", 5);
    let unset = ranking(&films, "u");
    let wrong = json!({"default_reward": {"label": 0, "after_seconds": 0.5}});
    assert_eq!(films.patch("", &wrong).status, 422);
    let reward_setting = json!({"label": 1, "after_seconds": 1, "slots": 2});
    let set = films.patch("", &json!({"default_reward": reward_setting})).expect(200);
    assert_eq!(set["default_reward"]["slots"], 2);
    let first = ranking(&films, "u");
    films.observe(&reward("u", &first, shown(&first, 0), 5));
    eventually("the default reward", || {
        (decision(&films, &first)["outcomes"].as_array().unwrap().len() > 1).then_some(())
    });
    let explained = decision(&films, &first);
    assert_eq!(explained["slots"][0]["reward"], 5.0, "a slot that has its reward gets no default");
    assert_eq!((&explained["slots"][1]["reward"], &explained["outcomes"][1]["default"]), (&json!(1.0), &json!(true)));
    assert_eq!(explained["slots"][2]["reward"], Value::Null, "only the first two slots");
    assert_eq!(decision(&films, &unset)["outcomes"], json!([]), "rankings from before the setting get none");

    let late = films.observe(&reward("u", &first, shown(&first, 1), 4));
    assert_eq!(late["joined"], "slot");
    let explained = decision(&films, &first);
    assert_eq!((&explained["slots"][1]["reward"], &explained["outcomes"][1]["default"]), (&json!(4.0), &json!(false)));
    assert_eq!(explained["outcomes"].as_array().unwrap().len(), 2, "the default is gone: {explained}");
    assert_eq!(films.get("exploration").expect(200)["totals"]["defaults_replaced"], 1);

    // Across a crash, every decision gets its defaults exactly once.
    let written = || metric(&node, "celeris_decisions_bytes_total");
    let before = written();
    let second = ranking(&films, "u");
    eventually("the decision on the disk", || (written() > before).then_some(()));
    node.kill_hard();
    let node = NodeProcess::serve(dir.path());
    let films = node.model("films");
    let third = ranking(&films, "u");
    for ranking in [&second, &third] {
        let outcomes = || decision(&films, ranking)["outcomes"].as_array().unwrap().len();
        eventually("the defaults of both slots", || (outcomes() == 2).then_some(()));
    }
    assert_eq!(decision(&films, &first)["outcomes"].as_array().unwrap().len(), 2);
    let off = films.patch("", &json!({"default_reward": null})).expect(200);
    assert_eq!(off["default_reward"], Value::Null);
}

/// Ids that the node generates are reserved: no client can take the id of a future default reward,
/// for itself or for another user, on any route.
#[test]
fn ids_reserved_for_the_node_are_refused_from_clients_and_default_rewards_continue() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let films = create_model(&client, "films", 5);
    client.post("/v1/models", &json!({"name": "others", "stream": "films", "dim": 4})).expect(201);
    for model in [&films, &client.model("others")] {
        model.patch("", &json!({"default_reward": {"label": 1, "after_seconds": 1, "slots": 2}})).expect(200);
    }
    let crafted = |ranking: &Value| format!("default-reward-{}-0", ranking["decision_id"].as_str().unwrap());
    let first = ranking(&films, "u");
    let given = films.observe(&json!({"user": "mallory", "item": "item-1", "label": 5}));
    let ids = [crafted(&first), "default-reward-x".to_owned(), "~mine".to_owned()];
    for id in ids.iter().map(String::as_str).chain(given["observation_id"].as_str()) {
        for user in ["mallory", "u"] {
            let observation = json!({"user": user, "item": "item-1", "label": 5, "observation_id": id});
            let reply = films.try_observe(&observation).unwrap();
            assert_eq!(reply.status, 422, "{observation}: {}", reply.text);
            assert!(reply.text.contains("observation_id") && reply.text.contains("reserved"), "{}", reply.text);
            let line = format!("{observation}\n");
            let answered: Vec<Value> = films.observe_lines(&line).unwrap().map(Result::unwrap).collect();
            assert_eq!(answered[0]["error"]["status"], 422, "{answered:?}");
        }
    }
    let mut named = reward("u", &first, shown(&first, 0), 5);
    named["observation_id"] = json!(crafted(&first));
    assert_eq!(films.try_observe(&named).unwrap().status, 422, "not even by a reward of that decision");
    for model in [&films, &client.model("others")] {
        let ranking = ranking(model, "u");
        let _ = films.try_observe(&json!({
            "user": "mallory", "item": "item-1", "label": 5, "observation_id": crafted(&ranking),
        }));
        let outcomes = || decision(model, &ranking)["outcomes"].as_array().unwrap().len();
        eventually("default rewards", || (outcomes() == 2).then_some(()));
    }
    let untouched = films.user("mallory", 10);
    assert_eq!(untouched["history"].as_array().unwrap().len(), 1, "{untouched}");
}

fn metric(node: &NodeProcess, name: &str) -> f64 {
    let text = node.client().get("/metrics").text;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect("the metric is there").parse().unwrap()
}

#[test]
fn a_refused_reward_leaves_the_default_reward() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let setting = json!({"label": 0, "after_seconds": 1, "slots": 1});
    let body = json!({"name": "clicks", "dim": 4, "loss": "logistic", "default_reward": setting});
    node.client().post("/v1/models", &body).expect(201);
    let clicks = node.model("clicks");
    let taken = json!({"user": "u", "item": "x", "label": 1, "observation_id": "taken"});
    clicks.observe(&taken);
    let ranking = ranking(&clicks, "u");
    let outcomes = || decision(&clicks, &ranking)["outcomes"].clone();
    eventually("the default reward", || (outcomes().as_array().unwrap().len() == 1).then_some(()));
    let before = outcomes();
    let of_slot = |label| reward("u", &ranking, shown(&ranking, 0), label);
    assert_eq!(clicks.try_observe(&of_slot(5)).unwrap().status, 422);
    let mut of_taken_id = of_slot(1);
    of_taken_id["observation_id"] = json!("taken");
    assert_eq!(clicks.try_observe(&of_taken_id).unwrap().status, 409);
    assert_eq!(outcomes(), before);
    assert_eq!(clicks.observe(&of_slot(1))["joined"], "slot");
}
