//! `celeris import` of files as people have them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};

use arrow_array::{
    ArrayRef, BinaryArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use celeris_tests::binary::{self, Finished};
use celeris_tests::fixtures::create_model;
use celeris_tests::{Client, ModelClient, Node, eventually};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Runs an import into a model of the node.
pub(super) fn import(model: &ModelClient, arguments: &[&str]) -> Finished {
    let url = model.node().url();
    binary::run(["import", "--url", url, "--model", model.name()].iter().chain(arguments))
}

/// Runs an import that succeeds, and returns its last line of counts.
#[track_caller]
pub(super) fn imported(model: &ModelClient, arguments: &[&str]) -> String {
    let done = import(model, arguments);
    assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
    let counts = done.stderr.lines().find(|line| line.contains(" skipped, ")).unwrap_or(&done.stderr);
    counts.to_owned()
}

/// Runs an import that fails for bad input, and returns its message.
#[track_caller]
pub(super) fn refused(model: &ModelClient, arguments: &[&str]) -> String {
    let done = import(model, arguments);
    assert_eq!(done.code, Some(2), "{arguments:?}: {}", done.stderr);
    done.stderr
}

#[track_caller]
pub(super) fn assert_contains(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "no {word:?} in\n{message}");
    }
}

pub(super) fn observations(model: &ModelClient) -> u64 {
    model.get("").expect(200)["observations"].as_u64().unwrap()
}

pub(super) fn create(client: &Client, name: &str, loss: &str) -> ModelClient {
    client.post("/v1/models", &json!({"name": name, "dim": 6, "loss": loss})).expect(201);
    client.model(name)
}

pub(super) fn write(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Rows of users who like one half of the items.
fn tastes(row: impl Fn(usize, usize, bool) -> Option<String>) -> String {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut text = String::new();
    for user in 0..60 {
        for _ in 0..15 {
            let item = random.random_range(0..40);
            text.extend(row(user, item, user % 2 == item % 2));
        }
    }
    text
}

/// Trains, and asks for recommendations.
fn recommended(model: &ModelClient, user: &str) -> usize {
    let job = model.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    eventually("the end of the training", || {
        let state = model.node().get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    });
    let answer = model.post("recommend", &json!({"user": user, "k": 5})).expect(200);
    answer["items"].as_array().unwrap().len()
}

#[test]
fn three_files_as_people_have_them_become_recommendations() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let client = node.client();

    let rows = tastes(|user, item, likes| {
        likes.then(|| format!("c{user};p{item};{},0;2024-03-{:02} 10:00:00\n", 1 + item % 3, 1 + user % 28))
    });
    let retail = write(dir.path(), "retail.csv", format!("customer_id;product_id;qty;created_at\n{rows}"));
    let dry = binary::run(["import", &retail, "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    let shown = [
        "customer_id (guessed)",
        "product_id (guessed)",
        "qty (guessed",
        "implicit",
        "created_at (guessed)",
        "labels from 1 to 3",
        "times from 2024-03-01T10:00:00Z",
        "0 are bad",
        "nothing was sent",
    ];
    assert_contains(&dry.stdout, &shown);
    let shop = create(&client, "shop", "implicit");
    let counts = imported(&shop, &[&retail]);
    assert_contains(&counts, &[" observations taken, 0 were there already, 0 skipped, 0 refused in "]);
    assert_eq!(observations(&shop), rows.lines().count() as u64);
    assert_eq!(recommended(&shop, "c1"), 5);

    let rows = tastes(|user, item, likes| likes.then(|| format!("v{user},page-{item}\n")));
    let clicks = write(dir.path(), "clicks.csv", format!("visitor_id,page_id\n{rows}"));
    let pages = create(&client, "pages", "implicit");
    assert_contains(&refused(&pages, &[&clicks]), &["no column for the label", "--label 1", "nothing was taken"]);
    let counts = imported(&pages, &[&clicks, "--label", "1", "--feedback", "click"]);
    assert_contains(&counts, &["observations have no time, and got the time of arrival"]);
    let user = pages.user("v1", 1);
    assert!(user["history"][0]["timestamp"].as_i64().is_none_or(|time| time > 1_700_000_000_000), "{user}");
    assert_eq!(recommended(&pages, "v1"), 5);

    let rows = tastes(|user, item, likes| {
        Some(format!("u{user},i{item},{},{}\r\n", if likes { 4.5 } else { 1.5 }, 1_700_000_000_000_u64 + item as u64))
    });
    let ratings = write(dir.path(), "ratings.csv", format!("\u{feff}User,Item,Stars,Timestamp\r\n{rows}"));
    let films = create(&client, "films", "squared");
    imported(&films, &[&ratings]);
    assert_eq!(observations(&films), 900);
    assert_eq!(recommended(&films, "u1"), 5);
}

#[test]
fn a_repeat_and_february_after_january_count_each_row_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let january = write(dir.path(), "jan.csv", "user,item,label\na,1,5\na,1,5\nb,2,3\n");
    let february = write(dir.path(), "feb.csv", "user,item,label\na,1,5\nc,2,3\n");
    assert_contains(&imported(&films, &[&january]), &["3 observations taken, 0 were there already"]);
    assert_contains(&imported(&films, &[&january]), &["0 observations taken, 3 were there already"]);
    assert_contains(&imported(&films, &[&february]), &["2 observations taken, 0 were there already"]);
    write(dir.path(), "jan.csv", "user,item,label\nz,9,1\nb,2,3\na,1,5\na,1,5\n");
    assert_contains(&imported(&films, &[&january]), &["1 observations taken, 3 were there already"]);
    assert_eq!(observations(&films), 6);

    let other_weight = refused(&films, &[&february, "--weight", "2"]);
    assert_contains(
        &other_weight,
        &["feb.csv:2: the node refused the row", "imported before with other values", "nothing was taken"],
    );
    assert_eq!(observations(&films), 6);
}

