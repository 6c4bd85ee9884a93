//! Sealed segments equal the log: after kills at any time, merges and repairs, and for every kind
//! of reader.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use celeris_skip::{self as skip, Need};
use celeris_tests::fixtures::{any_item, any_label, config_file, create_model};
use celeris_tests::sealed::{self, SealedRow, SealedRows};
use celeris_tests::trainer::python;
use celeris_tests::{Client, ModelClient, NodeProcess, ProcessOptions, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const USERS: usize = 40;

fn options(dir: &Path, sealing: &str) -> ProcessOptions {
    let config = config_file(dir, format!("[sealing]\n{sealing}\n"));
    ProcessOptions::default().config(config)
}

/// So frequent that a kill is likely to interrupt sealing.
const EAGER: &str = "interval = \"5ms\"\nrecords = 50";

fn lines(random: &mut ChaCha8Rng, count: usize) -> String {
    (0..count)
        .map(|_| {
            let user = format!("user-{}", random.random_range(0..USERS));
            let line = json!({"user": user, "item": any_item(random), "label": any_label(random)});
            format!("{line}\n")
        })
        .collect()
}

/// The records of all users as the node returns them, by partition and sequence; the partition is
/// read from the observation id that the node generated, `~partition-sequence`.
fn logged_rows(films: &ModelClient) -> SealedRows {
    let mut rows = SealedRows::new();
    for user in (0..USERS).map(|user| format!("user-{user}")) {
        for event in films.user(&user, 10_000)["history"].as_array().unwrap() {
            let id = event["observation_id"].as_str().unwrap();
            let (partition, sequence) = id[1..].split_once('-').unwrap();
            let row = SealedRow {
                user: user.clone(),
                user_epoch: event["user_epoch"].as_i64().unwrap(),
                item: event["item"].as_str().unwrap().to_owned(),
                label: event["label"].as_f64().unwrap() as f32,
                first_label: None,
                observation_id: id.to_owned(),
                context: None,
                predictions: vec![(1, 1, event["predicted"].as_f64().unwrap() as f32)],
            };
            rows.insert((partition.parse().unwrap(), sequence.parse().unwrap()), row);
        }
    }
    rows
}

fn metric(client: &Client, name: &str) -> Option<f64> {
    let text = client.get("/metrics").text;
    let line = text.lines().find(|line| line.starts_with(&format!("{name}{{stream=\"films\"}}")))?.to_owned();
    line.rsplit_once(' ')?.1.parse().ok()
}

fn await_sealed(node: &NodeProcess) {
    eventually("everything to be sealed", || {
        (metric(&node.client(), "celeris_sealing_lag_records")? == 0.0).then_some(())
    });
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn segments_equal_the_log_after_a_kill_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), EAGER);
    let mut random = ChaCha8Rng::seed_from_u64(17);
    {
        let node = options.serve(dir.path());
        create_model(&node.client(), "films", 1);
        node.kill_hard();
    }
    let mut left_behind = 0;
    for round in 0..12 {
        let node = options.serve(dir.path());
        let films = node.model("films");
        let kill_after = random.random_range(50..1500);
        let body = lines(&mut random, 6000);
        let acknowledged = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let Ok(lines) = films.observe_lines(&body) else { return };
                for _ in lines.map_while(Result::ok) {
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
            });
            eventually("enough observations", || (acknowledged.load(Ordering::Relaxed) >= kill_after).then_some(()));
            node.kill_hard();
        });

        // The files as an external reader finds them now.
        let there = sealed::read(dir.path(), "films");
        if let Some(there) = &there {
            let whole: i64 = there.watermark.iter().sum();
            assert_eq!(i64::try_from(there.rows.len()).unwrap(), whole, "every record up to the watermark is a row");
            for (partition, sequence) in there.rows.keys() {
                assert!(*sequence <= there.watermark[usize::try_from(*partition).unwrap()]);
            }
            let unlisted = names(&sealed::folder(dir.path(), "films")).len() - there.files.len() - 1;
            left_behind += usize::from(unlisted > 0);
        }
        let node = options.serve(dir.path());
        let films = node.model("films");
        let log = logged_rows(&films);
        for (place, row) in there.iter().flat_map(|there| &there.rows) {
            assert_eq!(log.get(place), Some(row), "round {round}: sealed, but not in the log");
        }
        await_sealed(&node);
        node.kill_hard();
        let there = sealed::read(dir.path(), "films").unwrap();
        assert_eq!(there.rows, log, "round {round}");
    }
    eprintln!("{left_behind} of 12 kills left files behind that no watermark lists");

    // An idle node keeps only the files that the watermark lists.
    let node = options.serve(dir.path());
    await_sealed(&node);
    eventually("the files of earlier attempts to be removed", || {
        let listed = sealed::read(dir.path(), "films")?.files.into_iter().chain(["_watermark.json".to_owned()]);
        (names(&sealed::folder(dir.path(), "films")) == listed.collect()).then_some(())
    });
    assert_eq!(node.terminate().code, Some(0));
}

