//! `celeris evaluate`: on items without ratings, on lists of ten, and on clicks and plays in files as
//! people have them.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use celeris_skip::{self as skip, Need};
use celeris_tests::binary;
use celeris_tests::fixtures::write_dataset;
use parquet::arrow::ArrowWriter;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

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

/// A row of a shop's log of impressions.
struct Shown {
    visitor: String,
    page: String,
    clicked: i64,
    /// Unix milliseconds.
    at: i64,
}

/// 60 visitors who are shown 30 pages of two kinds, of which each likes one.
fn impressions() -> Vec<Shown> {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let row = |number: i64| {
        let (visitor, page): (u32, u32) = (random.random_range(0..60), random.random_range(0..30));
        let rate = if visitor % 2 == page % 2 { 0.5 } else { 0.05 };
        let clicked = i64::from(random.random_bool(rate));
        let (visitor, page) = (format!("v{visitor}"), format!("p{page}"));
        Shown { visitor, page, clicked, at: 1_720_000_000_000 + 60_000 * number }
    };
    (0..1500).map(row).collect()
}

fn written(folder: &Path, name: &str, rows: &[Shown]) -> PathBuf {
    let file = folder.join(name);
    let mut text = String::new();
    match name.rsplit_once('.').unwrap().1 {
        "csv" => {
            text.push_str("visitor_id;shown;did_click;seconds\n");
            for Shown { visitor, page, clicked, at } in rows {
                writeln!(text, "{visitor};{page};{clicked};{}", at / 1000).unwrap();
            }
        }
        "tsv" => {
            text.push_str("seconds\tvisitor_id\tshown\tdid_click\n");
            for Shown { visitor, page, clicked, at } in rows {
                writeln!(text, "{}\t{visitor}\t{page}\t{clicked}", at / 1000).unwrap();
            }
        }
        "ndjson" => {
            for Shown { visitor, page, clicked, at } in rows {
                let row = json!({"visitor_id": visitor, "shown": page, "did_click": *clicked == 1, "seconds": at});
                writeln!(text, "{row}").unwrap();
            }
        }
        _ => {
            let visitors: ArrayRef = Arc::new(rows.iter().map(|row| Some(&row.visitor)).collect::<StringArray>());
            let pages: ArrayRef = Arc::new(rows.iter().map(|row| Some(&row.page)).collect::<StringArray>());
            let clicks: ArrayRef = Arc::new(rows.iter().map(|row| row.clicked).collect::<Int64Array>());
            let times: ArrayRef = Arc::new(rows.iter().map(|row| Some(row.at)).collect::<TimestampMillisecondArray>());
            let columns = [("visitor_id", visitors), ("shown", pages), ("did_click", clicks), ("seconds", times)];
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            let mut writer = ArrowWriter::try_new(File::create(&file).unwrap(), batch.schema(), None).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
            return file;
        }
    }
    fs::write(&file, text).unwrap();
    file
}

const MAP: &str = "item=shown,label=did_click,time=seconds";

fn finished(file: &Path, options: &[&str]) -> binary::Finished {
    let arguments = ["evaluate", "--dataset", file.to_str().unwrap(), "--dim", "8"];
    binary::run(arguments.iter().chain(options))
}

#[test]
fn a_file_gives_the_same_figures_in_every_format_that_import_reads() {
    let dir = tempfile::tempdir().unwrap();
    let rows = impressions();
    let mut reports = Vec::new();
    for name in ["log.csv", "log.tsv", "log.ndjson", "log.parquet"] {
        let file = written(dir.path(), name, &rows);
        let finished = finished(&file, &["--map", MAP, "--loss", "logistic", "--split", "time", "--json"]);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert_eq!(finished.stdout.lines().count(), 1, "nothing but the report: {finished:?}");
        let mut report: Value = serde_json::from_str(&finished.stdout).unwrap();
        assert_eq!(report["dataset"], name);
        let fields = report.as_object_mut().unwrap();
        fields.retain(|field, _| field != "dataset" && field != "train_seconds");
        reports.push(report);
        let stages: Vec<&str> = finished.stderr.lines().collect();
        let shown = file.display();
        assert_eq!(
            stages,
            [
                &format!("reading {name}"),
                &format!("{shown}: user=visitor_id item=shown label=did_click time=seconds"),
                "training",
                "training biases alone",
                "predicting rows: 150",
            ],
            "a line for each stage"
        );
    }
    for report in &reports {
        assert_eq!(report, &reports[0]);
    }
    let report = &reports[0];
    assert_eq!((number(report, "/train_ratings"), number(report, "/test_ratings")), (1350.0, 150.0));
    assert_eq!(report["test_from"], "2024-07-04T08:16:40Z", "the time of row 1350");
    let clicked = rows[..1350].iter().filter(|row| row.clicked == 1).count() as f64;
    assert!((number(report, "/train_rate") - clicked / 1350.0).abs() < 1e-12, "{report}");
    assert!(number(report, "/ours/log_loss") < number(report, "/base_rate/log_loss"), "{report}");
    assert!(number(report, "/ours/auc") > 0.6, "{report}");
}

