//! `evaluate-policy`: the estimated reward of a policy on a node's own decisions matches the reward
//! it then earns.

use std::time::{SystemTime, UNIX_EPOCH};

use celeris_tests::fixtures::{DIM, ITEMS, config_file};
use celeris_tests::{Client, ModelClient, Node, ProcessOptions, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const USERS: usize = 400;
const OBSERVED: usize = 3;
const SLOTS: usize = 2;

/// Users with known tastes, items with features, and a node with a few observations of each user.
struct World {
    items: Vec<Vec<f32>>,
    tastes: Vec<Vec<f32>>,
    films: ModelClient,
    random: ChaCha8Rng,
}

impl World {
    fn new(client: &Client) -> Self {
        client.post("/v1/models", &json!({"name": "films", "dim": DIM})).expect(201);
        let films = client.model("films");
        let mut random = ChaCha8Rng::seed_from_u64(51);
        let mut vectors = |count: usize| -> Vec<Vec<f32>> {
            let vector = |_| {
                let mut vector: Vec<f32> = (1..DIM).map(|_| random.random_range(-1.0..1.0)).collect();
                vector.push(1.0);
                vector
            };
            (0..count).map(vector).collect()
        };
        let (items, tastes) = (vectors(ITEMS), vectors(USERS));
        for (item, features) in items.iter().enumerate() {
            films.put(&format!("items/item-{item}"), &json!({"features": features})).expect(200);
        }
        let mut world = Self { items, tastes, films, random };
        for user in 0..USERS {
            for _ in 0..OBSERVED {
                let item = world.random.random_range(0..ITEMS);
                let label = world.reward(user, item);
                world.films.observe(&json!({"user": name(user), "item": format!("item-{item}"), "label": label}));
            }
        }
        world
    }

    /// Expected reward of the item for the user, without noise.
    fn liked(&self, user: usize, item: usize) -> f64 {
        self.tastes[user].iter().zip(&self.items[item]).map(|(a, b)| f64::from(a * b)).sum()
    }

    fn reward(&mut self, user: usize, item: usize) -> f64 {
        self.liked(user, item) + self.random.random_range(-0.5..0.5)
    }

    fn topk(&self, user: usize, policy: &Value) -> Value {
        let items: Vec<String> = (0..ITEMS).map(|item| format!("item-{item}")).collect();
        let request = json!({"user": name(user), "items": items, "k": SLOTS, "policy": policy});
        self.films.post("topk", &request).expect(200)
    }

    /// Mean reward per ranking of a policy that ranks once for every user.
    fn earned(&self, policy: &Value) -> f64 {
        let of_user = |user: usize| -> f64 {
            let ranking = self.topk(user, policy);
            shown(&ranking).iter().map(|item| self.liked(user, *item)).sum()
        };
        (0..USERS).map(of_user).sum::<f64>() / USERS as f64
    }

    fn evaluate(&self, request: &Value) -> Value {
        self.films.post("evaluate-policy", request).expect(200)
    }
}

fn name(user: usize) -> String {
    format!("user-{user}")
}

fn shown(ranking: &Value) -> Vec<usize> {
    let item = |slot: &Value| slot["item"].as_str().unwrap().strip_prefix("item-").unwrap().parse().unwrap();
    ranking["items"].as_array().unwrap().iter().map(item).collect()
}

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// A time after all earlier decisions and before all later ones; decision ids have a resolution of
/// one millisecond.
pub fn time_between() -> u64 {
    let before = now();
    while now() <= before + 1 {
        std::hint::spin_loop();
    }
    before + 1
}

#[test]
fn estimates_from_the_log_of_another_policy_match_the_earned_rewards() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let mut world = World::new(&node.client());
    let logging = json!({"name": "epsilon_greedy", "epsilon": 0.5});
    let decisions: Vec<Value> = (0..USERS).map(|user| world.topk(user, &logging)).collect();
    let logged_until = time_between();

    // Measure the actual rewards of the policies before the model learns from the logged rewards.
    let uniform = json!({"name": "epsilon_greedy", "epsilon": 1.0});
    let greedy = json!({"name": "greedy"});
    let earned = [("uniform", world.earned(&uniform)), ("greedy", world.earned(&greedy))];

    let mut total = 0.0;
    for (user, decision) in decisions.iter().enumerate() {
        for item in shown(decision) {
            let reward = world.reward(user, item);
            total += reward;
            world.films.observe(&json!({
                "user": name(user), "item": format!("item-{item}"), "label": reward,
                "decision_id": decision["decision_id"],
            }));
        }
    }

    for (policy, earned) in earned {
        let report = world.evaluate(&json!({"policy": policy, "to": logged_until}));
        assert_eq!(report["rounds"], USERS, "{report}");
        assert_eq!((report["slots"].as_u64(), report["rewarded"].as_u64()), (Some(800), Some(800)), "{report}");
        eprintln!("{policy} earned {earned:.3}; estimated: {}", report["estimators"]);
        let logged = report["logged"]["value"].as_f64().unwrap();
        assert!((logged - total / USERS as f64).abs() < 1e-5, "labels are kept as f32: {report}");
        for estimator in ["ips", "snips", "dr", "sndr"] {
            let estimate = &report["estimators"][estimator];
            let number =
                |field: &str| estimate[field].as_f64().unwrap_or_else(|| panic!("{policy} {estimator}: {report}"));
            let half_width = (number("high") - number("low")) / 2.0;
            // Five standard errors: the node draws the seeds, and importance weights are skewed.
            assert!((number("value") - earned).abs() < 2.5 * half_width, "{policy} {estimator}: {earned}, {estimate}");
            assert!(
                (logged - earned).abs() > half_width,
                "the mean {logged} of the log would be as good an estimate: {estimate}"
            );
        }
        // All choices of greedy have the same probability in the log, as replay needs; the uniform
        // policy is random.
        assert_eq!(report["estimators"]["replay"]["refused"].is_string(), policy == "uniform", "{report}");
    }

    // The estimate for the logging policy equals the mean reward in the log.
    let itself = world.evaluate(&json!({"policy": logging, "to": logged_until}));
    let (ips, logged) = (&itself["estimators"]["ips"], &itself["logged"]);
    assert!((ips["value"].as_f64().unwrap() - logged["value"].as_f64().unwrap()).abs() < 1e-5, "{itself}");
    assert!((ips["effective_sample_size"].as_f64().unwrap() - USERS as f64).abs() < 1e-3, "{itself}");
}

