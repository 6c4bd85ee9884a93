//! `celeris evaluate` by the number of ratings of a user, on pairs of files, in the order of time; and the
//! tables that it writes into a page.

use std::fs;
use std::path::Path;

use celeris_skip::{self as skip, Need};
use celeris_tests::binary;
use celeris_tests::fixtures::write_dataset;
use serde_json::Value;

/// Runs the command without peers, whose trainings take their time.
fn evaluated(protocol: &str, dataset: &Path, options: &[&str]) -> binary::Finished {
    let mut command = binary::command();
    command.env("CELERIS_PEERS", "none").args(["evaluate", "--protocol", protocol, "--dim", "6", "--dataset"]);
    let output = command.arg(dataset).args(options).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    binary::Finished { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn report(protocol: &str, dataset: &Path, options: &[&str]) -> Value {
    let finished = evaluated(protocol, dataset, &[options, &["--json"]].concat());
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(finished.stdout.lines().count(), 1, "one object: {finished:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {report}"))
}

#[test]
fn densities_and_orders_are_those_that_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    write_dataset(dir.path());
    let report = report("density", dir.path(), &["--densities", "5,10", "--orders", "2"]);
    assert_eq!((number(&report, "/orders"), number(&report, "/then")), (2.0, 7.0));
    assert_eq!(report["densities"].as_array().unwrap().len(), 2);
    for (place, ratings) in [5.0, 10.0].into_iter().enumerate() {
        let at = |field: &str| number(&report, &format!("/densities/{place}/{field}"));
        assert_eq!(at("ratings_per_user"), ratings);
        assert_eq!(at("ratings/0"), ratings * at("users"));
        assert_eq!(at("users") + at("users_left_out"), 100.0);
        assert!(at("online/rmse") < at("initial/rmse"), "{report}");
        assert!(at("initial/std_error") > 0.0, "{report}");
        assert!((0.8..1.0).contains(&at("initial/coverage_95")), "{report}");
    }
    assert_eq!(report.pointer("/densities/0/peers").unwrap().as_array().unwrap().len(), 0, "none are installed");
}

#[test]
fn folds_are_pairs_of_files_as_movielens_100k_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = write_dataset(dir.path());
    let folder = dir.path().join("ml-100k");
    fs::create_dir(&folder).unwrap();
    let lines: Vec<String> = dataset
        .ratings
        .iter()
        .map(|row| format!("{}\t{}\t{}\t{}\n", row.user, row.item, row.label, row.timestamp.0 / 1000))
        .collect();
    for fold in 1..=3 {
        let part = |test: bool| -> String {
            let rows = lines.iter().enumerate().filter(|(row, _)| (row % 3 + 1 == fold) == test);
            rows.map(|(_, line)| line.as_str()).collect()
        };
        fs::write(folder.join(format!("u{fold}.base")), part(false)).unwrap();
        fs::write(folder.join(format!("u{fold}.test")), part(true)).unwrap();
    }
    fs::write(folder.join("ua.base"), &lines[0]).unwrap();
    fs::write(folder.join("ua.test"), &lines[1]).unwrap();
    let all = report("folds", &folder, &[]);
    let names: Vec<&Value> = all["folds"].as_array().unwrap().iter().map(|fold| &fold["name"]).collect();
    assert_eq!(names, ["u1", "u2", "u3"], "{all}");
    assert_eq!(all["dataset"], "ml-100k");
    let errors: Vec<f64> = (0..3).map(|fold| number(&all, &format!("/folds/{fold}/ours/rmse"))).collect();
    assert!((number(&all, "/ours/rmse") - errors.iter().sum::<f64>() / 3.0).abs() < 1e-12, "{all}");
    assert!(number(&all, "/ours/std_error") > 0.0);
    let one = report("folds", &folder, &["--fold", "u2"]);
    assert_eq!(number(&one, "/ours/rmse"), errors[1], "a fold is a training of its own");
    // The same rows by the protocol that takes a file of rows to predict.
    let split = report("split", &folder.join("u2.base"), &["--test", folder.join("u2.test").to_str().unwrap()]);
    assert!((number(&split, "/rmse") - errors[1]).abs() < 1e-12, "{split}");
}

