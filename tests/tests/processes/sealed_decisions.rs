//! Decisions are sealed as Parquet while the node runs: complete, and without those of erased
//! users.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, RecordBatch};
use celeris_tests::fixtures::{ITEMS, config_file, create_model};
use celeris_tests::{ModelClient, ProcessOptions, eventually};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

const USERS: usize = 4;
const EACH: usize = 6;

/// A sealed decision: its user, number of candidates, number of recorded candidates, and shown
/// items.
#[derive(Debug, PartialEq)]
struct Row {
    user: String,
    candidates: i32,
    items: Option<usize>,
    shown: Vec<String>,
}

/// The rows of the files that the watermark lists, by decision.
fn read(data_dir: &Path) -> Option<BTreeMap<String, Row>> {
    let folder = data_dir.join("sealed_decisions/model=films");
    let sealed: Value = serde_json::from_str(&fs::read_to_string(folder.join("_watermark.json")).ok()?).unwrap();
    let mut rows = BTreeMap::new();
    for segment in sealed["segments"].as_array().unwrap() {
        // A file that is replaced after the watermark was read is read at the next poll.
        let file = File::open(folder.join(segment["file"].as_str().unwrap())).ok()?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        let before = rows.len();
        reader.for_each(|batch| read_batch(&batch.unwrap(), &mut rows));
        assert_eq!(segment["rows"], rows.len() - before);
    }
    Some(rows)
}

fn read_batch(batch: &RecordBatch, rows: &mut BTreeMap<String, Row>) {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    for row in 0..batch.num_rows() {
        let text = |name: &str| column(name).as_string::<i32>().value(row).to_owned();
        let items = column("candidate_items").as_list::<i32>();
        let shown = column("shown").as_list::<i32>().value(row);
        let names = shown.as_struct().column_by_name("item").unwrap().as_string::<i32>();
        let read = Row {
            user: text("user"),
            candidates: column("candidates").as_primitive::<Int32Type>().value(row),
            items: items.is_valid(row).then(|| items.value(row).len()),
            shown: names.iter().map(|name| name.unwrap().to_owned()).collect(),
        };
        assert!(rows.insert(text("decision_id"), read).is_none(), "a decision is there twice");
    }
}

/// Ranks for every user, and returns the rows that must be sealed.
fn rank_all(films: &ModelClient) -> BTreeMap<String, Row> {
    let items: Vec<String> = (0..ITEMS).map(|item| format!("item-{item}")).collect();
    let mut made = BTreeMap::new();
    for k in 0..USERS * EACH {
        let user = format!("user-{}", k % USERS);
        let ranking = films.post("topk", &json!({"user": user, "items": items, "k": 2})).expect(200);
        let shown = ranking["items"].as_array().unwrap().iter();
        let shown = shown.map(|slot| slot["item"].as_str().unwrap().to_owned()).collect();
        let row = Row { user, candidates: ITEMS as i32, items: Some(ITEMS), shown };
        made.insert(ranking["decision_id"].as_str().unwrap().to_owned(), row);
    }
    made
}

#[test]
fn every_decision_is_sealed_once_except_those_of_erased_users() {
    let dir = tempfile::tempdir().unwrap();
    let config = config_file(dir.path(), "[sealing]\ninterval = \"50ms\"\n");
    let node = ProcessOptions::default().config(&config).serve(dir.path());
    let films = create_model(&node.client(), "films", 3);
    let mut made = rank_all(&films);
    eventually("the sealed decisions", || (read(dir.path())? == made).then_some(()));
    films.observe(&json!({"user": "user-1", "item": "item-1", "label": 3}));
    films.delete("users/user-1").expect(200);
    made.retain(|_, row| row.user != "user-1");
    assert_eq!(made.len(), (USERS - 1) * EACH);
    eventually("the files without the erased user", || (read(dir.path())? == made).then_some(()));
    // A killed node resumes at the watermark.
    node.kill_hard();
    let node = ProcessOptions::default().config(&config).serve(dir.path());
    made.extend(rank_all(&node.model("films")));
    eventually("the decisions from after the crash", || (read(dir.path())? == made).then_some(()));
    let _gone = node.model("films").delete("");
    let folder = dir.path().join("sealed_decisions/model=films");
    eventually("the end of the files", || (!folder.exists()).then_some(()));
}
