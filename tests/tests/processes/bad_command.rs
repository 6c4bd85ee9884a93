//! A command with invalid arguments or files exits with code 2 and names the wrong file, line,
//! field or key.

use std::fs;
use std::path::{Path, PathBuf};

use celeris_tests::fixtures::create_model;
use celeris_tests::{Node, binary};

/// Runs the command and checks that it fails with a message that contains all of `words`.
#[track_caller]
fn assert_refused(arguments: &[&str], words: &[&str]) {
    let finished = binary::run(arguments);
    assert_eq!(finished.code, Some(2), "{arguments:?}: {finished:?}");
    assert!(!finished.stdout.contains("ready"), "{arguments:?}: {finished:?}");
    for word in words {
        assert!(finished.stderr.contains(word), "{arguments:?}: no {word:?} in: {}", finished.stderr);
    }
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let file = dir.join(name);
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn malformed_data_files_are_refused_by_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "userId,movieId,rating,timestamp\n1,10,4.0,964982703\n1,11,NaN,964982703\n2,10,3.5,964982703\n";
    let ratings = write(dir.path(), "ratings.csv", rows);
    let ratings = ratings.to_str().unwrap();
    let words = ["ratings.csv:3", "rating", "NaN"];
    let data_dir = dir.path().join("data");
    let data_dir = data_dir.to_str().unwrap();
    assert_refused(
        &["demo", "--dataset", ratings, "--data-dir", data_dir, "--listen", "127.0.0.1:0", "--exit-when-ready"],
        &words,
    );
    assert_refused(&["evaluate", "--dataset", ratings, "--protocol", "split"], &words);

    let node_dir = tempfile::tempdir().unwrap();
    let node = Node::serve(node_dir.path());
    let client = node.client();
    create_model(&client, "films", 7);
    assert_refused(&["import", "--url", client.url(), "--model", "films", "--dataset", ratings], &words);

    let nonsense = write(dir.path(), "nonsense.csv", "<!doctype html>\n");
    assert_refused(
        &["evaluate", "--dataset", nonsense.to_str().unwrap(), "--protocol", "split"],
        &["nonsense.csv", "has one column only"],
    );
    let missing = dir.path().join("missing");
    let missing = missing.to_str().unwrap();
    assert_refused(&["evaluate", "--dataset", missing, "--protocol", "split"], &[missing]);
    assert_refused(
        &["demo", "--dataset", missing, "--data-dir", data_dir, "--listen", "127.0.0.1:0", "--exit-when-ready"],
        &[missing],
    );
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert_refused(&["evaluate", "--dataset", empty.to_str().unwrap(), "--protocol", "split"], &["ratings.csv"]);
}

#[test]
fn bad_configuration_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let data_dir = data_dir.to_str().unwrap();
    let serve = |config: &str, words: &[&str]| {
        let file = write(dir.path(), "celeris.toml", config);
        assert_refused(
            &["serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir, "--config", file.to_str().unwrap()],
            words,
        );
    };
    serve("[limits]\nitems_per_reqest = 10\n", &["items_per_reqest", "celeris.toml"]);
    serve("[limit]\nbody = \"1 MiB\"\n", &["limit", "celeris.toml"]);
    serve("[limits]\nbody = \"much\"\n", &["body", "celeris.toml"]);
    serve("[server]\ndrain_timeout = 10\n", &["drain_timeout", "celeris.toml"]);
    serve("[limits]\nbody = \"0 B\"\n", &["limits.body", "above 0"]);
    serve("[limits]\nrequest_timeout = \"0s\"\n", &["limits.request_timeout", "above 0"]);
    serve("[limits]\nstreams = 0\n", &["limits.streams", "from 1"]);
    // More than a semaphore counts.
    serve("[limits]\nrequests = 9223372036854775807\n", &["limits.requests", "from 1"]);
    serve("[decisions]\nretention = \"0s\"\n", &["decisions.retention", "decisions.enabled"]);
    serve("[server\n", &["celeris.toml"]);
    serve("[training]\nprograms = [\"python3\"]\n", &["programs", "trainers", "celeris.toml"]);
    serve("[training.trainers]\nsvd = [\"python3\", \"-c\"]\n", &["training.trainers", "svd", "{job}"]);
    serve("[training.trainers]\nals = [\"run\", \"{job}\"]\n", &["training.trainers", "als", "built-in"]);
    serve("[training.limits]\nprocesses = 1\n", &["training.limits.processes", "must be from 8"]);
    serve("[training.limits]\ndisk = \"1 kB\"\n", &["training.limits.disk"]);
    assert_refused(&["serve", "--data-dir", data_dir, "--config", "no-such-file.toml"], &["no-such-file.toml"]);
    let mut command = binary::command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir]).env("CELERIS_LIMITS__BODDY", "1MiB");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).to_lowercase().contains("boddy"), "{output:?}");
    assert!(!Path::new(data_dir).exists(), "a node with a bad configuration touches no data");
}

#[test]
fn bad_arguments_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().to_str().unwrap();
    assert_refused(&["surf"], &["surf"]);
    assert_refused(&["serve"], &["--data-dir"]);
    assert_refused(&["serve", "--data-dir", data_dir, "--prot", "80"], &["--prot"]);
    assert_refused(&["serve", "--data-dir", data_dir, "--listen", "nowhere"], &["nowhere"]);
    assert_refused(&["evaluate", "--dataset", data_dir, "--protocol", "guess"], &["guess"]);
    assert_refused(&["evaluate", "--protocol", "velox"], &["--dataset"]);
    assert_refused(&["evaluate", "--dataset", data_dir, "--protocol", "split", "--dim", "many"], &["--dim", "many"]);
    assert_refused(&["datasets", "fetch", "no-such-data-set"], &["no-such-data-set"]);
    assert_refused(&["train", "--job", "no-such-job.json"], &["no-such-job.json"]);
    let file = write(dir.path(), "a-file", "");
    assert_refused(&["serve", "--listen", "127.0.0.1:0", "--data-dir", file.to_str().unwrap()], &["a-file"]);
}
