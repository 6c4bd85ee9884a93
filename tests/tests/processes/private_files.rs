//! The files of a node hold personal data; only the user that the node runs as can read them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use celeris_tests::fixtures::{config_file, write_dataset};
use celeris_tests::{ProcessOptions, binary, eventually, sealed};
use serde_json::json;

/// Adds every path from `path` down that others than its owner may read, write or enter to `open`,
/// and returns the number of all paths.
fn open_to_others(path: &Path, open: &mut Vec<String>) -> usize {
    // Files may be removed concurrently.
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        open.push(format!("{} {mode:o}", path.display()));
    }
    if !metadata.is_dir() {
        return 1;
    }
    let entries = fs::read_dir(path).into_iter().flatten().map_while(Result::ok).map(|entry| entry.path());
    1 + entries.map(|entry| open_to_others(&entry, open)).sum::<usize>()
}

#[test]
fn no_other_user_can_read_the_data_directory_or_an_export() {
    let dir = tempfile::tempdir().unwrap();
    let (data, out, dataset) = (dir.path().join("data"), dir.path().join("out"), dir.path().join("dataset"));
    fs::create_dir(&dataset).unwrap();
    write_dataset(&dataset);
    // An administrator may have created the folder with these permissions.
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let config = config_file(dir.path(), "[sealing]\ninterval = \"100ms\"\n");
    let node = ProcessOptions::default().config(config).serve(&data);
    let client = node.client();
    client.post("/v1/models", &json!({"name": "films", "dim": 8})).expect(201);
    let films = client.model("films");
    let imported =
        binary::run(["import", "--url", client.url(), "--model", "films", "--dataset", dataset.to_str().unwrap()]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    films.post("topk", &json!({"user": "1", "items": ["1", "2"], "k": 1})).expect(200);
    let job = films.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    let mut open = Vec::new();
    eventually("the end of the training", || {
        // The files of the job and of its trainer exist during the training.
        open_to_others(&data.join("jobs"), &mut open);
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200)["state"].clone();
        (state == "succeeded").then_some(())
    });
    eventually("sealed segments", || sealed::read(&data, "films").map(drop));
    assert!(open_to_others(&data, &mut open) > 20);
    assert_eq!(node.terminate().code, Some(0));
    let exported = binary::run(["export", "--data-dir", data.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert_eq!(exported.code, Some(0), "{exported:?}");
    assert!(open_to_others(&out, &mut open) > 3);
    open_to_others(&data, &mut open);
    assert!(open.is_empty(), "others have access to {open:#?}");
}
