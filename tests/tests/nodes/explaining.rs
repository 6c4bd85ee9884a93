//! Decisions over HTTP: everything that is recorded of them, and a replay that reproduces the
//! ranking.

use std::path::Path;

use celeris_tests::fixtures::{all_items, any_item, any_label, config_file, create_model};
use celeris_tests::{ModelClient, Node, NodeProcess, ProcessOptions, eventually};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

fn serve(dir: &Path, decisions: &str) -> NodeProcess {
    let config = config_file(dir, format!("[decisions]\n{decisions}\n"));
    ProcessOptions::default().config(config).serve(dir)
}

fn rate(films: &ModelClient, times: usize, random: &mut ChaCha8Rng) -> Vec<Value> {
    let mut one = || films.observe(&json!({"user": "u", "item": any_item(random), "label": any_label(random)}));
    (0..times).map(|_| one()).collect()
}

fn explain(films: &ModelClient, ranking: &Value) -> Value {
    films.get(&format!("decisions/{}?replay=true", ranking["decision_id"].as_str().unwrap())).expect(200)
}

#[test]
fn a_replay_reproduces_the_ranking_after_later_observations() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 21);
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut rankings = Vec::new();
    for policy in [json!("thompson"), json!("greedy"), json!({"name": "epsilon_greedy", "epsilon": 0.8}), Value::Null] {
        rate(&films, 3, &mut random);
        let mut request = json!({"user": "u", "items": all_items(), "k": 5});
        if !policy.is_null() {
            request["policy"] = policy;
        }
        rankings.push(films.post("topk", &request).expect(200));
    }
    let later = rate(&films, 20, &mut random);
    for node_is in ["warm", "new"] {
        for ranking in &rankings {
            let explained = explain(&films, ranking);
            assert_eq!(explained["replay"]["same"], true, "{node_is}: {explained}");
            assert_eq!(explained["policy"], ranking["policy"]);
            assert_eq!(explained["candidates"]["items"], json!(all_items()));
            for (slot, shown) in ranking["items"].as_array().unwrap().iter().enumerate() {
                let again = &explained["replay"]["slots"][slot];
                assert_eq!((&again["item"], &again["score"]), (&shown["item"], &shown["score"]));
                assert_eq!(again["explored"], explained["slots"][slot]["explored"]);
                let rank = again["rank_by_score"].as_u64().unwrap();
                assert_eq!(again["explored"], rank >= 5, "no two scores tie here");
            }
        }
        if node_is == "warm" {
            // Later observations may be retracted; the replay does not depend on them.
            films.delete(&format!("observations/{}", later[0]["observation_id"].as_str().unwrap())).expect(200);
        }
    }
    let greedy = explain(&films, &rankings[1]);
    let ranks: Vec<u64> = greedy["replay"]["slots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slot| slot["rank_by_score"].as_u64().unwrap())
        .collect();
    assert_eq!(ranks, [0, 1, 2, 3, 4]);

    let first = films.user("u", 1000)["history"].as_array().unwrap().last().unwrap()["observation_id"].clone();
    films.put(&format!("observations/{}", first.as_str().unwrap()), &json!({"label": 0.5})).expect(200);
    let amended = explain(&films, &rankings[0]);
    assert_eq!(amended["replay"]["same"], Value::Null);
    assert!(amended["replay"]["why_not"].as_str().unwrap().contains("history"), "{amended}");
    films.delete("users/u").expect(200);
    let erased = films.get(&format!("decisions/{}", rankings[0]["decision_id"].as_str().unwrap()));
    assert_eq!(erased.status, 404, "decisions are erased with their user");
}

#[test]
fn slow_propensities_are_completed_after_the_response() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 21);
    let mut random = ChaCha8Rng::seed_from_u64(7);
    rate(&films, 5, &mut random);
    let request = json!({"user": "u", "items": all_items(), "k": 3, "policy": "thompson"});
    let ranking = films.post("topk", &request).expect(200);
    assert_eq!(ranking["items"][0]["propensity"], Value::Null);
    let slots = eventually("the propensities", || {
        let explained = films.get(&format!("decisions/{}", ranking["decision_id"].as_str().unwrap())).expect(200);
        (!explained["slots"][0]["propensity"].is_null()).then(|| explained["slots"].clone())
    });
    for slot in slots.as_array().unwrap() {
        let (propensity, error) =
            (slot["propensity"].as_f64().unwrap(), slot["propensity_std_error"].as_f64().unwrap());
        assert!(0.0 < propensity && propensity <= 1.0 && 0.0 < error && error < 0.02, "{slot}");
    }
}

#[test]
fn decisions_are_recorded_as_configured() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), "candidates_in_full = 10\ncandidates_sampled = 0.0");
    let films = create_model(&node.client(), "films", 21);
    let rank = |films: &ModelClient, count: usize| {
        films.post("topk", &json!({"user": "u", "items": all_items()[..count], "k": 2})).expect(200)
    };
    assert_eq!(explain(&films, &rank(&films, 10))["replay"]["same"], true);
    let digest = explain(&films, &rank(&films, 11));
    assert_eq!((&digest["candidates"]["count"], &digest["candidates"]["items"]), (&json!(11), &Value::Null));
    assert_eq!(digest["candidates"]["digest"].as_str().unwrap().len(), 32);
    assert!(digest["replay"]["why_not"].as_str().unwrap().contains("candidates"), "{digest}");
    assert_eq!(node.terminate().code, Some(0));

    let node = serve(dir.path(), "candidates_in_full = 10\ncandidates_sampled = 1.0");
    let films = node.model("films");
    assert_eq!(explain(&films, &rank(&films, 24))["candidates"]["count"], 24);
    assert_eq!(explain(&films, &rank(&films, 24))["replay"]["same"], true);
    assert_eq!(node.terminate().code, Some(0));

    let node = serve(dir.path(), "bytes_per_second = \"1KiB\"");
    let films = node.model("films");
    let logged = (0..200).filter(|_| rank(&films, 24)["logged"] == true).count();
    assert!((1..200).contains(&logged), "{logged} of 200 within a kilobyte a second");
    let metrics = node.client().get("/metrics").text;
    let lost = format!("celeris_decisions_lost_total{{reason=\"over_rate\"}} {}", 200 - logged);
    assert!(metrics.contains(&lost), "{lost} is not among the metrics");
    let totals = films.get("exploration").expect(200)["totals"].clone();
    assert_eq!((&totals["decisions"], &totals["logged"]), (&json!(200), &json!(logged)));
    assert_eq!(node.terminate().code, Some(0));

    let node = serve(dir.path(), "enabled = false");
    let films = node.model("films");
    let ranking = rank(&films, 5);
    assert_eq!(ranking["logged"], false);
    assert_eq!(films.get(&format!("decisions/{}", ranking["decision_id"].as_str().unwrap())).status, 404);
}