#[test]
fn a_stream_is_predicted_in_the_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let rows = write_dataset(dir.path()).ratings.len() as f64;
    let options = ["--first-share", "0.5", "--retrainings", "3"];
    let report = report("prequential", dir.path(), &options);
    assert_eq!(number(&report, "/train_ratings"), (rows / 2.0).floor());
    assert_eq!(number(&report, "/stream_ratings"), (rows / 2.0).ceil());
    let names: Vec<&Value> = report["ours"].as_array().unwrap().iter().map(|line| &line["name"]).collect();
    assert_eq!(names, ["fixed", "refreshed", "retrained", "tuned"]);
    for line in report["ours"].as_array().unwrap() {
        let so_far = line["rmse_so_far"].as_array().unwrap();
        assert_eq!(so_far.len(), 10);
        assert_eq!(so_far[9], line["rmse"]);
    }
    let missing: Vec<&str> = report["missing"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(missing, ["river's BiasedMF", "Vowpal Wabbit's --rank", "myFM"]);
    // The rows of the file in another order are the same stream.
    let text = fs::read_to_string(dir.path().join("ratings.csv")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[1..].reverse();
    fs::write(dir.path().join("ratings.csv"), lines.join("\n")).unwrap();
    let reversed = self::report("prequential", dir.path(), &options);
    let unseen = "/stream_ratings_of_unseen_users";
    assert_eq!(number(&reversed, unseen), number(&report, unseen), "but for rows of one second");
}

#[test]
fn tables_are_written_into_a_page_and_replaced_by_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    write_dataset(dir.path());
    let page = dir.path().join("page.md");
    fs::write(&page, "# Ours\n\n<!-- figures: density -->\nold\n<!-- end of figures: density -->\n\nThe end.\n")
        .unwrap();
    let options = ["--densities", "5", "--retrainings", "1", "--write", page.to_str().unwrap()];
    let finished = evaluated("table", dir.path(), &options);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let written = fs::read_to_string(&page).unwrap();
    assert!(written.starts_with("# Ours\n\n<!-- figures: density -->\n`celeris evaluate"), "{written}");
    assert!(!written.contains("old"), "{written}");
    for name in ["split", "density", "prequential", "ranking"] {
        assert_eq!(written.matches(&format!("<!-- figures: {name} -->")).count(), 1, "{written}");
    }
    for words in ["| EASE, lambda", "| tuned |", "myFM was not installed", "Not installed: river", "\nThe end.\n"] {
        assert!(written.contains(words), "no {words:?} in {written}");
    }
    evaluated("table", dir.path(), &options);
    assert_eq!(fs::read_to_string(&page).unwrap(), written, "the same seed gives the same tables");
}

#[test]
fn options_of_other_protocols_and_values_out_of_range_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_dataset(dir.path());
    let refused = |protocol: &str, options: &[&str], words: &[&str]| {
        let finished = evaluated(protocol, dir.path(), options);
        assert_eq!(finished.code, Some(2), "{options:?}: {finished:?}");
        for word in words {
            assert!(finished.stderr.contains(word), "{options:?}: no {word:?} in {}", finished.stderr);
        }
    };
    refused("velox", &["--densities", "5"], &["--densities", "--protocol density"]);
    refused("density", &["--first-share", "0.5"], &["--first-share", "--protocol prequential"]);
    refused("density", &["--fold", "u1"], &["--fold", "--protocol folds"]);
    refused("split", &["--write", "page.md"], &["--write", "--protocol density"]);
    refused("density", &["--densities", "0"], &["--densities", "at least 1"]);
    refused("density", &["--densities", "9000"], &["a density of n needs n + 8 ratings of a user"]);
    refused("density", &["--orders", "0"], &["--orders must be 1 to 100"]);
    refused("prequential", &["--first-share", "1"], &["--first-share must be above 0 and below 1"]);
    refused("prequential", &["--retrainings", "1001"], &["--retrainings must be 0 to 1000"]);
    refused("folds", &[], &["u1.base and u1.test", "--dataset names the folder"]);
    refused("folds", &["--fold", "u7"], &["u7.base"]);
}

#[test]
fn on_real_ratings_later_ones_help_and_intervals_cover_what_they_say() {
    let Some(folder) = skip::unless_downloaded(Need::MovieLens, "ml-latest-small") else { return };
    let report = report("density", &folder, &["--densities", "10,40"]);
    for place in 0..2 {
        let at = |field: &str| number(&report, &format!("/densities/{place}/{field}"));
        assert!(at("online/rmse") < at("initial/rmse"), "{report}");
        assert!(at("retrained/rmse") < at("initial/rmse"), "{report}");
        for stage in ["initial", "online", "retrained"] {
            assert!((0.9..=0.98).contains(&at(&format!("{stage}/coverage_95"))), "{stage}: {report}");
        }
    }
    assert_eq!(number(&report, "/densities/0/users") + number(&report, "/densities/0/users_left_out"), 610.0);
}
