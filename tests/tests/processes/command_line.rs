//! What the smaller commands say: lists, sizes, completions, and mistakes with their remedies.

use std::net::TcpListener;

use celeris_datasets::fetch::PUBLISHED;
use celeris_tests::binary::{self, Finished};
use serde_json::Value;

#[track_caller]
fn succeeded(arguments: &[&str]) -> Finished {
    let finished = binary::run(arguments);
    assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
    finished
}

#[track_caller]
fn refused(arguments: &[&str], words: &[&str]) {
    let finished = binary::run(arguments);
    assert_eq!(finished.code, Some(2), "{arguments:?}: {finished:?}");
    for word in words {
        assert!(finished.stderr.contains(word), "{arguments:?}: no {word:?} in {}", finished.stderr);
    }
}

#[test]
fn the_list_of_data_sets_has_their_ratings_sizes_and_terms() {
    let listed = succeeded(&["datasets", "list"]).stdout;
    for data in PUBLISHED {
        let line = listed.lines().find(|line| line.split_whitespace().next() == Some(data.name)).unwrap();
        assert!(line.contains(&data.ratings.to_string()), "{line}");
        assert!(line.contains(&format!("{} MB", data.archive_mb)), "{line}");
        assert!(line.contains("research only"), "{line}");
    }
    assert!(listed.contains("licence"), "{listed}");
}

#[test]
fn sizes_are_estimated_for_numbers_as_people_write_them() {
    let plan = |users: &str, history: &str| {
        let arguments = ["estimate-size", "--users", users, "--dim", "4", "--history", history, "--items", "1e2"];
        let json = succeeded(&[arguments.as_slice(), &["--json"]].concat()).stdout;
        serde_json::from_str::<Value>(&json).unwrap()["disk"]["observations"].as_f64().unwrap()
    };
    let (plain, short) = (plan("200000", "2"), plan("2e5", "2"));
    // The sample's files differ by a few bytes between runs.
    assert!((short / plain - 1.0).abs() < 0.05, "{plain} {short}");
    // 2^64 users and observations each: their product is beyond a counter, and so are the bytes.
    let enormous = ["--users", "1.8e19", "--dim", "4", "--history", "1e6", "--items", "100"];
    let shown = succeeded(&[["estimate-size"].as_slice(), &enormous].concat()).stdout;
    assert!(shown.contains("over 16 EiB") && shown.contains("are not counted"), "{shown}");
    assert!(!shown.contains("16.0 EiB"), "{shown}");
    assert!(plan("1.8e19", "1e6") > 1e25, "bytes of 1.8e25 observations");
    for (number, words) in [("lots", "expected a whole number such as"), ("1.5", "whole"), ("1e99", "beyond")] {
        refused(&["estimate-size", "--users", number, "--dim", "4", "--history", "1"], &["--users", number, words]);
    }
}

#[test]
fn a_taken_port_names_the_option_for_another() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["demo", "--listen", &address, "--exit-when-ready"], &[&address, "--listen 127.0.0.1:0"]);
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    refused(
        &["serve", "--data-dir", data_dir.to_str().unwrap(), "--listen", &address],
        &[&address, "--listen 127.0.0.1:0"],
    );
}

#[test]
fn shells_complete_what_people_call() {
    let help = succeeded(&["--help"]).stdout;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"evaluate") && commands.contains(&"completions"), "{help}");
    assert!(!commands.contains(&"train"), "only nodes call it: {help}");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = succeeded(&["completions", shell]).stdout;
        for word in ["estimate-size", "evaluate", "dataset", "split"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
        assert!(!script.contains("--job"), "{shell}: an option of train");
    }
    refused(&["completions", "tcsh"], &["tcsh", "bash"]);
    let help = succeeded(&["train", "--help"]).stdout;
    assert!(help.contains("--job"), "{help}");
}
