//! Valid and invalid logs of the Open Bandit Dataset.

use std::fs;
use std::path::Path;

use celeris_datasets::{DatasetError, Impression, OpenBandit, open_bandit::read_distribution};
use celeris_skip::{Need, unless_downloaded};

const ITEMS: &str = ",item_id,item_feature_0\n0,0,-0.5\n1,1,0.25\n";
const HEADER: &str = ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,\
                      user-item_affinity_0,user-item_affinity_1";

fn write(folder: &Path, rows: &[&str]) {
    fs::write(folder.join("item_context.csv"), ITEMS).unwrap();
    fs::write(folder.join("men.csv"), format!("{HEADER}\n{}\n", rows.join("\n"))).unwrap();
}

fn load(rows: &[&str]) -> Result<OpenBandit, DatasetError> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), rows);
    OpenBandit::load(folder.path())
}

const SOUND: [&str; 3] = [
    "0,2019-11-24 00:00:01+00:00,1,3,0,0.25,young,red,0.0,2.0",
    "1,2019-11-24 00:00:02+00:00,0,1,1,0.75,old,red,0.0,0.0",
    "2,2019-11-24 00:00:03+00:00,0,3,0,1.0,young,blue,1.5,3.0",
];

#[test]
fn a_log_is_read_completely() {
    let folder = tempfile::tempdir().unwrap();
    let men = folder.path().join("random/men");
    fs::create_dir_all(&men).unwrap();
    write(&men, &SOUND);
    let log = OpenBandit::load(&men).unwrap();
    assert_eq!((log.name.as_str(), log.items), ("random/men", 2));
    assert_eq!(log.positions, [1, 3], "as the file numbers them");
    assert_eq!(log.impressions[0], Impression { item: 1, position: 1, click: 0.0, propensity: 0.25 });
    assert_eq!(log.impressions[1], Impression { item: 0, position: 0, click: 1.0, propensity: 0.75 });
    assert_eq!(log.levels, [2, 2]);
    assert_eq!([log.user_features(0), log.user_features(1), log.user_features(2)], [[0, 0], [1, 0], [0, 1]]);
    assert_eq!(log.affinities(0), [(1, 2.0)]);
    assert!(log.affinities(1).is_empty());
    assert_eq!(log.affinities(2), [(0, 1.5), (1, 3.0)]);
    assert_eq!(OpenBandit::load(men.join("men.csv")).unwrap(), log);
}

#[test]
fn bad_rows_name_file_line_and_field() {
    let cases = [
        ("0,t,2,3,0,0.5,a,b,0,0", "men.csv:3: field item_id: expected an item that item_context.csv lists, got \"2\""),
        ("0,t,x,3,0,0.5,a,b,0,0", "men.csv:3: field item_id: expected an item that item_context.csv lists, got \"x\""),
        ("0,t,1,64,0,0.5,a,b,0,0", "men.csv:3: field position: expected a position below 64, got \"64\""),
        ("0,t,1,3,no,0.5,a,b,0,0", "men.csv:3: field click: expected a finite number, got \"no\""),
        ("0,t,1,3,0,0,a,b,0,0", "field propensity_score: expected a probability above 0 and at most 1, got \"0\""),
        ("0,t,1,3,0,1.5,a,b,0,0", "field propensity_score: expected a probability above 0 and at most 1, got \"1.5\""),
        ("0,t,1,3,0,NaN,a,b,0,0", "field propensity_score: expected a finite number, got \"NaN\""),
        ("0,t,1,3,0,0.5,a,b,inf,0", "field user-item_affinity_0: expected a finite number, got \"inf\""),
        ("0,t,1,3,0,0.5,a", "field user_feature_1: expected a value, got the end of the row"),
        ("0,t,1,3,0,0.5,a,b,0,0,9", "field 11: expected the end of the row, got \"9\""),
    ];
    for (row, expected) in cases {
        let message = load(&[SOUND[0], row]).unwrap_err().to_string();
        assert!(message.ends_with(expected), "for {row}\n got {message}\nwant …{expected}");
    }
}

