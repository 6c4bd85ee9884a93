//! `celeris import --resume`: the importer or the node is killed in the middle, and each row counts once.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use celeris_tests::binary::{self, Finished};
use celeris_tests::fixtures::create_model;
use celeris_tests::{ModelClient, NodeProcess, ProcessOptions, eventually};
use serde_json::Value;

/// Rows of an import that takes longer than the first look at it.
const ROWS: u64 = 60_000;

/// Rows of a request.
const BATCH: u64 = 2000;

fn rows(rows: std::ops::Range<u64>) -> String {
    rows.map(|row| format!("u{},i{},{},{}\n", row % 5000, row / 7 % 900, 1 + row % 5, 1_600_000_000 + row)).collect()
}

fn file(folder: &Path, rows_of_file: u64) -> PathBuf {
    let path = folder.join("rows.csv");
    fs::write(&path, format!("user,item,label,time\n{}", rows(0..rows_of_file))).unwrap();
    path
}

fn observations(model: &ModelClient) -> u64 {
    model.get("").expect(200)["observations"].as_u64().unwrap()
}

fn command(model: &ModelClient, file: &Path, state: &Path) -> Command {
    let mut command = binary::command();
    command.args(["import", "--model", model.name(), "--url", model.node().url(), "--resume"]).arg(state).arg(file);
    command
}

/// An import in a process of its own, which is killed if the test fails.
struct Import(Child);

impl Import {
    fn start(model: &ModelClient, file: &Path, state: &Path, arguments: &[&str]) -> Self {
        let mut command = command(model, file, state);
        // Nobody reads them before the end, and a full pipe would hold the import up.
        let out = File::create(state.with_extension("stderr")).unwrap();
        Self(command.args(arguments).stdout(std::process::Stdio::null()).stderr(out).spawn().unwrap())
    }

    fn kill_hard(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn wait(mut self, state: &Path) -> Finished {
        let status = eventually("the end of the import", || self.0.try_wait().unwrap());
        let stderr = fs::read_to_string(state.with_extension("stderr")).unwrap();
        Finished { code: status.code(), stdout: String::new(), stderr }
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn resumed(model: &ModelClient, file: &Path, state: &Path) -> Finished {
    let mut command = command(model, file, state);
    let done = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Finished { code: done.status.code(), stdout: text(done.stdout), stderr: text(done.stderr) }
}

/// The numbers of observations acknowledged before, taken, and known, in the last line of an import.
#[track_caller]
fn counts(done: &Finished) -> (u64, u64, u64) {
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let before_words = |words: &str| -> u64 {
        let line = done.stderr.lines().find(|line| line.contains(" skipped, ")).unwrap();
        line.find(words).map_or(0, |end| line[..end].rsplit(' ').next().unwrap().parse().unwrap())
    };
    (
        before_words(" observations were acknowledged before"),
        before_words(" observations taken"),
        before_words(" were there already"),
    )
}

fn acknowledged(state: &Path) -> u64 {
    let Ok(text) = fs::read(state) else { return 0 };
    let state: Value = serde_json::from_slice(&text).unwrap();
    state["inputs"].as_object().unwrap().values().map(|input| input["lines"].as_u64().unwrap()).sum()
}

#[test]
fn an_import_that_was_killed_goes_on_where_the_node_had_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let state = dir.path().join("state.json");
    // A pipe has the import read no more than the test has written.
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let import = Import::start(&films, &pipe, &state, &[]);
    let mut input = OpenOptions::new().write(true).open(&pipe).unwrap();
    input.write_all(b"user,item,label,time\n").unwrap();
    let mut written = 0;
    // How far it has come is written once a second.
    let acknowledged = eventually("a state with rows", || {
        input.write_all(rows(written..written + BATCH).as_bytes()).unwrap();
        written += BATCH;
        Some(acknowledged(&state)).filter(|lines| *lines > 0)
    });
    import.kill_hard();
    drop(input);
    let held = observations(&films);
    assert!(acknowledged > 0 && acknowledged <= held && held <= written, "{acknowledged} {held} {written}");

    let all = written + 10;
    let import = Import::start(&films, &pipe, &state, &[]);
    let mut input = OpenOptions::new().write(true).open(&pipe).unwrap();
    write!(input, "user,item,label,time\n{}", rows(0..all)).unwrap();
    drop(input);
    let (before, taken, known) = counts(&import.wait(&state));
    assert_eq!((before, before + taken + known), (acknowledged, all));
    assert_eq!(observations(&films), all);
}

#[test]
fn an_import_whose_node_was_killed_goes_on_with_the_next_node() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = NodeProcess::serve(&data);
    let films = create_model(&node.client(), "films", 1);
    let (file, state) = (file(dir.path(), ROWS), dir.path().join("state.json"));
    let import = Import::start(&films, &file, &state, &["--wait", "1"]);
    eventually("some observations", || (observations(&films) >= 3 * BATCH).then_some(()));
    node.kill_hard();
    let failed = import.wait(&state);
    assert_eq!(failed.code, Some(1), "{}", failed.stderr);
    for words in ["does not answer now", "waiting up to 1 s", "run the same command again", "before that"] {
        assert!(failed.stderr.contains(words), "no {words:?} in {}", failed.stderr);
    }
    let acknowledged = acknowledged(&state);
    assert!((2 * BATCH..ROWS).contains(&acknowledged), "{acknowledged}");

    let node = NodeProcess::serve(&data);
    let films = node.model("films");
    let (before, taken, known) = counts(&resumed(&films, &file, &state));
    assert_eq!((before, before + taken + known), (acknowledged, ROWS));
    assert_eq!(observations(&films), ROWS);
    let (before, taken, known) = counts(&resumed(&films, &file, &state));
    assert_eq!((before, taken, known), (ROWS, 0, 0));
}

#[test]
fn an_import_waits_for_a_node_that_is_killed_and_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = NodeProcess::serve(&data);
    let films = create_model(&node.client(), "films", 1);
    let address = node.client().address().to_owned();
    let (file, state) = (file(dir.path(), ROWS), dir.path().join("state.json"));
    let import = Import::start(&films, &file, &state, &[]);
    eventually("some observations", || (observations(&films) >= 3 * BATCH).then_some(()));
    node.kill_hard();
    let node = ProcessOptions::default().listen(&address).serve(&data);
    let films = node.model("films");
    let done = import.wait(&state);
    let (before, taken, known) = counts(&done);
    assert_eq!((before, taken + known), (0, ROWS));
    assert!(done.stderr.contains("does not answer now"), "{}", done.stderr);
    assert_eq!(observations(&films), ROWS);
}