#[test]
fn a_bad_file_sends_nothing_and_bad_rows_can_be_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let mut text = "user,item,rating,time\n".to_owned();
    for row in 0..6000 {
        text.push_str(&format!("u{},i{},4,2024-01-31\n", row % 100, row / 100));
    }
    text.push_str("u1,i1,many,2024-01-31\nu1,i1,4,yesterday\nu1,i9\n");
    let good = write(dir.path(), "good.csv", "user,item,rating\na,1,5\n");
    let file = write(dir.path(), "r.csv", &text);
    let message = refused(&films, &[&good, &file]);
    assert_contains(
        &message,
        &["r.csv:6002: column rating: \"many\"", "3 rows of this file are bad", "--skip-bad FILE", "nothing was taken"],
    );
    assert_eq!(observations(&films), 0, "the files before it were not sent either");

    let set_aside = dir.path().join("bad.csv");
    let counts = imported(&films, &[&good, &file, "--skip-bad", set_aside.to_str().unwrap()]);
    assert_contains(&counts, &["6001 observations taken", "3 skipped, 0 refused", "bad.csv"]);
    let written = fs::read_to_string(&set_aside).unwrap();
    let rows: Vec<&str> = written.lines().collect();
    assert_eq!((rows.len(), rows[0]), (4, "file,line,reason,row"));
    assert_contains(rows[1], &["r.csv,6002,", "\"u1,i1,many,2024-01-31\""]);
    assert_contains(rows[3], &["r.csv,6004,", "2 fields where the header has 4", "\"u1,i9\""]);
}

#[test]
fn what_is_wrong_with_the_node_or_the_model_is_named_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let client = node.client();
    let file = write(dir.path(), "r.csv", "user,item,rating\na,1,1\nb,2,4\n");
    let clicks = create(&client, "clicks", "logistic");
    let message = refused(&clicks, &[&file]);
    assert_contains(&message, &["r.csv:3: column rating: 4 is not from 0 to 1", "squared", "nothing was taken"]);
    assert_eq!(observations(&clicks), 0);
    assert_contains(
        &refused(&client.model("nowhere"), &[&file]),
        &["no model nowhere", "create it first: curl", "squared"],
    );
    let no_scheme = binary::run(["import", &file, "--model", "clicks", "--label", "1", "--url", client.address()]);
    assert_eq!(no_scheme.code, Some(0), "{no_scheme:?}");
    let nobody = binary::run(["import", &file, "--model", "clicks", "--url", "http://127.0.0.1:9"]);
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    assert_contains(&nobody.stderr, &["no node answers at http://127.0.0.1:9", "celeris serve", "--url"]);
    let no_model = binary::run(["import", &file]);
    assert_contains(&no_model.stderr, &["--model", "--dry-run"]);
    assert_contains(&binary::run(["import", "--model", "clicks"]).stderr, &["no file to import"]);
}