#[test]
fn errors_of_bad_folders_and_headers_name_the_missing_part() {
    let folder = tempfile::tempdir().unwrap();
    let message = |expected: &str| {
        let message = OpenBandit::load(folder.path()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    message("0 logs of impressions here; expected one");
    fs::write(folder.path().join("men.csv"), format!("{HEADER}\n")).unwrap();
    message("item_context.csv");
    fs::write(folder.path().join("item_context.csv"), "item_id\n").unwrap();
    message("item_context.csv: holds no items");
    fs::write(folder.path().join("item_context.csv"), "item_id\n1024\n").unwrap();
    message("item_context.csv:2: field item_id: expected an item's number, below 1024");
    fs::write(folder.path().join("item_context.csv"), ITEMS).unwrap();
    message("men.csv: holds no impressions");
    fs::write(folder.path().join("men.csv"), "item_id,position,click\n0,1,0\n").unwrap();
    message("men.csv:1: no column propensity_score in the header");
    fs::write(folder.path().join("women.csv"), "").unwrap();
    message("2 logs of impressions here");
}

#[test]
fn features_of_too_many_values_are_refused() {
    let rows: Vec<String> = (0..65).map(|row| format!("{row},t,0,1,0,0.5,value-{row},b,0,0")).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    assert!(load(&rows[..64]).is_ok());
    assert!(load(&rows).unwrap_err().to_string().contains("more than 64 values of one user feature"));
}

fn distribution(text: &str) -> Result<Vec<f64>, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.csv");
    fs::write(&file, text).unwrap();
    read_distribution(&file, &load(&SOUND).unwrap()).map_err(|error| error.to_string())
}

#[test]
fn a_distribution_has_an_item_for_every_position() {
    let whole = "item_id,position,probability\n0,1,0.25\n1,1,0.75\n1,3,1\n";
    assert_eq!(distribution(whole).unwrap(), [0.25, 0.75, 0.0, 1.0]);
    assert_eq!(distribution("probability,item_id\n0.5,1\n0.5,0\n").unwrap(), [0.5, 0.5, 0.5, 0.5]);
    for (text, expected) in [
        ("item_id\n0\n", "policy.csv:1: no column probability in the header"),
        ("item_id,probability\n2,1\n", "policy.csv:2: field item_id: expected an item of the log, got \"2\""),
        ("item_id,probability\n1,1.5\n", "policy.csv:2: field probability: expected a probability from 0 to 1"),
        ("item_id,position,probability\n1,2,1\n", "policy.csv:2: field position: expected a position of the log"),
        ("item_id,probability\n1,1\n1,0\n", "policy.csv:3: field item_id: expected each item once for a position"),
        ("item_id,probability\n1,0.5\n", "policy.csv: the probabilities of position 1 sum to 0.5; they must sum to 1"),
        ("", "policy.csv: holds no probabilities"),
    ] {
        let message = distribution(text).unwrap_err();
        assert!(message.contains(expected), "for {text:?}: {message}");
    }
}

#[test]
fn the_published_sample_has_its_counts() {
    let Some(folder) = unless_downloaded(Need::OpenBandit, "open-bandit") else { return };
    for (policy, clicks) in [("random", 46), ("bts", 69)] {
        let log = OpenBandit::load(folder.join(policy).join("men")).unwrap();
        assert_eq!((log.impressions.len(), log.items, log.positions.as_slice()), (10_000, 34, [1, 2, 3].as_slice()));
        assert_eq!(log.impressions.iter().filter(|impression| impression.click == 1.0).count(), clicks);
        assert_eq!(log.levels[..3], [3, 5, 9]);
        assert_eq!(log.name, format!("{policy}/men"));
    }
}
