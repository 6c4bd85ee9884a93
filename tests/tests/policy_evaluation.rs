//! `evaluate-policy`: what a policy would have earned on a node's own decisions is what it then earns.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::{SystemTime, UNIX_EPOCH};

use celeris_tests::scene::{DIM, ITEMS};
use celeris_tests::{ModelClient, Node, NodeOptions, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const USERS: usize = 400;
const TOLD: usize = 3;
const SLOTS: usize = 2;

/// Users with tastes, items with features, and a node that knows a little of both.
struct World {
    items: Vec<Vec<f32>>,
    tastes: Vec<Vec<f32>>,
    films: ModelClient,
    random: ChaCha8Rng,
}

impl World {
    fn new(node: &Node) -> Self {
        let client = node.client();
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
            for _ in 0..TOLD {
                let item = world.random.random_range(0..ITEMS);
                let label = world.reward(user, item);
                world.films.observe(&json!({"user": name(user), "item": format!("item-{item}"), "label": label}));
            }
        }
        world
    }

    /// What the user makes of the item, but for noise.
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

    /// What a policy earns a ranking when it ranks for everybody.
    fn earned(&self, policy: &Value) -> f64 {
        let of_user = |user: usize| -> f64 {
            let ranking = self.topk(user, policy);
            shown(&ranking).iter().map(|item| self.liked(user, *item)).sum()
        };
        (0..USERS).map(of_user).sum::<f64>() / USERS as f64
    }

    fn judge(&self, request: &Value) -> Value {
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

/// A moment between what was before and what comes: ids tell time by the millisecond.
fn moment() -> u64 {
    let before = now();
    while now() <= before + 1 {
        std::hint::spin_loop();
    }
    before + 1
}

#[test]
fn a_policy_earns_what_the_log_of_another_foretells() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let mut world = World::new(&node);
    let logging = json!({"name": "epsilon_greedy", "epsilon": 0.5});
    let decisions: Vec<Value> = (0..USERS).map(|user| world.topk(user, &logging)).collect();
    let logged_until = moment();

    // The policies rank in earnest, before anything has been learnt from the log.
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
        let report = world.judge(&json!({"policy": policy, "to": logged_until}));
        assert_eq!(report["rounds"], USERS, "{report}");
        assert_eq!((report["slots"].as_u64(), report["rewarded"].as_u64()), (Some(800), Some(800)), "{report}");
        eprintln!("{policy} earned {earned:.3}; foretold: {}", report["estimators"]);
        let logged = report["logged"]["value"].as_f64().unwrap();
        assert!((logged - total / USERS as f64).abs() < 1e-5, "labels are kept as f32: {report}");
        for estimator in ["ips", "snips", "dr", "sndr"] {
            let estimate = &report["estimators"][estimator];
            let number =
                |field: &str| estimate[field].as_f64().unwrap_or_else(|| panic!("{policy} {estimator}: {report}"));
            let half_width = (number("high") - number("low")) / 2.0;
            // Three standard errors.
            assert!((number("value") - earned).abs() < 1.5 * half_width, "{policy} {estimator}: {earned}, {estimate}");
            assert!(
                (logged - earned).abs() > half_width,
                "the log's own {logged} would be no worse a guess: {estimate}"
            );
        }
        // Greedy's choices have one probability in the log, as in a uniform one; the uniform policy draws.
        assert_eq!(report["estimators"]["replay"]["refused"].is_string(), policy == "uniform", "{report}");
    }

    // The policy that logged earned what the log holds.
    let itself = world.judge(&json!({"policy": logging, "to": logged_until}));
    let (ips, logged) = (&itself["estimators"]["ips"], &itself["logged"]);
    assert!((ips["value"].as_f64().unwrap() - logged["value"].as_f64().unwrap()).abs() < 1e-5, "{itself}");
    assert!((ips["effective_sample_size"].as_f64().unwrap() - USERS as f64).abs() < 1e-3, "{itself}");
}