#[test]
fn decisions_without_rewards_are_counted_and_estimates_without_overlap_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let world = World::new(&node.client());
    let exploring = json!({"name": "epsilon_greedy", "epsilon": 0.5});
    let decisions: Vec<Value> = (0..100).map(|user| world.topk(user, &exploring)).collect();
    let until = time_between();
    let item = format!("item-{}", shown(&decisions[7])[1]);
    world
        .films
        .observe(&json!({"user": name(7), "item": item, "label": 2.5, "decision_id": decisions[7]["decision_id"]}));

    let all = world.evaluate(&json!({"policy": "greedy", "to": until, "missing_reward": 0}));
    assert_eq!((all["decisions"].as_u64(), all["rounds"].as_u64()), (Some(100), Some(100)), "{all}");
    assert_eq!((all["slots"].as_u64(), all["rewarded"].as_u64()), (Some(200), Some(1)));
    assert_eq!((&all["missing_reward"], &all["rewarded_share"]), (&json!(0.0), &json!(0.01)));
    assert!((all["logged"]["value"].as_f64().unwrap() - 0.025).abs() < 1e-9, "{all}");
    // Without `missing_reward`, decisions with a slot without a reward are skipped, and no decision
    // has both rewards.
    let strict = world.evaluate(&json!({"policy": "greedy", "to": until}));
    assert_eq!((&strict["rounds"], &strict["skipped"]["reward_missing"]), (&json!(0), &json!(100)), "{strict}");
    assert_eq!((&strict["missing_reward"], &strict["rewarded_share"]), (&Value::Null, &json!(0.01)));
    let others = world.evaluate(&json!({"policy": "greedy", "to": until, "missing_reward": 1}));
    assert!((others["logged"]["value"].as_f64().unwrap() - 2.015).abs() < 1e-9, "{others}");

    let some = json!({"policy": "greedy", "to": until, "missing_reward": 0, "max_decisions": 40, "seed": 3});
    let sampled = world.evaluate(&some);
    assert_eq!((sampled["rounds"].as_u64(), sampled["skipped"]["not_sampled"].as_u64()), (Some(40), Some(60)));
    assert_eq!(sampled, world.evaluate(&some));
    let few = world.evaluate(&json!({"policy": "greedy", "to": until, "missing_reward": 0, "max_decisions": 20}));
    assert!(few["estimators"]["snips"]["refused"].as_str().unwrap().starts_with("20 rounds are too few"), "{few}");
    let none = world.evaluate(&json!({"policy": "greedy", "to": "2020-01-01T00:00:00Z"}));
    assert_eq!((&none["rounds"], &none["estimators"]), (&json!(0), &Value::Null), "{none}");

    // Greedy ignores the seed, so its log holds no rewards of other choices.
    for user in 0..50 {
        let _ = world.topk(user, &json!("greedy"));
    }
    let report = world.evaluate(&json!({"policy": "uniform", "from": until, "missing_reward": 0}));
    assert_eq!(report["rounds"], 50);
    for (estimator, estimate) in report["estimators"].as_object().unwrap() {
        let refused = estimate["refused"].as_str().unwrap_or_else(|| panic!("{estimator}: {report}"));
        let expected = if estimator == "replay" { "the policy draws" } else { "explores" };
        assert!(refused.contains("explores") || refused.contains(expected), "{estimator}: {refused}");
        assert_eq!((&estimate["value"], &estimate["low"]), (&Value::Null, &Value::Null));
    }
    // A policy on its own log has full overlap, but all rewards are equal, so their variance is
    // unknown.
    let agreed = world.evaluate(&json!({"policy": "greedy", "from": until, "missing_reward": 0}));
    let refused = agreed["estimators"]["replay"]["refused"].as_str().unwrap();
    assert!(refused.contains("the same reward"), "{agreed}");

    // The decisions of an erased user are erased.
    world.films.delete(&format!("users/{}", name(3))).expect(200);
    let after = world.evaluate(&json!({"policy": "greedy", "to": until, "missing_reward": 0}));
    assert_eq!((after["decisions"].as_u64(), after["rounds"].as_u64()), (Some(99), Some(99)), "{after}");
}

