//! A node refuses a corrupt data directory and reports what to do; only the torn end of the last
//! write, which a crash leaves, is truncated. Data that startup does not read is verified while the
//! node serves.

use std::fs;
use std::path::Path;

use celeris_tests::binary::{self, Finished};
use celeris_tests::fixtures::{any_item, any_label, config_file, create_model};
use celeris_tests::{NodeProcess, ProcessOptions, data_dir, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

const OBSERVATIONS: u64 = 200;

/// Number of damaged directories, each with one flipped bit.
const FLIPS: usize = 4;

fn serve_once(dir: &Path) -> Finished {
    binary::run(["serve", "--listen", "127.0.0.1:0", "--data-dir", dir.to_str().unwrap()])
}

/// Checks for exit code 2, no readiness, and a message with all of `words`.
#[track_caller]
fn assert_refused(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(!finished.stdout.contains("ready"), "{finished:?}");
    for word in words {
        assert!(finished.stderr.contains(word), "no {word:?} in: {}", finished.stderr);
    }
}

/// The data directory of a killed node with [`OBSERVATIONS`] of one user; the last one is the last
/// record of the log.
fn crashed() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", 3);
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut observation = || json!({"user": "u", "item": any_item(&mut random), "label": any_label(&mut random)});
    let lines: String = (1..OBSERVATIONS).map(|_| format!("{}\n", observation())).collect();
    assert_eq!(films.observe_lines(&lines).unwrap().map(Result::unwrap).count() as u64, OBSERVATIONS - 1);
    films.observe(&observation());
    node.kill_hard();
    dir
}

#[test]
fn a_flipped_bit_in_the_log_is_refused_and_a_torn_tail_is_cut() {
    let crashed = crashed();
    let wal = data_dir::largest_wal(crashed.path());
    let length = data_dir::length(&wal);
    let mut random = ChaCha8Rng::seed_from_u64(5);
    for flip in 0..FLIPS {
        // The first flip is in the middle, the others are between the first and the last tenth.
        let byte = if flip == 0 { length / 2 } else { random.random_range(length / 10..length * 9 / 10) };
        let bit = random.random_range(0..8);
        data_dir::flip(&wal, byte, bit);
        let damaged = fs::read(&wal).unwrap();
        let refused = serve_once(crashed.path());
        assert_refused(&refused, &[wal.file_name().unwrap().to_str().unwrap(), "restore", "backup"]);
        assert_eq!(fs::read(&wal).unwrap(), damaged, "a refused log is not modified");
        data_dir::flip(&wal, byte, bit);
    }

    let torn = tempfile::tempdir().unwrap();
    data_dir::copy(crashed.path(), torn.path());
    data_dir::cut(&data_dir::largest_wal(torn.path()), 3);
    let node = NodeProcess::serve(torn.path());
    assert_eq!(node.model("films").user("u", 0)["user_epoch"], OBSERVATIONS - 1, "only the torn record is cut");

    let node = NodeProcess::serve(crashed.path());
    assert_eq!(node.model("films").user("u", 0)["user_epoch"], OBSERVATIONS, "all is there after the repair");
}

#[test]
fn damage_found_while_a_node_serves_takes_it_out_of_service_and_is_refused_by_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", 3);
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let lines: String = (0..5000)
        .map(|n| {
            let (item, label) = (any_item(&mut random), any_label(&mut random));
            let id = format!("o-{n}");
            format!("{}\n", json!({"user": "u", "item": item, "label": label, "observation_id": id}))
        })
        .collect();
    assert_eq!(films.observe_lines(&lines).unwrap().map(Result::unwrap).count(), 5000);
    assert_eq!(node.terminate().code, Some(0));
    // Startup does not read the index of observation ids.
    let file = data_dir::sorted_file_of(dir.path(), "observation_ids");
    data_dir::flip(&file, data_dir::length(&file) / 3, 2);
    let name = file.file_name().unwrap().to_str().unwrap();
    let settings = tempfile::tempdir().unwrap();
    let config = config_file(settings.path(), "[verification]\ndelay = \"0s\"\n");

    let node = ProcessOptions::default().config(&config).serve(dir.path());
    eventually("the node is out of service", || (node.client().get("/readyz").status == 503).then_some(()));
    let refused = node.model("films").try_observe(&json!({"user": "u", "item": "item-1", "label": 4})).unwrap();
    assert_eq!(refused.status, 503, "{}", refused.text);
    let damaged = || node.client().get("/metrics").text.contains("celeris_store_damaged 1").then_some(());
    eventually("the metrics show the damage", damaged);
    assert_eq!(node.model("films").user("u", 0)["user_epoch"], 5000, "intact data is served");
    let stderr = node.terminate().stderr;
    assert!(stderr.contains(name) && stderr.contains("observation_ids"), "{stderr}");
    assert_refused(&serve_once(dir.path()), &[name, "restore", "backup"]);

    data_dir::flip(&file, data_dir::length(&file) / 3, 2);
    assert_eq!(
        NodeProcess::serve(dir.path()).model("films").user("u", 0)["user_epoch"],
        5000,
        "it serves after the repair"
    );
}

#[test]
fn a_data_directory_in_use_is_refused_and_its_node_keeps_serving() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", 4);
    assert_refused(&serve_once(dir.path()), &["in use", dir.path().to_str().unwrap()]);
    films.observe(&json!({"user": "u", "item": "item-1", "label": 4}));
    assert_eq!(node.terminate().code, Some(0));
    assert_eq!(NodeProcess::serve(dir.path()).model("films").user("u", 0)["user_epoch"], 1);
}

#[test]
fn an_unknown_format_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(NodeProcess::serve(dir.path()).terminate().code, Some(0));
    let format = dir.path().join("FORMAT");
    let known = fs::read_to_string(&format).unwrap();
    let unknown = known.replacen("\"format\":3", "\"format\":999", 1);
    assert_ne!(unknown, known);
    fs::write(&format, &unknown).unwrap();
    assert_refused(&serve_once(dir.path()), &["format 999", dir.path().to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&format).unwrap(), unknown);
    fs::write(&format, known).unwrap();
    assert_eq!(NodeProcess::serve(dir.path()).terminate().code, Some(0));
}