#[test]
fn standard_input_is_taken_up_to_its_first_bad_row() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let input = |text: &str| {
        let path = write(dir.path(), "input", text);
        let arguments = ["import", "-", "--url", films.node().url(), "--model", "films"];
        binary::run_with_input(arguments, File::open(path).unwrap())
    };
    let lines = "{\"user\": 1, \"item\": 2, \"stars\": 3}\n{\"user\": 1, \"item\": 3, \"stars\": 4}\n";
    let done = input(lines);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_contains(&done.stderr, &["2 observations taken, 0 were there already"]);
    let again = input(&format!("{lines}{{\"user\": 1, \"item\": 4, \"stars\": 4}}\n{{\"user\": 1, \"item\": 5}}\n"));
    assert_eq!(again.code, Some(2), "{again:?}");
    assert_contains(
        &again.stderr,
        &["standard input:4: column stars: is empty", "before that, 1 observations taken, 2 were there already"],
    );
    assert_eq!(observations(&films), 3);
}

#[test]
fn items_are_described_by_a_file_of_items_or_by_the_rows_of_feedback() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let items =
        write(dir.path(), "items.csv", "product_id;title;price;genres\n1;1984;9,50;Drama|War\n2;Heat;12;Crime\n");
    let counts = imported(&films, &[&items, "--attributes", "title,price,genres"]);
    assert_contains(&counts, &["2 items described"]);
    let attributes = |item: &str| films.get(&format!("items/{item}")).expect(200)["attributes"].clone();
    assert_eq!(attributes("1"), json!({"title": "1984", "price": 9.5, "genres": ["Drama", "War"]}));
    let rows = write(dir.path(), "rows.csv", "user,item,rating,title\na,7,4,Alien\nb,7,5,Alien\n");
    let counts = imported(&films, &[&rows, "--attributes", "title"]);
    assert_contains(&counts, &["1 items described", "2 observations taken"]);
    assert_eq!(attributes("7"), json!({"title": "Alien"}));
    let message = refused(&films, &[&rows, "--attributes", "user_age"]);
    assert_contains(&message, &["user_age", "--user-attributes"]);
}

#[test]
fn users_are_described_by_a_file_of_users() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let users = write(dir.path(), "users.csv", "user_id,age,langs,note\na/1,31,en|de,\nb,,fr,\nc,,,\na/1,32,en,\n");
    let rows = write(dir.path(), "rows.csv", "user,item,rating\nb,7,4\n");
    let counts = imported(&films, &[&users, &rows, "--user-attributes", "age,langs"]);
    assert_contains(
        &counts,
        &["2 users described", "1 observations taken", "1 users left out of whom nothing is said"],
    );
    assert_contains(&counts, &["1 rows describe their item or user differently"]);
    let attributes = |user: &str| films.get(&format!("users/{user}")).expect(200)["attributes"].clone();
    assert_eq!(attributes("a%2F1"), json!({"age": 31, "langs": ["en", "de"]}));
    assert_eq!(attributes("b"), json!({"langs": ["fr"]}));
    assert_eq!(attributes("c"), json!(null));
    // An import of the same again changes nothing, and one of fewer columns replaces.
    assert_contains(&imported(&films, &[&users, "--user-attributes", "age,langs"]), &["2 users described"]);
    assert_contains(&imported(&films, &[&users, "--user-attributes", "age"]), &["1 users described"]);
    assert_eq!(attributes("a%2F1"), json!({"age": 31}));
    assert_eq!(attributes("b"), json!({"langs": ["fr"]}));
    let message = refused(&films, &[&rows, "--user-attributes", "age"]);
    assert_contains(&message, &["--user-attributes age: no file has such columns", "nothing was taken"]);
    let nameless = write(dir.path(), "nameless.csv", "user_id,age\n,31\n");
    let message = refused(&films, &[&nameless, "--user-attributes", "age"]);
    assert_contains(&message, &["nameless.csv:2: column user_id"]);
}

