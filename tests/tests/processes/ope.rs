//! `celeris evaluate --protocol ope`: off-policy estimates on a log of the Open Bandit Dataset.

use std::fs;
use std::path::{Path, PathBuf};

use celeris_skip::{self as skip, Need};
use celeris_tests::binary;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

const ESTIMATORS: [&str; 7] = ["replay", "ips", "snips", "dm", "dr", "sndr", "switch_dr"];

/// Both implementations sum the same ten thousand doubles.
const TOLERANCE: f64 = 1e-9;

fn evaluate(log: &Path, policy: &str) -> Value {
    let arguments = ["evaluate", "--protocol", "ope", "--json", "--policy", policy, "--dataset"];
    let finished = binary::run(arguments.map(Into::into).into_iter().chain([log.as_os_str().to_owned()]));
    assert_eq!(finished.code, Some(0), "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

fn value(report: &Value, estimator: &str) -> f64 {
    report["estimators"][estimator]["value"].as_f64().unwrap_or_else(|| panic!("no {estimator} in {report}"))
}

/// The sample of the Open Bandit Dataset, if it is present.
fn sample() -> Option<PathBuf> {
    skip::unless_downloaded(Need::OpenBandit, "open-bandit")
}

fn distribution(folder: &Path, name: &str, items: usize, probability: impl Fn(usize) -> f64) -> String {
    let rows: String = (0..items).map(|item| format!("{item},{}\n", probability(item))).collect();
    let file = folder.join(format!("{name}.csv"));
    fs::write(&file, format!("item_id,probability\n{rows}")).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn estimates_on_the_open_bandit_sample_equal_those_of_obp() {
    let Some(sample) = sample() else { return };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ope/open_bandit_obp.json");
    let obp: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let always = obp["always"].as_u64().unwrap() as usize;
    let policies = [
        ("uniform", "uniform".to_owned()),
        ("tilted", distribution(dir.path(), "tilted", 34, |item| (item + 1) as f64 / 595.0)),
        ("always", distribution(dir.path(), "always", 34, |item| f64::from(u8::from(item == always)))),
    ];
    let mut compared = 0;
    for log in ["random", "bts"] {
        for (policy, text) in &policies {
            let report = evaluate(&sample.join(log).join("men"), text);
            for (estimator, theirs) in obp["logs"][log][policy].as_object().unwrap() {
                if report["estimators"][estimator]["refused"].is_null() {
                    let (ours, theirs) = (value(&report, estimator), theirs.as_f64().unwrap());
                    assert!((ours - theirs).abs() < TOLERANCE, "{log} {policy} {estimator}: {ours} is not {theirs}");
                    compared += 1;
                }
            }
        }
    }
    // The refused estimates are of the policy that always shows one item, on a log that hardly ever
    // shows it.
    assert!(compared >= 9, "{compared} of 14");
}

#[test]
fn the_click_rate_of_one_policy_is_estimated_from_the_log_of_the_other() {
    let Some(sample) = sample() else { return };
    for (log, other) in [("random", "bts"), ("bts", "random")] {
        let report = evaluate(&sample.join(log).join("men"), sample.join(other).join("men").to_str().unwrap());
        // The reward of the other policy is an estimate too: the two intervals must overlap.
        let earned = &report["earned"];
        for estimator in ["ips", "snips", "dr", "sndr"] {
            let estimate = &report["estimators"][estimator];
            let end = |of: &Value, end: &str| of[end].as_f64().unwrap();
            let apart = end(estimate, "low") > end(earned, "high") || end(estimate, "high") < end(earned, "low");
            assert!(!apart, "{log} of {other} by {estimator}: {earned}, {estimate}");
        }
    }
}

/// Writes a log of 3,000 impressions at two positions by a policy that prefers the first items,
/// with clicks that prefer the last.
fn write_log(folder: &Path) {
    let mut random = ChaCha8Rng::seed_from_u64(33);
    let likely = [0.4, 0.3, 0.2, 0.1];
    let mut rows = "item_id,position,click,propensity_score,user_feature_0,user-item_affinity_3\n".to_owned();
    for _ in 0..3_000 {
        let mut left = random.random::<f64>();
        let item = likely.iter().position(|probability| {
            left -= probability;
            left < 0.0
        });
        let item = item.unwrap_or(3);
        let (position, group) = (random.random_range(1..=2), random.random_range(0..3));
        let click = u8::from(random.random::<f64>() < 0.1 * (item + 1) as f64 / f64::from(position));
        rows.push_str(&format!("{item},{position},{click},{},{group},0\n", likely[item]));
    }
    fs::write(folder.join("log.csv"), rows).unwrap();
    fs::write(folder.join("item_context.csv"), "item_id\n0\n1\n2\n3\n").unwrap();
}

#[test]
fn every_policy_can_be_evaluated_and_estimates_match_the_truth() {
    let dir = tempfile::tempdir().unwrap();
    write_log(dir.path());
    // Click probability of item `i`: `0.1 * (i + 1)` at the first position, half of that at the
    // second.
    let truth = |likely: [f64; 4]| -> f64 {
        0.75 * likely.iter().enumerate().map(|(item, likely)| likely * 0.1 * (item + 1) as f64).sum::<f64>()
    };
    let policies = tempfile::tempdir().unwrap();
    let last = distribution(policies.path(), "last", 4, |item| f64::from(u8::from(item == 3)));
    for (policy, likely) in [("uniform", [0.25; 4]), (last.as_str(), [0.0, 0.0, 0.0, 1.0])] {
        let report = evaluate(dir.path(), policy);
        assert_eq!((report["protocol"].as_str(), report["rounds"].as_u64()), (Some("ope"), Some(3_000)));
        for estimator in &ESTIMATORS[1..] {
            let estimate = &report["estimators"][estimator];
            let (low, high) = (estimate["low"].as_f64().unwrap(), estimate["high"].as_f64().unwrap());
            // One and a half times the interval: three standard errors.
            let (middle, reach) = ((low + high) / 2.0, 0.75 * (high - low));
            assert!((middle - truth(likely)).abs() < reach, "{policy} by {estimator}: {estimate}");
            assert!(estimate["effective_sample_size"].as_f64().unwrap() <= 3_000.0 + 1e-6);
        }
    }
    // Named policies learn from the first half and are evaluated on the second.
    for policy in ["greedy", "softmax", "thompson", r#"{"name": "epsilon_greedy", "epsilon": 0.5}"#] {
        let report = evaluate(dir.path(), policy);
        assert_eq!((report["learnt_from"].as_u64(), report["rounds"].as_u64()), (Some(1_500), Some(1_500)), "{policy}");
        let (earned, logged) = (value(&report, "snips"), report["logged"]["value"].as_f64().unwrap());
        assert!(earned > logged, "{policy} has learnt which items are clicked: {earned} against {logged}");
    }
    let text = binary::run([
        "evaluate",
        "--protocol",
        "ope",
        "--policy",
        "uniform",
        "--dataset",
        dir.path().to_str().unwrap(),
    ]);
    assert!(text.stdout.contains("snips") && text.stdout.contains("refused: the policy draws"), "{text:?}");
}

#[test]
fn invalid_policies_and_logs_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    write_log(dir.path());
    let log = dir.path().to_str().unwrap();
    let policies = tempfile::tempdir().unwrap();
    let half = distribution(policies.path(), "half", 4, |_| 0.125);
    let refused = |arguments: &[&str], words: &[&str]| {
        let finished = binary::run([&["evaluate", "--protocol", "ope", "--dataset", log], arguments].concat());
        assert_eq!(finished.code, Some(2), "{arguments:?}: {finished:?}");
        for word in words {
            assert!(finished.stderr.contains(word), "{arguments:?}: no {word:?} in {}", finished.stderr);
        }
    };
    refused(&[], &["--policy"]);
    refused(&["--policy", "oracle"], &["oracle", "epsilon_greedy"]);
    refused(&["--policy", r#"{"name": "greedy", "epsilon": 1}"#], &["greedy", "epsilon"]);
    refused(&["--policy", &half], &["half.csv", "position 1", "sum to 0.5"]);
    refused(&["--policy", "uniform", "--dim", "5"], &["--dim"]);
    refused(&["--policy", "uniform", "--resamples", "0"], &["--resamples"]);
    refused(&["--policy", "uniform", "--switch-threshold=-1"], &["--switch-threshold", "-1"]);
    let lines = fs::read_to_string(dir.path().join("log.csv")).unwrap();
    fs::write(dir.path().join("log.csv"), format!("{lines}9,1,0,0.5,0,0\n")).unwrap();
    refused(&["--policy", "uniform"], &["log.csv:3002", "item_id", "\"9\""]);
    let other = binary::run(["evaluate", "--protocol", "split", "--policy", "uniform", "--dataset", log]);
    assert_eq!(other.code, Some(2));
    assert!(other.stderr.contains("--protocol ope"), "{other:?}");
}