/// Thompson sampling is evaluated on its own log. Its propensities are Monte Carlo estimates, and
/// so are the probabilities of a slightly different target policy; they need separate samples, or
/// their ratio is biased downwards.
#[test]
fn thompson_evaluated_on_its_own_log_earns_the_logged_reward() {
    const RANKINGS: usize = 4_000;
    const CANDIDATES: usize = 12;
    let dir = tempfile::tempdir().unwrap();
    // Reading may take half of the timeout, which must suffice on a busy machine.
    let config = config_file(dir.path(), "[limits]\nrequest_timeout = \"10min\"\n");
    let node = ProcessOptions::default().config(config).serve(dir.path());
    let mut world = World::new(&node.client());
    let items: Vec<String> = (0..CANDIDATES).map(|item| format!("item-{item}")).collect();
    let rank = |user: usize| {
        let request = json!({"user": name(user), "items": items, "k": 1, "policy": "thompson"});
        world.films.post("topk", &request).expect(200)
    };
    let mut decisions: Vec<(usize, Value)> = Vec::new();
    while decisions.len() < RANKINGS {
        decisions.extend((0..USERS).map(|user| (user, rank(user))));
        // The queue of pending propensities is bounded: decisions beyond it would get none.
        let computed = format!("celeris_propensities_total{{outcome=\"computed\"}} {}", decisions.len());
        eventually("their propensities", || node.client().get("/metrics").text.contains(&computed).then_some(()));
    }
    let until = time_between();
    let mut lines = String::new();
    for (user, decision) in &decisions {
        let item = shown(decision)[0];
        // Far from 0, so that a too small mean weight visibly lowers the mean reward.
        let label = 5.0 + world.reward(*user, item);
        let id = &decision["decision_id"];
        let reward = json!({"user": name(*user), "item": format!("item-{item}"), "label": label, "decision_id": id});
        lines.push_str(&format!("{reward}\n"));
    }
    for answer in world.films.observe_lines(&lines).unwrap() {
        assert_eq!(answer.unwrap()["joined"], "slot");
    }
    let evaluate = |alpha: f64| {
        let policy = json!({"name": "thompson", "alpha": alpha});
        world.evaluate(&json!({"policy": policy, "to": until, "max_decisions": RANKINGS}))
    };
    let known = eventually("all propensities", || {
        let report = evaluate(1.0);
        (report["rounds"] == RANKINGS).then_some(report)
    });
    let value = |report: &Value, of: &str| report["estimators"][of]["value"].as_f64().unwrap();
    let logged = known["logged"]["value"].as_f64().unwrap();
    assert!(
        (value(&known, "ips") / logged - 1.0).abs() < 1e-9,
        "the estimate for the logging policy is exact: {known}"
    );
    let other = evaluate(0.999);
    // With 12 candidates and two samples of 1024 draws, a weight has a standard deviation of 0.15,
    // and so the mean of 4,000 weights has one of 0.0024.
    assert!((value(&other, "ips") / logged - 1.0).abs() < 0.01, "{other}");
    assert!(other["mean_weight"].as_f64().unwrap() > 0.99, "{other}");
}

