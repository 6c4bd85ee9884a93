//! Observations from message brokers: each counts once, and in the order of its partition.

mod kafka;
mod kills;
mod nats;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use celeris_tests::{NodeProcess, ProcessOptions, binary, eventually, sealed};
use serde_json::{Value, json};

/// The users of all messages. Message `n` is for user `n % USERS`, and has `n` as its label.
const USERS: usize = 40;

fn message(number: usize) -> String {
    let user = number % USERS;
    json!({ "user": format!("u{user}"), "item": format!("i{}", number % 97), "label": number }).to_string()
}

/// A node with one ingest, on a data directory of its own.
struct Ingesting {
    folder: tempfile::TempDir,
    config: PathBuf,
}

impl Ingesting {
    fn new(table: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("celeris.toml");
        std::fs::write(&config, format!("[sealing]\nenabled = false\n[training]\nautomatic = false\n{table}")).unwrap();
        Self { folder, config }
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn start(&self) -> NodeProcess {
        ProcessOptions::default().config(&self.config).serve(&self.data_dir())
    }

    fn dead_letters(&self, ingest: &str) -> Vec<Value> {
        let path = self.data_dir().join("dead-letters").join(format!("{ingest}.jsonl"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn create_model(node: &NodeProcess) {
    node.client().post("/v1/models", &json!({ "name": "m", "dim": 4 })).expect(201);
}

fn status(node: &NodeProcess) -> Value {
    node.client().get("/v1/ingests").expect(200)["ingests"][0].clone()
}

/// The sum of the positions and messages behind them: how many messages the broker has, if all are numbered from one.
fn lag(status: &Value) -> Option<u64> {
    let partitions = status["partitions"].as_array()?;
    let lags: Option<Vec<u64>> = partitions.iter().map(|partition| partition["lag"].as_u64()).collect();
    lags.filter(|lags| !lags.is_empty()).map(|lags| lags.iter().sum())
}

fn await_count(node: &NodeProcess, count: u64) {
    eventually("the messages are taken", || {
        let status = status(node);
        let taken = ["observations", "duplicates", "dead_letters"].map(|key| status[key].as_u64().unwrap());
        (taken.iter().sum::<u64>() >= count).then_some(())
    });
}

/// The labels in the log of a stopped node, by user, in the order of the log.
fn labels(data_dir: &Path) -> BTreeMap<String, Vec<usize>> {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("export");
    let done = binary::run(["export", "--data-dir", data_dir.to_str().unwrap(), "--out", folder.to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let rows = sealed::read(&folder, "m").map(|stream| stream.rows).unwrap_or_default();
    let mut labels = BTreeMap::<String, Vec<usize>>::new();
    for row in rows.into_values() {
        labels.entry(row.user).or_default().push(row.label as usize);
    }
    labels
}

/// The labels of messages in the order in which they were published, by user.
fn expected(numbers: impl IntoIterator<Item = usize>) -> BTreeMap<String, Vec<usize>> {
    let mut labels = BTreeMap::<String, Vec<usize>>::new();
    for number in numbers {
        labels.entry(format!("u{}", number % USERS)).or_default().push(number);
    }
    labels
}