fn write_parquet(folder: &Path, name: &str, columns: Vec<(&str, ArrayRef)>) -> String {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let path = write(folder, name, "");
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path
}

fn texts(entries: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(entries.to_vec()))
}

#[test]
fn equal_rows_of_two_parts_both_count() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["stream=films/a.parquet", "stream=films/b.parquet"] {
        let columns = vec![("user", texts(&["u"])), ("item", texts(&["i"])), ("label", texts(&["3"]))];
        write_parquet(dir.path(), name, columns);
    }
    let node = Node::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let folder = dir.path().join("stream=films");
    let folder = folder.to_str().unwrap();
    assert_contains(&imported(&films, &[folder]), &["2 observations taken, 0 were there already"]);
    assert_contains(&imported(&films, &[folder]), &["0 observations taken, 2 were there already"]);
}

#[test]
fn parquet_columns_that_cannot_be_read_are_named_with_their_types() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = |entry: &'static [u8]| Arc::new(BinaryArray::from(vec![entry])) as ArrayRef;
    let columns = vec![("user", texts(&["u"])), ("item", bytes(b"i")), ("label", texts(&["3"]))];
    let path = write_parquet(dir.path(), "r.parquet", columns);
    let done = binary::run(["import", &path, "--dry-run"]);
    assert_contains(
        &done.stderr,
        &["no column for the item", "cannot be read: item (binary, not marked as UTF-8 text)"],
    );
    let columns =
        vec![("user", texts(&["u"])), ("item", texts(&["i"])), ("label", texts(&["3"])), ("time", bytes(b"now"))];
    let path = write_parquet(dir.path(), "r.parquet", columns);
    let done = binary::run(["import", &path, "--dry-run"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_contains(&done.stdout, &["columns that cannot be read: time (binary"]);
    let done = binary::run(["import", &path, "--dry-run", "--map", "time=time"]);
    assert_contains(&done.stderr, &["no column \"time\"", "cannot be read: time (binary"]);
}

#[test]
fn the_file_of_bad_rows_is_no_input_and_is_written_for_bad_rows_only() {
    let dir = tempfile::tempdir().unwrap();
    let text = "user,item,label\nu1,i1,5\nu2,i2,4\n";
    let shop = write(dir.path(), "shop.csv", text);
    let link = dir.path().join("link.csv");
    std::os::unix::fs::symlink(&shop, &link).unwrap();
    for out in [shop.as_str(), link.to_str().unwrap()] {
        for command in [["import", &shop, "--dry-run"], ["evaluate", "--dataset", &shop]] {
            let done = binary::run(command.iter().chain(&["--skip-bad", out]));
            assert_eq!(done.code, Some(2), "{done:?}");
            assert_contains(&done.stderr, &["--skip-bad", "is the input", "name another file"]);
        }
        assert_eq!(fs::read_to_string(&shop).unwrap(), text);
    }
    let earlier = write(dir.path(), "bad.csv", "of an earlier run");
    let done = binary::run(["import", &shop, "--dry-run", "--skip-bad", &earlier]);
    assert_contains(&done.stdout, &["no row was bad, so", "bad.csv was not written"]);
    assert_eq!(fs::read_to_string(&earlier).unwrap(), "of an earlier run");
    write(dir.path(), "shop.csv", "user,item,label\nu1,i1,5\nu2,i2,x\n");
    binary::run(["import", &shop, "--dry-run", "--skip-bad", &earlier]);
    assert_contains(&fs::read_to_string(&earlier).unwrap(), &["file,line,reason,row\n", "u2,i2,x"]);
}

#[test]
fn labels_outside_of_the_range_and_old_times_send_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let client = node.client();
    let stars = json!({"name": "stars", "dim": 4, "label_range": [1, 5]});
    client.post("/v1/models", &stars).expect(201);
    let stars = client.model("stars");
    let rows: String = (0..3000).map(|row| format!("u{row},i{row},3,2020-01-01\n")).collect();
    let wide = write(dir.path(), "wide.csv", format!("user,item,label,time\n{rows}u,i,500,2020-01-01\n"));
    let old = write(dir.path(), "old.csv", format!("user,item,label,time\n{rows}u,i,3,1999-12-31\n"));
    assert_contains(
        &refused(&stars, &[&wide]),
        &["wide.csv:3002: column label: 500 is not from 1 to 5", "nothing was taken"],
    );
    let dry = import(&stars, &[&wide, "--dry-run"]);
    assert_contains(&dry.stdout, &["3000 rows can be taken, 1 are bad", "labels were checked"]);
    assert_contains(&refused(&stars, &[&old]), &["old.csv:3002: column time", "--old-times", "nothing was taken"]);
    assert_eq!(observations(&stars), 0);
    let by_node = refused(&stars, &[&old, "--old-times"]);
    assert_contains(&by_node, &["old.csv:3002: the node refused the row", "before that, 3000 observations taken"]);

    let clips = json!({"name": "clips", "dim": 4, "label_range": [1, 5], "labels_outside": "clip"});
    client.post("/v1/models", &clips).expect(201);
    let counts = imported(&client.model("clips"), &[&wide]);
    assert_contains(&counts, &["3001 observations taken", "1 labels outside of the model's label_range were clipped"]);
    let nobody = ["import", &wide, "--dry-run", "--model", "clips", "--url", "http://127.0.0.1:9"];
    assert_contains(&binary::run(nobody).stdout, &["3001 rows can be taken", "labels could not be checked"]);
}