#[test]
fn damaged_and_missing_segments_are_rewritten_from_the_log_and_unlisted_ones_removed() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), EAGER);
    let node = options.serve(dir.path());
    let films = create_model(&node.client(), "films", 1);
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut seal_another_body = || {
        let body = lines(&mut random, 200);
        assert_eq!(films.observe_lines(&body).unwrap().map(Result::unwrap).count(), 200);
        await_sealed(&node);
    };
    (0..6).for_each(|_| seal_another_body());
    // If the last seal has merged everything into one segment, the next one adds another.
    if metric(&node.client(), "celeris_sealed_segments") == Some(1.0) {
        seal_another_body();
    }
    let log = logged_rows(&films);
    assert_eq!(node.terminate().code, Some(0));

    let folder = sealed::folder(dir.path(), "films");
    let files = sealed::read(dir.path(), "films").unwrap().files;
    assert!(files.len() >= 2, "{files:?}");
    celeris_tests::data_dir::flip(&folder.join(&files[0]), 100, 3);
    fs::remove_file(folder.join(&files[1])).unwrap();
    fs::write(folder.join("segment-999999999999.parquet"), "not listed").unwrap();
    fs::write(folder.join(".segment-000000000077.parquet.tmp"), "half").unwrap();
    fs::write(folder.join("notes.txt"), "not ours").unwrap();

    let node = options.serve(dir.path());
    eventually("both segments to be rewritten", || {
        (metric(&node.client(), "celeris_sealing_rewrites_total")? == 2.0).then_some(())
    });
    assert_eq!(node.terminate().code, Some(0));
    let there = sealed::read(dir.path(), "films").unwrap();
    assert_eq!(there.rows, log);
    let listed: BTreeSet<String> =
        there.files.into_iter().chain(["_watermark.json".to_owned(), "notes.txt".to_owned()]).collect();
    assert_eq!(names(&folder), listed, "unlisted segments are removed, foreign files stay");

    // An unreadable watermark causes repeated sealing, but no loss of data.
    fs::write(folder.join("_watermark.json"), "{").unwrap();
    let node = options.serve(dir.path());
    eventually("the stream to be sealed again", || sealed_again(dir.path(), &log));
    assert_eq!(node.terminate().code, Some(0));
}

fn sealed_again(dir: &Path, log: &SealedRows) -> Option<()> {
    let text = fs::read_to_string(sealed::folder(dir, "films").join("_watermark.json")).ok()?;
    serde_json::from_str::<Value>(&text).ok()?;
    (sealed::read(dir, "films")?.rows == *log).then_some(())
}

#[test]
fn a_node_with_sealing_disabled_seals_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = options(dir.path(), "enabled = false").serve(dir.path());
    let films = create_model(&node.client(), "films", 1);
    films.observe(&json!({"user": "user-1", "item": "item-1", "label": 3}));
    assert_eq!(metric(&node.client(), "celeris_sealed_rows"), None);
    assert_eq!(node.terminate().code, Some(0));
    assert!(!dir.path().join("observations").exists());
}

#[test]
fn readers_of_parquet_find_every_observation() {
    let python = ["duckdb", "pyarrow", "pyspark"].into_iter().find_map(|reader| python(&[reader]));
    let missing = "no Python with duckdb, pyarrow or pyspark";
    let Some(python) = skip::unless(Need::Peers, python, missing) else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = options(dir.path(), EAGER).serve(dir.path());
    let films = create_model(&node.client(), "films", 1);
    let mut random = ChaCha8Rng::seed_from_u64(23);
    for _ in 0..3 {
        let body = lines(&mut random, 500);
        assert_eq!(films.observe_lines(&body).unwrap().map(Result::unwrap).count(), 500);
        await_sealed(&node);
    }
    let log = logged_rows(&films);
    assert_eq!(node.terminate().code, Some(0));

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_segments.py");
    let read = Command::new(python).arg(script).arg(dir.path().join("observations")).output().unwrap();
    let stderr = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success(), "{stderr}");
    let found: Value = serde_json::from_slice(&read.stdout).unwrap();
    let users: BTreeSet<&str> = log.values().map(|row| row.user.as_str()).collect();
    let labels: f64 = log.values().map(|row| f64::from(row.label)).sum();
    let expected =
        json!({"rows": 1500, "users": users.len(), "predictions": 1500, "labels": labels, "streams": ["films"]});
    let found = found.as_object().unwrap();
    assert!(!found.is_empty(), "{stderr}");
    for (reader, summary) in found {
        assert_eq!(*summary, expected, "{reader}");
    }
    eprintln!("read by {:?}", found.keys().collect::<Vec<_>>());
}