#[test]
fn plays_are_listed_and_compared_with_popularity() {
    let dir = tempfile::tempdir().unwrap();
    let mut rows = impressions();
    rows.retain(|row| row.clicked == 1);
    let file = written(dir.path(), "plays.csv", &rows);
    let options =
        ["--map", "item=shown,time=seconds", "--label", "1", "--loss", "implicit", "--split", "time", "--k", "5"];
    let finished_text = finished(&file, &options);
    assert_eq!(finished_text.code, Some(0), "{finished_text:?}");
    for words in ["recall@5", "ndcg@5", "popularity", "took"] {
        assert!(finished_text.stdout.contains(words), "{finished_text:?}");
    }
    let json = finished(&file, &[options.as_slice(), &["--json"]].concat());
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(number(&report, "/ours/recall") > number(&report, "/popularity/recall"), "{report}");
    assert_eq!(number(&report, "/k"), 5.0);
}

#[test]
fn bad_rows_end_an_evaluation_or_are_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let mut rows = impressions();
    rows[6].clicked = 4;
    let file = written(dir.path(), "log.csv", &rows);
    let options = ["--map", MAP, "--loss", "logistic"];
    let refused = finished(&file, &options);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    for words in ["log.csv:8", "did_click", "4 is not from 0 to 1", "--skip-bad"] {
        assert!(refused.stderr.contains(words), "no {words:?}: {}", refused.stderr);
    }
    let aside = dir.path().join("bad.csv");
    let taken = finished(&file, &[options.as_slice(), &["--skip-bad", aside.to_str().unwrap(), "--json"]].concat());
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let report: Value = serde_json::from_str(&taken.stdout).unwrap();
    assert_eq!(number(&report, "/train_ratings") + number(&report, "/test_ratings"), 1499.0);
    assert_eq!(fs::read_to_string(aside).unwrap().lines().count(), 2, "a header and the row");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut rows = impressions();
    let file = written(dir.path(), "log.csv", &rows);
    let refused = |options: &[&str], words: &[&str]| {
        let finished = finished(&file, options);
        assert_eq!(finished.code, Some(2), "{options:?}: {finished:?}");
        for word in words {
            assert!(finished.stderr.contains(word), "{options:?}: no {word:?} in {}", finished.stderr);
        }
    };
    let no_time = "item=shown,label=did_click,time=";
    refused(&["--map", no_time, "--split", "time"], &["1500 rows have no time", "--map time=COLUMN"]);
    refused(&["--map", MAP, "--k", "5"], &["--k", "--loss implicit"]);
    refused(&["--map", MAP, "--loss", "hinge"], &["hinge", "logistic", "implicit"]);
    refused(&["--map", MAP, "--protocol", "ranking", "--loss", "logistic"], &["--loss", "--protocol split"]);
    refused(&["--map", MAP, "--split", "time", "--test", "x.csv"], &["--split", "--test"]);
    refused(&["--protocol", "context"], &["--dataset", "--protocol context"]);
    refused(&["--map", "item=shown"], &["no column for the label", "--label-from"]);
    refused(&["--map", MAP, "--seed", "odd"], &["--seed", "expected a whole number"]);
    rows.iter_mut().for_each(|row| row.clicked = 1);
    let file = written(dir.path(), "ones.csv", &rows);
    let finished = finished(&file, &["--map", MAP, "--loss", "logistic"]);
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(finished.stderr.contains("--loss implicit"), "{finished:?}");
}
