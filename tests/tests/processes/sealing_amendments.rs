//! Corrections, retractions and erasures are applied to the sealed segments too.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use celeris_tests::fixtures::{any_item, config_file, create_model};
use celeris_tests::sealed::{self, SealedRows};
use celeris_tests::{ModelClient, NodeProcess, ProcessOptions, eventually};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::json;

const USERS: usize = 12;
const EACH: usize = 25;

fn serve(dir: &Path, sealing: &str) -> NodeProcess {
    let config = config_file(dir, format!("[sealing]\n{sealing}\n"));
    ProcessOptions::default().config(config).serve(dir)
}

fn observe_all(films: &ModelClient) {
    let mut random = ChaCha8Rng::seed_from_u64(31);
    let body: String = (0..USERS * EACH)
        .map(|k| {
            let user = format!("user-{}", k % USERS);
            let item = any_item(&mut random);
            format!("{}\n", json!({"user": user, "item": item, "label": 2, "observation_id": format!("o-{k}")}))
        })
        .collect();
    assert_eq!(films.observe_lines(&body).unwrap().map(Result::unwrap).count(), USERS * EACH);
}

fn amend(films: &ModelClient) {
    let corrected = films.put("observations/o-14", &json!({"label": 4.5}));
    assert_eq!(corrected.status, 200, "{}", corrected.text);
    for call in ["observations/o-27", "users/user-5"] {
        let deleted = films.node().try_send("DELETE", &films.path(call), "", "").unwrap();
        assert!((200..300).contains(&deleted.status), "{call}: {}", deleted.text);
    }
}

/// Whether the rows are those after the amendments: 12 users with 25 observations each, without one
/// user and one observation.
fn is_amended(rows: &SealedRows) -> bool {
    let of = |id: &str| rows.values().find(|row| row.observation_id == id);
    rows.len() == (USERS - 1) * EACH - 1
        && rows.values().all(|row| row.user != "user-5")
        && of("o-27").is_none()
        && of("o-14").is_some_and(|row| row.label == 4.5 && row.first_label == Some(2.0))
        && rows.values().filter(|row| row.first_label.is_some()).count() == 1
}

/// The files of a folder.
fn files(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn amendments_of_sealed_observations_reach_the_segments() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), "interval = \"5ms\"\nrecords = 40");
    let films = create_model(&node.client(), "films", 1);
    observe_all(&films);
    let folder = sealed::folder(dir.path(), "films");
    eventually("everything to be sealed", || {
        let text = fs::read_to_string(folder.join("_watermark.json")).ok()?;
        let sealed: serde_json::Value = serde_json::from_str(&text).ok()?;
        let marks = sealed["watermark"].as_array()?.iter().filter_map(serde_json::Value::as_u64).sum::<u64>();
        (marks == (USERS * EACH) as u64).then_some(())
    });
    let before = sealed::read(dir.path(), "films").unwrap();
    assert!(before.rows.values().any(|row| row.user == "user-5"));
    amend(&films);
    // A kill between the amendments and their sealing only delays the sealing.
    node.kill_hard();
    let node = serve(dir.path(), "interval = \"5ms\"\nrecords = 40");
    let lag = |name: &str| {
        let text = node.client().get("/metrics").text;
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")))?.to_owned();
        line.rsplit_once(' ')?.1.parse::<f64>().ok()
    };
    eventually("the amendments to be sealed", || (lag("celeris_sealing_lag_records")? == 0.0).then_some(()));
    node.kill_hard();
    let there = sealed::read(dir.path(), "films").unwrap();
    assert!(is_amended(&there.rows), "{:?}", there.rows.len());
    let listed: BTreeSet<String> = there.files.into_iter().chain(["_watermark.json".to_owned()]).collect();
    assert_eq!(files(&folder), listed, "the files with the erased user are removed");
}

#[test]
fn observations_amended_before_sealing_are_sealed_as_amended() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), "enabled = false");
    let films = create_model(&node.client(), "films", 1);
    observe_all(&films);
    amend(&films);
    assert_eq!(node.terminate().code, Some(0));
    let node = serve(dir.path(), "interval = \"5ms\"");
    eventually("everything to be sealed", || is_amended(&sealed::read(dir.path(), "films")?.rows).then_some(()));
    assert_eq!(node.terminate().code, Some(0));
}
