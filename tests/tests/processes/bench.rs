//! Every benchmark runs and prints one JSON object in the documented format.

use celeris_tests::{Nats, binary};
use serde_json::Value;

/// Runs a benchmark in quick mode and returns its rows by name.
#[track_caller]
fn rows(bench: &str) -> Vec<(String, Value)> {
    let finished = binary::run_bench([bench, "--quick", "--json"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(report["bench"], bench);
    assert!(report["machine"]["cores"].as_u64().unwrap() >= 1);
    for field in ["cpu", "instruction_set", "os"] {
        assert!(!report["machine"][field].as_str().unwrap().is_empty(), "{field}");
    }
    let rows = report["rows"].as_array().unwrap();
    rows.iter().map(|row| (row["case"].as_str().unwrap().to_owned(), row.clone())).collect()
}

/// Checks that the cases are present, that no figure is negative, and that each ratio is `ours /
/// baseline`; returns the rows.
#[track_caller]
fn assert_cases(bench: &str, cases: &[&str]) -> Vec<(String, Value)> {
    let rows = rows(bench);
    for case in cases {
        assert!(rows.iter().any(|(name, _)| name == case), "no case {case} in {rows:?}");
    }
    for (case, row) in &rows {
        assert!(!row["unit"].as_str().unwrap().is_empty(), "{case}");
        let (ours, baseline) = (row["ours"].as_f64(), row["baseline"].as_f64());
        assert!(ours.is_none_or(|ours| ours >= 0.0), "{row}");
        let expected =
            ours.zip(baseline).filter(|(_, baseline)| *baseline > 0.0).map(|(ours, baseline)| ours / baseline);
        match (row["ratio"].as_f64(), expected) {
            // Figures are printed with enough digits to round-trip.
            (Some(ratio), Some(expected)) => assert!((ratio - expected).abs() <= 1e-12 * expected.abs(), "{row}"),
            (ratio, expected) => assert_eq!(ratio, expected, "{row}"),
        }
    }
    rows
}

#[test]
fn update_is_compared_with_solving_again_with_a_pass_and_without_choices() {
    let cases: Vec<String> = [10, 20, 50, 100, 128, 200, 512]
        .iter()
        .flat_map(|dim| ["resolve", "pass", "choices"].map(|case| format!("{case}/d={dim}")))
        .collect();
    assert_cases("update", &cases.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn topk_is_measured_by_items_catalog_policy_and_cache() {
    assert_cases(
        "topk",
        &[
            "greedy/n=1000/d=50",
            "uncertainty/n=1000/d=50",
            "greedy/n=1000/d=50/p99",
            "greedy/n=1000/d=50/catalog=1000000",
            "uncertainty/n=1000/d=50/catalog=1000000",
            "linear/greedy",
            "default/n=1000/d=50",
            "lookup/d=50",
            "lookup/n=4/d=50",
            "fill/n=4/d=50",
            "zipf/budget=10%/users",
            "zipf/budget=10%/predictions",
        ],
    );
}

#[test]
fn serving_is_compared_with_a_bare_handler() {
    assert_cases("serve", &["predict", "predict/p99", "topk/n=100", "topk/n=100/p99"]);
}

#[test]
fn switching_is_compared_with_the_seconds_between() {
    assert_cases("switch", &["predict/switch/p99", "switch/second/worst", "training/second/worst", "switch/length"]);
}

#[test]
fn observing_is_compared_with_a_bare_handler() {
    assert_cases("observe", &["http/c=1", "http/c=2", "http/c=64", "ndjson", "bytes/id=none", "bytes/id=32"]);
}

#[test]
fn estimates_are_compared_with_a_loaded_node() {
    assert_cases("size", &["estimate/memory", "estimate/disk"]);
}

#[test]
fn trainings_are_compared_with_cold_trainings_and_with_peers() {
    // Quick mode runs no peers: their columns are empty. Errors are reported beside the times.
    let cases = ["als", "refresh"].map(|kind| [format!("{kind}/synthetic-5m"), format!("{kind}/synthetic-5m/rmse")]);
    let mut cases: Vec<&str> = cases.as_flattened().iter().map(String::as_str).collect();
    cases.extend(["implicit/synthetic-5m/iteration", "implicit/synthetic-5m/rank"]);
    assert_cases("train", &cases);
}

#[test]
fn policies_are_compared_by_their_regret() {
    // Quick mode runs no peers. Even so, the feedback loop shows the benefit of exploration.
    let cases = ["lin_ucb", "thompson", "epsilon_greedy", "softmax", "squarecb", "regcb", "shared/lin_ucb"];
    let cases: Vec<String> = cases.iter().map(|case| format!("regret/{case}")).collect();
    let mut cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    cases.extend(["sublinear/lin_ucb", "sublinear/thompson", "sublinear/squarecb", "sublinear/regcb"]);
    cases.extend(["lock_in/epsilon_greedy", "lock_in/epsilon_greedy/stuck"]);
    assert_cases("bandits", &cases);
}

#[test]
fn a_cluster_is_compared_with_raw_appends_and_with_a_node_on_its_own() {
    if !Nats::is_installed() {
        return;
    }
    let rows = assert_cases(
        "cluster",
        &["observe/c=1/p50", "observe/c=64", "observe/c=256", "lines", "predict/owner", "predict/forwarded"],
    );
    let ours = |case: &str| {
        let row = rows.iter().find(|(name, _)| name == case);
        row.and_then(|(_, row)| row["ours"].as_f64()).unwrap_or_else(|| panic!("no figure of {case} in {rows:?}"))
    };
    for case in ["lag/p99", "release/writes", "killed_owner/writes", "killed_server/writes", "stopped_server/writes"] {
        assert!(ours(case) > 0.0, "{case}");
    }
    assert!(ours("users_in_memory") > 0.0);
}

/// These cases measure no time, so their figures are meaningful in quick mode too.
#[test]
fn selections_survive_a_failing_model_and_learn_per_user() {
    let rows = rows("selection");
    let ratio = |case: &str| {
        let row = rows.iter().find(|(name, _)| name == case);
        row.and_then(|(_, row)| row["ratio"].as_f64()).unwrap_or_else(|| panic!("no ratio of {case} in {rows:?}"))
    };
    for strategy in ["exp3", "exp4", "tsallis_inf"] {
        assert!(ratio(&format!("failure/{strategy}")) < 1.0, "{strategy} errs less than the best single model");
        assert!(ratio(&format!("failure/{strategy}/readopted")) > 2.0, "{strategy} takes the recovered model back");
    }
    for strategy in ["exp4", "tsallis_inf"] {
        assert!(ratio(&format!("dialects/{strategy}")) < 0.9, "{strategy} gains by a state for each user");
    }
    assert!(ratio("agreement/exp4") < 1.0, "answers that models agree on are better");
}

#[test]
fn figures_are_written_if_documents_are_requested() {
    let docs = tempfile::tempdir().unwrap();
    let finished = binary::run_bench(["update", "--quick", "--docs", docs.path().to_str().unwrap()]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let figure = std::fs::read_to_string(docs.path().join("benchmarks/update-latency.svg")).unwrap();
    assert!(figure.starts_with("<svg") && figure.contains("normal equations"), "{figure}");
}

#[test]
fn estimated_sizes_grow_with_users_and_dimension() {
    let memory = |users: &str, dim: &str| {
        let finished = binary::run(["estimate-size", "--users", users, "--dim", dim, "--history", "20", "--json"]);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        let estimate: Value = serde_json::from_str(&finished.stdout).unwrap();
        estimate["memory"]["all_users"].as_f64().unwrap()
    };
    let (small, more_users, larger) = (memory("1000", "16"), memory("2000", "16"), memory("1000", "32"));
    // The samples are almost the same: twice the users take twice the bytes, except for rounding to
    // whole entries.
    assert!((more_users / small - 2.0).abs() < 0.1, "{small} {more_users}");
    assert!(larger > 1.5 * small, "{small} {larger}");
    let refused = binary::run(["estimate-size", "--users", "0", "--dim", "16", "--history", "20"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

#[test]
fn ope_is_compared_in_value_and_time() {
    assert_cases(
        "ope",
        &[
            "ips/invented/uniform",
            "switch_dr/invented/tilted",
            "replay/invented/always",
            "seconds/invented/tilted",
            "difference/largest",
        ],
    );
}

/// The benchmark itself fails if a search differs from computing all scores.
#[test]
fn searches_are_compared_with_computing_all_scores() {
    let kinds = ["exact", "quantized_scan", "filter/keeps=50%", "filter/keeps=10", "exclude=10000"];
    let cases: Vec<String> = ["", "/norms=equal"]
        .iter()
        .flat_map(|suffix| kinds.map(|kind| format!("{kind}/n=1000000/d=50{suffix}")))
        .collect();
    let mut cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    cases.extend(["hnsw/n=1000000/d=50", "build/table", "http/n=1000000/d=50"]);
    assert_cases("recommend", &cases);
}

#[test]
fn samplers_are_compared_with_optuna() {
    let cases = ["gp", "tpe", "random"]
        .map(|sampler| ["sphere", "rosenbrock", "hartmann"].map(|function| format!("sampler/{sampler}/{function}")))
        .concat();
    assert_cases("tuning", &cases.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The benchmark itself fails if engines give different outputs.
#[test]
fn pipelines_are_compared_with_their_operators_one_at_a_time() {
    let cases = ["sa/hot", "sa/hot/p99", "sa/cold/p99", "ac/hot/p99", "ac/cold/p99", "sa/sklearn", "load/250"];
    let others =
        ["memory/sa=250", "memory/sa=250/sklearn", "memory/ac=250", "subplans/sa", "threads=2", "reserved/p99"];
    assert_cases("pipelines", &[cases.as_slice(), &others, &["trees/rows=1", "trees/rows=100"]].concat());
}