#[test]
fn decisions_that_tell_nothing_are_counted_and_estimates_without_overlap_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let world = World::new(&node);
    let exploring = json!({"name": "epsilon_greedy", "epsilon": 0.5});
    let decisions: Vec<Value> = (0..100).map(|user| world.topk(user, &exploring)).collect();
    let until = moment();
    let item = format!("item-{}", shown(&decisions[7])[1]);
    world
        .films
        .observe(&json!({"user": name(7), "item": item, "label": 2.5, "decision_id": decisions[7]["decision_id"]}));

    let all = world.judge(&json!({"policy": "greedy", "to": until, "missing_reward": 0}));
    assert_eq!((all["decisions"].as_u64(), all["rounds"].as_u64()), (Some(100), Some(100)), "{all}");
    assert_eq!((all["slots"].as_u64(), all["rewarded"].as_u64()), (Some(200), Some(1)));
    assert_eq!((&all["missing_reward"], &all["rewarded_share"]), (&json!(0.0), &json!(0.01)));
    assert!((all["logged"]["value"].as_f64().unwrap() - 0.025).abs() < 1e-9, "{all}");
    // Nothing says what a slot without a reward is worth: such decisions are left out, and none has both rewards.
    let unsaid = world.judge(&json!({"policy": "greedy", "to": until}));
    assert_eq!((&unsaid["rounds"], &unsaid["skipped"]["reward_missing"]), (&json!(0), &json!(100)), "{unsaid}");
    assert_eq!((&unsaid["missing_reward"], &unsaid["rewarded_share"]), (&Value::Null, &json!(0.01)));
    let others = world.judge(&json!({"policy": "greedy", "to": until, "missing_reward": 1}));
    assert!((others["logged"]["value"].as_f64().unwrap() - 2.015).abs() < 1e-9, "{others}");

    let some = json!({"policy": "greedy", "to": until, "missing_reward": 0, "max_decisions": 40, "seed": 3});
    let sampled = world.judge(&some);
    assert_eq!((sampled["rounds"].as_u64(), sampled["skipped"]["not_sampled"].as_u64()), (Some(40), Some(60)));
    assert_eq!(sampled, world.judge(&some));
    let few = world.judge(&json!({"policy": "greedy", "to": until, "missing_reward": 0, "max_decisions": 20}));
    assert!(few["estimators"]["snips"]["refused"].as_str().unwrap().starts_with("20 rounds are too few"), "{few}");
    let none = world.judge(&json!({"policy": "greedy", "to": "2020-01-01T00:00:00Z"}));
    assert_eq!((&none["rounds"], &none["estimators"]), (&json!(0), &Value::Null), "{none}");

    // Greedy shows the same to everybody whatever the seed: of other choices its log can say nothing.
    for user in 0..50 {
        let _ = world.topk(user, &json!("greedy"));
    }
    let report = world.judge(&json!({"policy": "uniform", "from": until, "missing_reward": 0}));
    assert_eq!(report["rounds"], 50);
    for (estimator, estimate) in report["estimators"].as_object().unwrap() {
        let refused = estimate["refused"].as_str().unwrap_or_else(|| panic!("{estimator}: {report}"));
        let expected = if estimator == "replay" { "the policy draws" } else { "explores" };
        assert!(refused.contains("explores") || refused.contains(expected), "{estimator}: {refused}");
        assert_eq!((&estimate["value"], &estimate["low"]), (&Value::Null, &Value::Null));
    }
    // Where both always agree there is overlap, but not one reward to tell how they vary.
    let agreed = world.judge(&json!({"policy": "greedy", "from": until, "missing_reward": 0}));
    let refused = agreed["estimators"]["replay"]["refused"].as_str().unwrap();
    assert!(refused.contains("the same reward"), "{agreed}");

    // Who is forgotten leaves no decisions.
    world.films.delete(&format!("users/{}", name(3))).expect(200);
    let after = world.judge(&json!({"policy": "greedy", "to": until, "missing_reward": 0}));
    assert_eq!((after["decisions"].as_u64(), after["rounds"].as_u64()), (Some(99), Some(99)), "{after}");
}

