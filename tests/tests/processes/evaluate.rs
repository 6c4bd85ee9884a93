//! `celeris evaluate` on items without ratings, and on lists of ten.

use std::path::{Path, PathBuf};

use celeris_skip::{self as skip, Need};
use celeris_tests::binary;
use celeris_tests::fixtures::write_dataset;
use serde_json::Value;

fn evaluate(protocol: &str, dataset: &Path, dim: &str) -> Value {
    let dataset = dataset.to_str().unwrap();
    let finished =
        binary::run(["evaluate", "--protocol", protocol, "--dataset", dataset, "--dim", dim, "--seed", "3", "--json"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(finished.stdout.lines().count(), 1, "one object: {finished:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {report}"))
}

fn movielens() -> Option<PathBuf> {
    skip::unless_downloaded(Need::MovieLens, "ml-latest-small")
}

#[test]
fn cold_items_are_predicted_better_than_by_mean_and_user_bias_and_with_calibrated_intervals() {
    let Some(folder) = movielens() else { return };
    let report = evaluate("cold-items", &folder, "32");
    assert_eq!(report["protocol"], "cold-items");
    assert_eq!(number(&report, "/items_left_out"), 972.0);
    let rmse = number(&report, "/rmse");
    assert!(rmse < number(&report, "/rmse_mean_and_user_bias"), "{report}");
    assert!(rmse < number(&report, "/rmse_stand_in"), "{report}");
    let covered = number(&report, "/coverage_95");
    assert!((0.92..=0.98).contains(&covered), "{report}");
}

#[test]
fn lists_are_better_than_by_popularity_and_no_worse_than_by_the_implicit_library() {
    let Some(folder) = movielens() else { return };
    let report = evaluate("ranking", &folder, "32");
    assert_eq!(number(&report, "/users"), 610.0);
    let figures = ["recall_at_10", "ndcg_at_10"];
    let of = |method: &str, figure: &str| number(&report, &format!("/{method}/{figure}"));
    for figure in figures {
        assert!(of("ours", figure) > of("popularity", figure), "{report}");
    }
    let implicit = report["implicit"].as_object();
    let Some(_) = skip::unless(Need::Peers, implicit, "no Python with implicit to compare with") else { return };
    for figure in figures {
        assert!(of("ours", figure) >= of("implicit", figure), "{report}");
    }
}

#[test]
fn a_data_set_without_titles_has_no_cold_items_to_evaluate() {
    let dir = tempfile::tempdir().unwrap();
    write_dataset(dir.path());
    std::fs::remove_file(dir.path().join("movies.csv")).unwrap();
    let dataset = dir.path().to_str().unwrap();
    let finished = binary::run(["evaluate", "--protocol", "cold-items", "--dataset", dataset]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(finished.stderr.contains("movies.csv"), "{finished:?}");
    let finished = binary::run(["evaluate", "--protocol", "ranking", "--dataset", dataset, "--test", dataset]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(finished.stderr.contains("--protocol split"), "{finished:?}");
}