#[test]
fn decisions_with_a_given_seed_are_marked_and_excluded_from_estimates() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let world = World::new(&node.client());
    let items: Vec<String> = (0..ITEMS).map(|item| format!("item-{item}")).collect();
    let request = |seed: Option<u64>| {
        let mut request = json!({"user": name(1), "items": items, "k": 2, "policy": "softmax"});
        seed.into_iter().for_each(|seed| request["seed"] = seed.into());
        request
    };
    let seeded = world.films.post("topk", &request(Some(7))).expect(200);
    let unseeded = world.films.post("topk", &request(None)).expect(200);
    let recommended = world.films.post("recommend", &json!({"user": name(1), "k": 2, "seed": 7})).expect(200);
    for (ranking, given) in [(&seeded, true), (&unseeded, false), (&recommended, true)] {
        assert_eq!(ranking["seed_given"], given, "{ranking}");
        let decision = world.films.get(&format!("decisions/{}", ranking["decision_id"].as_str().unwrap())).expect(200);
        assert_eq!((&decision["seed_given"], &decision["seed"]), (&json!(given), &ranking["seed"]), "{decision}");
    }
    let report = world.evaluate(&json!({"policy": "softmax", "missing_reward": 0}));
    assert_eq!((&report["rounds"], &report["skipped"]["seed_given"]), (&json!(1), &json!(2)), "{report}");
}

/// The features of a candidate that was not shown change, and with them the policy's probabilities
/// of the shown items.
#[test]
fn a_decision_is_skipped_if_any_of_its_candidates_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let world = World::new(&node.client());
    let unseen = "never-observed";
    let describe = |first: f32| {
        let mut features = vec![first; DIM];
        features[DIM - 1] = 1.0;
        world.films.put(&format!("items/{unseen}"), &json!({"features": features})).expect(200);
    };
    describe(-0.5);
    let rank = |user: usize, policy: &str| {
        let request = json!({"user": name(user), "items": ["item-0", "item-1", unseen], "k": 1, "policy": policy});
        world.films.post("topk", &request).expect(200)
    };
    let ranking = (0..USERS).map(|user| rank(user, "greedy")).find(|ranking| ranking["items"][0]["item"] != unseen);
    let path = format!("decisions/{}?replay=true", ranking.unwrap()["decision_id"].as_str().unwrap());
    assert_eq!(world.films.get(&path).expect(200)["replay"]["same"], true);
    let before = world.evaluate(&json!({"policy": "uniform", "missing_reward": 0}));
    assert_eq!(before["skipped"]["inputs_changed"], 0, "{before}");
    describe(-0.6);
    let replay = world.films.get(&path).expect(200)["replay"].clone();
    assert_eq!(replay["same"], false, "{replay}");
    let after = world.evaluate(&json!({"policy": "uniform", "missing_reward": 0}));
    assert_eq!((&after["rounds"], &after["skipped"]["inputs_changed"]), (&json!(0), &before["rounds"]), "{after}");
}

#[test]
fn invalid_evaluation_requests_name_the_field() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    client.post("/v1/models", &json!({"name": "films", "dim": DIM})).expect(201);
    let films = client.model("films");
    for (request, words) in [
        (json!({}), ["policy", "missing"]),
        (json!({"policy": "oracle"}), ["policy", "oracle"]),
        (json!({"policy": {"name": "greedy", "epsilon": 1}}), ["greedy", "epsilon"]),
        (json!({"policy": "greedy", "max_decisions": 0}), ["max_decisions", "1"]),
        (json!({"policy": "greedy", "max_decisions": 10_001}), ["max_decisions", "10000"]),
        (json!({"policy": "greedy", "switch_threshold": -1}), ["switch_threshold", "0"]),
        (json!({"policy": "greedy", "from": "yesterday"}), ["from", "RFC 3339"]),
        (json!({"policy": "greedy", "until": 0}), ["until", "unknown"]),
    ] {
        let reply = films.post("evaluate-policy", &request);
        assert_eq!(reply.status, 422, "{request}: {}", reply.text);
        for word in words {
            assert!(reply.text.contains(word), "{request}: no {word} in {}", reply.text);
        }
    }
    assert_eq!(client.model("unknown").post("evaluate-policy", &json!({"policy": "greedy"})).status, 404);
}