#[test]
fn a_model_created_again_under_its_name_receives_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // The first batch of 2000 rows is sent once 256 KiB were read; the second one waits for the rows written later.
    let filler = "x".repeat(130);
    let rows = |from: usize| -> String { (from..from + 2500).map(|row| format!("u{row},i,3,{filler}\n")).collect() };
    let message = std::thread::scope(|scope| {
        let import = scope.spawn(|| refused(&films, &[pipe.to_str().unwrap()]));
        let mut input = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        write!(input, "user,item,label,note\n{}", rows(0)).unwrap();
        eventually("the first batch", || (observations(&films) >= 2000).then_some(()));
        assert_eq!(films.delete("").status, 204);
        let again = json!({"name": "films", "dim": 6, "stream": "others"});
        node.client().post("/v1/models", &again).expect(201);
        // The import may have ended already.
        let _ = input.write_all(rows(2500).as_bytes());
        drop(input);
        import.join().unwrap()
    });
    assert_contains(&message, &["the model films was deleted and created again during the import", "rows went to"]);
    assert_contains(&message, &["0 rows went to the former model, the 2000 rows after them", "no more were sent"]);
    assert_eq!(observations(&films), 0);
}

/// A node that cannot take the first request, nor the second line of the second one.
fn busy_node() -> (String, JoinHandle<Vec<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let ndjson = "content-type: application/x-ndjson";
    let unavailable = "{\"line\": 2, \"error\": {\"status\": 503, \"detail\": \"busy\"}}\n";
    let answers = [
        ("503 Service Unavailable", "retry-after: 0", "{}".to_owned()),
        ("200 OK", ndjson, format!("{{}}\n{unavailable}{{}}\n{{\"summary\": {{}}}}\n")),
        ("200 OK", ndjson, "{}\n{\"summary\": {}}\n".to_owned()),
    ];
    let serving = spawn(move || {
        let (mut answers, mut lines) = (answers.into_iter(), Vec::new());
        // The model is asked for first, before every batch, and at the end.
        for _ in 0..6 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let head: Vec<String> =
                reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            let (status, header, body) = if head[0].starts_with("GET") {
                ("200 OK", "content-type: application/json", json!({"id": 1, "loss": "squared"}).to_string())
            } else {
                let length =
                    head.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                let mut sent = vec![0; length.unwrap()];
                reader.read_exact(&mut sent).unwrap();
                lines.push(sent.split(|byte| *byte == b'\n').count() - 1);
                answers.next().unwrap()
            };
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\n{header}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
            .unwrap();
        }
        lines
    });
    (url, serving)
}

