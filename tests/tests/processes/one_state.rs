//! A user's state is a function of the log: live, evicted and rebuilt states are bit-identical.

use std::collections::{BTreeMap, BTreeSet};

use celeris_tests::fixtures::{any_item, any_label, config_file, create_model, weights};
use celeris_tests::{NodeProcess, ProcessOptions};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// A random observation with a random weight; a tenth of them are of an item without features.
fn any_observation(user: &str, random: &mut ChaCha8Rng) -> Value {
    let item = if random.random_bool(0.1) { "undescribed".to_owned() } else { any_item(random) };
    let weight = f32::from(random.random_range(1_u8..=3));
    json!({"user": user, "item": item, "label": any_label(random), "weight": weight})
}

/// By the end, live states have gone through several solves and many single updates; a restart
/// rebuilds them from the log alone.
#[test]
fn rebuilt_weights_equal_live_ones_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", 2);
    let mut random = ChaCha8Rng::seed_from_u64(17);
    let users: BTreeMap<String, usize> = [1, 2, 3, 17, 64, 150].map(|count| (format!("user-{count}"), count)).into();
    let mut lines = String::new();
    for (user, count) in &users {
        for _ in 0..*count {
            lines.push_str(&format!("{}\n", any_observation(user, &mut random)));
        }
    }
    let sent = lines.lines().count();
    assert_eq!(films.observe_lines(&lines).unwrap().map(Result::unwrap).count(), sent);
    let all_weights =
        |node: &NodeProcess| -> Vec<String> { users.keys().map(|user| weights(&node.model("films"), user)).collect() };
    let live = all_weights(&node);
    assert_eq!(live.iter().collect::<BTreeSet<_>>().len(), users.len(), "the weights of all users differ");
    node.kill_hard();

    let node = NodeProcess::serve(dir.path());
    assert_eq!(all_weights(&node), live);
    // A rebuilt state is updated like a live one: after one more observation, it equals the state
    // after another restart.
    for user in users.keys() {
        node.model("films").observe(&any_observation(user, &mut random));
    }
    let advanced = all_weights(&node);
    assert!(advanced.iter().zip(&live).all(|(advanced, live)| advanced != live));
    assert_eq!(node.terminate().code, Some(0));

    let node = NodeProcess::serve(dir.path());
    assert_eq!(all_weights(&node), advanced);
}

/// The same observations go to a node that keeps every state in memory and to one that keeps almost
/// none, where most observations are of an evicted user.
#[test]
fn evicted_weights_equal_live_ones_bit_for_bit() {
    const USERS: usize = 100;
    const EACH: usize = 5;
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let config = config_file(dirs[1].path(), "[memory]\nusers = \"1 KiB\"\n");
    let roomy = NodeProcess::serve(&dirs[0].path().join("data"));
    let cramped = ProcessOptions::default().config(config).serve(&dirs[1].path().join("data"));
    for node in [&roomy, &cramped] {
        let films = create_model(&node.client(), "films", 51);
        let mut random = ChaCha8Rng::seed_from_u64(52);
        for observation in 0..USERS * EACH {
            films.observe(&any_observation(&format!("user-{}", observation % USERS), &mut random));
        }
    }
    let metrics = cramped.client().get("/metrics").text;
    let evictions =
        metrics.lines().find_map(|line| line.strip_prefix("celeris_cache_evictions_total{cache=\"users\"} "));
    let evictions: usize = evictions.expect("the node counts evictions").parse().unwrap();
    assert!(evictions >= USERS * EACH / 2, "memory was cramped: {evictions} evictions");
    for user in (0..USERS).map(|user| format!("user-{user}")) {
        assert_eq!(weights(&cramped.model("films"), &user), weights(&roomy.model("films"), &user), "{user}");
    }
}