/// Thompson sampling is judged on its own log. Its propensities are estimates, and so is how likely a target that differs by
/// a hair would have shown the same: from another sample, or the ratio of both is always too small.
#[test]
fn thompson_earns_on_its_own_log_what_the_log_earned() {
    const RANKINGS: usize = 4_000;
    const CANDIDATES: usize = 12;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("celeris.toml");
    // Reading takes half of it at most, which must do on a busy machine too.
    std::fs::write(&config, "[limits]\nrequest_timeout = \"10min\"\n").unwrap();
    let node = NodeOptions::default().config(config).serve(dir.path());
    let mut world = World::new(&node);
    let items: Vec<String> = (0..CANDIDATES).map(|item| format!("item-{item}")).collect();
    let rank = |user: usize| {
        let request = json!({"user": name(user), "items": items, "k": 1, "policy": "thompson"});
        world.films.post("topk", &request).expect(200)
    };
    let mut decisions: Vec<(usize, Value)> = Vec::new();
    while decisions.len() < RANKINGS {
        decisions.extend((0..USERS).map(|user| (user, rank(user))));
        // More than wait for their propensities would stay without.
        let computed = format!("celeris_propensities_total{{outcome=\"computed\"}} {}", decisions.len());
        eventually("their propensities", || node.client().get("/metrics").text.contains(&computed).then_some(()));
    }
    let until = moment();
    let mut lines = String::new();
    for (user, decision) in &decisions {
        let item = shown(decision)[0];
        // Far from 0, so that a mean weight that is too small shows in the mean reward.
        let label = 5.0 + world.reward(*user, item);
        let id = &decision["decision_id"];
        let reward = json!({"user": name(*user), "item": format!("item-{item}"), "label": label, "decision_id": id});
        lines.push_str(&format!("{reward}\n"));
    }
    for answer in world.films.observe_lines(&lines).unwrap() {
        assert_eq!(answer.unwrap()["joined"], "slot");
    }
    let judge = |alpha: f64| {
        let policy = json!({"name": "thompson", "alpha": alpha});
        world.judge(&json!({"policy": policy, "to": until, "max_decisions": RANKINGS}))
    };
    let known = eventually("all propensities", || {
        let report = judge(1.0);
        (report["rounds"] == RANKINGS).then_some(report)
    });
    let value = |report: &Value, of: &str| report["estimators"][of]["value"].as_f64().unwrap();
    let logged = known["logged"]["value"].as_f64().unwrap();
    assert!((value(&known, "ips") / logged - 1.0).abs() < 1e-9, "what the log was drawn by is known: {known}");
    let other = judge(0.999);
    // 12 candidates by two counts of 1024 leave a weight a deviation of 0.15, and so the mean of 4,000 one of 0.0024.
    assert!((value(&other, "ips") / logged - 1.0).abs() < 0.01, "{other}");
    assert!(other["mean_weight"].as_f64().unwrap() > 0.99, "{other}");
}

#[test]
fn a_decision_whose_seed_was_given_says_so_and_counts_in_no_estimate() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let world = World::new(&node);
    let items: Vec<String> = (0..ITEMS).map(|item| format!("item-{item}")).collect();
    let request = |seed: Option<u64>| {
        let mut request = json!({"user": name(1), "items": items, "k": 2, "policy": "softmax"});
        seed.into_iter().for_each(|seed| request["seed"] = seed.into());
        request
    };
    let seeded = world.films.post("topk", &request(Some(7))).expect(200);
    let drawn = world.films.post("topk", &request(None)).expect(200);
    let recommended = world.films.post("recommend", &json!({"user": name(1), "k": 2, "seed": 7})).expect(200);
    for (ranking, given) in [(&seeded, true), (&drawn, false), (&recommended, true)] {
        assert_eq!(ranking["seed_given"], given, "{ranking}");
        let decision = world.films.get(&format!("decisions/{}", ranking["decision_id"].as_str().unwrap())).expect(200);
        assert_eq!((&decision["seed_given"], &decision["seed"]), (&json!(given), &ranking["seed"]), "{decision}");
    }
    let report = world.judge(&json!({"policy": "softmax", "missing_reward": 0}));
    assert_eq!((&report["rounds"], &report["skipped"]["seed_given"]), (&json!(1), &json!(2)), "{report}");
}

/// A candidate that was not shown has other features than it had: the policy would choose otherwise, whatever was shown.
#[test]
fn a_scene_that_has_changed_is_noticed_by_any_candidate() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let world = World::new(&node);
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
    let before = world.judge(&json!({"policy": "uniform", "missing_reward": 0}));
    assert_eq!(before["skipped"]["scene_changed"], 0, "{before}");
    describe(-0.6);
    let replay = world.films.get(&path).expect(200)["replay"].clone();
    assert_eq!(replay["same"], false, "{replay}");
    let after = world.judge(&json!({"policy": "uniform", "missing_reward": 0}));
    assert_eq!((&after["rounds"], &after["skipped"]["scene_changed"]), (&json!(0), &before["rounds"]), "{after}");
}

#[test]
fn requests_that_cannot_be_judged_name_the_field() {
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
        (json!({"policy": "greedy", "from": "yesterday"}), ["from", "year"]),
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