#[test]
fn what_a_busy_node_cannot_take_is_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "r.csv", "user,item,label\na,1,5\nb,2,3\nc,3,4\n");
    let (url, serving) = busy_node();
    let done = binary::run(["import", &file, "--model", "films", "--url", &url]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_contains(&done.stderr, &["3 observations taken, 0 were there already, 0 skipped, 0 refused"]);
    assert_eq!(serving.join().unwrap(), [3, 3, 1], "lines of each request");
}

#[test]
fn parquet_of_other_programs_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("customer_id", Arc::new(Int64Array::from(vec![1, 2]))),
        ("product_id", Arc::new(StringArray::from(vec!["a", "b"]))),
        ("stars", Arc::new(Float64Array::from(vec![Some(4.5), None]))),
        ("created_at", Arc::new(TimestampMicrosecondArray::from(vec![1_700_000_000_000_000; 2]))),
    ];
    let path = write_parquet(dir.path(), "r.parquet", columns);
    let node = Node::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let path = path.as_str();
    assert_contains(&refused(&films, &[path]), &["r.parquet: row 2: column stars: is empty"]);
    let set_aside = dir.path().join("bad.csv");
    let counts = imported(&films, &[path, "--skip-bad", set_aside.to_str().unwrap()]);
    assert_contains(&counts, &["1 observations taken", "1 skipped"]);
    let user = films.user("1", 1);
    assert_eq!(user["history"][0]["label"], 4.5, "{user}");
}

/// The compared columns of an export's observations, as text.
fn exported(out: &Path, stream: &str) -> BTreeSet<String> {
    let folder = out.join(format!("observations/stream={stream}"));
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut rows = BTreeSet::new();
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "parquet")) {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap().build().unwrap();
        for batch in reader.map(Result::unwrap) {
            let names = ["user", "item", "label", "weight", "feedback", "timestamp", "observation_id", "decision_id"];
            let options = arrow_cast::display::FormatOptions::default();
            let columns = names.map(|name| {
                arrow_cast::display::ArrayFormatter::try_new(batch.column_by_name(name).unwrap(), &options).unwrap()
            });
            for row in 0..batch.num_rows() {
                rows.insert(columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|"));
            }
        }
    }
    rows
}

fn export(data: &Path, out: &Path) -> PathBuf {
    let done = binary::run(["export", "--data-dir", data.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "{done:?}");
    out.to_owned()
}

#[test]
fn what_was_exported_is_imported_with_labels_weights_times_feedback_and_ids() {
    let dir = tempfile::tempdir().unwrap();
    let (data, other_data) = (dir.path().join("data"), dir.path().join("other"));
    let node = Node::serve(&data);
    let films = create_model(&node.client(), "films", 1);
    let decision = films.post("topk", &json!({"user": "u1", "items": ["item-1", "item-2"], "k": 2})).expect(200);
    films.observe(&json!({"user": "u1", "item": "item-1", "label": 4, "decision_id": decision["decision_id"]}));
    films.observe(&json!({"user": "u1", "item": "item-2", "label": 0.1, "weight": 2.5, "feedback": "rating",
        "observation_id": "mine", "timestamp": 1_600_000_000_123_i64}));
    films.observe(&json!({"user": "u2", "item": "item-2", "label": 1, "observation_id": "corrected"}));
    films.put("observations/corrected", &json!({"label": 5})).expect(200);
    node.stop();
    let first = export(&data, &dir.path().join("export"));

    let other = Node::serve(&other_data);
    let films = create_model(&other.client(), "films", 1);
    let folder = first.to_str().unwrap();
    assert_contains(&imported(&films, &[folder]), &["3 observations taken, 0 were there already"]);
    assert_contains(&imported(&films, &[folder]), &["0 observations taken, 3 were there already"]);
    other.stop();
    let second = export(&other_data, &dir.path().join("second"));

    let before: BTreeSet<String> = exported(&first, "films").iter().map(|row| row.replace("|~", "|films:~")).collect();
    assert_eq!(before.len(), 3);
    assert_eq!(exported(&second, "films"), before);

    fs::remove_file(first.join("_SUCCESS")).unwrap();
    let node = Node::serve(&other_data);
    let message = refused(&node.model("films"), &[folder]);
    assert_contains(&message, &["incomplete export"]);
    let shown: Value = node.model("films").get("").expect(200);
    assert_eq!(shown["observations"], 3);
}
