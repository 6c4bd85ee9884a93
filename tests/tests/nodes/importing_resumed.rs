//! `celeris import --resume` of files that were imported before: complete, grown, changed, or into a node without them.

use std::fs;

use celeris_tests::fixtures::create_model;
use celeris_tests::{Node, binary};
use serde_json::{Value, json};

use super::importing::{assert_contains, imported, observations, refused, write};

#[test]
fn a_file_that_was_completed_grew_or_changed_counts_each_row_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let first = "user,item,label\na,1,5\na,1,5\nb,2,3\n";
    let file = write(dir.path(), "jan.csv", first);
    let state = dir.path().join("state.json");
    let arguments = [file.as_str(), "--resume", state.to_str().unwrap()];
    assert_contains(&imported(&films, &arguments), &["3 observations taken, 0 were there already"]);
    let again = ["3 observations were acknowledged before, 0 observations taken, 0 were there already"];
    assert_contains(&imported(&films, &arguments), &again);

    write(dir.path(), "jan.csv", format!("{first}c,3,4\n"));
    let grown = ["3 observations were acknowledged before, 1 observations taken, 0 were there already"];
    assert_contains(&imported(&films, &arguments), &grown);
    write(dir.path(), "jan.csv", format!("user,item,label\nz,9,1\n{}", &first[16..]));
    assert_contains(&imported(&films, &arguments), &["1 observations taken, 3 were there already"]);
    // Shorter than before.
    write(dir.path(), "jan.csv", "user,item,label\nz,9,1\n");
    let shorter = super::importing::import(&films, &arguments);
    assert_contains(
        &shorter.stderr,
        &["does not begin with the rows that were imported before", "1 were there already"],
    );
    assert_eq!(observations(&films), 5);
    let message = refused(&films, &[&file, "--resume", state.to_str().unwrap(), "--weight", "2"]);
    assert_contains(&message, &["does not begin with the rows", "imported before with other values"]);
    assert_eq!(observations(&films), 5);
}

#[test]
fn a_node_without_the_rows_gets_them_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "jan.csv", "user,item,label\na,1,5\nb,2,3\n");
    let state = dir.path().join("state.json");
    let arguments = [file.as_str(), "--resume", state.to_str().unwrap()];
    let node = Node::serve(&dir.path().join("data"));
    imported(&create_model(&node.client(), "films", 1), &arguments);
    // As after a restore of an older backup: the model has the same id.
    let other = Node::serve(&dir.path().join("other"));
    let films = create_model(&other.client(), "films", 1);
    let done = super::importing::import(&films, &arguments);
    assert_contains(&done.stderr, &["the node does not have the last of 2 rows", "all are sent again"]);
    assert_eq!((done.code, observations(&films)), (Some(0), 2));
    assert_contains(&imported(&films, &arguments), &["2 observations were acknowledged before"]);

    other.client().post("/v1/models", &json!({"name": "others", "dim": 4})).expect(201);
    let message = refused(&other.model("others"), &arguments);
    assert_contains(&message, &["--resume", "state.json: is of another model, films", "delete it"]);
    assert_eq!(films.delete("").status, 204);
    let films = create_model(&other.client(), "films", 1);
    assert_contains(&refused(&films, &arguments), &["is of another model"]);
}

#[test]
fn the_state_is_no_other_file_and_bad_rows_are_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let films = create_model(&node.client(), "films", 1);
    let text = "user,item,label\na,1,5\nb,2,x\nc,3,4\n";
    let file = write(dir.path(), "jan.csv", text);
    assert_contains(&refused(&films, &[&file, "--resume", &file]), &["is the input", "name another file"]);
    let other = write(dir.path(), "other.json", "{\"a\": 1}");
    assert_contains(&refused(&films, &[&file, "--resume", &other]), &["other.json: is no state of an import"]);
    assert_eq!(fs::read_to_string(&other).unwrap(), "{\"a\": 1}");
    let missing = dir.path().join("missing/state.json");
    assert_contains(&refused(&films, &[&file, "--resume", missing.to_str().unwrap()]), &["missing/state.json"]);
    let both = binary::run(["import", &file, "--dry-run", "--resume", &other]);
    assert_eq!(both.code, Some(2), "{both:?}");

    let (state, bad) = (dir.path().join("state.json"), dir.path().join("bad.csv"));
    let (state, bad) = (state.to_str().unwrap(), bad.to_str().unwrap());
    let arguments = [&file, "--resume", state, "--skip-bad", bad];
    assert_contains(&imported(&films, &arguments), &["2 observations taken", "1 skipped"]);
    write(dir.path(), "jan.csv", format!("{text}d,4,y\ne,5,1\n"));
    let counts = imported(&films, &arguments);
    assert_contains(&counts, &["2 observations were acknowledged before, 1 observations taken", "2 skipped"]);
    let written = fs::read_to_string(bad).unwrap();
    assert_eq!(written.lines().count(), 3, "{written}");
    assert_contains(&written, &["jan.csv,3,", "jan.csv,5,"]);
    let state: Value = serde_json::from_slice(&fs::read(state).unwrap()).unwrap();
    assert_eq!(state["inputs"]["jan.csv"]["lines"], 3);
}
